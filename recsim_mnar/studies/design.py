"""A study's design: setups, factors and catalogues; its cells, which share their catalogues, and its settings file."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import Any, TypedDict

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import list_of, of_type, table_by_name
from recsim_mnar.protocols.base import RawResults
from recsim_mnar.protocols.comparison import Setup, experiment_of
from recsim_mnar.protocols.records import TIDY, plain
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.files import path_of, read_toml
from recsim_mnar.runs.receipts import digest_of
from recsim_mnar.worlds.registry import entry_of, is_world_file

ALIASES = {"epsilon": "logging.epsilon", "flips": "n_flips"}
"""Short names of factors, and the full ones."""
_LONGEST_LABEL = 120
"""Characters of a cell's label; a longer one is cut, since file names are limited to 255 characters."""
_SETUP_FIELDS = ("world", "preset", "tie")
"""Fields of a setup that may be factors."""

RESERVED = frozenset({*TIDY, "catalogue", "seed", "setup", "title", "user", "weight", "first", "second"})
"""Names of columns of a study's tables; no factor may have one of them."""

Levels = Mapping[str, Any]


class Result(TypedDict):
    """Result of a task, as stored in its file.

    Attributes:
        cell: label of the cell.
        setup: name of the cell's setup.
        levels: level of each factor.
        catalogue: number of the catalogue.
        seed: seed of the comparison.
        run_config: everything needed to repeat the comparison.
        records: one per protocol, metric and agent, without times.
        judgements: one per ranking, against the truth.
        log: counts of the test log, by name.
    """

    cell: str
    setup: str
    levels: Levels
    catalogue: int
    seed: int
    run_config: Mapping[str, Any]
    records: list[Mapping[str, Any]]
    judgements: list[Mapping[str, Any]]
    log: Mapping[str, float]


class WallTimes(TypedDict):
    """Wall times of a task and of its records.

    Attributes:
        seconds: seconds of the whole task.
        records: seconds of each record, in the order of the result's records.
    """

    seconds: float
    records: list[float]


@dataclass(frozen=True)
class Cell:
    """Cell of a study: one setup with one level of every factor.

    Attributes:
        label: name of the cell, from which its files are named.
        name: name of the setup without factors.
        setup: the comparison, with the levels set.
        levels: level of each factor, as the study's table has it.
    """

    label: str
    name: str
    setup: Setup
    levels: Levels


