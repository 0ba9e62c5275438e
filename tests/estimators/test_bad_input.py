"""What bad input gets: one clear line, or a clear verdict."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ESTIMATORS, difference, estimate_value


def make(n: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.1, 0.9, n)
    return {"reward": (rng.random(n) < 0.1) * 1.0, "propensity": propensity, "target": propensity[::-1].copy()}


@pytest.mark.parametrize(
    ("column", "bad", "words"),
    [
        ("propensity", 0.0, "outside"),
        ("propensity", 1.2, "outside"),
        ("propensity", -0.1, "outside"),
        ("propensity", np.nan, "outside"),
        ("propensity", np.inf, "outside"),
        ("target", -0.1, "no probability"),
        ("target", 1.5, "no probability"),
        ("target", np.nan, "no probability"),
        ("reward", np.nan, "not a finite"),
        ("reward", np.inf, "not a finite"),
    ],
)
@pytest.mark.parametrize("clustered", [False, True])
def test_a_bad_value_is_named_with_its_row(column, bad, words, clustered):
    data = make()
    data[column][137] = bad
    cluster = np.arange(500) % 9 if clustered else None
    with pytest.raises(UserError, match=f"'{column}', row 137 .*{words}") as caught:
        estimate_value(**data, cluster=cluster)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("clustered", [False, True])
def test_what_no_sum_can_hold_is_named(clustered):
    cluster = np.arange(500) // 2 if clustered else None
    data = make()
    data["propensity"][9] = 1e-200
    with pytest.raises(UserError, match=r"'propensity', row 9 .*too large"):
        estimate_value(**data, cluster=cluster)
    data = make()
    data["reward"][9] = 1e200
    with pytest.raises(UserError, match=r"'reward', row 9 .*too large"):
        estimate_value(**data, cluster=cluster)


@pytest.mark.parametrize("clip", [0, -1.0, "ten", True, np.nan])
def test_clip_must_be_positive(clip):
    with pytest.raises(UserError, match="clip must be a positive number"):
        estimate_value(**make(), clip=clip)


@pytest.mark.parametrize(
    "cluster",
    [
        np.where(np.arange(500) == 3, np.nan, 1.0),
        np.array([None if i == 3 else "a" for i in range(500)], dtype=object),
    ],
)
def test_missing_cluster_ids_are_named(cluster):
    with pytest.raises(UserError, match=r"'cluster', row 3 .*missing"):
        estimate_value(**make(), cluster=cluster)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"estimator": "snip"}, "did you mean 'snips'"),
        ({"interval": "gama"}, "did you mean 'gamma'"),
        ({"level": 1.0}, "level must lie"),
        ({"level": 95}, "level must lie"),
        ({"cluster": np.zeros(3)}, "shape"),
        ({"estimator": "dr"}, "needs q_logged"),
        ({"estimator": "dm"}, "needs q_target"),
        ({"estimator": "mips"}, "needs the parameter 'groups'"),
        ({"estimator": "ips", "tau": 1.0}, "has no parameter 'tau'"),
        ({"estimator": "dros", "lam": -1.0, "q_logged": np.zeros(500), "q_target": np.zeros(500)}, "lam must be"),
        ({"estimator": "sg_ips", "lam": 2.0}, "lam must be"),
        ({"estimator": "beta_ips", "folds": 1}, "folds must be"),
        ({"estimator": "snips", "interval": "gamma"}, "gamma"),
        ({"estimator": "snips", "interval": "betting"}, "betting"),
        ({"estimator": "dr", "q_logged": np.full(500, np.nan), "q_target": np.zeros(500)}, "'q_logged', row 0"),
        ({"reward_max": 0.5}, "reward_max"),
        ({"estimator": "clipped_ips", "interval": "bootstrap", "replicates": 2}, "replicates"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(UserError, match=words):
        estimate_value(**{**make(), **arguments})


def test_columns_of_different_length():
    data = make()
    with pytest.raises(UserError, match="'target' has 499 rows"):
        estimate_value(data["reward"], data["propensity"], data["target"][1:])
    with pytest.raises(UserError, match="no rows"):
        estimate_value([], [], [])
    with pytest.raises(UserError, match="must hold numbers"):
        estimate_value(["a"], [0.5], [0.5])


@pytest.mark.parametrize("name", [n for n, info in ESTIMATORS.items() if not info.requires])
def test_one_row_no_reward_and_no_support_get_a_verdict(name):
    q = {"q_logged": [0.1], "q_target": [0.2]}
    one = estimate_value([1.0], [0.5], [0.2], estimator=name, **(q if ESTIMATORS[name].needs else {}))
    assert one.verdict.startswith("do not use: only 1 row,")
    data = make()
    models = {"q_logged": np.full(500, 0.1), "q_target": np.full(500, 0.1)} if ESTIMATORS[name].needs else {}
    silent = estimate_value(np.zeros(500), data["propensity"], data["target"], estimator=name, **models)
    assert silent.verdict.startswith("do not use: no reward")
    outside = estimate_value(data["reward"], data["propensity"], np.zeros(500), estimator=name, **models)
    assert outside.verdict.startswith("do not use: the target takes none")
    for estimate in (one, silent, outside):
        assert np.all(np.isfinite([estimate.value, estimate.low, estimate.high, estimate.ess]))
        assert estimate.low <= estimate.value <= estimate.high
    if not models:
        assert silent.high > 0.0
        assert outside.high == 1.0


def test_few_users_are_not_to_be_used():
    data = make()
    assert estimate_value(**data, cluster=np.arange(500) % 99).verdict.startswith("do not use: only 99 users")
    assert not estimate_value(**data, cluster=np.arange(500) % 100).verdict.startswith("do not use: only")


def test_signed_rewards_are_not_taken_for_few():
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.1, 0.9, 5000)
    assert estimate_value(rng.normal(0.0, 1.0, 5000), propensity, propensity).verdict == "trust"


def test_verdicts_name_reason_and_mend():
    rng = np.random.default_rng(0)
    n = 20_000
    propensity = rng.uniform(0.1, 0.9, n)
    reward = (rng.random(n) < 0.1) * 1.0
    assert estimate_value(reward, propensity, propensity).verdict == "trust"
    assert estimate_value(reward, propensity, propensity).trusted
    short = estimate_value(reward, propensity, propensity * 0.5)
    assert short.verdict.startswith("do not use: the mean weight is 0.5")
    rare = propensity.copy()
    rare[:3] = 1e-4
    heavy = estimate_value(reward, rare, np.full(n, 0.5))
    assert "effective sample" in heavy.verdict
    assert "log about" in heavy.verdict


def test_difference_checks_its_columns():
    data = make()
    baseline = data["target"].copy()
    baseline[5] = -1.0
    with pytest.raises(UserError, match="'baseline', row 5"):
        difference(**data, baseline=baseline)
    with pytest.raises(UserError, match="difference knows"):
        difference(**data, baseline=data["target"], estimator="dr")
    silent = difference(np.zeros(500), data["propensity"], data["target"], data["propensity"])
    assert silent.low < 0.0 < silent.high
    assert silent.verdict.startswith("do not use")
