"""Odd policies are refused where the log is made, with both numbers in one line; legitimate ones are not."""

import numpy as np
import pytest

from recsim_mnar.policies.answers import GRID, Acting
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused
from twins.odd_policies import PLANTED, SOUND, OrderOfRounds, P, Right, Single

RUNS = {
    "simulate": lambda world, policy: simulate(world, policy, 60, 3),
    "simulate_online": lambda world, policy: simulate_online(world, policy, 60, 3, lanes=16),
}


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("planted", [each for each in PLANTED if each.refused], ids=lambda each: each.kind.__name__)
def test_an_odd_policy_is_refused_in_one_line(world, run, planted):
    with refused(f"^policy 'right':? ({planted.refused})"):
        RUNS[run](world, planted.kind())


@pytest.mark.parametrize("kind", SOUND)
def test_a_legitimate_policy_is_accepted(world, kind):
    for name, run in RUNS.items():
        if kind is not OrderOfRounds or name == "simulate_online":
            run(world, kind())
    if kind in (Single, OrderOfRounds):
        log = simulate_online(world, kind(), 60, 3, lanes=7).log
        shown = log.is_bandit
        np.testing.assert_allclose(replay(log, kind())[shown], log["propensity"][shown], atol=1e-6)


class Counting(Right):
    """Counts what it is asked."""

    asked = None

    def act(self, users, uniforms):
        self.asked["act"] += len(users)
        return super().act(users, uniforms)

    def propensity_of(self, users, actions):
        self.asked["price"] += len(users)
        return self.probabilities(users)[np.arange(len(users)), actions]


def test_what_is_asked_is_bounded_and_the_grid_comes_once_for_a_policy():
    policy = Counting()
    policy.asked = {"act": 0, "price": 0}
    users = np.arange(40)
    policy.reset(users)
    for grid_of_policy in (GRID + 16, 0):
        acting = Acting(policy, P)
        calls = 300
        policy.asked.update(act=0, price=0)
        for k in range(calls):
            acting(users.copy(), np.random.default_rng(k).random(40))
        grid = policy.asked["act"] - 40 * calls
        checks = policy.asked["price"] - policy.asked["act"]  # act asks once for each of its own
        assert checks == 8 * 6  # calls 0, 1, 4, 16, 64, 256, eight users each
        assert grid == grid_of_policy


def test_inputs_are_read_only_in_replay_too(world):
    class Sorts(Right):
        def propensity_of(self, users, actions):
            actions.sort()
            return super().propensity_of(users, actions)

    log = simulate(world, Right(), 20, 3)
    with refused(r"propensity_of\(\) writes in the arrays"):
        replay(log, Sorts())
