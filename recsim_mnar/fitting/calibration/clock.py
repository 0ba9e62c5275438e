"""The clock of a fitted sessions world: its parameters by the moments of times between a user's events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsim_mnar.fitting.calibration import functionals as told
from recsim_mnar.log.table import Log


@dataclass(frozen=True)
class Clock:
    """Parameters of the clock, and what of the log's it does not hold."""

    kind: str
    mean: float
    sd: float
    spread: float

    @property
    def square(self) -> float:
        """Mean square of the time between two events."""
        return told.mean_square_time(self.kind, self.mean, self.sd)


def clock_of(log: Log) -> Clock:
    """By the moments of times between a user's events: ``|mean + sd z|`` varies by at most .756 of its mean."""
    user, time = log["user"], log["time"]
    gap = np.diff(time)[user[1:] == user[:-1]]
    if len(gap) == 0 or np.allclose(gap, 1.0):
        return Clock("unit", 0.0, 1.0, 0.0)
    mean, square = float(gap.mean()), float((gap**2).mean())
    if mean <= 0:
        return Clock("unit", 0.0, 1.0, float("nan"))
    spread = float(np.sqrt(max(square - mean**2, 0.0)) / mean)
    if spread >= 0.755:
        return Clock("normal", 0.0, mean * float(np.sqrt(np.pi / 2)), spread)
    location, sd = _folded(mean, square)
    return Clock("normal", location, sd, spread)


def _folded(mean: float, square: float) -> tuple[float, float]:
    """Mean and deviation of z with which |z| has this mean and mean square."""
    from scipy.special import erf

    shares = np.linspace(0.0, 1.0, 4001)[1:]
    location, sd = np.sqrt(square * shares), np.sqrt(square * (1 - shares))
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.where(sd > 0, location / np.maximum(sd, 1e-12), np.inf)
        folded = sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * ratio**2) + location * erf(ratio / np.sqrt(2))
    best = int(np.argmin(np.abs(folded - mean)))
    return float(location[best]), float(sd[best])
