"""``estimate --out``: the folder with the page of its estimates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.own_log.estimating import Answer

_PROPENSITY = "propensity"


@contextlib.contextmanager
def claimed_outside(out: Path, log: Path) -> Iterator[None]:
    """Make the folder of a page before the work that fills it.

    Raises:
        UserError: it exists and holds something, cannot be made, or lies in the log.
    """
    from recsim_mnar.simulate.run_folder import claimed

    if log.is_dir() and (out.resolve() == log.resolve() or log.resolve() in out.resolve().parents):
        raise UserError(f"--out {out} would lie in the log: name another folder")
    with claimed(out, what="--out"):
        yield


def write_estimate_page(
    out: Path, log: Path, asked: dict[str, Any], records: Sequence[dict[str, Any]], answer: Answer | None
) -> None:
    """Write ``report.html`` and ``results.json``.

    Args:
        out: a folder that exists.
        log: the file that was read.
        asked: the command's options as they were given.
        records: the estimates.
        answer: what was made of a file of one's own; None for a log of ours.
    """
    from recsim_mnar.own_log.weights import weighed_file, weighed_own_log
    from recsim_mnar.report.estimate_page import Estimates, write_estimates

    baseline = asked["baseline"]
    if answer is None:
        policies = list(dict.fromkeys(r["policy"] for r in records if "baseline" not in r))
        weighed = weighed_file(log, policies, cluster=asked["cluster"])
        own_column: str | None = _PROPENSITY
    else:
        weighed, own_column = weighed_own_log(answer.log), answer.log.columns.get(_PROPENSITY)
    clip = None if asked["clip"].strip().lower() == "none" else float(asked["clip"])
    found = Estimates(
        str(log),
        records,
        [] if answer is None else answer.lines,
        weighed,
        clip,
        baseline,
        is_today=baseline is not None and baseline in (_PROPENSITY, own_column),
    )
    made_by = {name: str(value) if isinstance(value, Path) else value for name, value in asked.items() if value}
    write_estimates(out, found, {"command": "estimate", "log": str(log), **made_by})
