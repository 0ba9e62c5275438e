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
    TRAIN_USERS,
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
from recsim_mnar.protocols.records import TIDY, TIDY_TYPES, Judgement, Ranking, Record, Target, judge, listed, tidy_rows
from recsim_mnar.protocols.scoreboard import CATALOGUES, WIDTH, scoreboard
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.registry import WORLDS, entry_of, is_world_file, left_behind, make_world

if TYPE_CHECKING:
    import pandas as pd

    from recsim_mnar.policies.base import Learner


@dataclass(frozen=True)
class Setting:
    """Subject of a comparison, for a title.

    Attributes:
        source: name of the world, or of a user's own file.
        n_items: number of items.
        n_users: number of users whose log the protocols read; None if there is no such log.
        seed: seed of the comparison.
        preset: preset of the world; None without one.
    """

    source: str
    n_items: int
    n_users: int | None
    seed: int
    preset: str | None = None

    def __str__(self) -> str:
        name = self.source
        if self.preset is not None:
            name += f", {self.preset}"
        users = ""
        if self.n_users is not None:
            users = f"{self.n_users:,} test users, "
        return f"{name}: {self.n_items:,} items, {users}seed {self.seed}"


@dataclass
class Comparison:
    """Result of ``compare``: records, judgements of the protocols, and the log.

    Attributes:
        records: records of all protocols and of the truth.
        judgements: one judgement per ranking.
        log: the test log; None without one.
        exposures: exposures next to the test log, in the purchases world; None in others.
        notes: sentences about the setting that a reader of the report should know.
        columns: (protocol, metric) of each column of the short table; empty for all columns.
        headings: heading by (protocol, metric); other columns are headed by their own names.
        losses: metrics of which small values are good.
        title: title of the report.
        lead: text below the title; empty for that of a comparison with a known truth.
        conclusion: sentences at the beginning of the report if no truth judges the protocols.
        details: further results of the whole comparison; JSON types.
        neutral: metrics of which neither large nor small values are good.
        again: command that runs the same comparison on many catalogues; empty if there is none.
        setting: subject of the comparison; None if it is unknown.
        hints: sentences that follow the scoreboard.
        truth_estimates: (protocol, metric) of the records that estimate the truth's own metric.
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
        """Return the heading of the column of a protocol and metric."""
        protocol, metric = key
        default = metric
        if protocol not in ("truth", "loocv"):
            default = f"{protocol} {metric}"
        return self.headings.get(key, default)

    def frame(self) -> pd.DataFrame:
        """Return a table of one row per record, with the columns of :func:`recsim_mnar.protocols.records.tidy_rows`."""
        import pandas as pd

        rows = tidy_rows([r.to_dict() for r in self.records], [j.to_dict() for j in self.judgements])
        return pd.DataFrame(rows, columns=list(TIDY)).astype(TIDY_TYPES)

    def __repr__(self) -> str:
        return "\n".join(scoreboard(self).lines())

    def sentences(self) -> list[str]:
        """Return the conclusion or, with a known truth, one sentence per judgement."""
        return self.conclusion or [j.sentence() for j in self.judgements]

    def summary(self) -> Mapping[str, object]:
        """Return judgements, conclusion, details and notes as JSON types."""
        result: dict[str, object] = {"judgements": [j.to_dict() for j in self.judgements]}
        if self.conclusion:
            result["conclusion"] = self.conclusion
        return {**result, **self.details, "notes": [*self.hints, *self.notes]}


def experiment_of(world: type[World] | World) -> Experiment:
    """Make the experiment that a world's class names; for a class, :attr:`Experiment.world` remains None."""
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
        world: world with known truth.
        learners: learners by name.
        protocols: names, ``package.module:Class``, or protocols; None for the world's default list. The truth always
            runs.
        settings: sizes and options, of the comparison's ``settings_type``; None for its defaults.
        references: names of agents that are shown next to the others and cannot be picked; in worlds of single
            decisions ``oracle``, which knows the users' states, is made here.
        tie: share of the best true value below which a loss counts as none.
        seed: seed of everything but the catalogue.
        executor: executor over which the work is spread; no number depends on it.
        report: function that is called with a line when a stage begins.
        raw: receiver of the raw results of the protocols; None if they are not kept.

    Raises:
        UserError: a protocol is unknown or needs data that this world's comparison lacks, or there is no agent.
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
    """Raise UserError for an agent that needs data that the training log of this world's comparison lacks."""
    contents = _log_contents(experiment, world)
    for name, learner in learners.items():
        check_needs_of_learner(name, learner, contents, f"the training log of the {world.name} world")


