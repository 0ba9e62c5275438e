"""How recommenders are compared in one kind of world: what ``compare`` asks a world's entry for."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.judgement import Judgement, Ranking, Target
from recsim_mnar.protocols.records import Record
from recsim_mnar.worlds.params import Params

if TYPE_CHECKING:
    from recsim_mnar.log.exposures import Exposures
    from recsim_mnar.log.table import Log
    from recsim_mnar.worlds.base import World


@dataclass(frozen=True)
class Picture:
    """A figure of the report: agents along the axis.

    Attributes:
        title: its heading.
        caption: what it shows.
        label: of the axis of values, with its unit.
        keys: (protocol, metric) shown side by side; those without records are left out.
        bars: of one key, instead of dots with whiskers.
    """

    title: str
    caption: str
    label: str
    keys: tuple[tuple[str, str], ...]
    bars: bool = False


@dataclass(frozen=True)
class Holds:
    """About what a comparison holds in memory, in bytes; what agents make of a log is not in it.

    Attributes:
        once: whatever the number of workers.
        a_worker: of each, beside that.
    """

    once: float
    a_worker: float


class Experiment(abc.ABC):
    """How logs and truth are made in one kind of world.

    Attributes:
        settings_type: sizes and options, with their defaults.
        presets: settings that differ from the defaults, by the world's preset.
        preset: of the world, where none is named; None for the world's own default.
        aliases: further names of settings, as flags have them.
        agents: compared unless named.
        protocols: run unless named.
        own_protocols: names of protocols that only this kind of world has: where they are defined.
        provides: of :data:`recsim_mnar.protocols.base.NEEDS`.
        world: that is compared in; None before there is one.
        log_holds: holdings of the training log (:data:`recsim_mnar.policies.needs.HOLDINGS`); None: what the world says
            of its logs.
    """

    settings_type: ClassVar[type[Params]] = Params
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    preset: ClassVar[str | None] = None
    aliases: ClassVar[Mapping[str, str]] = {}
    agents: ClassVar[Sequence[str]] = ()
    protocols: ClassVar[Sequence[str]] = ()
    own_protocols: ClassVar[Mapping[str, str]] = {}
    provides: ClassVar[frozenset[str]] = frozenset()
    world: World | None = None
    log_holds: ClassVar[frozenset[str] | None] = None

    def settings(self, preset: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """The settings of a preset with options changed; texts are parsed.

        Raises:
            UserError: an option that this comparison has not, or a value that is refused.
        """
        values: dict[str, Any] = dict(self.presets.get(preset or "", {}))
        for name, value in (options or {}).items():
            values[self.field_of(name)] = value
        return self.settings_type.from_dict(values)

    def field_of(self, option: str) -> str:
        """The setting that an option names.

        Raises:
            UserError: this comparison has none of that name.
        """
        known = list(self.settings_type().to_dict())
        field = self.aliases.get(option, option)
        if field not in known:
            raise UserError(
                f"this world's comparison has no option {option!r}; {nearest(option, [*known, *self.aliases])}"
            )
        return field

    def further_agents(self, settings: Any) -> list[str]:
        """Names of agents in the settings, which are needed and not judged."""
        return []

    def spec_of(self, agent: str, settings: Any) -> str:
        """What an agent's name stands for here."""
        return agent

    @abc.abstractmethod
    def targets(self, settings: Any) -> tuple[Target, ...]:
        """What the truth ranks by: the first unless a protocol's metric bears another's name."""

    @abc.abstractmethod
    def prepare(self, trial: Trial) -> None:
        """Make the training log, fit the agents, make the test log: fill the trial."""

    @abc.abstractmethod
    def truth(self, trial: Trial) -> list[Record]:
        """Records of protocol ``truth``, with each target's metric."""

    def online(self, trial: Trial) -> list[Record]:
        """Records of agents that learn from all users while they act, which no protocol ranks; none by default."""
        return []

    def check_world(self, world: World) -> None:
        """Raise UserError where this comparison cannot be made in the world given."""

    def kept(self, trial: Trial) -> tuple[Log | None, Exposures | None]:
        """The log that is written beside the results, and its second part."""
        return trial.test_log, trial.exposures

    def holds(self, world: World, settings: Any, n_agents: int) -> Holds | None:
        """What a comparison of these sizes holds; None where nobody can say."""
        return None

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """Sentences about the setting that a reader should know."""
        return []

    def headline(self, judgements: Sequence[Judgement]) -> str:
        """What the judgements say in one sentence, shown in their place; empty where they speak for themselves."""
        return ""

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """(protocol, metric) of the short table; empty for what is judged, and the truth."""
        return []

    def pictures(self, records: Sequence[Record]) -> list[Picture]:
        """Figures of the report; none by default."""
        return []

    def rankings(self, protocols: Iterable[Protocol], records: Sequence[Record], settings: Any) -> list[Ranking]:
        """Every ranking among the records that is to be held against the truth, protocol by protocol."""
        targets = self.targets(settings)
        by_metric = {target.metric: target for target in targets}
        found = []
        for protocol in protocols:
            metrics = dict.fromkeys(r.metric for r in records if r.protocol == protocol.name)
            for metric in metrics:
                if protocol.ranks_by(metric):
                    target = by_metric.get(metric, targets[0])
                    found.append(Ranking(protocol.name, metric, protocol.title(metric), target))
        return found
