"""The campaign environments: a whole platform, on which one step is a campaign, and several of them side by side."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.campaigns.model import PlatformWorld, check_weights
from recsim_mnar.campaigns.platform import platform_log, platform_observation
from recsim_mnar.campaigns.world import CampaignsWorld, Platform
from recsim_mnar.envs import made_for
from recsim_mnar.envs.user_queue import Info
from recsim_mnar.envs.validation import (
    Specified,
    as_numbers,
    check_ready,
    checked_mode,
    checked_options,
    checked_render_mode,
    listed_seeds,
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


def campaigns_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> CampaignsEnv:
    """The environment of the campaigns world; a step is a campaign.

    Args:
        preset: ``viadeo`` (default), ``affinity``, ``growing`` or ``quick``.
        world: instead, a platform's world that is there already, or a name.
        **params: ``render_mode`` of :class:`CampaignsEnv`, or fields of
            :class:`recsim_mnar.campaigns.model.CampaignsParams` that differ from the preset's.
    """
    return made_for(PlatformWorld, "campaigns", preset, world, params)


def campaigns_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> CampaignsVectorEnv:
    """The vector environment of the campaigns world: several platforms.

    Args:
        num_envs: number of platforms.
        preset: as :func:`campaigns_env`.
        world: as :func:`campaigns_env`.
        **options: keywords of :class:`CampaignsVectorEnv`, or parameters of the world.
    """
    return made_for(PlatformWorld, "campaigns", preset, world, options, num_envs)


def of_platforms(world: World, lanes: int | None, asked: Mapping[str, Any]) -> Any:
    """Make the environment of a platform; with lanes that of several."""
    for word in ("observation", "info", "info_size"):
        if word in asked:
            raise UserError(f"{word}: an environment of platforms has one observation and info")
    if not isinstance(world, CampaignsWorld):
        raise UserError(f"this environment runs campaigns on a platform, which the {world.name} world does not have")
    if lanes is None:
        return CampaignsEnv(world, **asked)
    return CampaignsVectorEnv(world, lanes, **asked)


class CampaignsEnv(Specified, gym.Env[Observation, Floats32]):
    """An episode is the life of a platform, a step one of its campaigns.

    The action is a weight in [0, 1] for every item: each user's list is drawn by weight among the items they do not
    hold (all 0: nothing is recommended). :meth:`step_lists` takes a recommender's lists instead. The reward is the
    number of recommendations that users accept, now or later. The observation holds, for each item, the share of
    present users who hold it, and last the share of campaigns that are over. ``info`` has ``day``, ``campaign`` (the
    next one's number), ``users`` (present), and of the last campaign ``recommended`` and ``accepted``, 0 before it.

    ``reset(seed=s)`` opens the platform of seed s on the day of its first campaign; each ``reset()`` after it opens
    another one, of a seed derived from s. There are no users to address one by one here.

    Args:
        world: the model.
        render_mode: ``ansi``: :meth:`render` gives the last step in one line. None: nothing is rendered.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (Gymnasium reads a plain dict here)

    def __init__(self, world: CampaignsWorld, *, render_mode: str | None = None) -> None:
        self.render_mode = checked_render_mode(render_mode, self.metadata["render_modes"])
        if world.params.n_campaigns < 1:
            raise UserError("n_campaigns = 0: an episode would have no step; set it to 1 or more for an environment")
        self.world = world
        self.observation_space = gym.spaces.Box(0.0, 1.0, (world.n_items + 1,), np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, (world.n_items,), np.float32)
        self._platform: Platform | None = None
        self._seed = -1  # none yet
        self._next = [0]
        self._waiting = False
        self._last: Info = {}

    @property
    def platform(self) -> Platform:
        """Platform of this episode, with its truth; for evaluation, never for agents."""
        if self._platform is None:
            raise gym.error.ResetNeeded("there is no platform yet: call reset() first")
        return self._platform

    def log(self) -> Log:
        """Log of everything that happened on the platform so far."""
        return platform_log(self.platform)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        """Open the next platform and advance it to the day of its first campaign."""
        checked_options(options, ())
        seed = reset_seed(seed)
        super().reset(seed=seed)
        if seed is None and self._seed < 0:
            seed = int(self.np_random.integers(2**63))
        if seed is not None:
            self.seat(seed, [0])
        episode = self._next[0]
        self._next[0] += 1
        platform_seed = self._seed
        if episode > 0:
            platform_seed = derive_seed(self._seed, f"platform/{episode}")
        self._platform = self.world.open_platform(platform_seed)
        self._platform.advance(self.world.params.first_campaign)
        self._waiting = True
        return self._observe(), self._info()

    def seat(self, seed: int, next_episode: list[int]) -> None:
        """Open platforms of this seed from now on; environments that share ``next_episode`` divide them."""
        self._seed = seed
        self._next = next_episode

    def step(self, action: Floats32) -> Step:
        """Run a campaign with lists drawn by these weights, then advance to the next campaign."""
        self._check_waiting()
        lists, propensities = self.platform.draw_lists(as_numbers(action, "weights"))
        return self._campaign(lists, propensities)

    def step_lists(self, lists: NDArray[np.integer], propensities: Floats | None = None) -> Step:
        """Run a campaign that shows each present user a given list.

        Args:
            lists: (n, k) for ``platform.present()``: distinct items that the user does not hold, -1 for none.
            propensities: (n, k) with which the items were chosen; 1 by default.
        """
        self._check_waiting()
        items = as_numbers(lists, "lists")
        if items.size and not np.issubdtype(items.dtype, np.integer):
            raise UserError(f"lists must hold integers, got {items.dtype}")
        if propensities is not None:
            propensities = as_numbers(propensities, "propensities")
        return self._campaign(items.astype(np.int32), propensities)

    def _campaign(self, lists: NDArray[np.int32], propensities: Floats | None) -> Step:
        platform = self.platform
        campaign = platform.recommend(lists, propensities)
        platform.advance(platform.day + self.world.params.campaign_every)
        self._waiting = len(platform.campaigns) < self.world.params.n_campaigns
        accepted = int(campaign.accepted.sum())
        info = self._info(int((campaign.lists >= 0).sum()), accepted)
        return self._observe(), float(accepted), not self._waiting, False, info

    def render(self) -> str | None:
        """Describe the last campaign in one line, empty before the first reset; None without a render mode."""
        if self.render_mode is None:
            return None
        return ", ".join(f"{name} {number:g}" for name, number in self._last.items())

    def close(self) -> None:
        """Close the platform: after this :meth:`reset` comes before :meth:`step`."""
        self._waiting = False

    def _check_waiting(self) -> None:
        if not self._waiting:
            raise gym.error.ResetNeeded("no campaign is due: call reset() first")

    def _observe(self) -> Observation:
        return platform_observation(self.platform)

    def _info(self, recommended: int = 0, accepted: int = 0) -> Info:
        platform = self.platform
        self._last = {
            "day": platform.day,
            "campaign": len(platform.campaigns),
            "users": len(platform.present()),
            "recommended": recommended,
            "accepted": accepted,
        }
        return dict(self._last)


class CampaignsVectorEnv(Specified, gym.vector.SyncVectorEnv):
    """Lanes of platforms; see :class:`recsim_mnar.envs.CampaignsEnv` for what a lane does.

    With one seed, lane i opens platform number i of it (those that a single environment meets at its resets), and a
    lane that ends takes the next one that no lane has opened. With a list of seeds every lane opens the platforms of
    its own seed. ``infos`` hold arrays with one entry per lane, and a mask under the same key with ``_`` before it.

    Args:
        world: the model.
        num_envs: number of platforms.
        max_episode_steps: truncate an episode after so many campaigns.
        autoreset_mode: NEXT_STEP (default), SAME_STEP or DISABLED, as the enum or its value.
        copy: False: observations are arrays that the next step overwrites.
        render_mode: ``ansi``: :meth:`render` gives a tuple of lines, one per platform. None: nothing is rendered.
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
        lane = functools.partial(_lane, world, max_episode_steps, render_mode)
        super().__init__([lane] * num_envs, copy=copy, autoreset_mode=checked_mode(autoreset_mode))
        self._lanes = cast("list[CampaignsEnv]", [env.unwrapped for env in self.envs])
        self._seeded = False

    @property
    def platforms(self) -> list[Any]:
        """Platforms of the lanes, with their truth; for evaluation, never for agents."""
        return [lane.platform for lane in self._lanes]

    def reset(self, *, seed: int | Iterable[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Every lane, or those in ``options["reset_mask"]``, opens its next platform."""
        options = checked_options(options, ("reset_mask",))
        mask = reset_mask(options.get("reset_mask"), self.num_envs, whole=not self._seeded or self.closed)
        which = np.flatnonzero(mask).tolist()
        seeds_by_lane = listed_seeds(seed, which, self.num_envs, seeded=self._seeded)
        if seeds_by_lane is not None:
            for lane, lane_seed in seeds_by_lane.items():
                self._lanes[lane].seat(lane_seed, [0])
        elif reset_seed(seed) is not None or not self._seeded:
            common = reset_seed(seed)
            if common is None:
                common = int(self._lanes[0].np_random.integers(2**63))
            next_episode = [0]
            for lane in which:
                self._lanes[lane].seat(common, next_episode)
        self._seeded = True
        self.closed = False
        return super().reset(options={"reset_mask": mask})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Run a campaign on every platform; in NEXT_STEP mode, ended lanes open their next platform."""
        weights = as_numbers(actions, "weights")
        if weights.shape != self.action_space.shape:
            raise UserError(f"weights must have shape {self.action_space.shape}, got {weights.shape}")
        check_ready(self.autoreset_mode, self._autoreset_envs if self._seeded and not self.closed else None)
        opening = self._autoreset_envs & (self.autoreset_mode is AutoresetMode.NEXT_STEP)
        check_weights(weights[~opening])  # before any platform has moved on
        observations, rewards, terminated, truncated, infos = super().step(weights)
        return observations, rewards, terminated, truncated & ~terminated, infos


def _lane(world: CampaignsWorld, max_episode_steps: int | None, render_mode: str | None) -> gym.Env[Any, Any]:
    env = CampaignsEnv(world, render_mode=render_mode)
    if max_episode_steps is None:
        return env
    return gym.wrappers.TimeLimit(env, max_episode_steps)
