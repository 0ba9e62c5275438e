"""Data sets of frozen tasks: recipes stay, bytes are theirs, environments give them again, commands write them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import recsim_mnar
from recsim_mnar import task_dataset
from recsim_mnar.export import distributions, to_d3rlpy, to_obp
from recsim_mnar.replays.probabilities import replay_ranking
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tasks import datasets, task, tasks
from recsim_mnar.tasks.datasets import QUALITIES, recipe_of
from toys import refused
from twins.cases import quick_first
from twins.commands import done, fails

FOLDER = Path(recsim_mnar.__file__).parent / "tasks" / "recipes"
FROZEN = dict(line.split()[::-1] for line in (Path(__file__).parent / "recipes.sha256").read_text().splitlines())
"""Sha256 of each recipe, in which the sha256 of its data stands: a recipe is never changed."""
SMALL = [("cold-100-v1", quality) for quality in QUALITIES] + [
    ("ratings-100-v1", "random"),
    ("from-log-100-v1", "mediocre"),
    ("sessions-slates-10-v1", "good"),
]
NAMES = [tuple(name.rsplit("-", 1)) for name in sorted(FROZEN)]


def test_recipes_are_those_that_were_frozen():
    found = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.glob("*.toml")}
    assert found == FROZEN
    assert {name for name, _ in NAMES} <= set(tasks())
    seeds = set()
    for name, quality in NAMES:
        recipe, path = recipe_of(name, quality), FOLDER / f"{name}-{quality}.toml"
        assert path.stat().st_size <= 1_000
        assert recipe.digest == FROZEN[path.stem]
        assert (recipe.task, recipe.quality) == (name, quality)
        if task(name).environment:
            assert recipe.seed == derive_seed(task(name).seed, f"task/dataset/{quality}") >> 1
            seeds.add(recipe.seed)
    assert len(seeds) == len(QUALITIES)  # the same for every task, as of the public users, and none of those
    assert not seeds & {task(name).seed for name in tasks()}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "quality"), SMALL)
def test_a_recipe_gives_its_bytes(name, quality):
    """With two processes and other shards of users, too."""
    made = task_dataset(name, quality)
    assert len(made.decisions) == made.recipe.decisions
    with pool(2) as executor:
        assert made.recipe.make(executor).sha256 == made.sha256
    epsilon, n_items = made.recipe.epsilon, made.decisions.n_items
    assert made.decisions.propensity.min() >= epsilon / n_items * (1 - 1e-12)
    per_user = np.zeros(made.recipe.users)
    np.add.at(per_user, made.decisions.user, made.decisions.reward)
    error = per_user.std(ddof=1) / math.sqrt(len(per_user))
    assert abs(per_user.mean() - made.recipe.value) < 4.0 * error


@pytest.mark.slow
@pytest.mark.parametrize(("name", "quality"), NAMES)
def test_every_recipe_gives_its_bytes(name, quality):
    assert task_dataset(name, quality).sha256 == recipe_of(name, quality).sha256


def replayed(made, users):
    """The recorded actions in the task's environment, of some users: every observation and answer is the recorded."""
    words, _, version = made.recipe.task.rpartition("-")
    name = f"recsim_mnar/{''.join(word.capitalize() for word in words.split('-'))}-{version}"
    env = gym.make(name, observation=made.recipe.observation)
    of, episodes = made.decisions, {int(made.decisions.user[rows.start]): rows for rows in made.decisions.episodes()}
    places = {user: place for place, user in enumerate(episodes)}
    chosen = task(made.recipe.task)
    limited = made.decisions.truncated.any()
    for user in users:
        rows = episodes[user]
        observed, info = env.reset(seed=made.recipe.seed, options={"user": user})
        assert info["user"] == user
        for row in range(rows.start, rows.stop):
            np.testing.assert_array_equal(observed, of.context[row])
            assert info["step"] == of.step[row]
            observed, reward, terminated, truncated, info = env.step(of.action[row])
            assert reward == of.reward[row]
            assert terminated == (of.last[row] and not of.truncated[row])
            assert truncated == (limited and row - rows.start + 1 == chosen.horizon)
        np.testing.assert_array_equal(observed, of.final[places[user]])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "quality"), [("cold-100-v1", "good"), ("ratings-100-v1", "random"), SMALL[-1]])
def test_environments_give_the_data_again(name, quality):
    made = task_dataset(name, quality)
    replayed(made, np.unique(made.decisions.user)[::15].tolist())


@pytest.mark.slow
def test_a_life_beyond_the_horizon_is_truncated():
    made = task_dataset("fatigue-50-v1", "random")
    cut = made.decisions.user[made.decisions.truncated]
    assert len(cut) > 0
    counts = np.bincount(made.decisions.user)
    assert counts.max() == task("fatigue-50-v1").horizon
    assert set(cut.tolist()) <= set(np.flatnonzero(counts == counts.max()).tolist())
    assert made.decisions.context.shape[1] == 150  # what was shown counts where it changes what is clicked
    replayed(made, [*cut.tolist(), *np.unique(made.decisions.user)[:20].tolist()])


# ------------------------------------------------------------------------------------------ where no item is an action


