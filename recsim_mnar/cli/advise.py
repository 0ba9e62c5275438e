"""``recsim-mnar advise``: from a log to which protocol to choose by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.calibrate import assumed
from recsim_mnar.cli.console import progress
from recsim_mnar.cli.json_output import JsonOutput, json_option
from recsim_mnar.cli.own_log_options import column_options, columns_of
from recsim_mnar.cli.shared import WHOLE, checked_seed, n_workers, names_of
from recsim_mnar.errors import UserError


@click.command(short_help="From a log to how to choose agents by it.")
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--agents",
    required=True,
    help="To choose among: names (`recsim-mnar agents`) or package.module:Class, with commas.",
)
@click.option("--protocols", default=None, help="To choose by; the world's list unless named.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="A new folder; under ./runs unless named.")
@click.option(
    "--world", type=click.Choice(["sessions", "ratings"]), default="sessions", show_default=True, help="What is fitted."
)
@click.option("--ensemble", type=WHOLE, default=20, show_default=True, help="Fitted worlds that are studied.")
@click.option("--users", type=WHOLE, default=None, help="Of the study's logs and arms.  [default: the log's, to 2,000]")
@click.option("--logging", default=None, help="The kind of policy that is deployed.  [default: user-popularity]")
@click.option("--exploring", default=None, help="Other logging policies that are tried, with commas; or none.")
@click.option("--no-validate", is_flag=True, help="Do not hold the world against LOG: the page then says so.")
@click.option("--items", type=WHOLE, default=None, help="How many items there are, where LOG does not show all.")
@click.option(
    "--assume", multiple=True, metavar="NAME=VALUE", help="A parameter that is set, not fitted; may be repeated."
)
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of everything.")
@click.option("--resume", is_flag=True, help="Take up an interrupted run in --out.")
@click.option("--workers", type=WHOLE, default=None, help="Processes; as many as there are processors unless named.")
@column_options("user", "item", "action", "reward", "propensity", "time")
@json_option("the advice")
def advise(log: Path, json_output: JsonOutput, **options: Any) -> None:
    """Say by which protocol to choose among agents, from LOG: doctor, calibrate, validate and a study in one.

    Worlds are fitted to LOG and held against it; in each of them every protocol chooses, and the truth is known. Writes
    the worlds, the study and a page into a folder.
    """
    from recsim_mnar.fitting.advice import advise_on
    from recsim_mnar.fitting.calibration.reading import read_to_fit
    from recsim_mnar.log.files import write_json
    from recsim_mnar.protocols.records import plain
    from recsim_mnar.report.advice_page import write_advice
    from recsim_mnar.studies import processes

    json_output.check(log)
    folder = _folder(options["out"], options["resume"])
    columns = columns_of(options)
    with progress() as report:
        report(f"read {log}")
        read = read_to_fit(log, options["world"], columns)
        question = _question(options, read.n_items)
        for line in read.lines:
            json_output.say(line)
        with processes(n_workers(options["workers"])) as executor:
            found = advise_on(
                read.log, question, folder, resume=options["resume"], doctor=_doctor(log, columns), executor=executor,
                report=report,
            )  # fmt: skip
        report("write the report")
        content = plain(found.to_dict())
        write_json(folder / "advice.json", content)
        asked = {name: value for name, value in options.items() if value is not None and name != "out"}
        write_advice(folder / "report.html", found, {"command": "advise", "log": str(log), **plain(asked)})
    for line in found.sentences():
        json_output.answer(line)
    for head, questions in found.trust().items():
        if questions:
            json_output.answer(f"{head[0].upper()}{head[1:]}: {'; '.join(questions)}")
    json_output.say(f"Report: {folder / 'report.html'}")
    json_output.write(content)


def _folder(out: Path | None, resume: bool) -> Path:
    from recsim_mnar.simulate.run_folder import new_folder

    if resume:
        if out is None:
            raise UserError("--resume: name the run's folder with --out")
        return out
    return new_folder(out, "advise", what="--out")


def _question(options: dict[str, Any], n_items: int | None) -> Any:
    from recsim_mnar.fitting.advice.advising import EXPLORING, LOGGING, Question

    exploring = options["exploring"]
    none = exploring is not None and exploring.strip().lower() == "none"
    named = EXPLORING if exploring is None else () if none else tuple(names_of(exploring, "--exploring"))
    return Question(
        agents=names_of(options["agents"], "--agents"),
        protocols=None if options["protocols"] is None else names_of(options["protocols"], "--protocols"),
        world=options["world"],
        ensemble=options["ensemble"],
        users=options["users"],
        logging=options["logging"] or LOGGING,
        exploring=named,
        seed=checked_seed(options["seed"]),
        assume=assumed(options["assume"]),
        n_items=options["items"] or n_items,
        validate=not options["no_validate"],
    )


def _doctor(log: Path, columns: dict[str, str | None]) -> list[str]:
    """What doctor finds wrong with a file; nothing of what it cannot read."""
    from recsim_mnar.own_log.doctor import Asked, examine_file

    try:
        found = examine_file(log / "log" if (log / "log").is_dir() else log, Asked(dict(columns), (), None))
    except UserError:
        return []
    return [str(problem) for problem in found.problems]
