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
    WHOLE,
    column_options,
    columns_of,
    names_of,
    option,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.errors import UserError, printable

if TYPE_CHECKING:
    from recsim_mnar.installation import Check
    from recsim_mnar.own_log.doctor import Examination

ILL = 3
"""Exit status where there is a problem, or a rule is broken."""
_MARKS = {"ok": " ", "note": "-", "problem": "!"}
_MOST_NAMES = 12
_KINDS = {"bandit log": "what was shown, and what came of it"}
"""Kinds of files in plain words."""


@click.command(short_help="Describe a file, list its problems, name the next command.")
@click.argument("file", type=READ_PATH, required=False)
@option("--target --targets", "Columns of target policies' probabilities of the logged action.")
@option("--target-file", "A second file with the targets, as estimate takes it.", READ_PATH)
@option("--on", "The column, of both files, by which its rows are found.")
@option("--actions", "How many actions (items) there are in all.", WHOLE)
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
        lines, written, ill = _file(file, options)
    else:
        named_options = [name for name, value in options.items() if value is not None]
        if named_options:
            raise UserError(f"--{named_options[0].replace('_', '-')} needs FILE: name it too")
        lines, written, ill = _installation()
    json_output.answer(*lines)
    json_output.write(written)
    if ill:
        raise SystemExit(ILL)


