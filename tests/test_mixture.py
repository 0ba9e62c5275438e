"""Mixtures of policies: what they take, what they say of it, and the files they come from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recsim_mnar.agents.baselines import FixedPolicy
from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.mixture import MixturePolicy, read_mixture, write_mixture
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.testing import check_policy
from recsim_mnar.worlds import make_world

PARTS = {"constant+item=2": 0.7, "random": 0.1, "user-popularity-greedy": 0.2}


def policy(n_items=5):
    inner = [
        registry.learner(name).fit(Log({}), n_items=n_items, seed=0)
        for name in PARTS
        if name != "user-popularity-greedy"
    ]
    ranked = FixedPolicy(n_items, "ranked", np.arange(n_items, 0.0, -1.0))
    return MixturePolicy([*inner, ranked], list(PARTS.values()))


def test_probabilities_are_the_weighted_sum_and_actions_follow_them():
    mixed = policy()
    users = np.arange(3)
    mixed.reset(users)
    wanted = sum(
        weight * part.probabilities(users) for weight, part in zip(PARTS.values(), mixed.policies, strict=True)
    )
    assert mixed.probabilities(users) == pytest.approx(wanted)
    n = 20_000
    actions, propensities = mixed.act(np.zeros(n, np.int64), (np.arange(n) + 0.5) / n)
    assert np.bincount(actions, minlength=5) / n == pytest.approx(wanted[0], abs=1e-3)
    assert propensities == pytest.approx(wanted[0][actions])


def test_it_keeps_the_contract_of_policies():
    assert check_policy(policy) == []


def test_a_log_under_it_is_replayed_with_the_same_propensities(tmp_path):
    path = tmp_path / "design.json"
    write_mixture(path, PARTS)
    world = make_world("sessions", "quick", [])
    training = simulate(world, registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0), 50, 1)
    learner = registry.learner(str(path))
    fitted = learner.fit(training, n_items=world.n_items, seed=0)
    assert fitted.name == str(path)
    log = simulate(world, fitted, 30, 2)
    shown = log.is_bandit
    assert replay(log, fitted)[shown] == pytest.approx(log["propensity"][shown], abs=1e-12)
    parts = [registry.learner(name).fit(training, n_items=world.n_items, seed=0) for name in PARTS]
    summed = sum(w * replay(log, part)[shown] for w, part in zip(PARTS.values(), parts, strict=True))
    assert summed == pytest.approx(log["propensity"][shown])
    story = log.provenance["policy"]
    assert [part["weight"] for part in story["policies"]] == pytest.approx(list(PARTS.values()))


def test_a_softened_mixture_is_named_as_any_other(tmp_path):
    path = tmp_path / "design.json"
    write_mixture(path, {"constant+item=2": 1.0})
    fitted = registry.learner(f"{path}+epsilon=0.5").fit(Log({}), n_items=4, seed=0)
    assert fitted.probabilities(np.arange(1))[0] == pytest.approx([0.125, 0.125, 0.625, 0.125])


def test_files_are_plain_json_and_come_back(tmp_path):
    path = tmp_path / "design.json"
    write_mixture(path, PARTS)
    assert dict(read_mixture(path)) == PARTS
    assert set(json.loads(path.read_text())) == {"format", "version", "policies"}
    assert [name.name for name in tmp_path.iterdir()] == ["design.json"]


def listed(*policies, version=1):
    return json.dumps({"format": "recsim-mnar mixture", "version": version, "policies": policies})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        ("not json", "is not a mixture"),
        ("[]", "is not a mixture"),
        (listed(version=2), "not 'recsim-mnar mixture' 1"),
        (listed(), "a weight for each"),
        (listed({"policy": 1, "weight": 1.0}), "has a name"),
        (listed({"policy": "random", "weight": "x"}), "a number"),
        (listed({"policy": "random", "weight": 0.5}), "sum to 1"),
        (listed({"policy": "x.json", "weight": 1}), "mixtures"),
        (listed({"policy": "randon", "weight": 1}), "random"),
    ],
)
def test_files_that_are_none(tmp_path, content, said):
    path = tmp_path / "design.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=said) as caught:
        registry.learner(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "said"),
    [([0.5], "a weight for each"), ([0.5, 0.6], "sum to 1"), ([1.0, 0.0], "positive"), (["a", "b"], "numbers")],
)
def test_weights_that_are_none(weights, said):
    two = [FixedPolicy(3, name, np.arange(3.0)) for name in "ab"]
    with pytest.raises(UserError, match=said):
        MixturePolicy(two, weights)
    with pytest.raises(UserError, match="same items"):
        MixturePolicy([two[0], FixedPolicy(4, "c", np.arange(4.0))], [0.5, 0.5])
