"""Interface of protocols, their input, their lookup by name, and the comparison of one kind of world."""

from __future__ import annotations

import abc
import inspect
import math
import os
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
from recsim_mnar.plugins import announced, imported, option_of, unknown
from recsim_mnar.protocols.records import Ranking, Record, Target
from recsim_mnar.rng import derive_seed
from recsim_mnar.worlds.params import Params

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log
    from recsim_mnar.policies.base import Learner, Policy
    from recsim_mnar.worlds.base import World


class SecondPart(typing.Protocol):
    """Second part of a log, written next to it, such as exposures."""

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write it into the folder of the log."""


GROUP = "recsim_mnar.protocols"
"""Entry-point group in which a package announces its protocols."""

NEEDS = ("train_log", "test_log", "propensities", "users", "exposures", "ratings", "platform")
"""What a protocol may ask for: logs, propensities of what the test log shows, users to show things to, the purchases
world's exposures, revealed ratings, a platform with campaigns."""

BUILT_IN = {
    "loocv": "recsim_mnar.protocols.leave_one_out:LeaveOneOut",
    "off_policy": "recsim_mnar.protocols.off_policy:OffPolicy",
    "ab_test": "recsim_mnar.protocols.ab_test:ABTest",
    "holdout": "recsim_mnar.protocols.holdout:HoldOut",
    "interleaving": "recsim_mnar.protocols.ab_test:Interleaving",
}
"""Protocols of every world that gives what they need; a world's own stand in its comparison."""


TRUTH = "truth"
"""Name under which the truth's records stand."""
_SAME = 1e-9
"""Relative or absolute difference that rounding explains."""


@dataclass
class RawResults:
    """Rows behind the means in records: one row per user or event, agent and metric.

    Attributes:
        parts: columns ``protocol``, ``metric``, ``agent``, ``user``, ``value`` and ``weight``, and whatever else a
            protocol adds; a record's value is sum(value * weight) / sum(weight) of its rows.
    """

    parts: list[Mapping[str, Any]] = field(default_factory=list)

    def table(self) -> Any:
        """All rows as a pyarrow table; names are dictionary-encoded."""
        import pyarrow as pa

        tables = []
        for part in self.parts:
            n = len(part["value"])
            columns = {
                name: pa.array(np.full(n, value)).dictionary_encode() if isinstance(value, str) else pa.array(value)
                for name, value in part.items()
            }
            tables.append(pa.table(columns))
        if tables:
            return pa.concat_tables(tables, promote_options="default")
        return pa.table({})

    def check(self, records: Iterable[Record]) -> None:
        """Compare every record with the mean of its rows.

        Args:
            records: of the protocols that kept their rows.

        Raises:
            UserError: a mean is another number than its record says.
        """
        sums: dict[tuple[str, str, str], Floats] = {}
        for part in self.parts:
            weight = np.asarray(part["weight"], np.float64)
            key = part["protocol"], part["metric"], part["agent"]
            weighted_sums = np.array([np.asarray(part["value"], np.float64) @ weight, weight.sum()])
            sums[key] = sums.get(key, 0.0) + weighted_sums
        for r in records:
            total, weights = sums.get((r.protocol, r.metric, r.agent), (0.0, 0.0))
            if weights:
                mean = float(total / weights)
            else:
                mean = math.nan
            if math.isfinite(mean) and not math.isclose(mean, r.value, rel_tol=_SAME, abs_tol=_SAME):
                raise UserError(
                    f"protocol {r.protocol!r}: {r.metric} of {r.agent} is {r.value:.6g}, and the mean of its raw rows "
                    f"{mean:.6g}. Give keep_raw() the rows and weights whose mean is the record's value"
                )


