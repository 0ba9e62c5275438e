"""``recsim-mnar calibrate``, ``validate`` and ``plan``: a world fitted to a log and checked, an A/B test planned."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    NEW_PATH,
    NUMBER,
    READ_PATH,
    WHOLE,
    check_there,
    column_options,
    columns_of,
    names_of,
    new_file,
    option,
    own_log_options,
    pairs_of,
    reading_of,
    seed_option,
    world_options,
    writing,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.own_log.ab_plan import ABPlan


@click.command(
    hidden=True,
    context_settings={"ignore_unknown_options": True},
    help="Withdrawn: says what to type instead.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def advise(arguments: tuple[str, ...]) -> None:
    """Say what to type instead; scripts may know the name."""
    raise UserError("advise is withdrawn: type recsim-mnar estimate LOG --agents A,B,C")


@click.command(short_help="Fit a simulator to a log; list what it cannot tell.")
@click.argument("log", type=READ_PATH)
@option("--out", "WORLD.toml; arrays go to WORLD.npz.", NEW_PATH, required=True)
@seed_option("Of the ensemble and of simulations.")
@option("--ensemble", "Further worlds besides the best fit.", WHOLE, 20)
@option("--items", "Number of items, if LOG does not show all.", WHOLE)
@option("--assume", "A parameter that is set, not fitted; may be repeated.", multiple=True, metavar="NAME=VALUE")
@column_options("user", "item", "action", "reward", "propensity", "time")
@json_option("what was fitted")
def calibrate(log: Path, out: Path, json_output: JsonOutput, **options: Any) -> None:
    """Fit a sessions world to LOG: a log of views and recommendations, a table of interactions, or a bandit log.

    Prints what LOG identifies, with 90 % intervals, and what it does not, with the range that the ensemble takes. The
    file is a world: `simulate --world WORLD.toml`, `compare --world WORLD.toml`; `WORLD.toml#3` is the ensemble's
    third. Then `validate WORLD.toml LOG` says for which questions it may be used. A link is refused
    if its click rate misses LOG's, and a log is refused that no world is like.
    """
    from recsim_mnar.fitting.calibration import FittedWorld, calibrate_world, check_asked
    from recsim_mnar.kernels.checks import whole_number
    from recsim_mnar.log.table import Log
    from recsim_mnar.own_log.sources import read_to_fit

    json_output.check(log, out)
    check_there(log)
    _check_out(out, log)
    new_file(out, "--out")
    new_file(out.with_suffix(".npz"), f"--out {out}: its")
    if options["items"] is not None:
        whole_number(options["items"], "--items", 2)
    seed = options["seed"]
    assume = pairs_of(options["assume"], "--assume")
    check_asked(seed, options["ensemble"], assume)
    with progress() as report:
        report(f"read {log}")
        read = read_to_fit(log, columns=columns_of(options))
        assert isinstance(read.log, Log)  # ratings are read for their own world alone
        json_output.say(*read.lines)
        fitted = calibrate_world(
            read.log,
            seed,
            n_items=options["items"] or read.n_items,
            report=report,
            ensemble=options["ensemble"],
            assume=assume,
        )
        with writing(out, "--out"):
            fitted.save(out)
            fitted = FittedWorld.load(out)
    json_output.answer(*lines_of(fitted))
    json_output.say(f"Next: recsim-mnar validate {out} {log}  (for which questions it is valid)")
    json_output.write(fitted.to_dict())


def _check_out(out: Path, log: Path) -> None:
    """Raise UserError for a file of a fitted world that has the wrong ending or would be in the log."""
    from recsim_mnar.worlds.registry import SUFFIX

    if out.suffix.lower() != SUFFIX:
        raise UserError(f"--out {out}: a world's file ends in {SUFFIX}")
    if log.is_dir() and log.resolve() in out.resolve().parents:
        raise UserError(f"--out {out} would be in {log}, which is read: name another file")


def lines_of(fitted: FittedWorld) -> list[str]:
    """Format a fit for the terminal: identified and unidentified features, the method, and the file of the world."""
    lines = ["", f"The {fitted.world} world, fitted. What the log says (90 % intervals):"]
    for name, evidence in fitted.identified.items():
        interval = f"{evidence['value']:.4g} ({evidence['low']:.4g} to {evidence['high']:.4g})"
        lines.append(f"  {name:<24} {interval:<36} {evidence['why']}")
    lines.append("What it does not say:")
    for name, evidence in fitted.not_identified.items():
        used = evidence.get("used", "")
        if isinstance(used, (int, float)):
            used = f"{used:.4g}"
        if "low" in evidence:
            used = f"{evidence['low']:.4g} to {evidence['high']:.4g}; used {used}"
        lines.append(f"  {name:<24} {used!s:<36} {evidence['why']}")
    lines += ["How:", *(f"  {line}" for line in fitted.method)]
    members = len(fitted.ensemble)
    lines.append(f"World: {fitted.path}, with an ensemble of {members} (as a world: {fitted.path}#1 and so on)")
    return lines


@click.command(short_help="Test for which questions a simulator resembles a log.")
@click.argument("world")
@click.argument("log", type=READ_PATH)
@world_options
@option("--logging", "The agent that made LOG, or the file of a saved policy; as LOG's provenance says unless named.")
@option("--users", "Real users looked at, at most.", WHOLE, 4000)
@seed_option("Of simulated users and divisions.")
@option("--out", "Write a page with pictures, PAGE.html.", NEW_PATH)
@own_log_options("reward", "propensity", "action", "item", "event", "user", "time", copies=False)
@json_option("all that is found")
def validate(world: str, log: Path, json_output: JsonOutput, **options: Any) -> None:
    """Check WORLD against LOG, each check next to what chance does to the same users.

    WORLD is a WORLD.toml of `calibrate`, which is fitted anew on half of the users and compared with the others, or a
    world's name with --preset and --set.
    """
    from recsim_mnar.fitting.validation import LEAST_USERS, check_logging, validate_world
    from recsim_mnar.kernels.checks import whole_number
    from recsim_mnar.log.ratings import Ratings, log_of_ratings
    from recsim_mnar.own_log.sources import read_to_fit
    from recsim_mnar.report.world_pages import legend_lines, sentence_lines, table_lines, write_validation

    out = options.pop("out")
    json_output.check(log)
    check_there(log)
    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out {out}: the page's name ends in .html")
        new_file(out, "--out")
    arguments = {"world": world, "log": str(log)}
    arguments |= {name: options[name] for name in ("preset", "settings", "logging", "seed", "users")}
    whole_number(options["users"], "--users", LEAST_USERS)
    check_logging(options["logging"])
    made = _load_world(world, options["preset"], options["settings"])
    with progress() as report:
        report("reading")
        best = made.make() if hasattr(made, "ensemble") else made
        read = read_to_fit(log, "ratings" if getattr(best, "rates", False) else "sessions",
                           dict(reading_of(options).columns))  # fmt: skip
        validation = validate_world(
            made,
            log_of_ratings(read.log) if isinstance(read.log, Ratings) else read.log,
            options["seed"],
            logging=options["logging"],
            n_items=read.n_items,
            most_users=options["users"],
            report=report,
        )
        if out is not None:
            with writing(out, "--out"):
                write_validation(out, validation, {"command": "validate", **arguments})
    json_output.answer(*table_lines(validation))
    json_output.say(*legend_lines())
    json_output.answer(*("", *sentence_lines(validation)))
    if out is not None:
        json_output.say(f"page: {out}")
    json_output.write(validation.to_dict())


def _load_world(name: str, preset: str | None, settings: tuple[str, ...]) -> Any:
    """Load a fitted world from its file, or make a world by name."""
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.worlds import make_world

    if not name.lower().endswith(".toml"):
        return make_world(name, preset, settings)
    if preset is not None or settings:
        raise UserError("--preset and --set belong to a world's name: a WORLD.toml has its own parameters")
    fitted = FittedWorld.load(name)
    if fitted.catalogues is None:  # calibrate always finds one, so this file was written by hand
        return fitted.make()
    return fitted


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
@own_log_options("reward", "propensity", "action", "user", "time", "slate", "position", "weight")
@json_option("the plan")
def ab(log: Path, json_output: JsonOutput, **options: Any) -> None:
    """Plan how many users, and days, an A/B test needs to find a lift over LOG's policy."""
    from recsim_mnar.own_log.ab_plan import plan_ab

    json_output.check(log)
    lifts = _parse_lifts(options["lift"])
    plan_options = {name: options[name] for name in _PLAN_OPTIONS}
    plans = [plan_ab(log, lift, columns=reading_of(options), **plan_options) for lift in lifts]
    first = plans[0]
    content: Any = [entry.to_dict() for entry in plans]
    if len(plans) == 1:
        content = content[0]
        lines = _ab_lines(first)
    else:
        lines = [f"lift {lift}: {_ab_answer(entry)}" for lift, entry in zip(lifts, plans, strict=True)]
        lines += [f"at power {first.power:g}, level {first.level:g}", _ab_basis(first)]
        lines += dict.fromkeys(f"note: {note}" for entry in plans for note in entry.notes)
    json_output.answer(*lines)
    json_output.say(*first.reading)
    json_output.write(content)


