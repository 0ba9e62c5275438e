"""``recsim-mnar doctor``: what is wrong with an installation, or with a file, and which commands fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recsim_mnar.cli.shared import checked_file, writing

if TYPE_CHECKING:
    from recsim_mnar.installation import Check

_MARKS = {"ok": " ", "note": "-", "problem": "!"}


@click.command()
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), default=None, help="Write all that is found there too."
)
def doctor(json_file: Path | None) -> None:
    """Say what holds of this installation: versions, threads, the kernels' cache, extras, a clash over `agents`.

    Lines that begin with ! are problems, those with - worth knowing.
    """
    if json_file is not None:
        checked_file(json_file, "--json")
    _installation(json_file)


def _installation(json_file: Path | None) -> None:
    from recsim_mnar.installation import PROBLEM, check_installation
    from recsim_mnar.log.files import write_json

    checks = check_installation()
    for check in checks:
        click.echo(_line(check, max(len(each.name) for each in checks)))
    problems = [check.name for check in checks if check.level == PROBLEM]
    click.echo(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problem found")
    if json_file is not None:
        with writing(json_file, "--json"):
            write_json(json_file, {"checks": [check.to_dict() for check in checks]})


def _line(check: Check, width: int) -> str:
    advice = f": {check.advice}" if check.advice else ""
    return f"{_MARKS[check.level]} {check.name:<{width}}  {check.found}{advice}"