@dataclass
class Trial:
    """One comparison's material: what protocols judge agents by.

    Attributes:
        world: with known truth; protocols that show things to users may use it, those that read logs should not.
        learners: to be judged, by name.
        settings: sizes and options of this world's comparison; a :class:`recsim_mnar.worlds.params.Params`.
        seed: of everything; a protocol draws from :meth:`seed_of`.
        executor: to spread work over; no number depends on it.
        report: called with a line whenever a stage begins.
        n_items: items are 0 .. n_items - 1.
        level: of all intervals.
        train_log: that the policies were fitted on; None where the world's comparison has none.
        test_log: that protocols read.
        test_seed: with which the test log was made.
        logging_policy: under which it was collected; None where that is not known.
        policies: fitted, by name.
        references: names of agents that are shown and cannot be picked.
        online: fitted policies that learn from all users while they act, by name; they are not among ``policies``.
        exposures: the purchases world's.
        data: what only one world's comparison knows.
        findings: what protocols found of the whole, next to their records, by name, for the report and the summary;
            JSON types.
        raw: receives raw results; None where they are not kept.
    """

    world: World
    learners: Mapping[str, Learner]
    settings: Any
    seed: int
    executor: Executor | None = None
    report: Callable[[str], None] = lambda stage: None
    n_items: int = 0
    level: float = 0.95
    train_log: Log | None = None
    test_log: Log | None = None
    test_seed: int = 0
    logging_policy: Policy | None = None
    policies: dict[str, Policy] = field(default_factory=dict)
    references: Sequence[str] = ()
    online: dict[str, Policy] = field(default_factory=dict)
    exposures: SecondPart | None = None
    data: Any = None
    findings: MutableMapping[str, Any] = field(default_factory=dict)
    raw: RawResults | None = None

    def keep_raw(
        self, protocol: str, metric: str, agent: str, *, user: Any, value: Any, weight: Any = None, **more: Any
    ) -> None:
        """Keep the rows that a record's value is the weighted mean of, where raw results are kept.

        Args:
            protocol: as in the record.
            metric: likewise.
            agent: likewise.
            user: (n,) user of each row.
            value: (n,) numbers.
            weight: (n,) of each row; 1 where None.
            **more: (n,) further columns.

        Raises:
            UserError: columns of several lengths.
        """
        if self.raw is None:
            return
        raw_columns = {
            "user": user,
            "value": value,
            "weight": np.ones(len(value)) if weight is None else weight,
            **more,
        }
        columns = {name: np.asarray(column) for name, column in raw_columns.items()}
        lengths = {name: column.shape for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"protocol {protocol!r}: keep_raw() needs columns of one length, got {lengths}")
        self.raw.parts.append({"protocol": protocol, "metric": metric, "agent": agent, **columns})

    def seed_of(self, label: str) -> int:
        """Return a separate seed for the draws under this label."""
        return derive_seed(self.seed, label)

    def log(self) -> Log:
        """The test log.

        Raises:
            UserError: this world's comparison has none.
        """
        if self.test_log is None:
            raise UserError(f"the comparison of the {self.world.name} world has no test log")
        return self.test_log


class Protocol(abc.ABC):
    """Method that judges agents by numbers that rank them.

    Attributes:
        name: as on the command line and in the records.
        summary: a line for a person.
        metrics: by which it ranks agents, each of which is compared with the truth; ``hr`` stands for ``hr@10`` too.
            The records may hold others.
        needs: of :data:`NEEDS`.
    """

    name: str = "protocol"
    summary: ClassVar[str] = ""
    metrics: Sequence[str] = ()
    needs: frozenset[str] = frozenset()

    @abc.abstractmethod
    def judge(self, study: Trial) -> list[Record]:
        """Return one record per agent and metric.

        Args:
            study: logs, policies and sizes; what is not among ``needs`` may be missing.
        """

    def ranks_by(self, metric: str) -> bool:
        """Return whether a metric's ranking is compared with the truth."""
        return metric in self.metrics or metric.partition("@")[0] in self.metrics

    def title(self, metric: str) -> str:
        """Name of the ranking by one of its metrics."""
        if len(self.metrics) == 1:
            return self.name
        return f"{self.name} ({metric})"

    def heading(self, metric: str) -> str:
        """Heading of the column of one of its metrics."""
        return self.title(metric)

    def estimates_truth(self, metric: str) -> bool:
        """True if a metric is an estimate of what the truth ranks by, in its unit; False by default."""
        return False


