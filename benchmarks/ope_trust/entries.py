"""Entries of OPE-trust: functions of a log and its facts to (value, low, high, score), of at most ten lines each.

An entry accepts a log where its score reaches its threshold, that of the decorator. An interval without a gate is
accepted where it is no wider than half of its value. Rows named after other packages are our own lines for their
published formulas, with their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import stdtrit
from worlds import Facts, Log

import recsim_mnar
from recsim_mnar import difference, estimate
from recsim_mnar.estimators import Estimate

Answer = tuple[float, ...]
"""Value, low, high and score; a fifth number that is not 0 says that the log is proved wrong."""
Entry = Callable[[Log, Facts], Answer]
ENTRIES: dict[str, Entry] = {}
NARROW = -0.5
LEVELS = {"do_not_use": 0, "caution": 1, "trust": 2}
PROOFS = {"propensities", "support_missing", "support_denied", "bound_denied"}
PROOFS |= {"target_knows", "bias_proved", "copied_rows", "trained_on_log"}
"""Findings that prove a log, or what is stated of it, wrong where they say "do not use"."""


def entry(threshold: float) -> Callable[[Any], Entry]:
    """Enter a function under its name, with the threshold from which it accepts."""

    def enter(function: Any) -> Entry:
        function.threshold = threshold
        return ENTRIES.setdefault(function.__name__, function)

    return enter


# ------------------------------------------------------------------------------------------------------ helpers


def scores(log: Log) -> tuple[np.ndarray, np.ndarray]:
    """Weights, and weighted rewards."""
    weight = log.target / log.propensity
    return weight, weight * log.reward


def width(low: float, high: float, value: float) -> float:
    """Minus the interval's width as a share of its value."""
    return (low - high) / max(abs(value), 1e-300)


def by_user(log: Log, over: np.ndarray, under: np.ndarray) -> tuple[float, float]:
    """A ratio of sums and its standard error, users being independent."""
    user = np.unique(log.user, return_inverse=True)[1]
    ratio = over.sum() / max(under.sum(), 1e-300)
    off = np.bincount(user, over - ratio * under)
    return float(ratio), float(np.sqrt((off**2).sum() * len(off) / max(len(off) - 1, 1)) / max(under.sum(), 1e-300))


def effective(weight: np.ndarray) -> float:
    """Kish's effective sample size."""
    return float(weight.sum() ** 2 / max((weight**2).sum(), 1e-300))


def tail_shape(weight: np.ndarray, most: float = math.inf) -> float:
    """Pareto k of the largest weights as PSIS fits it (Zhang & Stephens 2009); -inf where the tail has no spread."""
    size = int(min(0.2 * len(weight), 3 * math.sqrt(len(weight)), most))
    tail = np.sort(weight)[-size - 1 :]
    x = tail[1:] - tail[0]
    star = x[max(1, math.ceil(size / 4)) - 1]
    if star <= 0:
        return -math.inf
    m = 20 + math.floor(math.sqrt(size))
    theta = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * star)
    theta = theta[(np.abs(theta) > 1e-12) & (theta * x[-1] < 1)]
    k = -np.log1p(-np.outer(theta, x)).mean(1)
    likelihood = size * (np.log(theta / k) + k - 1)
    law = np.exp(likelihood - likelihood.max())
    return float(np.log1p(-(theta @ law / law.sum()) * x).mean())


def columns(log: Log) -> dict[str, Any]:
    """The log's further columns as our calls take them; weights of rows where rows stand for others."""
    rows = getattr(log, "weight", np.ones(1))
    weights = None if (rows == 1).all() else rows
    return {"cluster": log.user, "action": log.action, "context": log.context, "weights": weights}


def stated(facts: Facts) -> recsim_mnar.Facts:
    """Every fact as our calls take them."""
    least = facts.propensity_min if facts.propensity_min > 0 else None
    return recsim_mnar.Facts(facts.full_support, facts.reward_min, facts.reward_max, propensity_min=least)


def said(e: Estimate) -> Answer:
    """The answer that an estimate of ours gives."""
    proved = any(finding.code in PROOFS and finding.level == "do_not_use" for finding in e.verdict.findings)
    return e.value, e.low, e.high, LEVELS[e.verdict.level] + 0.99 / (1 + e.verdict.severity), float(proved)


def of_pair(log: Any, facts: Facts | None) -> Answer:
    """What ours says of the target's difference from the baseline."""
    known = None if facts is None else stated(facts)
    return said(difference(log.reward, log.propensity, log.target, log.baseline, **columns(log), facts=known))


# ------------------------------------------------------------------------------------------------------ entries


@entry(LEVELS["trust"])
def ours(log, facts):
    """This package's estimate with every fact; accepted: the verdict trust."""
    return said(estimate(log.reward, log.propensity, log.target, **columns(log), facts=stated(facts)))


@entry(LEVELS["caution"])
def ours_caution(log, facts):
    """The same; accepted: trust or caution."""
    return ours(log, facts)


@entry(LEVELS["trust"])
def ours_no_facts(log, facts):
    """This package's estimate of the log alone; accepted: the verdict trust."""
    return said(estimate(log.reward, log.propensity, log.target, **columns(log)))


