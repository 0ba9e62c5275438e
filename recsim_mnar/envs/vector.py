"""The native vector environment: many lanes of one world, stepped together in one kernel call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from recsim_mnar.envs.observing import Counts, observer
from recsim_mnar.envs.user_queue import Arrivals, Info, UserQueue, organic_rows, rewards_of
from recsim_mnar.envs.validation import (
    Specified,
    as_array,
    check_ready,
    checked_info,
    checked_mode,
    checked_options,
    first_user,
    listed_seeds,
    refuse_render_mode,
    reset_mask,
    reset_seed,
)
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import refuse_first, whole_number
from recsim_mnar.worlds.base import LaneWorld, Transition, World, decision_world
from recsim_mnar.worlds.lanes import Moves

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


Array = NDArray[Any]
StepResults = tuple[Floats, Flags, Flags]
"""Rewards, and flags of terminated and of truncated episodes, (num_envs,) each."""


class WorldVectorEnv(Specified, gym.vector.VectorEnv[Any, Array, Array]):
    """Vector environment: lanes of one world, each of which behaves like a :class:`recsim_mnar.envs.WorldEnv`.

    With one seed, lane i starts with user i, and a lane whose episode ends takes the next user of the seed. With a
    list of seeds, each lane takes the users of its own seed in order, from user 0 on. ``infos`` hold an array with one
    entry per lane under each key, and a mask under the same key with the prefix ``_``. With ``info="views"``, the mask
    of ``views`` and ``view_times`` is set for lanes with new views. The ratings world adds ``ratings`` and
    ``observation_propensities``, and sets all masks for every lane that is reset.

    Args:
        world: world of the users.
        num_envs: number of lanes.
        max_episode_steps: number of steps after which an episode is truncated; the lane then takes another user. None
            truncates no episode.
        autoreset_mode: NEXT_STEP (default), SAME_STEP or DISABLED, as the enum or its value.
        observation: form of the observations; see :class:`recsim_mnar.envs.WorldEnv`.
        info: content of ``infos`` about events; see :class:`recsim_mnar.envs.WorldEnv`. In SAME_STEP mode, ``none``
            still leaves ``final_obs``.
        copy: False if observations may be read-only arrays that the next step overwrites.
        render_mode: None, because lanes render nothing.
    """

    _more_counts: tuple[str, ...] = ()

    def __init__(
        self,
        world: World,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        observation: str | None = None,
        info: str | None = None,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        refuse_render_mode(render_mode)
        lane_world = self._checked_world(world)
        lane_world.decides()
        num_envs = whole_number(num_envs, "num_envs", 1)
        if max_episode_steps is not None:
            max_episode_steps = whole_number(max_episode_steps, "max_episode_steps", 1)
        self.autoreset_mode = checked_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.world = lane_world
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self._observer = observer(lane_world, num_envs, observation)
        self.single_observation_space = self._observer.space
        self.single_action_space = gym.spaces.Discrete(world.n_items)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._queue = UserQueue(lane_world, num_envs)
        self.info = checked_info(info)
        self._all = np.ones(num_envs, np.bool_)
        self._lanes = np.arange(num_envs)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._ended = np.ones(num_envs, np.bool_)
        self._seeded = False
        self.copy = copy
        self._limit = max_episode_steps or 0  # for the kernel, in which 0 is no limit
        self._actions = np.zeros(num_envs, np.int64)
        # Stand-ins for arrays that the kernel fills and nobody reads; without columns it counts no views.
        self._unread = np.zeros(num_envs, np.int64)
        self._uncounted = np.zeros((num_envs, 0), np.float32)

    def _checked_world(self, world: World) -> LaneWorld:
        """Return the world if this environment can run it."""
        return decision_world(world, "this environment")

    @property
    def user_seed(self) -> int | None:
        """Return the seed of all lanes' users; None before the first reset, or if lanes have different seeds."""
        seeds = self._queue.seeds
        if self._seeded and (seeds == seeds[0]).all():
            return int(seeds[0])
        return None

    def reset(
        self, *, seed: int | Iterable[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start the next user who reaches a decision in every lane, or in the lanes of ``options["reset_mask"]``."""
        options = checked_options(options, ("user", "reset_mask"))
        mask = reset_mask(options.pop("reset_mask", None), self.num_envs, whole=not self._seeded or self.closed)
        which = np.flatnonzero(mask)
        self._assign_users(which, seed, first_user(options))
        self.closed = False
        infos: Info = {}
        self._advance(infos, self._empty_results(), ended=mask.copy())
        self._ended[which] = False
        self._note_state(infos, mask)
        return self._observed(), infos

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, Info]:
        """Recommend an item in every lane; in NEXT_STEP mode, a lane that has ended is reset instead."""
        chosen = self._checked(actions)
        infos: Info = {}
        rewards, terminated, truncated = results = self._empty_results()
        self._advance(infos, results, ended=self._ended, actions=chosen)
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            self._note_state(infos, self._all)
            self._finish(infos)
            self._advance(infos, results, ended=self._ended)
            self._ended[:] = False
        self._note_state(infos, self._all)
        return self._observed(), rewards, terminated, truncated, infos

    def reward_means(self) -> Array:
        """Return the true expected reward (num_envs, n_items) of every item for each waiting user.

        Lanes whose episode has ended hold NaN. It is for evaluation, never for agents: no observation and no ``infos``
        holds it.

        Raises:
            ResetNeeded: there was no reset yet.
            UserError: the world shows slates, or does not define its expected rewards.
        """
        if not self._seeded:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")
        means = decision_world(self.world, "reward_means").reward_means(self._queue.lanes.state)
        return np.where(self._ended[:, None], np.nan, means)

    # ---------------------------------------------------------------------------------------------------------- inside

    def _assign_users(self, which: Ints, seed: Any, user: int | None) -> None:
        """Give lanes new queues of users if a reset names seeds or a user, or is the first; else keep their queues.

        Args:
            which: (m,) lanes that are reset.
            seed: one seed for all lanes, a list with one per lane, or None to keep their seeds.
            user: first user of the queues; None for user 0 of a new seed, or the next user of the old one.
        """
        seeds_by_lane = listed_seeds(seed, which.tolist(), self.num_envs, seeded=self._seeded)
        if seeds_by_lane is not None:
            self._queue.assign(np.array(list(seeds_by_lane), np.int64), list(seeds_by_lane.values()), user or 0)
        elif reset_seed(seed) is not None or not self._seeded:
            common = reset_seed(seed)
            super().reset(seed=common)
            if common is None:
                common = int(self.np_random.integers(2**63))
            self._queue.assign(which, [common], user or 0)
        elif user is not None:
            self._queue.move(which, user)
        self._seeded = True

    def _checked(self, actions: Array) -> Array:
        """Check the actions (num_envs,) of lanes that have not ended, store them for the kernel, and return them."""
        chosen = as_array(actions, "actions")
        if chosen.shape != (self.num_envs,):
            raise UserError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        if chosen.dtype.kind not in "iu":
            raise UserError(f"actions must be integers, got {chosen.dtype}")
        check_ready(self.autoreset_mode, self._ended if self._seeded and not self.closed else None)
        self._actions[:] = chosen
        n_items = self.world.n_items
        if self._actions.view(np.uint64).max() >= n_items:  # one test: as unsigned integers, negative ones are large
            refuse_first(
                ((chosen < 0) | (chosen >= n_items)) & ~self._ended,
                lambda lane: f"action {chosen[lane]} is out of range, the world has items 0..{n_items - 1}",
            )
        return chosen

    def _observed(self) -> Any:
        """Return the observations of all lanes, as copies unless the caller wants read-only views."""
        if self.copy:
            return self._observer.observations()
        return self._observer.observations_view()

    def _empty_results(self) -> StepResults:
        """Return zeros for rewards, and False for terminated and truncated, (num_envs,) each, to be filled in."""
        n = self.num_envs
        return np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_)

    def _advance(self, infos: Info, results: StepResults, *, ended: Array, actions: Array | None = None) -> None:
        """Start the next users in ended lanes and, with actions, step the other lanes.

        If the world's kernel can move all lanes in one call, that call does it; else each lane's world does.

        Args:
            infos: dictionary to which events are added.
            results: rewards, terminated and truncated, filled in for stepped lanes.
            ended: flags of the lanes whose next users start.
            actions: (num_envs,) actions of the other lanes; None to leave these as they are.
        """
        queue = self._queue
        if not queue.at_once:
            resetting = np.flatnonzero(ended)
            if actions is not None:
                self._step_lanes(actions, infos, results)
            if len(resetting):
                self._admit(resetting, infos, queue.admit(resetting))
            return
        counts = self._uncounted
        n_views = self._unread
        n_skipped = self._unread
        acting = actions is not None
        reads_events = True
        if isinstance(self._observer, Counts) and self.info != "views":
            # The kernel counts views itself, in the observations and in infos: no event has to be read back.
            reads_events = False
            counts = self._observer.array
            if self.info == "counts":
                n_views = self._counts(infos, "n_views")
                n_skipped = self._counts(infos, "n_skipped")
        rewards, terminated, truncated = results
        moves = Moves(
            actions=self._actions,
            ended=ended,
            seeds=queue.seeds,
            queue=queue.queue,
            next_user=queue.next_user,
            elapsed=self._elapsed,
            counts=counts,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            n_views=n_views,
            n_skipped=n_skipped,
        )
        if reads_events:
            self._admit(np.flatnonzero(ended), infos, self._step_and_yield_events(moves, acting=acting))
        else:
            # Each call returns the number of users who left without a decision, in whose lanes the next call starts
            # others. Actions are for the first call alone.
            while queue.lanes.step_at_once(moves, acting=acting, limit=self._limit):
                acting = False

    def _step_and_yield_events(self, moves: Moves, *, acting: bool) -> Iterator[Arrivals]:
        """Step all lanes in kernel calls, and yield the organic events of their users.

        If users leave without a decision, a further call starts the next users in their lanes.

        Args:
            moves: arrays that the kernel reads and fills in.
            acting: True if the first call shows the actions in lanes that have not ended.

        Yields:
            For each call with events: all lanes, their users, and the transition, as from :meth:`UserQueue.admit`.
        """
        lanes = self._queue.lanes
        due = np.flatnonzero(~moves.ended)
        while True:
            n_left = lanes.step_at_once(moves, acting=acting, limit=self._limit)
            if acting and self._observer.counts_shown:
                self._observer.add_recommendations(due, moves.actions[due], moves.rewards[due])
            acting = False  # a further call only starts users
            starts, columns = lanes.seen_at_once()
            if n_left or starts[-1]:  # most steps of a few lanes have no event
                yield self._lanes, lanes.user, Transition(starts, columns, ~moves.ended)
            if not n_left:
                return

    def _step_lanes(self, chosen: Array, infos: Info, results: StepResults) -> None:
        """Step the lanes that have not ended: fill in ``results``, and add events to ``infos``."""
        rewards, terminated, truncated = results
        due = np.flatnonzero(~self._ended)
        if len(due):
            transition = self._queue.show_items(due, chosen[due].astype(np.int32))
            rewards[due] = self._rewards_of_step(transition)
            terminated[due] = ~transition.alive
            if self._observer.counts_shown:
                self._add_shown_items(due, chosen[due], rewards[due], transition)
            self._observe_outcomes(due, transition, infos)
        self._elapsed += 1
        if self.max_episode_steps is not None:
            truncated[:] = (self._elapsed >= self.max_episode_steps) & ~(terminated | self._ended)

    def _rewards_of_step(self, transition: Transition) -> Floats:
        """Return the reward (m,) of each lane of a step; environments of slates count it otherwise."""
        return rewards_of(transition)

    def _add_shown_items(self, due: Ints, chosen: Array, rewards: Array, transition: Transition) -> None:
        """Add shown items and rewards of the lanes ``due`` to observations that count shown items."""
        self._observer.add_recommendations(due, chosen, rewards)

    def _admit(self, which: Ints, infos: Info, arrivals: Iterator[Arrivals]) -> None:
        """Start the next users in lanes, and set their observations and entries of ``infos``.

        Args:
            which: (m,) lanes in which users start.
            infos: dictionary to which events are added.
            arrivals: lanes, users and transitions. They may include other lanes, whose users stay and whose events are
                added as well.
        """
        self._elapsed[which] = 0
        if not self.world.n_user_features:  # features are known only once a user waits, below
            self._observer.begin(which, None)
        skipped: dict[int, list[Info]] = {}
        for lanes, users, transition in arrivals:
            for j in np.flatnonzero(~transition.alive).tolist():
                entry = {"user": int(users[j]), **self._queue.info(transition, j)}
                skipped.setdefault(int(lanes[j]), []).append(entry)
            waiting = lanes[transition.alive]
            if not transition.alive.all():
                transition = transition.of(transition.alive)
            if self.world.n_user_features and len(waiting):
                self._observer.begin(waiting, self._queue.features(waiting))
            self._add_organic_events(waiting, transition, infos, empty=self.world.rates)
        for lane, entries in skipped.items():
            if self.info == "views":
                self._set(infos, "skipped", lane, tuple(entries))
            elif self.info == "counts":
                self._counts(infos, "n_skipped")[lane] = len(entries)

    def _observe_outcomes(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Update the observations of lanes after their actions, and add organic events to ``infos``."""
        if self.world.rates:  # a reward above 0 is a rating that is now revealed
            rewards = rewards_of(transition)
            revealed = np.flatnonzero(rewards > 0)
            items = transition.columns["action"][transition.starts[revealed]]
            self._observer.add_recommendations(which[revealed], items, rewards[revealed])
        self._add_organic_events(which, transition, infos)

    def _add_organic_events(self, which: Ints, transition: Transition, infos: Info, *, empty: bool = False) -> None:
        """Add a transition's organic events in lanes ``which`` to the observations and to ``infos``."""
        columns = transition.columns
        rows = organic_rows(transition)
        edges = rows.searchsorted(transition.starts)
        lanes = which.repeat(edges[1:] - edges[:-1])  # of each event
        ratings = columns["reward"][rows] if self.world.rates else None
        self._observer.add_events(lanes, columns["item"][rows], ratings)
        events = {key: columns[name][rows] for key, name in self._queue.entries}
        self._note_events(infos, which, edges, events, empty=empty)

    def _note_events(
        self,
        infos: Info,
        which: Ints,
        edges: Ints,
        events: dict[str, Array],
        *,
        empty: bool = False,
    ) -> None:
        """Add events to ``infos``: as tuples, as numbers, or not at all, as :attr:`info` has it.

        Args:
            infos: dictionary to change.
            which: (m,) lanes.
            edges: (m + 1,) bounds of the events: those of lane which[j] are edges[j]:edges[j + 1].
            events: columns of the events, by key of ``infos``.
            empty: True to set empty tuples for lanes without an event.
        """
        if self.info != "views":
            if self.info == "counts":
                self._counts(infos, f"n_{next(iter(events))}")[which] += edges[1:] - edges[:-1]
            return
        noted = np.flatnonzero(empty | (edges[1:] > edges[:-1]))
        if len(noted) == 0:
            return
        lanes = which[noted]
        starts = edges[noted].tolist()
        ends = edges[noted + 1].tolist()
        for key, column in events.items():
            values = tuple(column.tolist())
            info = self._entry(infos, key)
            for lane, first, last in zip(lanes.tolist(), starts, ends, strict=True):
                info[lane] = values[first:last]
            infos[f"_{key}"][lanes] = True

    def _note_state(self, infos: Info, mask: Flags) -> None:
        """Set user, step, time and numbers of events in ``infos`` for the lanes in the mask, and 0 for the others."""
        if self.info == "none":
            return
        lanes = self._queue.lanes
        entries = {"user": lanes.user.copy(), "step": lanes.step.copy(), "time": lanes.time.copy()}
        if self.info == "counts":
            entries |= {key: self._counts(infos, key) for key in ("n_views", "n_skipped", *self._more_counts)}
        for key, values in entries.items():
            if mask is not self._all:
                values[~mask] = 0
            infos[key] = values
            infos[f"_{key}"] = mask.copy()

    def _finish(self, infos: Info) -> None:
        """Move the entries of ended lanes to ``final_info``, and set their ``final_obs``, as SAME_STEP mode has it."""
        final: Info = {}
        for lane in np.flatnonzero(self._ended).tolist():
            self._set(infos, "final_obs", lane, self._observer.observation(lane))
        for key in [k for k in infos if not k.startswith("_") and k != "final_obs"]:
            values = infos[key]
            mask = infos[f"_{key}"]
            moved = mask & self._ended
            blank = None if values.dtype == object else 0
            final[key] = values.copy()
            final[key][~moved] = blank
            final[f"_{key}"] = moved
            values[moved] = blank
            infos[f"_{key}"] = mask & ~self._ended
        infos["final_info"] = final
        infos["_final_info"] = self._ended.copy()

    def _set(self, infos: Info, key: str, lane: int, value: Any) -> None:
        """Set a lane's entry of ``infos`` under a key, and its mask."""
        self._entry(infos, key)[lane] = value
        infos[f"_{key}"][lane] = True

    def _entry(self, infos: Info, key: str) -> Array:
        """Return the array (num_envs,) of objects in ``infos`` under this key; add it and its mask if missing."""
        if key not in infos:
            infos[key] = np.empty(self.num_envs, object)  # filled with None
            infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
        return infos[key]

    def _counts(self, infos: Info, key: str) -> Array:
        """Return the numbers (num_envs,) under a key of ``infos``, added if missing; :meth:`_note_state` sets masks."""
        if key not in infos:
            infos[key] = np.zeros(self.num_envs, np.int64)
        return infos[key]
