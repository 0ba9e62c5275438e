"""advise_on: fit a world to a log, hold it against the log, and study protocols over the ensemble."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.advice.findings import Advice, best_agents, ranked_of, users_needed
from recsim_mnar.fitting.calibration import FittedWorld, calibrate_world
from recsim_mnar.log.files import write_json
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.protocols.records import plain
from recsim_mnar.protocols.setup import Setup
from recsim_mnar.resuming import making
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.studies import run_study
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.registry import entry_of

AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn")
EXPLORING = ("user-popularity-greedy+epsilon=0.1", "random")
LOGGING = "user-popularity"
_FEWEST, _MOST = 200, 2000
WORLD, VALIDATION, STUDY, EXPLORATION = "world.toml", "validation.json", "study", "exploration"

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        agents: to choose among; at least two.
        protocols: to choose by; those of the world's comparison where None.
        world: that is fitted.
        ensemble: worlds of it that are studied.
        users: of each log and arm of the study; as many as the log has, from 200 to 2,000, where None.
        logging: policy under which the study's logs are made: the kind that is deployed.
        exploring: other logging policies that off-policy estimates are tried under.
        seed: of everything.
        assume: parameters of the world that are set, not fitted.
        n_items: how many items there are, where the log does not show all.
        validate: whether the world is held against the log.
    """

    agents: Sequence[str] = AGENTS
    protocols: Sequence[str] | None = None
    world: str = "sessions"
    ensemble: int = 20
    users: int | None = None
    logging: str = LOGGING
    exploring: Sequence[str] = EXPLORING
    seed: int = 0
    assume: Mapping[str, Any] = field(default_factory=dict)
    n_items: int | None = None
    validate: bool = True


def advise_on(
    log: Log | Ratings,
    question: Question,
    folder: str | Path,
    *,
    resume: bool = False,
    doctor: Sequence[str] = (),
    executor: Executor | None = None,
    report: Report = lambda stage: None,
) -> Advice:
    """Say which protocol finds the best of some agents in worlds like the one a log comes from.

    Args:
        log: see :func:`recsim_mnar.fitting.calibration.calibrate_world`.
        question: what is asked.
        folder: for the fitted world, the validation and the study's tasks.
        resume: keep what an interrupted run has left in ``folder``.
        doctor: lines on the file, which are kept with the rest.
        executor: processes to spread the study over; no number depends on it.
        report: called with a line whenever a stage begins or a world is done.

    Raises:
        UserError: a log that no world can be fitted to, fewer than two agents, a folder of another run.
    """
    check_seed(question.seed)
    if len(set(question.agents)) < 2:
        raise UserError(f"advise chooses among agents: name at least two, got {', '.join(question.agents) or 'none'}")
    if question.ensemble < 2:
        raise UserError(f"ensemble must be at least 2, got {question.ensemble}: one world is an anecdote")
    folder = Path(folder)
    fitted = _fitted(log, question, folder / WORLD, resume, report)
    validation = _validated(fitted, log, question, folder / VALIDATION, resume, report) if question.validate else None
    users = question.users or min(max(int(fitted.facts["users"]), _FEWEST), _MOST)
    of_decisions = _has_logging(fitted)
    main = _studied(fitted, question, users, question.logging if of_decisions else None, folder / STUDY, resume,
                    executor, report)  # fmt: skip
    exploring = []
    if of_decisions and (question.protocols is None or "off_policy" in question.protocols):
        for i, logging in enumerate(question.exploring):
            path = folder / f"{EXPLORATION}-{i + 1}"
            found = _studied(fitted, question, users, logging, path, resume, executor, report, only="off_policy")
            exploring += ranked_of(found, logging)[:1]
    return Advice(
        ranked_of(main, question.logging),
        exploring,
        best_agents(main),
        users,
        users_needed(main, users),
        len(main),
        {**fitted.facts, "users_of_study": users, "logging": question.logging, "agents": list(question.agents)},
        fitted.identified,
        fitted.not_identified,
        validation,
        list(doctor),
    )


def _fitted(log: Log | Ratings, question: Question, path: Path, resume: bool, report: Report) -> FittedWorld:
    if resume and path.exists():
        report(f"{path} was there already")
        found = FittedWorld.load(path)
        if len(found.ensemble) != question.ensemble or found.world != question.world:
            raise UserError(f"--resume: {path} is of another question: name another folder")
        return found
    with making(path, resume=resume, beside=[path.with_suffix(".npz")]):
        found = calibrate_world(
            log,
            question.world,
            question.seed,
            n_items=question.n_items,
            ensemble=question.ensemble,
            assume=question.assume,
            report=report,
        )
        return found.save(path)


def _validated(
    fitted: FittedWorld, log: Log | Ratings, question: Question, path: Path, resume: bool, report: Report
) -> dict[str, Any]:
    if resume and path.exists():
        report(f"{path} was there already")
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept
    from recsim_mnar.fitting.validation import log_of_ratings, validate_world

    report("hold the world against the log")
    events = log_of_ratings(log) if isinstance(log, Ratings) else log
    with making(path, resume=resume):
        found = validate_world(fitted, events, derive_seed(question.seed, "advise/validate"), report=report)
        content: dict[str, Any] = plain(found.to_dict())
        write_json(path, content)
    return content


def _has_logging(fitted: FittedWorld) -> bool:
    """Whether the comparison of this kind of world has a logging policy."""
    return "logging" in _settings(fitted).to_dict()


def _settings(fitted: FittedWorld) -> Any:
    from recsim_mnar.protocols.compare import experiment_of

    kind: type[World] = entry_of(fitted.world).world_class()
    return experiment_of(kind).settings()


def _studied(
    fitted: FittedWorld,
    question: Question,
    users: int,
    logging: str | None,
    folder: Path,
    resume: bool,
    executor: Executor | None,
    report: Report,
    only: str | None = None,
) -> list[dict[str, Any]]:
    """One comparison in each world of the ensemble: their results."""
    known = _settings(fitted).to_dict()
    sizes = {"train_users": users, "test_users": users, "arm_users": users, "truth_users": 4 * users}
    options: dict[str, Any] = {name: value for name, value in sizes.items() if name in known}
    options |= {"logging": logging} if logging is not None else {}
    protocols = (only,) if only else (None if question.protocols is None else tuple(question.protocols))
    setups = [
        Setup(world=name, agents=tuple(question.agents), protocols=protocols, options=options)
        for name in fitted.names()
    ]
    report(f"compare in {len(setups)} worlds" + (f", logs under {logging}" if logging else ""))
    seed = derive_seed(question.seed, "advise/study")
    study = run_study(setups, seeds=1, seed=seed, folder=folder, resume=resume and folder.exists(), executor=executor,
                      report=report)  # fmt: skip
    return study.results
