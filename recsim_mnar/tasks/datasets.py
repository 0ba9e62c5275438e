"""Data sets of frozen tasks: logs under policies of three qualities, simulated from recipes instead of downloaded.

A recipe, a file of 1 kB, names the logging policy, its users and the observation, and has the sha256 of the data set,
which has the same bytes on every machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import tomllib
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions
from recsim_mnar.export.episodes import to_minari
from recsim_mnar.kernels.checks import one_of
from recsim_mnar.log.contexts import observation_of
from recsim_mnar.log.table import Log
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import INDEX
from recsim_mnar.tasks.evaluating import Task, task
from recsim_mnar.tasks.running import DecisionRunner

QUALITIES = ("random", "mediocre", "good")
FORMATS = ("parquet", "minari")
FOLDER, ROOT = "recipes", "MINARI_DATASETS_PATH"
"""Folder of the recipes in this package, and Minari's environment variable for the folder of its data sets."""
_DIGESTED = ("context", "final", "action", "reward", "propensity", "user", "step", "last", "truncated")
"""Arrays of :class:`Decisions` of which a data set's digest is taken, in this order."""


@dataclass(frozen=True)
class Recipe:
    """Recipe of a task's data set; every field is frozen.

    Attributes:
        task: name of the task.
        quality: quality of the logging policy, of :data:`QUALITIES`.
        policy: name of the logging policy; a learner is fitted on the task's log.
        epsilon: share of decisions that are uniform instead of the policy's, so that no propensity is 0.
        users: number of users of the log, none of whom is in an evaluation.
        seed: seed of the users.
        observation: form of the observations, as the environments name it.
        value: mean reward per user of the logging policy within the horizon.
        score: score of the logging policy, on the scale of 0 for random and 1 for the task's reference.
        decisions: number of recommendations, or slates.
        sha256: digest of the arrays of the data set (:attr:`TaskDataset.sha256`).
        digest: sha256 of the recipe's file.
    """

    task: str
    quality: str
    policy: str
    epsilon: float
    users: int
    seed: int
    observation: str
    value: float
    score: float
    decisions: int
    sha256: str
    digest: str = field(default="", repr=False)

    @property
    def minari_id(self) -> str:
        """Return the name of the data set in Minari, such as ``recsim-mnar/sessions-10/good-v1``."""
        name, _, version = self.task.rpartition("-")
        return f"recsim-mnar/{name}/{self.quality}-{version}"

    def logging_policy(self) -> Any:
        """Make the logging policy."""
        return self._runner().dataset_policy(self.policy, self.epsilon)

    def _runner(self) -> DecisionRunner:
        runner = task(self.task).runner()
        assert isinstance(runner, DecisionRunner)  # tasks of platforms have no recipes
        return runner

    def make(self, executor: Executor | None = None) -> TaskDataset:
        """Simulate the data set, without a check of its digest; it does not depend on the executor."""
        log, recorded = self._runner().record(
            self.logging_policy(), n=self.users, seed=self.seed, observation=self.observation, executor=executor
        )
        log.provenance["dataset"] = {"name": self.minari_id, "recipe": self.digest}
        return TaskDataset(self, log, recorded)


