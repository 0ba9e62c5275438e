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
from recsim_mnar.envs.user_queue import Arrivals, Info, UserQueue, fixed_lanes, organic_rows, rewards_of
from recsim_mnar.envs.validation import (
    Specified,
    as_array,
    check_ready,
    checked_info,
    checked_mode,
    checked_options,
    checked_render_mode,
    first_user,
    listed_seeds,
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
Answers = tuple[Floats, Flags, Flags]


class WorldVectorEnv(Specified, gym.vector.VectorEnv[Any, Array, Array]):
    """Vector environment: lanes of one world, each as a :class:`recsim_mnar.envs.WorldEnv`.

    With one seed, lane i starts with user i, and a lane that ends takes the next user that no lane has met. With a
    list of seeds every lane meets the users of its own seed from user 0 on. ``infos`` hold arrays with one entry a
    lane and a mask under the same key with ``_`` before it. With ``info="views"``, ``views`` and ``view_times`` are set
    for the lanes that have new views. In the ratings world ``ratings`` and ``observation_propensities`` stand next to
    them, and all are set for every lane that is reset.

    Args:
        world: where users live.
        num_envs: number of lanes.
        max_episode_steps: truncate an episode after so many steps; the user is then lost from sight.
        autoreset_mode: NEXT_STEP (default), SAME_STEP or DISABLED, as the enum or its value.
        observation: see :class:`recsim_mnar.envs.WorldEnv`.
        info: see :class:`recsim_mnar.envs.WorldEnv`; in SAME_STEP mode ``none`` leaves ``final_obs``.
        info_size: see :class:`recsim_mnar.envs.WorldEnv`; events are then arrays (num_envs, info_size).
        copy: False: observations may be read-only arrays that the next step overwrites.
        render_mode: None; lanes render nothing.
    """

    _more_events: tuple[str, ...] = ()
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
        info_size: int | None = None,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = checked_render_mode(render_mode, ())
        lived = self._checked_world(world)
        lived.decides()
        num_envs = whole_number(num_envs, "num_envs", 1)
        if max_episode_steps is not None:
            max_episode_steps = whole_number(max_episode_steps, "max_episode_steps", 1)
        self.autoreset_mode = checked_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.world = lived
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self._observer = observer(lived, num_envs, observation)
        self.single_observation_space = self._observer.space
        self.single_action_space = gym.spaces.Discrete(world.n_items)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._queue = UserQueue(lived, num_envs)
        self.info, self._info_size = checked_info(info, info_size)
        self._all = np.ones(num_envs, np.bool_)
        self._lanes = np.arange(num_envs)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._ended = np.ones(num_envs, np.bool_)
        self._seeded = False
        self.copy = copy
        self._limit = max_episode_steps or 0
        self._actions = np.zeros(num_envs, np.int64)
        self._unread = np.zeros(num_envs, np.int64)
        self._uncounted = np.zeros((num_envs, 0), np.float32)

    def _checked_world(self, world: World) -> LaneWorld:
        """Return the world if this environment can run it."""
        return decision_world(world, "this environment")

    @property
    def user_seed(self) -> int | None:
        """The seed whose users all lanes meet; None before the first reset, and where lanes have seeds of their own."""
        seeds = self._queue.seeds
        if self._seeded and (seeds == seeds[0]).all():
            return int(seeds[0])
        return None

    def reset(
        self, *, seed: int | Iterable[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start the next user who reaches a decision in every lane, or in those of ``options["reset_mask"]``."""
        options = checked_options(options, ("user", "reset_mask"))
        mask = reset_mask(options.pop("reset_mask", None), self.num_envs, whole=not self._seeded or self.closed)
        which = np.flatnonzero(mask)
        self._seat(which, seed, first_user(options))
        self.closed = False
        infos: Info = {}
        self._live(infos, self._no_answers(), ended=mask.copy())
        self._ended[which] = False
        self._note_state(infos, mask)
        return self._observed(), self._sized(infos)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, Info]:
        """Recommend an item in every lane; in NEXT_STEP mode, a lane that has ended is reset instead."""
        chosen = self._checked(actions)
        infos: Info = {}
        rewards, terminated, truncated = answers = self._no_answers()
        self._live(infos, answers, ended=self._ended, actions=chosen)
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            self._note_state(infos, self._all)
            self._finish(infos)
            self._live(infos, answers, ended=self._ended)
            self._ended[:] = False
        self._note_state(infos, self._all)
        return self._observed(), rewards, terminated, truncated, self._sized(infos)

    def reward_means(self) -> Array:
        """Truth: (num_envs, n_items) expected reward of every item for each user who waits now; NaN in other lanes.

        It is for evaluation, never for agents: no observation and no ``infos`` holds it.

        Raises:
            ResetNeeded: there was no reset yet.
            UserError: a world of slates, or an own world that does not say its expected rewards.
        """
        if not self._seeded:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")
        means = decision_world(self.world, "reward_means").reward_means(self._queue.lanes.state)
        return np.where(self._ended[:, None], np.nan, means)

    # ---------------------------------------------------------------------------------------------------------- inside

    def _seat(self, which: Ints, seed: Any, user: int | None) -> None:
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
        """Return (n,) valid actions; those of ended lanes may be anything."""
        chosen = as_array(actions, "actions")
        if chosen.shape != (self.num_envs,):
            raise UserError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        if chosen.dtype.kind not in "iu":
            raise UserError(f"actions must be integers, got {chosen.dtype}")
        check_ready(self.autoreset_mode, self._ended if self._seeded and not self.closed else None)
        self._actions[:] = chosen
        n_items = self.world.n_items
        if self._actions.view(np.uint64).max() >= n_items:  # negative ones are large there
            refuse_first(
                ((chosen < 0) | (chosen >= n_items)) & ~self._ended,
                lambda lane: f"action {chosen[lane]} is out of range, the world has items 0..{n_items - 1}",
            )
        return chosen

    def _observed(self) -> Any:
        if self.copy:
            return self._observer.all()
        return self._observer.present()

    def _no_answers(self) -> Answers:
        """Rewards, and whether episodes were terminated and truncated, to be filled in."""
        n = self.num_envs
        return np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_)

    def _live(self, infos: Info, answers: Answers, *, ended: Array, actions: Array | None = None) -> None:
        """Start next users in ended lanes; with actions, step the others."""
        queue = self._queue
        if not queue.at_once:
            resetting = np.flatnonzero(ended)
            if actions is not None:
                self._answer(actions, infos, answers)
            if len(resetting):
                self._admit(resetting, infos, queue.admit(resetting))
            return
        counts = self._uncounted
        n_views = self._unread
        n_skipped = self._unread
        acting = actions is not None
        watched = True
        if isinstance(self._observer, Counts) and self.info != "views":
            watched = False
            counts = self._observer.array
            if self.info == "counts":
                n_views = self._counts(infos, "n_views")
                n_skipped = self._counts(infos, "n_skipped")
        moves = Moves(
            self._actions,
            ended,
            queue.seeds,
            queue.queue,
            queue.next_user,
            self._elapsed,
            counts,
            *answers,
            n_views,
            n_skipped,
        )
        if watched:
            self._admit(np.flatnonzero(ended), infos, self._watched(moves, acting=acting))
        else:
            while queue.lanes.step_at_once(moves, acting=acting, limit=self._limit):
                acting = False

    def _watched(self, moves: Moves, *, acting: bool) -> Iterator[Arrivals]:
        """Yield the admissions of :meth:`UserQueue.admit` for lanes that answer or are reset at once."""
        lanes = self._queue.lanes
        due = np.flatnonzero(~moves.ended)
        left = 1
        while left:
            left = lanes.step_at_once(moves, acting=acting, limit=self._limit)
            if acting and self._observer.counts_shown:
                self._observer.answered(due, moves.actions[due], moves.rewards[due])
            acting = False
            starts, columns = lanes.seen_at_once()
            if left or starts[-1]:  # most steps of a few lanes show nothing new
                yield self._lanes, lanes.user, Transition(starts, columns, ~moves.ended)

    def _answer(self, chosen: Array, infos: Info, answers: Answers) -> None:
        """Step the lanes that have not ended."""
        rewards, terminated, truncated = answers
        due = np.flatnonzero(~self._ended)
        if len(due):
            transition = self._queue.take(due, chosen[due].astype(np.int32))
            rewards[due] = self._earned(transition)
            terminated[due] = ~transition.alive
            if self._observer.counts_shown:
                self._note_answers(due, chosen[due], rewards[due], transition)
            self._see(due, transition, infos)
        self._elapsed += 1
        if self.max_episode_steps is not None:
            truncated[:] = (self._elapsed >= self.max_episode_steps) & ~(terminated | self._ended)

    def _earned(self, transition: Transition) -> Floats:
        return rewards_of(transition)

    def _note_answers(self, due: Ints, chosen: Array, rewards: Array, transition: Transition) -> None:
        """Let observations count what was shown and what it earned."""
        self._observer.answered(due, chosen, rewards)

    def _admit(self, which: Ints, infos: Info, met_by: Iterator[Arrivals]) -> None:
        """Start the next users in lanes, with their observations and info."""
        self._elapsed[which] = 0
        if not self.world.n_user_features:
            self._observer.begin(which, None)
        skipped: dict[int, list[Info]] = {}
        for lanes, users, transition in met_by:
            for j in np.flatnonzero(~transition.alive).tolist():
                left = {"user": int(users[j]), **self._queue.info(transition, j)}
                skipped.setdefault(int(lanes[j]), []).append(left)
            waiting = lanes[transition.alive]
            if not transition.alive.all():
                transition = transition.of(transition.alive)
            if self.world.n_user_features and len(waiting):
                self._observer.begin(waiting, self._queue.features(waiting))
            self._browse(waiting, transition, infos, empty=self.world.rates)
        for lane, info in skipped.items():
            if self.info == "views":
                self._set(infos, "skipped", lane, tuple(info))
            elif self.info == "counts":
                self._counts(infos, "n_skipped")[lane] = len(info)

    def _see(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Update the observations of lanes after their actions, and record organic events."""
        if self.world.rates:  # the answer reveals a rating; 0 says nothing new of it
            rewards = rewards_of(transition)
            answered = np.flatnonzero(rewards > 0)
            items = transition.columns["action"][transition.starts[answered]]
            self._observer.answered(which[answered], items, rewards[answered])
        self._browse(which, transition, infos)

    def _browse(self, which: Ints, transition: Transition, infos: Info, *, empty: bool = False) -> None:
        """Observe organic events, and add them to info if there are any."""
        c = transition.columns
        rows = organic_rows(transition)
        edges = rows.searchsorted(transition.starts)
        lanes = which.repeat(edges[1:] - edges[:-1])
        items = c["item"][rows]
        self._observer.see(lanes, items, c["reward"][rows] if self.world.rates else None)
        events = {key: c[name][rows] for key, name in self._queue.entries}
        self._note(infos, which, edges, events, empty=empty)

    def _note(
        self,
        infos: Info,
        which: Ints,
        edges: Ints,
        events: dict[str, Array],
        *,
        empty: bool = False,
    ) -> None:
        """Note of lane which[j] the events edges[j]:edges[j + 1], as tuples; where there are none only if ``empty``.

        Where events are counted, only how many there are.
        """
        if self.info != "views":
            if self.info == "counts":
                self._counts(infos, f"n_{next(iter(events))}")[which] += edges[1:] - edges[:-1]
            return
        some = np.flatnonzero(empty | (edges[1:] > edges[:-1]))
        if len(some) == 0:
            return
        lanes = which[some]
        starts = edges[some].tolist()
        ends = edges[some + 1].tolist()
        for key, column in events.items():
            values = tuple(column.tolist())
            info = self._entry(infos, key)
            for lane, first, last in zip(lanes.tolist(), starts, ends, strict=True):
                info[lane] = values[first:last]
            infos[f"_{key}"][lanes] = True

    def _note_state(self, infos: Info, mask: Flags) -> None:
        """Record in info the awaited decision and user of the lanes in the mask."""
        if self.info == "none":
            return
        lanes = self._queue.lanes
        now = {"user": lanes.user.copy(), "step": lanes.step.copy(), "time": lanes.time.copy()}
        if self.info == "counts":
            now |= {key: self._counts(infos, key) for key in ("n_views", "n_skipped", *self._more_counts)}
        for key, values in now.items():
            if mask is not self._all:
                values[~mask] = 0
            infos[key], infos[f"_{key}"] = values, mask.copy()

    def _finish(self, infos: Info) -> None:
        """Move the info of ended lanes to ``final_obs`` and ``final_info``."""
        final: Info = {}
        for lane in np.flatnonzero(self._ended).tolist():
            self._set(infos, "final_obs", lane, self._observer.one(lane))
        for key in [k for k in infos if not k.startswith("_") and k != "final_obs"]:
            values = infos[key]
            mask = infos[f"_{key}"]
            moved = mask & self._ended
            empty = None if values.dtype == object else 0
            final[key] = values.copy()
            final[key][~moved] = empty
            final[f"_{key}"] = moved
            values[moved] = empty
            infos[f"_{key}"] = mask & ~self._ended
        infos["final_info"] = final
        infos["_final_info"] = self._ended.copy()

    def _sized(self, infos: Info) -> Info:
        """Infos in the requested form."""
        if self._info_size is None:
            return infos
        keys = (*(key for key, _ in self._queue.entries), *self._more_events)
        return fixed_lanes(infos, keys, self._info_size, self.num_envs)

    def _set(self, infos: Info, key: str, lane: int, value: Any) -> None:
        self._entry(infos, key)[lane] = value
        infos[f"_{key}"][lane] = True

    def _entry(self, infos: Info, key: str) -> Array:
        """Return the array of infos of this name; make it and its mask if missing."""
        if key not in infos:
            infos[key] = np.empty(self.num_envs, object)  # holds None
            infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
        return infos[key]

    def _counts(self, infos: Info, key: str) -> Array:
        """Return the counts of this name, made if missing; :meth:`_note_state` sets their mask."""
        if key not in infos:
            infos[key] = np.zeros(self.num_envs, np.int64)
        return infos[key]
