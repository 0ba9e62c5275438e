"""The command line: ``recsim-mnar compare | simulate | replay | estimate | worlds | agents | estimators | presets``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from recsim_mnar.console import console, print_list, progress
from recsim_mnar.errors import UserError

DEFAULT_AGENTS = "random,popularity,user-popularity,svd,item-knn,user-knn"
DEFAULT_TRAIN_USERS = 2000

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=_CONTEXT)
@click.version_option(package_name="recsim-mnar", prog_name="recsim-mnar")
def cli() -> None:
    """Simulate people who browse and are shown recommendations, and see which evaluation protocol tells the truth."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every mistake of the user's is one line on standard error and exit status 2."""
    given = sys.argv[1:] if arguments is None else arguments
    # A console script does not look in the folder it is called from, where a user's own ``module:Class`` lies.
    sys.path.insert(0, os.getcwd())
    interrupts = _watch_interrupts()
    try:
        status = cli.main(args=given or ["--help"], prog_name="recsim-mnar", standalone_mode=False)
    except UserError as error:
        _fail(str(error))
    except click.ClickException as error:
        _fail(" ".join(error.format_message().split()))
    except (click.Abort, KeyboardInterrupt):
        _leave_interrupted()
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except Exception:
        # An extension module that is interrupted half-way may raise something else in the interrupt's place.
        if not interrupts:
            raise
        _leave_interrupted()
    else:
        sys.exit(status if isinstance(status, int) else 0)


def _watch_interrupts() -> list[int]:
    """A list that receives the number of each interrupt, which still raises KeyboardInterrupt."""
    seen: list[int] = []

    def handler(number: int, frame: Any) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    # Only the main thread may set a handler; elsewhere a caller keeps its own.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return seen


