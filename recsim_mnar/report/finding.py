"""What a page says first, in three lines: the decision, by how much in per cent, how sure and what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsim_mnar.estimators.off_policy.sentence import Sentence
from recsim_mnar.estimators.off_policy.written import per_cent
from recsim_mnar.protocols.comparison import CATALOGUES, Comparison
from recsim_mnar.protocols.records import (
    BEST,
    COSTS,
    INDISTINGUISHABLE,
    UNUSABLE,
    Judgement,
    Record,
    as_subject,
    half_width,
)

if TYPE_CHECKING:
    from recsim_mnar.fitting.advice import Advice
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.fitting.validation import Validation
    from recsim_mnar.studies.result import Study

WORDS = {BEST: "Best", INDISTINGUISHABLE: "A tie", COSTS: "Costs", UNUSABLE: "Do not use"}
"""How a page calls what came of a pick; in words, so that nothing depends on colour."""
MOST_NAMES = 3
"""In a sentence of the first screen."""


@dataclass(frozen=True)
class Finding:
    """The first screen of a page.

    Attributes:
        decision: what to do, or what is known.
        lift: by how much in per cent, with its interval.
        next: how sure it is, and what to do next.
        kind: "good", "tie" or "bad", for the colour.
    """

    decision: str
    lift: str
    next: str
    kind: str = "tie"


# ------------------------------------------------------------------------------------------------------- comparisons


def state(judgement: Judgement) -> str:
    """In a word or two: best, a tie, the cost, or not to be used."""
    return f"{WORDS[COSTS]} {judgement.loss}" if judgement.shown == COSTS else WORDS[judgement.shown]


def truths_of(comparison: Comparison, judgement: Judgement) -> list[Record]:
    """True values of what the judgement is about, the best first, of those that can be picked."""
    records = [r for r in comparison.records if r.protocol == "truth" and math.isfinite(r.value)]
    metric = next((r.metric for r in records if r.agent == judgement.best and r.value == judgement.best_truth), "")
    own = [r for r in records if r.metric == metric and not r.details.get("reference")]
    return sorted(own, key=lambda r: r.value, reverse=metric not in comparison.losses)


def of_comparison(comparison: Comparison) -> Finding | None:
    """Of the first target; without a truth, what users' own data say. None where there is nothing to choose."""
    if not comparison.judgements:
        return _of_interactions(comparison)
    first = comparison.judgements[0]
    judged = [j for j in comparison.judgements if j.target == first.target]
    names: dict[str, list[str]] = {}
    for j in judged:
        names.setdefault(j.shown, []).append(j.title.removesuffix(f" of {j.target}"))
    ranked = truths_of(comparison, first)
    right = names.get(BEST, []) + names.get(INDISTINGUISHABLE, [])
    found = f"Rely on {listed(right)} here" if right else "No method here finds it"
    decision = f"{first.best} is the best of {len(ranked)} recommenders. {found}."
    warn = f" Do not use {listed(names[UNUSABLE])} here." if UNUSABLE in names else ""
    lift, sure = _lead(ranked)
    more = f"Next: see whether it holds in {CATALOGUES} more worlds like this." if comparison.again else ""
    return Finding(decision, lift, f"{sure}{warn} {more}".strip(), "good" if BEST in names else "tie")


def _lead(ranked: Sequence[Record]) -> tuple[str, str]:
    """How far the first of some records is before the second, and how sure that is."""
    if len(ranked) < 2:
        return "There is nothing to compare it with.", ""
    best, second = ranked[:2]
    gap, width = abs(best.value - second.value), half_width(best, second)
    if not second.value > 0.0:
        lead = f"It is {gap:.3g} ahead of the next, {second.agent}"
        return f"{lead}.", "Their order is certain." if gap > width else "Not certain: either may be the better one."
    ends = (gap - width) / second.value, (gap + width) / second.value
    lead = f"It is {percent(gap / second.value)} % ahead of the next, {second.agent}"
    lead += f" ({100 * best.level:g} % interval {between(*ends)})." if width else "."
    if width == 0.0:
        return lead, "Certain: the truth is known exactly."
    return lead, "Their order is certain." if gap > width else f"Not certain: {second.agent} may be as good."


def signed(share: float) -> str:
    """A share as per cent with its sign, two digits of it."""
    shown = 100.0 * share
    text = f"{shown:+,.0f}" if abs(shown) >= 10 else f"{shown:+.2g}" if abs(shown) >= 0.1 else f"{shown:+.1g}"
    return text.replace("-", "\N{MINUS SIGN}")


