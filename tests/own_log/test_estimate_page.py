"""The page of ``estimate --out``: what it says, and what it must not say."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pyarrow as pa
import pytest

from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.report import estimate_page
from recsim_mnar.report.estimate_page import Estimates, weights_of, write_estimates
from recsim_mnar.tables.files import write_table
from toys import drawn_rows
from twins.commands import status_of as run
from twins.pages import unlinked

N_USERS = 150


def columns(seed=0, per_user=20):
    """Three actions by a known policy; the target prefers the one that earns most."""
    logging, clicked, better = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.4], [0.1, 0.2, 0.7]])
    return drawn_rows(np.random.default_rng(seed), np.full(N_USERS, per_user), logging, clicked, better=better)


def foreign_file(path, seed=0):
    """String ids, ``clicks``, ``pscore``; the ids occur nowhere else."""
    data = columns(seed)
    named = {"user": "shopper_id", "propensity": "pscore", "action": "sku", "reward": "clicks"}
    data["user"] = [f"geheim-{each:04}@example.org" for each in data.user]
    data["action"] = [f"sku{each}" for each in data.action]
    data.rename(columns=named).to_csv(path, index=False, sep=";")
    return path


def own_file(path):
    """A log as we write it, with ids that occur nowhere else."""
    data = columns()
    data["user"] += 770011223300
    data["step"] = np.tile(np.arange(20, dtype=np.int32), N_USERS)
    data["time"], data["event"] = np.arange(len(data), dtype=float), "bandit"
    data = data.astype({"action": np.int32, "reward": float})
    write_table(pa.table(data), path)
    return path


@pytest.mark.parametrize("make", [foreign_file, own_file])
def test_the_page_and_the_results_name_no_user(tmp_path, make):
    file = make(tmp_path / ("log.csv" if make is foreign_file else "log.parquet"))
    out = tmp_path / "page"
    assert run("estimate", file, "--target", "better", "--baseline", "propensity", "--out", out) == 0
    assert {path.name for path in out.iterdir()} == {"report.html", "results.json", "index.json"}
    assert run("verify", out) == 0
    text = unlinked(out / "report.html") + (out / "results.json").read_text()
    assert "geheim" not in text
    assert "@example.org" not in text
    assert "77001122" not in text
    assert f"{N_USERS:,}" in text


def test_users_as_keys_of_a_second_file_are_not_named_either(tmp_path):
    """A column a candidate action, found by the users' ids; some users are missing, one more is there."""
    file = foreign_file(tmp_path / "log.csv")
    lines = ["shopper_id,sku0,sku1,sku2", "geheim-9999@example.org,0.2,0.3,0.5"]
    lines += [f"geheim-{user:04}@example.org,0.1,0.2,0.7" for user in range(3, N_USERS)]
    second = tmp_path / "targets.csv"
    second.write_text("\n".join(lines) + "\n")
    out = tmp_path / "page"
    asked = ("--target-file", second, "--on", "shopper_id", "--drop-missing", "--baseline", "propensity")
    assert run("estimate", file, *asked, "--out", out) == 0
    for name in ("report.html", "results.json"):
        text = (out / name).read_text()
        assert "targets" in text
        assert "geheim" not in text


def test_the_difference_to_todays_policy_is_that_of_the_truth(tmp_path):
    """Today's policy earns .5 * .1 + .3 * .2 + .2 * .4 = .19, the target .1 * .1 + .2 * .2 + .7 * .4 = .33."""
    file = foreign_file(tmp_path / "log.csv")
    out = tmp_path / "page"
    asked = ("--target", "better", "--baseline", "today", "--propensity-min", "0.2")
    assert run("estimate", file, *asked, "--out", out) == 0
    records = json.loads((out / "results.json").read_text())["records"]
    by = {(r["policy"], r["estimator"]): r for r in records}
    truths = {("better", "snips"): 0.33, ("propensity", "ips"): 0.19, ("better - propensity", "ips"): 0.14}
    assert all(by[key]["low"] <= truth <= by[key]["high"] for key, truth in truths.items())
    assert by["propensity", "ips"]["verdict_level"] == "trust"  # it takes nothing that it cannot take
    page = unlinked(out / "report.html")
    assert re.search(r"better earns [\d.]+ % more than today&#39;s policy", page)
    assert "better - today&#39;s policy" in page
    front = re.search(r"(?s)<header.*?</header>", page)[0]
    change, today, better = re.search(
        r"\+([\d.]+) % clicks: ([\d.]+) % \u2192 ([\d.]+) % of recommendations", front
    ).groups()
    assert f"better earns {change} % more" in page  # one rounding of it everywhere
    assert [float(today), float(better)] == pytest.approx(
        [100 * by[key, "snips"]["value"] for key in ("propensity", "better")], rel=0.005
    )
    off = by["better - propensity", "snips"]["diagnostics"]["propensity_tolerance"] - 1.0
    assert f"errors of {100 * off:.2g} % in each, all in the worst direction, would undo the gain.)" in front
    assert front.count("<li>") == 3
    assert "choose from at most 5 items in this place?" in front
    assert "each with a probability of at least 20 %, as the analyst stated" in page
    assert "better - propensity" not in re.sub(r"(?s)<pre>.*</pre>", "", page)


