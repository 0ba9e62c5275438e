"""Logs that keep only some of their rows, with a column of how many rows each one stands for."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.errors import UserError
from toys import only
from twins.findings import codes

SHOWN = np.array([0.4, 0.3, 0.2, 0.1])
TARGET = SHOWN[::-1]
CLICKED = np.array([0.01, 0.02, 0.03, 0.06])
SPREAD = 0.5
TRUTH = {name: float(law @ CLICKED) * np.exp(SPREAD**2 / 2) for name, law in (("target", TARGET), ("today", SHOWN))}


def whole_log(seed: int, users: int) -> pd.DataFrame:
    """Every row: users differ in how often they click."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rng.poisson(12, users) + 1)
    action = rng.choice(4, user.size, p=SHOWN)
    clicks = np.minimum(CLICKED[action] * np.exp(rng.normal(0.0, SPREAD, users))[user], 1.0)
    return pd.DataFrame(
        {
            "user": user,
            "action": action,
            "reward": (rng.random(user.size) < clicks).astype(int),
            "propensity": SHOWN[action],
            "target": TARGET[action],
        }
    )


def thinned(seed: int, users: int = 800, name: str = "sample_weight") -> pd.DataFrame:
    """All rows with a click, and one in ten of the others, which stand for ten."""
    log = whole_log(seed, users)
    clicked = log["reward"] == 1
    kept = clicked | (np.random.default_rng([seed, 1]).random(len(log)) < 0.1)
    return log.assign(**{name: np.where(clicked, 1, 10)})[kept]


@pytest.fixture
def answer(answer_of):
    """The answer to a log, compared with today's policy."""
    return partial(answer_of, baseline="today")


def column(records, name):
    return [record[name] for record in records]


@pytest.mark.slow
@pytest.mark.verify
def test_thinned_logs_are_right_in_95_of_100_intervals(answer):
    number = 400
    missed = np.zeros(3)
    truth = np.array([TRUTH["target"], TRUTH["today"], TRUTH["target"] - TRUTH["today"]])
    for seed in range(number):
        records = [record for record in answer(thinned(seed)).records if record["leads"]]
        missed += (truth < column(records, "low")) | (truth > column(records, "high"))
    # .05 and 2.6 standard errors of a share of 400
    assert np.all(missed / number <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / number)), missed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sample_weight", "weight", "importance_weight", "ImportanceWeight"])
def test_usual_names_are_recognised(answer, name):
    recognised = answer(thinned(1, name=name)).records
    other_name = thinned(1, name="n_rows")
    named = answer(other_name, weight_column="n_rows").records
    assert column(recognised, "value") == column(named, "value")
    assert recognised[0]["value"] == pytest.approx(TRUTH["target"], rel=0.2)
    assert answer(other_name).records[0]["value"] > 4 * TRUTH["target"]


def test_a_row_with_a_weight_is_as_many_rows(answer):
    log = whole_log(3, 200)
    times = np.random.default_rng(0).integers(1, 4, len(log))
    weighed = answer(log.assign(weight=times)).records
    repeated = answer(log.loc[np.repeat(log.index, times)]).records
    for policy in set(column(weighed, "policy")):
        once = only(weighed, policy=policy, estimator="snips")
        several = only(repeated, policy=policy, estimator="snips")
        assert once["value"] == pytest.approx(several["value"], rel=1e-9)
        assert (once["low"], once["high"]) == pytest.approx((several["low"], several["high"]), rel=1e-3)


def test_equal_weights_change_nothing(answer):
    log = whole_log(3, 200)
    weighed = answer(log.assign(weight=7)).records
    plain = answer(log).records
    np.testing.assert_allclose(column(weighed, "low"), column(plain, "low"), rtol=1e-6)
    assert column(weighed, "verdict_level") == column(plain, "verdict_level")


def test_an_estimator_that_knows_no_weights_must_not_be_used(answer):
    records = answer(thinned(1), estimators=["snips", "sg_ips"]).records
    ignored = {record["estimator"] for record in records if "weights_ignored" in codes(record)}
    assert ignored == {"sg_ips"}
    assert {record["verdict_level"] for record in records if record["estimator"] == "sg_ips"} == {"do_not_use"}


def test_weights_of_a_policy_are_no_weights_of_rows(answer):
    log = whole_log(1, 200)
    with pytest.raises(UserError, match="--weight-column none"):
        answer(log.assign(importance_weight=log["target"] / log["propensity"]))


@pytest.mark.parametrize("wrong", [0, -1])
def test_weights_that_are_not_positive_are_refused_with_their_row(answer, wrong):
    log = thinned(1, 100).reset_index(drop=True)
    with pytest.raises(UserError, match=r"'sample_weight', row 1 "):
        answer(log.assign(sample_weight=wrong))
    log.loc[4, "sample_weight"] = wrong
    with pytest.raises(UserError, match=r"'sample_weight', row 5 "):
        answer(log)


def test_segments_are_weighed(answer):
    log = thinned(1, 3000)
    segments = answer(log.assign(half=log["user"] % 2), by="half").found.segments
    values = [record for record in segments if record["policy"] == "target"]
    assert len(values) == 2
    for record in values:
        assert record["low"] <= TRUTH["target"] <= record["high"]