@dataclass(frozen=True)
class Design:
    """Design of a study: setups crossed with factors, over catalogues that all cells share.

    Catalogue c has the same items and the same seed in every cell, so two cells differ only in what their factors
    change.

    Attributes:
        worlds: names of worlds, or tables of fields of :class:`recsim_mnar.protocols.comparison.Setup`.
        agents: agents of every setup that has no list of its own; None for the comparison's default.
        protocols: protocols of every setup that has no list of its own; None for the comparison's default.
        options: options of the comparison in every setup, unless the setup has its own value.
        tie: share of the best true value that counts as no loss, in every setup that has none of its own.
        factors: by name, the levels of each factor; all combinations of levels are run. A factor is ``world``,
            ``preset`` or ``tie``, an option of the comparison (``logging``, ``clip``), a parameter of the world
            (``n_items``), or an option of an agent, such as ``svd.rank`` or ``logging.epsilon``; ``epsilon`` and
            ``flips`` are short for ``logging.epsilon`` and ``n_flips``. A level that is a table sets several of these
            at once, and the factor may then have any name. Levels can be named by a table:
            ``{"small": {"n_items": 50}, "large": {"n_items": 500}}``.
        cells: level of each factor, one table per cell, in place of ``factors``.
        catalogues: number of catalogues.
        first_seed: seed of catalogue 0, catalogue c having ``first_seed + c``; None for seeds derived from ``seed``.
        seed: seed from which those of the catalogues are derived.
    """

    worlds: Sequence[str | Mapping[str, Any] | Setup] = ("sessions",)
    agents: Sequence[str] | None = None
    protocols: Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tie: float = 0.0
    factors: Mapping[str, Sequence[Any] | Mapping[str, Any]] = field(default_factory=dict)
    cells: Sequence[Levels] = ()
    catalogues: int = 10
    first_seed: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UserError for a design that cannot be run."""
        of_type(self.worlds, "worlds", (list, tuple), "a list of worlds")
        if not self.worlds:
            raise UserError("a study needs at least one world")
        if isinstance(self.catalogues, bool) or not isinstance(self.catalogues, int) or self.catalogues < 1:
            raise UserError(f"a study needs at least one catalogue, got {self.catalogues!r}")
        check_seed(self.seed)
        table_by_name(self.options, "options")
        if self.factors and self.cells:
            raise UserError("give factors, which are crossed, or cells, which are listed, not both")
        names_in_cells = [
            name for cell in list_of(self.cells, "cells") for name in table_by_name(cell, "each of cells")
        ]
        for name in (*table_by_name(self.factors, "factors"), *names_in_cells):
            if name in RESERVED:
                raise UserError(f"factor {name!r} has the name of a column of the results. Give it another")
        for name, levels in self.factors.items():
            if isinstance(levels, Mapping):
                for level, settings in levels.items():
                    table_by_name(settings, f"factor {name}, level {level}")
            else:
                list_of(levels, f"factor {name}")
            if not levels:
                raise UserError(f"factor {name} has no level. Give a list of them")
            if len({repr(level) for level in levels}) < len(levels):
                raise UserError(f"factor {name} has a level twice. Give each once")

    def setups(self) -> list[Setup]:
        """Return the worlds as setups, completed by the design's agents, protocols, options and tie."""
        return [self._completed(world) for world in self.worlds]

    def _completed(self, world: str | Mapping[str, Any] | Setup) -> Setup:
        """Return a world as a setup; fields that the world leaves open are the design's."""
        if isinstance(world, Setup):
            setup = world
        elif isinstance(world, str):
            setup = setup_of({"world": world})
        else:
            setup = setup_of(world)
        if self.agents is not None and setup.agents is None:
            setup = replace(setup, agents=tuple(list_of(self.agents, "agents")))
        if self.protocols is not None and setup.protocols is None:
            setup = replace(setup, protocols=tuple(list_of(self.protocols, "protocols")))
        return replace(setup, options={**self.options, **setup.options}, tie=setup.tie or self.tie)

    def all_levels(self) -> list[Levels]:
        """Return one table of levels by factor for each cell of a setup."""
        if self.cells:
            return [dict(cell) for cell in self.cells]
        return [dict(zip(self.factors, levels, strict=True)) for levels in itertools.product(*self.factors.values())]

    def _settings_of(self, levels: Levels) -> Levels:
        """Replace the name of each level that the design names by the settings that it stands for."""
        settings = dict(levels)
        for factor, levels_of_factor in self.factors.items():
            if isinstance(levels_of_factor, Mapping):
                settings[factor] = levels_of_factor[levels[factor]]
        return settings

    def all_cells(self) -> list[Cell]:
        """Return every setup with every combination of levels.

        Raises:
            UserError: a setup does not have one of the factors.
        """
        cells = []
        setups = self.setups()
        for name, setup in zip(labels_of(setups), setups, strict=True):
            for levels in self.all_levels():
                named = named_levels(levels)
                setup_of_cell = at_levels(setup, self._settings_of(levels))
                cells.append(Cell(label=_label_of_cell(name, named), name=name, setup=setup_of_cell, levels=named))
        return cells

    def seed_of(self, catalogue: int) -> int:
        """Return the seed of a catalogue, the same in all cells."""
        if self.first_seed is not None:
            return check_seed(self.first_seed + catalogue)
        return derive_seed(self.seed, f"study/{catalogue}")

    def tasks(self) -> list[Task]:
        """Return one task per cell and catalogue, cell by cell; catalogue c has the world's ``catalogue_seed`` c."""
        return [Task(cell, c, self.seed_of(c)) for cell in self.all_cells() for c in range(self.catalogues)]

    def manifest(self) -> Mapping[str, Any]:
        """Return everything needed to repeat the study, as JSON types."""
        cells = {cell.label: {"levels": cell.levels, "setup": asdict(cell.setup)} for cell in self.all_cells()}
        fields = {"catalogues": self.catalogues, "first_seed": self.first_seed, "seed": self.seed}
        return {"cells": plain(cells), **fields}


