"""What ``estimate`` shows: the table of its estimates, and with ``--out`` the folder with their page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from recsim_mnar.own_log.estimating import Answer

_COLOURS = {"trust": "green", "caution": "yellow", "do_not_use": "red"}


def records_table(records: Sequence[dict[str, Any]]) -> Table:
    """The records as a table for a person, one line per record."""
    from rich.markup import escape
    from rich.table import Table

    from recsim_mnar.estimators.off_policy.scores import known_to_differ
    from recsim_mnar.estimators.off_policy.written import Amounts, cells, label

    several = len({record["estimator"] for record in records}) > 1
    title = "Off-policy estimates" + ("" if several else f" by {printable(records[0]['estimator'])}")
    title += f", {records[0]['n']:,} rows"
    table = Table(title=escape(title), title_justify="left")
    for name in ("policy", *(["estimator"] if several else [])):
        table.add_column(name, no_wrap=True)
    for name in ("value", f"{records[0]['level'] * 100:g} % interval", "effective rows"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    amounts = Amounts.of(records)
    for record in records:
        table.add_row(
            escape(printable(label(record))),
            *([escape(printable(record["estimator"]))] if several else []),
            *cells(record, amounts),
            f"{record['ess']:,.0f}",
            record["verdict_level"].replace("_", " "),
            style=_COLOURS[record["verdict_level"]],
        )
    without = [r["estimator"] for r in records if r["estimator"] not in known_to_differ()]
    if without and any("baseline" in record for record in records):
        names = escape(printable(", ".join(dict.fromkeys(without))))
        table.caption = f"No difference from the baseline with {names}: it is known for {', '.join(known_to_differ())}."
        table.caption_justify = "left"
    return table


@contextlib.contextmanager
def claimed_outside(out: Path, log: Path) -> Iterator[None]:
    """Make the folder of a page before the work that fills it.

    Raises:
        UserError: it exists and holds something, cannot be made, or lies in the log.
    """
    from recsim_mnar.runs.folder import RunFolder

    if log.is_dir() and (out.resolve() == log.resolve() or log.resolve() in out.resolve().parents):
        raise UserError(f"--out {out} would lie in the log: name another folder")
    with RunFolder.fill(out, what="--out"):
        yield


def write_estimate_page(
    out: Path,
    log: Path,
    asked: dict[str, Any],
    clip: float | None,
    answer: Answer,
) -> None:
    """Write ``report.html`` and ``results.json``.

    Args:
        out: a folder that exists.
        log: the file that was read.
        asked: the command's options as they were given.
        clip: of the clipped estimators.
        answer: the estimates, with the rows that they rest on.
    """
    from recsim_mnar.own_log.weights import WeighedLog
    from recsim_mnar.report.estimate_page import Estimates, write_estimates

    assert answer.log is not None
    found = Estimates(str(log), answer.records, answer.lines, WeighedLog.of(answer.log), clip)
    made_by = {name: str(value) if isinstance(value, Path) else value for name, value in asked.items() if value}
    write_estimates(out, found, {"command": "estimate", "log": str(log), **made_by})
