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
    """Feature extractor that scales view counts h to h sqrt(P) / (n + shrinkage), with n views of P items.

    The features are the shares of the items among a user's views, shrunk towards 0 for users with few views. So their
    size does not grow with the length of the history, as that of counts does.

    Args:
        observation_space: space of view counts, one number per item.
        shrinkage: number of views at which the shares are shrunk to one half.
    """

    def __init__(self, observation_space: gym.spaces.Box, shrinkage: float = 5.0) -> None:
        super().__init__(observation_space, observation_space.shape[0])
        self.shrinkage = shrinkage
        self.scale = math.sqrt(observation_space.shape[0])

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Scale the view counts of n users, (n, n_items)."""
        return observations * (self.scale / (observations.sum(dim=1, keepdim=True) + self.shrinkage))


PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 64,
    "batch_size": 2048,
    "gamma": 0.0,
    "learning_rate": 1e-3,
    "policy_kwargs": {"features_extractor_class": ScaledCounts},
}
"""Settings of ``PPO("MlpPolicy", ...)`` for the sessions world, in about 128 lanes.

``gamma`` is 0 because a recommendation hardly changes later rewards, and without these the advantages are far less
noisy.
"""

ROWS = 64
"""Number of observations per call of a model in :func:`policy_of`."""


class VecEnvAdapter(VecEnv):
    """A Gymnasium vector environment as Stable-Baselines3's ``VecEnv``: every lane stepped by one call.

    Make one with ``VecEnvAdapter(gym.make_vec("recsim_mnar/Sessions-v0", num_envs=64,
    vectorization_mode="vector_entry_point", autoreset_mode="SameStep"))``. The infos of a step have the keys that the
    library reads: ``terminal_observation`` and ``TimeLimit.truncated`` of lanes that ended.

    Args:
        env: vector environment in the autoreset mode SAME_STEP, the only one that the library supports.
        infos: also return the environment's infos (user, step, views), as one dictionary per lane. This takes longer
            than the step itself.

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
        """Reset all lanes, and return their observations (num_envs, ...).

        The seed of :meth:`seed` and the options of ``set_options`` are used once, as the library prescribes.

        Raises:
            UserError: options that differ between lanes.
        """
        options = self._options[0]
        if any(other != options for other in self._options):
            raise UserError("set_options: lanes are one environment. Give one dictionary for all of them")
        observations, info = self.env.reset(seed=self._seeds[0], options=options or None)
        self.reset_infos = self._lane_infos(info)
        self._reset_seeds()
        self._reset_options()
        return observations

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seed of all lanes for the next reset, after which lane i begins with user i; None draws a seed."""
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self._seeds = [seed] * self.num_envs
        return self._seeds

    def step_async(self, actions: Array) -> None:
        """Store the actions of the lanes, which :meth:`step_wait` takes."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Array, Array, Array, Infos]:
        """Take the stored actions in all lanes, which start a new episode where one ends.

        Returns:
            observations: (num_envs, ...) observations, of the new episode in lanes that ended.
            rewards: (num_envs,) float32.
            ended: (num_envs,) True for lanes whose episode ended.
            infos: one dictionary per lane, with the last observation of an episode that ended.
        """
        observations, rewards, terminated, truncated, info = self.env.step(self._actions)
        ended = terminated | truncated
        infos = self._lane_infos(info)
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
        self._refuse_some_lanes(indices, "set_attr")
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the environment once, and return its result as many times as there are lanes.

        Raises:
            UserError: some of the lanes only.
        """
        self._refuse_some_lanes(indices, "env_method")
        return [getattr(self.env, method_name)(*method_args, **method_kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None) -> list[bool]:
        """Return False for every lane, as lanes have no wrappers."""
        return [False] * len(list(self._get_indices(indices)))

    def _refuse_some_lanes(self, indices: Any, what: str) -> None:
        """Raise UserError unless ``indices`` are all lanes; ``what`` names the method."""
        lanes: Iterable[int] = self._get_indices(indices)
        if len(list(lanes)) != self.num_envs:
            raise UserError(f"{what} is for all lanes: they are one environment")

    def _lane_infos(self, given: Mapping[str, Any]) -> Infos:
        """Split a vector environment's infos into one dictionary per lane; these are empty without ``infos``.

        Gymnasium has an array per key, and under the key with an underscore the lanes for which it is valid. In lanes
        that ended, the last info of the episode replaces the first one of the next.
        """
        lanes: Infos = [{} for _ in range(self.num_envs)]
        if not self.infos:
            return lanes
        for source in (given, given.get("final_info") or {}):
            for key, values in source.items():
                if key.startswith("_") or key in ("final_obs", "final_info") or f"_{key}" not in source:
                    continue  # a mask, the end of an episode, or an entry that is not by lane
                for lane in np.flatnonzero(source[f"_{key}"]).tolist():
                    lanes[lane][key] = values[lane]
        return lanes


_TRANSPARENT: tuple[type, ...] = (VecEnvAdapter, DummyVecEnv, vector.SyncVectorEnv, VecMonitor, VecCheckNan, Monitor)
_TRANSPARENT += (wrappers.TimeLimit, wrappers.Autoreset, wrappers.PassiveEnvChecker, wrappers.OrderEnforcing)
_TRANSPARENT += (wrappers.RecordEpisodeStatistics, wrappers.vector.RecordEpisodeStatistics, gym.RewardWrapper)
_TRANSPARENT += (wrappers.NormalizeReward, vector.VectorRewardWrapper, wrappers.vector.NormalizeReward)
"""Wrappers that pass on observations and actions unchanged."""
_ACTING: tuple[type, ...] = (gym.ActionWrapper, vector.VectorActionWrapper, wrappers.MaxAndSkipObservation)
_ACTING += (getattr(wrappers, "RepeatAction", gym.ActionWrapper),)  # older versions of Gymnasium lack it
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

    Algorithms with a distribution over actions, such as PPO and A2C, act by it; DQN acts by its action values, with
    equal probabilities for equal values. The model is used and not copied: do not train it while the policy is in use.
    Models that observe ratings, or whose actions are slates, cannot be wrapped.

    Args:
        model: a trained algorithm of Stable-Baselines3.
        observation: name of the observation of its environment, such as ``shown=0.9``. None means ``counts``, the
            environments' default, or ``last`` if the model's observation space is of that kind.
        user_features: function from users (n,) to the features that the model observed, such as ``lambda users:
            world.features_of(seed, users)``, for a model trained on ``observation="features"`` or one with
            ``+features``. The policy then acts for users of that seed. None for other models.
        transform: function from (n, width) observations of the environment to the model's inputs, of which only the
            shape is checked. None means the ``VecNormalize`` of the model's environment, with its present statistics;
            any other wrapper that changes observations is then refused.
        deterministic: always take the most probable action.
        rows: number of observations per call of the model. PyTorch's rounding depends on the shape of a batch: with a
            fixed number, a user's propensities are the same in a loop, in ``simulate`` and in ``replay``; with None
            they differ by up to 1e-6.
        name: name in reports; that of the algorithm if None.

    Raises:
        UserError: the model's actions are not the items 0 .. n_items - 1; it observes something other than the policy's
            observation, or needs more than one observation, as recurrent models do; a wrapper of its environment
            changes observations or actions in a way that the policy cannot repeat; or the model has no environment, as
            after loading, and no transform is given.
    """
    n_items = _n_items_of(model.action_space)
    observed_space = model.observation_space
    if observation is None and isinstance(observed_space, gym.spaces.MultiDiscrete) and transform is None:
        observation = f"last={observed_space.shape[0]}"
    kind = "distribution"
    if deterministic or hasattr(model, "q_net"):  # the item with the largest output is recommended
        kind = "scores"
    outputs = {kind: _outputs_of(model, transform)}
    policy = FeaturePolicy(
        n_items,
        observation or "counts",
        name=name or type(model).__name__.lower(),
        user_features=user_features,
        rows=rows,
        **outputs,
    )
    if transform is None:
        _refuse_other_space(observed_space, policy)
    return policy


