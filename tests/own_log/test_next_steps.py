"""What an answer says to do next: it can be typed, or done, and then the objection is gone."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd
import pytest

import recsim_mnar
from recsim_mnar.estimators.verdict import for_command
from toys import drawn_rows
from twins.commands import run
from twins.findings import doubts, finding

LOGGED = np.array([0.3, 0.3, 0.2, 0.1, 0.1])
TARGET = np.array([0.1, 0.1, 0.2, 0.3, 0.3])
CLICKED = np.array([0.02, 0.03, 0.04, 0.05, 0.06])


def log(seed: int, users: int = 600, target: np.ndarray = TARGET) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = drawn_rows(rng, rng.poisson(10, users) + 1, LOGGED, CLICKED, target=target)
    return rows.assign(time=1_600_000_000 + 10 * np.arange(len(rows)))


def asked(frame: pd.DataFrame, path, **more):
    frame.to_csv(path, index=False)
    return recsim_mnar.estimate_file(path, "target", **more)


@pytest.mark.parametrize("users", [True, False])
def test_a_test_is_planned_where_its_line_runs(tmp_path, capsys, users):
    frame = log(1) if users else log(1).drop(columns="user")
    frame.to_csv(tmp_path / "log.csv", index=False)
    code, out, _ = run(capsys, "estimate", tmp_path / "log.csv", "--target", "target", "--baseline", "today")
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("  recsim-mnar plan ab")]
    assert len(lines) == users
    for line in lines:
        assert run(capsys, *shlex.split(line)[1:])[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "more"),
    [(120, {}), (300, {"precision": 0.08}), (150, {"baseline": "today"})],
    ids=["a value", "a precise value", "a difference"],
)
def test_so_many_users_are_enough(tmp_path, users, more):
    """Of ten logs of the named size seven at least have no such objection: half of the intervals are a bit wider."""
    near = 0.7 * LOGGED + 0.3 * TARGET
    target = near if "baseline" in more else TARGET
    enough = named = 0
    for seed in range(40, 60):
        found = asked(log(seed, users, target), tmp_path / "log.csv", **more).sentence
        times = re.search(r"log about (\d+) times as many users", found.action)
        if times is None or named == 10:
            continue
        named += 1
        larger = log(seed + 1000, users * int(times[1]), target)
        again = asked(larger, tmp_path / "log.csv", **more).sentence
        enough += again.sure == "trust" and again.answer != "cannot_tell"
    assert named >= 5
    assert enough >= 0.65 * named


def test_a_target_that_saw_the_rewards_is_told_so_first(tmp_path):
    frame = log(2)
    frame["target"] = np.where(frame["reward"] > 0, 1.0, 0.1 * frame["propensity"])
    found = asked(frame, tmp_path / "log.csv", baseline="today").sentence
    records = asked(frame, tmp_path / "log.csv").records
    (wanted,) = {for_command(finding(record, "target_knows").action) for record in records}
    assert found.answer == found.sure == "do_not_use"
    assert found.action == wanted


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_who_has_the_most_rows_is_found_and_can_be_left_out(tmp_path, at_once):
    many = log(3).sample(900, random_state=0).assign(user=70_001)
    frame = pd.concat([log(3, users=200), many]).sort_values("time", kind="stable")
    found = asked(frame, tmp_path / "log.csv", refute=at_once)
    first = 1 + int(np.argmax(frame["user"] == 70_001))
    (line,) = [line for line in found.found.lines if "900 rows" in line]
    assert f"row {first} " in line
    assert "70001" not in line  # no id of a user stands on a page
    assert "long_user" in doubts(found.records[0])
    without = asked(frame[frame["user"] != 70_001], tmp_path / "log.csv", refute=at_once)
    assert not [line for line in without.found.lines if "900 rows" in line]
    assert "long_user" not in doubts(without.records[0])


def test_a_bound_that_rows_deny_can_be_stated_as_the_log_has_it(tmp_path):
    denied = asked(log(4), tmp_path / "log.csv", propensity_min=0.2)
    assert denied.sentence.answer == "do_not_use"
    (least,) = set(re.findall(r"the least in the log is ([0-9.]+)", denied.sentence.text))
    assert asked(log(4), tmp_path / "log.csv", propensity_min=float(least)).sentence.sure == "trust"


def test_items_that_the_log_lacks_are_not_called_wrong_propensities_alone(tmp_path):
    """The rows of one item are not there, so the others' mean of 1 / propensity is 1, and exploring is named."""
    frame = log(5)
    frame = frame[frame["action"] != 4].assign(propensity=lambda kept: kept["propensity"] / 0.9)
    found = asked(frame, tmp_path / "log.csv", baseline="today").sentence
    assert found.sure == "do_not_use"
    assert "explor" in found.action


