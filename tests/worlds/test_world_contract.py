"""The contract of worlds: every world of decisions keeps it, and each rule catches a world that breaks it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from recsim_mnar.testing import WorldContract, check_world
from recsim_mnar.testing.worlds import RULES, bound
from recsim_mnar.worlds import WORLDS, DecisionWorld, Observation, Params, PlainLanes, make_world
from recsim_mnar.worlds.features import FeatureParams, FeatureWorld
from twins.cases import quick_first


def example_world():
    """The world of examples/own_world.py."""
    path = Path(__file__).parents[2] / "examples" / "own_world.py"
    spec = importlib.util.spec_from_file_location("own_world", path)
    module = sys.modules.setdefault("own_world", importlib.util.module_from_spec(spec))
    if not hasattr(module, "Cafe"):
        spec.loader.exec_module(module)
    return module.Cafe()


DECISION_WORLDS = sorted(name for name, entry in WORLDS.items() if issubclass(entry.world_class(), DecisionWorld))


def test_three_worlds_are_of_decisions():
    assert DECISION_WORLDS == ["features", "ratings", "sessions"]


KEPT = {
    "sessions": lambda: make_world("sessions"),
    "ratings": lambda: make_world("ratings", None, {"n_items": 30, "repeat_pays": False}),
    "features": lambda: make_world("features", None, {"lengths": "geometric"}),
    "features of numbers": lambda: FeatureWorld(
        np.arange(12.0).reshape(4, 3),
        np.ones((5, 2)),
        reward=lambda u, i: u[:, :1] - i[:, 0],
        length=3,
        params=FeatureParams(noise=2.0),
    ),
    "example": example_world,
    "sessions with clock and drift": lambda: make_world(
        "sessions", None, {"clock": "normal", "drift_in_bandit": True, "n_flips": 5}
    ),
}


class TestWorlds(WorldContract):
    @pytest.fixture(autouse=True, params=quick_first(list(KEPT), 5))
    def _name(self, request):
        self.name = request.param

    def make_world(self):
        return KEPT[self.name]()


# ------------------------------------------------------------------------------------------------------ planted faults


@dataclass(frozen=True)
class CoinParams(Params):
    n_items: int = 3


class CoinLanes(PlainLanes):
    """Users who answer 3 recommendations, item i with a reward of 1 with probability (i + 1) / 4."""

    def __init__(self, world, n_lanes, *, truth_column=None):
        super().__init__(n_lanes, truth_column=truth_column)
        self.world = world

    @property
    def state(self):
        return np.zeros((len(self.user), 1))

    def expected(self, which, actions):
        return (actions + 1) / 4

    def answer(self, which, actions):
        rewards = (self.uniforms(which) < (actions + 1) / 4).astype(float)
        return rewards, self.n_decisions[which] < 2


class Coins(DecisionWorld):
    name = "coins"
    truth_column = "expected_reward"
    params_class = CoinParams
    lanes_class = CoinLanes

    def __init__(self, params=None):
        self.params = params or CoinParams()
        self.n_items = self.params.n_items

    def open_lanes(self, n_lanes, *, keep_truth=False):
        return self.lanes_class(self, n_lanes, truth_column=self.truth_column if keep_truth else None)

    def reward_means(self, state):
        return np.tile((np.arange(self.n_items) + 1) / 4, (len(state), 1))


def of_lanes(kind):
    return type("Faulty", (Coins,), {"lanes_class": kind})


class LaneNumber(CoinLanes):  # a draw by lane, not by user
    def answer(self, which, actions):
        return (which % 2).astype(float), self.n_decisions[which] < 2


class SharedGenerator(CoinLanes):
    def __init__(self, world, n_lanes, *, truth_column=None):
        super().__init__(world, n_lanes, truth_column=truth_column)
        self.generator = np.random.default_rng(0)

    def answer(self, which, actions):
        return (self.generator.random(len(which)) < 0.5).astype(float), self.n_decisions[which] < 2


class RememberedUsers(CoinLanes):  # as sound for any number of lanes, but user 3 alone is not user 3 among others
    def arrive(self, which):
        self.world.met = getattr(self.world, "met", set()) | set(self.user[which].tolist())

    def answer(self, which, actions):
        return np.full(len(which), float(0 in self.world.met)), self.n_decisions[which] < 2


class Immortal(CoinLanes):
    def answer(self, which, actions):
        return super().answer(which, actions)[0], np.ones(len(which), np.bool_)


class OneSeed(CoinLanes):
    def arrive(self, which):
        self.seed[which] = 7


class WrongShape(CoinLanes):
    def take(self, which, actions, propensities):
        t = super().take(which, actions, propensities)
        return type(t)(t.starts[:-1], t.columns, t.alive)


class BufferTwice(CoinLanes):
    def begin(self, which, seeds, users):
        t = super().begin(which, seeds, users)
        self.alive = t.alive
        return t

    def take(self, which, actions, propensities):
        self.alive[:] = False
        return super().take(which, actions, propensities)


class BiasedRewards(CoinLanes):  # the mean over all items is right, that of each is not
    def answer(self, which, actions):
        return (self.uniforms(which) < (3 - actions) / 4).astype(float), self.n_decisions[which] < 2


class TruthAside(CoinLanes):
    def expected(self, which, actions):
        return np.full(len(which), 0.5)


class TruthBeyond(CoinLanes):
    def expected(self, which, actions):
        return (actions + 1) / 4 * 2


class Rare(CoinLanes):
    """A reward of 1 is so rare that .02 are expected of an item, and none is seen."""

    chance = 1e-5

    def expected(self, which, actions):
        return np.full(len(which), 1e-5)

    def answer(self, which, actions):
        return (self.uniforms(which) < self.chance).astype(float), self.n_decisions[which] < 2


class RarelyStated(Rare):  # some 1,200 rewards of 300,000 where 3 are stated
    chance = 4e-3


class Calendar(CoinLanes):  # each user comes a minute after the one before
    def expected(self, which, actions):
        return 0.25 + 0.5 * np.minimum(self.user[which] / 20_000, 1.0)

    def answer(self, which, actions):
        return (self.uniforms(which) < self.expected(which, actions)).astype(float), self.n_decisions[which] < 2


class Turning(Calendar):  # no more is earned later on, but with other items
    def expected(self, which, actions):
        late = self.user[which] >= 5_000
        return np.where(late, 3 - actions, actions + 1) / 4


class OtherLives(Coins):
    def trajectories(self, seed, first_user, n_users, distribution, *, keep_truth=False):
        return super().trajectories(seed + 1, first_user, n_users, distribution, keep_truth=keep_truth)


class NoItems(Coins):
    def __init__(self):
        self.params = CoinParams()


class Forgetful(Coins):
    made = 0

    def describe(self):
        type(self).made += 1
        return {**super().describe(), "made": self.made}


class UnevenParams(CoinParams):
    def to_dict(self):
        return {"n_items": self.n_items + 1}


class Uneven(Coins):
    def __init__(self):
        super().__init__(UnevenParams())


class Neighbours(Observation):
    """Counts the views and showings of everybody who is at hand."""

    counts_shown = True

    def width(self, n_items):
        return 1

    def observe(self, states, rows, items):
        states += len(rows)

    def show(self, states, rows, actions, rewards):
        states += len(rows)


class Crowded(Coins):
    observation = Neighbours()


FAULTS = {
    "door": NoItems,
    "users_leave": of_lanes(Immortal),
    "seeds_differ": of_lanes(OneSeed),
    "any_lanes": of_lanes(LaneNumber),
    "alone": of_lanes(RememberedUsers),
    "whole_lives": OtherLives,
    "interfaces": of_lanes(SharedGenerator),
    "observation_is_one": Crowded,
    "arrays_are_new": of_lanes(BufferTwice),
    "truth_is_the_mean": of_lanes(TruthAside),
    "truth_in_range": of_lanes(TruthBeyond),
    "rewards_have_their_means": of_lanes(BiasedRewards),
    "any_number": of_lanes(Calendar),
    "describes_itself": Forgetful,
    "params_round_trip": Uneven,
}


def test_the_sound_world_is_found_sound():
    assert check_world(Coins) == []


def test_every_rule_has_a_planted_fault():
    assert set(FAULTS) == set(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("rule", FAULTS)
def test_a_planted_fault_is_caught(rule):
    found = {finding.rule: finding for finding in check_world(FAULTS[rule])}
    assert rule in found
    assert "\n" not in found[rule].why
    assert found[rule].fix


def test_impossible_transitions_are_named():
    assert any("starts must be" in finding.why for finding in check_world(of_lanes(WrongShape)))


def only(rule, kind):
    """What a rule finds of a world of these lanes; rules of the truth of a state are others."""
    return [finding.why for finding in check_world(of_lanes(kind)) if finding.rule == rule]


def test_rare_rewards_that_were_not_seen_are_no_fault():
    rows = of_lanes(Rare)().trajectories(20190912, 0, 2000, None, keep_truth=True)
    shown = rows["event"] == 1
    assert rows["reward"][shown].sum() == 0
    assert rows["expected_reward"][shown].sum() == pytest.approx(0.06)
    assert only("rewards_have_their_means", Rare) == []


def test_rare_rewards_that_come_more_often_than_stated_are_a_fault():
    (why,) = only("rewards_have_their_means", RarelyStated)
    assert "the stated means to 3: further apart" in why


@pytest.mark.verify
@pytest.mark.parametrize("p", [0.002, 0.05, 0.5])
def test_the_bound_of_rewards_is_as_strict_as_it_can_be(p):
    """Beyond it is none of 2,000 right worlds, and six standard errors and a dozen rewards are found."""
    rng = np.random.default_rng(3)
    n = 2000
    most = bound(np.arange(n), np.zeros(n), np.full(n, p), binary=True)
    assert np.abs(rng.binomial(n, p, 2000) - n * p).max() < most
    assert most < 6 * np.sqrt(n * p * (1 - p)) + 12


@pytest.mark.parametrize("kind", [Calendar, Turning])
def test_a_user_s_number_as_a_date_is_named(kind):
    (why,) = only("any_number", kind)
    assert "users 10,000 to 11,999 earn" in why
