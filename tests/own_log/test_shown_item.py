"""The column of what was shown, of several with items: chosen by the numbers, or asked about; and lines to type."""

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


@pytest.fixture(params=["sku_shown", "displayed", "item_id", "tile", "tile_sku"])
def shown(request):
    return request.param


@pytest.mark.slow
def test_doctor_says_which_column_was_shown_and_its_line_does_not_accuse_propensities(capsys, save, shown):
    _, out, _ = run(capsys, "doctor", save(table(shown)))
    assert " could be column " not in out
    assert f"- action: {shown}, as 1 / p_logged agrees with it and not with nova_sku\n" in out
    assert "column nova_sku holds items: judge it with --target nova_sku" in out
    line = re.search(r"Type this:\n +(recsim-mnar .*)\n", out)[1]
    assert "--target soft_prob,nova_sku" in line
    assert "proved wrong" not in done(capsys, *shlex.split(line)[1:])


@pytest.mark.slow
def test_estimate_chooses_alike_whether_or_not_the_items_are_its_target(save, shown):
    frame = table(shown)
    log = save(frame)
    of_shares = estimate_log(log, Question(["soft_prob"]))
    assert f"action: {shown}, as 1 / p_logged agrees with it and not with nova_sku" in of_shares.lines
    assert not any("propensities" in codes(record) for record in of_shares.records)
    of_items = estimate_log(log, Question(["nova_sku"], estimators=["ips"]))
    ips = ((frame.nova_sku == frame[shown]) / frame.p_logged * frame.clicks).mean()
    assert of_items.records[0]["value"] == pytest.approx(ips)


def test_the_column_that_the_user_names_is_taken(save):
    log = save(table())
    answer = estimate_log(log, Question(["soft_prob"]), reading=Reading({"action": "nova_sku"}))
    assert not any(line.startswith("action: ") for line in answer.lines)


def test_where_numbers_do_not_tell_both_are_named(save, capsys):
    """Under uniform exploration any shuffled copy agrees as well."""
    rng = np.random.default_rng(0)
    frame = table("tile_sku").drop(columns="nova_sku")
    frame["p_logged"] = 1.0 / 6.0
    for name in ("tile_sku", "nova_sku"):
        frame[name] = ITEMS[rng.integers(0, 6, N)]
    log = save(frame)
    asked = ("estimate", log, "--target", "soft_prob")
    error = fails(capsys, *asked)
    assert all(word in error for word in ("'tile_sku'", "'nova_sku'", "--action-column"))
    _, out, _ = run(capsys, "doctor", log)
    assert "No line to type yet" in out
    assert "! the action could be column 'tile_sku' or 'nova_sku': say which with --action-column" in out
    done(capsys, *asked, "--action-column", "tile_sku")
    by_name = save(frame.rename(columns={"tile_sku": "shown_sku"}))
    lines = estimate_log(by_name, Question(["soft_prob"])).lines
    assert "action: shown_sku, by its name; the same items are in nova_sku" in lines


def test_numbers_against_the_name_are_asked_about(save):
    frame = table("tile_sku").rename(columns={"nova_sku": "shown_sku"})
    with pytest.raises(UserError, match="hold the same items, and which of them was shown is not known"):
        estimate_log(save(frame), Question(["soft_prob"]))


def test_numbers_of_places_are_no_items(save):
    """Small whole numbers are in many columns: of these the name must say that they are items."""
    frame = table("item_id").drop(columns="nova_sku")
    frame["item_id"] = frame.item_id.map({name: place for place, name in enumerate(ITEMS)})
    frame["hour"] = np.arange(N) % 6
    assert BanditLog.open(save(frame), ["soft_prob"]).choice_note == ""
    frame["nova_sku"] = np.where(frame.device == "desk", 3, 1)
    chosen = BanditLog.open(save(frame), ["soft_prob"]).choice_note
    assert chosen == "action: item_id, as 1 / p_logged agrees with it and not with nova_sku"


def test_items_without_the_column_of_what_was_shown_ask_for_it(save, capsys):
    frame = table("tile")
    frame["p_logged"] /= 3.0
    for log, advice in ((frame, "with --action-column (perhaps 'tile')"), (frame.drop(columns="tile"), "--action-col")):
        error = fails(capsys, "estimate", save(log), "--target", "nova_sku")
        assert advice in error
        assert "is not a number" not in error


def test_the_line_that_plans_a_test_reads_the_log_alike(save, capsys):
    log = save(table("displayed").rename(columns={"clicks": "bought_it", "user": "who"}))
    named = ("--action-column", "displayed", "--reward-column", "bought_it", "--user-column", "who")
    asked = ("--target", "nova_sku", "--baseline", "today", "--propensity-min", "0.05", *named)
    out = done(capsys, "estimate", log, *asked)
    line = re.search(r"^ +(recsim-mnar plan ab .*)$", out, re.MULTILINE)[1]
    assert "--action-column displayed" in line
    status, _, error = run(capsys, *shlex.split(line)[1:])
    assert (status, error) == (0, "")


def test_every_line_of_doctor_names_what_was_shown(save):
    log = save(table("displayed"))
    lines = fitting_lines(examine_file(log)).values()
    assert len(lines) > 2
    assert all("--action-column displayed" in line for line in lines)


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
