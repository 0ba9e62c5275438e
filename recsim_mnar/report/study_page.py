"""Presentation of a study: its files, its table, and the distribution over catalogues."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from recsim_mnar.errors import printable
from recsim_mnar.protocols.records import two_digits
from recsim_mnar.protocols.scoreboard import WIDTH, aligned
from recsim_mnar.report.charts import MANY_TICKS, PER_CENT, Chart, Dot, axis_of, dots, room_for, shares
from recsim_mnar.report.page import headed
from recsim_mnar.report.template import Finding, downloads_of, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.studies.design import Levels
from recsim_mnar.studies.paired import LEAST, Mean, Share
from recsim_mnar.studies.result import Always, Row, Study, percent, sized

KINDS = {"best": "good", "tie": "tie", "worse": "bad"}
"""What may come of a method's pick, and the class of its colour."""


def write_study(folder: Path, study: Study, seconds: float) -> None:
    """Write ``results.json``, ``summary.json``, ``timings.json`` and ``report.html``.

    Args:
        folder: that exists; the tasks' own results are in it.
        study: what was found.
        seconds: wall time of this run.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.write_json("results.json", headed(study.rows()))
        summary = {
            "settings": study.settings,
            "summary": study.summary(),
            "always": study.always(),
            "judgements": study.judgements(),
        }
        into.write_json("summary.json", summary)
        with into.recording("report.html") as path:
            _write_page(path, study)
        # Of times there is no receipt: they differ.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "tasks": study.seconds})


def _write_page(path: Path, study: Study) -> None:
    summary = study.summary()
    several = len({row["catalogues"] for row in summary}) > 1
    heads = [head for head in COLUMNS if several or head != "catalogues"]
    places, levels = _levels_of(study, [(row["study"], row["levels"]) for row in summary])
    write_from(
        "study.html",
        path,
        study.settings,
        of_study(study),
        figures_of(study),
        downloads=downloads_of("judgements", study.judgements()),
        heads=[*places, *heads],
        rows=[[*first, *(COLUMNS[head](row) for head in heads)] for first, row in zip(levels, summary, strict=True)],
        sentences=study.sentences(),
        catalogues=max((row["catalogues"] for row in summary), default=0),
        agents=agents_table(study),
        pairs=paired_rows(study),
        names=list(dict.fromkeys(row["agent"] for row in study.rows())),
    )


def of_study(study: Study) -> Finding | None:
    """Summarise the average loss of each protocol's picks over all cells, least first; of the first target."""
    summary = study.summary()
    first = [(row["cost_share"]["mean"], row) for row in summary if row["target"] == summary[0]["target"]]
    known_losses = [(loss, row) for loss, row in first if loss is not None]
    rows: dict[str, list[tuple[float, Row]]] = {}
    for loss, row in sorted(known_losses, key=lambda one: one[0]):
        rows.setdefault(row["title"], []).append((loss, row))
    if not rows:
        return None
    text = "; ".join(_loss_in_words(title, losses) for title, losses in rows.items())
    cells = len({row["study"] for _, row in known_losses})
    if cells > 1:
        return Finding(f"In {cells} cells, means over catalogues: {text}.", "", "")
    return Finding(f"{text[0].upper()}{text[1:]}.", "", "")


def _loss_in_words(title: str, rows: list[tuple[float, Row]]) -> str:
    """Describe a protocol's loss in every cell, that of the least loss first."""
    least = two_digits(rows[0][0])
    most = two_digits(rows[-1][0])
    if least == most:
        loss = f"{least} %"
    else:
        loss = f"{least} to {most} %"
    n = sum(row["catalogues"] for _, row in rows)
    right = sum(row["best"]["count"] + row["indistinguishable"]["count"] for _, row in rows)
    abstains = n - sum(row["decides"]["count"] for _, row in rows)
    if abstains:
        doubt = f" (too little data to decide in {abstains})"
    else:
        doubt = ""
    return f"{title} picks the best or a tie in {right} of {n} and loses {loss}{doubt}"


def _levels_of(study: Study, cells: Sequence[tuple[str, Levels]]) -> tuple[list[str], list[list[str]]]:
    """Heads and texts that say which setup and levels each row is of."""
    setups = [_setup_in_words(study, *cell) for cell in cells]
    levels = [[str(own_levels.get(name, "")) for name in study.factors] for _, own_levels in cells]
    if len(set(setups)) <= 1:
        return study.factors, levels
    return ["setup", *study.factors], [[setup, *own_levels] for setup, own_levels in zip(setups, levels, strict=True)]


