"""Make the agents of the table: fitted on a task's log, trained among other users, or by Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from recsim_mnar import Planner, simulate_online
from recsim_mnar.errors import UserError
from recsim_mnar.policies import Policy
from recsim_mnar.policies.base import Floats, Ints
from recsim_mnar.policies.door import PolicyWrapper
from recsim_mnar.policies.registry import learner
from recsim_mnar.rng import derive_seed
from recsim_mnar.tasks.definition import Task, task_vector_env

KINDS = ("ppo", "a2c", "dqn")
DEFAULTS: Mapping[str, Any] = {"lanes": 8, "observation": "counts", "scaled": False, "deterministic": False}
"""Of a model with the library's own settings; ``counts`` is what the environments show."""


class Frozen(PolicyWrapper):
    """A policy that learned from all users, as it was left: it learns no more, so users can be taken apart."""

    learns: Literal["nothing"] = "nothing"  # type: ignore[assignment]  # a property of those that learn
    batches_decisions = True  # type: ignore[assignment]  # between two views it does the same

    def __init__(self, learned: Policy) -> None:
        self.inner, self.n_items, self.name = learned, learned.n_items, learned.name

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Nothing."""

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`; of each user once."""
        asked, of = np.unique(users, return_inverse=True)
        return np.asarray(self.inner.probabilities(asked))[of]

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """The first item a with uniform < p_0 + ... + p_a."""
        shares = self.probabilities(users)
        top = self.n_items - 1 - np.argmax(shares[:, ::-1] > 0, axis=1)
        actions = np.minimum((np.cumsum(shares, axis=1) <= uniforms[:, None]).sum(axis=1), top)
        return actions, shares[np.arange(len(users)), actions]


def planner(name: str, chosen: Task) -> Policy:
    """What knows the world's parameters and sees observations alone."""
    return Planner(chosen.make_world(), myopic=name == "myopic")


def fitted(name: str, chosen: Task, log: Any, seed: int) -> Policy:
    """A learner of ours on the task's log; of seed 0 the very policy that ``evaluate`` fits."""
    fit = derive_seed(chosen.seed, "task/fit")
    n_items = chosen.make_world().n_items
    return learner(name).fit(log, n_items=n_items, seed=fit if seed == 0 else derive_seed(fit, f"table/{seed}"))


def bandit(name: str, chosen: Task, seed: int, *, users: int, lanes: int) -> Policy:
    """A bandit that learned while it acted among other users, then frozen."""
    run = simulate_online(chosen.make_world(), name, users, seed, lanes=lanes)
    return Frozen(run.policy)


def trained(kind: str, chosen: Task, setting: Mapping[str, Any], *, steps: int, seed: int) -> Any:
    """A trained model of Stable-Baselines3.

    Args:
        kind: of :data:`KINDS`.
        chosen: the task.
        setting: ``lanes``, ``observation``, ``scaled`` (view counts as shares), ``deterministic`` (the most probable
            action always), and keywords of the algorithm.
        steps: recommendations that it is trained on, a multiple of lanes times the length of a rollout.
        seed: of the model and of the users whom it meets, who are not those of the evaluation.

    Raises:
        UserError: a world of ratings, of which a policy keeps none.
        ImportError: the library is not installed.
    """
    if chosen.make_world().rates:
        raise UserError("a policy of features keeps no ratings, which are what the model observes")
    import stable_baselines3
    import torch

    from recsim_mnar.integrations.stable_baselines3 import ScaledCounts, VecEnvAdapter

    torch.set_num_threads(1)  # small networks: more threads cost more than they save, and round otherwise
    own = {key: value for key, value in setting.items() if key not in DEFAULTS}  # keywords of the algorithm
    if setting["scaled"]:
        own["policy_kwargs"] = {"features_extractor_class": ScaledCounts}
    if kind == "dqn":
        own["buffer_size"] = steps  # whatever it was shown fits
    lanes = task_vector_env(
        setting["lanes"], name=chosen.name, observation=setting["observation"], autoreset_mode="SameStep"
    )
    algorithm = getattr(stable_baselines3, kind.upper())
    model = algorithm("MlpPolicy", VecEnvAdapter(lanes), seed=seed, device="cpu", **own)
    return model.learn(steps)


def as_policy(model: Any, setting: Mapping[str, Any]) -> Policy:
    """The policy of a model, which observes and acts by its setting."""
    from recsim_mnar.integrations.stable_baselines3 import policy_of

    return policy_of(model, observation=setting["observation"], deterministic=setting["deterministic"])


def other_users(chosen: Task, seed: int) -> Task:
    """The task on other users than the public ones, for choosing settings."""
    return Task(**{**vars(chosen), "seed": seed})
