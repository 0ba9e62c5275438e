"""Agents judged by a log: as the three commands by hand, a better one that was planted, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import Log, estimate_agents, plan_ab
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.replaying import given_logs, halves_of
from twins.commands import run

ITEMS, VIEWS, SHOWN = 5, 3, 6
AGENTS = ("user-popularity-greedy", "constant+item=0")


def shop(users=600, seed=0, liked=0.4):
    """Users view their favourite item, are shown items drawn uniformly, and click their favourite with ``liked``."""
    rng = np.random.default_rng(seed)
    favourite = rng.integers(ITEMS, size=(users, 1))
    action = rng.integers(ITEMS, size=(users, SHOWN))
    reward = rng.random(action.shape) < np.where(action == favourite, liked, 0.05)
    view = np.broadcast_to(favourite, (users, VIEWS))
    none = np.full(view.shape, np.nan)
    steps = VIEWS + SHOWN
    return pd.DataFrame(
        {
            "visitor_id": np.repeat([f"v{user}" for user in range(users)], steps),
            "occurred_at": np.tile(np.arange(steps), users) + 1.7e9,
            "event_type": np.tile(["view"] * VIEWS + ["recommendation"] * SHOWN, users),
            "item_id": np.hstack([view, action]).ravel(),
            "propensity_score": np.hstack([none, np.full(action.shape, 1.0 / ITEMS)]).ravel(),
            "click": np.hstack([none, reward]).ravel(),
        }
    )


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "shop.csv"
    shop().to_csv(path, index=False)
    return path


def content(path):
    """Records of an estimate, without what names its file."""
    records = json.loads(path.read_text())
    return [{name: each[name] for name in each if name != "input"} for each in records]


def test_it_is_the_three_commands_by_hand(capsys, tmp_path):
    made = ("--world", "sessions", "--preset", "quick", "--set", "n_items=10", "--set", "n_flips=5", "--seed", 3)
    policy = ("--policy", "user-popularity+epsilon=0.5", "--users", 400, "--out", tmp_path / "made")
    assert run(capsys, "simulate", *made, *policy)[0] == 0
    agents, whole = "user-popularity-greedy+epsilon=0.5,popularity+epsilon=0.5", tmp_path / "made"
    status, said, _ = run(capsys, "estimate", whole, "--agents", agents, "--json", tmp_path / "at-once.json")
    assert status == 0
    by_hand = ("--policy", agents, "--split-users", "--out", tmp_path / "r.parquet")
    assert run(capsys, "replay", whole, *by_hand)[0] == 0
    asked = ("--target", agents, "--baseline", "today", "--json", tmp_path / "by-hand.json")
    assert run(capsys, "estimate", tmp_path / "r-half-1.parquet", *asked)[0] == 0
    records = content(tmp_path / "by-hand.json")
    assert content(tmp_path / "at-once.json") == records
    in_python = estimate_agents(whole, agents.split(","))
    assert [each["value"] for each in in_python.records] == [each["value"] for each in records]
    lift = records[0]["sentence"]["change_percent"]
    assert records[0]["sentence"]["answer"] == "cannot_tell"
    assert lift > 0
    assert f"needs {plan_ab(whole, f'{lift:.3g}%').users:,} users per arm" in said


def test_an_agent_that_is_better_leads(log, capsys):
    asked = ("--agents", ",".join(AGENTS), "--propensity-min", 1.0 / ITEMS, "--require", "better")
    status, said, _ = run(capsys, "estimate", log, *asked)
    assert "user-popularity-greedy is ahead of the random traffic (verdict: trust)." in said
    assert status == 3  # the other one is not better
    found = estimate_agents(log, AGENTS, propensity_min=1.0 / ITEMS)
    assert (found.answer, found.sentence.policy) == ("better", "user-popularity-greedy")
    target = next(each for each in found.records if each["leads"] and each["policy"] == "user-popularity-greedy")
    assert target["low"] < 0.4 < target["high"]


def test_where_favourites_are_clicked_no_more_none_is_ahead(tmp_path, capsys):
    path = tmp_path / "shop.csv"
    shop(liked=0.05).to_csv(path, index=False)
    status, said, _ = run(capsys, "estimate", path, "--agents", AGENTS[0], "--propensity-min", 1.0 / ITEMS)
    assert status == 0
    assert "No agent is known to be ahead of the random traffic." in said


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_agents_are_fitted_on_the_share_of_users_that_is_named(log, share):
    given = given_logs(log, None, Reading())
    part = halves_of(given, 0, share)[0]
    judged, fitted = part.whole().users(), part.training.users()
    assert len(judged) + len(fitted) == 600
    assert len(fitted) / 600 == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 600))


def test_a_log_without_propensities_is_refused_in_a_line(log, capsys, tmp_path):
    bare = tmp_path / "bare.csv"
    pd.read_csv(log).drop(columns="propensity_score").to_csv(bare, index=False)
    status, out, error = run(capsys, "estimate", bare, "--agents", "random,popularity")
    assert (status, out) == (2, "")
    assert "propensity" in error.splitlines()[-1]
    whole = given_logs(log, None, Reading()).whole()
    some = np.where(np.arange(len(whole)) % 50 == 5, np.nan, whole["propensity"])
    Log({**whole.columns, "propensity": some}).write(tmp_path / "some")
    with pytest.raises(UserError, match="propensity") as caught:
        estimate_agents(tmp_path / "some", ["random"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agents", "rndom"), "did you mean 'random'"),
        (("--agents", "random", "--target", "x"), "--target and --agents"),
        (("--agents", "random", "--baseline", "x"), "--baseline x"),
        (("--agents", "random", "--train-share", "50"), "--train-share must be in (0, 1)"),
        (("--target", "x", "--train-share", "0.5"), "no effect without --agents"),
    ],
)
def test_what_means_nothing_is_refused(log, capsys, words, said):
    status, out, error = run(capsys, "estimate", log, *words)
    assert (status, out) == (2, "")
    assert said in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("agents", "asked", "said"),
    [
        ("random", {}, "a list of texts"),
        ([], {}, "at least one"),
        (["random", "random"], {}, "different names"),
        (["random"], {"train_share": 0}, "train_share must be in"),
        (["random"], {"baseline": "x"}, "no argument 'baseline'"),
    ],
)
def test_calls_that_mean_nothing_are_refused(log, agents, asked, said):
    with pytest.raises(UserError, match=said):
        estimate_agents(log, agents, **asked)
