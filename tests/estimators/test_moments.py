"""Moments: against a plain twin, across shards, and with users in any order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Moments

CHUNK = 16384


def make(n: int, seed: int = 0, users: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "reward": np.where(rng.random(n) < 0.1, rng.choice([1.0, 2.5], n), 0.0),
        "propensity": rng.uniform(0.01, 1.0, n),
        "target": np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.0, 1.0, n)),
        "cluster": np.sort(rng.integers(0, users, n)) * 7 - 100,
    }


def twin(reward, propensity, target, cluster=None, clip=np.inf) -> dict[str, float]:
    w = target / propensity
    x = w * reward
    c = np.minimum(w, clip)
    y = c * reward
    rows = {"w": w, "x": x, "c": c, "y": y}
    out = {"r": reward.sum(), "rr": (reward**2).sum(), "w": w.sum(), "x": x.sum(), "c": c.sum(), "y": y.sum()}
    for pair in ("ww", "xx", "wx", "cc", "yy", "wc", "xy"):
        out[pair] = (rows[pair[0]] * rows[pair[1]]).sum()
    groups = np.arange(reward.size) if cluster is None else np.unique(cluster, return_inverse=True)[1]
    sums = {name: np.bincount(groups, values) for name, values in rows.items()}
    sums["l"] = np.bincount(groups).astype(float)
    names = ["ww", "xx", "wx", "cc", "yy", "wc", "xy", "lw", "lx", "lc", "ly", "ll"]
    if cluster is not None:
        names += ["xxxx", "lxxx", "llxx", "lllx", "yyyy", "lyyy", "llyy", "llly", "llll"]
        names += ["wxxx", "wwxx", "wwwx", "wwww"]
        names += ["xxx", "lxx", "llx", "yyy", "lyy", "lly", "lll", "wxx", "wwx", "www"]
    for name in names:
        out["users " + name] = np.prod([sums[letter] for letter in name], axis=0).sum()
    return out


def seen(moments: Moments, names) -> dict[str, float]:
    return {name: moments.power(name[6:]) if name.startswith("users ") else moments.sum(name) for name in names}


@pytest.mark.parametrize("clip", [None, 2.0])
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("n", [1, 7, CHUNK, 3 * CHUNK + 5])
def test_kernel_agrees_with_its_twin(n, clustered, clip):
    data = make(n)
    if not clustered:
        del data["cluster"]
    moments = Moments.of(**data, clip=clip)
    expected = twin(**data, clip=np.inf if clip is None else clip)
    found = seen(moments, expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name
    w = data["target"] / data["propensity"]
    assert moments.rows == n
    assert moments.rewarded == np.count_nonzero(data["reward"])
    assert moments.supported == np.count_nonzero(data["target"])
    assert moments.clipped == (0 if clip is None else np.count_nonzero(w > clip))
    assert moments.users == (np.unique(data["cluster"]).size if clustered else n)
    assert moments.weight_max == w.max()
    if clustered:
        groups = np.unique(data["cluster"], return_inverse=True)[1]
        assert moments.user_rows_max == np.bincount(groups).max()
        assert moments.user_excess_max == pytest.approx((np.bincount(groups, w) - np.bincount(groups)).max())
    else:
        assert (moments.user_rows_max, moments.user_excess_max) == (1, w.max() - 1.0)
    assert moments.propensity_min == data["propensity"].min()
    assert (moments.reward_min, moments.reward_max) == (data["reward"].min(), data["reward"].max())
    assert moments.x_max == np.abs(w * data["reward"]).max()
    top = np.sort(w)[::-1][: moments.top_weights.size]
    np.testing.assert_array_equal(moments.top_weights[: top.size], top)
    assert moments.least_propensity_rows == np.count_nonzero(data["propensity"] == data["propensity"].min())


def bits(moments: Moments) -> tuple:
    """Of sums and of what is counted; the first twenty are sums."""
    names = ["w", "ww", "x", "xx", "wx", "c", "cc", "y", "yy", "wc", "xy", "r"]
    powers = ["ww", "xx", "wx", "lw", "lx", "ll", "yy"]
    return (
        *(moments.sum(name) for name in names),
        *(moments.power(name) for name in powers),
        moments.missing or 0.0,
        moments.rows,
        moments.users,
        moments.rewarded,
        tuple(moments.top_weights),
        moments.least_propensity_rows,
        (moments.propensity_min, moments.weight_max, moments.reward_min, moments.reward_max, moments.x_max),
    )


def parts(data: dict[str, np.ndarray], edges: list[int]) -> list[dict[str, np.ndarray]]:
    return [{k: v[a:b] for k, v in data.items()} for a, b in itertools.pairwise(edges)]


def merged(data, edges) -> Moments:
    shards = [Moments.of(**part, clip=3.0) for part in parts(data, edges)]
    total = shards[0]
    for shard in shards[1:]:
        total = total + shard
    return total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("at", ["chunks", "users"])
def test_shards_cut_between_chunks_or_users_give_the_bits_of_the_whole(at, seed):
    n = 6 * CHUNK + 321
    data = make(n, seed)
    data["unsupported"] = 0.3 * (1.0 - data["target"])
    starts = np.flatnonzero(np.diff(data["cluster"])) + 1
    cuts = np.sort(np.random.default_rng(seed).choice(starts, 6, replace=False)).tolist()
    if at == "chunks":
        cuts = [CHUNK, 2 * CHUNK, 5 * CHUNK]
        del data["cluster"]
    assert bits(merged(data, [0, *cuts, n])) == bits(Moments.of(**data, clip=3.0))


def test_shards_cut_anywhere_differ_by_a_rounding():
    data = make(20_000)
    del data["cluster"]
    whole = Moments.of(**data, clip=3.0)
    np.testing.assert_allclose(bits(merged(data, [0, 17, 5001, 20_000]))[:20], bits(whole)[:20], rtol=1e-14)


def test_users_in_any_order_and_of_any_kind_give_the_same_sums():
    data = make(5000)
    whole = seen(Moments.of(**data), twin(**data))
    order = np.random.default_rng(1).permutation(5000)
    shuffled = {k: v[order] for k, v in data.items()}
    ids = shuffled["cluster"]
    for cluster in (ids, ids.astype(str), ids.astype(object), list(ids)):
        found = seen(Moments.of(**{**shuffled, "cluster": cluster}), whole)
        for name, value in whole.items():
            assert found[name] == pytest.approx(value, rel=1e-12), name


def test_moments_of_other_clips_do_not_merge():
    data = make(10)
    with pytest.raises(UserError, match="same clip"):
        Moments.of(**data, clip=1.0) + Moments.of(**data, clip=2.0)


def test_narrow_columns_are_read_as_numbers():
    data = make(100)
    del data["cluster"]
    narrow = {k: v.astype(np.float32) for k, v in data.items()}
    wide = {k: v.astype(np.float64) for k, v in narrow.items()}
    assert bits(Moments.of(**narrow)) == bits(Moments.of(**wide))
    clicks = data["reward"] > 0
    assert Moments.of(clicks, data["propensity"], data["target"]).sum("r") == clicks.sum()


def test_a_target_of_minus_zero_or_a_rounding_above_one_is_data():
    data = make(100, users=100)
    data["target"][:2] = -0.0, 1.0 + 2.3e-16
    assert Moments.of(**data).supported == np.count_nonzero(data["target"] > 0.0)


@pytest.mark.parametrize("name", ["propensity", "target"])
@pytest.mark.parametrize("value", [1.5, np.nan, -np.nan, -0.25, np.inf, -np.inf])
def test_what_is_no_probability_is_found_beside_a_set_sign(name, value):
    data = make(CHUNK + 10)
    data["target"][3] = -0.0
    data[name][2] = value
    with pytest.raises(UserError, match=f"{name}.*row 2 "):
        Moments.of(**data)


def test_a_weight_that_equals_the_clip_is_not_clipped():
    propensity = np.array([0.25, 0.25, 0.125])
    moments = Moments.of(reward=np.ones(3), propensity=propensity, target=np.array([0.25, 0.5, 0.5]), clip=2.0)
    assert (moments.supported, moments.clipped) == (3, 1)
    assert moments.sum("c") == 5.0
