"""Intervals with a guarantee for any number of bounded observations, and an anytime-valid confidence sequence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from recsim_mnar.log.columns import Floats


def empirical_bernstein(values: Floats, bound: float, level: float) -> tuple[float, float]:
    """Maurer & Pontil's (2009, theorem 4) interval of the mean of independent values in [0, bound]."""
    n = values.size
    log = math.log(4.0 / (1.0 - level))
    mean = float(np.mean(values))
    half = math.sqrt(2.0 * float(np.var(values, ddof=1)) * log / n) + 7.0 * bound * log / (3.0 * (n - 1))
    return max(mean - half, 0.0), min(mean + half, bound)


def betting(values: Floats, bound: float, level: float, *, anytime: bool = False) -> tuple[float, float]:
    """Waudby-Smith & Ramdas' (2024, theorem 3) betting interval of the mean of independent values in [0, bound].

    Each end is where a bettor against that side would have multiplied the stake by 2 / (1 - level).

    Args:
        values: (n,) in their order; the bet on a value looks at those before it only.
        bound: largest value possible.
        level: nominal coverage.
        anytime: tuned to hold at every n at once (a confidence sequence) instead of at this n only.
    """
    from recsim_mnar.estimators.intervals import _betting_kernel as kernels

    scaled = np.minimum(values / bound, 1.0)
    bets = np.empty_like(scaled)
    threshold = math.log(2.0 / (1.0 - level))
    kernels.fill_bets(scaled, 2.0 * threshold, 0.0 if anytime else float(scaled.size), bets)
    mean = min(max(float(np.mean(scaled)), 1e-15), 1.0 - 1e-15)
    low = _crossing(lambda m: kernels.log_capital(scaled, bets, m, 1.0) >= threshold, mean, 0.0)
    high = _crossing(lambda m: kernels.log_capital(scaled, bets, m, -1.0) >= threshold, mean, 1.0)
    return low * bound, high * bound


def log_smoothing(values: Floats, bound: float, level: float) -> tuple[float, float]:
    """Log-smoothing interval (Sakhi et al. 2024) of the mean of independent values in [0, bound].

    V >= (exp(mean log(1 + l x) - log(1/d) / n) - 1) / l, which needs no bound on x, and its mirror image
    V <= (1 - exp(mean log(1 - l x) - log(1/d) / n)) / l for l < 1 / bound; d is half of 1 - level. The constant l must
    be fixed beforehand: it is tuned on the first tenth of the values, which the ends then do not use.
    """
    n = values.size
    first = max(n // 10, 1)
    rest = values[first:]
    log = math.log(2.0 / (1.0 - level))
    square = max(float(np.mean(values[:first] ** 2)), bound**2 / n)
    rate = math.sqrt(2.0 * log / (rest.size * square))
    low = math.expm1(float(np.mean(np.log1p(rate * rest))) - log / rest.size) / rate
    rate = min(rate, 0.5 / bound)
    high = -math.expm1(float(np.mean(np.log1p(-rate * rest))) - log / rest.size) / rate
    return max(low, 0.0), min(high, bound)


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
