"""Parts of validation against plain twins and known distributions."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.fitting.validation.checks import Check, graded, holm
from recsim_mnar.fitting.validation.classifier import auc, logistic_regression, planted_defect, told_apart
from recsim_mnar.fitting.validation.lives import Lives
from recsim_mnar.fitting.validation.two_groups import CUMULATIVE, SCALED, SHARES, Groups, Statistic, gap_of
from recsim_mnar.log.table import from_columns


def small_log():
    """Three users: views 1 1 2, shown 1 2, views 2; shown 3; views 0 0 and much later 0."""
    rows = [
        (0, 0, "organic", 1), (0, 1, "organic", 1), (0, 2, "organic", 2), (0, 3, "bandit", 1), (0, 4, "bandit", 2),
        (0, 5, "organic", 2), (4, 0, "bandit", 3), (9, 0, "organic", 0), (9, 1, "organic", 0), (9, 99, "organic", 0),
    ]  # fmt: skip
    event = [kind for *_, kind, _ in rows]
    shown = np.array([kind == "bandit" for kind in event])
    item = np.array([row[3] for row in rows])
    return from_columns({
        "user": [row[0] for row in rows], "step": [row[1] for row in rows], "time": [float(row[1]) for row in rows],
        "event": event, "item": np.where(shown, -1, item), "action": np.where(shown, item, -1),
        "propensity": np.where(shown, 0.25, np.nan), "reward": np.where(shown, 0.0, np.nan),
    })  # fmt: skip


def test_lives_of_a_small_log():
    lives = Lives.of(small_log(), 4)
    assert lives.n_users == 3
    assert lives.owner.tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 2, 2]
    assert lives.position().tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 1, 2]
    assert lives.earlier_views().tolist() == [0, 1, 0, 2, 1, 1, 0, 0, 1, 2]
    run, place = lives.runs()
    assert run.tolist() == [0, 0, 0, 1, 1, 2, 3, 4, 4, 4]
    assert place.tolist() == [0, 1, 2, 0, 1, 0, 0, 0, 1, 2]
    assert lives.runs(gap=10.0)[0].tolist()[-3:] == [4, 4, 5]
    assert not lives.ticks
    assert not lives.rates
    some = lives.users(np.array([2, 0]))
    assert some.owner.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert some.item.tolist() == [0, 0, 0, 1, 1, 2, 1, 2, 2]
    both = Lives.joined([lives, some])
    assert both.n_users == 5
    assert both.owner.tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4]


def statistic(sums, distance):
    def shares(groups):
        return groups / groups.sum(axis=1, keepdims=True)

    values = (lambda g: np.cumsum(shares(g), axis=1)) if distance == CUMULATIVE else shares
    return Statistic("some", "some question", sums, values, distance, lambda g: shares(g)[:, 0], "first share", 0.05)


def twin(sums, first, distance):
    """Test statistic of one division, in plain Python."""
    a = sums[first].sum(axis=0)
    b = sums[~first].sum(axis=0)
    a, b = a / a.sum(), b / b.sum()
    if distance == CUMULATIVE:
        return max(abs(x - y) for x, y in zip(np.cumsum(a), np.cumsum(b), strict=True))
    return sum((x - y) ** 2 / (x + y) for x, y in zip(a, b, strict=True) if x + y > 0)


@pytest.mark.parametrize("distance", [CUMULATIVE, SHARES])
def test_p_is_that_of_the_definition(distance):
    rng = np.random.default_rng(3)
    sums = rng.poisson(2.0, (60, 5)).astype(float)
    groups = Groups(20, 20, 20, seed=4, draws=50, halves=9)
    labels = groups.permuted.astype(bool)
    assert labels[0].tolist() == [True] * 20 + [False] * 20
    assert (labels.sum(axis=1) == 20).all()
    values = [twin(sums[20:], row, distance) for row in labels]
    expected = sum(value >= values[0] - 1e-12 for value in values) / len(values)
    assert gap_of(statistic(sums, distance), groups).p == pytest.approx(expected)


@pytest.mark.verify
@pytest.mark.parametrize("distance", [CUMULATIVE, SHARES, SCALED])
def test_false_alarms_are_as_rare_as_said(distance):
    """Users of one population: p is at most .1 in a tenth of the cases; 120 cases, four standard errors of slack."""
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(120):
        sums = rng.poisson(rng.gamma(1.0, 3.0, (50, 1)) * np.array([3.0, 2.0, 1.0, 0.5])) + 0.0
        sums[:, 0] += 0.1
        hits += gap_of(statistic(sums, distance), Groups(0, 20, 30, seed=seed, draws=99, halves=3)).p <= 0.1
    assert hits <= 12 + 4 * np.sqrt(120 * 0.1 * 0.9)


def test_a_difference_is_found_and_halves_of_the_log_share_no_user():
    rng = np.random.default_rng(6)
    sums = np.vstack([rng.poisson([5, 3, 2], (80, 3)), rng.poisson([2, 3, 5], (60, 3))]).astype(float)
    groups = Groups(40, 40, 60, seed=1, draws=199, halves=19)
    first, second = groups.divided
    assert not (first & second).any()
    assert (first.sum(axis=1) == 40).all()
    found = gap_of(statistic(sums, SCALED), groups)
    assert found.p == pytest.approx(1 / 200)
    assert found.distance > found.ceiling_high
    # A world that carries the error of its fit must be further away.
    assert gap_of(statistic(sums, SCALED), Groups(40, 40, 60, 1, 1e6, 199, 19)).p > 0.5


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def check(p, distance, visible=0.05):
    return Check("some", "statistic", "q", "w", 1.0, 2.0, distance, 0.03, 0.05, visible, 0.05, p)


def test_grades():
    found = graded([check(0.001, 0.5), check(0.001, 0.04), check(0.9, 0.03), check(0.9, 0.03, visible=0.4)])
    assert [each.grade for each in found] == ["off", "close", "matches", "cannot say"]
    assert "told apart" in found[0].says
    assert "0.4" in found[3].says


def test_auc_is_the_share_of_pairs():
    rng = np.random.default_rng(1)
    score, first = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in score[first] for b in score[~first]]
    assert auc(score, first) == pytest.approx(np.mean(pairs))


def test_logistic_regression_is_where_the_gradient_vanishes():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 3))
    y = rng.random(300) < 1 / (1 + np.exp(-(0.5 + x @ [1.0, -2.0, 0.0])))
    weights = logistic_regression(x, y, ridge=1.0)
    p = 1 / (1 + np.exp(-(weights[0] + x @ weights[1:])))
    assert x.T @ (y - p) == pytest.approx(weights[1:], abs=1e-3)


def test_a_classifier_tells_variances_apart_and_finds_nothing_in_one_population():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(800, 4))
    first = np.arange(800) < 400
    assert abs(told_apart(features, first, seed=1).z) < 3.5
    features[:400, 2] *= 2.0
    assert told_apart(features, first, seed=1).p() < 1e-6


def test_the_planted_defect_replaces_a_fifth_of_the_views_of_the_users_named():
    n = 4000
    lives = Lives(2, 50, np.repeat([0, 1], n), np.zeros(2 * n, bool), np.arange(2 * n) % 50, np.full(2 * n, np.nan),
                  np.arange(2.0 * n))  # fmt: skip
    spoilt = planted_defect(lives, np.array([1]), seed=3)
    changed = spoilt.item != lives.item
    assert not changed[:n].any()
    assert changed[n:].mean() == pytest.approx(0.2 * 0.98, abs=4 * np.sqrt(0.2 * 0.8 / n))
