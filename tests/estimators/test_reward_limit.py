"""Each action's largest reward as a stated fact, and the largest probability of the target, against known values."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Moments, difference, estimate_value
from recsim_mnar.estimators.off_policy.limits import Bounds, shows_every_action
from recsim_mnar.estimators.off_policy.stated import Stated
from twins.own_schema import estimate_file

PRICES = np.geomspace(1.0, 100.0, 40)
SOLD = 0.3 / np.sqrt(PRICES)  # probability that an item sells where it is shown: the dearest 750 times, 22 of them sold
EPSILON, ROWS = 0.5, 60_000
LOGGING = np.full(40, EPSILON / 40) + np.where(np.arange(40) < 5, (1.0 - EPSILON) / 5, 0.0)  # shows cheap items
DEAR = np.where(np.arange(40) >= 30, 0.1, 0.0)
P = EPSILON / 40


def shop(seed: int, rows: int = ROWS, law=LOGGING):
    rng = np.random.default_rng(seed)
    shown = rng.choice(40, size=rows, p=law)
    reward = PRICES[shown] * (rng.random(rows) < SOLD[shown])
    columns = {"reward": reward, "propensity": law[shown], "target": DEAR[shown], "cluster": np.arange(rows)}
    return columns, PRICES[shown]


def codes(estimate):
    return [finding.code for finding in estimate.verdict.findings if finding.level != "trust"]


def test_revenue_with_each_price_stated_is_trusted_and_right():
    """Logging shows cheap items and the target dear ones: trusted with the prices, and not without them."""
    logs, truth = 60, float(DEAR @ (PRICES * SOLD))
    today = float(LOGGING @ (PRICES * SOLD))
    trusted, right = np.zeros((2, logs), bool), np.zeros((2, logs), bool)
    for seed in range(logs):
        columns, price = shop(seed)
        value = estimate_value(**columns, propensity_min=P, reward_limit=price)
        apart = difference(**columns, baseline=columns["propensity"], propensity_min=P, reward_limit=price)
        for k, (found, true) in enumerate(((value, truth), (apart, truth - today))):
            trusted[k, seed], right[k, seed] = found.trusted, found.low <= true <= found.high
        if seed < 10:
            assert codes(estimate_value(**columns, propensity_min=P)) == ["range_unstated"]
    assert np.all(trusted.mean(axis=1) >= 0.9)
    for k in range(2):
        assert stats.binom.cdf(right[k, trusted[k]].sum(), trusted[k].sum(), 0.95) > 0.001


def test_a_reward_above_its_limit_is_refused_in_one_line(tmp_path):
    columns, price = shop(0, 500)
    row = int(np.flatnonzero(columns["reward"])[0])
    price[row] *= 0.5
    words = f"column 'reward', row {row} .counted from 0.: .* is above the row's 'reward_limit' "
    with pytest.raises(UserError, match=words):
        estimate_value(**columns, reward_limit=price)
    with pytest.raises(UserError, match=words):
        difference(**columns, baseline=columns["propensity"], reward_limit=price)
    for bad, words in ((np.nan, "is not a finite number"), (1e200, "is too large")):
        with pytest.raises(UserError, match=words):
            estimate_value(**columns, reward_limit=np.where(np.arange(500) == 3, bad, 100.0))
    named = {"revenue": columns["reward"], "price": price, "propensity": columns["propensity"], "t": columns["target"]}
    for kind in ("parquet", "csv"):
        path = tmp_path / f"log.{kind}"
        pq.write_table(pa.table(named), path) if kind == "parquet" else csv.write_csv(pa.table(named), path)
        with pytest.raises(UserError, match=f"'revenue', row {row + 1} .from 1, below the header.: .* row's 'price' "):
            estimate_file(path, ["t"], reward="revenue", reward_limit="price")


def test_what_shown_actions_can_earn_bounds_the_step():
    """The limits are as good as a stated maximum where the log must have shown every action, and no better."""
    columns, price = shop(3)
    common = {**columns, "propensity_min": P}
    for ask, more in ((estimate_value, {}), (difference, {"baseline": columns["propensity"]})):
        for estimator in ("ips", "snips", "clipped_ips"):
            clip = 20.0 if estimator == "clipped_ips" else None
            same = {**common, **more, "estimator": estimator, "clip": clip}
            limited, stated = ask(**same, reward_limit=price), ask(**same, reward_max=float(price.max()))
            assert (limited.low, limited.high, limited.trusted) == (stated.low, stated.high, stated.trusted)
            both = ask(**same, reward_limit=price, reward_max=1e4)
            assert (both.low, both.high) == (limited.low, limited.high)
            assert ask(**same, reward_max=1e4).high > limited.high


def test_actions_that_the_log_may_not_have_shown_need_the_maximum():
    """Too few rows to have shown every action, or no least propensity: the limits say nothing of these."""
    columns, price = shop(3, 300)
    wide = {**columns, "propensity_min": P, "reward_max": 1e4}
    assert estimate_value(**wide, reward_limit=price).high == estimate_value(**wide).high
    columns, price = shop(3)
    everything = {**columns, "reward_limit": price}
    assert estimate_value(**everything, propensity_min=P).trusted
    for facts in ({"full_support": True, "weight_max": 8.0}, {"propensity_min": 1e-4}):
        found = estimate_value(**everything, **facts)
        assert "range_unstated" in codes(found)
        (finding,) = (f for f in found.verdict.findings if f.code == "range_unstated")
        assert "actions that the log never shows" in finding.message
        unseen = 3.689 * found.diagnostics["weight_max"] / ROWS
        assert finding.number == pytest.approx((found.high - found.low) / 2.0 / unseen, rel=1e-3)


def test_missing_mass_earns_what_the_maximum_says():
    """An item that is never shown is worth a thousand: its mass is stated, and the interval must hold the value."""
    columns, price = shop(4)
    truth = 0.97 * float(DEAR @ (PRICES * SOLD)) + 0.03 * 1000.0
    columns["target"] = 0.97 * columns["target"]
    lost = np.full(ROWS, 0.03)
    common = {**columns, "unsupported": lost, "propensity_min": P, "reward_limit": price}
    for ask, more, base in (
        (estimate_value, {}, 0.0),
        (difference, {"baseline": columns["propensity"]}, float(LOGGING @ (PRICES * SOLD))),
    ):
        without, found = ask(**common, **more), ask(**common, **more, reward_max=1000.0)
        assert "range_unstated" in codes(without)
        assert "range_unstated" not in codes(found)
        (finding,) = (f for f in without.verdict.findings if f.code == "range_unstated")
        assert finding.number == pytest.approx((without.high - without.low) / 2.0 / 0.03)  # no rare event
        assert without.high < truth - base <= found.high
    # of a baseline, too
    other = difference(
        **{**columns, "target": columns["propensity"]}, baseline=columns["target"], baseline_unsupported=lost,
        propensity_min=P, reward_limit=price,
    )  # fmt: skip
    assert "range_unstated" in codes(other)


def test_clicks_below_a_larger_limit_are_not_clicks():
    """Only ones were seen, and five are possible: that is no range of 0 and 1."""
    rng = np.random.default_rng(0)
    n = 5000
    columns = {"reward": (rng.random(n) < 0.2) * 1.0, "propensity": np.full(n, 0.5), "target": rng.random(n)}
    columns["cluster"] = np.arange(n)
    facts = {"full_support": True, "weight_max": 2.0}
    assert "range_unstated" not in codes(estimate_value(**columns, **facts, reward_limit=np.ones(n)))
    assert "range_unstated" in codes(estimate_value(**columns, **facts, reward_limit=np.full(n, 5.0)))


@pytest.mark.parametrize("least", [0.5, 0.1, 0.004])
def test_every_action_is_in_the_log_but_once_in_a_thousand_times(least):
    """From as many users on as make it true of 1 / P actions of the least propensity."""
    users = next(u for u in range(1, 100_000) if u * least >= -math.log(0.001 * least))
    assert (1.0 - least) ** users / least <= 0.001
    assert (1.0 - least) ** (0.8 * users) / least > 0.001 or least == 0.5  # 1 - P is far below exp(-P) there
    one = {"reward": np.ones(1), "propensity": np.ones(1), "target": np.ones(1)}
    log = Moments.of(*(np.repeat(values, users) for values in one.values()))
    assert shows_every_action(log, Stated(propensity_min=least))
    assert not shows_every_action(log, Stated(propensity_min=0.9 * least))
    assert not shows_every_action(log, Stated(full_support=True, weight_max=2.0))
    # Rows of one user may share one draw.
    together = Moments.of(*(np.repeat(values, 2 * users) for values in one.values()), cluster=np.arange(2 * users) // 4)
    assert not shows_every_action(together, Stated(propensity_min=least))


def test_limits_of_shards_merge():
    columns, price = shop(1, 400)
    rows = [columns[name] for name in ("reward", "propensity", "target")]
    whole = Moments.of(*rows, reward_limit=price)
    parts = [Moments.of(*(x[half] for x in rows), reward_limit=price[half]) for half in (slice(200), slice(200, 400))]
    assert (parts[0] + parts[1]).reward_limit == whole.reward_limit == price.max()
    assert Bounds.of(whole, Stated()).largest == price.max()
    with pytest.raises(UserError, match="the column reward_limit, or none"):
        parts[0] + Moments.of(*rows)


def test_no_weight_is_above_the_targets_largest_probability_over_the_least_propensity():
    columns, price = shop(2)
    common = {**columns, "reward_limit": price, "propensity_min": P}
    plain, known = estimate_value(**common), estimate_value(**common, target_max=0.1)
    assert known.diagnostics["weight_max"] == pytest.approx(0.1 / P)
    assert plain.diagnostics["weight_max"] == pytest.approx(1.0 / P)
    assert known.high < plain.high
    assert known.high == estimate_value(**common, weight_max=0.1 / P).high
    assert "bound_denied" in codes(estimate_value(**common, target_max=0.05))
    for estimator in ("ips", "snips"):
        more = {"baseline": columns["propensity"], "estimator": estimator}
        found = difference(**common, **more, target_max=0.1)  # today's policy gives some items more
        assert codes(found) == []
        assert found.high - found.low < (wide := difference(**common, **more)).high - wide.low
    with pytest.raises(UserError, match=r"target_max must be a number in \(0, 1\]"):
        Stated(target_max=1.5)
    assert Stated(target_max=0.5).largest_weight is None  # of any propensity


def test_rewards_are_no_limits_of_their_own(tmp_path):
    columns, prices = shop(0, rows=2000)
    for given in (columns["reward"], np.where(columns["reward"] > 0.0, prices, 0.0)):
        with pytest.raises(UserError, match="holds what each row earned"):
            estimate_value(**columns, propensity_min=P, reward_min=0.0, reward_limit=given)
    path = tmp_path / "shop.parquet"
    pq.write_table(pa.table(columns | {"cluster": columns["cluster"]}), path)
    with pytest.raises(UserError, match="column 'reward' holds what each row earned"):
        estimate_file(path, ["target"], cluster="cluster", reward_limit="reward", propensity_min=P)
