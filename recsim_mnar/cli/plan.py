"""``recsim-mnar plan ab``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    NUMBER,
    READ_PATH,
    WHOLE,
    names_of,
    option,
    own_log_options,
    reading_of,
)
from recsim_mnar.cli.output import JsonOutput, json_option
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.own_log.plan import ABPlan


@click.group(short_help="Plan an A/B test.")
def plan() -> None:
    """Users and days that an A/B test needs."""


@plan.command(short_help="Users and days that an A/B test needs.")
@click.argument("log", type=READ_PATH)
@option("--lift", "To find: 5% of the log's mean reward, or an amount in its unit; several with commas (8%,3%).")
@option("--users", "Users available per arm: adds the smallest lift they can detect.", WHOLE)
@option("--power", "Probability of finding the lift.", NUMBER, 0.8)
@option("--level", "Coverage of the difference's interval.", NUMBER, 0.95)
@option("--users-per-day", "Who enter the test, both arms; else the log's dates.", NUMBER)
@option("--target --targets", "Column of a policy: adds the rows of such a log that give the same precision.")
@option("--baseline", "Such a column, that the target is compared with; else the logger.")
@own_log_options("reward", "propensity", "action", "user", "time", "slate", "position", "weight")
@json_option("the plan")
def ab(log: Path, json_output: JsonOutput, **options: Any) -> None:
    """How many users, and days, an A/B test needs to find a lift over LOG's policy."""
    from recsim_mnar.own_log.plan import plan_ab

    json_output.check(log)
    lifts, asked = _lifts_of(options["lift"]), {name: options[name] for name in _ASKED}
    found = [plan_ab(log, lift, columns=reading_of(options), **asked) for lift in lifts]
    if len(found) == 1:
        _show(json_output, found[0].to_dict(), found[0].reading, _ab_lines(found[0]))
        return
    notes = dict.fromkeys(f"note: {note}" for each in found for note in each.notes)
    lines = [f"lift {lift}: {_ab_answer(each)}" for lift, each in zip(lifts, found, strict=True)]
    lines += [f"at power {found[0].power:g}, level {found[0].level:g}", _ab_basis(found[0]), *notes]
    _show(json_output, [each.to_dict() for each in found], found[0].reading, lines)


_ASKED = ("users", "power", "level", "users_per_day", "target", "baseline")


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
