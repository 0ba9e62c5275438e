"""Toy policies, logs and records that several modules of tests need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.campaigns.platform import platform_log
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.jit import interpreted
from recsim_mnar.log import Log
from recsim_mnar.policies import Learner, Policy, registry
from recsim_mnar.protocols.comparison import compare, experiment_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.worlds import make_world


@contextmanager
def refused(words: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a mistake to be said in one line, which holds the words."""
    with pytest.raises(UserError, match=words) as caught:
        yield caught
    assert "\n" not in str(caught.value)


def only(records, **fields):
    """The one record that has these fields."""
    (record,) = [record for record in records if fields.items() <= record.items()]
    return record


def read_json(path):
    return json.loads(path.read_text())


def program(*arguments, **how):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "recsim_mnar", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def untrained(spec, n_items):
    """Make an agent that was fitted to no rows."""
    return registry.learner(spec).fit(Log({}), n_items=n_items, seed=0)


def run_plainly(monkeypatch, module, name):
    """Let a kernel run as plain Python: for a few calls of a form that no other test would have compiled."""
    kernel = interpreted(getattr(module, name))

    def call(*arguments):
        with np.errstate(over="ignore"):
            return kernel(*arguments)

    monkeypatch.setattr(module, name, call)


class Drawing(Policy):
    """Draws from its probabilities."""

    def act(self, users, uniforms):
        edges = np.cumsum(self.probabilities(users), axis=1)
        actions = np.minimum((edges <= uniforms[:, None]).sum(axis=1), self.n_items - 1)
        return actions, self.propensity_of(users, actions)


class Always(Drawing):
    """Shows one item."""

    name = "always"

    def __init__(self, n_items, item=0):
        self.n_items, self.item = n_items, item

    def probabilities(self, users):
        return np.tile(np.eye(self.n_items)[self.item], (len(users), 1))


class Greedy(Drawing):
    """Epsilon-greedy on the mean reward of all users so far; ties to the smallest item."""

    name = "greedy"
    epsilon = 0.2

    def __init__(self, n_items):
        self.n_items = n_items
        self.shown, self.earned = np.zeros(n_items), np.zeros(n_items)

    def probabilities(self, users):
        best = int(np.argmax((self.earned + 1.0) / (self.shown + 20.0)))
        return np.tile(self.epsilon / self.n_items + (1 - self.epsilon) * np.eye(self.n_items)[best], (len(users), 1))

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.shown, actions, 1.0)
        np.add.at(self.earned, actions, rewards)


class Stub(Learner):
    """Scores by a function of user and number of items, and of the user's views so far where it is asked for."""

    name = "stub"

    def __init__(self, score, views=False):
        self.score, self.views, self.fits = score, views, []

    def fit(self, log, *, n_items, seed=0):
        self.fits.append((log, seed))
        return Stubbed(self, n_items)


class Stubbed(Policy):
    def __init__(self, learner, n_items):
        self.learner, self.n_items, self.seen = learner, n_items, {}

    def reset(self, users):
        self.seen |= {user: [] for user in users.tolist()}

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.seen[user].append(item)

    def act(self, users, uniforms):
        raise NotImplementedError

    def probabilities(self, users):
        raise NotImplementedError

    def scores(self, users):
        if self.learner.views:
            return np.array([self.learner.score(user, self.n_items, self.seen[user]) for user in users])
        return np.array([self.learner.score(user, self.n_items) for user in users])


def drawn_rows(rng, of_user, law, clicked, **policies):
    """Rows of users who are shown items drawn from a law; ``clicked`` and policies by item."""
    user = np.repeat(np.arange(len(of_user)), of_user)
    action = rng.choice(len(law), user.size, p=law)
    reward = (rng.random(user.size) < clicked[action]).astype(int)
    columns = {"user": user, "action": action, "reward": reward, "propensity": law[action]}
    return pd.DataFrame(columns | {name: policy[action] for name, policy in policies.items()})


def campaigns_log():
    """A platform with two campaigns that follow popularity, and a third that does not."""
    world = make_world("campaigns", "quick")
    platform = world.open_platform(1)
    for day in (330, 430, 480):
        platform.advance(day)
        weights = world.deployed_weights if day < 480 else np.ones(world.n_items)
        platform.recommend(*platform.draw_lists(weights))
    platform.advance(500)
    return platform_log(platform)


def small_comparison(learners, users=60, *, world=(), protocols=None, seed=0, tie=0.0, raw=None, **options):
    """Compare agents, given or named, in a small sessions world."""
    made = make_world("sessions", "quick", ["n_items=20", "n_flips=5", *world])
    sizes = dict.fromkeys(("train_users", "test_users", "arm_users", "truth_users"), users)
    settings = experiment_of(made).settings("quick", sizes | options)
    if not isinstance(learners, dict):
        learners = {name: registry.learner(name) for name in learners}
    return compare(made, learners, protocols=protocols, settings=settings, seed=seed, tie=tie, raw=raw)


def record(protocol, agent, value, metric="ctr", half=0.0, **details):
    """A record of ten users."""
    numbers = {"value": value, "low": value - half, "high": value + half, "level": 0.95, "n": 10, "seconds": 0.0}
    return Record(world="w", protocol=protocol, agent=agent, metric=metric, details=details, **numbers)


def judgement_of_run(outcome, cost, unusable=()):
    """A judgement of one catalogue, as a study stores it."""
    return {"protocol": "ab_test", "metric": "ctr", "target": "CTR", "title": "A/B test", "outcome": outcome,
            "abstains": bool(unusable), "reason": "", "best_truth": 0.1, "target_metric": "ctr", "tied_with": [],
            "unusable": list(unusable), "cost_share": cost, "kendall_tau": 1.0, "pick_by_upper_bound": "a", "best": "a",
            "tau_by_upper_bound": 1.0, "pick": "a"}  # fmt: skip


def bytes_of(folder):
    """Read all files of a run's folder but the one that says what it took: no two of those are alike."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
