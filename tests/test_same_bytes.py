"""One seed, one log: for any workers, shards and lanes, and through simulate, the single and the vector environment."""

import numpy as np
import pytest

from recsim_mnar.envs import WorldEnv, WorldVectorEnv
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import executor as shards
from recsim_mnar.simulation import items as simulate
from recsim_mnar.simulation.pools import pool
from recsim_mnar.testing.environments import stepped_again
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first
from twins.policies import Contrary, OrderReader, Uniform

N_ITEMS, N_USERS, SEED = 40, 45, 21
AGENTS = [
    "random",
    "item-knn",
    "user-popularity+epsilon=0.2",
    "user-knn",
    "constant",
    "popularity",
    "user-popularity",
    "user-popularity-greedy",
    "svd+rank=6",
    "item-knn+temperature=0.3",
]


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=N_ITEMS, n_flips=9, clock="normal", sigma_mu_organic=1.0))


@pytest.fixture(scope="module")
def train(world):
    return simulate.simulate(world, Uniform(N_ITEMS), 120, seed=77)


def policy_of(name, train):
    twins = {"order-reader": OrderReader, "contrary": Contrary}
    if name in twins:
        return twins[name](N_ITEMS)
    return registry.learner(name).fit(train, n_items=N_ITEMS, seed=1)


@pytest.mark.parametrize("name", quick_first(["order-reader", "contrary", *AGENTS], quick=5))
def test_every_face_gives_the_same_bytes(world, train, name, monkeypatch):
    policy = policy_of(name, train)
    whole = simulate.simulate(world, policy, N_USERS, SEED)
    expected = whole.digest()
    whole.validate(N_ITEMS)
    for shard, n_workers in ((7, 2), (16, 7)):
        monkeypatch.setattr(shards, "SHARD_USERS", shard)
        with pool(n_workers) as executor:
            log = simulate.simulate(world, policy, N_USERS, SEED, executor=executor)
        assert log.digest() == expected, f"{shard} users a shard, {n_workers} workers"
    assert stepped_again(WorldEnv(world), whole).digest() == expected
    for lanes in (1, 8, 100):
        assert stepped_again(WorldVectorEnv(world, lanes), whole).digest() == expected, f"{lanes} lanes"


def test_few_lanes_are_refilled_with_the_same_result(world, train, monkeypatch):
    policy = policy_of("user-knn", train)
    expected = simulate.simulate(world, policy, N_USERS, SEED).digest()
    monkeypatch.setattr(simulate, "LANE_BYTES", 4 * N_ITEMS * 3)
    assert simulate.simulate(world, policy, N_USERS, SEED).digest() == expected


def test_policies_run_inside_the_kernel_as_outside(world):
    inside = registry.uniform_policy(N_ITEMS)
    assert inside.is_uniform
    assert (
        simulate.simulate(world, inside, N_USERS, SEED).digest()
        == simulate.simulate(world, Uniform(N_ITEMS), N_USERS, SEED).digest()
    )


def test_a_user_does_not_depend_on_who_is_simulated_beside_it(world):
    log = simulate.simulate(world, Uniform(N_ITEMS), N_USERS, SEED)
    alone = simulate.simulate(world, Uniform(N_ITEMS), 1, SEED, first_user=17)
    rows = log.select(log["user"] == 17)
    assert rows.digest() == alone.digest()


def test_seeds_share_no_user(world):
    a = simulate.simulate(world, Uniform(N_ITEMS), 5, 1)
    b = simulate.simulate(world, Uniform(N_ITEMS), 5, 2)
    assert not np.array_equal(a["item"][:20], b["item"][:20])


@pytest.mark.slow
def test_the_sampler_of_large_catalogues_too():
    """Rejection sampling keeps earlier weights a lane: refilled lanes and single users must not see each other's."""
    world = SessionsWorld(SessionsParams(n_items=700, sigma_omega=0.4))
    expected = simulate.simulate(world, Uniform(700), 30, SEED)
    inside = registry.uniform_policy(700)
    assert simulate.simulate(world, inside, 30, SEED).digest() == expected.digest()
    assert stepped_again(WorldVectorEnv(world, 4), expected).digest() == expected.digest()
    assert simulate.simulate(world, Uniform(700), 1, SEED, first_user=9).digest() == (
        expected.select(expected["user"] == 9).digest()
    )


RATERS = ["random", "popularity", "user-popularity+epsilon=0.2", "mf-ips-ratings+penalty=0.0005"]


@pytest.fixture(scope="module", params=["repeat_pays=true", "repeat_pays=false"])
def rated(request):
    return make_world("ratings", None, [f"n_items={N_ITEMS}", "density=0.1", "n_decisions=4", request.param])


@pytest.mark.parametrize(
    "name",
    quick_first(
        ["mf-naive-ratings+penalty=0.0005+temperature=0.3", *RATERS, "mf-ips-ratings+unrated=true+penalty=0.0005"], 4
    ),
)
def test_every_face_of_the_ratings_world_gives_the_same_bytes(rated, name, monkeypatch):
    """The propensities with which ratings are revealed are part of it."""
    policy = registry.learner(name).fit(simulate.simulate(rated, Uniform(N_ITEMS), 120, 77), n_items=N_ITEMS, seed=1)
    whole = simulate.simulate(rated, policy, N_USERS, SEED).validate(N_ITEMS)
    expected = whole.digest(optional=True)
    assert expected != whole.digest()
    if name.startswith("mf") and "temp" not in name:
        assert len(set(whole.bandit()["action"])) > 5  # it does not recommend one thing to everyone
    monkeypatch.setattr(shards, "SHARD_USERS", 7)
    with pool(3) as executor:
        log = simulate.simulate(rated, policy, N_USERS, SEED, executor=executor)
    assert log.digest(optional=True) == expected
    assert stepped_again(WorldEnv(rated), whole).digest(optional=True) == expected
    for lanes in (1, 8, 100):
        assert stepped_again(WorldVectorEnv(rated, lanes), whole).digest(optional=True) == expected, f"{lanes} lanes"
    shown = whole.is_bandit
    np.testing.assert_allclose(replay(whole, policy)[shown], whole["propensity"][shown], rtol=1e-12)
