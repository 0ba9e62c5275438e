import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from recsim_mnar.estimators.intervals import user_mean_interval
from recsim_mnar.log import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies import registry
from recsim_mnar.protocols.base import Trial
from recsim_mnar.protocols.comparison import Setup, experiment_of
from recsim_mnar.protocols.leave_one_out import LeaveOneOut, leave_one_out
from recsim_mnar.protocols.ranks import exhaustive_ranks
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation import simulate
from toys import Stub, refused, small_comparison
from twins.cases import quick_first
from twins.logs import log_of

AGENTS = ("random", "popularity", "user-popularity", "user-popularity-greedy", "svd+rank=4", "item-knn", "user-knn")
DOWNDATED = (
    "random", "constant+item=2", "popularity", "user-popularity-greedy", "item-knn+neighbours=3",
    "user-knn+neighbours=3", "user-knn+neighbours=1",
)  # fmt: skip
RANDOM = {"random": registry.learner("random")}


def make_log(seed=3, n_users=40, n_items=15, longest=9, bandit=True):
    """A log in which every third row is a recommendation; some users have one view, and one has none."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        n = 0 if user == 4 else int(generator.integers(1, longest + 1))
        viewed = (n_items * generator.random(n) ** 2).astype(int)
        step = 0
        for item in viewed:
            if bandit and step % 3 == 2:
                rows.append((10 * user, -1, int(generator.integers(n_items)), 1 / n_items, 0.0))
                step += 1
            rows.append((10 * user, item, -1, math.nan, math.nan))
            step += 1
    return log_of(*np.transpose(rows))


def views_of(log):
    """Rows of each user's views, user by user."""
    return {u: np.flatnonzero((log["user"] == u) & (log["event"] == 0)) for u in np.unique(log["user"])}


def rank_of(policy, user, rest, target, *, unseen, draw=None):
    """Plain loops over the other items; of the tied, ``draw`` of them come first, or those of lower numbers."""
    for item in rest:
        policy.observe(np.array([user]), np.array([item]))
    scores = np.asarray(policy.scores(np.array([user]))[0], float)
    others = [i for i in range(len(scores)) if i != target and not (unseen and i in rest)]
    better = sum(scores[i] > scores[target] for i in others)
    tied = [i for i in others if scores[i] == scores[target]]
    return 1 + better + (sum(i < target for i in tied) if draw is None else int(draw * (len(tied) + 1)))


def naive_ranks(log, learner, n_items, folds, seed, unseen, train=None, ties="drawn"):
    """Ranks (folds, users with two views): fitted without the held-out rows, or on ``train`` alone."""
    rows_of = {user: rows for user, rows in views_of(log).items() if len(rows) >= 2}
    ranks = np.zeros((folds, len(rows_of)))
    for fold in range(folds):
        held = {u: rows[int(uniforms(seed, Stream.PROTOCOL, u, fold)[0] * len(rows))] for u, rows in rows_of.items()}
        left = log.select(np.setdiff1d(np.arange(len(log)), list(held.values())))
        policy = learner.fit(left if train is None else train, n_items=n_items, seed=derive_seed(seed, "fit"))
        for place, (user, row) in enumerate(held.items()):
            own = np.array([user])
            policy.reset_training_users(own, own) if train is None else policy.reset(own)
            draw = uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, user, fold)[0] if ties == "drawn" else None
            rest = log["item"][rows_of[user][rows_of[user] != row]]
            ranks[fold, place] = rank_of(policy, user, rest, log["item"][row], unseen=unseen, draw=draw)
    return ranks


