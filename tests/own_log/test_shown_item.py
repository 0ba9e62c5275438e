"""Which of several columns of items was shown: chosen by the numbers and said, or asked about; and lines to type."""

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
from recsim_mnar.own_log.doctor_commands import commands_for
from recsim_mnar.own_log.estimating import Question, estimate_log
from twins.commands import run
from twins.findings import codes

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
            "user": [f"u{each}" for each in rng.integers(0, 4000, N)],
            "time": pd.Timestamp("2026-03-01") + pd.to_timedelta(np.arange(N) * 2, "min"),
            "device": np.array(["phone", "desk"])[device],
            shown: ITEMS[action],
            "nova_sku": ITEMS[np.where(device == 0, 3, np.where(rng.random(N) < 0.7, 1, 4))],
            "soft_prob": np.where(action == 3, 0.5, 0.1),
            "p_logged": EPSILON / 6 + (1.0 - EPSILON) * (action == device),
            "clicks": (rng.random(N) < rate).astype(int),
        }
    )


def write(frame, path):
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(params=["sku_shown", "displayed", "item_id", "tile", "tile_sku"])
def shown(request):
    return request.param


@pytest.fixture
def log(tmp_path, shown):
    return write(table(shown), tmp_path / "log.csv")


@pytest.mark.slow
def test_doctor_says_which_column_was_shown_and_its_line_does_not_accuse_propensities(capsys, log, shown):
    _, out, _ = run(capsys, "doctor", log)
    assert " could be column " not in out
    assert f"- action: {shown}, as 1 / p_logged agrees with it and not with nova_sku\n" in out
    assert "column nova_sku holds items: judge it with --target nova_sku" in out
    line = re.search(r"Type this:\n +(recsim-mnar .*)\n", out)[1]
    assert "--target soft_prob,nova_sku" in line
    status, out, _ = run(capsys, *shlex.split(line)[1:])
    assert status == 0
    assert "proved wrong" not in out


@pytest.mark.slow
def test_estimate_chooses_alike_whether_or_not_the_items_are_its_target(log, shown):
    frame = table(shown)
    of_shares = estimate_log(log, Question(["soft_prob"]))
    assert f"action: {shown}, as 1 / p_logged agrees with it and not with nova_sku" in of_shares.lines
    assert not any("propensities" in codes(record) for record in of_shares.records)
    of_items = estimate_log(log, Question(["nova_sku"], estimators=["ips"]))
    ips = ((frame.nova_sku == frame[shown]) / frame.p_logged * frame.clicks).mean()
    assert of_items.records[0]["value"] == pytest.approx(ips)


def test_the_wrong_column_named_is_taken_as_the_user_says(tmp_path):
    """What the user names wins."""
    log = write(table(), tmp_path / "log.csv")
    answer = estimate_log(log, Question(["soft_prob"]), reading=Reading({"action": "nova_sku"}))
    assert [line for line in answer.lines if line.startswith("action: ")] == []


def test_where_numbers_do_not_tell_both_are_named(tmp_path, capsys):
    """Under uniform exploration any shuffled copy agrees as well."""
    frame = table("tile_sku").drop(columns="nova_sku")
    rng = np.random.default_rng(0)
    frame["tile_sku"], frame["p_logged"] = ITEMS[rng.integers(0, 6, N)], 1.0 / 6.0
    frame["nova_sku"] = ITEMS[rng.integers(0, 6, N)]
    log = write(frame, tmp_path / "log.csv")
    asked = ("estimate", log, "--target", "soft_prob")
    status, _, error = run(capsys, *asked)
    assert status == 2
    assert "hold the same items, and which of them was shown is not known" in error
    assert all(word in error for word in ("'tile_sku'", "'nova_sku'", "--action-column"))
    _, out, _ = run(capsys, "doctor", log)
    assert "No line to type yet" in out
    assert "! the action could be column 'tile_sku' or 'nova_sku': say which with --action-column" in out
    assert run(capsys, *asked, "--action-column", "tile_sku")[0] == 0
    # A name that says so decides, and that is said, too.
    log = write(frame.rename(columns={"tile_sku": "shown_sku"}), log)
    lines = estimate_log(log, Question(["soft_prob"])).lines
    assert "action: shown_sku, by its name; the same items are in nova_sku" in lines


def test_numbers_against_the_name_are_asked_about(tmp_path):
    frame = table("tile_sku").rename(columns={"nova_sku": "shown_sku"})
    with pytest.raises(UserError, match="hold the same items, and which of them was shown is not known"):
        estimate_log(write(frame, tmp_path / "log.csv"), Question(["soft_prob"]))


def test_numbers_of_places_are_no_items(tmp_path):
    """Small whole numbers are in many columns: of these the name must say that they are items."""
    frame = table("item_id").drop(columns="nova_sku")
    frame["item_id"] = frame.item_id.map({name: place for place, name in enumerate(ITEMS)})
    frame["hour"] = np.arange(N) % 6
    assert BanditLog.open(write(frame, tmp_path / "log.csv"), ["soft_prob"]).choice_note == ""
    frame["nova_sku"] = np.where(frame.device == "desk", 3, 1)
    chosen = BanditLog.open(write(frame, tmp_path / "log.csv"), ["soft_prob"]).choice_note
    assert chosen == "action: item_id, as 1 / p_logged agrees with it and not with nova_sku"


