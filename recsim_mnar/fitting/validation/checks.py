"""A check of a world against a log: what was compared, how far apart it is, and what that means."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recsim_mnar.resuming import Form, in_json

MATCHES, CLOSE, OFF, CANNOT_SAY = "matches", "close", "off", "cannot say"
GRADES = (MATCHES, CLOSE, CANNOT_SAY, OFF)
LEVEL = 0.05
"""Of false alarms over all checks of one validation (Holm 1979)."""
_WIDE = 2.0
"""A check that finds nothing must have been able to see a difference of so many tolerances, or it cannot say."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: of the check.
        kind: ``statistic``, ``classifier``, ``ranking`` or ``out of policy``.
        question: what it bears on.
        what: what ``real`` and ``simulated`` are.
        real: of the log's held-out users.
        simulated: of the world's.
        distance: between groups of real and simulated users; its unit is the check's.
        ceiling: median distance between two groups of real users: what no world can be expected to undercut.
        ceiling_high: the .95 quantile of that.
        visible: distance that would have been told from chance (.95 quantile under the hypothesis of no difference).
        tolerance: an excess over the ceiling (:attr:`excess`) up to so much is small.
        p: of no difference, by itself; None for a check without a test.
        p_adjusted: by Holm, over all checks.
        grade: of :data:`GRADES`.
        says: one sentence.
        picture: what a picture shows; JSON types.
        details: what else was found; JSON types.
    """

    name: str
    kind: str
    question: str
    what: str
    real: float
    simulated: float
    distance: float
    ceiling: float
    ceiling_high: float
    visible: float
    tolerance: float
    p: float | None
    p_adjusted: float | None = None
    grade: str = CANNOT_SAY
    says: str = ""
    picture: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def excess(self) -> float:
        """What of the distance is more than chance: chance and difference add up in squares."""
        return _above(self.distance, self.ceiling)

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return dataclasses.asdict(self)


CHECKS: Form[list[Check]] = in_json(
    lambda checks: [check.to_dict() for check in checks], lambda told: [Check(**each) for each in told]
)
"""How checks lie in a file."""


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those up to a level errs with at most that probability, over all of them."""
    order = np.argsort(p, kind="stable")
    adjusted, running = [0.0] * len(p), 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = running
    return adjusted


def graded(checks: Sequence[Check]) -> list[Check]:
    """The checks with adjusted p-values; those that have no grade of their own are graded by them."""
    tested = [i for i, check in enumerate(checks) if check.p is not None]
    adjusted = dict(zip(tested, holm([float(checks[i].p or 0.0) for i in tested]), strict=True))
    return [_graded(check, adjusted.get(i)) for i, check in enumerate(checks)]


def _graded(check: Check, adjusted: float | None) -> Check:
    if adjusted is None:
        return check
    grade = _grade(check, adjusted)
    return dataclasses.replace(check, p_adjusted=adjusted, grade=grade, says=check.says or _says(check, grade))


def _grade(check: Check, adjusted: float) -> str:
    if adjusted <= LEVEL:
        return CLOSE if check.excess <= check.tolerance else OFF
    blind = _above(check.visible, check.ceiling) > _WIDE * check.tolerance
    return CANNOT_SAY if blind or check.details.get("control_found") is False else MATCHES


def _above(distance: float, chance: float) -> float:
    """What of a distance is more than chance: chance and difference add up in squares."""
    return float(np.sqrt(max(distance**2 - chance**2, 0.0)))


def _says(check: Check, grade: str) -> str:
    values = f"{check.what}: {check.real:.4g} real, {check.simulated:.4g} simulated"
    halves = f"{check.distance:.3g} apart, halves of the log {check.ceiling:.3g}"
    return {
        MATCHES: f"{values}; {halves}: not told apart",
        CLOSE: f"{values}; {halves}: told apart, by little",
        OFF: f"{values}; {halves}: told apart",
        CANNOT_SAY: f"{values}; {halves}: too few users to tell less than {check.visible:.3g}",
    }[grade]
