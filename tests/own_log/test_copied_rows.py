"""Rows that are written twice: they are no decisions that the ones before them could have changed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.own_log import bandit_file, blocks
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.doctor import examine_file
from recsim_mnar.own_log.doctor_commands import commands_for
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.tables.rows import n_repeats, repeats_by_chance
from toys import only
from twins.findings import codes, doubts

ROWS, USERS = 15, 600
QUESTION = Question(["target"], estimators=["snips"])
AT_ONCE = pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])


def shop(repeat: float = 1.0) -> pd.DataFrame:
    """Uniform choice among four items; one that is shown twice running earns ``repeat`` times as much."""
    rng = np.random.default_rng(1)
    shape = (USERS, ROWS)
    action = rng.integers(0, 4, shape)
    chance = np.where(action == 0, 0.45, 0.15)
    chance[:, 1:] *= np.where(action[:, 1:] == action[:, :-1], repeat, 1.0)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(USERS), ROWS),
            "time": 1_600_000_000 + 10 * np.arange(USERS * ROWS),
            "reward": (rng.random(shape) < chance).astype(int).ravel(),
            "propensity": 0.25,
            "action": action.ravel(),
            "target": np.where(action == 0, 0.7, 0.1).ravel(),
            "slot": 1,
        }
    )


def again(frame: pd.DataFrame, share: float, **changed: int) -> pd.DataFrame:
    """The rows, and some of them once more right behind, otherwise the same."""
    some = np.random.default_rng(0).random(len(frame)) < share
    return pd.concat([frame, frame[some].assign(**changed)]).sort_values(["user", "time"], kind="stable")


@pytest.fixture
def findings(tmp_path):
    """Findings of an estimate of a table, with their numbers."""

    def estimate(frame, at_once):
        frame.to_csv(tmp_path / "log.csv", index=False)
        (record,) = estimate_log(tmp_path / "log.csv", replace(QUESTION, keep_rows=at_once)).records
        return {finding["code"]: finding["number"] for finding in record["findings"]}

    return estimate


@AT_ONCE
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_copies_are_repeated_rows_and_no_effect(findings, monkeypatch, share, at_once):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 1000)
    found = findings(again(shop(), share), at_once)
    assert not {"shown_before", "copied_rows", "lasts"} & found.keys()
    assert found["rows_repeated"] == pytest.approx(share / (1.0 + share), abs=0.01)


@pytest.mark.slow
@AT_ONCE
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_copies_hide_no_effect(findings, monkeypatch, share, at_once):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 1000)
    tired = shop(repeat=0.4)
    effect = findings(tired, at_once)["shown_before"]
    assert effect < -0.05
    assert findings(again(tired, share), at_once)["shown_before"] == pytest.approx(effect, rel=1e-6)


@AT_ONCE
def test_rows_that_differ_in_a_column_that_is_not_read_are_told_by_their_rewards(findings, at_once):
    """Two slots that show the same and earn the same."""
    found = findings(again(shop(), 1.0, slot=2), at_once)
    assert "rows_repeated" not in found
    assert "copied_rows" in found


def dated(seed: int = 1) -> tuple[pd.DataFrame, float]:
    """An honest log with days and no hours, and what its policy earns: equal rows are visits of one day."""
    rng = np.random.default_rng(seed)
    users, days, items = 300, int(rng.integers(3, 11)), int(rng.integers(3, 8))
    visits = rng.poisson(rng.uniform(2.0, 8.0), (users, days))
    user = np.repeat(np.arange(users), visits.sum(axis=1))
    day = np.concatenate([np.repeat(np.arange(days), of_user) for of_user in visits])
    tastes = np.exp(rng.normal(0.0, 0.7, (users, items)))
    law = tastes / tastes.sum(axis=1, keepdims=True)
    item = (rng.random(user.size)[:, None] > law[user].cumsum(axis=1)).sum(axis=1)
    clicks = np.minimum(0.05 * rng.uniform(0.5, 2.0, items) * np.exp(rng.normal(0.0, 0.6, (users, 1))), 1.0)
    frame = pd.DataFrame(
        {
            "user": user,
            "date": (pd.Timestamp("2026-03-01") + pd.to_timedelta(day, unit="D")).strftime("%Y-%m-%d"),
            "action": item,
            "reward": (rng.random(user.size) < clicks[user, item]).astype(int),
            "propensity": law[user, item].round(6),
            "target": np.roll(law, 1, axis=1)[user, item].round(6),
        }
    )
    return frame, float((law * clicks).sum(axis=1)[user].mean())


@pytest.mark.slow
@AT_ONCE
def test_visits_of_one_day_are_no_copies(tmp_path, at_once):
    missed = 0
    for seed in range(12):
        path = tmp_path / f"{seed}.csv"
        frame, truth = dated(seed)
        assert frame.duplicated().sum() > 0.05 * len(frame)
        frame.to_csv(path, index=False)
        answer = estimate_log(path, replace(QUESTION, baseline="today", keep_rows=at_once))
        against = set().union(*(doubts(record) for record in answer.records))
        assert not {"rows_repeated", "shown_before", "copied_rows", "lasts"} & against
        assert "--deduplicate" not in " ".join(answer.lines)
        today = only(answer.records, role="today")
        missed += not today["low"] <= truth <= today["high"]
        examination = examine_file(path)
        assert not examination.facts["copies"]
        assert {problem.level for problem in examination.problems if problem.code == "duplicates"} == {"note"}
        assert "--deduplicate" not in commands_for(examination)[0].line
    assert missed <= 3  # of 12 intervals of 95 %, in 99.8 of 100 such tests


def test_who_deletes_visits_is_told(save):
    frame, truth = dated()
    path = save(frame)
    question = replace(QUESTION, baseline="today")
    answer = estimate_log(path, question, reading=Reading(deduplicate=True))
    today = only(answer.records, role="today")
    assert today["value"] > 1.05 * truth
    assert "events_dropped" in codes(today)
    assert today["verdict_level"] != "trust"


def test_a_log_written_twice_has_copies(save):
    frame, _ = dated()
    path = save(pd.concat([frame, frame]))
    assert examine_file(path).facts["copies"] >= len(frame)


def test_a_column_that_numbers_requests_tells_copies_from_visits(save):
    frame, _ = dated()
    frame["request"] = np.arange(7, 7 + len(frame))
    path = save(pd.concat([frame, frame[:50]]))
    assert examine_file(path).facts["copies"] == 50


@pytest.mark.parametrize("known", [True, False], ids=["propensities", "shares"])
def test_repeats_by_chance_are_those_of_chance(known):
    """The mean over many draws, and a plain twin of the formula."""
    rng = np.random.default_rng(3)
    law, clicks = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.05])
    group = np.repeat(np.arange(4000), rng.integers(1, 7, 4000))
    counted, expected = [], []
    for _ in range(20):
        item = rng.choice(3, group.size, p=law)
        cell = 2 * item + (rng.random(group.size) < clicks[item])
        counted.append(n_repeats(10 * group + cell))
        found, copies = repeats_by_chance(10 * group + cell, group, item, cell, law[item] if known else None)
        assert not copies
        expected.append(found)
    assert np.mean(counted) == pytest.approx(np.mean(expected), rel=0.01)
    twin, met = 0.0, dict.fromkeys(range(4000), 0)
    for i in range(group.size):
        of_item = item == item[i]
        p = law[item[i]] if known else of_item.mean()
        twin += 1.0 - (1.0 - p * np.mean(cell[of_item] == cell[i])) ** met[group[i]]
        met[group[i]] += 1
    assert expected[-1] == pytest.approx(twin, rel=1e-9)


def test_some_groups_of_a_large_log_say_what_chance_explains(save, monkeypatch):
    frame, _ = dated(2)
    path = save(frame)

    def expected_by_chance() -> int:
        text = "\n".join(estimate_log(path, QUESTION).lines)
        return int(re.search(r"chance makes some ([0-9,]+)", text)[1].replace(",", ""))

    of_all = expected_by_chance()
    monkeypatch.setattr(bandit_file, "_SAMPLED", len(frame) // 4)
    of_some = expected_by_chance()
    assert of_some == pytest.approx(of_all, rel=0.15)
    assert of_some != of_all


@pytest.mark.parametrize("separate", [False, True])
def test_who_says_that_events_are_separate_hears_no_more_of_copies(save, separate):
    path = save(again(shop(), 0.3))
    answer = estimate_log(path, QUESTION, reading=Reading(separate_events=separate))
    assert ("rows_repeated" in codes(answer.records[0])) is not separate
