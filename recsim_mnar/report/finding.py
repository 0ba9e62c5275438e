"""What a page says first, in three lines: the decision, by how much in per cent, how sure and what to do next."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsim_mnar.estimators.off_policy.sentence import Sentence, per_cent
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.comparison import CATALOGUES, Comparison
from recsim_mnar.protocols.interactions.comparison import TITLES
from recsim_mnar.protocols.records import (
    BEST,
    COSTS,
    HALF_WIDTHS,
    INDISTINGUISHABLE,
    UNUSABLE,
    Judgement,
    Record,
    as_subject,
    half_width,
    listed,
    seen,
)
from recsim_mnar.studies.result import two_digits

if TYPE_CHECKING:
    from recsim_mnar.fitting.advice import Advice
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.fitting.validation import Validation
    from recsim_mnar.studies.result import Study

WORDS = {BEST: "Best", INDISTINGUISHABLE: "A tie", COSTS: "Costs", UNUSABLE: "Do not use"}
"""How a page calls what came of a pick; in words, so that nothing depends on colour."""
LUCK, TOO_CLOSE = "Best, by luck", "Too close for it"
"""Of a pick that is the best or nearly so, though the data that the method has could not show it."""
_HALF = 16
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
        but: where it is otherwise, in a sentence; empty where it is nowhere.
    """

    decision: str
    lift: str
    next: str
    kind: str = "tie"
    but: str = ""


# ------------------------------------------------------------------------------------------------------- comparisons


def brief(name: str) -> str:
    """A name as the first screen has room for it."""
    return name if len(name) <= 2 * _HALF else f"{name[:_HALF]}\N{HORIZONTAL ELLIPSIS}{name[-_HALF:]}"


def state(judgement: Judgement) -> str:
    """In a word or two: best, best by luck, a tie, too close for it, the cost, or not to be used."""
    if judgement.by_luck or judgement.too_close:
        return LUCK if judgement.by_luck else TOO_CLOSE
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
    kinds: dict[str, list[Judgement]] = {}
    for j in judged:
        kinds.setdefault(_kind(j), []).append(j)
    ranked = truths_of(comparison, first)
    led = next((kind for kind in _FOUND if kind in kinds), COSTS)
    decision = as_subject(_FOUND[led].format(_titles(kinds.get(led, [])), counted(len(ranked))))
    lead, sure = _lead(ranked, first.target)
    tried = kinds[led] if led in (LUCK, TOO_CLOSE) else []
    lift = f"{as_subject(_titles(tried))} {_PICKED[led]}: {lead}" if tried else as_subject(lead)
    unusable = "".join(f" {as_subject(_described(j))} is unreliable here." for j in kinds.get(UNUSABLE, []))
    larger = "" if BEST in kinds else _larger(comparison)
    more = (
        f"Next: run {CATALOGUES} catalogues (simulated shops with other items and users); results may differ."
        if comparison.again
        else ""
    )
    said = f"{_ruled_out(tried, ranked, first.target)}{sure}{larger}{more}".strip()
    return Finding(decision, f"{lift}{unusable}", said, "good" if led == BEST else "tie")


_FOUND = {
    BEST: "{0} found the best of {1} recommenders here.",
    LUCK: "No method could reliably find the best of {1} recommenders here.",
    INDISTINGUISHABLE: "{0} found one as good as the best of {1} recommenders here.",
    TOO_CLOSE: "No method could reliably find the best of {1} recommenders here.",
    COSTS: "No method found the best of {1} recommenders here.",
}
"""What is said of the methods by the best of what came of their picks: their names, the number of recommenders."""
_PICKED = {LUCK: "picked it by luck", TOO_CLOSE: "picked another, too close for it to see"}
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def counted(n: int) -> str:
    """A small number as a word."""
    return _COUNTS[n] if n < len(_COUNTS) else f"{n:,}"


def _titles(judged: Sequence[Judgement]) -> str:
    return listed([_title(j) for j in judged], MOST_NAMES) if judged else ""


def _title(judgement: Judgement) -> str:
    return judgement.title.removesuffix(f" of {judgement.target}")


def _described(judgement: Judgement) -> str:
    """The title, with what it reads where that is no test on users."""
    reads = ", an estimate from the old system's records," if judgement.protocol == "off_policy" else ""
    return f"{_title(judgement)}{reads}"


