"""Logs of tools: read by the rules of their formats, their estimates near the truth, their damages found."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsim_mnar.datasets.dsjson import LoggedShares
from recsim_mnar.datasets.tool_logs import open_tool_log
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.estimating import Question
from recsim_mnar.own_log.gate import estimate_tool_log
from toys import refused
from twins.cases import quick_first
from twins.commands import run

_SPEC = importlib.util.spec_from_file_location("tools", Path("benchmarks/own_log/tools.py"))
N = 4000


@pytest.fixture(scope="module")
def tools():
    if not Path(_SPEC.origin).exists():
        pytest.skip("without the benchmarks")
    module = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(module)
    return module


def line(number=0, **changed):
    """A decision of DSJSON between two actions; a value of None leaves the field out."""
    event = {
        "_label_cost": -1.0, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1, "EventId": f"e{number}",
        "a": [2, 1], "p": [0.8, 0.2], "c": {"User": {"id": "u1"}, "_multi": [{"_tag": "x"}, {"_tag": "y"}]},
    }  # fmt: skip
    return {key: value for key, value in {**event, **changed}.items() if value is not None}


def dsjson(folder, *events):
    path = folder / "log.dsjson"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def columns_of(path, **options):
    """What was opened, and its columns."""
    with open_tool_log(path, **options) as tool:
        return tool, pq.read_table(tool.file.parts.path).to_pydict()


@pytest.mark.parametrize("format_", quick_first(["open-bandit", "eppo", "vw", "growthbook", "statsig"], 2))
def test_estimates_hold_the_truth(tools, tmp_path, format_):
    truth = tools.make(tmp_path, format_, seed=3, n=N).truth()
    path, metrics = tools.log_of(tmp_path, format_)
    with open_tool_log(path, metrics=metrics) as tool:
        assert tool.damages == []
        answer = estimate_tool_log(tool, Question(level=0.99), Reading())
    values = {r["policy"]: r for r in answer.records if r["leads"] and "baseline" not in r}
    arms = {"vw": {"first_action"}, "open-bandit": set()}.get(format_, {f"always_{k}" for k in range(4)})
    assert {*arms, "uniform", "propensity"} == set(values)
    for name in {*arms, "uniform"}:
        assert values[name]["low"] <= truth[name] <= values[name]["high"]
        assert values[name]["verdict_level"] != "do_not_use"


def test_a_decision_has_the_weights_of_its_first_exposure_and_what_came_after_it(tools, tmp_path):
    log = tools.make(tmp_path, "growthbook", n=1000)
    path, metrics = tools.log_of(tmp_path, "growthbook")
    _, found = columns_of(path, metrics=metrics)
    user = np.array([int(name[1:]) for name in found["user"]])
    assert sorted(user) == list(range(1000))  # who came back decided nothing anew
    np.testing.assert_allclose(found["propensity"], log.p[user, log.action[user]], atol=1e-6)
    np.testing.assert_array_equal(found["reward"], log.reward[user])  # not what they did before they came


def test_a_subject_is_assigned_anew_under_another_version_only(tmp_path):
    path, metrics = tmp_path / "eppo.csv", tmp_path / "sales.csv"
    path.write_text(
        "timestamp,key,subject,action,action_probability,model_version\n"
        "2026-01-01T00:00:00Z,b,u1,x,0.5,m1\n2026-01-01T01:00:00Z,b,u1,y,0.4,m1\n2026-01-02T00:00:00Z,b,u1,x,0.9,m2\n"
    )
    metrics.write_text(
        "subject,timestamp,amount\nu1,2026-01-01T00:30:00Z,7\nu1,2026-01-01T02:00:00Z,100\nu1,2026-01-03T00:00:00Z,11\n"
    )
    tool, found = columns_of(path, metrics=metrics)
    assert found["propensity"] == [0.5, 0.9]
    assert found["reward"] == [7.0, 11.0]
    assert "1 users saw another variation later; nothing after that counts" in tool.lines


def test_decisions_that_survived_a_drop_more_easily_count_less(tmp_path):
    draw = np.random.default_rng(0)
    events = []
    for number in range(6000):
        rich = number % 2 == 0  # earns always, and four of five of these are dropped
        if not rich or draw.random() < 0.2:
            events.append(line(number, _label_cost=-float(rich), pdrop=0.8 * rich))
    tool, found = columns_of(dsjson(tmp_path, *events))
    assert len(found["reward"]) < 1500
    assert np.mean(found["reward"]) == pytest.approx(0.5, abs=4 * 0.5 / len(found["reward"]) ** 0.5)
    assert any("so that all had the largest" in each for each in tool.lines)


@pytest.mark.parametrize(
    ("events", "said", "kept"),
    [
        ([line(), line(1, _skipLearn=True)], "1 lines are marked _skipLearn", 1),
        ([line(), {"RewardValue": 1, "EventId": "e9"}], "1 lines are outcomes without a decision", 1),
        ([line(), line()], "1 lines repeat an earlier EventId", 1),
        ([line(), line(1, pdrop=1.0)], "1 lines have pdrop 1", 1),
        ([line(0, pdrop=0.5), line(1, pdrop=0.5)], "pdrop is the same in every line", 2),
        ([line(0, pdrop=0.5, _label_probability=0.4)], "pdrop is the same in every line", 1),
    ],
)
def test_lines_of_dsjson_that_are_no_decision_are_left_out_and_said(tmp_path, events, said, kept):
    tool, found = columns_of(dsjson(tmp_path, *events))
    assert any(said in each for each in tool.lines)
    assert found["propensity"] == [0.8] * kept
    assert found["reward"] == [1.0] * kept
    assert found["action"] == ["y"] * kept
    assert tool.damages == []


@pytest.mark.parametrize(
    "broken",
    [{"a": float("nan")}, {"a": [1, {"a": 1}, 3]}, {"a": "x"}, {"a": [1, -2, 3]}, {"p": [0.8, "x", 0.1]},
     {"p": [0.8, None, 0.1]}, {"p": [0.8, {"a": 1}, 0.1]}, {"c": "x"}, {"c": {"_multi": 3}},
     {"VWState": 2}, {"VWState": {"m": [None]}},
     {"EventId": ["a"]}, {"pdrop": -1.0}, {"pdrop": float("nan")}, {"_label_Action": None}, {"_label_cost": "x"}],
)  # fmt: skip
def test_a_broken_line_of_dsjson_is_counted_and_left_out(tmp_path, broken):
    """Each of these ended the command in a traceback, or made the columns of different lengths."""
    events = [line(EventId=str(number)) for number in range(400)]
    events[7] |= broken
    tool, found = columns_of(dsjson(tmp_path, *events))
    assert len(found["reward"]) == 399
    assert any(said.startswith("1 lines cannot be read") for said in tool.lines)


def test_a_large_number_of_an_action_takes_no_memory(tmp_path):
    events = [line(EventId=str(number), a=[1, 2, 10**12]) for number in range(40)]
    _, found = columns_of(dsjson(tmp_path, *events))
    assert len(found["reward"]) == 40


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (line(_label_probability=0.2), "dsjson_label"),
        (line(_labelIndex=0), "dsjson_index"),
        (line(p=[0.8, 0.1, 0.1]), "dsjson_lengths"),
        (line(_label_cost=0.0), "dsjson_joined_twice"),
        (line(p=[0.8, 0.4]), "share_sums"),
    ],
)
def test_lines_of_dsjson_that_contradict_themselves_are_damages(tmp_path, event, code):
    events = [line(), event] if code == "dsjson_joined_twice" else [{**event, "EventId": "other"}]
    tool, _ = columns_of(dsjson(tmp_path, *events))
    assert [each.code for each in tool.damages] == [code]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (line(_original_label_cost=0.0), "apprentice mode"),
        ({"_outcomes": [], "c": {}}, "holds slots"),
        ({"_label_ca": {"cost": 0}}, "holds continuous actions"),
        ({"EventId": "x"}, "no line is a decision"),
    ],
)
def test_dsjson_of_other_kinds_is_refused(tmp_path, event, said):
    with refused(said), open_tool_log(dsjson(tmp_path, event)):
        pass


_HEAD = "user_id,timestamp,experiment_id,variation_id,variation_weights\n"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('u,2026-01-01,a,0,"[0.5, 0.5]"\nv,2026-01-01,b,1,"[0.5, 0.5]"\n', r"holds 2 experiments \(a, b\)"),
        ('u,2026-01-01,a,red,"[0.5, 0.5]"\n', "variations are called red"),
        ('u,2026-01-01,a,1,"[1.0]"\n', "not a list of 2 or more"),
    ],
)
def test_exposures_that_cannot_be_read_are_refused(tmp_path, rows, said):
    path = tmp_path / "exposures.csv"
    path.write_text(_HEAD + rows)
    with refused(said), open_tool_log(path):
        pass


def test_without_weights_propensities_are_estimated_by_day(tmp_path):
    path = tmp_path / "exposures.csv"
    rows = [f"u{i},2026-01-0{1 + i % 3},a,{i % 2},{i % 5 == 0:d}" for i in range(600)]
    path.write_text("user_id,timestamp,experiment_id,variation_id,reward\n" + "\n".join(rows) + "\n")
    with open_tool_log(path) as tool:
        assert tool.context == ("day",)
        answer = estimate_tool_log(tool, Question(), Reading())
    assert answer.log.propensity is None
    assert answer.records[0]["policy"] == "always_0"


def test_a_table_with_the_target_asked_about_is_read_as_it_is(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("user_id,experiment_id,variation_id,propensity,reward,new\nu,a,0,0.5,1,0.5\n")
    with open_tool_log(path, targets=["new"]) as tool:
        assert tool is None


@pytest.mark.parametrize("damage", [None, "swapped", "later", "sharpened", "first-version"])
@pytest.mark.parametrize("command", quick_first(["doctor", "estimate"]))
def test_damaged_probabilities_are_found_by_one_command(capsys, tools, tmp_path, command, damage):
    tools.make(tmp_path, "vw", n=N, damage=damage)
    more = ["--require", "caution"] if command == "estimate" else []
    status, out, err = run(capsys, command, str(tmp_path / "vw.dsjson"), *more)
    assert status == (3 if damage else 0)
    assert ("are proved wrong" in " ".join((out + err).split())) == bool(damage)


def test_estimate_asks_for_what_came_of_assignments(capsys, tools, tmp_path):
    tools.make(tmp_path, "statsig", n=400)
    status, _, err = run(capsys, "estimate", str(tmp_path / "statsig.csv"))
    assert status == 2
    assert "Give --metrics FILE" in err


@pytest.mark.parametrize("format_", ["vw", "open-bandit"])
def test_metrics_next_to_a_log_with_rewards_are_refused(tools, tmp_path, format_):
    tools.make(tmp_path, format_, n=100)
    path, _ = tools.log_of(tmp_path, format_)
    with refused("has its rewards already"), open_tool_log(path, metrics=path):
        pass


@pytest.mark.slow
def test_right_probabilities_of_a_bandit_that_learns_are_seldom_called_wrong():
    alarms = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        rate, wins, tries, table, shown = draw.random(3), np.ones(3), np.full(3, 2.0), [], []
        for _ in range(300):
            p = 0.1 + 0.7 * (wins / tries) ** 4 / ((wins / tries) ** 4).sum()
            arm = draw.choice(3, p=p)
            wins[arm] += draw.random() < rate[arm]
            tries[arm] += 1
            table.append(p)
            shown.append(arm)
        alarms += bool(LoggedShares.of(np.array(table), np.array(shown), "abc").damages())
    assert alarms <= 2  # .2 % by the bound
