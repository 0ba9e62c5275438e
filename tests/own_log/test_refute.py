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
from twins.commands import run
from twins.findings import codes
from twins.own_schema import estimate_file

USERS, ROWS, ITEMS = 400, 20, 5


def log(seed=3, late=1.0):
    """A right log with known propensities; ``late`` times the rewards in the second half of the time."""
    rng = np.random.default_rng(seed)
    n = USERS * ROWS
    logged, new = rng.dirichlet(np.full(ITEMS, 3.0)), rng.dirichlet(np.full(ITEMS, 3.0))
    logged = 0.7 * logged + 0.3 / ITEMS
    action, when = rng.choice(ITEMS, n, p=logged), np.tile(np.arange(ROWS), USERS)
    rate = np.where(when >= ROWS // 2, 0.2 * late, 0.2)
    columns = {"user": np.repeat(np.arange(USERS), ROWS), "step": when, "event": "bandit", "action": action,
               "propensity": logged[action], "reward": (rng.random(n) < rate) * 1.0, "new": new[action],
               "time": when.astype(float)}  # fmt: skip
    return pd.DataFrame(columns)


def written(frame, path, ours):
    """As a log of ours, which is read in blocks, or as one with other names."""
    if ours:
        frame.to_parquet(path.with_suffix(".parquet"))
        return path.with_suffix(".parquet")
    renamed = {"user": "visitor", "action": "arm", "propensity": "pscore", "reward": "clicks", "time": "timestamp"}
    renamed = frame.rename(columns=renamed).drop(columns=["event", "step"])
    renamed.assign(arm="item " + renamed["arm"].astype(str)).to_csv(path, index=False)
    return path


def estimated(capsys, file, tmp_path, *more):
    found = tmp_path / "found.json"
    status, out, err = run(capsys, "estimate", file, "--target", "new", "--json", found, *more)
    assert status == 0, err
    return out, json.loads(found.read_text())


@pytest.mark.parametrize("ours", [True, False])
def test_a_right_log_is_not_refuted(capsys, tmp_path, ours):
    file = written(log(), tmp_path / "log.csv", ours)
    assert is_own_schema(TableFile.open(file)) == ours
    plain, before = estimated(capsys, file, tmp_path, "--baseline", "today")
    out, records = estimated(capsys, file, tmp_path, "--baseline", "today", "--refute")
    assert "refuters of new: 4 run, none found anything" in out
    assert "refuters" not in plain
    leaders = [r for r in records if r["leads"] and r["policy"] == "new"]
    assert [r["policy"] for r in records if "refuters" in r] == ["new"]
    frame = log()
    asked = refute(frame.reward, frame.propensity, frame.new, cluster=frame.user, action=frame.action, time=frame.time)
    assert leaders[0]["refuters"] == [json.loads(json.dumps(each.to_dict())) for each in asked]
    # Estimates and verdicts are what they were: all rows at once have the bits of the blocks.
    assert [{k: v for k, v in r.items() if k != "refuters"} for r in records] == before


@pytest.mark.parametrize("ours", [True, False])
def test_what_is_found_joins_the_verdict(capsys, tmp_path, ours):
    """Rewards that fall with time are seen by the column of times alone, for rows stand user by user."""
    frame = log(late=0.2)
    file = written(frame, tmp_path / "log.csv", ours)
    stated = ("--propensity-min", "0.06", "--baseline", "today")
    assert all(r["verdict_level"] == "trust" for r in estimated(capsys, file, tmp_path, *stated)[1])
    page = tmp_path / "page"
    out, records = estimated(capsys, file, tmp_path, *stated, "--refute", "--out", page)
    assert "refuters of new: 4 run, halves found something" in out
    assert "the value of the second half is" in out
    for record in records:
        about = record["policy"].startswith("new")
        assert record["verdict_level"] == ("caution" if about else "trust")
        assert ("halves" in codes(record)) == about
    assert records[0]["sentence"]["sure"] == "caution"
    html = (page / "report.html").read_text()
    assert "refuters of new: 4 run, halves found something" in html
    assert "the value of the second half is" in html
    without = written(frame.drop(columns="time"), tmp_path / "other.csv", ours)
    assert "none found anything" in estimated(capsys, without, tmp_path, *stated, "--refute")[0]


@pytest.mark.parametrize("ours", [True, False])
def test_wrong_propensities_are_of_no_use(capsys, tmp_path, ours):
    frame = log()
    frame["propensity"] *= np.where(frame["action"] == 1, 0.7, 1.0)
    out, records = estimated(capsys, written(frame, tmp_path / "log.csv", ours), tmp_path, "--refute")
    assert "found something" in out
    assert f"propensities of {'item 1' if ours else 'item item 1'} " in out
    assert records[0]["verdict_level"] == "do_not_use"
    codes = [each["code"] for each in records[0]["findings"]]
    assert codes.count("item_propensities") == 1  # a file of one's own is asked without --refute, too


def test_without_propensities_there_is_nothing_to_refute(capsys, tmp_path):
    file = tmp_path / "log.csv"
    log().drop(columns=["propensity", "event", "step"]).to_csv(file, index=False)
    status, _, err = run(capsys, "estimate", file, "--target", "new", "--refute")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "--refute: refuters need propensities" in err


def columns(reward, seed=0):
    """A log whose new policy earns more: half of the decisions are coins, and the new one knows the better side."""
    rng = np.random.default_rng(seed)
    n = USERS * ROWS
    good = rng.random(n) < 0.5
    p, t = np.full(n, 0.5), np.where(good, 0.9, 0.1)
    r = reward(rng, good)
    users = Clusters.of(np.repeat(np.arange(USERS), ROWS), n)
    return LogColumns(r, p, users, {"new": t, "old": 1.0 - t, "propensity": p}, range(1, n + 1))


def clicks(rng, good):
    return (rng.random(good.size) < np.where(good, 0.3, 0.2)) * 1.0


def money(rng, good):
    return np.where(good, 3.0, 2.0) * rng.uniform(0.5, 1.5, good.size)


def difference_of(found, target):
    return next(r for r in found if r["leads"] and r["policy"] == f"{target} - propensity")


@pytest.mark.parametrize(("target", "answer", "end"), [("new", "better", "low"), ("old", "worse", "high")])
def test_the_sentence_ends_with_how_wrong_propensities_may_be(target, answer, end):
    made = columns(clicks)
    found = estimate_columns(made, [target], baseline="propensity", facts=Facts(propensity_min=0.5))
    record, today = difference_of(found, target), float(made.reward.mean())
    factor = record["diagnostics"]["propensity_tolerance"]
    assert factor == pytest.approx(propensity_tolerance(today + record[end], today), rel=1e-12)
    # The odds of the end are the factor squared away from today's: by hand.
    odds = [x / (1.0 - x) for x in (today + record[end], today)]
    assert factor**2 == pytest.approx(max(odds) / min(odds), rel=1e-9)
    sentence = sentence_of(found)
    assert sentence.answer == answer
    digits = f"{float(f'{100 * (factor - 1):.2g}'):.6g}"
    assert sentence.rests.endswith(f" more than {digits} % too large or too small.")
    values = [r for r in found if "baseline" not in r]
    assert all("propensity_tolerance" not in r["diagnostics"] for r in values)


def test_rewards_of_any_size_have_a_tolerance_where_rows_are_at_hand(tmp_path):
    made = columns(money)
    found = estimate_columns(made, ["new"], baseline="propensity", facts=Facts(propensity_min=0.5, reward_max=5.0))
    record = difference_of(found, "new")
    half = record["value"] - record["low"]
    factor = weight_tolerance(
        made.reward, made.propensity, made.others["new"], today=float(made.reward.mean()), half_width=half
    )
    assert record["diagnostics"]["propensity_tolerance"] == pytest.approx(factor, rel=1e-9)
    assert 1.0 < factor < math.inf
    frame = pd.DataFrame({"reward": made.reward, "propensity": made.propensity, "new": made.others["new"],
                          "user": made.cluster.codes})  # fmt: skip
    frame.to_parquet(tmp_path / "log.parquet")
    in_blocks = estimate_file(tmp_path / "log.parquet", ["new"], baseline="today", propensity_min=0.5, reward_max=5.0)
    assert "propensity_tolerance" not in difference_of(in_blocks, "new")["diagnostics"]
    assert "too large or too small" not in sentence_of(in_blocks).text


def test_no_tolerance_where_the_interval_holds_0_or_the_baseline_is_another():
    made = columns(lambda rng, good: (rng.random(good.size) < 0.2) * 1.0)
    found = estimate_columns(made, ["new"], baseline="propensity", facts=Facts(propensity_min=0.5))
    record = difference_of(found, "new")
    assert record["low"] <= 0.0 <= record["high"]
    assert "propensity_tolerance" not in record["diagnostics"]
    found = estimate_columns(columns(clicks), ["new"], baseline="old", facts=Facts(propensity_min=0.5))
    assert all("propensity_tolerance" not in r["diagnostics"] for r in found)


def test_the_best_of_several_has_the_tolerance_of_its_own_level():
    made = columns(clicks)
    made.others["also"] = made.others["new"] * 0.5 + 0.25
    found = estimate_columns(made, ["new", "also"], baseline="propensity", facts=Facts(propensity_min=0.5))
    best = next(r for r in found if "best_of" in r)
    of_best, own = best["best_of"]["propensity_tolerance"], best["diagnostics"]["propensity_tolerance"]
    assert 1.0 < of_best < own
    assert f"more than {float(f'{100 * (of_best - 1):.2g}'):.6g} % too large" in sentence_of(found).rests
