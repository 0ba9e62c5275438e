"""Logs that keep only some of their rows, with a column of how many rows each one stands for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import recsim_mnar
from recsim_mnar.errors import UserError

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
    return pd.DataFrame({
        "user": user,
        "action": action,
        "reward": (rng.random(user.size) < clicks).astype(int),
        "propensity": SHOWN[action],
        "target": TARGET[action],
    })  # fmt: skip


def thinned(seed: int, users: int = 800, name: str = "sample_weight") -> pd.DataFrame:
    """All rows with a click, and one in ten of the others, which stand for ten."""
    log = whole_log(seed, users)
    clicked = log["reward"] == 1
    kept = clicked | (np.random.default_rng([seed, 1]).random(len(log)) < 0.1)
    return log.assign(**{name: np.where(clicked, 1, 10)})[kept]


def answered(frame: pd.DataFrame, path, **asked):
    frame.to_csv(path, index=False)
    return recsim_mnar.estimate_file(path, "target", baseline="today", **asked)


@pytest.mark.slow
@pytest.mark.verify
def test_thinned_logs_are_right_in_95_of_100_intervals(tmp_path):
    number, missed = 400, np.zeros(3)
    wanted = np.array([TRUTH["target"], TRUTH["today"], TRUTH["target"] - TRUTH["today"]])
    for seed in range(number):
        records = [r for r in answered(thinned(seed), tmp_path / "log.csv").records if r["leads"]]
        low, high = (np.array([record[end] for record in records]) for end in ("low", "high"))
        missed += (wanted < low) | (wanted > high)
    # .05 and 2.6 standard errors of a share of 400
    assert np.all(missed / number <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / number)), missed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sample_weight", "weight", "importance_weight", "ImportanceWeight"])
def test_usual_names_are_recognised(tmp_path, name):
    known = answered(thinned(1, name=name), tmp_path / "log.csv")
    named = answered(thinned(1, name="n_rows"), tmp_path / "other.csv", weight_column="n_rows")
    assert [r["value"] for r in known.records] == [r["value"] for r in named.records]
    assert known.records[0]["value"] == pytest.approx(TRUTH["target"], rel=0.2)
    assert answered(thinned(1, name="n_rows"), tmp_path / "not.csv").records[0]["value"] > 4 * TRUTH["target"]


def test_a_row_with_a_weight_is_as_many_rows(tmp_path):
    log = whole_log(3, 200)
    times = np.random.default_rng(0).integers(1, 4, len(log))
    once = answered(log.assign(weight=times), tmp_path / "once.csv")
    each = answered(log.loc[np.repeat(log.index, times)], tmp_path / "each.csv")
    of = [{(r["policy"], r["estimator"]): r for r in found.records} for found in (once, each)]
    for policy, _ in of[0]:
        one, other = (found[policy, "snips"] for found in of)
        assert one["value"] == pytest.approx(other["value"], rel=1e-9)
        assert (one["low"], one["high"]) == pytest.approx((other["low"], other["high"]), rel=1e-3)


def test_equal_weights_change_nothing(tmp_path):
    log = whole_log(3, 200)
    known = answered(log.assign(weight=7), tmp_path / "seven.csv").records
    plain = answered(log, tmp_path / "none.csv").records
    assert [r["low"] for r in known] == pytest.approx([r["low"] for r in plain])
    assert [r["verdict_level"] for r in known] == [r["verdict_level"] for r in plain]


def test_an_estimator_that_knows_no_weights_must_not_be_used(tmp_path):
    found = answered(thinned(1), tmp_path / "log.csv", estimators=["snips", "sg_ips"])
    codes = {(r["estimator"], each["code"]) for r in found.records for each in r["findings"]}
    assert ("sg_ips", "weights_ignored") in codes
    assert ("snips", "weights_ignored") not in codes
    assert {r["verdict_level"] for r in found.records if r["estimator"] == "sg_ips"} == {"do_not_use"}


def test_weights_of_a_policy_are_no_weights_of_rows(tmp_path):
    log = whole_log(1, 200)
    weight = log["target"] / log["propensity"]
    with pytest.raises(UserError, match=r'columns=."weight": "none".'):
        answered(log.assign(importance_weight=weight), tmp_path / "log.csv")


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_weight_that_is_not_positive_is_refused_with_its_row(tmp_path, wrong):
    frame = thinned(1).reset_index(drop=True)
    frame.loc[4, "sample_weight"] = wrong
    with pytest.raises(UserError, match=r"'sample_weight', row 5 "):
        answered(frame, tmp_path / "log.csv")


@pytest.mark.parametrize("wrong", [0, -1])
def test_the_same_weight_everywhere_must_be_positive_too(tmp_path, wrong):
    with pytest.raises(UserError, match=r"'sample_weight', row 1 "):
        answered(thinned(1, 100).assign(sample_weight=wrong), tmp_path / "log.csv")


def test_two_columns_that_could_be_meant_are_asked_about(tmp_path):
    with pytest.raises(UserError, match=r'columns=."weight": NAME.'):
        answered(thinned(1, name="weight").assign(importance_weight=1.5), tmp_path / "log.csv")


def test_segments_are_weighed(tmp_path):
    log = thinned(1, 3000)
    found = answered(log.assign(half=log["user"] % 2), tmp_path / "log.csv", by="half").found.segments
    values = [r for r in found if r["policy"] == "target"]
    assert len(values) == 2
    for record in values:
        assert record["low"] <= TRUTH["target"] <= record["high"]