COLUMNS: dict[str, Callable[[Row], str]] = {
    "protocol": lambda row: sized(row),
    "catalogues": lambda row: str(row["catalogues"]),
    "decides": lambda row: _share(row, row["decides"]),
    "picks the best": lambda row: _share(row, row["best"]),
    "tied": lambda row: _share(row, row["indistinguishable"]),
    "picks a worse one": lambda row: _share(row, row["costs"]),
    "mean loss where it decides": lambda row: _cost(row["cost_decided"]),
    "mean loss deciding always": lambda row: _cost(row["cost_share"]),
    "Kendall's tau": lambda row: _mean(row["kendall_tau"]),
}
"""Heads of the summary's table, and the text of each cell from a row of the summary."""


def _cost(found: Mean) -> str:
    if found["mean"] is None:
        return "-"
    return percent(found)


def _share(row: Row, found: Share) -> str:
    if row["catalogues"] < LEAST:  # the interval of a share says nothing there
        return _counted(row, found)
    return f"{found['share']:.0%} [{found['low']:.0%}, {found['high']:.0%}]"


def _counted(row: Row, *found: Share) -> str:
    return f"{sum(value['count'] for value in found)} of {row['catalogues']}"


def _mean(found: Mean) -> str:
    if found["mean"] is None:
        return "-"
    if found["low"] is None:
        limits = ""
    else:
        limits = f" [{found['low']:.2f}, {found['high']:.2f}]"
    return f"{found['mean']:.2f}{limits}"


class Line(NamedTuple):
    """A line of the terminal's table: texts under its heads, which are :data:`TERMINAL`."""

    protocol: str
    decides: str
    loss_there: str
    right: str
    loss: str


TERMINAL = Line("protocol", "decides", "loss there", "right*", "loss*")


def _line(row: Row) -> Line:
    right = _counted(row, row["best"], row["indistinguishable"])
    return Line(_head(row), _counted(row, row["decides"]), _cost(row["cost_decided"]), right, _cost(row["cost_share"]))


def study_lines(study: Study) -> list[str]:
    """The summary for a terminal of 80 columns: one row per level of every factor and protocol."""
    summary = study.summary()
    if not summary:
        return ["Nothing to judge: no protocol ranked two agents with a known truth."]
    always = _always_once(study.always())
    table = [TERMINAL, *map(_line, summary)]
    table += [Line(f"always {one['agent']}", "-", "-", "-", _cost(one["cost"])) for one in always]
    cells_of_rows = [(row["study"], row["levels"]) for row in summary] + [
        (one["study"], one["levels"]) for one in always
    ]
    places, levels = _levels_of(study, cells_of_rows)
    for column in TERMINAL._fields:
        if max(map(len, aligned(table))) > WIDTH:  # the report has all intervals
            table = [line._replace(**{column: _without_interval(getattr(line, column))}) for line in table]
    head, *texts = aligned(table)
    cells: dict[str, list[str]] = {}
    for values, line in zip(levels, texts, strict=True):
        names = [f"{place} {value}" for place, value in zip(places, values, strict=True) if value]
        cells.setdefault(", ".join(names), []).append(line)
    lines = [head]
    for name, own_cells in cells.items():
        heading = [name] if name else []
        lines += [*([""] if len(cells) > 1 else []), *heading, *own_cells]
    n = max(row["catalogues"] for row in summary)
    if "setup" in places:
        title = "several setups"
    else:
        title = _setup_in_words(study, summary[0]["study"], summary[0]["levels"])
    if any("[" in line for line in lines):
        limits = f" [ ] 95 % intervals, from {LEAST} catalogues on."
    else:
        limits = ""
    notes = [
        f"Loss: mean share of the best true value.{limits}",
        "A protocol decides where its data suffice, and is right if it picks the best or",
        "a tie. * if it decides in all catalogues",
    ]
    return [printable(line) for line in (f"{title}: {n:,} catalogues", "", *lines, "", *notes)]


def _without_interval(text: str) -> str:
    return text.partition(" [")[0]


def _always_once(always: list[Always]) -> list[Always]:
    """Always picking the single best agent; once where it costs the same in all cells."""
    if len(always) > 1 and all(one["cost"] == always[0]["cost"] for one in always):
        return [{**always[0], "levels": {}}]
    return always


def _setup_in_words(study: Study, cell: str, levels: Levels) -> str:
    """World and preset of a cell; a factor among them is a column of its own."""
    config = next((r.get("run_config", {}) for r in study.results if r["cell"] == cell), {})
    known_fields = {"world": config.get("world", {}).get("name", ""), "preset": config.get("preset")}
    return ", ".join(text for name, text in known_fields.items() if text and name not in levels) or cell


