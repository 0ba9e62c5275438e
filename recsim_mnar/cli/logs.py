"""``recsim-mnar replay`` and ``estimate``: commands that read a log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.console import console, progress
from recsim_mnar.cli.estimate_page import claimed_outside, write_estimate_page
from recsim_mnar.cli.json_output import JsonOutput, json_option
from recsim_mnar.cli.own_log_options import own_log_options, reading_of
from recsim_mnar.cli.shared import checked_file, checked_seed, n_workers, names_of, writing
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.own_log.estimating import Answer

UNMET = 3
"""Exit status where --require is not met."""


@click.command(short_help="Add policies' probabilities to a log.")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--policy", required=True, help="Names of target policies, with commas.")
@click.option("--train", type=click.Path(path_type=Path), default=None, help="A log to fit them on.")
@click.option(
    "--items", type=int, default=None, help="Number of items, if more than the log says; else that, or the largest met."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the fit.")
@click.option("--workers", type=int, default=None, help="Threads; as many as there are processors unless named.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file: .parquet, .arrow or .csv.")
@own_log_options("reward", "propensity", "action", "item", "event", "user", "time", copies=False)
def replay(
    log: Path, policy: str, train: Path | None, items: int | None, seed: int, workers: int | None, out: Path, **own: Any
) -> None:
    """Add a column a policy to LOG: the probability with which it would have taken each logged action.

    A file of your own needs the items that users viewed beside what was recommended to them: agents act on histories.
    """
    from recsim_mnar.log.packing import FORMATS, packed, write_part
    from recsim_mnar.log.parts import write_file
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
    data, training, ours = _logs(log, train, reading_of(own))
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
                if not ours:
                    _refuse_without_views(log, data, name, fitted)
            except UserError as error:
                if not ours:
                    _refuse_without_views(log, data, name)
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


def _logs(log: Path, train: Path | None, reading: Any) -> tuple[Any, Any, bool]:
    """LOG, the log to train on, and whether they are logs of this package's; what was taken of others is said."""
    from recsim_mnar.log.table import Log
    from recsim_mnar.own_log.as_log import needs_numbering, read_as_logs

    paths = [log] if train is None else [log, train]
    foreign = [needs_numbering(path) for path in paths]
    if not any(foreign):
        return (
            Log.read(log).validate(first_row=1),
            Log.read(train).validate(first_row=1) if train is not None else Log({}),
            True,
        )
    if not all(foreign):
        ours = paths[foreign.index(False)]
        raise UserError(
            f"{paths[foreign.index(True)]} is a file of your own and {ours} a log of this package's, which numbers its "
            "items: give LOG and --train in one form"
        )
    found = read_as_logs(paths, reading)
    for line in found.lines:
        click.echo(line)
    return found.logs[0].validate(), found.logs[1].validate() if train is not None else Log({}), False


