"""Models of other libraries as policies: each held to the contract of every policy, where the library is installed."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

import recsim_mnar  # noqa: F401  (registers the environments)
from recsim_mnar.errors import UserError
from recsim_mnar.export import decisions
from recsim_mnar.log import Log
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies import EpsilonMixture, registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

P = 10
ENV = {"n_items": P, "p_leave_bandit": 0.1}


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


@pytest.fixture(scope="module")
def log(world):
    return simulate(world, registry.learner("user-popularity+epsilon=0.5").fit(Log({}), n_items=P, seed=0), 150, seed=3)


def holds(world, policy):
    """What a policy logs, it replays; and a copy of the log taken apart is replayed alike."""
    made = simulate(world, policy, n_users=40, seed=9)
    shown = made.is_bandit
    np.testing.assert_array_equal(replay(made, policy)[shown], made["propensity"][shown])
    some = made.select(made["user"] % 3 == 1)
    np.testing.assert_array_equal(replay(some, policy)[some.is_bandit], some["propensity"][some.is_bandit])


# ------------------------------------------------------------------------------------------------- Stable-Baselines3


def vector(n, mode="SameStep", **more):
    return gym.make_vec(
        "recsim_mnar/Sessions-v0",
        num_envs=n,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
        **ENV,
        **more,
    )


def test_sb3_adapter_is_the_environment():
    """Lane by lane what DummyVecEnv of single environments gives, for the users that both meet."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter

    ours = VecEnvAdapter(vector(1, max_episode_steps=7))
    single = gym.make("recsim_mnar/Sessions-v0", max_episode_steps=7, **ENV)
    theirs = DummyVecEnv([lambda: single])
    for env in (ours, theirs):
        env.seed(5)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    ends = truncations = 0
    for step in range(400):
        action = np.array([step * 7 % P])
        one, other = ours.step(action), theirs.step(action)
        for mine, his in zip(one[:3], other[:3], strict=True):
            np.testing.assert_array_equal(mine, his)
        assert one[1].dtype == np.float32
        if one[2][0]:
            ends += 1
            for key in ("terminal_observation", "TimeLimit.truncated"):
                np.testing.assert_array_equal(one[3][0][key], other[3][0][key])
            truncations += one[3][0]["TimeLimit.truncated"]
    assert ends > truncations > 0


def test_sb3_adapter_passes_options_on_once():
    pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter

    env, given = VecEnvAdapter(vector(2)), []
    reset = env.env.reset
    env.env.reset = lambda **asked: given.append(asked["options"]) or reset(**asked)
    for options in ({"user": 40}, None):
        env.seed(1)
        if options:
            env.set_options(options)
        env.reset()
    assert given == [{"user": 40}, None]
    env.set_options([{"user": 3}, {"user": 9}])
    with pytest.raises(UserError, match="set_options: lanes are one environment"):
        env.reset()


def test_sb3_adapter_hands_over_pictures():
    pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter

    class Painted(gym.Wrapper):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  (Gymnasium reads a plain dict here)
        render_mode = "rgb_array"

        def render(self):
            return np.full((4, 4, 3), 7, np.uint8)

    lanes = [lambda: Painted(gym.make("recsim_mnar/Sessions-v0", **ENV))] * 2
    env = VecEnvAdapter(gym.vector.SyncVectorEnv(lanes, autoreset_mode="SameStep"))
    assert env.render().shape == (8, 4, 3)


