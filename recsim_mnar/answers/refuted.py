"""Records with what the refuters of a log found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recsim_mnar.answers.sentence import Record, target_of
from recsim_mnar.estimators.refuters import refute
from recsim_mnar.estimators.verdict import CAUTION, Finding, Verdict
from recsim_mnar.log.columns import LogColumns


def with_refuters(
    records: Sequence[Record], targets: Sequence[str], log: LogColumns, least: float | None = None, **shown: Any
) -> list[Record]:
    """The records, each target's leading value with ``refuters``, and verdicts with what they found.

    Args:
        records: of :func:`recsim_mnar.own_log.estimating.estimate_file`.
        targets: names; one that takes none of the logged actions is left out.
        log: the rows behind them.
        least: no item has a smaller propensity in any row, where the log's provenance says so.
        **shown: further columns (n,), if the file has them: ids of the items shown (``action``), one that was known
            before the item was chosen (``context``), and numbers that grow with ``time``.
    """
    users = None if log.cluster is None else log.cluster.codes
    known = {"cluster": users, "complete": least is not None, "propensity_min": least, **shown}
    found = {
        name: refute(log.reward, log.propensity, log.others[name], **known)
        for name in targets
        if log.others[name].any()
    }
    written = []
    for record in records:
        of_it, before = found.get(target_of(record), []), {finding["code"] for finding in record["findings"]}
        new = [finding for finding in of_it if finding.severity >= CAUTION and finding.code not in before]
        record = with_findings(record, new)
        if of_it and record["leads"] and "baseline" not in record:
            record |= {"refuters": [finding.to_dict() for finding in of_it]}
        written.append(record)
    return written


def with_findings(record: Record, findings: Sequence[Finding], *, first: bool = False) -> Record:
    """A record with further findings in its verdict; ``first``: before others of their level."""
    before = [Finding.from_dict(finding) for finding in record["findings"]]
    return record | Verdict(record["verdict_level"], [*findings, *before] if first else [*before, *findings]).to_dict()


def refuter_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Outcome of the refuters, one line per policy; their findings are among the reasons."""
    lines = []
    for record in records:
        if "refuters" in record:
            alarms = [finding["code"] for finding in record["refuters"] if finding["level"] != "trust"]
            found = f"{', '.join(dict.fromkeys(alarms))} found something" if alarms else "none found anything"
            lines.append(f"refuters of {record['policy']}: {len(record['refuters'])} run, {found}")
    return lines