@pytest.mark.parametrize("candidates", ["all", "unseen"])
@pytest.mark.parametrize("name", DOWNDATED)
def test_ranks_without_each_view_equal_refitting(name, candidates):
    log, unseen = make_log(n_users=15, longest=6), candidates == "unseen"
    learner = registry.learner(name)
    above, n_tied = exhaustive_ranks(name, learner, log, Views.of(log), 15, unseen, 2)
    compared = 0
    for position, row in enumerate(np.flatnonzero(log["event"] == 0)):
        user = log["user"][row : row + 1]
        rest = log.select(np.delete(np.arange(len(log)), row))
        own = rest["item"][(rest["user"] == user[0]) & (rest["event"] == 0)]
        if len(own) == 0:
            continue
        policy = learner.fit(rest, n_items=15, seed=derive_seed(2, "fit"))
        for draw in (0.0, 1.0 - 1e-12):  # first and last of those level with it
            policy.reset_training_users(user, user)
            rank = rank_of(policy, user[0], own, log["item"][row], unseen=unseen, draw=draw)
            assert rank == 1 + above[position] + int(draw * (n_tied[position] + 1))
        compared += 1
    assert compared > 20


def of_list(what, rank, k):
    """A metric of one list, by its definition for any number of wanted items: here one, at this rank."""
    found = [1 if place == rank else 0 for place in range(1, k + 1)]
    if what == "hr":
        return float(any(found))
    if what == "mrr":
        return next((1 / place for place, hit in enumerate(found, 1) if hit), 0.0)
    return sum(hit / math.log2(place + 1) for place, hit in enumerate(found, 1)) / (1 / math.log2(2))


@pytest.mark.parametrize("candidates", ["all", "unseen"])
@pytest.mark.parametrize("name", AGENTS)
def test_against_plain_loops(name, candidates):
    log, ks, learner = make_log(), (1, 5, 15), registry.learner(name)
    whats = ("ndcg", "hr", "mrr")
    sizes = {"n_items": 15, "folds": 3, "ks": ks, "metrics": whats}
    records = leave_one_out(log, {name: learner}, seed=11, candidates=candidates, world="w", **sizes)
    ranks = naive_ranks(log, learner, 15, 3, 11, candidates == "unseen").astype(int)
    assert [r.metric for r in records] == [f"{what}@{k}" for k in ks for what in whats]
    for record in records:
        what, k = record.metric.split("@")
        by_user = [np.mean([of_list(what, rank, int(k)) for rank in one]) for one in ranks.T]
        assert (record.value, record.low, record.high) == pytest.approx(user_mean_interval(by_user, 0.95), abs=1e-12)
        assert (record.world, record.protocol, record.agent, record.n) == ("w", "loocv", name, ranks.shape[1])
        assert record.details["users_left_out"] == 39 - ranks.shape[1]


def other_users():
    """A log of other people under the same ids, so that an agent that mixes them up is found out."""
    return make_log(seed=8, n_users=25)


@pytest.mark.parametrize(
    ("one_view", "ties", "candidates"),
    quick_first([("omit", "lowest", "all"), ("miss", "lowest", "unseen"), ("omit", "drawn", "unseen"),
                 ("miss", "drawn", "all")], 2),
)  # fmt: skip
@pytest.mark.parametrize("name", AGENTS)
def test_fitted_on_other_users_against_plain_loops(name, one_view, ties, candidates):
    log, train, learner = make_log(), other_users(), registry.learner(name)
    records = leave_one_out(
        log, {name: learner}, n_items=15, folds=3, seed=11, ks=(1, 5), candidates=candidates, train=train,
        one_view=one_view, ties=ties,
    )  # fmt: skip
    ranks = naive_ranks(log, learner, 15, 3, 11, candidates == "unseen", train, ties)
    single = sum(len(rows) == 1 for rows in views_of(log).values())
    assert single > 2
    n = ranks.shape[1] + (single if one_view == "miss" else 0)
    expected = {
        f"{metric}@{k}": np.sum((ranks <= k) * (1.0 if metric == "hr" else 1.0 / ranks)) / 3 / n
        for k in (1, 5)
        for metric in ("hr", "mrr")
    }
    assert {r.metric: pytest.approx(r.value, abs=1e-12) for r in records} == expected
    for record in records:
        assert record.n == n
        assert record.details["fit_on"] == "train"
        assert (record.details["users_left_out"], record.details.get("users_missed")) == (
            (single, None) if one_view == "omit" else (0, single)
        )


