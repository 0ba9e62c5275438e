"""Results of a study: one tidy table, each protocol's results over catalogues, and paired comparisons."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from recsim_mnar.runs.files import path_of
from recsim_mnar.studies.design import Levels, Result, WallTimes
from recsim_mnar.studies.paired import BOUNDS, LEAST, Mean, Share, mean, paired_table, share, steps_from_first

if TYPE_CHECKING:
    import pandas as pd

AB_TEST = "ab_test"


Judged = Mapping[str, Any]
"""Judgement on one ranking: its cell (``study``), levels and catalogue, and the fields of a ``Judgement``."""


class Row(TypedDict):
    """Summary of one ranking over catalogues, one row of :meth:`Study.summary`.

    Attributes:
        study: label of the cell.
        protocol, metric: names of the protocol and its metric.
        target: true value that the ranking should order agents by.
        title: title of the ranking for readers.
        catalogues: number of catalogues.
        best, indistinguishable, costs: shares of catalogues by outcome of the pick; their counts sum to ``catalogues``.
        unusable: share of catalogues in which the protocol's value of the picked agent is unusable.
        decides: share of catalogues in which the protocol does not abstain.
        right_if_decided: share of best picks and ties among the decided catalogues; None without any.
        cost_decided: mean cost of the picks in the decided catalogues.
        cost_share: mean cost of the picks in all catalogues.
        kendall_tau: mean rank correlation with the truth.
        best_by_upper_bound, tau_by_upper_bound: share of best picks and mean rank correlation of a ranking by upper
            ends of intervals.
        picks: number of catalogues by picked agent.
        levels: level of each factor.
        users_per_arm: number of users of an A/B test's arm; None for other protocols.
        one_target: whether the cell has rankings for one target only.
    """

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
    """Agent with the least mean cost if it is picked in every catalogue, for one cell and target."""

    study: str
    levels: Levels
    target: str
    agent: str
    cost: Mean


@dataclass(frozen=True)
class Study:
    """Results of a study.

    Attributes:
        settings: manifest of the design; JSON types.
        results: one result per cell and catalogue, in the order of the design.
        seconds: by label of a task, wall time of the task and of its records; tasks without times are left out.
    """

    settings: Mapping[str, Any]
    results: Sequence[Result]
    seconds: Mapping[str, WallTimes] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path) -> Study:
        """Read a finished study from its folder.

        Raises:
            UserError: the folder holds no study, or one that is not finished.
        """
        path = path_of(folder)
        try:
            settings = json.loads((path / "study.json").read_text())
            names = [f"{cell}-{c:03d}" for cell in settings["cells"] for c in range(settings["catalogues"])]
            results = [json.loads((path / "tasks" / f"{name}.json").read_text()) for name in names]
            return cls(settings, results, wall_times_in(path))
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

        rows = [row for r in self.results for row in self._rows_of_frame(r)]
        # A factor may be the world or the preset itself.
        columns = [*self.factors, "world", "preset", "catalogue", "seed", *TIDY]
        frame = pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))
        return frame.astype(TIDY_TYPES)

    def _rows_of_frame(self, result: Result) -> list[Mapping[str, Any]]:
        """Return the rows of :meth:`frame` for one result; ``seconds`` is None where the task has no times."""
        about = {**_cell_columns(result), "catalogue": result["catalogue"], "seed": result["seed"]}
        times = self.seconds.get(f"{result['cell']}-{result['catalogue']:03d}")
        seconds = [] if times is None else times["records"]
        rows = tidy_rows(result["records"], result["judgements"])
        # zip_longest fills in None for rows without a time.
        return [{**about, **row, "seconds": time} for row, time in itertools.zip_longest(rows, seconds[: len(rows)])]

    def judgements(self) -> list[Judged]:
        """Return every judgement with its cell, levels and catalogue."""
        return [
            {"study": r["cell"], "levels": r["levels"], "catalogue": r["catalogue"], **judgement}
            for r in self.results
            for judgement in r["judgements"]
        ]

    def summary(self, level: float = 0.95) -> list[Row]:
        """Summarise every ranking over catalogues: one dictionary (:class:`Row`) per cell, protocol and metric.

        ``pandas.DataFrame(study.summary())`` is a table of them. Its entries are counts, tables
        ``{"share": ...}`` of catalogues with their interval, or tables ``{"mean": ...}`` over catalogues;
        :meth:`sentences` has them in words.

        A pick is ``best``, ``indistinguishable`` from the best (a tie: the loss is within the error of the simulated
        truth) or ``costs``: exactly one of the three.

        Args:
            level: nominal coverage of the intervals over catalogues: Wilson's for shares. Those of mean costs hold for
                any distribution up to the largest cost of an agent in a catalogue. Means have none for fewer than
                :data:`LEAST` catalogues.
        """
        groups: dict[tuple[str, str, str, str], list[Judged]] = {}
        targets: dict[str, set[str]] = {}
        for j in self.judgements():
            groups.setdefault((j["study"], j["protocol"], j["metric"], j["target"]), []).append(j)
            targets.setdefault(j["study"], set()).add(j["target"])
        users = {row["study"]: row["details"].get("users") for row in self.rows() if row["protocol"] == AB_TEST}
        costs = self._costs_of_agents()
        return [
            _summarise(judged, level, users, _largest_cost(costs[study, target]), one_target=len(targets[study]) == 1)
            for (study, _, _, target), judged in groups.items()
        ]

    def always(self, level: float = 0.95) -> list[Always]:
        """Find the agent with the least mean cost if it is picked in every catalogue, in hindsight.

        Only agents with a known cost in all catalogues of a cell take part.

        Args:
            level: nominal coverage of the cost's interval.

        Returns:
            One row per cell and target; none where no agent has a known cost everywhere.
        """
        rows: list[Always] = []
        for (study, target), costs in self._costs_of_agents().items():
            results = [r for r in self.results if r["cell"] == study]
            means = {agent: sum(of_agent) for agent, of_agent in costs.items() if len(of_agent) == len(results)}
            if means:
                agent = min(means, key=lambda name: means[name])
                cost = mean(costs[agent], level, least=0.0, largest=_largest_cost(costs))
                rows.append(
                    {"study": study, "levels": results[0]["levels"], "target": target, "agent": agent, "cost": cost}
                )
        return rows

    def _costs_of_agents(self) -> dict[tuple[str, str], dict[str, list[float]]]:
        """Return, by cell and target, the cost of each agent in each catalogue in which it is known."""
        costs: dict[tuple[str, str], dict[str, list[float]]] = {}
        for r in self.results:
            # An agent's cost is the same for all rankings with one target.
            for target, j in {j["target"]: j for j in r["judgements"]}.items():
                of_cell = costs.setdefault((r["cell"], target), {})
                for row in tidy_rows(r["records"], [j]):
                    if row["cost"] is not None:
                        of_cell.setdefault(str(row["agent"]), []).append(cast("float", row["cost"]))
        return costs

    def _judgements_on(self, protocol: str) -> list[Judged]:
        """Return the judgements on one metric of a protocol, the first one if it has several.

        Args:
            protocol: name, metric or title of the protocol, or the beginning of a title.

        Raises:
            UserError: the study has no such protocol.
        """
        judged = self.judgements()
        matching = [j for j in judged if is_named(j, [protocol])]
        matching = matching or [j for j in judged if j["title"].startswith(protocol)]
        if not matching:
            names = dict.fromkeys(name for j in judged for name in (j["protocol"], j["metric"], j["title"]))
            raise UserError(f"the study has no protocol {protocol!r}; {nearest(protocol, names)}")
        return [j for j in matching if j["metric"] == matching[0]["metric"]]

    def _grouping(self, by: str | Sequence[str] | None) -> list[str]:
        """Return names of factors, ``world`` or ``preset`` as a list, [] for None.

        Raises:
            UserError: the study has no factor of that name.
        """
        if isinstance(by, str):
            names = [by]
        else:
            names = list(by or ())
        columns = [*self.factors, "world", "preset"]
        for name in names:
            if name not in columns:
                raise UserError(f"the study has no factor {name!r}; {nearest(name, columns)}")
        return names

    def _table_of_values(self, judgements: Sequence[Judged], of: str) -> pd.DataFrame:
        """Tabulate the costs or rank correlations of judgements; those without a value are left out.

        Args:
            judgements: at least one.
            of: ``cost`` or ``tau``.

        Returns:
            One row per judgement: ``setup``, ``world``, ``preset``, the factors, ``catalogue``, ``title`` (which
            begins with the target if there are several) and ``value``.

        Raises:
            UserError: ``of`` is neither.
        """
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

    def where(self, levels: Levels) -> Study:
        """Return the study of the cells at these levels.

        Args:
            levels: level by factor, ``world`` or ``preset``; None for cells that do not set the factor.
        """
        self._grouping(list(levels))
        kept = [r for r in self.results if all(_cell_columns(r).get(name) == levels[name] for name in levels)]
        return replace(self, results=kept)

    def _check_balanced(self, names: Sequence[str]) -> None:
        """Raise UserError if the cells at the levels of some factors differ in others, so that means mix the two."""
        others = [name for name in self.factors if name not in names]
        cells: dict[str, set[str]] = {}
        for columns in map(_cell_columns, self.results):
            of_group = cells.setdefault(repr([columns.get(name) for name in names]), set())
            of_group.add(repr([columns.get(name) for name in others]))
        if len(set(map(frozenset, cells.values()))) > 1:
            raise UserError(
                f"the cells at the levels of {listed(names)} differ in {listed(others)} too, so their means are of "
                "different things. Name these in by, or keep one level of each with study.where"
            )

    def means(
        self,
        by: str | Sequence[str] | None = None,
        *,
        of: str = "cost",
        protocols: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Compute each protocol's mean cost or tau over catalogues, by the levels of factors.

        Cells of one catalogue are not independent: their mean is one value.

        Args:
            by: a factor or several; None for all cells together.
            of: ``cost`` (share of the best true value) or ``tau`` (Kendall's tau with the truth).
            protocols: names, metrics or titles of protocols; None for all.
            level: nominal coverage of the intervals, which are None for fewer than :data:`LEAST` catalogues.

        Returns:
            One row per level and protocol: the factors, ``title`` (of the protocol), ``mean`` of the cost or tau over
            catalogues, ``low`` and ``high`` end of its interval, and ``n`` (catalogues).

        Raises:
            UserError: cells at different levels of ``by`` differ in other factors, too.
        """
        import pandas as pd

        names = [*self._grouping(by), "title"]
        self._check_balanced(names[:-1])
        judged = [j for j in self.judgements() if is_named(j, protocols)]
        if not judged:
            raise UserError(f"the study has none of the protocols {listed(list(protocols or ['none']))}")
        limits = {"least": -1.0, "largest": 1.0}
        if of == "cost":
            limits = {"least": 0.0, "largest": _largest_cost(*self._costs_of_agents().values())}
        rows = []
        for group, outcomes in self._table_of_values(judged, of).groupby(names, sort=False, dropna=False):
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
        """Compare two protocols catalogue by catalogue; the mean over a catalogue's cells is one value of a pair.

        Args:
            first: name, metric or title of a protocol; its first metric, if it has several.
            second: name, metric or title of another protocol.
            by: a factor or several, for one row per combination of levels; None for one row of all cells together.
            of: ``cost`` (share of the best true value) or ``tau`` (Kendall's tau with the truth).
            level: nominal coverage of the intervals.

        Returns:
            One row per level: ``first`` and ``second`` (titles), ``n`` catalogues, in ``n_above`` of which the first is
            the larger and in ``n_below`` the smaller, ``difference`` (first - second) with ``low`` and ``high``,
            p-values of the paired t-test and of Wilcoxon's signed-rank test, and both adjusted over the rows by Holm
            (1979).
        """
        names = self._grouping(by)
        of_first = self._table_of_values(self._judgements_on(first), of)
        of_second = self._table_of_values(self._judgements_on(second), of)
        units = [name for name in of_first.columns if name not in ("title", "value")]
        pairs = of_first.rename(columns={"value": "first"}).merge(
            of_second.rename(columns={"value": "second"}), on=units
        )
        frame = paired_table(pairs, names, BOUNDS[of], level)
        frame.insert(0, "second", of_second["title"].iloc[0])
        frame.insert(0, "first", of_first["title"].iloc[0])
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
        """Compare each level of a factor with its first level, catalogue by catalogue.

        Args:
            factor: name of the factor; several names for their interaction: how the difference between levels of the
                first factor changes between levels of the next one.
            protocol: name, metric or title of the protocol whose cost is compared.
            minus: a second protocol, whose cost is subtracted in each cell, to see how levels change the difference of
                the two; None for the cost of ``protocol`` alone.
            by: further factors, for one row per combination of their levels.
            of: ``cost`` or ``tau``.
            level: nominal coverage of the intervals.

        Returns:
            One row per further level (or pair of levels): ``protocol``, the factors, and the numbers of
            :meth:`compare`.
        """
        factors = self._grouping(factor)
        names = self._grouping(by)
        values = self._table_of_values(self._judgements_on(protocol), of)
        title = values["title"].iloc[0]
        units = [name for name in values.columns if name not in ("title", "value")]
        bound = BOUNDS[of]
        if minus is not None:
            other = self._table_of_values(self._judgements_on(minus), of)
            title = f"{title} - {other['title'].iloc[0]}"
            both = values.merge(other, on=units, suffixes=("", "_minus"))
            values = both.assign(value=both["value"] - both["value_minus"])
            bound *= 2.0
        for step in factors:
            values = steps_from_first(values[[*units, "value"]], step)
        # Each further factor is a difference of differences, whose largest possible value is twice as large.
        bound *= 2.0 ** (len(factors) - 1)
        frame = paired_table(values, [*factors, *names], bound, level)
        frame.insert(0, "protocol", title)
        return frame

    def table(self, protocols: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the summary as texts, with 95 % intervals over catalogues: one row per cell and protocol.

        Args:
            protocols: names, metrics or titles of protocols; None for all.

        Returns:
            The factors, and the columns of :data:`COLUMNS`.
        """
        import pandas as pd

        rows = []
        for row in self.summary():
            if is_named(row, protocols):
                levels = {name: row["levels"].get(name, "") for name in self.factors}
                rows.append({**levels, **{head: text(row) for head, text in COLUMNS.items()}})
        return pd.DataFrame(rows, columns=[*self.factors, *COLUMNS], dtype=str)

    def __str__(self) -> str:
        return str(self.table().to_string(index=False))

    def sentences(self) -> list[str]:
        """Describe each row of the summary in a sentence."""
        return [_describe(row) for row in self.summary()]


def wall_times_in(folder: Path) -> dict[str, WallTimes]:
    """Read the wall times of a study's tasks, by label; empty if the file is missing or damaged.

    Damage is no error: the file has no receipt, and no result depends on it.
    """
    try:
        return dict(json.loads((folder / "timings.json").read_text())["tasks"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _cell_columns(result: Result) -> Levels:
    """Return the columns of a result's cell: its world, its preset and the level of every factor."""
    config = result["run_config"]
    return {"world": config["world"]["name"], "preset": config["preset"], **result["levels"]}


def _largest_cost(*costs: Mapping[str, Sequence[float]]) -> float:
    """Return the largest cost of an agent in a catalogue, which no pick can exceed, among those of some cells."""
    return max((cost for of_cell in costs for of_agent in of_cell.values() for cost in of_agent), default=0.0)


def _summarise(
    rows: Sequence[Judged], level: float, users: Mapping[str, int | None], largest: float, *, one_target: bool
) -> Row:
    """Summarise the judgements on one ranking over catalogues.

    Args:
        rows: judgements, one per catalogue, at least one.
        level: nominal coverage of the intervals.
        users: number of users of an A/B test's arm, by label of the cell.
        largest: largest possible cost.
        one_target: whether the cell has rankings for one target only.
    """
    first = rows[0]
    decided = [j for j in rows if not j["abstains"]]
    right_if_decided = None
    if decided:
        right_if_decided = share([j["outcome"] != COSTS for j in decided], level)
    users_per_arm = None
    if first["protocol"] == AB_TEST:
        users_per_arm = users.get(first["study"])

    def outcomes(outcome: str) -> Share:
        return share([j["outcome"] == outcome for j in rows], level)

    def costs(judged: Sequence[Judged]) -> Mean:
        shares = [j["cost_share"] for j in judged]
        return mean(shares, level, least=0.0, largest=max([largest, *filter(None, shares)]))

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
        "right_if_decided": right_if_decided,
        "cost_decided": costs(decided),
        "cost_share": costs(rows),
        "kendall_tau": mean([j["kendall_tau"] for j in rows], level, least=-1.0, largest=1.0),
        "best_by_upper_bound": share([j["pick_by_upper_bound"] == j["best"] for j in rows], level),
        "tau_by_upper_bound": mean([j["tau_by_upper_bound"] for j in rows], level, least=-1.0, largest=1.0),
        "picks": dict(sorted(collections.Counter(j["pick"] for j in rows).items())),
        "levels": first["levels"],
        "users_per_arm": users_per_arm,
        "one_target": one_target,
    }


