"""``recsim-mnar study``, and what ``compare --catalogues`` shares with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.console import progress
from recsim_mnar.cli.json_output import JsonOutput, json_option
from recsim_mnar.cli.shared import NEW_PATH, READ_PATH, WHOLE, clock
from recsim_mnar.cli.workers import RUN, RunRecord, executor, refuse_both, worker_options

if TYPE_CHECKING:
    from recsim_mnar.protocols.setup import Setup


@click.command(short_help="Comparisons over catalogues, from a TOML file.")
@click.argument("settings", type=READ_PATH)
@click.option("--catalogues", type=WHOLE, default=None, help="Number of catalogues, instead of the file's.")
@click.option("--resume", is_flag=True, help="Take up the study in --out, which may get more catalogues.")
@worker_options
@click.option("--out", type=NEW_PATH, required=True, help="A new folder.")
@json_option("the summary")
def study(settings: Path, catalogues: int | None, resume: bool, out: Path, json_output: JsonOutput, **who: Any) -> None:
    """Run the study that SETTINGS, a TOML file, describes: comparisons over catalogues."""
    from recsim_mnar.studies.settings import read_settings

    json_output.check(settings)
    refuse_both(who["workers"], who["scheduler"])
    given = read_settings(settings)
    if catalogues is not None:
        seeds = given["seeds"]
        given["seeds"] = catalogues if isinstance(seeds, int) else [seeds[0] + c for c in range(catalogues)]
    _run("study", given, out, resume, json_output, **who)


def run_to_folder(
    setups: Sequence[Setup],
    *,
    n_catalogues: int,
    seed: int,
    first_seed: int | None,
    out: Path | None,
    resume: bool,
    json_output: JsonOutput,
    **who: Any,
) -> None:
    """Run a study of these setups, write its folder and print what it says.

    Args:
        setups: what is compared.
        n_catalogues: of each.
        seed: of all.
        first_seed: of the users of the first catalogue, where they are not derived from ``seed``.
        out: the folder.
        resume: take up what is there.
        json_output: where the summary goes, too.
        **who: ``workers`` and ``scheduler``, see :func:`recsim_mnar.cli.workers.worker_options`.
    """
    from recsim_mnar.errors import UserError
    from recsim_mnar.runs.folder import new_folder
    from recsim_mnar.studies.settings import seeds_from

    if resume and out is None:
        raise UserError("--resume: name the study's folder with --out")
    given = {"worlds": list(setups), "seeds": seeds_from(n_catalogues, first_seed), "seed": seed}
    _run("compare", given, new_folder(out, "study"), resume, json_output, **who)


def _run(
    command: str,
    arguments: dict[str, Any],
    folder: Path,
    resume: bool,
    json_output: JsonOutput,
    *,
    workers: int | None,
    scheduler: str | None,
) -> None:
    from recsim_mnar.protocols.records import plain
    from recsim_mnar.protocols.setup import Setup
    from recsim_mnar.report.study_page import study_table, write_study
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.studies import run_study

    elapsed, record = clock(), RunRecord(command)
    named = [plain(asdict(each) if isinstance(each, Setup) else each) for each in arguments["worlds"]]
    # Each catalogue is compared by one worker, which meets agents by their names.
    of_all = plain([arguments.get(key) for key in ("agents", "protocols", "estimators", "options")])
    with RunFolder.fill(folder, resume=resume, what="--out"), progress() as report:
        with executor(
            *(workers, scheduler, record), folder=folder, named=[*named, *of_all], read_by_name=True, in_processes=True
        ) as workers_found:
            found = run_study(**arguments, folder=folder, resume=resume, executor=workers_found, report=report)
        report("write the report")
        write_study(folder, found, elapsed())
        record.write(folder / RUN)
    json_output.show(study_table(found))
    for sentence in found.sentences():
        json_output.sentence(sentence)
    json_output.say(f"Report: {folder / 'report.html'}")
    json_output.write(
        {
            "settings": found.settings,
            "summary": found.summary(),
            "judgements": found.judgements(),
            "sentences": found.sentences(),
            "folder": str(folder),
        }
    )
