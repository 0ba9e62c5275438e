"""``recsim-mnar replay`` and ``estimate``: commands that read a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.console import console, progress
from recsim_mnar.cli.shared import checked_file, checked_seed, n_workers, names_of, writing
from recsim_mnar.errors import UserError

UNMET = 3
"""Exit status where --require is not met."""


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--policy", required=True, help="Names of target policies, with commas.")
@click.option("--train", type=click.Path(path_type=Path), default=None, help="A log to fit them on.")
@click.option(
    "--items", type=int, default=None, help="Number of items, if more than the log says; else that, or the largest met."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the fit.")
@click.option("--workers", type=int, default=None, help="Threads; as many as there are processors unless named.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file: .parquet, .arrow or .csv.")
def replay(
    log: Path, policy: str, train: Path | None, items: int | None, seed: int, workers: int | None, out: Path
) -> None:
    """Add a column a policy to LOG: the probability with which it would have taken each logged action."""
    from recsim_mnar.log.packing import FORMATS, packed, write_part
    from recsim_mnar.log.parts import write_file
    from recsim_mnar.log.table import Log
    from recsim_mnar.policy import registry
    from recsim_mnar.replay import UNSUPPORTED, replay_with_support
    from recsim_mnar.replay import replay as replay_policy
    from recsim_mnar.rng import derive_seed
    from recsim_mnar.simulate.executor import workers as pool

    form = {ending: form for form, ending in FORMATS.items()}.get(out.suffix.lower(), "csv")
    if form == "csv" and out.suffix.lower() != ".csv":
        raise UserError(f"--out {out}: name a file that ends in .parquet, .arrow or .csv")
    if out.exists():
        raise UserError(f"--out {out} exists: name another file, or remove it first")
    checked_file(out, "--out")
    n_threads = n_workers(workers)
    names = names_of(policy, "--policy")
    learners = {name: registry.learner(name) for name in names}
    data = Log.read(log).validate()
    training = Log.read(train).validate() if train is not None else Log({})
    if len(data) == 0:
        raise UserError(f"{log} has no rows: there is nothing to replay")
    shared = _shared_users(data, training)
    if shared:
        click.echo(
            f"--train: {shared:,} of its users are in LOG too, so agents know the future of those they are "
            "replayed on; name a log of other users",
            err=True,
        )
    n_items = _n_items(data, training)
    if items is not None and items < max(n_items, 1):
        raise UserError(f"--items {items}: the log has {n_items} items; name that many or more, or leave --items away")
    n_items = items or n_items
    result = data
    with pool(n_threads) as executor, progress() as report:
        logging = logging_policy(data, executor)
        for name, learner in learners.items():
            report(f"replay {name}")
            try:
                fitted = learner.fit(training, n_items=n_items, seed=derive_seed(checked_seed(seed), "fit"))
            except UserError as error:
                hint = "" if train is not None else " (name a log to fit it on with --train)"
                raise UserError(f"{error}{hint}") from None
            if logging is None:
                result = result.with_column(name, replay_policy(data, fitted, executor=executor))
                continue
            probability, missing = replay_with_support(data, fitted, logging, executor=executor)
            result = result.with_column(name, probability).with_column(name + UNSUPPORTED, missing)
    with writing(out, "--out"):
        if form == "csv":
            result.write_csv(out)
        else:
            rows = [packed(result.columns, form)]
            write_file(out, len(result), lambda path: write_part(path, rows, result.provenance))
    console().print(
        f"{len(result):,} rows with {', '.join(names)} over {n_items:,} items in {out}", soft_wrap=True, highlight=False
    )


def _shared_users(data: Any, training: Any) -> int:
    """Users in both logs; 0 where their provenance says that they are users of different seeds."""
    if len(training) == 0:
        return 0
    seeds = [each.provenance.get("seed") for each in (data, training)]
    if None not in seeds and seeds[0] != seeds[1]:
        return 0
    return len(set(data["user"].tolist()) & set(training["user"].tolist()))


def logging_policy(log: Any, executor: Any = None) -> Any:
    """The policy under which a log was simulated, made again from its provenance; None where that does not suffice."""
    from recsim_mnar.log.table import Log
    from recsim_mnar.policy import registry
    from recsim_mnar.rng import derive_seed
    from recsim_mnar.simulate.items import simulate
    from recsim_mnar.worlds import make_world

    story = log.provenance
    try:
        spec, world, training = story["policy"]["name"], story["world"], story["training"]
        made: Any = make_world(world["name"], None, world["params"])
        uniform = registry.learner(training["policy"]).fit(Log({}), n_items=made.n_items, seed=0)
        train = simulate(made, uniform, training["n_users"], training["seed"], executor=executor)
        return registry.learner(spec).fit(train, n_items=made.n_items, seed=derive_seed(story["seed"], "fit"))
    except (KeyError, TypeError, UserError):
        return None


def _n_items(*logs: Any) -> int:
    """Number of items: what the logs' worlds say, else the largest item met plus one."""
    known = [_told_items(log.provenance) for log in logs]
    met = [max(int(log["item"].max(initial=-1)), int(log["action"].max(initial=-1))) + 1 for log in logs]
    return max(*known, *met)