@dataclass(frozen=True)
class Task:
    """One comparison of a study, which can be pickled for another process.

    Attributes:
        cell: the cell to run.
        catalogue: number of the catalogue, which is the world's ``catalogue_seed`` too.
        seed: seed of everything but the catalogue.
    """

    cell: Cell
    catalogue: int
    seed: int

    @property
    def label(self) -> str:
        """Name of the task, from which its files are named."""
        return f"{self.cell.label}-{self.catalogue:03d}"

    def run(self, *, keep_raw: bool = False) -> tuple[Result, WallTimes, RawResults | None]:
        """Run the comparison.

        Args:
            keep_raw: whether to collect the rows behind each mean.

        Returns:
            result: the result, the same bytes on any machine.
            wall_times: wall time of the task and of its records.
            raw: rows behind each mean; None without ``keep_raw``.
        """
        began = time.perf_counter()
        resolved = self.cell.setup.resolved(self.catalogue)
        raw = RawResults() if keep_raw else None
        comparison = resolved.run(self.seed, raw=raw)
        result: Result = {
            "cell": self.cell.label,
            "setup": self.cell.name,
            "levels": plain(self.cell.levels),
            "catalogue": self.catalogue,
            "seed": self.seed,
            "run_config": plain(resolved.run_config(self.seed)),
            "records": [r.untimed() for r in comparison.records],
            "judgements": [j.to_dict() for j in comparison.judgements],
            "log": plain(log_counts(comparison.log)),
        }
        wall_times: WallTimes = {
            "seconds": round(time.perf_counter() - began, 3),
            "records": [round(r.seconds, 4) for r in comparison.records],
        }
        return result, wall_times, raw


def named_levels(levels: Levels) -> Levels:
    """Return levels as the study's table has them: a level that is a table becomes the text ``name=value,...``."""
    named = dict(levels)
    for factor, level in levels.items():
        if isinstance(level, Mapping):
            named[factor] = ",".join(f"{name}={value}" for name, value in level.items())
    return named


def at_levels(setup: Setup, levels: Mapping[str, Any]) -> Setup:
    """Return a setup with every factor set to a level.

    Args:
        setup: the setup without factors.
        levels: level of each factor; a level that is a table sets all its entries instead.

    Raises:
        UserError: the setup does not have one of the factors.
    """
    settings: dict[str, Any] = {}
    for factor, level in levels.items():
        if isinstance(level, Mapping):
            settings.update(level)
        else:
            settings[factor] = level

    def order(name: str) -> tuple[bool, bool]:
        """Sort fields of the setup first, since options depend on the world, and options of agents last.

        The latter are appended to specifications, which other settings replace.
        """
        return "." in str(ALIASES.get(name, name)), name not in _SETUP_FIELDS

    for name in sorted(settings, key=order):
        setup = _with_factor(setup, ALIASES.get(name, name), settings[name])
    return setup


def _with_factor(setup: Setup, factor: str, level: Any) -> Setup:
    """Return a setup with one factor set: a field, an agent's option, an option of the comparison, or a parameter.

    Raises:
        UserError: the setup's world has no such factor.
    """
    if factor in _SETUP_FIELDS:
        return replace(setup, **{factor: level})
    world = entry_of(setup.world).world_class()
    experiment = experiment_of(world)
    agent, dot, option = factor.rpartition(".")
    if dot:
        return _with_agent_option(setup, experiment, agent, option, level)
    known_options = [*experiment.settings_type().to_dict(), *experiment.aliases]
    if factor in known_options:
        return replace(setup, options={**setup.options, factor: level})
    known_params = list(world.params_class().to_dict())
    if factor in known_params:
        return replace(setup, params={**setup.params, factor: level})
    known_keys = [*_SETUP_FIELDS, *ALIASES, *known_options, *known_params, "AGENT.option"]
    raise UserError(f"the {setup.world} world has no factor {factor!r}; {nearest(factor, known_keys)}")


def _with_agent_option(setup: Setup, experiment: Any, agent: str, option: str, level: Any) -> Setup:
    """Append an option to the specification of an agent, or of the logging policy, such as ``svd+rank=5``.

    A logging policy with epsilon 0 is left as it is.

    Args:
        setup: the setup.
        experiment: the comparison of the setup's world.
        agent: name of the agent, or ``logging``.
        option: name of the option.
        level: value of the option.

    Raises:
        UserError: the comparison has no logging policy to vary.
    """
    if agent == "logging":
        logging = setup.options.get("logging", getattr(experiment.settings(setup.preset), "logging", None))
        if logging is None:
            raise UserError(f"the {setup.world} world has no logging policy of its own to vary")
        spec = logging
        if option != "epsilon" or level:
            spec = f"{logging}+{option}={level}"
        return replace(setup, options={**setup.options, "logging": spec})
    spec = f"{setup.specs.get(agent, agent)}+{option}={level}"
    return replace(setup, specs={**setup.specs, agent: spec})