@pytest.mark.parametrize("quality", quick_first(QUALITIES))
def test_rankings_have_the_probability_of_each_item_at_its_place(quality):
    """As the logging policy replays them; decisions are the slates of the log, whose other probabilities agree."""
    recipe = dataclasses.replace(recipe_of("sessions-slates-10-v1", quality), users=40)
    made = recipe.make()
    of, shown = made.decisions, made.log.bandit()
    again = replay_ranking(made.log, recipe.logging_policy())
    chosen = made.log.is_bandit
    for name, column in (("marginal", "propensity"), ("slate", "slate_propensity"), ("set", "set_propensity")):
        np.testing.assert_allclose(again[name][chosen], shown[column], rtol=1e-9)
    np.testing.assert_allclose(
        shown["conditional_propensity"].reshape(-1, 10).prod(axis=1), shown["slate_propensity"][::10], rtol=1e-9
    )
    for name in ("action", "propensity"):
        np.testing.assert_array_equal(getattr(of, name), shown[name].reshape(-1, 10))
    np.testing.assert_array_equal(of.reward, shown["reward"].reshape(-1, 10).sum(axis=1))
    assert (np.diff(np.sort(of.action, axis=1), axis=1) > 0).all()
    if quality == "random":
        np.testing.assert_allclose(of.propensity, 0.01, rtol=1e-12)
    else:
        assert of.propensity.max() > 0.5


def test_what_is_learned_from_its_log_has_that_log():
    made = task_dataset("from-log-100-v1", "mediocre")
    own = task("from-log-100-v1").log()
    assert own.columns.keys() == made.log.columns.keys()
    for name in own.columns:
        np.testing.assert_array_equal(own[name], made.log[name])
    assert not made.decisions.truncated.any()
    for quality in ("random", "good"):
        with refused(rf"has no data set of quality {quality}\. Its qualities: mediocre"):
            task_dataset("from-log-100-v1", quality)


@pytest.mark.parametrize("name", ["uplift-200-v1", "campaigns-60-v1"])
def test_sets_of_items_and_campaigns_have_no_data_sets(name):
    with refused(r"no data set of quality good\. Its qualities: none"):
        task_dataset(name, "good")


def test_what_reads_single_items_refuses_slates():
    made = dataclasses.replace(recipe_of("sessions-slates-10-v1", "random"), users=3).make().decisions
    for export in (to_d3rlpy, to_obp):
        with refused("these decisions are slates, no single items"):
            export(made)


def test_the_log_is_of_its_logging_policy():
    made = task_dataset("cold-100-v1", "good")
    some = made.log.select(made.log["user"] < 150)
    whole = distributions(some, made.recipe.logging_policy())
    shown = some.bandit()
    np.testing.assert_allclose(whole[np.arange(len(shown)), shown["action"]], shown["propensity"], rtol=1e-9)


def test_other_bytes_are_refused(monkeypatch):
    recipe = recipe_of("cold-100-v1", "random")
    other = type(recipe)(**{**vars(recipe), "sha256": "0" * 64})
    monkeypatch.setattr(datasets, "recipe_of", lambda name, quality: other)
    with refused(r"recsim-mnar/cold-100/random-v1 has sha256 .* constraints.txt"):
        task_dataset("cold-100-v1", "random")


def test_what_there_is_not_is_said(capsys, tmp_path):
    with refused(r"quality must be"):
        task_dataset("cold-100-v1", "best")
    with refused(r"unknown task 'cold-100-v9'"):
        task_dataset("cold-100-v9", "good")
    with refused("format must be"):
        task_dataset("cold-100-v1", "random").write(tmp_path / "out", "csv")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    assert "full" in fails(capsys, "dataset", "cold-100-v1", "--quality", "random", "--out", tmp_path / "full")


def test_without_minari_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with refused(r"pip install 'recsim-mnar\[minari\]'"):
        task_dataset("cold-100-v1", "random").write_minari(tmp_path)


def test_the_command_writes_a_log_that_commands_read(capsys, tmp_path):
    out, facts = tmp_path / "data", tmp_path / "facts.json"
    asked = ["dataset", "cold-100-v1", "--quality", "mediocre", "--out", out, "--json", facts]
    said = done(capsys, *asked)
    recipe = recipe_of("cold-100-v1", "mediocre")
    assert f"{recipe.decisions:,} recommendations" in said
    held = json.loads(facts.read_text())
    assert held["sha256"] == recipe.sha256
    assert held["digest"] == FROZEN["cold-100-v1-mediocre"]
    assert recsim_mnar.read_log(out / "log").digest() == task_dataset("cold-100-v1", "mediocre").log.digest()
    done(capsys, "verify", out)
    done(capsys, "estimate", out / "log", "--target", "propensity")
    fails(capsys, *asked)  # the folder is there


@pytest.mark.slow
def test_it_needs_no_environments():
    """Next to d3rlpy, whose Gymnasium is older than that of our environments, data sets are made all the same."""
    code = (
        "import sys; from recsim_mnar import task_dataset; from recsim_mnar.export import to_d3rlpy, to_obp; "
        "made = task_dataset('cold-100-v1', 'random'); print(len(to_d3rlpy(made.decisions)['rewards'])); "
        "assert not [name for name in sys.modules if name.startswith('recsim_mnar.envs')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == recipe_of("cold-100-v1", "random").decisions
