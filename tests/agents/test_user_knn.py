from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.neighbours.knn import UserKNN
from recsim_mnar.log.views import view_counts
from twins.logs import random_log


def naive_scores(counts, own, k, leave_out=None):
    """Cosine with every training user, the k nearest (equals by row), their counts weighted."""
    similarity = []
    for row, other in enumerate(counts):
        dot = float(own @ other)
        if row != leave_out and dot > 0:
            similarity.append((-dot / np.sqrt(own @ own) / np.sqrt(other @ other), row))
    total = np.zeros(counts.shape[1])
    for s, row in sorted((round(s, 12), row) for s, row in similarity)[:k]:
        total += -s * counts[row]
    return total


@pytest.mark.parametrize("k", [1, 5, 20, 1000])
def test_against_plain_loops(k):
    log = random_log(9, 50, 25, 9)
    policy = UserKNN(neighbours=k).fit(log, n_items=25)
    counts, users = view_counts(log, 25)
    counts = counts.toarray().astype(float)
    generator = np.random.default_rng(k)
    ids = np.arange(100, 120)
    policy.reset(ids)
    for user in ids:
        views = generator.integers(0, 25, user - 99)
        policy.observe(np.full(len(views), user), views)
        own = np.bincount(views, minlength=25).astype(float)
        np.testing.assert_allclose(policy.scores(np.array([user]))[0], naive_scores(counts, own, k), atol=1e-5)
    policy.reset_training_users(ids[:10], users[5:15])
    for j in range(10):
        views = log["item"][log["user"] == users[5 + j]]
        policy.observe(np.full(len(views), ids[j]), views)
        expected = naive_scores(counts, counts[5 + j], k, leave_out=5 + j)
        np.testing.assert_allclose(policy.scores(ids[j : j + 1])[0], expected, atol=1e-5)


def test_beginning_again_ends_the_exclusion():
    log = random_log(9, 50, 25, 9)
    policy = UserKNN().fit(log, n_items=25)
    user = log["user"][:1]
    views = log["item"][log["user"] == user[0]]
    fresh = UserKNN().fit(log, n_items=25)
    policy.reset_training_users(user, user)
    policy.reset(user)
    fresh.reset(user)
    for one in (policy, fresh):
        one.observe(np.repeat(user, len(views)), views)
    np.testing.assert_array_equal(policy.scores(user), fresh.scores(user))