def between(low: float, high: float) -> str:
    """An interval of shares as per cent, with signs where one of its ends is below 0."""
    write = signed if low < 0 else percent
    return f"{write(low)} to {write(high)} %"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, of many the first ones."""
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _of_interactions(comparison: Comparison) -> Finding | None:
    lines = comparison.conclusion
    if len(lines) < 2:
        return Finding(lines[0], "", "") if lines else None
    keys = [key for key in comparison.columns if key[1].startswith("ndcg")] or comparison.columns
    own = [r for r in comparison.records if (r.protocol, r.metric) == keys[-1] and math.isfinite(r.value)]
    ranked = sorted(own, key=lambda r: -r.value)
    lift = ""
    if len(ranked) > 1 and ranked[1].value > 0:
        gap, width = ranked[0].value - ranked[1].value, half_width(*ranked[:2])
        ends = between(*((gap + side * width) / ranked[1].value for side in (-1, 1)))
        lift = (
            f"{ranked[0].agent} is {percent(gap / ranked[1].value)} % ahead of {ranked[1].agent} in foreseeing what "
            f"users do next ({100 * ranked[0].level:g} % interval {ends})."
        )
    alone = "is best" in lines[-2] or "beats all others" in lines[-2]
    sure = "Sure of what users do unasked only." if alone else "Not sure: more users would narrow it."
    return Finding(lines[-2], lift, f"{sure} Next: test it on users in an A/B test.", "good" if alone else "tie")


# ----------------------------------------------------------------------------------------------------------- studies


def of_study(study: Study) -> Finding | None:
    """Which protocol to choose by, over catalogues; of the first world and target.

    A protocol whose pick must not be used in most catalogues is not one to choose by.
    """
    summary, judged = study.summary(), judged_of(study)
    rows = [r for r in summary if (r["study"], r["target"]) == (summary[0]["study"], summary[0]["target"])]
    blind = [r["title"] for r in rows if mostly_unusable(judged[r["study"], r["title"]])]
    rows = [r for r in rows if r["cost_share"]["mean"] is not None and r["title"] not in blind]
    rows = sorted(rows, key=lambda r: r["cost_share"]["mean"])
    if not rows:
        return None
    first, cost, n = rows[0], rows[0]["cost_share"], rows[0]["catalogues"]
    known = cost["high"] is not None
    level = [r for r in rows[1:] if not known or r["cost_share"]["low"] <= cost["high"]]
    title = as_subject(first["title"])
    names = listed([r["title"] for r in level]) if level else ""
    decision = f"{title} loses least" + (f", but {names} may do as well." if level else ": choose by it.")
    ends = f" (95 % interval {between(cost['low'], cost['high'])})" if known else ""
    lift = f"What it picks earns {percent(cost['mean'])} % less than the best, on average{ends}."
    hits = sum(j["shown"] in (BEST, INDISTINGUISHABLE) for j in judged[first["study"], first["title"]])
    sure = f"In {hits} of {n} runs it picks the best or a tie. "
    sure += f"Do not use {listed(blind)}. " if blind else ""
    todo = "use it in worlds like these" if n >= CATALOGUES and not level else f"make {max(CATALOGUES, 2 * n)} runs"
    return Finding(decision, lift, f"{sure}Next: {todo}.", "good" if not level else "tie")


def judged_of(study: Study) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By study and ranking: the judgement of each catalogue, as in the results."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for judgement in study.judgements():
        found.setdefault((judgement["study"], judgement["title"]), []).append(judgement)
    return found


def mostly_unusable(judged: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a protocol's pick must not be used in half of the catalogues or more."""
    return sum(judgement["shown"] == UNUSABLE for judgement in judged) >= len(judged) / 2


def percent(share: float) -> str:
    """A share as per cent, two digits of it."""
    shown = 100 * share
    return f"{shown:.0f}" if abs(shown) >= 10 else f"{shown:.2g}" if abs(shown) >= 0.1 else f"{shown:.1g}"


# --------------------------------------------------------------------------------------------------------- estimates


_ANSWERS: Mapping[str, tuple[str, str]] = {
    "better": ("{who} is better than {other}: test it on users.", "good"),
    "looks_better": ("{who} looks better than {other}. Do not switch on this alone.", "tie"),
    "worse": ("{who} is worse than {other}: keep {other}.", "bad"),
    "looks_worse": ("{who} looks worse than {other}: keep {other} for now.", "tie"),
    "cannot_tell": ("Keep {other} for now: this log cannot tell whether {who} is better.", "tie"),
    "same_policy": ("{who} and {other} do the same: there is nothing to decide.", "tie"),
    "value": ("{who} can be judged by this log.", "good"),
    "not_covered": ("Do not judge {who} by this log: it shows too little of what {who} does.", "bad"),
    "no_reward": ("This log says nothing: it holds no reward.", "bad"),
    "do_not_use": ("Do not decide on {who} by this log.", "bad"),
}
_SURE = {"trust": "No check speaks against it", "caution": "Caution: {doubt}", "do_not_use": "Not usable: {doubt}"}


