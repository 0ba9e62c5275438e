"""The page of ``simulate --report``: the log in numbers, block by block, and lines that run as they stand."""

from __future__ import annotations

import html
import json
import re
import shlex

import numpy as np
import pytest

from recsim_mnar.log.table import Log
from recsim_mnar.own_log import in_numbers
from recsim_mnar.own_log.in_numbers import Lengths, LogNumbers, log_in_numbers
from recsim_mnar.report.world_pages import write_log_page
from twins.commands import status_of as run
from twins.own_schema import estimate_file
from twins.pages import unlinked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("simulated") / "a log"
    asked = ("--world", "sessions", "--preset", "quick", "--policy", "user-popularity+epsilon=0.2", "--users", 120)
    assert run("simulate", *asked, "--report", "--out", out, "--json", out.with_name("result.json")) == 0
    return out


def test_the_numbers_are_those_of_the_whole_log(folder, monkeypatch):
    """Counted in one go from the table; in blocks of seven users the same."""
    whole = log_in_numbers(folder / "log")
    monkeypatch.setattr(in_numbers, "_USERS", 7)
    blocks = log_in_numbers(folder / "log")
    log = Log.read(folder / "log")
    shown, user = log.is_bandit, log["user"]
    for found in (whole, blocks):
        assert (found.rows, found.users) == (len(log), len(np.unique(user)))
        assert found.views.tolist() == np.bincount(log["item"][~shown]).tolist()
        assert found.shown.tolist() == np.bincount(log["action"][shown]).tolist()
        for kind, rows in (("organic", ~shown), ("bandit", shown)):
            of_user = np.unique(user[rows], return_counts=True)[1]
            assert found.by_user[kind].number == len(of_user)
            assert found.by_user[kind].longest == of_user.max()
            words = "".join("b" if each else "o" for each in shown)
            ends = np.flatnonzero(np.diff(user)) + 1
            lives = [words[a:b] for a, b in zip([0, *ends], [*ends, len(words)], strict=True)]
            runs = [len(run) for life in lives for run in re.findall(f"{'b' if kind == 'bandit' else 'o'}+", life)]
            assert found.stretches[kind].counts.tolist() == np.bincount(runs).tolist()
            assert found.stretches[kind].median == np.sort(runs)[(len(runs) - 1) // 2]
        assert sum(found.propensities.merged()[1]) == shown.sum()
        assert found.binary
    assert blocks.rewards == pytest.approx(whole.rewards)
    assert whole.rewards["value"] == pytest.approx(log["reward"][shown].mean())
    assert whole.rewards["low"] < whole.rewards["value"] < whole.rewards["high"]


def test_the_interval_is_that_of_estimate(folder):
    (record,) = estimate_file(folder / "log", ["propensity"], estimators=["ips"])
    found = log_in_numbers(folder).rewards
    for name in ("value", "low", "high"):
        assert record[name] == pytest.approx(found[name])


def test_the_page_and_its_numbers(folder):
    result = json.loads(folder.with_name("result.json").read_text())
    assert result["summary"]["users"] == 120
    page = (folder / "report.html").read_text()
    assert len(page) < 3e6
    for words in ("of the sessions world", "How long users stay", "How popular", "propensities", "views in a row",
                  "popularity.csv", "lengths.csv"):  # fmt: skip
        assert words in page
    assert run("verify", folder) == 0


def test_every_line_to_go_on_with_runs(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (folder / "report.html").read_text()
    found = re.findall(r'(?s)<pre class="command"[^>]*>(.*?)</pre>', page)
    lines = [shlex.split(html.unescape(line)) for line in found]
    assert " ".join(words[1] for words in lines) == "verify doctor estimate simulate replay estimate compare"
    for words in lines[:-1]:
        assert run(*words[1:]) == 0, words
    assert lines[-1][1:] == ["compare", "--world", "sessions", "--preset", "quick"]


@pytest.mark.parametrize(
    ("world", "policy", "words"),
    [
        ("ratings", "random", "The mean reward of"),
        ("campaigns", "deployed", "were accepted"),
        ("purchases", "deployed", "were bought"),
    ],
)
def test_other_worlds(tmp_path, world, policy, words):
    out = tmp_path / "run"
    assert run("simulate", "--world", world, "--policy", policy, "--users", 40, "--report", "--out", out) == 0
    assert words in (out / "report.html").read_text()


def test_a_finished_run_gets_its_page_later(tmp_path):
    asked = ("simulate", "--world", "sessions", "--preset", "quick", "--policy", "random", "--users", 30)
    assert run(*asked, "--out", tmp_path / "run") == 0
    assert not (tmp_path / "run" / "report.html").exists()
    assert run(*asked, "--out", tmp_path / "run", "--resume", "--report") == 0
    assert (tmp_path / "run" / "report.html").exists()
    assert run("verify", tmp_path / "run") == 0


def test_hostile_names_are_text(tmp_path):
    name = "<script>alert(1)</script>\u202e\"' &amp;" + "x" * 300
    found = LogNumbers({"world": {"name": name}, "policy": {"name": name}, "seed": 1, "n_users": 3}, 4, 2)
    found.views, found.shown = np.array([3, 1]), np.array([0, 2])
    for kind in ("organic", "bandit"):
        found.by_user[kind].extend(np.array([1, 2]))
    found.propensities.extend(np.array([0.5, 0.25]))
    found.rewards = {"value": 0.5, "low": 0.1, "high": 0.9, "level": 0.95}
    write_log_page(tmp_path / "page.html", found, [(f"recsim-mnar x {name}", name)])
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "1 more left without an event" in page


def test_a_log_of_nothing(tmp_path):
    write_log_page(tmp_path / "page.html", LogNumbers({}), [])
    assert "Nothing was recommended" in (tmp_path / "page.html").read_text()


def test_what_is_no_log_of_ours_is_a_line(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(Exception, match="is not a log that simulate wrote"):
        log_in_numbers(tmp_path / "a.csv")


def test_lengths():
    lengths = Lengths()
    lengths.extend(np.array([3, 1]))
    lengths.extend(np.array([1]))
    assert (lengths.number, lengths.longest, lengths.median) == (3, 3, 1)
    assert lengths.at_least() == ([1, 3], [1.0, 1 / 3])
    assert Lengths().at_least() == ([], [])


def test_slates_are_counted(tmp_path):
    asked = ("simulate", "--set", "n_items=12", "--set", "slate_size=3", "--policy", "random", "--users", 40)
    assert run(*asked, "--report", "--out", tmp_path / "run") == 0
    log, page = Log.read(tmp_path / "run"), unlinked(tmp_path / "run" / "report.html")
    n, users = int(log.is_bandit.sum()), len(np.unique(log["user"][log.is_bandit]))
    assert f"The log is ready: {len(log.users()):,} users, {n // 3:,} slates of 3 items." in page
    assert f"{n // 3:,} slates of 3 items, shown to {users} users" in page
    assert f"Of {n:,} items in {n // 3:,} slates of 3 " in page
