"""``recsim-mnar simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.console import console, progress
from recsim_mnar.cli.shared import WHOLE, checked_seed, n_workers
from recsim_mnar.errors import UserError
from recsim_mnar.worlds import entry_of, make_world

DEFAULT_TRAIN_USERS = 2000


@click.command(short_help="Users under a policy: a log in a folder.")
@click.option("--world", required=True, help="A world's name, or package.module:Class.")
@click.option("--preset", default=None, help="A preset of the world; its own default unless named.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the world; may be repeated."
)
@click.option(
    "--policy",
    required=True,
    help="What recommends: a name, package.module:Class, or deployed (campaigns, purchases: the world's own).",
)
@click.option("--users", type=WHOLE, required=True, help="How many users.")
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of the users and the policy.")
@click.option("--workers", type=WHOLE, default=None, help="Threads; as many as there are processors unless named.")
@click.option(
    "--train-users", type=WHOLE, default=DEFAULT_TRAIN_USERS, show_default=True, help="For a policy that learns."
)
@click.option("--truth", is_flag=True, help="Write truth.parquet and catalogue.npz beside the log.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "arrow"]),
    default="parquet",
    show_default=True,
    help="Of the parts: arrow is some fifteen times larger and is read without decoding.",
)
@click.option("--resume", is_flag=True, help="Take up an interrupted run in the same folder.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new folder.")
def simulate(**options: Any) -> None:
    """Simulate users under a policy; writes OUT/log in Parquet or Arrow parts.

    The campaigns world is one platform; its policy is the recommender of the campaigns, fitted before each of them on
    what users hold then, or "deployed" for the platform's own weights.
    """
    from recsim_mnar.simulate.executor import checked_users, workers
    from recsim_mnar.simulate.named import Request
    from recsim_mnar.simulate.run_folder import claimed

    n = n_workers(options["workers"])
    checked_users("--users", options["users"])
    checked_users("--train-users", options["train_users"])
    seed = checked_seed(options["seed"])
    entry = entry_of(options["world"])
    if options["resume"] and not entry.world_class().in_parts:
        raise UserError(f"--resume: the {entry.name} world is simulated whole, in one go; omit --resume")
    if options["form"] != "parquet" and not entry.world_class().in_parts:
        raise UserError(f"--format: the {entry.name} world is written as Parquet; omit --format")
    with claimed(options["out"], resume=options["resume"], what="--out"):
        world = make_world(options["world"], options["preset"], options["settings"])
        with workers(n) as executor, progress(total=options["users"], unit="users") as report:
            written = entry.simulator()(
                world,
                Request(
                    out=options["out"],
                    policy=options["policy"],
                    n_users=options["users"],
                    seed=seed,
                    train_users=options["train_users"],
                    keep_truth=options["truth"],
                    form=options["form"],
                    resume=options["resume"],
                    executor=executor,
                    progress=report.advance,
                ),
            )
    kept = f" ({written.n_kept} of {written.n_parts} parts were there already)" if written.n_kept else ""
    users = f"{written.n_users:,} user{'s' if written.n_users != 1 else ''}"
    console().print(
        f"{users}, {written.n_rows:,} events in {options['out'] / 'log'}{kept}",
        soft_wrap=True,
        highlight=False,
    )
