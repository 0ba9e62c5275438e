"""Rows that are written twice: they are no decisions that the ones before them could have changed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.estimators.off_policy import gathering
from recsim_mnar.own_log.estimating import Question, estimate_log

ROWS = 15


def shop(seed: int, repeat: float = 1.0, users: int = 600) -> pd.DataFrame:
    """Uniform choice among four items; one that is shown twice running earns ``repeat`` times as much."""
    rng = np.random.default_rng(seed)
    shape = users, ROWS
    action = rng.integers(0, 4, shape)
    chance = np.where(action == 0, 0.45, 0.15)
    chance[:, 1:] *= np.where(action[:, 1:] == action[:, :-1], repeat, 1.0)
    return pd.DataFrame({
        "user": np.repeat(np.arange(users), ROWS),
        "time": 1_600_000_000 + 10 * np.arange(users * ROWS),
        "reward": (rng.random(shape) < chance).astype(int).ravel(),
        "propensity": 0.25,
        "action": action.ravel(),
        "target": np.where(action == 0, 0.7, 0.1).ravel(),
        "slot": 1,
    })  # fmt: skip


def again(frame: pd.DataFrame, share: float, **changed: int) -> pd.DataFrame:
    """The rows, and some of them once more right behind, otherwise the same."""
    some = np.random.default_rng(0).random(len(frame)) < share
    return pd.concat([frame, frame[some].assign(**changed)]).sort_values(["user", "time"], kind="stable")


def found_in(frame: pd.DataFrame, path, *, at_once: bool) -> dict[str, float]:
    """Findings with their numbers."""
    frame.to_csv(path, index=False)
    question = Question(["target"], estimators=["snips"], keep_rows=at_once)
    (record,) = estimate_log(path, question).records
    return {each["code"]: each["number"] for each in record["findings"]}


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_copies_are_repeated_rows_and_no_effect(tmp_path, monkeypatch, share, at_once):
    monkeypatch.setattr(gathering, "BLOCK_ROWS", 1000)
    found = found_in(again(shop(1), share), tmp_path / "log.csv", at_once=at_once)
    assert not {"shown_before", "copied_rows", "lasts"} & found.keys()
    assert found["rows_repeated"] == pytest.approx(share / (1.0 + share), abs=0.01)


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_copies_hide_no_effect(tmp_path, monkeypatch, share, at_once):
    monkeypatch.setattr(gathering, "BLOCK_ROWS", 1000)
    tired = shop(1, repeat=0.4)
    once = found_in(tired, tmp_path / "once.csv", at_once=at_once)
    found = found_in(again(tired, share), tmp_path / "log.csv", at_once=at_once)
    assert once["shown_before"] < -0.05
    assert found["shown_before"] == pytest.approx(once["shown_before"], rel=1e-6)


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_rows_that_differ_in_a_column_that_is_not_read_are_told_by_their_rewards(tmp_path, at_once):
    """Two slots that show the same and earn the same."""
    found = found_in(again(shop(1), 1.0, slot=2), tmp_path / "log.csv", at_once=at_once)
    assert "rows_repeated" not in found
    assert "copied_rows" in found
