"""Every estimator against its textbook formula, and the limits that tie them together."""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import replace

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ESTIMATORS, Facts
from recsim_mnar.estimators.scores import Rows, check_name
from recsim_mnar.estimators.sums import PolicySums, ScoreSums
from recsim_mnar.estimators.value import PairSums, difference_of
from recsim_mnar.log.columns import Clusters
from twins.facts import difference, estimate_value
from twins.findings import doubts

N = 4000
TIGHT = {"rel": 1e-11, "abs": 1e-15}


@pytest.fixture(scope="module")
def log() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    target = np.where(rng.random(N) < 0.1, 0.0, rng.uniform(0.0, 0.8, N))
    return {
        "reward": rng.normal(0.3, 1.0, N),
        "propensity": rng.uniform(0.05, 0.9, N),
        "target": target,
        "q_logged": rng.normal(0.3, 0.3, N),
        "q_target": rng.normal(0.3, 0.1, N),
        "user": rng.integers(0, 200, N),
    }


def columns(log, estimator):
    named = {k: log[k] for k in ("reward", "propensity", "target")}
    for name in ESTIMATORS[estimator].needs:
        named[name] = log[name]
    return named


def value(log, estimator, **parameters) -> float:
    return estimate_value(**columns(log, estimator), estimator=estimator, **parameters).value


def counted(log) -> dict[str, np.ndarray]:
    """The log with rewards (and model) counted from the least one, where weighting estimators are the textbook's."""
    least = log["reward"].min()
    return {k: v - least if k in ("reward", "q_logged", "q_target") else v for k, v in log.items()}


def beta_by_hand(w, r, fold):
    total = 0.0
    for k in np.unique(fold):
        other, own = fold != k, fold == k
        b = np.mean((w[other] ** 2 - w[other]) * r[other]) / np.mean(w[other] ** 2 - w[other])
        total += np.sum(w[own] * r[own] - b * (w[own] - 1.0))
    return total / w.size


def formulas(log):
    """Name, parameters and value of estimators by their textbook formulas: one or more rows for every estimator."""
    r, p, t, q, m = (log[k] for k in ("reward", "propensity", "target", "q_logged", "q_target"))
    w = t / p
    d = r - q
    rng = np.random.default_rng(0)
    loggers = np.stack([p, rng.uniform(0.1, 0.9, N)], 1)
    logger = (rng.random(N) < 0.25).astype(int)
    mixture = loggers[:, 0] * np.mean(logger == 0) + loggers[:, 1] * np.mean(logger == 1)
    return [
        ("ips", {}, np.mean(w * r)),
        ("clipped_ips", {"clip": 2.0}, np.mean(np.minimum(w, 2.0) * r)),
        ("snips", {}, np.sum(w * r) / np.sum(w)),
        ("dm", {}, np.mean(m)),
        ("dr", {}, np.mean(m + w * d)),
        ("clipped_dr", {"clip": 2.0}, np.mean(m + np.minimum(w, 2.0) * d)),
        ("sndr", {}, np.mean(m) + np.sum(w * d) / np.sum(w)),
        ("switch_dr", {"tau": 1.5}, np.mean(m + np.where(w <= 1.5, w, 0.0) * d)),
        ("dros", {"lam": 3.0}, np.mean(m + 3.0 * w / (w**2 + 3.0) * d)),
        ("sg_ips", {"lam": 0.3}, np.mean(w / (0.7 + 0.3 * w) * r)),
        ("sg_ips", {"lam": 1.0}, np.mean((t > 0) * r)),  # indicators
        ("sg_dr", {"lam": 0.3}, np.mean(m + w / (0.7 + 0.3 * w) * d)),
        ("ix_ips", {"gamma": 0.05}, np.mean(t / (p + 0.05) * r)),
        ("replay", {}, np.sum(t * r) / np.sum(t)),
        ("mips", {"group_target": t, "group_propensity": p}, np.mean(w * r)),
        ("beta_ips", {"folds": 4}, beta_by_hand(w, r, np.arange(N) % 4)),
        ("balanced_ips", {"loggers": loggers, "logger": logger}, np.mean(t / mixture * r)),
    ]


def test_textbook_formulas(log):
    log = counted(log)
    for name, parameters, expected in formulas(log):
        assert value(log, name, **parameters) == pytest.approx(expected, **TIGHT), name