def test_propensities_that_are_too_large_for_every_item_are_named(tmp_path):
    frame = log(6).assign(propensity=lambda rows: np.sqrt(rows["propensity"]))
    found = asked(frame, tmp_path / "log.csv").sentence
    assert found.sure == "do_not_use"
    assert "1 / propensity" in found.action


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
@pytest.mark.parametrize("items", [True, False])
def test_exchanged_columns_are_named_with_the_options_that_exchange_them(tmp_path, at_once, items):
    frame = log(7).rename(columns={"propensity": "old", "target": "new"})
    if not items:
        frame = frame.drop(columns="action")
    frame.to_csv(tmp_path / "log.csv", index=False)
    more = {"baseline": "today", "refute": at_once}
    wrong = recsim_mnar.estimate_file(tmp_path / "log.csv", "old", columns={"propensity": "new"}, **more).sentence
    assert wrong.answer == "do_not_use"
    options = dict(re.findall(r"--(propensity-column|target) (\w+)", for_command(wrong.action)))
    assert options == {"propensity-column": "old", "target": "new"}
    right = recsim_mnar.estimate_file(tmp_path / "log.csv", "new", columns={"propensity": "old"}, **more).sentence
    assert right.sure != "do_not_use"


@pytest.mark.parametrize("target", [0.5, 2.0])
def test_columns_that_are_wrong_in_another_way_are_not_called_exchanged(tmp_path, target):
    frame = log(8)
    wrong = asked(frame.assign(propensity=frame["propensity"] ** target), tmp_path / "log.csv").sentence
    assert wrong.sure == "do_not_use"
    assert "--propensity-column" not in wrong.action


def without_propensities(users: int = 600) -> pd.DataFrame:
    """Rows of a policy that depends on the device, as new policies do, and shows every item."""
    rng = np.random.default_rng(9)
    device = rng.integers(0, 2, 10 * users)
    logged = np.array([LOGGED, LOGGED[::-1]])
    action = (rng.random(len(device))[:, None] > logged.cumsum(axis=1)[device]).sum(axis=1).clip(0, 4)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(users), 10),
            "device": device,
            "action": action,
            "reward": (rng.random(len(device)) < 5 * CLICKED[action]).astype(int),
            "target": np.array([TARGET, TARGET[::-1]])[device, action],
            "apart": np.array([LOGGED, LOGGED[::-1]])[device, action] * 0.8 + 0.04,
        }
    )


@pytest.mark.parametrize("target", ["target", "apart"], ids=["below 1", "above 1"])
def test_a_gap_under_estimated_propensities_is_answered_by_context(tmp_path, target):
    frame = without_propensities()
    frame.to_csv(tmp_path / "log.csv", index=False)
    blind = recsim_mnar.estimate_file(tmp_path / "log.csv", target, baseline="today")
    assert abs(blind.records[0]["diagnostics"]["mean_weight"] - 1.0) > 0.02
    assert blind.sentence.sure == "do_not_use"
    assert "--context-columns" in for_command(blind.sentence.action)
    assert "explor" not in blind.sentence.action
    seen = recsim_mnar.estimate_file(tmp_path / "log.csv", target, baseline="today", context=["device"])
    assert seen.sentence.sure != "do_not_use"


@pytest.mark.parametrize("context", [[], ["device"]])
def test_no_column_is_blamed_alone_where_shares_of_items_stand_for_propensities(tmp_path, context):
    frame = without_propensities()
    frame["propensity"] = frame["action"].map(frame["action"].value_counts(normalize=True))
    found = asked(frame, tmp_path / "log.csv", context=context)
    assert found.sentence.sure == "do_not_use"
    assert ("item_propensities" in doubts(found.records[0])) == bool(context)
    action = for_command(found.sentence.action)
    assert "propensit" in action
    assert ("target" in action) == (not context)  # it is proved innocent by what the context proves