def _leave_interrupted() -> None:
    """Say so and leave at once: worker threads would be waited for, and every file on disk is whole."""
    print("interrupted", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(130)


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


# ------------------------------------------------------------------------------------------------------------- compare


@cli.command()
@click.option("--world", default="sessions", show_default=True, help="A world's name.")
@click.option("--preset", default=None, help="A preset of the world; jeunen2019 unless named.")
@click.option("--agents", default=DEFAULT_AGENTS, show_default=True, help="Names or package.module:Class, with commas.")
@click.option("--protocols", default=None, help="Of loocv,off_policy,ab_test; all of them unless named.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the world; may be repeated."
)
@click.option("--logging", "logging_agent", default="user-popularity", show_default=True, help="The logging policy.")
@click.option("--clip", type=float, default=15.0, show_default=True, help="Largest weight of clipped IPS.")
@click.option("--train-users", type=int, default=None, help="Users that agents learn from.")
@click.option("--test-users", type=int, default=None, help="Users whose log leave-one-out and IPS read.")
@click.option("--arm-users", type=int, default=None, help="Users of each arm of the A/B test.")
@click.option("--truth-users", type=int, default=None, help="Users over whom the true CTR is averaged.")
@click.option("--folds", type=int, default=None, help="Of leave-one-out.  [default: 10]")
@click.option("--paired", is_flag=True, help="All arms of the A/B test share their users.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Coverage of the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything but the catalogue.")
@click.option("--workers", type=int, default=None, help="Threads; as many as there are processors unless named.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="A new folder; under ./runs unless named.")
@click.option("--interactions", type=click.Path(path_type=Path), default=None, help="Your own interactions: a file.")
@click.option("--user-column", default=None, help="Of that file.")
@click.option("--item-column", default=None, help="Of that file.")
@click.option("--time-column", default=None, help="Of that file.")
def compare(**options: Any) -> None:
    """Judge agents by leave-one-out, off-policy estimates and an A/B test, and the protocols by the truth."""
    from recsim_mnar.runs import new_folder

    folder = new_folder(options["out"], "compare")
    agents = _names(options["agents"], "--agents")
    began = _clock()
    with progress() as report:
        if options["interactions"] is not None:
            comparison, story = _compare_interactions(agents, options, report)
        else:
            comparison, story = _compare_world(agents, options, report)
        report("write the report")
        story["seconds"] = round(began(), 3)
        _write_comparison(folder, comparison, story)
    _print_comparison(comparison, folder)


def _compare_world(
    agents: list[str], options: dict[str, Any], report: Callable[[str], None]
) -> tuple[Any, dict[str, Any]]:
    from dataclasses import asdict, replace

    from recsim_mnar import registry
    from recsim_mnar.protocols import compare as comparing
    from recsim_mnar.simulate import workers

    preset = options["preset"] or "jeunen2019"
    world = _world(options["world"], preset, options["settings"])
    if preset not in comparing.SETTINGS:
        raise UserError(
            f"--preset {preset}: compare runs on {', '.join(sorted(comparing.SETTINGS))} of the sessions world; "
            "campaigns are judged by recsim_mnar.protocols.weighted_leave_one_out"
        )
    given = {
        name: options[name]
        for name in ("train_users", "test_users", "arm_users", "truth_users", "folds")
        if options[name] is not None
    }
    settings = replace(
        comparing.SETTINGS[preset], **given, clip=options["clip"], level=options["level"], paired=options["paired"]
    )
    protocols = _names(options["protocols"], "--protocols") if options["protocols"] else list(comparing.PROTOCOLS)
    comparing.check_protocols(protocols)
    learners = {name: registry.learner(name) for name in agents}
    logger = registry.learner(options["logging_agent"])
    with workers(_n_workers(options["workers"])) as executor:
        comparison = comparing.compare(
            world,
            learners,
            logging=logger,
            protocols=protocols,
            settings=settings,
            seed=options["seed"],
            executor=executor,
            report=report,
        )
    story = {
        "world": world.describe(),
        "preset": preset,
        "settings": asdict(settings),
        "logging": options["logging_agent"],
        "seed": options["seed"],
    }
    return comparison, story


def _compare_interactions(
    agents: list[str], options: dict[str, Any], report: Callable[[str], None]
) -> tuple[Any, dict[str, Any]]:
    from recsim_mnar import registry
    from recsim_mnar.datasets.interactions import read_interactions
    from recsim_mnar.protocols.compare import Comparison
    from recsim_mnar.protocols.leave_one_out import leave_one_out
    from recsim_mnar.rng import check_seed, derive_seed
    from recsim_mnar.simulate import workers

    for protocol in _names(options["protocols"], "--protocols") if options["protocols"] else ["loocv"]:
        if protocol != "loocv":
            raise UserError(
                f"--protocols {protocol} needs a world: with --interactions only loocv runs, there is no truth and no "
                "propensity"
            )
    report(f"read {options['interactions']}")
    data = read_interactions(
        options["interactions"],
        user_column=options["user_column"],
        item_column=options["item_column"],
        time_column=options["time_column"],
    )
    learners = {name: registry.learner(name) for name in agents}
    folds = 10 if options["folds"] is None else options["folds"]
    if options["preset"] or options["settings"]:
        raise UserError("--preset and --set are of a world: with --interactions there is none")
    seed = check_seed(options["seed"], "--seed")
    report(f"leave-one-out, {folds} folds")
    with workers(_n_workers(options["workers"])) as executor:
        records = leave_one_out(
            data.log,
            learners,
            n_items=data.n_items,
            folds=folds,
            seed=derive_seed(seed, "loocv"),
            ks=(1, 10),
            level=options["level"],
            world="interactions",
            candidates="auto",
            executor=executor,
        )
    story = {"interactions": str(options["interactions"]), "items": data.n_items, "folds": folds, "seed": seed}
    notes = []
    if records[0].details.get("candidates") == "unseen":
        notes.append("No user meets an item twice, so items that a user has seen are not ranked for that user.")
    return Comparison(records, notes=notes), story


def _write_comparison(folder: Path, comparison: Any, story: dict[str, Any]) -> None:
    from recsim_mnar.protocols.compare import summary
    from recsim_mnar.report.page import write_page
    from recsim_mnar.runs import write_json

    folder.mkdir(parents=True, exist_ok=True)
    if comparison.log is not None:
        comparison.log.write(folder / "log")
    write_json(folder / "summary.json", {**story, **summary(comparison)})
    write_json(folder / "results.json", [record.to_dict() for record in comparison.records])
    write_page(folder / "report.html", comparison, story)


def _print_comparison(comparison: Any, folder: Path) -> None:
    from recsim_mnar.report.tables import comparison_table

    screen = console()
    screen.print(comparison_table(comparison))
    for judgement in comparison.judgements:
        screen.print(judgement.sentence(), soft_wrap=True)
    for note in comparison.notes:
        screen.print(note, soft_wrap=True)
    screen.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)


# ------------------------------------------------------------------------------------------------------------ simulate


@cli.command()
@click.option("--world", required=True, help="A world's name.")
@click.option("--preset", default=None, help="A preset of the world; recogym-v1 unless named.")
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
    from recsim_mnar.runs import simulate_to
    from recsim_mnar.simulate import workers

    if options["users"] < 1:
        raise UserError(f"--users must be at least 1, got {options['users']}")
    if options["world"] == "campaigns":
        _simulate_platform(options)
        return
    world = _world(options["world"], options["preset"], options["settings"])
    with workers(_n_workers(options["workers"])) as executor:
        policy = _fitted(options["policy"], world, options["train_users"], options["seed"], executor)
        with progress(total=options["users"], unit="users") as report:
            counts = simulate_to(
                options["out"],
                world,
                policy,
                options["users"],
                _seed(options["seed"]),
                training=None
                if options["policy"] == "house"
                else {"policy": "random", "n_users": options["train_users"], "seed": _train_seed(options["seed"])},
                keep_truth=options["truth"],
                resume=options["resume"],
                executor=executor,
                progress=report.advance,
            )
    if options["world"] == "purchases":
        from recsim_mnar.slates import write_exposures

        write_exposures(options["out"], world, policy, options["users"], _seed(options["seed"]), options["truth"])
    kept = f" ({counts['kept']} of {counts['parts']} parts were there already)" if counts["kept"] else ""
    console().print(
        f"{counts['users']:,} users, {counts['rows']:,} events in {options['out'] / 'log'}{kept}",
        soft_wrap=True,
        highlight=False,
    )


def _simulate_platform(options: dict[str, Any]) -> None:
    """The campaigns world is simulated whole: one platform, campaigns on the days that its parameters name."""
    from recsim_mnar import registry
    from recsim_mnar.feedback import platform_to

    if options["resume"]:
        raise UserError("--resume: a platform is simulated whole, in one go; leave --resume away")
    world = _world("campaigns", options["preset"], (*options["settings"], f"n_users={options['users']}"))
    recommender = None if options["policy"] == "house" else registry.learner(options["policy"])
    rows = platform_to(options["out"], world, _seed(options["seed"]), recommender, keep_truth=options["truth"])
    console().print(
        f"{options['users']:,} users, {rows:,} events in {options['out'] / 'log'}", soft_wrap=True, highlight=False
    )


def _train_seed(seed: int) -> int:
    from recsim_mnar.rng import derive_seed

    return derive_seed(_seed(seed), "train")


def _fitted(spec: str, world: Any, train_users: int, seed: int, executor: Any) -> Any:
    """The policy of a name, fitted on ``train_users`` other users under the uniform policy."""
    if spec == "house" and world.name == "purchases":
        from recsim_mnar.slates import House

        return House(world)
    from recsim_mnar import registry
    from recsim_mnar.log import Log
    from recsim_mnar.rng import derive_seed
    from recsim_mnar.simulate import simulate

    learner = registry.learner(spec)
    if train_users < 1:
        raise UserError(f"--train-users must be at least 1, got {train_users}")
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, train_users, _train_seed(seed), executor=executor)
    return learner.fit(train, n_items=world.n_items, seed=derive_seed(seed, "fit"))


