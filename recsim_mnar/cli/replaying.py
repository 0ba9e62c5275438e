"""``recsim-mnar replay``: what is asked, and the file or folder written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    NEW_PLACE,
    PROPENSITIES_OF,
    READ_PATH,
    WHOLE,
    names_of,
    new_file,
    option,
    own_log_options,
    reading_of,
    seed_option,
    writing,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress, warn
from recsim_mnar.cli.workers import RUN, RunRecord, executor, refuse_both, worker_options
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.own_log.replaying import Destination

TWO_POLICIES = "two values of two policies, each fitted on the other half; neither is the one fitted on all users"


@click.command(short_help="Add the probabilities of new policies to a log.")
@click.argument("log", type=READ_PATH)
@option("--policy", "Names of target policies, with commas.", required=True)
@option("--train", "A log of other users to fit them on.", READ_PATH)
@option(
    "--split-users",
    "Fit on one half of LOG's users and judge on the other, both ways: two files, FILE-half-1 and FILE-half-2, "
    "and two values of two policies, neither of them the one fitted on all users.",
    bool,
)
@option("--items", "Number of items, if more than the log says; else that, or the largest met.", WHOLE)
@seed_option("Seed of the fit.")
@worker_options
@option("--resume", "Take up an interrupted run in the same folder.", bool)
@option("--out", "The file: .parquet, .arrow or .csv; or a new folder of parts: FOLDER/.", NEW_PLACE, required=True)
@own_log_options("reward", "propensity", "action", "item", "event", "user", "time", "slate", "position", copies=False)
@PROPENSITIES_OF
@json_option("what was written")
def replay(
    log: Path,
    policy: str,
    train: Path | None,
    split_users: bool,
    out: str,
    json_output: JsonOutput,
    **options: Any,
) -> None:
    """Add a column per policy to LOG: the probability with which it would have taken each logged action.

    In a log of slates agents rank; three further columns per policy have its probabilities of the item given those
    above, of the slate, and of its items in any order.

    A file of your own needs the items that users viewed besides what was recommended to them: agents act on histories.
    """
    from recsim_mnar.own_log.replaying import Fitting, check_training, digest_of_log, given_logs, halves_of, items_of
    from recsim_mnar.policies import registry
    from recsim_mnar.simulation.run_folder import logging_policy

    json_output.check(log, train, Path(out))
    if split_users and train is not None:
        raise UserError("--split-users fits on LOG's own users: leave --train away, or --split-users")
    resume, workers, scheduler = (options[name] for name in ("resume", "workers", "scheduler"))
    targets = split_destinations(out, resume) if split_users else [destination_of(out, resume)]
    refuse_both(workers, scheduler)
    record = RunRecord("replay")
    names = names_of(policy, "--policy")
    learners = {name: registry.learner(name) for name in names}
    given = given_logs(log, train, reading_of(options))
    json_output.say(*given.lines)
    rows = given.survey.n_rows
    if rows == 0:
        raise UserError(f"{log} has no rows: there is nothing to replay")
    digest = digest_of_log(log if split_users else train)
    if train is not None and digest == digest_of_log(log):
        raise UserError(
            f"--train {train}: it is LOG itself, and whatever is fitted on the users who judge it looks good; name a "
            "log of other users, or --split-users"
        )
    _warn_of_seeds((log, given), (train, given.training))
    parts = halves_of(given, options["seed"]) if split_users else [given]
    check_training(given, log if split_users else train, parts[0].training, learners)
    if given.survey.shared_users:
        warn(
            f"--train: {given.survey.shared_users:,} of its users are in LOG too, so agents know the future of those "
            "they are replayed on; name a log of other users"
        )
    fit = Fitting(learners, items_of(given, options["items"]), options["seed"], digest)
    with (
        executor(workers, scheduler, record, named=names) as found,
        progress() as report,
    ):
        logging = logging_policy(given.provenance, executor=found)
        for half, (part, target) in enumerate(zip(parts, targets, strict=True), start=1):
            fitted, story = fit.policies(part, half if split_users else None, report)
            with writing(target.path, "--out"):
                kept = fit.write(part, fitted, story, logging, target, found)
    files = [str(target.path) if split_users else out for target in targets]
    for target in targets:
        record.write(target.path / RUN if target.form is None else Path(f"{target.path}.{RUN}"))
    there = f" ({kept} parts already existed)" if kept else ""
    said = f"{rows:,} rows with {', '.join(names)} over {fit.n_items:,} items in {' and '.join(files)}{there}"
    json_output.say(said + (": " + TWO_POLICIES if split_users else ""))
    content = {"file": files[0], "rows": rows, "policies": names, "items": fit.n_items, "parts_kept": kept}
    json_output.write(content | ({"files": files} if split_users else {}))


def destination_of(out: str, resume: bool) -> Destination:
    """Destination named by ``--out``.

    Raises:
        UserError: it is neither a file of a known kind nor a folder, or there already.
    """
    from recsim_mnar.log.table import FORMATS
    from recsim_mnar.own_log.replaying import Destination

    path = Path(out)
    forms = {ending: form for form, ending in FORMATS.items()} | {".csv": "csv"}
    form = forms.get(path.suffix.lower())
    if form is None and (out.endswith(("/", os.sep)) or not path.suffix):
        return Destination(path, None, resume)
    if form is None:
        raise UserError(f"--out {out}: name a file that ends in .parquet, .arrow or .csv, or a folder as {out}/")
    if resume:
        raise UserError(f"--resume: {out} is one file, written as a whole; name a folder with --out {path.stem}/")
    new_file(path, "--out")
    return Destination(path, form, resume)


def split_destinations(out: str, resume: bool) -> list[Destination]:
    """The two files of users that are split.

    Raises:
        UserError: a folder; or as :func:`destination_of`.
    """
    path = Path(out)
    if destination_of(out, resume).form is None:
        raise UserError(f"--out {out}: --split-users writes two files; name one that ends in .parquet, .arrow or .csv")
    return [destination_of(str(path.with_stem(f"{path.stem}-half-{half}")), False) for half in (1, 2)]


def _warn_of_seeds(*logs: tuple[Path | None, Any]) -> None:
    """Note where a log's metadata name a seed that is none: what hangs on it is left out."""
    from recsim_mnar.rng import is_seed

    for path, data in logs:
        seed = data.provenance.get("seed", 0)
        if not is_seed(seed):
            warn(
                f"{path}: its metadata give the seed {seed!r:.40}, which is none (0 to 2**64 - 1), so the policy that "
                "logged it is not made again, nor its missing mass known"
            )
