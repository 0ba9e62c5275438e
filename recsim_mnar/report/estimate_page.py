"""The page of ``estimate``: values with intervals, verdicts with what to do, differences, weights, what was read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recsim_mnar.answers.sentence import TOLERANCE, Sentence, intervals_of, sentence_of, within_limits
from recsim_mnar.answers.weights import WeightDistribution, weight_distribution
from recsim_mnar.answers.words import (
    Amounts,
    Record,
    baseline_of,
    cells,
    label,
    lacks,
    partly_covered,
    reasons,
    relative_change,
    segment_label,
    segment_lines,
    segment_reasons,
    segment_title,
    target_of,
    verdict_in_words,
)
from recsim_mnar.own_log.ab_plan import ABPlan
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.protocols.records import listed, plain
from recsim_mnar.report.charts import CHANGE, PER_CENT, PLAIN, Axis, Chart, Dot, Unit, colours_of, dots, room_for
from recsim_mnar.report.page import SCHEMA
from recsim_mnar.report.template import (
    MOST_NAMES,
    RANDOM,
    TODAY,
    Finding,
    of_estimates,
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
        source: name of the log.
        records: records of :func:`recsim_mnar.own_log.estimating.estimate_log`.
        lines: notes on the rows and columns that were read or left out.
        log: the rows behind the records.
        clip: largest weight of the clipped estimators; None for no clipping.
        segments: records of segments.
        stamp: first entries of ``results.json``, such as the files that were read.
        plans: plans of A/B tests that detect the lift, and the lower end of its interval.
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
        """Return the name of a policy on the page: the label of its first record."""
        return next((label(record) for record in self.records if record["policy"] == policy), policy)


def write_estimates(folder: Path, estimates: Estimates, made_by: Mapping[str, Any]) -> None:
    """Write ``results.json``, ``report.html`` and their index; identical runs write identical files.

    Args:
        folder: an existing folder.
        estimates: the results to show.
        made_by: options of the command for the foot of the page; JSON types.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.begin(digest_of(made_by))
        into.write_json("results.json", plain(_results(estimates)))
        with into.recording("report.html") as path:
            _write_page(path, estimates, made_by)


def _results(estimates: Estimates) -> Mapping[str, object]:
    """Return the content of ``results.json``."""
    from recsim_mnar._version import __version__

    log = estimates.log
    return {
        "schema": SCHEMA,
        "package": f"recsim-mnar {__version__}",
        "sentence": sentence_of(estimates.records).to_dict(),
        **estimates.stamp,
        "read": {
            "source": estimates.source,
            "rows": log.rows,
            "users": log.users,
            "lines": list(estimates.lines),
            "mean_reward": log.mean_reward,
            "counts": log.counts,
        },
        "weights": [vars(row) for row in weights_of(estimates)],
        "records": [*estimates.records, *estimates.segments],
    }


def _write_page(path: Path, estimates: Estimates, made_by: Mapping[str, Any]) -> None:
    """Write the page to ``path``; ``made_by`` has the options of the command for its foot."""
    leaders = [r for r in estimates.records if r["leads"]]
    further = [r for r in estimates.records if not r["leads"]]
    against = reasons(leaders)
    sentence = sentence_of(estimates.records)
    amounts = Amounts.of(estimates.records)
    weights = weights_of(estimates)
    labelled_weights = [replace(weight, policy=estimates.label(weight.policy)) for weight in weights]
    colours = colours_of(estimates.label(target_of(r)) for r in estimates.records)
    write_from(
        "estimate.html",
        path,
        made_by,
        _finding(estimates, leaders, sentence, amounts, made_by.get("propensity_min")),
        _value_chart(estimates, leaders, amounts, colours),
        found=estimates,
        outcome=_reward_noun(estimates) if amounts.shares else "the reward",
        least=_stated_least(made_by, leaders),
        maker=_logging_policy_name(estimates),
        sentence=sentence,
        partly=partly_covered(leaders, sentence.text),
        reasons=against,
        further=[reason for reason in reasons([*leaders, *further]) if reason not in against],
        counted=_COUNTED,
        amounts=amounts,
        leaders=leaders,
        others=further,
        label=label,
        verdict_in_words=verdict_in_words,
        cells=cells,
        weights=labelled_weights,
        segment_label=segment_label,
        relative_change=relative_change,
        segment_title=segment_title(estimates.segments) if estimates.segments else "",
        segment_lines=[*segment_lines(estimates.segments), *segment_reasons(estimates.segments)],
    )


