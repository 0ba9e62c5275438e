"""The page of ``estimate --out``: what it says, and what it must not say."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsim_mnar.own_log.ab_plan import plan_ab
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.report import estimate_page
from recsim_mnar.report.estimate_page import Estimates, weights_of, write_estimates
from recsim_mnar.tables.files import write_table
from toys import drawn_rows, only, read_json
from twins.commands import status_of as run
from twins.pages import page_text

N_USERS = 150


def columns():
    """Three actions by a known policy; the target prefers the one that earns most."""
    logging, clicked, better = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.4], [0.1, 0.2, 0.7]])
    return drawn_rows(np.random.default_rng(0), np.full(N_USERS, 20), logging, clicked, better=better)


@pytest.fixture
def foreign_file(tmp_path):
    """A log with string ids that occur nowhere else, ``clicks`` and ``pscore``."""
    path = tmp_path / "log.csv"
    data = columns()
    data["user"] = [f"geheim-{number:04}@example.org" for number in data.user]
    data["action"] = [f"sku{number}" for number in data.action]
    names = {"user": "shopper_id", "propensity": "pscore", "action": "sku", "reward": "clicks"}
    data.rename(columns=names).to_csv(path, index=False, sep=";")
    return path


@pytest.fixture
def own_file(tmp_path):
    """A log as we write it, with ids that occur nowhere else."""
    path = tmp_path / "log" / "part-0.parquet"
    path.parent.mkdir()
    data = columns()
    data["user"] += 770011223300
    data["step"] = np.tile(np.arange(20, dtype=np.int32), N_USERS)
    data["time"] = np.arange(len(data), dtype=float)
    data["event"] = "bandit"
    write_table(pa.table(data.astype({"action": np.int32, "reward": float})), path)
    return path


STATED = ("--target", "better", "--baseline", "today", "--propensity-min", "0.2")


@pytest.mark.parametrize("kind", ["foreign_file", "own_file"])
def test_the_page_and_the_results_name_no_user(tmp_path, request, kind):
    out = tmp_path / "page"
    assert run("estimate", request.getfixturevalue(kind), *STATED, "--out", out) == 0
    assert {path.name for path in out.iterdir()} == {"report.html", "results.json", "index.json"}
    assert run("verify", out) == 0
    text = page_text(out / "report.html") + (out / "results.json").read_text()
    assert not re.search("geheim|@example.org|77001122", text)
    assert f"{N_USERS:,}" in text


def test_users_as_keys_of_a_second_file_are_not_named_either(foreign_file, tmp_path):
    """Candidate actions by the users' ids; some users are missing, one more is there."""
    lines = ["shopper_id,sku0,sku1,sku2", "geheim-9999@example.org,0.2,0.3,0.5"]
    lines += [f"geheim-{user:04}@example.org,0.1,0.2,0.7" for user in range(3, N_USERS)]
    targets = tmp_path / "targets.csv"
    targets.write_text("\n".join(lines) + "\n")
    out = tmp_path / "page"
    asked = ("--target-file", targets, "--on", "shopper_id", "--drop-missing", "--baseline", "propensity")
    assert run("estimate", foreign_file, *asked, "--out", out) == 0
    for name in ("report.html", "results.json"):
        text = (out / name).read_text()
        assert "targets" in text
        assert "geheim" not in text


def test_the_difference_to_todays_policy_is_that_of_the_truth(foreign_file, tmp_path):
    """Today's policy earns .5 * .1 + .3 * .2 + .2 * .4 = .19, the target .1 * .1 + .2 * .2 + .7 * .4 = .33."""
    out = tmp_path / "page"
    assert run("estimate", foreign_file, *STATED, "--out", out) == 0
    records = read_json(out / "results.json")["records"]
    for role, estimator, truth in (("target", "snips", 0.33), ("today", "ips", 0.19), ("difference", "ips", 0.14)):
        record = only(records, role=role, estimator=estimator)
        assert record["low"] <= truth <= record["high"]
    assert only(records, role="today", estimator="ips")["verdict_level"] == "trust"
    page = page_text(out / "report.html")
    assert "better - today&#39;s policy" in page
    assert "each with a probability of at least 20 %, as the analyst stated" in page
    assert "better - propensity" not in re.sub(r"(?s)<pre>.*</pre>", "", page)


def test_the_front_of_the_page_has_the_numbers_of_the_records(foreign_file, tmp_path):
    out = tmp_path / "page"
    assert run("estimate", foreign_file, *STATED, "--out", out) == 0
    records = read_json(out / "results.json")["records"]
    page = page_text(out / "report.html")
    front = re.search(r"(?s)<header.*?</header>", page)[0]
    number = r"([\d.]+) %"
    title = rf"\+{number} clicks: {number} \u2192 {number} of recommendations"
    change, today, better = re.search(title, front).groups()
    assert f"better earns {change} % more than today&#39;s policy" in page  # one rounding of it everywhere
    for role, shown in (("today", today), ("target", better)):
        assert float(shown) == pytest.approx(100 * only(records, role=role, estimator="snips")["value"], rel=0.005)
    diagnostics = only(records, role="difference", estimator="snips")["diagnostics"]
    errors = 100 * (diagnostics["propensity_tolerance"] - 1.0)
    assert f"errors of {errors:.2g} % in each, all in the worst direction, would undo the gain.)" in front
    assert front.count("<li>") == 3
    assert "choose from at most 5 items in this place?" in front


