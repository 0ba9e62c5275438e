"""``recsim-mnar validate``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.console import progress
from recsim_mnar.cli.json_output import JsonOutput, json_option
from recsim_mnar.cli.own_log_options import own_log_options, reading_of
from recsim_mnar.cli.shared import WHOLE, checked_seed, names_of, resumably, writing
from recsim_mnar.errors import UserError


@click.command(short_help="For which questions a world is valid.")
@click.argument("world")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--preset", default=None, help="A preset of the world; its own default unless named.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the world; may be repeated."
)
@click.option("--checks", default=None, help="Of statistics,classifier,ranking,out_of_policy; all unless named.")
@click.option(
    "--other-log",
    type=click.Path(path_type=Path),
    default=None,
    help="Under another policy, or ratings of random items: to be predicted.",
)
@click.option("--agents", default=None, help="Whose ranking is compared; a handful unless named.")
@click.option(
    "--items",
    type=click.Choice(["same", "other"]),
    default=None,
    help="Whether item numbers mean the same in world and log.",
)
@click.option("--as-it-is", is_flag=True, help="Hold a fitted world itself against all users, not a fit on half.")
@click.option("--users", type=WHOLE, default=4000, show_default=True, help="Real users looked at, at most.")
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of simulated users and divisions.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Write a page with pictures, PAGE.html.")
@click.option("--resume", is_flag=True, help="Take up an interrupted run with the same --out.")
@own_log_options("reward", "propensity", "action", "item", "event", "user", "time", copies=False)
@json_option("all that is found")
def validate(world: str, log: Path, json_output: JsonOutput, **options: Any) -> None:
    """Hold WORLD against LOG, check by check, each beside what two halves of LOG show between them.

    WORLD is a WORLD.toml of `calibrate`, which is fitted anew on half of the users and held against the others, or a
    world's name with --preset and --set.
    """
    from recsim_mnar.fitting.validation import validate_world
    from recsim_mnar.report.validation_page import legend_lines, sentence_lines, table_lines, write_validation

    out, other = options.pop("out"), options.pop("other_log")
    json_output.check(log)
    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out {out}: the page's name ends in .html")
    elif options["resume"]:
        raise UserError("--resume: name the page of the interrupted run with --out")
    keeping = contextlib.nullcontext() if out is None else resumably(out, "--out", resume=options["resume"])
    asked = {"world": world, "log": str(log), "other_log": None if other is None else str(other)}
    asked |= {name: options[name] for name in ("preset", "settings", "checks", "agents", "items", "seed", "users")}
    seed = checked_seed(options["seed"])
    with progress() as report, keeping:
        report("reading")
        made = _world(world, options["preset"], options["settings"])
        best = made.make() if hasattr(made, "ensemble") else made
        logs, n_items = _logs(
            [log] if other is None else [log, other], getattr(best, "rates", False), reading_of(options)
        )
        found = validate_world(
            made,
            logs[0],
            seed,
            None if options["checks"] is None else names_of(options["checks"], "--checks"),
            other_log=None if other is None else logs[1],
            agents=None if options["agents"] is None else names_of(options["agents"], "--agents"),
            n_items=n_items,
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


def _logs(paths: list[Path], rates: bool, reading: Any) -> tuple[list[Any], int | None]:
    """Logs, and how many items there are where a source says; two of one's own with users number them alike."""
    from recsim_mnar.fitting.calibration.reading import read_to_fit
    from recsim_mnar.own_log.as_log import needs_numbering, read_as_logs

    own = len(paths) > 1 and not rates and all(path.is_file() and needs_numbering(path) for path in paths)
    if own:
        try:
            both = read_as_logs(paths, reading)
            return both.logs, both.n_items
        except UserError:
            if reading.columns.get("user") is not None:
                raise
    read = [read_to_fit(path, "ratings" if rates else "sessions", dict(reading.columns)) for path in paths]
    sizes = [each.n_items for each in read if each.n_items is not None]
    return [_as_log(each.log) for each in read], max(sizes, default=None)


def _as_log(found: Any) -> Any:
    from recsim_mnar.fitting.validation import log_of_ratings
    from recsim_mnar.log.ratings import Ratings

    return log_of_ratings(found) if isinstance(found, Ratings) else found
