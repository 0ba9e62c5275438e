"""What a training log must hold for a learner, beside views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recsim_mnar.errors import UserError, nearest

HOLDINGS: Mapping[str, str] = {
    "outcomes": "recommendations with their rewards and propensities",
    "clicks": "recommendations that were taken or not (reward 1 or 0)",
    "exposures": "items recommended and not, bought and not, period by period",
    "ratings": "revealed ratings",
}
"""What a log may hold, in words."""


def needs_of(learner: Any) -> frozenset[str]:
    """What a learner, or a class of learners, declares.

    Raises:
        UserError: something that is not in :data:`HOLDINGS`.
    """
    needs = frozenset(getattr(learner, "needs", ()))
    for unknown in sorted(map(str, needs - set(HOLDINGS))):
        raise UserError(f"agent {getattr(learner, 'name', learner)!r} needs {unknown!r}; {nearest(unknown, HOLDINGS)}")
    return needs


def check_needs(name: str, learner: Any, holds: Iterable[str] | None, where: str) -> None:
    """Raise UserError where a log lacks what a learner needs.

    Args:
        name: of the agent.
        learner: with or without ``needs``.
        holds: what the log holds, of :data:`HOLDINGS`; None where nobody knows, which suffices.
        where: the log, in words.
    """
    if holds is None:
        return
    missing = sorted(needs_of(learner) - set(holds))
    if missing:
        raise UserError(
            f"agent {name!r} learns from {HOLDINGS[missing[0]]}, which {where} does not hold; "
            "`recsim-mnar agents` says which worlds an agent is for"
        )
