"""Rules for what others bring: a name, what to do where one is broken, and a function that yields what breaks it.

A list of rules is a dictionary by name. ``check_policy`` and its kin go through one list, the test classes run each of
its rules as a test, and a run checks the few that :mod:`recsim_mnar.policies.answers` states.
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
"""Sentences, one per breach; a function that leaves it to errors to say what is wrong returns None."""


@dataclasses.dataclass(frozen=True)
class Breach:
    """A rule that is broken.

    Attributes:
        rule: its name.
        why: what was found.
        fix: what to do.
        ends: whether the rules after it were not looked at, since without it they make no sense.
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
    """Enter a function into a list of rules: by its name, with its docstring for what is required."""

    def enter(finds: F) -> F:
        rules[finds.__name__] = Rule(finds.__name__, fix, finds)
        return finds

    return enter


def first_breach(rule: Rule, subject: Any) -> Breach | None:
    """The first breach of a rule; None where a subject keeps it."""
    try:
        why = next(iter(rule.finds(subject) or ()), None)
    except (AssertionError, UserError) as error:
        why = str(error)
    except Exception as error:  # code of the user's own may raise anything
        why = f"it raised {described(error)}"
    if why is None:
        return None
    return Breach(rule.name, why, rule.fix)


def breaches_of(rules: Mapping[str, Rule], subject: Any, needed: Iterable[str] = ("door",)) -> list[Breach]:
    """The first breach of each rule, in the rules' order; an empty list where a subject keeps them all.

    Args:
        rules: to check.
        subject: what their functions take.
        needed: rules without which the others make no sense: a breach of one of them is the last one.
    """
    breaches: list[Breach] = []
    for rule in rules.values():
        breach = first_breach(rule, subject)
        if breach is not None:
            breaches.append(dataclasses.replace(breach, ends=rule.name in needed))
            if rule.name in needed:
                break
    return breaches
