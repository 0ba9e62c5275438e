"""What a study looks like: its files, its table, and the distribution over catalogues."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recsim_mnar.errors import printable
from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE, two_digits
from recsim_mnar.protocols.scoreboard import WIDTH
from recsim_mnar.report.charts import MANY_TICKS, PER_CENT, Chart, Dot, axis_of, dots, room_for, shares
from recsim_mnar.report.finding import Finding
from recsim_mnar.report.page import headed
from recsim_mnar.report.template import downloads_of, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.studies.paired import LEAST
from recsim_mnar.studies.result import Study, percent, sized

KINDS = {"best": "good", "tie": "tie", "worse": "bad"}
"""What may come of a method's pick, and the class of its colour."""
_KIND = dict(zip((BEST, INDISTINGUISHABLE, COSTS), KINDS, strict=True))


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
    places, levels = _levels_of(study, summary)
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
    """What each protocol's picks lose on average, over all cells, the least first; of the first target."""
    summary = study.summary()
    known = [row for row in summary if row["target"] == summary[0]["target"] and row["cost_share"]["mean"] is not None]
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(known, key=lambda row: row["cost_share"]["mean"]):
        rows.setdefault(row["title"], []).append(row)
    if not rows:
        return None
    text = "; ".join(_loss_in_words(title, own) for title, own in rows.items())
    cells = len({row["study"] for row in known})
    of = f"In {cells} cells, means over catalogues: " if cells > 1 else ""
    return Finding(f"{of}{text if of else text[0].upper() + text[1:]}.", "", "")


def _loss_in_words(title: str, rows: list[dict[str, Any]]) -> str:
    """Of a protocol in every cell, that of the least loss first."""
    least, most = (two_digits(row["cost_share"]["mean"]) for row in (rows[0], rows[-1]))
    loss = f"{least} %" if least == most else f"{least} to {most} %"
    n = sum(row["catalogues"] for row in rows)
    right = sum(row[BEST]["count"] + row[INDISTINGUISHABLE]["count"] for row in rows)
    abstains = n - sum(row["decides"]["count"] for row in rows)
    doubt = f" (too little data to decide in {abstains})" if abstains else ""
    return f"{title} picks the best or a tie in {right} of {n} and loses {loss}{doubt}"


def _levels_of(study: Study, summary: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells that say which setup and levels each row of the summary is of."""
    setups = [_setup_in_words(study, row) for row in summary]
    several = len(set(setups)) > 1
    heads = [*(["setup"] if several else []), *study.factors]
    return heads, [
        [*([setup] if several else []), *(str(row["levels"].get(name, "")) for name in study.factors)]
        for setup, row in zip(setups, summary, strict=True)
    ]


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "protocol": lambda row: sized(row),
    "catalogues": lambda row: str(row["catalogues"]),
    "decides": lambda row: _share(row, "decides"),
    "picks the best": lambda row: _share(row, BEST),
    "tied": lambda row: _share(row, INDISTINGUISHABLE),
    "picks a worse one": lambda row: _share(row, COSTS),
    "mean loss where it decides": lambda row: _cost(row["cost_decided"]),
    "mean loss deciding always": lambda row: _cost(row["cost_share"]),
    "Kendall's tau": lambda row: _mean(row["kendall_tau"]),
}
"""Heads of the summary's table, and the text of each cell from a row of the summary."""


def _cost(row: dict[str, Any] | None) -> str:
    return "-" if row is None or row["mean"] is None else percent(row)


def _share(row: dict[str, Any], name: str) -> str:
    if row["catalogues"] < LEAST:  # the interval of a share says nothing there
        return _counted(row, name)
    return f"{row[name]['share']:.0%} [{row[name]['low']:.0%}, {row[name]['high']:.0%}]"


def _counted(row: dict[str, Any], *names: str) -> str:
    return f"{sum(row[name]['count'] for name in names)} of {row['catalogues']}"


def _mean(row: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "-"
    limits = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['mean']:.2f}{limits}"


TERMINAL: dict[str, Callable[[dict[str, Any]], str]] = {
    "protocol": lambda row: _head(row),
    "decides": lambda row: _counted(row, "decides") if "decides" in row else "-",
    "loss there": lambda row: _cost(row.get("cost_decided")),
    "right*": lambda row: _right(row),
    "loss*": lambda row: _cost(row["cost_share"]),
}
"""Heads of the terminal's table, and the text of each cell from a row of the summary."""


def study_lines(study: Study) -> list[str]:
    """The summary for a terminal of 80 columns: one row per level of every factor and protocol."""
    summary = study.summary()
    if not summary:
        return ["Nothing to judge: no protocol ranked two agents with a known truth."]
    shown = [*summary, *_always_rows(study.always())]
    places, levels = _levels_of(study, shown)
    table = [list(TERMINAL), *([text(row) for text in TERMINAL.values()] for row in shown)]
    for column in range(len(TERMINAL)):
        if max(map(len, _aligned(table))) > WIDTH:  # the report has all intervals
            table = [[_without_interval(text) if i == column else text for i, text in enumerate(row)] for row in table]
    head, *texts = _aligned(table)
    cells: dict[str, list[str]] = {}
    for values, line in zip(levels, texts, strict=True):
        names = [f"{place} {value}" for place, value in zip(places, values, strict=True) if value]
        cells.setdefault(", ".join(names), []).append(line)
    lines = [head]
    for name, own in cells.items():
        heading = [name] if name else []
        lines += [*([""] if len(cells) > 1 else []), *heading, *own]
    n = max(row["catalogues"] for row in summary)
    title = "several setups" if "setup" in places else _setup_in_words(study, summary[0])
    limits = f" [ ] 95 % intervals, from {LEAST} catalogues on." if any("[" in line for line in lines) else ""
    notes = [
        f"Loss: mean share of the best true value.{limits}",
        "A protocol decides where its data suffice, and is right if it picks the best or",
        "a tie. * if it decides in all catalogues",
    ]
    return [printable(line) for line in (f"{title}: {n:,} catalogues", "", *lines, "", *notes)]


def _without_interval(text: str) -> str:
    return text.partition(" [")[0]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Rows as lines with columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:<{w}}" for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _always_rows(always: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Always picking the single best agent, as rows of the terminal's table; one row where all cells have the same."""
    if len(always) > 1 and all(one["cost"] == always[0]["cost"] for one in always):
        always = [{**always[0], "levels": {}}]
    return [{**one, "title": f"always {one['agent']}", "one_target": True, "cost_share": one["cost"]} for one in always]


