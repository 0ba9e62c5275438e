"""The page of ``simulate --report``: the log in numbers, block by block, and lines that run as they stand."""

from __future__ import annotations

import html
import re
import shlex

import numpy as np
import pytest

from recsim_mnar.log.table import Log
from recsim_mnar.own_log import in_numbers
from recsim_mnar.own_log.in_numbers import LogNumbers, log_in_numbers
from recsim_mnar.report.world_pages import write_log_page
from toys import read_json
from twins.commands import status_of as run
from twins.own_schema import estimate_file
from twins.pages import page_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("simulated") / "a log"
    asked = ("--world", "sessions", "--preset", "quick", "--policy", "user-popularity+epsilon=0.2", "--users", 120)
    assert run("simulate", *asked, "--report", "--out", out, "--json", out.with_name("result.json")) == 0
    return out


@pytest.mark.parametrize("block", [None, 7], ids=["whole", "blocks of seven users"])
def test_the_numbers_are_those_of_the_whole_log(folder, monkeypatch, block):
    if block:
        monkeypatch.setattr(in_numbers, "_USERS", block)
    numbers = log_in_numbers(folder / "log")
    log = Log.read(folder / "log")
    shown = log.is_bandit
    user = log["user"]
    assert (numbers.rows, numbers.users) == (len(log), len(np.unique(user)))
    np.testing.assert_array_equal(numbers.views, np.bincount(log["item"][~shown]))
    np.testing.assert_array_equal(numbers.shown, np.bincount(log["action"][shown]))
    for kind, rows in (("organic", ~shown), ("bandit", shown)):
        of_user = np.unique(user[rows], return_counts=True)[1]
        np.testing.assert_array_equal(numbers.by_user[kind], np.bincount(of_user))
    assert numbers.binary
    assert numbers.rewards["value"] == pytest.approx(log["reward"][shown].mean())


def test_the_interval_is_that_of_estimate(folder):
    (record,) = estimate_file(folder / "log", ["propensity"], estimators=["ips"])
    rewards = log_in_numbers(folder).rewards
    ends = ["value", "low", "high"]
    assert [rewards[name] for name in ends] == pytest.approx([record[name] for name in ends])


def test_the_page_has_its_parts_and_is_verified(folder):
    assert read_json(folder.with_name("result.json"))["summary"]["users"] == 120
    page = (folder / "report.html").read_text()
    assert len(page) < 3e6
    parts = ("How popular", "views of a user")
    assert [part for part in parts if part not in page] == []
    assert run("verify", folder) == 0


def test_every_line_to_go_on_with_runs(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (folder / "report.html").read_text()
    commands = re.findall(r'(?s)<pre class="command"[^>]*>(.*?)</pre>', page)
    lines = [shlex.split(html.unescape(line)) for line in commands]
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


def test_hostile_names_are_text(tmp_path):
    name = "<script>alert(1)</script>\u202e\"' &amp;" + "x" * 300
    numbers = LogNumbers({"world": {"name": name}, "policy": {"name": name}, "seed": 1, "n_users": 3}, 4, 2)
    numbers.views = np.array([3, 1])
    numbers.shown = np.array([0, 2])
    for kind in ("organic", "bandit"):
        numbers.by_user[kind] = np.bincount([1, 2])
    numbers.rewards = {"value": 0.5, "low": 0.1, "high": 0.9, "level": 0.95}
    write_log_page(tmp_path / "page.html", numbers, [(f"recsim-mnar x {name}", name)])
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "1 more left without an event" in page


def test_a_log_of_nothing(tmp_path):
    write_log_page(tmp_path / "page.html", LogNumbers({}), [])
    assert "Nothing was recommended" in (tmp_path / "page.html").read_text()


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(Exception, match="is not a log that simulate wrote"):
        log_in_numbers(tmp_path / "a.csv")


def test_slates_are_counted(tmp_path):
    asked = ("simulate", "--set", "n_items=12", "--set", "slate_size=3", "--policy", "random", "--users", 40)
    assert run(*asked, "--report", "--out", tmp_path / "run") == 0
    log = Log.read(tmp_path / "run")
    items = int(log.is_bandit.sum())
    slates = items // 3
    users = len(np.unique(log["user"][log.is_bandit]))
    page = page_text(tmp_path / "run" / "report.html")
    assert f"The log is ready: {len(log.users()):,} users, {slates:,} slates of 3 items." in page
    assert f"{slates:,} slates of 3 items, shown to {users} users" in page
    assert f"Of {items:,} items in {slates:,} slates of 3 " in page
