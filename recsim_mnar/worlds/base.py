"""Base classes of worlds, and checks of an object that should be one."""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, described
from recsim_mnar.kernels.checks import refuse_first
from recsim_mnar.log import schema
from recsim_mnar.log.contexts import Observation
from recsim_mnar.rng import policy_uniforms
from recsim_mnar.worlds.lanes import (
    Actions,
    CheckedLanes,
    Columns,
    Floats,
    Floats32,
    Ints,
    Lanes,
    Occasions,
    Transition,
    cumulative_of,
)
from recsim_mnar.worlds.params import Params

__all__ = ["DecisionWorld", "LaneWorld", "Lanes", "Transition", "World"]

_USERS_A_CALL = 1024
"""Users of the default :meth:`DecisionWorld.trajectories` who live side by side; results do not depend on it."""


class World(abc.ABC):
    """Generative model of users; derive from one of its kinds.

    Derive from :class:`DecisionWorld`, or from one of the kinds that say how else a world is simulated and judged:
    ``ExposureWorld``, ``PlatformWorld``.

    Attributes:
        name: as on the command line, in logs and in results.
        params_class: class of its parameters, by which names and texts (``--set name=value``) become parameters;
            a world without any omits it.
        presets: parameters by name, each with a line for a person; the first is the default.
        truth_column: name of the column that ``keep_truth`` adds to a log: the expected reward of the action shown, NaN
            on organic rows. None for a world that does not say.
        log_holds: what its simulated logs hold next to views, of :data:`recsim_mnar.policies.door.HOLDINGS`; None where
            not stated.
        reward_name: what a recommendation earns, as reports name it: ``click``, whose mean is the CTR, ``minutes``.
        views_repeat: whether a user may view an item again; where none does, leave-one-out ranks what is left.
        in_parts: whether a log of it is made in parts, so that an interrupted run can be taken up.
        simulated_by: ``package.module:function`` that writes a log into a folder, see
            :mod:`recsim_mnar.simulation.run_folder`.
        recommended_by: ``package.module:function`` that makes a
            :class:`recsim_mnar.simulation.items.ShardRecommender` of a policy and the parameters; empty where users are
            recommended one item, or a ranking, at a time.
        compared_by: ``package.module:Class``, a :class:`recsim_mnar.protocols.base.Experiment` that compares
            recommenders in it.
        environments_by: ``package.module:function`` that makes its environments, see :mod:`recsim_mnar.envs`.
        tasks_by: ``package.module:Class``, a :class:`recsim_mnar.tasks.running.Runner` that runs its tasks.
        summary: one line for a person; the first of the docstring where it is empty.
        instead: what a world that shows no item at a time is, and what to use for it, as messages end.
        params: what defines it.
        n_items: number of items; actions are 0 .. n_items - 1.
        most_decisions: decisions after which every life has ended, as environments state it; None: there is no bound.
        slate_size: items shown at a decision; above 1 what is recommended is a ranking of distinct items, top first.
    """

    name: ClassVar[str]
    params_class: ClassVar[type[Params]] = Params
    presets: ClassVar[Mapping[str, tuple[Params, str]]] = {}
    truth_column: ClassVar[str | None] = None
    log_holds: ClassVar[frozenset[str] | None] = None
    reward_name: str = "reward"
    views_repeat: bool = True
    in_parts: ClassVar[bool] = True
    simulated_by: ClassVar[str] = ""
    recommended_by: ClassVar[str] = ""
    compared_by: ClassVar[str] = ""
    environments_by: ClassVar[str] = ""
    tasks_by: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    instead: ClassVar[str] = ""
    params: Params = Params()
    n_items: int
    slate_size: int = 1
    most_decisions: int | None = None

    def describe(self) -> dict[str, Any]:
        """Name and parameters, for a log's provenance; JSON types only."""
        return {"name": self.name, "params": self.params.to_dict()}

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Truth: what ``catalogue.npz`` holds next to a log of users 0 .. n_users - 1 of a seed."""
        return {}

    def check_params(self) -> None:
        """Raise UserError where the parameters lack what the class's kind of world needs."""