def test_users_of_one_view_lower_a_refitted_rate_in_proportion():
    log, learners = make_log(), {"user-popularity": registry.learner("user-popularity")}
    without, counted = (leave_one_out(log, learners, n_items=15, one_view=how)[0] for how in ("omit", "miss"))
    assert counted.n == without.n + without.details["users_left_out"]
    assert counted.value == pytest.approx(without.value * without.n / counted.n, abs=1e-12)
    assert counted.high < without.high


@pytest.mark.parametrize("train", [None, "other users"])
def test_folds_side_by_side_change_nothing(train):
    """Refitted, and on states of their own where the fit is shared."""
    learners = {name: registry.learner(name) for name in AGENTS}
    arguments = {"train": other_users(), "one_view": "miss", "ties": "lowest"} if train else {}

    def found(**more):
        records = leave_one_out(make_log(), learners, n_items=15, folds=4, **arguments, **more)
        return [(r.agent, r.metric, r.value, r.low, r.high, r.n, r.details) for r in records]

    with ThreadPoolExecutor(3) as executor:
        assert found(executor=executor) == found()


PAPER = "loocv+fit_on=train+logging=random+one_view=miss+ties=lowest"


def test_a_comparison_offers_the_papers_definition():
    """The protocol's options in ``compare``: the training log, the logging policy, users of one view, ties."""
    sizes = {"train_users": 60, "test_users": 50, "folds": 2, "arm_users": 20, "truth_users": 20}
    params = {"n_items": 30, "n_flips": 5}
    setup = Setup("sessions", "quick", params=params, agents=AGENTS[:3], protocols=(PAPER, "loocv"), options=sizes)
    resolved = setup.resolved()
    found = resolved.run(4)
    trial = Trial(
        resolved.world, {n: registry.learner(n) for n in AGENTS[:3]}, resolved.settings, 4, n_items=30, level=0.95
    )
    experiment = experiment_of(resolved.world)
    experiment.prepare(trial)
    uniform = registry.learner("random").fit(trial.train_log, n_items=30)
    log = simulate(resolved.world, uniform, 50, trial.test_seed)
    by_hand = leave_one_out(
        log, trial.learners, n_items=30, folds=2, seed=trial.seed_of("loocv"), train=trial.train_log, one_view="miss",
        ties="lowest",
    )  # fmt: skip
    values = {(r.agent, r.metric): r.value for r in found.records if r.protocol == PAPER}
    assert values == {(r.agent, r.metric): r.value for r in by_hand}
    assert {j.protocol for j in found.judgements} == {PAPER, "loocv"}


ONE, LISTS = 1, 3


def compared(slate_size, protocols):
    return small_comparison(AGENTS[:3], protocols=protocols, world=[f"slate_size={slate_size}"], folds=2)


def test_where_users_are_shown_lists_these_are_judged():
    lists, single = compared(LISTS, ["loocv"]), compared(ONE, ["loocv", "loocv+ties=lowest+k=3"])
    metrics = ["hr@3", "mrr@3", "ndcg@3"]
    assert list(dict.fromkeys(r.metric for r in lists.records if r.protocol == "loocv")) == metrics
    assert [j.metric for j in lists.judgements] == metrics
    # Items one at a time: HR@1 as ever, and lists where they are asked for.
    own = {r.metric for r in single.records if r.protocol == "loocv"}
    assert own == {"hr@1", "mrr@1", "hr@10", "mrr@10"}
    assert [(j.metric, j.title) for j in single.judgements] == [
        ("hr@1", "leave-one-out (HR@1)"),
        *((metric, f"leave-one-out ({metric.upper()}, ties=lowest)") for metric in metrics),
    ]


