"""How precise a value must be to be trusted, and what a difference that may be 0 is called."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import recsim_mnar
from recsim_mnar.answers.sentence import verdict_in_words
from toys import drawn_rows
from twins.commands import run

LAW = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    clicked, target = np.array([0.1, 0.1, 0.12, 0.1]), np.array([0.2, 0.3, 0.3, 0.2])
    path = tmp_path_factory.mktemp("precision") / "log.csv"
    rows = drawn_rows(np.random.default_rng(2), np.full(500, 10), LAW, clicked, target=target)
    rows.assign(site=rows.user % 2).to_csv(path, index=False)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_half_the_interval_over_the_value_is_held_against_what_is_asked(file, at_once):
    asked = {"baseline": "today", "refute": at_once}
    (record,) = [
        r for r in recsim_mnar.estimate_file(file, "target", **asked).records if r["leads"] and r["role"] == "target"
    ]
    reached = (record["high"] - record["low"]) / 2 / record["value"]
    assert 0.02 < reached < 0.25
    assert record["verdict_level"] == "trust"
    for precision, wanted in ((1.01 * reached, "trust"), (0.99 * reached, "caution")):
        found = recsim_mnar.estimate_file(file, "target", precision=precision, **asked).records
        assert {r["verdict_level"] for r in found if r["leads"] and r["role"] == "target"} == {wanted}
        assert {r["verdict_level"] for r in found if r["leads"] and r["role"] == "difference"} == {"trust"}


def test_precision_is_typed(file, tmp_path, capsys):
    levels = {}
    for precision in ("25%", "0.01"):
        code, _, _ = run(capsys, "estimate", file, "--target", "target", "--precision", precision, "--json",
                         tmp_path / "e.json")  # fmt: skip
        assert code == 0
        levels[precision] = json.loads((tmp_path / "e.json").read_text())[0]["verdict_level"]
    assert levels == {"25%": "trust", "0.01": "caution"}
    for wrong in ("0", "1", "3"):
        assert run(capsys, "estimate", file, "--target", "target", "--precision", wrong)[0] == 2


def test_a_least_reward_of_0_is_stated(file, capsys):
    """No number that is 0 counts as one that nobody typed."""
    low = file.parent / "low.csv"
    frame = pd.read_csv(file)
    frame.assign(reward=frame["reward"] - 1).to_csv(low, index=False)
    assert run(capsys, "estimate", low, "--target", "target", "--reward-min", "0")[0] == 2


def test_a_difference_that_may_be_0_is_undecided(file, tmp_path, capsys):
    code, out, _ = run(
        capsys, "estimate", file, "--target", "target", "--baseline", "today", "--by", "site", "--json",
        tmp_path / "e.json", "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0
    records = json.loads((tmp_path / "e.json").read_text())
    differs = [r for r in records if r["role"] == "difference" and (r["leads"] or "by" in r)]
    assert len(differs) == 3
    for each in differs:
        assert each["low"] < 0.0 < each["high"]
        assert each["verdict_level"] == "trust"
        assert verdict_in_words(each) == "sound, undecided"
    assert out.count("sound, undecided") == 3
    assert len(re.findall(r">\s*sound, undecided\s*<", (tmp_path / "out" / "report.html").read_text())) == 4


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, "sound, undecided"),
        ({"low": 0.01}, "trust"),
        ({"high": -0.01}, "trust"),
        ({"verdict_level": "caution"}, "caution"),
        ({"verdict_level": "do_not_use"}, "do not use"),
        ({"method": "no interval: the same policy"}, "trust"),
    ],
)
def test_only_what_is_trusted_and_may_be_0_is_undecided(changed, wanted):
    record = {"baseline": "p", "method": "Student", "low": -0.1, "high": 0.1, "verdict_level": "trust"} | changed
    assert verdict_in_words(record) == wanted
