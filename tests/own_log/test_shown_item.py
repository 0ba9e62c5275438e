"""The column of what was shown, of several with items: chosen by its name, or asked about; and lines to type."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import estimate_file
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor import examine_file
from recsim_mnar.own_log.estimating import Question, estimate_log
from toys import only
from twins.commands import done, fails, run
from twins.findings import codes, fitting_lines

N, EPSILON = 20_000, 0.3
ITEMS = np.array(["tea", "mug", "pot", "jam", "oil", "rye"])


def table(shown: str = "sku_shown") -> pd.DataFrame:
    """A log that is epsilon-greedy by device, with the item that a new policy would show."""
    rng = np.random.default_rng(3)
    device = rng.integers(0, 2, N)
    action = np.where(rng.random(N) < EPSILON, rng.integers(0, 6, N), device)
    rate = np.array([0.05, 0.06, 0.04, 0.14, 0.05, 0.05])[action]
    return pd.DataFrame(
        {
            "user": [f"u{number}" for number in rng.integers(0, 4000, N)],
            "time": pd.Timestamp("2026-03-01") + pd.to_timedelta(np.arange(N) * 2, "min"),
            "device": np.array(["phone", "desk"])[device],
            shown: ITEMS[action],
            "nova_sku": ITEMS[np.where(device == 0, 3, np.where(rng.random(N) < 0.7, 1, 4))],
            "soft_prob": np.where(action == 3, 0.5, 0.1),
            "p_logged": EPSILON / 6 + (1.0 - EPSILON) * (action == device),
            "clicks": (rng.random(N) < rate).astype(int),
        }
    )


def test_a_name_chooses_the_column_for_estimate_and_for_every_line_of_doctor(save):
    log = save(table("displayed"))
    line = "action: displayed, by its name; the same items are in nova_sku and tile"
    save(table("displayed").assign(tile=ITEMS[np.arange(N) % 6]))
    answer = estimate_log(log, Question(["soft_prob"]))
    assert line in answer.lines
    assert not any("propensities" in codes(record) for record in answer.records)
    lines = fitting_lines(examine_file(log)).values()
    assert len(lines) == 2
    assert all("--action-column displayed" in line for line in lines)


def test_items_of_a_policy_are_its_probabilities(save):
    frame = table()
    of_items = estimate_log(save(frame), Question(["nova_sku"], estimators=["ips"]))
    ips = ((frame.nova_sku == frame.sku_shown) / frame.p_logged * frame.clicks).mean()
    assert of_items.records[0]["value"] == pytest.approx(ips)


def test_the_column_that_the_user_names_is_taken(save):
    log = save(table())
    answer = estimate_log(log, Question(["soft_prob"]), reading=Reading({"action": "nova_sku"}))
    assert not any(line.startswith("action: ") for line in answer.lines)


def test_of_two_columns_with_the_same_items_one_is_to_be_named(save, capsys):
    log = save(table("tile_sku"))
    asked = ("estimate", log, "--target", "soft_prob")
    error = fails(capsys, *asked)
    assert all(word in error for word in ("'tile_sku'", "'nova_sku'", "--action-column"))
    _, out, _ = run(capsys, "doctor", log)
    assert "No line to type yet: the action could be column 'tile_sku' or 'nova_sku': say which with --act" in out
    done(capsys, *asked, "--action-column", "tile_sku")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("hour", lambda item: np.arange(N) % 6),
        ("new_sku", lambda item: np.roll(item, 1)),
        ("second", lambda item: item),
        ("seldom", lambda item: np.where(np.arange(N) % 3, "", item)),
    ],
    ids=["numbers of something else", "items of a new policy", "a copy", "mostly empty"],
)
def test_further_columns_with_the_same_values_are_no_rivals(save, name, values):
    frame = table("item_id").drop(columns="nova_sku")
    if name == "hour":
        frame["item_id"] = frame.item_id.map({name: place for place, name in enumerate(ITEMS)})
    frame[name] = values(frame.item_id)
    log = BanditLog.open(save(frame), ["soft_prob"])
    assert (log.columns["action"], log.choice_note) == ("item_id", "")


def test_items_without_the_column_of_what_was_shown_are_no_probabilities(save):
    with pytest.raises(UserError, match="column 'nova_sku' is not a number in 20,000 rows"):
        estimate_log(save(table("tile").drop(columns="tile")), Question(["nova_sku"]))


def test_the_line_that_plans_a_test_reads_the_log_alike(save, capsys):
    log = save(table("displayed").rename(columns={"clicks": "bought_it", "user": "who"}))
    named = ("--action-column", "displayed", "--reward-column", "bought_it", "--user-column", "who")
    asked = ("--target", "nova_sku", "--baseline", "today", "--propensity-min", "0.05", *named)
    out = done(capsys, "estimate", log, *asked)
    line = re.search(r"^ +(recsim-mnar plan ab .*)$", out, re.MULTILINE)[1]
    assert "--action-column displayed" in line
    status, _, error = run(capsys, *shlex.split(line)[1:])
    assert (status, error) == (0, "")


def test_refuters_with_dates_that_cannot_be_read_name_the_option(save, capsys):
    frame = table()
    frame["time"] = frame.time.astype(str)
    frame.loc[::700, "time"] = "soon"
    asked = ("estimate", save(frame), "--target", "soft_prob", "--refute")
    error = fails(capsys, *asked)
    assert "column 'time' is not a date in 29 rows" in error
    assert "--drop-invalid leaves out the rows with values that cannot be read" in error
    done(capsys, *asked, "--drop-invalid")
    frame.loc[::3, "time"] = "soon"  # more than it leaves out unasked
    save(frame)
    assert "--drop-invalid" not in run(capsys, *asked)[2]


def test_0_and_1_of_two_arms_are_asked_about_and_stated(save):
    rng = np.random.default_rng(4)
    n = 800
    suits = rng.permutation(n) % 2
    action = rng.integers(0, 2, n)
    reward = (rng.random(n) < np.where(action == suits, 0.6, 0.1)).astype(int)
    frame = pd.DataFrame({"user_id": np.arange(n) % 300, "action": action, "propensity": 0.5, "reward": reward})
    path = save(frame.assign(fresh=suits))
    with pytest.raises(UserError) as caught:
        estimate_file(path, "fresh")
    assert caught.value.code == "unclear_column"
    for target_is, probability in (("item", action == suits), ("probability", suits)):
        ips = only(estimate_file(path, "fresh", target_is=target_is).records, estimator="ips")
        assert ips["value"] == pytest.approx(np.mean(probability / 0.5 * reward))


@pytest.mark.parametrize("spelled", ["integers", "floats", "words"])
def test_items_are_looked_for_in_all_rows_of_a_log_with_many(save, spelled):
    """In 400 rows each of 300 items is shown once or twice, and those of a new policy are others."""
    rng = np.random.default_rng(7)
    n, n_items = 400, 300
    action = rng.integers(0, n_items, n) + 5000
    new = rng.integers(0, n_items, n) + 5000
    frame = pd.DataFrame({"user_id": np.arange(n), "action": action, "propensity": 1 / n_items, "reward": 1})
    frame["new"] = new
    if spelled == "floats":
        frame["new"] = frame.new.astype(float)
    if spelled == "words":
        frame["action"] = "item" + frame.action.astype(str)
        frame["new"] = "item" + frame.new.astype(str)
    ips = only(estimate_file(save(frame), "new").records, estimator="ips")
    assert ips["value"] == pytest.approx(n_items * np.mean(action == new))
