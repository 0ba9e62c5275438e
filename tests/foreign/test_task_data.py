"""Data sets of frozen tasks, read by Minari, d3rlpy and obp themselves where they are installed."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from recsim_mnar import task
from recsim_mnar.envs import WorldEnv
from recsim_mnar.export import Decisions, from_minari
from recsim_mnar.tasks.datasets import recipe_of
from toys import refused

NAME, QUALITY = "cold-100-v1", "good"
FIELDS = ("context", "action", "reward", "propensity", "user", "step", "last", "truncated", "final")


def few_users(name, quality):
    """The data of a recipe's first users."""
    return dataclasses.replace(recipe_of(name, quality), users=60).make()


@pytest.fixture(scope="module")
def made():
    return few_users(NAME, QUALITY)


@pytest.fixture
def minari(tmp_path, monkeypatch):
    """Minari, whose data sets are in a folder of the test's."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("minari")


def check_data_integrity(dataset, indices):
    """As Minari's own tests have it (tests/common.py of 0.5.4, MIT licence), for spaces that are one array."""
    episodes = list(dataset.iterate_episodes(indices))
    assert dataset.total_episodes == len(episodes)
    total = 0
    for episode in episodes:
        total += len(episode)
        assert len(episode.observations) == len(episode) + 1
        assert len(episode.actions) == len(episode)
        assert all(dataset.observation_space.contains(one) for one in episode.observations)
        assert all(dataset.action_space.contains(one) for one in episode.actions)
        assert len(episode) == len(episode.rewards) == len(episode.terminations) == len(episode.truncations)
    assert total == dataset.total_steps


@pytest.mark.parametrize(
    ("name", "quality"),
    [
        (NAME, QUALITY),
        ("ratings-100-v1", "random"),
        ("retention-50-v1", "mediocre"),
        ("sessions-slates-10-v1", "good"),
    ],
)
def test_minari(minari, name, quality):
    """Its checks pass; the environment that it recovers gives the recorded observations and rewards, user by user."""
    holds(minari, few_users(name, quality))


def holds(minari, made, env=None):
    """The environment is the data set's own unless one is given."""
    dataset = minari.load_dataset(made.write_minari())
    check_data_integrity(dataset, range(dataset.total_episodes))
    back, of = read_back(dataset), made.decisions
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(back, field), getattr(of, field))
    env = env or dataset.recover_environment()
    assert env.observation_space == dataset.observation_space
    assert env.action_space == dataset.action_space
    metadata = list(dataset.storage.get_episode_metadata(range(dataset.total_episodes)))
    for episode in dataset.iterate_episodes():
        how = metadata[episode.id]
        options = {key: int(value) for key, value in (how.get("options") or {}).items()}
        observed, _ = env.reset(seed=int(how["seed"]), options=options)
        np.testing.assert_array_equal(observed, episode.observations[0])
        for number, action in enumerate(episode.actions):
            observed, reward, terminated, _, _ = env.step(action)
            np.testing.assert_array_equal(observed, episode.observations[number + 1])
            assert (reward, terminated) == (episode.rewards[number], episode.terminations[number])


def read_back(dataset):
    """Decisions of a data set, whatever its actions are."""
    if not dataset.action_space.shape:
        return from_minari(dataset)
    with refused("actions of this data set are no single items"):
        from_minari(dataset)
    episodes = list(dataset.iterate_episodes())
    ends = [np.arange(len(episode)) == len(episode) - 1 for episode in episodes]
    return Decisions(
        n_items=0,
        context=np.concatenate([episode.observations[:-1] for episode in episodes]),
        final=np.stack([episode.observations[-1] for episode in episodes]),
        action=np.concatenate([episode.actions for episode in episodes]),
        reward=np.concatenate([episode.rewards for episode in episodes]),
        propensity=np.concatenate([episode.infos["propensity"][:-1] for episode in episodes]),
        user=np.concatenate([episode.infos["user"][:-1] for episode in episodes]),
        step=np.concatenate([episode.infos["step"][:-1] for episode in episodes]),
        last=np.concatenate(ends),
        truncated=np.concatenate([episode.truncations for episode in episodes]),
    )


def test_the_log_that_is_the_data_has_no_environment(minari):
    """Its task has none; its world gives the recorded rewards all the same."""
    holds(minari, few_users("from-log-100-v1", "mediocre"), WorldEnv(task("from-log-100-v1").make_world()))


def test_minari_normalises_as_scores_do(minari, made):
    """0 is random, 1 the task's reference; the logging policy's score follows from its mean reward per episode."""
    dataset = minari.load_dataset(made.write_minari())
    assert dataset.total_episodes < made.recipe.users  # users without a decision have no episode
    reward_per_episode = made.recipe.value * made.recipe.users / dataset.total_episodes
    score = float(minari.get_normalized_score(dataset, np.array([reward_per_episode]))[0])
    assert score == pytest.approx(made.recipe.score, abs=6e-4)
    held = dataset.storage.metadata
    assert held["recipe_sha256"] == made.recipe.sha256
    assert held["recipe_digest"] == made.recipe.digest
    with pytest.raises(Exception, match="has a data set recsim-mnar/cold-100/good-v1 there"):
        made.write_minari()


def test_minari_writes_the_same_files_twice(minari, made, tmp_path):
    """With one version of HDF5; with another the arrays are the same, and the files need not be."""
    files = []
    for folder in (tmp_path / "here" / "a", tmp_path / "here" / "b"):
        made.write(folder, "minari")
        (file,) = folder.rglob("*.hdf5")
        files.append(file.read_bytes())
    assert files[0] == files[1]