def test_a_policy_is_not_doubted_for_one_whose_name_holds_its_own(save, tmp_path, monkeypatch):
    """The mean weight of ``ab`` is 1.03, and says nothing of ``a``."""
    rng = np.random.default_rng(0)
    taken = rng.random(40_000) < 0.5
    reward = (rng.random(40_000) < np.where(taken, 0.3, 0.1)).astype(int)
    rows = pd.DataFrame({"reward": reward, "propensity": 0.5, "a": np.where(taken, 0.7, 0.3), "ab": 0.515})
    path = save(rows)
    calls = []
    of_estimates = estimate_page.of_estimates
    monkeypatch.setattr(estimate_page, "of_estimates", lambda *given: calls.append(given) or of_estimates(*given))
    asked = ("--target", "ab,a", "--propensity-min", "0.5", "--out", tmp_path / "page")
    assert run("estimate", path, *asked) == 0
    ((sentence, _, doubt, *_),) = calls
    assert sentence.policy == "a"
    assert "1.03" not in doubt


def test_no_page_within_the_log_or_beside_other_files(own_file, tmp_path, capsys):
    log = own_file.parent
    assert run("estimate", log, "--target", "better", "--out", log / "page") == 2
    assert "would be in" in capsys.readouterr().err
    assert not (log / "page").exists()
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
    text, page = capsys.readouterr().out, page_text(out / "report.html")
    shown = re.sub(r"(?s)<section class=.screen.*", "", page)
    for place in (text, shown):
        assert place.count("The log covers 10 % of what random shows") == 1
        assert "not covered" in place
        assert "times the value" not in place
        assert "0.400 %" not in place  # the mean of w r, of which nine tenths are missing
    assert read_json(out / "results.json")["sentence"]["answer"] == "not_covered"


def test_a_value_outside_its_interval_breaks_no_page(foreign_file, tmp_path):
    """The limits alone are known where a clip is proved to be biased."""
    question = Question(["better"], estimators=["clipped_ips"], clip=1.0)
    (record,) = estimate_log(foreign_file, question).records
    proof = {"code": "bias_proved", "level": "caution", "severity": 1.0, "number": 0.1, "message": "m", "action": "a"}
    record |= {"value": 0.1, "low": 0.2, "findings": [*record["findings"], proof]}
    (tmp_path / "page").mkdir()
    write_estimates(tmp_path / "page", Estimates("f", [record], [], WeighedLog(5, None, 0.1), 1.0), {})
    page = page_text(tmp_path / "page" / "report.html")
    assert "at least 20.0 %" in page
    assert "<svg" in page


@pytest.fixture
def page_of(tmp_path):
    """The page of a table that is written into a file, the file, and the sentence."""

    def write(data):
        file = tmp_path / "log.parquet"
        write_table(pa.table(data), file)
        assert run("estimate", file, *STATED, "--overwrite", "--out", tmp_path / "out") == 0
        sentence = read_json(tmp_path / "out" / "results.json")["sentence"]
        return page_text(tmp_path / "out" / "report.html"), file, f"{sentence['low_percent']}%"

    return write


def test_the_next_step_has_the_size_of_a_test_on_users(page_of):
    """By `plan ab`, for the lift's lower end; rows that are nobody's have no users."""
    page, file, lift = page_of(columns())
    size = r": ([\d,]+) users per variant with some \d+ recommendations each have a chance of 80 % to show even"
    assert int(re.search(size, page)[1]) == max(100, plan_ab(file, lift).users)
    page, _, _ = page_of(columns().drop(columns="user"))
    assert "users per variant" not in page


def test_the_next_step_is_a_test_of_whole_weeks_where_rows_have_dates(page_of):
    rows = np.arange(N_USERS * 20)
    page, file, lift = page_of(columns().assign(date=np.datetime64("2026-01-01", "s") + 86_400 * (rows % 9) + rows))
    (weeks,) = re.findall(r"A/B test of (\d+) weeks?: ", page)
    assert int(weeks) == math.ceil(plan_ab(file, lift).days / 7)


def test_hostile_names_are_text(tmp_path):
    name = "<script>alert(1)</script>\u202e\"' &amp;"
    file, out = tmp_path / "log.csv", tmp_path / "out"
    columns().rename(columns={"better": name}).to_csv(file, index=False)
    assert run("estimate", file, "--target", name, "--baseline", "today", "--out", out) == 0
    page = (out / "report.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "\u202e" not in page
