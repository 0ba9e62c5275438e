"""What is wrong with a world's parameters, matrices and calls is said in one line; one table for all worlds."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.campaigns import CampaignsParams, CampaignsWorld
from recsim_mnar.campaigns.platform import run_campaign
from recsim_mnar.envs import WorldEnv
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.purchases.policies import DeployedPolicy, SlatePolicy, propensity_table
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import WORLDS, make_world
from recsim_mnar.worlds.features import FeatureWorld
from recsim_mnar.worlds.ratings import RatingsParams, RatingsWorld, alpha_propensities, rerank
from recsim_mnar.worlds.ratings.observation import popularity_propensities
from recsim_mnar.worlds.sessions import SessionsParams
from toys import refused, untrained

SMALL = {"n_items": 9, "n_periods": 3, "slate_size": 3}
"""Parameters of the purchases world."""

PARAMETERS = {
    "sessions": [
        ({"n_items": 0}, "n_items must be at least 1"),
        ({"n_items": 20_000_000}, "n_items must be at most 10,000,000"),
        ({"n_items": 2.5}, "whole number"),
        ({"n_items": "many"}, "whole number"),
        ({"n_factors": 0}, r"n_factors must be in 1\.\.1000"),
        ({"n_flips": 6}, "n_flips"),
        ({"n_flips": -1}, "n_flips"),
        ({"sigma_omega": -0.1}, "sigma_omega must not be negative, got -0.1"),
        ({"sigma_mu_organic": float("nan")}, "finite"),
        ({"p_organic_to_bandit": 1.2}, r"p_organic_to_bandit must be in \[0, 1\]"),
        ({"p_organic_to_bandit": 0.8, "p_leave_organic": 0.3}, "staying"),
        ({"p_bandit_to_organic": 0.8, "p_leave_bandit": 0.3}, "staying"),
        ({"p_leave_organic": 0.0, "p_leave_bandit": 0.0}, "never leave"),
        ({"clock": "sundial"}, "clock must be one of unit, normal"),
        ({"click_link": "probit"}, "click_link must be one of recogym, logistic"),
        ({"catalogue_member": -1}, "catalogue_member must be at least 0"),
        ({"normalize_beta": "perhaps"}, "true or false"),
        ({"catalogue_seed": -1}, "catalogue_seed"),
        ({"n_itmes": 3}, "n_items"),
    ],
    "campaigns": [
        ({"n_users": 0}, "n_users must be at least 1"),
        ({"n_users": 2**31}, r"n_users must be below 2\*\*31"),
        ({"starting_items": 0}, "starting_items must be at least 1"),
        ({"acceptance": 0}, r"acceptance must be in \(0, 1\]"),
        ({"delay": 1.5}, r"delay must be in \(0, 1\]"),
        ({"fatigue": 9}, "acceptance times fatigue"),
        ({"n_never": 150}, "n_never = 150"),
        ({"n_focus": 100}, "n_focus = 100"),
        ({"n_promoted": 181}, "n_promoted must be"),
        ({"user_growth": 1}, r"user_growth must be in \[0, 1\)"),
        ({"taste": -1}, "taste must not be negative"),
        ({"fading": 0}, "fading must be above 0"),
        ({"n_factors": 3}, "unknown keyword"),
    ],
    "purchases": [
        ({**SMALL, "slate_size": 10}, "slate_size = 10 is larger than the number of items, n_items = 9"),
        ({**SMALL, "deployment": "best"}, "deployment must be one of uniform, popularity, personalised"),
        ({**SMALL, "smallest_propensity": 0.0}, "0 < smallest <= largest < 1"),
        ({**SMALL, "largest_propensity": 1.0}, "a probability of both"),
        ({**SMALL, "slate_size": 9}, "cannot be reached with propensities"),
        ({**SMALL, "n_periods": 0}, "n_periods must be at least 1"),
        ({**SMALL, "n_items": 2**30, "n_periods": 9, "smallest_propensity": 1e-10}, r"below 2\*\*32"),
        ({**SMALL, "exponent": -1}, "exponent must not be negative"),
    ],
    "ratings": [
        ({"alpha": 0.0}, "alpha must be"),
        ({"density": 2.0}, "density must be"),
        ({"observation": "x"}, "observation must be one of"),
        ({"n_decisions": 0}, "n_decisions must be"),
        ({"n_items": 0}, "n_items must be"),
        ({"sigma_noise": -1}, "sigma_noise must not"),
        ({"marginals": "0.5,0.5"}, "five shares"),
        ({"marginals": "a,b,c,d,e"}, "five shares"),
        ({"marginals": "0.5,0.5,0.5,0.5,-1"}, "five shares"),
        ({"density": 0.3}, "cannot be reached at alpha = 0.25.*lower density to 0.146"),
        ({"ratings_file": "/nowhere/r.csv"}, "/nowhere/r.csv does not exist"),
        ({"ratings_file": "/nowhere/r.npz"}, "/nowhere/r.npz does not exist"),
    ],
    "features": [
        ({"file": "nowhere.npz"}, "does not exist"),
        ({"noise": -1}, "noise must not be negative"),
        ({"lengths": "long"}, "lengths must be one of fixed, geometric"),
    ],
}
PRESET = {"campaigns": "viadeo"}


@pytest.mark.parametrize(
    ("world", "values", "words"), [(world, *case) for world, cases in PARAMETERS.items() for case in cases]
)
def test_a_parameter_that_breaks_a_rule_is_named(world, values, words):
    with refused(words):
        make_world(world, PRESET.get(world), values)


def world_of_slates(**changed):
    return PurchasesWorld(PurchasesParams(**{**SMALL, **changed}))


def some(world, spec="random", users=5):
    """A policy fitted on a few users of the world, if it needs any."""
    random = untrained("random", world.n_items)
    return random if spec == "random" else registry.learner(spec).fit(simulate(world, random, users), n_items=9)


def platform(**given):
    """One of 30 items and 30 users on its tenth day, and what its first addition was."""
    params = {"n_users": 30, "n_items": 30, "n_never": 5, "never_from": 15, "n_focus": 2}
    opened = CampaignsWorld(CampaignsParams(**{**params, **given})).open_platform(0)
    opened.advance(10)
    return opened, opened._additions["users"][:1].astype(np.int64), opened._additions["items"][:1]


def called(method, *arguments, **named):
    return lambda: getattr(platform()[0], method)(*arguments, **named)


def listed_twice():
    living = platform()[0]
    free = living.draw_lists(np.ones(30), np.array([0]), 1)[0]
    living.recommend(np.tile(free, (1, 2)), users=np.array([0]))


def held_already():
    living, user, item = platform()
    living.recommend(item[None], users=user)


def before_anybody():
    world = CampaignsWorld(CampaignsParams(n_users=1, n_items=30, n_never=5, never_from=15, user_growth=0.999))
    run_campaign(world.open_platform(next(s for s in range(50) if world.open_platform(s).arrival[0] > 1)))


EVEN = np.full((2, 9), 0.5)
CALLS = [
    # sessions
    (lambda: SessionsParams().with_settings(["n_items"]), "--set n_items: write it as name=value"),
    (lambda: SessionsParams().with_settings(["sigma_omegas=1"]), "did you mean 'sigma_omega'"),
    (
        lambda: make_world("sessions", None, {"n_itms": 5}),
        r"^(?!.*--set)unknown keyword 'n_itms'; did you mean 'n_items'",
    ),
    (lambda: SessionsParams.from_recogym({"num_product": 3}), "num_products"),
    (lambda: SessionsParams(slate_size=1000), r"^slate_size must be at most 100, got 1000$"),
    (lambda: SessionsParams(slate_size=11), r"^slate_size must be at most n_items = 10, got 11: a slate shows"),
    (lambda: SessionsParams(clicks="two"), r"clicks must be 'one' \(at most one in a slate\) or 'several', got 'two'"),
    (
        lambda: make_world("sessions", None, ["slate_size=3", "continues=0.5"]),
        "^--set continues=0.5 has no effect with user_model = position: set user_model=cascade, or leave it out$",
    ),
    (
        lambda: make_world("sessions", None, {"slate_size": 3, "user_model": "cascade", "examination": 2}),
        "^examination=2.0 has no effect with user_model = cascade: set user_model=position",
    ),
    (
        lambda: make_world("sessions", None, ["user_model=cascade"]),
        "^--set user_model=cascade has no effect with slate_size = 1: set slate_size above 1",
    ),
    (
        lambda: make_world(
            "sessions", None, ["slate_size=3", "user_model=cascade", "clicks=one", "continues_after_click=0.1"]
        ),
        "has no effect with clicks = one",
    ),
    (lambda: make_world("session"), "did you mean 'sessions'"),
    (lambda: make_world("sessions", "jeunen2018"), "did you mean 'jeunen2019'"),
    (lambda: make_world("ratings", "qiuck"), "did you mean 'quick'"),
    # ratings
    (lambda: RatingsWorld.from_matrix(np.ones(3)), r"must be \(U, I\)"),
    (lambda: RatingsWorld.from_matrix(np.full((2, 3), 7.0)), "a rating 7 .user 0, item 0., outside the scale"),
    (lambda: RatingsWorld.from_matrix(np.full((2, 3), np.nan)), "a rating nan"),
    (lambda: RatingsWorld.from_matrix(np.ones((2, 3)), np.ones((2, 2))), "propensities have shape"),
    (lambda: RatingsWorld.from_matrix(np.ones((2, 3)), np.zeros((2, 3))), "user 0, item 0 is 0: it must be in"),
    (lambda: RatingsWorld(RatingsParams(n_items=4), matrix=np.ones((2, 3))), "parameters say .users, 4."),
    (lambda: RatingsWorld(propensities=np.ones((2, 3))), "give both"),
    (lambda: alpha_propensities(np.ones((2, 2)) * 5, 0.5, 2.0), "must be in"),
    (lambda: alpha_propensities(np.array([[1.0] * 9 + [5.0]]), 0.1, 0.5), "cannot be reached"),
    (lambda: popularity_propensities(np.ones(3), 0.0), "density must be in"),
    (lambda: rerank(np.zeros((2, 2)), [0.5, 0.1]), "sum to 1"),
    # features
    (lambda: FeatureWorld(np.ones((2, 2)), None), "give both"),
    (lambda: FeatureWorld(np.ones((2, 2)), np.ones((2, 3))), "give weights"),
    (lambda: FeatureWorld(np.ones(2), np.ones((2, 3))), "must be a matrix with a row"),
    (lambda: FeatureWorld([["a"]], np.ones((2, 3))), "matrix of numbers"),
    (lambda: FeatureWorld([[np.nan]], [[1.0]]), "row 0, column 0"),
    (lambda: FeatureWorld([[2.0]], [[1.0]], reward="linear"), "means in"),
    (lambda: FeatureWorld([[2.0]], [[1.0]], reward=np.ones((2, 2))), "must have shape"),
    (lambda: FeatureWorld([[2.0]], [[1.0]], reward="means"), "there are none"),
    (lambda: FeatureWorld([[2.0]], [[1.0]], reward="cubic"), "reward must be one of"),
    (lambda: FeatureWorld([[2.0]], [[1.0]], weights=np.ones((2, 2))), "weights must have shape"),
    (lambda: FeatureWorld([[2.0]], [[1.0]], length=1.5), "whole number"),
    # purchases
    (lambda: PurchasesWorld(PurchasesParams(**SMALL), control=EVEN), "give both control and treated"),
    (lambda: PurchasesWorld.from_matrices(EVEN + 1, EVEN), r"has 1\.5"),
    (lambda: PurchasesWorld.from_matrices(EVEN, EVEN[:1]), "control has shape"),
    (lambda: PurchasesWorld.from_matrices(EVEN, EVEN, EVEN * 2, slate_size=3), "probability of both"),
    (
        lambda: simulate(world_of_slates(), some(world_of_slates(), "popularity+epsilon=0.1"), 5),
        "softening would change nothing",
    ),
    (
        lambda: SlatePolicy(some(world_of_slates()), world_of_slates().params).slates(0, np.arange(2), 0),
        "need the world's parameter slates = 'fixed'",
    ),
    (
        lambda: propensity_table(world_of_slates(), DeployedPolicy(world_of_slates()), Log({}), 10**8, 0),
        "would take",
    ),
    # campaigns
    (before_anybody, "no eligible user"),
    (held_already, "already has"),
    (listed_twice, "an item twice"),
    (called("advance", 5), "day 5 is past"),
    (called("recommend", np.array([[30]]), users=np.array([0])), r"items 0\.\.29"),
    (called("recommend", np.array([[1]])), "one row for each"),
    (called("draw_lists", np.ones(30), np.array([1, 1])), "names a user twice"),
    (called("draw_lists", -np.ones(30)), "not negative"),
    (called("draw_lists", np.ones(3)), "weights must have shape"),
    (called("best_lists", np.ones((2, 30))), "scores must have shape"),
    (called("draw_lists", np.ones(30), k=0), "at least one item"),
    (lambda: simulate(platform()[0].world, some(platform()[0].world), 5), "whole platform"),
    (lambda: WorldEnv(platform()[0].world), "whole platform"),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
def test_a_wrong_call_is_refused_in_one_line(call, words):
    with refused(words):
        call()


@pytest.mark.parametrize(
    ("world", "preset"), [(name, preset) for name, entry in WORLDS.items() for preset in entry.presets()]
)
def test_parameters_of_every_preset_round_trip(world, preset):
    kind = WORLDS[world].world_class()
    params = kind.presets[preset][0]
    for again in (
        type(params).from_toml(params.to_toml()),
        type(params).from_json(params.to_json()),
        type(params).from_dict(params.to_dict()),
        make_world(world, None, [f"{name}={value}" for name, value in params.to_dict().items()]).params,
    ):
        assert again == params


def test_parameters_without_effect_are_loaded_all_the_same():
    """A preset, a log's provenance and a file state them all; their own values may be handed back."""
    params = SessionsParams(slate_size=3, user_model="cascade", examination=2.0)
    assert SessionsParams.from_dict(params.to_dict()) == SessionsParams.from_toml(params.to_toml()) == params
    assert SessionsParams.from_dict(params.to_provenance()) == params
    for kept in (SessionsParams(), SessionsParams(slate_size=3, user_model="cascade", continues=0.5)):
        assert SessionsParams().with_keywords(kept.to_dict()) == kept
        assert SessionsParams().with_settings([f"{name}={value}" for name, value in kept.to_dict().items()]) == kept
    assert params.with_keywords({"n_items": 20}).examination == 2.0
