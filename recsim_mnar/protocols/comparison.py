"""compare: every protocol judges every agent, and the truth judges the protocols; one function for every world."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import list_of, of_type, table_by_name
from recsim_mnar.log.table import Log
from recsim_mnar.plugins import imported
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import as_learner
from recsim_mnar.policies.door import check_needs as check_needs_of_learner
from recsim_mnar.protocols.ab_test import ONLINE
from recsim_mnar.protocols.base import (
    Experiment,
    Protocol,
    RawResults,
    SecondPart,
    Trial,
    check_names,
    check_needs,
    protocol,
)
from recsim_mnar.protocols.off_policy import OffPolicy, check_estimators, of_comparison
from recsim_mnar.protocols.records import TIDY, TIDY_TYPES, Judgement, Ranking, Record, Target, judge, tidy_rows
from recsim_mnar.protocols.scoreboard import CATALOGUES, WIDTH, scoreboard
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.registry import WORLDS, entry_of, is_world_file, make_world

if TYPE_CHECKING:
    import pandas as pd

    from recsim_mnar.policies.base import Learner


@dataclass(frozen=True)
class Setting:
    """Subject of a comparison, for a title.

    Attributes:
        source: name of the world, or of a user's own file.
        n_items: size of the catalogue.
        n_users: users whose log the protocols read; None if there is no such log.
        seed: of the comparison.
        preset: of the world, where there is one.
    """

    source: str
    n_items: int
    n_users: int | None
    seed: int
    preset: str | None = None

    def __str__(self) -> str:
        if self.preset is None:
            name = self.source
        else:
            name = f"{self.source}, {self.preset}"
        if self.n_users is None:
            users = ""
        else:
            users = f"{self.n_users:,} test users, "
        return f"{name}: {self.n_items:,} items, {users}seed {self.seed}"


@dataclass
class Comparison:
    """Result of ``compare``: records, judgements of the protocols, and the log.

    Attributes:
        records: all protocols' records, the truth's included.
        judgements: one per ranking.
        log: the test log.
        exposures: its second part, in the purchases world.
        notes: sentences about the setting that a reader of the report should know.
        columns: (protocol, metric) of the short table; all there are where it is empty.
        headings: of columns, by (protocol, metric); others are headed by their own names.
        losses: metrics of which small values are good.
        title: of the report.
        lead: what the report shows, below its title; empty for what a comparison with a known truth shows.
        conclusion: sentences that the report begins with, where no truth judges the protocols.
        details: what else is known of the whole; JSON types.
        neutral: metrics of which neither large nor small values are good.
        again: the command that runs the same on many catalogues; empty where there is none.
        setting: what was compared; None where that is not known.
        hints: sentences that follow the scoreboard.
        truth_estimates: (protocol, metric) of the records that estimate the truth itself.
    """

    records: list[Record]
    judgements: list[Judgement] = field(default_factory=list)
    log: Log | None = None
    exposures: SecondPart | None = None
    notes: list[str] = field(default_factory=list)
    columns: list[tuple[str, str]] = field(default_factory=list)
    headings: dict[tuple[str, str], str] = field(default_factory=dict)
    losses: frozenset[str] = frozenset()
    title: str = "Which protocol picks the best agent?"
    lead: str = ""
    conclusion: list[str] = field(default_factory=list)
    details: Mapping[str, Any] = field(default_factory=dict)
    neutral: frozenset[str] = frozenset()
    again: str = ""
    setting: Setting | None = None
    hints: list[str] = field(default_factory=list)
    truth_estimates: frozenset[tuple[str, str]] = frozenset()

    @property
    def front_notes(self) -> list[str]:
        """Sentences that follow the scoreboard: how to repeat the run, and the hints."""
        if not (self.again and self.judgements):
            return self.hints
        anecdote = f"One run is an anecdote. Repeat it: {self.again}"
        if len(anecdote) > WIDTH:
            anecdote = f"One run is an anecdote. Repeat it with --catalogues {CATALOGUES}."
        return [anecdote, *self.hints]

    def heading(self, key: tuple[str, str]) -> str:
        """Heading of the column of a protocol and metric."""
        protocol, metric = key
        if protocol in ("truth", "loocv"):
            own_name = metric
        else:
            own_name = f"{protocol} {metric}"
        return self.headings.get(key, own_name)

    def frame(self) -> pd.DataFrame:
        """One row per record: see :func:`recsim_mnar.protocols.records.tidy_rows`."""
        import pandas as pd

        rows = tidy_rows([r.to_dict() for r in self.records], [j.to_dict() for j in self.judgements])
        return pd.DataFrame(rows, columns=list(TIDY)).astype(TIDY_TYPES)

    def __repr__(self) -> str:
        return "\n".join(scoreboard(self).lines())

    def sentences(self) -> list[str]:
        """Describe the judgements, or the conclusion where there are none, in sentences."""
        return self.conclusion or [j.sentence() for j in self.judgements]

    def summary(self) -> Mapping[str, object]:
        """Judgements, conclusion and notes as JSON types."""
        judged = [j.to_dict() for j in self.judgements]
        if self.conclusion:
            concluded = {"conclusion": self.conclusion}
        else:
            concluded = {}
        return {"judgements": judged, **concluded, **self.details, "notes": [*self.hints, *self.notes]}


def experiment_of(world: type[World] | World) -> Experiment:
    """Find the experiment of a world, from its entry or the class that it derives from."""
    made: Experiment = imported("comparison", world.compared_by)()
    if not inspect.isclass(world):
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
    raw: RawResults | None = None,
) -> Comparison:
    """Judge every agent by every protocol and by the truth, and every protocol by the truth.

    The world's comparison (:func:`experiment_of`) makes the training log, the test log and the truth.

    Args:
        world: with known truth.
        learners: by name.
        protocols: names, ``package.module:Class``, or protocols; the world's own list where None. The truth always
            runs.
        settings: sizes and options, of the comparison's ``settings_type``; its defaults where None.
        references: agents that are shown next to the others and cannot be picked; ``oracle``, which knows the users'
            states, is made here where users decide one by one.
        tie: share of the best true value that counts as nothing.
        seed: of everything but the catalogue.
        executor: to spread the work over; no number depends on it.
        report: called with a line whenever a stage begins.
        raw: receives the raw results of the protocols.

    Raises:
        UserError: an unknown protocol, or one that needs what this world's comparison lacks; no agent.
    """
    of_type(world, "world", World, "a World (make_world makes one by its name)")
    table_by_name(learners, "learners")
    list_of(references, "references")
    of_type(report, "report", Callable, "a function that takes a line")
    experiment = experiment_of(world)
    if settings is None:
        settings = experiment.settings()
    chosen = chosen_protocols(experiment, protocols, world.name)
    _check(experiment, learners, settings, tie)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    check_agents(experiment, world, learners)
    trial = Trial(
        world, learners, settings, check_seed(seed), executor, report, n_items=world.n_items, level=settings.level
    )
    trial.references = references
    trial.raw = raw
    return judged_comparison(experiment, chosen, trial, tie)


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
            "baseline); estimate gives the value of one from a log"
        )
    if n_items < 2:
        raise UserError(
            "a catalogue of one item leaves nothing to choose: every agent recommends it; give it more items"
        )


def worlds_for(needs: frozenset[str]) -> list[str] | None:
    """Names of the worlds whose comparisons train on logs that hold this; None where all do.

    Args:
        needs: of :data:`recsim_mnar.policies.door.HOLDINGS`.
    """
    if not needs:
        return None
    classes = {name: entry.world_class() for name, entry in WORLDS.items()}
    holds = {name: _log_holds(experiment_of(world), world) for name, world in classes.items()}
    return [name for name, held in holds.items() if held is None or needs <= held]


def _log_holds(experiment: Experiment, world: Any) -> frozenset[str] | None:
    """List the contents of training logs, of a world or its class."""
    if experiment.log_holds is None:
        return world.log_holds
    return experiment.log_holds


def judged_by(one: Protocol, trial: Trial) -> list[Record]:
    """Return a protocol's records under its name.

    Raises:
        UserError: what it gives are no records, or none.
    """
    judged: Any = one.judge(trial)
    if isinstance(judged, Iterable):
        records = list(judged)
    else:
        records = [judged]
    wrong = [r for r in records if not isinstance(r, Record)]
    if wrong:
        raise UserError(
            f"protocol {one.name!r}: judge() must return a list of recsim_mnar.protocols.records.Record, "
            f"got {'one with ' if isinstance(judged, Iterable) else ''}{wrong[0]!r}"
        )
    if not records:
        raise UserError(
            f"protocol {one.name!r}: judge() gave no record; return one for each agent and metric, or leave it out"
        )
    return [replace(r, protocol=one.name) for r in records]


def chosen_protocols(experiment: Experiment, protocols: Sequence[str | Protocol] | None, world: str) -> list[Protocol]:
    """Return the named protocols, or the experiment's default ones.

    Raises:
        UserError: an unknown one, or one that needs what there is not.
    """
    chosen = []
    for one in experiment.protocols if protocols is None else list_of(protocols, "protocols"):
        if isinstance(one, str):
            made = protocol(one, experiment.own_protocols)
        else:
            made = one
        check_needs(made, experiment.provides, world)
        chosen.append(made)
    check_names(chosen)
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


def judged_comparison(experiment: Experiment, chosen: list[Protocol], trial: Trial, tie: float = 0.0) -> Comparison:
    """Run the protocols, hold their rankings against the truth, and say what comes of it."""
    experiment.prepare(trial)
    judged = [r for one in chosen if trial.learners for r in judged_by(one, trial)]
    if trial.raw is not None:
        trial.raw.check(judged)
    records = [*judged, *experiment.truth(trial), *experiment.online(trial)]
    records = [_as_reference(r) if r.agent in trial.references else r for r in records]
    rankings = experiment.rankings(chosen, records, trial.settings)
    judgements = judge(records, rankings, tie=tie)
    notes = experiment.notes(trial, records)
    if len({r.agent for r in records if not r.is_reference and r.agent not in trial.online}) == 1:
        notes.append("There is one agent, so there is nothing to choose and no protocol to judge.")
    targets = experiment.targets(trial.settings)
    return Comparison(
        records,
        judgements,
        log=trial.test_log,
        exposures=trial.exposures,
        notes=notes,
        columns=_columns(experiment, records, rankings, targets),
        headings=_headings(chosen, records, targets),
        losses=frozenset(target.metric for target in targets if not target.larger),
        details=trial.findings,
        truth_estimates=frozenset((r.protocol, r.metric) for r in records if _estimates_truth(chosen, r)),
        setting=Setting(
            trial.world.name, trial.n_items, experiment.n_test_users(trial.world, trial.settings), trial.seed
        ),
    )


def _estimates_truth(chosen: list[Protocol], record: Record) -> bool:
    return any(one.name == record.protocol and one.estimates_truth(record.metric) for one in chosen)


def _columns(
    experiment: Experiment, records: list[Record], rankings: list[Ranking], targets: Sequence[Target]
) -> list[tuple[str, str]]:
    """Those of the experiment, or what is judged, and the truth."""
    columns = experiment.columns(records)
    if not columns:
        judged = [(ranking.protocol, ranking.metric) for ranking in rankings]
        columns = [*judged, *(("truth", target.metric) for target in targets)]
    there = {(r.protocol, r.metric) for r in records}
    columns = [*columns, *((r.protocol, r.metric) for r in records if r.protocol == ONLINE)]
    return [key for key in dict.fromkeys(columns) if key in there]


def _headings(chosen: list[Protocol], records: list[Record], targets: Sequence[Target]) -> dict[tuple[str, str], str]:
    """Get the heading of each column: its protocol's, or that of the truth of its target."""
    by_name = {one.name: one for one in chosen}
    keys = dict.fromkeys((r.protocol, r.metric) for r in records)
    headings = {key: by_name[key[0]].heading(key[1]) for key in keys if key[0] in by_name}
    headings |= {key: f"{targets[0].title} while learning" for key in keys if key[0] == ONLINE}
    return headings | {("truth", target.metric): f"true {target.title}" for target in targets}