def of_estimates(sentence: Sentence, value: str, doubt: str) -> Finding:
    """Of the answer that the log gives.

    Args:
        sentence: the answer.
        value: what the policy earns, with its interval, where it is compared with nothing.
        doubt: the gravest one, or nothing.
    """
    other = "today's policy" if sentence.baseline in (None, "propensity") else sentence.baseline
    words, kind = _ANSWERS[sentence.answer]
    if sentence.change_percent is not None and sentence.low_percent is not None and sentence.high_percent is not None:
        low, high = (signed(end / 100.0) for end in (sentence.low_percent, sentence.high_percent))
        lift = f"{signed(sentence.change_percent / 100.0)} % against {other} "
        lift += f"({100 * sentence.level:.3g} % interval {low} to {high} %)."
    else:
        lift = value or "By how much, this log does not say."
    if sentence.sure == "caution" and kind == "good":
        kind = "tie"
    sure = _SURE[sentence.sure].format(doubt=doubt or "see below")
    decision = words.format(who=sentence.policy, other=other)
    return Finding(decision, lift, f"{sure}. Next: {sentence.action}.", kind)


# ----------------------------------------------------------------------------------- advice, worlds that were fitted


def of_advice(found: Advice) -> Finding:
    """Whether the log decides."""
    pairs = [p for p in found.pairs if found.pick in (p["first"], p["second"])] if found.pick else found.pairs
    values = {row["agent"]: row["value"] for row in found.agents}
    nearest = min(pairs, key=lambda p: abs(p["difference"]), default=None)
    lift = "By how much agents differ, this log does not say."
    if nearest is not None:
        lift = _difference(nearest, values)
    if found.pick is not None:
        tied = f" {listed(found.tied)} may be as good." if found.tied else ""
        return Finding(f"Take {found.pick}: the log decides.{tied}", lift, "Sure. Next: test it on users.", "good")
    if found.ab_test is not None:
        users = f"{found.ab_test['users']:,} users per arm"
        sure = f"Sure at {100 * found.facts['level']:g} % with {users}. Next: recsim-mnar plan ab."
        return Finding("The log does not decide: run an A/B test.", lift, sure)
    todo = found.exploration["line"] if found.exploration else "collect a log that shows more of what they recommend."
    return Finding("Do not decide by this log: it cannot show which is best.", lift,
                   f"Not sure. Next: {todo[0].lower()}{todo[1:]}", "bad")  # fmt: skip


def _difference(pair: Mapping[str, Any], values: Mapping[str, float | None]) -> str:
    """The lift of one agent over another, the larger first."""
    first, second, signs = pair["first"], pair["second"], (pair["low"], pair["high"])
    difference = pair["difference"]
    if difference < 0:
        first, second, difference, signs = second, first, -difference, (-signs[1], -signs[0])
    base = values.get(second)
    if not base or base <= 0.0:
        return f"{first} earns {difference:.3g} more than {second} ({signs[0]:.3g} to {signs[1]:.3g})."
    ends = " to ".join(signed(end / base) for end in signs)
    verb = "earns" if pair["decided"] else "may earn"
    return f"{first} {verb} {signed(difference / base)} % against {second} (95 % interval {ends} %)."


def of_validation(found: Validation) -> Finding:
    """For how many questions the world may be used."""
    n, good, bad = len(found.checks), len(found.valid_for), len(found.not_valid_for)
    decision = f"Use this world for {good} of {n} questions." if good else "Do not use this world yet."
    lift = f"{100 * good / max(n, 1):.0f} % of the checks see no difference from real users that matters; "
    lift += f"{bad} see one, {len(found.cannot_say)} cannot say."
    todo = f"Do not ask it about {found.not_valid_for[0].partition(':')[0].rstrip('.')}. " if bad else ""
    return Finding(
        decision, lift, f"{todo}Next: keep to the questions in the list below.", "good" if not bad else "tie"
    )


def of_fit(found: FittedWorld) -> Finding:
    """What a log settles of a world."""
    n, open_ = len(found.identified), len(found.not_identified)
    decision = f"The {found.world} world is fitted. Check it before you rely on it."
    rate = found.identified.get("click_rate_on_log")
    lift = f"The log settles {n} of {n + open_} features."
    if rate:
        lift += f" Its users click {per_cent(rate['value'])} % of the time; those of the log "
        lift += f"{per_cent(rate['low'])} to {per_cent(rate['high'])} % (90 % interval)."
    return Finding(decision, lift, "Not yet sure. Next: recsim-mnar validate says what it may be used for.", "tie")
