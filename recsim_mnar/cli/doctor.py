"""``recsim-mnar doctor``: what is wrong with an installation, or with a file, and which commands fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import READ_PATH, WHOLE, column_options, columns_of, names_of
from recsim_mnar.cli.output import JsonOutput, json_option
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.installation import Check
    from recsim_mnar.own_log.doctor import Examination

ILL = 3
"""Exit status where there is a problem, as `check` has one for a rule that is broken."""
_MARKS = {"ok": " ", "note": "-", "problem": "!"}
_MOST_NAMES = 12


@click.command(short_help="What a file holds, its faults, the line to type.")
@click.argument("file", type=READ_PATH, required=False)
@click.option(
    "--target", "--targets", default=None, help="Columns of target policies' probabilities of the logged action."
)
@click.option("--actions", type=WHOLE, default=None, help="How many actions (items) there are in all.")
@column_options("user", "item", "action", "reward", "propensity", "time", "logger")
@json_option("all that is found")
def doctor(file: Path | None, json_output: JsonOutput, **options: Any) -> None:
    """Say what FILE holds, what is wrong with it, and which commands fit, with the line to type.

    FILE is CSV or Parquet, or a folder of parts. Without one the installation is looked at: versions, threads, the
    kernels' cache, extras, a clash over `agents`. Lines that begin with ! are problems, those with - worth knowing.
    Exits with 3 where there is a problem.
    """
    json_output.check(file)
    if file is not None:
        found, written, ill = _file(file, options)
    else:
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise UserError(f"--{given[0].replace('_', '-')} is of a file: name FILE too")
        found, written, ill = _installation()
    for line in found:
        json_output.answer(line)
    json_output.write(written)
    if ill:
        raise SystemExit(ILL)


def _installation() -> tuple[list[str], dict[str, Any], bool]:
    from recsim_mnar.installation import PROBLEM, check_installation

    checks = check_installation()
    lines = [_check_line(check, max(len(each.name) for each in checks)) for check in checks]
    problems = [check.name for check in checks if check.level == PROBLEM]
    lines.append(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problem found")
    return lines, {"checks": [check.to_dict() for check in checks]}, bool(problems)


def _check_line(check: Check, width: int) -> str:
    advice = f": {check.advice}" if check.advice else ""
    return f"{_MARKS[check.level]} {check.name:<{width}}  {check.found}{advice}"


def _file(file: Path, options: dict[str, Any]) -> tuple[list[str], dict[str, Any], bool]:
    from recsim_mnar.own_log.doctor import Asked, examine_file
    from recsim_mnar.own_log.doctor.fitting import commands_for
    from recsim_mnar.own_log.doctor.problems import PROBLEM

    if options["actions"] is not None and options["actions"] < 1:
        raise UserError(f"--actions must be at least 1, got {options['actions']}")
    targets = () if options["target"] is None else names_of(options["target"], "--target")
    columns = columns_of(options)
    found = examine_file(file, Asked(columns, tuple(targets), options["actions"]))
    fits = commands_for(found)
    lines = [*_fact_lines(found), ""]
    lines += [f"{_MARKS[problem.level]} {problem}" for problem in found.problems] or ["nothing wrong was found"]
    lines += ["", "what to type:" if any(fit.fits for fit in fits) else "no command fits yet"]
    for fit in fits:
        lines += [f"  {fit.line}", f"      {fit.says}"] if fit.fits else [f"  not {fit.command}: {fit.says}"]
    ill = any(problem.level == PROBLEM for problem in found.problems)
    return lines, {**found.to_dict(), "commands": [fit.to_dict() for fit in fits]}, ill


def _fact_lines(found: Examination) -> Iterator[str]:
    """The facts, a line each."""
    facts = found.facts
    for name, text in (
        ("file", f"{found.source}: {found.kind}" + (f", {', '.join(found.written)}" if found.written else "")),
        ("columns", found.columns.line() or "none recognised"),
        ("targets", ", ".join(found.targets)),
        ("not used", _names(found.others)),
        ("receipts", facts["receipts"] or ""),
        ("rows", _rows(facts)),
        ("users", _users(facts)),
        ("items", _number(facts["items"])),
        ("actions", _actions(facts)),
        ("loggers", _number(facts["loggers"])),
        ("time", "" if facts["time"] is None else f"{facts['time']['from']} to {facts['time']['to']}"),
        ("rewards", _range(facts["reward"])),
        ("propensities", _propensities(facts["propensity"])),
        ("missing", ", ".join(f"{name} {count:,}" for name, count in facts["missing"].items()) or "none"),
        ("duplicates", f"{facts['duplicates']:,} rows equal to an earlier one"),
        (
            "repeats",
            "" if facts["repeats"] is None else f"{facts['repeats']:,} rows whose user has met the same before",
        ),
        *(("mean weight", each["line"]) for each in facts["mean_weight"]),
    ):
        if text:
            yield f"{name:<13} {text}"


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(name or "(unnamed)" for name in names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _rows(facts: dict[str, Any]) -> str:
    if not facts["organic_rows"]:
        return f"{facts['rows']:,}"
    others = f", {facts['other_rows']:,} neither" if facts["other_rows"] else ""
    return f"{facts['rows']:,}: {facts['bandit_rows']:,} recommendations, {facts['organic_rows']:,} organic{others}"


def _users(facts: dict[str, Any]) -> str:
    if facts["users"] is None:
        return "no column: rows are taken as independent"
    rows = facts["rows_of_a_user"]
    return f"{facts['users']:,}" + (f", rows of one: median {rows['median']:g}, most {rows['most']:,}" if rows else "")


def _actions(facts: dict[str, Any]) -> str:
    if facts["actions"] is None:
        return ""
    if facts["share_shown"] is None:
        return f"{facts['actions']:,} shown; of how many is not known (--actions)"
    return f"{facts['actions']:,} of {facts['actions_known']:,} ever shown, {100 * facts['share_shown']:.3g} %"


def _range(reward: dict[str, float] | None) -> str:
    if reward is None:
        return ""
    return f"{reward['least']:g} to {reward['largest']:g}, mean {reward['mean']:.4g}"


def _propensities(facts: dict[str, Any] | None) -> str:
    if facts is None or facts["least"] is None:
        return ""
    return f"{facts['least']:.4g} to {facts['largest']:.4g}, {facts['impossible']:,} impossible"
