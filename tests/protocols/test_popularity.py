"""Popularity of what is recommended: shares by groups of items, and the same from a comparison."""

import itertools
import json

import numpy as np
import pytest

from recsim_mnar.log.table import Log
from recsim_mnar.protocols.ab_test import popularity
from recsim_mnar.report.page import popularity_figure
from twins.commands import status_of


def test_shares_by_rank_of_views():
    views = np.array([1, 9, 0, 5])
    rows = popularity(views, {"a": np.array([0, 3, 1, 0])})
    assert [(r["what"], r["agent"]) for r in rows] == [("views", "")] * 4 + [("recommendations", "a")] * 4
    assert [r["share"] for r in rows[:4]] == [9 / 15, 5 / 15, 1 / 15, 0.0]
    assert [r["share"] for r in rows[4:]] == [0.75, 0.0, 0.0, 0.25]
    assert [(r["first_rank"], r["last_rank"]) for r in rows[:4]] == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize("n_items", [1, 7, 10, 13, 200])
def test_groups_hold_every_item_once(n_items):
    rng = np.random.default_rng(0)
    rows = popularity(rng.integers(1, 50, n_items), {"a": rng.integers(1, 9, n_items)})
    own = [r for r in rows if r["agent"] == "a"]
    assert own[0]["first_rank"] == 1
    assert own[-1]["last_rank"] == n_items
    assert all(a["last_rank"] + 1 == b["first_rank"] for a, b in itertools.pairwise(own))
    assert sum(r["share"] for r in own) == pytest.approx(1.0)
    assert sum(r["items"] for r in own) == n_items


def test_without_views_there_is_no_order_and_no_figure():
    assert popularity(np.zeros(3, np.int64), {"a": np.ones(3, np.int64)}) == []
    assert popularity_figure([]) is None


def test_a_comparison_tells_weights_and_popularity(tmp_path):
    """Those of its own log and arms, in the summary, in --json and in the page."""
    out = tmp_path / "run"
    asked = ["--preset", "quick", "--agents", "random,popularity", "--option", "truth_users=200", "--seed", "3"]
    assert status_of("compare", *asked, "--out", out, "--json", tmp_path / "all.json") == 0
    found = json.loads((tmp_path / "all.json").read_text())
    summary = json.loads((out / "summary.json").read_text())
    log = Log.read(out / "log")
    shown = log.is_bandit
    views = np.bincount(log["item"][~shown], minlength=200)
    for each in (found, summary):
        by_agent = {row["policy"]: row for row in each["weights"]}
        uniform = 1 / 200 / log["propensity"][shown]
        assert by_agent["random"]["rows"] == shown.sum()
        assert by_agent["random"]["effective"] == pytest.approx(uniform.sum() ** 2 / (uniform**2).sum())
        assert each["clip"] == 15.0
        rows = each["popularity"]
        own = [row["share"] for row in rows if row["what"] == "views"]
        assert own == pytest.approx(np.sort(views)[::-1].reshape(10, 20).sum(axis=1) / views.sum())
        assert {row["agent"] for row in rows} == {"", "random", "popularity"}
        assert next(row["items"] for row in rows if row["agent"] == "popularity") == 1
