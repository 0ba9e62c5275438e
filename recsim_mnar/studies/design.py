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
"""Short names of factors."""
_LONGEST_LABEL = 120
_SETUP_FIELDS = ("world", "preset", "tie")

RESERVED = frozenset({*TIDY, "catalogue", "seed", "setup", "title", "user", "weight", "first", "second"})
"""Columns of a study's tables, which no factor may be called."""

Levels = Mapping[str, Any]


class Result(TypedDict):
    """Result of a task, as stored in its file."""

    cell: str
    setup: str
    levels: Levels
    catalogue: int
    seed: int
    run_config: Mapping[str, Any]
    records: list[Mapping[str, Any]]
    judgements: list[Mapping[str, Any]]
    log: Mapping[str, float]


class Took(TypedDict):
    """Seconds of a task: of the whole, and of each record."""

    seconds: float
    records: list[float]


@dataclass(frozen=True)
class Cell:
    """One setup at one level of every factor.

    Attributes:
        label: names the files of its results.
        name: of its setup before any factor.
        setup: what is compared.
        levels: by factor.
    """

    label: str
    name: str
    setup: Setup
    levels: Levels


@dataclass(frozen=True)
class Design:
    """Design of a study: setups crossed with factors, over catalogues that all cells share.

    Catalogue c has the same items and the same seed in every cell, so two cells differ in what their factors touch and
    in nothing else.

    Attributes:
        worlds: names, or tables of :class:`recsim_mnar.protocols.comparison.Setup`'s fields.
        agents, protocols, options, tie: of every setup that leaves them open.
        factors: by name, its levels, all of which are crossed. A factor is ``world``, ``preset`` or ``tie``, an option
            of the comparison (``logging``, ``clip``), a parameter of the world (``n_items``), or an option of an agent,
            as ``svd.rank`` or ``logging.epsilon``; ``epsilon`` and ``flips`` are short for ``logging.epsilon`` and
            ``n_flips``. A level that is a table sets several of these at once; the factor's name is then free. Levels
            have names of their own where they are a table: ``{"small": {"n_items": 50}, "large": {"n_items": 500}}``.
        cells: levels by factor, one table per cell, in place of ``factors``.
        catalogues: how many.
        first_seed: catalogue c has the seed ``first_seed + c``; None for seeds derived from ``seed``.
        seed: see ``first_seed``.
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
        """Refuse what cannot be."""
        of_type(self.worlds, "worlds", (list, tuple), "a list of worlds")
        if not self.worlds:
            raise UserError("a study needs at least one world")
        if isinstance(self.catalogues, bool) or not isinstance(self.catalogues, int) or self.catalogues < 1:
            raise UserError(f"a study needs at least one catalogue, got {self.catalogues!r}")
        check_seed(self.seed)
        table_by_name(self.options, "options")
        if self.factors and self.cells:
            raise UserError("give factors, which are crossed, or cells, which are listed, not both")
        of_cells = [name for cell in list_of(self.cells, "cells") for name in table_by_name(cell, "each of cells")]
        for name in (*table_by_name(self.factors, "factors"), *of_cells):
            if name in RESERVED:
                raise UserError(f"factor {name!r} has the name of a column of the results. Give it another")
        for name, levels in self.factors.items():
            if isinstance(levels, Mapping):
                for level, settings in levels.items():
                    table_by_name(settings, f"factor {name}, level {level}")
            if not (levels if isinstance(levels, Mapping) else list_of(levels, f"factor {name}")):
                raise UserError(f"factor {name} has no level. Give a list of them")
            if len({repr(level) for level in levels}) < len(levels):
                raise UserError(f"factor {name} has a level twice. Give each once")

    def setups(self) -> list[Setup]:
        """Return the worlds as setups, with defaults filled in."""
        return [self._filled(world) for world in self.worlds]

    def _filled(self, world: str | Mapping[str, Any] | Setup) -> Setup:
        if isinstance(world, Setup):
            setup = world
        else:
            setup = setup_of({"world": world} if isinstance(world, str) else world)
        if self.agents is not None and setup.agents is None:
            setup = replace(setup, agents=tuple(list_of(self.agents, "agents")))
        if self.protocols is not None and setup.protocols is None:
            setup = replace(setup, protocols=tuple(list_of(self.protocols, "protocols")))
        return replace(setup, options={**self.options, **setup.options}, tie=setup.tie or self.tie)

    def all_levels(self) -> list[Levels]:
        """Levels by factor, one table per cell of a setup."""
        if self.cells:
            return [dict(cell) for cell in self.cells]
        return [dict(zip(self.factors, levels, strict=True)) for levels in itertools.product(*self.factors.values())]

    def _by_name(self, levels: Levels) -> Levels:
        """Levels of which those that have a name are what they name."""
        return {
            factor: self.factors[factor][level] if isinstance(self.factors.get(factor), Mapping) else level
            for factor, level in levels.items()
        }

    def all_cells(self) -> list[Cell]:
        """Every setup at every level.

        Raises:
            UserError: a factor that a setup does not have.
        """
        setups = self.setups()
        levels = self.all_levels()
        return [
            Cell(_label(name, named), name, at_levels(setup, self._by_name(own_levels)), named)
            for name, setup in zip(labels_of(setups), setups, strict=True)
            for own_levels, named in zip(levels, map(named_levels, levels), strict=True)
        ]

    def seed_of(self, catalogue: int) -> int:
        """Seed of all cells of a catalogue."""
        if self.first_seed is not None:
            return check_seed(self.first_seed + catalogue)
        return derive_seed(self.seed, f"study/{catalogue}")

    def tasks(self) -> list[Task]:
        """One comparison per cell and catalogue; catalogue c has the world's ``catalogue_seed`` c."""
        return [Task(cell, c, self.seed_of(c)) for cell in self.all_cells() for c in range(self.catalogues)]

    def manifest(self) -> Mapping[str, Any]:
        """List everything needed to make it again; JSON types."""
        cells = {cell.label: {"levels": cell.levels, "setup": asdict(cell.setup)} for cell in self.all_cells()}
        fields = {"catalogues": self.catalogues, "first_seed": self.first_seed, "seed": self.seed}
        return {"cells": plain(cells), **fields}


