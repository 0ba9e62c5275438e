"""The study of Schnabel et al. 2016, each number beside the published one.

    python benchmarks/schnabel2016/run.py table1|figure2|figure6|figure10 --ml100k FILE
    python benchmarks/schnabel2016/run.py table2 --coat DIR [--yahoo DIR]
    python benchmarks/schnabel2016/run.py all --ml100k FILE --coat DIR [--yahoo DIR]

Each part prints a table and what must hold (PASS or short), and writes ``PART.json``, ``PART.md`` and, for figures,
``PART.png`` under --out. A part whose JSON is there, made with the same settings, is kept when the run is taken up
again, as is what table2 chose; figure6 also keeps its finished points. --fresh makes all anew. --quick runs a small
slice of each part, without a file on made-up ratings; its numbers are not the paper's, and what does not hold in it
fails nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import write_json

HERE = Path(__file__).resolve().parent

SEMI_SYNTHETIC = ("table1", "figure2", "figure6", "figure10")
PARTS = (*SEMI_SYNTHETIC, "table2")


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--ml100k", type=Path, help="u.data of GroupLens or ml-100k.inter of RecBole")
    parser.add_argument("--coat", type=Path, help="folder of the Coat study")
    parser.add_argument("--yahoo", type=Path, help="folder of Yahoo! R3")
    parser.add_argument("--out", type=Path, help="default: results beside this file; --quick: runs/schnabel2016-quick")
    parser.add_argument("--fresh", action="store_true", help="make anew what is there")
    parser.add_argument("--quick", action="store_true", help="a check that it runs")
    arguments = parser.parse_args(given)
    arguments.out = arguments.out or (Path("runs/schnabel2016-quick") if arguments.quick else HERE / "results")
    try:
        passed = [run_part(part, arguments) for part in wanted(arguments)]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if arguments.quick or all(passed) else 1


def wanted(arguments: argparse.Namespace) -> list[str]:
    """The parts to run.

    Raises:
        UserError: one lacks its data.
    """
    parts = list(PARTS) if arguments.part == "all" else [arguments.part]
    if arguments.quick and arguments.part == "all" and not arguments.coat:
        parts.remove("table2")
        print("table2: left out, no --coat")
    if not arguments.quick and not arguments.ml100k and set(SEMI_SYNTHETIC) & set(parts):
        raise UserError(f"{arguments.part} needs --ml100k FILE (u.data of GroupLens, or RecBole's ml-100k.inter)")
    if "table2" in parts and not arguments.coat:
        raise UserError(f"{arguments.part} needs --coat DIR, the folder with train.ascii and test.ascii")
    return parts


def run_part(part: str, arguments: argparse.Namespace) -> bool:
    """One part; whether all that must hold does."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    if part == "table2":
        import real

        if arguments.fresh:
            for chosen in arguments.out.glob("table2.*.chosen.json"):
                chosen.unlink()
        return real.main(arguments.coat, arguments.yahoo, arguments.out, arguments.quick) is not False
    import tables

    settings = settings_of(arguments, part)
    path = arguments.out / f"{part}.json"
    result = json.loads(path.read_text()) if path.exists() and not (arguments.fresh or arguments.quick) else {}
    if result.get("settings") == settings:
        print(f"{part}: kept from {path}")
    else:
        began = time.perf_counter()
        result = {"settings": settings, **MAKERS[part](arguments, settings)}
        result["checks"] = {text: bool(ok) for text, ok in result["checks"].items()}
        result["seconds"] = round(time.perf_counter() - began, 1)
        write_json(path, result)
    text = tables.TEXTS[part](result)
    (arguments.out / f"{part}.md").write_text(text + "\n")
    tables.draw(part, result, arguments.out / f"{part}.png")
    print(text + "\n")
    return all(result["checks"].values())


def settings_of(arguments: argparse.Namespace, part: str = "") -> dict[str, Any]:
    """What a semi-synthetic part depends on; JSON types only."""
    read = tomllib.loads((HERE / "settings.toml").read_text())
    data = "made-up ratings" if arguments.ml100k is None else "ML-100K"
    settings = {"seed": read["seed"], "data": data, **read["semi_synthetic"], **read.get(part, {})}
    if arguments.quick:
        settings |= read.get(f"quick_{part}", {})
        settings |= read["quick"]
        settings["data"] += ", a small slice (--quick)"
    return settings


def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "published.json").read_text())
    return found


_COMPLETED: dict[str, Any] = {}


def completed(arguments: argparse.Namespace, settings: dict[str, Any]) -> Any:
    """The completed matrix, made once a run."""
    import semi_synthetic

    key = json.dumps([str(arguments.ml100k), settings])
    if key not in _COMPLETED:
        _COMPLETED[key] = semi_synthetic.Setting(semi_synthetic.ratings_of(arguments.ml100k, settings), settings)
    return _COMPLETED[key]


def make_table1(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import semi_synthetic as semi

    result = semi.table1(completed(arguments, settings))
    result["completions"] = semi.completions(completed(arguments, settings))
    told = published()["table1"]
    # Figures of another matrix say nothing of the published ones.
    checks = semi.check_table1(result, None if arguments.quick else told)
    return {**result, "published": told, "checks": checks}


def make_figure2(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import semi_synthetic as semi

    result = semi.figure2(completed(arguments, settings))
    return {**result, "checks": semi.check_figure2(result)}


def make_figure10(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import semi_synthetic as semi

    result = semi.figure10(completed(arguments, settings))
    return {**result, "checks": semi.check_figure10(result)}


def make_figure6(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import learning

    path = arguments.out / "figure6.points.json"
    kept = json.loads(path.read_text()) if path.exists() and not (arguments.fresh or arguments.quick) else {}
    points = kept["points"] if kept.get("settings") == settings else {}
    setting = completed(arguments, settings)
    learning.fill(setting, points, lambda: write_json(path, {"settings": settings, "points": points}))
    result = learning.summarise(setting, points)
    path.unlink()
    return {**result, "checks": learning.check(result)}


MAKERS: dict[str, Callable[[argparse.Namespace, dict[str, Any]], dict[str, Any]]] = {
    "table1": make_table1,
    "figure2": make_figure2,
    "figure6": make_figure6,
    "figure10": make_figure10,
}

if __name__ == "__main__":
    sys.exit(main())