def check_comparable(n_agents: int, n_items: int) -> None:
    """Raise UserError if there is nothing to choose between: fewer than two agents, or a single item.

    Args:
        n_agents: number of agents that can be picked.
        n_items: number of items of the catalogue.
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
    """List the worlds whose training logs have some kinds of data; return None if no kind is needed.

    Args:
        needs: needed kinds of data, of :data:`recsim_mnar.policies.door.HOLDINGS`.
    """
    if not needs:
        return None
    classes = {name: entry.world_class() for name, entry in WORLDS.items()}
    contents = {name: _log_contents(experiment_of(world), world) for name, world in classes.items()}
    return [name for name, content in contents.items() if content is None or needs <= content]


def _log_contents(experiment: Experiment, world: Any) -> frozenset[str] | None:
    """Return the kinds of data in the training log of a comparison; None for all kinds."""
    if experiment.log_holds is None:
        return world.log_holds
    return experiment.log_holds


def judged_by(one: Protocol, trial: Trial) -> list[Record]:
    """Run a protocol, and return its records with the protocol's name in them.

    Raises:
        UserError: its result is no list of records, or is empty.
    """
    judged: Any = one.judge(trial)
    records = list(judged) if isinstance(judged, Iterable) else [judged]
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

    Args:
        experiment: experiment of the world.
        protocols: names or protocols; None for the default list.
        world: name of the world, for messages.

    Raises:
        UserError: a protocol is unknown, is named twice, or needs data that the experiment lacks.
    """
    named = experiment.protocols if protocols is None else list_of(protocols, "protocols")
    chosen = []
    for one in named:
        made = protocol(one, experiment.own_protocols) if isinstance(one, str) else one
        check_needs(made, experiment.provides, world)
        chosen.append(made)
    check_names(chosen)
    return chosen


def _check(experiment: Experiment, learners: Mapping[str, Learner], settings: Any, tie: float) -> None:
    """Raise UserError for an argument of :func:`compare` that is invalid."""
    if not learners:
        raise UserError("name at least one agent to compare")
    if not isinstance(settings, experiment.settings_type):
        raise UserError(f"settings must be {experiment.settings_type.__name__}, got {type(settings).__name__}")
    if not 0.0 <= tie < 1.0:
        raise UserError(f"tie must be a share in [0, 1), got {tie:g}")


def _as_reference(record: Record) -> Record:
    """Mark a record as that of a reference, which cannot be picked."""
    return replace(record, details={**record.details, "reference": True})


def judged_comparison(experiment: Experiment, chosen: list[Protocol], trial: Trial, tie: float = 0.0) -> Comparison:
    """Run the protocols and the truth, and judge each protocol's rankings by the truth.

    Args:
        experiment: experiment of the world, which fills the trial.
        chosen: protocols to run.
        trial: learners and settings.
        tie: share of the best true value below which a loss counts as none.
    """
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
        hints=[remark for one in chosen if trial.learners for remark in one.remarks(trial)],
        truth_estimates=frozenset((r.protocol, r.metric) for r in records if _estimates_truth(chosen, r)),
        setting=Setting(
            trial.world.name, trial.n_items, experiment.n_test_users(trial.world, trial.settings), trial.seed
        ),
    )


def _estimates_truth(chosen: list[Protocol], record: Record) -> bool:
    """Return True if a record's protocol says that its metric estimates the truth's own."""
    return any(one.name == record.protocol and one.estimates_truth(record.metric) for one in chosen)


def _columns(
    experiment: Experiment, records: list[Record], rankings: list[Ranking], targets: Sequence[Target]
) -> list[tuple[str, str]]:
    """Return (protocol, metric) of the short table's columns: the experiment's, or the judged rankings and the truth.

    Columns of agents that learn while they act follow; columns without records are left out.
    """
    columns = experiment.columns(records)
    if not columns:
        judged = [(ranking.protocol, ranking.metric) for ranking in rankings]
        columns = [*judged, *(("truth", target.metric) for target in targets)]
    present = {(r.protocol, r.metric) for r in records}
    columns = [*columns, *((r.protocol, r.metric) for r in records if r.protocol == ONLINE)]
    return [key for key in dict.fromkeys(columns) if key in present]


def _headings(chosen: list[Protocol], records: list[Record], targets: Sequence[Target]) -> dict[tuple[str, str], str]:
    """Return the heading of each column by (protocol, metric): the protocol's, or "true" and the target's title."""
    by_name = {one.name: one for one in chosen}
    keys = dict.fromkeys((r.protocol, r.metric) for r in records)
    headings = {key: by_name[key[0]].heading(key[1]) for key in keys if key[0] in by_name}
    headings |= {key: f"{targets[0].title} while learning" for key in keys if key[0] == ONLINE}
    return headings | {("truth", target.metric): f"true {target.title}" for target in targets}


