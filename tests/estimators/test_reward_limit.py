"""Each action's largest reward as a stated fact, and the largest probability of the target, against known values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Facts
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
    logs, truth = 60, float(DEAR @ (PRICES * SOLD))
    today = float(LOGGING @ (PRICES * SOLD))
    right = np.zeros((2, logs), bool)
    for seed in range(logs):
        columns, _ = shop(seed)
        value, apart = estimate_value(**columns), difference(**columns, baseline=columns["propensity"])
        assert value.trusted
        right[:, seed] = value.low <= truth <= value.high, apart.low <= truth - today <= apart.high
    for k in range(2):
        assert stats.binom.cdf(right[k].sum(), logs, 0.95) > 0.001


def test_a_reward_above_its_limit_is_refused_in_one_line(tmp_path):
    columns, price = shop(0, 500)
    row = int(np.flatnonzero(columns["reward"])[0])
    price[row] *= 0.5
    words = f"column 'reward', row {row} .counted from 0.: .* is above the row's 'reward_limit' "
    with pytest.raises(UserError, match=words):
        estimate_value(**columns, facts=Facts(reward_limit=price))
    with pytest.raises(UserError, match=words):
        difference(**columns, baseline=columns["propensity"], facts=Facts(reward_limit=price))
    for bad, words in ((np.nan, "is not a finite number"), (1e200, "is too large")):
        with pytest.raises(UserError, match=words):
            estimate_value(**columns, facts=Facts(reward_limit=np.where(np.arange(500) == 3, bad, 100.0)))
    named = {"revenue": columns["reward"], "price": price, "propensity": columns["propensity"], "t": columns["target"]}
    for kind in ("parquet", "csv"):
        path = tmp_path / f"log.{kind}"
        pq.write_table(pa.table(named), path) if kind == "parquet" else csv.write_csv(pa.table(named), path)
        with pytest.raises(UserError, match=f"'revenue', row {row + 1} .from 1, below the header.: .* row's 'price' "):
            estimate_file(path, ["t"], reward="revenue", reward_limit="price")


def test_a_target_above_its_stated_probability_is_denied():
    columns, _ = shop(2)
    assert not doubts(estimate_value(**columns, facts=Facts(target_max=0.1)))
    assert "bound_denied" in doubts(estimate_value(**columns, facts=Facts(target_max=0.05)))
    today = difference(
        **columns, baseline=columns["propensity"], facts=Facts(target_max=0.1)
    )  # which gives some items more
    assert "bound_denied" not in doubts(today)
    with pytest.raises(UserError, match=r"target_max must be a number in \(0, 1\]"):
        Facts(target_max=1.5)
    assert Facts(target_max=0.5).largest_weight is None  # of any propensity
    assert Facts(target_max=0.1, propensity_min=P).largest_weight == pytest.approx(0.1 / P)


def test_rewards_are_no_limits_of_their_own(tmp_path):
    columns, prices = shop(0, rows=2000)
    for given in (columns["reward"], np.where(columns["reward"] > 0.0, prices, 0.0)):
        with pytest.raises(UserError, match="holds what each row earned"):
            estimate_value(**columns, facts=Facts(propensity_min=P, reward_min=0.0, reward_limit=given))
    path = tmp_path / "shop.parquet"
    pq.write_table(pa.table(columns | {"cluster": columns["cluster"]}), path)
    with pytest.raises(UserError, match="column 'reward' holds what each row earned"):
        estimate_file(path, ["target"], cluster="cluster", reward_limit="reward", propensity_min=P)
