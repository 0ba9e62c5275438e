"""A/B tests of the plan study: settings drawn from their number, and totals of users in either arm, by NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DEVELOPMENT, HELD_OUT = 1_000_000, 0
HIGHEST = 0.8
"""Largest rate of a user: the largest lift leaves it below 1, so that every arm has the lift that its setting names."""


@dataclass(frozen=True)
class Experiment:
    """One A/B test.

    Attributes:
        number: what it was drawn from.
        kind: of rewards: "click", or "dwell" (gamma, of shape 2).
        mean: reward of an average user's row.
        rows: mean number of rows a user has.
        lengths: how users differ in it: "same", "poisson" or "geometric".
        spread: standard deviation of users' inclination on the log scale.
        lift: relative.
        power: wanted.
        users: of the pilot.
    """

    number: int
    kind: str
    mean: float
    rows: float
    lengths: str
    spread: float
    lift: float
    power: float
    users: int


def draw(number: int) -> Experiment:
    """The experiment of a number."""
    rng = np.random.default_rng([20262, number])
    return Experiment(
        number=number,
        kind=str(rng.choice(["click", "click", "dwell"])),
        mean=float(np.exp(rng.uniform(np.log(0.03), np.log(0.3)))),
        rows=float(rng.uniform(2.0, 10.0)),
        lengths=str(rng.choice(["same", "poisson", "geometric"])),
        spread=float(rng.choice([0.0, 0.4, 0.8])),
        lift=float(rng.uniform(0.05, 0.25)),
        power=float(rng.choice([0.7, 0.8, 0.9])),
        users=int(rng.integers(100_000, 200_000)),
    )


def totals(experiment: Experiment, users: int, lift: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(users,) sums of rewards and (users,) numbers of rows under a relative lift."""
    rows = np.full(users, round(experiment.rows))
    if experiment.lengths == "poisson":
        rows = 1 + rng.poisson(experiment.rows - 1.0, users)
    elif experiment.lengths == "geometric":
        rows = rng.geometric(1.0 / experiment.rows, users)
    rate = np.full(users, experiment.mean)
    if experiment.spread:
        rate *= np.exp(experiment.spread * rng.standard_normal(users) - experiment.spread**2 / 2.0)
    rate = np.minimum(rate, HIGHEST) * (1.0 + lift)
    if experiment.kind == "dwell":
        return rng.gamma(2.0 * rows) * 0.5 * rate, rows.astype(np.float64)
    return rng.binomial(rows, rate).astype(np.float64), rows.astype(np.float64)
