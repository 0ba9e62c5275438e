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
from recsim_mnar.answers.sentence import Sentence, logged_by
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
    """Path and format of a replayed log; a folder if the format is None."""

    path: Path
    form: str | None
    resume: bool


# ------------------------------------------------------------------------------------------- the logs that are given


@dataclass(frozen=True)
class Given:
    """The log to replay and the training log.

    Attributes:
        path: path of the log.
        training: the log to train on, empty if none was named.
        ours: whether they are logs of this package's.
        provenance: provenance of the log.
        survey: its numbers of rows, users, items, and of users that are in both.
        data: all rows, if they were read at once.
        blocks: the log in its files, if it is read block by block.
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
        """Wrap a log whose rows were read at once."""
        shared = 0
        if not _of_other_seeds(data, training):
            shared = len(set(data.users()) & set(training.users()))
        survey = Survey(
            len(data),
            len(data.users()),
            data.highest_item,
            bool(data.is_bandit.all()),
            shared,
            with_gaps=frozenset(),
            slate_size=slate_size_of(data),
        )
        return cls(path, training, ours, data.provenance, survey, data)

    def whole(self) -> Log:
        """Return all rows of the log."""
        if self.data is None:
            return Log.read(self.path).validate(first_row=1)
        return self.data


def given_logs(log: Path, train: Path | None, reading: Reading) -> Given:
    """The log to replay and the training log."""
    if train is None:
        paths = [log]
    else:
        paths = [log, train]
    foreign = [needs_numbering(path) for path in paths]
    if all(foreign):
        read_logs = read_as_logs(paths, reading)
        data, other_log = (log.validate() for log in (*read_logs.logs, Log({}))[:2])
        return replace(Given.at_once(log, data, other_log, ours=False), lines=tuple(read_logs.lines))
    if any(foreign):
        ours = paths[foreign.index(False)]
        raise UserError(
            f"{paths[foreign.index(True)]} is a file of your own and {ours} a log of this package's, which numbers its "
            "items: give LOG and --train in one form"
        )
    if train is None:
        training = Log({})
    else:
        training = FiledLog.or_whole(train)
    blocks = LogBlocks.open(log)
    if blocks is None:
        return Given.at_once(log, Log.read(log).validate(first_row=1), training, ours=True)
    users = None
    if not _of_other_seeds(blocks, training):
        users = training.users()
    return Given(log, training, True, blocks.provenance, blocks.survey(users), blocks=blocks)


def _of_other_seeds(data: Log | LogBlocks, training: Training) -> bool:
    """Return whether the provenance of two logs has different seeds, so that they share no user."""
    seeds = [log.provenance.get("seed") for log in (data, training)]
    return len(training) == 0 or (all(map(is_seed, seeds)) and seeds[0] != seeds[1])


def halves_of(given: Given, seed: int, train_share: float = 0.5) -> list[Given]:
    """Split the users of a log at random; returns each part with the other one as training log.

    Args:
        given: the log.
        seed: seed of the draws, one per user.
        train_share: expected share of the users that the first part is fitted on.

    Raises:
        UserError: all users are in one part.
    """
    log = given.whole()
    users = log.users()
    first = users[uniforms(derive_seed(seed, "split-users"), Stream.PROTOCOL, users, 0) < 1.0 - train_share]
    if len(first) in (0, len(users)):
        raise UserError(f"{given.path}: {len(users)} users are too few to be split; give a log of more users")
    inside = np.isin(log["user"], first)
    one = log.select(inside)
    other = log.select(~inside)
    halves = [Given.at_once(given.path, *pair, given.ours) for pair in ((one, other), (other, one))]
    return [replace(half, survey=replace(half.survey, shared_users=0)) for half in halves]


def check_training(given: Given, train: Path | None, training: Training, learners: Mapping[str, Learner]) -> None:
    """Validate the training log before any agent is fitted on it.

    Args:
        given: the log that is replayed.
        train: path of the training log, None if none is named.
        training: the training log.
        learners: learners by name.

    Raises:
        UserError: it is of another world or catalogue, with other items; or it lacks data that an agent needs.
    """
    if train is None:
        for name, learner in learners.items():
            if getattr(learner, "needs", ()):
                raise _unfitted(name, given.path)
        return
    here = _World.of(given.provenance)
    there = _World.of(training.provenance)
    for key, what in (("name", "world"), ("n_items", "number of items"), ("catalogue_seed", "catalogue_seed")):
        ours = getattr(here, key)
        theirs = getattr(there, key)
        if None not in (ours, theirs) and ours != theirs:
            raise UserError(
                f"--train {train}: its {what} is {theirs}, that of {given.path} is {ours}, so their items are "
                "not the same; name a log of the same world and catalogue"
            )
    holds = _holdings(training)
    for name, learner in learners.items():
        check_needs(name, learner, holds, f"--train {train}")


def _unfitted(name: str, log: Path) -> UserError:
    """Create the error for an agent that must be fitted without a training log."""
    return UserError(
        f"{name} is fitted on a log: name one with --train, of the same items and of other users; {log} itself is not "
        "used, for an agent must not have seen those whom it is judged on (--split-users fits on one half of them and "
        "judges on the other)"
    )


@dataclass(frozen=True)
class _World:
    """The world of a log in its provenance; None for what is not recorded."""

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
    """Return the contents of a log other than views, see :data:`recsim_mnar.policies.door.HOLDINGS`."""
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

    def policies(self, given: Given, half: int | None, report: Callable[[str], None]) -> tuple[Policies, Story]:
        """Fit the policies; returns them by name, and what they were fitted on, for the provenance."""
        size = given.survey.slate_size
        fitted = {}
        for name in self.learners:
            report(f"fit {name}")
            fitted[name] = self._policy(given, name)
        report(f"replay {', '.join(fitted)}")
        story = self._story(given, fitted, half)
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
        """Write the replayed log; returns how many parts of a folder already existed."""
        size = given.survey.slate_size
        least = None
        if logging is not None:
            logging = as_replayed(logging, size)
            least = least_propensity(logging)
        if size > 1 and least is None:  # it is unknown what other rankings cannot show
            logging = None
        if least is not None:
            story = {**story, PROPENSITY_MIN: least}
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
        """Fit the policy of a name; errors say what is missing."""
        try:
            seed = derive_seed(self.seed, "fit")
            fitted = self.learners[name].fit(given.training, n_items=self.n_items, seed=seed)
            _refuse_without_views(given, name, fitted)
            return fitted
        except UserError as error:
            _refuse_without_views(given, name)
            raise (error if self.digest is not None else _unfitted(name, given.path)) from None

    def _story(self, given: Given, fitted: Mapping[str, Any], half: int | None) -> Story:
        """Return the provenance of the policies that were fitted on the training log; empty without one."""
        if self.digest is None:
            return {}
        taught = [name for name, policy in fitted.items() if self._learned(name, policy)]
        users = given.survey.n_users
        entry = {"policies": taught, "digest": self.digest, "shared": given.survey.shared_users, "users": users}
        if taught:
            return {FITTED_ON: entry | ({} if half is None else {"half": half})}
        return {}

    def _learned(self, name: str, fitted: Any) -> bool:
        """Return whether a policy depends on the training log: without it, it cannot be fitted or differs."""
        try:
            plain = self.learners[name].fit(Log({}), n_items=self.n_items, seed=0)
            return not identical_policies(as_policy(fitted), as_policy(plain))
        except UserError:
            return True


def replay_at_once(
    data: Log, fitted: Policies, logging: Replayed | None, target: Destination, executor: Executor | None, story: Story
) -> None:
    """Write the replayed log from all of its rows, with the policies' training data in its provenance."""
    if target.form is None:
        raise UserError(
            f"--out {target.path}: a folder of parts is written of this package's logs only, and of policies that do "
            "not learn from all users; name a file"
        )
    result = data
    for name, policy in fitted.items():
        if isinstance(policy, RankingPolicy):
            columns = replay_ranking(data, policy, executor=executor)
            for ending in ("", *OF_RANKING):
                result = result.with_column(name + ending, columns[ending[1:] or "marginal"])
            continue
        if logging is None:
            result = result.with_column(name, replay_policy(data, policy, executor=executor))
            continue
        probability, missing = replay_with_support(data, policy, logging, executor=executor)
        result = result.with_column(name, probability).with_column(name + UNSUPPORTED, missing)
    if target.form == "csv":
        result.write_csv(target.path)
    else:
        made = {**result.provenance, **story}
        write_file(target.path, len(result), lambda path: write_part(path, [result.columns], made))