@dataclass(frozen=True)
class Task:
    """One comparison of a study; it can be sent to another process.

    Attributes:
        cell: what is compared.
        catalogue: its number, which is the world's ``catalogue_seed`` too.
        seed: of everything else.
    """

    cell: Cell
    catalogue: int
    seed: int

    @property
    def label(self) -> str:
        """Names the file of its result."""
        return f"{self.cell.label}-{self.catalogue:03d}"

    def run(self, *, keep_raw: bool = False) -> tuple[Result, Took, RawResults | None]:
        """Return the result, the same bytes wherever it runs, what it took, and the raw results if they are kept."""
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
        seconds: Took = {
            "seconds": round(time.perf_counter() - began, 3),
            "records": [round(r.seconds, 4) for r in comparison.records],
        }
        return result, seconds, raw


def named_levels(levels: Levels) -> Levels:
    """Return levels as the table has them: a level of several settings by their names and values."""
    return {
        factor: ",".join(f"{name}={value}" for name, value in level.items()) if isinstance(level, Mapping) else level
        for factor, level in levels.items()
    }


def at_levels(setup: Setup, levels: Mapping[str, Any]) -> Setup:
    """Set every factor of a setup to a level; a level that is a table sets all its entries.

    Raises:
        UserError: a factor that this setup does not have.
    """
    levels = {
        name: value
        for factor, level in levels.items()
        for name, value in (level.items() if isinstance(level, Mapping) else [(factor, level)])
    }
    first = sorted(levels, key=lambda name: name not in _SETUP_FIELDS)  # a world decides what its options are
    dotted = sorted(first, key=lambda name: "." in str(ALIASES.get(name, name)))
    for name in dotted:
        setup = _at_level(setup, ALIASES.get(name, name), levels[name])
    return setup


