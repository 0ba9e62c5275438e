"""The playground: one page whose sliders choose among stored comparisons, each drawn when the site is built.

    python docs/extensions/playground.py OUT.html

Its numbers are those of ``benchmarks/playground/results.json``; the browser computes nothing, it shows one of them.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

from recsim_mnar._version import __version__
from recsim_mnar.report.charts import PER_CENT, Axis, Dot, axis_of, colours_of, dots
from recsim_mnar.report.template import Finding

STORED = Path(__file__).resolve().parents[2] / "benchmarks" / "playground" / "results.json"
COMMAND = "python benchmarks/playground/run.py"
START = {"epsilon": 0.05, "users": 600, "n_flips": 50}
"""Where the sliders are at first."""
ALL = axis_of(0.0, 1.0)
UNBROKEN = "\N{NO-BREAK SPACE}%"
"""A number and its per cent stay on one line."""


def slider_rows(sliders: dict[str, list[Any]], n_items: int) -> list[dict[str, Any]]:
    """Each slider: its name in results.json, what it is, what it means, and its positions in words."""
    said = {
        "epsilon": (
            "Exploration in the log",
            "share of today's recommendations that are random; the others repeat what the user viewed",
            [_whole(value) for value in sliders["epsilon"]],
        ),
        "users": (
            "Size of the log",
            "users with their views, recommendations and clicks",
            [f"{value:,} users" for value in sliders["users"]],
        ),
        "n_flips": (
            "Clicks that differ from views",
            "share of the items whose clicks are swapped in pairs, while their views are not",
            [f"{_whole(2 * value / n_items)} of the items" for value in sliders["n_flips"]],
        ),
    }
    return [
        {"name": name, "title": title, "means": means, "words": positions, "at": sliders[name].index(START[name])}
        for name, (title, means, positions) in said.items()
    ]


def sentence(point: dict[str, Any], n: int) -> str:
    """How often each protocol picks the best recommender, and the clicks that following it costs."""
    own = point["protocols"]
    first, *others = sorted(own, key=lambda name: (-own[name]["right"][0], own[name]["cost"][0]))
    lost = {name: _percent(own[name]["cost"][0]) for name in own}
    parts = [f"{name} in {_right(own[name])} ({lost[name]} lost)" for name in others]
    text = (
        f"{first[0].upper()}{first[1:]} picks the best recommender, or a tie, in {_right(own[first])} of {n} "
        f"worlds and loses {lost[first]} of the clicks on average; {', '.join(parts[:-1])} and {parts[-1]}."
    )
    return text.replace(" %", UNBROKEN)


def _right(own: dict[str, Any]) -> int:
    return int(own["best"] + own["tied"])


def _whole(share: float) -> str:
    return PER_CENT.text(share, 0.01)


def _percent(value: float) -> str:
    return PER_CENT.text(value, 0.01 if value >= 0.1 else 0.001)


def drawn(point: dict[str, Any], n: int, costs: Axis) -> dict[str, str]:
    """What the page shows where the sliders are at a point."""
    colours = colours_of(point["protocols"])
    often, lost = [], []
    for name, own in point["protocols"].items():
        hollow = 2 * own["unusable"] > n
        note = f"\u201cdo not use\u201d in {own['unusable']} of {n}" if own["unusable"] else ""
        common = {"colour": colours[name], "hollow": hollow, "note": note}
        often.append(Dot(name, *own["right"], words=f"{_right(own)} of {n}", **common))
        mean, low, high = own["cost"]
        ends = (math.nan, math.nan) if low is None else (low, high)
        lost.append(Dot(name, mean, *ends, words=_percent(mean), **common))
    return {
        "key": "-".join(f"{point[name]:g}" for name in START),
        "sentence": sentence(point, n),
        "often": dots(often, PER_CENT, ALL),
        "lost": dots(lost, PER_CENT, costs),
        "command": point["command"],
    }


def cells(point: dict[str, Any], results: dict[str, Any]) -> list[str]:
    """A point's row of the table: its setting, and per protocol how often it is right and what its picks cost."""
    swapped = _whole(2 * point["n_flips"] / results["n_items"])
    made = [_whole(point["epsilon"]), f"{point['users']:,}", swapped]
    for own in point["protocols"].values():
        mean, low, high = own["cost"]
        ends = "" if low is None else f" ({_percent(low).removesuffix(' %')} to {_percent(high)})"
        made.append(f"{_right(own)} of {results['catalogues']}; {_percent(mean)}{ends}")
    return [text.replace(" %", UNBROKEN) for text in made]


def write(path: Path) -> None:
    """Write the page."""
    text = STORED.read_bytes()
    results = json.loads(text)
    n, points, sliders = results["catalogues"], results["points"], slider_rows(results["sliders"], results["n_items"])
    costs = axis_of(0.0, 1.05 * max(own["cost"][0] for point in points for own in point["protocols"].values()))
    shown = [drawn(point, n, costs) for point in points]
    here = Path(__file__).parent
    loader = ChoiceLoader([FileSystemLoader(here), PackageLoader("recsim_mnar.report", ".")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {}  # the sliders stay in their order
    encoded = f"data:application/json;base64,{base64.b64encode(text).decode()}"
    page = environment.get_template("playground.html").render(
        finding=Finding(
            "Which number picks the best recommender?",
            "Old log or A/B test? Move a slider to see how often each is right and what its errors cost.",
            "",
        ),
        charts=[],
        encoded=encoded,
        version=__version__,
        made_by=COMMAND,
        n=n,
        sliders=sliders,
        values=results["sliders"],
        words_of={row["name"]: row["words"] for row in sliders},
        results=results,
        shown=shown,
        start=next(one for one in shown if one["key"] == "-".join(f"{value:g}" for value in START.values())),
        heads=["exploration", "users in the log", "items swapped", *points[0]["protocols"]],
        rows=[cells(point, results) for point in points],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the page into the built site, to which docs/index.md links."""

    def after(app: Any, error: Exception | None) -> None:
        if error is None:
            write(Path(app.outdir) / "playground.html")

    app.connect("build-finished", after)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
