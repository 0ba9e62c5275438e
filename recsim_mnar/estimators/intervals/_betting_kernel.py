# mypy: ignore-errors
"""Capital of a bettor against the hypothesis that the mean of [0, 1] variables is m (Waudby-Smith & Ramdas 2024)."""

from __future__ import annotations

import math

from recsim_mnar.kernels.jit import kernel


@kernel
def fill_bets(values, log_term, horizon, bets):
    """Predictable plug-in bets (eq. 26): bet i from the values before i only.

    Args:
        values: (n,) in [0, 1].
        log_term: 2 log(1 / alpha of one side).
        horizon: number of values that the bets are tuned to; 0 for an anytime-valid sequence (t log(t + 1) instead).
        bets: (n,) written.
    """
    total = 0.5
    spread = 0.25
    for i in range(values.size):
        t = i + 1.0
        variance = spread / t
        length = horizon if horizon > 0.0 else t * math.log(t + 1.0)
        bets[i] = math.sqrt(log_term / (variance * length))
        total += values[i]
        mean = total / (t + 1.0)
        spread += (values[i] - mean) ** 2


@kernel
def log_capital(values, lengths, bets, mean, sign):
    """Log of the final capital of bets that the ratio of means is above (sign 1) or below (sign -1) ``mean``.

    Args:
        values: (n,) in [0, 1], each at most its length.
        lengths: (n,) in (0, 1].
        bets: (n,) from :func:`fill_bets`, or (1,) one bet throughout.
        mean: in (0, 1), the ratio of mean value to mean length that is bet against.
        sign: 1 or -1.
    """
    capital = 1.0
    logs = 0.0
    most = 0.5 / mean if sign > 0.0 else 0.5 / (1.0 - mean)
    last = bets.size - 1
    for i in range(values.size):
        bet = min(bets[min(i, last)], most)
        capital *= 1.0 + sign * bet * (values[i] - mean * lengths[i])
        if capital > 1e100 or capital < 1e-100:
            logs += math.log(capital)
            capital = 1.0
    return logs + math.log(capital)
