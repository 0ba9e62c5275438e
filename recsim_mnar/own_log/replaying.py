"""Fit agents on a log, write a log with their probabilities, and estimate their values from it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.answers.records import FITTED_ON, PROPENSITY_MIN
from recsim_mnar.answers.sentence import Sentence
from recsim_mnar.answers.words import logged_by
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, texts_of
from recsim_mnar.log.blocks import FiledLog, LogBlocks, Survey
from recsim_mnar.log.table import Log, stated_items, write_part
from recsim_mnar.own_log.ab_plan import ABPlan, plan_ab
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.gate import FileAnswer, answer_file
from recsim_mnar.own_log.sources import needs_numbering, read_as_logs
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import as_policy, check_needs
from recsim_mnar.policies.rankings import RankingPolicy
from recsim_mnar.progress import counted
from recsim_mnar.replays.probabilities import (
    OF_RANKING,
    UNSUPPORTED,
    Policies,
    Replayed,
    as_replayed,
    identical_policies,
    learns_online,
    least_propensity,
    replay_ranking,
    replay_with_support,
    slate_size_of,
)
from recsim_mnar.replays.probabilities import replay as replay_policy
from recsim_mnar.replays.replayed_log import ReplayRun, digest_of_files
from recsim_mnar.rng import Stream, check_seed, derive_seed, is_seed, uniforms
from recsim_mnar.runs.files import path_of
from recsim_mnar.simulation.run_folder import logging_policy
from recsim_mnar.tables.parts import Parts, write_file
from recsim_mnar.worlds.registry import worlds

Training = Log | FiledLog
"""A log to train on, in memory or in files."""
Story = Mapping[str, object]
"""Provenance of the policies, which is added to that of the log."""


@dataclass(frozen=True)
class Destination:
    """Place of a replayed log.

    Attributes:
        path: path of the file or folder.
        form: format of the file, ``csv`` or another for Parquet; None for a folder of parts.
        resume: True to continue an earlier run in the folder.
    """

    path: Path
    form: str | None
    resume: bool


# ------------------------------------------------------------------------------------------- the logs that are given


@dataclass(frozen=True)
class Given:
    """The log to replay and the training log.

    Attributes:
        path: path of the log to replay.
        training: the log to train on; empty if none was named.
        ours: True if both are logs that this package wrote.
        provenance: provenance of the log to replay.
        survey: numbers of rows, users and items of the log to replay, and of the users that are in both logs.
        data: all rows of the log to replay; None if it is read block by block.
        blocks: the log to replay in its files; None if its rows were read at once.
        lines: notes for a person on the columns used of a user's file.
    """

    path: Path
    training: Training
    ours: bool
    provenance: Mapping[str, object]
    survey: Survey
    data: Log | None = None
    blocks: LogBlocks | None = None
    lines: tuple[str, ...] = ()

    @classmethod
    def at_once(cls, path: Path, data: Log, training: Training, ours: bool) -> Given:
        """Make the object from a log whose rows are in memory.

        Args:
            path: path of the log to replay.
            data: all rows of this log.
            training: the log to train on; empty for none.
            ours: True if both are logs that this package wrote.
        """
        n_shared = 0  # users in both logs
        if not _of_other_seeds(data, training):
            n_shared = len(set(data.users()) & set(training.users()))
        survey = Survey(
            len(data),
            len(data.users()),
            data.highest_item,
            bool(data.is_bandit.all()),
            n_shared,
            with_gaps=frozenset(),
            slate_size=slate_size_of(data),
        )
        return cls(path, training, ours, data.provenance, survey, data=data)

    def whole(self) -> Log:
        """Return all rows of the log to replay; they are read if they are not in memory."""
        if self.data is None:
            return Log.read(self.path).validate(first_row=1)
        return self.data


def given_logs(log: Path, train: Path | None, reading: Reading) -> Given:
    """Read the log to replay and the training log: files of the user's own at once, logs of this package in blocks.

    Args:
        log: path of the log to replay.
        train: path of the training log; None for no training log.
        reading: statements about the columns of a file of the user's own.

    Raises:
        UserError: one of the two is a file of the user's own and the other is not, or a log is invalid.
    """
    paths = [log]
    if train is not None:
        paths.append(train)
    foreign = [needs_numbering(path) for path in paths]
    if all(foreign):
        read_logs = read_as_logs(paths, reading)
        # Without a training log, an empty one takes its place.
        data, training_log = (log.validate() for log in (*read_logs.logs, Log({}))[:2])
        return replace(Given.at_once(log, data, training_log, ours=False), lines=tuple(read_logs.lines))
    if any(foreign):
        ours = paths[foreign.index(False)]
        raise UserError(
            f"{paths[foreign.index(True)]} is a file of your own and {ours} a log of this package's, which numbers its "
            "items: give LOG and --train in one form"
        )
    if train is None:
        training = Log({})
    else:
        training = FiledLog.open_or_read(train)
    blocks = LogBlocks.open(log)
    if blocks is None:
        return Given.at_once(log, Log.read(log).validate(first_row=1), training, ours=True)
    users = None
    if not _of_other_seeds(blocks, training):
        users = training.users()
    return Given(log, training, True, blocks.provenance, blocks.survey(users), blocks=blocks)


def _of_other_seeds(data: Log | LogBlocks, training: Training) -> bool:
    """Return True if two logs cannot share a user: different seeds in their provenance, or no training log."""
    seeds = [log.provenance.get("seed") for log in (data, training)]
    return len(training) == 0 or (all(map(is_seed, seeds)) and seeds[0] != seeds[1])


def split(given: Given, seed: int, train_share: float) -> Given:
    """Split the users of a log at random: rows of some, with those of the others as the training log.

    Args:
        given: the log.
        seed: seed of the draws, one per user.
        train_share: expected share of all users in the training log.

    Raises:
        UserError: all users are in one part.
    """
    log = given.whole()
    users = log.users()
    draws = uniforms(derive_seed(seed, "split-users"), Stream.PROTOCOL, users, 0)
    judging = users[draws < 1.0 - train_share]
    if len(judging) in (0, len(users)):
        raise UserError(f"{given.path}: {len(users)} users are too few to be split; give a log of more users")
    judges = np.isin(log["user"], judging)
    return Given.at_once(given.path, log.select(judges), log.select(~judges), given.ours)


def check_training(given: Given, train: Path | None, learners: Mapping[str, Learner]) -> None:
    """Validate the training log before any agent is fitted on it.

    Args:
        given: the log to replay and the training log.
        train: path of the training log; None if none is named.
        learners: learners by name.

    Raises:
        UserError: the training log is of another world or catalogue, so that its items are others; it lacks data that
            an agent needs; or there is none and an agent needs one.
    """
    if train is None:
        for name, learner in learners.items():
            if getattr(learner, "needs", ()):
                raise _unfitted(name, given.path)
        return
    replayed_world = _World.of(given.provenance)
    training_world = _World.of(given.training.provenance)
    for key, words in (("name", "world"), ("n_items", "number of items"), ("catalogue_seed", "catalogue_seed")):
        replayed_value = getattr(replayed_world, key)
        training_value = getattr(training_world, key)
        if None not in (replayed_value, training_value) and replayed_value != training_value:
            raise UserError(
                f"--train {train}: its {words} is {training_value}, that of {given.path} is {replayed_value}, so their "
                "items are not the same; name a log of the same world and catalogue"
            )
    holdings = _holdings(given.training)
    for name, learner in learners.items():
        check_needs(name, learner, holdings, f"--train {train}")


def _unfitted(name: str, log: Path) -> UserError:
    """Create the error for an agent that must be fitted without a training log."""
    return UserError(
        f"{name} is fitted on a log: name one with --train, of the same items and of other users; {log} itself is not "
        "used, for an agent must not have seen those whom it is judged on (estimate LOG --agents fits on some and "
        "judges on the others)"
    )


@dataclass(frozen=True)
class _World:
    """World that the provenance of a log records.

    Attributes:
        name: name of the world; None if it is not recorded.
        n_items: number of items; None if it is not recorded.
        catalogue_seed: seed of the items; None if it is not recorded.
    """

    name: object = None
    n_items: object = None
    catalogue_seed: object = None

    @staticmethod
    def of(provenance: Any) -> _World:
        """Read the world of a provenance."""
        world = provenance.get("world")
        if not isinstance(world, Mapping):
            return _World()
        params = world.get("params")
        if not isinstance(params, Mapping):
            return _World(world.get("name"))
        return _World(world.get("name"), params.get("n_items"), params.get("catalogue_seed"))


def _holdings(training: Training) -> frozenset[str] | None:
    """Return the kinds of data in a training log other than views, of :data:`recsim_mnar.policies.door.HOLDINGS`.

    The world that made the log declares them (None for all kinds); of other logs they are found in the rows.
    """
    entry = worlds().get(str(_World.of(training.provenance).name))
    if entry is not None:
        return entry.world_class().log_holds
    holdings = set()
    for block in training.blocks():
        if block.is_bandit.any():
            holdings |= {"outcomes", "clicks"}
        if not np.isnan(block["reward"][~block.is_bandit]).all():
            holdings.add("ratings")
    return frozenset(holdings)


# ------------------------------------------------------------------------------------------ policies, fitted and run


@dataclass(frozen=True)
class Fitting:
    """Settings with which policies are fitted.

    Attributes:
        learners: learners by name.
        n_items: number of items of the log.
        seed: seed of the fit.
        digest: digest of the training log; None without one.
    """

    learners: Mapping[str, Learner]
    n_items: int
    seed: int
    digest: str | None

    def policies(self, given: Given, report: Callable[[str], None]) -> tuple[Policies, Story]:
        """Fit all policies on the training log.

        Args:
            given: the log to replay and the training log.
            report: function that is called with a line when a stage begins.

        Returns:
            policies: fitted policies by name, ready to replay.
            story: for the provenance, the training log that they were fitted on; empty without one.
        """
        size = given.survey.slate_size
        fitted = {}
        for name in self.learners:
            report(f"fit {name}")
            fitted[name] = self._policy(given, name)
        report(f"replay {', '.join(fitted)}")
        story = self._story(given, fitted)
        return {name: as_replayed(policy, size) for name, policy in fitted.items()}, story

    def write(
        self,
        given: Given,
        fitted: Policies,
        story: Story,
        logging: Any,
        target: Destination,
        executor: Executor | None = None,
    ) -> int:
        """Write the log with the probabilities of the fitted policies.

        Args:
            given: the log to replay.
            fitted: fitted policies by name.
            story: provenance of the policies.
            logging: the logging policy, which tells where the log has no support; None if it is unknown.
            target: place of the replayed log.
            executor: executor of the work; None for this process.

        Returns:
            The number of parts of a folder that already existed; 0 for a file.
        """
        size = given.survey.slate_size
        least = None
        if logging is not None:
            logging = as_replayed(logging, size)
            least = least_propensity(logging)
        if least is not None:
            story = {**story, PROPENSITY_MIN: least}
        elif size > 1:
            logging = None  # without a least propensity it is unknown which slates the logging policy never shows
        if given.blocks is None or any(learns_online(given.provenance, policy) for policy in fitted.values()):
            replay_at_once(given.whole(), fitted, logging, target, executor, story)
            return 0
        count = counted(given.survey.n_rows, "rows")
        run = ReplayRun(given.blocks, given.survey, fitted, logging, executor, count, story)
        if target.form is None:
            manifest = {"replayed": [*fitted], "n_items": self.n_items, "seed": self.seed, "train": self.digest}
            return run.to_folder(target.path, manifest, resume=target.resume)
        run.to_file(target.path, target.form)
        return 0

    def _policy(self, given: Given, name: str) -> Any:
        """Fit the learner of a name on the training log.

        Raises:
            UserError: the most useful cause of the failure: no views, no training log, or the learner's own error.
        """
        try:
            seed = derive_seed(self.seed, "fit")
            fitted = self.learners[name].fit(given.training, n_items=self.n_items, seed=seed)
            _refuse_without_views(given, name, fitted)
            return fitted
        except UserError as error:
            _refuse_without_views(given, name)  # the likeliest cause of a failure, if the log has no views
            cause = error if self.digest is not None else _unfitted(name, given.path)
            raise cause from None

    def _story(self, given: Given, fitted: Mapping[str, Any]) -> Story:
        """Return the provenance of the policies that were fitted on the training log; empty without one."""
        if self.digest is None:
            return {}
        learned = [name for name, policy in fitted.items() if self._learned(name, policy)]
        if not learned:
            return {}
        entry: dict[str, object] = {"policies": learned, "digest": self.digest}
        entry |= {"shared": given.survey.shared_users, "users": given.survey.n_users}
        return {FITTED_ON: entry}

    def _learned(self, name: str, fitted: Any) -> bool:
        """Return True if a policy depends on the training log: fitted on an empty log, it differs or fails."""
        try:
            # A policy that draws from the seed of its fit counts as one that depends on the log: the seeds differ.
            unfitted = self.learners[name].fit(Log({}), n_items=self.n_items, seed=0)
            return not identical_policies(as_policy(fitted), as_policy(unfitted))
        except UserError:
            return True


def replay_at_once(
    data: Log, fitted: Policies, logging: Replayed | None, target: Destination, executor: Executor | None, story: Story
) -> None:
    """Replay all rows of a log in memory, and write them to a file.

    Each policy adds a column of its probabilities of the logged actions. A ranking policy adds one column per kind of
    probability; another policy adds its probability of all actions that a known logging policy never takes.

    Args:
        data: all rows of the log.
        fitted: fitted policies by name.
        logging: the logging policy; None if it is unknown.
        target: place of the replayed log.
        executor: executor of the work; None for this process.
        story: provenance of the policies; a CSV file cannot hold it.

    Raises:
        UserError: the target is a folder.
    """
    if target.form is None:
        raise UserError(
            f"--out {target.path}: a folder of parts is written of this package's logs only, and of policies that do "
            "not learn from all users; name a file"
        )
    result = data
    for name, policy in fitted.items():
        if isinstance(policy, RankingPolicy):
            columns = replay_ranking(data, policy, executor=executor)
            for ending in ("", *OF_RANKING):  # "_slate", say, is the ending of column "slate"
                result = result.with_column(name + ending, columns[ending[1:] or "marginal"])
        elif logging is None:
            result = result.with_column(name, replay_policy(data, policy, executor=executor))
        else:
            probability, unsupported = replay_with_support(data, policy, logging, executor=executor)
            result = result.with_column(name, probability).with_column(name + UNSUPPORTED, unsupported)
    if target.form == "csv":
        result.write_csv(target.path)
    else:
        made = {**result.provenance, **story}
        write_file(target.path, len(result), lambda path: write_part(path, [result.columns], made))


def _refuse_without_views(given: Given, name: str, fitted: Any = None) -> None:
    """Raise UserError if a user's log has no views and a policy may depend on them.

    Args:
        given: the log to replay.
        name: name of the policy.
        fitted: the fitted policy, which needs no views if its distribution is fixed; None if it could not be fitted.
    """
    if given.ours or not given.survey.all_bandit or (fitted is not None and fitted.fixed_distribution() is not None):
        return
    raise UserError(
        f"{given.path} has no item events (views), so {name} would act on empty histories: add the users' views as "
        "rows, or give estimate the policy's own probabilities with --target-file"
    )


def items_of(given: Given, asked: int | None) -> int:
    """Return the number of items: ``asked`` if it is not None, else the number of both logs' items.

    Raises:
        UserError: ``asked`` is less than the number of items in the logs.
    """
    n_items = stated_items(given.provenance, given.survey.highest_item + 1)
    n_items = max(n_items, given.training.n_items)
    if asked is not None and asked < max(n_items, 1):
        raise UserError(f"--items {asked}: the log has {n_items} items. Give at least that many, or omit --items")
    return asked or n_items


def digest_of_log(train: Path | None) -> str | None:
    """Compute the digest of the training log; return None without one."""
    if train is None:
        return None
    return digest_of_files(Parts.of(train))


TODAY = "today"
"""Name of the logging policy as a baseline."""
SHARE = 0.5
"""Expected share of the users that agents are fitted on."""


def estimate_agents(
    path: str | os.PathLike[str],
    agents: Sequence[str],
    *,
    train_share: float = SHARE,
    seed: int = 0,
    columns: dict[str, str | None] | None = None,
    **asked: Any,
) -> FileAnswer:
    """Fit agents on some users of a log, and estimate their values and lifts over the logging policy from the others.

    Args:
        path: a log with users, the items shown, rewards, propensities and, for agents that learn, views.
        agents: names as in ``recsim-mnar list agents``, or ``package.module:Class``.
        train_share: expected share of the users that agents are fitted on.
        seed: seed of the split and of the fit.
        columns: column by role; columns that are left out are recognised by their names.
        **asked: further arguments of :func:`recsim_mnar.estimate_file`.

    Raises:
        UserError: a log or an agent for which this is impossible, in one line.
    """
    log = path_of(path)
    for name in ("targets", "baseline", "target_file", "on", "metrics"):
        if name in asked:
            raise UserError(f"estimate_agents() has no argument {name!r}: agents are compared with today's policy")
    with replayed(log, agents, Reading(dict(columns or {})), train_share, seed) as (file, lines):
        return of_log(answer_file(file, list(agents), baseline=TODAY, **asked), file, log, lines)


@contextlib.contextmanager
def replayed(
    log: Path,
    agents: Sequence[str],
    reading: Reading,
    train_share: float,
    seed: int,
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[Path, Sequence[str]]]:
    """Fit agents on some users of a log, and write the others' rows with the agents' probabilities to a file.

    Errors within the block name the log in place of the temporary file.

    Args:
        log: path of the log.
        agents: names of the agents.
        reading: statements about the columns of the log.
        train_share: expected share of the users that agents are fitted on.
        seed: seed of the split and of the fit.
        report: function that is called with a line when a stage begins.

    Yields:
        The file, which is removed afterwards, and notes on the columns used.
    """
    number_in(train_share, "train_share", 0.0, 1.0, ends="()")
    check_seed(seed, "seed")
    learners = {name: registry.learner(name) for name in texts_of(agents, "agents")}
    if not learners or len(learners) < len(agents):
        raise UserError(f"agents must be different names, at least one, got {list(agents)}")
    logs = given_logs(log, None, reading)
    part = split(logs, seed, train_share)
    data = part.whole()
    if np.isnan(data["propensity"][data.is_bandit]).any():
        raise UserError(
            f"{log} has no propensity for some items shown, and agents are judged by these: log the probability with "
            "which each item is shown"
        )
    check_training(part, log, learners)
    fit = Fitting(learners, items_of(logs, None), seed, digest_of_log(log))
    fitted, story = fit.policies(part, report)
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        target = Destination(Path(folder) / "replayed.parquet", "parquet", resume=False)
        fit.write(part, fitted, story, logging_policy(logs.provenance), target)
        try:
            yield target.path, logs.lines
        except UserError as error:
            raise UserError(str(error).replace(str(target.path), str(log)), code=error.code) from error


def of_log(found: FileAnswer, file: Path, log: Path, lines: Sequence[str]) -> FileAnswer:
    """Return an answer from a replayed file as one from the log: its name, its path, and the notes on its columns.

    Args:
        found: the answer from the replayed file.
        file: path of the replayed file.
        log: path of the log that it was made from.
        lines: notes on the columns of the log.
    """
    renamed = found.called({str(file): str(log)})
    answer = replace(renamed.found, lines=[*lines, *renamed.found.lines])
    return replace(renamed, files={str(log): log}, found=answer)


def ab_test_of(log: Path, sentence: Sentence, reading: Reading) -> ABPlan | None:
    """Plan an A/B test for the lift of the agent that is ahead; return None if no agent is or no plan is possible.

    Args:
        log: path of the log.
        sentence: summary of the estimates.
        reading: statements about the columns of the log.
    """
    if not (sentence.change_percent or 0.0) > 0.0:
        return None
    try:
        return plan_ab(log, f"{sentence.change_percent:.3g}%", columns=reading)
    except UserError:
        return None


def ahead_of_today(sentence: Sentence, test: ABPlan | None) -> str:
    """Describe which agent is ahead of the logging policy; if that is uncertain, also the users that a test needs.

    Args:
        sentence: summary of the estimates.
        test: plan of an A/B test for the estimated lift; None without one.
    """
    today = logged_by(sentence.baseline_kind)
    if sentence.answer == "better":
        return f"{sentence.policy} is ahead of {today} (verdict: {sentence.sure})."
    message = f"No agent is known to be ahead of {today}."
    if sentence.answer == "looks_better":
        message = f"{sentence.policy} looks ahead of {today} (verdict: {sentence.sure.replace('_', ' ')})."
    if test is None:
        return message
    lift = f"{sentence.policy}'s estimated lift, {100.0 * test.lift_share:.3g} %,"
    return f"{message} An A/B test that finds {lift} needs {test.users:,} users per arm."