def _refuse_without_views(log: Path, data: Any, name: str, fitted: Any = None) -> None:
    """Say that a log without views replays nothing but policies that look at no history."""
    if data.is_bandit.all() and (fitted is None or fitted.fixed_distribution() is None):
        raise UserError(
            f"{log} has no item events (views), so {name} would act on empty histories: add the users' views as rows, "
            "or give estimate the policy's own probabilities with --target-file"
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


@click.command(short_help="What other policies would have earned on a log.")
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--target",
    default=None,
    help="Columns of target policies' probabilities of the logged actions, of LOG or of --target-file.",
)
@click.option("--baseline", default=None, help="Such a column too: adds each target's difference from it.")
@click.option(
    "--target-file",
    type=click.Path(path_type=Path),
    default=None,
    help="A second file with the targets: a column a policy, or a column a candidate action.",
)
@click.option("--on", default=None, help="The column, of both files, by which its rows are found.")
@click.option(
    "--estimators",
    default=None,
    help="Names, with commas.  [default: ips,clipped_ips,snips, and dr with --fit-reward-model]",
)
@click.option("--clip", default="15", show_default=True, help="Largest weight of the clipped estimators, or none.")
@click.option("--cluster", default=None, help="Column of what makes rows dependent; the users' where there is one.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Coverage of the intervals.")
@own_log_options("reward", "propensity", "action", "user", "time", "logger")
@click.option("--context-columns", default=None, help="Columns of what the logging policy saw.")
@click.option("--fit-reward-model", is_flag=True, help="Fit a reward model for dr, cross-fitted by users.")
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
@json_option("the estimates")
@click.option(
    "--out", type=click.Path(path_type=Path), default=None, help="A new folder for report.html and results.json."
)
def estimate(log: Path, require: str | None, json_output: JsonOutput, out: Path | None, **options: Any) -> None:
    """Estimate what target policies would have earned on LOG: Parquet or CSV, one file or a folder of parts.

    In a file of your own the usual names of columns are recognised (clicks, user_id, pscore), and what was taken is
    said first. See docs/your-own-log.md.
    """
    from recsim_mnar.estimators.off_policy.from_file import records_table
    from recsim_mnar.estimators.verdict import LEVELS

    json_output.check(log, options["target_file"])
    source = log / "log" if (log / "log").is_dir() else log
    asked = dict(options)
    with contextlib.nullcontext() if out is None else claimed_outside(out, log):
        records, lines, answer = _estimates(source, options)
        for line in lines:
            json_output.say(line)
        if not json_output.alone:
            console().print(records_table(records))
        if out is not None:
            write_estimate_page(out, source, asked, records, answer)
            json_output.say(f"Report: {out / 'report.html'}")
    json_output.write(records)
    below = [r for r in records if require is not None and LEVELS.index(r["verdict_level"]) > LEVELS.index(require)]
    if below:
        for record in below:
            click.echo(f"--require {require}: {record['policy']}, {record['estimator']}: {record['verdict']}", err=True)
        raise SystemExit(UNMET)


def _estimates(log: Path, options: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str], Answer | None]:
    """The records of a log, what is said of a file that is not one of our own, and all that was made of that."""
    from recsim_mnar.estimators.off_policy.from_file import estimate_file
    from recsim_mnar.own_log.own_schema import is_own_schema

    context = options.pop("context_columns")
    own = {key: options[key] for key in ("target_file", "on", "fit_reward_model", "drop_missing", "deduplicate")}
    named = [options[key] for key in options if key.endswith("_column")]
    reading = reading_of(options, context)
    cluster = options.pop("cluster")
    if cluster is not None:
        reading.columns["user"] = cluster
    target, unsupported = options.pop("target"), options.pop("unsupported")
    if target is None and own["target_file"] is None:
        raise UserError("name the target policies' columns with --target, or give --target-file FILE --on KEY")
    targets = [] if target is None else names_of(target, "--target")
    estimators = options.pop("estimators") or "ips,clipped_ips,snips" + (",dr" if own["fit_reward_model"] else "")
    common: dict[str, Any] = {
        "baseline": options.pop("baseline"),
        "estimators": names_of(estimators, "--estimators"),
        "clip": _clip_of(options.pop("clip")),
        "level": options.pop("level"),
        "q_logged": options.pop("q_logged"),
        "q_target": options.pop("q_target"),
        "unsupported": [] if unsupported is None else names_of(unsupported, "--unsupported"),
    }
    ours = not (any(own.values()) or any(named) or context) and is_own_schema(log)
    for key in ("target_file", "on", "fit_reward_model"):
        options.pop(key)
    if ours:
        return estimate_file(log, targets, cluster=cluster, **common, **options), [], None
    from recsim_mnar.own_log.estimating import Question, estimate_own_log

    question = Question(
        targets,
        target_file=own["target_file"],
        on=own["on"],
        fit_reward_model=own["fit_reward_model"],
        stated=options,
        **common,
    )
    answer = estimate_own_log(log, question, reading=reading)
    return answer.records, answer.lines, answer


def _clip_of(text: str) -> float | None:
    """``--clip`` as a number; None for no clipping."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--clip must be a positive number, or none for no clipping, got {text!r}") from None
