"""The page of ``estimate``: values with intervals, verdicts with what to do, differences, weights, what was read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recsim_mnar.answers.records import reasons, segment_label, segment_lines, segment_reasons, segment_title
from recsim_mnar.answers.sentence import (
    TOLERANCE,
    Amounts,
    Record,
    Sentence,
    baseline_of,
    cells,
    intervals_of,
    label,
    lacks,
    partly_covered,
    relative_change,
    sentence_of,
    target_of,
    verdict_in_words,
    within_limits,
)
from recsim_mnar.answers.weights import WeightDistribution, weight_distribution
from recsim_mnar.own_log.ab_plan import ABPlan
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.protocols.records import listed, plain
from recsim_mnar.report.charts import CHANGE, PER_CENT, PLAIN, Axis, Chart, Dot, Unit, colours_of, dots, room_for
from recsim_mnar.report.page import SCHEMA, weight_figures
from recsim_mnar.report.template import (
    MOST_NAMES,
    RANDOM,
    TODAY,
    Finding,
    downloads_of,
    of_estimates,
    together,
    write_from,
)
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import digest_of

_COUNTED = {
    "organic_rows": "rows that are no recommendations, not used",
    "duplicates": "rows that repeat an earlier row",
    "dropped_duplicates": "of these left out",
    "dropped_missing": "rows left out because a value is missing",
    "dropped_without_target": "rows left out because the second file has no target for them",
}


@dataclass(frozen=True)
class Estimates:
    """Input of a page of estimates.

    Attributes:
        source: the log, as it was named.
        records: of :func:`recsim_mnar.own_log.estimating.estimate_file`.
        lines: what was read, taken and left out.
        log: the rows behind them.
        clip: of the clipped estimators, None for none.
        segments: records of segments.
        stamp: what ``results.json`` begins with, such as which files it was made from.
        plans: A/B tests that find the lift, and that find its lower end.
    """

    source: str
    records: Sequence[Record]
    lines: Sequence[str]
    log: WeighedLog
    clip: float | None
    segments: Sequence[Record] = field(default_factory=list)
    stamp: Mapping[str, Any] = field(default_factory=dict)
    plans: Sequence[ABPlan] = ()

    def label(self, policy: str) -> str:
        """Get the page's name of a policy."""
        return next((label(record) for record in self.records if record["policy"] == policy), policy)


def write_estimates(folder: Path, found: Estimates, made_by: Mapping[str, Any]) -> None:
    """Write ``results.json`` and ``report.html``, which two identical runs write alike, and their index.

    Args:
        folder: that exists.
        found: the results to show.
        made_by: what was asked, shown at the page's foot; JSON types.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.begin(digest_of(made_by))
        into.write_json("results.json", plain(_results(found)))
        with into.recording("report.html") as path:
            _write_page(path, found, made_by)


def _results(found: Estimates) -> Mapping[str, object]:
    from recsim_mnar._version import __version__

    read = {"source": found.source, "rows": found.log.rows, "users": found.log.users, "lines": list(found.lines),
            "mean_reward": found.log.mean_reward, "counts": found.log.counts}  # fmt: skip
    return {"schema": SCHEMA, "package": f"recsim-mnar {__version__}",
            "sentence": sentence_of(found.records).to_dict(), **found.stamp, "read": read,
            "weights": [row.to_dict() for row in weights_of(found)],
            "records": [*found.records, *found.segments]}  # fmt: skip


def _write_page(path: Path, found: Estimates, made_by: Mapping[str, Any]) -> None:
    leaders = [r for r in found.records if r["leads"]]
    other_records = [r for r in found.records if not r["leads"]]
    against = reasons(leaders)
    sentence = sentence_of(found.records)
    amounts = Amounts.of(found.records)
    weights = weights_of(found)
    weights_shown = [replace(weight, policy=found.label(weight.policy)) for weight in weights]
    colours = colours_of(found.label(name) for name in dict.fromkeys(target_of(r) for r in found.records))
    write_from(
        "estimate.html",
        path,
        made_by,
        _finding(found, leaders, sentence, amounts, made_by.get("propensity_min")),
        [
            *_value_chart(found, leaders, amounts, colours),
            *_segment_charts(found.segments, amounts, colours),
            *weight_figures(weights_shown, found.clip, colours),
        ],
        downloads=together(
            downloads_of("estimates", (_row_of(record) for record in (*found.records, *found.segments))),
            downloads_of("weights", (weight.to_dict() for weight in weights)),
        ),
        found=found,
        outcome=_outcome(found) if amounts.shares else "the reward",
        least=_stated_least(made_by, leaders),
        maker=_logged_by(found),
        sentence=sentence,
        partly=partly_covered(leaders, sentence.text),
        reasons=against,
        further=[reason for reason in reasons([*leaders, *other_records]) if reason not in against],
        counted=_COUNTED,
        amounts=amounts,
        leaders=leaders,
        others=other_records,
        label=label,
        verdict_in_words=verdict_in_words,
        cells=cells,
        weights=weights_shown,
        segment_label=segment_label,
        relative_change=relative_change,
        segment_title=segment_title(found.segments) if found.segments else "",
        segment_lines=[*segment_lines(found.segments), *segment_reasons(found.segments)],
    )


def _logged_by(found: Estimates) -> str:
    """Get the page's name of the logging policy of the records."""
    if any(r.get("baseline_kind") == "random" for r in found.records):
        return RANDOM
    return TODAY


