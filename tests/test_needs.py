"""Agents' needs of their training logs, checked before anything is simulated."""

from __future__ import annotations

import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import HOLDINGS, check_needs, needs_of
from recsim_mnar.protocols.comparison import compare, experiment_of, worlds_for
from recsim_mnar.worlds import make_world


@pytest.mark.parametrize(
    ("agent", "worlds"),
    [
        ("ulbpr", ["purchases"]),
        ("mf-ips-ratings", ["ratings"]),
        ("poem", ["sessions", "ratings", "features"]),
        ("recresp+factors=5", ["sessions", "purchases", "features"]),
        ("svd+epsilon=0.2", None),
    ],
)
def test_agents_declare_the_worlds_that_they_are_for(agent, worlds):
    known = worlds_for(needs_of(registry.learner(agent)))
    assert (known and sorted(known)) == (worlds and sorted(worlds))


@pytest.mark.parametrize(
    ("world", "agent", "lacks"),
    [
        ("sessions", "ulbpr", "bought and not"),
        ("sessions", "mf-ips-ratings", "revealed ratings"),
        ("ratings", "recresp+epsilon=0.1", "taken or not"),
        ("campaigns", "poem", "rewards and propensities"),
        ("purchases", "mf-ips", "rewards and propensities"),
    ],
)
def test_an_agent_of_another_world_is_refused_before_any_stage(world, agent, lacks):
    made = make_world(world, "quick")
    stages: list[str] = []
    with pytest.raises(UserError, match=lacks):
        compare(made, {agent: registry.learner(agent)}, report=stages.append)
    assert stages == []


def test_every_announced_agent_fits_in_some_world():
    for name, _ in registry.agents():
        assert worlds_for(needs_of(registry.agent_class(name))) != []


def test_unknown_needs_and_unknown_logs():
    class Odd:
        name = "odd"
        needs = ("rating",)

    with pytest.raises(UserError, match="needs 'rating'; did you mean 'ratings'"):
        needs_of(Odd())
    check_needs("ulbpr", registry.learner("ulbpr"), None, "a log of my own world")
    assert experiment_of(make_world("purchases", "quick")).log_holds <= set(HOLDINGS)
