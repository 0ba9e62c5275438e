"""Environments called in any order, wrongly too: what they promise holds, and a wrong call leaves no trace."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from recsim_mnar.envs import CampaignsEnv, CampaignsVectorEnv, WorldEnv, WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.purchases.envs import PurchasesEnv, PurchasesVectorEnv
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

SESSIONS = SessionsWorld(SessionsParams(n_items=6, p_leave_organic=0.2, p_leave_bandit=0.2))
RATINGS = make_world("ratings", "quick", ["n_items=8", "n_decisions=4"])
PURCHASES = PurchasesWorld(PurchasesParams(n_items=12, n_periods=4, slate_size=3, base=-1.0))
CAMPAIGNS = make_world("campaigns", "quick", ["n_users=30", "n_items=40", "n_campaigns=3"])
KINDS = {
    "sessions": lambda: WorldEnv(SESSIONS),
    "sessions by last items": lambda: WorldEnv(SESSIONS, observation="last=3"),
    "ratings": lambda: WorldEnv(RATINGS, observation="last=3"),
    "purchases": lambda: PurchasesEnv(PURCHASES),
    "campaigns": lambda: CampaignsEnv(CAMPAIGNS),
    "lanes": lambda: WorldVectorEnv(SESSIONS, 2, max_episode_steps=3),
    "lanes of slates": lambda: PurchasesVectorEnv(PURCHASES, 2, autoreset_mode="Disabled"),
    "lanes at once": lambda: WorldVectorEnv(RATINGS, 2, autoreset_mode="SameStep"),
    "platforms": lambda: CampaignsVectorEnv(CAMPAIGNS, 2),
    "platforms reset by hand": lambda: CampaignsVectorEnv(CAMPAIGNS, 2, autoreset_mode="Disabled"),
}
SEEDS, USERS = st.sampled_from([0, 7, np.int64(3), 2**40]), st.sampled_from([None, 0, 5])
NO_SEEDS = st.sampled_from([-1, 1.5, "x", True, 2**64, [1, 2, 3], [0, -1], [None, "x"]])
NO_OPTIONS = st.sampled_from([[1], {"usr": 3}, {"user": -1}, {"user": 0.5}, {"reset_mask": np.zeros(2, bool)}])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_stepped_after_it_was_closed(kind):
    """A reset begins anew, as in Gymnasium's own environments."""
    env = KINDS[kind]()
    first, _ = env.reset(seed=5)
    env.close()
    for _ in range(2):
        with pytest.raises(gym.error.ResetNeeded):
            env.step(env.action_space.sample())
    again, _ = env.reset(seed=5)
    assert data_equivalence(first, again)
    env.step(env.action_space.sample())


PHASES = [Phase.generate, Phase.shrink]