def _told_items(provenance: Any) -> int:
    """The number of items of the world that a log says it is of; 0 where it says nothing that can be understood."""
    try:
        told = provenance["world"]["params"]["n_items"]
    except (KeyError, TypeError):
        return 0
    return told if isinstance(told, int) and 0 < told < 1 << 31 else 0


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--target", required=True, help="Columns of target policies' probabilities of the logged actions.")
@click.option("--baseline", default=None, help="Such a column too: adds each target's difference from it.")
@click.option("--estimators", default="ips,clipped_ips,snips", show_default=True, help="Names, with commas.")
@click.option("--clip", type=float, default=15.0, show_default=True, help="Largest weight of the clipped estimators.")
@click.option("--cluster", default=None, help="Column of what makes rows dependent; user where there is one.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Coverage of the intervals.")
@click.option("--q-logged", default=None, help="Column: a reward model's value of the logged action (dr and kin).")
@click.option("--q-target", default=None, help="Column: its mean under the target policy (dm, dr and kin).")
@click.option("--full-support", is_flag=True, help="States that the logging policy can take what the targets can.")
@click.option(
    "--unsupported", default=None, help="Columns of the targets' mass where the logging probability is 0 (as replay's)."
)
@click.option("--reward-min", type=float, default=None, help="Least reward possible.")
@click.option("--reward-max", type=float, default=None, help="Largest reward possible.")
@click.option("--weight-max", type=float, default=None, help="No weight target / propensity can be larger.")
@click.option("--propensity-min", type=float, default=None, help="No action has a smaller propensity.")
@click.option(
    "--require", type=click.Choice(["trust", "caution"]), default=None, help="Exit with 3 where a verdict is below it."
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), default=None, help="Write the estimates there too."
)
def estimate(
    log: Path,
    target: str,
    baseline: str | None,
    estimators: str,
    clip: float,
    cluster: str | None,
    level: float,
    q_logged: str | None,
    q_target: str | None,
    unsupported: str | None,
    require: str | None,
    json_file: Path | None,
    **stated: Any,
) -> None:
    """Estimate what target policies would have earned on LOG: a Parquet or CSV file, or a folder of parts."""
    from recsim_mnar.estimators.off_policy.from_file import estimate_file, records_table
    from recsim_mnar.estimators.verdict import LEVELS
    from recsim_mnar.log.files import write_json
    from recsim_mnar.protocols.records import plain

    if json_file is not None:
        checked_file(json_file, "--json")
        if json_file.resolve() == log.resolve() or log.resolve() in json_file.resolve().parents:
            raise UserError(f"--json {json_file} would lie in the log or replace it: name another file")
    source = log / "log" if (log / "log").is_dir() else log
    records = estimate_file(
        source,
        names_of(target, "--target"),
        baseline=baseline,
        estimators=names_of(estimators, "--estimators"),
        clip=clip,
        cluster=cluster,
        level=level,
        q_logged=q_logged,
        q_target=q_target,
        unsupported=[] if unsupported is None else names_of(unsupported, "--unsupported"),
        **stated,
    )
    console().print(records_table(records))
    if json_file is not None:
        with writing(json_file, "--json"):
            write_json(json_file, plain(records))
    below = [r for r in records if require is not None and LEVELS.index(r["verdict_level"]) > LEVELS.index(require)]
    if below:
        for record in below:
            click.echo(f"--require {require}: {record['policy']}, {record['estimator']}: {record['verdict']}", err=True)
        raise SystemExit(UNMET)