def agent_of(model: Any, *, deterministic: bool = False) -> Callable[[gym.Env[Any, Any]], Callable[..., Any]]:
    """Return a trained model for :func:`recsim_mnar.evaluate_agent`, with its recurrent state and action masks.

    Observations are normalised by the ``VecNormalize`` of the model's environment, if it has one, with its present
    statistics. Give ``evaluate_agent`` the observation and the other wrappers of the training.

    Args:
        model: a trained algorithm of Stable-Baselines3 or sb3-contrib, also one whose actions are slates.
        deterministic: always take the most probable action.
    """
    normaliser = model.get_vec_normalize_env()

    def predict(observations: Any, state: Any, starts: Array, **masks: Any) -> tuple[Array, Any]:
        if normaliser is not None:
            observations = normaliser.normalize_obs(observations)
        return model.predict(observations, state=state, episode_start=starts, deterministic=deterministic, **masks)

    def predict_with_masks(observations: Any, state: Any, starts: Array, masks: Any = None) -> tuple[Array, Any]:
        return predict(observations, state, starts, action_masks=masks)

    takes_masks = "action_masks" in inspect.signature(model.predict).parameters
    return lambda env: predict_with_masks if takes_masks else predict


def _outputs_of(model: Any, transform: Callable[[Array], Array] | None) -> Callable[[Array], Array]:
    """Return a function from observations (n, width) to a model's outputs (n, n_items), action values or probabilities.

    It first changes the observations as the wrappers of the model's environment do, or by ``transform``.
    """
    evaluate = _model_outputs(model)
    changes = _changes_of(model.get_env(), transform)
    shape = model.observation_space.shape

    def outputs(x: Array) -> Array:
        """Return the model's outputs (n, n_items) for observations (n, width)."""
        for change in changes:
            x = np.asarray(change(x))
        if x.shape[1:] != shape:
            raise UserError(f"transform gives {x.shape[1:]} of a user, the model observes {shape}")
        model.policy.set_training_mode(False)
        with torch.no_grad():
            return evaluate(torch.as_tensor(x, device=model.device)).cpu().numpy().astype(np.float64)

    return outputs


