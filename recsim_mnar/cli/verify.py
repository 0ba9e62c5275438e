"""``recsim-mnar verify``."""

from __future__ import annotations

from pathlib import Path

import click

from recsim_mnar.errors import UserError


@click.command(short_help="Hold a log against its receipts.")
@click.argument("log", type=click.Path(path_type=Path))
def verify(log: Path) -> None:
    """Hold LOG against its receipts: a folder of simulate, compare or study, a log, a part, a file of replay.

    A line for every file that is missing, damaged, doubled or of another run, and then status 2. Files without receipts
    are read through.
    """
    from recsim_mnar.log.verifying import verify as hold

    found = hold(log)
    for fault in found.faults[:-1]:
        click.echo(fault, err=True)
    if found.faults:
        raise UserError(found.faults[-1])
    click.echo(f"{log}: {found.sentence()}")
