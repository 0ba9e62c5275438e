"""``recsim-mnar plan ab | logging | estimate``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    LEAST_PROPENSITY,
    NEW_PATH,
    NUMBER,
    READ_PATH,
    WHOLE,
    checked_file,
    names_of,
    option,
    own_log_options,
    reading_of,
    writing,
)
from recsim_mnar.cli.output import JsonOutput, json_option
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.own_log.plan import ABPlan, EstimatePlan, LoggingPlan


@click.group(short_help="Plan an A/B test, exploration, or the size of a log.")
def plan() -> None:
    """Users an A/B test needs, how to log from here on, and rows until a verdict changes."""


@plan.command(short_help="Users and days that an A/B test needs.")
@click.argument("log", type=READ_PATH)
@option("--lift", "To find: 5% of the log's mean reward, or an amount in its unit; several with commas (8%,3%).")
@option("--users", "Users available per arm: adds the smallest lift they can detect.", WHOLE)
@option("--power", "Probability of finding the lift.", NUMBER, 0.8)
@option("--level", "Coverage of the difference's interval.", NUMBER, 0.95)
@option("--users-per-day", "Who enter the test, both arms; else the log's dates.", NUMBER)
@option("--target --targets", "Column of a policy: adds the rows of such a log that give the same precision.")
@option("--baseline", "Such a column, that the target is compared with; else the logger.")
@own_log_options("reward", "propensity", "action", "user", "time", "slate", "position")
@json_option("the plan")
def ab(log: Path, json_output: JsonOutput, **options: Any) -> None:
    """How many users, and days, an A/B test needs to find a lift over LOG's policy."""
    from recsim_mnar.own_log.plan import plan_ab

    json_output.check(log)
    columns, lifts = reading_of(options), _lifts_of(options.pop("lift"))
    found = [plan_ab(log, lift, columns=columns, **options) for lift in lifts]
    if len(found) == 1:
        _show(json_output, found[0].to_dict(), found[0].reading, _ab_lines(found[0]))
        return
    notes = dict.fromkeys(f"note: {note}" for each in found for note in each.notes)
    lines = [f"lift {lift}: {_ab_answer(each)}" for lift, each in zip(lifts, found, strict=True)]
    lines += [f"at power {found[0].power:g}, level {found[0].level:g}", _ab_basis(found[0]), *notes]
    _show(json_output, [each.to_dict() for each in found], found[0].reading, lines)


def _lifts_of(text: str | None) -> list[str | None]:
    """Value of ``--lift``: one or several, all of them in per cent or none.

    Raises:
        UserError: a mixture, as a decimal comma gives.
    """
    if text is None or "," not in text:
        return [text]
    names = names_of(text, "--lift")
    if len({name.endswith("%") for name in names}) > 1:
        raise UserError(f"--lift {text}: write several as 8%,3%, and a number with a decimal point")
    return [*names]


@plan.command("logging", short_help="How much to explore, and what it costs.")
@click.argument("log", type=READ_PATH)
@option("--target --targets targets", "Columns of the candidates' probabilities of the logged actions.", required=True)
@option("--deployed", "Such a column of today's policy; else the one that logged LOG.")
@option("--width", "Half width of the intervals: 10% of the value, or an amount.")
@option("--rows", "Decisions to log; as many as LOG has unless named.", WHOLE)
@option("--cost", "Share of decisions that may differ from today's policy: 2% or 0.02.")
@option("--estimator --estimators", "ips or snips: whose interval is planned.", default="ips")
@option("--level", "Coverage of the intervals.", NUMBER, 0.95)
@option("--actions", "How many there are: compares with uniform exploration.", WHOLE)
@option("--out", "Write the policy: a .json that simulate --policy runs.", NEW_PATH)
@own_log_options("reward", "propensity", "action", "user")
@json_option("the plan")
def plan_the_logging(log: Path, targets: str, out: Path | None, json_output: JsonOutput, **options: Any) -> None:
    """What to log under, so that candidate policies can be estimated: how much exploration, of what, at what cost.

    Two of --width, --rows and --cost say what the third must be.
    """
    from recsim_mnar.own_log.plan import plan_logging

    json_output.check(log)
    if out is not None:
        checked_file(out, "--out")
        if out.suffix != ".json":
            raise UserError(f"--out {out}: the policy's file ends in .json")
    columns = reading_of(options)
    found = plan_logging(log, names_of(targets, "--target"), columns=columns, **options)
    _show(json_output, found.to_dict(), found.reading, _logging_lines(found))
    if out is not None:
        with writing(out, "--out"):
            found.write(out)
        json_output.say(f"written to {out}: recsim-mnar simulate --policy {out} ... logs under it")


