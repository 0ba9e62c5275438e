"""Doubly robust estimates of a comparison, against plain loops over users and their events."""

import numpy as np
import pytest

from recsim_mnar import make_world, simulate
from recsim_mnar.estimators.cross_fitted import ActionMeans
from recsim_mnar.policies import registry
from recsim_mnar.policies.softening import EpsilonMixture
from recsim_mnar.protocols.off_policy import FOLDS, item_rewards, modelled_values
from toys import small_comparison
from twins.cases import quick_first

N_ITEMS = 20
AGENTS = ("random", "popularity", "user-popularity", "item-knn", "user-knn")


@pytest.fixture(scope="module")
def world():
    return make_world("sessions", "quick", [f"n_items={N_ITEMS}", "n_flips=6"])


@pytest.fixture(scope="module")
def policies(world):
    log = simulate(world, registry.uniform_policy(N_ITEMS), 100, 1)
    fitted = {name: registry.learner(name).fit(log, n_items=N_ITEMS, seed=0) for name in AGENTS}
    # Agents that are never sure are asked for all their probabilities.
    return fitted | {"soft": EpsilonMixture(fitted["item-knn"], 0.3)}


@pytest.fixture(scope="module")
def log(world, policies):
    return simulate(world, EpsilonMixture(policies["user-popularity"], 0.5), 80, 2)


def chances(log, policy):
    """(d, n_items) probabilities at each decision, user by user and event by event."""
    rows = []
    for user in log.users():
        acting, own = policy.fresh(), np.array([user])
        acting.reset(own)
        for row in np.flatnonzero(log["user"] == user):
            if log.is_bandit[row]:
                rows.append(acting.probabilities(own)[0])
            else:
                acting.observe(own, log["item"][row : row + 1])
    return np.array(rows)


def test_item_rewards_are_those_of_other_users(log):
    means, fold = item_rewards(log, N_ITEMS)
    shown = np.flatnonzero(log.is_bandit)
    for number in range(FOLDS):
        rows = [row for row in shown if log["user"][row] % FOLDS != number]
        overall = sum(log["reward"][row] for row in rows) / len(rows)
        for item in range(N_ITEMS):
            own = [log["reward"][row] for row in rows if log["action"][row] == item]
            expected = (sum(own) + ActionMeans.strength * overall) / (len(own) + ActionMeans.strength)
            assert means[number, item] == pytest.approx(expected, rel=1e-12)
    assert fold.tolist() == [log["user"][row] % FOLDS for row in shown]


@pytest.mark.parametrize("name", quick_first(["soft", *AGENTS], 3))
def test_modelled_values_are_means_over_what_a_policy_would_do(log, policies, name):
    means, fold = item_rewards(log, N_ITEMS)
    expected = (chances(log, policies[name]) * means[fold]).sum(axis=1)
    assert modelled_values(log, policies[name], means) == pytest.approx(expected, rel=1e-12)


def test_a_doubly_robust_estimate_is_the_formula():
    spec = "off_policy+estimators=dr"
    logging = "user-popularity+epsilon=0.5"
    found = small_comparison(("random", "user-popularity", "item-knn"), 80, protocols=[spec], seed=3, logging=logging)
    log, shown = found.log, found.log.is_bandit
    means, fold = item_rewards(log, N_ITEMS)
    rows = np.arange(shown.sum())
    # Neither depends on the training log: one learns nothing, the other goes by a user's own views.
    policies = {
        name: registry.learner(name).fit(log, n_items=N_ITEMS, seed=0) for name in ("random", "user-popularity")
    }
    estimates = {r.agent: r for r in found.records if r.protocol == spec}
    for name, policy in policies.items():
        probabilities = chances(log, policy)
        action, reward = log["action"][shown], log["reward"][shown]
        weight = probabilities[rows, action] / log["propensity"][shown]
        modelled = (probabilities * means[fold]).sum(axis=1)
        scores = modelled + weight * (reward - means[fold, action])
        assert estimates[name].value == pytest.approx(scores.mean(), rel=1e-9)
