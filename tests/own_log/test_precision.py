"""The precision that a value needs to be trusted, and the name of a difference that may be 0."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import recsim_mnar
from recsim_mnar.answers.words import verdict_in_words
from toys import drawn_rows, only, read_json
from twins.commands import done, fails

LAW = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    clicked, target = np.array([0.1, 0.1, 0.12, 0.1]), np.array([0.2, 0.3, 0.3, 0.2])
    path = tmp_path_factory.mktemp("precision") / "log.csv"
    rows = drawn_rows(np.random.default_rng(2), np.full(500, 10), LAW, clicked, target=target)
    rows.assign(site=rows.user % 2).to_csv(path, index=False)
    return path


def levels(records):
    """Verdicts of the leading estimates, by their roles."""
    return {record["role"]: record["verdict_level"] for record in records if record["leads"]}


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_half_the_interval_over_the_value_is_held_against_the_precision(file, at_once):
    asked = {"baseline": "today", "refute": at_once}
    record = only(recsim_mnar.estimate_file(file, "target", **asked).records, leads=True, role="target")
    reached = (record["high"] - record["low"]) / 2 / record["value"]
    assert 0.02 < reached < 0.25
    assert record["verdict_level"] == "trust"
    for precision, level in ((1.01 * reached, "trust"), (0.99 * reached, "caution")):
        found = levels(recsim_mnar.estimate_file(file, "target", precision=precision, **asked).records)
        assert (found["target"], found["difference"]) == (level, "trust")


@pytest.mark.parametrize(("precision", "level"), [("25%", "trust"), ("0.01", "caution")])
def test_precision_is_typed(file, tmp_path, capsys, precision, level):
    words = ("--target", "target", "--precision", precision, "--json", tmp_path / "e.json")
    done(capsys, "estimate", file, *words)
    assert read_json(tmp_path / "e.json")[0]["verdict_level"] == level


@pytest.mark.parametrize("precision", ["0", "1", "3"])
def test_a_precision_is_a_share(file, capsys, precision):
    fails(capsys, "estimate", file, "--target", "target", "--precision", precision)


def test_a_least_reward_of_0_is_stated(file, save, capsys):
    """No number that is 0 counts as one that nobody typed."""
    frame = pd.read_csv(file)
    path = save(frame.assign(reward=frame["reward"] - 1), "low.csv")
    fails(capsys, "estimate", path, "--target", "target", "--reward-min", "0")


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
