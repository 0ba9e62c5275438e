"""What --baseline today means: a system, random traffic, or the mean reward of a log without propensities."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import recsim_mnar
from recsim_mnar.errors import UserError
from toys import drawn_rows
from twins.commands import status_of

CLICKED = np.array([0.02, 0.03, 0.04, 0.05, 0.15])
SYSTEM = np.array([0.05, 0.05, 0.1, 0.1, 0.7])
TARGET = np.array([0.02, 0.02, 0.03, 0.03, 0.9])
UNIFORM = np.full(5, 0.2)


def log(law: np.ndarray, seed: int = 4, users: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = drawn_rows(rng, rng.poisson(10, users) + 1, law, CLICKED, target=TARGET, system=SYSTEM)
    return rows.assign(page=1)


def answered(frame: pd.DataFrame, path, **asked):
    frame.to_csv(path, index=False)
    return recsim_mnar.estimate_file(path, "target", **asked)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "kind"), [(UNIFORM, "random"), (SYSTEM, "today")], ids=["random", "system"])
def test_rows_drawn_at_random_are_no_system(tmp_path, law, kind):
    log(law).to_csv(tmp_path / "log.csv", index=False)
    words = ["--target", "target", "--baseline", "today", "--json", tmp_path / "e.json", "--out", tmp_path / "out"]
    assert status_of("estimate", tmp_path / "log.csv", *words) == 0
    first, *others = json.loads((tmp_path / "e.json").read_text())
    assert first["sentence"]["baseline_kind"] == kind
    assert {each["baseline_kind"] for each in others if each["role"] in ("today", "difference")} == {kind}
    (differs,) = [each for each in others if each["role"] == "difference" and each["leads"]]
    assert differs["low"] <= (TARGET - law) @ CLICKED <= differs["high"]
    said = (tmp_path / "out" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert ("the random traffic" in said) is (kind == "random")
    assert ("today&#39;s recommender" in said or "today's recommender" in said) is (kind == "today")
    (title,) = re.findall("<h1>.*</h1>", said)
    assert ("not the system in production" in title) is (kind == "random")


def test_a_column_of_the_system_is_compared_as_one(tmp_path):
    found = answered(log(UNIFORM), tmp_path / "log.csv", baseline="system")
    assert found.sentence.baseline_kind == "policy"
    assert found.sentence.low_percent < 100 * (TARGET @ CLICKED / (SYSTEM @ CLICKED) - 1) < found.sentence.high_percent


def test_a_system_that_always_shows_one_item_is_no_chance(tmp_path):
    frame = log(UNIFORM).assign(propensity=1.0, target=1.0)
    found = answered(frame, tmp_path / "log.csv", baseline="today")
    assert found.sentence.baseline_kind == "today"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_without_propensities_today_is_the_mean_reward(tmp_path, seed):
    frame = log(SYSTEM, seed).drop(columns="propensity")
    found = answered(frame, tmp_path / "log.csv", baseline="today", context=["page"])
    leaders = {each["role"]: each for each in found.records if each["leads"]}
    assert leaders["today"]["value"] == pytest.approx(frame["reward"].mean(), rel=1e-12)
    differs = leaders["difference"]
    assert differs["value"] == pytest.approx(leaders["target"]["value"] - leaders["today"]["value"], rel=1e-9)
    assert differs["low"] <= (TARGET - SYSTEM) @ CLICKED <= differs["high"]
    assert differs["high"] - differs["low"] < leaders["target"]["high"] - leaders["target"]["low"]
    assert found.sentence.answer == "looks_better"


def test_without_propensities_no_other_policy_is_a_baseline(tmp_path):
    frame = log(SYSTEM).drop(columns="propensity")
    with pytest.raises(UserError, match='baseline="today"'):
        answered(frame, tmp_path / "log.csv", baseline="system")
