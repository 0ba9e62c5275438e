"""What a comparison found, as one sentence, with how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import COSTS, INDISTINGUISHABLE, Judgement, Record, half_width, headline

DEEPEST = 0.10
"""Share of the best value at which the colour of a cost is deepest."""


@dataclass(frozen=True)
class Finding:
    """The first lines of a report.

    Attributes:
        sentence: what was found.
        sure: how sure it is.
    """

    sentence: str
    sure: str


def finding_of(comparison: Comparison) -> Finding | None:
    """The finding; None where no truth judges the protocols."""
    judgements = comparison.judgements
    if not judgements:
        return None
    first = judgements[0]
    truths = _truths(comparison, first)
    of_first = [j for j in judgements if (j.target, j.best) == (first.target, first.best)]
    sentence = comparison.headline or headline(of_first, _best)
    return Finding(sentence, _how_sure(truths, first))


def _best(judgement: Judgement) -> str:
    return f"{judgement.best} has the best true {judgement.target}, {judgement.best_truth:.4g}"


def _truths(comparison: Comparison, judgement: Judgement) -> list[Record]:
    """True values of what the judgement is about, of those that can be picked."""
    records = [r for r in comparison.records if r.protocol == "truth" and not r.details.get("reference")]
    metrics = [r.metric for r in records if r.agent == judgement.best and abs(r.value - judgement.best_truth) <= 0.0]
    return [r for r in records if metrics and r.metric == metrics[0]]


def _how_sure(truths: Sequence[Record], judgement: Judgement) -> str:
    """Whether the truth tells the best from the one that comes nearest to it."""
    best = next((r for r in truths if r.agent == judgement.best), None)
    others = [r for r in truths if r.agent != judgement.best]
    if best is None or not others:
        return "How sure: one agent alone has a true value, so there is nothing to tell apart."
    second = min(others, key=lambda r: abs(r.value - best.value))
    gap, width = abs(best.value - second.value), half_width(best, second)
    known = f"in truth {best.agent} and the next, {second.agent}, differ by {_size(gap, best.value)}"
    if width == 0.0:
        return f"How sure: {known}, which is known exactly."
    within = f"{known}, known to within {_size(width, best.value)}"
    if gap > width:
        return f"How sure: {within}. So their order is certain on this catalogue."
    return f"How sure: {within}. So which of the two is better cannot be told."


def _size(difference: float, value: float) -> str:
    """As a share of the value, or in its unit where that is 0."""
    return f"{difference:.2g}" if value == 0.0 else f"{100 * difference / abs(value):.2g} %"


def state(judgement: Judgement) -> str:
    """One of three: picks the best, cannot be told from it, or costs so much."""
    if judgement.outcome == COSTS:
        return f"Costs {judgement.loss}"
    return "Cannot be told apart" if judgement.outcome == INDISTINGUISHABLE else "Best"


def shade(judgement: Judgement) -> int:
    """How deep a cost is coloured, 6 to 32 in a hundred."""
    share = DEEPEST if judgement.cost_share is None else min(judgement.cost_share, DEEPEST)
    return 6 + round(26 * share / DEEPEST)
