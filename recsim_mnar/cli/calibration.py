"""``recsim-mnar calibrate``: a world like the one that a log comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import WHOLE, column_options, columns_of, pairs_of, resumably, seed_option, writing
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.fitting.calibration import FittedWorld


@click.command(short_help="Fit a world to a log; what is not identified.")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="WORLD.toml; arrays lie in WORLD.npz.")
@click.option(
    "--world", type=click.Choice(["sessions", "ratings"]), default="sessions", show_default=True, help="What is fitted."
)
@seed_option("Of the ensemble and of simulations.")
@click.option("--ensemble", type=WHOLE, default=20, show_default=True, help="Worlds beside the best fit.")
@click.option("--items", type=WHOLE, default=None, help="How many items there are, where LOG does not show all.")
@click.option(
    "--assume", multiple=True, metavar="NAME=VALUE", help="A parameter that is set, not fitted; may be repeated."
)
@click.option("--resume", is_flag=True, help="Take up an interrupted run with the same --out.")
@column_options("user", "item", "action", "reward", "propensity", "time")
@json_option("what was fitted")
def calibrate(log: Path, out: Path, json_output: JsonOutput, **options: Any) -> None:
    """Fit a world to LOG: a log of views and recommendations, a table of interactions, a bandit log, or ratings.

    Prints what LOG identifies, with 90 % intervals, and what it does not, with the range that the ensemble takes. The
    file is a world: `simulate --world WORLD.toml`, `compare --world WORLD.toml`; `WORLD.toml#3` is the ensemble's
    third. Then `validate WORLD.toml LOG` says for which questions it may be used. The fitted click rate is held against
    LOG's; a link or a log that no world is like is refused.
    """
    from recsim_mnar.fitting.calibration import calibrate_world
    from recsim_mnar.own_log.sources import read_to_fit

    json_output.check(log, out)
    _check_out(out, log)
    keeping = resumably(out, "--out", resume=options["resume"], beside=[out.with_suffix(".npz")])
    seed = options["seed"]
    columns = columns_of(options)
    with progress() as report, keeping:
        report(f"read {log}")
        read = read_to_fit(log, options["world"], columns)
        for line in read.lines:
            json_output.say(line)
        fitted = calibrate_world(
            read.log,
            options["world"],
            seed,
            n_items=options["items"] or read.n_items,
            ensemble=options["ensemble"],
            assume=pairs_of(options["assume"], "--assume"),
            report=report,
        )
        with writing(out, "--out"):
            fitted = fitted.save(out)
    for line in lines_of(fitted):
        json_output.answer(line)
    json_output.say(f"Next: recsim-mnar validate {out} {log}  (for which questions it is valid)")
    json_output.write(fitted.to_dict())


def _check_out(out: Path, log: Path) -> None:
    from recsim_mnar.worlds.world_file import SUFFIX

    if out.suffix.lower() != SUFFIX:
        raise UserError(f"--out {out}: a world's file ends in {SUFFIX}")
    if log.is_dir() and log.resolve() in out.resolve().parents:
        raise UserError(f"--out {out} would lie in {log}, which is read: name another file")


def lines_of(fitted: FittedWorld) -> list[str]:
    """What was fitted, for a person."""
    lines = ["", f"The {fitted.world} world, fitted. What the log says (90 % intervals):"]
    for name, told in fitted.identified.items():
        between = f"{told['value']:.4g} ({told['low']:.4g} to {told['high']:.4g})"
        lines.append(f"  {name:<24} {between:<36} {told['why']}")
    lines.append("What it does not say:")
    for name, told in fitted.not_identified.items():
        between = f"{told['low']:.4g} to {told['high']:.4g}; used " if "low" in told else ""
        used = f"{told['used']:.4g}" if isinstance(told.get("used"), (int, float)) else str(told.get("used", ""))
        lines.append(f"  {name:<24} {between + used:<36} {told['why']}")
    lines += ["How:", *(f"  {line}" for line in fitted.method)]
    members = len(fitted.ensemble)
    lines.append(f"World: {fitted.path}, with an ensemble of {members} (as a world: {fitted.path}#1 and so on)")
    return lines
