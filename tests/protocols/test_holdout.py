"""The hold-out protocol against its naive twin, and against cases computed by hand."""

import math

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.base import RawResults, Trial
from recsim_mnar.protocols.comparison import experiment_of
from recsim_mnar.protocols.holdout import HoldOut, held_out_ranks, split_log
from recsim_mnar.rng import derive_seed
from recsim_mnar.worlds import make_world
from toys import Stub, refused, small_comparison
from twins import holdout as twin
from twins import logs

N_ITEMS = 12
SPLITS = ("last", "time")
CUTS = [("last", 0.2), *(("time", share) for share in (0.05, 0.2, 0.5, 0.9))]


def log_of(rows):
    """A log of (user, time, item) for a view and (user, time, item, reward) for a recommendation."""
    user, time, item = np.transpose([row[:3] for row in rows])
    reward = np.array([row[3] if len(row) == 4 else math.nan for row in rows])
    shown = ~np.isnan(reward)
    propensity = np.where(shown, 1 / N_ITEMS, math.nan)
    return logs.log_of(user, np.where(shown, -1, item), np.where(shown, item, -1), propensity, reward, time)


def make_log(seed, clock_runs=True):
    """Items are viewed again, times are equal, some users have one view or none, recommendations stand anywhere."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(1, 43, 3):
        n = 1 if user % 5 == 2 else int(generator.integers(0, 13))
        clock = int(generator.integers(0, 6))
        for _ in range(n):
            if generator.random() < 0.35:
                rows.append((user, clock, int(generator.integers(N_ITEMS)), 0.0))
                clock += int(generator.integers(0, 2))
            time = clock if clock_runs else int(generator.integers(15))
            rows.append((user, time, int(N_ITEMS * generator.random() ** 2)))
            clock += int(generator.integers(0, 3))
        if generator.random() < 0.5:
            rows.append((user, clock, int(generator.integers(N_ITEMS)), 1.0))
    return log_of(rows)


def four_levels(user, n_items):
    return np.random.default_rng(int(user)).integers(0, 4, n_items) / 4.0


def no_ties(user, n_items):
    return np.random.default_rng(int(user)).permutation(n_items) / 4.0


def infinite(user, n_items):
    return np.array([-np.inf, 0.0, 1.0, np.inf])[(4 * four_levels(user, n_items)).astype(int)]


def single(user, n_items):
    return (four_levels(user, n_items) / 3).astype(np.float32)


def whole(user, n_items):
    return (4 * four_levels(user, n_items)).astype(np.int64)


def by_order(user, n_items, seen):
    """Level for items seen at the same place modulo 3, counted from the last view."""
    return [float(seen[::-1].index(item) % 3) if item in seen else 0.5 * (item % 2) for item in range(n_items)]


STUBS = {score.__name__: Stub(score) for score in (four_levels, no_ties, infinite, single, whole)}
STUBS["by_order"] = Stub(by_order, views=True)


def pairs_of(split):
    """(user, held-out item) as the package has them."""
    return [(int(split.views.users[owner]), int(item)) for owner, item in zip(split.owners, split.items, strict=True)]


# ------------------------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize("clock_runs", [True, False])
@pytest.mark.parametrize("seed", [2, 8, 10, 12, 25])
@pytest.mark.parametrize(("how", "share"), CUTS)
def test_splits_are_those_of_the_twin(how, share, seed, clock_runs):
    log = make_log(seed, clock_runs)
    train, held = twin.split(log, how, share)
    if not held:
        with refused("no user"):
            split_log(log, how, share=share)
        return
    split = split_log(log, how, share=share)
    assert pairs_of(split) == [(user, item) for user, items in held.items() for item in items]
    assert split.train.digest() == log.select(np.array(train, int)).digest()
    assert split.views.users.tolist() == split.train.organic().users().tolist()


BY_HAND = [
    (1, 0, 5), (1, 1, 2, 1.0), (1, 2, 6), (1, 4, 5), (1, 5, 3, 0.0), (1, 6, 7), (1, 7, 7),
    (1, 8, 1, 0.0), (2, 6, 4), (2, 7, 4, 0.0), (3, 1, 9), (3, 6, 8),
]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "rows", "pairs"),
    [
        ("last", [0, 1, 2, 3, 4, 5, 8, 9, 10], [(1, 7), (3, 8)]),
        # The times of the views are 0, 1, 2, 4, 6, 6, 6, 7: the cut is at the fifth, or at the seventh, which is level.
        ("time", [0, 1, 2, 3, 4, 10], [(1, 7), (3, 8)]),
    ],
)
def test_splits_are_those_made_by_hand(how, rows, pairs):
    log = log_of(BY_HAND)
    split = split_log(log, how, share=0.5)
    assert pairs_of(split) == pairs
    assert split.train.digest() == log.select(np.array(rows)).digest()


NOBODY = {"one view each": [(1, 0, 5), (2, 3, 5)], "no views": [(1, 0, 5, 1.0)], "no rows": []}


@pytest.mark.parametrize("rows", NOBODY.values(), ids=NOBODY)
@pytest.mark.parametrize("how", SPLITS)
def test_where_nobody_is_left_to_judge_a_split_is_refused(how, rows):
    with pytest.raises(UserError):
        split_log(log_of(rows) if rows else Log({}), how)


# -------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("candidates", ["all", "unseen"])
@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", STUBS)
def test_ranks_of_fixed_scores_are_those_of_the_twin(name, how, candidates):
    for seed in (2, 8, 12):
        log, asked = make_log(seed), {"n_items": N_ITEMS, "seed": seed + 5, "candidates": candidates}
        found = held_out_ranks("x", STUBS[name], split_log(log, how, share=0.4), **asked)
        expected = twin.ranks(STUBS[name], log, *twin.split(log, how, 0.4), **asked)
        assert found.tolist() == [rank for ranks in expected.values() for rank in ranks]


@pytest.mark.parametrize("wrong", [lambda n: [math.nan] * n, lambda n: [0.0] * (n + 1)])
def test_scores_that_rank_nothing_are_refused(wrong):
    split = split_log(make_log(2), "last")
    with refused("'mine'"):
        held_out_ranks("mine", Stub(lambda user, n: wrong(n)), split, n_items=N_ITEMS, seed=0, candidates="all")


# ----------------------------------------------------------------------------------------------------------- protocol


def judged(log, learner, n_items, **how):
    """{metric: value} of the protocol on a log that no world made."""
    world = make_world("sessions", "quick", [f"n_items={n_items}", "n_flips=2"])
    trial = Trial(world, {"x": learner}, experiment_of(world).settings("quick"), 5, n_items=n_items, test_log=log)
    return {r.metric: r.value for r in HoldOut(**how).judge(trial)}


def test_values_of_the_protocol_are_those_made_by_hand():
    """User 1 lost item 0, viewed twice and ranked 2, and item 4, never viewed and ranked 5; user 2 lost 2, ranked 1."""
    log = log_of([(1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 2, 4), (2, 0, 3), (2, 2, 2)])
    learner = Stub(lambda user, n: [4.0, 3.0, 5.0, 2.0, 1.0])
    found = judged(log, learner, 5, split="time", share=0.5, k=2, candidates="all")
    first_gain = 1 / math.log2(3)
    expected = {"recall@2": (1 / 2 + 1) / 2, "ndcg@2": (first_gain / (1 + first_gain) + 1) / 2}
    assert found == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "wrong",
    [{"split": "lst"}, {"share": 0.0}, {"share": 1.0}, {"share": "x"}, {"k": 0}, {"candidates": "some"}],
)
def test_wrong_arguments_are_refused(wrong):
    (name,) = wrong
    with refused(rf"^holdout: {name} must be"):
        HoldOut(**wrong)


SPECS = {
    "holdout": {},
    "holdout+split=time": {"split_as": "time"},
    "holdout+candidates=unseen+k=3": {"candidates": "unseen", "k": 3},
    "holdout+split=time+share=0.5+k=3": {"split_as": "time", "share": 0.5, "k": 3},
}


NAMES = ("random", "popularity", "item-knn", "user-knn")


@pytest.fixture(scope="module")
def comparison():
    """One that refuses raw rows whose mean is another value."""
    return small_comparison(NAMES, protocols=list(SPECS), seed=3, raw=RawResults())


@pytest.mark.parametrize("spec", SPECS)
def test_a_comparison_gives_the_values_of_the_twin(comparison, spec):
    records = {(r.agent, r.metric): r for r in comparison.records if r.protocol == spec}
    metrics, k = {metric for _, metric in records}, SPECS[spec].get("k", 1)
    assert len(records) == 4 * len(metrics)
    assert metrics == ({f"recall@{k}", f"ndcg@{k}"} if k > 1 else {f"recall@{k}"})
    for name in NAMES:
        asked = {"n_items": 20, "seed": derive_seed(3, "holdout"), "k": k, **SPECS[spec]}
        values, n = twin.figures(comparison.log, registry.learner(name), **asked)
        for metric in metrics:
            record = records[name, metric]
            assert (record.value, record.n) == (pytest.approx(values[metric], abs=1e-12), n)
            assert record.low <= record.value <= record.high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "candidates", "k"),
    [([], "all", 1), (["no_repeats=true"], "unseen", 1), (["slate_size=3"], "all", 3)],
)
def test_lists_and_candidates_are_those_of_the_world_unless_named(params, candidates, k):
    found = small_comparison(NAMES[:2], protocols=["holdout"], seed=3, world=params)
    assert {r.details["candidates"] for r in found.records if r.protocol == "holdout"} == {candidates}
    for name in NAMES[:2]:
        asked = {"n_items": 20, "seed": derive_seed(3, "holdout"), "k": k, "candidates": candidates}
        values, _ = twin.figures(found.log, registry.learner(name), **asked)
        for record in found.records:
            if (record.protocol, record.agent) == ("holdout", name):
                assert record.value == pytest.approx(values[record.metric], abs=1e-12)
