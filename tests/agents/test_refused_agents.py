"""What is wrong with an agent's parameters, its log and calls of it is said in one line; one table for all agents."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar.agents.bandits.linear import LinUCB, LogisticThompson
from recsim_mnar.agents.factors.mf_ratings import cross_validate
from recsim_mnar.agents.purchases.learners import BPR, ULBPR, RecResp
from recsim_mnar.log import Log
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig
from recsim_mnar.policies import registry
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import refused
from twins.logs import log_of, random_log
from twins.purchases_log import small_exposures

PARAMETERS = {
    "svd+rank=0": "rank must be a whole number of at least 1",
    "svd+rank=true": "rank must be a whole number of at least 1",
    "svd+rank=2.5": "rank must be a whole number of at least 1",
    "svd+tolerance=0.0": r"tolerance must be in \(0, 1\)",
    "svd+tolerance=1": r"tolerance must be in \(0, 1\)",
    "svd+temperature=0": "temperature must be a number above 0",
    "svd+epsilon=nan": r"epsilon must be in \[0, 1\]",
    "random+epsilon=1.5": r"epsilon must be in \[0, 1\]",
    "epsilon-greedy+exploration=2": r"exploration must be in \[0, 1\]",
    "lin-ucb+alpha=-1": "alpha must be a number from 0",
    "lin-thompson+spread=0": "spread must be a number above 0",
    "lin-thompson+ridge=no": "ridge must be a number above 0",
    "lin-ucb+features=nowhere.npz": "file nowhere.npz does not exist",
    "constant-list+items=a": "items must be whole numbers",
    "constant-list+items=1;1": "items must be distinct",
    "constant-list+items=-2": "items must be distinct whole numbers from 0",
    "constant-list+items=1.5": "items must be whole numbers",
    "constant-list+items=9": "item 9 is out of range",
    "most-recommended+places=0": "places must be a whole number",
    "mf-ips+rank=0": "rank must be a whole number of at least 1",
    "mf-ips+rank=2.5": "rank must be a whole number",
    "mf-ips+folds=1": "folds must be",
    "mf-ips+shrinkage=0": "shrinkage must be a number above 0",
    "mf-ips+spread=-1": r"spread \(or auto\) must be a number above 0",
    "mf-ips+map_spread=much": r"map_spread \(or auto\) must be a number from 0",
    "mf-ips+clip=auto": "clip must be a number from 0",
    "mf-ips-ratings+rank=-1": "rank must be",
    "mf-ips-ratings+penalty=-1": "penalty must be a number from 0",
    "mf-ips-ratings+folds=1": "folds must be",
    "mf-ips-ratings+score=hr": "score must be one of loss, dcg",
    "mf-ips-ratings+biases=none": "biases must be",
    "mf-ips-ratings+unrated=perhaps": "unrated must be",
    "poem+clip=0": "clip must be a number above 0",
    "poem+variance=-1": "variance must be a number from 0",
    "banditnet+epochs=0": "epochs must be a whole number of at least 1",
    "reward-cross-entropy+weight=no": "weight must be one of reward, ips",
    "ulbpr+factors=0": "factors must be a whole number",
    "ulbpr+rate=0": "rate must be a number above 0",
    "ulbpr+rate=nan": "rate must be",
    "ulbpr+penalty=-1": "penalty must be",
    "ulbpr+bias_penalty=-1": "bias_penalty must be",
    "ulbpr+batch=1.5": "batch must be a whole number",
    "ulbpr+updates=0": "updates must be",
    "ulbpr+alpha=1.5": r"alpha must be in \[0, 1\]",
    "cause+distance=l3": "distance must be one of",
    "cause+between=-1": "between must be",
}


@pytest.mark.parametrize(("spec", "words"), PARAMETERS.items())
def test_a_parameter_that_breaks_a_rule_is_named(spec, words):
    with refused(words):
        registry.learner(spec).fit(Log({}), n_items=6)


NOTHING, HELD = Log({}), log_of(range(4), [0, 1, -1, -1], [-1, -1, 1, 0])
VIEWS = random_log(1, 20, 6, 5)
SHOWN = simulate(make_world("sessions"), registry.learner("random").fit(NOTHING, n_items=10), 200, 3)
RATED = simulate(
    make_world("ratings", "quick", {"n_items": 12}), registry.learner("random").fit(NOTHING, n_items=12), 9
)
UNSEEN = Log({name: values for name, values in RATED.columns.items() if name != "observation_propensity"})
LEARNERS_OF_VIEWS = ("popularity", "svd", "item-knn", "user-knn")
LEARNERS_OF_PURCHASES = ("ulrmf", "ulbpr", "recresp", "cause", "cause-prod")
LOGS = [
    *((name, NOTHING, "no organic rows") for name in LEARNERS_OF_VIEWS),
    *((name, VIEWS, "n_items = 3") for name in LEARNERS_OF_VIEWS),
    *((name, VIEWS, f"^{name} learns from what was .* no recommendation flags") for name in LEARNERS_OF_PURCHASES),
    ("most-recommended", VIEWS, "no recommendation"),
    ("most-recommended", log_of([0, 1], item=[0, -1], action=[-1, 7]), "recommends item 7"),
    (
        "never-recommended",
        log_of(range(4), [0, 1, -1, -1], [-1, -1, 1, 0]),
        "every item that users hold is recommended",
    ),
    ("mf-ips", SHOWN.organic(), "no bandit rows"),
    ("mf-ips", SHOWN, "n_items = 3"),
    ("mf-ips+folds=900", SHOWN, r"fold \d+ of 900 has no recommendations"),
    ("mf-ips", SHOWN.select(~(SHOWN["reward"] > 0)), "all recorded rewards are the same"),
    ("poem", SHOWN.organic(), "no bandit rows"),
    ("poem", Log({**SHOWN.columns, "reward": np.where(SHOWN.is_bandit, 0.0, math.nan)}), "mean reward is 0"),
    ("poem", Log({**SHOWN.columns, "propensity": np.where(SHOWN.is_bandit, 0.0, math.nan)}), "lacks one"),
    ("mf-ips-ratings", RATED.bandit(), "no organic rows"),
    ("mf-ips-ratings", RATED, "out of range"),
    ("mf-ips-ratings", RATED.select(RATED["user"] < 1).select(slice(0, 2)), "folds|no organic"),
    ("mf-ips-ratings", UNSEEN, "no column 'observation_propensity'.*use mf-naive-ratings"),
    (
        "mf-ips-ratings",
        RATED.with_column("observation_propensity", np.zeros(len(RATED))),
        r"row \d+ of the log: observation_propensity must be in",
    ),
    (
        "mf-naive-ratings",
        RATED.with_column("reward", np.full(len(RATED), np.nan)),
        r"row \d+ of the log is organic and has no rating",
    ),
]


@pytest.mark.parametrize(("spec", "log", "words"), LOGS)
def test_a_log_that_nothing_can_be_learned_from_is_refused(spec, log, words):
    small = words in ("n_items = 3", "out of range", "recommends item 7")
    with refused(words):
        registry.learner(spec).fit(log, n_items=3 if small else 12)


def one_cell(shown, bought):
    return Exposures([0], [0], [0], [shown], [bought], n_users=1, n_items=1, n_periods=1)


def learned(rewards):
    policy = LogisticThompson(6)
    policy.reset(np.array([1]))
    policy.learn(np.array([1]), np.array([0]), rewards, np.array([1.0]))


ONE = Ratings([0], [0], [1.0], 2, 2)
FORMS = [FactorizationConfig()]
CERTAIN = small_exposures().with_propensities(np.ones((1, 1, 1)))
CALLS = [
    (lambda: LinUCB(2000), "2000 items with contexts of 2001 numbers need 64 GB"),
    (lambda: learned(np.array([3.0])), r"rewards in \[0, 1\], got 3"),
    (lambda: simulate(make_world("sessions"), LinUCB(10), 5, 1), "learns from all users"),
    (lambda: cross_validate(ONE, 0.5, FORMS), "without ratings"),
    (lambda: cross_validate(ONE, 0.0, FORMS), "must be in"),
    (lambda: cross_validate(ONE, 0.5, []), "at least one form"),
    (lambda: cross_validate(ONE, 0.5, FORMS, score="x"), "score must be"),
    (lambda: ULBPR().trainer(one_cell(True, True)), r"ulbpr: no user has, in .* recommended and purchased \(R-P\) and"),
    (lambda: RecResp().trainer(one_cell(False, True)), "recresp: no user has, in one period, an item recommended"),
    (lambda: BPR().trainer(one_cell(True, False)), "bpr: nothing is purchased"),
    (lambda: BPR().fit_exposures(one_cell(True, False)), "bpr: nothing is purchased"),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
def test_a_wrong_call_is_refused_in_one_line(call, words):
    with refused(words):
        call()


@pytest.mark.parametrize("name", ["user-popularity", "user-popularity-greedy", "svd", "item-knn", "user-knn"])
def test_users_and_items_out_of_range_are_named(name):
    policy, user = registry.learner(name).fit(VIEWS, n_items=6), np.array([0])
    with refused("user 0 has not begun"):
        policy.act(user, np.array([0.5]))
    policy.reset(user)
    with refused(r"item 6 is out of range.*0\.\.5"):
        policy.observe(user, np.array([6]))
    with refused("item -1 is out of range"):
        policy.propensity_of(user, np.array([-1]))
