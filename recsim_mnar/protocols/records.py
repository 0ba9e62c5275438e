"""The record: one judgement of one agent by one protocol, the same fields for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of ``results.json``.

    Attributes:
        world: name of the world, or "interactions" for a user's own data.
        protocol: name of the protocol, as ``loocv`` or ``truth``.
        agent: name of the policy judged.
        metric: ``hr@1``, ``clipped_ips``, ``ctr``, ...
        value: the estimate.
        low, high: interval of nominal coverage ``level``.
        level: of the interval.
        n: units it rests on (decisions, or users for leave-one-out).
        seconds: wall time it took, shared evenly where agents were judged together.
        details: what else a person should know; JSON types only.
    """

    world: str
    protocol: str
    agent: str
    metric: str
    value: float
    low: float
    high: float
    level: float
    n: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        world: str,
        protocol: str,
        agent: str,
        metric: str,
        interval: tuple[float, float, float],
        *,
        level: float,
        n: int,
        seconds: float,
        details: Mapping[str, Any] | None = None,
    ) -> Record:
        """The record of an interval: value, low and high; its details are a copy."""
        value, low, high = interval
        more: dict[str, Any] = {"level": level, "n": n, "seconds": seconds, "details": dict(details or {})}
        return cls(world=world, protocol=protocol, agent=agent, metric=metric, value=value, low=low, high=high, **more)

    @property
    def covers(self) -> str:
        """How much of the agent the log covers, where that is too little for a value or a rank; else empty."""
        return str(self.details.get("covers", ""))

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a number that is not finite becomes null, which JSON has and NaN it has not."""
        return {name: plain(value) for name, value in asdict(self).items()}


def plain(value: Any) -> Any:
    """A value as JSON types; a number that is not finite becomes None."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value
