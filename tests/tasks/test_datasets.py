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
from recsim_mnar.export import distributions, to_d3rlpy, to_obp, to_rllib
from recsim_mnar.replays.probabilities import replay_ranking
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tasks import datasets, task, tasks
from recsim_mnar.tasks.datasets import QUALITIES, recipe_of
from toys import refused
from twins.cases import quick_first
from twins.commands import done, fails

FOLDER = Path(recsim_mnar.__file__).parent / "tasks" / "recipes"
FROZEN = {
    "cold-100-v1-good": "dca5a4972d6227853e6b543cbf1e477f0ec36dd21723e7930f946f7c5f241f18",
    "cold-100-v1-mediocre": "070c02fb21d2cfa4b1c00ea00a65ea2c2eb908c3cd374921d807b4d8e92db645",
    "cold-100-v1-random": "560fd5e4786b6b9fd2f37174347c1cf348aaae7b9385f5aeba739f446552a2bb",
    "drifting-100-v1-good": "569acaf6510fe9c95c29166f020a9d246525c5cd410cd8f4b787f2ada26801a8",
    "drifting-100-v1-mediocre": "2ef3ed8bfb58370aa5c8d6c3fca24e8c3cc134ce11a30776656da00a5fb1550d",
    "drifting-100-v1-random": "f6ccb661754c774e9a65a65329148421be163c888e9999d52ef0d6305f83e5db",
    "fatigue-50-v1-good": "8e594bdd05de76171096be554a23ff3d14265a99af5b0639260d01a797c9d058",
    "fatigue-50-v1-mediocre": "5245444e2096cbffb585a060e996682fd5a0cecb1f046c815ffa381d8a904cb6",
    "fatigue-50-v1-random": "04287c9642256c69ca115f792b684da5a0186d7685b3f7ea91ab34d6b0bf71e3",
    "flipped-100-v1-good": "965a49ae73db81e41615318f561ab140a90155e0e25d4e952b0a81e8898c0b3b",
    "flipped-100-v1-mediocre": "05a36c6fe5fcac46b8b591242d4fd573444c05eefb75a5b359b2e114b112fdd5",
    "flipped-100-v1-random": "519bbf0fa224f072d3d90640e6f2daee0af1f8ddd0ba14d9e747d66f5e356776",
    "from-log-100-v1-mediocre": "9311a2823d6dc54c708040f380872ae2037c6b32c8ef099b49f9e0db5d7bfdfc",
    "popularity-100-v1-good": "ceaecd5be779f4d8f5749381613b3cfbafa90d2f44affca7213b41574fc4552d",
    "popularity-100-v1-mediocre": "077b8993e477f303d6d8a22f4bfd23579c388b77591cf864dc79884f8e2b4956",
    "popularity-100-v1-random": "1409cc890b81cfb187716cdf48d4f60e023e91d214d861b3a55404fc6fb1fad3",
    "ratings-100-v1-good": "2389cbce26455f6466d67ed0978449b6b4e947be7767338ffc18869340f977fa",
    "ratings-100-v1-mediocre": "2437c327d0734df824558703c0557c2b1c2667fc5aeef5772a2e21f312a780ac",
    "ratings-100-v1-random": "07ca9b24a4a219a72aecaa2c64fb987b8d26c6b186b4ac83d6e2e0a6057bae17",
    "retention-50-v1-good": "2b9429fac9ffdd9fd51354a7ccd0b3f803bcba486aefa25846b2692a022ff451",
    "retention-50-v1-mediocre": "966557bfb4f52b5251e4c22e894f0c9a883c1d0d2eec8e328f8d10f0005e8cf8",
    "retention-50-v1-random": "6bd02f370f6a8130d2cfcdcebfe3dff8069b3d7656c533fca36c6f9a5b8cbeda",
    "sessions-10-v1-good": "12999557b7429be0be6fc7acf86ca1180653434bda9285a09b5f415727f68326",
    "sessions-10-v1-mediocre": "97967618172a9060b73362821003051e117f073e59fb8960600f90dca4f583bd",
    "sessions-10-v1-random": "e4ef9aa9fa75d4c3a9d104288b0027a2b03c0157506f05aca3da8ec4b987d484",
    "sessions-1000-v1-good": "2474ee434015366521ff28ff16458c0c9cec153bc528fbdd9edfbe780102ea16",
    "sessions-1000-v1-mediocre": "dffa1e274cfe2a9992747b764fcfb822c7fb4f3c5c49dfc6c51af2987fd1adf0",
    "sessions-1000-v1-random": "232cc0db9a4b5f86856efcbf9e660808c4112c6199c5c999b081f226a6fcacd6",
    "sessions-slates-10-v1-good": "ed9682d6b0dc5395b7a3b8a6dc4a354cbc7dce1999d078460aaf24e9470f5584",
    "sessions-slates-10-v1-mediocre": "38a730ff9e7a1e63d8519f7f481b2b973147e099552b6cda7f74febef223e1ed",
    "sessions-slates-10-v1-random": "98349ff446274728e67d0d3966d7b361f7aeb1773f73aef6bd8b227d057d8fa9",
}
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
    assert made.sha256 == made.recipe.sha256
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
    for export in (to_d3rlpy, to_obp, to_rllib):
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