def test_sb3_workers_find_the_environment_by_the_module_in_its_id():
    """A worker started afresh has not imported the package: the id names who registers it."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import SubprocVecEnv

    env = make_vec_env("recsim_mnar:recsim_mnar/Sessions-v0", n_envs=1, vec_env_cls=SubprocVecEnv, env_kwargs=ENV)
    try:
        assert env.reset().shape == (1, P)
    finally:
        env.close()


def test_sb3_mistakes_are_said():
    pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter

    with pytest.raises(UserError, match="autoreset_mode='SameStep'"):
        VecEnvAdapter(vector(2, "NextStep"))
    with pytest.raises(UserError, match="make_vec"):
        VecEnvAdapter(gym.make("recsim_mnar/Sessions-v0", **ENV))


@pytest.mark.parametrize("kind", ["PPO", "A2C", "DQN"])
def test_sb3_model_as_policy(world, kind):
    sb3 = pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

    settings = {
        "PPO": {"n_steps": 16, "batch_size": 64, "n_epochs": 1},
        "A2C": {"n_steps": 8},
        "DQN": {"learning_starts": 64, "train_freq": 16},
    }[kind]
    model = getattr(sb3, kind)("MlpPolicy", VecEnvAdapter(vector(8)), seed=1, device="cpu", **settings)
    model.learn(512)
    policy = policy_of(model)
    assert policy.name == kind.lower()
    holds(world, policy)
    loose = policy_of(model, rows=None)
    made = simulate(world, policy, n_users=40, seed=9)
    x = decisions(made, P).context
    np.testing.assert_allclose(loose._ask(x), policy._ask(x), atol=1e-5)
    if kind == "PPO":
        import torch

        with torch.no_grad():
            theirs = model.policy.get_distribution(torch.as_tensor(x)).distribution.probs.numpy()
        np.testing.assert_allclose(policy._ask(x), theirs, atol=1e-6)
        best = policy_of(model, deterministic=True)
        holds(world, best)
        taken, _ = model.predict(x, deterministic=True)
        clear = np.sort(theirs, axis=1)[:, -1] - np.sort(theirs, axis=1)[:, -2] > 1e-5
        np.testing.assert_array_equal(np.argmax(best._ask(x), axis=1)[clear], taken[clear])
    with pytest.raises(UserError, match=r"the model observes Box.*would show it MultiDiscrete"):
        policy_of(model, observation="last=3")


MAKES = {  # of each observation, with ten items: what makes the environment, and what policy_of needs to be given
    "last": ({"observation": "last=10"}, {}),
    "decayed": ({"observation": "decayed=0.8"}, {"observation": "decayed=0.8"}),
    "shown": ({"observation": "shown=0.8"}, {"observation": "shown=0.8"}),
    "features": ({"world": "features", "n_items": P}, {"user_features": lambda users: USERS.features_of(3, users)}),
    "ratings": ({"world": "ratings", "n_items": P}, None),
    "decayed ratings": ({"world": "ratings", "n_items": P, "observation": "decayed=0.8"}, None),
    "dict": ({"world": "features", "n_items": P, "observation": "dict"}, None),
}
USERS = make_world("features", None, [f"n_items={P}"])


@pytest.mark.parametrize("name", MAKES)
def test_sb3_model_is_shown_what_it_was_trained_on_or_refused(world, name):
    sb3 = pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import policy_of

    (makes, gives), settings = MAKES[name], {"n_steps": 8, "device": "cpu", "seed": 0}
    env = gym.make("recsim_mnar/World-v0", **(makes if "world" in makes else {"world": "sessions", **ENV, **makes}))
    kind = "MultiInputPolicy" if name == "dict" else "MlpPolicy"
    model = sb3.A2C(kind, env, **settings).learn(8)
    for others in ({}, *({"observation": other} for other in ("counts", "decayed=0.9", "shown=0.9", "last=9"))):
        if name != "last" or others:
            with pytest.raises(UserError, match=r"the model observes .*, the policy would show it") as caught:
                policy_of(model, **others)
            assert "\n" not in str(caught.value) or name == "dict"
    if gives is None:
        return
    policy, lived = policy_of(model, **gives), USERS if name == "features" else world
    holds(lived, policy)
    observation, info = env.reset(seed=3)
    user = np.array([info["user"]])
    policy.reset(user)
    if name != "features":
        views = lived_views(env, 3)
        policy.observe(np.repeat(user, len(views)), np.array(views))
    for action in range(P):
        theirs = model.policy.get_distribution(model.policy.obs_to_tensor(observation)[0]).distribution.probs
        np.testing.assert_allclose(policy.probabilities(user), theirs.detach().numpy(), atol=1e-6)
        if name == "features":
            return
        observation, reward, ended, _cut, info = env.step(action)
        policy.learn(user, np.array([action]), np.array([reward]), np.ones(1))
        policy.observe(np.repeat(user, len(info["views"])), np.array(info["views"], np.int64))
        if ended:
            return


def lived_views(env, seed):
    """Views before a user's first decision."""
    env.unwrapped.info = "views"
    return env.reset(seed=seed)[1]["views"]


