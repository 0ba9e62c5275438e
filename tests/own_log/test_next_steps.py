"""The next step of an answer can be typed, or done, and then the objection is gone."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd
import pytest

import recsim_mnar
from recsim_mnar.estimators.verdict import for_command
from toys import drawn_rows
from twins.commands import done
from twins.findings import doubts, finding

LOGGED = np.array([0.3, 0.3, 0.2, 0.1, 0.1])
TARGET = np.array([0.1, 0.1, 0.2, 0.3, 0.3])
CLICKED = np.array([0.02, 0.03, 0.04, 0.05, 0.06])


def log(seed: int, users: int = 600, target: np.ndarray = TARGET) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = drawn_rows(rng, rng.poisson(10, users) + 1, LOGGED, CLICKED, target=target)
    return rows.assign(time=1_600_000_000 + 10 * np.arange(len(rows)))


@pytest.mark.parametrize("users", [True, False])
def test_a_test_is_planned_where_its_line_runs(save, capsys, users):
    frame = log(1)
    if not users:
        del frame["user"]
    path = save(frame)
    out = done(capsys, "estimate", path, "--target", "target", "--baseline", "today")
    lines = [line for line in out.splitlines() if line.startswith("  recsim-mnar plan ab")]
    assert len(lines) == users
    for line in lines:
        done(capsys, *shlex.split(line)[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "more"),
    [(120, {}), (300, {"precision": 0.08}), (150, {"baseline": "today"})],
    ids=["a value", "a precise value", "a difference"],
)
def test_so_many_users_are_enough(answer_of, users, more):
    """At least seven of ten logs of the named size have no such objection: half of the intervals are a bit wider."""
    target = TARGET
    if "baseline" in more:
        target = 0.7 * LOGGED + 0.3 * TARGET
    enough = named = 0
    for seed in range(40, 60):
        sentence = answer_of(log(seed, users, target), **more).sentence
        times = re.search(r"log about (\d+) times as many users", sentence.action)
        if times is None or named == 10:
            continue
        named += 1
        larger = answer_of(log(seed + 1000, users * int(times[1]), target), **more).sentence
        enough += larger.sure == "trust" and larger.answer != "cannot_tell"
    assert named >= 5
    assert enough >= 0.65 * named


def test_a_target_that_saw_the_rewards_is_told_so_first(answer_of):
    frame = log(2)
    frame["target"] = np.where(frame["reward"] > 0, 1.0, 0.1 * frame["propensity"])
    sentence = answer_of(frame, baseline="today").sentence
    actions = {for_command(finding(record, "target_knows").action) for record in answer_of(frame).records}
    assert sentence.answer == sentence.sure == "do_not_use"
    assert {sentence.action} == actions


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_a_user_with_many_rows_is_found(answer_of, at_once):
    many = log(3).sample(900, random_state=0).assign(user=70_001)
    frame = pd.concat([log(3, users=200), many]).sort_values("time", kind="stable")
    answer = answer_of(frame, refute=at_once)
    assert "long_user" in doubts(answer.records[0])
    without = answer_of(frame[frame["user"] != 70_001], refute=at_once)
    assert "long_user" not in doubts(without.records[0])


def test_a_bound_that_rows_deny_can_be_stated_as_the_log_has_it(answer_of):
    denied = answer_of(log(4), propensity_min=0.2).sentence
    assert denied.answer == "do_not_use"
    (least,) = set(re.findall(r"the least in the log is ([0-9.]+)", denied.text))
    assert answer_of(log(4), propensity_min=float(least)).sentence.sure == "trust"


def test_items_that_the_log_lacks_are_not_called_wrong_propensities_alone(answer_of):
    """The rows of one item are not there, so the others' mean of 1 / propensity is 1, and exploring is named."""
    frame = log(5)
    frame = frame[frame["action"] != 4].assign(propensity=lambda kept: kept["propensity"] / 0.9)
    sentence = answer_of(frame, baseline="today").sentence
    assert sentence.sure == "do_not_use"
    assert "explor" in sentence.action


def test_propensities_that_are_too_large_for_every_item_are_named(answer_of):
    sentence = answer_of(log(6).assign(propensity=lambda rows: np.sqrt(rows["propensity"]))).sentence
    assert sentence.sure == "do_not_use"
    assert "1 / propensity" in sentence.action


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
def test_a_gap_under_estimated_propensities_is_answered_by_context(save, target):
    frame = without_propensities()
    path = save(frame)
    blind = recsim_mnar.estimate_file(path, target, baseline="today")
    assert abs(blind.records[0]["diagnostics"]["mean_weight"] - 1.0) > 0.02
    assert blind.sentence.sure == "do_not_use"
    assert "--context-columns" in for_command(blind.sentence.action)
    assert "explor" not in blind.sentence.action
    seen = recsim_mnar.estimate_file(path, target, baseline="today", context=["device"])
    assert seen.sentence.sure != "do_not_use"


@pytest.mark.parametrize("context", [[], ["device"]])
def test_no_column_is_blamed_alone_where_shares_of_items_stand_for_propensities(answer_of, context):
    frame = without_propensities()
    frame["propensity"] = frame["action"].map(frame["action"].value_counts(normalize=True))
    found = answer_of(frame, context=context)
    assert found.sentence.sure == "do_not_use"
    assert ("item_propensities" in doubts(found.records[0])) == bool(context)
    action = for_command(found.sentence.action)
    assert "propensit" in action
    assert ("target" in action) == (not context)  # it is proved innocent by what the context proves
