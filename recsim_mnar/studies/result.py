"""What a study found: every record in one table, and how each ranking did over catalogues."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE, OUTCOMES, two_digits

if TYPE_CHECKING:
    import pandas as pd

AB_TEST = "ab_test"
UNUSABLE = "unusable"
"""Of picks by an estimate for which the log holds too little."""
_OTHERS = {INDISTINGUISHABLE: "a tie with it", COSTS: "a worse one"}


@dataclass(frozen=True)
class Study:
    """What a study found.

    Attributes:
        settings: what was compared, JSON types.
        results: one per task, in the order of the tasks.
        seconds: wall time of the tasks that were run now, by label.
    """

    settings: dict[str, Any]
    results: list[dict[str, Any]]
    seconds: dict[str, float] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Every record with its task's label, catalogue and seed; JSON types."""
        return [
            {"study": r["label"], "catalogue": r["catalogue"], "seed": r["seed"], **record}
            for r in self.results
            for record in r["records"]
        ]

    def frame(self) -> pd.DataFrame:
        """One row a record: study, preset, catalogue, seed, and the record's fields without details."""
        import pandas as pd

        rows = [{name: value for name, value in row.items() if name != "details"} for row in self.rows()]
        presets = {r["label"]: r["run_config"]["preset"] for r in self.results}
        frame = pd.DataFrame(rows)
        frame.insert(1, "preset", frame["study"].map(presets))
        frame["study"] = frame["study"].str.rpartition("-")[0]
        return frame

    def judgements(self) -> list[dict[str, Any]]:
        """Every judgement with its study's name and catalogue."""
        return [
            {
                "study": r["label"].rpartition("-")[0],
                "catalogue": r["catalogue"],
                **judgement,
            }
            for r in self.results
            for judgement in r["judgements"]
        ]

    def summary(self, level: float = 0.95) -> list[dict[str, Any]]:
        """How every ranking did over catalogues: one row per study, protocol and metric.

        A pick is ``best``, ``indistinguishable`` from it (a tie: the loss is within what the simulator itself knows of
        the truth) or ``costs``: exactly one of the three, whether or not its estimate may be used. How often it may not
        is ``unusable``.

        Args:
            level: of the intervals over catalogues: Wilson's of shares; those of means respect that a cost is at least
                0 and Kendall's tau within [-1, 1].
        """
        groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
        users = {
            row["study"].rpartition("-")[0]: row["details"].get("users")
            for row in self.rows()
            if row["protocol"] == AB_TEST
        }
        for j in self.judgements():
            groups.setdefault((j["study"], j["protocol"], j["metric"], j["target"]), []).append(j)
        targets: dict[str, set[str]] = {}
        for name, _, _, target in groups:
            targets.setdefault(name, set()).add(target)
        rows = []
        for key, own in groups.items():
            row = _summarised(key, own, level)
            row["users_per_arm"] = users.get(key[0]) if key[1] == AB_TEST else None
            row["one_target"] = len(targets[key[0]]) == 1
            rows.append(row)
        return rows

    def sentences(self) -> list[str]:
        """The summary for a person."""
        return [_sentence(row) for row in self.summary()]


def _summarised(key: tuple[str, ...], own: list[dict[str, Any]], level: float) -> dict[str, Any]:
    shares = {outcome: share([j["outcome"] == outcome for j in own], level) for outcome in OUTCOMES}
    return {
        **dict(zip(("study", "protocol", "metric", "target"), key, strict=True)),
        "title": own[0]["title"],
        "catalogues": len(own),
        **shares,
        UNUSABLE: share([j["pick"] in j["unusable"] for j in own], level),
        "cost_share": mean([j["cost_share"] for j in own], level, least=0.0),
        "kendall_tau": mean([j["kendall_tau"] for j in own], level, least=-1.0, largest=1.0),
        "best_by_upper_bound": share([j["pick_by_upper_bound"] == j["best"] for j in own], level),
        "tau_by_upper_bound": mean([j["tau_by_upper_bound"] for j in own], level, least=-1.0, largest=1.0),
        "picks": {pick: sum(j["pick"] == pick for j in own) for pick in sorted({j["pick"] for j in own})},
    }


def _sentence(row: dict[str, Any]) -> str:
    n = row["catalogues"]
    more = [f"{words} in {row[outcome]['count']}" for outcome, words in _OTHERS.items() if row[outcome]["count"]]
    cost = row["cost_share"]
    price = "" if cost["mean"] is None else f" On average its picks cost {percent(cost)} of the {row['target']}."
    barred = row[UNUSABLE]["count"]
    unusable = f" In {barred} of {n} the log holds too little for the estimate of its pick." if barred else ""
    hits = f"picks the best recommender in {row[BEST]['count']} of {n} catalogues"
    title = sized(row)
    named = title if row["one_target"] else f"{row['target']}, {title}"
    return f"{named[0].upper()}{named[1:]} {', '.join([hits, *more])}.{price}{unusable}"


def sized(row: Mapping[str, Any]) -> str:
    """The title of a row of the summary; an A/B test's with its size."""
    users = row["users_per_arm"]
    return str(row["title"]) if users is None else f"{row['title']} ({users:,} users per arm)"


def percent(row: Mapping[str, Any]) -> str:
    """A mean share with its interval."""
    value, *ends = (f"{two_digits(row[name])}%" for name in ("mean", "low", "high") if row[name] is not None)
    return f"{value} [{', '.join(ends)}]" if ends else value


def share(hits: Sequence[bool], level: float = 0.95) -> dict[str, Any]:
    """A proportion and its Wilson interval."""
    from scipy.special import ndtri

    n, count = len(hits), int(sum(hits))
    z = float(ndtri(0.5 + level / 2))
    p = count / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return {"share": p, "low": max(centre - half, 0.0), "high": min(centre + half, 1.0), "count": count}


def mean(
    values: Iterable[float | None],
    level: float = 0.95,
    *,
    least: float | None = None,
    largest: float | None = None,
) -> dict[str, Any]:
    """A mean over catalogues and its interval; values that are None are left out, and counted.

    Args:
        values: one per catalogue.
        level: nominal coverage.
        least: the least value possible. None for Student's interval, which knows no bounds.
        largest: the largest value possible. With ``least`` alone the interval is that of numbers above
            it, with both that of numbers in a range: neither leaves what is possible.
    """
    import numpy as np

    from recsim_mnar.estimators.intervals import (
        positive_mean_interval,
        ranged_mean_interval,
        student_mean_interval,
    )

    given = list(values)
    x = np.array([v for v in given if v is not None and math.isfinite(v)], float)
    if len(x) == 0:
        return {"mean": None, "low": None, "high": None, "n": 0}
    value = float(x.mean())
    if len(x) == 1:
        return {"mean": value, "low": None, "high": None, "n": 1}
    if least is not None and largest is not None:
        _, low, high = ranged_mean_interval(x, level, least, largest)
    elif least is not None:
        _, low, high = positive_mean_interval(np.maximum(x - least, 0.0), level)
        low, high = least + low, least + high
    else:
        _, low, high = student_mean_interval(x, level)
    return {"mean": value, "low": low, "high": high, "n": len(x)}
