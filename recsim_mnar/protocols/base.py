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
    """Data that belong to a log and are written next to it, such as exposures."""

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the data into the folder of the log."""


GROUP = "recsim_mnar.protocols"
"""Entry-point group in which a package announces its protocols."""

NEEDS = ("train_log", "test_log", "propensities", "users", "exposures", "ratings", "platform")
"""Data that a protocol may need: logs, the test log's propensities, users to show items to, the purchases world's
exposures, revealed ratings, a platform with campaigns."""

BUILT_IN = {
    "loocv": "recsim_mnar.protocols.leave_one_out:LeaveOneOut",
    "off_policy": "recsim_mnar.protocols.off_policy:OffPolicy",
    "ab_test": "recsim_mnar.protocols.ab_test:ABTest",
    "holdout": "recsim_mnar.protocols.holdout:HoldOut",
}
"""Protocols that run in every world with the data they need, by name, with the place of their class."""


TRAIN_USERS = "train_users"
"""Setting of a comparison: number of users on whose log agents are fitted."""
TRUTH = "truth"
"""Name of the protocol in the truth's records."""
_SAME = 1e-9
"""Largest relative or absolute difference that counts as rounding."""


@dataclass
class RawResults:
    """Rows behind the means in records: one row per user or event, agent and metric.

    Attributes:
        parts: one mapping per record, with the texts ``protocol``, ``metric`` and ``agent``, and columns ``user``,
            ``value``, ``weight`` and further ones of the protocol; the record's value is
            sum(value * weight) / sum(weight).
    """

    parts: list[Mapping[str, Any]] = field(default_factory=list)

    def table(self) -> Any:
        """Return all rows as a pyarrow table; names are dictionary-encoded."""
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
        """Check that the value of each record is the weighted mean of its rows; records without rows are not checked.

        Args:
            records: records of the protocols.

        Raises:
            UserError: a value differs from the mean of its rows.
        """
        sums: dict[tuple[str, str, str], Floats] = {}  # sums of value * weight and of weight, by record
        for part in self.parts:
            weight = np.asarray(part["weight"], np.float64)
            key = part["protocol"], part["metric"], part["agent"]
            weighted_sums = np.array([np.asarray(part["value"], np.float64) @ weight, weight.sum()])
            sums[key] = sums.get(key, 0.0) + weighted_sums
        for r in records:
            total, weights = sums.get((r.protocol, r.metric, r.agent), (0.0, 0.0))
            if not weights:
                continue
            mean = float(total / weights)
            if math.isfinite(mean) and not math.isclose(mean, r.value, rel_tol=_SAME, abs_tol=_SAME):
                raise UserError(
                    f"protocol {r.protocol!r}: {r.metric} of {r.agent} is {r.value:.6g}, and the mean of its raw rows "
                    f"{mean:.6g}. Give keep_raw() the rows and weights whose mean is the record's value"
                )


