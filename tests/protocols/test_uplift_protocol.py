"""The uplift protocol: its estimates against the truth, its A/B test against the world's own lanes, its command."""

import json

import numpy as np
import pytest

from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.purchases.comparison import (
    METRICS,
    TRAINED,
    PurchasesExperiment,
    UpliftSettings,
    draw_period,
    purchases_as_views,
)
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.rng import derive_seed
from toys import refused
from twins.commands import fails, run
from twins.exposures import until
from twins.purchases_log import propensity_matrix

QUICK = ("compare", "--world", "purchases", "--preset", "quick")
TINY = ("--set", "n_items=20", "--agents", "random,popularity,item-knn")
SIZES = ("--option", "train_users=120", "--option", "length=5")


def world(**more):
    return PurchasesWorld(PurchasesParams(**{"n_items": 20, "n_periods": 3, "slate_size": 4, "base": -2.0, **more}))


def compared(of, agents, seed=0, protocols=("uplift", "ab_test"), **settings):
    sizes = {"users": 300, "test_periods": 4, "length": 5, **settings}
    learners = {name: registry.learner(name) for name in agents}
    return compare(of, learners, protocols=protocols, settings=UpliftSettings(**sizes), seed=seed)


def values(comparison):
    return {(r.agent, r.metric): r for r in comparison.records}


def errors_from(record, truth):
    """Distance from the truth in standard errors; t's quantile at these sizes is 1.97."""
    return abs(record.value - truth) / ((record.high - record.low) / 2 / 1.97)


# -------------------------------------------------------------------------------------------------- against the truth


def test_estimates_agree_with_the_truth_where_recommendations_are_random():
    agents = ["random", "popularity", "item-knn"]
    found = values(compared(world(deployment="uniform"), agents, protocols=["uplift"], users=1000, length=10))
    for agent in (*agents, "deployed", "oracle"):
        truth = found[agent, "cp@10"].value
        for metric in ("uplift@10", "uplift_ips@10"):
            assert errors_from(found[agent, metric], truth) < 5


def test_the_ab_test_agrees_with_the_truth():
    found = compared(world(), ["random", "popularity"], protocols=["ab_test"], users=1000)
    assert {r.protocol for r in found.records} == {"ab_test", "truth"}
    found = values(found)
    for agent in ("random", "popularity", "deployed", "oracle"):
        assert errors_from(found[agent, "uplift@5"], found[agent, "cp@5"].value) < 5


def test_an_ab_test_of_few_users_is_not_to_be_used():
    few, many = (values(compared(world(), ["popularity"], protocols=["ab_test"], users=n)) for n in (40, 2000))
    codes = {finding["code"] for finding in few["popularity", "uplift@5"].details["findings"]}
    assert (few["popularity", "uplift@5"].details["verdict_level"], "few_users" in codes) == ("do_not_use", True)
    codes = {finding["code"] for finding in many["popularity", "uplift@5"].details["findings"]}
    assert "few_users" not in codes


def test_precision_expects_what_the_deployed_recommender_sells():
    of = world()
    comparison = compared(of, ["popularity"], protocols=["uplift"], users=1000)
    record = values(comparison)["popularity", "precision@5"]
    seed, users = derive_seed(0, "users"), np.arange(1000)
    truth, shown = of.outcomes_of(seed, users), of.deployed_propensities(seed, users)
    probability = shown * truth.treated + (1 - shown) * truth.control
    past = purchases_as_views(until(comparison.exposures, 3))["item"]
    top = np.argsort(-np.bincount(past, minlength=20), kind="stable")[:5]
    assert errors_from(record, probability[:, top].mean()) < 5


def test_the_ab_test_shows_the_slates_as_the_world_would():
    of, n = world(), 40
    lists = np.array([np.random.default_rng(u).permutation(20)[:5] for u in range(n)])
    longer, seed, everyone = of.lasting(2), 9, np.arange(n)
    lanes = longer.open_lanes(n)
    lanes.begin(everyone, np.full(n, seed, np.uint64), everyone)
    shown_bought = np.zeros(n)
    for _ in range(2):
        c = lanes.take(everyone, lists, np.ones(lists.shape)).columns
        shown_bought += np.bincount(c["user"][c["reward"] == 1], minlength=n)
    own = sum(draw_period(of, {"mine": lists}, seed, t) for t in range(2))[0]
    np.testing.assert_array_equal(own[0], shown_bought)


