"""What advice consists of, in words and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recsim_mnar.fitting.advice.coverage import ABSENT, BOUNDED, REPLAYED, WEIGHED
from recsim_mnar.fitting.advice.deciding import Check, Pair
from recsim_mnar.fitting.advice.foreseeing import Foreseen

LOG, AB_TEST, CANNOT_TELL = "log", "ab_test", "cannot_tell"
HOW = {
    REPLAYED: "by the logging policy, replayed",
    BOUNDED: "the logging policy explores, by its name",
    WEIGHED: "estimated from the mean weight, for the logging policy is not known",
    ABSENT: "by the items that the log shows at all, for it has no propensities",
}


@dataclass(frozen=True)
class Advice:
    """What to do, why, and what it rests on; see docs/advise.md.

    Attributes:
        answer: "log", "ab_test" or "cannot_tell".
        pick: the agent that the log decides for; None with another answer.
        tied: agents that the log does not know to be worse.
        cost: ``high``, the most that the pick costs, as a share of the best agent's value; None without a pick.
        ab_test: users an arm that suffice under every model that fits, their range, and what it rests on; or None.
        exploration: what to log first; or None.
        why: why the log does not decide.
        agents: one row per agent: what the log covers, and its value in the log's states with its limits.
        pairs: differences, simultaneous.
        protocols: one row per offline protocol.
        models: click models and what they foresee.
        checks: what could speak against the log's decision.
        facts: of the log and the question.
        doctor: what is wrong with the file.
        next: what to type next.
    """

    answer: str
    pick: str | None = None
    tied: Sequence[str] = ()
    cost: Mapping[str, float] | None = None
    ab_test: Mapping[str, Any] | None = None
    exploration: Mapping[str, Any] | None = None
    why: Sequence[str] = ()
    agents: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[Pair] = ()
    protocols: Sequence[Mapping[str, Any]] = ()
    models: Sequence[Foreseen] = ()
    checks: Sequence[Check] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    doctor: Sequence[str] = ()
    next: str = ""

    def coverage(self) -> list[str]:
        """One line per agent: what the log shows of it."""
        lines = []
        for row in self.agents:
            exact = row["covered_low"] == row["covered_high"]
            span = "" if exact else f" ({_share(row['covered_low'])} to {_share(row['covered_high'])})"
            lines.append(f"{row['agent']}: the log shows {_share(row['covered'])} of it{span}, {HOW[row['known']]}.")
        return lines

    def answer_sentence(self) -> str:
        """The answer."""
        if self.answer == LOG:
            assert self.cost is not None
            most = self.cost["high"]
            cost = (
                "no other agent is better" if most <= 0.0 else f"it costs at most {most:.1%} of the best agent's value"
            )
            tied = f" {', '.join(self.tied)} may be as good." if self.tied else ""
            return f"The log decides: take {self.pick}, {cost}.{tied}"
        if self.ab_test is not None:
            test = self.ab_test
            return (
                f"The log does not decide; an A/B test does: {test['users']:,} users an arm ({test['low']:,} to "
                f"{test['high']:,}), and its choice costs at most {test['tolerance']:.0%} with probability .95."
            )
        return "This log cannot tell, and not how large an A/B test would have to be either."

    def sentences(self) -> list[str]:
        """The answer, why, what offline protocols are worth here, and what comes next."""
        lines = [self.answer_sentence(), *self.why]
        if self.ab_test is not None:
            lines.append(str(self.ab_test["why"]))
        if self.exploration is not None:
            lines.append(str(self.exploration["line"]))
        lines += [str(row["sentence"]) for row in self.protocols]
        lines += [f"{check.sentence[0].upper()}{check.sentence[1:]}." for check in self.checks if check.grade == "off"]
        return lines + ([f"Next: {self.next}"] if self.next else [])

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            **{name: getattr(self, name) for name in ("answer", "pick", "cost", "ab_test", "exploration", "facts")},
            **{name: list(getattr(self, name)) for name in ("tied", "why", "agents", "protocols", "doctor")},
            "pairs": [{**vars(pair), "decided": pair.decided} for pair in self.pairs],
            "models": [vars(model) for model in self.models],
            "checks": [vars(check) for check in self.checks],
            "sentences": self.sentences(),
            "next": self.next,
        }


def _share(value: float) -> str:
    return f"{value:.0%}" if value in (0.0, 1.0) or 0.1 <= value <= 0.9 else f"{value:.1%}"