def test_sb3_models_of_slates_are_refused_and_transforms_are_measured():
    sb3 = pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import policy_of

    slates = sb3.A2C("MlpPolicy", gym.make("recsim_mnar/Purchases-v0", preset="quick"), device="cpu")
    with pytest.raises(UserError, match="models of slates have no way back yet"):
        policy_of(slates)
    counts = sb3.A2C("MlpPolicy", gym.make("recsim_mnar/Sessions-v0", **ENV), device="cpu")
    policy = policy_of(counts, transform=lambda x: x[:, :4])
    policy.reset(np.array([0]))
    with pytest.raises(UserError, match=r"transform gives \(4,\) of a user, the model observes \(10,\)"):
        policy.probabilities(np.array([0]))


def test_sb3s_own_doors_and_checker():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env
    from stable_baselines3.common.env_util import make_vec_env

    name = "recsim_mnar/Sessions-v0"
    assert make_vec_env(name, n_envs=2).reset().shape == (2, 10)
    assert PPO("MlpPolicy", name, n_steps=32, batch_size=32, device="cpu").learn(32).num_timesteps == 32
    named = gym.make("recsim_mnar/World-v0", world="features", observation="dict")
    assert PPO("MultiInputPolicy", named, n_steps=32, batch_size=32, device="cpu").learn(32).num_timesteps == 32
    # Of Campaigns it advises weights in [-1, 1]; there they are shares of a list, in [0, 1].
    for world in ("Sessions", "Ratings", "Purchases"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(gym.make(f"recsim_mnar/{world}-v0", preset="quick"))


def test_ppo_settings_show_the_network_shares_of_views(world):
    pytest.importorskip("stable_baselines3")
    import torch
    from stable_baselines3 import PPO

    from recsim_mnar.integrations.stable_baselines3 import PPO_SETTINGS, ScaledCounts, VecEnvAdapter, policy_of

    counts = torch.tensor([[0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 30.0, 10.0, 0.0]])
    shown = ScaledCounts(gym.spaces.Box(0, 10, (4,), np.float32))(counts)
    np.testing.assert_allclose(shown[0], [0, 2 * 3 / 9, 2 * 1 / 9, 0], rtol=1e-6)
    assert (shown[1] == 0).all()
    np.testing.assert_allclose(shown[2], [0, 2 * 30 / 45, 2 * 10 / 45, 0], rtol=1e-6)
    model = PPO("MlpPolicy", VecEnvAdapter(vector(32)), **PPO_SETTINGS, seed=0, device="cpu")
    assert model.gamma == 0.0
    model.learn(2048)
    holds(world, policy_of(model))


# ------------------------------------------------------------ what stands between an environment and a model of SB3


SB3_SETTINGS = {"n_steps": 16, "device": "cpu", "seed": 0}


def observed_by(world, policy):
    """What users had been shown to a policy, (n, n_items) counts, some of them large."""
    return decisions(simulate(world, policy, n_users=60, seed=9), P).context


def test_sb3_normalised_observations_are_normalised_frozen(world):
    """The statistics are those of training: later lives of the environment change nothing."""
    pytest.importorskip("stable_baselines3")
    import torch
    from stable_baselines3 import A2C
    from stable_baselines3.common.vec_env import VecCheckNan, VecMonitor, VecNormalize

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

    inner = VecNormalize(VecMonitor(VecEnvAdapter(vector(8))), clip_obs=3.0)
    outer = VecNormalize(VecCheckNan(inner), norm_reward=False, clip_obs=1.0)
    rewards_alone = VecNormalize(outer, norm_obs=False)
    model = A2C("MlpPolicy", rewards_alone, **SB3_SETTINGS).learn(2048)
    policy = policy_of(model)
    x = observed_by(world, policy)
    seen = outer.normalize_obs(inner.normalize_obs(x))
    with torch.no_grad():
        theirs = model.policy.get_distribution(torch.as_tensor(seen)).distribution.probs.numpy()
        raw = model.policy.get_distribution(torch.as_tensor(x)).distribution.probs.numpy()
    assert np.abs(theirs - raw).max() > 0.01
    np.testing.assert_allclose(policy._ask(x), theirs, atol=1e-6)
    holds(world, policy)
    before = inner.obs_rms.mean.copy()
    rewards_alone.reset()
    for _ in range(50):
        rewards_alone.step(np.zeros(8, np.int64))
    assert (inner.obs_rms.mean != before).any()
    np.testing.assert_allclose(policy._ask(x), theirs, atol=1e-6)
    np.testing.assert_allclose(policy_of(model, transform=lambda x: x)._ask(x), raw, atol=1e-6)


def test_sb3_a_loaded_model_says_what_changed_its_observations(world, tmp_path):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import A2C
    from stable_baselines3.common.vec_env import VecNormalize

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

    trained = VecNormalize(VecEnvAdapter(vector(8)))
    model = A2C("MlpPolicy", trained, **SB3_SETTINGS).learn(1024)
    model.save(tmp_path / "model.zip")
    trained.save(tmp_path / "statistics.pkl")
    x = observed_by(world, policy_of(model))
    alone = A2C.load(tmp_path / "model.zip", device="cpu")
    with pytest.raises(UserError, match="env="):
        policy_of(alone)
    lanes = VecNormalize.load(tmp_path / "statistics.pkl", VecEnvAdapter(vector(1)))
    loaded = A2C.load(tmp_path / "model.zip", env=lanes, device="cpu")
    for again in (policy_of(loaded), policy_of(alone, transform=lanes.normalize_obs)):
        np.testing.assert_array_equal(again._ask(x), policy_of(model)._ask(x))


def sb3_wrapped(name):
    """An environment between which and a model something stands, by its name."""
    from stable_baselines3.common import vec_env
    from stable_baselines3.common.env_util import make_vec_env

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter

    def made(wrap):
        return make_vec_env("recsim_mnar/Sessions-v0", env_kwargs=ENV, wrapper_class=wrap)

    w = gym.wrappers

    class Blind(gym.Wrapper):
        """Changes what it likes, as its own class says nowhere."""

        def step(self, action):
            observation, *rest = self.env.step(action)
            return 0 * observation, *rest

    return {
        "VecFrameStack": lambda: vec_env.VecFrameStack(VecEnvAdapter(vector(2)), 3),
        "SubprocVecEnv": lambda: make_vec_env(
            "recsim_mnar:recsim_mnar/Sessions-v0", env_kwargs=ENV, vec_env_cls=vec_env.SubprocVecEnv
        ),
        "NormalizeObservation": lambda: made(w.NormalizeObservation),
        "TransformObservation": lambda: made(lambda env: w.TransformObservation(env, np.sqrt, env.observation_space)),
        "TimeAwareObservation": lambda: made(lambda env: w.TimeAwareObservation(w.TimeLimit(env, 9))),
        "FrameStackObservation": lambda: made(lambda env: w.FrameStackObservation(env, 2)),
        "DelayObservation": lambda: made(lambda env: w.DelayObservation(env, 2)),
        "Blind": lambda: made(Blind),
        "StickyAction": lambda: made(lambda env: w.StickyAction(env, 0.5)),
        "MaxAndSkipObservation": lambda: made(lambda env: w.MaxAndSkipObservation(env, 2)),
        "RepeatAction": lambda: made(lambda env: w.RepeatAction(env, 2)),
        "TransformAction": lambda: made(lambda env: w.TransformAction(env, lambda a: P - 1 - a, env.action_space)),
        "vector TransformAction": lambda: VecEnvAdapter(w.vector.TransformAction(vector(2), lambda a: P - 1 - a)),
    }[name]()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("VecFrameStack", True),
        ("SubprocVecEnv", True),
        ("NormalizeObservation", True),
        ("TransformObservation", True),
        ("TimeAwareObservation", True),
        ("FrameStackObservation", True),
        ("DelayObservation", True),
        ("Blind", True),
        ("StickyAction", False),
        ("MaxAndSkipObservation", False),
        ("RepeatAction", False),
        ("TransformAction", False),
        ("vector TransformAction", False),
    ],
)
def test_sb3_what_changes_observations_or_actions_is_refused(name, told):
    """In one line; of observations the user can say what it was, of actions nothing helps."""
    sb3 = pytest.importorskip("stable_baselines3")
    from recsim_mnar.integrations.stable_baselines3 import policy_of

    env = sb3_wrapped(name)
    model = sb3.A2C("MlpPolicy", env, **SB3_SETTINGS)
    try:
        with pytest.raises(UserError, match=name.split()[-1]) as caught:
            policy_of(model)
        assert "\n" not in str(caught.value)
        if told:
            policy_of(model, transform=lambda x: x)
        else:
            with pytest.raises(UserError, match=name.split()[-1]):
                policy_of(model, transform=lambda x: x)
    finally:
        env.close()


