"""What a study found: one tidy table, how each protocol did over catalogues, paired comparisons, LaTeX and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE, OUTCOMES, TIDY, tidy_rows, two_digits
from recsim_mnar.runs.files import path_of
from recsim_mnar.studies.paired import BOUNDS, LEAST, paired_table

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
        settings: its design, JSON types.
        results: one per cell and catalogue, in the order of the design.
        seconds: by task, wall time of the whole and of each record, of the tasks that were run now.
    """

    settings: dict[str, Any]
    results: list[dict[str, Any]]
    seconds: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path) -> Study:
        """Read a finished study from its folder.

        Raises:
            UserError: there is none, or it is not finished.
        """
        path = path_of(folder)
        try:
            settings = json.loads((path / "study.json").read_text())
            names = [f"{cell}-{c:03d}" for cell in settings["cells"] for c in range(settings["catalogues"])]
            results = [json.loads((path / "tasks" / f"{name}.json").read_text()) for name in names]
            times = path / "timings.json"
            return cls(settings, results, json.loads(times.read_text())["tasks"] if times.is_file() else {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder} holds no finished study ({error}): run it, or --resume it") from error

    @property
    def factors(self) -> list[str]:
        """Names of the factors."""
        return list(dict.fromkeys(name for r in self.results for name in r["levels"]))

    def rows(self) -> list[dict[str, Any]]:
        """Every record with its cell, catalogue and seed; JSON types."""
        return [
            {"study": r["cell"], "catalogue": r["catalogue"], "seed": r["seed"], **record}
            for r in self.results
            for record in r["records"]
        ]

    def frame(self) -> pd.DataFrame:
        """One row per cell, catalogue, protocol, metric and agent.

        Columns: the factors, ``world``, ``preset``, ``catalogue``, ``seed``, and those of
        :func:`recsim_mnar.protocols.records.tidy_rows`.
        """
        import pandas as pd

        rows = [row for r in self.results for row in self._rows_of(r)]
        # A factor may be the world or the preset itself.
        columns = [*self.factors, "world", "preset", "catalogue", "seed", *TIDY]
        return pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))

    def _rows_of(self, result: Mapping[str, Any]) -> list[dict[str, Any]]:
        about = {
            "world": result["run_config"]["world"]["name"],
            "preset": result["run_config"]["preset"],
            **result["levels"],
            "catalogue": result["catalogue"],
            "seed": result["seed"],
        }
        took = self.seconds.get(f"{result['cell']}-{result['catalogue']:03d}", {}).get("records", ())
        rows = tidy_rows(result["records"], result["judgements"])
        return [
            {**about, **row, "seconds": took[place] if place < len(took) else None} for place, row in enumerate(rows)
        ]

    def judgements(self) -> list[dict[str, Any]]:
        """Every judgement with its cell, levels and catalogue."""
        return [
            {"study": r["cell"], "levels": r["levels"], "catalogue": r["catalogue"], **judgement}
            for r in self.results
            for judgement in r["judgements"]
        ]

    def summary(self, level: float = 0.95) -> list[dict[str, Any]]:
        """How every ranking did over catalogues: one row per cell, protocol and metric.

        A pick is ``best``, ``indistinguishable`` from it (a tie: the loss is within what the simulator itself knows of
        the truth) or ``costs``: exactly one of the three. ``decides`` counts the catalogues in which the protocol does
        not abstain, ``right_if_decided`` the best picks and ties among them; ``cost_decided`` is the mean cost there,
        ``cost_share`` that of deciding always.

        Args:
            level: of the intervals over catalogues: Wilson's of shares; those of means stay within what is possible.
                There is none below :data:`LEAST` catalogues.
        """
        groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
        users = {row["study"]: row["details"].get("users") for row in self.rows() if row["protocol"] == AB_TEST}
        for j in self.judgements():
            groups.setdefault((j["study"], j["protocol"], j["metric"], j["target"]), []).append(j)
        targets: dict[str, set[str]] = {}
        for name, _, _, target in groups:
            targets.setdefault(name, set()).add(target)
        rows = []
        for key, own in groups.items():
            row = _summarised(key, own, level)
            row["levels"] = own[0]["levels"]
            row["users_per_arm"] = users.get(key[0]) if key[1] == AB_TEST else None
            row["one_target"] = len(targets[key[0]]) == 1
            rows.append(row)
        return rows

    def always(self, level: float = 0.95) -> list[dict[str, Any]]:
        """The agent that loses least if it is always picked, in hindsight: one row per cell and target."""
        frame = self.frame()
        frame = frame[frame["cost"].notna()]
        by = [*self.factors, "world"]
        rows = []
        for j in {(j["study"], j["target"]): j for j in self.judgements()}.values():
            own = frame[(frame["protocol"] == j["protocol"]) & (frame["metric"] == j["metric"])]
            for name in by:
                own = own[own[name] == j["levels"].get(name, own[name].iloc[0])] if len(own) else own
            costs = own.pivot_table("cost", "catalogue", "agent").dropna(axis=1)
            if costs.empty:
                continue
            agent = costs.mean().idxmin()
            cost = mean(costs[agent], level, least=0.0, largest=_most(j))
            rows.append(
                {"study": j["study"], "levels": j["levels"], "target": j["target"], "agent": agent, "cost": cost}
            )
        return rows

    def risk_coverage(self, protocol: str, metric: str | None = None) -> pd.DataFrame:
        """Mean cost among the catalogues in which a protocol decides, by the severity up to which it does.

        Args:
            protocol: name of the protocol.
            metric: of its ranking; its first where None.

        Returns:
            One row per cell and severity: ``study``, ``severity``, ``decides`` (share of catalogues) and ``cost``.
        """
        import pandas as pd

        rows = []
        own = [j for j in self._of(protocol, metric) if j["cost_share"] is not None]
        for study in dict.fromkeys(j["study"] for j in own):
            judged = sorted((j for j in own if j["study"] == study), key=lambda j: j["severity"])
            for severity in dict.fromkeys(j["severity"] for j in judged):
                costs = [j["cost_share"] for j in judged if j["severity"] <= severity]
                share_decided, cost = len(costs) / len(judged), sum(costs) / len(costs)
                rows.append({"study": study, "severity": severity, "decides": share_decided, "cost": cost})
        return pd.DataFrame(rows, columns=["study", "severity", "decides", "cost"])

    def _of(self, protocol: str, metric: str | None) -> list[dict[str, Any]]:
        """Judgements of a protocol, by its name, its metric or its title."""
        judged = self.judgements()
        own = [j for j in judged if protocol in (j["protocol"], j["metric"], j["title"])]
        own = own or [j for j in judged if j["title"].startswith(protocol)]
        if not own:
            known = dict.fromkeys(name for j in judged for name in (j["protocol"], j["title"]))
            raise UserError(f"the study has no protocol {protocol!r}; {nearest(protocol, known)}")
        chosen = metric or own[0]["metric"]
        return [j for j in own if j["metric"] == chosen]

    def compare(
        self, first: str, second: str, *, by: str | None = None, of: str = "cost", level: float = 0.95
    ) -> pd.DataFrame:
        """Difference of two protocols, catalogue by catalogue: the mean over a catalogue's cells is one pair.

        Args:
            first: name, title or metric of a protocol.
            second: of another.
            by: a factor: one row per level; one row of all cells together where None.
            of: ``cost`` (share of the best true value) or ``tau`` (Kendall's tau with the truth).
            level: of the intervals.

        Returns:
            One row per level: ``n``, ``difference`` (first - second) with ``low`` and ``high``, p-values of the paired
            t-test and of Wilcoxon's signed-rank test, and the latter two adjusted over the rows by Holm (1979).
        """
        one, other = (_by_unit(self._of(name, None), of) for name in (first, second))
        groups: dict[Any, dict[int, list[tuple[float, float]]]] = {}
        for levels, catalogue in sorted(one.keys() & other.keys(), key=lambda unit: unit[1]):
            label = dict(levels).get(by) if by is not None else "all"
            pair = one[levels, catalogue], other[levels, catalogue]
            groups.setdefault(label, {}).setdefault(catalogue, []).append(pair)
        return paired_table(_by_catalogue(self._ordered(groups, by)), by or "cells", BOUNDS[of], level)

    def compare_levels(
        self, factor: str, protocol: str, *, minus: str | None = None, of: str = "cost", level: float = 0.95
    ) -> pd.DataFrame:
        """Difference of each level of a factor from its first, catalogue by catalogue; see :meth:`compare`.

        Args:
            factor: its name.
            protocol: of whose cost.
            minus: a second protocol, whose cost is taken away in each cell: how a level changes their difference.
            of: ``cost`` or ``tau``.
            level: of the intervals.
        """
        if factor not in self.factors:
            raise UserError(f"the study has no factor {factor!r}; {nearest(factor, self.factors)}")
        values = _by_unit(self._of(protocol, None), of)
        if minus is not None:
            second = _by_unit(self._of(minus, None), of)
            values = {unit: values[unit] - second[unit] for unit in values.keys() & second.keys()}
        others: dict[Any, dict[Any, float]] = {}
        for (levels, catalogue), value in values.items():
            rest = tuple(pair for pair in levels if pair[0] != factor)
            others.setdefault((catalogue, rest), {})[dict(levels)[factor]] = value
        first, *further = list(dict.fromkeys(r["levels"][factor] for r in self.results))
        groups: dict[Any, dict[int, list[tuple[float, float]]]] = {f"{name} - {first}": {} for name in further}
        for (catalogue, _), own in others.items():
            for name in further:
                if name in own and first in own:
                    groups[f"{name} - {first}"].setdefault(catalogue, []).append((own[name], own[first]))
        bound = BOUNDS[of] if minus is None else 2.0 * BOUNDS[of]
        return paired_table(_by_catalogue(groups), factor, bound, level)

    def _ordered(self, groups: dict[Any, Any], by: str | None) -> dict[Any, Any]:
        """Groups in the order of the factor's levels."""
        if by is None:
            return groups
        if by not in self.factors:
            raise UserError(f"the study has no factor {by!r}; {nearest(by, self.factors)}")
        order = dict.fromkeys(r["levels"].get(by) for r in self.results)
        return {name: groups[name] for name in order if name in groups}

    def to_latex(self) -> str:
        """The summary as a LaTeX table (booktabs)."""
        heads = [*self.factors, "protocol", "decides", "best or tie", "mean loss (\\%)"]
        lines = [f"\\begin{{tabular}}{{{'l' * len(heads)}}}", "\\toprule", f"{' & '.join(heads)} \\\\", "\\midrule"]
        for row in self.summary():
            right = row[BEST]["count"] + row[INDISTINGUISHABLE]["count"]
            n = row["catalogues"]
            levels = [str(row["levels"].get(name, "")) for name in self.factors]
            loss = "--" if row["cost_share"]["mean"] is None else percent(row["cost_share"]).replace("%", "")
            cells = [*levels, row["title"], f"{row['decides']['count']} of {n}", f"{right} of {n}", loss]
            lines.append(f"{' & '.join(_in_latex(cell) for cell in cells)} \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])

    def plot(
        self,
        path: str | Path,
        *,
        by: str | None = None,
        of: str = "cost",
        protocols: Sequence[str] | None = None,
    ) -> None:
        """Draw each protocol's mean cost or tau by the levels of a factor, or its cost by how often it decides.

        Args:
            path: of the figure, as SVG, PDF or PNG by its ending.
            by: a factor; the first one where None.
            of: ``cost`` or ``tau``, with intervals over catalogues; or ``risk``, :meth:`risk_coverage` of every
                protocol that abstains somewhere.
            protocols: names, metrics or titles of those that are drawn; all where None.
        """
        from recsim_mnar.studies.figure import plot_study

        plot_study(self, path_of(path), by, of, protocols)

    def sentences(self) -> list[str]:
        """The summary for a person."""
        return [_sentence(row) for row in self.summary()]


def _by_unit(judged: Sequence[Mapping[str, Any]], of: str) -> dict[Any, float]:
    """Cost or tau of a protocol by levels and catalogue; what is not known is left out."""
    names = {"cost": "cost_share", "tau": "kendall_tau"}
    if of not in names:
        raise UserError(f"of must be cost or tau, got {of!r}")
    found = {(tuple(j["levels"].items()), j["catalogue"]): j[names[of]] for j in judged}
    return {unit: value for unit, value in found.items() if value is not None and math.isfinite(value)}


def _by_catalogue(groups: Mapping[Any, Mapping[int, Sequence[tuple[float, float]]]]) -> dict[Any, Any]:
    """One pair per group and catalogue: means over its cells, which share the catalogue and are not independent."""
    return {
        name: [tuple(sum(side) / len(pairs) for side in zip(*pairs, strict=True)) for pairs in own.values()]
        for name, own in groups.items()
    }


def _most(judgement: Mapping[str, Any]) -> float | None:
    """The largest cost possible: all of the best value, where values are gains."""
    return 1.0 if judgement.get("larger", True) and judgement["best_truth"] > 0 else None


def _summarised(key: tuple[str, ...], own: list[dict[str, Any]], level: float) -> dict[str, Any]:
    shares = {outcome: share([j["outcome"] == outcome for j in own], level) for outcome in OUTCOMES}
    decided = [j for j in own if not j["abstains"]]
    most = _most(own[0])
    return {
        **dict(zip(("study", "protocol", "metric", "target"), key, strict=True)),
        "title": own[0]["title"],
        "catalogues": len(own),
        **shares,
        UNUSABLE: share([j["pick"] in j["unusable"] for j in own], level),
        "decides": share([not j["abstains"] for j in own], level),
        "right_if_decided": share([j["outcome"] != COSTS for j in decided], level) if decided else None,
        "cost_decided": mean([j["cost_share"] for j in decided], level, least=0.0, largest=most),
        "cost_share": mean([j["cost_share"] for j in own], level, least=0.0, largest=most),
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
    abstains = n - row["decides"]["count"]
    doubts = f" In {abstains} of {n} it should abstain: too little data." if abstains else ""
    title = sized(row)
    named = title if row["one_target"] else f"{row['target']}, {title}"
    hits = f"picks the best agent in {row[BEST]['count']} of {n} catalogues"
    levels = ", ".join(f"{name} {value}" for name, value in row["levels"].items())
    begins = f"{levels}: " if levels else ""
    return f"{begins}{named[0].upper()}{named[1:]} {', '.join([hits, *more])}.{price}{doubts}"


def sized(row: Mapping[str, Any]) -> str:
    """The title of a row of the summary; an A/B test's with its size."""
    users = row["users_per_arm"]
    return str(row["title"]) if users is None else f"{row['title']} ({users:,} users per arm)"


def percent(row: Mapping[str, Any]) -> str:
    """A mean share with its interval."""
    value, *ends = (f"{two_digits(row[name])}%" for name in ("mean", "low", "high") if row[name] is not None)
    return f"{value} [{', '.join(ends)}]" if ends else value


def _in_latex(text: str) -> str:
    for sign in ("\\", "_", "%", "&", "#", "$", "{", "}"):
        text = text.replace(sign, f"\\{sign}" if sign != "\\" else "\\textbackslash ")
    return text


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
        largest: the largest value possible. The interval never leaves what is possible; there is none below
            :data:`LEAST` values.
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
    if len(x) < LEAST:
        return {"mean": value, "low": None, "high": None, "n": len(x)}
    if least == 0.0:
        _, low, high = positive_mean_interval(np.maximum(x, 0.0), level)
        high = high if largest is None else min(high, largest)
    elif least is not None and largest is not None:
        _, low, high = ranged_mean_interval(x, level, least, largest)
    else:
        _, low, high = student_mean_interval(x, level)
    return {"mean": value, "low": low, "high": high, "n": len(x)}
