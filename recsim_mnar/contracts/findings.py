"""What is found where a contract is broken: the rule, why, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from recsim_mnar.errors import UserError, described

S = TypeVar("S")
Rules = Mapping[str, tuple[Callable[[S], None], str]]
"""By name: the function that raises where a rule is broken, and what to do."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A rule that is broken.

    Attributes:
        rule: its name.
        why: what was found.
        fix: what to do.
    """

    rule: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.why}; {self.fix}" if self.fix else f"{self.rule}: {self.why}"


class BrokenRuleError(AssertionError):
    """A rule is broken; the text says how."""


def findings_of(rules: Rules[Any], subject: Any, *, needed: frozenset[str] = frozenset({"door"})) -> list[Finding]:
    """The rules that a subject breaks, in their order; an empty list where it keeps them all.

    Args:
        rules: to hold it against.
        subject: what their functions take.
        needed: rules without which the others cannot be asked: where one of them is broken, no more are.
    """
    found: list[Finding] = []
    for rule, (check, fix) in rules.items():
        try:
            check(subject)
        except (AssertionError, UserError) as error:
            found.append(Finding(rule, str(error), fix))
        except Exception as error:  # code of the user's own may raise anything
            found.append(Finding(rule, f"it raised {described(error)}", fix))
        if found and found[-1].rule == rule and rule in needed:
            break
    return found


def number(value: float) -> str:
    """A probability as sentences write it: .167."""
    text = f"{value:.6g}"
    return text[1:] if text.startswith("0.") else text
