import numpy as np
import pytest

from recsim_mnar.policies import registry
from recsim_mnar.purchases.envs import PurchasesEnv, PurchasesVectorEnv
from recsim_mnar.purchases.policies import DeployedPolicy, SlatePolicy
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate
from recsim_mnar.testing.environments import stepped_again

ID = "recsim_mnar/Purchases-v0"


def small_world(**params):
    return PurchasesWorld(
        PurchasesParams(**{"n_items": 12, "n_periods": 4, "slate_size": 3, "base": -1.0, "slates": "fixed", **params})
    )


@pytest.mark.parametrize("name", ["deployed", "user-popularity-greedy"])
def test_every_face_tells_the_same_lives(name):
    world = small_world()
    deployed = DeployedPolicy(world)
    train = simulate(world, deployed, 30, 1)
    policy = (
        deployed if name == "deployed" else SlatePolicy(registry.learner(name).fit(train, n_items=12), world.params)
    )
    log = simulate(world, policy, 17, 9)
    for env in (PurchasesEnv(world), *(PurchasesVectorEnv(world, lanes) for lanes in (1, 4, 20))):
        assert stepped_again(env, log, size=3).digest() == log.digest()


def test_an_item_named_twice_is_recommended_once():
    twice, once = PurchasesEnv(small_world()), PurchasesEnv(small_world(slate_size=2))
    for seed in range(20):
        for env in (twice, once):
            env.reset(seed=seed)
        a = twice.step(np.array([3, 5, 3]))
        b = once.step(np.array([5, 3]))
        assert np.array_equal(a[0], b[0])
        assert a[1:] == b[1:]


def test_the_reward_counts_all_purchases_and_the_slates_uplift_is_what_it_adds():
    world = small_world(n_periods=1)
    env = PurchasesEnv(world, info="views")
    slate, other = np.array([0, 1, 2]), np.array([7, 8, 9])
    gain, stated = [], []
    for seed in range(400):
        env.reset(seed=seed)
        stated.append(env.slate_uplift(slate) - env.slate_uplift(other))
        observation, reward, terminated, _truncated, info = env.step(slate)
        assert terminated
        assert reward == observation.sum() == len(info["views"]) + len(info["bought"])
        env.reset(seed=seed)
        gain.append(reward - env.step(other)[1])
    gain, stated = np.array(gain), np.array(stated)
    assert abs((gain - stated).mean()) < 3.5 * (gain - stated).std() / np.sqrt(400)
