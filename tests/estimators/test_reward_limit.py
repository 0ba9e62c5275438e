"""Each action's largest reward as a stated fact, and the largest probability of the target, against known values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from scipy import stats

from recsim_mnar.estimators import Facts
from toys import refused
from twins.facts import difference, estimate_value
from twins.findings import doubts
from twins.own_schema import estimate_file

PRICES = np.geomspace(1.0, 100.0, 40)
SOLD = 0.3 / np.sqrt(PRICES)  # probability that an item sells where it is shown: the dearest 750 times, 22 of them sold
EPSILON, ROWS = 0.5, 60_000
LOGGING = np.full(40, EPSILON / 40) + np.where(np.arange(40) < 5, (1.0 - EPSILON) / 5, 0.0)  # shows cheap items
DEAR = np.where(np.arange(40) >= 30, 0.1, 0.0)
P = EPSILON / 40


def shop(seed: int, rows: int = ROWS):
    rng = np.random.default_rng(seed)
    shown = rng.choice(40, size=rows, p=LOGGING)
    reward = PRICES[shown] * (rng.random(rows) < SOLD[shown])
    columns = {"reward": reward, "propensity": LOGGING[shown], "target": DEAR[shown], "cluster": np.arange(rows)}
    return columns, PRICES[shown]


@pytest.mark.slow
@pytest.mark.verify
def test_revenue_of_dear_items_is_trusted_and_right():
    """Logging shows cheap items and the target dear ones."""
    logs = 60
    truth = float(DEAR @ (PRICES * SOLD))
    today = float(LOGGING @ (PRICES * SOLD))
    right = np.zeros(2)
    for seed in range(logs):
        columns, _ = shop(seed)
        value = estimate_value(**columns)
        gap = difference(**columns, baseline=columns["propensity"])
        assert value.trusted
        right += value.low <= truth <= value.high, gap.low <= truth - today <= gap.high
    assert np.all(stats.binom.cdf(right, logs, 0.95) > 0.001)


@pytest.fixture
def cheaper():
    """A log whose first sale stands above the limit of its row, and the limits and number of that row."""
    columns, limit = shop(0, 500)
    row = int(np.flatnonzero(columns["reward"])[0])
    limit[row] *= 0.5
    return columns, limit, row


def test_a_reward_above_its_limit_is_refused_in_one_line(cheaper):
    columns, limit, row = cheaper
    facts = Facts(reward_limit=limit)
    words = f"column 'reward', row {row} .counted from 0.: .* is above the row's 'reward_limit' "
    with refused(words):
        estimate_value(**columns, facts=facts)
    with refused(words):
        difference(**columns, baseline=columns["propensity"], facts=facts)


@pytest.mark.parametrize(("bad", "words"), [(np.nan, "is not a finite number"), (1e200, "is too large")])
def test_a_limit_that_is_none_is_refused(cheaper, bad, words):
    columns, limit, _ = cheaper
    limit[3] = bad
    with refused(words):
        estimate_value(**columns, facts=Facts(reward_limit=limit))


@pytest.mark.parametrize(("kind", "write"), [("parquet", pq.write_table), ("csv", csv.write_csv)])
def test_a_reward_above_its_limit_in_a_file_is_named_with_its_row(tmp_path, cheaper, kind, write):
    columns, limit, row = cheaper
    table = {"revenue": columns["reward"], "price": limit, "propensity": columns["propensity"], "t": columns["target"]}
    path = tmp_path / f"log.{kind}"
    write(pa.table(table), path)
    with refused(f"'revenue', row {row + 1} .from 1, below the header.: .* row's 'price' "):
        estimate_file(path, ["t"], reward="revenue", reward_limit="price")


def test_a_target_above_its_stated_probability_is_denied():
    columns, _ = shop(2)
    assert not doubts(estimate_value(**columns, facts=Facts(target_max=0.1)))
    assert "bound_denied" in doubts(estimate_value(**columns, facts=Facts(target_max=0.05)))
    # today's policy gives some items more
    gap = difference(**columns, baseline=columns["propensity"], facts=Facts(target_max=0.1))
    assert "bound_denied" not in doubts(gap)
    with refused(r"target_max must be a number in \(0, 1\]"):
        Facts(target_max=1.5)
    assert Facts(target_max=0.5).largest_weight is None  # of any propensity
    assert Facts(target_max=0.1, propensity_min=P).largest_weight == pytest.approx(0.1 / P)


def test_rewards_are_no_limits_of_their_own(tmp_path):
    columns, prices = shop(0, rows=2000)
    for limit in (columns["reward"], np.where(columns["reward"] > 0.0, prices, 0.0)):
        with refused("holds what each row earned"):
            estimate_value(**columns, facts=Facts(propensity_min=P, reward_min=0.0, reward_limit=limit))
    path = tmp_path / "shop.parquet"
    pq.write_table(pa.table(columns), path)
    with refused("column 'reward' holds what each row earned"):
        estimate_file(path, ["target"], cluster="cluster", reward_limit="reward", propensity_min=P)
