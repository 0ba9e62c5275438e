"""A policy against its contract, rule by rule: what is broken, in a sentence, and what to do.

:class:`recsim_mnar.testing.PolicyContract` runs the same rules as tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from recsim_mnar.contracts import policy_order as order
from recsim_mnar.contracts import policy_propensities as propensities
from recsim_mnar.contracts import policy_state as state
from recsim_mnar.contracts.findings import BrokenRuleError, Finding, findings_of
from recsim_mnar.contracts.policy_case import PolicyCase
from recsim_mnar.policy.acting import TOLERANCE
from recsim_mnar.policy.capabilities import learning_of


def check_policy(
    make_policy: Callable[[], Any], *, n_draws: int = 20_000, tolerance: float = TOLERANCE
) -> list[Finding]:
    """The rules of :data:`RULES` that a policy breaks; an empty list where it keeps them all.

    Args:
        make_policy: gives a new policy without any user, always the same one; as
            :func:`recsim_mnar.policy.adapting.as_policy` takes it.
        n_draws: decisions of the test whether actions come as often as stated.
        tolerance: by which two statements of one propensity may differ; float32 rounds by less than the default.
    """
    case = PolicyCase(make_policy, n_draws=n_draws, tolerance=tolerance)
    rules = RULES
    if findings_of({"door": RULES["door"]}, case) == [] and not case.policy().replayable:
        rules = {name: rule for name, rule in RULES.items() if name not in OF_TWINS}
    return findings_of(rules, case, needed=_NEEDED)


def door(case: PolicyCase) -> None:
    """It has what a policy must have, and declares its learning in one of the words there are."""
    learning_of(case.policy())


def describes_itself(case: PolicyCase) -> None:
    """``describe`` is of JSON types and holds the name."""
    policy = case.policy()
    told = policy.describe()
    try:
        held = json.loads(json.dumps(told))
    except TypeError as error:
        raise BrokenRuleError(f"describe() cannot be written as JSON: {error}") from None
    if held.get("name") != policy.name:
        raise BrokenRuleError(f"describe() names it {held.get('name')!r}, its name is {policy.name!r}")


RULES: dict[str, tuple[Callable[[PolicyCase], None], str]] = {
    "door": (door, "give it n_items and act(users, uniforms)"),
    "distributions": (propensities.distributions, "return (n, n_items) probabilities whose rows sum to 1"),
    "propensities_agree": (
        propensities.propensities_agree,
        "return the probability, over the uniform, of the action drawn",
    ),
    "acting_changes_nothing": (
        state.acting_changes_nothing,
        "let the uniform be its only randomness, and change the state in observe() and learn() alone",
    ),
    "inputs_are_left_alone": (state.inputs_are_left_alone, "copy an array before you write in it"),
    "one_user_at_a_time": (order.one_user_at_a_time, "compute each user's answer from that user's own state"),
    "order_within_a_batch": (order.order_within_a_batch, "compute each user's answer from that user's own state"),
    "runs_of_decisions": (order.runs_of_decisions, "omit batches_decisions"),
    "ratings_one_user_at_a_time": (order.ratings_one_user_at_a_time, "go through ratings in their order, user by user"),
    "learns_then_agrees": (propensities.learns_then_agrees, "drop in learn() whatever was computed before it"),
    "learns_as_declared": (state.learns_as_declared, "declare learns = 'all users' and run it by simulate_online"),
    "reset_and_forget": (state.reset_and_forget, "begin a user anew in reset(), and touch no other"),
    "fresh_shares_no_user": (state.fresh_shares_no_user, "omit fresh(), or start its states anew"),
    "copies_are_apart": (
        state.copies_are_apart,
        "keep what changes in attributes of the object, not of the class, and let copy.deepcopy copy it",
    ),
    "answers_are_given_away": (state.answers_are_given_away, "return new arrays: a copy of what the policy keeps"),
    "describes_itself": (describes_itself, "return a dict of texts, numbers and lists with the name"),
    "runs_and_replays": (propensities.runs_and_replays, "let what it is told be all that its probabilities depend on"),
    "frequencies_follow": (
        propensities.frequencies_follow,
        "draw from the distribution that is stated, by the uniform",
    ),
}
"""Rules by name: the function that raises where one is broken, and what to do."""

OF_TWINS = frozenset(
    {
        "one_user_at_a_time",
        "order_within_a_batch",
        "ratings_one_user_at_a_time",
        "reset_and_forget",
        "fresh_shares_no_user",
        "copies_are_apart",
        "answers_are_given_away",
    }
)
"""Rules that compare objects that were told the same: not for a policy that says that it is not replayable."""

_NEEDED = frozenset({"door", "distributions"})