def test_what_was_taken_and_the_next_step_stand_on_the_page(tmp_path):
    file = foreign_file(tmp_path / "log.csv")
    assert run("estimate", file, "--target", "better", "--out", tmp_path / "page") == 0
    page = unlinked(tmp_path / "page" / "report.html")
    results = json.loads((tmp_path / "page" / "results.json").read_text())
    assert "taken: reward: clicks; propensity: pscore; user: shopper_id" in page
    assert results["read"]["counts"]["rows"] == 3000
    assert "--baseline today" in page


def test_a_policy_is_not_doubted_for_one_whose_name_holds_its_own(tmp_path, monkeypatch):
    """The mean weight of ``ab`` is 1.03, and says nothing of ``a``."""
    rng, n = np.random.default_rng(0), 40_000
    taken = rng.random(n) < 0.5
    reward = rng.random(n) < np.where(taken, 0.3, 0.1)
    rows = {"reward": reward, "propensity": np.full(n, 0.5), "a": np.where(taken, 0.7, 0.3), "ab": np.full(n, 0.515)}
    np.savetxt(tmp_path / "log.csv", np.stack([*rows.values()], axis=1), "%g", ",", header=",".join(rows), comments="")
    said, real = [], estimate_page.of_estimates
    monkeypatch.setattr(estimate_page, "of_estimates", lambda *given: said.append(given) or real(*given))
    assert (
        run("estimate", tmp_path / "log.csv", "--target", "ab,a", "--propensity-min", "0.5", "--out", tmp_path / "p")
        == 0
    )
    ((sentence, _, doubt, *_),) = said
    assert sentence.policy == "a"
    assert "1.03" not in doubt


def test_two_runs_write_the_same(tmp_path):
    file = foreign_file(tmp_path / "log.csv")
    for name in ("a", "b"):
        assert run("estimate", file, "--target", "better", "--out", tmp_path / name / "page") == 0
    for file_name in ("results.json", "report.html"):
        texts = [(tmp_path / name / "page" / file_name).read_text() for name in ("a", "b")]
        assert texts[0].replace(str(tmp_path / "a"), "") == texts[1].replace(str(tmp_path / "b"), "")


def test_without_propensities_the_page_says_that_they_are_estimated(tmp_path):
    file = foreign_file(tmp_path / "log.csv")
    file.write_text(file.read_text().replace("pscore", "noise", 1))
    assert run("estimate", file, "--target", "better", "--out", tmp_path / "page") == 0
    assert "has no propensities" in unlinked(tmp_path / "page" / "report.html")


def test_where_the_page_may_lie(tmp_path, capsys):
    log = tmp_path / "log"
    log.mkdir()
    own_file(log / "part-0.parquet")
    assert run("estimate", log, "--target", "better", "--out", log / "page") == 2
    assert "would be in" in capsys.readouterr().err
    assert not (log / "page").exists()
    assert run("estimate", log, "--target", "none", "--out", tmp_path / "page") == 2
    assert not (tmp_path / "page").exists()  # nothing written, so the command can be given again as it is
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    assert run("estimate", log, "--target", "better", "--out", tmp_path / "full") == 2