def _at_level(setup: Setup, factor: str, level: Any) -> Setup:
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
    """Set an option of an agent or the logging policy; an epsilon of 0 is no softening."""
    if agent == "logging":
        logging = setup.options.get("logging", getattr(experiment.settings(setup.preset), "logging", None))
        if logging is None:
            raise UserError(f"the {setup.world} world has no logging policy of its own to vary")
        if option == "epsilon" and not level:
            spec = logging
        else:
            spec = f"{logging}+{option}={level}"
        return replace(setup, options={**setup.options, "logging": spec})
    return replace(setup, specs={**setup.specs, agent: f"{setup.specs.get(agent, agent)}+{option}={level}"})


def _label(name: str, levels: Mapping[str, Any]) -> str:
    """Names a cell's files, whatever other levels there are, and in whatever order the factors are given."""
    text = ",".join([name, *(f"{factor}={levels[factor]}" for factor in sorted(levels))])
    label = re.sub(r"[^A-Za-z0-9._,=+-]", "_", text)
    if label == text and len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[:_LONGEST_LABEL]}-{digest_of(plain(dict(sorted(levels.items()))))[:8]}"


def log_counts(log: Any) -> dict[str, float]:
    """Users, organic rows, bandit rows and sum of rewards of a test log; empty without one."""
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
    """Read a setup from a table of a settings file.

    Raises:
        UserError: an unknown key, or a value of another kind.
    """
    values = _known_keys(table, "a world of a study", Setup)
    for name in ("params", "options", "specs"):
        if name in values and not isinstance(values[name], Mapping):
            raise UserError(f"{name} must be a table of names and values, got {values[name]!r}")
    names = {name: values.get(name) for name in ("agents", "references", "protocols")}
    lists = {name: tuple(value) for name, value in names.items() if value is not None and not isinstance(value, str)}
    return Setup(**{**values, **lists})


def labels_of(setups: Sequence[Setup]) -> list[str]:
    """Name each setup: world and preset, with a number where two are alike."""
    plain_names = ["-".join([_name_of(s.world), *([s.preset] if s.preset else [])]) for s in setups]
    return [
        name if plain_names.count(name) == 1 else f"{name}-{plain_names[:i].count(name) + 1}"
        for i, name in enumerate(plain_names)
    ]


def _name_of(world: str) -> str:
    """Return a world's name for file names; for a world file, its name without folders."""
    if is_world_file(world):
        return PurePath(world).name.lower().replace(".toml", "").replace("#", ".")
    return world.replace(":", ".")


def design_of(path: str | Path) -> Design:
    """Read a design from a TOML file.

    Keys are the attributes of :class:`Design`; ``worlds`` and ``cells`` are tables ``[[worlds]]`` and ``[[cells]]``,
    ``factors`` and ``options`` are tables. Other tables are left to the study's analysis.

    Raises:
        UserError: no such file, not TOML, an unknown key, or no world.
    """
    held = read_toml(path_of(path))
    table = {name: value for name, value in held.items() if name in _fields(Design) or not isinstance(value, dict)}
    if not table.get("worlds"):
        raise UserError(f"{path}: name at least one world, as a table [[worlds]] with world = NAME")
    try:
        return design_of_table(table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def design_of_table(table: Any) -> Design:
    """Read a design from a table of its attributes.

    Raises:
        UserError: no table, an unknown key, or a design that cannot be.
    """
    return Design(**_known_keys(table, "design", Design))


def _fields(kind: type[Any]) -> list[str]:
    return [one.name for one in fields(kind)]


def _known_keys(table: Any, what: str, kind: type[Any]) -> Mapping[str, Any]:
    """Check that a table's keys are attributes of a class; a UserError names one that is not."""
    fields = _fields(kind)
    for name in table_by_name(table, what):
        if name not in fields:
            raise UserError(f"{what}: unknown key {name!r}; {nearest(name, fields)}")
    return dict(table)