def test_sb3_what_changes_neither_is_let_pass(world):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

    def wrapped(env):
        env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(env, 9))
        return gym.wrappers.NormalizeReward(gym.wrappers.ClipReward(env, 0, 1))

    single = make_vec_env("recsim_mnar/Sessions-v0", n_envs=2, env_kwargs=ENV, wrapper_class=wrapped)
    w = gym.wrappers.vector
    lanes = VecEnvAdapter(w.ClipReward(w.NormalizeReward(w.RecordEpisodeStatistics(vector(2))), 0, 1))
    for env in (single, lanes):
        holds(world, policy_of(sb3.A2C("MlpPolicy", env, **SB3_SETTINGS)))


@pytest.mark.parametrize("kind", ["RecurrentPPO", "MaskablePPO", "QRDQN", "ARS"])
def test_sb3_models_that_answer_by_more_than_an_observation_are_refused(kind):
    contrib = pytest.importorskip("sb3_contrib")
    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

    network = "MlpLstmPolicy" if kind == "RecurrentPPO" else "MlpPolicy"
    model = getattr(contrib, kind)(network, VecEnvAdapter(vector(2)), device="cpu")
    with pytest.raises(UserError, match=kind) as caught:
        policy_of(model)
    assert "\n" not in str(caught.value)


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
    np.testing.assert_allclose(policy._ask(x), by_hand)
    fitted = RewardModel(DecisionTreeRegressor(max_depth=5)).fit(log, n_items=P, seed=0)
    np.testing.assert_allclose(fitted._ask(x), by_hand)

    from sklearn.naive_bayes import MultinomialNB

    some = made.action < 4
    nb = MultinomialNB().fit(made.context[some], made.action[some])
    shares = classifier_policy(nb, P)._ask(x)
    np.testing.assert_allclose(shares[:, :4], nb.predict_proba(x))
    assert not shares[:, 4:].any()
    with pytest.raises(UserError, match="must be items"):
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
        with pytest.raises(UserError, match="cannot score a user by views alone"):
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
        with pytest.raises(UserError, match="draws from a generator of its own"):
            MabPolicy(mabwiser.MAB(arms, rule))
    with pytest.raises(UserError, match="arms must be the items"):
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
    with pytest.raises(UserError, match="replay"):
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
        np.testing.assert_allclose(run.policy._predicted(row[None])[0], twin.predict(text), atol=1e-7)
        np.testing.assert_allclose(again._predicted(row[None])[0], twin.predict(text), atol=1e-7)
    still = run.policy.fresh()
    still.learns, still.batches_decisions = "nothing", True
    holds(world, still)
    shown = VowpalWabbit("--epsilon 0.2", P, "shown")
    asked = online(world, shown).policy
    assert asked._learned > 0
    only_acts = VowpalWabbit("--epsilon 0.2", P, "shown", learns="nothing")
    only_acts.workspace = asked.workspace
    assert only_acts.learns == "own user"
    holds(world, only_acts)
    assert only_acts._learned == 0
    with pytest.raises(UserError, match="without --cb_explore"):
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
