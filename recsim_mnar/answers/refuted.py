"""Records with what the refuters of a log found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.answers.sentence import Record, target_of
from recsim_mnar.estimators.refuters import refute
from recsim_mnar.estimators.verdict import CAUTION, Finding, Verdict
from recsim_mnar.log.columns import LogColumns


@dataclass(frozen=True)
class Shown:
    """Further columns that refuters use, if the file has them.

    Attributes:
        action: (n,) ids of the items shown.
        context: (n,) a column that was known before the item was chosen.
        time: (n,) numbers that grow with time.
        least: no item has a smaller propensity in any row, where the log's provenance says so.
    """

    action: Any = None
    context: Any = None
    time: Any = None
    least: float | None = None


def with_refuters(
    records: Sequence[Record], targets: Sequence[str], log: LogColumns, shown: Shown | None = None
) -> list[Record]:
    """The records, each target's leading value with ``refuters``, and verdicts with what they found.

    Args:
        records: of :func:`recsim_mnar.own_log.estimating.estimate_file`.
        targets: names; one that takes none of the logged actions is left out.
        log: the rows behind them.
        shown: further columns.
    """
    shown = shown or Shown()
    users = None if log.cluster is None else log.cluster.codes
    found = {
        name: refute(
            log.reward,
            log.propensity,
            log.others[name],
            cluster=users,
            action=shown.action,
            context=shown.context,
            time=shown.time,
            propensity_min=shown.least,
        )
        for name in targets
        if log.others[name].any()
    }
    written = []
    for record in records:
        of_it, known = found.get(target_of(record), []), {each["code"] for each in record["findings"]}
        record = with_findings(record, [e for e in of_it if e.severity >= CAUTION and e.code not in known])
        if of_it and record["leads"] and "baseline" not in record:
            record |= {"refuters": [each.to_dict() for each in of_it]}
        written.append(record)
    return written


def with_findings(record: Record, findings: Sequence[Finding], *, first: bool = False) -> Record:
    """A record with further findings in its verdict; ``first``: before others of their level."""
    before = [Finding.from_dict(each) for each in record["findings"]]
    return record | Verdict(record["verdict_level"], [*findings, *before] if first else [*before, *findings]).to_dict()


def refuter_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Outcome of the refuters, one line per policy; their findings are among the reasons."""
    lines = []
    for record in records:
        if "refuters" in record:
            alarms = [each["code"] for each in record["refuters"] if each["level"] != "trust"]
            found = f"{', '.join(dict.fromkeys(alarms))} found something" if alarms else "none found anything"
            lines.append(f"refuters of {record['policy']}: {len(record['refuters'])} run, {found}")
    return lines
