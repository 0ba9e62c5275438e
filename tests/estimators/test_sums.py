"""Sums by user: against a plain twin, across blocks, and with users in any order."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.scores import Rows
from recsim_mnar.estimators.sums import CHUNK, PolicySums, UserSums
from recsim_mnar.log.columns import Clusters

NAMES = ("rows", "weight", "earned")
OTHERS = ("reward", "squared weight", "earned reward")


def make(n, seed=0, users=300):
    rng = np.random.default_rng(seed)
    return {
        "reward": np.where(rng.random(n) < 0.1, rng.choice([1.0, 2.5], n), 0.0),
        "propensity": rng.uniform(0.01, 1.0, n),
        "target": np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.0, 1.0, n)),
        "cluster": np.sort(rng.integers(0, users, n)) * 7 - 100,
    }


def sums_of(reward, propensity, target, cluster=None, missing=None, facts=None):
    clusters = Clusters.of(cluster, len(reward))
    return PolicySums.of_rows(Rows.of(reward, propensity, target, clusters=clusters, missing=missing), facts)


def twin(reward, propensity, target, cluster=None):
    """Every column's sums by user, (users,), by name; and of the columns that enter no product."""
    weight = target / propensity
    columns = {"rows": np.ones(reward.size), "weight": weight, "earned": weight * reward}
    others = {"reward": reward, "squared weight": weight**2, "earned reward": weight * reward**2}
    groups = np.arange(reward.size) if cluster is None else np.unique(cluster, return_inverse=True)[1]
    by_user = {name: np.bincount(groups, values) for name, values in columns.items()}
    rewarded_users = np.count_nonzero(np.bincount(groups, reward))
    return by_user, {name: values.sum() for name, values in others.items()}, rewarded_users


PRODUCTS = [names for k in (1, 2, 3, 4) for names in itertools.combinations_with_replacement(NAMES, k)]


def product(sums, names):
    return sums.by_user.product(*({name: 1.0} for name in names))


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("n", [1, 7, CHUNK, 3 * CHUNK + 5])
def test_kernel_agrees_with_its_twin(n, clustered):
    data = make(n)
    if not clustered:
        del data["cluster"]
    sums = sums_of(**data)
    by_user, others, rewarded_users = twin(**data)
    for names in PRODUCTS:
        expected = np.prod([by_user[name] for name in names], axis=0).sum()
        assert product(sums, names) == pytest.approx(expected, rel=1e-12), names
    for name in OTHERS:
        assert sums.by_user.total(name) == pytest.approx(others[name], rel=1e-12), name
    propensity = data["propensity"]
    expected = {
        "rows": n,
        "users": by_user["rows"].size,
        "rewarded": np.count_nonzero(data["reward"]),
        "rewarded_users": rewarded_users,
        "supported": np.count_nonzero(data["target"]),
        "weight_max": (data["target"] / propensity).max(),
        "propensity_min": propensity.min(),
        "least_propensity_rows": np.count_nonzero(propensity == propensity.min()),
        "reward_min": data["reward"].min(),
        "reward_max": data["reward"].max(),
        "user_rows_max": by_user["rows"].max(),
    }
    assert {name: getattr(sums, name) for name in expected} == expected


def test_forms_are_combined_as_their_users_are():
    data = make(500)
    by_user, *_ = twin(**data)
    one = {"earned": 1.0, "rows": -0.2}
    other = {"weight": 2.0, "earned": -1.0}
    expected = np.sum((by_user["earned"] - 0.2 * by_user["rows"]) ** 3 * (2.0 * by_user["weight"] - by_user["earned"]))
    assert sums_of(**data).by_user.product(one, one, one, other) == pytest.approx(expected, rel=1e-12)
    two = UserSums(NAMES, degree=2)
    two.extend([np.ones(500), data["target"], data["reward"]], None)
    assert two.product({"weight": 1.0}, {"earned": 1.0}) == pytest.approx(data["target"] @ data["reward"], rel=1e-12)


def bits(sums):
    counts = {name: value for name, value in vars(sums).items() if name not in ("by_user", "missing")}
    products = [product(sums, names) for names in PRODUCTS]
    return products, [sums.by_user.total(name) for name in OTHERS], sums.missing_mass(), counts


def merged(data, edges):
    parts = [
        sums_of(**{name: values[start:end] for name, values in data.items()})
        for start, end in itertools.pairwise(edges)
    ]
    return functools.reduce(operator.add, parts)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("at", ["chunks", "users"])
def test_blocks_cut_between_chunks_or_users_give_the_bits_of_the_whole(at, seed):
    n = 6 * CHUNK + 321
    data = make(n, seed)
    data["missing"] = 0.3 * (1.0 - data["target"])
    if at == "chunks":
        cuts = [CHUNK, 2 * CHUNK, 5 * CHUNK]
        del data["cluster"]
    else:
        starts = np.flatnonzero(np.diff(data["cluster"])) + 1
        cuts = np.sort(np.random.default_rng(seed).choice(starts, 6, replace=False))
    assert bits(merged(data, [0, *cuts, n])) == bits(sums_of(**data))


def test_users_in_any_order_and_of_any_kind_give_the_same_sums():
    data = make(5000)
    products, *_, counts = bits(sums_of(**data))
    order = np.random.default_rng(1).permutation(5000)
    shuffled = {name: values[order] for name, values in data.items()}
    ids = shuffled["cluster"]
    for cluster in (ids, ids.astype(str), ids.astype(object), list(ids)):
        mixed_products, *_, mixed_counts = bits(sums_of(**shuffled | {"cluster": cluster}))
        np.testing.assert_allclose(mixed_products, products, rtol=1e-12)
        assert mixed_counts == counts


def test_a_target_of_minus_zero_or_a_rounding_above_one_is_data():
    data = make(100, users=100)
    data["target"][:2] = -0.0, 1.0 + 2.3e-16
    assert sums_of(**data).supported == np.count_nonzero(data["target"] > 0.0)


@pytest.mark.parametrize("name", ["propensity", "target"])
@pytest.mark.parametrize("value", [1.5, np.nan, -np.nan, -0.25, np.inf, -np.inf])
def test_what_is_no_probability_is_found_beside_a_set_sign(name, value):
    data = make(CHUNK + 10)
    data["target"][3] = -0.0
    data[name][2] = value
    with pytest.raises(UserError, match=f"{name}.*row 2 "):
        sums_of(**data)


def test_rows_that_deny_a_fact_are_counted():
    data = make(200)
    least = float(np.median(data["propensity"]))
    sums = sums_of(**data, facts=Facts(propensity_min=least))
    assert sums.denied == np.count_nonzero((data["propensity"] < 0.98 * least) & (data["target"] > 0.0))


def test_clusters_of_other_rows_are_refused():
    clusters = Clusters.of(np.array([3, 1, 3]), 3, "user")
    assert Clusters.of(clusters, 3) is clusters
    with pytest.raises(UserError, match="'user' has clusters of 3 rows and 'reward' has 4 rows"):
        Clusters.of(clusters, 4, "user")
