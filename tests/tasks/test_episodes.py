"""evaluate_agent: the score of an agent that acts in a task's own environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

import recsim_mnar
from recsim_mnar import UserError, evaluate, evaluate_agent

TASK = "flipped-100-v1"
WEIGHTS = np.random.default_rng(0).normal(size=(100, 100))


def best_of(weights):
    """Return a function that makes an agent: the item with the largest linear score of the view counts."""
    return lambda env: lambda observations: (observations @ weights).argmax(axis=1)


@pytest.mark.parametrize("task", [TASK, "drifting-100-v1", "cold-100-v1"])
def test_same_policy_earns_the_same_by_both_functions(task):
    policy = recsim_mnar.FeaturePolicy(100, scores=lambda counts: counts @ WEIGHTS)
    by_policy = evaluate(policy, task, n_users=60)
    by_agent = evaluate_agent(best_of(WEIGHTS), task, n_users=60, lanes=11)
    np.testing.assert_allclose(by_agent.earned, by_policy.earned, rtol=1e-12)
    assert by_agent.decisions == by_policy.decisions
    assert by_agent.score == pytest.approx(by_policy.score, abs=1e-12)
    assert by_agent.score_high == pytest.approx(by_policy.score_high, abs=1e-12)


def test_ranking_earns_the_same_by_both_functions():
    task = recsim_mnar.task("sessions-slates-10-v1")
    size = task.make_world().slate_size
    weights = np.random.default_rng(1).normal(size=(task.params["n_items"],) * 2)

    def make_agent(env):
        return lambda observations: np.argsort(-(observations @ weights), axis=1)[:, :size]

    by_policy = evaluate(recsim_mnar.FeaturePolicy(len(weights), scores=lambda x: x @ weights), task, n_users=40)
    by_agent = evaluate_agent(make_agent, task, n_users=40)
    np.testing.assert_allclose(by_agent.earned, by_policy.earned, rtol=1e-9)


def test_state_is_kept_by_lane_and_starts_with_each_user():
    """An agent with a counter in its state shows item j at its j-th decision, as the observation of a wrapper says."""

    class CountsDecisions(gym.ObservationWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space = gym.spaces.Box(0, np.inf, (1,), np.float64)
            self.n = -1

        def reset(self, **arguments):
            self.n = -1
            return super().reset(**arguments)

        def observation(self, observation):
            self.n += 1
            return np.array([float(self.n)])

    def make_agent(env):
        def act(observations, state, starts):
            counts = np.zeros(len(observations), np.int64) if state is None else state + 1
            counts[starts] = 0
            running = observations[:, 0] == counts
            assert running.sum() >= 1
            unequal.append(int((~running).sum()))
            return np.minimum(counts, 99), counts

        return act

    unequal: list[int] = []
    evaluate_agent(make_agent, TASK, wrap=CountsDecisions, n_users=30, lanes=30)
    assert unequal[0] == 0
    # Lanes that have no user left show what another one sees.
    assert max(unequal) < 30


def test_wrappers_shape_what_the_agent_sees():
    shapes = []

    def make_agent(env):
        def act(observations):
            shapes.append(observations.shape)
            return (observations[:, -1] @ WEIGHTS).argmax(axis=1)

        return act

    stacked = evaluate_agent(make_agent, TASK, wrap=lambda env: FrameStackObservation(env, 3), n_users=20, lanes=4)
    assert set(shapes) == {(4, 3, 100)}
    plain = evaluate_agent(best_of(WEIGHTS), TASK, n_users=20)
    np.testing.assert_array_equal(stacked.earned, plain.earned)


def test_masks_of_wrappers_reach_the_agent():
    class OnlyEven(gym.Wrapper):
        def action_masks(self):
            return np.arange(100) % 2 == 0

    def make_agent(env):
        def act(observations, state, starts, masks):
            assert masks.shape == (5, 100)
            return np.where(masks, observations @ WEIGHTS, -np.inf).argmax(axis=1), state

        return act

    def even_scores(counts):
        return np.where(np.arange(100) % 2 == 0, counts @ WEIGHTS, -1e9)

    masked = evaluate_agent(make_agent, TASK, wrap=OnlyEven, n_users=15, lanes=5)
    policy = evaluate(recsim_mnar.FeaturePolicy(100, scores=even_scores), TASK, n_users=15)
    np.testing.assert_allclose(masked.earned, policy.earned, rtol=1e-12)


def test_action_wrapper_earns_what_reaches_the_world():
    class Reversed(gym.ActionWrapper):
        def action(self, action):
            return 99 - action

    reversed_weights = WEIGHTS[:, ::-1]
    wrapped = evaluate_agent(best_of(reversed_weights), TASK, wrap=Reversed, n_users=20)
    np.testing.assert_array_equal(wrapped.earned, evaluate_agent(best_of(WEIGHTS), TASK, n_users=20).earned)


def test_leads_pair_users_of_both_functions():
    mine = evaluate_agent(best_of(WEIGHTS), TASK, n_users=50, users="quoted")
    rival = evaluate("user-popularity-greedy", TASK, users=mine)
    assert rival.seed == mine.seed
    lead = mine.ahead_of(rival)
    assert lead.low < mine.score - rival.score < lead.high
    assert mine.which == "quoted"
    assert mine.seed != recsim_mnar.task(TASK).seed


def test_several_training_seeds_are_one_agent():
    agents = [best_of(np.random.default_rng(seed).normal(size=(100, 100))) for seed in range(3)]
    together = evaluate_agent(agents, TASK, n_users=20)
    apart = [evaluate_agent(agent, TASK, n_users=20).score for agent in agents]
    assert together.scores == pytest.approx(apart)


@pytest.mark.parametrize(
    "make_agent",
    [
        pytest.param(5, id="no function"),
        pytest.param(lambda env: 3, id="no act"),
        pytest.param(lambda env: lambda observations: 3, id="one action"),
        pytest.param(lambda env: lambda observations, state, starts: np.zeros(len(starts), int), id="no state"),
        pytest.param(lambda env: lambda observations: np.full(len(observations), 100), id="no such item"),
        pytest.param(lambda env: lambda observations: np.zeros(len(observations)), id="floats"),
    ],
)
def test_agents_that_cannot_act_are_refused(make_agent):
    with pytest.raises(UserError):
        evaluate_agent(make_agent, TASK, n_users=4)


@pytest.mark.parametrize("task", ["uplift-200-v1", "campaigns-60-v1", "from-log-100-v1"])
def test_tasks_without_single_decisions_are_refused(task):
    with pytest.raises(UserError):
        evaluate_agent(best_of(WEIGHTS), task, n_users=4)


class EndsEarly(gym.Wrapper):
    def step(self, action):
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, True, info


class ResetsElsewhere(gym.Wrapper):
    def reset(self, **arguments):
        return self.env.reset(seed=999)


@pytest.mark.parametrize("wrap", [EndsEarly, ResetsElsewhere, lambda env: env.unwrapped])
def test_wrappers_that_change_the_visits_are_refused(wrap):
    with pytest.raises(UserError):
        evaluate_agent(best_of(WEIGHTS), TASK, wrap=wrap, n_users=4)


def test_actions_of_one_number_each_are_items():
    column = evaluate_agent(lambda env: lambda seen: (seen @ WEIGHTS).argmax(axis=1)[:, None], TASK, n_users=5)
    np.testing.assert_array_equal(column.earned, evaluate_agent(best_of(WEIGHTS), TASK, n_users=5).earned)
