"""``recsim-mnar estimate``: its options, the table of estimates, and the folder with the report."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    LEAST_PROPENSITY,
    NEW_PATH,
    NUMBER,
    PROPENSITIES_OF,
    READ_PATH,
    SHARE,
    STANDARD_INPUT,
    WHOLE,
    GroupedCommand,
    as_a_file,
    columns_of,
    names_of,
    option,
    own_log_options,
    reading_of,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress, warn
from recsim_mnar.errors import UserError, printable

if TYPE_CHECKING:
    from recsim_mnar.answers.sentence import Sentence
    from recsim_mnar.answers.words import Record
    from recsim_mnar.own_log.ab_plan import ABPlan
    from recsim_mnar.own_log.gate import FileAnswer

_LEAST_LIFT = 1.0
"""Per cent above which the lower end of a lift's interval is worth an A/B test."""
UNMET = 3
"""Exit status if --require is not met."""


GROUPS = {
    "What is asked": (
        "agents train-share target target-file on baseline estimators clip level precision by refute require "
        "fit-reward-model"
    ),
    "What is known": "propensity-min full-support reward-min reward-max",
    "Which column is which": (
        "reward-column propensity-column action-column user-column time-column logger-column weight-column "
        "context-columns drop-missing drop-invalid"
    ),
    "Output": "json out quiet help",
}


@click.command(cls=GroupedCommand, groups=GROUPS, short_help="Estimate what other policies would have earned.")
@click.argument("log", type=READ_PATH)
@option("--target --targets", "Columns of policies' probabilities of the logged actions, or of the items they show.")
@option(
    "--agents",
    "In place of --target: names (`recsim-mnar list agents`) or package.module:Class, with commas. They are fitted on "
    "some users of LOG, and judged by the others against today's policy.",
)
@option("--train-share", "With --agents: share of the users that they are fitted on.  [default: 0.5]", NUMBER)
@option("--seed", "With --agents: of the split and the fit.  [default: 0]", WHOLE, hidden=True)
@option(
    "--baseline", "Such a column too, or `today` for the policy that logged: adds each target's difference from it."
)
@option(
    "--target-file", "A second file with the targets: one column per policy, or one per candidate action.", READ_PATH
)
@option("--on", "The column, of both files, by which its rows are found.")
@option(
    "--metrics",
    "What users did, with user and time, for a table of assignments (GrowthBook, Eppo, Statsig).",
    READ_PATH,
    hidden=True,
)
@option(
    "--estimators --estimator",
    "Names, with commas.  [default: ips,snips; clipped_ips with --clip; dr with --fit-reward-model]",
)
@option("--clip", "Largest weight of the clipped estimators, or none.  [default: no clip]")
@option("--level", "Coverage of the intervals.", NUMBER, 0.95)
@option(
    "--precision",
    "Half the interval over the value up to which a value is trusted; beyond it the verdict is caution.  "
    "[default: 0.25]",
    SHARE,
)
@own_log_options("reward", "propensity", "action", "user", "time", "logger", "slate", "position", "weight")
@PROPENSITIES_OF
@option("--position-weights", "Of slates: mean per item shown, clicks per slate, or dcg.",
        click.Choice(["mean", "clicks", "dcg"]), "mean", hidden=True)  # fmt: skip
