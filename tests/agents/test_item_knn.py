from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.neighbours.knn import ItemKNN, most_similar
from recsim_mnar.log.views import view_counts
from twins.logs import random_log


def cosines(counts: np.ndarray) -> np.ndarray:
    dots = counts.T @ counts
    scale = np.where(np.diag(dots) > 0, 1.0 / np.sqrt(np.maximum(np.diag(dots), 1)), 0.0)
    return (dots * (scale[:, None] * scale[None, :])).astype(np.float32)


@pytest.mark.parametrize(
    ("k", "include_self", "sizes", "power"),
    [
        *((k, include_self, (60, 30, 9), 2.0) for k in (1, 4, 50) for include_self in (False, True)),
        *((k, False, (200, 500, 30), 1.5) for k in (1, 3, 11)),  # more blocks of items than neighbours: few are tried
    ],
)
def test_neighbours_against_numpy(k, include_self, sizes, power):
    counts, _ = view_counts(random_log(1, *sizes, power), sizes[1])
    starts, items, values = most_similar(counts, k, include_self)
    expected = cosines(counts.toarray().astype(np.int64))
    if not include_self:
        np.fill_diagonal(expected, 0.0)
    for i, row in enumerate(expected):
        best = np.lexsort((np.arange(len(row)), -row))[:k]
        best = np.sort(best[row[best] > 0])
        assert items[starts[i] : starts[i + 1]].tolist() == best.tolist()
        np.testing.assert_array_equal(values[starts[i] : starts[i + 1]], row[best])


def test_top_items_are_those_of_the_scores():
    log = random_log(5, 80, 40, 9)
    policy = ItemKNN(neighbours=4).fit(log, n_items=40)
    counts, users = view_counts(log, 40)
    items, scores = policy.top(counts, 6)
    policy.reset(users)
    policy.observe(log["user"], log["item"])
    for row, expected in enumerate(policy.scores(users)):
        best = np.lexsort((np.arange(40), -expected))[:6]
        n = int((expected[best] > 0).sum())
        assert items[row].tolist() == [*best[:n].tolist(), *[-1] * (6 - n)]
        np.testing.assert_array_equal(scores[row], np.where(expected[best] > 0, expected[best], 0.0))
    assert (items < 0).any()


def test_scores_are_sums_over_the_views():
    log = random_log(2, 60, 30, 9)
    policy = ItemKNN(neighbours=30).fit(log, n_items=30)
    expected = cosines(view_counts(log, 30)[0].toarray().astype(np.int64))
    np.fill_diagonal(expected, 0.0)
    views = np.array([3, 3, 0, 12])
    policy.reset(np.array([5]))
    policy.observe(np.full(4, 5), views)
    total = np.zeros(30)
    for item in views:
        total += expected[item]
    np.testing.assert_array_equal(policy.scores(np.array([5]))[0], total)


def test_the_order_of_the_views_changes_nothing():
    policy = ItemKNN().fit(random_log(2, 200, 30, 20), n_items=30)
    views = np.random.default_rng(0).integers(0, 30, 50)
    users = np.arange(20)
    policy.reset(users)
    for user in users:
        policy.observe(np.full(50, user), np.random.default_rng(user).permutation(views))
    scores = policy.scores(users)
    assert np.all(scores == scores[0])


@pytest.mark.parametrize("gram_up_to", [0, 4096])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize(("k", "n_items", "longest"), [(1, 8, 6), (3, 8, 12), (3, 25, 5), (500, 20, 9)])
def test_ranks_without_a_view_are_those_of_a_refit(k, n_items, longest, include_self, gram_up_to, monkeypatch):
    monkeypatch.setattr("recsim_mnar.agents.neighbours.knn._GRAM_UP_TO", gram_up_to)
    log = random_log(7 + k, 25, n_items, longest, power=1.5)
    learner = ItemKNN(neighbours=k, include_self=include_self)
    ranks = {unseen: learner.leave_one_out_ranks(log, n_items=n_items, unseen=unseen) for unseen in (False, True)}
    for position, item in enumerate(log["item"]):
        rest = log.select(np.delete(np.arange(len(log)), position))
        policy = learner.fit(rest, n_items=n_items)
        user = log["user"][position : position + 1]
        own = rest["item"][rest["user"] == user[0]]
        policy.reset(user)
        policy.observe(np.repeat(user, len(own)), own)
        scores = policy.scores(user)[0]
        for unseen, (above, level) in ranks.items():
            others = np.delete(scores, np.union1d(own, item) if unseen else item)
            assert above[position] == np.count_nonzero(others > scores[item])
            assert level[position] == np.count_nonzero(others == scores[item])
