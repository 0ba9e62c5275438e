"""``recsim-mnar doctor``, ``check``, ``verify`` and ``warm``: check files, your own classes, and the installation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    DECIMAL,
    PROPENSITIES_OF,
    READ_PATH,
    column_options,
    columns_of,
    names_of,
    option,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.errors import UserError, printable

if TYPE_CHECKING:
    from recsim_mnar.own_log.doctor import Examination

ILL = 3
"""Exit status if there is a problem, or a rule is broken."""
_MARKS = {"ok": " ", "note": "-", "problem": "!"}
_MOST_NAMES = 12
_KINDS = {"bandit log": "what was shown, and what came of it"}
"""Kinds of files in plain words."""


@click.command(short_help="Describe a file, list its problems, name the next command.")
@click.argument("file", type=READ_PATH, required=False)
@option("--target --targets", "Columns of target policies' probabilities of the logged action.")
@column_options("user", "item", "action", "reward", "propensity", "time", "logger", "slate", "position")
@PROPENSITIES_OF
@DECIMAL
@json_option("all that is found")
def doctor(file: Path | None, json_output: JsonOutput, **options: Any) -> None:
    """Say what FILE holds, what is wrong with it, and which commands fit, with the line to type.

    FILE is CSV or Parquet, or a folder of parts. Without one the installation is looked at: versions, processors,
    the kernels' cache, extras. Lines that begin with ! are problems, those with - worth knowing.
    Exits with 3 where there is a problem.
    """
    json_output.check(file)
    if file is not None:
        lines, content, ill = _examine(file, options)
    else:
        given_options = [name for name, value in options.items() if value is not None]
        if given_options:
            raise UserError(f"--{given_options[0].replace('_', '-')} needs FILE: name it too")
        lines, content, ill = _examine_installation()
    json_output.answer(*lines)
    json_output.write(content)
    if ill:
        raise SystemExit(ILL)


def _examine_installation() -> tuple[list[str], Mapping[str, object], bool]:
    """Check the installation.

    Returns:
        Lines to print, content of the JSON, and True if there is a problem.
    """
    from recsim_mnar.installation import PROBLEM, check_installation

    checks = check_installation()
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        advice = f": {check.advice}" if check.advice else ""
        lines.append(f"{_MARKS[check.level]} {check.name:<{width}}  {check.found}{advice}")
    problems = [check.name for check in checks if check.level == PROBLEM]
    lines.append(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problem found")
    return lines, {"checks": [check.to_dict() for check in checks]}, bool(problems)


def _examine(file: Path, options: Mapping[str, Any]) -> tuple[list[str], Mapping[str, object], bool]:
    """Examine a file; the printed lines and the command to type assume that guessed columns are right, JSON does not.

    Returns:
        Lines to print, content of the JSON, and True if there is a problem.
    """
    from recsim_mnar.datasets.tool_logs import open_tool_log
    from recsim_mnar.own_log.bandit_file import PROBLEM
    from recsim_mnar.own_log.doctor import Asked, examine_file, examine_tool_log
    from recsim_mnar.own_log.doctor_commands import command_for_tool_log, commands_for, first_of, guessed_in_words

    targets = () if options["target"] is None else names_of(options["target"], "--target")
    columns = columns_of(options)
    propensities_of, decimal = options["propensities_of"], options["decimal"]
    arguments = Asked(columns, tuple(targets), propensities_of=propensities_of, decimal=decimal)
    lines = []
    with open_tool_log(file, columns=columns, targets=targets) as tool:
        if tool is None:
            examination = guessed = examine_file(file, arguments)
            guesses = examination.guesses
            if guesses:
                guessed = examine_file(file, replace(arguments, columns={**columns, **guesses}, guessed=tuple(guesses)))
            fits = commands_for(guessed)
        else:
            examination = guessed = examine_tool_log(tool, arguments)
            fits = command_for_tool_log(examination)
            lines = [*tool.lines, ""]
    first = first_of(fits)
    typed = None
    if first is None:
        lacking = fits[-1]
        who = f"{lacking.command} " * lacking.says.startswith("needs")
        to_type = [f"No line to type yet: {who}{lacking.says}."]
    else:
        words = guessed_in_words(guessed, first.line)
        typed = {"line": first.line, "guessed": words, "columns": examination.guesses}
        to_type = ["Type this:", f"  {first.line}", *(f"      {line}" for line in (words, first.says) if line)]
    problems = [problem for problem in examination.problems if problem.code == "unclear"]
    problems += [problem for problem in guessed.problems if problem.code != "unclear"]
    head, *facts = _fact_lines(guessed)
    lines += [head, "", *to_type, "", *facts, ""]
    lines += [f"{_MARKS[problem.level]} {problem}" for problem in problems] or ["nothing wrong was found"]
    further = [fit for fit in fits if fit.fits and fit is not first]
    lines += ["", "more to type:"] if further else []
    for fit in further:
        lines += [f"  {fit.line}", f"      {fit.says}"]
    has_problem = any(problem.level == PROBLEM for problem in examination.problems)
    commands = [fit.to_dict() for fit in fits]
    return lines, {**examination.to_dict(), "type_this": typed, "commands": commands}, has_problem


def _fact_lines(found: Examination) -> Iterator[str]:
    """Yield one line per fact about a file, under a heading of at most 13 characters; empty facts are left out."""
    from recsim_mnar.datasets.interactions import events_in_words
    from recsim_mnar.tables.values import in_rows

    facts = found.facts
    kind = _KINDS.get(found.kind, found.kind)
    not_used = [name or "(unnamed)" for name in found.others[:_MOST_NAMES]]
    n_more = len(found.others) - _MOST_NAMES
    time = facts["time"]
    reward = facts["reward"]
    for name, text in (
        ("file", ", ".join([f"{found.source}: {kind}", *found.written])),
        ("columns", found.columns.line() or "none recognised"),
        ("new policies", ", ".join(found.targets)),
        ("events", events_in_words(facts["events"] or {})),
        ("not used", ", ".join(not_used) + (f" and {n_more:,} more" if n_more > 0 else "")),
        ("rows", _rows(facts)),
        *(("slates", line) for line in (facts["slates"] or {}).get("lines", ())),
        ("users", _users(facts)),
        ("items", _number(facts["items"])),
        ("actions", facts["actions"] and f"{facts['actions']:,} shown"),
        ("loggers", _number(facts["loggers"])),
        ("time", time and f"{time['from']} to {time['to']}"),
        ("rewards", reward and f"{reward['least']:g} to {reward['largest']:g}, mean {reward['mean']:.4g}"),
        ("propensities", _propensities(facts["propensity"])),
        ("missing", ", ".join(f"{name} {count:,}" for name, count in facts["missing"].items()) or "none"),
        ("duplicates", f"{in_rows(facts['duplicates'])} equal to an earlier one"),
    ):
        if text:
            yield f"{name:<13} {text}"


def _number(value: int | None) -> str:
    """Format a count; "" if it is unknown."""
    return "" if value is None else f"{value:,}"


def _rows(facts: Mapping[str, Any]) -> str:
    """Describe the number of rows, and their kinds if the log has organic rows."""
    text = f"{facts['rows']:,}"
    if facts["organic_rows"]:
        text += f": {facts['bandit_rows']:,} recommendations, {facts['organic_rows']:,} organic"
        if facts["other_rows"]:
            text += f", {facts['other_rows']:,} neither"
    return text


def _users(facts: Mapping[str, Any]) -> str:
    """Describe the number of users and the number of rows of each."""
    if facts["users"] is None:
        return "no column: rows are taken as independent"
    text = f"{facts['users']:,}"
    rows = facts["rows_of_a_user"]
    if rows:
        text += f", rows of one: median {rows['median']:g}, most {rows['most']:,}"
    return text


def _propensities(facts: Mapping[str, Any] | None) -> str:
    """Describe the range of propensities and the number of impossible ones; "" without propensities."""
    from recsim_mnar.kernels.checks import rounded_down

    if facts is None:
        return ""
    least = facts["least"]
    # Rounded down, as where --propensity-min is asked for: the number may be typed there.
    written = rounded_down(least) if least > 0.0 else f"{least:.4g}"
    return f"{written} to {facts['largest']:.4g}, {facts['impossible']:,} impossible"


@click.command(short_help="Check that your class follows the interface.")
@click.argument("name")
@json_option("what is found")
def check(name: str, json_output: JsonOutput) -> None:
    """Hold NAME (package.module:Class, or an estimator's function) against the contract of its kind.

    A policy or learner, a world, a protocol or an estimator. Prints a line for each rule that is broken: what was
    found, and what to do. Exits with 3 where there is one.
    """
    from recsim_mnar.testing.kinds import check_named

    json_output.check()
    checked = check_named(name)
    for breach in checked.breaches:
        json_output.answer(f"{breach.rule}: {breach.why}", *([f"    {breach.fix}"] if breach.fix else []))
    json_output.say(*checked.remarks)
    kind = f"an {checked.kind}" if checked.kind[0] in "aeiou" else f"a {checked.kind}"
    if checked.breaches:
        last = checked.breaches[-1]
        line = f"{name} is {kind} that breaks {len(checked.breaches)} of {checked.n_rules} rules"
        if last.ends:
            line += f"; without {last.rule} those after it make no sense and were not looked at"
        json_output.say(line)
    else:
        json_output.say(f"{name} keeps the {checked.n_rules} rules of {kind}")
    json_output.write(
        {
            "name": name,
            "kind": checked.kind,
            "rules": checked.n_rules,
            "findings": [{"rule": breach.rule, "why": breach.why, "fix": breach.fix} for breach in checked.breaches],
            "remarks": list(checked.remarks),
        }
    )
    if checked.breaches:
        raise SystemExit(ILL)


@click.command(short_help="Verify a log's checksums.")
@click.argument("log", type=READ_PATH)
@json_option("what is found")
def verify(log: Path, json_output: JsonOutput) -> None:
    """Hold LOG against its receipts: a folder of simulate, replay, compare or study, a log, or a part.

    A line for every file that is missing, damaged, doubled or of another run, and then status 2. Files without receipts
    are read through.
    """
    from recsim_mnar.tables.parts import verify as verify_log

    json_output.check(log)
    verified = verify_log(log)
    json_output.write(
        {
            "log": str(log),
            "files": verified.n_files,
            "files_without_receipts": verified.n_read,
            "rows": verified.n_rows,
            "faults": verified.faults,
        }
    )
    for fault in verified.faults[:-1]:
        click.echo(printable(fault), err=True)
    if verified.faults:
        raise UserError(verified.faults[-1])
    json_output.say(f"{log}: {verified.sentence()}")


@click.command(short_help="Compile everything now, not on first use.")
@json_option("what was compiled")
def warm(json_output: JsonOutput) -> None:
    """Compile the kernels ahead, so that the first run waits for none.

    Says what was compiled, how long it took and where it is kept. What is there already is not compiled again.
    """
    from recsim_mnar.installation import warm as compiled
    from recsim_mnar.kernels.jit import cache_folders

    json_output.check()
    parts = []
    with progress() as report:
        report("compile")
        for done in compiled():
            parts.append(done)
            n_kernels = f"{done.kernels} kernel{'s' * (done.kernels != 1)}" if done.kernels else "nothing to compile"
            json_output.say(f"{done.part}: {n_kernels}, {done.seconds:.1f} CPU s")
    total = sum(part.kernels for part in parts)
    seconds = sum(part.seconds for part in parts)
    folders = [str(folder) for folder in cache_folders()]
    where = "no folder can be written, so nothing is kept"
    if folders:
        where = f"kept in {', '.join(folders)}"
    json_output.say(f"{total} kernels compiled in {seconds:.0f} CPU s; {where}")
    rows = [{"part": part.part, "kernels": part.kernels, "cpu_seconds": round(part.seconds, 3)} for part in parts]
    json_output.write({"parts": rows, "kernels": total, "folders": folders})
