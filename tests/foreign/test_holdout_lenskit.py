"""Recall and NDCG of the hold-out protocol against LensKit's own metrics, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.policies import Learner, Policy
from recsim_mnar.protocols.holdout import held_out_ranks, recall_and_ndcg, split_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import untrained

N_ITEMS, KS = 30, (1, 3, 10, 30)


class Fixed(Learner, Policy):
    """Each user's items in an order of the user's own: no two scores are level."""

    name, n_items = "fixed", N_ITEMS

    def fit(self, log, *, n_items, seed=0):
        return self

    def act(self, users, uniforms):
        raise NotImplementedError

    def probabilities(self, users):
        raise NotImplementedError

    def scores(self, users):
        return np.stack([np.random.default_rng(int(user)).permutation(N_ITEMS) for user in users]) / 4.0


@pytest.fixture(scope="module")
def log():
    world = make_world("sessions", "quick", [f"n_items={N_ITEMS}", "n_flips=5"])
    return simulate(world, untrained("random", N_ITEMS), 120, 5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["last", "time"])
def test_recall_and_ndcg_are_those_of_lenskit_on_the_same_lists(log, how):
    """LensKit discounts rank r by log2 r unless its offset is 1; its recall is of k items at most, ours of all."""
    metrics = pytest.importorskip("lenskit.metrics")
    from lenskit.data import ItemList

    log2 = metrics.LogRankWeight(offset=1)
    split = split_log(log, how)
    ranks = held_out_ranks("fixed", Fixed(), split, n_items=N_ITEMS, seed=0, candidates="all")
    users = split.views.users[np.unique(split.owners)]
    lists = np.argsort(-Fixed().scores(users), axis=1)
    tests = [split.items[split.owners == owner] for owner in np.unique(split.owners)]
    assert (max(map(len, tests)) == 1) == (how == "last")
    for k in KS:
        found = recall_and_ndcg(split.owners, ranks, k)
        for name, metric in ((f"recall@{k}", metrics.Recall(n=k)), (f"ndcg@{k}", metrics.NDCG(n=k, weight=log2))):
            theirs = np.array([
                metric.measure_list(ItemList(item_ids=items, ordered=True), ItemList(item_ids=test))
                for items, test in zip(lists, tests, strict=True)
            ])  # fmt: skip
            ours, expected = found[name], theirs
            if "recall" in name:
                sizes = np.array([len(items) for items in tests])
                expected = theirs * np.minimum(k, sizes) / sizes
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)
            if how == "last":
                assert float(ours.mean()) == pytest.approx(float(theirs.mean()), abs=1e-12)
                assert k == N_ITEMS or 0.0 < ours.mean() < 1.0