def _installation() -> tuple[list[str], Mapping[str, object], bool]:
    from recsim_mnar.installation import PROBLEM, check_installation

    checks = check_installation()
    lines = [_check_line(check, max(len(entry.name) for entry in checks)) for check in checks]
    problems = [check.name for check in checks if check.level == PROBLEM]
    lines.append(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problem found")
    return lines, {"checks": [check.to_dict() for check in checks]}, bool(problems)


def _check_line(check: Check, width: int) -> str:
    if check.advice:
        advice = f": {check.advice}"
    else:
        advice = ""
    return f"{_MARKS[check.level]} {check.name:<{width}}  {check.found}{advice}"


def _file(file: Path, options: Mapping[str, Any]) -> tuple[list[str], Mapping[str, object], bool]:
    from recsim_mnar.datasets.tool_logs import opened
    from recsim_mnar.own_log.doctor import Asked, examine_file, examine_tool_log
    from recsim_mnar.own_log.doctor_columns import PROBLEM
    from recsim_mnar.own_log.doctor_commands import command_for_tool_log, commands_for, first_of, guessed_in_words

    if options["actions"] is not None and options["actions"] < 1:
        raise UserError(f"--actions must be at least 1, got {options['actions']}")
    targets = () if options["target"] is None else names_of(options["target"], "--target")
    columns = columns_of(options)
    arguments = Asked(columns, tuple(targets), options["actions"], options["target_file"], options["on"],
                  propensities_of=options["propensities_of"], decimal=options["decimal"])  # fmt: skip
    with opened(file, columns=columns, targets=targets) as tool:
        if tool is None:
            examination = examine_file(file, arguments)
        else:
            examination = examine_tool_log(tool, arguments)
    if tool is None:
        fits = commands_for(examination)
    else:
        fits = command_for_tool_log(examination)
    seen = examination
    shown_values = fits
    if examination.guesses and tool is None:
        guessed = replace(arguments, columns={**columns, **examination.guesses}, guessed=tuple(examination.guesses))
        seen = examine_file(file, guessed)
        shown_values = commands_for(seen)
    first = first_of(shown_values)
    commands = [fit.to_dict() for fit in fits]
    typed = None
    to_type = [f"No line to type yet: {shown_values[0].says}."]
    if first is not None:
        guesses = guessed_in_words(seen, first.line)
        typed = {"line": first.line, "guessed": guesses, "columns": examination.guesses}
        to_type = ["Type this:", f"  {first.line}", *(f"      {line}" for line in (guesses, first.says) if line)]
        for fit, command in zip(fits, commands, strict=True):
            if seen is not examination and fit.command == first.command and not fit.fits:
                command["line"] = first.line
    head, *facts = _fact_lines(seen)
    problems = [*(entry for entry in examination.problems if entry.code == "unclear"),
                *(entry for entry in seen.problems if entry.code != "unclear")]  # fmt: skip
    other_fits = [fit for fit in shown_values if fit is not first]
    if tool is None:
        lines = []
    else:
        lines = [*tool.lines, ""]
    lines += [head, "", *to_type, "", *facts, ""]
    lines += [f"{_MARKS[problem.level]} {problem}" for problem in problems] or ["nothing wrong was found"]
    lines += ["", "more to type:" if any(fit.fits for fit in other_fits) else "no other command fits yet"]
    for fit in other_fits:
        if fit.fits:
            lines += [f"  {fit.line}", f"      {fit.says}"]
        else:
            lines += [f"  not {fit.command}: {fit.says}"]
    ill = any(problem.level == PROBLEM for problem in examination.problems)
    return lines, {**examination.to_dict(), "type_this": typed, "commands": commands}, ill


def _fact_lines(found: Examination) -> Iterator[str]:
    """Print the facts, one per line."""
    from recsim_mnar.datasets.interactions import events_in_words
    from recsim_mnar.tables.values import in_rows

    facts = found.facts
    for name, text in (
        ("file", ", ".join([f"{found.source}: {_KINDS.get(found.kind, found.kind)}", *found.written])),
        ("columns", found.columns.line() or "none recognised"),
        ("new policies", ", ".join(found.targets)),
        *(("their file", line) for line in (facts["target_file"] or {}).get("lines", ())),
        ("events", events_in_words(facts["events"] or {})),
        ("not used", _names(found.others)),
        ("receipts", facts["receipts"] or ""),
        ("rows", _rows(facts)),
        *(("slates", line) for line in (facts["slates"] or {}).get("lines", ())),
        ("users", _users(facts)),
        ("items", _number(facts["items"])),
        ("actions", _actions(facts)),
        ("loggers", _number(facts["loggers"])),
        ("time", "" if facts["time"] is None else f"{facts['time']['from']} to {facts['time']['to']}"),
        ("rewards", _range(facts["reward"])),
        ("propensities", _propensities(facts["propensity"])),
        ("missing", ", ".join(f"{name} {count:,}" for name, count in facts["missing"].items()) or "none"),
        ("duplicates", f"{in_rows(facts['duplicates'])} equal to an earlier one"),
        (
            "repeats",
            "" if facts["repeats"] is None else f"{in_rows(facts['repeats'])} whose user has met the same before",
        ),
        *(("mean", mean_weight["line"]) for mean_weight in facts["mean_weight"]),
    ):
        if text:
            yield f"{name:<13} {text}"


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(name or "(unnamed)" for name in names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _number(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value:,}"


def _rows(facts: Mapping[str, Any]) -> str:
    slates = facts["slates"]
    if slates and not slates["columns"] and slates["slates"]:
        return f"{slates['slates']:,}, one per slate: {facts['rows']:,} items"
    if not facts["organic_rows"]:
        return f"{facts['rows']:,}"
    if facts["other_rows"]:
        neither = f", {facts['other_rows']:,} neither"
    else:
        neither = ""
    return f"{facts['rows']:,}: {facts['bandit_rows']:,} recommendations, {facts['organic_rows']:,} organic{neither}"


def _users(facts: Mapping[str, Any]) -> str:
    if facts["users"] is None:
        return "no column: rows are taken as independent"
    rows = facts["rows_of_a_user"]
    return f"{facts['users']:,}" + (f", rows of one: median {rows['median']:g}, most {rows['most']:,}" if rows else "")


def _actions(facts: Mapping[str, Any]) -> str:
    if facts["actions"] is None:
        return ""
    if facts["share_shown"] is None:
        return f"{facts['actions']:,} shown; of how many is not known (--actions)"
    return f"{facts['actions']:,} of {facts['actions_known']:,} ever shown, {100 * facts['share_shown']:.3g} %"


def _range(reward: dict[str, float] | None) -> str:
    if reward is None:
        return ""
    return f"{reward['least']:g} to {reward['largest']:g}, mean {reward['mean']:.4g}"


def _propensities(facts: Mapping[str, Any] | None) -> str:
    if facts is None or facts["least"] is None:
        return ""
    return f"{facts['least']:.4g} to {facts['largest']:.4g}, {facts['impossible']:,} impossible"


@click.command(short_help="Check that your class follows the interface.")
@click.argument("name")
@json_option("what is found")
def check(name: str, json_output: JsonOutput) -> None:
    """Hold NAME (package.module:Class, or an estimator's function) against the contract of its kind.

    A policy or learner, a world, a protocol or an estimator; or, by its Gymnasium id (package.module:Name-v0), an
    environment with its vector entry point. Prints a line for each rule that is broken: what was found, and what to
    do. Exits with 3 where there is one.
    """
    from recsim_mnar.testing.kinds import check_named

    json_output.check()
    checked = check_named(name)
    for breach in checked.breaches:
        json_output.answer(f"{breach.rule}: {breach.why}", *([f"    {breach.fix}"] if breach.fix else []))
    json_output.say(*checked.remarks)
    if checked.kind[0] in "aeiou":
        article = "an"
    else:
        article = "a"
    if checked.breaches:
        n = len(checked.breaches)
        last = checked.breaches[-1]
        if last.ends:
            unseen = f"; without {last.rule} those after it make no sense and were not looked at"
        else:
            unseen = ""
        json_output.say(f"{name} is {article} {checked.kind} that breaks {n} of {checked.n_rules} rules{unseen}")
    else:
        json_output.say(f"{name} keeps the {checked.n_rules} rules of {article} {checked.kind}")
    json_output.write(
        {
            "name": name,
            "kind": checked.kind,
            "rules": checked.n_rules,
            "findings": [{"rule": entry.rule, "why": entry.why, "fix": entry.fix} for entry in checked.breaches],
            "remarks": list(checked.remarks),
        }
    )
    if checked.breaches:
        raise SystemExit(ILL)


@click.command(short_help="Verify a log's checksums.")
@click.argument("log", type=READ_PATH)
@json_option("what is found")
def verify(log: Path, json_output: JsonOutput) -> None:
    """Hold LOG against its receipts: a folder of simulate, compare or study, a log, a part, a file of replay.

    A line for every file that is missing, damaged, doubled or of another run, and then status 2. Files without receipts
    are read through.
    """
    from recsim_mnar.tables.parts import verify as hold

    json_output.check(log)
    verified = hold(log)
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
    total = 0
    seconds = 0.0
    done_parts = []
    with progress() as report:
        report("compile")
        for done in compiled():
            total = total + done.kernels
            seconds = seconds + done.seconds
            if done.kernels != 1:
                what = f"{done.kernels} kernels"
            else:
                what = "1 kernel"
            json_output.say(f"{done.part}: {what if done.kernels else 'nothing to compile'}, {done.seconds:.1f} CPU s")
            done_parts.append({"part": done.part, "kernels": done.kernels, "cpu_seconds": round(done.seconds, 3)})
    folders = cache_folders()
    if folders:
        where = f"kept in {', '.join(folders)}"
    else:
        where = "no folder can be written, so nothing is kept"
    json_output.say(f"{total} kernels compiled in {seconds:.0f} CPU s; {where}")
    json_output.write({"parts": done_parts, "kernels": total, "folders": [str(folder) for folder in folders]})