def _n_items_of(actions: Any) -> int:
    """Return the number of items that a model chooses from; raise UserError if its actions are no single items."""
    if not isinstance(actions, gym.spaces.Discrete) or actions.start != 0:
        raise UserError(
            f"policy_of: the model's actions are {actions}, a policy's are the items from 0. Train it where they are "
            "Discrete(n_items); models of slates have no way back yet"
        )
    return int(actions.n)


def _refuse_other_space(observed: Any, policy: FeaturePolicy) -> None:
    """Raise UserError if a model's observation space differs from that of the policy's features."""
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
    """Return the functions by which the wrappers of a model's environment change observations, in order of application.

    Args:
        env: the model's environment; None for a model without one.
        transform: the user's function in place of all of the wrappers' changes; None without one.

    Returns:
        the transform alone if there is one, else a function per ``VecNormalize``, with its present statistics.

    Raises:
        UserError: a wrapper changes actions, or changes observations in another way than ``VecNormalize``; or there is
            neither an environment nor a transform.
    """
    changes = []
    if transform:
        changes.append(transform)
    if env is None and not changes:
        raise UserError(
            "policy_of: the model has no environment, so what changed its observations is not known. Load it with "
            "env=, wrapped as it was, or give transform= (lambda x: x where nothing did)"
        )
    while env is not None:  # from the outermost wrapper to the environment itself
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
        env = _wrapped_by(env)
    return changes


def _wrapped_by(layer: Any) -> Any:
    """Return what a wrapper wraps, the first environment if it has several; None for an environment itself."""
    attributes = vars(layer)
    if "envs" in attributes:
        return attributes["envs"][0]
    return attributes.get("venv", attributes.get("env"))


def _passes_on(layer: Any) -> bool:
    """Return whether a layer leaves observations and actions unchanged; False if it runs in other processes."""
    if isinstance(layer, gym.Wrapper | vector.VectorWrapper | vector.AsyncVectorEnv):
        return isinstance(layer, _TRANSPARENT)
    return isinstance(layer, (gym.Env, VectorEnv, *_TRANSPARENT))


def _in_a_line(space: Any) -> str:
    """Describe a space in one line; bounds that vary between its numbers are given by the first and the last."""
    if not isinstance(space, gym.spaces.Box) or (np.ptp(space.low) == 0 and np.ptp(space.high) == 0):
        return str(space)
    low, high = (f"{bounds.flat[0]:g} .. {bounds.flat[-1]:g}" for bounds in (space.low, space.high))
    return f"Box({low}, {high}, {space.shape}, {space.dtype})"


def _model_outputs(model: Any) -> Callable[[Any], Any]:
    """Return a function from observations, a tensor, to a model's action values (DQN) or action probabilities.

    Raises:
        UserError: the model has neither, or needs more than the observation.
    """
    if hasattr(model, "q_net"):
        return model.q_net
    get_distribution = getattr(model.policy, "get_distribution", None)
    # Recurrent models take a state as a further parameter.
    if get_distribution is None or len(inspect.signature(get_distribution).parameters) != 1:
        raise UserError(
            f"policy_of: {type(model).__name__} gives no distribution of actions by one observation alone. Write a "
            "Policy that keeps what else it takes: docs/rl.md, a policy with a memory"
        )
    return lambda observed: get_distribution(observed).distribution.probs