@dataclass
class Trial:
    """Input of the protocols in one comparison: world, agents, logs and settings.

    Attributes:
        world: world with known truth; protocols that show items to users may use it, those that read logs should not.
        learners: learners to judge, by name. A protocol that fits one starts the users of that log with
            :meth:`recsim_mnar.policies.base.Policy.reset_training_users`.
        settings: sizes and options of this world's comparison; a :class:`recsim_mnar.worlds.params.Params`.
        seed: seed of the whole comparison; a protocol draws from :meth:`seed_of`.
        executor: executor over which work is spread; no number depends on it.
        report: function that is called with a line when a stage begins.
        n_items: number of items, which are 0 .. n_items - 1.
        level: nominal coverage of all intervals.
        train_log: log that the policies were fitted on; None if the world's comparison has none.
        test_log: log that protocols read; None if the world's comparison has none.
        test_seed: seed with which the test log was made.
        logging_policy: policy that collected the test log; None if it is unknown.
        policies: fitted policies by name.
        references: names of agents that are shown and cannot be picked.
        online: fitted policies that learn from all users while they act, by name; they are not among ``policies``.
        exposures: exposures of the purchases world; None in other worlds.
        data: data that only this world's own protocols read.
        findings: results of protocols besides their records, by name, for the report and the summary; JSON types.
        raw: receiver of raw results; None if they are not kept.
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
        """Keep the rows of which a record's value is the weighted mean; do nothing if raw results are not kept.

        Args:
            protocol: protocol of the record.
            metric: metric of the record.
            agent: agent of the record.
            user: (n,) user of each row.
            value: (n,) numbers.
            weight: (n,) weight of each row; None for equal weights.
            **more: (n,) further columns.

        Raises:
            UserError: columns have several lengths.
        """
        if self.raw is None:
            return
        if weight is None:
            weight = np.ones(len(value))
        raw_columns = {"user": user, "value": value, "weight": weight, **more}
        columns = {name: np.asarray(column) for name, column in raw_columns.items()}
        lengths = {name: column.shape for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"protocol {protocol!r}: keep_raw() needs columns of one length, got {lengths}")
        self.raw.parts.append({"protocol": protocol, "metric": metric, "agent": agent, **columns})

    def seed_of(self, label: str) -> int:
        """Return a separate seed for the draws under this label."""
        return derive_seed(self.seed, label)

    def log(self) -> Log:
        """Return the test log.

        Raises:
            UserError: this world's comparison has none.
        """
        if self.test_log is None:
            raise UserError(f"the comparison of the {self.world.name} world has no test log")
        return self.test_log


class Protocol(abc.ABC):
    """Method that judges agents by numbers that rank them.

    Attributes:
        name: name on the command line and in the records.
        summary: description in one line.
        metrics: metrics by which it ranks agents, each of which is compared with the truth; ``hr`` stands for
            ``hr@10`` and the like, too. The records may have further ones.
        needs: required data, of :data:`NEEDS`.
        refits: True if agents are fitted on the judged log itself, whatever the comparison has fitted.
    """

    name: str = "protocol"
    summary: ClassVar[str] = ""
    metrics: Sequence[str] = ()
    needs: frozenset[str] = frozenset()
    refits: bool = False

    @abc.abstractmethod
    def judge(self, study: Trial) -> list[Record]:
        """Return one record per agent and metric.

        Args:
            study: logs, policies and settings; data that are not among ``needs`` may be missing.
        """

    def remarks(self, study: Trial) -> list[str]:
        """Return sentences on how to read this protocol's numbers, after :meth:`judge`; that it refits, by default."""
        n_users = getattr(study.settings, TRAIN_USERS, None)
        if n_users is None or not self.refits:
            return []
        title = self.title(self.metrics[0])
        return [
            f"{title[0].upper()}{title[1:]} judges models refitted on the test users, other columns those fitted on "
            f"{n_users:,} training users; loocv+fit_on=train judges the latter."
        ]

    def ranks_by(self, metric: str) -> bool:
        """Return True if the ranking by a metric is compared with the truth."""
        return metric in self.metrics or metric.partition("@")[0] in self.metrics

    def title(self, metric: str) -> str:
        """Return the name of the ranking by one of the metrics."""
        if len(self.metrics) == 1:
            return self.name
        return f"{self.name} ({metric})"

    def heading(self, metric: str) -> str:
        """Return the heading of the column of one of the metrics."""
        return self.title(metric)

    def estimates_truth(self, metric: str) -> bool:
        """Return True if a metric estimates the truth's own metric, in the same unit; False by default."""
        return False


def protocol(spec: str, own: Mapping[str, str] | None = None) -> Protocol:
    """Make a protocol from its name and parameters.

    Args:
        spec: a known name or ``package.module:Class``, followed by any number of ``+parameter=value``.
        own: protocols that only one world has: the place of the class by name. They come before others of the name.

    Raises:
        UserError: the name, the class or a parameter is unknown, or the name of a class is that of other records.
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
    # Records are told apart by the name, so it must contain the options.
    if ":" in name and made.name != Protocol.name:  # a user's class with a name of its own
        made.name = "+".join([made.name, *options])
    elif options or ":" in name or name in (own or {}):
        made.name = spec
    return made


def check_names(protocols: Sequence[Protocol]) -> None:
    """Raise UserError if two protocols have the same name, so that their records could not be told apart."""
    names = [one.name for one in protocols]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise UserError(f"protocol {twice[0]!r} is there twice: name each once, or give your class another name")


def check_needs(chosen: Protocol, provided: frozenset[str], world: str) -> None:
    """Raise UserError if a world's comparison lacks data that a protocol needs.

    Args:
        chosen: the protocol.
        provided: data that the comparison has, of :data:`NEEDS`.
        world: name of the world, for the message.
    """
    unknown_needs = sorted(set(chosen.needs) - set(NEEDS))
    if unknown_needs:
        raise UserError(f"protocol {chosen.name!r} needs {unknown_needs[0]!r}; {nearest(unknown_needs[0], NEEDS)}")
    missing = sorted(set(chosen.needs) - provided)
    if missing:
        raise UserError(
            f"protocol {chosen.name!r} needs {', '.join(missing)}: the comparison of the {world} world has "
            f"{', '.join(sorted(provided))}"
        )


def known_protocols(own: Mapping[str, str] | None = None) -> list[str]:
    """List the names of protocols: a world's own first, then the built-in ones and those of installed packages."""
    return list(dict.fromkeys([*(own or {}), *BUILT_IN, *sorted(announced(GROUP))]))