class LaneWorld(World):
    """World whose users do not influence each other and live side by side in lanes.

    Attributes:
        rates: whether organic events are ratings, whose value is the row's ``reward`` and whose propensity of being
            revealed is the column ``observation_propensity``.
        n_user_features: how many features of a user a recommender may see; where there are any,
            :meth:`features_of` gives them, and an environment's observation is they.
        observation: what recommenders observe of a user, where the world defines it itself: an object of a class
            derived from :class:`recsim_mnar.worlds.Observation`. Environments show it unless asked otherwise; for the
            same in a policy or in arrays, ``FeaturePolicy(n_items, world.observation)`` and
            ``decisions(log, n_items, context=world.observation)``.
    """

    rates: ClassVar[bool] = False
    n_user_features: int = 0
    observation: Observation | None = None

    @abc.abstractmethod
    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> Lanes:
        """Places for ``n_lanes`` users; with ``keep_truth`` transitions have the column :attr:`truth_column` too."""

    def lanes(self, n_lanes: int, *, keep_truth: bool = False) -> Lanes:
        """Open lanes for simulation and environments; transitions of a user's own world are checked.

        Raises:
            UserError: lanes that are none, slates in an own world, or truth asked of a world without a
                ``truth_column``; and later, at the first transition that breaks a rule, with the rule.
        """
        if keep_truth and self.truth_column is None:
            raise UserError(
                f"the {self.name} world has no truth column: set truth_column and fill it in its lanes, or ask for "
                "no truth"
            )
        opened = self.open_lanes(n_lanes, keep_truth=keep_truth)
        if isinstance(opened, Lanes) and opened.trusted:
            return opened
        if self.slate_size != 1:
            raise UserError(f"world {self.name!r}: an own world shows one item at a time: set slate_size = 1")
        truth_column = self.kept_truth(keep_truth)
        return CheckedLanes(opened, self.name, self.n_items, n_lanes, rates=self.rates, truth_column=truth_column)

    def kept_truth(self, keep_truth: bool) -> str | None:
        """Return the name of the column of truth where it is kept, else None."""
        if keep_truth:
            return self.truth_column
        return None

    def features_of(self, seed: int, users: Ints) -> Floats32:
        """Return (n, n_user_features) features of users of a seed that a recommender may use from the start."""
        return np.zeros((len(users), self.n_user_features), np.float32)

    def decides(self) -> None:
        """Raise UserError if no user can ever reach a decision under the parameters."""


class DecisionWorld(LaneWorld):
    """World of independent users who are recommended one item, or one ranking, at a time."""

    simulated_by = "recsim_mnar.simulation.run_folder:simulate_users"
    compared_by = "recsim_mnar.protocols.decisions:DecisionExperiment"
    environments_by = "recsim_mnar.envs:of_decisions"
    tasks_by = "recsim_mnar.tasks.running:Items"

    @property
    def knows_rewards(self) -> bool:
        """Return whether the world defines its expected rewards (:meth:`reward_means`)."""
        return type(self).reward_means is not DecisionWorld.reward_means

    def reward_means(self, state: Floats) -> Floats:
        """Truth: (n, n_items) expected reward of every item for users in these states (n, .), as lanes show them.

        Raises:
            UserError: an own world that does not say it.
        """
        raise UserError(
            f"the {self.name} world does not say its expected rewards: define reward_means(state), and state in its "
            "lanes"
        )

    def planned_values(self, state: Floats) -> Floats:
        """Return (n, n_items) indices of each item's value in these states, later effects included; no truth.

        The expected rewards unless defined: right where what is shown changes nothing later.
        """
        return self.reward_means(state)

    def reward_means_of(self, state: Floats, actions: Actions) -> Floats:
        """Truth: (n,) expected reward of item ``actions[j]`` for a user in ``state[j]``; (n, .) and (n,)."""
        return self.reward_means(state)[np.arange(len(actions)), actions]

    def ranking_means(self, state: Floats, rankings: Actions) -> Floats:
        """Truth: (n, k) expected reward of each place of ``rankings`` (n, k) for users in ``state`` (n, .).

        Raises:
            UserError: a world that shows one item at a time.
        """
        raise UserError(f"the {self.name} world shows one item at a time, not rankings: only sessions worlds do")

    def open_occasions(self, n_lanes: int, *, views: bool) -> Occasions | None:
        """Open lanes that move from occasion to occasion; None in a world without occasions.

        Args:
            n_lanes: how many live side by side.
            views: whether the items viewed are asked for.
        """
        return None

    def trajectories(
        self,
        seed: int,
        first_user: int,
        n_users: int,
        distribution: Floats | None,
        *,
        keep_truth: bool = False,
    ) -> Columns:
        """Simulate consecutive users under a policy that treats all users alike, here through lanes.

        Args:
            seed: of the users and of the policy's uniforms.
            first_user: id of the first.
            n_users: how many.
            distribution: (n_items,) probabilities, or None for the uniform policy.
            keep_truth: add the column :attr:`truth_column`.

        Returns:
            the log's columns, ordered by (user, step).
        """
        last = first_user + n_users
        if distribution is not None:
            cumulative = cumulative_of(distribution)
        events: list[Columns] = []
        for first in range(first_user, last, _USERS_A_CALL):
            users = np.arange(first, min(first + _USERS_A_CALL, last))
            lanes = self.lanes(len(users), keep_truth=keep_truth)
            waiting = np.arange(len(users))
            transition = lanes.begin(waiting, np.full(len(users), seed, np.uint64), users)
            events.append(transition.columns)
            while transition.alive.any():
                waiting = waiting[transition.alive]
                drawn = policy_uniforms(seed, lanes.user[waiting], lanes.n_decisions[waiting])
                if distribution is None:
                    actions = np.minimum((drawn * self.n_items).astype(np.int32), self.n_items - 1)
                    propensities = np.full(len(drawn), 1.0 / self.n_items)
                else:
                    actions = np.searchsorted(cumulative, drawn, side="right").astype(np.int32)
                    propensities = distribution[actions]
                transition = lanes.take(waiting, actions, propensities)
                events.append(transition.columns)
        columns = {name: np.concatenate([part[name] for part in events]) for name in events[0]}
        order = np.argsort(columns["user"], kind="stable")
        return {name: values[order] for name, values in columns.items()}


