"""Environments of campaigns: single, a platform on which a step is a campaign; and vector, several platforms."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.campaigns.model import check_weights
from recsim_mnar.campaigns.platform import platform_log, platform_observation
from recsim_mnar.campaigns.world import CampaignsWorld, Platform
from recsim_mnar.envs.user_queue import Info
from recsim_mnar.envs.validation import (
    Specified,
    as_numbers,
    check_ready,
    checked_mode,
    checked_options,
    listed_seeds,
    refuse_render_mode,
    reset_mask,
    reset_seed,
)
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.rng import derive_seed
from recsim_mnar.worlds.base import World

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Floats32 = NDArray[np.float32]
Floats = NDArray[np.float64]


Observation = Floats32
Step = tuple[Observation, float, bool, bool, Info]


def make_platform_env(world: World, n_lanes: int | None, options: Mapping[str, Any]) -> Any:
    """Make the single or the vector environment of a world of platforms.

    Args:
        world: a world of platforms.
        n_lanes: number of platforms of a vector environment; None for the single environment.
        options: keywords of the environment.

    Raises:
        UserError: a keyword that only other worlds' environments have, or a world without such platforms.
    """
    for option in ("observation", "info"):
        if option in options:
            raise UserError(f"{option}: an environment of platforms has one observation and info")
    if not isinstance(world, CampaignsWorld):
        raise UserError(f"this environment runs campaigns on a platform, which the {world.name} world does not have")
    if n_lanes is None:
        return CampaignsEnv(world, **options)
    return CampaignsVectorEnv(world, n_lanes, **options)


class EpisodeCounter:
    """Counter of the platforms opened so far of one seed, shared by environments that divide these platforms.

    Attributes:
        opened: number of platforms.
    """

    def __init__(self) -> None:
        self.opened = 0


class CampaignsEnv(Specified, gym.Env[Observation, Floats32]):
    """Environment of a whole platform: an episode is a platform's lifetime, a step is one of its campaigns.

    The action is a weight in [0, 1] for every item: each user's list is drawn by weight among the items that the user
    does not hold; if all weights are 0, nothing is recommended. :meth:`step_lists` takes a recommender's lists instead.
    The reward is the number of recommendations that users accept, at once or later. The observation holds, for each
    item, the share of present users who hold it, and as its last entry the share of campaigns that are over. ``info``
    has ``day``, ``campaign`` (the number of the next campaign), ``users`` (the number of present users), and
    ``recommended`` and ``accepted`` of the last campaign, 0 before the first.

    ``reset(seed=s)`` opens the platform of seed s on the day of its first campaign; each further ``reset()`` opens
    another one, with a seed derived from s. Actions address items, not users, so a reset takes no user.

    Args:
        world: the world of platforms.
        render_mode: None, because nothing is rendered.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium reads a plain dict here)

    def __init__(self, world: CampaignsWorld, *, render_mode: str | None = None) -> None:
        refuse_render_mode(render_mode)
        if world.params.n_campaigns < 1:
            raise UserError("n_campaigns = 0: an episode would have no step; set it to 1 or more for an environment")
        self.world = world
        self.observation_space = gym.spaces.Box(0.0, 1.0, (world.n_items + 1,), np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, (world.n_items,), np.float32)
        self._platform: Platform | None = None
        self._seed = -1  # before the first reset
        self._episodes = EpisodeCounter()
        self._waiting = False

    @property
    def platform(self) -> Platform:
        """Return the platform of this episode, which knows the truth: for evaluation, never for agents."""
        if self._platform is None:
            raise gym.error.ResetNeeded("there is no platform yet: call reset() first")
        return self._platform

    def log(self) -> Log:
        """Return the log of all events on the platform so far."""
        return platform_log(self.platform)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        """Open the next platform and advance it to the day of its first campaign."""
        checked_options(options, ())
        seed = reset_seed(seed)
        super().reset(seed=seed)
        if seed is None and self._seed < 0:  # the first reset, without a seed
            seed = int(self.np_random.integers(2**63))
        if seed is not None:
            self.seat(seed, EpisodeCounter())
        episode = self._episodes.opened
        self._episodes.opened += 1
        platform_seed = self._seed  # of the first platform, so that it is the one of ``open_platform(seed)``
        if episode > 0:
            platform_seed = derive_seed(self._seed, f"platform/{episode}")
        self._platform = self.world.open_platform(platform_seed)
        self._platform.advance(self.world.params.first_campaign)
        self._waiting = True
        return self._observe(), self._info()

    def seat(self, seed: int, episodes: EpisodeCounter) -> None:
        """Let later resets open platforms of this seed; environments with the same counter never open the same one."""
        self._seed = seed
        self._episodes = episodes

    def step(self, action: Floats32) -> Step:
        """Run a campaign with lists drawn by the weights ``action`` (n_items,), and advance to the next campaign."""
        self._check_waiting()
        lists, propensities = self.platform.draw_lists(as_numbers(action, "weights"))
        return self._campaign(lists, propensities)

    def step_lists(self, lists: NDArray[np.integer], propensities: Floats | None = None) -> Step:
        """Run a campaign that shows a given list to each present user, and advance to the next campaign.

        Args:
            lists: (n, k) lists for the users ``platform.present()``: distinct items that the user does not hold, -1 for
                an empty place.
            propensities: (n, k) probabilities with which the items were chosen; None for 1.
        """
        self._check_waiting()
        items = as_numbers(lists, "lists")
        if items.size and not np.issubdtype(items.dtype, np.integer):
            raise UserError(f"lists must hold integers, got {items.dtype}")
        if propensities is not None:
            propensities = as_numbers(propensities, "propensities")
        return self._campaign(items.astype(np.int32), propensities)

    def _campaign(self, lists: NDArray[np.int32], propensities: Floats | None) -> Step:
        """Run a campaign with these lists, and advance to the day of the next campaign.

        Returns:
            Observation, reward, terminated, truncated and info of :meth:`step`.
        """
        platform = self.platform
        campaign = platform.recommend(lists, propensities)
        platform.advance(platform.day + self.world.params.campaign_every)
        self._waiting = len(platform.campaigns) < self.world.params.n_campaigns
        n_recommended = int((campaign.lists >= 0).sum())
        n_accepted = int(campaign.accepted.sum())
        terminated = not self._waiting
        truncated = False  # only a wrapper with a limit of steps truncates
        return self._observe(), float(n_accepted), terminated, truncated, self._info(n_recommended, n_accepted)

    def close(self) -> None:
        """End the episode; call :meth:`reset` before the next :meth:`step`."""
        self._waiting = False

    def _check_waiting(self) -> None:
        """Raise ResetNeeded if no campaign is due."""
        if not self._waiting:
            raise gym.error.ResetNeeded("no campaign is due: call reset() first")

    def _observe(self) -> Observation:
        return platform_observation(self.platform)

    def _info(self, recommended: int = 0, accepted: int = 0) -> Info:
        """Return ``info`` for the platform's present day."""
        platform = self.platform
        return {
            "day": platform.day,
            "campaign": len(platform.campaigns),
            "users": len(platform.present()),
            "recommended": recommended,
            "accepted": accepted,
        }