def test_every_estimator_has_a_formula_and_says_whether_it_counts_rewards(log):
    asked = formulas(log)
    missing = set(ESTIMATORS) - {name for name, *_ in asked}
    assert not missing, f"{', '.join(sorted(missing))}: write the formula as a row of formulas() in {__file__}"
    rows = Rows.of(*(log[name] for name in ("reward", "propensity", "target")))
    rows = replace(rows, q_logged=log["q_logged"], q_target=log["q_target"])
    for name, parameters, _ in asked:
        scores = ESTIMATORS[name].scores(rows, **{k: v for k, v in parameters.items() if k != "clip"})
        counts = scores.counts and scores.linear is not None
        assert ESTIMATORS[name].counts == counts, f"{name}: its record in scores.py needs counts={counts}"


@pytest.mark.parametrize("interval", ["betting", "anytime"])
def test_a_refused_interval_names_every_estimator_that_has_it(log, interval):
    counting = {name for name, info in ESTIMATORS.items() if info.counts}
    with pytest.raises(UserError) as refusal:
        value(log, "snips", interval=interval)
    listed = re.search(r"\((.*)\)", str(refusal.value)).group(1).split(", ")
    assert set(listed) == counting
    assert "mips" in counting
    assert "dr" not in counting


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_a_row_that_stands_for_several_is_clipped_as_each_of_them(log, clip):
    times = np.random.default_rng(4).integers(1, 6, N)
    names = "reward", "propensity", "target", "user"
    reward, propensity, target, user = (log[name] for name in names)
    asked = {"estimator": "clipped_ips", "clip": clip}
    found = estimate_value(np.abs(reward), propensity, target, cluster=user, weights=times, **asked)
    by_hand = np.average(np.minimum(target / propensity, clip) * np.abs(reward), weights=times)
    assert found.value == pytest.approx(by_hand, **TIGHT)
    each = [np.repeat(column, times) for column in (np.abs(reward), propensity, target, user)]
    apart = estimate_value(*each[:3], cluster=each[3], **asked)
    assert found.value == pytest.approx(apart.value, **TIGHT)
    assert found.diagnostics.clip_part == pytest.approx(apart.diagnostics.clip_part, rel=0.02)
    assert found.diagnostics.clip_part > 0.0
    baseline = 0.5 * propensity
    ours = difference(np.abs(reward), propensity, target, baseline, cluster=user, weights=times, **asked)
    theirs = difference(*each[:3], 0.5 * each[1], cluster=each[3], **asked)
    assert ours.value == pytest.approx(theirs.value, **TIGHT)


@pytest.mark.parametrize("estimator", ["ips", "snips", "clipped_ips"])
@pytest.mark.parametrize("users", ["in order", "mixed", None])
def test_a_difference_is_the_same_from_sums_of_parts(log, estimator, users):
    reward, propensity, target, user = (log[name] for name in ("reward", "propensity", "target", "user"))
    cluster = {"in order": np.sort(user), "mixed": user, None: None}[users]
    clip = 2.0 if estimator == "clipped_ips" else None
    lost = 0.1 * (1.0 - target)
    asked = {"cluster": cluster, "estimator": estimator, "clip": clip}
    whole = difference(reward, propensity, target, 0.5 * propensity, unsupported=lost, **asked)
    info = check_name(estimator)
    shift = min(reward.min(), 0.0)

    def sums(some):
        both = []
        for policy, missing in ((target, lost[some]), (0.5 * propensity, None)):
            clusters = None if cluster is None else Clusters.of(cluster[some], len(some))
            of = {"clusters": clusters, "shift": shift, "missing": missing}
            rows = replace(Rows.of(reward[some], propensity[some], policy[some], **of), clip=clip or np.inf)
            scores = info.scores(rows)
            both.append((rows, scores, ScoreSums.of(scores, rows, PolicySums.of_rows(rows, degree=2))))
        return PairSums.of(*both)

    parts = np.arange(N) // 256 if cluster is None else cluster // 13
    total = functools.reduce(operator.add, (sums(np.flatnonzero(parts == part)) for part in np.unique(parts)))
    added = difference_of(total, estimator, facts=Facts(), level=0.95, clip=clip or np.inf)

    def ends(found):
        return found.value, found.low, found.high, found.ess, *(each.severity for each in found.verdict.findings)

    assert ends(added) == pytest.approx(ends(whole), rel=1e-12)


def test_rewards_are_counted_from_the_least():
    reward, weight = np.array([-2.0, 1.0, 0.0, 4.0]), np.array([0.5, 1.5, 1.0, 0.5])
    log = {"reward": reward, "propensity": np.full(4, 0.5), "target": weight * 0.5}
    assert value(log, "ips") == pytest.approx(-2.0 + np.mean(weight * (reward + 2.0)), **TIGHT)
    assert value(log, "ips", reward_min=-3.0) == value(log, "ips")  # a least reward below all that are seen
    assert value(log, "clipped_ips", clip=1.0) == pytest.approx(
        -2.0 + np.mean(np.minimum(weight, 1.0) * (reward + 2.0)), **TIGHT
    )
    positive = log | {"reward": reward + 2.5}  # least .5, and 0 is counted from all the same
    assert value(positive, "ips") == pytest.approx(np.mean(weight * (reward + 2.5)), **TIGHT)


