"""Models of other libraries as policies: each held to the contract of every policy, where the library is installed."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

import recsim_mnar  # noqa: F401  (registers the environments)
from recsim_mnar.export import decisions
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies import EpsilonMixture
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from toys import refused, untrained

P = 10
ENV = {"n_items": P, "p_leave_bandit": 0.1}


@pytest.fixture(scope="module")
def log(world):
    return simulate(world, untrained("user-popularity+epsilon=0.5", P), 150, seed=3)


def holds(world, policy):
    """What a policy logs, it replays; and a copy of the log taken apart is replayed alike."""
    made = simulate(world, policy, n_users=40, seed=9)
    shown = made.is_bandit
    np.testing.assert_array_equal(replay(made, policy)[shown], made["propensity"][shown])
    some = made.select(made["user"] % 3 == 1)
    np.testing.assert_array_equal(replay(some, policy)[some.is_bandit], some["propensity"][some.is_bandit])


# ------------------------------------------------------------------------------------------------------ scikit-learn


def test_sklearn_classifier_and_reward_models(world, log):
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, Ridge

    from recsim_mnar.integrations import scikit_learn as ours

    learners = [
        ours.RewardModel(LogisticRegression(max_iter=500), together=ours.outer, rows=64),
        ours.RewardModel(Ridge(), weighted=True, together=ours.outer, rows=64, name="ridge"),
        ours.RewardModel(RandomForestClassifier(10, max_depth=4), "last=3"),
        ours.RewardedActions(LogisticRegression(max_iter=500), rows=64),
    ]
    for learner in learners:
        policy = learner.fit(log, n_items=P, seed=4)
        holds(world, EpsilonMixture(policy, 0.1))
    assert [learner.name for learner in learners][1] == "ridge"


def test_sklearn_predictions_are_those_of_the_model(log):
    """Scores by hand: the reward model of each (context, one-hot item)."""
    pytest.importorskip("sklearn")
    from sklearn.tree import DecisionTreeRegressor

    from recsim_mnar.integrations.scikit_learn import RewardModel, classifier_policy, reward_policy

    made = decisions(log, P)
    tree = DecisionTreeRegressor(max_depth=5, random_state=0)
    tree.fit(np.hstack([made.context, np.eye(P)[made.action]]), made.reward)
    policy = reward_policy(tree, P)
    x = made.context[:50]
    by_hand = [[tree.predict(np.append(row, np.eye(P)[item])[None])[0] for item in range(P)] for row in x]
    np.testing.assert_allclose(policy._call_function(x), by_hand)
    fitted = RewardModel(DecisionTreeRegressor(max_depth=5)).fit(log, n_items=P, seed=0)
    np.testing.assert_allclose(fitted._call_function(x), by_hand)

    from sklearn.naive_bayes import MultinomialNB

    some = made.action < 4
    nb = MultinomialNB().fit(made.context[some], made.action[some])
    shares = classifier_policy(nb, P)._call_function(x)
    np.testing.assert_allclose(shares[:, :4], nb.predict_proba(x))
    assert not shares[:, 4:].any()
    with refused("must be items"):
        classifier_policy(nb, 2)


# ----------------------------------------------------------------------------------------------- implicit and LensKit


def test_implicit(world, log):
    implicit = pytest.importorskip("implicit")
    from recsim_mnar.integrations.implicit import Recommender

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        neighbours = Recommender(implicit.nearest_neighbours.ItemItemRecommender(K=5)).fit(log, n_items=P)
        als = Recommender(implicit.als.AlternatingLeastSquares(4, num_threads=1)).fit(log, n_items=P, seed=1)
        bpr = Recommender(implicit.bpr.BayesianPersonalizedRanking(4, num_threads=1)).fit(log, n_items=P, seed=1)
        for policy in (neighbours, als):
            holds(world, EpsilonMixture(policy, 0.1))
        user = np.array([3])
        for policy in (neighbours, als, bpr):
            policy.reset(user)
            assert not policy.scores(user).any()
            policy.observe(np.array([3, 3]), np.array([1, 4]))
        # By hand: co-occurrence counts, of each item the five largest kept.
        counts = view_counts(log, P)[0].toarray().astype(float)
        similar = counts.T @ counts
        kept = np.zeros((P, P))
        for item in range(P):
            top = np.argsort(-similar[item], kind="stable")[:5]
            kept[item, top] = similar[item, top]
        np.testing.assert_allclose(neighbours.scores(user)[0], kept[1] + kept[4])
        with refused("cannot score a user by views alone"):
            bpr.scores(user)


def test_lenskit(world, log):
    pytest.importorskip("lenskit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lenskit.als import ImplicitMFScorer
        from lenskit.data import ItemList, RecQuery, from_interactions_df
        from lenskit.knn import ItemKNNScorer

        from recsim_mnar.integrations.lenskit import Scorer, policy_of

        knn = Scorer(ItemKNNScorer(max_nbrs=5, feedback="implicit"), "lenskit-knn").fit(log, n_items=P)
        als = Scorer(ImplicitMFScorer(embedding_size=4, epochs=5)).fit(log, n_items=P, seed=2)
        holds(world, EpsilonMixture(knn, 0.1))
        user, viewed = np.array([3]), np.array([1, 4])
        for policy in (knn, als):
            policy.reset(user)
            assert not policy.scores(user).any()
            policy.observe(np.array([3, 3]), viewed)
            assert np.unique(policy.scores(user)).size > 2
        # By hand: the same scorer, trained on the same pairs, asked about the same history.
        views = pd.DataFrame({"user_id": log["user"], "item_id": log["item"]})[~log.is_bandit].drop_duplicates()
        scorer = ItemKNNScorer(max_nbrs=5, feedback="implicit")
        scorer.train(from_interactions_df(views))
        query = RecQuery(user_items=ItemList(item_ids=viewed))
        theirs = scorer(query=query, items=ItemList(item_ids=np.arange(P))).scores()
        known = np.isfinite(theirs)
        np.testing.assert_allclose(knn.scores(user)[0][known], theirs[known], rtol=1e-6)
        assert (knn.scores(user)[0][~known] < theirs[known].min(initial=np.inf)).all()
        assert policy_of(scorer, P).name == "ItemKNNScorer"


# ------------------------------------------------------------------------------------- MABWiser and Vowpal Wabbit


def online(world, policy):
    """A run of a learner from all users, and its replay from the untrained object."""
    run = simulate_online(world, policy, n_users=150, seed=2, lanes=8)
    shown = run.log.is_bandit
    np.testing.assert_allclose(replay(run.log, policy)[shown], run.log["propensity"][shown], atol=1e-12)
    return run


@pytest.mark.parametrize(
    ("kind", "features"),
    [*((kind, "counts") for kind in ("UCB1", "LinUCB", "LinGreedy", "EpsilonGreedy")), ("LinUCB", "shown")],
)
def test_mabwiser(world, kind, features):
    mabwiser = pytest.importorskip("mabwiser.mab")
    from recsim_mnar.integrations.mabwiser import MabPolicy

    settings = {"alpha": 1} if "UCB" in kind else {"epsilon": 0}
    rule = getattr(mabwiser.LearningPolicy, kind)(**settings)
    policy = MabPolicy(mabwiser.MAB(list(range(P)), rule), features)
    run = online(world, EpsilonMixture(policy, 0.2))
    assert run.policy.inner.mab is not policy.mab
    learned = run.policy.inner.mab
    counts = np.bincount(run.log["action"][run.log.is_bandit], minlength=P)
    assert counts.min() > 0
    if kind == "UCB1":
        assert [learned._imp.arm_to_count[item] for item in range(P)] == counts.tolist()


def test_mabwiser_that_draws_on_its_own_is_refused():
    mabwiser = pytest.importorskip("mabwiser.mab")
    from recsim_mnar.integrations.mabwiser import MabPolicy

    arms = list(range(P))
    for rule in (mabwiser.LearningPolicy.ThompsonSampling(), mabwiser.LearningPolicy.EpsilonGreedy(epsilon=0.1)):
        with refused("draws from a generator of its own"):
            MabPolicy(mabwiser.MAB(arms, rule))
    with refused("arms must be the items"):
        MabPolicy(mabwiser.MAB([1, 2, 3], mabwiser.LearningPolicy.UCB1()))


@pytest.mark.parametrize("kind", ["ThompsonSampling", "LinTS", "Softmax"])
def test_mabwiser_that_draws_on_its_own_is_sampled(world, kind):
    mabwiser = pytest.importorskip("mabwiser.mab")
    from recsim_mnar.integrations.mabwiser import sampled_policy

    policy = sampled_policy(mabwiser.MAB(list(range(P)), getattr(mabwiser.LearningPolicy, kind)()), draws=200)
    run = simulate_online(world, policy, n_users=25, seed=2, lanes=4)
    stated = run.log["propensity"][run.log.is_bandit]
    np.testing.assert_allclose(stated * 200, np.round(stated * 200), atol=1e-9)
    assert len(np.unique(stated)) > 10, "it learns, so its propensities change"
    with refused("replay"):
        replay(run.log, policy)


def test_vowpal_wabbit(world, log):
    pytest.importorskip("vowpalwabbit")
    from vowpalwabbit import Workspace

    from recsim_mnar.export import to_vw
    from recsim_mnar.integrations.vowpal_wabbit import VowpalWabbit

    run = online(world, VowpalWabbit("--epsilon 0.2", P))
    # What it learned online is what the exported log teaches it, in the order of the rounds.
    made = decisions(run.log, P)
    shown = np.flatnonzero(run.log.is_bandit)
    order = np.lexsort((made.user, run.log["round"][shown]))
    lines = np.array(to_vw(made))[order]
    twin = Workspace(f"--cb_explore {P} --epsilon 0.2 --quiet")
    for line in lines:
        twin.learn(str(line))
    again = run.policy.fresh()
    for row in made.context[:20]:
        text = "| " + " ".join(f"f{k}:{v!r}" for k, v in enumerate(row.tolist()) if v)
        np.testing.assert_allclose(run.policy._predict_distribution(row[None])[0], twin.predict(text), atol=1e-7)
        np.testing.assert_allclose(again._predict_distribution(row[None])[0], twin.predict(text), atol=1e-7)
    still = run.policy.fresh()
    still.learns, still.batches_decisions = "nothing", True
    holds(world, still)
    shown = VowpalWabbit("--epsilon 0.2", P, "shown")
    asked = online(world, shown).policy
    assert asked._n_learned > 0
    only_acts = VowpalWabbit("--epsilon 0.2", P, "shown", learns="nothing")
    only_acts.workspace = asked.workspace
    assert only_acts.learns == "own user"
    holds(world, only_acts)
    assert only_acts._n_learned == 0
    with refused("without --cb_explore"):
        VowpalWabbit("--cb_explore 3", P)


@pytest.mark.parametrize("name", ["Sessions-v0", "Cold100-v1"])
def test_torchrl_makes_an_environment_by_its_id(name):
    pytest.importorskip("torchrl")
    from torchrl.envs import GymEnv

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = GymEnv(f"recsim_mnar/{name}", frame_skip=1)
        made = env.rollout(3, break_when_any_done=False)
    assert made["observation"].shape == (3, gym.make(f"recsim_mnar/{name}").unwrapped.world.n_items)