@plan.command(short_help="Rows needed until an estimate is trusted.")
@click.argument("log", type=READ_PATH)
@option("--target --targets", "Columns of the policies' probabilities of the logged actions.", required=True)
@option("--trusted", "Share of fresh logs to be trusted.", NUMBER, 0.5)
@option("--rows", "Adds the width and the verdict from so many rows.", WHOLE)
@option("--estimator --estimators", "ips, clipped_ips or snips; auto: the one that leads.", default="auto")
@option("--clip", "Largest weight of clipped_ips; none unless named.", NUMBER)
@option("--level", "Coverage of the interval.", NUMBER, 0.95)
@option("--full-support", "States that the logging policy can take what the target can.", bool)
@option("--unsupported", "Column of the target's mass where the logging probability is 0.")
@option("--reward-min", "Least reward possible.", NUMBER)
@option("--reward-max", "Largest reward possible.", NUMBER)
@option("--weight-max", "No weight target / propensity can be larger.", NUMBER)
@option("--propensity-min", "The smallest probability with which today's system shows any item.", LEAST_PROPENSITY)
@own_log_options("reward", "propensity", "action", "user")
@json_option("the plan")
def estimate(log: Path, target: str, json_output: JsonOutput, **options: Any) -> None:
    """How many rows until `estimate` trusts half of the logs of that size, and what no number of rows mends.

    Fresh logs are made of LOG's users and judged as `estimate` judges; --trusted asks for another share than a half.
    """
    from recsim_mnar.own_log.plan import plan_estimate

    json_output.check(log)
    columns = reading_of(options)
    names = names_of(target, "--target")
    if options["unsupported"] is not None and len(names) > 1:
        raise UserError("--unsupported is one target's: name one target at a time")
    found = [plan_estimate(log, name, columns=columns, **options) for name in names]
    lines = [line for each in found for line in _estimate_lines(each)]
    _show(json_output, [each.to_dict() for each in found], found[0].reading, lines)


_LONG = 366.0
"""Days after which an A/B test is too long to be useful."""


def _show(json_output: JsonOutput, content: Any, remarks: Sequence[str], lines: list[str]) -> None:
    json_output.answer(*lines)
    json_output.say(*remarks)
    json_output.write(content)


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"


def _ab_lines(found: ABPlan) -> list[str]:
    """What to do first, in one sentence; then what it rests on."""
    asked = f"{found.lift:+.3g} ({'+' if found.lift_share > 0 else ''}{_percent(found.lift_share)})"
    rests = f"power {found.power:g}, level {found.level:g}"
    lines = [_ab_answer(found), f"to find a lift of {asked}, at {rests}", *_days_lines(found), _ab_basis(found)]
    if found.least_lift is not None:
        lines[1] = f"at {rests}; a lift of {asked} needs {found.users:,} users per arm"
    if found.off_policy is not None:
        lines.append(f"a log like this one gives the same precision from {found.off_policy:,} rows")
    return [*lines, *(f"note: {note}" for note in found.notes)]


def _ab_basis(found: ABPlan) -> str:
    """What a plan of an A/B test was made of."""
    of_slates = "" if found.slates_a_user is None else f" in {found.slates_a_user:.3g} slates"
    return (
        f"the log: {found.log_users:,} users, {found.decisions_a_user:.3g} {_unit(found)}{of_slates} each, mean reward "
        f"{found.value:.4g}; {_unit(found)} of a user depend: {found.design_effect:.3g} times the variance of "
        "independent ones"
    )


def _unit(found: ABPlan) -> str:
    """What the rows of a plan are."""
    return "decisions" if found.slates_a_user is None else "items shown"


def _ab_answer(found: ABPlan) -> str:
    """The first line: how long, with how many users and decisions."""
    each = f"{found.rows:,} {_unit(found)} per arm"
    if found.least_lift is not None:
        share = "" if found.least_share is None else f" ({_percent(found.least_share)})"
        arm = round(found.rows / found.decisions_a_user)
        so_long = "" if found.days is None else f"; they have come after {_days(found.days)}"
        return (
            f"{arm:,} users per arm ({each}) find a lift of {found.least_lift:.3g}{share} or more, the interval being "
            f"+-{found.half_width:.3g}{so_long}."
        )
    if found.users_per_day is None:
        return (
            f"Take {found.users:,} users per arm ({each}; the log leaves open {found.low:,} to {found.high:,} users), "
            "each for as long as the log's."
        )
    if found.days is None:
        return "No number of days finds this lift: the same users come back. Plan for a larger --lift."
    assert found.users_by_then is not None
    if not found.by_days and found.log_days is not None:
        whole = math.ceil((math.ceil(found.days) + found.log_days) / 7.0)
        return (
            f"Let users enter for {_days(found.days)} ({found.users:,} per arm), and watch each for "
            f"{_days(found.log_days)} ({each}); in whole weeks, to the last one's end: {_days(7.0 * whole)}."
        )
    if not found.by_days:
        return f"Let users enter for {_days(found.days)} ({found.users:,} per arm, each as long as the log's; {each})."
    users = f"{found.users_by_then / 2.0:,.0f} users and {found.rows_by_then:,} {_unit(found)} per arm"
    return f"Run {_days(found.days)} ({users}); in whole weeks: {_days(7.0 * math.ceil(found.days / 7.0))}."


