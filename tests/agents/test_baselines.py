from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from recsim_mnar.agents.acting import N_LISTED
from recsim_mnar.agents.baselines import FixedPolicy, Popularity, Random, UserPopularity, UserPopularityGreedy
from recsim_mnar.policies import registry
from recsim_mnar.policies.storage import Stored
from toys import refused
from twins.logs import log_of, random_log

U = np.array([0])


def test_random_divides_the_unit_interval_evenly():
    policy = Random(n_items=7)
    uniforms = np.array([0.0, 1 / 7 - 1e-12, 1 / 7 + 1e-12, 0.999, np.nextafter(1, 0)])
    actions, propensities = policy.act(np.arange(5), uniforms)
    assert actions.tolist() == [0, 0, 1, 6, 6]
    assert np.all(propensities == 1 / 7)
    assert policy.is_uniform
    assert policy.fixed_distribution().tolist() == [1 / 7] * 7


def test_fixed_distribution_is_what_the_policy_does():
    for scores in ([0, 3, 1, 3, 3, 2], [1] * 10, [0, 0, 5]):
        policy = FixedPolicy(len(scores), "fixed", np.array(scores))
        p = policy.fixed_distribution()
        uniforms = np.append(np.random.default_rng(0).random(1000), [0.0, np.nextafter(1, 0)])
        actions, propensities = policy.act(np.arange(1002), uniforms)
        cumulative = np.cumsum(p)
        first = [next((a for a in range(len(p)) if u < cumulative[a]), np.flatnonzero(p)[-1]) for u in uniforms]
        assert actions.tolist() == first
        np.testing.assert_array_equal(propensities, p[actions])


def test_popularity_counts_views_only():
    log = log_of([1, 1, 1, 2], item=[2, -1, 2, 1], action=[-1, 0, -1, -1], propensity=0.5, reward=1.0)
    policy = Popularity().fit(log, n_items=4)
    assert policy.scores(U).tolist() == [[0.0, 1.0, 2.0, 0.0]]
    assert policy.probabilities(U).tolist() == [[0.0, 0.0, 1.0, 0.0]]


def test_user_popularity_takes_one_of_the_views():
    policy = UserPopularity(n_items=9)
    policy.reset(U)
    policy.observe(np.zeros(4, int), np.array([5, 2, 5, 8]))
    crowd = np.array([[0.0, 0.25, 0.5, 0.75, 0.9999]])
    taken = [policy.act(U, u) for u in crowd.T]
    assert [int(action[0]) for action, _ in taken] == [5, 2, 5, 8, 8]
    assert [float(p[0]) for _, p in taken] == [0.5, 0.25, 0.5, 0.25, 0.25]
    assert policy.propensity_of(U, np.array([3])).tolist() == [0.0]


@pytest.mark.parametrize("n_views", [1, 5, N_LISTED, N_LISTED + 1, 60, 100])
def test_many_tied_items_are_shared_evenly(n_views):
    """More tied items than are listed, and all items tied, act as a few do."""
    policy = UserPopularityGreedy(n_items=100)
    policy.reset(U)
    views = np.random.default_rng(n_views).permutation(100)[:n_views]
    policy.observe(np.zeros(n_views, int), views)
    p = policy.probabilities(U)[0]
    for k, item in enumerate(np.sort(views)):
        action, propensity = policy.act(U, np.array([(k + 0.5) / n_views]))
        assert (int(action[0]), float(propensity[0])) == (item, 1 / n_views)
        assert policy.propensity_of(U, action)[0] == propensity[0] == p[item]
    outside = np.setdiff1d(np.arange(100), views)
    if len(outside):
        assert policy.propensity_of(U, outside[:1])[0] == 0.0
    policy.observe(U, views[:1])
    assert policy.act(U, np.array([0.7]))[0][0] == views[0]


@pytest.mark.parametrize("name", ["random", "popularity", "user-popularity", "svd", "item-knn", "user-knn"])
def test_a_policy_sent_elsewhere_arrives_without_users(name):
    policy = registry.learner(name).fit(random_log(1, 20, 6, 5), n_items=6)
    policy.reset(U)
    again = pickle.loads(pickle.dumps(policy))
    again.reset(U)
    policy.reset(U)
    for one in (policy, again):
        one.observe(np.zeros(2, int), np.array([3, 1]))
    np.testing.assert_array_equal(policy.probabilities(U), again.probabilities(U))
    assert again.describe() == policy.describe()


def test_no_pickle_is_written(tmp_path):
    class OfObjects(Random):
        def fitted(self):
            return {"table": np.array([{1: 2}, None])}, {}

    with refused("its array 'table' holds Python objects"):
        OfObjects(n_items=3).save(tmp_path / "objects.npz")
    assert not list(tmp_path.iterdir())
    Random(n_items=3).save(tmp_path / "random.npz")
    with np.load(tmp_path / "random.npz") as data:
        assert data.files == ["__meta__"]  # a version of NumPy that takes an argument for an array would add one


META = {"format": 1, "class": "recsim_mnar.agents.nowhere:Policy", "n_items": 2, "name": "x", "parameters": {}}


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("none.npz", lambda path: None, "does not exist"),
        ("text.npz", lambda path: path.write_text("no"), "is not a saved policy"),
        ("arrays.npz", lambda path: np.savez(path, a=np.zeros(3)), "is not a saved policy"),
        ("array.npy", lambda path: np.save(path, np.zeros(3)), "is not a saved policy"),
        ("random.npz", Random(n_items=3).save, "not a UserPopularity"),
        ("unknown.npz", lambda path: np.savez(path, __meta__=np.array(json.dumps(META))), "nowhere:Policy, not a"),
    ],
)
def test_files_that_are_no_policies(tmp_path, name, write, words):
    write(tmp_path / name)
    with refused(words):
        (UserPopularity if name == "random.npz" else Stored).load(tmp_path / name)
