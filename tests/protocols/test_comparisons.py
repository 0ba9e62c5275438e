"""compare in the ratings and campaigns worlds, in a world of one's own, and protocols that others write."""

import numpy as np
import pytest

from recsim_mnar.campaigns.platform import platform_log, run_campaigns, true_quality
from recsim_mnar.campaigns.weighing import weighted_leave_one_out
from recsim_mnar.policies import registry
from recsim_mnar.protocols import ranks
from recsim_mnar.protocols.base import Protocol, check_needs, protocol
from recsim_mnar.protocols.comparison import chosen_protocols, compare, experiment_of
from recsim_mnar.protocols.ratings import RatingsSettings, propensity_fit, reveal
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.features import FeatureParams, FeatureWorld
from toys import refused, small_comparison

SIZES = ("train_users", "test_users", "arm_users", "truth_users")


def learners(*names):
    return {name: registry.learner(name) for name in names}


def values(comparison, protocol_name):
    return {(r.agent, r.metric): r for r in comparison.records if r.protocol == protocol_name}


@pytest.fixture(scope="module")
def ratings():
    world = make_world("ratings", "quick", ["n_items=40", "density=0.1"])
    settings = RatingsSettings(users=300, random_ratings=400)
    return compare(
        world, learners("random", "popularity", "mf-naive-ratings", "mf-ips-ratings"), settings=settings, seed=1
    )


def test_ratings_have_every_estimate_of_every_metric(ratings):
    rating_agents = {"mf-naive-ratings", "mf-ips-ratings"}
    for name in ("naive", "ips", "snips", "ips_estimated", "snips_estimated", "truth"):
        found = values(ratings, name)
        assert {agent for agent, metric in found if metric == "dcg@10"} == {"random", "popularity", *rating_agents}
        for metric in ("mse", "mae"):
            assert {agent for agent, m in found if m == metric} == rating_agents
    assert {(j.protocol, j.target) for j in ratings.judgements} >= {("naive", "MSE"), ("ips", "DCG@10")}
    assert ratings.losses == {"mse", "mae"}


def test_weighted_estimates_hold_the_truth_and_the_naive_one_does_not(ratings):
    truth = values(ratings, "truth")
    for name in ("ips", "snips"):
        for key, r in values(ratings, name).items():
            # Five standard errors; Student's quantile at 299 degrees of freedom is 1.97.
            half = (r.high - r.low) / 2 * 5 / 1.97
            assert abs(r.value - truth[key].value) < half, (name, key)
    naive = values(ratings, "naive")
    for key, r in naive.items():
        if key[1] == "dcg@10":
            assert r.value - truth[key].value > (r.high - r.low) / 2 * 5 / 1.97


def test_estimates_carry_the_error_of_the_propensities(ratings):
    """400 random ratings: with P estimated the ends of what takes them as known are not those that are shown."""
    known, estimated = values(ratings, "ips"), values(ratings, "ips_estimated")
    assert {r.details["verdict_level"] for r in estimated.values()} <= {"caution", "do_not_use"}
    for r in estimated.values():
        assert "estimated" in {finding["code"] for finding in r.details["findings"]}
        assert r.low < r.value < r.high
    for r in known.values():
        assert "estimated" not in {finding["code"] for finding in r.details["findings"]}
    dcg = [key for key in known if key[1] == "dcg@10"]
    width = [(estimated[key].high - estimated[key].low) / (known[key].high - known[key].low) for key in dcg]
    assert np.median(width) > 1.2  # few of the 400 are 5 stars, of which DCG is made


def test_naive_bayes_finds_the_propensities():
    world = make_world("ratings", "quick", ["n_items=40", "density=0.1"])
    matrix, revealed, known = reveal(world, 5, 2000, 6)
    found = propensity_fit(revealed, matrix, "naive_bayes", 20_000, 3)(revealed, np.arange(2000))
    for stars in range(1, 6):
        rows = revealed.values == stars
        assert found[rows][0] == pytest.approx(known[rows].mean(), rel=0.15)
    _, others, _ = reveal(world, 5, 2000, 7)  # a cell is revealed again as often as its propensity says
    again = np.isin(revealed.users * 40 + revealed.items, others.users * 40 + others.items)
    assert abs(again.sum() - known.sum()) < 5 * np.sqrt((known * (1 - known)).sum())


def test_predictions_do_not_depend_on_the_batch(monkeypatch):
    world = make_world("ratings", "quick", ["n_items=20", "density=0.14"])
    train = simulate(world, registry.uniform_policy(20), 100, 5)
    policy = registry.learner("mf-ips-ratings+penalty=0.01").fit(train, n_items=20, seed=0)
    whole = ranks.scores_of_everyone("mf", policy.fresh(), train, 100)
    monkeypatch.setattr(ranks, "_SCORES_AT_A_TIME", 20 * 7)
    np.testing.assert_array_equal(ranks.scores_of_everyone("mf", policy.fresh(), train, 100), whole)


# ----------------------------------------------------------------------------------------------------------- campaigns


@pytest.fixture(scope="module")
def platform_world():
    return make_world("campaigns", "quick", ["n_users=300"])


