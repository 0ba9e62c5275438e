"""The table of the frozen tasks: interquartile means, and that its pages and its cells are what was recorded."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy.stats import trim_mean
from study_modules import bring, study_module

from recsim_mnar import evaluate, task
from recsim_mnar.tasks import tasks

with bring("tasks", "making", "table", "run") as _found:
    table, run = _found["table"], _found["run"]
SETTINGS = study_module("shared", "_study").settings_of(run.HERE)
NAME, SLATES = "cold-100-v1", "sessions-slates-10-v1"
HERE = run.HERE


@pytest.mark.parametrize("n", [1, 4, 5, 10])
def test_interquartile_means_are_those_of_rliable(n):
    values = np.random.default_rng(n).normal(size=(3, n))
    assert table.interquartile(values) == pytest.approx([trim_mean(row, 0.25) for row in values])


def test_the_page_shows_what_was_recorded():
    found = json.loads((HERE / "results.json").read_text())
    _, shown, _ = (HERE / "README.md").read_text().split("<!-- scores -->")
    assert shown.strip().splitlines() == table.lines(found)


def test_the_recorded_table_is_of_every_frozen_task():
    found = json.loads((HERE / "results.json").read_text())
    assert list(found["tasks"]) == SETTINGS["tasks"]
    assert sorted(found["tasks"]) == tasks()
    assert found["digests"] == {name: task(name).digest for name in SETTINGS["tasks"]}
    for name, agents in found["tasks"].items():
        assert sorted(agents) == sorted(found["agents"])
        wanted = Counter(cell.agent for cell in run.cells(SETTINGS, [name]))
        for agent, one in agents.items():
            assert one["seeds"] in (0, wanted[agent])
            assert one["seeds"] or one["refused"] != "not run"
            assert not one["seeds"] or one["mean"] == pytest.approx(np.mean(one["scores"]))


@pytest.mark.slow
def test_a_cell_of_seed_0_is_what_evaluate_finds():
    given = {**SETTINGS, "users": 60}
    for name in ("poem", "svd"):
        found = run.scored(run.Cell(NAME, name, 0), given)
        assert found["behaviour"] == evaluate(name, NAME, n_users=60).behaviour
    assert run.scored(run.Cell(NAME, "poem", 1), given)["behaviour"] != found["behaviour"]
    for name, agent, why in (
        ("ratings-100-v1", "planner", "sessions worlds"),
        ("from-log-100-v1", "lin-ucb", "from the log alone"),
        ("uplift-200-v1", "ppo-tuned", "one item at a time"),
        (SLATES, "dqn-tuned", "an action is a ranking"),
    ):
        assert why in run.scored(run.Cell(name, agent, 0), given)["refused"]
