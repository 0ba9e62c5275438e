"""Intervals with a guarantee for any number of bounded observations, and an anytime-valid confidence sequence.

An observation is a user: v, the sum of the user's weighted rewards over the largest it could be, and l, the user's
rows over the most that a user can have, so that 0 <= v <= l <= 1. The estimand is the ratio E[v] / E[l]. That it is m
is the same as that z = v - m l, which lies in [-m, 1 - m], has mean 0: each method tests that for every m, so that
neither the number of rows nor the longest user is taken from the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from recsim_mnar.log.columns import Floats

Method = Callable[[Floats, Floats, float], tuple[float, float]]


def empirical_bernstein(values: Floats, lengths: Floats, level: float) -> tuple[float, float]:
    """Maurer & Pontil's (2009, theorem 4) bound on the mean of z, inverted.

    Args:
        values: (n,) v.
        lengths: (n,) l.
        level: nominal coverage.
    """
    n = values.size
    if n < 2:
        return 0.0, 1.0
    log = math.log(4.0 / (1.0 - level))

    def beyond(m: float, sign: float) -> bool:
        z = values - m * lengths
        half = math.sqrt(2.0 * float(np.var(z, ddof=1)) * log / n) + 7.0 * log / (3.0 * (n - 1))
        return sign * float(np.mean(z)) > half

    inside = _ratio(values, lengths)
    return _crossing(lambda m: beyond(m, 1.0), inside, 0.0), _crossing(lambda m: beyond(m, -1.0), inside, 1.0)


def betting(values: Floats, lengths: Floats, level: float, *, anytime: bool = False) -> tuple[float, float]:
    """Waudby-Smith & Ramdas' (2024, theorem 3) betting interval, with bets on z.

    Each end is where a bettor against that side would have multiplied the stake by 2 / (1 - level).

    Args:
        values: (n,) v in the order in which the users appeared; the bet on a user looks at those before only.
        lengths: (n,) l.
        level: nominal coverage.
        anytime: tuned to hold at every n at once (a confidence sequence) instead of at this n only.
    """
    from recsim_mnar.estimators.intervals import _betting_kernel as kernels

    bets = np.empty_like(values)
    threshold = math.log(2.0 / (1.0 - level))
    kernels.fill_bets(values, 2.0 * threshold, 0.0 if anytime else float(values.size), bets)
    return _ends(values, lengths, bets, bets, threshold)


def log_smoothing(values: Floats, lengths: Floats, level: float) -> tuple[float, float]:
    """Log-smoothing interval (Sakhi et al. 2024): one bet throughout.

    E[prod (1 + b z)] = 1 where E[z] = 0, so that sum log(1 + b z) >= log(2 / (1 - level)) rejects m. The bet b must be
    fixed beforehand: it is tuned on the first tenth of the users, which the ends then do not use.

    Args:
        values: (n,) v in the order in which the users appeared.
        lengths: (n,) l.
        level: nominal coverage.
    """
    n = values.size
    first = max(n // 10, 1)
    rest, rest_lengths = values[first:], lengths[first:]
    if rest.size == 0:
        return 0.0, 1.0
    log = math.log(2.0 / (1.0 - level))
    square = max(float(np.mean(values[:first] ** 2)), 1.0 / n**2)
    bet = np.array([math.sqrt(2.0 * log / (rest.size * square))])
    return _ends(rest, rest_lengths, bet, np.minimum(bet, 0.5), log)


def _ends(values: Floats, lengths: Floats, above: Floats, below: Floats, threshold: float) -> tuple[float, float]:
    """Where bets ``above`` that m is too low, and ``below`` that it is too high, have won."""
    from recsim_mnar.estimators.intervals import _betting_kernel as kernels

    inside = _ratio(values, lengths)
    low = _crossing(lambda m: kernels.log_capital(values, lengths, above, m, 1.0) >= threshold, inside, 0.0)
    high = _crossing(lambda m: kernels.log_capital(values, lengths, below, m, -1.0) >= threshold, inside, 1.0)
    return low, high


def _anytime(values: Floats, lengths: Floats, level: float) -> tuple[float, float]:
    return betting(values, lengths, level, anytime=True)


METHODS: dict[str, Method] = {
    "bernstein": empirical_bernstein,
    "betting": betting,
    "log_smoothing": log_smoothing,
    "anytime": _anytime,
}


def _ratio(values: Floats, lengths: Floats) -> float:
    return min(max(float(np.sum(values) / np.sum(lengths)), 1e-15), 1.0 - 1e-15)


def _crossing(rejected: Callable[[float], bool], inside: float, end: float) -> float:
    """The rejected point nearest to ``inside`` on the way to ``end``, to seven digits; ``end`` where none is."""
    out = min(max(end, 1e-300), 1.0 - 1e-16)
    if not rejected(out):
        return end
    for _ in range(60):
        middle = 0.5 * (inside + out)
        if rejected(middle):
            out = middle
        else:
            inside = middle
        if abs(out - inside) <= 1e-7 * max(inside, 1e-12):
            break
    return out
