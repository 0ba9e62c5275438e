"""Agents that can only draw: propensities exact for what acts, and draws that a replay makes again, or a mark."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.policies import EpsilonMixture, SampledPolicy
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import replay, replay_with_support
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.policies import Uniform

P = 6


def zipf(user, generator, draws):
    """Smaller items more often; the same for everybody."""
    return generator.choice(P, draws, p=WEIGHTS)


WEIGHTS = 1.0 / np.arange(1, P + 1)
WEIGHTS /= WEIGHTS.sum()


class Thompson:
    """Beta-Bernoulli Thompson sampling."""

    name = "thompson"

    def __init__(self):
        self.won, self.lost = np.ones(P), np.ones(P)

    def sample(self, user, generator, draws):
        return generator.beta(self.won, self.lost, (draws, P)).argmax(axis=1)

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.won, actions, rewards)
        np.add.at(self.lost, actions, 1.0 - rewards)


class Viewed:
    """One of the user's last views, or item 0."""

    def __init__(self):
        self.views = {}

    def reset(self, users):
        self.views.update({user: [0] for user in users.tolist()})

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.views[user].append(item)

    def sample(self, user, generator, draws):
        return generator.choice(self.views[user][-4:], draws)


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


def matches(log, policy):
    shown = log.is_bandit
    assert_array_equal(replay(log, policy)[shown], log["propensity"][shown])


def test_propensities_are_counts_over_draws_and_follow_the_distribution():
    policy = SampledPolicy(zipf, P, 20_000)
    users = np.arange(5)
    policy.reset(users)
    counts = policy.probabilities(users) * policy.draws
    assert_allclose(counts, np.round(counts), rtol=1e-14)
    for row in counts:
        assert stats.chisquare(row, policy.draws * WEIGHTS).pvalue > 1e-6
    assert len(np.unique(counts, axis=0)) == 5  # each user has a stream of their own


def test_over_an_even_grid_of_uniforms_every_action_comes_as_often_as_it_was_drawn():
    policy = SampledPolicy(zipf, P, 50)
    user = np.array([3])
    policy.reset(user)
    actions, stated = policy.act(np.repeat(user, 500), (np.arange(500) + 0.5) / 500)
    probability = policy.probabilities(user)[0]
    assert_array_equal(np.bincount(actions, minlength=P) / 500, probability)
    assert_array_equal(stated, probability[actions])
    assert stated.min() > 0
    assert_array_equal(policy.propensity_of(np.repeat(user, 500), actions), stated)


@pytest.mark.parametrize("own", [zipf, Viewed()], ids=["function", "object"])
def test_runs_of_any_order_make_the_same_log_and_a_replay_draws_the_same(world, own):
    def policy():
        return SampledPolicy(own, P, 40, seed=9)

    log = simulate(world, policy(), 60, 3)
    assert simulate_online(world, policy(), 60, 3, lanes=5).log.digest() == log.digest()
    matches(log, policy())
    matches(log.select(log["user"] > 20), policy())
    assert simulate(world, SampledPolicy(own, P, 40, seed=8), 60, 3).digest() != log.digest()
    assert log.provenance["policy"] == policy().describe()


def test_a_sampling_learner_online(world):
    own = Thompson()
    run = simulate_online(world, SampledPolicy(own, P, 100), 150, 3, lanes=16)
    learned = run.policy.inner.own
    assert learned.won.sum() + learned.lost.sum() == 2 * P + run.log.is_bandit.sum()
    assert own.won.sum() == P
    matches(run.log, thompson())
    softened = simulate_online(world, EpsilonMixture(thompson(), 0.2), 60, 3, lanes=4)
    matches(softened.log, EpsilonMixture(thompson(), 0.2))
    with pytest.raises(UserError, match="learns from all users"):
        simulate(world, thompson(), 10, 3)


def thompson():
    return SampledPolicy(Thompson(), P, 100)


def test_what_was_never_drawn_is_missing_support_that_the_verdict_knows(world):
    logging = SampledPolicy(zipf, P, 8)
    log = simulate(world, logging, 300, 3)
    lost = replay_with_support(log, Uniform(P), logging)[1][log.is_bandit]
    assert 0.05 < lost.mean() < 0.9
    (record_,) = off_policy(log, {"uniform": Uniform(P)}, estimators=["ips"], logging=logging)
    (gap,) = [finding for finding in record_.details["findings"] if finding["code"].startswith("support")]
    assert gap["code"] in ("support_gap", "support_missing")
    assert gap["number"] == pytest.approx(lost.mean(), abs=0.05)


def test_a_generator_of_its_own_is_marked_and_not_replayed(world):
    generator = np.random.default_rng(0)

    def sample(user, draws):
        return generator.choice(P, draws, p=WEIGHTS)

    policy = SampledPolicy(sample, P, 30, own_generator=True)
    log = simulate(world, policy, 40, 3)
    assert log.provenance["policy"]["replayable"] is False
    with pytest.raises(UserError, match="'sample' is not replayable"):
        replay(log, policy)
    assert simulate(world, EpsilonMixture(policy, 0.1), 5, 3).provenance["policy"]["replayable"] is False
    with pytest.raises(UserError, match="not replayable"):
        replay(log, EpsilonMixture(policy, 0.1))


def test_a_hidden_generator_is_noticed(world):
    generator = np.random.default_rng(0)
    policy = SampledPolicy(lambda user, _given, draws: generator.choice(P, draws), P, 30)
    with pytest.raises(UserError, match=r"other actions from the same generator.*own_generator=True"):
        simulate(world, policy, 40, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SampledPolicy(zipf, P, 0), "draws must be a whole number of at least 1"),
        (lambda: SampledPolicy(zipf, 0), "n_items must be a whole number of at least 1"),
        (lambda: SampledPolicy(Thompson, P), "or an object with a method sample"),
        (lambda: SampledPolicy(lambda user: 0, P), r"define sample\(user, generator, draws\)"),
        (lambda: SampledPolicy(zipf, P, own_generator=True), r"define sample\(user, draws\)"),
        (lambda: SampledPolicy(lambda u, g, n: np.zeros(n), P), "must return 1000 integers, got float64"),
        (lambda: SampledPolicy(lambda u, g, n: np.zeros(3, int), P), "must return 1000 integers"),
        (lambda: SampledPolicy(lambda u, g, n: np.full(n, P), P), "drew 6, actions are 0..5"),
    ],
)
def test_what_cannot_be_sampled_is_said_in_one_line(make, words):
    with pytest.raises(UserError, match=words):
        make().probabilities(np.array([1]))