@pytest.mark.slow
def test_a_protocol_forgets_the_lists_of_another_world():
    one = LeaveOneOut()
    kinds = (LISTS, ONE, LISTS)
    found = [[j.metric for j in compared(kind, [one]).judgements] for kind in kinds]
    assert found == [["hr@3", "mrr@3", "ndcg@3"], ["hr@1"], ["hr@3", "mrr@3", "ndcg@3"]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("loocv+k=0", "k must be a whole number of at least 1, got 0"),
        ("loocv+fit_on=test", "fit_on must be one of rest, train"),
        ("loocv+train=yes", "not parameter=value"),
        ("loocv+folds=0", "folds must be a whole number of at least 1, got 0"),
        ("loocv+fit_on=train+fit_on=rest", "fit_on is given twice. Give it once"),
        ("loocv+fit_on", "fit_on has no value. Write fit_on=VALUE"),
    ],
)
def test_unknown_options_of_the_protocol_are_refused(spec, message):
    with refused(message):
        Setup("sessions", "quick", protocols=(spec,)).resolved()


@pytest.mark.parametrize("world", ["ratings", "campaigns"])
@pytest.mark.parametrize("option", ["fit_on=train", "logging=random"])
def test_a_world_that_trains_on_the_judged_users_refuses(world, option):
    """Its training log holds the views that would be held out."""
    with refused("needs users"):
        Setup(world, "quick", protocols=(f"loocv+{option}",)).resolved()


def test_softened_agents_rank_as_those_within():
    log = make_log()
    names = ("item-knn", "item-knn+epsilon=0.3", "item-knn+temperature=2")
    records = leave_one_out(log, {n: registry.learner(n) for n in names}, n_items=15)
    values = {n: [r.value for r in records if r.agent == n] for n in names}
    assert values[names[0]] == values[names[1]] == values[names[2]]