@entry(NARROW)
def normal_rows(log, facts):
    """ips and 1.96 standard errors, rows independent."""
    row = scores(log)[1]
    value, half = row.mean(), 1.96 * row.std(ddof=1) / math.sqrt(len(row))
    return value, value - half, value + half, width(value - half, value + half, value)


@entry(NARROW)
def normal_users(log, facts):
    """ips and 1.96 standard errors, users independent."""
    row = scores(log)[1]
    value, error = by_user(log, row, np.ones(len(row)))
    low, high = value - 1.96 * error, value + 1.96 * error
    return value, low, high, width(low, high, value)


@entry(NARROW)
def snips_users(log, facts):
    """snips and 1.96 standard errors by the delta method, users independent."""
    weight, row = scores(log)
    value, error = by_user(log, row, weight)
    low, high = value - 1.96 * error, value + 1.96 * error
    return value, low, high, width(low, high, value)


@entry(NARROW)
def obp_bootstrap(log, facts):
    """obp's interval of ips, also SCOPE-RL's of one-step episodes: percentiles of 100 resamples of rows."""
    row, random = scores(log)[1], np.random.RandomState(12345)
    means = [random.choice(row, size=len(row)).mean() for _ in range(100)]
    low, high = np.percentile(means, [2.5, 97.5])
    return row.mean(), low, high, width(low, high, row.mean())


@entry(NARROW)
def scope_rl_student(log, facts):
    """SCOPE-RL's t interval of one-step episodes, with its quantile at 1 - alpha."""
    row = scores(log)[1]
    value, half = row.mean(), stdtrit(len(row) - 1, 0.95) * row.std(ddof=1) / math.sqrt(len(row))
    return value, value - half, value + half, width(value - half, value + half, value)


@entry(NARROW)
def scope_rl_bernstein(log, facts):
    """SCOPE-RL's empirical Bernstein interval of one-step episodes, with the largest row of the log as the bound."""
    row, letters = scores(log)[1], math.log(2 / 0.05)
    value, n = row.mean(), len(row)
    half = 7 * row.max() * letters / (3 * (n - 1)) + math.sqrt(2 * letters * row.var() / (n - 1))
    return value, value - half, value + half, width(value - half, value + half, value)


@entry(100.0)
def ess_100(log, facts):
    """The normal interval by users where the effective sample is 100 or more."""
    return *normal_users(log, facts)[:3], effective(scores(log)[0])


@entry(-0.7)
def pareto_k(log, facts):
    """The normal interval by users where the weights' Pareto k is .7 or less."""
    return *normal_users(log, facts)[:3], -tail_shape(scores(log)[0])


@entry(2.0)
def skdr_eval(log, facts):
    """skdr-eval's DR with the log's mean as outcome model, its clip, block bootstrap and support health (2: ok)."""
    weight, n, mean = scores(log)[0], len(log.reward), log.reward.mean()
    rows = {c: mean + np.minimum(weight, c) * (log.reward - mean) for c in (2, 5, 10, 20, 50, math.inf)}
    ess = {c: effective(np.minimum(weight, c)) for c in rows}
    clip = min([c for c in rows if ess[c] >= 0.02 * n] or [max(ess, key=ess.__getitem__)], key=lambda c: rows[c].std())
    low, high = block_bootstrap(rows[clip])
    matched, k = log.target > 0, tail_shape(weight[log.target > 0], 200)
    signs = [0.1 - ess[clip] / n, (weight[matched] > clip).mean() - 0.05, 0.5 - matched.mean(), k - 0.5]
    high_risk = [0.05 - ess[clip] / n, signs[1] - 0.05, 0.25 - matched.mean(), k - 0.7, 1 / n - log.propensity.min()]
    return rows[clip].mean(), low, high, 0.0 if max(high_risk) > 0 else max(0.0, 2.0 - sum(s > 0 for s in signs))


def block_bootstrap(row: np.ndarray) -> tuple[float, float]:
    """Percentiles of 400 resamples of blocks of sqrt(n) neighbouring rows, as skdr-eval draws them."""
    n, length = len(row), int(math.sqrt(len(row)))
    blocks = -(-n // length)
    start = np.random.RandomState(0).randint(0, n - length + 1, size=(400, blocks))
    end = start + np.append(np.full(blocks - 1, length), n - length * (blocks - 1))
    total = np.append(0.0, np.cumsum(row))
    low, high = np.percentile((total[end] - total[start]).sum(1) / n, [2.5, 97.5])
    return float(low), float(high)


@entry(NARROW)
def three_checks(log, facts):
    """What a careful analyst does: snips by users where it is narrow, and four things speak for the log."""
    weight, row = scores(log)
    value, low, high, narrow = snips_users(log, facts)
    mean, error = by_user(log, weight, np.ones(len(row)))
    sound = facts.full_support and abs(mean - 1) <= 3 * error
    return value, low, high, narrow if sound and effective(weight) >= 100 and (row != 0).sum() >= 30 else -math.inf