@option(
    "--assumption",
    "Of slates, what you know of users: a click depends on its item alone (independent), on those above (cascade), on "
    "the slate's items in any order (unordered), or on all (whole).",
    click.Choice(["independent", "cascade", "unordered", "whole"]),
    hidden=True,
)
@option("--context-columns", "Columns of the context that the logging policy used.")
@option("--fit-reward-model", "Fit a reward model for dr, cross-fitted by users.", bool)
@option("--full-support", "States that the logging policy can take all that the targets can, however rarely.", bool)
@option("--reward-min", "Least reward possible.", NUMBER)
@option("--reward-max", "Largest reward possible.", NUMBER)
@option(
    "--reward-limit-column",
    "Column of the largest reward possible of each row's action (its price, say); --reward-max bounds the others.",
    hidden=True,
)
@option("--weight-max", "No weight target / propensity can be larger.", NUMBER, hidden=True)
@option(
    "--propensity-min",
    "The smallest probability with which today's system shows any item: epsilon / number of items, where it is "
    "epsilon-greedy. 2% is 0.02.",
    LEAST_PROPENSITY,
)
@option(
    "--min-rows",
    "Fail (status 2) where the estimates would rest on fewer rows: a log that was cut, say.",
    WHOLE,
    hidden=True,
)
@option(
    "--by", "A column of segments that was fixed before the recommendation, such as country: adds each one's estimates."
)
@option(
    "--refute",
    "Run further tests that can prove the log wrong, on all rows at once; their findings join the verdict.",
    bool,
)
@option(
    "--require",
    "Exit with 3 where the verdict on a leading estimate, of a segment too, is below it; better: where a difference "
    "from --baseline is not trusted, or its interval is not above 0 (docs/gate.md).",
    click.Choice(["trust", "caution", "better"]),
)
@json_option("the estimates")
@option("--out", "A new folder for report.html and results.json.", NEW_PATH)
@option(
    "--overwrite",
    "Replace what an earlier `estimate --out` wrote into that folder, and nothing else.",
    bool,
    hidden=True,
)
def estimate(
    log: Path,
    require: str | None,
    json_output: JsonOutput,
    out: Path | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Estimate what target policies would have earned on LOG: Parquet or CSV, one file or a folder of parts.

    With - for LOG it reads CSV from standard input.

    A log of slates has one row per position; each estimator says what it assumes of users (docs/your-own-log.md).

    In a file of your own the usual names of columns are recognised (clicks, user_id, pscore), and what was taken is
    said last. See docs/your-own-log.md. Logs of Vowpal Wabbit (DSJSON), GrowthBook, Eppo, Statsig and the
    Open Bandit Dataset are recognised and need no --target: see docs/questions/tool-logs.md.
    """
    json_output.check(log, options["target_file"], options["metrics"])
    _parse_clip(options["clip"])  # a mistake is found before the log is read
    if overwrite and out is None:
        raise UserError("--overwrite needs --out: the folder whose results are replaced")
    with as_a_file(log) as file:
        source = file / "log" if (file / "log").is_dir() else file
        name = log if file == log else STANDARD_INPUT
        with _report_folder(out, log, overwrite=overwrite):
            answer = _answer_file(source, name, options, require, keep_rows=out is not None)
            if out is not None:
                _write_page(out, source if file == log else name, source, options, answer)
        plan_command = _ab_command(log, options, answer)
        lead = _lead_of_agents(source, options, answer.sentence)
        content = None if json_output.path is None else answer.to_json()
    # Whoever reads the printed answer may close the pipe at any moment: all files are written before.
    if not json_output.printed:
        json_output.write(content)
    _print_answer(answer, plan_command, lead, json_output, every=options["estimators"] is not None)
    if out is not None:
        json_output.say(f"Report: {out / 'report.html'}")
    if answer.met and require != "better" and any("baseline" in record for record in answer.records):
        json_output.sentence(f"--require {require} is met. Trusted does not mean better: --require better", remark=True)
    if json_output.printed:
        json_output.write(content)
    for line in answer.warnings:
        warn(line)
    if answer.reasons:
        click.echo("\n".join(printable(line) for line in answer.reasons), err=True)
        raise SystemExit(UNMET)


def _answer_file(
    source: Path, name: Path | str, options: Mapping[str, Any], require: str | None, *, keep_rows: bool
) -> FileAnswer:
    """Estimate from a log, and use its name for people in errors and notes.

    Args:
        source: path of the file to read.
        name: name of the log for people: its path as typed, or "standard input".
        options: options of the command.
        require: the requirement; None without one.
        keep_rows: True for an answer with all rows, as a report needs.
    """
    try:
        answer = _estimate_log(source, options, require, keep_rows=keep_rows)
    except UserError as error:
        if not str(error).startswith("column "):
            raise
        raise UserError(f"{name}: {error}", code=error.code) from error
    if name == STANDARD_INPUT:
        return answer.called({str(source): STANDARD_INPUT})
    return answer


def _print_answer(found: FileAnswer, plan_command: str, lead: str, json_output: JsonOutput, *, every: bool) -> None:
    """Print an answer: its sentence, the command for an A/B test, tables, findings, notes, and the leading agent.

    Args:
        found: the answer.
        plan_command: command that plans an A/B test; "" for none.
        lead: sentence on the agent that is ahead; "" for none.
        json_output: destination of the JSON, which may forbid to print.
        every: True to show all estimators, not only the leading one.
    """
    answer = found.found
    sentence = found.sentence
    json_output.sentence(sentence.text)
    if plan_command:
        json_output.sentence(f"  {plan_command}")
    records = [record for record in answer.records if record["leads"] or every]
    _print_records(records, sentence.text, json_output, all_records=answer.records)
    level = records[0]["level"]
    if sentence.level > level and f"{100 * sentence.level:.4g} %" in sentence.text:
        json_output.sentence(
            f"The first sentence is at {100 * sentence.level:.4g} %, the table at {100 * level:.4g} %: the best of "
            "several estimates is likely to be a lucky one.",
            remark=True,
        )
    _print_segments(answer.segments, json_output)
    for refusal in answer.refused:
        json_output.sentence(f"No segments. {refusal}.")
    if sentence.rests:
        json_output.sentence(sentence.rests)
    json_output.say(*answer.lines)
    if lead:
        json_output.sentence(lead)


def _ab_command(log: Path, options: Mapping[str, Any], found: FileAnswer) -> str:
    """Return the command that plans an A/B test for the lift of an answer and its lower end; "" if none is useful."""
    sentence = found.sentence
    lifts = _lifts(sentence)
    has_users = found.records[0]["diagnostics"].get("clustered") and not found.found.weighed
    if found.of_slates or options["agents"] or not has_users or not lifts or sentence.baseline is None:
        return ""
    words = ["recsim-mnar", "plan", "ab", str(log), "--lift", ",".join(lifts)]
    columns = columns_of(options)
    for role in ("reward", "propensity", "action", "user", "time", "weight"):
        if columns[role] is not None:
            words += [f"--{role}-column", str(columns[role])]
    for name in ("drop_missing", "deduplicate", "separate_events"):
        if options[name]:
            words.append(f"--{name.replace('_', '-')}")
    if options["drop_invalid"] is not None:
        words += ["--drop-invalid", f"{options['drop_invalid']:g}"]
    return shlex.join(words)


def _lifts(sentence: Sentence) -> list[str]:
    """Return the lift of a better policy, and perhaps the lower end of its interval, as texts for ``--lift``.

    The list is empty for other answers, and if the baseline is random traffic.
    """
    if sentence.answer != "better" or sentence.change_percent is None or sentence.baseline_kind == "random":
        return []
    lifts = [sentence.change_percent]
    if sentence.low_percent is not None and sentence.low_percent > _LEAST_LIFT:
        lifts.append(sentence.low_percent)
    return [f"{lift:.3g}%" for lift in lifts]


def _plan_tests(source: Path, options: Mapping[str, Any], sentence: Sentence) -> list[ABPlan]:
    """Plan A/B tests for an answer's lift and its lower end; return [] if there is no lift or no plan is possible."""
    from recsim_mnar.own_log.ab_pilot import Pilot
    from recsim_mnar.own_log.ab_plan import plan_ab

    lifts = _lifts(sentence)
    if not lifts:
        return []
    try:
        pilot = Pilot.of(source, reading_of(options))
        return [plan_ab(pilot, lift) for lift in lifts]
    except UserError:
        return []


@contextlib.contextmanager
def _report_folder(out: Path | None, log: Path, *, overwrite: bool) -> Iterator[None]:
    """Create and lock the report's folder, if there is one, before the work that fills it.

    Args:
        out: the folder; None for no report.
        log: path of the log.
        overwrite: True to replace the results of an earlier run.

    Raises:
        UserError: the folder is not empty (with ``overwrite``: has files that this command did not write), cannot be
            created, or is in the log.
    """
    from recsim_mnar.runs.folder import RunFolder, describe_foreign_file

    if out is None:
        yield
        return
    if log.is_dir() and log.resolve() in (out.resolve(), *out.resolve().parents):
        raise UserError(f"--out {out} would be in the log: name another folder")
    foreign = describe_foreign_file(out, ("report.html", "results.json"))
    is_ours = foreign == ""
    if foreign and overwrite:
        raise UserError(f"--out {out}: {foreign}: move it away, or name another folder")
    if is_ours and not overwrite:
        raise UserError(
            f"--out {out} exists and is not empty: name another folder, or replace the results with --overwrite"
        )
    with RunFolder.fill(out, what="--out", keep_others=is_ours):
        yield


def _write_page(out: Path, name: Path | str, source: Path, options: Mapping[str, Any], found: FileAnswer) -> None:
    """Write ``report.html`` and ``results.json``.

    Args:
        out: an existing folder.
        name: name of the log for people.
        source: path of the file that was read.
        options: options of the command, which the page shows at its foot.
        found: the answer, with all rows.
    """
    from recsim_mnar.own_log.bandit_file import WeighedLog
    from recsim_mnar.report.estimate_page import Estimates, write_estimates

    answer = found.found
    assert answer.log is not None
    estimates = Estimates(
        source=str(name),
        records=answer.records,
        lines=[*answer.lines, *map(str, answer.refused)],
        log=WeighedLog.of(answer.log),
        clip=_parse_clip(options["clip"]),
        segments=answer.segments,
        stamp=found.stamp,
        plans=[] if found.of_slates else _plan_tests(source, options, found.sentence),
    )
    made_by = {name: str(value) if isinstance(value, Path) else value for name, value in options.items() if value}
    write_estimates(out, estimates, {"command": "estimate", "log": str(name), **made_by})


def _print_records(
    records: Sequence[Record], sentence: str, json_output: JsonOutput, *, all_records: Sequence[Record]
) -> None:
    """Print the table of estimates, then each finding that the sentence omits.

    Args:
        records: records to show.
        sentence: the printed summary.
        json_output: destination of the JSON, which may forbid to print.
        all_records: records of all estimators; for slates the table shows these.
    """
    from recsim_mnar.answers.words import is_of_slates, partly_covered, reasons, table_lines
    from recsim_mnar.estimators.rankings import about_users
    from recsim_mnar.tables.values import in_rows

    of_slates = is_of_slates(all_records[0])
    json_output.answer(f"{in_rows(records[0]['n'])}:", *table_lines(all_records if of_slates else records))
    for line in partly_covered(records, sentence):
        json_output.sentence(line)
    if of_slates:  # findings about users are printed with the estimators' assumptions
        records = [
            {**record, "findings": [finding for finding in record["findings"] if not about_users(finding["code"])]}
            for record in records
        ]
    for reason in reasons(records):
        if reason.message not in sentence:
            json_output.sentence(reason.line)


def _print_segments(records: Sequence[Record], json_output: JsonOutput) -> None:
    """Print the table of segments, with values and differences, a summary, and each finding once."""
    from recsim_mnar.answers.words import segment_lines, segment_reasons, segment_title, table_lines

    if records:
        json_output.answer(f"{segment_title(records)}:", *table_lines(records))
        for line in (*segment_lines(records), *segment_reasons(records)):
            json_output.sentence(line)


_FACTS_ABOUT_LOG = ("full_support", "reward_min", "reward_max", "weight_max", "propensity_min", "precision")
"""Options that state facts about the log."""
_QUESTION_OPTIONS = "target_file on fit_reward_model baseline level by refute position_weights assumption"
"""Options that a ``Question`` has under the same names."""


def _estimate_log(log: Path, options: Mapping[str, Any], require: str | None, *, keep_rows: bool) -> FileAnswer:
    """Estimate from a log according to the options.

    Args:
        log: path of the file to read.
        options: options of the command.
        require: the requirement; None without one.
        keep_rows: True for an answer with all rows.
    """
    from recsim_mnar.own_log.estimating import Question
    from recsim_mnar.own_log.gate import answer_question

    if options["agents"] is not None:
        return _estimate_agents(log, options, require, keep_rows=keep_rows)
    if (options["train_share"], options["seed"]) != (None, None):
        raise UserError("--train-share and --seed have no effect without --agents: name them, or leave both away")
    question = Question(
        [] if options["target"] is None else names_of(options["target"], "--target"),
        estimators=_parse_estimators(options["estimators"], options["clip"], options["fit_reward_model"]),
        clip=_parse_clip(options["clip"]),
        reward_limit=options["reward_limit_column"],
        keep_rows=keep_rows,
        # A flag that is absent (False) states nothing.
        stated={
            name: options[name] for name in _FACTS_ABOUT_LOG if options[name] is not None and options[name] is not False
        },
        **{name: options[name] for name in _QUESTION_OPTIONS.split()},
    )
    more_arguments = {name: options[name] for name in ("metrics", "min_rows")}
    reading = reading_of(options, options["context_columns"])
    return answer_question(log, question, reading, require=require, **more_arguments)


_REFUSED_WITH_AGENTS = (
    "target target_file on metrics reward_limit_column context_columns "
    "logger_column weight_column deduplicate separate_events drop_invalid fold_case"
)
"""Options that `estimate --agents` refuses: agents do not need them, or replaying does not support them."""


def _estimate_agents(log: Path, options: Mapping[str, Any], require: str | None, *, keep_rows: bool) -> FileAnswer:
    """Fit agents on some users of a log, and estimate their values from the other users.

    Args:
        log: path of the log.
        options: options of the command.
        require: the requirement; None without one.
        keep_rows: True for an answer with all rows.
    """
    from recsim_mnar.kernels.checks import number_in
    from recsim_mnar.own_log.replaying import SHARE, TODAY, of_log, replayed

    for name in _REFUSED_WITH_AGENTS.split():
        if options[name]:
            raise UserError(f"--{name.replace('_', '-')} and --agents: type recsim-mnar replay first, then estimate")
    if options["baseline"] not in (None, TODAY):
        raise UserError(f"--baseline {options['baseline']}: agents are compared with today's policy. Leave it away")
    names = names_of(options["agents"], "--agents")
    reading = reading_of(options)
    share = SHARE if options["train_share"] is None else options["train_share"]
    number_in(share, "--train-share", 0.0, 1.0, ends="()")
    # The replayed file has this package's columns, so statements about the user's columns do not apply to it.
    replayed_options = {"target": ",".join(names), "baseline": TODAY, "drop_missing": False, "propensities_of": None}
    replayed_options |= {name: None for name in options if name.endswith("_column")}
    replayed_options |= dict.fromkeys(("agents", "train_share", "seed"))
    with progress() as report, replayed(log, names, reading, share, options["seed"] or 0, report) as (file, lines):
        answer = _estimate_log(file, {**options, **replayed_options}, require, keep_rows=keep_rows)
        return of_log(answer, file, log, lines)


def _lead_of_agents(log: Path, options: Mapping[str, Any], sentence: Sentence) -> str:
    """Return a sentence on the agent ahead of the logging policy, or on a necessary A/B test; "" without agents."""
    if options["agents"] is None:
        return ""
    from recsim_mnar.own_log.replaying import ab_test_of, ahead_of_today

    return ahead_of_today(sentence, ab_test_of(log, sentence, reading_of(options)))


def _parse_estimators(text: str | None, clip: str | None, fit_reward_model: bool) -> list[str]:
    """Parse ``--estimators``.

    Args:
        text: names with commas; None for the default estimators.
        clip: text of ``--clip``; None if it is not stated.
        fit_reward_model: True if a reward model is fitted, which adds an estimator to the default ones.

    Raises:
        UserError: a clipped estimator without ``--clip``.
    """
    from recsim_mnar.estimators.scores import ESTIMATORS
    from recsim_mnar.own_log.gate import default_estimators

    if text is None:
        return default_estimators(_parse_clip(clip), fit_reward_model)
    names = names_of(text, "--estimators")
    for name in names:
        if clip is None and name in ESTIMATORS and ESTIMATORS[name].clips:
            raise UserError(
                f"--estimators {name}: no clip is given. Add --clip C (Jeunen et al. 2019 take 15), or none"
            )
    return names


def _parse_clip(text: str | None) -> float | None:
    """Parse ``--clip``; None for no clipping."""
    if text is None or text.strip().lower() == "none":
        return None
    try:
        clip = float(text)
        if clip > 0:
            return clip
    except ValueError:
        pass
    raise UserError(f"--clip must be a positive number, or none for no clipping, got {text!r}") from None
