"""Plug-ins of all kinds against the rules of their kind, by name, as the command checks them."""

from __future__ import annotations

import plugins_blind
import plugins_missed
import plugins_own
import pytest

from recsim_mnar.testing import kinds, protocols
from recsim_mnar.testing.kinds import check_named

MODULES = (plugins_missed, plugins_blind, plugins_own)
BROKEN = {kind: rule for module in MODULES for kind, rule in module.BROKEN.items()}


def rules_broken(kind):
    return [breach.rule for breach in check_named(f"{kind.__module__}:{kind.__name__}").breaches]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rule"), BROKEN.items(), ids=[kind.__name__ for kind in BROKEN])
def test_a_broken_one_is_caught_by_the_rule(kind, rule):
    assert rule in rules_broken(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for module in MODULES for kind in module.RIGHT], ids=lambda kind: kind.__name__)
def test_a_right_one_is_not(kind):
    assert rules_broken(kind) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for module in MODULES for kind in module.NOT_LOOKED_FOR])
def test_what_the_page_says_is_not_looked_for(kind):
    assert rules_broken(kind) == []


def test_each_rule_of_a_learner_and_new_one_of_a_protocol_has_a_plug_in():
    assert set(kinds.LEARNER_RULES) <= set(BROKEN.values())
    assert {"trial_is_left_alone", "same_twice"} <= set(BROKEN.values()) & set(protocols.RULES)