# ------------------------------------------------------------------------------------------------- replay and estimate


@cli.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--policy", required=True, help="Names of target policies, with commas.")
@click.option("--train", type=click.Path(path_type=Path), default=None, help="A log to fit them on.")
@click.option(
    "--items", type=int, default=None, help="Number of items; what the log says, or the largest met, unless given."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the fit.")
@click.option("--workers", type=int, default=None, help="Threads; as many as there are processors unless named.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write: .parquet or .csv.")
def replay(
    log: Path, policy: str, train: Path | None, items: int | None, seed: int, workers: int | None, out: Path
) -> None:
    """Add a column a policy to LOG: the probability with which it would have taken each logged action."""
    from recsim_mnar import registry
    from recsim_mnar.log import Log, write_table
    from recsim_mnar.replay import replay as replay_policy
    from recsim_mnar.rng import derive_seed
    from recsim_mnar.simulate import workers as pool

    if out.suffix.lower() not in (".parquet", ".csv"):
        raise UserError(f"--out {out}: name a file that ends in .parquet or .csv")
    if out.exists():
        raise UserError(f"--out {out} exists: name another file, or remove it first")
    names = _names(policy, "--policy")
    learners = {name: registry.learner(name) for name in names}
    data = Log.read(log).validate()
    training = Log.read(train).validate() if train is not None else Log({})
    if len(data) == 0:
        raise UserError(f"{log} has no rows: there is nothing to replay")
    n_items = max(_n_items(data, training), items or 0)
    result = data
    with pool(_n_workers(workers)) as executor, progress() as report:
        for name, learner in learners.items():
            report(f"replay {name}")
            try:
                fitted = learner.fit(training, n_items=n_items, seed=derive_seed(_seed(seed), "fit"))
            except UserError as error:
                hint = "" if train is not None else " (name a log to fit it on with --train)"
                raise UserError(f"{error}{hint}") from None
            result = result.with_column(name, replay_policy(data, fitted, executor=executor))
    if out.suffix.lower() == ".csv":
        result.write_csv(out)
    else:
        write_table(result.to_arrow(), out)
    console().print(
        f"{len(result):,} rows with {', '.join(names)} over {n_items:,} items in {out}", soft_wrap=True, highlight=False
    )


def _n_items(*logs: Any) -> int:
    """Number of items: what the logs' worlds say, else the largest item met plus one."""
    known = [log.provenance.get("world", {}).get("params", {}).get("n_items", 0) for log in logs]
    met = [max(int(log["item"].max(initial=-1)), int(log["action"].max(initial=-1))) + 1 for log in logs]
    return max(*known, *met)


@cli.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--target", required=True, help="Columns of target policies' probabilities of the logged actions.")
@click.option("--baseline", default=None, help="Such a column too: adds each target's difference from it.")
@click.option("--estimators", default="ips,clipped_ips,snips", show_default=True, help="Names, with commas.")
@click.option("--clip", type=float, default=15.0, show_default=True, help="Largest weight of the clipped estimators.")
@click.option("--cluster", default=None, help="Column of what makes rows dependent; user where there is one.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Coverage of the intervals.")
@click.option("--q-logged", default=None, help="Column: a reward model's value of the logged action (dr and kin).")
@click.option("--q-target", default=None, help="Column: its mean under the target policy (dm, dr and kin).")
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
    json_file: Path | None,
) -> None:
    """Estimate what target policies would have earned on LOG: a Parquet or CSV file, or a folder of parts."""
    from recsim_mnar.estimate import estimate_file, records_table
    from recsim_mnar.protocols.records import _plain
    from recsim_mnar.runs import write_json

    source = log / "log" if (log / "log").is_dir() else log
    records = estimate_file(
        source,
        _names(target, "--target"),
        baseline=baseline,
        estimators=_names(estimators, "--estimators"),
        clip=clip,
        cluster=cluster,
        level=level,
        q_logged=q_logged,
        q_target=q_target,
    )
    if json_file is not None:
        write_json(json_file, _plain(records))
    console().print(records_table(records))


