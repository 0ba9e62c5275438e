"""The intervals that the study compares, for one log; and what is kept of many."""

from __future__ import annotations

import math

import numpy as np
from row_bootstrap import RowBootstrap
from worlds import LEVEL

from recsim_mnar.estimators import Facts, estimate_value
from recsim_mnar.estimators import intervals as by_user
from recsim_mnar.log.columns import Floats

QUANTILE = 1.959963984540054
CLICKS = Facts(reward_min=0.0, reward_max=1.0)

Ends = tuple[float, float]


def ours(reward, propensity, target, cluster) -> tuple[dict[str, Ends], bool]:
    """The default's ends, as anyone gets them, and whether its verdict is trust."""
    found = estimate_value(reward, propensity, target, cluster=cluster, level=LEVEL, facts=CLICKS)
    return {"default": (found.low, found.high)}, found.trusted


def bootstrap(reward, propensity, target, cluster) -> dict[str, Ends]:
    """Poisson bootstrap of users, of ips."""
    given = {"cluster": cluster, "level": LEVEL, "estimator": "ips", "interval": "bootstrap"}
    found = estimate_value(reward, propensity, target, **given, facts=CLICKS)
    return {"bootstrap by user": (found.low, found.high)}


def guaranteed(reward, propensity, target, user, users, bound) -> dict[str, Ends]:
    """Intervals of bounded user sums; the longest history of the log stands for the longest possible."""
    lengths = np.bincount(user, minlength=users).astype(float)
    longest = lengths.max()
    values = np.bincount(user, target / propensity * reward, users) / (bound * longest)
    methods = {"empirical Bernstein": empirical_bernstein, "betting": by_user.betting, "log smoothing": log_smoothing}
    out = {}
    for name, method in methods.items():
        low, high = method(values, lengths / longest, LEVEL)
        out[name] = (low * bound, high * bound)
    return out


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

    inside = by_user.ratio_inside(values, lengths)
    return by_user.crossing(lambda m: beyond(m, 1.0), inside, 0.0), by_user.crossing(
        lambda m: beyond(m, -1.0), inside, 1.0
    )


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
    return by_user.ends_of_bets(rest, rest_lengths, bet, np.minimum(bet, 0.5), log)


def normal_by_user(reward, propensity, target, user, users) -> Ends:
    """Against which all widths are measured."""
    x = target / propensity * reward
    value = x.mean()
    sums = np.bincount(user, x - value, users)
    half = QUANTILE * math.sqrt(sums @ sums) / user.size
    return value - half, value + half


def usual(reward, propensity, target, user, users) -> dict[str, Ends]:
    """What people compute themselves."""
    n = reward.size
    w = target / propensity
    x = w * reward
    value = x.mean()
    half = QUANTILE * x.std() / math.sqrt(n)
    effective = w.sum() ** 2 / (w @ w)
    rate, square = min(x.sum() / w.sum(), 1.0), QUANTILE**2 / effective
    centre = (rate + square / 2) / (1 + square)
    wilson = QUANTILE * math.sqrt(rate * (1 - rate) / effective + square / effective / 4) / (1 + square)
    return {
        "normal by row": (value - half, value + half),
        "normal by user": normal_by_user(reward, propensity, target, user, users),
        "Wilson, effective n": (centre - wilson, centre + wilson),
    }


def obp_in_law(reward, propensity, target) -> dict[str, Ends]:
    """What obp's intervals become with ever more resamples; its SNIPS keeps the log's own mean weight throughout."""
    w = target / propensity
    low, high = RowBootstrap(w * reward).interval(LEVEL)
    mean = float(w.mean())
    return {"obp ips in law": (low, high), "obp snips in law": (low / mean, high / mean)}


def clusters(user, users: int):
    """The users of rows, where one may have several."""
    return user if user.size > users else None


def others(log, users: int, bound: float) -> dict[str, Ends]:
    """All but the default, of one log."""
    reward, propensity, target, user = log
    return (
        bootstrap(reward, propensity, target, clusters(user, users))
        | usual(reward, propensity, target, user, users)
        | guaranteed(reward, propensity, target, user, users, bound)
        | obp_in_law(reward, propensity, target)
    )


def summary(pairs: list[Ends], value: float) -> dict[str, float]:
    """Coverage, share of intervals above the value, and mean width."""
    low, high = np.array(pairs).T
    assert np.all(np.isfinite(low)), "an end is not finite"
    assert np.all(np.isfinite(high)), "an end is not finite"
    return {
        "logs": len(low),
        "coverage": float(np.mean((low <= value) & (value <= high))),
        "above": float(np.mean(low > value)),
        "width": float(np.mean(high - low)),
    }
