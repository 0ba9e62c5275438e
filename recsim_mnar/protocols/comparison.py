"""compare: every protocol judges every agent, and the truth judges the protocols; one function for every world."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies.door import as_learner
from recsim_mnar.policies.needs import check_needs as check_needs_of_learner
from recsim_mnar.protocols import online
from recsim_mnar.protocols.base import Protocol, Trial, check_needs, protocol
from recsim_mnar.protocols.experiment import Experiment, Picture
from recsim_mnar.protocols.judgement import Judgement, Ranking, Target, judge
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.registry import WORLDS, comparison_of

if TYPE_CHECKING:
    from recsim_mnar.log.exposures import Exposures
    from recsim_mnar.policies.base import Learner


@dataclass
class Comparison:
    """What ``compare`` found: records, what they say of the protocols, and the log they judged.

    Attributes:
        records: all protocols' records, the truth's included.
        judgements: one a ranking.
        log: the test log.
        exposures: its second part, in the purchases world.
        notes: sentences about the setting that a reader should know.
        headline: what the judgements say in one sentence, where there is one; shown in their place.
        columns: (protocol, metric) of the short table; those of :mod:`recsim_mnar.report.tables` where it is empty.
        headings: of columns, by (protocol, metric); others are headed by their own names.
        losses: metrics of which small values are good.
        pictures: figures of the report.
        title: of the report.
        lead: what the report shows, below its title; empty for what a comparison with a known truth shows.
        conclusion: sentences that the report begins with, where no truth judges the protocols.
        facts: of the data, what and how much, as a person reads them.
        details: what else is known of the whole; JSON types.
        neutral: metrics of which neither large nor small values are good.
        again: the command that runs the same on many catalogues; empty where there is none.
    """

    records: list[Record]
    judgements: list[Judgement] = field(default_factory=list)
    log: Log | None = None
    exposures: Exposures | None = None
    notes: list[str] = field(default_factory=list)
    headline: str = ""
    columns: list[tuple[str, str]] = field(default_factory=list)
    headings: dict[tuple[str, str], str] = field(default_factory=dict)
    losses: frozenset[str] = frozenset()
    pictures: list[Picture] = field(default_factory=list)
    title: str = "Which protocol tells the truth?"
    lead: str = ""
    conclusion: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    neutral: frozenset[str] = frozenset()
    again: str = ""

    def sentences(self) -> list[str]:
        """What the judgements say, or the conclusion where there are none, for a person."""
        if self.conclusion:
            return self.conclusion
        return [self.headline] if self.headline else [j.sentence() for j in self.judgements]

    def identified(self) -> list[str]:
        """What the log says of each agent of which it lacks too much for an off-policy value."""
        found: dict[str, str] = {}
        for record in self.records:
            if record.covers:
                found.setdefault(record.agent, record.details["identified"])
        return list(found.values())

    def summary(self) -> dict[str, Any]:
        """Judgements, conclusion and notes as JSON types."""
        found: dict[str, Any] = {"judgements": [j.to_dict() for j in self.judgements]}
        found |= {"headline": self.headline} if self.headline else {}
        found |= {"conclusion": self.conclusion} if self.conclusion else {}
        found |= {"identified": self.identified()} if self.identified() else {}
        return {**found, **self.details, "notes": self.notes}


def experiment_of(world: type[World] | World) -> Experiment:
    """How recommenders are compared in a world, which its entry or the class that it derives from says."""
    if inspect.isclass(world):
        made: Experiment = comparison_of(world)()
        return made
    made = comparison_of(type(world))()
    made.world = world
    return made


def compare(
    world: World,
    learners: Mapping[str, Learner],
    *,
    protocols: Sequence[str | Protocol] | None = None,
    settings: Any = None,
    references: Sequence[str] = (),
    tie: float = 0.0,
    seed: int = 0,
    executor: Executor | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> Comparison:
    """Judge every agent by every protocol and by the truth, and every protocol by the truth.

    The world's comparison (:func:`experiment_of`) makes the training log, the test log and the truth.

    Args:
        world: with known truth.
        learners: by name.
        protocols: names, ``package.module:Class``, or protocols; the world's own list where None. The truth always
            runs.
        settings: sizes and options, of the comparison's ``settings_type``; its defaults where None.
        references: agents that are shown beside the others and cannot be picked.
        tie: share of the best true value that counts as nothing.
        seed: of everything but the catalogue.
        executor: to spread the work over; no number depends on it.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: an unknown protocol, or one that needs what this world's comparison lacks; no agent.
    """
    experiment = experiment_of(world)
    settings = experiment.settings() if settings is None else settings
    chosen = chosen_protocols(experiment, protocols, world.name)
    _check(experiment, learners, settings, tie)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    check_agents(experiment, world, learners)
    trial = Trial(
        world, learners, settings, check_seed(seed), executor, report, n_items=world.n_items, level=settings.level
    )
    experiment.prepare(trial)
    judged = [r for one in chosen if trial.learners for r in _judged_by(one, trial)]
    records = [*judged, *experiment.truth(trial), *experiment.online(trial)]
    records = [_as_reference(r) if r.agent in references else r for r in records]
    return _told(experiment, chosen, records, trial, tie)


def check_agents(experiment: Experiment, world: World, learners: Mapping[str, Learner]) -> None:
    """Raise UserError for an agent that needs what the training log of this world's comparison does not hold."""
    holds = _log_holds(experiment, world)
    for name, learner in learners.items():
        check_needs_of_learner(name, learner, holds, f"the training log of the {world.name} world")


