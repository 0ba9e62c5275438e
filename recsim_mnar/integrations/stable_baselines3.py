"""Stable-Baselines3 (MIT): its algorithms on a vector environment of ours, and what they train as a policy of ours.

A saved model of that library is unpickled when it is loaded, which can run any code: load only what you trust.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import vector, wrappers
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecEnv, VecMonitor, VecNormalize

from recsim_mnar.errors import UserError
from recsim_mnar.log.contexts import Context
from recsim_mnar.policies.features import FeaturePolicy

Array = NDArray[Any]
Infos = list[dict[str, Any]]
"""One dictionary per lane, as Stable-Baselines3 has them."""


class ScaledCounts(BaseFeaturesExtractor):
    """View counts as a network takes them: h sqrt(P) / (n + shrinkage), h the counts of n views among P items.

    Shares of a user's views, which say little about a user with few: long histories are no louder than short ones.

    Args:
        observation_space: space of counts, one number per item.
        shrinkage: views by which a user counts as one more who viewed nothing.
    """

    def __init__(self, observation_space: gym.spaces.Box, shrinkage: float = 5.0) -> None:
        super().__init__(observation_space, observation_space.shape[0])
        self.shrinkage = shrinkage
        self.scale = math.sqrt(observation_space.shape[0])

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Scale (n, n_items) counts."""
        return observations * (self.scale / (observations.sum(dim=1, keepdim=True) + self.shrinkage))


PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 64,
    "batch_size": 2048,
    "gamma": 0.0,
    "learning_rate": 1e-3,
    "policy_kwargs": {"features_extractor_class": ScaledCounts},
}
"""Settings of ``PPO("MlpPolicy", ...)`` for the sessions world, in some 128 lanes.

A recommendation hardly changes what comes later: without discounted future rewards the advantages are far less noisy.
"""

ROWS = 64
"""Observations that a model is shown at once by :func:`policy_of`."""


