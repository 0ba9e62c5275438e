"""The settings of both halves of OPE-trust v2, their worlds, and their logs with what is true of them.

`for case in v2_logs("public"): entry(case.log, case.facts)`, and case.value is what the answer is held against.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from families_v2 import FAMILIES, HONEST
from halves import HALVES, digest
from worlds import Draws, Facts
from worlds_v2 import Log, World

from recsim_mnar.errors import UserError
from recsim_mnar.rng import derive_seed

HERE = Path(__file__).resolve().parent
FROZEN = HERE / "frozen" / "v2.toml"
SOURCES = ("worlds.py", "families.py", "worlds_v2.py", "families_v2.py", "halves_v2.py", "settings_v2.toml")


class Case(NamedTuple):
    """A log, what its owner states of it, and what is true."""

    family: str
    honest: bool
    setting: str
    index: int
    log: Log
    facts: Facts
    value: float  # of the target, acting in every row
    baseline: float  # of the baseline, acting in every row
    difference: float


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
    data = FROZEN.read_bytes() if half == "hidden" else f"v2 {half}".encode()
    return int(digest(data)[:16], 16)


@cache
def settings() -> dict[str, Any]:
    """What settings_v2.toml holds."""
    return tomllib.loads((HERE / "settings_v2.toml").read_text())


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
        return FAMILIES[self.family](self.parameters, Draws(derive_seed(seed_of(self.half), f"{self.name}/world")))

    def log(self, world: World, number: int) -> Log:
        """A numbered log."""
        return world.log(derive_seed(seed_of(self.half), f"{self.name}/log {number}"))


def all_settings(halves: tuple[str, ...] = HALVES, families: Collection[str] | None = None) -> Iterator[Setting]:
    """Every setting of some families, family by family."""
    for family in FAMILIES if families is None else families:
        for half in halves:
            for number in range(settings()["settings"]):
                yield Setting(family, half, number)


def v2_logs(half: str, families: Collection[str] | None = None, logs: int | None = None) -> Iterator[Case]:
    """Every log of a half, of some families and with fewer logs per setting where that is wished."""
    check_frozen()
    for setting in all_settings((half,), families):
        world = setting.world()
        value, baseline = world.value(world.target), world.value(world.baseline)
        for index in range(settings()["logs"] if logs is None else logs):
            log = setting.log(world, index)
            honest = setting.family in HONEST
            yield Case(setting.family, honest, setting.name, index, log, world.facts, value, baseline, value - baseline)