def _right(row: dict[str, Any]) -> str:
    """How often the pick is the best or a tie with it."""
    return _counted(row, BEST, INDISTINGUISHABLE) if "catalogues" in row else "-"


def _setup_in_words(study: Study, row: dict[str, Any]) -> str:
    """World and preset of a row's cell; a factor among them is a column of its own."""
    own = next((r for r in study.results if r["cell"] == row["study"]), {})
    config, levels = own.get("run_config", {}), row["levels"]
    names = [
        "" if "world" in levels else config.get("world", {}).get("name", ""),
        "" if "preset" in levels else config.get("preset") or "",
    ]
    return ", ".join(filter(None, names)) or row["study"]


def paired_rows(study: Study) -> list[tuple[str, list[str]]]:
    """Differences of mean losses, the first protocol's from each other's; none below five catalogues."""
    judgements = study.judgements()
    titles = list(dict.fromkeys(j["title"] for j in judgements))
    several_targets = len({j["target"] for j in judgements}) > 1
    if several_targets or len({j["catalogue"] for j in judgements}) < LEAST:
        return []
    rows = []
    for other in titles[1:]:
        found = study.compare(titles[0], other).iloc[0]
        if math.isnan(found["low"]):
            continue
        points = [f"{100 * found[name]:.2g}" for name in ("difference", "low", "high")]
        p_values = [f"{found[name]:.2g}" for name in ("p_t", "p_wilcoxon")]
        rows.append((f"{titles[0]} - {other}", [f"{points[0]} [{points[1]}, {points[2]}]", *p_values]))
    return rows


def agents_table(study: Study) -> list[dict[str, Any]]:
    """Mean of every metric over catalogues: one table per study, one row per metric, one column per agent."""
    tables: dict[str, dict[str, dict[tuple[str, str], list[float]]]] = {}
    for row in study.rows():
        if row["value"] is not None:
            own = tables.setdefault(row["study"], {}).setdefault(row["agent"], {})
            own.setdefault((row["protocol"], row["metric"]), []).append(row["value"])
    found = []
    for name, agents in tables.items():
        heads = sorted(dict.fromkeys(head for own in agents.values() for head in own), key=lambda h: h[0] != "truth")
        rows = [
            (" ".join(h), [f"{sum(own[h]) / len(own[h]):.5f}" if h in own else "-" for own in agents.values()])
            for h in heads
        ]
        found.append({"study": name, "heads": [*agents], "rows": rows})
    return found


# ------------------------------------------------------------------------------------------------------------- charts


def figures_of(study: Study) -> list[Chart]:
    """Two charts per setup: what each protocol's picks lose, and how often they are the best."""
    charts: list[Chart] = []
    summary = study.summary()
    setups = list(dict.fromkeys(row["study"] for row in summary))
    for name in setups:
        own = sorted((r for r in summary if r["study"] == name), key=lambda r: r["cost_share"]["mean"] or 0.0)
        before = f"{name}: " if len(setups) > 1 else ""
        caption = (
            "Each small dot is one catalogue: the share of the best true value that the pick loses; hollow where the "
            "protocol abstains. The large dot is the mean, the line its 95 % interval."
        )
        charts.append(Chart(f"{before}What each protocol's picks lose", costs_chart(study, own), caption,
                            folded=bool(charts)))  # fmt: skip
        parts = {_head(row): {_KIND[kind]: row[kind]["share"] for kind in _KIND} for row in own}
        notes = {_head(row): f"best or tied: {_counted(row, BEST, INDISTINGUISHABLE)}" for row in own}
        caption = "Share of catalogues in which the pick is the best agent, a tie with it, or a worse one."
        charts.append(Chart(f"{before}How often each protocol is right", shares(parts, KINDS, notes), caption))
    return charts


def _head(row: dict[str, Any]) -> str:
    """A protocol at the head of a chart's row, with its target where it has several."""
    title = str(row["title"])
    return title if row["one_target"] else f"{row['target']}, {title}"


def costs_chart(study: Study, own: list[dict[str, Any]]) -> str:
    """One row per ranking, that of the least mean cost first."""
    judged: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for j in study.judgements():
        if j["cost_share"] is not None:
            judged.setdefault((j["study"], j["protocol"], j["metric"]), []).append(j)
    rows = []
    for row in own:
        mean = row["cost_share"]
        if mean["mean"] is None:
            continue
        low, high = (math.nan if mean[end] is None else mean[end] for end in ("low", "high"))
        each = judged.get((row["study"], row["protocol"], row["metric"]), [])
        cloud = [(j["cost_share"], j["abstains"]) for j in each]
        users = "" if row["users_per_arm"] is None else f"{row['users_per_arm']:,} users per arm"
        rows.append(Dot(_head(row), mean["mean"], low, high, cloud=cloud, note=users))
    return dots(sorted(rows, key=lambda row: row.value), PER_CENT, axis_of(0.0, room_for(rows).high, MANY_TICKS))
