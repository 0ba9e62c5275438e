"""Environments of worlds of slates, single and vector, and recorders: a step is a period with a recommended slate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.envs import made_for
from recsim_mnar.envs.recording import LogBuilder, events_of, recorded
from recsim_mnar.envs.slates import Ints, SeveralEnv, SeveralVectorEnv, ShowsSeveral, earning_rows
from recsim_mnar.envs.user_queue import Info
from recsim_mnar.envs.validation import as_array
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.purchases.policies import SlatePolicy
from recsim_mnar.purchases.world import ExposureWorld
from recsim_mnar.worlds.base import Transition, World, as_world, checked_slates

Array = NDArray[Any]


def purchases_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> PurchasesEnv:
    """Make the single environment of the purchases world.

    Args:
        preset: ``personalised`` (default), ``uniform``, ``popularity`` or ``quick``.
        world: an existing world of slates, or its name, instead of one made from the preset.
        **params: keywords of :class:`PurchasesEnv`, or fields of
            :class:`recsim_mnar.purchases.world.PurchasesParams` that differ from the preset's.
    """
    return made_for(ExposureWorld, "purchases", preset, world, params)


def purchases_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> PurchasesVectorEnv:
    """Make the vector environment of the purchases world.

    Args:
        num_envs: number of lanes.
        preset: ``personalised`` (default), ``uniform``, ``popularity`` or ``quick``.
        world: an existing world of slates, or its name, instead of one made from the preset.
        **options: keywords of :class:`PurchasesVectorEnv`, or parameters.
    """
    return made_for(ExposureWorld, "purchases", preset, world, options, num_envs)


def make_slate_env(world: ExposureWorld, n_lanes: int | None, options: Mapping[str, Any]) -> Any:
    """Make the single or the vector environment of a world of slates.

    Args:
        world: the world.
        n_lanes: number of lanes of a vector environment; None for the single environment.
        options: keywords of the environment.
    """
    if n_lanes is None:
        return PurchasesEnv(world, **options)
    return PurchasesVectorEnv(world, n_lanes, **options)


class _Purchases(ShowsSeveral):
    """Actions that are slates, sets of a world's items; the reward is the number of purchases."""

    event = "bought"
    world: ExposureWorld

    def _checked_world(self, world: World) -> ExposureWorld:
        """Return the world; raise UserError if it shows no slates."""
        world = as_world(world)
        if not isinstance(world, ExposureWorld):
            raise UserError(
                f"this environment recommends slates, the {world.name} world does not: use recsim_mnar/World-v0"
            )
        return world

    @property
    def size(self) -> int:
        """Implement :attr:`ShowsSeveral.size`."""
        return int(self.world.params.slate_size)

    def shown(self, items: Any, lanes: int | None) -> Ints:
        """Implement :meth:`ShowsSeveral.shown`: check an action, one slate if ``lanes`` is None, and return (n, N)."""
        n_slates = lanes or 1
        if lanes is None:  # the single environment
            items = as_array(items, "a slate")[None]
        slates = checked_slates(items, n_slates, self.world.n_items)
        if slates.shape[1] != self.size:
            raise UserError(f"a slate must have {self.size} items, got {slates.shape[1]}")
        return slates

    def earned(self, transition: Transition) -> NDArray[np.float64]:
        """Implement :meth:`ShowsSeveral.earned`: the items bought in each lane, recommended or not."""
        columns = transition.columns
        bought = (columns["event"] == schema.ORGANIC) | (columns["reward"] == 1)
        return np.add.reduceat(bought.astype(np.float64), transition.starts[:-1])

    def observe_shown(self, lanes: Ints, shown: NDArray[np.integer], transition: Transition) -> None:
        """Implement :meth:`ShowsSeveral.observe_shown`: bought items count as organic events do, recommended or not."""
        rows = earning_rows(transition)
        edges = rows.searchsorted(transition.starts)
        self._observer.add_events(lanes.repeat(np.diff(edges)), transition.columns["action"][rows], None)


class PurchasesEnv(_Purchases, SeveralEnv):
    """Environment of one user at a time: an episode is a user's visit, a step is a period with a recommended slate.

    The action holds N items. A repeated item is recommended once, and its second place is lost. The reward is the
    number of items that the user buys in the period, recommended or not, so that an agent gains only by purchases that
    it causes. The observation counts the user's purchases of each item. ``info`` has ``user``, ``step`` and ``time``
    (the period) of the awaited decision, ``n_views``, the number of purchases without a recommendation since the
    previous decision, and ``n_bought``, the number of recommended items that were bought; with ``info="views"`` the
    items themselves, ``views`` and ``bought``. Seeds and user ids work as in :class:`recsim_mnar.envs.WorldEnv`.

    Args:
        world: the world of slates.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`, with purchases as the events.
    """

    _more_events = ("bought",)

    def _observe_outcome(self, shown: NDArray[np.integer], transition: Transition, info: Info) -> Any:
        """Add purchases without a recommendation, and then those of the slate, to the observation, and return it."""
        self._observe_views(info)
        self.observe_shown(self._lane, shown, transition)
        return self._observer.observation_alone()

    def slate_uplift(self, action: Array) -> float:
        """Return the true number of purchases that a slate is expected to cause; for evaluation, never for agents."""
        self._check_waiting()
        assert self._queue.seed is not None
        return float(self.world.slate_uplift(self._queue.seed, self._queue.lanes.user, np.asarray(action)[None])[0])