class VecEnvAdapter(VecEnv):
    """A Gymnasium vector environment as Stable-Baselines3's ``VecEnv``: every lane stepped by one call.

    ``VecEnvAdapter(gym.make_vec("recsim_mnar/Sessions-v0", num_envs=64, vectorization_mode="vector_entry_point",
    autoreset_mode="SameStep"))``. Of ``infos`` the library gets what it reads: ``terminal_observation`` and
    ``TimeLimit.truncated`` of lanes that ended.

    Args:
        env: environment in the mode SAME_STEP, the only one that the library supports.
        infos: also hand over what the environment says of each lane (user, step, views), one dictionary a lane. It
            costs more than a step.

    Raises:
        UserError: another mode, or no vector environment.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, infos: bool = False) -> None:
        if not isinstance(env, VectorEnv):
            raise UserError(
                f"VecEnvAdapter takes a vector environment, got {type(env).__name__}: make it with gymnasium.make_vec"
            )
        if AutoresetMode(env.metadata.get("autoreset_mode", "NextStep")) is not AutoresetMode.SAME_STEP:
            raise UserError(
                "Stable-Baselines3 resets in the same step: make the environment with autoreset_mode='SameStep'"
            )
        self.env = env
        self.infos = infos
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._actions: Array = np.zeros(env.num_envs, np.int64)

    def reset(self) -> Array:
        """Reset, and return observations (num_envs, ...); :meth:`seed` and ``set_options`` count for one reset.

        Raises:
            UserError: options that differ between lanes.
        """
        options = self._options[0]
        if any(other != options for other in self._options):
            raise UserError("set_options: lanes are one environment. Give one dictionary for all of them")
        observations, info = self.env.reset(seed=self._seeds[0], options=options or None)
        self.reset_infos = self._lanes(info)
        self._reset_seeds()
        self._reset_options()
        return observations

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set one seed for all lanes at the next reset: lane i begins with its user i."""
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._seeds = [seed] * self.num_envs
        return self._seeds

    def step_async(self, actions: Array) -> None:
        """Store the actions of the lanes."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Array, Array, Array, Infos]:
        """Step: observations, rewards (n,) float32, flags of ended lanes, and one ``info`` per lane."""
        observations, rewards, terminated, truncated, info = self.env.step(self._actions)
        ended = terminated | truncated
        infos = self._lanes(info)
        for lane in np.flatnonzero(ended).tolist():
            infos[lane]["terminal_observation"] = info["final_obs"][lane]
            infos[lane]["TimeLimit.truncated"] = bool(truncated[lane] and not terminated[lane])
        return observations, rewards.astype(np.float32), ended, infos

    def get_images(self) -> Sequence[Array | None]:
        """Return one picture per lane if the environment has ``render_mode="rgb_array"``."""
        return self.env.render()  # type: ignore[return-value]  # what Gymnasium allows is wider

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the environment's attribute, once for each lane."""
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set the environment's attribute, for all lanes.

        Raises:
            UserError: some of the lanes only.
        """
        self._whole(indices, "set_attr")
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the environment, once; its answer for each lane.

        Raises:
            UserError: some of the lanes only.
        """
        self._whole(indices, "env_method")
        return [getattr(self.env, method_name)(*method_args, **method_kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None) -> list[bool]:
        """False for every lane: lanes have no wrappers."""
        return [False] * len(list(self._get_indices(indices)))

    def _whole(self, indices: Any, what: str) -> None:
        lanes: Iterable[int] = self._get_indices(indices)
        if len(list(lanes)) != self.num_envs:
            raise UserError(f"{what} is for all lanes: they are one environment")

    def _lanes(self, given: Mapping[str, Any]) -> Infos:
        """Return the ``info`` of each lane, for lanes that ended that of the end; empty without ``infos``."""
        lanes: Infos = [{} for _ in range(self.num_envs)]
        if not self.infos:
            return lanes
        for source in (given, given.get("final_info") or {}):
            for key, values in source.items():
                if key.startswith("_") or key in ("final_obs", "final_info") or f"_{key}" not in source:
                    continue
                for lane in np.flatnonzero(source[f"_{key}"]).tolist():
                    lanes[lane][key] = values[lane]
        return lanes


_TRANSPARENT: tuple[type, ...] = (VecEnvAdapter, DummyVecEnv, vector.SyncVectorEnv, VecMonitor, VecCheckNan, Monitor)
_TRANSPARENT += (wrappers.TimeLimit, wrappers.Autoreset, wrappers.PassiveEnvChecker, wrappers.OrderEnforcing)
_TRANSPARENT += (wrappers.RecordEpisodeStatistics, wrappers.vector.RecordEpisodeStatistics, gym.RewardWrapper)
_TRANSPARENT += (wrappers.NormalizeReward, vector.VectorRewardWrapper, wrappers.vector.NormalizeReward)
"""Wrappers that pass on observations and actions unchanged."""
_ACTING: tuple[type, ...] = (gym.ActionWrapper, vector.VectorActionWrapper, wrappers.MaxAndSkipObservation)
_ACTING += (getattr(wrappers, "RepeatAction", gym.ActionWrapper),)  # which older versions have not
"""Wrappers that change actions."""


def policy_of(
    model: Any,
    *,
    observation: Context | None = None,
    user_features: Callable[[Array], Any] | None = None,
    transform: Callable[[Array], Array] | None = None,
    deterministic: bool = False,
    rows: int | None = ROWS,
    name: str | None = None,
) -> FeaturePolicy:
    """Wrap a trained model with discrete actions as a policy with exact propensities.

    PPO, A2C and others with a distribution act by it, DQN by its values (equal ones as likely). The model is read and
    not copied: train it no more while the policy is in use. Its spaces must be those of what the policy shows it; a
    policy keeps no ratings, and no policy of slates is made of a model.

    Args:
        model: an algorithm of Stable-Baselines3.
        observation: observation of its environment, such as ``shown=0.9``. None: ``counts``, the environments' default,
            or ``last`` if that is the model's space.
        user_features: for a model trained on ``observation="features"``, or on another with ``+features``: a function
            of users (n,) that gives those, ``lambda users: world.features_of(seed, users)``. The policy then acts for
            users of that seed.
        transform: function from (n, width) observations of the environment to the model's inputs. None: the
            ``VecNormalize`` of the model's environment, with its present statistics; any other wrapper that
            changes observations is refused. Of your own transform only the shape of the result is checked.
        deterministic: the most probable action always.
        rows: number of observations per call of the model. PyTorch rounds by the shape of a batch: for a fixed number
            a user's propensities are the same in a loop, in ``simulate`` and in ``replay``; for None they differ by up
            to 1e-6.
        name: name in reports; that of the algorithm if None.

    Raises:
        UserError: a model whose actions are not the items 0 .. n_items - 1, or that observes something else; one that
            answers by more than an observation, as recurrent ones do; wrappers between it and its environment that no
            policy can repeat; or no environment, as a model that was loaded without one, and no transform.
    """
    n_items = _n_items_of(model.action_space)
    observed_space = model.observation_space
    if observation is None and isinstance(observed_space, gym.spaces.MultiDiscrete) and transform is None:
        observation = f"last={observed_space.shape[0]}"
    kind = "distribution"
    if deterministic or hasattr(model, "q_net"):
        kind = "scores"
    policy = FeaturePolicy(
        n_items,
        observation or "counts",
        name=name or type(model).__name__.lower(),
        user_features=user_features,
        rows=rows,
        **{kind: _outputs_of(model, transform)},
    )
    if transform is None:
        _compare(observed_space, policy)
    return policy


def _outputs_of(model: Any, transform: Callable[[Array], Array] | None) -> Callable[[Array], Array]:
    """Return a function from observations (n, width) to a model's outputs, with its environment's wrappers."""
    answer = _answer_of(model)
    changes = _changes_of(model.get_env(), transform)
    shape = model.observation_space.shape

    def outputs(x: Array) -> Array:
        for change in changes:
            x = np.asarray(change(x))
        if x.shape[1:] != shape:
            raise UserError(f"transform gives {x.shape[1:]} of a user, the model observes {shape}")
        model.policy.set_training_mode(False)
        with torch.no_grad():
            return answer(torch.as_tensor(x, device=model.device)).cpu().numpy().astype(np.float64)

    return outputs


def _n_items_of(actions: Any) -> int:
    """Count the items that a model chooses from; UserError for other actions."""
    if not isinstance(actions, gym.spaces.Discrete) or actions.start != 0:
        raise UserError(
            f"policy_of: the model's actions are {actions}, a policy's are the items from 0. Train it where they are "
            "Discrete(n_items); models of slates have no way back yet"
        )
    return int(actions.n)


def _compare(observed: Any, policy: FeaturePolicy) -> None:
    """Refuse a model whose observations differ from those of the policy."""
    kind = policy.describe()["features"]
    space = policy.space
    if observed != space:
        model = _in_a_line(observed)
        ours = _in_a_line(space)
        raise UserError(
            f"the model observes {model}, the policy would show it {ours} ({kind}). Give the observation= "
            "or user_features= of its environment, or a transform; of ratings and dictionaries nothing is kept"
        )


def _changes_of(env: Any, transform: Callable[[Array], Any] | None) -> list[Callable[[Array], Any]]:
    """List the changes that a model's environment makes to observations, in order, frozen as they are now.

    Args:
        env: the model's environment.
        transform: the user's function for all changes, if any.

    Raises:
        UserError: it changes actions, does more to observations than ``VecNormalize``, or is not known.
    """
    changes = []
    if transform:
        changes.append(transform)
    if env is None and not changes:
        raise UserError(
            "policy_of: the model has no environment, so what changed its observations is not known. Load it with "
            "env=, wrapped as it was, or give transform= (lambda x: x where nothing did)"
        )
    while env is not None:
        if isinstance(env, VecNormalize):
            if env.norm_obs and not transform:
                frozen = copy.copy(env)
                frozen.obs_rms = copy.deepcopy(env.obs_rms)
                changes.insert(0, frozen.normalize_obs)  # inner wrappers change an observation first
        elif isinstance(env, _ACTING) or not (transform or _passes_on(env)):
            raise UserError(
                f"policy_of: {type(env).__name__} may change what the model observes or does, and a policy acts "
                "without it. Train without it; what it does to each observation alone, transform= can do"
            )
        env = _inside(env)
    return changes


def _inside(layer: Any) -> Any:
    """Get the wrapped layer, the first of several environments; None for an environment itself."""
    held = vars(layer)
    if "envs" in held:
        return held["envs"][0]
    return held.get("venv", held.get("env"))


def _passes_on(layer: Any) -> bool:
    """Return whether observations and actions pass as they are; of environments in other processes it is not known."""
    if isinstance(layer, gym.Wrapper | vector.VectorWrapper | vector.AsyncVectorEnv):
        return isinstance(layer, _TRANSPARENT)
    return isinstance(layer, (gym.Env, VectorEnv, *_TRANSPARENT))


def _in_a_line(space: Any) -> str:
    """Describe a space in one line; of varying bounds the first and the last."""
    if not isinstance(space, gym.spaces.Box) or (np.ptp(space.low) == 0 and np.ptp(space.high) == 0):
        return str(space)
    low, high = (f"{bounds.flat[0]:g} .. {bounds.flat[-1]:g}" for bounds in (space.low, space.high))
    return f"Box({low}, {high}, {space.shape}, {space.dtype})"


def _answer_of(model: Any) -> Callable[[Any], Any]:
    """Get a model's outputs for observations: the values of actions, or their probabilities.

    Raises:
        UserError: neither, or not to observations alone.
    """
    if hasattr(model, "q_net"):
        return model.q_net
    ask = getattr(model.policy, "get_distribution", None)
    if ask is None or len(inspect.signature(ask).parameters) != 1:
        raise UserError(
            f"policy_of: {type(model).__name__} gives no distribution of actions by one observation alone. Write a "
            "Policy that keeps what else it takes: docs/rl.md, a policy with a memory"
        )
    return lambda observed: ask(observed).distribution.probs
