"""Learning from logs: gradients against finite differences of plain twins, the contract, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.off_policy.learners import (
    POEM,
    BanditNet,
    CrossEntropy,
    DRPolicy,
    ImportanceWeighted,
    LoggedContexts,
    RewardCrossEntropy,
)
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import untrained
from twins import off_policy as twin
from twins.logs import log_of

P, D = 4, 3


@pytest.fixture(scope="module")
def world():
    return make_world("sessions", "quick", {"n_items": 10, "n_flips": 5})


@pytest.fixture(scope="module")
def log(world):
    logging = untrained("user-popularity+epsilon=0.2", 10)
    return simulate(world, logging, 400, 7)


def made_up(seed=0, n=60):
    """Rows of 12 contexts as the learners keep them, and as the twins read them."""
    generator = np.random.default_rng(seed)
    features = np.concatenate([np.ones((12, 1)), generator.normal(size=(12, D - 1))], axis=1)
    context = np.sort(generator.integers(0, 12, n))
    data = LoggedContexts(
        np.searchsorted(context, np.arange(13)),
        features,
        generator.integers(0, P, n),
        generator.uniform(0.05, 0.9, n),
        generator.choice([0.0, 0.0, 1.0, 2.0], n),
        np.zeros(D - 1),
    )
    rows = list(zip(features[context], data.actions, data.propensities, data.rewards, strict=True))
    return data, rows, generator.normal(size=(P, D))


ZERO, MODEL = np.zeros((P, D)), np.random.default_rng(2).normal(size=(P, D))


@pytest.mark.parametrize(
    ("model", "clip", "variance", "by_ratio"),
    [
        *((ZERO, clip, variance, False) for clip in (1e9, 2.0) for variance in (0.0, 3.0)),
        *((MODEL, 1.5, variance, False) for variance in (0.0, 3.0)),
        *((ZERO, clip, 0.0, True) for clip in (1e9, 2.0)),
    ],
)
def test_gradients_of_poem_doubly_robust_and_banditnet(model, clip, variance, by_ratio):
    """BanditNet's is that of the ratio times the mean weight."""
    data, rows, weights = made_up(1)
    objective = ImportanceWeighted(data, 1.0, model, clip=clip, variance=variance, by_ratio=by_ratio)
    objective.prepare(weights)
    u, w = twin.row_values(rows, weights, model, clip)
    if by_ratio:
        expected = w.mean() * twin.slopes(lambda at: twin.snips(rows, at, clip), weights)
    else:
        expected = twin.slopes(lambda at: twin.doubly_robust(rows, at, model, clip, variance), weights)
    sums, gradient = objective.whole(weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)
    if not by_ratio:
        np.testing.assert_allclose(sums, [u.sum(), (u**2).sum(), w.sum(), w @ data.rewards, len(u)], rtol=1e-12)


def test_gradient_of_cross_entropy():
    data, rows, weights = made_up(4)
    costs = data.rewards / data.propensities
    sums, gradient = CrossEntropy(data, costs, P).whole(weights)
    expected = twin.slopes(lambda w: twin.cross_entropy(rows, w, costs), weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)
    assert sums[0] / sums[4] == pytest.approx(twin.cross_entropy(rows, weights, costs), rel=1e-12)


def test_minibatches_add_up():
    data, _, weights = made_up(5)
    objective = ImportanceWeighted(data, 1.0, np.zeros((P, D)), clip=2.0, variance=1.0)
    objective.prepare(weights)
    parts = np.zeros((P, D))
    for contexts in np.array_split(np.random.default_rng(0).permutation(12), 5):
        objective.add(contexts, weights, parts)
    np.testing.assert_allclose(parts / len(data.actions), objective.whole(weights)[1], rtol=1e-12)


@pytest.mark.slow
def test_what_is_learned_is_better_than_what_made_the_log(world):
    logging = untrained("user-popularity+epsilon=0.2", 10)
    log = simulate(world, logging, 6000, 7)
    learners = [POEM(), BanditNet(), DRPolicy(), RewardCrossEntropy(sharpness=3.0)]
    policies = {learner.name: learner.fit(log, n_items=10, seed=1) for learner in learners}
    held = simulate(world, untrained("random", 10), 1500, 123)
    value = value_on_log(world, held, {**policies, "logging": logging}, 123)
    for name in policies:
        assert value[name] > 1.02 * value["logging"], value


def test_weighted_by_propensity_it_tends_to_the_expected_rewards():
    """One context, known means: pi proportional to E r with weights r / p, to p E r without."""
    generator = np.random.default_rng(0)
    means, p = np.array([0.1, 0.3, 0.6]), np.array([0.6, 0.3, 0.1])
    n = 60_000
    action = generator.choice(3, n, p=p).astype(np.int32)
    rewards = (generator.random(n) < means[action]) * 1.0
    log = log_of(np.arange(n) // 4, action=action, propensity=p[action], reward=rewards)
    for weight, target in (("ips", means), ("reward", means * p)):
        learner = RewardCrossEntropy(weight=weight, penalty=0.0, epochs=30)
        policy = learner.fit(log, n_items=3)
        policy.reset(np.array([1]))
        found = policy.probabilities(np.array([1]))[0]
        np.testing.assert_allclose(found, target / target.sum(), atol=0.03)
