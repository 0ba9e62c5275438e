"""What a doctor finds wrong with a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from recsim_mnar.tables.faults import MISSING, Fault

NOTE, PROBLEM = "note", "problem"
"""Worth knowing; or numbers made of the file would be wrong, or a command would refuse it."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or worth knowing.

    Attributes:
        code: stable name, for programs.
        level: :data:`NOTE` or :data:`PROBLEM`.
        message: what was found, with counts and rows (from 1 below the header).
        advice: what to do; empty where there is nothing.
        columns: where.
    """

    code: str
    level: str
    message: str
    advice: str = ""
    columns: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.message}: {self.advice}" if self.advice else self.message


def problems_of(faults: Iterable[Fault]) -> list[Problem]:
    """The faults of values: what is missing is said apart, with its counts in every column."""
    return [
        Problem(fault.code, PROBLEM, str(fault).removesuffix(f": {fault.advice}"), fault.advice, (fault.column,))
        for fault in faults
        if fault.code != MISSING
    ]
