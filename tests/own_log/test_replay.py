"""Policies replayed on files of one's own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.sources import needs_numbering, read_as_logs
from twins.commands import run

ITEMS = ["apple", "bread", "corn", "dates"]


def events(seed: int = 0, users: int = 60) -> pd.DataFrame:
    """Views and recommendations, one column each for what was viewed and what was shown, in no order of users."""
    rng = np.random.default_rng(seed)
    n = users * 8
    shown = rng.random(n) < 0.5
    items = rng.choice(ITEMS, n)
    return pd.DataFrame(
        {
            "customer": rng.permutation([f"c{seed}{u:03d}" for u in range(users)] * 8),
            "ts": pd.Timestamp("2024-05-01") + pd.to_timedelta(rng.permutation(n), "min"),
            "item_id": np.where(shown, "", items),
            "action": np.where(shown, items, ""),
            "pscore": np.where(shown, 0.25, np.nan),
            "click": np.where(shown, rng.random(n) < 0.3, np.nan),
        }
    )


def write(frame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


def in_one_column(frame):
    """The same rows with a word for what each is, and one column for what was viewed or shown."""
    shown = frame.action != ""
    changed = frame.assign(event_type=np.where(shown, "recommendation", "view"))
    changed["item_id"] = np.where(shown, frame.action, frame.item_id)
    return changed.drop(columns="action")


def test_views_and_recommendations_become_a_log(tmp_path):
    frame = events()
    found = read_as_logs([write(frame, tmp_path / "log.csv", sep=";", decimal=",")])
    log = found.logs[0].validate(found.n_items)
    wanted = frame.sort_values(["customer", "ts"])
    assert log["user_id"].tolist() == wanted.customer.tolist()
    assert log["item_id"].tolist() == np.where(wanted.action != "", wanted.action, wanted.item_id).tolist()
    assert log.is_bandit.tolist() == (wanted.action != "").tolist()
    assert np.all(np.diff(log["time"])[np.diff(log["user"]) == 0] > 0)
    np.testing.assert_array_equal(log["reward"], wanted.click)
    assert [ITEMS[a] for a in log["action"][log.is_bandit]] == [a for a in wanted.action if a]
    same = read_as_logs([write(in_one_column(frame), tmp_path / "one.csv")]).logs[0]
    assert same.digest() == log.digest()
    assert needs_numbering(tmp_path / "log.csv")


def test_two_files_number_items_alike(tmp_path):
    frame = events()
    views = frame[(frame.item_id != "") & (frame.item_id != "apple")][["customer", "ts", "item_id"]]
    log, train = read_as_logs([write(frame, tmp_path / "a.csv"), write(views, tmp_path / "b.csv")]).logs
    assert not train.is_bandit.any()
    assert set(train["item"]) == {1, 2, 3}
    assert [ITEMS[i] for i in train["item"]] == train["item_id"].tolist()
    assert set(log["item"]) == {-1, 0, 1, 2, 3}


def test_rows_that_are_neither_are_counted(tmp_path):
    frame = in_one_column(events())
    frame.loc[:9, "event_type"] = "purchase"
    found = read_as_logs([write(frame, tmp_path / "log.csv")])
    assert "10 rows are neither views nor recommendations (purchase): left out" in found.lines
    assert len(found.logs[0]) == len(frame) - 10
    with pytest.raises(UserError, match="'event_type' holds buy: write view where"):
        read_as_logs([write(frame.assign(event_type="buy"), tmp_path / "log.csv")])


def test_all_faults_at_once(tmp_path):
    frame = events()
    bandit = np.flatnonzero(frame.action != "")
    frame.loc[bandit[:2], "pscore"] = 7.0
    frame.loc[bandit[2], "click"] = np.nan
    frame.loc[3, "customer"] = ""
    path = write(frame, tmp_path / "log.csv")
    with pytest.raises(UserError) as caught:
        read_as_logs([path])
    said = str(caught.value)
    assert f"'pscore' is outside (0, 1] in 2 rows ({bandit[0] + 1}: 7, {bandit[1] + 1}: 7)" in said
    assert f"'click' is missing in row {bandit[2] + 1}" in said
    assert "'customer' is missing in row 4" in said
    frame.loc[bandit[:2], "pscore"] = 0.7
    kept = read_as_logs([write(frame, path)], Reading(drop_missing=True)).logs[0]
    assert len(kept) == len(frame) - len({3, int(bandit[2])})


def test_from_a_file_to_an_estimate(capsys, tmp_path):
    log, train = write(events(), tmp_path / "log.csv"), write(events(1), tmp_path / "train.csv")
    out = tmp_path / "replayed.parquet"
    status, said, err = run(capsys, "replay", log, "--policy", "popularity,random", "--train", train, "--out", out)
    assert status == 0, err
    assert "user: customer; item: item_id; action: action; time: ts" in said
    replayed = Log.read(out)
    shown = replayed.is_bandit
    assert np.all(replayed["random"][shown] == 0.25)
    assert pq.read_table(out).column("item_id").to_pylist()[:3] == replayed["item_id"].tolist()[:3]
    assert run(capsys, "estimate", out, "--target", "popularity", "--baseline", "random")[0] == 0


def test_a_file_without_views_says_so(capsys, tmp_path):
    frame = events()
    log = write(frame[frame.action != ""].drop(columns="item_id"), tmp_path / "log.csv")
    arguments = ["replay", log, "--train", write(events(1), tmp_path / "train.csv"), "--out", tmp_path / "o.parquet"]
    status, _, err = run(capsys, *arguments, "--policy", "user-popularity")
    assert status == 2
    assert "has no item events (views), so user-popularity would act on empty histories" in err
    assert run(capsys, *arguments, "--policy", "random")[0] == 0


def test_our_own_logs_and_others_do_not_mix(capsys, tmp_path):
    log = write(events(), tmp_path / "log.csv")
    out = tmp_path / "own.parquet"
    assert run(capsys, "replay", log, "--policy", "random", "--out", out)[0] == 0
    status, _, err = run(capsys, "replay", log, "--policy", "svd", "--train", out, "--out", tmp_path / "x.parquet")
    assert status == 2
    assert "give LOG and --train in one form" in err
