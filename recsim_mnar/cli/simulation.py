"""``recsim-mnar simulate``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import NEW_PATH, USERS, WHOLE, option, seed_option, world_options
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.cli.workers import RUN, RunRecord, executor, refuse_both, worker_options
from recsim_mnar.errors import UserError
from recsim_mnar.worlds import entry_of, make_world

if TYPE_CHECKING:
    from recsim_mnar.worlds.base import World

DEFAULT_TRAIN_USERS = 2000
REPORT = "report.html"


@click.command(short_help="Simulate users under a policy and write the log.")
@option("--world", "A world's name, or package.module:Class.", default="sessions")
@world_options
@option(
    "--policy",
    "What recommends: a name, package.module:Class, or deployed (campaigns, purchases: the world's own).",
    required=True,
)
@option("--users n_users", "How many users.", USERS, required=True)
@seed_option("Seed of the users and the policy.")
@worker_options
@option("--train-users", "Users that a policy that learns is fitted on.", WHOLE, DEFAULT_TRAIN_USERS)
@option("--truth keep_truth", "Write truth.parquet and catalogue.npz next to the log.", bool)
@option(
    "--format form",
    "Format of the parts: arrow takes more than twice the space and is sooner written.",
    click.Choice(["parquet", "arrow"]),
    "parquet",
)
@option("--report", "Write OUT/report.html too: what the log holds, with figures.", bool)
@option("--resume", "Take up an interrupted run in the same folder.", bool)
@option("--out", "A new folder.", NEW_PATH, required=True)
@json_option("what was written")
def simulate(json_output: JsonOutput, **options: Any) -> None:
    """Simulate users under a policy; writes OUT/log in Parquet or Arrow parts.

    In a world of slates (--set slate_size=5) every policy ranks, and the log has one row per position.

    The campaigns world is one platform; its policy is the recommender of the campaigns, fitted before each of them on
    what users hold then, or "deployed" for the platform's own weights.
    """
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.simulation.executor import checked_users
    from recsim_mnar.simulation.run_folder import Request

    out, workers, scheduler = (options[name] for name in ("out", "workers", "scheduler"))
    json_output.check(out)
    refuse_both(workers, scheduler)
    checked_users("--users", options["n_users"])
    checked_users("--train-users", options["train_users"])
    entry = entry_of(options["world"])
    if options["resume"] and not entry.world_class().in_parts:
        raise UserError(f"--resume: the {entry.name} world is simulated whole, in one go; omit --resume")
    if options["form"] != "parquet" and not entry.world_class().in_parts:
        raise UserError(f"--format: the {entry.name} world is written as Parquet; omit --format")
    record = RunRecord("simulate")
    with RunFolder.fill(out, resume=options["resume"], what="--out"):
        world = make_world(options["world"], options["preset"], options["settings"])
        named = [options["world"], options["policy"]]
        with (
            executor(workers, scheduler, record, named=named) as found,
            progress(total=options["n_users"], unit="users") as report,
        ):
            first = iter([report.goes_on])  # the first number is of the users of parts that are there
            asked = ("out", "policy", "n_users", "seed", "train_users", "keep_truth", "form", "resume")
            request = Request(
                **{name: options[name] for name in asked},
                executor=found,
                progress=lambda users: next(first, report.advance)(users),
            )
            written = entry.simulator()(world, request)
        record.write(out / RUN)
    summary = _write_report(world, options) if options["report"] else None
    kept = f" ({written.n_kept} of {written.n_parts} parts already existed)" if written.n_kept else ""
    users = f"{written.n_users:,} user{'s' if written.n_users != 1 else ''}"
    json_output.say(f"{users}, {written.n_rows:,} events in {out / 'log'}{kept}")
    content = {"log": str(out / "log"), "users": written.n_users, "rows": written.n_rows}
    content |= {"parts": written.n_parts, "parts_kept": written.n_kept}
    if summary is not None:
        content["summary"] = summary
        json_output.say(f"Report: {out / REPORT}")
    json_output.write(content)


def _write_report(world: World, options: dict[str, Any]) -> dict[str, Any]:
    """Write the report of the log into the folder and return it."""
    from recsim_mnar.own_log.in_numbers import log_in_numbers
    from recsim_mnar.report.log_page import summary_of, write_log_page

    found = log_in_numbers(options["out"] / "log")
    write_log_page(options["out"] / REPORT, found, _further(world, options))
    return summary_of(found)


def _further(world: World, options: dict[str, Any]) -> list[tuple[str, str]]:
    """Suggested next commands, each with its purpose."""
    from recsim_mnar.worlds.base import DecisionWorld

    out = options["out"]
    same = ["--world", options["world"]]
    same += ["--preset", options["preset"]] if options["preset"] else []
    for setting in options["settings"]:
        same += ["--set", setting]
    found: list[tuple[list[str], str]] = [(["verify", str(out)], "Is every file as it was written?")]
    if isinstance(world, DecisionWorld):
        training, replayed = out.with_name(f"{out.name}-training"), out.with_name(f"{out.name}-replayed.parquet")
        agents = ["popularity", "svd"]
        targets = ",".join(agents)
        seed = str(options["seed"] ^ 1)  # another one, and different seeds share no user
        found += [
            (["doctor", str(out / "log")], "What do other commands make of it?"),
            (["estimate", str(out / "log"), "--target", "propensity"], "What did the policy earn that logged it?"),
            (
                ["simulate", *same, "--policy", "random", "--users", "500", "--seed", seed, "--out", str(training)],
                "What would other agents have earned? First a log of other users, to learn from:",
            ),
            (
                ["replay", str(out), "--policy", targets, "--train", str(training), "--out", str(replayed)],
                "then each agent's probability of what was shown:",
            ),
            (
                ["estimate", str(replayed), "--target", targets, "--baseline", "today"],
                "and what each would have earned, with an interval and whether to believe it:",
            ),
        ]
    found.append((["compare", *same], "Which way of judging agents is right in this world?"))
    return [(shlex.join(["recsim-mnar", *words]), what) for words, what in found]
