"""Environments of purchases, single and vector: a step is a period in which a slate is recommended; and a recorder."""

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
    """The single environment of the purchases world.

    Args:
        preset: ``personalised`` (default), ``uniform``, ``popularity`` or ``quick``.
        world: instead, a world of slates that is there already, or a name.
        **params: keywords of :class:`PurchasesEnv`, or fields of
            :class:`recsim_mnar.purchases.world.PurchasesParams` that differ from the preset's.
    """
    return made_for(ExposureWorld, "purchases", preset, world, params)


def purchases_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> PurchasesVectorEnv:
    """The vector environment of the purchases world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`purchases_env`.
        world: as :func:`purchases_env`.
        **options: keywords of :class:`PurchasesVectorEnv`, or parameters.
    """
    return made_for(ExposureWorld, "purchases", preset, world, options, num_envs)


def of_exposures(world: ExposureWorld, lanes: int | None, asked: Mapping[str, Any]) -> Any:
    """Make the environment of users who are shown slates; with lanes the vector one."""
    if lanes is None:
        return PurchasesEnv(world, **asked)
    return PurchasesVectorEnv(world, lanes, **asked)


class _Purchases(ShowsSeveral):
    """Base of the purchases environments."""

    event = "bought"
    world: ExposureWorld

    def _checked_world(self, world: World) -> ExposureWorld:
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
        """Implement :meth:`ShowsSeveral.shown`."""
        if lanes is None:
            items = as_array(items, "a slate")[None]
        slates = checked_slates(items, lanes or 1, self.world.n_items)
        if slates.shape[1] != self.size:
            raise UserError(f"a slate must have {self.size} items, got {slates.shape[1]}")
        return slates

    def earned(self, transition: Transition) -> NDArray[np.float64]:
        """Implement :meth:`ShowsSeveral.earned`: the items bought in each lane, recommended or not."""
        columns = transition.columns
        bought = (columns["event"] == schema.ORGANIC) | (columns["reward"] == 1)
        return np.add.reduceat(bought.astype(np.float64), transition.starts[:-1])

    def note(self, lanes: Ints, shown: NDArray[np.integer], transition: Transition) -> None:
        """Implement :meth:`ShowsSeveral.note`: recommended items that were bought count as those bought without it."""
        rows = earning_rows(transition)
        edges = rows.searchsorted(transition.starts)
        self._observer.add_events(lanes.repeat(np.diff(edges)), transition.columns["action"][rows], None)


class PurchasesEnv(_Purchases, SeveralEnv):
    """One user at a time; an episode is a user's life, a step a period in which a slate is recommended.

    The action holds N items. An item named twice is recommended once, and the second place is lost: that is the one
    rule for duplicates. The reward is the number of items the user buys in the period, recommended or not, so that
    an agent gains by what it causes and not by what would have been bought anyway. The observation counts the user's
    purchases of each item so far. ``info`` carries ``user``, ``step`` and ``time`` (the period) of the decision
    awaited, ``n_views``, the number of purchases without recommendation since the last one, and ``n_bought``, that of
    recommended items that were bought; with ``info="views"`` the items themselves, ``views`` and ``bought``. Users are
    addressed as in :class:`recsim_mnar.envs.WorldEnv`.

    Args:
        world: where users buy.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`; counted are purchases.
    """

    _more_events = ("bought",)

    def _seen_after(self, shown: NDArray[np.integer], transition: Transition, info: Info) -> Any:
        """Return a new observation: purchases without recommendation first, then those of the slate."""
        self._seen(info)
        self.note(self._lane, shown, transition)
        return self._observer.observation_alone()

    def slate_uplift(self, action: Array) -> float:
        """Truth: purchases that this slate is expected to cause now. For what judges, never for what acts."""
        self._check_waiting()
        assert self._queue.seed is not None
        return float(self.world.slate_uplift(self._queue.seed, self._queue.lanes.user, np.asarray(action)[None])[0])


class PurchasesVectorEnv(_Purchases, SeveralVectorEnv):
    """Lanes of one purchases world; see :class:`PurchasesEnv` for what a lane does and :class:`WorldVectorEnv`.

    Args:
        world: where users buy.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`; ``max_episode_steps`` are periods.
    """

    _more_events, _more_counts = ("bought",), ("n_bought",)

    def _observe_answers(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Count the purchases of a transition and note them."""
        super()._observe_answers(which, transition, infos)
        self.note(which, np.zeros((0, 0), np.int64), transition)


# --------------------------------------------------------------------------------------------------------- the recorder


def record_slates(env: gym.Env[Any, Any], policy: SlatePolicy, n_users: int, seed: int) -> Log:
    """The log of ``simulate``, to the byte, from a single environment: users 0 .. n_users - 1 of a seed.

    Args:
        env: of a world whose ``slates`` are ``fixed``.
        policy: as it recommends there.
        n_users: how many.
        seed: of the users and of the slates.
    """
    return recorded(env, _SlateRecorder(policy.fresh(), n_users, seed), n_users, seed)


def record_slates_vector(env: PurchasesVectorEnv, policy: SlatePolicy, n_users: int, seed: int) -> Log:
    """:func:`record_slates` through a vector environment in NEXT_STEP mode: the same log, for any number of lanes."""
    return recorded(env, _SlateRecorder(policy.fresh(), n_users, seed), n_users, seed)


class _SlateRecorder:
    """Decides for users and records the outcomes."""

    def __init__(self, policy: SlatePolicy, n_users: int, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.builder = LogBuilder()
        self._n_users = n_users
        self.shape = (policy.params.slate_size,)

    def arrive(self, info: Info) -> None:
        self.builder.begin(info)
        self.policy.reset(np.array([info["user"]]))

    def log(self) -> Log:
        return self.builder.log(self._n_users)

    def decide(self, infos: list[Info]) -> Ints:
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
            order = np.argsort(slates[j])
            reward = float(slates[j, 0] in bought)  # read only if a slate has one item
            self.builder.add_step(info, next_info, slates[j], self.probability[j], reward)
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