def test_campaigns_give_the_schemes_scores_and_the_platforms_truth(platform_world):
    agents = learners("random", "popularity", "naive-cf")
    schemes = ["unweighted", "weights+p=20", "weights"]
    found = compare(platform_world, agents, protocols=schemes, seed=4)
    log = found.log
    by_hand = weighted_leave_one_out(
        log, agents, n_items=60, reference_times=300.0, times=[500.0], schemes=schemes, k=5
    )  # fmt: skip
    assert len({r.value for r in by_hand if r.agent == "naive-cf"}) == len(schemes)  # no parameter is lost
    for r in by_hand:
        own = values(found, r.details["scheme"])[r.agent, "hr@5"]
        assert (own.value, own.low, own.high) == (r.value, r.low, r.high)
    platform = run_campaigns(
        platform_world, derive_seed(4, "users"), recommender=registry.learner("naive-cf"), sharpness=1.0
    )
    assert platform_log(platform).digest() == log.digest()
    for name, learner in agents.items():
        truth = values(found, "truth")[name, "accepted"]
        assert truth.value == pytest.approx(true_quality(platform, learner, k=5), rel=1e-12)
    assert {j.protocol for j in found.judgements} == set(schemes)


def test_campaigns_options_reach_the_platform(platform_world):
    experiment = experiment_of(platform_world)
    deployed = compare(
        platform_world, learners("popularity", "naive-cf"), protocols=["unweighted"], seed=4,
        settings=experiment.settings("quick", {"recommender": "deployed", "length": "3"}),
    )  # fmt: skip
    assert {r.metric for r in deployed.records} == {"hr@3", "accepted"}
    with refused("no option 'lenght'"):
        experiment.settings("quick", {"lenght": 3})


# ---------------------------------------------------------------------------------------------------- one's own


class Minutes(FeatureWorld):
    """Its rewards are no clicks."""

    name, reward_name = "radio", "minutes"


def test_reports_name_the_reward_as_the_world_does():
    world = Minutes(params=FeatureParams(reward="linear", noise=0.5))
    settings = experiment_of(world).settings(None, {**dict.fromkeys(SIZES, 60), "logging": "random"})
    agents = learners("random", "constant-list+items=3")
    found = compare(world, agents, protocols=["off_policy", "ab_test"], settings=settings, seed=2)
    assert found.headings[("ab_test", "reward")] == "A/B mean minutes"
    assert {r.metric for r in found.records if r.protocol == "truth"} == {"reward"}
    assert {j.target for j in found.judgements} == {"mean minutes"}
    clicks = experiment_of(make_world("features", "clicks"))
    assert [t.title for t in clicks.targets(clicks.settings())] == ["CTR"]


def test_what_the_log_lacks_is_marked_and_its_number_shown_all_the_same():
    """Of 20 items the log shows one, so it covers a twentieth of random."""
    agents = ["random", "constant-list+items=3"]
    found = small_comparison(agents, 300, protocols=["off_policy"], seed=3, logging="constant-list+items=3")
    random, constant = (values(found, "off_policy")[agent, "clipped_ips"] for agent in agents)
    log = found.log
    shown = log.is_bandit
    weight = (1.0 / 20.0) / log["propensity"][shown]
    assert random.value == pytest.approx(float(np.mean(weight * log["reward"][shown])))
    assert random.details["identified_share"] == pytest.approx(1.0 / 20.0)
    assert random.details["value_identified"] == pytest.approx(constant.value)
    assert (random.usable, constant.usable) == (False, True)
    assert "identified" not in constant.details
    assert random.details["identified"].startswith("The log covers 5 % of what random shows; there it earns ")
    (judgement,) = found.judgements
    assert (judgement.n_agents, judgement.unusable, judgement.pick) == (2, ("random",), "constant-list+items=3")


class MostClicks(Protocol):
    """Gives no record."""

    name = "most_clicks"
    metrics = ("clicks",)

    def judge(self, study):
        return []


def test_a_protocol_that_says_nothing_is_named():
    with refused(r"'most_clicks': judge\(\) gave no record"):
        small_comparison(["random"], protocols=[MostClicks()])


def test_one_agent_leaves_nothing_to_choose():
    found = small_comparison(["random"], protocols=["off_policy"])
    assert found.judgements == []
    assert any("nothing to choose" in note for note in found.notes)
    with refused("at least one agent"):
        small_comparison({})
    with refused("tie must be"):
        small_comparison(["random"], tie=1.0)


class Greedy(MostClicks):
    needs = frozenset({"propensites"})


def test_protocols_are_found_by_name_and_checked(monkeypatch):
    assert protocol("loocv+folds=3").folds == 3
    assert protocol("loocv+folds=3").name == "loocv+folds=3"
    assert protocol(f"{__name__}:MostClicks").name == MostClicks.name
    for taken in ("truth", "loocv"):  # else its records would be read as theirs
        with monkeypatch.context() as patch:
            patch.setattr(MostClicks, "name", taken)
            with refused(f"has the name '{taken}'"):
                protocol(f"{__name__}:MostClicks")
    with refused("'most_clicks' is there twice"):
        small_comparison(["random", "popularity"], protocols=[f"{__name__}:MostClicks"] * 2)
    for spec, words in (
        ("locv", "did you mean 'loocv'"),
        ("no.such:Thing", "module 'no.such' cannot be imported"),
        (f"{__name__}:learners", "must be a class with judge"),
    ):
        with refused(words):
            protocol(spec)
    with refused("needs 'propensites'; did you mean 'propensities'"):
        check_needs(Greedy(), frozenset(), "sessions")
    world = make_world("campaigns", "quick")
    with refused("needs users"):
        chosen_protocols(experiment_of(world), ["ab_test"], "campaigns")
