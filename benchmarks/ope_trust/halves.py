"""The settings of both halves of a frozen version, their worlds and their logs."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from families import FAMILIES
from worlds import Draws, Log, World

from recsim_mnar.errors import UserError
from recsim_mnar.rng import derive_seed

HERE = Path(__file__).resolve().parent
HALVES = ("public", "hidden")
FROZEN = HERE / "frozen" / "v1.toml"
SOURCES = ("worlds.py", "families.py", "halves.py", "settings.toml")


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def changed() -> list[str]:
    """Files that are not as they were when the version was frozen."""
    kept = tomllib.loads(FROZEN.read_text())["sha256"]
    return [name for name in SOURCES if digest((HERE / name).read_bytes()) != kept.get(name)]


def check_frozen() -> None:
    """Refuse to go on with other families than the frozen ones.

    Raises:
        UserError: a file was changed.
    """
    if names := changed():
        raise UserError(
            f"{', '.join(names)}: changed since {FROZEN.name} was frozen. Restore them, or freeze a version."
        )


@cache
def seed_of(half: str) -> int:
    """The seed of a half; the hidden one's is the digest of the frozen file."""
    data = FROZEN.read_bytes() if half == "hidden" else half.encode()
    return int(digest(data)[:16], 16)


@cache
def settings() -> dict[str, Any]:
    """What settings.toml holds."""
    return tomllib.loads((HERE / "settings.toml").read_text())


@dataclass(frozen=True)
class Setting:
    """One setting of a family."""

    family: str
    half: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.family}/{self.half}/{self.number}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Drawn from the family's ranges."""
        draws, found = Draws(derive_seed(seed_of(self.half), self.name)), {}
        for name, (low, high) in settings()["families"][self.family].items():
            lot = draws.uniform(name, 1)[0]
            found[name] = low + lot * (high - low) if name == "gap" else low * (high / low) ** lot
        return found | {"rows": round(found["rows"])}

    def world(self) -> World:
        """The setting's world; its tables have a seed of their own."""
        seed = derive_seed(seed_of(self.half), f"{self.name}/world")
        return FAMILIES[self.family](self.parameters, Draws(seed))

    def log(self, world: World, number: int) -> Log:
        """A numbered log."""
        return world.log(derive_seed(seed_of(self.half), f"{self.name}/log {number}"))


def all_settings(halves: tuple[str, ...] = HALVES) -> Iterator[Setting]:
    """Every setting, family by family."""
    for family in settings()["families"]:
        for half in halves:
            for number in range(settings()["settings"]):
                yield Setting(family, half, number)


def estimates(log: Log) -> tuple[float, float]:
    """ips and snips, which decide whether a setting is usable."""
    weight = log.target / log.propensity
    total = float(weight @ log.reward)
    return total / len(weight), total / max(float(weight.sum()), np.finfo(float).tiny)