def check_comparable(n_agents: int, n_items: int) -> None:
    """Raise UserError where there is nothing to choose between.

    Args:
        n_agents: that can be picked.
        n_items: of the catalogue.
    """
    if n_agents < 2:
        raise UserError(
            "one agent leaves nothing to choose and no ranking to judge: name two or more with --agents (random is a "
            "baseline); estimate tells the value of one from a log"
        )
    if n_items < 2:
        raise UserError(
            "a catalogue of one item leaves nothing to choose: every agent recommends it; give it more items"
        )


def worlds_for(needs: frozenset[str]) -> list[str] | None:
    """Names of the worlds whose comparisons train on logs that hold this; None where all do.

    Args:
        needs: of :data:`recsim_mnar.policies.needs.HOLDINGS`.
    """
    if not needs:
        return None
    classes = {name: entry.world_class() for name, entry in WORLDS.items()}
    holds = {name: _log_holds(experiment_of(world), world) for name, world in classes.items()}
    return [name for name, held in holds.items() if held is None or needs <= held]


def _log_holds(experiment: Experiment, world: Any) -> frozenset[str] | None:
    """What training logs hold, of a world or its class."""
    return world.log_holds if experiment.log_holds is None else experiment.log_holds


def _judged_by(one: Protocol, trial: Trial) -> list[Record]:
    """A protocol's records, under its name.

    Raises:
        UserError: what it gives are no records, or none.
    """
    found: Any = one.judge(trial)
    records = list(found) if isinstance(found, Iterable) else [found]
    wrong = [r for r in records if not isinstance(r, Record)]
    if wrong:
        raise UserError(
            f"protocol {one.name!r}: judge() must return a list of recsim_mnar.protocols.records.Record, "
            f"got {'one with ' if isinstance(found, Iterable) else ''}{wrong[0]!r}"
        )
    if not records:
        raise UserError(
            f"protocol {one.name!r}: judge() gave no record; return one for each agent and metric, or leave it out"
        )
    return [replace(r, protocol=one.name) for r in records]


def chosen_protocols(experiment: Experiment, protocols: Sequence[str | Protocol] | None, world: str) -> list[Protocol]:
    """The protocols that are named, or the experiment's own list.

    Raises:
        UserError: an unknown one, or one that needs what there is not.
    """
    chosen = []
    for one in experiment.protocols if protocols is None else protocols:
        made = protocol(one, experiment.own_protocols) if isinstance(one, str) else one
        check_needs(made, experiment.provides, world)
        chosen.append(made)
    return chosen


def _check(experiment: Experiment, learners: Mapping[str, Learner], settings: Any, tie: float) -> None:
    if not learners:
        raise UserError("name at least one agent to compare")
    if not isinstance(settings, experiment.settings_type):
        raise UserError(f"settings must be {experiment.settings_type.__name__}, got {type(settings).__name__}")
    if not 0.0 <= tie < 1.0:
        raise UserError(f"tie must be a share in [0, 1), got {tie:g}")


def _as_reference(record: Record) -> Record:
    return replace(record, details={**record.details, "reference": True})


def _told(
    experiment: Experiment, chosen: list[Protocol], records: list[Record], trial: Trial, tie: float
) -> Comparison:
    """Hold the rankings against the truth and say what comes of it."""
    rankings = experiment.rankings(chosen, records, trial.settings)
    judgements = judge(records, rankings, tie=tie)
    notes = experiment.notes(trial, records)
    if len({r.agent for r in records if not r.details.get("reference") and r.agent not in trial.online}) == 1:
        notes.append("There is one agent, so there is nothing to choose and no protocol to judge.")
    targets = experiment.targets(trial.settings)
    log, exposures = experiment.kept(trial)
    return Comparison(
        records,
        judgements,
        log,
        exposures,
        notes,
        experiment.headline(judgements),
        _columns(experiment, records, rankings, targets),
        _headings(chosen, records, targets),
        frozenset(target.metric for target in targets if not target.larger),
        experiment.pictures(records),
        details=trial.findings,
    )


def _columns(
    experiment: Experiment, records: list[Record], rankings: list[Ranking], targets: Sequence[Target]
) -> list[tuple[str, str]]:
    """Those of the experiment, or what is judged beside the truth."""
    columns = experiment.columns(records)
    if not columns:
        judged = [(ranking.protocol, ranking.metric) for ranking in rankings]
        columns = [*judged, *(("truth", target.metric) for target in targets)]
    there = {(r.protocol, r.metric) for r in records}
    columns = [*columns, *((r.protocol, r.metric) for r in records if r.protocol == online.PROTOCOL)]
    return [key for key in dict.fromkeys(columns) if key in there]


def _headings(chosen: list[Protocol], records: list[Record], targets: Sequence[Target]) -> dict[tuple[str, str], str]:
    """How each column is headed: as its protocol says, or as the truth of its target."""
    by_name = {one.name: one for one in chosen}
    keys = dict.fromkeys((r.protocol, r.metric) for r in records)
    found = {key: by_name[key[0]].heading(key[1]) for key in keys if key[0] in by_name}
    found |= {key: f"{targets[0].title} while learning" for key in keys if key[0] == online.PROTOCOL}
    return found | {("truth", target.metric): f"true {target.title}" for target in targets}
