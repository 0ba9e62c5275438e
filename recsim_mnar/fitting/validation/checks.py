"""A check of a world against a log: what was compared, how far apart it is, and what that means."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recsim_mnar.resuming import Form, in_json

MATCHES, CLOSE, OFF, CANNOT_SAY = "matches", "close", "off", "cannot say"
LEVEL = 0.025
"""Of false alarms over all checks of one validation (Holm 1979): half of 5 %, for some policies are estimated."""
_WIDE = 2.0
"""A check that finds nothing must have been able to see a difference of so many tolerances, or it cannot say."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: of the check.
        kind: ``statistic`` or ``classifier``.
        question: what it bears on.
        what: what ``real`` and ``simulated`` are.
        real: of the log's held-out users.
        simulated: of the world's.
        distance: between real and simulated users; its unit is the check's.
        chance: its median where the same users are divided at random: what no world can be expected to undercut.
        visible: its .95 quantile there: what would have been told from chance.
        tolerance: an excess over chance up to so much is small; chance and difference add up in squares.
        p: of no difference, by itself; None where it cannot be tested.
        p_adjusted: by Holm, over all checks.
        grade: matches, close, off or cannot say.
        says: one sentence.
        picture: what a picture shows; JSON types.
    """

    name: str
    kind: str
    question: str
    what: str
    real: float
    simulated: float
    distance: float
    chance: float
    visible: float
    tolerance: float
    p: float | None
    p_adjusted: float | None = None
    grade: str = CANNOT_SAY
    says: str = ""
    picture: dict[str, Any] = field(default_factory=dict)

    @property
    def told_apart(self) -> bool:
        """Whether its test says that the world is not the log's."""
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return dataclasses.asdict(self)


CHECKS: Form[list[Check]] = in_json(
    lambda checks: [check.to_dict() for check in checks], lambda told: [Check(**each) for each in told]
)
"""How checks lie in a file."""


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those up to a level errs with at most that probability, over all of them."""
    adjusted, running = [0.0] * len(p), 0.0
    for place, index in enumerate(np.argsort(p, kind="stable")):
        running = max(running, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = running
    return adjusted


def graded(checks: Sequence[Check]) -> list[Check]:
    """The checks with adjusted p-values and grades; one that cannot be tested stays as it is."""
    adjusted = iter(holm([check.p for check in checks if check.p is not None]))
    return [check if check.p is None else _graded(check, next(adjusted)) for check in checks]


def _graded(check: Check, adjusted: float) -> Check:
    check = dataclasses.replace(check, p_adjusted=adjusted)
    excess, blindness = (np.sqrt(max(d**2 - check.chance**2, 0.0)) for d in (check.distance, check.visible))
    if check.told_apart:
        grade = CLOSE if excess <= check.tolerance else OFF
    else:
        grade = CANNOT_SAY if blindness > _WIDE * check.tolerance else MATCHES
    ending = {
        MATCHES: "not told apart", CLOSE: "told apart, by little", OFF: "told apart",
        CANNOT_SAY: f"too few users to tell less than {check.visible:.3g}",
    }[grade]  # fmt: skip
    says = (
        f"{check.what}: {check.real:.4g} real, {check.simulated:.4g} simulated; {check.distance:.3g} apart, by chance "
        f"{check.chance:.3g}: {ending}"
    )
    return dataclasses.replace(check, grade=grade, says=says)