class PurchasesVectorEnv(_Purchases, SeveralVectorEnv):
    """Vector environment of a world of slates: each lane behaves like a :class:`PurchasesEnv`.

    Args:
        world: the world of slates.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`; ``max_episode_steps`` is a number of periods.
    """

    _more_events = ("bought",)
    _more_counts = ("n_bought",)

    def _observe_outcomes(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Add the purchases of a transition to the observations and to ``infos``."""
        super()._observe_outcomes(which, transition, infos)
        no_slates = np.zeros((0, 0), np.int64)  # `observe_shown` does not read them
        self.observe_shown(which, no_slates, transition)


# --------------------------------------------------------------------------------------------------------- the recorder


def record_slates(env: gym.Env[Any, Any], policy: SlatePolicy, n_users: int, seed: int) -> Log:
    """Run a slate policy on the first users of a seed in a single environment, and return the log of ``simulate``.

    Args:
        env: environment of a world whose parameter ``slates`` is ``fixed``.
        policy: the slate policy; a fresh copy of it acts.
        n_users: number of users.
        seed: seed of the users and of the slates.
    """
    return recorded(env, _SlateRecorder(policy.fresh(), n_users, seed), n_users, seed)


def record_slates_vector(env: PurchasesVectorEnv, policy: SlatePolicy, n_users: int, seed: int) -> Log:
    """Run a slate policy in a vector environment in NEXT_STEP mode; the log equals that of :func:`record_slates`."""
    return recorded(env, _SlateRecorder(policy.fresh(), n_users, seed), n_users, seed)


class _SlateRecorder:
    """Runner of a slate policy, with the methods of :class:`recsim_mnar.envs.recording.Recorder`."""

    def __init__(self, policy: SlatePolicy, n_users: int, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.builder = LogBuilder()
        self._n_users = n_users
        self.shape = (policy.params.slate_size,)

    def arrive(self, info: Info) -> None:
        """Record the user in the ``info`` of a reset, and start the user in the policy."""
        self.builder.begin(info)
        self.policy.reset(np.array([info["user"]]))

    def log(self) -> Log:
        """Return the log of the recorded users."""
        return self.builder.log(self._n_users)

    def decide(self, infos: list[Info]) -> Ints:
        """Draw and return slates (n, N) for the waiting users in ``infos``, one draw per group in the same period.

        Slates and probabilities are kept for :meth:`record_outcomes`.
        """
        users = np.array([i["user"] for i in infos])
        periods = np.array([i["time"] for i in infos]).astype(np.int64)
        self.slates = slates = np.empty((len(users), *self.shape), np.int64)
        self.probability = np.empty(slates.shape)
        for period in np.unique(periods):
            rows = periods == period
            slates[rows], self.probability[rows] = self.policy.slates(self.seed, users[rows], int(period))
        return slates

    def record_outcomes(self, before: list[Info], after: list[Info], *_: Any) -> None:
        """Record the outcome of each user's slate, and let the policy observe it with the user's own purchases."""
        slates = self.slates
        for j, (info, next_info) in enumerate(zip(before, after, strict=True)):
            user = int(info["user"])
            bought = events_of(next_info, "bought")
            order = np.argsort(slates[j])  # a log has the items of a slate ascending
            first_item_reward = float(slates[j, 0] in bought)  # read only if a slate has one item
            self.builder.add_step(info, next_info, slates[j], self.probability[j], first_item_reward)
            unaided = np.array(events_of(next_info, "views"), np.int32)
            action = np.concatenate([slates[j][order], np.full(len(unaided), -1)]).astype(np.int32)
            # The columns of a log, as the policy gets them in a simulation: the slate's rows, then organic rows.
            self.policy.observe_events(
                {
                    "user": np.full(len(action), user),
                    "action": action,
                    "item": np.concatenate([np.full(slates.shape[1], -1, np.int32), unaided]),
                    "reward": np.isin(action, bought).astype(np.float64),
                    "propensity": np.append(self.probability[j][order], np.full(len(unaided), np.nan)),
                }
            )