_PLAN_OPTIONS = ("users", "power", "level", "users_per_day")
"""Options that are arguments of ``plan_ab`` under the same names."""


def _parse_lifts(text: str | None) -> list[str | None]:
    """Parse ``--lift`` into one text or several; None for no lift.

    Raises:
        UserError: some are in per cent and some are not, as after a decimal comma: ``2,5%``.
    """
    if text is None or "," not in text:
        return [text]
    names = names_of(text, "--lift")
    if len({name.endswith("%") for name in names}) > 1:
        raise UserError(f"--lift {text}: write several as 8%,3%, and a number with a decimal point")
    return [*names]


_LONG = 366.0
"""Days after which an A/B test is too long to be useful."""


def _percent(share: float) -> str:
    """Format a share in per cent with three significant digits."""
    return f"{100.0 * share:.3g} %"


def _ab_lines(found: ABPlan) -> list[str]:
    """Format a plan: the recommendation in one sentence, then its assumptions and data."""
    sign = "+" if found.lift_share > 0 else ""
    lift = f"{found.lift:+.3g} ({sign}{_percent(found.lift_share)})"
    rests = f"power {found.power:g}, level {found.level:g}"
    question = f"to find a lift of {lift}, at {rests}"
    if found.least_lift is not None:
        question = f"at {rests}; a lift of {lift} needs {found.users:,} users per arm"
    notes = [f"note: {note}" for note in found.notes]
    return [_ab_answer(found), question, *_days_lines(found), _ab_basis(found), *notes]


