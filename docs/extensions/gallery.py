"""The gallery: every page that the package writes, made anew from small stored results when the site is built.

    python docs/extensions/gallery.py [RUNS]    # stores docs/gallery.json from what RUNS holds; draws compare.svg

``RUNS`` holds ``compare``, ``study`` and ``interactions`` (folders of ``compare --out``);
``validation.json`` (of ``--json``) is kept where it holds none. What no page reads is left out.
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.answers.records import estimate_columns
from recsim_mnar.estimators import Facts
from recsim_mnar.fitting.validation import Check, Validation
from recsim_mnar.log.columns import LogColumns
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.protocols.comparison import Comparison, Setting
from recsim_mnar.protocols.interactions import LEAD, TITLES
from recsim_mnar.protocols.records import Judgement, Record
from recsim_mnar.protocols.scoreboard import Column, Scoreboard, scoreboard
from recsim_mnar.report.charts import Axis, Dot, Unit, render_chart, room_for
from recsim_mnar.report.estimate_page import Estimates, write_estimates
from recsim_mnar.report.page import board_caption, write_page
from recsim_mnar.report.study_page import _write_page as write_study_page
from recsim_mnar.report.world_pages import write_validation
from recsim_mnar.studies.result import Study

STORED = Path(__file__).resolve().parents[1] / "gallery.json"
PAGES = {
    "compare": "Which protocol is right?",
    "study": "A study over catalogues",
    "interactions": "Your own interactions",
    "estimate": "What other policies would have earned",
    "validate": "What the world is valid for",
}
"""Name of each page's file, and its title in the gallery."""
_KEYS = [("loocv", "hr@1"), ("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]
_DETAILS = (
    "verdict", "verdict_level", "identified", "ess", "share_supported", "value_on_log", "users", "clip_part",
    "paired_half_widths",
)  # fmt: skip


def pages(folder: Path) -> list[Path]:
    """Write every page into a folder, and return them in the order of :data:`PAGES`."""
    stored = json.loads(STORED.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.html" for name in PAGES}
    made_by = {"gallery": True}
    write_page(paths["compare"], _comparison(stored["compare"]), made_by)
    write_study_page(paths["study"], Study(made_by, stored["study"]))
    write_page(paths["interactions"], _interactions(stored["interactions"]), made_by)
    (folder / "estimates").mkdir(exist_ok=True)
    write_estimates(folder / "estimates", _estimates(), made_by)
    (folder / "estimates" / "report.html").replace(paths["estimate"])
    write_validation(paths["validate"], _validation(stored["validation"]), made_by)
    return list(paths.values())


def variants(folder: Path) -> None:
    """Next to each page one that is dark wherever it is shown, and one that is as printed."""
    for path in [folder / f"{name}.html" for name in PAGES]:
        text = path.read_text()
        dark = text.replace("screen and (prefers-color-scheme: dark)", "screen")
        path.with_suffix(".dark.html").write_text(dark.replace('content="light dark"', 'content="dark"'))
        light = text.replace("screen and (prefers-color-scheme: dark)", "not all")
        path.with_suffix(".light.html").write_text(light)
        paper = light.replace("@media screen and (max-width: 40rem)", "@media not all").replace(
            "<details", "<details open"
        )
        path.with_suffix(".print.html").write_text(
            paper.replace("@media print", "@media screen").replace("padding: 0; font", "padding: 14mm; font")
        )


def _comparison(stored: dict[str, Any]) -> Comparison:
    records = [_record(row) for row in stored["records"]]
    headings = {("loocv", "hr@1"): "HR@1", ("off_policy", "clipped_ips"): "clipped IPS", ("ab_test", "ctr"): "A/B CTR"}
    return Comparison(
        records,
        [_judgement(row) for row in stored["judgements"]],
        columns=_KEYS,
        headings=headings | {("truth", "ctr"): "true CTR"},
        details=stored["details"],
        again="recsim-mnar compare --catalogues 24",
        setting=Setting("sessions", 2000, 5000, 0, "jeunen2019"),
        truth_estimates=frozenset({("off_policy", "clipped_ips"), ("ab_test", "ctr")}),
    )


def _interactions(stored: dict[str, Any]) -> Comparison:
    records = [_record(row) for row in stored["records"]]
    keys = list(dict.fromkeys((r.protocol, r.metric) for r in records))
    ndcg = [key for key in keys if key[1].startswith("ndcg")]
    return Comparison(
        records, columns=[*ndcg, *(key for key in keys if key not in ndcg)],
        headings={key: f"{TITLES.get(key[0], key[0])}: {key[1].upper()}" for key in keys},
        title="Which agent predicts what your users do?", conclusion=stored["conclusion"],
        details=stored["details"], lead=LEAD,
    )  # fmt: skip


def _record(row: dict[str, Any]) -> Record:
    return Record(
        **{**row, **{name: math.nan if row[name] is None else row[name] for name in ("value", "low", "high")}}
    )


def _judgement(row: dict[str, Any]) -> Judgement:
    return Judgement(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k != "sentence"})


def _estimates() -> Estimates:
    """Three policies on a log of 6,000 rows: one better than today's, one too close, one that the log hardly shows."""
    rng = np.random.default_rng(3)
    logging = np.array([0.4, 0.3, 0.2, 0.095, 0.005])
    action = rng.choice(5, 6000, p=logging)
    reward = (rng.random(6000) < np.array([0.08, 0.1, 0.16, 0.09, 0.2])[action]) * 1.0
    policies = {"bandit": [0.1, 0.1, 0.6, 0.15, 0.05], "bestsellers": [0.6, 0.3, 0.06, 0.035, 0.005],
                "rare items": [0.02, 0.02, 0.02, 0.04, 0.9]}  # fmt: skip
    columns = {name: np.array(chances)[action] for name, chances in policies.items()}
    log = LogColumns(reward, logging[action], None, columns | {"propensity": logging[action]}, np.arange(6000))
    facts = Facts(propensity_min=0.005, full_support=True)
    records = estimate_columns(log, list(columns), baseline="propensity", estimators=("ips", "snips"), facts=facts)
    records = [r | {"today": True} if "propensity" in (r["policy"], r.get("baseline")) else r for r in records]
    weights = {name: column / logging[action] for name, column in columns.items()}
    weighed = WeighedLog(6000, None, float(reward.mean()), {}, weights)
    return Estimates("shop.csv", records, ["taken: reward: clicked; propensity: shown_prob"], weighed, None)


def _validation(stored: dict[str, Any]) -> Validation:
    checks = [Check(**check) for check in stored["checks"]]
    return Validation(checks, stored["not_checked"], stored["notes"], stored["facts"])


# ------------------------------------------------------------------------------------------- the README's first picture


PANEL, NUMBER, ROW, NAMES_WIDTH = 115, 72, 30, 140
"""Pixels: width of a panel and of its numbers, height of a row, width of the column of names."""


def hero(comparison: Comparison) -> str:
    """The report's first chart as one SVG that stands alone; every word is computed from the comparison."""
    board = scoreboard(comparison)
    truth = next(column for column in board.columns if column.is_truth)
    shown = [column for column in board.columns if not column.is_truth]
    bottom = 104 + ROW * len(board.agents)
    parts = []
    for i, column in enumerate(shown):
        known = truth if column.key in comparison.truth_estimates else None
        alike = [c for c in shown if (c.key in comparison.truth_estimates) == (known is not None)]
        axis = room_for([_hero_dot(c, name, known) for c in alike for name in board.agents])
        parts += _hero_panel(board, column, known, axis, NAMES_WIDTH + i * (PANEL + NUMBER + 20), bottom)
    for i, name in enumerate(board.agents):
        parts.append(f'<text class="name i{i}" x="0" y="{125 + ROW * i}">{escape(name)}</text>')
    caption = textwrap.wrap(board_caption(comparison, board, ticks=True), 105)
    for i, line in enumerate(caption):
        parts.append(f'<text class="dim" x="0" y="{bottom + 40 + 18 * i}">{escape(line)}</text>')
    lines = textwrap.wrap(board.headline(), 76, break_on_hyphens=False)
    title = "".join(
        f'<text class="title" x="0" y="{20 + 22 * i}">{escape(line)}</text>' for i, line in enumerate(lines)
    )
    css = (HERO_CSS + "".join(f".i{i}{{--c:var(--a{i})}}" for i in range(len(board.agents)))).replace("\n", "")
    height = bottom + 40 + 18 * len(caption)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 776 {height}" role="img" '
        f'aria-label="{escape(board.headline())}"><style>{css}</style>{title}{"".join(parts)}</svg>\n'
    )


def _hero_panel(board: Scoreboard, column: Column, known: Column | None, axis: Axis, x: int, bottom: int) -> list[str]:
    """A protocol's numbers: its heading, its dots and its axis."""
    parts = [f'<text class="head" x="{x}" y="84">{escape(column.heading)}</text>']
    for i, name in enumerate(board.agents):
        dot, cell = _hero_dot(column, name, known), column.cells[name]
        text = f'<text x="{PANEL + NUMBER}" y="20" text-anchor="end">{escape(cell.text)}</text>'
        inner = render_chart("grid", axis) + render_chart("marks", dot, axis) + text
        parts.append(
            f'<svg class="i{i}" x="{x}" y="{104 + ROW * i}" width="{PANEL}" height="{ROW}" overflow="visible">'
            f"{inner}</svg>"
        )
    ticks = render_chart("labels", axis, Unit(bare=True), 14)
    parts.append(f'<svg class="dim" x="{x}" y="{bottom}" width="{PANEL}" height="20" overflow="visible">{ticks}</svg>')
    return parts


def _hero_dot(column: Column, name: str, known: Column | None) -> Dot:
    cell = column.cells[name]
    true = None if known is None else known.cells[name].record.value
    return Dot(name, cell.record.value, cell.record.low, cell.record.high, hollow=cell.unusable, known=true)


_INKS = {
    ":root{": "#1c2430 #566070 #e6e9ee #ffffff #0067a5 #c4500b #00795a #a33f77 #80650a #0d6e8c",
    "@media (prefers-color-scheme:dark){:root{": (
        "#e6e9ee #a7b0bd #2b333f #14181f #5fb4f0 #ff9a57 #4fd0a6 #f08cc4 #e0c04a #7fd6f5"
    ),
}
"""As in the pages' style.css, which a picture that stands alone cannot read."""
_NAMES = ("ink", "dim", "grid", "paper", *(f"a{i}" for i in range(6)))
HERO_CSS = (
    "".join(
        begin + ";".join(f"--{n}:{ink}" for n, ink in zip(_NAMES, inks.split(), strict=True)) + "}" * begin.count("{")
        for begin, inks in _INKS.items()
    )
    + """
text{font:14px system-ui,sans-serif;fill:var(--ink)}
.title{font-size:17px;font-weight:700}.head,.name{font-weight:600}.name{fill:var(--c)}
.dim,.dim text{font-size:13px;fill:var(--dim)}
.grid{stroke:var(--grid)}.zero{stroke:var(--dim)}.whisker{stroke:var(--c);stroke-width:2.5;opacity:.55}
.known{stroke:var(--ink);stroke-width:2}.arrow{fill:none;stroke:var(--c);stroke-width:2}
.dot{fill:var(--c);stroke:var(--c);stroke-width:2}.hollow{fill:var(--paper)}"""
)


# --------------------------------------------------------------------------------------------------------------- store


def store(runs: Path) -> None:
    """Keep of runs what the pages read, with numbers of six digits."""
    of = json.loads(STORED.read_text())
    of |= {path.stem: json.loads(path.read_text()) for path in runs.glob("*.json")}
    for check in of["validation"]["checks"]:
        check["picture"] = _thinned(check["picture"])
    for name in ("compare", "interactions"):
        summary = json.loads((runs / name / "summary.json").read_text())
        rows = json.loads((runs / name / "results.json").read_text())["records"]
        of[name] = {"judgements": summary["judgements"], "conclusion": summary.get("conclusion", []),
                    "details": {k: summary[k] for k in ("weights", "popularity", "clip", "best") if k in summary},
                    "records": [_kept(row) for row in rows if name == "interactions" or _shown(row)]}  # fmt: skip
    results = [
        json.loads(path.read_text())
        for path in sorted((runs / "study").rglob("*.json"))
        if path.parent != runs / "study"
    ]
    of["study"] = [
        {**{name: r[name] for name in ("cell", "setup", "levels", "catalogue", "seed", "judgements")},
         "run_config": {"preset": r["run_config"]["preset"], "world": {"name": r["run_config"]["world"]["name"]}},
         "records": [_kept(row, ("verdict_level", "users")) for row in r["records"] if _shown(row)]}
        for r in results if "judgements" in r
    ]  # fmt: skip
    STORED.write_text(json.dumps(_rounded(of), separators=(",", ":"), ensure_ascii=False) + "\n")


def _shown(row: dict[str, Any]) -> bool:
    return (row["protocol"], row["metric"]) in _KEYS


def _kept(row: dict[str, Any], names: tuple[str, ...] = _DETAILS) -> dict[str, Any]:
    details = {name: row["details"][name] for name in names if name in row["details"]}
    return {**{k: v for k, v in row.items() if k not in ("study", "catalogue")}, "seconds": 0.0, "details": details}


def _thinned(picture: dict[str, Any], most: int = 25) -> dict[str, Any]:
    """The picture with every so many of its places."""
    n = len(picture.get("entries", ()))
    step = max(1, math.ceil(n / most))
    return {k: v[::step] if isinstance(v, list) and len(v) == n and n else v for k, v in picture.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


# ------------------------------------------------------------------------------------------------------------- the site


def setup(app: Any) -> dict[str, bool]:
    """Write the pages into the built site, where docs/gallery.md shows them."""

    def write(app: Any, error: Exception | None) -> None:
        if error is None:
            pages(Path(app.outdir) / "gallery")
            variants(Path(app.outdir) / "gallery")

    app.connect("build-finished", write)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(Path(sys.argv[1]))
    picture = hero(_comparison(json.loads(STORED.read_text())["compare"]))
    STORED.with_name("compare.svg").write_text(picture)
