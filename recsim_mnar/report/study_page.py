"""What a study looks like: its files, its table, and the distribution over catalogues."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, printable
from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE, UNUSABLE
from recsim_mnar.report.charts import MANY_TICKS, PER_CENT, Chart, Dot, axis_of, dots, room_for, shares
from recsim_mnar.report.naming import about, both, method, method_named
from recsim_mnar.report.page import headed
from recsim_mnar.report.study_finding import blind_spot, judged_of, of_study, screen_of
from recsim_mnar.report.template import downloads_of, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.studies.result import Study, percent, sized, two_digits

LEAST = 5
"""Catalogues from which on shares are shown as per cent."""
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
        summary = {"settings": study.settings, "summary": study.summary(), "judgements": study.judgements()}
        into.write_json("summary.json", summary)
        with into.recording("report.html") as path:
            _write_page(path, study)
        # Of times there is no receipt: they differ.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "tasks": study.seconds})


def _write_page(path: Path, study: Study) -> None:
    several = {head: len({COLUMNS[head](row) for row in study.summary()}) > 1 for head in ("study", "catalogues")}
    heads = [head for head in COLUMNS if several.get(head, True)]
    write_from(
        "study.html",
        path,
        study.settings,
        of_study(study),
        figures_of(study),
        downloads=downloads_of("judgements", study.judgements()),
        heads=heads,
        screen=screen_of(study),
        blind=blind_spot(study),
        varied=not any(_explores(each) for each in study.settings.get("studies", ())),
        digits=two_digits,
        lost="clicks lost" if {row["target"] for row in study.summary()} == {"CTR"} else "lost",
        rows=[[COLUMNS[head](row) for head in heads] for row in study.summary()],
        sentences=[sentence.replace("catalogues", "shops") for sentence in study.sentences()],
        catalogues=max((row["catalogues"] for row in study.summary()), default=0),
        agents=agents_table(study),
        kinds=" ".join(_kind_of(each) for each in study.settings.get("studies", ())),
        names=[both(name) for name in dict.fromkeys(row["agent"] for row in study.rows())],
    )


def _kind_of(settings: Mapping[str, Any]) -> str:
    """What a study's shops have in common, in a sentence or two."""
    fields = {name: value for name, value in settings.items() if name in Setup.__dataclass_fields__}
    changed = ", ".join(f"{name} = {value}" for name, value in (settings.get("params") or {}).items())
    try:
        found = Setup(**fields).resolved()
    except UserError:  # a world or an agent of one's own, which is not there any more
        return f"The shops are of the world {settings.get('world', '?')}."
    said = f"Each simulated shop has {found.world.n_items:,} items, and tastes of its own (the {found.world.name} world"
    said += f"{' with ' if changed else ''}{changed})."
    old, users = (getattr(found.settings, name, None) for name in ("logging", "test_users"))
    if old:
        said += f" Its old system is {both(old)}"
        said += f"; its records are of {users:,} users." if users else "."
    return said


def _explores(settings: Mapping[str, Any]) -> bool:
    """Whether a study's old system is known to show every item now and then."""
    old = str((settings.get("options") or {}).get("logging", ""))
    return old == "random" or "epsilon" in old or "temperature" in old


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "study": lambda row: str(row["study"]),
    "method": lambda row: sized(row),
    "catalogues": lambda row: str(row["catalogues"]),
    "picks the best": lambda row: _share(row, BEST),
    "tied": lambda row: _share(row, INDISTINGUISHABLE),
    "picks a worse one": lambda row: _share(row, COSTS),
    "mean cost, share of the best": lambda row: _cost(row["cost_share"]),
    "must not be used": lambda row: _share(row, UNUSABLE),
    "Kendall's tau": lambda row: _mean(row["kendall_tau"]),
    "best by upper bound": lambda row: _share(row, "best_by_upper_bound"),
    "its tau": lambda row: _mean(row["tau_by_upper_bound"]),
}
"""Heads of the summary's table, and the text of each cell from a row of the summary."""


def cells_of(row: dict[str, Any]) -> list[str]:
    """A row of the summary as texts, in the order of :data:`COLUMNS`."""
    return [cell(row) for cell in COLUMNS.values()]


def _cost(row: dict[str, Any]) -> str:
    return "-" if row["mean"] is None else percent(row)


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


