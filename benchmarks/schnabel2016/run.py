"""The study of Schnabel et al. 2016, each number next to the published one.

    python benchmarks/schnabel2016/run.py table1|figure2|figure6|figure6_by_ips|figure10 --ml100k FILE
    python benchmarks/schnabel2016/run.py table2 --coat DIR [--yahoo DIR]
    python benchmarks/schnabel2016/run.py all --ml100k FILE --coat DIR [--yahoo DIR]

Each part prints a table and its checks (PASS or short), and writes them to ``results.json``, ``results.md`` and, for
figure2, ``figure2.png`` under --out. A part made with the same settings is kept when the run resumes, as is what table2
chose; figure6 and figure6_by_ips also keep their finished points (``work/``). --fresh makes all anew. --quick runs a
small slice of each part, without a file on made-up ratings; its numbers are not the paper's, and no check of it fails
the run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import learning
import parts
import real
import semi_synthetic as semi
import tables

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import write_json

HERE = Path(__file__).resolve().parent

FIGURE6 = {
    "figure6": (learning.cases, learning.summarise, learning.check),
    "figure6_by_ips": (learning.cases_by_ips, learning.summarise_by_ips, learning.check_by_ips),
}
SEMI_SYNTHETIC = ("table1", "figure2", *FIGURE6, "figure10")
PARTS = (*SEMI_SYNTHETIC, "table2")


def main(given: list[str] | None = None) -> int:
    out = "this folder; --quick: runs/schnabel2016-quick"
    parser = parts.parser_of(__doc__, quick="a check that it runs", out=out)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--ml100k", type=Path, help="u.data of GroupLens or ml-100k.inter of RecBole")
    parser.add_argument("--coat", type=Path, help="folder of the Coat study")
    parser.add_argument("--yahoo", type=Path, help="folder of Yahoo! R3")
    parser.add_argument("--fresh", action="store_true", help="make anew what is there")
    arguments = parser.parse_args(given)
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
    chosen = list(PARTS) if arguments.part == "all" else [arguments.part]
    if arguments.quick and arguments.part == "all" and not arguments.coat:
        chosen.remove("table2")
        print("table2: left out, no --coat")
    if not arguments.quick and not arguments.ml100k and set(SEMI_SYNTHETIC) & set(chosen):
        raise UserError(f"{arguments.part} needs --ml100k FILE (u.data of GroupLens, or RecBole's ml-100k.inter)")
    if "table2" in chosen and not arguments.coat:
        raise UserError(f"{arguments.part} needs --coat DIR, the folder with train.ascii and test.ascii")
    return chosen


def run_part(part: str, arguments: argparse.Namespace) -> bool:
    """One part; whether all its checks pass."""
    out = parts.folder(arguments.out, arguments.quick)
    if part == "table2":
        if arguments.fresh:
            for chosen in (out / "work").glob("table2.*.chosen.json"):
                chosen.unlink()
        return bool(real.main(arguments.coat, arguments.yahoo, out, arguments.quick))
    settings = settings_of(arguments, part)
    result = {} if arguments.fresh or arguments.quick else parts.read(out).get(part, {})
    if result.get("settings") == settings:
        print(f"{part}: kept from {out / 'results.json'}")
    else:
        began = time.process_time()
        result = {"settings": settings, **made(part, arguments, settings, out / "work")}
        result["checks"] = {text: bool(ok) for text, ok in result["checks"].items()}
        result["seconds"] = round(time.process_time() - began, 1)
        result = parts.as_kept(result)
    text = tables.TEXTS[part](result)
    parts.write(out, part, result, text)
    if part == "figure2":
        tables.draw(result, out / "figure2.png")
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


_COMPLETED: dict[str, Any] = {}


def completed(arguments: argparse.Namespace, settings: dict[str, Any]) -> Any:
    """The completed matrix, made once a run."""
    key = json.dumps([str(arguments.ml100k), settings])
    if key not in _COMPLETED:
        _COMPLETED[key] = semi.Setting(semi.ratings_of(arguments.ml100k, settings), settings)
    return _COMPLETED[key]


def made(part: str, arguments: argparse.Namespace, settings: dict[str, Any], work: Path) -> dict[str, Any]:
    """What a semi-synthetic part finds, and its checks."""
    setting = completed(arguments, settings)
    if part == "table1":
        return make_table1(setting, arguments.quick)
    if part in FIGURE6:
        return make_figure6(part, setting, work / f"{part}.points.json", arguments.fresh or arguments.quick)
    result = {"figure2": semi.figure2, "figure10": semi.figure10}[part](setting)
    return {**result, "checks": {"figure2": semi.check_figure2, "figure10": semi.check_figure10}[part](result)}


def make_table1(setting: Any, quick: bool) -> dict[str, Any]:
    result = semi.table1(setting)
    fits = semi.FitCount()
    result["completions"] = semi.completions(setting, fits)
    result["fits"] = fits.to_dict()
    result["before_reranking"] = semi.shares(setting)
    reported = json.loads((HERE / "published.json").read_text())["table1"]
    # Figures of another matrix say nothing of the published ones.
    return {**result, "published": reported, "checks": semi.check_table1(result, None if quick else reported)}


def make_figure6(part: str, setting: Any, path: Path, fresh: bool) -> dict[str, Any]:
    """Points that are finished are kept at ``path``."""
    cases, summarise, check = FIGURE6[part]
    of = {name: value for name, value in setting.settings.items() if not name.endswith("_trials")}
    kept = json.loads(path.read_text()) if path.exists() and not fresh else {}
    points = kept["points"] if kept.get("settings") == of else {}
    resumed = bool(points)
    learning.fill(setting, cases(setting), points, lambda: write_json(path, {"settings": of, "points": points}))
    points = {key: points[key] for key in cases(setting)}  # in one order, whatever was kept
    result = summarise(setting, points)
    path.unlink(missing_ok=True)
    checks = check(result)
    slim = {key: {name: point[name] for name in ("chosen", "gap", "mse_at_the_end")} for key, point in points.items()}
    first = {key: {"mse": {name: of[:1] for name, of in point["mse"].items()}} for key, point in points.items()}
    return {**result, "points": {key: slim[key] | first[key] for key in slim}, "resumed": resumed, "checks": checks}


if __name__ == "__main__":
    sys.exit(main())
