"""Results of a study.

One tidy table, each protocol's results over catalogues, paired comparisons, LaTeX and figures.
"""

from __future__ import annotations

import collections
import itertools
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.protocols.records import (
    BEST,
    COSTS,
    INDISTINGUISHABLE,
    TIDY,
    TIDY_TYPES,
    is_named,
    listed,
    tidy_rows,
    two_digits,
)
from recsim_mnar.runs.files import path_of, replacing
from recsim_mnar.studies.design import Levels, Result, Took
from recsim_mnar.studies.paired import BOUNDS, Mean, Share, mean, paired_table, share, steps_from_first

if TYPE_CHECKING:
    import pandas as pd

AB_TEST = "ab_test"
_LABELS = {"cost": "mean cost, % of the best", "tau": "Kendall's tau with the truth"}
RISK = "risk"
_WIDTH = 0.6
"""Width along the axis that a level's protocols share, in levels."""
_MOST_FACTORS = 2
_ROOM, _LEAST_ROOM = 60, 8
"""Characters along the axes of all panels, and the smallest number for one level's label."""


class Judged(TypedDict):
    """A row of a study's judgements: its cell and catalogue, and the fields of a ``Judgement``."""

    study: str
    levels: Levels
    catalogue: int
    protocol: str
    metric: str
    title: str
    target: str
    outcome: str
    kendall_tau: float | None
    pick: str
    tied_with: list[str]
    best: str
    best_truth: float
    cost_share: float | None
    pick_by_upper_bound: str
    tau_by_upper_bound: float | None
    unusable: list[str]
    severity: float
    abstains: bool
    larger: bool


class Row(TypedDict):
    """A row of a study's summary; see :meth:`Study.summary`."""

    study: str
    protocol: str
    metric: str
    target: str
    title: str
    catalogues: int
    best: Share
    indistinguishable: Share
    costs: Share
    unusable: Share
    decides: Share
    right_if_decided: Share | None
    cost_decided: Mean
    cost_share: Mean
    kendall_tau: Mean
    best_by_upper_bound: Share
    tau_by_upper_bound: Mean
    picks: dict[str, int]
    levels: Levels
    users_per_arm: int | None
    one_target: bool


class Always(TypedDict):
    """The agent that loses least if it is always picked, by cell and target."""

    study: str
    levels: Levels
    target: str
    agent: str
    cost: Mean


