"""The first screen of a study's page: which method to choose by, and what each of them did over simulated shops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_mnar.protocols.comparison import CATALOGUES
from recsim_mnar.protocols.records import BEST, INDISTINGUISHABLE, UNUSABLE, as_subject, listed
from recsim_mnar.report.finding import Finding, counted
from recsim_mnar.report.naming import MOST_NAMES, about, method, method_named, spoken
from recsim_mnar.studies.result import mean, two_digits

if TYPE_CHECKING:
    from recsim_mnar.studies.result import Study

NEGLIGIBLE = 0.01
"""Share of the best below which methods' picks are said to come within that of it."""


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
    group = [first, *level]
    poor = [r for r in rows if r not in group]
    title = as_subject(method(first["title"]))
    if not level:
        decision = f"{title} chose best{f', better than {_sized(poor[0])}' if len(poor) == 1 else ''}."
    elif poor or all(r["cost_share"]["mean"] < NEGLIGIBLE for r in group):
        decision = f"{as_subject(listed([_sized(r) for r in group], MOST_NAMES))} chose about equally well."
        decision += f" {as_subject(_named(poor))} did worse." if poor else ""
    else:
        decision = f"{title} looks best; {n} simulated shops cannot prove it."
    sure = f"Do not use {listed([method(name) for name in blind], MOST_NAMES)} here. " if blind else ""
    screen, alike = screen_of(study), ""
    safe = [r for r in screen if r.kept == n]
    if n >= CATALOGUES and len(safe) == 1 and sum(r.kept is not None for r in screen) > 1:
        tested = next((r for r in rows if r["users_per_arm"]), None) if safe[0].tested else None
        name = _sized(tested) if tested is not None else f"the {safe[0].name.lower()}"
        alike = decision
        decision = f"Decide by {name}: only it had the best or its equal among its first {counted(SHORTLIST)} in all "
        decision += f"{n} shops."
    more = f"repeat it in {max(CATALOGUES, 2 * n)} simulated shops"
    if n >= CATALOGUES and (poor or not level):
        more = _advice(screen)
    kind = "good" if poor or not level else "tie"
    return Finding(
        decision,
        " ".join(filter(None, [alike, *_always(study, first)])),
        f"{sure}Next: {more}.",
        kind,
    )


class Row(NamedTuple):
    """A row of a study's first screen: what a method's picks were over n shops.

    Attributes:
        name: of the method, or of always picking one recommender.
        about: what it does.
        right: shops in which the pick is the best or a tie with it.
        kept: shops in which the best is among its first three; None for one that ranks nothing.
        lost: mean share of the best that its picks lose, with its interval.
        most: the largest share lost.
        shops: n.
        tested: whether it is an A/B test.
    """

    name: str
    about: str
    right: int
    kept: int | None
    lost: Mapping[str, Any]
    most: float
    shops: int
    tested: bool = False


SHORTLIST = 3
"""Recommenders that a list is shortened to, of which it is said whether they hold the best."""


def screen_of(study: Study) -> list[Row]:
    """A row per method of the first world and target, and one for always picking the same recommender."""
    judged, summary = judged_of(study), study.summary()
    own = [r for r in summary if (r["study"], r["target"]) == (summary[0]["study"], summary[0]["target"])]
    found = []
    for r in sorted((r for r in own if r["cost_share"]["mean"] is not None), key=lambda r: r["cost_share"]["mean"]):
        each = [j for j in judged[r["study"], r["title"]] if j["cost_share"] is not None]
        right = r[BEST]["count"] + r[INDISTINGUISHABLE]["count"]
        small = about(r["title"], method_named(r["title"]))
        small += f" ({r['users_per_arm']:,} per variant)" if r["users_per_arm"] else ""
        level = (BEST, INDISTINGUISHABLE)
        kept = [j["place"] < SHORTLIST or j["outcome"] in level for j in each if j["place"] is not None]
        most = max(j["cost_share"] for j in each)
        name = as_subject(method(r["title"]).removeprefix("the "))
        held, tested = sum(kept) if kept else None, bool(r["users_per_arm"])
        found.append(Row(name, small, right, held, r["cost_share"], most, r["catalogues"], tested))
    constant = _constant(study)
    return [*found, constant[0]] if constant and len(found) else found


def _constant(study: Study) -> tuple[Row, list[float]] | None:
    """The recommender that loses least if it is always picked, and what it loses in each shop; None if unknown."""
    first = next(iter(judged_of(study).values()), [])
    lost: dict[str, list[float]] = {}
    for j in first:
        scale = abs(j.get("best_truth") or 0.0)
        for name, value in j["truths"].items() if scale else ():
            lost.setdefault(name, []).append(abs(value - j["best_truth"]) / scale)
    whole = {name: values for name, values in lost.items() if len(values) == len(first)}
    if not whole:
        return None
    name = min(whole, key=lambda name: sum(whole[name]))
    values = whole[name]
    row = Row(f"Always {spoken(name)}", "no test at all", sum(v == 0.0 for v in values), None,
              mean(values, least=0.0), max(values), len(first))  # fmt: skip
    return row, values


