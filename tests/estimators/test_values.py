"""Every estimator against its textbook formula, and the limits that tie them together."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ESTIMATORS
from recsim_mnar.estimators.scores import Rows
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


@pytest.fixture(scope="module")
def positive_log(log) -> dict[str, np.ndarray]:
    """Rewards (and model) counted from the least one, where weighting estimators are the textbook's."""
    least = log["reward"].min()
    return log | {name: log[name] - least for name in ("reward", "q_logged", "q_target")}


def columns(log, estimator):
    return {name: log[name] for name in ("reward", "propensity", "target", *ESTIMATORS[estimator].needs)}


def value(log, estimator, **parameters) -> float:
    return estimate_value(**columns(log, estimator), estimator=estimator, **parameters).value


def beta_by_hand(w, r, fold):
    total = 0.0
    for k in np.unique(fold):
        others = fold != k
        b = np.mean((w[others] ** 2 - w[others]) * r[others]) / np.mean(w[others] ** 2 - w[others])
        total += np.sum(w[~others] * r[~others] - b * (w[~others] - 1.0))
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


def test_textbook_formulas(positive_log):
    for name, parameters, expected in formulas(positive_log):
        assert value(positive_log, name, **parameters) == pytest.approx(expected, **TIGHT), name


def test_every_estimator_has_a_formula_and_says_whether_it_counts_rewards(positive_log):
    log = positive_log
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
def test_a_refused_interval_names_every_estimator_that_has_it(positive_log, interval):
    counting = {name for name, info in ESTIMATORS.items() if info.counts}
    with pytest.raises(UserError) as refusal:
        value(positive_log, "snips", interval=interval)
    listed = re.search(r"\((.*)\)", str(refusal.value)).group(1).split(", ")
    assert set(listed) == counting
    assert "mips" in counting
    assert "dr" not in counting


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_a_row_that_stands_for_several_is_clipped_as_each_of_them(log, clip):
    times = np.random.default_rng(4).integers(1, 6, N)
    counted = {name: log[name] for name in ("propensity", "target")}
    counted |= {"reward": np.abs(log["reward"]), "cluster": log["user"], "baseline": 0.5 * log["propensity"]}
    repeated = {name: np.repeat(values, times) for name, values in counted.items()}
    counted["weights"] = times
    options = {"estimator": "clipped_ips", "clip": clip}
    differences = [difference(**rows, **options).value for rows in (counted, repeated)]
    assert differences[0] == pytest.approx(differences[1], **TIGHT)
    for rows in (counted, repeated):
        del rows["baseline"]
    of_counts = estimate_value(**counted, **options)
    of_copies = estimate_value(**repeated, **options)
    weight = np.minimum(counted["target"] / counted["propensity"], clip)
    assert of_counts.value == pytest.approx(np.average(weight * counted["reward"], weights=times), **TIGHT)
    assert of_counts.value == pytest.approx(of_copies.value, **TIGHT)
    assert of_counts.diagnostics.clip_part == pytest.approx(of_copies.diagnostics.clip_part, rel=0.02)
    assert of_counts.diagnostics.clip_part > 0.0


def test_rewards_are_counted_from_the_least():
    reward = np.array([-2.0, 1.0, 0.0, 4.0])
    weight = np.array([0.5, 1.5, 1.0, 0.5])
    log = {"reward": reward, "propensity": np.full(4, 0.5), "target": weight * 0.5}
    ips = value(log, "ips")
    assert ips == pytest.approx(-2.0 + np.mean(weight * (reward + 2.0)), **TIGHT)
    assert value(log, "ips", reward_min=-3.0) == ips  # a least reward below all that are seen
    clipped = -2.0 + np.mean(np.minimum(weight, 1.0) * (reward + 2.0))
    assert value(log, "clipped_ips", clip=1.0) == pytest.approx(clipped, **TIGHT)
    positive = log | {"reward": reward + 2.5}  # least .5, and 0 is counted from all the same
    assert value(positive, "ips") == pytest.approx(np.mean(weight * (reward + 2.5)), **TIGHT)