def _days(number: float) -> str:
    """Days, a part of one as a whole one."""
    days = math.ceil(number - 1e-9)
    return f"{days:,} day{'s' * (days != 1)}"


def _days_lines(found: ABPlan) -> list[str]:
    """What the days of an A/B test rest on, and what more of them would find."""
    if found.users_per_day is None:
        return []
    lines = []
    if found.days is not None:
        ends = [f"{math.ceil(end):,}" if end is not None else "never" for end in (found.days_low, found.days_high)]
        if ends[0] != ends[1]:
            lines.append(f"the log leaves open {ends[0]} to {ends[1]} days")
        if found.by_days:
            lines.append(f"everybody who comes takes part, {found.users_per_day:,.0f} users on a mean day")
        else:
            lines.append(f"{found.users_per_day:,.0f} new users enter a day")
        if found.days > _LONG:
            lines.append("that is more than a year: plan for a larger --lift")
    lines += [
        f"after {each['days']} days: {each['users']:,.0f} users, interval +-{each['half_width']:.3g}, least lift "
        f"{each['least_lift']:.3g} ({_percent(each['least_lift'] / found.value) if found.value else '-'})"
        for each in found.by_days
    ]
    if found.levels_off is not None:
        lines.append(
            f"the least lift levels off at {found.floor:.3g} from day {found.levels_off:,} on: the same users come back"
        )
    return lines


def _logging_lines(found: LoggingPlan) -> list[str]:
    parts = ", ".join(f"{name} {_percent(weight)}" for name, weight in found.weights.items())
    lines = [
        f"log under: {parts}",
        f"cost: {_percent(found.cost)} of {found.rows:,} decisions differ from today's policy: {found.exploring:,}",
    ]
    lines += [
        f"{target.name}: {target.value:.4g} +-{target.half_width:.3g} ({_percent(target.share)}) by {found.estimator} "
        f"at level {found.level:g}; the pilot leaves open +-{target.low:.3g} to +-{target.high:.3g}; users' design "
        f"effect {target.design_effect:.3g}"
        for target in found.targets
    ]
    if found.uniform is not None:
        lines.append(
            f"uniform exploration over {found.uniform['actions']:,} actions would need epsilon "
            f"{found.uniform['epsilon']:.3g}, a cost of {_percent(found.uniform['cost'])}"
        )
    gap = (
        "certified best of such mixtures"
        if found.gap < 5e-4
        else f"the best such mixture is at most {_percent(found.gap)} better"
    )
    return [*lines, gap, *(f"note: {note}" for note in found.notes)]


def _estimate_lines(found: EstimatePlan) -> list[str]:
    from recsim_mnar.tables.faults import in_rows

    unit = in_rows(found.rows) + (f" of {found.users:,} users" if found.users != found.rows else "")
    lines = [
        f"{found.target} by {found.estimator}: {found.value:.4g} +-{found.half_width:.3g} from {unit}",
        f"  verdict today: {_words(found.verdict)}",
        f"  trust: {_rows_of(found)}",
    ]
    if found.caution is not None and found.verdict == "do_not_use":
        lines.append(f"  caution or better: {_share(found)} from {found.caution:,} rows on")
    if found.ahead is not None:
        ahead = found.ahead
        lines.append(
            f"  from {ahead['rows']:,} rows: +-{ahead['half_width']:.3g}, {_words(ahead['verdict'])} or better in half "
            f"of fresh logs, trust in {_percent(ahead['trusted'])}"
        )
    for turn in found.turns:
        when = f"{_words(turn.level)} today" if turn.level != "trust" else "no objection today"
        lines.append(f"  - {turn.code}, {when}: {turn.message}")
        if turn.clears is None:
            lines += ["      no number of rows turns that", f"      what to do: {turn.action}"]
        else:
            lines.append(f"      {_share(found)} without it from {turn.clears:,} rows on")
    return lines


def _rows_of(found: EstimatePlan) -> str:
    """Number of rows until the verdict is trust, in words."""
    low, high = found.trust_range
    if found.trust is not None:
        times = f", {found.trust / found.rows:,.3g} times these" if found.trust > found.rows else ""
        return f"{_share(found)} from {found.trust:,} rows on{times} (the pilot leaves open {low:,} to {high:,})"
    if found.says:
        never = ", ".join(found.never)
        return f"no number of rows turns: {never}" if never else "not within a thousand times these rows"
    ends = f"{low:,} rows" if high is None else f"{low:,} and {high:,} rows"
    return f"this pilot does not say: {'more than' if high is None else 'between'} {ends}; ask again with a longer one"


def _share(found: EstimatePlan) -> str:
    return f"{_percent(found.trusted)} of fresh logs"


def _words(level: str) -> str:
    return level.replace("_", " ")
