"""Bandits: posteriors as their plain twins, the stated distance to true Thompson sampling, exact propensities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from recsim_mnar.agents.bandits import _bandits_kernel
from recsim_mnar.agents.bandits.linear import LinThompson, LinUCB, LogisticThompson, chance_of_best
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds.features import FeatureWorld
from toys import untrained
from twins.bandits import best_chances, laplace_rows, ridge_posterior
from twins.cases import quick_first
from twins.contracts import AgentContract

P = 6
SPECS = (
    "epsilon-greedy",
    "ucb1+exploration=0.5",
    "lin-epsilon-greedy+exploration=0.2",
    "lin-ucb",
    "lin-thompson",
    "logistic-thompson+spread=0.8",
)


def taught(spec, n_items=P, **given):
    """A bandit that has seen 300 outcomes of users with random views."""
    policy = untrained(spec, n_items) if not given else given["make"](n_items)
    generator = np.random.default_rng(4)
    users = np.arange(100)
    policy.reset(users)
    for _ in range(3):
        policy.observe(users, generator.integers(0, n_items, len(users)))
        actions, propensities = policy.act(users, generator.random(len(users)))
        policy.learn(users, actions, (generator.random(len(users)) < 0.2 + 0.1 * (actions % 3)) * 1.0, propensities)
    policy.forget(users)
    return policy


class TestBandits(AgentContract):
    n_draws = 20_000

    @pytest.fixture(autouse=True, params=SPECS)
    def _spec(self, request):
        self.spec = request.param

    def make_policy(self):
        return taught(self.spec)

    def test_it_has_learned(self, policy, users, views):
        self.observe_events(policy, users, views)
        assert not np.allclose(policy.scores(users), policy.scores(users)[:, :1])
        state = policy.state
        assert (state["shown"].sum() if "shown" in state else state.get("sums", [300])[0]) == 300

    def check_loaded(self, again, users):
        before = again.scores(users)
        again.learn(users, np.zeros(len(users), int), np.ones(len(users)), np.ones(len(users)))
        assert not np.array_equal(again.scores(users), before)

    def test_a_fresh_one_learns_apart(self, policy, users, views):
        twin = policy.fresh()
        for each in (policy, twin):
            self.observe_events(each, users, views)
        before = policy.probabilities(users)
        twin.learn(users, np.zeros(len(users), int), np.ones(len(users)), np.ones(len(users)))
        np.testing.assert_array_equal(policy.probabilities(users), before)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_posteriors_are_those_of_the_twin(kind):
    generator = np.random.default_rng(0)
    n, d, p = 300, 5, 3
    x = generator.normal(size=(n, d)) * (generator.random((n, d)) < 0.7)  # zeros, which the kernel skips
    x[:, 0] = 1.0
    actions = generator.integers(0, p, n).astype(np.int32)
    rewards = (generator.random(n) < 0.3) * 1.0
    inverse, theta = np.tile(np.eye(d) / 0.7, (p, 1, 1)), np.zeros((p, d))
    learn = getattr(_bandits_kernel, f"learn_{kind}")
    learn(x, actions, rewards, inverse, theta, np.empty(d, np.int64), np.empty(d))
    twin = ridge_posterior if kind == "linear" else laplace_rows
    for a in range(p):
        v, mode = twin(x[actions == a], rewards[actions == a], 0.7)
        np.testing.assert_allclose(inverse[a], v, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(theta[a], mode, rtol=1e-9, atol=1e-11)
    means, widths = np.empty((n, p)), np.empty((n, p))
    _bandits_kernel.predict(x, inverse, theta, np.empty(d, np.int64), means, widths)
    np.testing.assert_allclose(means, x @ theta.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(widths, np.sqrt(np.einsum("ni,aij,nj->na", x, inverse, x)), rtol=1e-10)


def test_normal_distribution_function():
    x = np.linspace(-30, 30, 6001)
    out = np.empty_like(x)
    _bandits_kernel.fill_normal_cdf(x, out)
    np.testing.assert_allclose(out, ndtr(x), atol=1e-12)
    np.testing.assert_allclose(out[x > -5], ndtr(x[x > -5]), rtol=1e-9)


@pytest.mark.parametrize(("spread", "most", "median"), [(0.0, 0.001, 0.0004), (1.0, 0.01, 0.004)])
def test_distance_to_true_thompson_is_as_stated(spread, most, median):
    """Total variation from the exact chances; ``spread`` is the standard deviation of the log widths."""
    generator = np.random.default_rng(7)
    distances = []
    for case in range(24):
        p = 2 + case
        means = generator.normal(size=p) * generator.choice([0.1, 1.0])
        widths = np.exp(np.clip(spread * generator.normal(size=p), -1.7, 1.7))
        distances.append(0.5 * np.abs(chance_of_best(means[None], widths[None])[0] - best_chances(means, widths)).sum())
    assert max(distances) < most
    assert np.median(distances) < median


def test_chances_of_two_arms_are_known():
    """P(X > Y) = Phi((m - n) / sqrt(s^2 + t^2)), however narrow one of them is."""
    means = np.array([[0.0, 0.3], [0.0, 0.0], [1.0, 0.2]])
    widths = np.array([[1.0, 1.0], [1e-4, 1.0], [0.1, 2.0]])
    first = ndtr((means[:, 0] - means[:, 1]) / np.hypot(widths[:, 0], widths[:, 1]))
    found = chance_of_best(means, widths)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found[:, 0], first, atol=0.002)
    equal = chance_of_best(np.zeros((1, 7)), np.ones((1, 7)))
    np.testing.assert_allclose(equal, 1 / 7, atol=1e-12)


@pytest.mark.verify
@pytest.mark.parametrize("kind", quick_first([LinThompson, LogisticThompson]))
def test_thompsons_distribution_is_that_of_sampled_coefficients(kind):
    """Coefficients sampled from the posteriors: frequencies of the best arm within sampling error and the distance."""
    policy = taught("", make=kind)
    user = np.array([5])
    policy.reset(user)
    policy.observe(np.repeat(user, 3), np.array([0, 1, 1]))
    stated = policy.probabilities(user)[0]
    x, state = policy.contexts(user)[0], policy.state
    scale = policy._deviation() if kind is LinThompson else 1.0
    generator, n = np.random.default_rng(1), 200_000
    sampled = np.stack(
        [generator.multivariate_normal(state["theta"][a], scale**2 * state["inverse"][a], n) @ x for a in range(P)]
    )
    frequency = np.bincount(sampled.argmax(axis=0), minlength=P) / n
    room = 5.0 * np.sqrt(stated * (1 - stated) / n) + 0.005
    assert (np.abs(frequency - stated) < room).all(), (frequency, stated)


@pytest.fixture(scope="module")
def features():
    return FeatureWorld(reward="linear", length=10, **linear_features())


def linear_features():
    generator = np.random.default_rng(2)
    x, z = generator.normal(size=(40, 3)), generator.normal(size=(P, 3))
    score = x @ z.T
    return {
        "user_features": np.concatenate([x, np.ones((40, 1))], axis=1),
        "item_features": np.concatenate([z, np.full((P, 1), -score.min())], axis=1),
        "weights": 0.9 / (score.max() - score.min()) * np.eye(4),
    }


def test_features_are_the_context_and_make_it_better_than_without(features):
    by_features = LinUCB(P, features=features.user_features)
    users = np.array([1, 41, 7])
    by_features.reset(users)
    context = by_features.contexts(users)
    np.testing.assert_array_equal(context[:, 1:], features.user_features[[1, 1, 7]])
    with_features = simulate_online(features, by_features, 400, 1, lanes=8).curve
    without = simulate_online(features, "ucb1", 400, 1, lanes=8).curve
    assert with_features.rewards[-1] > without.rewards[-1]
    assert by_features.describe()["features"]["sha256"]


def test_features_of_a_file(tmp_path, features):
    np.savez(tmp_path / "world.npz", user_features=features.user_features)
    policy = untrained(f"lin-thompson+features={tmp_path / 'world.npz'}", P)
    policy.save(tmp_path / "policy.npz")
    again = LinThompson.load(tmp_path / "policy.npz")
    users = np.arange(5)
    again.reset(users)
    np.testing.assert_array_equal(again.contexts(users)[:, 1:], features.user_features[:5])


@pytest.mark.parametrize(("spec", "bound"), [("epsilon-greedy+exploration=0", 0.0), ("ucb1+exploration=2", 2.0)])
def test_arms_without_a_context_by_definition(spec, bound):
    """Items never shown first, each equally likely; then the largest mean, plus UCB1's bound."""
    policy = untrained(spec, 3)
    user = np.array([9])
    policy.reset(user)
    np.testing.assert_allclose(policy.probabilities(user), 1 / 3)
    for action, reward in ((0, 1.0), (0, 0.0), (2, -7.0)):
        np.testing.assert_array_equal(policy.probabilities(user)[0, 1] > 0, True)
        policy.learn(user, np.array([action]), np.array([reward]), np.ones(1))
    np.testing.assert_array_equal(policy.probabilities(user)[0], [0, 1, 0])
    policy.learn(user, np.array([1]), np.array([0.25]), np.ones(1))
    expected = np.array([0.5, 0.25, -7.0]) + bound * np.sqrt(2 * np.log(4) / np.array([2, 1, 1]))
    np.testing.assert_allclose(policy.scores(user)[0], expected, rtol=1e-14)
    np.testing.assert_array_equal(policy.probabilities(user)[0], expected == expected.max())