def sha256_of(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 digest of arrays, for a provenance."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def add_products(out: Floats, left: Floats, right: Floats) -> None:
    """Add the products of rows of ``left`` (n, K) and ``right`` (m, K) to ``out`` (n, m), in the order of the K terms.

    BLAS rounds by machine, and a last bit can move a draw.
    """
    for k in range(left.shape[1]):
        out += left[:, k, None] * right[:, k]


def as_world(world: Any) -> World:
    """Check that an object is a world with the attributes that a world must have, and return it.

    Raises:
        UserError: it is no world, or has no name, no number of items, no parameters, or a truth column that cannot be.
    """
    if not (isinstance(world, World) and world.simulated_by):
        got = repr(world)
        if isinstance(world, type):
            got = f"the class {world.__name__}: make an object of it"
        raise UserError(
            f"a world must derive from recsim_mnar.worlds.DecisionWorld (or ExposureWorld, PlatformWorld), got {got}"
        )
    name = getattr(world, "name", None)
    if not (isinstance(name, str) and name):
        raise UserError(f"world {type(world).__name__} has no name: give its class name = 'my-world'")
    n_items = getattr(world, "n_items", None)
    if isinstance(n_items, bool) or not isinstance(n_items, (int, np.integer)) or n_items < 1:
        raise UserError(f"world {name!r} must have n_items, a whole number of at least 1; it has {n_items!r}")
    truth = world.truth_column
    if truth is not None and (not isinstance(truth, str) or not truth or truth in (*schema.NAMES, *schema.OPTIONAL)):
        raise UserError(
            f"world {name!r}: truth_column must be None or the name of a column that a log has not yet, got {truth!r}"
        )
    world.check_params()
    try:
        description = world.describe()
        copied = json.loads(json.dumps(description))
    except Exception as error:  # an own world's code may raise anything
        raise UserError(f"world {name!r}: describe() must return JSON types, it raises {described(error)}") from None
    if not isinstance(description, dict) or copied.get("name") != name:
        raise UserError(f"world {name!r}: describe() must be a dictionary that holds the name")
    return world


def checked_slates(slates: Any, n: int, n_items: int) -> Ints:
    """Slates as (n, N) integers.

    Raises:
        UserError: another shape, not integers, or an item out of range.
    """
    slates = np.asarray(slates)
    if slates.ndim != 2 or len(slates) != n or slates.shape[1] < 1:
        raise UserError(f"slates must have shape ({n}, N), got {slates.shape}")
    if not np.issubdtype(slates.dtype, np.integer):
        raise UserError(f"slates must hold integers, got {slates.dtype}")
    refuse_first(
        (slates < 0) | (slates >= n_items),
        lambda *place: f"item {slates[place]} is out of range, the world has items 0..{n_items - 1}",
    )
    return slates.astype(np.int64)


def decision_world(world: Any, what: str) -> DecisionWorld:
    """Return the world if its users are recommended one item at a time.

    Args:
        world: of any kind.
        what: that needs it, for the message.

    Raises:
        UserError: its users do not live a decision at a time, with what to use instead.
    """
    as_world(world)
    if not isinstance(world, DecisionWorld):
        raise UserError(f"{what} asks for one item at a time, the {world.name} world {world.instead}")
    return world
