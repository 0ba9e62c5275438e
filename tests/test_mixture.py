"""Mixtures of policies: what they do, what they say of it, and the weights that they refuse."""

import numpy as np
import pytest

from recsim_mnar.agents.baselines import FixedPolicy
from recsim_mnar.errors import UserError
from recsim_mnar.policies import registry
from recsim_mnar.policies.softening import MixturePolicy
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.testing import check_policy
from recsim_mnar.worlds import make_world
from toys import untrained

PARTS = {"constant+item=2": 0.7, "random": 0.1, "user-popularity-greedy": 0.2}


def policy(n_items=5):
    inner = [untrained(name, n_items) for name in PARTS if name != "user-popularity-greedy"]
    ranked = FixedPolicy(n_items, "ranked", np.arange(n_items, 0.0, -1.0))
    return MixturePolicy([*inner, ranked], list(PARTS.values()))


def test_probabilities_are_the_weighted_sum_and_actions_follow_them():
    mixed = policy()
    users = np.arange(3)
    mixed.reset(users)
    expected = sum(
        weight * part.probabilities(users) for weight, part in zip(PARTS.values(), mixed.policies, strict=True)
    )
    assert mixed.probabilities(users) == pytest.approx(expected)
    n = 20_000
    actions, propensities = mixed.act(np.zeros(n, np.int64), (np.arange(n) + 0.5) / n)
    assert np.bincount(actions, minlength=5) / n == pytest.approx(expected[0], abs=1e-3)
    assert propensities == pytest.approx(expected[0][actions])


def test_it_keeps_the_contract_of_policies():
    assert check_policy(policy) == []


def test_a_log_under_it_is_replayed_with_the_same_propensities():
    world = make_world("sessions", "quick", [])
    training = simulate(world, registry.uniform_policy(world.n_items), 50, 1)
    parts = [registry.learner(name).fit(training, n_items=world.n_items, seed=0) for name in PARTS]
    mixed = MixturePolicy(parts, list(PARTS.values()))
    log = simulate(world, mixed, 30, 2)
    shown = log.is_bandit
    assert replay(log, mixed)[shown] == pytest.approx(log["propensity"][shown], abs=1e-12)
    summed = sum(w * replay(log, part)[shown] for w, part in zip(PARTS.values(), parts, strict=True))
    assert summed == pytest.approx(log["propensity"][shown])
    story = log.provenance["policy"]
    assert [part["weight"] for part in story["policies"]] == pytest.approx(list(PARTS.values()))


@pytest.mark.parametrize(
    ("weights", "said"),
    [([0.5], "a weight for each"), ([0.5, 0.6], "sum to 1"), ([1.0, 0.0], "positive"), (["a", "b"], "numbers")],
)
def test_weights_that_are_none(weights, said):
    two = [FixedPolicy(3, name, np.arange(3.0)) for name in "ab"]
    with pytest.raises(UserError, match=said):
        MixturePolicy(two, weights)
    with pytest.raises(UserError, match="same items"):
        MixturePolicy([two[0], FixedPolicy(4, "c", np.arange(4.0))], [0.5, 0.5])
