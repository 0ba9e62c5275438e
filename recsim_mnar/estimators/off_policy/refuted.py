"""Estimates of a log with what the refuters found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsim_mnar.estimators.off_policy.refuters import refute
from recsim_mnar.estimators.off_policy.written import Record, target_of
from recsim_mnar.estimators.verdict import CAUTION, Finding, Verdict
from recsim_mnar.log.column_files import LogColumns

PROVES = "item_propensities"
"""The refuter whose finding is one of the verdict's own, so that it keeps its level; the others make caution."""


@dataclass(frozen=True)
class Shown:
    """What refuters use beside the columns of an estimate, where the file has it.

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
        records: of :func:`recsim_mnar.estimators.off_policy.from_file.estimate_file`.
        targets: names; one that takes none of the logged actions is left out.
        log: the rows behind them.
        shown: further columns.
    """
    shown = shown or Shown()
    found = {name: _findings(log, name, shown) for name in targets if log.others[name].any()}
    written = []
    for record in records:
        of_it = found.get(target_of(record), [])
        known = {each["code"] for each in record["findings"]}
        new = [_joining(each) for each in of_it if each.severity >= CAUTION and each.code not in known]
        record = with_findings(record, new)
        if of_it and record["leads"] and "baseline" not in record:
            record |= {"refuters": [each.to_dict() for each in of_it]}
        written.append(record)
    return written


def _findings(log: LogColumns, target: str, shown: Shown) -> list[Finding]:
    users = None if log.cluster is None else log.cluster.codes
    return refute(
        log.reward, log.propensity, log.others[target], cluster=users, action=shown.action, context=shown.context,
        time=shown.time, complete=shown.least is not None, propensity_min=shown.least,
    )  # fmt: skip


def _joining(finding: Finding) -> Finding:
    """A refuter's finding as the verdict takes it."""
    return finding if finding.code == PROVES else replace(finding, severity=CAUTION)


def with_findings(record: Record, findings: Sequence[Finding]) -> Record:
    """A record whose verdict has more findings."""
    before = [Finding(**{k: v for k, v in each.items() if k != "level"}) for each in record["findings"]]
    return record | Verdict(record["verdict_level"], [*before, *findings]).to_dict()


def refuter_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the refuters came to, in a line per policy; what they found stands with the reasons."""
    lines = []
    for record in records:
        if "refuters" in record:
            alarms = [each["code"] for each in record["refuters"] if each["level"] != "trust"]
            found = f"{', '.join(dict.fromkeys(alarms))} found something" if alarms else "none found anything"
            lines.append(f"refuters of {record['policy']}: {len(record['refuters'])} run, {found}")
    return lines
