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
"""Number of users whom the default :meth:`DecisionWorld.trajectories` simulates at a time; results do not depend on
it."""


class World(abc.ABC):
    """Generative model of users.

    Derive from one of its subclasses, which determine how a world is simulated and how recommenders are compared in
    it: :class:`DecisionWorld`, ``ExposureWorld`` or ``PlatformWorld``.

    Attributes:
        name: name of the world on the command line, in logs and in results.
        params_class: class of the parameters, which converts names and texts (``--set name=value``) to parameters; a
            world without parameters omits it.
        presets: named parameters, each with a description of one line; the first is the default.
        truth_column: name of the column that ``keep_truth`` adds to a log, with the expected reward of the action shown
            and NaN on organic rows; None if the world does not know it.
        log_holds: kinds of data that simulated logs hold besides views, keys of
            :data:`recsim_mnar.policies.door.HOLDINGS`; None if not declared.
        reward_name: name of the reward in reports, such as ``click`` (the mean is then called CTR) or ``minutes``.
        views_repeat: True if a user may view an item again. If not, leave-one-out ranks only items that are not viewed.
        in_parts: True if a log is simulated in parts, so that an interrupted run can be resumed.
        simulated_by: ``package.module:function`` that writes a log to a folder, see
            :mod:`recsim_mnar.simulation.run_folder`.
        recommended_by: ``package.module:function`` that makes a
            :class:`recsim_mnar.simulation.items.ShardRecommender` from a policy and the parameters; empty for a world
            whose decisions show one item or one ranking.
        compared_by: ``package.module:Class``, a :class:`recsim_mnar.protocols.base.Experiment` that compares
            recommenders in this world.
        environments_by: ``package.module:function`` that makes the Gymnasium environments, see
            :mod:`recsim_mnar.envs`.
        observation_words: values of the keyword ``observation`` that are the world's parameter of that name, not the
            environment's.
        tasks_by: ``package.module:Class``, a :class:`recsim_mnar.tasks.running.Runner` that runs the tasks.
        summary: description of one line; empty for the first line of the class's docstring.
        instead: end of the message to a user who needs a world that shows one item at a time: how this world differs,
            and what to use instead.
        params: parameters of this object.
        n_items: number of items; actions are 0 .. n_items - 1.
        most_decisions: largest number of decisions of a user, which environments state; None if there is no bound.
        slate_size: number of items shown at a decision; if above 1, an action is a ranking of distinct items from the
            top.
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
    observation_words: ClassVar[tuple[str, ...]] = ()
    tasks_by: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    instead: ClassVar[str] = ""
    params: Params = Params()
    n_items: int
    slate_size: int = 1
    most_decisions: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return name and parameters, for a log's provenance; JSON types only."""
        return {"name": self.name, "params": self.params.to_dict()}

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Return the hidden truth that ``simulate --truth`` saves as ``catalogue.npz``, as arrays by name.

        Args:
            seed: seed of the users.
            n_users: number of users in the log, 0 .. n_users - 1.
        """
        return {}

    def check_params(self) -> None:
        """Raise UserError if the parameters lack something that this kind of world requires."""


class LaneWorld(World):
    """World whose users do not influence each other, so that many can be simulated at once, each in its own lane.

    Attributes:
        rates: True if organic events are ratings. The rating is then the row's ``reward``, and the probability that it
            is revealed the column ``observation_propensity``.
        n_user_features: number of user features that a recommender may see; if there are any, :meth:`features_of`
            returns them, and they are an environment's observation.
        observation: definition of a user's observation, an object of a class derived from
            :class:`recsim_mnar.worlds.Observation`; None for the observations of this package. Environments use it by
            default. Policies use it by ``FeaturePolicy(n_items, world.observation)``, and arrays of a log by
            ``decisions(log, n_items, context=world.observation)``.
    """

    rates: ClassVar[bool] = False
    n_user_features: int = 0
    observation: Observation | None = None

    @abc.abstractmethod
    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> Lanes:
        """Make lanes in which ``n_lanes`` users are simulated at once.

        Args:
            n_lanes: number of lanes.
            keep_truth: True if transitions must have the column :attr:`truth_column`.
        """

    def lanes(self, n_lanes: int, *, keep_truth: bool = False) -> Lanes:
        """Make lanes as :meth:`open_lanes` does; those of a user-defined world check every transition.

        Raises:
            UserError: ``open_lanes`` returned something else, a user-defined world shows slates, or ``keep_truth`` for
                a world without a ``truth_column``. Checked lanes raise it later, at a transition that breaks a rule.
        """
        if keep_truth and self.truth_column is None:
            raise UserError(
                f"the {self.name} world has no truth column: set truth_column and fill it in its lanes, or ask for "
                "no truth"
            )
        lanes = self.open_lanes(n_lanes, keep_truth=keep_truth)
        if isinstance(lanes, Lanes) and lanes.trusted:
            return lanes
        if self.slate_size != 1:
            raise UserError(f"world {self.name!r}: an own world shows one item at a time: set slate_size = 1")
        truth_column = self.kept_truth(keep_truth)
        return CheckedLanes(lanes, self.name, self.n_items, n_lanes, rates=self.rates, truth_column=truth_column)

    def kept_truth(self, keep_truth: bool) -> str | None:
        """Return the name of the truth column if ``keep_truth``, else None."""
        if keep_truth:
            return self.truth_column
        return None

    def features_of(self, seed: int, users: Ints) -> Floats32:
        """Return the features (n, n_user_features) of users (n,) that recommenders may know from the start."""
        return np.zeros((len(users), self.n_user_features), np.float32)

    def decides(self) -> None:
        """Raise UserError if the parameters never let a user come to a decision."""


class DecisionWorld(LaneWorld):
    """World of independent users, each of whose decisions shows one item or one ranking."""

    simulated_by = "recsim_mnar.simulation.run_folder:simulate_users"
    compared_by = "recsim_mnar.protocols.decisions:DecisionExperiment"
    environments_by = "recsim_mnar.envs:of_decisions"
    tasks_by = "recsim_mnar.tasks.running:DecisionRunner"

    @property
    def knows_rewards(self) -> bool:
        """Return True if the world defines :meth:`reward_means`."""
        return type(self).reward_means is not DecisionWorld.reward_means

    def reward_means(self, state: Floats) -> Floats:
        """Return the expected reward of every item, (n, n_items), for users in hidden states (n, d).

        Args:
            state: states as in :attr:`Lanes.state`.

        Raises:
            UserError: the world does not define it.
        """
        raise UserError(
            f"the {self.name} world does not say its expected rewards: define reward_means(state), and state in its "
            "lanes"
        )

    def planned_values(self, state: Floats) -> Floats:
        """Return an index of each item's long-term value, (n, n_items), for users in hidden states (n, d).

        A planner shows the item of largest index. The index is a heuristic that includes effects on later rewards. The
        default is the expected reward, which is right if recommendations have no later effects.
        """
        return self.reward_means(state)

    def reward_means_of(self, state: Floats, actions: Actions) -> Floats:
        """Return the expected reward (n,) of item ``actions[j]`` for a user in hidden state ``state[j]``, (n, d)."""
        return self.reward_means(state)[np.arange(len(actions)), actions]

    def ranking_means(self, state: Floats, rankings: Actions) -> Floats:
        """Return the expected reward (n, k) at each position of rankings (n, k) for users in hidden states (n, d).

        Raises:
            UserError: the world shows one item at a time.
        """
        raise UserError(f"the {self.name} world shows one item at a time, not rankings: only sessions worlds do")

    def open_occasions(self, n_lanes: int, *, views: bool) -> Occasions | None:
        """Make lanes that move from occasion to occasion, see :class:`Occasions`; None if the world has none.

        Args:
            n_lanes: number of users simulated at once.
            views: True if the caller needs the items viewed between occasions.
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
        """Simulate consecutive users under a policy that treats all users alike.

        This default simulates in lanes; a world may override it by a faster kernel.

        Args:
            seed: seed of the users and of the policy's uniforms.
            first_user: id of the first user.
            n_users: number of users.
            distribution: (n_items,) the policy's probabilities; None for the uniform policy.
            keep_truth: True to add the column :attr:`truth_column`.

        Returns:
            Columns of the log, with rows ordered by user and step.
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
        # From decision by decision to user by user; the sort is stable, so a user's rows stay in order.
        order = np.argsort(columns["user"], kind="stable")
        return {name: values[order] for name, values in columns.items()}


def sha256_of(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 digest, in hexadecimal, of the bytes of arrays one after the other."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def add_products(out: Floats, left: Floats, right: Floats) -> None:
    """Add the matrix product of ``left`` (n, K) and the transpose of ``right`` (m, K) to ``out`` (n, m), in place.

    The K terms are added in their order. The matrix product of a BLAS library rounds differently on each machine, and a
    last bit can change the outcome of a random draw.
    """
    for k in range(left.shape[1]):
        out += left[:, k, None] * right[:, k]


def as_world(world: Any) -> World:
    """Return an object unchanged, after checking that it is a world with valid attributes.

    Raises:
        UserError: it does not derive from a kind of world, or its name, ``n_items``, ``truth_column``, parameters or
            description are missing or invalid.
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
        copied = json.loads(json.dumps(description))  # raises an error unless it has JSON types only
    except Exception as error:  # an own world's code may raise anything
        raise UserError(f"world {name!r}: describe() must return JSON types, it raises {described(error)}") from None
    if not isinstance(description, dict) or copied.get("name") != name:
        raise UserError(f"world {name!r}: describe() must be a dictionary that holds the name")
    return world


def checked_slates(slates: Any, n: int, n_items: int) -> Ints:
    """Return slates as int64 (n, N) with N >= 1, after checking them.

    Args:
        slates: array-like of items, one row per user.
        n: number of users.
        n_items: number of items of the world.

    Raises:
        UserError: wrong shape, not integers, or an item out of range.
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
    """Return a world unchanged if it is a :class:`DecisionWorld`.

    Args:
        world: world of any kind.
        what: function or command that needs such a world, for the message.

    Raises:
        UserError: it is another kind of world; the message says what to use instead.
    """
    return needs_decisions(as_world(world), what)


def needs_decisions(world: World, what: str) -> DecisionWorld:
    """Return a checked world unchanged if it is a :class:`DecisionWorld`, see :func:`decision_world`."""
    if not isinstance(world, DecisionWorld):
        raise UserError(f"{what} asks for one item at a time, the {world.name} world {world.instead}")
    return world