def _ruled_out(judged: Sequence[Judgement], ranked: Sequence[Record], target: str) -> str:
    """What methods could tell from their picks all the same, and what a wrong pick among the others costs at most."""
    open_ = {name for j in judged for name in (j.pick, *j.close)}
    best = ranked[0].value if ranked else 0.0
    if not judged or not any(j.close for j in judged) or best == 0.0:
        return ""
    out = [brief(r.agent) for r in ranked if r.agent not in open_]
    cost = max(abs(best - r.value) / abs(best) for r in ranked if r.agent in open_)
    who = f"{_titles(judged)} ruled out {listed(out, MOST_NAMES)}" if out else f"{_titles(judged)} ruled out none"
    of = f" of the {_CLICKS[target]}" if target in _CLICKS else ""
    among = " among the others" if out else ""
    return f"{as_subject(who)}; a wrong pick{among} costs about {two_digits(cost)} %{of} at worst. "


def _kind(judgement: Judgement) -> str:
    return LUCK if judgement.by_luck else TOO_CLOSE if judgement.too_close else judgement.shown


def _lead(ranked: Sequence[Record], target: str) -> tuple[str, str]:
    """How far the first of some records is before the second, and how sure the simulator is of that."""
    if len(ranked) < 2:
        return "There is nothing to compare it with.", ""
    best, second = ranked[:2]
    gap, width = abs(best.value - second.value), half_width(best, second)
    sure = (
        f"The simulator is sure that {brief(best.agent)} is first"
        if gap > width
        else "The simulator itself cannot tell which is better"
    )
    if width == 0.0:
        sure += ", as it knows the truth exactly"
    elif gap > width and HALF_WIDTHS in best.details:
        sure += ", as it shows both to the same simulated users"
    sure += ". "
    names = brief(best.agent), brief(second.agent)
    if not second.value > 0.0:
        return f"the best, {names[0]}, is {gap:.3g} ahead of the next, {names[1]}.", sure
    ends = (gap - width) / second.value, (gap + width) / second.value
    ahead = "gets {} % more clicks than" if target in _CLICKS else "is {} % ahead of"
    lead = f"the best, {names[0]}, {ahead.format(two_digits(gap / second.value))} the next, {names[1]}"
    return lead + (f" ({100 * best.level:g} % interval {between(*ends)})." if width else "."), sure


def _larger(comparison: Comparison) -> str:
    """How large an A/B test would have to be for the two best ones; nothing where this one is, or there is none."""
    needed, users = users_needed(comparison)
    next_one = next(iter(needed), "")
    if not next_one or needed[next_one] <= users:
        return ""
    best = truths_of(comparison, comparison.judgements[0])[0].agent
    size = f"An A/B test would need {rounded(needed[next_one]):,} users per variant to tell {brief(best)} from "
    return f"{size}{brief(next_one)}; this one had {users:,}. "


def users_needed(comparison: Comparison) -> tuple[dict[str, float], int]:
    """Users per arm with which an A/B test tells the best from each other agent, the nearest first, and those it has.

    As many as see the true difference in :data:`~recsim_mnar.protocols.records.POWER` of all tests. Nothing where there
    is no A/B test whose arms are independent.
    """
    ranked = truths_of(comparison, comparison.judgements[0])
    key = ("ab_test", ranked[0].metric) if ranked else ("", "")
    tested = {r.agent: r for r in comparison.records if (r.protocol, r.metric) == key and r.details.get("users")}
    arm = tested.get(ranked[0].agent) if ranked else None
    if arm is None or arm.details.get("paired"):
        return {}, 0
    found = {}
    for one in ranked[1:]:
        gap = abs(ranked[0].value - one.value)
        if one.agent in tested and gap > 0.0:
            found[one.agent] = arm.details["users"] * (half_width(arm, tested[one.agent]) * seen(arm.level) / gap) ** 2
    return found, int(arm.details["users"])


def rounded(n: float) -> int:
    """A number of users, to two digits."""
    size = 10 ** max(0, math.floor(math.log10(max(n, 1.0))) - 1)
    return int(math.ceil(n / size) * size)


def signed(share: float) -> str:
    """A share as per cent with its sign, two digits of it."""
    shown = 100.0 * share
    text = f"{shown:+,.0f}" if abs(shown) >= 10 else f"{shown:+.2g}" if abs(shown) >= 0.1 else f"{shown:+.1g}"
    return text.replace("-", "\N{MINUS SIGN}")


def between(low: float, high: float) -> str:
    """An interval of shares as per cent, with signs where one of its ends is below 0."""
    write = signed if low < 0 else two_digits
    return f"{write(low)} to {write(high)} %"


