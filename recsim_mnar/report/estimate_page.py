"""The page of ``estimate``: values with intervals, verdicts with what to do, differences, weights, what was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsim_mnar.estimators.off_policy.weights import WeightDistribution, weight_distribution
from recsim_mnar.estimators.verdict import LEVELS
from recsim_mnar.log.files import write_json
from recsim_mnar.log.filled_folder import filling
from recsim_mnar.log.made_with import made_with
from recsim_mnar.log.receipts import digest_of
from recsim_mnar.own_log.weights import WeighedLog
from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.protocols.experiment import Picture
from recsim_mnar.protocols.records import Record as ProtocolRecord
from recsim_mnar.protocols.records import plain
from recsim_mnar.report.downloads import downloads_of, together
from recsim_mnar.report.figures import Figure, draw
from recsim_mnar.report.files import SCHEMA
from recsim_mnar.report.template import write_from
from recsim_mnar.report.weights import weight_figures

Record = dict[str, Any]

TODAY = "today's policy"
_CLASSES = {"trust": "best", "caution": "indistinguishable", "do_not_use": "costs"}
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
        records: of :func:`recsim_mnar.estimators.off_policy.from_file.estimate_file`.
        lines: what was read, taken and left out.
        log: the rows behind them.
        clip: of the clipped estimators, None for none.
        baseline: the policy of the differences, None where there are none.
        is_today: whether the baseline is the policy that logged the rows.
    """

    source: str
    records: Sequence[Record]
    lines: Sequence[str]
    log: WeighedLog
    clip: float | None
    baseline: str | None = None
    is_today: bool = False

    @property
    def other(self) -> str:
        """How sentences call the baseline."""
        return TODAY if self.is_today else str(self.baseline)

    def label(self, policy: str) -> str:
        """How the page calls a policy, or a difference."""
        if self.baseline is None or not self.is_today:
            return policy
        if policy == self.baseline:
            return TODAY
        return policy.removesuffix(f" - {self.baseline}") + f" - {TODAY}" if " - " in policy else policy


def write_estimates(folder: Path, found: Estimates, made_by: dict[str, Any]) -> None:
    """Write ``results.json`` and ``report.html``, which two identical runs write alike, and their index.

    Args:
        folder: that exists.
        found: what they tell.
        made_by: what was asked, shown at the page's foot; JSON types.
    """
    with filling(folder, resume=True) as into:
        into.begin(digest_of(made_by), made_with())
        write_json(folder / "results.json", plain(_results(found)))
        _write_page(folder / "report.html", found, made_by)
        for name in ("results.json", "report.html"):
            into.record(name)


def _results(found: Estimates) -> dict[str, Any]:
    from recsim_mnar import __version__

    read = {"source": found.source, "rows": found.log.rows, "users": found.log.users, "lines": list(found.lines),
            "mean_reward": found.log.mean_reward, "counts": found.log.counts}  # fmt: skip
    return {"schema": SCHEMA, "package": f"recsim-mnar {__version__}", "read": read,
            "weights": [row.to_dict() for row in weights_of(found)], "records": list(found.records)}  # fmt: skip


def _write_page(path: Path, found: Estimates, made_by: dict[str, Any]) -> None:
    values = [r for r in found.records if "baseline" not in r]
    weights = weights_of(found)
    shown = [replace(each, policy=found.label(each.policy)) for each in weights]
    write_from(
        "estimate.html",
        path,
        made_by,
        [
            figure
            for figure in (_values_figure(found, values), *weight_figures(shown, found.clip))
            if figure is not None
        ],
        downloads=together(
            downloads_of("estimates", (_row_of(record) for record in found.records)),
            downloads_of("weights", (each.to_dict() for each in weights)),
        ),
        source=found.source,
        answers=answers(found),
        facts=_facts(found),
        lines=found.lines,
        values=values,
        differences=[r for r in found.records if "baseline" in r],
        label=found.label,
        other=found.other if found.baseline is not None else None,
        weights=shown,
        findings=findings_of(found.records),
        clip=found.clip,
        level=found.records[0]["level"],
    )


def _row_of(record: Record) -> Record:
    """A record as the page carries it: what only programs read is left out."""
    return {name: plain(value) for name, value in record.items() if name != "findings"}


