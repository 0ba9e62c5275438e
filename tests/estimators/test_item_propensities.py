"""Propensities that a log proves wrong item by item."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.estimators.checks import STRICT
from recsim_mnar.estimators.intervals import Spread, positive_limits, small_sample_factor
from recsim_mnar.estimators.refuters import ItemSums, Levels, item_findings
from toys import refused
from twins.log_checks import item_sums


def log(seed, n=4000, items=8, odds=None, rows=10, tilt=None, held=False):
    """Action, propensity, user and context; ``odds`` changes what chooses, ``tilt`` by context."""
    rng = np.random.default_rng(seed)
    logged = rng.dirichlet(np.full(items, 2.0)) * 0.8 + 0.2 / items
    x = rng.integers(0, 2, n)
    user = np.arange(n) // rows
    if held:
        x = x[user * rows]
    chances = np.tile(logged, (n, 1))
    if odds is not None:
        chances *= odds
    if tilt is not None:
        chances *= 1.0 + np.where(x[:, None] == 1, 1.0, -1.0) * (tilt - logged @ tilt)
    draws = rng.random(n)
    if held:
        draws = draws[user * rows]
    action = (np.cumsum(chances, 1) > draws[:, None] * chances.sum(1, keepdims=True)).argmax(1)
    return action, logged[action], user, x


def test_the_sums_are_those_of_the_twin():
    action, propensity, user, x = log(1, n=300)
    order = np.random.default_rng(0).permutation(300)
    names = np.array([f"item {a}" for a in action])
    sums = ItemSums.of(names[order], propensity[order], user[order] % 7, Levels.of(x[order], 300))
    cells, levels = item_sums(names, propensity, user % 7, x)
    for c in (0, 1):
        assert (sums.rows[c], sums.users[c], sums.ll[c], sums.longest[c]) == levels[c]
        expected = [cells.get((c, item), np.zeros(3)) for item in sums.items]
        np.testing.assert_allclose(np.stack([sums.x[c], sums.xx[c], sums.xl[c]], axis=1), expected, rtol=1e-12)


def check_same(sums, expected):
    for name in ("x", "xx", "xl", "rows", "users", "ll", "longest", "heaviest"):
        np.testing.assert_allclose(getattr(sums, name), getattr(expected, name), rtol=1e-12, err_msg=name)


def test_blocks_of_whole_users_add_up():
    action, propensity, user, x = log(2, n=1000)
    levels = Levels.of(x, 1000)
    parts = [
        ItemSums.of(action[rows], propensity[rows], user[rows], replace(levels, codes=levels.codes[rows]))
        for rows in (slice(0, 30), slice(30, 500), slice(500, 1000))
    ]
    merged = parts[0] + parts[1] + parts[2]
    expected = ItemSums.of(action, propensity, user, levels)
    np.testing.assert_array_equal(merged.items, expected.items)
    check_same(merged, expected)


def test_without_users_a_row_is_one():
    action, propensity, _, x = log(3, n=500)
    levels = Levels.of(x, 500)
    check_same(
        ItemSums.of(action, propensity, None, levels),
        ItemSums.of(action, propensity, np.arange(500), levels),
    )


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize("held", [False, True])
def test_right_logs_are_flagged_no_more_often_than_stated(held):
    """With the least propensity, so on either side; by item and then by item and context: two families of tests."""
    alarms = 0
    for seed in range(150):
        action, propensity, user, x = log(seed, held=held)
        alarms += bool(item_findings(action, propensity, user, propensity_min=0.2 / 8, context=x))
    assert alarms <= stats.binom.isf(1e-4, 150, 2.0 * (1.0 - STRICT))


def test_changed_odds_are_found_and_counted():
    alarms = 0
    for seed in range(30):
        odds = np.exp(0.5 * np.random.default_rng([9, seed]).standard_normal(8))
        alarms += bool(item_findings(*log(seed, n=20_000, odds=odds)[:3]))
    assert alarms >= stats.binom.isf(1 - 1e-4, 30, 0.95)


def test_the_worst_item_is_named_with_its_mean():
    odds = np.ones(8)
    odds[3] = 3.0
    action, propensity, user, _ = log(4, n=40_000, odds=odds)
    (finding,) = item_findings(action, propensity, user)
    assert finding.code == "item_propensities"
    assert finding.level == "do_not_use"
    assert finding.number == pytest.approx(np.mean((action == 3) / propensity), rel=1e-12)
    assert "of item 3 " in finding.message
    assert "of 1 of 8 items" in finding.message  # the others are below 1, which proves nothing here


def test_a_mean_below_one_is_a_proof_only_where_the_least_propensity_of_all_items_is_known():
    """An item that is out of stock: the others hardly gain."""
    odds = np.ones(50)
    odds[7] = 0.0
    action, propensity, user, _ = log(5, n=60_000, items=50, odds=odds)
    action = np.append(action, 7)  # in the catalogue, shown once
    propensity, user = np.append(propensity, propensity.min()), np.append(user, user[-1] + 1)
    assert item_findings(action, propensity, user) == []
    (finding,) = item_findings(action, propensity, user, propensity_min=0.2 / 50)
    assert "item 7" in finding.message
    assert finding.number < 0.1


def test_errors_that_average_out_need_the_context():
    tilt = np.array([0.4, -0.4] * 4)
    action, propensity, user, x = log(6, n=20_000, tilt=tilt)
    assert item_findings(action, propensity, user) == []
    (finding,) = item_findings(action, propensity, user, context=x, context_name="country")
    assert "where country is" in finding.message


def test_items_that_could_not_always_be_shown_are_no_fault():
    """Half of the items have no chance in each context, as the propensities say."""
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2, 20_000)
    action = 4 * x + rng.integers(0, 4, x.size)
    assert item_findings(action, np.full(x.size, 0.25), None, context=x) == []


RNG = np.random.default_rng(8)
COLUMNS = {
    "numbers": RNG.standard_normal(500),
    "texts": np.char.add("c", RNG.integers(0, 40, 500).astype(str)),
    "one value": np.ones(500),
    "not numbers": np.where(RNG.random(500) < 0.1, np.nan, RNG.random(500)),
}


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_many_values_has_few_levels(values):
    levels = Levels.of(values, 500)
    assert len(levels.names) <= 10
    np.testing.assert_array_equal(np.unique(levels.codes), np.arange(len(levels.names)))


def test_few_numbers_are_their_own_levels():
    values = RNG.integers(0, 3, 500)
    levels = Levels.of(values, 500)
    assert [levels.names[code] for code in levels.codes] == [str(value) for value in values]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"action": np.arange(9)}, "one id a row"),
        ({"action": np.array(["a"] * 9 + [""], object)}, "id is missing"),
        ({"context": np.arange(3)}, "give one each"),
    ],
)
def test_bad_columns_are_named(change, words):
    columns = {"action": np.arange(10) % 2, "propensity": np.full(10, 0.5), "cluster": np.arange(10)}
    with refused(words):
        item_findings(**columns | change)


def test_the_limits_are_those_of_users_deviations():
    """Sums about the mean times the user's rows, and one more user as long as the longest at the heaviest weight."""
    action, propensity, user, _ = log(9, n=900, rows=9)
    user = user - user % 4 // 3  # users of 9 and of 18 rows
    _, rows = np.unique(user, return_counts=True)
    sums = ItemSums.of(action, propensity, user)
    low, high = sums.limits(0.99, propensity_min=0.2 / 8)
    for k, item in enumerate(sums.items):
        x = np.array([np.sum((1.0 / propensity)[(user == u) & (action == item)]) for u in np.unique(user)])
        mean = x.sum() / 900
        variance = np.sum((x - mean * rows) ** 2) / 900**2 * small_sample_factor(len(x), 0.99)
        ends = positive_limits(mean, Spread(variance, 0.0, 18 * 8 / 0.2 / 900, mean / 900), 0.99)
        assert (low[0, k], high[0, k]) == pytest.approx(ends, rel=1e-9)


def test_many_items_are_many_tests():
    alarms = 0
    for seed in range(25):
        action = np.random.default_rng([10, seed]).integers(0, 500, 40_000)
        alarms += bool(item_findings(action, np.full(40_000, 0.002)))
    assert alarms <= stats.binom.isf(1e-4, 25, 1.0 - STRICT)
