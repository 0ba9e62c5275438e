"""A study's settings file, and its tasks: one world and one catalogue each, with seeds that come from their labels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import list_of, table_by_name
from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.protocols.records import plain
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.files import path_of, read_toml
from recsim_mnar.worlds.registry import is_world_file


@dataclass(frozen=True)
class Task:
    """One comparison of a study; JSON types only, so that it can be sent to another process.

    Attributes:
        label: names the file of its result.
        setup: what is compared.
        catalogue: its number, which is the world's ``catalogue_seed`` too.
        seed: of everything else.
    """

    label: str
    setup: Setup
    catalogue: int
    seed: int

    def run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The comparison: what it found, the same bytes wherever it runs, and what it took."""
        began = time.perf_counter()
        resolved = self.setup.resolved(self.catalogue)
        found = resolved.run(self.seed)
        result = {
            "label": self.label,
            "catalogue": self.catalogue,
            "seed": self.seed,
            "run_config": plain(resolved.run_config(self.seed)),
            "records": [_untimed(r.to_dict()) for r in found.records],
            "judgements": [j.to_dict() for j in found.judgements],
            "log": plain(log_counts(found.log)),
        }
        seconds = {"label": self.label, "seconds": round(time.perf_counter() - began, 3)}
        return result, seconds


def _untimed(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def log_counts(log: Any) -> dict[str, float]:
    """Users, organic rows, bandit rows and sum of rewards of a test log; empty without one."""
    if log is None or len(log) == 0:
        return {}
    shown = log.is_bandit
    return {
        "users": len(log.users()),
        "organic": int((~shown).sum()),
        "bandit": int(shown.sum()),
        "rewards": float(log["reward"][shown].sum()),
    }


def filled(
    world: str | Mapping[str, Any] | Setup,
    agents: Sequence[str] | None,
    protocols: Sequence[str] | None,
    estimators: Sequence[str] | None,
    options: Mapping[str, Any],
    tie: float,
) -> Setup:
    """A setup with what it leaves open filled in, see :func:`recsim_mnar.studies.run_study`."""
    made = world if isinstance(world, Setup) else setup_of({"world": world} if isinstance(world, str) else world)
    if agents is not None and made.agents is None:
        made = replace(made, agents=tuple(list_of(agents, "agents")))
    if protocols is not None and made.protocols is None:
        made = replace(made, protocols=tuple(list_of(protocols, "protocols")))
    more = {} if estimators is None else {"estimators": ",".join(list_of(estimators, "estimators"))}
    return replace(made, options={**table_by_name(options, "options"), **more, **made.options}, tie=made.tie or tie)


def setup_of(table: Mapping[str, Any]) -> Setup:
    """A setup from a table, as a settings file has it.

    Raises:
        UserError: an unknown key, or a value of another kind.
    """
    known = [*Setup.__dataclass_fields__]
    values: dict[str, Any] = {}
    for name, value in table_by_name(table, "a world of a study").items():
        if name not in known:
            raise UserError(f"unknown key {name!r} of a comparison; {nearest(name, known)}")
        if name in ("agents", "references", "protocols") and value is not None:
            if isinstance(value, str) or not all(isinstance(v, str) for v in value):
                raise UserError(f"{name} must be a list of names, got {value!r}")
            value = tuple(value)
        if name in ("params", "options") and not isinstance(value, Mapping):
            raise UserError(f"{name} must be a table of names and values, got {value!r}")
        values[name] = value
    return Setup(**values)


def labels_of(setups: Sequence[Setup]) -> list[str]:
    """A name a setup: world and preset, with a number where two are alike."""
    plain_names = ["-".join([_name_of(s.world), *([s.preset] if s.preset else [])]) for s in setups]
    return [
        name if plain_names.count(name) == 1 else f"{name}-{plain_names[:i].count(name) + 1}"
        for i, name in enumerate(plain_names)
    ]


def _name_of(world: str) -> str:
    """A world's name as part of a file's: of a world file its own, without folders."""
    if is_world_file(world):
        return PurePath(world).name.lower().replace(".toml", "").replace("#", ".")
    return world.replace(":", ".")


def tasks_of(setups: Sequence[Setup], seeds: int | Sequence[int], seed: int = 0) -> list[Task]:
    """One task a setup and catalogue; catalogue c has the world's ``catalogue_seed`` c.

    Raises:
        UserError: no catalogue, no setup.
    """
    count = seeds if isinstance(seeds, int) else len(seeds)
    if not setups:
        raise UserError("a study needs at least one world")
    if isinstance(count, bool) or count < 1:
        raise UserError(f"a study needs at least one catalogue, got {count}")
    check_seed(seed)
    tasks = []
    for label, setup in zip(labels_of(setups), setups, strict=True):
        for c in range(count):
            own = derive_seed(seed, f"study/{label}/{c}") if isinstance(seeds, int) else check_seed(seeds[c])
            tasks.append(Task(f"{label}-{c:03d}", setup, c, own))
    return tasks


def read_settings(path: str | Path) -> dict[str, Any]:
    """Arguments of :func:`run_study` from a TOML file.

    Keys: ``catalogues``, ``seed``, ``first_seed`` (catalogue c has seed ``first_seed + c``), ``agents``, ``protocols``,
    ``estimators``, ``options``, ``tie``, and tables ``[[worlds]]``; other tables are left to the study's analysis.

    Raises:
        UserError: no such file, not TOML, or no world.
    """
    table = read_toml(path_of(path))
    known = ("catalogues", "seed", "first_seed", "agents", "protocols", "estimators", "options", "tie", "worlds")
    for name, value in table.items():
        if name not in known and not isinstance(value, dict):
            raise UserError(f"{path}: unknown key {name!r}; {nearest(name, known)}")
    if not table.get("worlds"):
        raise UserError(f"{path}: name at least one world, as a table [[worlds]] with world = NAME")
    n = table.get("catalogues", 10)
    if not isinstance(n, int) or isinstance(n, bool):
        raise UserError(f"{path}: catalogues must be a whole number, got {n!r}")
    found = {name: table[name] for name in known if name in table and name not in ("catalogues", "first_seed")}
    return {**found, "seeds": seeds_from(n, table.get("first_seed"))}


def seeds_from(n_catalogues: int, first_seed: int | None) -> int | list[int]:
    """``first_seed + c`` of each catalogue c, or the number of catalogues, whose seeds are then derived."""
    return n_catalogues if first_seed is None else [first_seed + c for c in range(n_catalogues)]
