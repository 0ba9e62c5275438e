"""Rules for users' own classes: each has a name, a fix, and a function that yields its breaches.

Rules are in dictionaries by name. ``check_policy`` and the like check one dictionary, the test classes run each of its
rules as a test, and a simulation checks the few rules of :mod:`recsim_mnar.policies.answers`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from recsim_mnar.errors import UserError, described
from recsim_mnar.policies.answers import Rule

F = TypeVar("F", bound=Callable[[Any], Iterator[str] | None])
Rules = dict[str, Rule]
Reasons = Iterator[str]
"""Sentences, one per breach; a function that only raises errors returns None."""


@dataclasses.dataclass(frozen=True)
class Breach:
    """Breach of a rule by the object under test.

    Attributes:
        rule: name of the rule.
        why: sentence that says how the rule is broken.
        fix: advice for repairing it.
        ends: True if later rules were not checked, because they make no sense without this one.
    """

    rule: str
    why: str
    fix: str
    ends: bool = dataclasses.field(default=False, compare=False)

    def __str__(self) -> str:
        if self.fix:
            return f"{self.rule}: {self.why}; {self.fix}"
        return f"{self.rule}: {self.why}"


def rule(rules: Rules, fix: str) -> Callable[[F], F]:
    """Make a decorator that adds a function to a dictionary of rules under the function's name.

    Args:
        rules: dictionary to which the rule is added.
        fix: advice for whoever breaks the rule.

    Returns:
        a decorator of a function from the object under test to the reasons why it breaks the rule.
    """

    def add_rule(finds: F) -> F:
        """Add the function to ``rules``, and return it unchanged."""
        rules[finds.__name__] = Rule(finds.__name__, fix, finds)
        return finds

    return add_rule


def first_breach(rule: Rule, subject: Any) -> Breach | None:
    """Return the first breach of a rule; None if the object under test keeps it.

    An error that the object raises is a breach as well.
    """
    try:
        why = next(iter(rule.finds(subject) or ()), None)
    except (AssertionError, UserError) as error:
        why = str(error)
    except Exception as error:  # a user's code may raise anything
        why = f"it raised {described(error)}"
    if why is None:
        return None
    return Breach(rule.name, why, rule.fix)


def breaches_of(rules: Mapping[str, Rule], subject: Any, needed: Iterable[str] = ("door",)) -> list[Breach]:
    """Return the first breach of each rule, in the rules' order; an empty list if the object keeps them all.

    Args:
        rules: rules to check, by name.
        subject: object under test, the argument of the rules' functions.
        needed: names of rules without which the others make no sense: after a breach of one, checking ends.
    """
    breaches: list[Breach] = []
    for rule in rules.values():
        breach = first_breach(rule, subject)
        if breach is not None:
            breaches.append(dataclasses.replace(breach, ends=rule.name in needed))
            if rule.name in needed:
                break
    return breaches