@dataclass(frozen=True)
class Answer:
    """What is said of a policy first.

    Attributes:
        sentence: its value, and the difference from the baseline.
        kind: the class of the graver verdict of both.
        reasons: for doubt, each with what to do.
    """

    sentence: str
    kind: str
    reasons: list[tuple[str, str]]


def answers(found: Estimates) -> list[Answer]:
    """One answer a policy, by clipped IPS, or by the first estimator where that was not asked for."""
    names = list(dict.fromkeys(r["estimator"] for r in found.records))
    chosen = "clipped_ips" if "clipped_ips" in names else names[0]
    of_it = [r for r in found.records if r["estimator"] == chosen]
    differences = {r["policy"]: r for r in of_it if "baseline" in r}
    said = []
    for record in of_it:
        if "baseline" in record or record["policy"] == found.baseline:
            continue
        words = (
            f"{found.label(record['policy'])}: {record['value']:.4g} a decision by {chosen} "
            f"({100 * record['level']:g} % interval {record['low']:.4g} to {record['high']:.4g}): {_words_of(record)}."
        )
        told = [record]
        difference = differences.get(f"{record['policy']} - {found.baseline}")
        if difference is not None:
            words += f" {_difference(difference, found.other)}"
            told.append(difference)
        worst = max((r["verdict_level"] for r in told), key=LEVELS.index)
        said.append(Answer(words, _CLASSES[worst], _reasons(told)))
    return said


def _words_of(record: Record) -> str:
    return str(record["verdict_level"]).replace("_", " ")


def _reasons(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Of the first record all, of the next ones those of another kind."""
    found: dict[str, tuple[str, str]] = {}
    for place, record in enumerate(records):
        for each in record["findings"]:
            if each["level"] != "trust":
                message = each["message"] if place == 0 else f"of the difference, {each['message']}"
                found.setdefault(each["code"], (message, each["action"]))
    return list(found.values())


def _difference(record: Record, other: str) -> str:
    low, high = record["low"], record["high"]
    span = f"{record['value']:+.4g}, {low:.4g} to {high:.4g}"
    if low > 0.0:
        return f"It would have earned more than {other} ({span}): {_words_of(record)}."
    if high < 0.0:
        return f"It would have earned less than {other} ({span}): {_words_of(record)}."
    return f"It cannot be told from {other} ({span}): {_words_of(record)}."


def _facts(found: Estimates) -> list[tuple[str, str]]:
    log = found.log
    facts = [("file", found.source), ("rows that the estimates rest on", f"{log.rows:,}")]
    facts += [(what, f"{log.counts[name]:,}") for name, what in _COUNTED.items() if log.counts.get(name)]
    facts.append(("users", "not known: rows are taken as independent" if log.users is None else f"{log.users:,}"))
    facts.append(("mean reward, which is what the policy that logged them earned", f"{log.mean_reward:.4g}"))
    return facts


def weights_of(found: Estimates) -> list[WeightDistribution]:
    """One a policy; its name as the page calls it is :meth:`Estimates.label`."""
    return [weight_distribution(name, weight, found.clip) for name, weight in found.log.weights.items()]


def findings_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What the verdicts found that is a reason for doubt, the gravest first, equal ones of several estimators once."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        for each in record["findings"]:
            if each["level"] == "trust":
                continue
            key = (record["policy"], each["code"], each["message"], each["action"])
            row = found.setdefault(key, {**each, "policy": record["policy"], "estimators": []})
            row["estimators"].append(record["estimator"])
    return sorted(found.values(), key=lambda row: (-LEVELS.index(row["level"]), row["policy"]))


def _values_figure(found: Estimates, values: Sequence[Record]) -> Figure | None:
    records = [
        ProtocolRecord(
            world="log", protocol="off_policy", agent=found.label(r["policy"]), metric=r["estimator"], value=r["value"],
            low=r["low"], high=r["high"], level=r["level"], n=r["n"], seconds=0.0,
        )
        for r in values
    ]  # fmt: skip
    keys = tuple(dict.fromkeys((r.protocol, r.metric) for r in records))
    caption = "Whiskers are the whole intervals, what clipping may hide included."
    picture = Picture("Values", caption, "value a decision", keys)
    svg = draw(Comparison(records, headings={key: key[1] for key in keys}), picture)
    return None if svg is None else Figure(picture.title, svg, picture.caption)
