"""Models of Stable-Baselines3 as policies, and its environments of ours, where the library is installed."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from test_integrations import ENV, P, holds

from recsim_mnar import evaluate, evaluate_agent
from recsim_mnar.export import decisions
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import refused

sb3 = pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")
vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
make_vec_env = pytest.importorskip("stable_baselines3.common.env_util").make_vec_env
ours = pytest.importorskip("recsim_mnar.integrations.stable_baselines3")
VecEnvAdapter, policy_of = ours.VecEnvAdapter, ours.policy_of


def vector(n, mode="SameStep", **more):
    return gym.make_vec(
        "recsim_mnar/Sessions-v0",
        num_envs=n,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
        **ENV,
        **more,
    )


def test_adapter_is_the_environment():
    """Lane by lane what DummyVecEnv of single environments gives, for the users that both meet."""
    ours = VecEnvAdapter(vector(1, max_episode_steps=7))
    single = gym.make("recsim_mnar/Sessions-v0", max_episode_steps=7, **ENV)
    theirs = vec_env.DummyVecEnv([lambda: single])
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


def test_adapter_passes_on_what_the_environment_returns():
    env = VecEnvAdapter(vector(4), infos=True)
    env.seed(1)
    env.reset()
    assert len({info["user"] for info in env.reset_infos}) == 4
    for _ in range(60):
        *_, ended, infos = env.step(np.zeros(4, np.int64))
        assert all({"user", "step", "time"} <= info.keys() for info in infos)
        if ended.any():
            break
    assert ended.any()


def test_adapter_passes_options_on_once():
    env, users = VecEnvAdapter(vector(2), infos=True), []
    for options in ({"user": 40}, None):
        env.seed(1)
        if options:
            env.set_options(options)
        env.reset()
        users.append({info["user"] for info in env.reset_infos})
    assert min(users[0]) >= 40 > max(users[1])
    env.set_options([{"user": 3}, {"user": 9}])
    with refused("set_options: lanes are one environment"):
        env.reset()


def test_adapter_hands_over_pictures():
    class Painted(gym.Wrapper):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  (Gymnasium reads a plain dict here)
        render_mode = "rgb_array"

        def render(self):
            return np.full((4, 4, 3), 7, np.uint8)

    lanes = [lambda: Painted(gym.make("recsim_mnar/Sessions-v0", **ENV))] * 2
    env = VecEnvAdapter(gym.vector.SyncVectorEnv(lanes, autoreset_mode="SameStep"))
    assert env.render().shape == (8, 4, 3)


def test_workers_find_the_environment_by_the_module_in_its_id():
    """A worker started afresh has not imported the package: the id names who registers it."""
    env = elsewhere()
    try:
        assert env.reset().shape == (1, P)
    finally:
        env.close()


def test_mistakes_are_said():
    with refused("autoreset_mode='SameStep'"):
        VecEnvAdapter(vector(2, "NextStep"))
    with refused("make_vec"):
        VecEnvAdapter(gym.make("recsim_mnar/Sessions-v0", **ENV))


@pytest.mark.parametrize("kind", ["PPO", "A2C", "DQN"])
def test_model_as_policy(world, kind):
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
    np.testing.assert_allclose(loose._call_function(x), policy._call_function(x), atol=1e-5)
    if kind == "PPO":
        with torch.no_grad():
            theirs = model.policy.get_distribution(torch.as_tensor(x)).distribution.probs.numpy()
        np.testing.assert_allclose(policy._call_function(x), theirs, atol=1e-6)
        best = policy_of(model, deterministic=True)
        holds(world, best)
        taken, _ = model.predict(x, deterministic=True)
        clear = np.sort(theirs, axis=1)[:, -1] - np.sort(theirs, axis=1)[:, -2] > 1e-5
        np.testing.assert_array_equal(np.argmax(best._call_function(x), axis=1)[clear], taken[clear])
    with refused(r"the model observes Box.*would show it MultiDiscrete"):
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
def test_model_is_shown_what_it_was_trained_on_or_refused(world, name):
    (makes, gives), settings = MAKES[name], {"n_steps": 8, "device": "cpu", "seed": 0}
    env = gym.make("recsim_mnar/World-v0", **(makes if "world" in makes else {"world": "sessions", **ENV, **makes}))
    kind = "MultiInputPolicy" if name == "dict" else "MlpPolicy"
    model = sb3.A2C(kind, env, **settings).learn(8)
    for others in ({}, *({"observation": other} for other in ("counts", "decayed=0.9", "shown=0.9", "last=9"))):
        if name != "last" or others:
            with refused(r"the model observes .*, the policy would show it") as caught:
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


def test_models_of_slates_are_refused_and_transforms_are_measured():
    slates = sb3.A2C("MlpPolicy", gym.make("recsim_mnar/Purchases-v0", preset="quick"), device="cpu")
    with refused("models of slates have no way back yet"):
        policy_of(slates)
    counts = sb3.A2C("MlpPolicy", gym.make("recsim_mnar/Sessions-v0", **ENV), device="cpu")
    policy = policy_of(counts, transform=lambda x: x[:, :4])
    policy.reset(np.array([0]))
    with refused(r"transform gives \(4,\) of a user, the model observes \(10,\)"):
        policy.probabilities(np.array([0]))


def test_its_own_doors_and_checker():
    from stable_baselines3.common.env_checker import check_env

    name = "recsim_mnar/Sessions-v0"
    assert make_vec_env(name, n_envs=2).reset().shape == (2, 10)
    assert sb3.PPO("MlpPolicy", name, n_steps=32, batch_size=32, device="cpu").learn(32).num_timesteps == 32
    named = gym.make("recsim_mnar/World-v0", world="features", observation="dict")
    assert sb3.PPO("MultiInputPolicy", named, n_steps=32, batch_size=32, device="cpu").learn(32).num_timesteps == 32
    # Of Campaigns it advises weights in [-1, 1]; there they are shares of a list, in [0, 1].
    for name in ("Sessions", "Ratings", "Purchases"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(gym.make(f"recsim_mnar/{name}-v0", preset="quick"))


def test_ppo_settings_show_the_network_shares_of_views(world):
    counts = torch.tensor([[0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 30.0, 10.0, 0.0]])
    shown = ours.ScaledCounts(gym.spaces.Box(0, 10, (4,), np.float32))(counts)
    np.testing.assert_allclose(shown[0], [0, 2 * 3 / 9, 2 * 1 / 9, 0], rtol=1e-6)
    assert (shown[1] == 0).all()
    np.testing.assert_allclose(shown[2], [0, 2 * 30 / 45, 2 * 10 / 45, 0], rtol=1e-6)
    model = sb3.PPO("MlpPolicy", VecEnvAdapter(vector(32)), **ours.PPO_SETTINGS, seed=0, device="cpu")
    assert model.gamma == 0.0
    model.learn(2048)
    holds(world, policy_of(model))


# ------------------------------------------------------------ what stands between an environment and a model of SB3


SB3_SETTINGS = {"n_steps": 16, "device": "cpu", "seed": 0}


def observed_by(world, policy):
    """What users had been shown to a policy, (n, n_items) counts, some of them large."""
    return decisions(simulate(world, policy, n_users=60, seed=9), P).context


def test_normalised_observations_are_normalised_frozen(world):
    """The statistics are those of training: later lives of the environment change nothing."""
    inner = vec_env.VecNormalize(vec_env.VecMonitor(VecEnvAdapter(vector(8))), clip_obs=3.0)
    outer = vec_env.VecNormalize(vec_env.VecCheckNan(inner), norm_reward=False, clip_obs=1.0)
    rewards_alone = vec_env.VecNormalize(outer, norm_obs=False)
    model = sb3.A2C("MlpPolicy", rewards_alone, **SB3_SETTINGS).learn(2048)
    policy = policy_of(model)
    x = observed_by(world, policy)
    seen = outer.normalize_obs(inner.normalize_obs(x))
    with torch.no_grad():
        theirs = model.policy.get_distribution(torch.as_tensor(seen)).distribution.probs.numpy()
        raw = model.policy.get_distribution(torch.as_tensor(x)).distribution.probs.numpy()
    assert np.abs(theirs - raw).max() > 0.01
    np.testing.assert_allclose(policy._call_function(x), theirs, atol=1e-6)
    holds(world, policy)
    before = inner.obs_rms.mean.copy()
    rewards_alone.reset()
    for _ in range(50):
        rewards_alone.step(np.zeros(8, np.int64))
    assert (inner.obs_rms.mean != before).any()
    np.testing.assert_allclose(policy._call_function(x), theirs, atol=1e-6)
    np.testing.assert_allclose(policy_of(model, transform=lambda x: x)._call_function(x), raw, atol=1e-6)


def test_a_loaded_model_says_what_changed_its_observations(world, tmp_path):
    trained = vec_env.VecNormalize(VecEnvAdapter(vector(8)))
    model = sb3.A2C("MlpPolicy", trained, **SB3_SETTINGS).learn(1024)
    model.save(tmp_path / "model.zip")
    trained.save(tmp_path / "statistics.pkl")
    x = observed_by(world, policy_of(model))
    alone = sb3.A2C.load(tmp_path / "model.zip", device="cpu")
    with refused("env="):
        policy_of(alone)
    lanes = vec_env.VecNormalize.load(tmp_path / "statistics.pkl", VecEnvAdapter(vector(1)))
    loaded = sb3.A2C.load(tmp_path / "model.zip", env=lanes, device="cpu")
    for again in (policy_of(loaded), policy_of(alone, transform=lanes.normalize_obs)):
        np.testing.assert_array_equal(again._call_function(x), policy_of(model)._call_function(x))


class Blind(gym.Wrapper):
    """Changes what it likes, as its own class says nowhere."""

    def step(self, action):
        observation, *rest = self.env.step(action)
        return 0 * observation, *rest


def made(wrap):
    return make_vec_env("recsim_mnar/Sessions-v0", env_kwargs=ENV, wrapper_class=wrap)


def elsewhere():
    """Environments in processes of their own."""
    name = "recsim_mnar:recsim_mnar/Sessions-v0"
    return make_vec_env(name, vec_env_cls=vec_env.SubprocVecEnv, env_kwargs=ENV)


w = gym.wrappers
OF_OBSERVATIONS = {
    "VecFrameStack": lambda: vec_env.VecFrameStack(VecEnvAdapter(vector(2)), 3),
    "SubprocVecEnv": elsewhere,
    "NormalizeObservation": lambda: made(w.NormalizeObservation),
    "TransformObservation": lambda: made(lambda env: w.TransformObservation(env, np.sqrt, env.observation_space)),
    "TimeAwareObservation": lambda: made(lambda env: w.TimeAwareObservation(w.TimeLimit(env, 9))),
    "FrameStackObservation": lambda: made(lambda env: w.FrameStackObservation(env, 2)),
    "DelayObservation": lambda: made(lambda env: w.DelayObservation(env, 2)),
    "Blind": lambda: made(Blind),
}
OF_ACTIONS = {
    "StickyAction": lambda: made(lambda env: w.StickyAction(env, 0.5)),
    "MaxAndSkipObservation": lambda: made(lambda env: w.MaxAndSkipObservation(env, 2)),
    "RepeatAction": lambda: made(lambda env: w.RepeatAction(env, 2)),
    "TransformAction": lambda: made(lambda env: w.TransformAction(env, lambda a: P - 1 - a, env.action_space)),
    "vector TransformAction": lambda: VecEnvAdapter(w.vector.TransformAction(vector(2), lambda a: P - 1 - a)),
}


@pytest.mark.parametrize("name", [*OF_OBSERVATIONS, *OF_ACTIONS])
def test_what_changes_observations_or_actions_is_refused(name):
    """In one line; of observations the user can say what it was, of actions nothing helps."""
    env = (OF_OBSERVATIONS | OF_ACTIONS)[name]()
    model = sb3.A2C("MlpPolicy", env, **SB3_SETTINGS)
    word = name.split()[-1]
    try:
        with refused(word):
            policy_of(model)
        with nullcontext() if name in OF_OBSERVATIONS else refused(word):
            policy_of(model, transform=lambda x: x)
    finally:
        env.close()


def test_what_changes_neither_is_let_pass(world):
    def wrapped(env):
        env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(env, 9))
        return gym.wrappers.NormalizeReward(gym.wrappers.ClipReward(env, 0, 1))

    single = make_vec_env("recsim_mnar/Sessions-v0", n_envs=2, env_kwargs=ENV, wrapper_class=wrapped)
    w = gym.wrappers.vector
    lanes = VecEnvAdapter(w.ClipReward(w.NormalizeReward(w.RecordEpisodeStatistics(vector(2))), 0, 1))
    for env in (single, lanes):
        holds(world, policy_of(sb3.A2C("MlpPolicy", env, **SB3_SETTINGS)))


@pytest.mark.parametrize("kind", ["RecurrentPPO", "MaskablePPO", "QRDQN", "ARS"])
def test_models_that_answer_by_more_than_an_observation_are_refused(kind):
    contrib = pytest.importorskip("sb3_contrib")

    network = "MlpLstmPolicy" if kind == "RecurrentPPO" else "MlpPolicy"
    model = getattr(contrib, kind)(network, VecEnvAdapter(vector(2)), device="cpu")
    with refused(kind):
        policy_of(model)


# ------------------------------------------------------------------------------ agents in the environment of a task

TASK = "flipped-100-v1"


def trained(algorithm, env, **settings):
    """Train a model for one short rollout, which is enough to act by."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = algorithm("MlpPolicy", env, seed=0, device="cpu", **settings)
        model.learn(64)
    return model