def _logging_policy_name(estimates: Estimates) -> str:
    """Return the name of the logging policy on the page."""
    if any(r.get("baseline_kind") == "random" for r in estimates.records):
        return RANDOM
    return TODAY


def _stated_least(made_by: Mapping[str, Any], leaders: Sequence[Record]) -> str:
    """Describe the smallest probability behind the estimates and its source; "" if it is unknown.

    Args:
        made_by: options of the command, among them a stated probability.
        leaders: records of the leading estimates, whose diagnostics may have one from the log's metadata.
    """
    source = "as the analyst stated"
    least = made_by.get("propensity_min")
    if least is None and leaders:
        source = "as the log's own description says"
        least = leaders[0]["diagnostics"].get("propensity_min_taken")
    if least is None:
        return ""
    # Probabilities sum to 1, so at most 1 / least items have at least that one; 1e-9 allows for rounding.
    most = int(1.0 / float(least) + 1e-9)
    return f"{100.0 * float(least):.4g} %, {source} (so it chooses among at most {most:,} items)"


def weights_of(estimates: Estimates) -> list[WeightDistribution]:
    """Compute the distribution of weights of each policy, under the policy's name in the records."""
    return [weight_distribution(name, weight, estimates.clip) for name, weight in estimates.log.weights.items()]


def _value_chart(
    estimates: Estimates, leaders: Sequence[Record], amounts: Amounts, colours: Mapping[str, str]
) -> list[Chart]:
    """Draw the leading estimates: differences from the baseline or, without one, values.

    Args:
        estimates: the estimates.
        leaders: records of the leading estimator.
        amounts: format of amounts.
        colours: colour class by policy.

    Returns:
        The chart; an empty list if there is nothing to compare, or no finite interval.
    """
    differences = [r for r in leaders if "baseline" in r]
    drawn = [within_limits(r) for r in differences or leaders if not lacks(r) and math.isfinite(r["high"])]
    only_today = all(r["today"] for r in drawn)
    if not drawn or (only_today and not differences):
        return []
    drawn.sort(key=lambda r: -r["value"])
    intervals, are_shares = intervals_of(drawn, estimates.records)
    unit = CHANGE if are_shares else _unit(amounts, differ=bool(differences))
    name_of = target_of if differences else label
    rows = [_dot(r, name_of(r), colours, interval) for r, interval in zip(drawn, intervals, strict=True)]
    subject = rows[0].name
    lines = "The line is the {:g} % interval"
    if len(rows) > 1:
        subject = "each"
        lines = "The lines are {:g} % intervals"
    title = "What each would earn per recommendation"
    if differences:
        other = baseline_of(drawn[0])
        if only_today:
            other = _logging_policy_name(estimates)
        title = f"How much more {subject} earns than {other}"
        if amounts.shares:
            title = f"How many more {_reward_noun(estimates)} {subject} gets than {other}"
    caption = f"{lines.format(100 * drawn[0]['level'])}{_note_on_best(drawn)}.{_note_on_hollow(rows)}"
    axis = _axis_for_all(rows, differ=bool(differences))
    return [Chart(title, dots(rows, unit, axis), caption, folded=False)]


def _axis_for_all(rows: Sequence[Dot], *, differ: bool) -> Axis:
    """Make an axis with room for the full intervals of usable values and, for differences, for 0."""
    ends = [Dot("", end) for row in rows if not row.hollow for end in (row.low, row.high)]
    if differ:
        ends.append(Dot("", 0.0))
    return room_for([*rows, *ends])


def _note_on_best(records: Sequence[Record]) -> str:
    """Describe the interval of the best of several policies, corrected for the choice; "" if none was chosen."""
    for record in records:
        if "best_of" in record:
            best = record["best_of"]
            largest = f"the largest usable estimate of {best['policies']}"
            return f"; that of {target_of(record)}, {largest}, is the {100 * best['level']:.4g} % interval"
    return ""


def _note_on_hollow(rows: Sequence[Dot]) -> str:
    """Return the explanation of hollow dots for a caption; "" without any."""
    if any(row.hollow for row in rows):
        return " A hollow dot must not be used."
    return ""