class CampaignsVectorEnv(Specified, gym.vector.SyncVectorEnv):
    """Vector environment of platforms: each lane behaves like a :class:`recsim_mnar.envs.CampaignsEnv`.

    With one seed, lane i starts with platform i, the one that a single environment opens at its (i + 1)-th reset, and a
    lane whose episode ends takes the next platform that no lane has opened. With a list of seeds, each lane opens the
    platforms of its own seed. ``infos`` hold an array with one entry per lane under each key, and a mask under the same
    key with the prefix ``_``.

    Args:
        world: the world of platforms.
        num_envs: number of platforms.
        max_episode_steps: number of campaigns after which an episode is truncated; None truncates no episode.
        autoreset_mode: NEXT_STEP (default), SAME_STEP or DISABLED, as the enum or its value.
        copy: False if observations may be arrays that the next step overwrites.
        render_mode: None, because nothing is rendered.
    """

    def __init__(
        self,
        world: CampaignsWorld,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        num_envs = whole_number(num_envs, "num_envs", 1)
        if max_episode_steps is not None:
            max_episode_steps = whole_number(max_episode_steps, "max_episode_steps", 1)
        self.world = world
        self.max_episode_steps = max_episode_steps
        make_lane = functools.partial(_make_lane, world, max_episode_steps, render_mode)
        super().__init__([make_lane] * num_envs, copy=copy, autoreset_mode=checked_mode(autoreset_mode))
        self._lanes = cast("list[CampaignsEnv]", [env.unwrapped for env in self.envs])
        self._seeded = False

    @property
    def platforms(self) -> list[Any]:
        """Return the platforms of the lanes, which know the truth: for evaluation, never for agents."""
        return [lane.platform for lane in self._lanes]

    def reset(self, *, seed: int | Iterable[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Open the next platform in every lane, or in the lanes of ``options["reset_mask"]``."""
        options = checked_options(options, ("reset_mask",))
        mask = reset_mask(options.get("reset_mask"), self.num_envs, whole=not self._seeded or self.closed)
        lanes_to_reset = np.flatnonzero(mask).tolist()
        seeds_by_lane = listed_seeds(seed, lanes_to_reset, self.num_envs, seeded=self._seeded)
        if seeds_by_lane is not None:
            for lane, lane_seed in seeds_by_lane.items():
                self._lanes[lane].seat(lane_seed, EpisodeCounter())
        elif reset_seed(seed) is not None or not self._seeded:
            common_seed = reset_seed(seed)
            if common_seed is None:
                common_seed = int(self._lanes[0].np_random.integers(2**63))
            episodes = EpisodeCounter()  # one for all lanes, which thereby divide the platforms of the seed
            for lane in lanes_to_reset:
                self._lanes[lane].seat(common_seed, episodes)
        self._seeded = True
        self.closed = False
        return super().reset(options={"reset_mask": mask})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Run a campaign on every platform; in NEXT_STEP mode, ended lanes open their next platform."""
        weights = as_numbers(actions, "weights")
        if weights.shape != self.action_space.shape:
            raise UserError(f"weights must have shape {self.action_space.shape}, got {weights.shape}")
        ended_lanes: NDArray[np.bool_] | None = self._autoreset_envs
        if not self._seeded or self.closed:  # no lane has an episode yet
            ended_lanes = None
        check_ready(self.autoreset_mode, ended_lanes)
        # In lanes whose episode has ended, the action is ignored.
        resets_now = self._autoreset_envs & (self.autoreset_mode is AutoresetMode.NEXT_STEP)
        check_weights(weights[~resets_now])  # before any platform advances, so that an error leaves all as they are
        observations, rewards, terminated, truncated, infos = super().step(weights)
        return observations, rewards, terminated, truncated & ~terminated, infos


def _make_lane(world: CampaignsWorld, max_episode_steps: int | None, render_mode: str | None) -> gym.Env[Any, Any]:
    """Make the single environment of a lane, with a limit of steps if there is one."""
    env = CampaignsEnv(world, render_mode=render_mode)
    if max_episode_steps is None:
        return env
    return gym.wrappers.TimeLimit(env, max_episode_steps)
