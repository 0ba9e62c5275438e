"""A true fact never widens an interval and never lowers a verdict, on random logs that agree with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from recsim_mnar.estimators import ESTIMATORS
from twins.facts import difference, estimate_value

ITEMS = 5
LEVELS = ("trust", "caution", "do_not_use")
OF_BOTH = ("ips", "clipped_ips", "snips")
ALONE = tuple(name for name, info in ESTIMATORS.items() if not info.requires and name not in ("mips", "dm"))
REWARDS = ("clicks", "revenue", "losses")


def log(seed, logger, rewards):
    """Columns of users of up to six rows, each with its taste, and every fact that is true of how they were made.

    Args:
        seed: of the log.
        logger: "uniform", "softmax" or "greedy" (epsilon-greedy).
        rewards: one of ``REWARDS``.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, int(rng.integers(120, 600)))
    user = np.repeat(np.arange(lengths.size), lengths)
    scores = rng.normal(0.0, 1.0, (3, ITEMS))
    law = {
        "uniform": np.full((3, ITEMS), 1.0 / ITEMS),
        "softmax": softmax(scores, axis=1),
        "greedy": 0.3 / ITEMS + 0.7 * (scores == scores.max(axis=1, keepdims=True)),
    }[logger]
    target = softmax(rng.normal(0.0, 1.0, (3, ITEMS)), axis=1)
    context = rng.integers(0, 3, user.size)
    action = (rng.random(user.size)[:, None] > law.cumsum(axis=1)[context]).sum(axis=1).clip(max=ITEMS - 1)
    rate = rng.uniform(0.05, 0.5, (3, ITEMS))[context, action] * rng.choice([0.5, 1.5], lengths.size)[user]
    hit = rng.random(user.size) < rate
    least, most, reward = {
        "clicks": (0.0, 1.0, hit * 1.0),
        "revenue": (0.0, 9.0, hit * rng.uniform(1.0, 9.0, user.size)),
        "losses": (-1.0, 5.0, hit * 5.0 - 1.0),
    }[rewards]
    columns = {
        "reward": reward,
        "propensity": law[context, action],
        "target": target[context, action],
        "cluster": user,
    }
    facts = {
        "full_support": True,
        "propensity_min": float(law.min()),
        "weight_max": float((target / law).max()),
        "target_max": float(target.max()),
        "reward_min": least,
        "reward_max": most,
        "user_rows_max": 6.0,
    }
    return columns, facts


def check_no_worse(estimate, plain, facts):
    """An interval lies within another one, up to roundings, and its verdict is no lower."""
    slack = 1e-12 * max(abs(plain.low), abs(plain.high), abs(plain.high - plain.low))
    assert plain.low - slack <= estimate.low, facts
    assert estimate.high <= plain.high + slack, facts
    assert LEVELS.index(estimate.verdict.level) <= LEVELS.index(plain.verdict.level), facts


def one_by_one_and_all(facts):
    return [{name: value} for name, value in facts.items()] + [facts]


def clip_of(estimator):
    return 2.0 if ESTIMATORS[estimator].clips else None


def value_of(columns, estimator, **facts):
    models = {name: np.full(columns["reward"].size, 0.2) for name in ESTIMATORS[estimator].needs}
    return estimate_value(**columns, **models, estimator=estimator, clip=clip_of(estimator), **facts)


def gap_of(columns, estimator, **facts):
    baseline = columns["propensity"]
    return difference(**columns, baseline=baseline, estimator=estimator, clip=clip_of(estimator), **facts)


logs = given(st.integers(0, 2**32 - 1), st.sampled_from(["uniform", "softmax", "greedy"]), st.sampled_from(REWARDS))


@pytest.mark.parametrize("estimator", ALONE)
@settings(max_examples=15, deadline=None)
@logs
def test_of_a_value(estimator, seed, logger, rewards):
    columns, facts = log(seed, logger, rewards)
    plain = value_of(columns, estimator)
    for some in one_by_one_and_all(facts):
        check_no_worse(value_of(columns, estimator, **some), plain, some)


@pytest.mark.parametrize("estimator", OF_BOTH)
@settings(max_examples=15, deadline=None)
@logs
def test_of_a_difference(estimator, seed, logger, rewards):
    columns, facts = log(seed, logger, rewards)
    plain = gap_of(columns, estimator)
    for some in one_by_one_and_all(facts):
        check_no_worse(gap_of(columns, estimator, **some), plain, some)


@pytest.mark.parametrize("estimator", OF_BOTH)
def test_a_least_reward_below_all_seen(estimator):
    columns, _ = log(0, "softmax", "clicks")
    facts = {"reward_min": -1.0}
    check_no_worse(value_of(columns, estimator, **facts), value_of(columns, estimator), facts)