def test_bandit_rows_stay_in_the_training_data():
    log = make_log()
    saver = Stub(lambda user, n: np.zeros(n))
    records = leave_one_out(log, {"saver": saver}, n_items=15, folds=2)
    for train, _ in saver.fits:
        assert train.is_bandit.sum() == log.is_bandit.sum() > 0
        assert len(log) - len(train) == records[0].n
        train.validate(15)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda user, n: np.full(n, np.nan), "NaN"),
        (lambda user, n: np.zeros(n + 1), r"must return numbers of shape"),
    ],
)
def test_bad_scores_are_refused(score, message):
    with refused(message):
        leave_one_out(make_log(), {"mine": Stub(score)}, n_items=15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": "moon"}, "train must be a Log of other users, got 'moon'"),
        ({"candidates": "some"}, "candidates"),
        ({"seed": -1}, "seed"),
        ({"n_items": 3}, "items must be in"),
        ({"one_view": "skip"}, "one_view must be one of omit, miss"),
        ({"ties": "first"}, "ties must be one of drawn, lowest"),
        ({"log": make_log().select(slice(None, None, -1))}, "out of order"),
        ({"log": make_log(longest=1, bandit=False)}, "at least two views"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with refused(message):
        leave_one_out(**{"log": make_log(), "learners": RANDOM, "n_items": 15, **change})


def reordered(log, rows):
    return log.select(np.random.default_rng(0).permutation(rows))


LEAKS = {
    "its views in another order": lambda log: reordered(log.organic(), len(log.organic())),
    "more than the log": lambda log: Log.concat([log, renamed(other_users(), 1_000)]),
    "more under the same ids": lambda log: Log.concat([log, other_users()]),
    "some of its users among others": lambda log: Log.concat(
        [log.select(log["user"] < 100), renamed(other_users(), 1_000)]
    ),
    "some of its rows": lambda log: log.select(np.arange(len(log)) % 4 > 0),
}
NO_LEAKS = {
    "other users under the same ids": lambda log: other_users(),
    "other users": lambda log: renamed(other_users(), 1_000),
}


def renamed(log, by):
    return log.with_column("user", log["user"] + by)


@pytest.mark.parametrize("leak", LEAKS)
def test_a_training_log_with_judged_views_is_refused(leak):
    log = make_log()
    with refused("train holds views that are judged"):
        leave_one_out(log, RANDOM, n_items=15, train=LEAKS[leak](log))


@pytest.mark.parametrize("train", NO_LEAKS)
def test_a_training_log_without_judged_views_is_taken(train):
    log = make_log()
    assert leave_one_out(log, RANDOM, n_items=15, train=NO_LEAKS[train](log))


def test_the_same_users_earlier_rows_are_no_judged_views():
    log = make_log(longest=20)
    earlier, later = log.select(log["step"] < 10), log.select(log["step"] >= 10)
    assert leave_one_out(later, RANDOM, n_items=15, train=earlier)


def test_people_of_few_tastes_under_the_same_ids_are_no_leak():
    """Half of all views are of one item: one user in fourteen agrees in both views by chance."""
    g = np.random.default_rng(1)

    def drawn(n=400):
        return log_of(np.repeat(np.arange(n), 2), np.where(g.random(2 * n) < 0.5, 0, g.integers(1, 15, 2 * n)))

    assert leave_one_out(drawn(), RANDOM, n_items=15, train=drawn())


def test_a_fit_refuses_rows_out_of_order():
    with refused("out of order"):
        registry.learner("user-knn").fit(make_log().select(slice(None, None, -1)), n_items=15)


@pytest.mark.parametrize("no_repeats", [False, True])
def test_a_comparison_ranks_what_users_may_still_view(no_repeats):
    sizes = {"train_users": 40, "test_users": 40, "folds": 2}
    params = {"n_items": 30, "n_flips": 5, "no_repeats": no_repeats}
    setup = Setup(
        "sessions", "quick", params=params, agents=("random", "popularity"), protocols=("loocv",), options=sizes
    )
    records = [r for r in setup.resolved().run(0).records if r.protocol == "loocv"]
    assert {r.details["candidates"] for r in records} == {"unseen" if no_repeats else "all"}


@pytest.mark.parametrize(("spec", "refits"), [("loocv", True), ("loocv+fit_on=train", False), ("holdout", True)])
def test_the_screen_says_which_users_the_models_were_fitted_on(spec, refits):
    sizes = {"train_users": 47, "test_users": 60, "arm_users": 30, "truth_users": 30, "folds": 1}
    setup = Setup(preset="quick", params={"n_items": 20, "n_flips": 5}, options=sizes, protocols=(spec,))
    hints = setup.resolved().run(0).hints
    assert any("47" in hint and "refitted" in hint for hint in hints) == refits


@pytest.mark.parametrize(
    ("logging", "clip", "remarks"),
    [("item-knn", 15.0, 1), ("random", 2.0, 1), ("random", 100.0, 0), ("item-knn+epsilon=0.5", 100.0, 0)],
)
def test_the_screen_says_where_a_log_or_its_clip_decides_the_estimates(logging, clip, remarks):
    sizes = {"train_users": 60, "test_users": 60, "arm_users": 30, "truth_users": 30, "logging": logging, "clip": clip}
    params = {"n_items": 20, "n_flips": 10}
    setup = Setup(preset="quick", params=params, options=sizes, protocols=("off_policy",))
    assert len(setup.resolved().run(0).hints) == remarks


@pytest.mark.parametrize(
    ("world", "preset", "params", "set_too"),
    [
        ("sessions", "quick", {"n_items": 1000}, ["n_flips=500"]),
        ("sessions", "quick", {"n_items": 1000, "n_flips": 100}, []),
        ("sessions", "recogym-v1", {"n_items": 1000}, []),
        ("campaigns", "quick", {"n_items": 120}, ["n_never=20", "never_from=60"]),
    ],
)
def test_counts_of_items_that_were_left_behind_are_named(world, preset, params, set_too):
    remarks = Setup(world, preset, params).resolved().left_behind()
    assert all(setting in remarks[0] for setting in set_too)
    assert len(remarks) == bool(set_too)
