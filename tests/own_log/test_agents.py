"""Agents judged by a log: as the three commands by hand, a better one that was planted, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import Log, estimate_agents, plan_ab
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.replaying import given_logs, split
from toys import only, read_json, refused
from twins.commands import done, fails, run

ITEMS, VIEWS, SHOWN = 5, 3, 6
AGENTS = ("user-popularity-greedy", "constant+item=0")


def shop(liked=0.4):
    """Users view their favourite item, are shown items drawn uniformly, and click their favourite with ``liked``."""
    users = 600
    rng = np.random.default_rng(0)
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


def test_the_command_says_what_the_function_does(capsys, tmp_path):
    log = tmp_path / "made"
    world = ("--world", "sessions", "--preset", "quick", "--set", "n_items=10", "--set", "n_flips=5", "--seed", 3)
    done(capsys, "simulate", *world, "--policy", "user-popularity+epsilon=0.5", "--users", 400, "--out", log)
    agents = "user-popularity-greedy+epsilon=0.5,popularity+epsilon=0.5"
    out = done(capsys, "estimate", log, "--agents", agents, "--json", tmp_path / "at-once.json")
    records = read_json(tmp_path / "at-once.json")
    in_python = estimate_agents(log, agents.split(",")).records
    assert [record["value"] for record in in_python] == [record["value"] for record in records]
    sentence = records[0]["sentence"]
    lift = sentence["change_percent"]
    assert sentence["answer"] == "cannot_tell"
    assert lift > 0
    assert f"needs {plan_ab(log, f'{lift:.3g}%').users:,} users per arm" in out


def test_an_agent_that_is_better_leads(log, capsys):
    asked = ("--agents", ",".join(AGENTS), "--propensity-min", 1.0 / ITEMS, "--require", "better")
    status, out, _ = run(capsys, "estimate", log, *asked)
    assert status == 3  # the other one is not better
    assert "user-popularity-greedy is ahead of the random traffic (verdict: trust)." in out
    answer = estimate_agents(log, AGENTS, propensity_min=1.0 / ITEMS)
    assert (answer.answer, answer.sentence.policy) == ("better", "user-popularity-greedy")
    target = only(answer.records, leads=True, policy="user-popularity-greedy")
    assert target["low"] < 0.4 < target["high"]


def test_where_favourites_are_clicked_no_more_none_is_ahead(save, capsys):
    path = save(shop(liked=0.05), "shop.csv")
    asked = ("--agents", AGENTS[0], "--propensity-min", 1.0 / ITEMS)
    out = done(capsys, "estimate", path, *asked)
    assert "No agent is known to be ahead of the random traffic." in out


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_agents_are_fitted_on_the_share_of_users_that_is_named(log, share):
    part = split(given_logs(log, None, Reading()), 0, share)
    n_judged = len(part.whole().users())
    n_fitted = len(part.training.users())
    assert n_judged + n_fitted == 600
    assert n_fitted / 600 == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 600))


def test_a_log_without_propensities_is_refused_in_a_line(log, capsys, tmp_path):
    bare = tmp_path / "bare.csv"
    pd.read_csv(log).drop(columns="propensity_score").to_csv(bare, index=False)
    assert "propensity" in fails(capsys, "estimate", bare, "--agents", "random,popularity")


def test_a_log_that_lacks_some_propensities_is_refused_in_a_line(log, tmp_path):
    whole = given_logs(log, None, Reading()).whole()
    some = np.where(np.arange(len(whole)) % 50 == 5, np.nan, whole["propensity"])
    Log({**whole.columns, "propensity": some}).write(tmp_path / "some")
    with refused("propensity"):
        estimate_agents(tmp_path / "some", ["random"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--agents", "rndom"), "did you mean 'random'"),
        (("--agents", "random", "--target", "x"), "--target and --agents"),
        (("--agents", "random", "--baseline", "x"), "--baseline x"),
        (("--agents", "random", "--train-share", "50"), "--train-share must be in (0, 1)"),
        (("--target", "x", "--train-share", "0.5"), "no effect without --agents"),
    ],
)
def test_what_means_nothing_is_refused(log, capsys, words, message):
    assert message in fails(capsys, "estimate", log, *words)


@pytest.mark.parametrize(
    ("agents", "asked", "message"),
    [
        ("random", {}, "a list of texts"),
        ([], {}, "at least one"),
        (["random", "random"], {}, "different names"),
        (["random"], {"train_share": 0}, "train_share must be in"),
        (["random"], {"baseline": "x"}, "no argument 'baseline'"),
    ],
)
def test_calls_that_mean_nothing_are_refused(log, agents, asked, message):
    with pytest.raises(UserError, match=message):
        estimate_agents(log, agents, **asked)