def _of_interactions(comparison: Comparison) -> Finding | None:
    lines = comparison.conclusion
    if len(lines) < 2:
        return Finding(lines[0], "", "") if lines else None
    keys = [key for key in comparison.columns if key[1].startswith("ndcg")] or comparison.columns[:1]
    leads = [text for text in (_ahead(comparison, key) for key in keys) if text]
    alone = "is best" in lines[-2] or "beats all others" in lines[-2]
    wide = {r.agent: r.value for r in comparison.records if r.metric.startswith("coverage")}
    finalists = [] if alone else [name for name in wide if re.search(rf"(^|\s){re.escape(name)}(\s|\.|$)", lines[-2])]
    spread = [f"those of {name} {100 * wide[name]:.3g} %" for name in finalists]
    spread[:1] = [f"the lists of {name} reach {100 * wide[name]:.3g} %" for name in finalists[:1]]
    sure = f"Of your items {listed(spread)}. " if spread else ""
    todo = f"test {'it' if alone else 'these'} on users in an A/B test"
    if finalists:
        todo += f", or take {max(finalists, key=lambda name: wide[name])}, which shows more of your items"
    return Finding(lines[-2], " ".join(leads), f"{sure}Next: {todo}.", "good" if alone else "tie")


def _ahead(comparison: Comparison, key: tuple[str, str]) -> str:
    """How far the first of a test without a truth is ahead of the second."""
    own = [r for r in comparison.records if (r.protocol, r.metric) == key and math.isfinite(r.value)]
    first, second = sorted(own, key=lambda r: -r.value)[:2] if len(own) > 1 else (None, None)
    if first is None or second is None or not second.value > 0.0:
        return ""
    gap, width = first.value - second.value, half_width(first, second)
    few = f"only {first.n:,} users, a hint"
    ends = between(*((gap + side * width) / second.value for side in (-1, 1))) if math.isfinite(width) else "not known"
    lead = f"{as_subject(TITLES.get(key[0], key[0]))}: {first.agent} is {two_digits(gap / second.value)} % ahead of "
    interval = f"{100 * first.level:g} % interval {ends}; {first.n:,} users"
    return f"{lead}{second.agent} ({few if first.n < LEAST_USERS else interval})."


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
    first, n = rows[0], rows[0]["catalogues"]
    level = [r for r in rows[1:] if not _worse(judged[r["study"], r["title"]], judged[first["study"], first["title"]])]
    title = as_subject(first["title"])
    shown, *others = [first, *level][:MOST_NAMES]
    decision = f"{title} looks best; {n} catalogues cannot prove it." if level else f"{title} chose best."
    lift = f"{title}'s picks {_short_of(shown)}{_ends(shown)}" + "".join(
        f"; {r['title']}'s {two_digits(r['cost_share']['mean'])} %{_ends(r)}" for r in others
    )
    hits = [r[BEST]["count"] + r[INDISTINGUISHABLE]["count"] for r in (shown, *others)]
    sure = f"{title} found the best, or a tie with it (too close even for the simulator to tell), in {hits[0]} of {n} "
    sure += "catalogues" + "".join(f", {r['title']} in {hit}" for r, hit in zip(others, hits[1:], strict=True))
    sure += f". {_size_of(rows)}{_orders(rows, judged)}"
    sure += f"Do not use {listed(blind, MOST_NAMES)} here. " if blind else ""
    more = f"run {max(CATALOGUES, 2 * n)} catalogues"
    todo = f"choose by {first['title']} in shops like these" if n >= CATALOGUES and not level else more
    return Finding(decision, f"{lift}.", f"{sure}Next: {todo}.", "good" if not level else "tie")