def test_agents_learn_from_the_past_only_and_from_every_purchase():
    comparison = compared(world(), ["popularity"])
    exposures = comparison.exposures
    past = until(exposures, 3)
    assert (exposures.n_periods, past.n_periods, past.time.max()) == (7, 3, 2)
    views = purchases_as_views(past).validate(20)
    assert len(views) == past.purchased.sum() > (past.purchased & ~past.recommended).sum()
    assert not views.is_bandit.any()
    np.testing.assert_allclose(propensity_matrix(past), propensity_matrix(exposures, 5))


def test_an_agents_numbers_do_not_depend_on_who_else_is_judged():
    alone, among = (
        values(compared(world(), agents)) for agents in (["item-knn"], ["random", "popularity", "item-knn"])
    )
    for (agent, metric), record in alone.items():
        assert record.value == among[agent, metric].value


# ------------------------------------------------------------------------------------------------------ judging metrics


def test_the_oracle_is_the_largest_true_uplift():
    comparison = compared(world(), ["random", "popularity", "item-knn"])
    true = {r.agent: r.value for r in comparison.records if r.metric == "cp@5"}
    assert max(true, key=true.get) == "oracle"
    assert {j.best for j in comparison.judgements} <= {"random", "popularity", "item-knn"}


# ---------------------------------------------------------------------------------------------------- the command


def test_the_command_writes_what_it_promises_and_the_same_for_any_workers(capsys, tmp_path):
    results = []
    for workers in (1, 3):
        out = tmp_path / str(workers)
        assert run(capsys, *QUICK, *TINY, *SIZES, "--workers", workers, "--out", out)[0] == 0
        results.append([(out / name).read_bytes() for name in ("results.json", "summary.json", "report.html")])
    assert results[0] == results[1]
    records = json.loads(results[0][0])["records"]
    assert {r["agent"] for r in records} == {"random", "popularity", "item-knn", "deployed", "oracle"}
    assert {(r["protocol"], r["metric"]) for r in records} == {
        *(("uplift", f"{m}@5") for m in METRICS),
        ("ab_test", "uplift@5"), ("truth", "cp@5"),
    }  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())
    assert [j["metric"] for j in summary["judgements"]] == [*(f"{m}@5" for m in METRICS), "uplift@5"]
    assert summary["agents"] == {"random": "random", "popularity": "popularity", "item-knn": "item-knn"}
    assert len(Log.read(out / "log").validate(20).users()) == 120
    assert Exposures.read(out).n_periods == 8


def test_factor_models_are_trained_as_the_settings_say_unless_their_names_do():
    experiment = PurchasesExperiment()
    settings = experiment.settings("quick")
    specs = experiment.specs("quick", settings)
    assert specs["bpr"] == f"bpr+{settings.training}"
    assert set(specs) == set(TRAINED)
    for preset in ("quick", "personalised"):
        for spec in experiment.specs(preset, experiment.settings(preset)).values():
            registry.learner(spec)  # known to all of them


BAD = [
    (["--option", "length=60"], "lists of N = 60 items cannot be made of 20 items: choose N in 1..20"),
    (["--option", "test_periods=0"], "test_periods must be a whole number of at least 1"),
    (["--option", "metrics=uplift_snisp"], "metrics must be one of"),
    (["--protocols", "loocv"], "protocol 'loocv' needs test_log"),
    (["--agents", "random,popularity+epsilon=0.1"], "softening would change nothing"),
    (["--option", "test_users=5"], "--option: this world's comparison has no option 'test_users'"),
    (["--clip", "0.5"], "clip must be at least 1"),
    (["--option", "train_users=1"], "train_users must be at least 2"),
    (["--option", "length=1", "--option", "metrics=uplift"], "uplift has no estimate"),
]


@pytest.mark.parametrize(("more", "words"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_mistakes_are_one_line(capsys, tmp_path, more, words):
    assert words in fails(capsys, *QUICK, *TINY, "--out", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()


def test_an_agent_that_gives_no_numbers_is_named(monkeypatch):
    class Nothing(type(registry.learner("popularity").inner)):
        def fit(self, log, *, n_items, seed=0):
            policy = super().fit(log, n_items=n_items, seed=seed)
            policy.item_scores = np.full(n_items, np.nan)
            return policy

    with refused("agent 'mine': a score is not a number"):
        compare(world(), {"mine": Nothing()}, settings=UpliftSettings(users=20, length=5))