def protocol(spec: str, own: Mapping[str, str] | None = None) -> Protocol:
    """Return the protocol of a name.

    Args:
        spec: a known name or ``package.module:Class``, followed by any of ``+parameter=value``.
        own: names of one world's own protocols, and where they are defined; they come first.

    Raises:
        UserError: an unknown name, class or parameter.
    """
    name, *options = [part.strip() for part in spec.split("+")]
    kind = _class_of(name, own or {})
    parameters: dict[str, object] = {}
    known_values = [key for key in inspect.signature(kind).parameters if key not in ("args", "kwargs")]
    for option in options:
        key, equals, text = option.partition("=")
        if key in known_values and not text:
            raise UserError(f"protocol {spec!r}: {key} has no value. Write {key}=VALUE.")
        if key in parameters:
            raise UserError(f"protocol {spec!r}: {key} is given twice. Give it once.")
        if not equals or key not in known_values:
            if known_values:
                hint = nearest(key, known_values)
            else:
                hint = "it has no parameters"
            raise UserError(f"protocol {spec!r}: {option!r} is not parameter=value of one that it has; {hint}")
        parameters[key] = option_of(kind, key, text, f"protocol {spec!r}")
    try:
        made: Protocol = kind(**parameters)
    except TypeError as error:
        raise UserError(f"protocol {spec!r} cannot be made: {error}") from error
    if ":" in name and made.name in (TRUTH, *BUILT_IN, *(own or {})):
        raise UserError(f"protocol {spec!r} has the name {made.name!r}, under which other records stand. Rename it")
    if ":" in name and made.name != Protocol.name:
        made.name = "+".join([made.name, *options])
    elif options or ":" in name or name in (own or {}):
        made.name = spec
    return made


def check_names(protocols: Sequence[Protocol]) -> None:
    """Raise UserError where two protocols have one name, so that their records could not be told apart."""
    names = [one.name for one in protocols]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise UserError(f"protocol {twice[0]!r} is there twice: name each once, or give your class another name")


def check_needs(chosen: Protocol, provided: frozenset[str], world: str) -> None:
    """Raise UserError where a world's comparison lacks what a protocol needs."""
    unknown = set(chosen.needs) - set(NEEDS)
    if unknown:
        raise UserError(f"protocol {chosen.name!r} needs {sorted(unknown)[0]!r}; {nearest(sorted(unknown)[0], NEEDS)}")
    missing = sorted(set(chosen.needs) - provided)
    if missing:
        raise UserError(
            f"protocol {chosen.name!r} needs {', '.join(missing)}: the comparison of the {world} world has "
            f"{', '.join(sorted(provided))}"
        )


def known_protocols(own: Mapping[str, str] | None = None) -> list[str]:
    """Names of the built-in and announced protocols, a world's own first."""
    return list(dict.fromkeys([*(own or {}), *BUILT_IN, *sorted(announced(GROUP))]))


def summary_of(name: str, own: Mapping[str, str] | None = None) -> str:
    """One line on the protocol of a name."""
    kind = _class_of(name, dict(own or {}))
    return kind.summary or (inspect.getdoc(kind) or "").partition("\n")[0]


def _class_of(name: str, own: Mapping[str, str]) -> type[Protocol]:
    if name in own or name in BUILT_IN:
        return _checked(name, imported("protocol", own.get(name) or BUILT_IN[name]))
    if ":" in name:
        return _checked(name, imported("protocol", name, base=Protocol))
    if name in announced(GROUP):
        return _checked(name, announced(GROUP)[name].load())
    known_names = known_protocols(own)
    raise UserError(unknown("protocol", name, known_names, "Class", methods=("judge",)))