def paired_rows(study: Study) -> list[tuple[str, list[str]]]:
    """Differences of mean losses, the first protocol's from each other's; none below five catalogues."""
    judgements = study.judgements()
    titles = list(dict.fromkeys(j["title"] for j in judgements))
    several_targets = len({j["target"] for j in judgements}) > 1
    if several_targets or len({j["catalogue"] for j in judgements}) < LEAST:
        return []
    rows = []
    for other in titles[1:]:
        comparison = study.compare(titles[0], other).iloc[0]
        if math.isnan(comparison["low"]):
            continue
        points = [f"{100 * comparison[name]:.2g}" for name in ("difference", "low", "high")]
        p_values = [f"{comparison[name]:.2g}" for name in ("p_t", "p_wilcoxon")]
        rows.append((f"{titles[0]} - {other}", [f"{points[0]} [{points[1]}, {points[2]}]", *p_values]))
    return rows


class Means(NamedTuple):
    """A table of a study's page: one row per metric, one column per agent."""

    study: str
    heads: list[str]
    rows: list[tuple[str, list[str]]]


def agents_table(study: Study) -> list[Means]:
    """Mean of every metric over catalogues: one table per study."""
    tables: dict[str, dict[str, dict[tuple[str, str], list[float]]]] = {}
    for row in study.rows():
        if row["value"] is not None:
            rows_of_agent = tables.setdefault(row["study"], {}).setdefault(row["agent"], {})
            rows_of_agent.setdefault((row["protocol"], row["metric"]), []).append(row["value"])
    means = []
    for name, agents in tables.items():
        heads = sorted(
            dict.fromkeys(head for rows_of_agent in agents.values() for head in rows_of_agent),
            key=lambda h: h[0] != "truth",
        )
        rows = [
            (
                " ".join(h),
                [
                    f"{sum(rows_of_agent[h]) / len(rows_of_agent[h]):.5f}" if h in rows_of_agent else "-"
                    for rows_of_agent in agents.values()
                ],
            )
            for h in heads
        ]
        means.append(Means(name, [*agents], rows))
    return means


# ------------------------------------------------------------------------------------------------------------- charts


def figures_of(study: Study) -> list[Chart]:
    """Two charts per setup: what each protocol's picks lose, and how often they are the best."""
    charts: list[Chart] = []
    summary = study.summary()
    setups = list(dict.fromkeys(row["study"] for row in summary))
    for name in setups:
        own_rows = sorted((r for r in summary if r["study"] == name), key=lambda r: r["cost_share"]["mean"] or 0.0)
        if len(setups) > 1:
            before = f"{name}: "
        else:
            before = ""
        caption = (
            "Each small dot is one catalogue: the share of the best true value that the pick loses; hollow where the "
            "protocol abstains. The large dot is the mean, the line its 95 % interval."
        )
        title = f"{before}What each protocol's picks lose"
        charts.append(Chart(title, costs_chart(study, own_rows), caption, folded=bool(charts)))
        outcomes = {_head(row): (row["best"], row["indistinguishable"], row["costs"]) for row in own_rows}
        parts = {
            head: {kind: kind_rows["share"] for kind, kind_rows in zip(KINDS, of_head, strict=True)}
            for head, of_head in outcomes.items()
        }
        notes = {_head(row): f"best or tied: {_line(row).right}" for row in own_rows}
        caption = "Share of catalogues in which the pick is the best agent, a tie with it, or a worse one."
        charts.append(Chart(f"{before}How often each protocol is right", shares(parts, KINDS, notes), caption))
    return charts


def _head(row: Row) -> str:
    """A protocol at the head of a chart's row, with its target where it has several."""
    if row["one_target"]:
        return row["title"]
    return f"{row['target']}, {row['title']}"


def costs_chart(study: Study, own: list[Row]) -> str:
    """One row per ranking, that of the least mean cost first."""
    clouds: dict[tuple[str, str, str], list[tuple[float, bool]]] = {}
    for j in study.judgements():
        if j["cost_share"] is not None:
            cloud = clouds.setdefault((j["study"], j["protocol"], j["metric"]), [])
            cloud.append((j["cost_share"], j["abstains"]))
    rows = []
    for row in own:
        cost = row["cost_share"]
        users = row["users_per_arm"]
        if cost["mean"] is None:
            continue
        low, high = (math.nan if end is None else end for end in (cost["low"], cost["high"]))
        cloud = clouds.get((row["study"], row["protocol"], row["metric"]), [])
        if users is None:
            note = ""
        else:
            note = f"{users:,} users per arm"
        rows.append(Dot(_head(row), cost["mean"], low, high, cloud=cloud, note=note))
    return dots(sorted(rows, key=lambda row: row.value), PER_CENT, axis_of(0.0, room_for(rows).high, MANY_TICKS))
