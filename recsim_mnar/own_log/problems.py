"""What is wrong with a file, or worth knowing: a code, where it is, and the texts of that code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recsim_mnar.estimators.verdict import written

NOTE, PROBLEM = "note", "problem"
"""Worth knowing; or numbers made of the file would be wrong, or a command would refuse it."""


@dataclass(frozen=True)
class Problem:
    """One problem or remark.

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

    @staticmethod
    def of(code: str, level: str, *columns: str, **params: Any) -> Problem:
        """The problem of a code of ``findings.toml``; its texts know ``column`` and ``other``, the first two columns.

        Args:
            code: of the table.
            level: see the class.
            *columns: where.
            **params: further ones of the texts; ``says`` and ``do`` choose another case of them.
        """
        return Problem(code, level, *texts_of(code, columns, params), columns)

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        return f"{self.message}: {self.advice}" if self.advice else self.message


def texts_of(code: str, columns: tuple[str, ...], params: Mapping[str, Any]) -> tuple[str, str]:
    """What a code says of some columns, and what to do."""
    known = {**dict(zip(("column", "other"), columns, strict=False)), **params}
    return written(code, "says", known), written(code, "do", known)
