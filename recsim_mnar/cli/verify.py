"""``recsim-mnar verify``."""

from __future__ import annotations

from pathlib import Path

import click

from recsim_mnar.cli.options import READ_PATH
from recsim_mnar.cli.output import JsonOutput, json_option
from recsim_mnar.errors import UserError, printable


@click.command(short_help="Hold a log against its receipts.")
@click.argument("log", type=READ_PATH)
@json_option("what is found")
def verify(log: Path, json_output: JsonOutput) -> None:
    """Hold LOG against its receipts: a folder of simulate, compare or study, a log, a part, a file of replay.

    A line for every file that is missing, damaged, doubled or of another run, and then status 2. Files without receipts
    are read through.
    """
    from recsim_mnar.tables.verifying import verify as hold

    json_output.check(log)
    found = hold(log)
    json_output.write(
        {
            "log": str(log),
            "files": found.n_files,
            "files_without_receipts": found.n_read,
            "rows": found.n_rows,
            "faults": found.faults,
        }
    )
    for fault in found.faults[:-1]:
        click.echo(printable(fault), err=True)
    if found.faults:
        raise UserError(found.faults[-1])
    json_output.say(f"{log}: {found.sentence()}")