def _label_of_cell(name: str, levels: Mapping[str, Any]) -> str:
    """Return a cell's label, which file names can hold.

    It depends neither on other levels in the design nor on the order of the factors. Where characters are replaced or
    cut, a digest of the levels keeps labels of different cells different.

    Args:
        name: name of the setup.
        levels: level of each factor, by name.
    """
    text = ",".join([name, *(f"{factor}={levels[factor]}" for factor in sorted(levels))])
    label = re.sub(r"[^A-Za-z0-9._,=+-]", "_", text)
    if label == text and len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[:_LONGEST_LABEL]}-{digest_of(plain(dict(sorted(levels.items()))))[:8]}"


def log_counts(log: Any) -> dict[str, float]:
    """Count users, organic rows, bandit rows and rewards of a test log; an empty dictionary for None or no rows."""
    if log is None or len(log) == 0:
        return {}
    decision_rows = log.is_bandit
    return {
        "users": len(log.users()),
        "organic": int((~decision_rows).sum()),
        "bandit": int(decision_rows.sum()),
        "rewards": float(log["reward"][decision_rows].sum()),
    }


def setup_of(table: Mapping[str, Any]) -> Setup:
    """Read a setup from a table of its fields, as in a settings file.

    Raises:
        UserError: a key is unknown, or a value has the wrong type.
    """
    values = _with_known_keys(table, "a world of a study", Setup)
    for name in ("params", "options", "specs"):
        if name in values and not isinstance(values[name], Mapping):
            raise UserError(f"{name} must be a table of names and values, got {values[name]!r}")
    # A list becomes a tuple; a text stays, so that Setup refuses it instead of a tuple of its characters.
    names = {name: values.get(name) for name in ("agents", "references", "protocols")}
    lists = {name: tuple(value) for name, value in names.items() if value is not None and not isinstance(value, str)}
    return Setup(**{**values, **lists})


def labels_of(setups: Sequence[Setup]) -> list[str]:
    """Name each setup by world and preset, with a number where several setups have the same."""
    plain_names = ["-".join([_name_of(s.world), *([s.preset] if s.preset else [])]) for s in setups]
    return [
        name if plain_names.count(name) == 1 else f"{name}-{plain_names[:i].count(name) + 1}"
        for i, name in enumerate(plain_names)
    ]


def _name_of(world: str) -> str:
    """Return a world's name as file names can hold it; for a world file, the file's name without folder and ending."""
    if is_world_file(world):
        return PurePath(world).name.lower().replace(".toml", "").replace("#", ".")
    return world.replace(":", ".")


def design_of(path: str | Path) -> Design:
    """Read a design from a TOML file.

    Keys are the attributes of :class:`Design`; ``worlds`` and ``cells`` are tables ``[[worlds]]`` and ``[[cells]]``,
    ``factors`` and ``options`` are tables. Other tables are left to the study's analysis.

    Raises:
        UserError: the file does not exist or is not TOML, has an unknown key, or names no world.
    """
    content = read_toml(path_of(path))
    table = {name: value for name, value in content.items() if name in _fields(Design) or not isinstance(value, dict)}
    if not table.get("worlds"):
        raise UserError(f"{path}: name at least one world, as a table [[worlds]] with world = NAME")
    try:
        return design_of_table(table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def design_of_table(table: Any) -> Design:
    """Read a design from a table of its attributes.

    Raises:
        UserError: ``table`` is no table or has an unknown key, or the design cannot be run.
    """
    return Design(**_with_known_keys(table, "design", Design))


def _fields(kind: type[Any]) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in fields(kind)]


def _with_known_keys(table: Any, what: str, kind: type[Any]) -> Mapping[str, Any]:
    """Return a table as a dictionary, after checking that its keys are fields of a dataclass.

    Args:
        table: the table.
        what: name of the table in error messages.
        kind: the dataclass.

    Raises:
        UserError: ``table`` is no table, or a key is not a field.
    """
    names = _fields(kind)
    for name in table_by_name(table, what):
        if name not in names:
            raise UserError(f"{what}: unknown key {name!r}; {nearest(name, names)}")
    return dict(table)