def test_items_without_what_was_shown_say_what_is_lacking(tmp_path, capsys):
    frame = table("tile")
    frame["p_logged"] /= 3.0
    status, _, error = run(capsys, "estimate", write(frame, tmp_path / "log.csv"), "--target", "nova_sku")
    assert status == 2
    assert "column 'nova_sku' holds items, it seems, and no probabilities" in error
    assert "the column of what was shown, which is not known, with --action-column (perhaps 'tile')" in error
    frame = frame.drop(columns="tile")
    status, _, error = run(capsys, "estimate", write(frame, tmp_path / "log.csv"), "--target", "nova_sku")
    assert status == 2
    assert "is not a number" not in error
    assert "--action-column" in error


def test_the_line_that_plans_a_test_reads_the_log_alike(tmp_path, capsys):
    log = write(table("displayed").rename(columns={"clicks": "bought_it", "user": "who"}), tmp_path / "log.csv")
    named = ("--action-column", "displayed", "--reward-column", "bought_it", "--user-column", "who")
    asked = ("--target", "nova_sku", "--baseline", "today", "--propensity-min", "0.05", *named)
    status, out, _ = run(capsys, "estimate", log, *asked)
    assert status == 0
    line = re.search(r"^ +(recsim-mnar plan ab .*)$", out, re.MULTILINE)[1]
    assert "--action-column displayed" in line
    status, out, error = run(capsys, *shlex.split(line)[1:])
    assert (status, error) == (0, "")
    assert "users per arm" in out or "Run " in out


def test_every_line_of_doctor_names_what_was_shown(tmp_path):
    log = write(table("displayed"), tmp_path / "log.csv")
    lines = [fit.line for fit in commands_for(examine_file(log)) if fit.fits]
    assert len(lines) > 2
    assert all("--action-column displayed" in line for line in lines)


def test_refuters_with_dates_that_cannot_be_read_name_the_option(tmp_path, capsys):
    frame = table()
    frame["time"] = frame.time.astype(str)
    frame.loc[::700, "time"] = "soon"
    asked = ("estimate", write(frame, tmp_path / "log.csv"), "--target", "soft_prob", "--refute")
    status, _, error = run(capsys, *asked)
    assert status == 2
    assert "column 'time' is not a date in 29 rows" in error
    assert "--drop-invalid leaves out the rows with values that cannot be read" in error
    assert run(capsys, *asked, "--drop-invalid")[0] == 0
    frame.loc[::3, "time"] = "soon"  # more than it leaves out unasked
    assert "--drop-invalid" not in run(capsys, *asked[:1], write(frame, tmp_path / "log.csv"), *asked[2:])[2]


def _two_arms(n=800):
    rng = np.random.default_rng(4)
    suits, action = rng.permutation(n) % 2, rng.integers(0, 2, n)
    reward = (rng.random(n) < np.where(action == suits, 0.6, 0.1)).astype(int)
    frame = pd.DataFrame({"user_id": np.arange(n) % 300, "action": action, "propensity": 0.5, "reward": reward})
    return frame.assign(fresh=suits), float(((action == suits) / 0.5 * reward).mean())


def test_0_and_1_of_two_arms_are_asked_about_and_stated(tmp_path):
    frame, by_hand = _two_arms()
    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(UserError) as caught:
        estimate_file(path, "fresh")
    assert caught.value.code == "unclear_column"
    ips = [record for record in estimate_file(path, "fresh", target_is="item").records if record["estimator"] == "ips"]
    assert ips[0]["value"] == pytest.approx(by_hand)
    as_chances = estimate_file(path, "fresh", target_is="probability").records
    other = [record for record in as_chances if record["estimator"] == "ips"]
    assert other[0]["value"] == pytest.approx(float((frame.fresh / 0.5 * frame.reward).mean()))


@pytest.mark.parametrize("spelled", ["integers", "floats", "words"])
def test_items_are_looked_for_in_all_rows_of_a_log_with_many(tmp_path, spelled):
    """In 400 rows each of 300 items is shown once or twice, and those of a new policy are others."""
    rng = np.random.default_rng(7)
    n, n_items = 400, 300
    action, new = rng.integers(0, n_items, n) + 5000, rng.integers(0, n_items, n) + 5000
    frame = pd.DataFrame({"user_id": np.arange(n), "action": action, "propensity": 1 / n_items, "reward": 1})
    frame["new"] = new
    if spelled == "floats":
        frame["new"] = frame.new.astype(float)
    if spelled == "words":
        frame["action"], frame["new"] = ("item" + frame[name].astype(str) for name in ("action", "new"))
    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    ips = [record for record in estimate_file(path, "new").records if record["estimator"] == "ips"]
    assert ips[0]["value"] == pytest.approx(n_items * float((action == new).mean()))
