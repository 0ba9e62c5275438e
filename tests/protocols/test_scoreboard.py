"""The scoreboard: 80 columns, one row per agent, one line per protocol, words computed from the numbers."""

import json
import math
from dataclasses import replace

import pytest

import toys
from recsim_mnar.protocols.comparison import Comparison, Setting, Setup
from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE, Ranking, Target, judge
from recsim_mnar.protocols.scoreboard import WIDTH, brief, scoreboard
from twins.commands import run

CTR = Target("ctr", "CTR", unit="the clicks")
KEYS = [("loocv", "hr@1"), ("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]
TITLES = ("leave-one-out", "clipped IPS", "A/B test")
TRUTH = {"item-knn": 0.0190, "user-knn": 0.0188, "svd": 0.0180, "random": 0.0100}


def record(key, agent, value, half=0.0005, **details):
    return toys.record(key[0], agent, value, key[1], half, **details)


def comparison(picks=("user-knn", "item-knn", "item-knn"), unusable=(), half=0.00001, **more):
    """Each protocol's pick has .02 more than its true value."""
    records = [record(KEYS[3], agent, value, half) for agent, value in TRUTH.items()]
    for key, pick in zip(KEYS, picks, strict=False):
        for agent, value in TRUTH.items():
            doubt = {"verdict_level": "do_not_use"} if (key[0], agent) in unusable else {}
            records.append(record(key, agent, value + 0.02 * (agent == pick), **doubt))
    rankings = [Ranking(*key, title, CTR) for key, title in zip(KEYS, TITLES, strict=False)]
    headings = dict(zip(KEYS, ("HR@1", "clipped IPS", "A/B CTR", "true CTR"), strict=True))
    return Comparison(records, judge(records, rankings), columns=KEYS, headings=headings, **more)


def test_each_protocols_pick_and_the_best_in_truth_are_marked_and_no_other():
    board = scoreboard(comparison())
    picked = {column.heading: [a for a, cell in column.cells.items() if cell.picked] for column in board.columns}
    assert picked == {"HR@1": ["user-knn"], "clipped IPS": ["item-knn"], "A/B CTR": ["item-knn"],
                      "true CTR": ["item-knn"]}  # fmt: skip
    assert board.agents == list(TRUTH)  # the truly best first
    assert [(choice.label, choice.picks, choice.outcome) for choice in board.choices] == [
        ("leave-one-out", "user-knn", COSTS), ("clipped IPS", "item-knn", BEST), ("A/B test", "item-knn", BEST),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("picks", "half", "outcomes"),
    [
        (("item-knn",) * 3, 0.00001, [BEST] * 3),
        (("random", "svd", "user-knn"), 0.00001, [COSTS] * 3),
        (("user-knn", "random", "item-knn"), 0.001, [INDISTINGUISHABLE, COSTS, BEST]),
    ],
)
def test_the_headline_says_what_the_numbers_say(picks, half, outcomes):
    """A contradiction planted in the records changes the words: no title is a constant."""
    board = scoreboard(comparison(picks, half=half))
    assert [choice.outcome for choice in board.choices] == outcomes
    assert ("the best" in board.headline()) == (BEST in outcomes)
    assert ("loses" in board.headline()) == (COSTS in outcomes)
    for pick in picks:
        assert pick in board.headline()
    assert not any(agent in board.headline() for agent in TRUTH if agent not in (*picks, "item-knn"))


def test_an_estimate_that_the_log_cannot_carry_is_marked_and_its_number_shown():
    board = scoreboard(comparison(unusable=[("off_policy", "svd"), ("off_policy", "item-knn")]))
    lines = board.lines()
    (row,) = (line for line in lines if line.startswith("svd"))
    assert row.split() == ["svd", ".0180", "±.0005", ".0180?", "±.0005", ".0180", "±.0005", ".0180"]
    assert [choice.picks for choice in board.choices] == ["user-knn", "item-knn?", "item-knn"]
    assert any("? rests on too little data" in line for line in lines)
    assert not any("?" in line for line in scoreboard(comparison()).lines())


def test_the_small_study_prints_its_four_columns_in_80(capsys, tmp_path):
    """Those of the README: a column that grows must not push one out."""
    sizes = ("train_users=200", "test_users=200", "arm_users=200", "truth_users=500", "folds=3")
    options = [word for size in sizes for word in ("--option", size)]
    status, text, _ = run(capsys, "compare", "--preset", "quick", *options, "--out", tmp_path / "run")
    assert status == 0
    lines = text.splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.startswith("agent"))
    assert lines[head].split() == ["agent", "HR@1", "clipped", "IPS", "A/B", "CTR", "true", "CTR"]
    rows = lines[head : head + 7]
    assert len({row.split()[0] for row in rows[1:]} & {"svd", "item-knn", "user-knn", "random"}) == 4
    assert max(map(len, rows)) <= WIDTH


def test_it_fits_80_columns_with_names_of_any_length():
    found = comparison(setting=Setting("sessions", 2000, 5000, 0, "jeunen2019"))
    long = [replace(r, agent=r.agent if r.agent == "svd" else f"package.module:{r.agent}" * 3) for r in found.records]
    for records in (found.records, long):
        board = scoreboard(replace(found, records=records))
        assert max(map(len, board.lines())) <= WIDTH
        assert max(map(len, board.lines(60))) <= 60
    assert len(scoreboard(found).lines()) == 2 + 1 + 4 + 1 + 1 + 3
    assert brief("a" * 30) == f"{'a' * 10}...{'a' * 9}"


def test_references_come_last_and_are_never_picked():
    found = comparison()
    records = [replace(r, details={"reference": True}) if r.agent == "item-knn" else r for r in found.records]
    board = scoreboard(replace(found, records=records))
    assert board.agents[-1] == "item-knn"
    assert not any(column.cells["item-knn"].picked for column in board.columns)


def test_a_ranking_that_rests_on_too_little_data_casts_no_doubt_on_others_with_its_pick():
    keys = [("p", f"m{i}") for i in range(6)]
    records = [record(KEYS[3], agent, value) for agent, value in TRUTH.items()]
    for key in keys:
        doubt = {"verdict_level": "do_not_use"} if key == keys[2] else {}
        records += [record(key, agent, value, **doubt) for agent, value in TRUTH.items()]
    judged = judge(records, [Ranking(*key, key[1], CTR) for key in keys])
    choices = scoreboard(Comparison(records, judged)).choices
    assert [(c.label, c.picks) for c in choices] == [("m0, m1, m3, m4, m5", "item-knn"), ("m2", "item-knn?")]
    assert len(scoreboard(Comparison(records, judged[:5])).choices) == 5  # few have a line each


def test_columns_are_left_out_for_width_alone_and_the_users_own_stay():
    keys = [("loocv", "hr@1"), ("holdout", "hr@10"), ("off_policy", "a"), ("off_policy", "b"), ("off_policy", "c")]
    keys += [("mine:Metric", "m"), ("truth", "ctr")]
    records = [record(key, agent, value) for key in keys for agent, value in TRUTH.items()]
    board = scoreboard(Comparison(records))
    wide = board.lines(200)
    assert all(column.heading.split()[-1] in " ".join(wide) for column in board.columns)
    assert sum(line.count("±") for line in wide if line.startswith("svd")) == 6
    narrow = board.lines(60)
    assert max(map(len, narrow)) <= 60
    text = " ".join(narrow)
    _, _, left_out = text.partition("Too wide")
    assert "mine:Metric m" not in left_out
    shown = next(line for line in narrow if line.startswith("svd")).count("±")
    assert shown + left_out.partition(".")[0].count(",") + 1 == 6
    assert "Too wide" not in " ".join(wide)


RUNS = {
    "ratings": ["--set", "n_items=30", "--option", "users=100"],
    "campaigns": ["--set", "n_users=300"],
    "purchases": ["--option", "users=150", "--agents", "random,popularity"],
}


@pytest.mark.parametrize("world", RUNS)
def test_the_board_of_every_world_fits(capsys, tmp_path, world):
    """Of sessions and interactions see the tests of the terminal."""
    status, text, _ = run(
        capsys, "compare", "--world", world, "--preset", "quick", *RUNS[world], "--out", tmp_path / "out"
    )
    assert status == 0
    assert max(map(len, text.splitlines()[:-1])) <= WIDTH  # the last one is the report's path
    assert json.loads((tmp_path / "out" / "results.json").read_text())["records"]


@pytest.mark.parametrize(
    ("preset", "spec"), [("jeunen2019", "item-knn+include_self=true"), ("jeunen2019-text", "item-knn")]
)
def test_the_papers_presets_are_one_world_with_two_sets_of_methods(preset, spec):
    resolved = Setup(preset=preset).resolved()
    assert resolved.specs["item-knn"] == spec
    assert ("constant" in resolved.specs, "popularity" in resolved.specs) == (
        preset == "jeunen2019",
        preset != "jeunen2019",
    )
    assert resolved.world.params == Setup().resolved().world.params
    assert Setup().resolved().preset == "jeunen2019"


def test_a_column_without_values_has_no_pick():
    found = comparison()
    records = [replace(r, value=math.nan, low=math.nan, high=math.nan) if r.protocol == "loocv" else r
               for r in found.records]  # fmt: skip
    board = scoreboard(replace(found, records=records))
    assert not any(cell.picked for cell in board.columns[0].cells.values())