@dataclass(frozen=True)
class Setup:
    """One comparison, but for its seeds; JSON types only.

    Attributes:
        world: a world's name, or a world file's.
        preset: of the world; the comparison's own default where None.
        params: the world's parameters that differ, by name.
        agents: names or ``package.module:Class``; the comparison's list where None.
        references: further agents, which are shown and cannot be picked.
        protocols: names or ``package.module:Class``; the comparison's list where None.
        options: of this world's comparison, by name.
        tie: share of the best true value that counts as nothing.
        specs: what an agent's name stands for, where that is not the preset's or the agent itself.
    """

    world: str = "sessions"
    preset: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    agents: tuple[str, ...] | None = None
    references: tuple[str, ...] = ()
    protocols: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tie: float = 0.0
    specs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse agents and protocols that are no names, which no file could say."""
        for name in ("agents", "references", "protocols"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) for one in value or ()):
                raise UserError(f"{name} must be a list of names, as package.module:Class, got {value!r}")

    def command(self, catalogues: int) -> str:
        """Return the command that runs the same on so many catalogues."""
        words = ["recsim-mnar", "compare"]
        if self.world != Setup.world:
            words += ["--world", self.world]
        if self.preset is not None:
            words += ["--preset", self.preset]
        for flag, names in (
            ("--agents", self.agents),
            ("--references", self.references),
            ("--protocols", self.protocols),
        ):
            if names:
                words += [flag, ",".join(names)]
        for flag, pairs in (("--set", self.params), ("--option", self.options)):
            words += [word for name, value in pairs.items() for word in (flag, f"{name}={value}")]
        if self.tie:
            words += ["--tie", f"{self.tie:g}"]
        return shlex.join([*words, "--catalogues", str(catalogues)])

    def resolved(self, catalogue_seed: int | None = None) -> Resolved:
        """Make the world and the settings, and look up the agents.

        Args:
            catalogue_seed: of the world's items, where its catalogues have a seed; the world's own where None.

        Raises:
            UserError: something that cannot be made, by its name.
        """
        entry = entry_of(self.world)
        experiment = experiment_of(entry.world_class())
        preset = self.preset or None
        if preset is None and experiment.preset in entry.presets() and not is_world_file(self.world):
            preset = experiment.preset
        world = self._world(preset, catalogue_seed)
        settings = experiment.settings(preset, self.options)
        self._check_estimators(experiment, world, settings)
        names = self._agent_names(experiment, preset)
        meanings = {**experiment.specs(preset, settings), **self.specs}
        own_references = experiment.own_references & set(self.references)
        specs = {name: meanings.get(name, name) for name in names if name not in own_references}
        made = {name: registry.learner(spec) for name, spec in specs.items()}
        for spec in experiment.further_agents(settings):
            registry.learner(spec)
        check_agents(experiment, world, made)
        check_comparable(len(names) - len(self.references), world.n_items)
        return Resolved(self, preset, world, settings, specs)

    def _world(self, preset: str | None, catalogue_seed: int | None) -> Any:
        """Make the world, with this seed of its catalogue where it has one."""
        params = [f"{name}={value}" for name, value in self.params.items()]
        world = make_world(self.world, preset, params)
        if catalogue_seed is None or "catalogue_seed" not in world.params.to_dict():
            return world
        others = [f"{name}={value}" for name, value in self.params.items() if name != "catalogue_seed"]
        return make_world(self.world, preset, [*others, f"catalogue_seed={catalogue_seed}"])

    def _check_estimators(self, experiment: Experiment, world: Any, settings: Any) -> None:
        """Raise UserError for an estimator, of the settings or of a protocol, that this comparison cannot have."""
        ranks = getattr(world, "slate_size", 1) > 1
        protocols = chosen_protocols(experiment, self.protocols, world.name)
        of_protocols = [name for one in protocols if isinstance(one, OffPolicy) for name in one.estimators]
        check_estimators([*of_comparison(settings, ranks=ranks), *of_protocols], ranks=ranks)

    def _agent_names(self, experiment: Experiment, preset: str | None) -> list[str]:
        """Return the names of the agents and of the references; UserError for one that is named twice or knows all."""
        usual = experiment.preset_agents.get(preset or "", experiment.agents)
        names = [*(usual if self.agents is None else self.agents), *self.references]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UserError(f"agent {twice[0]} is named twice")
        knowing = experiment.own_references & set(self.agents or ())
        if knowing:
            raise UserError(f"{min(knowing)} knows the truth and cannot be picked: name it with --references")
        return names


@dataclass(frozen=True)
class Resolved:
    """Setup with resolved names.

    Attributes:
        setup: what was asked for.
        preset: of the world.
        world: of one catalogue.
        settings: of its comparison.
        specs: what each agent's name stands for.
    """

    setup: Setup
    preset: str | None
    world: Any
    settings: Any
    specs: dict[str, str]

    def run(
        self,
        seed: int,
        *,
        executor: Executor | None = None,
        report: Callable[[str], None] = lambda stage: None,
        raw: RawResults | None = None,
    ) -> Comparison:
        """Run the comparison with a seed; ``raw`` receives the raw results of its protocols."""
        comparison = compare(
            self.world,
            {name: registry.learner(spec) for name, spec in self.specs.items()},
            protocols=self.setup.protocols,
            settings=self.settings,
            references=self.setup.references,
            tie=self.setup.tie,
            seed=seed,
            executor=executor,
            report=report,
            raw=raw,
        )
        comparison.again = self.setup.command(CATALOGUES)
        if comparison.setting is not None:
            comparison.setting = replace(comparison.setting, preset=self.preset)
        if self.preset is not None and self.setup.agents is None:
            comparison.hints = list(experiment_of(self.world).preset_hints.get(self.preset, ()))
        return comparison

    def run_config(self, seed: int) -> Mapping[str, Any]:
        """List everything needed to make it again."""
        return {
            "world": self.world.describe(),
            "preset": self.preset,
            "settings": asdict(self.settings),
            "protocols": None if self.setup.protocols is None else list(self.setup.protocols),
            "agents": self.specs,
            "references": list(self.setup.references),
            "tie": self.setup.tie,
            "seed": seed,
        }