def _always(study: Study, first: Mapping[str, Any]) -> list[str]:
    """Where the leading method does not do better than always picking one recommender: a sentence."""
    constant = _constant(study)
    if constant is None:
        return []
    row, values = constant
    judged = judged_of(study)[first["study"], first["title"]]
    if _worse([{"cost_share": value} for value in values], judged):
        return []
    most = two_digits(row.most)
    said = f"{row.name} would have done as well, at most {most} % behind the best in any of these shops"
    return [f"{said}; you could not have known which one that is."]


def blind_spot(study: Study) -> str:
    """Of a method that lacks data on its pick, or on a better recommender, in many shops: in how many; or nothing."""
    found = []
    for (_, title), each in judged_of(study).items():
        warned = sum(j["warned"] for j in each)
        if warned >= len(each) / 4:
            own = sum(j["shown"] == UNUSABLE for j in each)
            found.append(
                f"In {warned} of {len(each)} shops the old system's records hold too little of what "
                f"{method(title)} picks ({own}) or of a better one ({warned - own})."
            )
    return "".join(found[:1])


def _advice(rows: Sequence[Row]) -> str:
    """What to do in a shop of one's own."""
    own = [r for r in rows if r.kept is not None and not r.tested]
    safe = next((r for r in own if r.kept == r.shops), None)
    if safe is not None:
        return f"shorten your list by the {safe.name.lower()}, then decide by an A/B test in your own shop"
    missed = sorted({r.shops - r.kept for r in own if r.kept is not None})
    shops = f"{missed[0]} to {missed[-1]}" if len(missed) > 1 else "".join(map(str, missed))
    said = f"; other tests dropped the best from their first {counted(SHORTLIST)} in {shops} shops"
    return f"decide by an A/B test in your own shop{said if missed else ''}"


def _named(rows: Sequence[Mapping[str, Any]], link: str = "and") -> str:
    """Methods in a sentence."""
    names = [method(r["title"]) for r in rows][:MOST_NAMES]
    return f" {link} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _sized(row: Mapping[str, Any]) -> str:
    """A method in a sentence; an A/B test with its size."""
    users = row["users_per_arm"]
    return method(row["title"]) if users is None else f"an A/B test of {users:,} users per variant"


def _worse(judged: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a method's picks cost more than another's: the interval of the mean difference, shop by shop, is above 0.

    Of fewer than :data:`_LEAST_SHOPS` shops with a difference none is told from chance.
    """
    costs = [(one["cost_share"], other["cost_share"]) for one, other in zip(judged, best, strict=True)]
    apart = [cost - least for cost, least in costs if cost is not None and least is not None]
    found = mean(apart)
    return sum(map(bool, apart)) >= _LEAST_SHOPS and found["low"] is not None and found["low"] > 0.0


_LEAST_SHOPS = 6
"""That differ: fewer can all differ the same way by chance, once in twenty times or more often."""


def judged_of(study: Study) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By study and ranking: the judgement of each catalogue, as in the results, and whether the tool warned of it.

    It warns where the estimate of the pick, or of one that is truly better, must not be used. ``truths`` are all true
    values by recommender, ``place`` is that of the best one in the method's own ranking, from 0; None if unknown.
    """
    records: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in study.rows():
        records.setdefault((row["study"].rpartition("-")[0], row["catalogue"]), []).append(row)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for j in study.judgements():
        own = records.get((j["study"], j["catalogue"]), [])
        truths = _truths(j, own)
        row = {**j, "truths": truths, "place": _place(j, own), "warned": _warned(j, truths)}
        found.setdefault((j["study"], j["title"]), []).append(row)
    return found


def _truths(judgement: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """True values of what can be picked, by recommender."""
    known = [r for r in records if r["protocol"] == "truth" and r["value"] is not None]
    best = judgement["best"], judgement.get("best_truth")
    metric = next((r["metric"] for r in known if (r["agent"], r["value"]) == best), None)
    return {r["agent"]: r["value"] for r in known if r["metric"] == metric and not r["details"].get("reference")}


def _place(judgement: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> int | None:
    """Of the best recommender in a method's ranking, from 0; ties count as before it."""
    key = judgement["protocol"], judgement["metric"]
    values = {r["agent"]: r["value"] for r in records if (r["protocol"], r["metric"]) == key}
    own = values.get(judgement["best"])
    if own is None or None in values.values():
        return None
    sign = 1.0 if values.get(judgement["pick"], own) >= own else -1.0  # of losses the least is picked
    return sum(sign * value >= sign * own for name, value in values.items() if name != judgement["best"])


def _warned(judgement: Mapping[str, Any], truths: Mapping[str, float]) -> bool:
    """Whether the estimate of the pick, or of one that is truly better, must not be used."""
    barred = {*judgement.get("unusable", ()), *judgement.get("unranked", ())}
    if judgement["shown"] == UNUSABLE or judgement["best"] in barred:
        return True
    best, pick = (truths.get(judgement[name], math.nan) for name in ("best", "pick"))
    return any((truths[name] - pick) * (best - pick) > 0.0 for name in barred if name in truths)


def mostly_unusable(judged: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a protocol's pick must not be used in half of the catalogues or more."""
    return sum(judgement["shown"] == UNUSABLE for judgement in judged) >= len(judged) / 2
