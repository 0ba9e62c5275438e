"""``recsim-mnar simulate`` and ``replay``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    NEW_PATH,
    NEW_PLACE,
    READ_PATH,
    WHOLE,
    names_of,
    new_file,
    option,
    own_log_options,
    reading_of,
    seed_option,
    world_options,
    writing,
)
from recsim_mnar.cli.output import RUN, Crew, JsonOutput, RunRecord, json_option, progress, warn, worker_options
from recsim_mnar.errors import UserError
from recsim_mnar.worlds import entry_of, make_world
from recsim_mnar.worlds.registry import left_behind

if TYPE_CHECKING:
    from recsim_mnar.own_log.replaying import Destination, Given


@click.command(short_help="Add the probabilities of new policies to a log.")
@click.argument("log", type=READ_PATH)
@option("--policy", "Names of target policies, with commas.", required=True)
@option("--train", "A log of other users to fit them on.", READ_PATH)
@option("--items", "Number of items, if more than the log says; else that, or the largest met.", WHOLE)
@seed_option("Seed of the fit.")
@worker_options
@option("--resume", "Take up an interrupted run in the same folder.", bool)
@option("--out", "The file: .parquet, .arrow or .csv; or a new folder of parts: FOLDER/.", NEW_PLACE, required=True)
@own_log_options("reward", "propensity", "action", "item", "event", "user", "time", "slate", "position", copies=False)
@json_option("what was written")
def replay(
    log: Path,
    policy: str,
    train: Path | None,
    out: str,
    crew: Crew,
    json_output: JsonOutput,
    **options: Any,
) -> None:
    """Add a column per policy to LOG: the probability with which it would have taken each logged action.

    In a log of slates that simulate wrote agents rank; three further columns per policy have its probabilities of the
    item given those above, of the slate, and of its items in any order.

    A file of your own needs the items that users viewed besides what was recommended to them: agents act on histories.
    """
    from recsim_mnar.own_log.replaying import Fitting, check_training, given_logs, items_of
    from recsim_mnar.policies import registry
    from recsim_mnar.simulation.run_folder import logging_policy

    json_output.check(log, train, Path(out))
    destination = _destination(out, options["resume"])
    record = RunRecord("replay")
    names = names_of(policy, "--policy")
    learners = {name: registry.learner(name) for name in names}
    logs = given_logs(log, train, reading_of(options))
    json_output.say(*logs.lines)
    n_rows = logs.survey.n_rows
    if n_rows == 0:
        raise UserError(f"{log} has no rows: there is nothing to replay")
    digest = _training_digest(log, train)
    _warn_of_logs(log, train, logs)
    check_training(logs, train, learners)
    fitting = Fitting(learners, items_of(logs, options["items"]), options["seed"], digest)
    with crew.executor(record, named=names) as pool, progress() as report:
        logging = logging_policy(logs.provenance, executor=pool)
        fitted, story = fitting.policies(logs, report)
        with writing(destination.path, "--out"):
            n_kept = fitting.write(logs, fitted, story, logging, destination, pool)
    path = destination.path
    record.write(path / RUN if destination.form is None else Path(f"{path}.{RUN}"))
    content = {"file": out, "rows": n_rows, "policies": names, "items": fitting.n_items, "parts_kept": n_kept}
    kept = f" ({n_kept} parts already existed)" if n_kept else ""
    json_output.say(f"{n_rows:,} rows with {', '.join(names)} over {fitting.n_items:,} items in {out}{kept}")
    json_output.write(content)


def _training_digest(log: Path, train: Path | None) -> str | None:
    """Compute the digest of the log that agents are fitted on; None if they are not fitted.

    Raises:
        UserError: --train is LOG itself, whose users evaluate the agents.
    """
    from recsim_mnar.own_log.replaying import digest_of_log

    digest = digest_of_log(train)
    if train is not None and digest == digest_of_log(log):
        raise UserError(
            f"--train {train}: it is LOG itself, and whatever is fitted on the users who judge it looks good; name a "
            "log of other users, or type estimate LOG --agents, which splits them"
        )
    return digest


def _destination(out: str, resume: bool) -> Destination:
    """Return the file or folder that ``--out`` names.

    Raises:
        UserError: it is no file of a known kind and no folder, or exists already.
    """
    from recsim_mnar.log.table import FORMATS
    from recsim_mnar.own_log.replaying import Destination

    path = Path(out)
    forms = {ending: form for form, ending in FORMATS.items()} | {".csv": "csv"}
    form = forms.get(path.suffix.lower())
    if form is None:
        if path.suffix and not out.endswith(("/", os.sep)):
            raise UserError(f"--out {out}: name a file that ends in .parquet, .arrow or .csv, or a folder as {out}/")
        return Destination(path, None, resume)
    if resume:
        raise UserError(f"--resume: {out} is one file, written as a whole; name a folder with --out {path.stem}/")
    new_file(path, "--out")
    return Destination(path, form, resume)


def _warn_of_logs(log: Path, train: Path | None, logs: Given) -> None:
    """Print warnings about an invalid seed in the metadata of a log, and about users who are in both logs.

    Args:
        log: path of the log to replay.
        train: path of the training log; None without one.
        logs: both logs.
    """
    from recsim_mnar.rng import is_seed

    for path, provenance in ((log, logs.provenance), (train, logs.training.provenance)):
        seed = provenance.get("seed", 0)
        if not is_seed(seed):
            warn(
                f"{path}: its metadata give the seed {seed!r:.40}, which is none (0 to 2**64 - 1), so the policy that "
                "logged it is not made again, nor its missing mass known"
            )
    if logs.survey.shared_users:
        warn(
            f"--train: {logs.survey.shared_users:,} of its users are in LOG too, so agents know the future of those "
            "they are replayed on; name a log of other users"
        )


DEFAULT_TRAIN_USERS = 2000


@click.command(short_help="Simulate users under a policy and write the log.")
@option("--world", "A world's name, or package.module:Class.", default="sessions")
@world_options
@option(
    "--policy",
    "What recommends: a name, package.module:Class, or deployed (campaigns, purchases: the world's own).",
    required=True,
)
@option("--users n_users", "How many users.", WHOLE, required=True)
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
@option("--resume", "Take up an interrupted run in the same folder.", bool)
@option("--out", "A new folder.", NEW_PATH, required=True)
@json_option("what was written")
def simulate(crew: Crew, json_output: JsonOutput, **options: Any) -> None:
    """Simulate users under a policy; writes OUT/log in Parquet or Arrow parts.

    In a world of slates (--set slate_size=5) every policy ranks, and the log has one row per position.

    The campaigns world is one platform; its policy is the recommender of the campaigns, fitted before each of them on
    what users hold then, or "deployed" for the platform's own weights.
    """
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.simulation.executor import checked_users
    from recsim_mnar.simulation.run_folder import Request

    out: Path = options["out"]
    json_output.check(out)
    checked_users("--users", options["n_users"])
    checked_users("--train-users", options["train_users"])
    entry = entry_of(options["world"])
    if not entry.world_class().in_parts:
        if options["resume"]:
            raise UserError(f"--resume: the {entry.name} world is simulated whole, in one go; omit --resume")
        if options["form"] != "parquet":
            raise UserError(f"--format: the {entry.name} world is written as Parquet; omit --format")
    record = RunRecord("simulate")
    with RunFolder.fill(out, resume=options["resume"], what="--out"):
        world = make_world(options["world"], options["preset"], options["settings"])
        named = [options["world"], options["policy"]]
        with crew.executor(record, named=named) as pool, progress(options["n_users"], "users") as report:
            # The first call has the number of users in parts that exist already, further calls those just simulated.
            first = iter([report.goes_on])
            of_request = ("out", "policy", "n_users", "seed", "train_users", "keep_truth", "form", "resume")
            request = Request(
                **{name: options[name] for name in of_request},
                executor=pool,
                progress=lambda users: next(first, report.advance)(users),
            )
            written = entry.simulator()(world, request)
        record.write(out / RUN)
    for remark in left_behind(world, options["world"], options["preset"], options["settings"]):
        json_output.sentence(remark, remark=True)
    kept = f" ({written.n_kept} of {written.n_parts} parts already existed)" if written.n_kept else ""
    users = f"{written.n_users:,} user{'s' if written.n_users != 1 else ''}"
    json_output.say(f"{users}, {written.n_rows:,} events in {out / 'log'}{kept}")
    json_output.write(
        {
            "log": str(out / "log"),
            "users": written.n_users,
            "rows": written.n_rows,
            "parts": written.n_parts,
            "parts_kept": written.n_kept,
        }
    )