def _stated_least(made_by: Mapping[str, Any], leaders: Sequence[Record]) -> str:
    """The least probability that the estimates rest on, who said it, and what follows; empty where none is known."""
    source = "as the analyst stated"
    least = made_by.get("propensity_min")
    if least is None:
        source = "as the log's own description says"
        if leaders:
            least = leaders[0]["diagnostics"].get("propensity_min_taken")
        else:
            least = None
    if least is None:
        return ""
    most = int(1.0 / float(least) + 1e-9)
    return f"{100.0 * float(least):.4g} %, {source} (so it chooses among at most {most:,} items)"


def _row_of(record: Record) -> Record:
    """A record as the page carries it: what only programs read is left out."""
    return {name: plain(value) for name, value in record.items() if name not in ("findings", "best_of", "refuters")}


def weights_of(found: Estimates) -> list[WeightDistribution]:
    """One a policy; its name as the page calls it is :meth:`Estimates.label`."""
    return [weight_distribution(name, weight, found.clip) for name, weight in found.log.weights.items()]


def _value_chart(
    found: Estimates, leaders: Sequence[Record], amounts: Amounts, colours: Mapping[str, str]
) -> list[Chart]:
    """Differences from the baseline, or values, of the leading estimator; hollow where they must not be used."""
    differ = [r for r in leaders if "baseline" in r]
    drawn = [within_limits(r) for r in differ or leaders if not lacks(r) and math.isfinite(r["high"])]
    if not drawn or (not differ and all(r["today"] for r in drawn)):
        return []
    ordered = sorted(drawn, key=lambda r: -r["value"])
    intervals, are_shares = intervals_of(ordered, found.records)
    if are_shares:
        unit = CHANGE
    else:
        unit = _unit(amounts, differ=bool(differ))
    rows = [
        _dot(record, target_of(record) if differ else label(record), colours, interval)
        for record, interval in zip(ordered, intervals, strict=True)
    ]
    who = rows[0].name
    lines = "The line is the {:g} % interval"
    if len(rows) > 1:
        who = "each"
        lines = "The lines are {:g} % intervals"
    title = "What each would earn per recommendation"
    if differ:
        if all(r["today"] for r in drawn):
            other = _logged_by(found)
        else:
            other = baseline_of(drawn[0])
        if amounts.shares:
            more = f"How many more {_outcome(found)} {who} gets"
        else:
            more = f"How much more {who} earns"
        title = f"{more} than {other}"
    caption = f"{lines.format(100 * drawn[0]['level'])}{_of_the_best(drawn)}.{_hollow(rows)}"
    return [Chart(title, dots(rows, unit, _room_for_all(rows, differs=bool(differ))), caption, folded=False)]


def _room_for_all(rows: Sequence[Dot], *, differs: bool) -> Axis:
    """The axis that shows whole intervals, but for what must not be used, and of differences the distance from 0."""
    ends = [Dot("", end) for row in rows if not row.hollow for end in (row.low, row.high)]
    return room_for([*rows, *ends, *([Dot("", 0.0)] if differs else [])])


def _of_the_best(records: Sequence[Record]) -> str:
    """The level of the interval of the best of several, which is corrected for the choice; "" where none was chosen."""
    best = next((record for record in records if "best_of" in record), None)
    if best is None:
        return ""
    level = 100 * best["best_of"]["level"]
    number = best["best_of"]["policies"]
    return f"; that of {target_of(best)}, the largest usable estimate of {number}, is the {level:.4g} % interval"


def _hollow(rows: Sequence[Dot]) -> str:
    if any(row.hollow for row in rows):
        return " A hollow dot must not be used."
    return ""