def _checked(name: str, kind: Any) -> type[Protocol]:
    if not (inspect.isclass(kind) and callable(getattr(kind, "judge", None))):
        raise UserError(f"protocol {name!r} must be a class with judge(study), got {kind!r}")
    if not issubclass(kind, Protocol):  # what it lacks is the base class's
        kind = type(kind.__name__, (kind, Protocol), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    if inspect.isabstract(kind):
        raise UserError(f"protocol {name!r} lacks {', '.join(sorted(kind.__abstractmethods__))}")
    return kind


class Experiment(abc.ABC):
    """Recipe of logs and truth in one kind of world.

    Attributes:
        settings_type: sizes and options, with their defaults.
        presets: settings that differ from the defaults, by the world's preset.
        preset: of the world, where none is named; None for the world's own default.
        aliases: further names of settings, as flags have them.
        preset_agents: compared unless named, by preset, where it has a list of its own.
        preset_hints: sentences that follow what a preset prints, by preset.
        agents: compared unless named.
        own_references: names of references that know the truth, which the comparison makes itself.
        protocols: run unless named.
        own_protocols: names of protocols that only this kind of world has: where they are defined.
        provides: of :data:`recsim_mnar.protocols.base.NEEDS`.
        world: that is compared in; None before there is one.
        log_holds: holdings of the training log (:data:`recsim_mnar.policies.door.HOLDINGS`); None: what the world says
            of its logs.
    """

    settings_type: ClassVar[type[Params]] = Params
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    preset: ClassVar[str | None] = None
    aliases: ClassVar[Mapping[str, str]] = {}
    preset_agents: ClassVar[Mapping[str, Sequence[str]]] = {}
    preset_hints: ClassVar[Mapping[str, Sequence[str]]] = {}
    agents: ClassVar[Sequence[str]] = ()
    own_references: ClassVar[frozenset[str]] = frozenset()
    protocols: ClassVar[Sequence[str]] = ()
    own_protocols: ClassVar[Mapping[str, str]] = {}
    provides: ClassVar[frozenset[str]] = frozenset()
    world: World | None = None
    log_holds: ClassVar[frozenset[str] | None] = None

    def settings(self, preset: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Return the settings of a preset with options changed; texts are parsed.

        Raises:
            UserError: an option that this comparison has not, or a value that is refused.
        """
        settings_given = {self.field_of(name): value for name, value in (options or {}).items()}
        return self.settings_type.from_dict({**self.presets.get(preset or "", {}), **settings_given})

    def field_of(self, option: str) -> str:
        """Return the setting that an option names.

        Raises:
            UserError: this comparison has none of that name.
        """
        fields_known = list(self.settings_type().to_dict())
        field = self.aliases.get(option, option)
        if field not in fields_known:
            raise UserError(
                f"this world's comparison has no option {option!r}; {nearest(option, [*fields_known, *self.aliases])}"
            )
        return field

    def further_agents(self, settings: Any) -> list[str]:
        """Names of agents in the settings, which are needed and not judged."""
        return []

    def specs(self, preset: str | None, settings: Any) -> Mapping[str, str]:
        """Names of agents that stand for others here: by name, the agent with its options."""
        return {}

    def n_test_users(self, world: World, settings: Any) -> int | None:
        """Number of users whose log the protocols read; None if there is none."""
        return getattr(settings, "test_users", getattr(settings, "users", None))

    @abc.abstractmethod
    def targets(self, settings: Any) -> tuple[Target, ...]:
        """List the targets by which the truth ranks: the first unless a protocol's metric bears another's name."""

    @abc.abstractmethod
    def prepare(self, trial: Trial) -> None:
        """Make the training log, fit the agents, make the test log: fill the trial."""

    @abc.abstractmethod
    def truth(self, trial: Trial) -> list[Record]:
        """Records of protocol ``truth``, with each target's metric."""

    def online(self, trial: Trial) -> list[Record]:
        """Records of agents that learn from all users while they act, which no protocol ranks; none by default."""
        return []

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """Sentences about the setting that a reader should know."""
        return []

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """(protocol, metric) of the short table; empty for what is judged, and the truth."""
        return []

    def rankings(self, protocols: Iterable[Protocol], records: Sequence[Record], settings: Any) -> list[Ranking]:
        """Every ranking among the records that is compared with the truth, protocol by protocol."""
        targets = self.targets(settings)
        by_metric = {target.metric: target for target in targets}
        result = []
        for protocol in protocols:
            metrics = dict.fromkeys(r.metric for r in records if r.protocol == protocol.name)
            for metric in metrics:
                if protocol.ranks_by(metric):
                    target = by_metric.get(metric, targets[0])
                    result.append(Ranking(protocol.name, metric, protocol.title(metric), target))
        return result
