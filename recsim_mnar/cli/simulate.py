"""``recsim-mnar simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.console import console, progress
from recsim_mnar.cli.shared import checked_seed, n_workers
from recsim_mnar.errors import UserError
from recsim_mnar.worlds import make_world

DEFAULT_TRAIN_USERS = 2000


@click.command()
@click.option("--world", required=True, help="A world's name.")
@click.option("--preset", default=None, help="A preset of the world; its own default unless named.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the world; may be repeated."
)
@click.option(
    "--policy", required=True, help="What recommends: a name, package.module:Class, or house (campaigns, purchases)."
)
@click.option("--users", type=int, required=True, help="How many users.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the users and the policy.")
@click.option("--workers", type=int, default=None, help="Threads; as many as there are processors unless named.")
@click.option(
    "--train-users", type=int, default=DEFAULT_TRAIN_USERS, show_default=True, help="For a policy that learns."
)
@click.option("--truth", is_flag=True, help="Write truth.parquet and catalogue.npz beside the log.")
@click.option("--resume", is_flag=True, help="Take up an interrupted run in the same folder.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new folder.")
def simulate(**options: Any) -> None:
    """Simulate users under a policy; writes OUT/log in Parquet parts.

    The campaigns world is one platform; its policy is the recommender of the campaigns, fitted before each of them on
    what users hold then, or "house" for the platform's own weights.
    """
    from recsim_mnar.simulate.executor import checked_users
    from recsim_mnar.simulate.run_folder import claimed

    n_workers(options["workers"])
    checked_users("--users", options["users"])
    checked_users("--train-users", options["train_users"])
    if options["world"] == "campaigns" and options["resume"]:
        raise UserError("--resume: a platform is simulated whole, in one go; leave --resume away")
    with claimed(options["out"], resume=options["resume"], what="--out"):
        if options["world"] == "campaigns":
            _simulate_platform(options)
        else:
            _simulate_users(options)


def _simulate_users(options: dict[str, Any]) -> None:
    from recsim_mnar.simulate.executor import workers
    from recsim_mnar.simulate.run_folder import simulate_to

    world: Any = make_world(options["world"], options["preset"], options["settings"])
    with workers(n_workers(options["workers"])) as executor:
        policy = _fitted(options["policy"], world, options["train_users"], options["seed"], executor)
        with progress(total=options["users"], unit="users") as report:
            counts = simulate_to(
                options["out"],
                world,
                policy,
                options["users"],
                checked_seed(options["seed"]),
                training=None
                if options["policy"] == "house"
                else {"policy": "random", "n_users": options["train_users"], "seed": _train_seed(options["seed"])},
                keep_truth=options["truth"],
                resume=options["resume"],
                executor=executor,
                progress=report.advance,
            )
    if options["world"] == "purchases":
        from recsim_mnar.simulate.slates import write_exposures

        write_exposures(
            options["out"], world, policy, options["users"], checked_seed(options["seed"]), options["truth"]
        )
    kept = f" ({counts['kept']} of {counts['parts']} parts were there already)" if counts["kept"] else ""
    console().print(
        f"{counts['users']:,} users, {counts['rows']:,} events in {options['out'] / 'log'}{kept}",
        soft_wrap=True,
        highlight=False,
    )


def _simulate_platform(options: dict[str, Any]) -> None:
    """The campaigns world is simulated whole: one platform, campaigns on the days that its parameters name."""
    from recsim_mnar.policy import registry
    from recsim_mnar.simulate.platform import platform_to

    world: Any = make_world("campaigns", options["preset"], (*options["settings"], f"n_users={options['users']}"))
    recommender = None if options["policy"] == "house" else registry.learner(options["policy"])
    rows = platform_to(options["out"], world, checked_seed(options["seed"]), recommender, keep_truth=options["truth"])
    console().print(
        f"{options['users']:,} users, {rows:,} events in {options['out'] / 'log'}", soft_wrap=True, highlight=False
    )


def _train_seed(seed: int) -> int:
    from recsim_mnar.rng import derive_seed

    return derive_seed(checked_seed(seed), "train")


def _fitted(spec: str, world: Any, train_users: int, seed: int, executor: Any) -> Any:
    """The policy of a name, fitted on ``train_users`` other users under the uniform policy."""
    if spec == "house" and world.name == "purchases":
        from recsim_mnar.policy.slates import DeployedPolicy

        return DeployedPolicy(world)
    if spec == "house":
        raise UserError(f"--policy house: only campaigns and purchases have it, the {world.name} world has not")
    from recsim_mnar.log.table import Log
    from recsim_mnar.policy import registry
    from recsim_mnar.rng import derive_seed
    from recsim_mnar.simulate.items import simulate

    learner = registry.learner(spec)
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, train_users, _train_seed(seed), executor=executor)
    return learner.fit(train, n_items=world.n_items, seed=derive_seed(seed, "fit"))