def _segment_charts(records: Sequence[Record], amounts: Amounts, colours: Mapping[str, str]) -> list[Chart]:
    """One chart per difference, or per policy: a row per segment, whose intervals hold all at once."""
    differ = [r for r in records if "baseline" in r]
    drawn = [r for r in differ or records if not lacks(r) and math.isfinite(r["high"])]
    charts = []
    for policy in dict.fromkeys(r["policy"] for r in drawn):
        of_it = [r for r in drawn if r["policy"] == policy]
        intervals = [(r["value"], r["low"], r["high"]) for r in of_it]
        rows = [
            replace(_dot(r, segment_label(r), colours, interval), words=_in_words(r, amounts))
            for r, interval in zip(of_it, intervals, strict=True)
        ]
        what = f"What {label(of_it[0])} earns per recommendation"
        if differ:
            what = f"How much more {target_of(of_it[0])} earns than {baseline_of(of_it[0])}"
        body = dots(rows, _unit(amounts, differ=bool(differ)), _room_for_all(rows, differs=bool(differ)))
        caption = f"{segment_title(records)}.{_hollow(rows)}"
        charts.append(Chart(f"{what}, by {of_it[0]['by']}", body, caption))
    return charts


def _in_words(record: Record, amounts: Amounts) -> str:
    """The value of a segment's difference with its relative change; "" for a value."""
    if "baseline" not in record:
        return ""
    share = relative_change(record)
    return (amounts.change(record["value"]) + (f" ({share})" if share else "")).replace("-", "\N{MINUS SIGN}")


def _by_segment(found: Estimates, sentence: Sentence, amounts: Amounts) -> str:
    """Describe the segments in which the policy loses, most first with both values, then where it gains.

    "" without segments.
    """
    groups = sentence.segments
    if groups is None:
        return ""
    rows = (r for r in found.segments if "baseline" in r and target_of(r) == sentence.policy)
    rising = sorted(rows, key=lambda r: float(r["value"]))
    phrases = []
    open_ = groups["cannot_tell"] + groups["do_not_use"]
    for way, ordered in (("worse", rising), ("better", rising[::-1])):
        of = [r for r in ordered if segment_label(r) in groups[way]]
        names = [segment_label(r) for r in of]
        if of:
            before, after = (amounts.one(of[0]["diagnostics"][f"value_{who}"]) for who in ("baseline", "target"))
            if len(of) > 1:
                which = f"{names[0]}: "
            else:
                which = ""
            phrases.append(f"{way} on {listed(names, MOST_NAMES)} ({which}{before} \u2192 {after})")
    if phrases and open_:
        phrases += [f"not clear on {listed(open_, MOST_NAMES)}"]
    return f"By {groups['by']}: {'; '.join(phrases) or 'no segment is shown to differ'}."


_POINTS = Unit(100.0, " points", True)
_VERDICTS = {"trust": "", "caution": "to be used with caution", "do_not_use": "must not be used"}


def _unit(amounts: Amounts, *, differ: bool) -> Unit:
    if differ:
        if amounts.shares:
            return _POINTS
        return Unit(1.0, "", True)
    if amounts.shares:
        return PER_CENT
    return PLAIN


def _dot(record: Record, name: str, colours: Mapping[str, str], interval: tuple[float, float, float]) -> Dot:
    value, low, high = interval
    verdict = record["verdict_level"]
    colour = colours.get(target_of(record), "ink")
    return Dot(
        name,
        value,
        low,
        high,
        colour,
        verdict == "do_not_use",
        note=_VERDICTS[verdict],
        labelled=True,
    )


def _finding(
    found: Estimates, leaders: Sequence[Record], sentence: Sentence, amounts: Amounts, least: float | None
) -> Finding:
    own_part = next((r for r in leaders if r["policy"] == sentence.policy and "baseline" not in r), None)
    usable = own_part is not None and not lacks(own_part) and own_part["verdict_level"] != "do_not_use"
    value = ""
    if own_part is not None and usable:
        mean = amounts.one(within_limits(own_part)["value"])
        interval = amounts.span(own_part["low"], own_part["high"])
        value = f"{mean} per recommendation ({100 * own_part['level']:g} % interval {interval})."
    names = {label(record) for record in leaders if target_of(record) == sentence.policy}
    doubt = next(
        (reason.message for reason in reasons(leaders) if reason.level == sentence.sure and names & {*reason.of}), ""
    )
    of_pair = next((r for r in leaders if target_of(r) == sentence.policy and "baseline" in r), None)
    rates = ""
    tolerance = None
    if of_pair is not None:
        values = of_pair["diagnostics"]
        tolerance = (of_pair.get("best_of") or values).get(TOLERANCE)
        if amounts.shares and "value_baseline" in values and of_pair == within_limits(of_pair):
            ends = " \u2192 ".join(amounts.one(values[name]) for name in ("value_baseline", "value_target"))
            rates = f" {_outcome(found)}: {ends} of recommendations"
    by_segment = _by_segment(found, sentence, amounts)
    return of_estimates(sentence, value, doubt, rates, tolerance, by_segment, found.plans, least)


def _outcome(found: Estimates) -> str:
    """Name the outcome that rewards of 0 and 1 count, after their column."""
    named = re.search(r"reward: ([^;]+)", " ".join(found.lines))
    if named and "click" in named[1].lower():
        return "clicks"
    return "successes"