def summary_of(name: str, own: Mapping[str, str] | None = None) -> str:
    """Return the description, in one line, of the protocol of a name."""
    kind = _class_of(name, dict(own or {}))
    return kind.summary or (inspect.getdoc(kind) or "").partition("\n")[0]


def _class_of(name: str, own: Mapping[str, str]) -> type[Protocol]:
    """Return the class of a protocol's name; :func:`protocol` describes the arguments and errors."""
    if name in own or name in BUILT_IN:
        return _checked(name, imported("protocol", own.get(name) or BUILT_IN[name]))
    if ":" in name:
        return _checked(name, imported("protocol", name, base=Protocol))
    if name in announced(GROUP):
        return _checked(name, announced(GROUP)[name].load())
    known_names = known_protocols(own)
    raise UserError(unknown("protocol", name, known_names, "Class"))


def _checked(name: str, kind: Any) -> type[Protocol]:
    """Return a protocol's class, derived from :class:`Protocol` if it is not already.

    Raises:
        UserError: it is no class with a method ``judge``, or is abstract.
    """
    if not (inspect.isclass(kind) and callable(getattr(kind, "judge", None))):
        raise UserError(f"protocol {name!r} must be a class with judge(study), got {kind!r}")
    if not issubclass(kind, Protocol):  # the methods that it lacks are inherited from the base class
        kind = type(kind.__name__, (kind, Protocol), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    if inspect.isabstract(kind):
        raise UserError(f"protocol {name!r} lacks {', '.join(sorted(kind.__abstractmethods__))}")
    return kind


class Experiment(abc.ABC):
    """Recipe of the logs and the truth of a comparison in one kind of world.

    Attributes:
        settings_type: class of the sizes and options, with their defaults.
        presets: by preset of the world, settings that differ from the defaults.
        preset: preset of the world that is used if none is named; None for the world's own default.
        aliases: setting by further names that command-line options have.
        preset_agents: by preset, the default agents, for presets with a list of their own.
        preset_hints: by preset, sentences that are printed after the result.
        agents: default agents.
        own_references: names of references that know the truth, which the comparison makes itself.
        protocols: names of the default protocols.
        own_protocols: protocols that only this kind of world has: the place of the class by name.
        provides: data that the comparison has, of :data:`recsim_mnar.protocols.base.NEEDS`.
        world: world of the comparison; None before it is made.
        log_holds: data in the training log, of :data:`recsim_mnar.policies.door.HOLDINGS`; None for those that the
            world declares for its logs.
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
        """Return the settings of a preset, some of them changed.

        Args:
            preset: preset of the world; None for the defaults.
            options: changed settings by name; texts are parsed.

        Raises:
            UserError: this comparison has no such option, or a value is invalid.
        """
        changed = {self.field_of(name): value for name, value in (options or {}).items()}
        return self.settings_type.from_dict({**self.presets.get(preset or "", {}), **changed})

    def field_of(self, option: str) -> str:
        """Return the name of the setting that an option, or an alias, names.

        Raises:
            UserError: this comparison has no such setting.
        """
        setting_names = list(self.settings_type().to_dict())
        setting = self.aliases.get(option, option)
        if setting not in setting_names:
            raise UserError(
                f"this world's comparison has no option {option!r}; {nearest(option, [*setting_names, *self.aliases])}"
            )
        return setting

    def further_agents(self, settings: Any) -> list[str]:
        """Return the names of agents in the settings that are needed but not judged, such as the logging policy."""
        return []

    def specs(self, preset: str | None, settings: Any) -> Mapping[str, str]:
        """Return agents with options by the name that stands for them here, such as ``svd+factors=5`` for ``svd``."""
        return {}

    def n_test_users(self, world: World, settings: Any) -> int | None:
        """Return the number of users whose log the protocols read; None if there is no such log."""
        return getattr(settings, "test_users", getattr(settings, "users", None))

    @abc.abstractmethod
    def targets(self, settings: Any) -> tuple[Target, ...]:
        """Return the targets by which the truth ranks agents.

        A protocol's ranking is compared with the target whose metric has the name of its own, else with the first one.
        """

    @abc.abstractmethod
    def prepare(self, trial: Trial) -> None:
        """Fill the trial: make the training log, fit the agents, and make the test log."""

    @abc.abstractmethod
    def truth(self, trial: Trial) -> list[Record]:
        """Return the records of protocol ``truth``, with each target's metric."""

    def online(self, trial: Trial) -> list[Record]:
        """Return records of agents that learn from all users while they act, which no protocol ranks; [] by default."""
        return []

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """Return sentences about the setting that a reader of the result should know."""
        return []

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Return (protocol, metric) of each column of the short table; empty for the judged rankings and the truth."""
        return []

    def rankings(self, protocols: Iterable[Protocol], records: Sequence[Record], settings: Any) -> list[Ranking]:
        """Return every ranking among the records that is compared with the truth, protocol by protocol."""
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