def _refuse_without_views(given: Given, name: str, fitted: Any = None) -> None:
    """Raise UserError if a log has no views and a policy depends on the history."""
    if given.ours or not given.survey.all_bandit or (fitted is not None and fitted.fixed_distribution() is not None):
        return
    raise UserError(
        f"{given.path} has no item events (views), so {name} would act on empty histories: add the users' views as "
        "rows, or give estimate the policy's own probabilities with --target-file"
    )


def items_of(given: Given, asked: int | None) -> int:
    """Return the number of items: the one asked for, or that of the logs."""
    n_items = stated_items(given.provenance, given.survey.highest_item + 1)
    n_items = max(n_items, given.training.n_items)
    if asked is not None and asked < max(n_items, 1):
        raise UserError(f"--items {asked}: the log has {n_items} items. Give at least that many, or omit --items")
    return asked or n_items


def digest_of_log(train: Path | None) -> str | None:
    """Compute the digest of the training log."""
    if train is None:
        return None
    return digest_of_files(Parts.of(train))


TODAY = "today"
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
    """Estimate the value of agents fitted on some users of a log, from the other users, against today's policy.

    Args:
        path: a log with users, the items shown, rewards, propensities and, for agents that learn, views.
        agents: names as in ``recsim-mnar list agents``, or ``package.module:Class``.
        train_share: expected share of the users that agents are fitted on.
        seed: seed of the split and of the fit.
        columns: column by role, recognised if left out.
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

    Yields:
        The file, which is removed afterwards, and notes on the columns used.
    """
    number_in(train_share, "train_share", 0.0, 1.0, ends="()")
    check_seed(seed, "seed")
    learners = {name: registry.learner(name) for name in texts_of(agents, "agents")}
    if not learners or len(learners) < len(agents):
        raise UserError(f"agents must be different names, at least one, got {list(agents)}")
    logs = given_logs(log, None, reading)
    part = halves_of(logs, seed, train_share)[0]
    data = part.whole()
    if np.isnan(data["propensity"][data.is_bandit]).any():
        raise UserError(
            f"{log} has no propensity for some items shown, and agents are judged by these: log the probability with "
            "which each item is shown"
        )
    check_training(logs, log, part.training, learners)
    fit = Fitting(learners, items_of(logs, None), seed, digest_of_log(log))
    fitted, story = fit.policies(part, 1, report)
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        target = Destination(Path(folder) / "replayed.parquet", "parquet", resume=False)
        fit.write(part, fitted, story, logging_policy(logs.provenance), target)
        try:
            yield target.path, logs.lines
        except UserError as error:
            raise UserError(str(error).replace(str(target.path), str(log)), code=error.code) from error


def of_log(found: FileAnswer, file: Path, log: Path, lines: Sequence[str]) -> FileAnswer:
    """Rename the replayed file in an answer to the log that it was made from."""
    named = found.called({str(file): str(log)})
    answer = replace(named.found, lines=[*lines, *named.found.lines])
    return replace(named, files={str(log): log}, found=answer)


def ab_test_of(log: Path, sentence: Sentence, reading: Reading) -> ABPlan | None:
    """Plan an A/B test for the estimated lift of the agent that is ahead; None if none is."""
    if not (sentence.change_percent or 0.0) > 0.0:
        return None
    try:
        return plan_ab(log, f"{sentence.change_percent:.3g}%", columns=reading)
    except UserError:
        return None


def ahead_of_today(sentence: Sentence, test: ABPlan | None) -> str:
    """Describe the agent that is ahead of today's policy, or the users that an A/B test needs."""
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