def _worse(judged: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a method's picks cost more than another's, catalogue by catalogue: a signed-rank test at 5 %."""
    from scipy.stats import wilcoxon

    costs = [(one["cost_share"], other["cost_share"]) for one, other in zip(judged, best, strict=True)]
    apart = [cost - least for cost, least in costs if cost is not None and least is not None and cost != least]
    return sum(apart) > 0.0 and float(wilcoxon(apart).pvalue) < 0.05


def _short_of(row: Mapping[str, Any]) -> str:
    """How much less than the best one a method's picks get on average, after "its picks"."""
    lost = two_digits(row["cost_share"]["mean"])
    clicks = _CLICKS.get(row["target"])
    return f"get {lost} % fewer {clicks} than the best would" if clicks else f"fall {lost} % short of the best"


def _ends(row: Mapping[str, Any]) -> str:
    cost = row["cost_share"]
    return "" if cost["high"] is None else f" (95 % interval {between(cost['low'], cost['high'])})"


def _size_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """How large the A/B test is, so that nobody takes what it misses for a fault of A/B tests."""
    tested = next((r for r in rows if r["users_per_arm"]), None)
    if tested is None:
        return ""
    size = f"{as_subject(tested['title'])} had {tested['users_per_arm']:,} users per variant"
    return f"{size}; larger ones find the best more often. "


def _orders(rows: Sequence[Mapping[str, Any]], judged: Mapping[tuple[str, str], list[dict[str, Any]]]) -> str:
    """Which method orders all recommenders better than the one whose picks are best; nothing where none does."""
    ranked = [r for r in rows if r["kendall_tau"]["mean"] is not None]
    most = max(ranked, key=lambda r: float(r["kendall_tau"]["mean"]), default=rows[0])
    if rows[0] not in ranked or most["kendall_tau"]["mean"] <= rows[0]["kendall_tau"]["mean"]:
        return ""
    n = int(judged[most["study"], most["title"]][0].get("n_agents", 0))
    taus = " against ".join(f"{r['kendall_tau']['mean']:.2f}" for r in (most, rows[0]))
    everyone = f"all {counted(n)} recommenders" if n else "all recommenders"
    return f"{as_subject(most['title'])} ordered {everyone} better (agreement with the true order {taus} of 1). "


_CLICKS = {"CTR": "clicks"}
"""What a share of a target is a share of, in plain words."""


def judged_of(study: Study) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By study and ranking: the judgement of each catalogue, as in the results."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for judgement in study.judgements():
        found.setdefault((judgement["study"], judgement["title"]), []).append(judgement)
    return found


def mostly_unusable(judged: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a protocol's pick must not be used in half of the catalogues or more."""
    return sum(judgement["shown"] == UNUSABLE for judgement in judged) >= len(judged) / 2


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
_ELSEWHERE = "test it on users other than {}'s, or look there first"
_SURE = {"trust": "Checks passed", "caution": "Caution: {doubt}", "do_not_use": "Not usable: {doubt}"}


def of_estimates(
    sentence: Sentence,
    value: str,
    doubt: str,
    rates: str = "",
    tolerance: float | None = None,
    worse: str = "",
    users: float = 0.0,
) -> Finding:
    """Of the answer that the log gives.

    Args:
        sentence: the answer.
        value: what the policy earns, with its interval, where it is compared with nothing.
        doubt: the gravest one, or nothing.
        rates: both policies' values, as they follow the change.
        tolerance: factor by which all propensities may be off before the answer may not hold; None for none known.
        worse: where the policy is worse, as its segments say.
        users: per variant, of an A/B test that sees the change; 0: not known.
    """
    other = "today's policy" if sentence.baseline in (None, "propensity") else sentence.baseline
    words, kind = _ANSWERS[sentence.answer]
    if sentence.change_percent is not None and sentence.low_percent is not None and sentence.high_percent is not None:
        low, high = (digits(end) for end in (sentence.low_percent, sentence.high_percent))
        rates = rates or f" against {other}"
        lift = f"{digits(sentence.change_percent)} %{rates} "
        lift += f"({100 * sentence.level:.3g} % interval {low} to {high} %)."
    else:
        lift = value or "By how much, this log does not say."
    if sentence.sure == "caution" and kind == "good":
        kind = "tie"
    sure = _SURE[sentence.sure].format(doubt=doubt or "see below")
    decision = words.format(who=sentence.policy, other=other)
    if tolerance is not None and sentence.sure == "trust":
        off, gap = f"{100.0 * (tolerance - 1.0):.2g}", "gain" if sentence.answer == "better" else "difference"
        sure += (
            f". Ask engineering whether the logged probabilities are exact: an error of {off} % could erase the {gap}"
        )
    action = sentence.action
    if "A/B" in action:
        size = f" with some {_roughly(users):,} users per variant, each watched as long as here" if users else ""
        action += f"{size} (recsim-mnar plan ab says {'more' if size else 'how many users'})"
    if worse and sentence.answer == "better" and sentence.segments is not None:
        names = listed(sentence.segments["worse"], MOST_NAMES)
        decision, kind = decision.replace("test it on users", _ELSEWHERE.format(names)), "tie"
    return Finding(decision, lift, f"{sure}. Next: {action}.", kind, worse)


def _roughly(n: float) -> int:
    """A number of users, to one digit."""
    size = 10 ** math.floor(math.log10(max(n, 1.0)))
    return max(round(n / size), 1) * size


def digits(per_cent: float) -> str:
    """A change in per cent, with its sign and three digits, as the terminal has it."""
    return f"{per_cent:+#.3g}".rstrip(".").replace("-", "\N{MINUS SIGN}")


# ----------------------------------------------------------------------------------- advice, worlds that were fitted


def of_advice(found: Advice) -> Finding:
    """Whether the log decides."""
    pairs = [p for p in found.pairs if found.pick in (p["first"], p["second"])] if found.pick else found.pairs
    values = {row["agent"]: row["value"] for row in found.agents}
    nearest = min(pairs, key=lambda p: abs(p["difference"]), default=None)
    lift = "By how much recommenders differ, this log does not say."
    if nearest is not None:
        lift = _difference(nearest, values)
    if found.pick is not None:
        tied = f" {listed(found.tied, MOST_NAMES)} may be as good." if found.tied else ""
        return Finding(f"Take {found.pick}: the log decides.{tied}", lift, "Sure. Next: test it on users.", "good")
    if found.ab_test is not None:
        users = f"{found.ab_test['users']:,} users per variant"
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