class AnyOrder(RuleBasedStateMachine):
    """One environment; ``answers`` are those since it was seeded, to the ``calls`` that it accepted."""

    make = staticmethod(KINDS["sessions"])

    def __init__(self):
        super().__init__()
        self.env = self.make()
        self.n_lanes = getattr(self.env, "num_envs", None)
        self.mode = self.env.metadata["autoreset_mode"].value if self.n_lanes else "Disabled"
        self.by_user = not isinstance(self.env, (CampaignsEnv, CampaignsVectorEnv))
        self.ended: np.ndarray | None = None  # lanes that wait for a reset; None before the first
        self.sizes: dict[str, object] = {}
        self.calls: list[tuple] = []
        self.answers: list[tuple] = []
        self.seeded = False

    def _answered(self, call, answer):
        self.calls.append(call)
        self.answers.append(answer)
        assert self.env.observation_space.contains(answer[0]), call
        info = {key: np.shape(value) for key, value in answer[-1].items() if "final_" not in key}
        assert info == (self.sizes or info), call
        self.sizes = info

    def _ready(self):
        return self.ended is not None and not (self.mode == "Disabled" and self.ended.any())

    @rule(seed=SEEDS, user=USERS, apart=st.booleans())
    def reset_with_a_seed(self, seed, user, apart):
        given = {"seed": [seed, 1] if apart and self.n_lanes else seed}
        if user is not None and self.by_user:
            given["options"] = {"user": user}
        self.calls, self.answers, self.seeded = [], [], True
        self._answered(("reset", given), self.env.reset(**given))
        self.ended = np.zeros(self.n_lanes or 1, bool)

    @rule(user=USERS, mask=st.sampled_from([None, [True, False], [False, True]]))
    def reset(self, user, mask):
        options = {} if user is None or not self.by_user else {"user": user}
        if mask and self.n_lanes:
            options["reset_mask"] = np.array(mask)
            if self.ended is None:
                with pytest.raises(gym.error.ResetNeeded):
                    self.env.reset(options=options)
                return
        before = np.ones(self.n_lanes or 1, bool) if self.ended is None else self.ended
        self._answered(("reset", {"options": options}), self.env.reset(options=options))
        self.ended = before & ~options.get("reset_mask", np.ones_like(before))

    @rule(number=st.integers(0, 99))
    def step(self, number):
        self.env.action_space.seed(number)
        action = self.env.action_space.sample()
        if not self._ready():
            with pytest.raises(gym.error.ResetNeeded):
                self.env.step(action)
            return
        answer = self.env.step(action)
        self._answered(("step", {("actions" if self.n_lanes else "action"): action}), answer)
        _, reward, terminated, truncated, _ = answer
        assert np.isfinite(reward).all()
        assert not np.any(terminated & truncated)
        assert np.asarray(terminated).dtype == np.asarray(truncated).dtype == np.bool_
        if self.n_lanes is None:
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        self.ended = np.atleast_1d(terminated | truncated) & (self.mode != "SameStep")

    @rule(fault=st.sampled_from(["none", "text", "shape", np.nan, -1]))
    def step_wrongly(self, fault):
        right = np.asarray(self.env.action_space.sample())
        wrong = {"none": None, "text": "x", "shape": np.stack([right, right])}.get(fault)
        if not isinstance(fault, str):
            at = () if right.ndim == 0 else -1
            if self.ended is not None and self.ended[-1]:
                return  # what is done in a lane that has ended is not looked at
            wrong = right.astype(type(fault)) if right.dtype.kind == "i" else right.copy()
            wrong[at] = fault
        with pytest.raises((UserError, gym.error.ResetNeeded)) as error:
            self.env.step(wrong)
        assert "\n" not in str(error.value)

    @rule(seed=NO_SEEDS)
    def reset_with_no_seed(self, seed):
        with pytest.raises(UserError):
            self.env.reset(seed=seed)

    @rule(options=NO_OPTIONS, seed=SEEDS)
    def reset_with_no_options(self, options, seed):
        with pytest.raises(UserError):
            self.env.reset(seed=seed, options=options)

    @rule()
    def close(self):
        self.env.close()
        self.ended = None

    @precondition(lambda self: self.seeded)
    @rule()
    def the_same_seed_is_the_same_life(self):
        """Of an environment that saw no other call: neither those before the seed nor the wrong ones."""
        again = self.make()
        for (name, given), answer in zip(self.calls, self.answers, strict=True):
            assert data_equivalence(getattr(again, name)(**given), answer, exact=True), (name, given)

    def teardown(self):
        if self.seeded:
            self.the_same_seed_is_the_same_life()


@pytest.mark.parametrize("examples", [30, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_in_any_order(kind, examples):
    machine = type(kind.title().replace(" ", ""), (AnyOrder,), {"make": staticmethod(KINDS[kind])})
    bounds = settings(max_examples=examples, stateful_step_count=20, deadline=None, derandomize=True, phases=PHASES)
    run_state_machine_as_test(machine, settings=bounds)