@pytest.mark.parametrize(
    ("name", "parameters", "limit"),
    [
        ("switch_dr", {"tau": 0.0}, "dm"),
        ("switch_dr", {"tau": np.inf}, "dr"),
        ("dros", {"lam": 0.0}, "dm"),
        ("dros", {"lam": np.inf}, "dr"),
        ("sg_dr", {"lam": 0.0}, "dr"),
        ("sg_ips", {"lam": 0.0}, "ips"),
        ("ix_ips", {"gamma": 0.0}, "ips"),
        ("clipped_ips", {"clip": np.inf}, "ips"),
        ("clipped_ips", {}, "ips"),
        ("clipped_dr", {"clip": np.inf}, "dr"),
    ],
)
def test_at_its_limit_an_estimator_is_another_one(log, name, parameters, limit):
    # dr has weights of 0 here, where lam = 0 and lam = 1 must not be 0/0
    assert value(log, name, **parameters) == pytest.approx(value(log, limit), **TIGHT)


def estimates(log, **options):
    """Estimates of all estimators, by name."""
    target = options.get("target", log["target"])
    extra = {
        "mips": {"group_target": target, "group_propensity": log["propensity"]},
        "balanced_ips": {
            "loggers": np.stack([log["propensity"]] * 2, 1),
            "logger": np.random.default_rng(0).integers(0, 2, N),
        },
    }
    return {
        name: estimate_value(**{**columns(log, name), **options}, estimator=name, **extra.get(name, {}))
        for name in ESTIMATORS
    }


def test_equal_propensities_give_the_sample_mean(log):
    results = estimates(log, target=log["propensity"])
    for name in ("ips", "clipped_ips", "snips", "beta_ips", "sg_ips", "mips", "balanced_ips"):
        assert results[name].value == pytest.approx(np.mean(log["reward"]), **TIGHT), name


def test_order_of_rows_and_names_of_users_mean_nothing(log):
    rng = np.random.default_rng(5)
    order = rng.permutation(N)
    shuffled = {name: values[order] for name, values in log.items()}
    users = rng.permutation(200)[shuffled["user"]] * 7
    in_order = estimates(log, cluster=log["user"], clip=2.0)
    mixed = estimates(shuffled, cluster=users, clip=2.0)
    for name in ESTIMATORS.keys() - {"beta_ips", "balanced_ips"}:
        ends = [(e.value, e.low, e.high, e.ess) for e in (in_order[name], mixed[name])]
        assert ends[0] == pytest.approx(ends[1], rel=1e-9), name


@pytest.mark.parametrize("interval", ["auto", "bootstrap"])
def test_value_is_in_its_interval_for_every_estimator_and_interval(log, interval):
    """Finite, too, where weights are 0; outside it only where a bias is proved."""
    sparse = {"target": np.where(np.arange(N) % 3 == 0, log["target"], 0.0)}
    clicks = {"reward": (log["reward"] > 1.0).astype(float), "clip": 3.0}
    for options in (sparse, clicks):
        for name, result in estimates(log, interval=interval, **options).items():
            assert np.all(np.isfinite([result.value, result.low, result.high, result.ess])), name
            assert result.low <= result.high, name
            assert result.low <= result.value <= result.high or "bias_proved" in doubts(result), name
            assert result.method


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_where_all_propensities_are_too_small_by_one_factor_the_interval_still_holds_the_truth(estimator):
    """Logged as p / 1.15: a weighted mean is 15 % too large, its sampling interval far from the truth."""
    n = 20_000
    rng = np.random.default_rng(5)
    best = rng.random(n) < 0.5
    reward = (rng.random(n) < np.where(best, 0.3, 0.1)) * 1.0
    target = np.where(best, 0.8, 0.2)
    truth = 0.8 * 0.3 + 0.2 * 0.1
    facts = {"full_support": True, "weight_max": 2.0}
    result = estimate_value(reward, np.full(n, 0.5 / 1.15), target, estimator=estimator, **facts)
    assert result.low <= truth <= result.high
    assert result.verdict.level != "trust"
    assert (result.diagnostics.sampling_low > 1.05 * truth) == (estimator == "ips")
