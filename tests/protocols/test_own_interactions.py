"""Agents on a user's own interactions: the split by time, lists, who may be the best, and the whole against twins."""

import math

import numpy as np
import pytest

from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.log.views import Views
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Protocol, RawResults
from recsim_mnar.protocols.holdout import split_log
from recsim_mnar.protocols.interactions import (
    compare_interactions,
    conclusion,
    facts_of,
    leaders,
    recommended,
)
from recsim_mnar.protocols.ranks import NONE, top_items
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, uniforms
from toys import refused
from twins.policies import Uniform


def write(path, rows, timed=True):
    head = "user_id,item_id,timestamp" if timed else "user_id,item_id"
    lines = [",".join(str(value) for value in (row if timed else row[:2])) for row in rows]
    path.write_text("\n".join([head, *lines]) + "\n")
    return read_interactions(path)


def random_rows(seed=0, n_users=60, n_items=30, longest=12):
    """Distinct items of each user, popular ones more often, at distinct moments of one clock."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, n_items + 1)
    rows = []
    for user in range(n_users):
        n = int(rng.integers(1, longest + 1))
        items = rng.choice(n_items, n, replace=False, p=weight / weight.sum())
        rows += [(f"u{user:03}", f"i{item:03}", 881250949 + int(rng.integers(10**7))) for item in items]
    return rows


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "mine.csv", random_rows())


def test_lists_end_where_candidates_do(data):
    """A user who has met all but two items is recommended two."""
    split = split_log(data.log, "time", share=0.3)
    policy = fitted(registry.learner("popularity"), split.train, n_items=data.n_items, seed=0)
    views = split.views
    kept = np.arange(data.n_items - 2)
    alone = Views(views.users[:1], np.array([0, len(kept)]), kept.astype(np.int32), kept)
    lists = top_items("popularity", policy, alone, np.array([0]), k=10, unseen=True, seed=0)
    assert set(lists[0, :2].tolist()) == {data.n_items - 2, data.n_items - 1}
    assert set(lists[0, 2:].tolist()) == {NONE}


def test_what_lists_are_made_of():
    views = Views(np.array([0, 1, 2]), np.array([0, 2, 3, 4]), np.array([0, 1, 0, 0], np.int32), np.arange(4))
    coverage, shares = recommended(np.array([[0, 3], [1, NONE]]), views, n_items=5)
    assert coverage == 1.0  # items 0 and 1 are known, and both are listed
    assert shares.tolist() == [0.5, pytest.approx(1 / 3)]


def alike(rng):
    """Five agents whose users differ more than they do; two are the best."""
    common = rng.normal(0, 1, (1, 120))
    return common + rng.normal(0, 1, (5, 120)) + np.array([[0.0], [0.0], [-0.05], [-0.1], [-0.8]])


def rare(rng):
    """Five agents that hit twice in a hundred users, all alike."""
    return (rng.random((5, 150)) < 0.02).astype(float)


@pytest.mark.parametrize(("draw", "best"), [(alike, 2), (rare, 5)])
def test_the_best_agent_is_among_the_leaders_as_often_as_promised(draw, best):
    """Of 400 samples each of the best is left out in 5 % at most, beyond the sampling error of the count."""
    rng = np.random.default_rng(0)
    missed = np.zeros(best)
    for _ in range(400):
        table = draw(rng)
        found = leaders({f"a{i}": row for i, row in enumerate(table)}, 0.95)
        missed += [f"a{i}" not in found.names for i in range(best)]
        assert found.names[0] == f"a{int(np.argmax(table.mean(axis=1)))}"
    assert np.all(missed / 400 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 400))


def test_few_users_rule_nobody_out():
    values = np.random.default_rng(1).random(99)
    found = leaders({"good": values, "bad": values - 0.5}, 0.95, protocol="loocv", metric="ndcg@10")
    assert found.names == ("good", "bad")
    said = conclusion([found], 0.95, 2)
    assert "99 users, and it takes 100" in said[0]


def test_a_much_worse_agent_is_ruled_out_and_an_equal_one_is_not():
    values = np.random.default_rng(1).random(200)
    found = leaders({"good": values, "same": values.copy(), "bad": values - 0.1}, 0.95)
    assert set(found.names) == {"good", "same"}


def test_facts_are_counted(tmp_path):
    day = 86_400
    rows = [("a", "x", 881250949), ("a", "x", 881250949), ("a", "x", 881250949 + day), ("b", "y", 881250949 + 2 * day)]
    facts = facts_of(write(tmp_path / "f.csv", rows))
    assert facts == {"rows": 4, "users": 2, "items": 2, "repeats": 2, "duplicates": 1}


def test_the_comparison_names_who_may_be_the_best(data):
    learners = {name: registry.learner(name) for name in ("random", "popularity")}
    found = compare_interactions(data, learners, folds=3)
    assert {r.protocol for r in found.records} == {"loocv", "by_time", "lists"}
    assert found.log is None  # the file's rows are not written again
    best = {one["protocol"]: one for one in found.details["best"]}
    assert best["loocv"]["first"] == "popularity"
    assert "popularity" in best["by_time"]["may_be_the_best"]
    coverage = {r.agent: r for r in found.records if r.metric == "coverage@10"}
    assert coverage["random"].value > coverage["popularity"].value
    assert math.isnan(coverage["random"].low)
    popularity = {r.agent: r for r in found.records if r.metric == "popularity@10"}
    assert popularity["popularity"].value > popularity["random"].value


class Half(Protocol):
    """A half for everybody."""

    metrics = ("zero",)
    needs = frozenset({"test_log"})

    def judge(self, study):
        return [
            Record.of(
                study.world.name, self.name, name, "zero", (0.5, 0.0, 1.0), level=0.95, n=len(study.log()), seconds=0
            )
            for name in study.learners
        ]


class OnWhatItKnows(Half):
    """It would judge policies by views that they were fitted on."""

    def judge(self, study):
        return [Record.of(*study.policies)]


def test_policies_that_know_the_views_are_refused(data):
    learners = {"svd": registry.learner("svd+rank=3"), "random": registry.learner("random")}
    with refused(r"study\.learners"):
        compare_interactions(data, learners, protocols=["test_own_interactions:OnWhatItKnows"])


def test_other_protocols_judge_interactions(data):
    learners = {"svd": registry.learner("svd+rank=3"), "random": registry.learner("random")}
    protocols = ["by_time", "holdout+split=time+k=10", "test_own_interactions:Half"]
    raw = RawResults()  # a comparison refuses rows whose mean is another value
    found = compare_interactions(data, learners, protocols=protocols, raw=raw)
    rows = raw.table().to_pandas()
    assert set(rows["protocol"]) == set(protocols[:2])
    assert set(rows["user"]) <= set(data.log["user"])
    records = {(r.protocol, r.metric, r.agent): r for r in found.records}
    by_time, held_out = (records[name, "recall@10", "svd"] for name in protocols[:2])
    # Two splits by time hold out the same views of the same users; no two scores of this agent are alike.
    assert (held_out.n, held_out.value) == (by_time.n, pytest.approx(by_time.value, rel=1e-12))
    assert held_out.details["held_out"] == by_time.details["held_out"]
    assert records["test_own_interactions:Half", "zero", "svd"].value == 0.5
    with refused("needs users"):
        compare_interactions(data, learners, protocols=["ab_test"])


def test_agents_that_agree_in_everything_are_named(data):
    learners = {name: registry.learner("popularity") for name in ("one", "other")} | {"r": registry.learner("random")}
    assert compare_interactions(data, learners, folds=1).hints == [
        "one and other agree in every number: they rank the candidates alike."
    ]


def test_without_times_leave_one_out_stands_alone(tmp_path):
    data = write(tmp_path / "f.csv", random_rows(), timed=False)
    found = compare_interactions(data, {"popularity": registry.learner("popularity")}, folds=2)
    assert {r.protocol for r in found.records} == {"loocv", "lists"}
    assert any("no times" in note for note in found.notes)
    with refused("--time-column"):
        compare_interactions(data, {"popularity": registry.learner("popularity")}, protocols=["by_time"])


def test_one_moment_for_all_rows_is_said_and_refused_where_asked_for(tmp_path):
    data = write(tmp_path / "f.csv", [(user, item, 7) for user, item, _ in random_rows()])
    learners = {"popularity": registry.learner("popularity")}
    assert any("no split by time" in note for note in compare_interactions(data, learners, folds=1).notes)
    with refused("before and after the cut"):
        compare_interactions(data, learners, protocols=["by_time"])
    with refused("test_share must be"):
        compare_interactions(data, learners, test_share=1.5)


def test_candidates_follow_repeats(tmp_path):
    rows = random_rows()
    data = write(tmp_path / "f.csv", [*rows, (*rows[0][:2], rows[0][2] + 5)])
    learners = {"popularity": registry.learner("popularity")}
    auto = compare_interactions(data, learners, folds=1)
    assert auto.details["candidates"] == "all"
    assert any("candidates=unseen" in note for note in auto.notes)
    unseen = compare_interactions(data, learners, folds=1, candidates="unseen")
    assert unseen.details["candidates"] == "unseen"


def test_lists_of_another_length(data):
    """Every figure is of that length: leave-one-out, the split by time and what is recommended."""
    learners = {name: registry.learner(name) for name in ("random", "popularity")}
    found = compare_interactions(data, learners, folds=2, length=4, seed=3)
    metrics = {(r.protocol, r.metric) for r in found.records}
    assert metrics == {
        *(("loocv", metric) for metric in ("hr@4", "mrr@4", "ndcg@4")),
        *(("by_time", metric) for metric in ("recall@4", "ndcg@4")),
        *(("lists", metric) for metric in ("coverage@4", "popularity@4")),
    }
    assert found.columns[0] == ("loocv", "ndcg@4")
    assert not any("@10" in sentence for sentence in found.conclusion)
    with refused("length must be a whole number of at least 2, got 1"):
        compare_interactions(data, learners, length=1)


@pytest.mark.parametrize("unseen", [False, True])
def test_tied_scores_against_a_whole_sort(data, unseen):
    """Scores of five values, so that ties are above, at and below the end of the list."""

    class Coarse(Uniform):
        def scores(self, users):
            return (users[:, None] * 7 + np.arange(self.n_items) * 3) % 5

    policy = Coarse(data.n_items)
    views = Views.of(data.log)
    lists = top_items("x", policy, views, np.arange(len(views.users)), k=7, unseen=unseen, seed=3)
    for place, user in enumerate(views.users):
        met = set(views.items[views.starts[place] : views.starts[place + 1]].tolist()) if unseen else set()
        draw = uniforms(3, Stream.PROTOCOL, np.full(data.n_items, user), np.arange(data.n_items))
        score = policy.scores(np.array([user]))[0]
        free = [item for item in range(data.n_items) if item not in met]
        assert lists[place].tolist() == sorted(free, key=lambda item, s=score, d=draw: (-s[item], d[item]))[:7]
