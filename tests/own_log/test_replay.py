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
from twins.commands import done, fails

ITEMS = ["apple", "bread", "corn", "dates"]


def events(seed: int = 0) -> pd.DataFrame:
    """Views and recommendations, one column each for what was viewed and what was shown, in no order of users."""
    users = 60
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


def in_one_column(frame):
    """The same rows with a word for what each is, and one column for what was viewed or shown."""
    shown = frame.action != ""
    changed = frame.assign(event_type=np.where(shown, "recommendation", "view"))
    changed["item_id"] = np.where(shown, frame.action, frame.item_id)
    return changed.drop(columns="action")


def test_views_and_recommendations_become_a_log(save):
    frame = events()
    path = save(frame, sep=";", decimal=",")
    sources = read_as_logs([path])
    log = sources.logs[0].validate(sources.n_items)
    rows = frame.sort_values(["customer", "ts"])
    shown = rows.action != ""
    np.testing.assert_array_equal(log["user_id"], rows.customer)
    np.testing.assert_array_equal(log["item_id"], rows.action.where(shown, rows.item_id))
    np.testing.assert_array_equal(log.is_bandit, shown)
    np.testing.assert_array_equal(log["reward"], rows.click)
    np.testing.assert_array_equal(np.take(ITEMS, log["action"][log.is_bandit]), rows.action[shown])
    assert np.all(np.diff(log["time"])[np.diff(log["user"]) == 0] > 0)
    one_column = read_as_logs([save(in_one_column(frame), "one.csv")]).logs[0]
    assert one_column.digest() == log.digest()
    assert needs_numbering(path)


def test_two_files_number_items_alike(save):
    frame = events()
    views = frame[(frame.item_id != "") & (frame.item_id != "apple")][["customer", "ts", "item_id"]]
    log, train = read_as_logs([save(frame, "a.csv"), save(views, "b.csv")]).logs
    assert not train.is_bandit.any()
    assert set(train["item"]) == {1, 2, 3}
    assert [ITEMS[i] for i in train["item"]] == train["item_id"].tolist()
    assert set(log["item"]) == {-1, 0, 1, 2, 3}


def test_rows_that_are_neither_are_counted(save):
    frame = in_one_column(events())
    frame.loc[:9, "event_type"] = "purchase"
    sources = read_as_logs([save(frame)])
    assert "10 rows are neither views nor recommendations (purchase): left out" in sources.lines
    assert len(sources.logs[0]) == len(frame) - 10
    with pytest.raises(UserError, match="'event_type' holds buy: write view where"):
        read_as_logs([save(frame.assign(event_type="buy"))])


def test_all_faults_at_once(save):
    frame = events()
    first, second, third = np.flatnonzero(frame.action != "")[:3]
    frame.loc[[first, second], "pscore"] = 7.0
    frame.loc[third, "click"] = np.nan
    frame.loc[3, "customer"] = ""
    path = save(frame)
    with pytest.raises(UserError) as caught:
        read_as_logs([path])
    message = str(caught.value)
    assert f"'pscore' is outside (0, 1] in 2 rows ({first + 1}: 7, {second + 1}: 7)" in message
    assert f"'click' is missing in row {third + 1}" in message
    assert "'customer' is missing in row 4" in message
    frame.loc[[first, second], "pscore"] = 0.7
    kept = read_as_logs([save(frame)], Reading(drop_missing=True)).logs[0]
    assert len(kept) == len(frame) - len({3, int(third)})


@pytest.fixture
def train(save):
    return save(events(1), "train.csv")


def test_from_a_file_to_an_estimate(capsys, save, tmp_path, train):
    log = save(events())
    replayed = tmp_path / "replayed.parquet"
    out = done(capsys, "replay", log, "--policy", "popularity,random", "--train", train, "--out", replayed)
    assert "user: customer; item: item_id; action: action; time: ts" in out
    table = Log.read(replayed)
    np.testing.assert_array_equal(table["random"][table.is_bandit], 0.25)
    assert pq.read_table(replayed).column("item_id").to_pylist() == table["item_id"].tolist()
    done(capsys, "estimate", replayed, "--target", "popularity", "--baseline", "random")


def test_a_file_without_views_says_so(capsys, save, tmp_path, train):
    frame = events()
    log = save(frame[frame.action != ""].drop(columns="item_id"))
    words = ("replay", log, "--train", train, "--out", tmp_path / "o.parquet", "--policy")
    error = fails(capsys, *words, "user-popularity")
    assert "has no item events (views), so user-popularity would act on empty histories" in error
    done(capsys, *words, "random")


def test_our_own_logs_and_others_do_not_mix(capsys, save, tmp_path):
    log = save(events())
    ours = tmp_path / "own.parquet"
    done(capsys, "replay", log, "--policy", "random", "--out", ours)
    error = fails(capsys, "replay", log, "--policy", "svd", "--train", ours, "--out", tmp_path / "x.parquet")
    assert "give LOG and --train in one form" in error