# --------------------------------------------------------------------------------------------------------- what exists


@cli.command()
def worlds() -> None:
    """List the worlds."""
    from recsim_mnar.worlds import WORLDS

    print_list([(name, entry.summary) for name, entry in sorted(WORLDS.items())])


@cli.command()
def agents() -> None:
    """List the agents."""
    from recsim_mnar import registry

    print_list(registry.agents())


@cli.command()
def estimators() -> None:
    """List the estimators."""
    from recsim_mnar.estimators import ESTIMATORS

    print_list([(name, info.title) for name, info in ESTIMATORS.items()])


@cli.command()
def presets() -> None:
    """List the presets of every world."""
    from recsim_mnar.worlds import WORLDS

    print_list([(f"{world} {name}", text) for world, entry in WORLDS.items() for name, text in entry.presets().items()])


# -------------------------------------------------------------------------------------------------------------- shared


def _world(name: str, preset: str | None, settings: tuple[str, ...]) -> Any:
    from recsim_mnar.worlds import make_world

    return make_world(name, preset, settings)


def _names(text: str, flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError(f"{flag}: name at least one")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{flag}: {twice} is named twice")
    return names


def _seed(seed: int) -> int:
    from recsim_mnar.rng import check_seed

    return check_seed(seed, "--seed")


def _n_workers(given: int | None) -> int:
    if given is not None:
        return given
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _clock() -> Callable[[], float]:
    import time

    began = time.perf_counter()
    return lambda: time.perf_counter() - began


if __name__ == "__main__":
    main()