@dataclass(frozen=True)
class Setup:
    """Settings of one comparison without its seeds; JSON types only.

    Attributes:
        world: name of a world or of a world file.
        preset: preset of the world; None for the comparison's default.
        params: parameters of the world that differ from the preset's, by name.
        agents: names or ``package.module:Class``; None for the comparison's list.
        references: names of further agents, which are shown and cannot be picked.
        protocols: names or ``package.module:Class``; None for the comparison's list.
        options: options of this world's comparison, by name.
        tie: share of the best true value below which a loss counts as none.
        specs: agents with options by the name that stands for them, in place of the preset's.
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
        """Raise UserError for agents or protocols that are no names: only names can be written to a file."""
        for name in ("agents", "references", "protocols"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) for one in value or ()):
                raise UserError(f"{name} must be a list of names, as package.module:Class, got {value!r}")

    def command(self, catalogues: int) -> str:
        """Return the command line that runs the same comparison on this number of catalogues."""
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
        """Make the world and the settings, and check the agents, protocols and estimators.

        Args:
            catalogue_seed: seed of the items, for a world whose catalogue has one; None for the world's own.

        Raises:
            UserError: the world, an agent, a protocol or a setting is unknown or invalid.
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
        specs_by_name = {**experiment.specs(preset, settings), **self.specs}
        # Oracles are no learners with a spec: the comparison makes them from the world.
        oracles = experiment.own_references & set(self.references)
        specs = {name: specs_by_name.get(name, name) for name in names if name not in oracles}
        learners = {name: registry.learner(spec) for name, spec in specs.items()}
        for spec in experiment.further_agents(settings):
            registry.learner(spec)  # an unknown name is refused before any work
        check_agents(experiment, world, learners)
        check_comparable(len(names) - len(self.references), world.n_items)
        return Resolved(self, preset, world, settings, specs)

    def _world(self, preset: str | None, catalogue_seed: int | None) -> Any:
        """Make the world, with this seed of its catalogue if the seed is not None and the world has that parameter."""
        params = [f"{name}={value}" for name, value in self.params.items()]
        world = make_world(self.world, preset, params)
        if catalogue_seed is None or "catalogue_seed" not in world.params.to_dict():
            return world
        params = [f"{name}={value}" for name, value in self.params.items() if name != "catalogue_seed"]
        return make_world(self.world, preset, [*params, f"catalogue_seed={catalogue_seed}"])

    def _check_estimators(self, experiment: Experiment, world: Any, settings: Any) -> None:
        """Raise UserError for an estimator, of the settings or of a protocol, that does not fit this comparison."""
        ranks = getattr(world, "slate_size", 1) > 1
        protocols = chosen_protocols(experiment, self.protocols, world.name)
        of_protocols = [name for one in protocols if isinstance(one, OffPolicy) for name in one.estimators]
        check_estimators([*of_comparison(settings, ranks=ranks), *of_protocols], ranks=ranks)

    def _agent_names(self, experiment: Experiment, preset: str | None) -> list[str]:
        """Return the names of the agents, then of the references.

        Raises:
            UserError: a name occurs twice, or an agent that can be picked is a reference that knows the truth.
        """
        agents = self.agents
        if agents is None:
            agents = tuple(experiment.preset_agents.get(preset or "", experiment.agents))
        names = [*agents, *self.references]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UserError(f"agent {twice[0]} is named twice")
        oracles_as_agents = experiment.own_references & set(self.agents or ())  # presets may include references
        if oracles_as_agents:
            raise UserError(f"{min(oracles_as_agents)} knows the truth and cannot be picked: name it with --references")
        return names


@dataclass(frozen=True)
class Resolved:
    """Setup with resolved names.

    Attributes:
        setup: the setup.
        preset: preset of the world; None for the world's own default.
        world: the world, with one catalogue.
        settings: sizes and options of its comparison.
        specs: agent with its options by name.
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
        """Run the comparison.

        Args:
            seed: seed of everything but the catalogue.
            executor: executor over which the work is spread; no number depends on it.
            report: function that is called with a line when a stage begins.
            raw: receiver of the raw results of the protocols; None if they are not kept.
        """
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
            comparison.hints += experiment_of(self.world).preset_hints.get(self.preset, ())
        comparison.hints = [*self.left_behind(), *comparison.hints]
        return comparison

    def left_behind(self) -> list[str]:
        """Describe counts of items that a changed ``n_items`` left behind, in sentences."""
        return left_behind(self.world, self.setup.world, self.preset, self.setup.params)

    def refitting(self) -> list[str]:
        """List the names of the protocols that fit agents on the judged log itself."""
        chosen = chosen_protocols(experiment_of(self.world), self.setup.protocols, self.world.name)
        return [one.name for one in chosen if one.refits]

    def run_config(self, seed: int) -> Mapping[str, Any]:
        """Return all settings needed to reproduce the comparison, as JSON types."""
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


def remarks_on(setups: Iterable[Setup]) -> list[str]:
    """Describe which differences between the setups of a study are smaller, or larger, than they seem.

    Raises:
        UserError: a setup cannot be run.
    """
    remarks = []
    refitting: list[str] = []
    sizes = set()
    for setup in setups:
        resolved = setup.resolved()
        remarks += resolved.left_behind()
        refitting += resolved.refitting()
        sizes.add(setup.options.get(TRAIN_USERS))
    if len(sizes) > 1 and refitting:
        remarks.append(
            f"{TRAIN_USERS} has no effect on {listed(list(dict.fromkeys(refitting)))}: agents are refitted there on "
            "the test users. loocv+fit_on=train takes the fitted ones."
        )
    return list(dict.fromkeys(remarks))
