"""A study's settings file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, nearest


def read_settings(path: str | Path) -> dict[str, Any]:
    """Arguments of :func:`run_study` from a TOML file.

    Keys: ``catalogues``, ``seed``, ``first_seed`` (catalogue c has seed ``first_seed + c``), ``agents``, ``protocols``,
    ``estimators``, ``options``, ``tie``, and tables ``[[worlds]]``; other tables are left to the study's analysis.

    Raises:
        UserError: no such file, not TOML, or no world.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: name a TOML file of settings") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder: name its TOML file of settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}") from None
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