def test_weights_in_numbers():
    weight = np.array([0.0, 0.0, 1.0, 3.0, 20.0])
    found = Estimates("f", [], [], WeighedLog(5, None, 0.1, weights={"p": weight}), 10.0)
    (row,) = weights_of(found)
    assert (row.mean, row.largest, row.zero, row.clipped) == (pytest.approx(4.8), 20.0, 0.4, 0.2)
    assert row.effective == pytest.approx(24.0**2 / (1 + 9 + 400))
    assert row.mass_clipped == pytest.approx(10 / 24)


def test_a_policy_that_the_log_does_not_cover_has_no_value(tmp_path, capsys):
    """The log shows one action of ten; what a random policy earns there is known, and nothing else."""
    n = 2000
    rows = "".join(f"{i // 10},1.0,0.1,{int(i % 25 == 0)}\n" for i in range(n))
    (tmp_path / "log.csv").write_text("user,propensity,random,clicks\n" + rows)
    out = tmp_path / "page"
    assert run("estimate", tmp_path / "log.csv", "--target", "random", "--baseline", "today", "--out", out) == 0
    text, page = capsys.readouterr().out, unlinked(out / "report.html")
    shown = re.sub(r"(?s)<section class=.screen.*", "", page)
    for each in (text, shown):
        assert "The log covers 10 % of what random shows" in each
        assert "covers 10 %" in each
        assert "not covered" in each
        assert "times the value" not in each
        assert "0.400 %" not in each  # the mean of w r, of which nine tenths are missing
    assert text.count("The log covers") == shown.count("The log covers") == 1
    assert json.loads((out / "results.json").read_text())["sentence"]["answer"] == "not_covered"


def test_a_value_outside_its_interval_breaks_no_page(tmp_path):
    """Where a clip is proved to be biased the limits are what is known."""
    question = Question(["better"], estimators=["clipped_ips"], clip=1.0)
    (record,) = estimate_log(foreign_file(tmp_path / "log.csv"), question).records
    proof = {"code": "bias_proved", "level": "caution", "severity": 1.0, "number": 0.1, "message": "m", "action": "a"}
    record |= {"value": 0.1, "low": 0.2, "findings": [*record["findings"], proof]}
    (tmp_path / "page").mkdir()
    write_estimates(tmp_path / "page", Estimates("f", [record], [], WeighedLog(5, None, 0.1), 1.0), {})
    page = unlinked(tmp_path / "page" / "report.html")
    assert "at least 20.0 %" in page
    assert "<svg" in page


def test_the_next_step_has_a_size_that_a_test_on_users_would_need(tmp_path):
    """Users and whole weeks by `plan ab`, for the lift's lower end; rows that are nobody's have no users."""
    from recsim_mnar.own_log.ab_plan import plan_ab

    data = columns()
    write_table(pa.table(data), tmp_path / "log.parquet")
    asked = ("--target", "better", "--baseline", "today", "--propensity-min", "0.2")
    assert run("estimate", tmp_path / "log.parquet", *asked, "--out", tmp_path / "out") == 0
    page = unlinked(tmp_path / "out" / "report.html")
    (size,) = re.findall(
        r": ([\d,]+) users per variant with some \d+ recommendations each have a chance of 80 % to show even", page
    )
    sentence = json.loads((tmp_path / "out" / "results.json").read_text())["sentence"]
    lift = f"{sentence['low_percent']}%"
    assert int(size) == max(100, plan_ab(tmp_path / "log.parquet", lift).users)
    rows = np.arange(len(data))
    dated = data.assign(date=np.datetime64("2026-01-01T00:00:00") + 86_400 * (rows % 9) + rows)
    write_table(pa.table(dated), tmp_path / "dated.parquet")
    assert run("estimate", tmp_path / "dated.parquet", *asked, "--out", tmp_path / "days") == 0
    page = unlinked(tmp_path / "days" / "report.html")
    (weeks,) = re.findall(r"A/B test of (\d+) weeks?: ", page)
    assert int(weeks) == math.ceil(plan_ab(tmp_path / "dated.parquet", lift).days / 7)
    write_table(pa.table(columns().drop(columns="user")), tmp_path / "rows.parquet")
    assert run("estimate", tmp_path / "rows.parquet", *asked, "--out", tmp_path / "nobody") == 0
    assert "users per variant" not in (tmp_path / "nobody" / "report.html").read_text()
