"""The meaning of --baseline today: a system, random traffic, or the mean reward of a log without propensities."""

from __future__ import annotations

import html
import re

import numpy as np
import pandas as pd
import pytest

from toys import drawn_rows, only, read_json
from twins.commands import done
from twins.pages import page_text

CLICKED = np.array([0.02, 0.03, 0.04, 0.05, 0.15])
SYSTEM = np.array([0.05, 0.05, 0.1, 0.1, 0.7])
TARGET = np.array([0.02, 0.02, 0.03, 0.03, 0.9])
UNIFORM = np.full(5, 0.2)


def log(law: np.ndarray, seed: int = 4, users: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = drawn_rows(rng, rng.poisson(10, users) + 1, law, CLICKED, target=TARGET, system=SYSTEM)
    return rows.assign(page=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "kind", "name"),
    [(UNIFORM, "random", "the random traffic"), (SYSTEM, "today", "today's recommender")],
    ids=["random", "system"],
)
def test_rows_drawn_at_random_are_no_system(save, tmp_path, capsys, law, kind, name):
    path = save(log(law))
    words = ["--target", "target", "--baseline", "today", "--json", tmp_path / "e.json", "--out", tmp_path / "out"]
    done(capsys, "estimate", path, *words)
    records = read_json(tmp_path / "e.json")
    assert records[0]["sentence"]["baseline_kind"] == kind
    assert {record["baseline_kind"] for record in records if record["role"] in ("today", "difference")} == {kind}
    difference = only(records, role="difference", leads=True)
    assert difference["low"] <= (TARGET - law) @ CLICKED <= difference["high"]
    page = html.unescape(page_text(tmp_path / "out" / "report.html"))
    assert set(re.findall("the random traffic|today's recommender", page)) == {name}
    (title,) = re.findall("<h1>.*</h1>", page)
    assert ("not the system in production" in title) is (kind == "random")


def test_a_column_of_the_system_is_compared_as_one(answer_of):
    sentence = answer_of(log(UNIFORM), baseline="system").sentence
    assert sentence.baseline_kind == "policy"
    change = 100 * (TARGET @ CLICKED / (SYSTEM @ CLICKED) - 1)
    assert sentence.low_percent < change < sentence.high_percent


def test_a_system_that_always_shows_one_item_is_no_chance(answer_of):
    frame = log(UNIFORM).assign(propensity=1.0, target=1.0)
    assert answer_of(frame, baseline="today").sentence.baseline_kind == "today"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_without_propensities_today_is_the_mean_reward(answer_of, seed):
    frame = log(SYSTEM, seed).drop(columns="propensity")
    answer = answer_of(frame, baseline="today", context=["page"])
    target, today, difference = (
        only(answer.records, role=role, leads=True) for role in ("target", "today", "difference")
    )
    assert today["value"] == pytest.approx(frame["reward"].mean(), rel=1e-12)
    assert difference["value"] == pytest.approx(target["value"] - today["value"], rel=1e-9)
    assert difference["low"] <= (TARGET - SYSTEM) @ CLICKED <= difference["high"]
    assert difference["high"] - difference["low"] < target["high"] - target["low"]
    assert answer.sentence.answer == "looks_better"