def task_env(wrap=lambda env: env, name="recsim_mnar/Flipped100-v1", **keywords):
    return make_vec_env(lambda: wrap(gym.make(name, **keywords)), n_envs=2)


def test_model_earns_the_same_as_policy_and_as_agent():
    """With VecNormalize, whose statistics normalise what either of them sees."""
    env = vec_env.VecNormalize(task_env())
    model = trained(sb3.PPO, env, n_steps=16, batch_size=16)
    by_policy = evaluate(policy_of(model, deterministic=True), TASK, n_users=30)
    by_agent = evaluate_agent(ours.agent_of(model, deterministic=True), TASK, n_users=30)
    np.testing.assert_allclose(by_agent.earned, by_policy.earned, rtol=1e-6)


@pytest.mark.parametrize("kind", ["dqn", "slates", "frames", "recurrent", "masked"])
def test_agents_that_are_no_policies_get_a_score(kind):
    task = TASK
    wrap = {}
    if kind == "dqn":
        model = trained(sb3.DQN, task_env(observation="shown=0.9"), learning_starts=16)
        wrap = {"observation": "shown=0.9"}
    elif kind == "slates":
        task = "sessions-slates-10-v1"
        model = trained(sb3.A2C, task_env(name="recsim_mnar/SessionsSlates10-v1"))
    elif kind == "frames":
        wrap = {"wrap": lambda env: FlattenObservation(FrameStackObservation(env, 3))}
        model = trained(sb3.A2C, task_env(wrap["wrap"]))
    elif kind == "recurrent":
        contrib = pytest.importorskip("sb3_contrib")
        env = task_env()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = contrib.RecurrentPPO("MlpLstmPolicy", env, n_steps=16, batch_size=16, device="cpu").learn(64)
    else:
        contrib = pytest.importorskip("sb3_contrib")

        class OnlyEven(gym.Wrapper):
            def action_masks(self):
                return np.arange(100) % 2 == 0

        wrap = {"wrap": OnlyEven}
        model = trained(contrib.MaskablePPO, task_env(OnlyEven), n_steps=16, batch_size=16)
    evaluation = evaluate_agent(ours.agent_of(model), task, n_users=20, **wrap)
    assert evaluation.decisions > 10.0
    assert evaluation.score_low < evaluation.score < evaluation.score_high
