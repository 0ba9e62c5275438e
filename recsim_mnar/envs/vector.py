"""The native vector environment: many lanes of one world, stepped together in one kernel call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from recsim_mnar.envs.observing import observer
from recsim_mnar.envs.specs import Specified
from recsim_mnar.envs.user_queue import UserQueue, fixed_lanes, organic_rows, rewards_of
from recsim_mnar.envs.validation import (
    as_array,
    check_ready,
    checked_count,
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
from recsim_mnar.worlds.base import ExposureWorld, LaneWorld, Transition, World
from recsim_mnar.worlds.checks import decision_world

Array = NDArray[Any]


class WorldVectorEnv(Specified, gym.vector.VectorEnv[Any, Array, Array]):
    """Lanes of one world; see :class:`recsim_mnar.envs.WorldEnv` for what a lane does.

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
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = checked_render_mode(render_mode, ())
        lived: LaneWorld = world if isinstance(world, ExposureWorld) else decision_world(world, "this environment")
        lived.decides()
        num_envs = checked_count("num_envs", num_envs)
        if max_episode_steps is not None:
            max_episode_steps = checked_count("max_episode_steps", max_episode_steps)
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
        self._elapsed = np.zeros(num_envs, np.int64)
        self._ended = np.ones(num_envs, np.bool_)
        self._ahead = np.zeros(num_envs, np.int64)
        self._seeded = False

    @property
    def user_seed(self) -> int | None:
        """The seed whose users all lanes meet; None before the first reset, and where lanes have seeds of their own."""
        seeds = self._queue.seeds
        return int(seeds[0]) if self._seeded and (seeds == seeds[0]).all() else None

    def reset(
        self, *, seed: int | Iterable[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Every lane, or those in ``options["reset_mask"]``, meets its next user who comes to a decision."""
        options = checked_options(options, ("user", "reset_mask"))
        mask = reset_mask(options.pop("reset_mask", None), self.num_envs, whole=not self._seeded)
        which = np.flatnonzero(mask)
        self._seat(which, seed, first_user(options))
        infos: dict[str, Any] = {}
        self._admit(which, infos)
        self._note_state(infos, mask)
        return self._observer.all(), self._sized(infos)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Recommend an item in every lane; in NEXT_STEP mode, a lane that has ended is reset instead."""
        chosen = self._checked(actions)
        infos: dict[str, Any] = {}
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        resetting = np.flatnonzero(self._ended)
        due = self._due()
        if len(due):
            transition = self._queue.take(due, chosen[due].astype(np.int32))
            rewards[due] = self._earned(transition)
            terminated[due] = ~transition.alive
        if self._observer.counts_shown:
            shown = np.flatnonzero(~self._ended)
            self._observer.answered(shown, chosen[shown], rewards[shown])
        if len(due):
            self._see(due, transition, infos)
        if self.max_episode_steps is not None:
            self._elapsed += 1
            truncated = (self._elapsed >= self.max_episode_steps) & ~(terminated | self._ended)
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            resetting = np.flatnonzero(self._ended)
            if len(resetting):
                self._note_state(infos, self._all)
                self._finish(resetting, infos)
        if len(resetting):
            self._admit(resetting, infos)
        self._note_state(infos, self._all)
        return self._observer.all(), rewards, terminated, truncated, self._sized(infos)

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

    def _seat(self, which: NDArray[np.int64], seed: Any, user: int | None) -> None:
        own = listed_seeds(seed, which.tolist(), self.num_envs, seeded=self._seeded)
        if own is not None:
            for lane, of_lane in own.items():
                self._queue.assign(np.array([lane]), [of_lane], user or 0)
        elif reset_seed(seed) is not None or not self._seeded:
            single = reset_seed(seed)
            super().reset(seed=single)
            drawn = int(self.np_random.integers(2**63)) if single is None else single
            self._queue.assign(which, [drawn], user or 0)
        elif user is not None:
            self._queue.move(which, user)
        self._seeded = True

    def _checked(self, actions: Array) -> Array:
        """(n,) valid actions; those of ended lanes may be anything."""
        chosen = as_array(actions, "actions")
        if chosen.shape != (self.num_envs,):
            raise UserError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        if not np.issubdtype(chosen.dtype, np.integer):
            raise UserError(f"actions must be integers, got {chosen.dtype}")
        check_ready(self.autoreset_mode, self._ended if self._seeded else None)
        if chosen.min() < 0 or chosen.max() >= self.world.n_items:
            outside = ((chosen < 0) | (chosen >= self.world.n_items)) & ~self._ended
            if outside.any():
                bad = chosen[outside][0]
                raise UserError(f"action {bad} is out of range, the world has items 0..{self.world.n_items - 1}")
        return chosen

    def _due(self) -> NDArray[np.int64]:
        """Lanes whose user answers this recommendation. In the others that wait it comes to nothing, whatever it is.

        Those have lived ahead: what is info of them is ``_ahead`` decisions behind what their lanes hold.
        """
        unknown = np.flatnonzero((self._ahead == 0) & ~self._ended)
        ahead = self._queue.lanes.skip_uneventful(unknown)
        self._ahead[unknown] = ahead
        np.maximum(self._ahead - 1, 0, out=self._ahead)
        return unknown[ahead == 0]

    def _earned(self, transition: Transition) -> NDArray[np.float64]:
        return rewards_of(transition)

    def _admit(self, which: NDArray[np.int64], infos: dict[str, Any]) -> None:
        """Reset lanes: next users, counts, and what is info of them."""
        for array in (self._elapsed, self._ended, self._ahead):
            array[which] = 0
        if not self.world.n_user_features:
            self._observer.begin(which, None)
        skipped: dict[int, list[dict[str, Any]]] = {}
        for lanes, users, transition in self._queue.admit(which):
            for j in np.flatnonzero(~transition.alive).tolist():
                left = {"user": int(users[j]), **self._queue.info(transition, j)}
                skipped.setdefault(int(lanes[j]), []).append(left)
            here = transition if transition.alive.all() else transition.of(transition.alive)
            met = lanes[transition.alive]
            if self.world.n_user_features and len(met):
                self._observer.begin(met, self._queue.features(met))
            self._browse(met, here, infos, empty=self.world.rates)
        for lane, info in skipped.items():
            if self.info == "views":
                self._set(infos, "skipped", lane, tuple(info))
            elif self.info == "counts":
                self._counts(infos, "n_skipped")[lane] = len(info)

    def _see(self, which: NDArray[np.int64], transition: Transition, infos: dict[str, Any]) -> None:
        """Update the observations of lanes after their actions, and record organic events."""
        if self.world.rates:  # the answer reveals a rating; 0 says nothing new of it
            rewards = rewards_of(transition)
            answered = np.flatnonzero(rewards > 0)
            items = transition.columns["action"][transition.starts[answered]]
            self._observer.answered(which[answered], items, rewards[answered])
        self._browse(which, transition, infos)

    def _browse(
        self, which: NDArray[np.int64], transition: Transition, infos: dict[str, Any], *, empty: bool = False
    ) -> None:
        """Observe organic events, and add them to info if there are any."""
        c, rows = transition.columns, organic_rows(transition)
        edges = rows.searchsorted(transition.starts)
        lanes, items = which.repeat(edges[1:] - edges[:-1]), c["item"][rows]
        self._observer.see(lanes, items, c["reward"][rows] if self.world.rates else None)
        events = {key: c[name][rows] for key, name in self._queue.entries}
        self._note(infos, which, edges, events, empty=empty)

    def _note(
        self,
        infos: dict[str, Any],
        which: NDArray[np.int64],
        edges: NDArray[np.int64],
        events: dict[str, Array],
        *,
        empty: bool = False,
    ) -> None:
        """Note of lane which[j] the events edges[j]:edges[j + 1], as tuples; where there are none only if ``empty``.

        Where events are counted, only how many there are.
        """
        if self.info != "views":
            if self.info == "counts":
                self._counts(infos, f"n_{next(iter(events))}")[which] = edges[1:] - edges[:-1]
            return
        some = np.arange(len(which)) if empty else np.flatnonzero(edges[1:] > edges[:-1])
        if len(some) == 0:
            return
        lanes = which[some]
        cuts = list(zip(lanes.tolist(), edges[some].tolist(), edges[some + 1].tolist(), strict=True))
        for key, column in events.items():
            values, info = tuple(column.tolist()), self._entry(infos, key)
            for lane, first, last in cuts:
                info[lane] = values[first:last]
            infos[f"_{key}"][lanes] = True

    def _note_state(self, infos: dict[str, Any], mask: NDArray[np.bool_]) -> None:
        """Record in info the awaited decision and user of the lanes in the mask."""
        if self.info == "none":
            return
        lanes = self._queue.lanes
        now = {"user": lanes.user.copy(), "step": lanes.step - self._ahead, "time": lanes.time - self._ahead}
        if self.info == "counts":
            now |= {key: self._counts(infos, key) for key in ("n_views", "n_skipped", *self._more_counts)}
        for key, values in now.items():
            if mask is not self._all:
                values[~mask] = 0
            infos[key], infos[f"_{key}"] = values, mask.copy()

    def _finish(self, ended: NDArray[np.int64], infos: dict[str, Any]) -> None:
        """Move the info of ended lanes to ``final_obs`` and ``final_info``."""
        final: dict[str, Any] = {}
        for lane in ended:
            self._set(infos, "final_obs", int(lane), self._observer.one(int(lane)))
        for key in [k for k in infos if not k.startswith("_") and k != "final_obs"]:
            values, mask = infos[key], infos[f"_{key}"]
            moved = mask & self._ended
            final[key] = np.where(moved, values, np.zeros(1, values.dtype)) if values.dtype != object else values.copy()
            final[f"_{key}"] = moved
            if values.dtype == object:
                final[key][~moved] = None
            values[moved] = None if values.dtype == object else 0
            infos[f"_{key}"] = mask & ~self._ended
        infos["final_info"] = final
        infos["_final_info"] = self._ended.copy()

    def _sized(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Infos in the requested form."""
        if self._info_size is None:
            return infos
        keys = (*(key for key, _ in self._queue.entries), *self._more_events)
        return fixed_lanes(infos, keys, self._info_size, self.num_envs)

    def _set(self, infos: dict[str, Any], key: str, lane: int, value: Any) -> None:
        self._entry(infos, key)[lane] = value
        infos[f"_{key}"][lane] = True

    def _entry(self, infos: dict[str, Any], key: str) -> Array:
        """The array of infos of this name, and its mask, made where it is not there yet."""
        if key not in infos:
            infos[key] = np.empty(self.num_envs, object)  # holds None
            infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
        return infos[key]

    def _counts(self, infos: dict[str, Any], key: str) -> Array:
        """The numbers of this name, made where they are not there yet; :meth:`_note_state` sets their mask."""
        if key not in infos:
            infos[key] = np.zeros(self.num_envs, np.int64)
        return infos[key]
