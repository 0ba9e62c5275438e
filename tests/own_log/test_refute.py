"""``estimate --refute``: what the refuters find joins the verdict, from either kind of file."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.answers.records import estimate_columns
from recsim_mnar.answers.sentence import sentence_of
from recsim_mnar.answers.weights import propensity_tolerance, weight_tolerance
from recsim_mnar.estimators import Facts
from recsim_mnar.estimators.refuters import refute
from recsim_mnar.log.columns import Clusters, LogColumns
from recsim_mnar.own_log.estimating import is_own_schema
from recsim_mnar.tables.parts import TableFile
from toys import only, read_json
from twins.commands import done, fails
from twins.findings import codes
from twins.own_schema import estimate_file

USERS, ROWS, ITEMS = 400, 20, 5


def log(late=1.0):
    """A right log with known propensities; ``late`` times the rewards in the second half of the time."""
    rng = np.random.default_rng(3)
    n = USERS * ROWS
    logged = rng.dirichlet(np.full(ITEMS, 3.0))
    new = rng.dirichlet(np.full(ITEMS, 3.0))
    logged = 0.7 * logged + 0.3 / ITEMS
    action = rng.choice(ITEMS, n, p=logged)
    step = np.tile(np.arange(ROWS), USERS)
    rate = np.where(step >= ROWS // 2, 0.2 * late, 0.2)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(USERS), ROWS),
            "step": step,
            "event": "bandit",
            "action": action,
            "propensity": logged[action],
            "reward": (rng.random(n) < rate).astype(float),
            "new": new[action],
            "time": step.astype(float),
        }
    )


def written(frame, folder, ours):
    """Write a log of ours, which is read in blocks, or one with other names."""
    if ours:
        path = folder / "log.parquet"
        frame.to_parquet(path)
        return path
    path = folder / "log.csv"
    names = {"user": "visitor", "action": "arm", "propensity": "pscore", "reward": "clicks", "time": "timestamp"}
    foreign = frame.rename(columns=names).drop(columns=["event", "step"])
    foreign.assign(arm="item " + foreign["arm"].astype(str)).to_csv(path, index=False)
    return path


@pytest.fixture
def estimate(capsys, tmp_path):
    """Output and records of `estimate --target new`, which must succeed."""

    def estimate_file(file, *options):
        out = done(capsys, "estimate", file, "--target", "new", "--json", tmp_path / "found.json", *options)
        return out, read_json(tmp_path / "found.json")

    return estimate_file


@pytest.mark.parametrize("ours", [True, False])
def test_a_right_log_is_not_refuted(estimate, tmp_path, ours):
    frame = log()
    file = written(frame, tmp_path, ours)
    assert is_own_schema(TableFile.open(file)) == ours
    _, before = estimate(file, "--baseline", "today")
    out, records = estimate(file, "--baseline", "today", "--refute")
    assert "refuters of new: 4 run, none found anything" in out
    assert [record["policy"] for record in records if "refuters" in record] == ["new"]
    refuters = refute(
        frame.reward, frame.propensity, frame.new, cluster=frame.user, action=frame.action, time=frame.time
    )
    leader = only(records, leads=True, policy="new")
    assert leader.pop("refuters") == [json.loads(json.dumps(refuter.to_dict())) for refuter in refuters]
    # Estimates and verdicts are what they were: all rows at once have the bits of the blocks.
    assert records == before


@pytest.mark.parametrize("ours", [True, False])
def test_findings_of_refuters_join_the_verdict(estimate, tmp_path, ours):
    """Rewards that fall with time are seen by the column of times alone, for rows stand user by user."""
    frame = log(late=0.2)
    file = written(frame, tmp_path, ours)
    stated = ("--propensity-min", "0.06", "--baseline", "today")
    assert {record["verdict_level"] for record in estimate(file, *stated)[1]} == {"trust"}
    out, records = estimate(file, *stated, "--refute", "--out", tmp_path / "page")
    html = (tmp_path / "page" / "report.html").read_text()
    for text in (out, html):
        assert "refuters of new: 4 run, halves found something" in text
        assert "the value of the second half is" in text
    for record in records:
        doubtful = record["policy"].startswith("new")
        assert (record["verdict_level"] == "caution") == doubtful
        assert ("halves" in codes(record)) == doubtful
    assert records[0]["sentence"]["sure"] == "caution"
    without_times = written(frame.drop(columns="time"), tmp_path, ours)
    assert "none found anything" in estimate(without_times, *stated, "--refute")[0]


@pytest.mark.parametrize(("ours", "item"), [(True, "item 1"), (False, "item item 1")])
def test_wrong_propensities_are_of_no_use(estimate, tmp_path, ours, item):
    frame = log()
    frame["propensity"] *= np.where(frame["action"] == 1, 0.7, 1.0)
    out, records = estimate(written(frame, tmp_path, ours), "--refute")
    assert f"propensities of {item} " in out
    assert records[0]["verdict_level"] == "do_not_use"
    found = [finding["code"] for finding in records[0]["findings"]]
    assert found.count("item_propensities") == 1  # a foreign file is asked without --refute, too


def test_without_propensities_there_is_nothing_to_refute(capsys, tmp_path):
    file = tmp_path / "log.csv"
    log().drop(columns=["propensity", "event", "step"]).to_csv(file, index=False)
    assert "--refute: refuters need propensities" in fails(capsys, "estimate", file, "--target", "new", "--refute")


# ---------------------------------------------------------------------------------- how wrong propensities may be


def columns(reward):
    """A log whose new policy earns more: half of the decisions are coins, and the new one knows the better side."""
    rng = np.random.default_rng(0)
    n = USERS * ROWS
    good = rng.random(n) < 0.5
    propensity = np.full(n, 0.5)
    new = np.where(good, 0.9, 0.1)
    users = Clusters.of(np.repeat(np.arange(USERS), ROWS), n)
    policies = {"new": new, "old": 1.0 - new, "propensity": propensity}
    return LogColumns(reward(rng, good), propensity, users, policies, range(1, n + 1))


def clicks(rng, good):
    return (rng.random(good.size) < np.where(good, 0.3, 0.2)) * 1.0


def money(rng, good):
    return np.where(good, 3.0, 2.0) * rng.uniform(0.5, 1.5, good.size)


def estimates(log, *targets, baseline="propensity", **facts):
    return estimate_columns(log, targets or ["new"], baseline=baseline, facts=Facts(propensity_min=0.5, **facts))


def difference_of(records, target="new"):
    return only(records, leads=True, policy=f"{target} - propensity")


def in_percent(factor):
    """The size of an error by this factor, in two digits."""
    return f"{float(f'{100 * (factor - 1):.2g}'):.6g} %"


@pytest.mark.parametrize(("target", "answer", "end"), [("new", "better", "low"), ("old", "worse", "high")])
def test_the_sentence_ends_with_how_wrong_propensities_may_be(target, answer, end):
    log = columns(clicks)
    records = estimates(log, target)
    today = float(log.reward.mean())
    record = difference_of(records, target)
    factor = record["diagnostics"]["propensity_tolerance"]
    assert factor == pytest.approx(propensity_tolerance(today + record[end], today), rel=1e-12)
    # The odds of the end are the factor squared away from today's: by hand.
    odds = [value / (1.0 - value) for value in (today + record[end], today)]
    assert factor**2 == pytest.approx(max(odds) / min(odds), rel=1e-9)
    sentence = sentence_of(records)
    assert sentence.answer == answer
    assert sentence.rests.endswith(f" more than {in_percent(factor)} too large or too small.")
    values = [record for record in records if record["role"] != "difference"]
    assert not any("propensity_tolerance" in record["diagnostics"] for record in values)


def test_rewards_of_any_size_have_a_tolerance_where_rows_are_at_hand(tmp_path):
    log = columns(money)
    record = difference_of(estimates(log, reward_max=5.0))
    new = log.others["new"]
    half = record["value"] - record["low"]
    factor = weight_tolerance(log.reward, log.propensity, new, today=float(log.reward.mean()), half_width=half)
    assert record["diagnostics"]["propensity_tolerance"] == pytest.approx(factor, rel=1e-9)
    assert 1.0 < factor < math.inf
    file = tmp_path / "log.parquet"
    rows = {"reward": log.reward, "propensity": log.propensity, "new": new, "user": log.cluster.codes}
    pd.DataFrame(rows).to_parquet(file)
    in_blocks = estimate_file(file, ["new"], baseline="today", propensity_min=0.5, reward_max=5.0)
    assert "propensity_tolerance" not in difference_of(in_blocks)["diagnostics"]
    assert "too large or too small" not in sentence_of(in_blocks).text


def test_no_tolerance_where_the_interval_holds_0():
    record = difference_of(estimates(columns(lambda rng, good: (rng.random(good.size) < 0.2) * 1.0)))
    assert record["low"] <= 0.0 <= record["high"]
    assert "propensity_tolerance" not in record["diagnostics"]


def test_no_tolerance_against_another_baseline_than_today():
    records = estimates(columns(clicks), baseline="old")
    assert not any("propensity_tolerance" in record["diagnostics"] for record in records)


def test_the_best_of_several_has_the_tolerance_of_its_own_level():
    log = columns(clicks)
    log.others["also"] = log.others["new"] * 0.5 + 0.25
    records = estimates(log, "new", "also")
    (best,) = [record for record in records if "best_of" in record]
    of_best = best["best_of"]["propensity_tolerance"]
    assert 1.0 < of_best < best["diagnostics"]["propensity_tolerance"]
    assert f"more than {in_percent(of_best)} too large" in sentence_of(records).rests