def test_balanced_ips_of_one_logger_is_ips(log):
    log = counted(log)
    one = value(log, "balanced_ips", loggers=log["propensity"][:, None], logger=np.zeros(N, int))
    assert one == pytest.approx(value(log, "ips"), **TIGHT)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("switch_dr", {"tau": 0.0}), ("dm", {})),
        (("switch_dr", {"tau": np.inf}), ("dr", {})),
        (("dros", {"lam": 0.0}), ("dm", {})),
        (("dros", {"lam": np.inf}), ("dr", {})),
        (("sg_dr", {"lam": 0.0}), ("dr", {})),
        (("sg_ips", {"lam": 0.0}), ("ips", {})),
        (("ix_ips", {"gamma": 0.0}), ("ips", {})),
        (("clipped_ips", {"clip": np.inf}), ("ips", {})),
        (("clipped_ips", {}), ("ips", {})),
        (("clipped_dr", {"clip": np.inf}), ("dr", {})),
    ],
)
def test_limits(log, left, right):
    # dr has weights of 0 here, where lam = 0 and lam = 1 must not be 0/0
    assert value(log, left[0], **left[1]) == pytest.approx(value(log, right[0], **right[1]), **TIGHT)


def every(log, **more):
    rng = np.random.default_rng(0)
    for name in ESTIMATORS:
        alike = {"group_target": more.get("target", log["target"]), "group_propensity": log["propensity"]}
        given = alike if name == "mips" else {}
        if name == "balanced_ips":
            given = {"loggers": np.stack([log["propensity"]] * 2, 1), "logger": rng.integers(0, 2, N)}
        yield name, estimate_value(**{**columns(log, name), **more}, estimator=name, **given)


def test_equal_propensities_give_the_sample_mean(log):
    names = {"ips", "clipped_ips", "snips", "beta_ips", "sg_ips", "mips", "balanced_ips"}
    for name, estimate in every(log, target=log["propensity"]):
        if name in names:
            assert estimate.value == pytest.approx(np.mean(log["reward"]), **TIGHT), name


def test_order_of_rows_and_names_of_users_mean_nothing(log):
    rng = np.random.default_rng(5)
    order = rng.permutation(N)
    shuffled = {k: v[order] for k, v in log.items()}
    names = rng.permutation(200)[shuffled["user"]] * 7
    found = every(shuffled, cluster=names, clip=2.0)
    for (name, a), (_, b) in zip(every(log, cluster=log["user"], clip=2.0), found, strict=True):
        for end in () if name in ("beta_ips", "balanced_ips") else ("value", "low", "high", "ess"):
            assert getattr(a, end) == pytest.approx(getattr(b, end), rel=1e-9), (name, end)


def within_interval(estimate):
    """Whether the value is in its interval, or its bias is proved."""
    proved = "bias_proved" in doubts(estimate)
    return estimate.low <= estimate.value <= estimate.high or (proved and estimate.low <= estimate.high)


@pytest.mark.parametrize("interval", ["auto", "bootstrap"])
def test_value_is_in_its_interval_for_every_estimator_and_interval(log, interval):
    """Finite, too, where weights are 0."""
    sparse, clicks = np.where(np.arange(N) % 3 == 0, log["target"], 0.0), (log["reward"] > 1.0).astype(float)
    for more in ({"target": sparse}, {"reward": clicks, "clip": 3.0}):
        for name, estimate in every(log, interval=interval, **more):
            assert np.all(np.isfinite([estimate.value, estimate.low, estimate.high, estimate.ess])), name
            assert within_interval(estimate), name
            assert estimate.method


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_where_all_propensities_are_too_small_by_one_factor_the_interval_still_holds_the_truth(estimator):
    """Logged as p / 1.15: a weighted mean is 15 % too large, its sampling interval far from the truth."""
    rng, n = np.random.default_rng(5), 20_000
    shown = rng.random(n) < 0.5
    reward = (rng.random(n) < np.where(shown, 0.3, 0.1)) * 1.0
    target, truth = np.where(shown, 0.8, 0.2), 0.8 * 0.3 + 0.2 * 0.1
    known = {"estimator": estimator, "full_support": True, "weight_max": 2.0}
    found = estimate_value(reward, np.full(n, 0.5 / 1.15), target, **known)
    assert found.low <= truth <= found.high
    assert found.verdict.level != "trust"
    assert (found.diagnostics.sampling_low > 1.05 * truth) == (estimator == "ips")