def _describe(row: Row) -> str:
    """Describe a row of the summary: how often the picks are best, what they cost, and how often it should abstain."""
    n = row["catalogues"]
    sentence = f"{title_with_users(row)} picks the best agent in {row['best']['count']} of {n} catalogues"
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


def full_title(row: Row) -> str:
    """Return the title of a protocol, after its target if there are several."""
    if row["one_target"]:
        return row["title"]
    return f"{row['target']}, {row['title']}"


def title_with_users(row: Row) -> str:
    """Return the full title of a row of the summary; for an A/B test with the number of users per arm."""
    users = row["users_per_arm"]
    if users is None:
        return full_title(row)
    return f"{full_title(row)} ({users:,} users per arm)"


def percent(share: Mean) -> str:
    """Format a mean share in per cent, with its interval if it has one; the mean must not be None."""
    value, *ends = (two_digits(number) for number in (share["mean"], share["low"], share["high"]) if number is not None)
    if ends:
        return f"{value}% [{', '.join(ends)}]"
    return f"{value}%"


def _format_loss(loss: Mean) -> str:
    """Format a mean loss as :func:`percent` does; "-" without a mean."""
    if loss["mean"] is None:
        return "-"
    return percent(loss)


def _format_share(row: Row, share: Share) -> str:
    """Format a share of catalogues with its interval; with too few of them for an interval, as a count."""
    if row["catalogues"] < LEAST:
        return f"{share['count']} of {row['catalogues']}"
    return f"{share['share']:.0%} [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"


def _format_tau(tau: Mean) -> str:
    """Format a mean rank correlation with its interval if it has one; "-" without a mean."""
    text = "-" if tau["mean"] is None else f"{tau['mean']:.2f}"
    if tau["low"] is None:
        return text
    return f"{text} [{tau['low']:.2f}, {tau['high']:.2f}]"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "protocol": title_with_users,
    "best pick": lambda row: _format_share(row, row["best"]),
    "tie": lambda row: _format_share(row, row["indistinguishable"]),
    "mean loss": lambda row: _format_loss(row["cost_share"]),
    "Kendall's tau": lambda row: _format_tau(row["kendall_tau"]),
    "enough data": lambda row: f"{row['decides']['count']} of {row['catalogues']}",
    "mean loss there": lambda row: _format_loss(row["cost_decided"]),
}
"""Columns of a study's table, by head, each with a function from a row of the summary to the cell's text."""