@dataclass(frozen=True)
class Study:
    """Results of a study.

    Attributes:
        settings: its design, JSON types.
        results: one per cell and catalogue, in the order of the design.
        seconds: by task, wall time of the task and of each record, of the tasks that were run now.
    """

    settings: Mapping[str, Any]
    results: Sequence[Result]
    seconds: Mapping[str, Took] = field(default_factory=dict)

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

    def rows(self) -> list[Mapping[str, Any]]:
        """Return every record with its cell, catalogue and seed; JSON types."""
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
        frame = pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))
        return frame.astype(TIDY_TYPES)

    def _rows_of(self, result: Result) -> list[Mapping[str, Any]]:
        about = {**_cell_columns(result), "catalogue": result["catalogue"], "seed": result["seed"]}
        times = self.seconds.get(f"{result['cell']}-{result['catalogue']:03d}")
        seconds = [] if times is None else times["records"]
        rows = tidy_rows(result["records"], result["judgements"])
        return [{**about, **row, "seconds": took} for row, took in itertools.zip_longest(rows, seconds[: len(rows)])]

    def judgements(self) -> list[Judged]:
        """Return every judgement with its cell, levels and catalogue."""
        rows = [
            {"study": r["cell"], "levels": r["levels"], "catalogue": r["catalogue"], **judgement}
            for r in self.results
            for judgement in r["judgements"]
        ]
        return cast("list[Judged]", rows)

    def summary(self, level: float = 0.95) -> list[Row]:
        """Summarise every ranking over catalogues: one row per cell, protocol and metric.

        A pick is ``best``, ``indistinguishable`` from it (a tie: the loss is within the error of the simulated truth)
        or ``costs``: exactly one of the three. ``decides`` counts the catalogues in which the protocol does not
        abstain, ``right_if_decided`` the best picks and ties among them; ``cost_decided`` is the mean cost there,
        ``cost_share`` that of deciding always.

        Args:
            level: nominal coverage over catalogues: Wilson's intervals of shares; those of means stay within what is
                possible. There is none below :data:`LEAST` catalogues.
        """
        groups: dict[tuple[str, str, str, str], list[Judged]] = {}
        targets: dict[str, set[str]] = {}
        for j in self.judgements():
            groups.setdefault((j["study"], j["protocol"], j["metric"], j["target"]), []).append(j)
            targets.setdefault(j["study"], set()).add(j["target"])
        users = {row["study"]: row["details"].get("users") for row in self.rows() if row["protocol"] == AB_TEST}
        return [_summarised(rows, level, users, len(targets[study]) == 1) for (study, *_), rows in groups.items()]

    def always(self, level: float = 0.95) -> list[Always]:
        """Return the agent that loses least if it is always picked, in hindsight: one row per cell and target."""
        frame = self.frame()
        frame = frame[frame["cost"].notna()]
        rows: list[Always] = []
        for j in {(j["study"], j["target"]): j for j in self.judgements()}.values():
            cell = frame[(frame["protocol"] == j["protocol"]) & (frame["metric"] == j["metric"])]
            for name in (*self.factors, "world"):
                if len(cell):
                    cell = cell[cell[name] == j["levels"].get(name, cell[name].iloc[0])]
            costs = cell.pivot_table("cost", "catalogue", "agent").dropna(axis=1)
            if costs.empty:
                continue
            agent = costs.mean().idxmin()
            cost = mean(costs[agent], level, least=0.0, largest=_most(j))
            rows.append(
                {"study": j["study"], "levels": j["levels"], "target": j["target"], "agent": agent, "cost": cost}
            )
        return rows

    def risk_coverage(self, protocol: str, by: str | Sequence[str] | None = None) -> pd.DataFrame:
        """Compute the mean cost of the comparisons up to each severity, if a protocol decides in these only.

        Args:
            protocol: name, metric or title; of several metrics its first.
            by: a factor, or several; all cells together where None.

        Returns:
            One row per level and severity: the factors, ``severity``, ``decides`` (share of the comparisons) and
            ``cost``.
        """
        import pandas as pd

        names = self._grouping(by)
        cells = {r["cell"]: _cell_columns(r) for r in self.results}
        groups: dict[tuple[Any, ...], list[Judged]] = {}
        for j in self._of(protocol):
            if j["cost_share"] is not None:
                groups.setdefault(tuple(cells[j["study"]][name] for name in names), []).append(j)
        rows = []
        for levels, judged in groups.items():
            for severity in sorted({j["severity"] for j in judged}):
                costs = [j["cost_share"] or 0.0 for j in judged if j["severity"] <= severity]
                rows.append((*levels, severity, len(costs) / len(judged), sum(costs) / len(costs)))
        return pd.DataFrame(rows, columns=[*names, "severity", "decides", "cost"])

    def _of(self, protocol: str) -> list[Judged]:
        """Return the judgements of a protocol by its name, metric or title; of several metrics those of the first."""
        judged = self.judgements()
        matching = [j for j in judged if is_named(j, [protocol])]
        matching = matching or [j for j in judged if j["title"].startswith(protocol)]
        if not matching:
            names = dict.fromkeys(name for j in judged for name in (j["protocol"], j["metric"], j["title"]))
            raise UserError(f"the study has no protocol {protocol!r}; {nearest(protocol, names)}")
        return [j for j in matching if j["metric"] == matching[0]["metric"]]

    def _grouping(self, by: str | Sequence[str] | None) -> list[str]:
        """Check names of factors, or of ``world`` and ``preset``, and return them as a list."""
        names = [by] if isinstance(by, str) else list(by or ())
        columns = [*self.factors, "world", "preset"]
        for name in names:
            if name not in columns:
                raise UserError(f"the study has no factor {name!r}; {nearest(name, columns)}")
        return names

    def _outcomes(self, judgements: Sequence[Judged], of: str) -> pd.DataFrame:
        """Return one row per judgement: columns of its cell, ``catalogue``, ``title`` and ``value`` (cost or tau)."""
        import pandas as pd

        if of not in BOUNDS:
            raise UserError(f"of must be cost or tau, got {of!r}")
        cells = {r["cell"]: {"setup": r.get("setup", ""), **_cell_columns(r)} for r in self.results}
        one_target = len({j["target"] for j in judgements}) == 1
        rows = []
        for j in judgements:
            title = j["title"] if one_target else f"{j['target']}, {j['title']}"
            value = j["cost_share"] if of == "cost" else j["kendall_tau"]
            rows.append({**cells[j["study"]], "catalogue": j["catalogue"], "title": title, "value": value})
        frame = pd.DataFrame(rows).astype({"value": float})
        return frame[frame["value"].notna()]

    def means(
        self,
        by: str | Sequence[str] | None = None,
        *,
        of: str = "cost",
        protocols: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Compute each protocol's mean cost or tau over catalogues, by the levels of factors.

        A catalogue counts once: by the mean over its cells at these levels.

        Args:
            by: a factor, or several; all cells together where None.
            of: ``cost`` (share of the best true value) or ``tau`` (Kendall's tau with the truth).
            protocols: names, metrics or titles; all where None.
            level: nominal coverage of the intervals; there is none below :data:`LEAST` catalogues.

        Returns:
            One row per level and protocol: the factors, ``title``, ``mean``, ``low``, ``high`` and ``n`` (catalogues).
        """
        import pandas as pd

        names = [*self._grouping(by), "title"]
        judged = [j for j in self.judgements() if is_named(j, protocols)]
        if not judged:
            raise UserError(f"the study has none of the protocols {listed(list(protocols or ['none']))}")
        limits: dict[str, float | None] = {"least": -1.0, "largest": 1.0}
        if of == "cost":
            limits = {"least": 0.0, "largest": _most(judged[0])}
        rows = []
        for group, outcomes in self._outcomes(judged, of).groupby(names, sort=False, dropna=False):
            values = outcomes.groupby("catalogue", sort=False)["value"].mean()
            rows.append({**dict(zip(names, group, strict=True)), **mean(values.tolist(), level, **limits)})
        return pd.DataFrame(rows, columns=[*names, "mean", "low", "high", "n"])

    def compare(
        self,
        first: str,
        second: str,
        *,
        by: str | Sequence[str] | None = None,
        of: str = "cost",
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Difference of two protocols, catalogue by catalogue: the mean over a catalogue's cells is one pair.

        Args:
            first: name, metric or title of a protocol; of several metrics its first.
            second: of another.
            by: a factor, or several: one row per level; one row of all cells together where None.
            of: ``cost`` (share of the best true value) or ``tau`` (Kendall's tau with the truth).
            level: of the intervals.

        Returns:
            One row per level: ``first`` and ``second`` (titles), ``n`` catalogues, in ``n_above`` of which the first is
            the larger and in ``n_below`` the smaller, ``difference`` (first - second) with ``low`` and ``high``,
            p-values of the paired t-test and of Wilcoxon's signed-rank test, and both adjusted over the rows by Holm
            (1979).
        """
        names = self._grouping(by)
        one, other = (self._outcomes(self._of(name), of) for name in (first, second))
        units = [name for name in one.columns if name not in ("title", "value")]
        both = one.rename(columns={"value": "first"}).merge(other.rename(columns={"value": "second"}), on=units)
        frame = paired_table(both, names, BOUNDS[of], level)
        frame.insert(0, "second", other["title"].iloc[0])
        frame.insert(0, "first", one["title"].iloc[0])
        return frame

    def compare_levels(
        self,
        factor: str | Sequence[str],
        protocol: str,
        *,
        minus: str | None = None,
        by: str | Sequence[str] | None = None,
        of: str = "cost",
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Difference of each level of a factor from its first, catalogue by catalogue; see :meth:`compare`.

        Args:
            factor: its name; of several, how the step of the first one changes with the levels of the next.
            protocol: of whose cost.
            minus: a second protocol, whose cost is taken away in each cell: how a level changes their difference.
            by: further factors: one row per level of these too.
            of: ``cost`` or ``tau``.
            level: of the intervals.
        """
        factors = self._grouping(factor)
        names = self._grouping(by)
        values = self._outcomes(self._of(protocol), of)
        title = values["title"].iloc[0]
        units = [name for name in values.columns if name not in ("title", "value")]
        bound = BOUNDS[of]
        if minus is not None:
            other = self._outcomes(self._of(minus), of)
            title = f"{title} - {other['title'].iloc[0]}"
            both = values.merge(other, on=units, suffixes=("", "_minus"))
            values = both.assign(value=both["value"] - both["value_minus"])
            bound *= 2.0
        for step in factors:
            values = steps_from_first(values[[*units, "value"]], step)
        frame = paired_table(values, [*factors, *names], bound * 2.0 ** (len(factors) - 1), level)
        frame.insert(0, "protocol", title)
        return frame

    def to_latex(self, protocols: Sequence[str] | None = None) -> str:
        """Format the summary as a LaTeX table (booktabs).

        Args:
            protocols: names, metrics or titles; all where None.
        """
        import pandas as pd

        rows = []
        for row in self.summary():
            if not is_named(row, protocols):
                continue
            n = row["catalogues"]
            decided = row["decides"]["count"]
            right = row["right_if_decided"]
            cells = {
                **{name: row["levels"].get(name, "") for name in self.factors},
                "protocol": row["title"],
                "decides": f"{decided} of {n}",
                "right where it decides": "--" if right is None else f"{right['count']} of {decided}",
                "loss there (%)": _loss(row["cost_decided"]),
                "right if it always decides": f"{row['best']['count'] + row['indistinguishable']['count']} of {n}",
                "loss then (%)": _loss(row["cost_share"]),
            }
            rows.append(cells)
        table: str = pd.DataFrame(rows, dtype=str).to_latex(index=False, escape=True)
        return table.replace("<", "$<$")

    def plot(
        self,
        path: str | Path,
        *,
        by: str | Sequence[str] | None = None,
        of: str = "cost",
        protocols: Sequence[str] | None = None,
    ) -> None:
        """Draw each protocol's mean cost or tau by the levels of a factor, or its cost by how often it decides.

        Args:
            path: of the figure, as SVG, PDF or PNG by its ending.
            by: a factor, along the axis (the first one where None), or two, the second one as panels; means are over
                the levels of the others (:meth:`means`).
            of: ``cost`` or ``tau``, with intervals over catalogues; or ``risk``, :meth:`risk_coverage` of every
                protocol that abstains somewhere, a curve per level of ``by``.
            protocols: names, metrics or titles of those that are drawn; all where None.
        """
        _plot(self, path_of(path), self._grouping(by), of, protocols)

    def sentences(self) -> list[str]:
        """Describe each row of the summary in a sentence."""
        return [_sentence(row) for row in self.summary()]


def _cell_columns(result: Result) -> Levels:
    """Return the columns of a result's cell: its world, its preset and the level of every factor."""
    config = result["run_config"]
    return {"world": config["world"]["name"], "preset": config["preset"], **result["levels"]}


def _most(judgement: Judged) -> float | None:
    """Return the largest possible cost: all of the best value, where values are gains."""
    if judgement.get("larger", True) and judgement["best_truth"] > 0:
        return 1.0
    return None


def _summarised(rows: Sequence[Judged], level: float, users: Mapping[str, int | None], one_target: bool) -> Row:
    """Summarise the judgements of one ranking.

    Args:
        rows: judgements, at least one.
        level: nominal coverage of the intervals.
        users: number of users of an A/B test's arm, by cell.
        one_target: whether its cell has no other target.
    """
    first = rows[0]
    decided = [j for j in rows if not j["abstains"]]
    most = _most(first)

    def outcomes(outcome: str) -> Share:
        return share([j["outcome"] == outcome for j in rows], level)

    def costs(judged: Sequence[Judged]) -> Mean:
        return mean([j["cost_share"] for j in judged], level, least=0.0, largest=most)

    return {
        "study": first["study"],
        "protocol": first["protocol"],
        "metric": first["metric"],
        "target": first["target"],
        "title": first["title"],
        "catalogues": len(rows),
        "best": outcomes(BEST),
        "indistinguishable": outcomes(INDISTINGUISHABLE),
        "costs": outcomes(COSTS),
        "unusable": share([j["pick"] in j["unusable"] for j in rows], level),
        "decides": share([not j["abstains"] for j in rows], level),
        "right_if_decided": share([j["outcome"] != COSTS for j in decided], level) if decided else None,
        "cost_decided": costs(decided),
        "cost_share": costs(rows),
        "kendall_tau": mean([j["kendall_tau"] for j in rows], level, least=-1.0, largest=1.0),
        "best_by_upper_bound": share([j["pick_by_upper_bound"] == j["best"] for j in rows], level),
        "tau_by_upper_bound": mean([j["tau_by_upper_bound"] for j in rows], level, least=-1.0, largest=1.0),
        "picks": dict(sorted(collections.Counter(j["pick"] for j in rows).items())),
        "levels": first["levels"],
        "users_per_arm": users.get(first["study"]) if first["protocol"] == AB_TEST else None,
        "one_target": one_target,
    }


def _sentence(row: Row) -> str:
    n = row["catalogues"]
    sentence = f"{sized(row)} picks the best agent in {row['best']['count']} of {n} catalogues"
    if not row["one_target"]:
        sentence = f"{row['target']}, {sentence}"
    for words, count in (("a tie with it", row["indistinguishable"]), ("a worse one", row["costs"])):
        if count["count"]:
            sentence += f", {words} in {count['count']}"
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    cost = row["cost_share"]
    if cost["mean"] is not None:
        sentence += f" On average its picks cost {percent(cost)} of the {row['target']}."
    abstains = n - row["decides"]["count"]
    if abstains:
        sentence += f" In {abstains} of {n} it should abstain: too little data."
    levels = ", ".join(f"{name} {value}" for name, value in row["levels"].items())
    if levels:
        return f"{levels}: {sentence}"
    return sentence


def sized(row: Row) -> str:
    """Return the title of a row of the summary; an A/B test's with its size."""
    users = row["users_per_arm"]
    if users is None:
        return row["title"]
    return f"{row['title']} ({users:,} users per arm)"


def percent(share: Mean) -> str:
    """Format a mean share with its interval, in per cent."""
    value, *ends = (two_digits(number) for number in (share["mean"], share["low"], share["high"]) if number is not None)
    if ends:
        return f"{value}% [{', '.join(ends)}]"
    return f"{value}%"


def _loss(share: Mean) -> str:
    if share["mean"] is None:
        return "--"
    return percent(share).replace("%", "")


def _plot(study: Study, path: Path, by: Sequence[str], of: str, protocols: Sequence[str] | None = None) -> None:
    """Draw and write the figure of :meth:`Study.plot`."""
    from matplotlib.figure import Figure

    if of != RISK and of not in _LABELS:
        raise UserError(f"of must be cost, tau or risk, got {of!r}")
    if of != RISK and len(by) > _MOST_FACTORS:
        raise UserError(f"by has {len(by)} factors: give one for the axis, and one more for panels")
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    if of == RISK:
        axes = figure.subplots()
        _draw_risk(axes, study, by, protocols)
        handles = axes.get_legend_handles_labels()
    else:
        handles = _draw_panels(figure, study, by or study.factors[:1], of, protocols)
    figure.legend(*handles, loc="outside right upper", frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "svg")


def _draw_risk(axes: Any, study: Study, by: Sequence[str], protocols: Sequence[str] | None) -> None:
    """Draw mean cost against the share of comparisons in which it decides, for each protocol that may abstain."""
    abstaining = [j["title"] for j in study.judgements() if j["abstains"] and is_named(j, protocols)]
    for title in dict.fromkeys(abstaining):
        curves = study.risk_coverage(title, by)
        groups: list[Any] = [((), curves)]
        if by:
            groups = list(curves.groupby(list(by), sort=False, dropna=False))
        for levels, curve in groups:
            label = ", ".join([title, *(f"{name} {level}" for name, level in zip(by, levels, strict=True))])
            axes.plot(100.0 * curve["decides"], 100.0 * curve["cost"], drawstyle="steps-post", label=label)
    axes.set_xlabel("decides, % of the catalogues")
    axes.set_ylabel("mean cost there, % of the best")


def _draw_panels(figure: Any, study: Study, by: Sequence[str], of: str, protocols: Sequence[str] | None) -> Any:
    """Draw one panel per level of the second factor, and return the legend's handles and labels."""
    means = study.means(by, of=of, protocols=protocols)
    panels = [("", means)]
    if len(by) > 1:
        panels = [(f"{by[1]} {level}", part) for level, part in means.groupby(by[1], sort=False, dropna=False)]
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, panel) in zip(all_axes, panels, strict=True):
        _draw_means(axes, panel, by[0] if by else None, 100.0 if of == "cost" else 1.0, len(panels))
        axes.set_title(title, fontsize="medium")
    all_axes[0].set_ylabel(_LABELS[of])
    return all_axes[0].get_legend_handles_labels()


def _draw_means(axes: Any, means: pd.DataFrame, factor: str | None, scale: float, panels: int) -> None:
    """Draw means as points, one colour per protocol, with intervals where there are any; one of several panels."""
    levels = ["all"] if factor is None else list(dict.fromkeys(means[factor]))
    series = list(means.groupby("title", sort=False))
    for place, (title, points) in enumerate(series):
        shift = _WIDTH * ((place + 0.5) / len(series) - 0.5)
        at = [shift] * len(points)
        if factor is not None:
            at = [levels.index(level) + shift for level in points[factor]]
        colour = f"C{place}"
        axes.plot(at, scale * points["mean"], "o", color=colour, label=title)
        axes.vlines(at, scale * points["low"].astype(float), scale * points["high"].astype(float), color=colour)
    room = max(_LEAST_ROOM, _ROOM // (len(levels) * panels))
    axes.set_xticks(range(len(levels)), [textwrap.fill(str(level), room) for level in levels], fontsize="small")
    axes.set_xlabel(factor or "")