def _by_segment(estimates: Estimates, sentence: Sentence, amounts: Amounts) -> str:
    """Describe in a sentence the segments in which the policy is worse, better, or not clearly either; "" without any.

    The segments with the largest losses and gains come first.
    """
    groups = sentence.segments
    if groups is None:
        return ""
    rows = [r for r in estimates.segments if "baseline" in r and target_of(r) == sentence.policy]
    rows.sort(key=lambda r: float(r["value"]))
    phrases = []
    for outcome, ordered in (("worse", rows), ("better", rows[::-1])):
        in_group = [r for r in ordered if segment_label(r) in groups[outcome]]
        if in_group:
            names = [segment_label(r) for r in in_group]
            values = in_group[0]["diagnostics"]
            before = amounts.one(values["value_baseline"])
            after = amounts.one(values["value_target"])
            example = ""
            if len(names) > 1:
                example = f"{names[0]}: "
            phrases.append(f"{outcome} on {listed(names, MOST_NAMES)} ({example}{before} \u2192 {after})")
    unclear = groups["cannot_tell"] + groups["do_not_use"]
    if phrases and unclear:
        phrases.append(f"not clear on {listed(unclear, MOST_NAMES)}")
    return f"By {groups['by']}: {'; '.join(phrases) or 'no segment is shown to differ'}."


_POINTS = Unit(100.0, " points", True)
_VERDICTS = {"trust": "", "caution": "to be used with caution", "do_not_use": "must not be used"}


def _unit(amounts: Amounts, *, differ: bool) -> Unit:
    """Return the format of values or, if ``differ``, of differences, as shares in per cent or as amounts."""
    if amounts.shares:
        return _POINTS if differ else PER_CENT
    return Unit(1.0, "", True) if differ else PLAIN


def _dot(record: Record, name: str, colours: Mapping[str, str], interval: tuple[float, float, float]) -> Dot:
    """Make the row of a chart that shows a record: a dot with its interval, hollow if it must not be used.

    Args:
        record: the record.
        name: label of the row.
        colours: colour class by policy.
        interval: value, low and high end to draw.
    """
    verdict = record["verdict_level"]
    colour = colours.get(target_of(record), "ink")
    must_not_be_used = verdict == "do_not_use"
    return Dot(name, *interval, colour, hollow=must_not_be_used, note=_VERDICTS[verdict], labelled=True)


def _finding(
    estimates: Estimates, leaders: Sequence[Record], sentence: Sentence, amounts: Amounts, least: float | None
) -> Finding:
    """Summarise the answer for the first screen of the page.

    Args:
        estimates: the estimates.
        leaders: records of the leading estimator.
        sentence: summary of the records.
        amounts: format of amounts.
        least: stated smallest probability of any item; None if it is not stated.
    """
    of_policy = [r for r in leaders if target_of(r) == sentence.policy]
    value = ""
    for r in leaders:
        if r["policy"] == sentence.policy and "baseline" not in r:
            if not lacks(r) and r["verdict_level"] != "do_not_use":  # other values are not shown first
                mean = amounts.one(within_limits(r)["value"])
                interval = amounts.span(r["low"], r["high"])
                value = f"{mean} per recommendation ({100 * r['level']:g} % interval {interval})."
            break
    labels = {label(r) for r in of_policy}
    policy_reasons = (r.message for r in reasons(leaders) if r.level == sentence.sure and labels & {*r.policies})
    doubt = next(policy_reasons, "")
    rates = ""
    tolerance = None
    difference = next((r for r in of_policy if "baseline" in r), None)
    if difference is not None:
        values = difference["diagnostics"]
        tolerance = (difference.get("best_of") or values).get(TOLERANCE)
        # A value outside its interval is proved biased, and so are the rates behind it.
        if amounts.shares and "value_baseline" in values and difference == within_limits(difference):
            before = amounts.one(values["value_baseline"])
            after = amounts.one(values["value_target"])
            rates = f" {_reward_noun(estimates)}: {before} \u2192 {after} of recommendations"
    by_segment = _by_segment(estimates, sentence, amounts)
    return of_estimates(sentence, value, doubt, rates, tolerance, by_segment, estimates.plans, least)


def _reward_noun(estimates: Estimates) -> str:
    """Return the plural name of a reward of 1: clicks if the column of rewards is called so, else successes."""
    named = re.search(r"reward: ([^;]+)", " ".join(estimates.lines))
    if named and "click" in named[1].lower():
        return "clicks"
    return "successes"
