"""How sessions go on: the Markov chain of views and recommendations, whose likelihood is closed.

After a view come another view, a recommendation, or the end; after a recommendation that is not clicked likewise; a
click is followed by a view whatever is drawn (Rohde et al. 2018). So the counts of what follows what are sufficient,
and with Jeffreys' prior the posterior of each row of the chain is Dirichlet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]

_JEFFREYS = 0.5
_WIDEST = 0.755


@dataclass(frozen=True)
class Transitions:
    """What follows what: (3,) views that were followed by a view, by a recommendation, by nothing.

    Likewise recommendations without a click (``bandit``) and with one (``clicked``; in the world the last two are 0);
    users whose first event is a recommendation (in the world none), and users.
    """

    organic: NDArray[np.int64]
    bandit: NDArray[np.int64]
    clicked: NDArray[np.int64]
    begins_with_bandit: int
    n_users: int

    @property
    def both(self) -> bool:
        """Whether there are views and recommendations."""
        return bool(self.organic.sum() and (self.bandit.sum() + self.clicked.sum()))


def transitions_of(log: Log) -> Transitions:
    """Count what follows what; the end of a user's rows counts as leaving."""
    user, shown = log["user"], log.is_bandit
    starts = user_starts(user)
    following = np.full(len(user), 2)
    following[:-1] = np.where(user[1:] == user[:-1], shown[1:].astype(np.int64), 2)
    clicked = shown & (log["reward"] > 0)
    rows = [np.bincount(following[of], minlength=3) for of in (~shown, shown & ~clicked, clicked)]
    return Transitions(*rows, int((log["event"][starts] == schema.BANDIT).sum()), len(starts))


def fitted_rows(found: Transitions) -> dict[str, float]:
    """Parameters of the sessions world at the posterior mean, of those that the log identifies."""
    rows = (row + _JEFFREYS for row in (found.organic, found.bandit))
    return _parameters(found, [row / row.sum() for row in rows])


def drawn_rows(found: Transitions, seed: int, member: int) -> dict[str, float]:
    """A draw from the posterior: Dirichlet by gammas, the gammas by the inverse of their distribution."""
    from scipy.special import gammaincinv

    rows = []
    for k, row in enumerate((found.organic, found.bandit)):
        uniform = rng.uniforms(rng.derive_seed(seed, f"transitions/{k}"), rng.Stream.BOOTSTRAP, member, np.arange(3))
        gammas = np.maximum(gammaincinv(row + _JEFFREYS, np.maximum(uniform, 1e-300)), 1e-12)
        rows.append(gammas / gammas.sum())
    return _parameters(found, rows)


def _parameters(found: Transitions, rows: list[Floats]) -> dict[str, float]:
    organic, bandit = rows
    if found.both:
        return {
            "p_organic_to_bandit": float(organic[1]),
            "p_leave_organic": float(organic[2]),
            "p_bandit_to_organic": float(bandit[0]),
            "p_leave_bandit": float(bandit[2]),
        }
    if found.organic.sum():
        return {"p_leave_organic": float(organic[2] / (organic[0] + organic[2])), "p_leave_bandit": 0.0}
    return {}


@dataclass(frozen=True)
class Clock:
    """Parameters of the world's clock, and the spread of times between events as a share of their mean."""

    kind: str
    mean: float
    sd: float
    spread: float


def clock_of(log: Log) -> Clock:
    """By the moments of times between a user's events: ``|mean + sd z|`` varies by at most .756 of its mean."""
    user, time = log["user"], log["time"]
    gap = np.diff(time)[user[1:] == user[:-1]]
    if len(gap) == 0 or np.allclose(gap, 1.0) or gap.mean() <= 0:
        return Clock("unit", 0.0, 1.0, 0.0)
    mean, square = float(gap.mean()), float((gap**2).mean())
    spread = float(np.sqrt(max(square - mean**2, 0.0)) / mean)
    if spread >= _WIDEST:
        return Clock("normal", 0.0, mean * float(np.sqrt(np.pi / 2)), spread)
    from scipy.optimize import brentq
    from scipy.stats import foldnorm

    ratio = float(brentq(lambda c: foldnorm.std(c) / foldnorm.mean(c) - max(spread, 1e-3), 0.0, 1100.0))
    sd = mean / float(foldnorm.mean(ratio))
    return Clock("normal", ratio * sd, sd, spread)
