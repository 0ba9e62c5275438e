"""calibrate and validate say how far they have come and how long the rest takes; with --quiet, nothing."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli, output
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.validation import validate_world
from recsim_mnar.progress import counting, watched_by
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first


class Watcher:
    """Keeps what work was begun, and how much of it was done."""

    def __init__(self):
        self.works = []

    def begins(self, total, unit):
        self.works.append([unit, total, 0])

    def advance(self, amount):
        self.works[-1][2] += amount


def watched(work):
    watcher = Watcher()
    with watched_by(watcher):
        work()
    return watcher.works


def test_things_that_a_break_leaves_out_count_as_done():
    def work():
        for i in counting(range(5), "things"):
            if i == 2:
                break
        assert list(counting("ab", "letters")) == ["a", "b"]

    assert watched(work) == [["things", 5, 5], ["letters", 2, 2]]


@pytest.mark.parametrize(
    ("work", "units"),
    [(lambda log: calibrate_world(log, ensemble=3), {"steps", "worlds"}),
     (lambda log: validate_world(SessionsWorld(SessionsParams(n_items=12, n_factors=2)), log), {"checks"})],
)  # fmt: skip
def test_all_that_is_announced_is_counted(work, units, small_log):
    works = watched(lambda: work(small_log))
    assert all(done == total for _, total, done in works)
    assert {unit for unit, *_ in works} >= units


COMMANDS = {
    "calibrate": (["calibrate", "LOG", "--ensemble", "2", "--out", "OUT/world.toml"], {"steps", "worlds"}),
    "validate": (["validate", "sessions", "LOG", "--set", "n_items=12"], {"checks"}),
}  # fmt: skip


@pytest.mark.parametrize("name", quick_first(["validate", "calibrate"]))
def test_time_left_is_said_and_not_quietly(name, small_log, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_EVERY_SECONDS", 0.0)
    small_log.write(tmp_path / "log")
    words, units = COMMANDS[name]
    for i, quiet in enumerate(([], ["--quiet"])):
        (tmp_path / str(i)).mkdir()
        log_path, out = str(tmp_path / "log"), str(tmp_path / str(i))
        done = CliRunner().invoke(cli, [*(w.replace("LOG", log_path).replace("OUT", out) for w in words), *quiet])
        assert done.exit_code == 0, done.output
        found = re.findall(r"\d+ of \d+ (\w+), \S+ a second, \S+ \w+ left", done.stderr)
        assert set(found) >= units if not quiet else done.stderr == ""
