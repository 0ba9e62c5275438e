"""``recsim-mnar validate``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.options import (
    WHOLE,
    names_of,
    own_log_options,
    reading_of,
    resumably,
    seed_option,
    world_options,
    writing,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.errors import UserError


@click.command(short_help="For which questions a world is valid.")
@click.argument("world")
@click.argument("log", type=click.Path(path_type=Path))
@world_options
@click.option("--checks", default=None, help="Of statistics,classifier; both unless named.")
@click.option(
    "--logging",
    default=None,
    help="The agent that made LOG, or the file of a saved policy; as LOG's provenance says unless named.",
)
@click.option(
    "--items",
    type=click.Choice(["same", "other"]),
    default=None,
    help="Whether item numbers mean the same in world and log.",
)
@click.option("--as-it-is", is_flag=True, help="Hold a fitted world itself against all users, not a fit on half.")
@click.option("--users", type=WHOLE, default=4000, show_default=True, help="Real users looked at, at most.")
@seed_option("Of simulated users and divisions.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Write a page with pictures, PAGE.html.")
@click.option("--resume", is_flag=True, help="Take up an interrupted run with the same --out.")
@own_log_options("reward", "propensity", "action", "item", "event", "user", "time", copies=False)
@json_option("all that is found")
def validate(world: str, log: Path, json_output: JsonOutput, **options: Any) -> None:
    """Hold WORLD against LOG, check by check, each beside what chance does to the same users.

    WORLD is a WORLD.toml of `calibrate`, which is fitted anew on half of the users and held against the others, or a
    world's name with --preset and --set.
    """
    from recsim_mnar.fitting.validation import validate_world
    from recsim_mnar.log.ratings import Ratings, log_of_ratings
    from recsim_mnar.own_log.sources import read_to_fit
    from recsim_mnar.report.validation_page import legend_lines, sentence_lines, table_lines, write_validation

    out = options.pop("out")
    json_output.check(log)
    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out {out}: the page's name ends in .html")
    elif options["resume"]:
        raise UserError("--resume: name the page of the interrupted run with --out")
    keeping = contextlib.nullcontext() if out is None else resumably(out, "--out", resume=options["resume"])
    asked = {"world": world, "log": str(log)}
    asked |= {name: options[name] for name in ("preset", "settings", "checks", "logging", "items", "seed", "users")}
    seed = options["seed"]
    with progress() as report, keeping:
        report("reading")
        made = _world(world, options["preset"], options["settings"])
        best = made.make() if hasattr(made, "ensemble") else made
        read = read_to_fit(log, "ratings" if getattr(best, "rates", False) else "sessions",
                           dict(reading_of(options).columns))  # fmt: skip
        found = validate_world(
            made,
            log_of_ratings(read.log) if isinstance(read.log, Ratings) else read.log,
            seed,
            None if options["checks"] is None else names_of(options["checks"], "--checks"),
            logging=options["logging"],
            n_items=read.n_items,
            same_items=None if options["items"] is None else options["items"] == "same",
            as_it_is=options["as_it_is"],
            most_users=options["users"],
            report=report,
        )
        if out is not None:
            with writing(out, "--out"):
                write_validation(out, found, {"command": "validate", **asked})
    for line in table_lines(found):
        json_output.answer(line)
    for line in legend_lines():
        json_output.say(line)
    for line in ("", *sentence_lines(found)):
        json_output.answer(line)
    if out is not None:
        json_output.say(f"page: {out}")
    json_output.write(found.to_dict())


def _world(name: str, preset: str | None, settings: tuple[str, ...]) -> Any:
    """A fitted world of its file, or a world by its name."""
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.worlds import make_world

    if not name.lower().endswith(".toml"):
        return make_world(name, preset, settings)
    if preset is not None or settings:
        raise UserError("--preset and --set belong to a world's name: a WORLD.toml has its own parameters")
    return FittedWorld.load(name)