@dataclass(frozen=True)
class TaskDataset:
    """A frozen task's data set.

    Attributes:
        recipe: recipe of the data set.
        log: each user's events until the decision after the horizon.
        decisions: decisions of the log with the environment's observations, which :mod:`recsim_mnar.export` converts
            for d3rlpy, obp and others.
    """

    recipe: Recipe
    log: Log = field(repr=False)
    decisions: Decisions = field(repr=False)

    @property
    def sha256(self) -> str:
        """Compute the sha256 of names, shapes and values of the digested arrays, the same on every machine."""
        digest = hashlib.sha256()
        for name in _DIGESTED:
            values = np.ascontiguousarray(getattr(self.decisions, name))
            digest.update(f"{name} {values.shape}".encode())
            digest.update(values.astype(values.dtype.newbyteorder("<")).tobytes())  # little-endian
        return digest.hexdigest()

    def write(self, folder: str | os.PathLike[str], form: str = "parquet") -> None:
        """Write the data set to a new folder: as parquet files under ``log/``, or as a root folder of Minari's.

        Args:
            folder: the new folder.
            form: "parquet" or "minari".

        Raises:
            UserError: the folder is not empty, the format is unknown, or Minari is not installed.
        """
        one_of(form, "format", FORMATS)
        with RunFolder.fill(path_of(folder)) as into:
            if form == "parquet":
                self.log.write(into.path / "log")
                into.record(f"log/{INDEX}")
                return
            self.write_minari(into.path)
            for path in sorted(into.path.joinpath("recsim-mnar").rglob("*")):
                if path.is_file():
                    into.record(str(path.relative_to(into.path)))

    def write_minari(self, root: str | os.PathLike[str] | None = None) -> str:
        """Write a data set in Minari's format and return its name, ``recipe.minari_id``.

        An episode is a user; it has the seed and the options with which the recovered environment resets to that user.
        ``ref_min_score`` and ``ref_max_score`` are the mean rewards of the random policy and of the task's reference in
        an episode. Values of the task are means over all users, also those who leave without a decision and have no
        episode; which users these are does not depend on the policy.

        Args:
            root: folder of Minari's data sets; None for Minari's default.

        Raises:
            UserError: Minari is not installed, or has a data set of this name in the folder.
        """
        try:
            import minari
            from minari.data_collector import EpisodeBuffer
        except ImportError as error:
            raise UserError(f"{error}: install what writes Minari's files: pip install 'recsim-mnar[minari]'") from None
        import gymnasium as gym

        recipe = self.recipe
        chosen = task(recipe.task)
        if chosen.environment:  # Minari stores its specification, from which the environment is recovered
            environment_id = next(spec.id for spec in gym.registry.values() if spec.kwargs == {"name": recipe.task})
            spaces: dict[str, Any] = {"env": gym.make(environment_id, observation=recipe.observation)}
        else:
            n_items = self.decisions.n_items
            observation_space = observation_of(recipe.observation)[0].space(n_items)
            spaces = {"action_space": gym.spaces.Discrete(n_items), "observation_space": observation_space}
        episodes = [
            EpisodeBuffer(**episode, seed=recipe.seed, options={"user": int(episode["infos"]["user"][0])})
            for episode in to_minari(self.decisions)
        ]
        users_per_episode = recipe.users / len(episodes)
        with _minari_at(root), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari warns that an e-mail address and a link are missing
            if recipe.minari_id in minari.list_local_datasets():
                raise UserError(f"Minari has a data set {recipe.minari_id} there: name another folder, or delete it")
            dataset = minari.create_dataset_from_buffers(
                recipe.minari_id,
                episodes,
                **spaces,
                algorithm_name=f"{recipe.policy}+epsilon={recipe.epsilon:g}",
                author="recsim-mnar",
                ref_min_score=chosen.random.value * users_per_episode,
                ref_max_score=chosen.best.value * users_per_episode,
                num_episodes_average_score=chosen.runner().reference_units,
                description=f"{chosen.summary}; logged by a {recipe.quality} policy",
                requirements=["recsim-mnar"],
            )
            fields = dataclasses.asdict(recipe)
            dataset.storage.update_metadata({f"recipe_{name}": fields[name] for name in fields if name != "seed"})
        return recipe.minari_id


@functools.cache
def recipe_of(name: str, quality: str) -> Recipe:
    """Read the frozen recipe of a task's data set.

    Raises:
        UserError: there is no such task, or no data set of this quality.
    """
    chosen = task(name)
    one_of(quality, "quality", QUALITIES)
    folder = resources.files(__package__).joinpath(FOLDER)
    files = {name: folder.joinpath(f"{chosen.name}-{name}.toml") for name in QUALITIES}
    if not files[quality].is_file():
        qualities = " and ".join(name for name, file in files.items() if file.is_file()) or "none"
        raise UserError(f"the task {chosen.name} has no data set of quality {quality}. Its qualities: {qualities}")
    content = files[quality].read_bytes()
    return Recipe(**tomllib.loads(content.decode()), digest=hashlib.sha256(content).hexdigest())


def task_dataset(on: str | Task, quality: str, *, executor: Executor | None = None) -> TaskDataset:
    """Simulate a frozen task's data set from its recipe, and check its digest.

    Args:
        on: the task, or its name.
        quality: quality of the logging policy: "random", "mediocre" or "good".
        executor: executor to spread users over; the bytes do not depend on it.

    Raises:
        UserError: there is no such task or quality, or the bytes differ from the frozen ones.
    """
    name = on.name if isinstance(on, Task) else on
    recipe = recipe_of(name, quality)
    dataset = recipe.make(executor)
    if dataset.sha256 != recipe.sha256:
        raise UserError(
            f"{recipe.minari_id} has sha256 {dataset.sha256} here and {recipe.sha256} in its recipe: NumPy or a linear "
            "algebra library rounds otherwise in this version; make it with those of constraints.txt"
        )
    return dataset


@contextlib.contextmanager
def _minari_at(root: str | os.PathLike[str] | None) -> Iterator[None]:
    """Set the folder to which Minari writes within a context, by its environment variable; None leaves the default."""
    before = os.environ.get(ROOT)
    if root is not None:
        os.environ[ROOT] = str(Path(root).resolve())
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(ROOT, None)
        else:
            os.environ[ROOT] = before
