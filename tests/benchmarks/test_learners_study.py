"""The study of learners: the doubly robust estimate of a candidate, by plain replay."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.off_policy.learners import RewardCrossEntropy, reward_model
from recsim_mnar.estimators.from_columns import estimate_value
from recsim_mnar.log import Log
from recsim_mnar.models.bandit import Contexts
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import untrained


@pytest.fixture
def log():
    world = make_world("sessions", "quick", {"n_items": 10, "n_flips": 5})
    return simulate(world, untrained("user-popularity+epsilon=0.2", 10), 400, 7)


def test_the_estimate_uses_the_model_of_the_other_users(modules_of, log):
    choosing = modules_of("learners", "choosing")["choosing"]
    train, held = choosing.split_users(log, 0.5, 5)
    assert not set(train.users()) & set(held.users())
    policy = RewardCrossEntropy(epochs=2).fit(train, n_items=10)
    mapping, model = reward_model(train, 10, rank=5, shrinkage=2.0, seed=5)
    contexts = Contexts.from_log(held, 10, shrinkage=2.0)
    found = choosing.doubly_robust(policy, contexts, (mapping, model))
    x = np.concatenate([np.ones((contexts.features.shape[0], 1)), contexts.features @ mapping], axis=1)
    q = (x @ model.T)[contexts.context]
    greedy = registry.learner("mf-ips").fit(train, n_items=10, seed=5)  # ranks by the same model
    users = np.array([1])
    greedy.reset(users)
    greedy.observe(np.repeat(users, 3), np.array([1, 2, 2]))
    counts = np.bincount([1, 2, 2], minlength=10) / 5.0
    np.testing.assert_allclose(model @ np.append(1.0, counts @ mapping), greedy.scores(users)[0], rtol=1e-4, atol=1e-6)
    rows, target = held.bandit(), replay(held, policy)[held.is_bandit]
    pi = np.empty((len(target), 10))
    for item in range(10):
        changed = Log({**held.columns, "action": np.where(held.is_bandit, item, -1).astype(np.int32)})
        pi[:, item] = replay(changed, policy)[held.is_bandit]
    expected = estimate_value(
        rows["reward"], rows["propensity"], target, estimator="dr", cluster=rows["user"],
        model=(q[np.arange(len(q)), rows["action"]], (pi * q).sum(axis=1)),
    )  # fmt: skip
    assert found.value == pytest.approx(expected.value, rel=1e-9)
