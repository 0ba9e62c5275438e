"""``recsim-mnar study``, and what ``compare --catalogues`` shares with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.console import console, progress
from recsim_mnar.cli.shared import clock, n_workers

if TYPE_CHECKING:
    from recsim_mnar.protocols.setup import Setup


@click.command(short_help="Comparisons over catalogues, from a TOML file.")
@click.argument("settings", type=click.Path(path_type=Path))
@click.option("--catalogues", type=int, default=None, help="Instead of the file's number.")
@click.option("--resume", is_flag=True, help="Take up the study in --out, which may get more catalogues.")
@click.option("--workers", type=int, default=None, help="Processes; as many as there are processors unless named.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new folder.")
def study(settings: Path, catalogues: int | None, resume: bool, workers: int | None, out: Path) -> None:
    """Run the study that SETTINGS, a TOML file, describes: comparisons over catalogues."""
    from recsim_mnar.studies.settings import read_settings

    given = read_settings(settings)
    if catalogues is not None:
        seeds = given["seeds"]
        given["seeds"] = catalogues if isinstance(seeds, int) else [seeds[0] + c for c in range(catalogues)]
    _run(given, out, resume, n_workers(workers))


def run_to_folder(
    setups: Sequence[Setup],
    *,
    n_catalogues: int,
    seed: int,
    first_seed: int | None,
    out: Path | None,
    resume: bool,
    workers: int,
) -> None:
    """Run a study of these setups, write its folder and print what it says."""
    from recsim_mnar.errors import UserError
    from recsim_mnar.simulate.run_folder import new_folder
    from recsim_mnar.studies.settings import seeds_from

    if resume and out is None:
        raise UserError("--resume: name the study's folder with --out")
    folder = Path(out) if out is not None and resume else new_folder(out, "study", what="--out")
    _run({"worlds": list(setups), "seeds": seeds_from(n_catalogues, first_seed), "seed": seed}, folder, resume, workers)


def _run(arguments: dict[str, Any], folder: Path, resume: bool, workers: int) -> None:
    from recsim_mnar.report.study_page import study_table, write_study
    from recsim_mnar.studies import processes, run_study
    from recsim_mnar.studies.running import study_folder

    elapsed = clock()
    with study_folder(folder, resume), progress() as report, processes(workers) as executor:
        found = run_study(**arguments, folder=folder, resume=resume, executor=executor, report=report)
        report("write the report")
        write_study(folder, found, elapsed())
    screen = console()
    screen.print(study_table(found))
    for sentence in found.sentences():
        screen.print(sentence, soft_wrap=True)
    screen.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
