"""How sessions go on: the Markov chain of views and recommendations (Rohde et al. 2018), and the world's clock.

After a view come a view, a recommendation, or the end; after a recommendation without a click likewise; after a click a
view. With Jeffreys' prior the posterior of each row is Dirichlet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recsim_mnar import rng
from recsim_mnar.log.columns import Ints
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log

_JEFFREYS, _WIDEST = 0.5, 0.755


class Transitions(NamedTuple):
    """Views that were followed by a view, by a recommendation, by nothing; recommendations without and with a click."""

    organic: Ints
    bandit: Ints
    clicked: Ints
    n_users: int

    @property
    def both(self) -> bool:
        """Whether there are views and recommendations."""
        return bool(self.organic.sum() and (self.bandit.sum() + self.clicked.sum()))


def transitions_of(log: Log) -> Transitions:
    """Count what follows what; the end of a user's rows counts as leaving."""
    user, shown = log["user"], log.is_bandit
    following = np.full(len(user), 2)
    following[:-1] = np.where(user[1:] == user[:-1], shown[1:].astype(np.int64), 2)
    clicked = shown & (log["reward"] > 0)
    views, others, clicks = (np.bincount(following[of], minlength=3) for of in (~shown, shown & ~clicked, clicked))
    return Transitions(views, others, clicks, len(user_starts(user)))


def rows_of(found: Transitions, seed: int, member: int | None = None) -> dict[str, float]:
    """Parameters that the log identifies, at the posterior mean, or a member's: Dirichlet by gammas, by inversion."""
    from scipy.special import gammaincinv

    organic, bandit = found.organic + _JEFFREYS, found.bandit + _JEFFREYS
    if member is not None:
        seeds = (rng.derive_seed(seed, f"transitions/{k}") for k in (0, 1))
        u = [np.maximum(rng.uniforms(own, rng.Stream.BOOTSTRAP, member, np.arange(3)), 1e-300) for own in seeds]
        rows = zip((organic, bandit), u, strict=True)
        organic, bandit = (np.maximum(gammaincinv(row, own), 1e-12) for row, own in rows)
    if found.both:
        names = ("p_organic_to_bandit", "p_leave_organic", "p_bandit_to_organic", "p_leave_bandit")
        values = (*organic[1:] / organic.sum(), *bandit[[0, 2]] / bandit.sum())
        return {name: float(value) for name, value in zip(names, values, strict=True)}
    if found.organic.sum():
        return {"p_leave_organic": float(organic[2] / (organic[0] + organic[2])), "p_leave_bandit": 0.0}
    return {}


def clock_of(log: Log) -> dict[str, str | float]:
    """By the moments of times between events: the world's, ``|mean + sd z|``, vary by at most .756 of their mean."""
    from scipy.optimize import brentq
    from scipy.stats import foldnorm

    user = log["user"]
    gap = np.diff(log["time"])[user[1:] == user[:-1]]
    if len(gap) == 0 or np.allclose(gap, 1.0) or gap.mean() <= 0:
        return {"clock": "unit", "clock_mean": 0.0, "clock_sd": 1.0}
    spread = max(float(gap.std() / gap.mean()), 1e-3)
    ratio = 0.0
    if spread < _WIDEST:
        ratio = float(brentq(lambda c: foldnorm.std(c) / foldnorm.mean(c) - spread, 0.0, 1100.0))
    sd = float(gap.mean() / foldnorm.mean(ratio))
    return {"clock": "normal", "clock_mean": ratio * sd, "clock_sd": sd}
