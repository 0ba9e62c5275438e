"""A true fact never widens an interval and never lowers a verdict, on random logs that agree with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_mnar.estimators import ESTIMATORS
from twins.facts import difference, estimate_value

ITEMS = 5
LEVELS = ("trust", "caution", "do_not_use")
OF_BOTH = ("ips", "clipped_ips", "snips")
ALONE = tuple(name for name, info in ESTIMATORS.items() if not info.requires and name not in ("mips", "dm"))
REWARDS = ("clicks", "revenue", "losses")


def log(seed: int, logger: str, rewards: str):
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
    laws = {"uniform": np.full((3, ITEMS), 1.0 / ITEMS), "softmax": np.exp(scores)}
    laws["softmax"] /= laws["softmax"].sum(axis=1, keepdims=True)
    laws["greedy"] = 0.3 / ITEMS + 0.7 * (scores == scores.max(axis=1, keepdims=True))
    targets = np.exp(rng.normal(0.0, 1.0, (3, ITEMS)))
    targets /= targets.sum(axis=1, keepdims=True)
    context, logging = rng.integers(0, 3, user.size), laws[logger]
    action = (rng.random(user.size)[:, None] > logging.cumsum(axis=1)[context]).sum(axis=1).clip(max=ITEMS - 1)
    rate = rng.uniform(0.05, 0.5, (3, ITEMS))[context, action] * rng.choice([0.5, 1.5], lengths.size)[user]
    hit = rng.random(user.size) < rate
    paid = {"clicks": 1.0, "revenue": rng.uniform(1.0, 9.0, user.size), "losses": 5.0}[rewards]
    reward = hit * paid - (1.0 if rewards == "losses" else 0.0)
    columns = {
        "reward": reward,
        "propensity": logging[context, action],
        "target": targets[context, action],
        "cluster": user,
    }
    facts = {
        "full_support": True,
        "propensity_min": float(logging.min()),
        "weight_max": float((targets / logging).max()),
        "target_max": float(targets.max()),
        "reward_min": -1.0 if rewards == "losses" else 0.0,
        "reward_max": {"clicks": 1.0, "revenue": 9.0, "losses": 5.0}[rewards],
        "user_rows_max": 6.0,
    }
    return columns, facts


def no_worse(found, plain):
    """Whether an interval lies within another one, up to roundings, and its verdict is no lower."""
    slack = 1e-12 * max(abs(plain.low), abs(plain.high), abs(plain.high - plain.low))
    within = plain.low - slack <= found.low and found.high <= plain.high + slack
    return within and LEVELS.index(found.verdict.level) <= LEVELS.index(plain.verdict.level)


def each_and_all(facts):
    return [{name: value} for name, value in facts.items()] + [facts]


def value_of(columns, estimator, **known):
    models = {name: np.full(columns["reward"].size, 0.2) for name in ESTIMATORS[estimator].needs}
    clip = 2.0 if ESTIMATORS[estimator].clips else None
    return estimate_value(**columns, **models, estimator=estimator, clip=clip, **known)


logs = given(st.integers(0, 2**32 - 1), st.sampled_from(["uniform", "softmax", "greedy"]), st.sampled_from(REWARDS))


@pytest.mark.parametrize("estimator", ALONE)
@settings(max_examples=15, deadline=None)
@logs
def test_of_a_value(estimator, seed, logger, rewards):
    columns, facts = log(seed, logger, rewards)
    plain = value_of(columns, estimator)
    for known in each_and_all(facts):
        assert no_worse(value_of(columns, estimator, **known), plain), known


@pytest.mark.parametrize("estimator", OF_BOTH)
@settings(max_examples=15, deadline=None)
@logs
def test_of_a_difference(estimator, seed, logger, rewards):
    columns, facts = log(seed, logger, rewards)
    asked = {"estimator": estimator, "clip": 2.0 if estimator == "clipped_ips" else None}
    plain = difference(**columns, baseline=columns["propensity"], **asked)
    for known in each_and_all(facts):
        assert no_worse(difference(**columns, baseline=columns["propensity"], **asked, **known), plain), known


@pytest.mark.parametrize("estimator", OF_BOTH)
def test_a_least_reward_below_all_seen(estimator):
    columns, _ = log(0, "softmax", "clicks")
    assert no_worse(value_of(columns, estimator, reward_min=-1.0), value_of(columns, estimator))
