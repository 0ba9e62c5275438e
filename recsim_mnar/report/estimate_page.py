"""The page of ``estimate``: values with intervals, verdicts with what to do, differences, weights, what was read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsim_mnar.estimators.off_policy.sentence import sentence_of
from recsim_mnar.estimators.off_policy.weights import WeightDistribution, weight_distribution
from recsim_mnar.estimators.off_policy.written import Amounts, Record, cells, label, lacks, partly_covered, reasons
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record as ProtocolRecord
from recsim_mnar.protocols.records import plain
from recsim_mnar.report.figures import Figure, draw, weight_figures
from recsim_mnar.report.page import SCHEMA
from recsim_mnar.report.template import downloads_of, together, write_from
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import digest_of

_COUNTED = {
    "organic_rows": "rows that are no recommendations, not used",
    "duplicates": "rows that repeat an earlier row",
    "dropped_duplicates": "of these left out",
    "dropped_missing": "rows left out because a value is missing",
    "dropped_without_target": "rows left out because the second file has no target for them",
}


@dataclass(frozen=True)
class Estimates:
    """What a page of estimates is made of.

    Attributes:
        source: the log, as it was named.
        records: of :func:`recsim_mnar.own_log.estimating.estimate_file`.
        lines: what was read, taken and left out.
        log: the rows behind them.
        clip: of the clipped estimators, None for none.
    """

    source: str
    records: Sequence[Record]
    lines: Sequence[str]
    log: WeighedLog
    clip: float | None

    def label(self, policy: str) -> str:
        """How the page calls a policy."""
        return next((label(record) for record in self.records if record["policy"] == policy), policy)


def write_estimates(folder: Path, found: Estimates, made_by: dict[str, Any]) -> None:
    """Write ``results.json`` and ``report.html``, which two identical runs write alike, and their index.

    Args:
        folder: that exists.
        found: the results to show.
        made_by: what was asked, shown at the page's foot; JSON types.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.begin(digest_of(made_by))
        into.write_json("results.json", plain(_results(found)))
        with into.recording("report.html") as path:
            _write_page(path, found, made_by)


def _results(found: Estimates) -> dict[str, Any]:
    from recsim_mnar._version import __version__

    read = {"source": found.source, "rows": found.log.rows, "users": found.log.users, "lines": list(found.lines),
            "mean_reward": found.log.mean_reward, "counts": found.log.counts}  # fmt: skip
    return {"schema": SCHEMA, "package": f"recsim-mnar {__version__}",
            "sentence": sentence_of(found.records).to_dict(), "read": read,
            "weights": [row.to_dict() for row in weights_of(found)], "records": list(found.records)}  # fmt: skip


def _write_page(path: Path, found: Estimates, made_by: dict[str, Any]) -> None:
    leaders = [r for r in found.records if r["leads"]]
    others = [r for r in found.records if not r["leads"]]
    said, sentence = reasons(leaders), sentence_of(found.records)
    amounts = Amounts.of(found.records)
    weights = weights_of(found)
    shown = [replace(each, policy=found.label(each.policy)) for each in weights]
    values = _values_figures(leaders, amounts)
    write_from(
        "estimate.html",
        path,
        made_by,
        [*values, *weight_figures(shown, found.clip)],
        downloads=together(
            downloads_of("estimates", (_row_of(record) for record in found.records)),
            downloads_of("weights", (each.to_dict() for each in weights)),
        ),
        n_of_values=len(values),
        source=found.source,
        sentence=sentence,
        partly=partly_covered(leaders, sentence.text),
        reasons=said,
        further=[reason for reason in reasons([*leaders, *others]) if reason not in said],
        facts=_facts(found, amounts),
        lines=found.lines,
        leaders=leaders,
        others=others,
        compares=any("baseline" in r for r in leaders),
        label=label,
        cells=lambda record: cells(record, amounts),
        weights=shown,
        clip=found.clip,
        level=found.records[0]["level"],
    )


def _row_of(record: Record) -> Record:
    """A record as the page carries it: what only programs read is left out."""
    return {name: plain(value) for name, value in record.items() if name not in ("findings", "best_of", "refuters")}


def _facts(found: Estimates, amounts: Amounts) -> list[tuple[str, str]]:
    log = found.log
    facts = [("file", found.source), ("rows that the estimates rest on", f"{log.rows:,}")]
    facts += [(what, f"{log.counts[name]:,}") for name, what in _COUNTED.items() if log.counts.get(name)]
    facts.append(("users", "not known: rows are taken as independent" if log.users is None else f"{log.users:,}"))
    facts.append(("mean reward, which is what the policy that logged them earned", amounts.one(log.mean_reward)))
    return facts


def weights_of(found: Estimates) -> list[WeightDistribution]:
    """One a policy; its name as the page calls it is :meth:`Estimates.label`."""
    return [weight_distribution(name, weight, found.clip) for name, weight in found.log.weights.items()]


def _values_figures(leaders: Sequence[Record], amounts: Amounts) -> list[Figure]:
    """The values of the leading estimator, but of policies that the log does not cover; none of today's alone."""
    unit = 100.0 if amounts.shares else 1.0
    drawn = [r for r in leaders if "baseline" not in r and not lacks(r) and math.isfinite(r["high"])]
    records = [
        ProtocolRecord(
            world="log", protocol="off_policy", agent=label(r), metric=r["estimator"], value=unit * r["value"],
            low=unit * r["low"], high=unit * r["high"], level=r["level"], n=r["n"], seconds=0.0,
        )
        for r in drawn
    ]  # fmt: skip
    if not records or all(r["today"] for r in drawn):
        return []
    keys = tuple(dict.fromkeys((r.protocol, r.metric) for r in records))
    caption = "Whiskers are the intervals of the table."
    picture = Picture("Values", caption, "value a decision" + (", %" if amounts.shares else ""), keys)
    svg = draw(Comparison(records, headings={key: key[1] for key in keys}), picture)
    return [] if svg is None else [Figure(picture.title, svg, picture.caption)]
