"""FeaturePolicy: what one writes is scores(x) or distribution(x); the rest keeps the contract of every policy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from recsim_mnar.errors import UserError
from recsim_mnar.export import decisions, distributions
from recsim_mnar.policies import EpsilonMixture, FeaturePolicy, SoftmaxPolicy, registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.testing import check_policy
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

P = 12


class Half(FeaturePolicy):
    """Half by what was viewed, half at random."""

    def distribution(self, x):
        weight = x + 1.0
        return 0.5 * weight / weight.sum(axis=1, keepdims=True) + 0.5 / self.n_items


class Newest(FeaturePolicy):
    """The items seen last, by the one-hot of their ids."""

    def __init__(self, n_items):
        super().__init__(n_items, "last=2", name="newest")

    def scores(self, x):
        items = 1 + np.arange(self.n_items)
        return (x[:, :1] == items) * 2.0 + (x[:, 1:2] == items)


def linear(x):
    return x @ np.random.default_rng(5).normal(size=(x.shape[1], P))


POLICIES = {
    "distribution": lambda: Half(n_items=P),
    "scores": lambda: Newest(n_items=P),
    "a function": lambda: FeaturePolicy(P, "decayed=0.8", scores=linear, rows=4),
    "of what was shown": lambda: FeaturePolicy(P, "shown=0.8", scores=linear, rows=4),
    "of what was shown, softened": lambda: SoftmaxPolicy(FeaturePolicy(P, "shown", scores=linear, rows=8), 0.7),
    "softened": lambda: SoftmaxPolicy(FeaturePolicy(P, scores=linear, rows=8), 0.7),
    "explored": lambda: EpsilonMixture(FeaturePolicy(P, "shown", scores=linear, rows=8), 0.3),
}


@pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)
def test_the_contract_of_policies(make):
    assert check_policy(make) == []


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


@pytest.mark.parametrize("observation", ["counts", "decayed=0.8", "last=4", "shown=0.8"])
def test_it_sees_what_is_exported(world, observation):
    """The matrix that a model is trained on is the one that it is shown when it acts, by the environments' string."""
    log = simulate(world, registry.uniform_policy(P), n_users=80, seed=1)
    exported = decisions(log, P, context=observation).context
    seen = []

    def distribution(x):
        seen.extend(row.tobytes() for row in x)
        return np.full((len(x), P), 1.0 / P)

    replay(log, FeaturePolicy(P, observation, distribution=distribution))
    assert {row.tobytes() for row in exported} <= set(seen)


def test_it_is_the_log_and_its_replay(world):
    log = simulate(world, Half(P), n_users=300, seed=2)
    shown = log.is_bandit
    assert_array_equal(replay(log, Half(P))[shown], log["propensity"][shown])
    made = decisions(log, P)
    by_hand = Half(P).distribution(made.context.astype(np.float64))[np.arange(len(made)), made.action]
    assert_allclose(made.propensity, by_hand, rtol=1e-6)
    assert_allclose(distributions(log, Half(P))[np.arange(len(made)), made.action], made.propensity)


def test_scores_of_features_and_of_users():
    policy = Newest(4)
    users = np.array([7])
    policy.reset(users)
    assert policy.scores(users).tolist() == [[0, 0, 0, 0]]
    policy.observe(np.array([7, 7]), np.array([3, 1]))
    assert policy.features(users).tolist() == [[2, 4]]
    assert policy.scores(users).tolist() == [[0, 2, 0, 1]]
    assert policy.probabilities(users).tolist() == [[0, 1, 0, 0]]
    soft = EpsilonMixture(policy, 0.4).probabilities(users)
    assert_allclose(soft, [[0.1, 0.7, 0.1, 0.1]])


def test_a_fixed_number_of_rows_is_what_a_model_is_handed():
    shapes = []

    def uniform(x):
        shapes.append(x.shape)
        return np.full((len(x), P), 1.0 / P)

    policy = FeaturePolicy(P, distribution=uniform, rows=8)
    for users in (np.arange(1), np.arange(20), np.arange(100, 108)):
        policy.reset(users)
        policy.act(users, np.zeros(len(users)))
    assert set(shapes) == {(8, P)}


def test_an_answer_is_kept_until_something_is_viewed():
    asked = []

    def scores(x):
        asked.append(len(x))
        return x

    policy = FeaturePolicy(P, scores=scores)
    users = np.array([5, 6])
    policy.reset(users)
    for _ in range(3):
        policy.act(users, np.array([0.1, 0.9]))
        policy.propensity_of(users, np.array([0, 1]))
    assert asked == [2]
    policy.observe(users[:1], np.array([4]))
    policy.act(users, np.array([0.1, 0.9]))
    assert asked == [2, 1]
    policy.forget(users)
    with pytest.raises(UserError, match="user 5 has not begun"):
        policy.act(users, np.array([0.1, 0.9]))


def test_mistakes_are_said():
    def wrong(answer):
        policy = FeaturePolicy(P, distribution=answer)
        policy.reset(np.array([1]))
        return policy.probabilities(np.array([1]))

    for call, words in (
        (lambda: FeaturePolicy(P), "define one of scores"),
        (lambda: FeaturePolicy(P, scores=linear, distribution=linear), "define one of scores"),
        (lambda: FeaturePolicy(0, scores=linear), "n_items must be"),
        (lambda: FeaturePolicy(P, "views", scores=linear), "unknown observation"),
        (lambda: FeaturePolicy(P, scores=linear, rows=0), "rows must be"),
        (lambda: wrong(lambda x: x + 1.0), "must sum to 1"),
        (lambda: wrong(lambda x: np.ones((1, 3)) / 3), "must have shape"),
        (lambda: Half(P).observe(np.array([1]), np.array([P])), "out of range"),
    ):
        with pytest.raises(UserError, match=words):
            call()
    policy = FeaturePolicy(P, scores=lambda x: np.full((len(x), P), np.nan))
    policy.reset(np.array([1]))
    with pytest.raises(UserError, match="not a number"):
        policy.scores(np.array([1]))
