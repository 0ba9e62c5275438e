"""Agents fitted on some users of a log and judged by the others: replay, estimate and plan ab in one call."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.answers.sentence import Sentence, logged_by
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, texts_of
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.gate import FileAnswer, answer_file
from recsim_mnar.own_log.plan.experiment import ABPlan, plan_ab
from recsim_mnar.own_log.replaying import (
    Destination,
    Fitting,
    check_training,
    digest_of_log,
    given_logs,
    halves_of,
    items_of,
)
from recsim_mnar.policies import registry
from recsim_mnar.rng import check_seed
from recsim_mnar.runs.files import path_of
from recsim_mnar.simulation.run_folder import logging_policy

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
    """Estimate what agents would earn: fitted on some users of a log, judged by the others against today's policy.

    Args:
        path: a log with users, the items shown, rewards, propensities and, for agents that learn, views.
        agents: their names, as in ``recsim-mnar list agents``, or ``package.module:Class``.
        train_share: expected share of the users that agents are fitted on.
        seed: of the split and of the fit.
        columns: by role the column of the log, recognised where left out.
        **asked: as of :func:`recsim_mnar.estimate_file`, of the estimates.

    Raises:
        UserError: a log or an agent that cannot be judged so, in one line.
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
        The file, which is gone afterwards, and which columns were taken for what.
    """
    number_in(train_share, "train_share", 0.0, 1.0, ends="()")
    check_seed(seed, "seed")
    learners = {name: registry.learner(name) for name in texts_of(agents, "agents")}
    if not learners or len(learners) < len(agents):
        raise UserError(f"agents must be different names, at least one, got {list(agents)}")
    given = given_logs(log, None, reading)
    part = halves_of(given, seed, train_share)[0]
    data = part.whole()
    if np.isnan(data["propensity"][data.is_bandit]).any():
        raise UserError(
            f"{log} has no propensity for some items shown, and agents are judged by these: log the probability with "
            "which each item is shown"
        )
    check_training(given, log, part.training, learners)
    fit = Fitting(learners, items_of(given, None), seed, digest_of_log(log))
    fitted, story = fit.policies(part, 1, report)
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        target = Destination(Path(folder) / "replayed.parquet", "parquet", resume=False)
        fit.write(part, fitted, story, logging_policy(given.provenance), target)
        try:
            yield target.path, given.lines
        except UserError as error:
            raise UserError(str(error).replace(str(target.path), str(log)), code=error.code) from error


def of_log(found: FileAnswer, file: Path, log: Path, lines: Sequence[str]) -> FileAnswer:
    """The answer from a replayed file as that of the log which it was made from."""
    named = found.called({str(file): str(log)})
    answer = replace(named.found, lines=[*lines, *named.found.lines])
    return replace(named, files={str(log): log}, found=answer)


def ab_test_of(log: Path, sentence: Sentence, reading: Reading) -> ABPlan | None:
    """An A/B test that finds the estimated lift of the agent that is ahead; None where none is."""
    if not (sentence.change_percent or 0.0) > 0.0:
        return None
    try:
        return plan_ab(log, f"{sentence.change_percent:.3g}%", columns=reading)
    except UserError:
        return None


def ahead_of_today(sentence: Sentence, test: ABPlan | None) -> str:
    """Who is ahead of today's policy with what verdict, or how many users an A/B test needs."""
    today = logged_by(sentence.baseline_kind)
    if sentence.answer == "better":
        return f"{sentence.policy} is ahead of {today} (verdict: {sentence.sure})."
    found = f"No agent is known to be ahead of {today}."
    if sentence.answer == "looks_better":
        found = f"{sentence.policy} looks ahead of {today} (verdict: {sentence.sure.replace('_', ' ')})."
    if test is None:
        return found
    lift = f"{sentence.policy}'s estimated lift, {100.0 * test.lift_share:.3g} %,"
    return f"{found} An A/B test that finds {lift} needs {test.users:,} users per arm."
