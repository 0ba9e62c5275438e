"""A row of the table of speeds, how it is printed, how CPU seconds are taken, how peers are run, and the floors."""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar import rng

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import parser_of as parser_of
from _study import read, table, write_results
from _study import write_text as write_text

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """One path and one peer, measured in turn in the same run.

    Attributes:
        path: what was run.
        peer: what it is compared with.
        ours, theirs: measured; None where the peer was not run (``ours`` too, where it says how both compare).
        unit: of both, ``events a CPU second`` or ``CPU s``, say.
        bar: what must be reached, by ``ratio`` or, where there is no peer, by ``ours``.
        at_least: the bar is a lower bound (else an upper one).
        of_costs: ``ours`` and ``theirs`` are costs: less is better. Ratios with a lower bar are theirs / ours then.
        floor: the least that the machine allows, in the same unit.
        floor_is: of what the floor is made.
        note: whatever else a reader should know.
    """

    path: str
    peer: str
    ours: float | None
    theirs: float | None
    unit: str
    bar: float | None
    at_least: bool = True
    of_costs: bool = True
    floor: float | None = None
    floor_is: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better we are (lower bars), or how many times as dear (upper bars)."""
        if self.theirs is None or self.ours is None:
            return None
        swapped = self.of_costs == self.at_least
        return self.theirs / self.ours if swapped else self.ours / self.theirs

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached: never where the peer was not run; None where there is no bar."""
        if self.bar is None:
            return None
        value = self.ratio if self.peer else self.ours
        if value is None:
            return False
        return value >= self.bar if self.at_least else value <= self.bar

    @property
    def distance(self) -> float | None:
        """How many times the floor we take."""
        if self.floor is None or self.ours is None:
            return None
        return self.ours / self.floor if self.of_costs else self.floor / self.ours

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met, "times_the_floor": self.distance}


_NAMES = ("path", "ours", "peer", "ratio", "bar", "met", "floor", "x floor")
_WIDTHS = (58, 10, 12, 8, 9, 4, 10, 8)
HEADER = (
    f"{_NAMES[0]:58} " + " ".join(f"{n:>{w}}" for n, w in zip(_NAMES[1:], _WIDTHS[1:], strict=True)) + "  unit; peer"
)


def line(row: Row) -> str:
    """A row for a terminal."""
    theirs = number(row.theirs) if row.theirs is not None else ("not measured" if row.peer else "-")
    bar = "-" if row.bar is None else f"{'>=' if row.at_least else '<='} {row.bar:g}"
    met = {True: "yes", False: "no", None: "-"}[row.met]
    text = (
        f"{row.path:58} {number(row.ours):>10} {theirs:>12} {number(row.ratio):>8} {bar:>9} {met:>4} "
        f"{number(row.floor):>10} {number(row.distance):>8}  {row.unit}"
    )
    return text + (f"; {row.peer}" if row.peer else "") + (f" ({row.note})" if row.note else "")


def markdown(rows: Iterable[Row]) -> str:
    """The table for a page."""
    lines = []
    for row in rows:
        theirs = number(row.theirs) if row.theirs is not None else ("not measured" if row.peer else "")
        sign, missed = "≥" if row.at_least else "≤", "" if row.met else ", not reached"
        bar = "" if row.bar is None else f"{sign} {row.bar:,g}{missed}"
        known = [number(value) if value is not None else "" for value in (row.ratio, row.distance)]
        lines.append([row.path, f"{number(row.ours)} {row.unit}", row.peer, theirs, known[0], bar, known[1]])
    return "\n".join(table(["path", "ours", "peer", "theirs", "ratio", "bar", "x floor"], lines)) + "\n"


def number(value: float | None) -> str:
    """Three or four digits that matter."""
    if value is None:
        return "-"
    if abs(value) >= 100_000:
        return f"{value:.3g}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cpu_seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it gave."""
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def in_turn(functions: Mapping[str, Callable[[], Any]], rounds: int, *, warm: bool = True) -> dict[str, list[float]]:
    """CPU seconds of each function in each round, the functions one after the other within a round."""
    if warm:
        for function in functions.values():
            function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(cpu_seconds(function)[0])
    return seconds


def least(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The least of each: other processes can only add."""
    return {name: min(values) for name, values in seconds.items()}


def middle(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def into_results(path: Path, section: str, found: Any) -> None:
    """Put one section into a file of results."""
    write_results(path, read(path) | {section: found})


def peer_python(name: str) -> Path | None:
    """The Python of a peer's virtual environment (make_peers.sh); None where it was not made."""
    python = Path(os.environ.get("PEERS_DIR", HERE / ".venvs")) / name / "bin" / "python"
    return python if python.exists() else None


def peer(environment: str, name: str, arguments: Iterable[Any]) -> Any:
    """The JSON that a peer of peers.py prints last in its environment; None where there is none, or it fails."""
    python = peer_python(environment)
    if python is None:
        return None
    command = [str(python), str(HERE / "peers.py"), name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


@dataclass(frozen=True)
class Machine:
    """Of one core, at its best moment.

    Attributes:
        read: bytes a second, a long array.
        write: bytes a second into pages that are there already.
        draw: seconds a uniform with 53 bits (Philox4x32-10).
        flop: seconds a multiplication or addition of float64 in the first-level cache.
        single_flop: the same of float32 in a matrix product (BLAS, one thread).
        increment: seconds an increment at a random place of 20,000 int32 (80 kB).
    """

    read: float
    write: float
    draw: float
    flop: float
    single_flop: float
    increment: float


@functools.cache
def machine(rounds: int = 7) -> Machine:
    """Measure once a run."""
    from _floors_kernel import increments, multiply_adds, read

    n = 1 << 21
    columns = [np.ones(n) for _ in range(3)]
    users, zeros = np.arange(1 << 18, dtype=np.uint64), np.zeros(1 << 18, np.uint64)
    x, y = np.ones(1024), np.ones(1024)
    a, b = np.ones((512, 512), np.float32), np.ones((512, 512), np.float32)
    c = np.empty_like(a)
    table, places = np.zeros(20_000, np.int32), np.random.default_rng(0).integers(0, 20_000, 1 << 20).astype(np.uint32)
    seconds = least(
        in_turn(
            {
                "read": lambda: read(*columns),
                "write": lambda: columns[0].fill(1.0),
                "draw": lambda: rng.uniforms(1, rng.Stream.POLICY, users, zeros),
                "flop": lambda: multiply_adds(x, y, 4096),
                "single": lambda: np.matmul(a, b, out=c),
                "increment": lambda: increments(table, places),
            },
            rounds,
        )
    )
    return Machine(
        read=3 * 8 * n / seconds["read"],
        write=8 * n / seconds["write"],
        draw=seconds["draw"] / len(users),
        flop=seconds["flop"] / (2 * 1024 * 4096),
        single_flop=seconds["single"] / (2 * 512**3),
        increment=seconds["increment"] / len(places),
    )