def study_table(study: Study) -> Any:
    """The summary as a rich table."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="over catalogues [95% interval]", title_justify="left")
    for head in COLUMNS:
        table.add_column(head, justify="left" if head in ("study", "method") else "right")
    for row in study.summary():
        table.add_row(*(escape(printable(cell)) for cell in cells_of(row)))
    return table


def agents_table(study: Study) -> list[dict[str, Any]]:
    """Mean of every metric over catalogues: one table per study, one row per metric, one column per agent."""
    tables: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in study.rows():
        if row["value"] is not None:
            own = tables.setdefault(row["study"].rpartition("-")[0], {}).setdefault(row["agent"], {})
            own.setdefault(f"{row['protocol']} {row['metric']}", []).append(row["value"])
    found = []
    for name, agents in tables.items():
        heads = list(dict.fromkeys(head for own in agents.values() for head in own))
        heads = sorted(heads, key=lambda head: not head.startswith("truth"))
        rows = [
            (h, [f"{sum(own[h]) / len(own[h]):.5f}" if h in own else "-" for own in agents.values()]) for h in heads
        ]
        found.append({"study": name, "heads": [*agents], "rows": rows})
    return found


# ------------------------------------------------------------------------------------------------------------- charts


def figures_of(study: Study) -> list[Chart]:
    """Two charts per world of the study: what each method's pick costs, and how often it is the best."""
    charts: list[Chart] = []
    judged, summary = judged_of(study), study.summary()
    worlds = list(dict.fromkeys(row["study"] for row in summary))
    for name in worlds:
        own = sorted((r for r in summary if r["study"] == name), key=lambda r: r["cost_share"]["mean"] or 0.0)
        before = f"{name}: " if len(worlds) > 1 else ""
        caption = (
            "Each small dot is one simulated shop: by how much the pick truly falls short of the best one. Many lie on "
            "each other at 0 %; the table counts them. The large dot is the mean, the line its 95 % interval."
        )
        if any(j["warned"] for row in own for j in judged[row["study"], row["title"]]):
            caption += (
                " Hollow: the tool warned there that the old system's records say too little of this pick or of a "
                "better one. Such a pick may be good all the same, by luck."
            )
        title = f"{before}How far each method's picks fall short of the best, in % of what the best gets"
        charts.append(Chart(title, costs_chart(own, judged), caption, folded=bool(charts)))
        parts = {_head(row): {_KIND[kind]: row[kind]["share"] for kind in _KIND} for row in own}
        caption = (
            "Share of simulated shops in which the pick is the best recommender, a tie with it (too close even for the "
            "simulator to tell), or a worse one."
        )
        notes = {_head(row): f"best or tied: {_counted(row, BEST, INDISTINGUISHABLE)}\n{_size(row)}" for row in own}
        title = f"{before}How often each method is right"
        charts.append(Chart(title, shares(parts, KINDS, notes), caption))
    return charts


def _head(row: dict[str, Any]) -> str:
    """A method at the head of a chart's row."""
    return method(row["title"]).removeprefix("the ")


def _size(row: dict[str, Any]) -> str:
    """Of an A/B test."""
    return "" if row["users_per_arm"] is None else f"{row['users_per_arm']:,} users per variant"


def _note(row: dict[str, Any], judged: Mapping[tuple[str, str], list[dict[str, Any]]]) -> str:
    """What follows a method's name: what it does, the size of an A/B test, how often the tool warns of it."""
    each = judged[row["study"], row["title"]]
    own = sum(j["shown"] == UNUSABLE for j in each)
    more, n = sum(j["warned"] for j in each) - own, row["catalogues"]
    said = [about(row["title"], method_named(row["title"])), _size(row)]
    said += [f"too little data in {own + more} of {n}"] if own + more else []
    return "\n".join(filter(None, said))


def costs_chart(own: list[dict[str, Any]], judged: Mapping[tuple[str, str], list[dict[str, Any]]]) -> str:
    """One row per ranking, that of the least mean cost first."""
    rows = []
    for row in own:
        each = [j for j in judged[row["study"], row["title"]] if j["cost_share"] is not None]
        mean = row["cost_share"]
        if mean["mean"] is None:
            continue
        low, high = (math.nan if mean[end] is None else mean[end] for end in ("low", "high"))
        cloud = [(j["cost_share"], j["warned"]) for j in each]
        rows.append(Dot(_head(row), mean["mean"], low, high, cloud=cloud, note=_note(row, judged)))
    return dots(sorted(rows, key=lambda row: row.value), PER_CENT, axis_of(0.0, room_for(rows).high, MANY_TICKS))