def _ab_basis(found: ABPlan) -> str:
    """Describe the log behind a plan: its users, decisions and mean reward, and the dependence within users."""
    of_a_user = f"{found.decisions_a_user:.3g} {_unit(found)}"
    if found.slates_a_user is not None:
        of_a_user += f" in {found.slates_a_user:.3g} slates"
    return (
        f"the log: {found.log_users:,} users, {of_a_user} each, mean reward {found.value:.4g}; {_unit(found)} of a "
        f"user depend: {found.design_effect:.3g} times the variance of independent ones"
    )


def _unit(found: ABPlan) -> str:
    """Return the name, in the plural, of a plan's rows: decisions, or items shown if the log has slates."""
    if found.slates_a_user is None:
        return "decisions"
    return "items shown"


def _ab_answer(found: ABPlan) -> str:
    """Return the recommendation: the duration of the test with its users, or the lift that stated users detect."""
    size = f"{found.rows:,} {_unit(found)} per arm"
    if found.least_lift is not None:
        lift = f"{found.least_lift:.3g}"
        if found.least_share is not None:
            lift += f" ({_percent(found.least_share)})"
        users = round(found.rows / found.decisions_a_user)
        entered = ""
        if found.days is not None:
            entered = f"; they have come after {_days(found.days)}{', a guess' * found.is_guess}"
        return (
            f"{users:,} users per arm ({size}) find a lift of {lift} or more, the interval being "
            f"+-{found.half_width:.3g}{entered}."
        )
    if found.users_per_day is None:
        return (
            f"Take {found.users:,} users per arm ({size}; the log leaves open {found.low:,} to {found.high:,} users), "
            "each for as long as the log's."
        )
    guess = ""
    if found.is_guess:
        guess = f"This is a guess from a log of {_days(found.log_days or 0)}. "
    if found.days is None:
        return f"{guess}No number of days finds this lift: the same users come back. Plan for a larger --lift."
    days = _days(found.days)
    if found.floor is not None:
        assert found.users_by_then is not None
        users_per_arm = f"{found.users_by_then / 2.0:,.0f} users and {found.rows_by_then:,} {_unit(found)} per arm"
        never = ""
        if found.may_never:
            never = " The log leaves open that no number of days is enough."
        return f"{guess}Run {days} ({users_per_arm}); in whole weeks: {_weeks(found.days)}.{never}"
    if found.log_days is None:
        return f"Let users enter for {days} ({found.users:,} per arm, each as long as the log's; {size})."
    return (
        f"Let users enter for {days} ({found.users:,} per arm), and watch each for {_days(found.log_days)} ({size}); "
        f"in whole weeks, to the last one's end: {_weeks(math.ceil(found.days) + found.log_days)}."
    )


def _weeks(days: float) -> str:
    """Format a number of days, rounded up to full weeks."""
    return _days(7.0 * math.ceil(days / 7.0))


def _days(number: float) -> str:
    """Format a number of days, rounded up to an integer."""
    days = math.ceil(number - 1e-9)  # a number above an integer by rounding error is not rounded up
    return f"{days:,} day{'s' * (days != 1)}"


def _days_lines(found: ABPlan) -> list[str]:
    """Return lines on a test's duration: its range, its assumptions, and when more days no longer help."""
    if found.users_per_day is None:
        return []
    lines = []
    if found.days is not None:
        if found.days_low is not None and found.days_low != found.days_high:
            high = "or more" if found.days_high is None else f"to {math.ceil(found.days_high):,}"
            lines.append(f"the log leaves open {math.ceil(found.days_low):,} {high} days")
        if found.floor is not None:
            lines.append(f"everybody who comes takes part, {found.users_per_day:,.0f} users on a mean day")
        else:
            lines.append(f"{found.users_per_day:,.0f} new users enter a day")
        if found.days > _LONG:
            lines.append("that is more than a year: plan for a larger --lift")
    if found.levels_off is not None:
        lines.append(
            f"the least lift levels off at {found.floor:.3g} from day {found.levels_off:,} on: the same users come back"
        )
    return lines
