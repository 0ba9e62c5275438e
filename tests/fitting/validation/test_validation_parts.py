"""Parts of validation against plain twins and known distributions."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.fitting.checks import (
    CUMULATIVE,
    SCALED,
    SHARES,
    Check,
    Groups,
    Statistic,
    auc,
    cross_validated_auc,
    graded,
    permutation_test,
)
from recsim_mnar.fitting.statistics import TABLE, Population, UserRows
from recsim_mnar.log import Log


def small_log():
    """Three users: views 1 1 2, shown 1 2, views 2; shown 3; views 0 0 and much later 0."""
    rows = [
        (0, 0, "organic", 1), (0, 1, "organic", 1), (0, 2, "organic", 2), (0, 3, "bandit", 1), (0, 4, "bandit", 2),
        (0, 5, "organic", 2), (4, 0, "bandit", 3), (9, 0, "organic", 0), (9, 1, "organic", 0), (9, 99, "organic", 0),
    ]  # fmt: skip
    shown = np.array([kind == "bandit" for *_, kind, _ in rows])
    item = np.array([row[3] for row in rows])
    return Log({
        "user": [row[0] for row in rows], "step": [row[1] for row in rows], "time": [float(row[1]) for row in rows],
        "event": shown, "item": np.where(shown, -1, item), "action": np.where(shown, item, -1),
        "propensity": np.where(shown, 0.25, np.nan), "reward": np.where(shown, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0], np.nan),
    })  # fmt: skip


def test_lives_of_a_small_log():
    rows = UserRows.of(small_log(), 4)
    assert rows.n_users == 3
    assert rows.owner.tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 2, 2]
    assert rows.position().tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 1, 2]
    assert rows.earlier(~rows.shown).tolist() == [0, 1, 0, 2, 1, 1, 0, 0, 1, 2]
    assert rows.earlier(rows.shown).tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert rows.place_in_run().tolist() == [0, 1, 2, 0, 1, 0, 0, 0, 1, 2]
    assert not rows.rates
    both = UserRows.joined([rows, rows])
    assert both.n_users == 6
    assert both.owner.tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5, 5]


def test_columns_of_a_small_log():
    """Each row of the table on three users, by hand."""
    m = Population.of([UserRows.of(small_log(), 4)], same_items=True)
    assert m.items is None  # too few users for directions
    columns = {row.name: row.compute(m) for row in TABLE}
    assert columns["co-occurrence"] is columns["ratings given"] is columns["drift"] is None

    def headline(name):
        sums = columns[name].sums
        return float(columns[name].headline(np.asarray(sums.sum(axis=0), float).reshape(1, -1))[0])

    assert headline("popular items") == pytest.approx(3 / 7)  # the one item of the top tenth, in seven views
    assert headline("clicks by place") == pytest.approx(1 / 3)
    z = np.log1p([2, 1, 0])  # the items shown had been viewed so often
    assert headline("clicks by interest") == pytest.approx((z[0] - z.mean()) / z.std())
    assert headline("leaving") == pytest.approx((z[2] - z.mean()) / z.std())


def columns(sums, distance):
    def shares(groups):
        return groups / groups.sum(axis=1, keepdims=True)

    values = (lambda g: np.cumsum(shares(g), axis=1)) if distance == CUMULATIVE else shares
    names = [str(i) for i in range(sums.shape[1])]
    return Statistic(sums, values, distance, lambda g: shares(g)[:, 0], names, "entry", {})


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
    groups = Groups(20, 20, 20, seed=4, draws=50)
    labels = groups.permuted.astype(bool)
    assert labels[0].tolist() == [True] * 20 + [False] * 20
    assert (labels.sum(axis=1) == 20).all()
    values = [twin(sums[20:], row, distance) for row in labels]
    expected = sum(value >= values[0] - 1e-12 for value in values) / len(values)
    assert permutation_test(columns(sums, distance), groups)["p"] == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize("distance", [CUMULATIVE, SHARES, SCALED])
def test_false_alarms_are_as_rare_as_said(distance):
    """Users of one population: p is at most .1 in a tenth of the cases; 120 cases, four standard errors of slack."""
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(120):
        sums = rng.poisson(rng.gamma(1.0, 3.0, (50, 1)) * np.array([3.0, 2.0, 1.0, 0.5])) + 0.0
        sums[:, 0] += 0.1
        hits += permutation_test(columns(sums, distance), Groups(0, 20, 30, seed=seed, draws=99))["p"] <= 0.1
    assert hits <= 12 + 4 * np.sqrt(120 * 0.1 * 0.9)


@pytest.mark.slow
@pytest.mark.verify
def test_false_alarms_of_the_classifier_are_as_rare_as_said():
    """Folds share users: areas spread more than Mann and Whitney's formula says, so chance is drawn."""
    rng = np.random.default_rng(6)
    hits = 0
    for seed in range(120):
        areas = cross_validated_auc(rng.normal(size=(150, 12)), Groups(0, 50, 100, seed, draws=99).permuted, seed)
        hits += np.mean(areas >= areas[0]) <= 0.1
    assert hits <= 12 + 4 * np.sqrt(120 * 0.1 * 0.9)


def test_a_difference_is_found():
    rng = np.random.default_rng(6)
    sums = np.vstack([rng.poisson([5, 3, 2], (80, 3)), rng.poisson([2, 3, 5], (60, 3))]).astype(float)
    found = permutation_test(columns(sums, SCALED), Groups(40, 40, 60, seed=1, draws=199))
    assert found["p"] == pytest.approx(1 / 200)
    assert found["chance"] < found["visible"] < found["distance"]
    picture = found["picture"]
    assert all(
        low < real < high for low, real, high in zip(picture["low"], picture["real"], picture["high"], strict=True)
    )
    # A world that carries the error of its fit must be further away.
    assert permutation_test(columns(sums, SCALED), Groups(40, 40, 60, 1, 1e6, 199))["p"] > 0.5


def check(p, distance, visible=0.05):
    return Check("some", "statistic", "q", "w", 1.0, 2.0, distance, 0.03, visible, 0.05, p)


def test_grades():
    checks = [check(0.001, 0.5), check(0.001, 0.04), check(0.9, 0.03), check(0.9, 0.03, visible=0.4), check(None, 9.0)]
    found = graded(checks)
    assert [each.grade for each in found] == ["off", "close", "matches", "cannot say", "cannot say"]
    assert "different" in found[0].says
    assert "0.4" in found[3].says
    assert found[4] == checks[4]
    assert [each.differs for each in found] == [True, True, False, False, False]


def test_auc_is_the_share_of_pairs():
    rng = np.random.default_rng(1)
    score, first = rng.integers(0, 6, (40, 2)).astype(float), rng.random((40, 2)) < 0.4
    for k, found in enumerate(auc(score, first.astype(float))):
        pairs = [(a > b) + 0.5 * (a == b) for a in score[first[:, k], k] for b in score[~first[:, k], k]]
        assert found == pytest.approx(np.mean(pairs))


def test_a_classifier_tells_variances_apart():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(800, 4))
    labels = Groups(0, 400, 400, seed=2, draws=199).permuted
    features[:400, 2] *= 2.0
    areas = cross_validated_auc(features, labels, seed=1)
    assert areas[0] > areas[1:].max() + 0.05
    assert np.abs(areas[1:].mean() - 0.5) < 4 * areas[1:].std() / np.sqrt(199)
