"""``recsim-mnar compare``: in the sessions world, in the purchases world, on a user's own interactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.console import console, progress
from recsim_mnar.cli.shared import clock, n_workers, names_of
from recsim_mnar.errors import UserError
from recsim_mnar.worlds import make_world

if TYPE_CHECKING:
    from recsim_mnar.worlds.base import World

_SESSIONS_AGENTS = "random,popularity,user-popularity,svd,item-knn,user-knn"
_PURCHASES_AGENTS = "random,popularity,rmf,bpr,ulrmf,ulbpr,recresp,dlce,cubn,cibn"
_OF_PURCHASES = ("length", "metrics", "test_periods")
_OF_INTERACTIONS = ("user_column", "item_column", "time_column")
_OF_A_WORLD = (
    *("world", "preset", "settings", "logging_agent", "clip", "train_users", "test_users", "arm_users", "truth_users"),
    "paired",
)
_FLAGS = {"settings": "set", "logging_agent": "logging"}


@click.command()
@click.option("--world", default=None, help="A world's name.  [default: sessions]")
@click.option("--preset", default=None, help="Of the world; jeunen2019 (purchases: personalised) unless named.")
@click.option(
    "--agents", default=None, help="Names or package.module:Class, with commas; the world's list unless named."
)
@click.option(
    "--protocols", default=None, help="Of loocv,off_policy,ab_test (purchases: uplift,ab_test); all unless named."
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the world; may be repeated."
)
@click.option("--logging", "logging_agent", default=None, help="The logging policy.  [default: user-popularity]")
@click.option("--clip", type=float, default=None, help="Largest weight of clipped IPS.  [default: 15; purchases: none]")
@click.option("--length", type=int, default=None, help="Purchases: items of a list, N.  [default: 10]")
@click.option("--metrics", default=None, help="Purchases: precision,uplift,uplift_snips,uplift_ips unless named.")
@click.option("--test-periods", type=int, default=None, help="Purchases: further periods that the metrics read.")
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
    """Judge agents by protocols, and the protocols by the truth.

    In the sessions world by leave-one-out, off-policy estimates and an A/B test; in the purchases world by precision
    and the uplift metrics of a further log, and by an A/B test.
    """
    from recsim_mnar.simulate.run_folder import claimed, new_folder

    if options["interactions"] is not None:
        _refuse(options, _OF_A_WORLD, "is of a world: with --interactions there is none")
    else:
        _refuse(options, _OF_INTERACTIONS, "names a column of --interactions FILE: give that too")
    options["world"] = options["world"] or "sessions"
    folder = new_folder(options["out"], "compare", what="--out")
    default = _PURCHASES_AGENTS if options["world"] == "purchases" else _SESSIONS_AGENTS
    agents = names_of(default if options["agents"] is None else options["agents"], "--agents")
    began = clock()
    with claimed(folder, what="--out"), progress() as report:
        if options["interactions"] is not None:
            comparison, run_config = _compare_interactions(agents, options, report)
        elif options["world"] == "purchases":
            comparison, run_config = _compare_purchases(agents, options, report)
        else:
            comparison, run_config = _compare_sessions(agents, options, report)
        report("write the report")
        run_config["seconds"] = round(began(), 3)
        _write_comparison(folder, comparison, run_config)
    _print_comparison(comparison, folder)


def _refuse(options: dict[str, Any], names: tuple[str, ...], why: str) -> None:
    """Raise UserError for an option that is given and means nothing here."""
    for name in names:
        value = options[name]
        if not (value is None or value is False or value == ()):
            raise UserError(f"--{_FLAGS.get(name, name).replace('_', '-')} {why}")


def _protocols(options: dict[str, Any], default: Sequence[str]) -> list[str]:
    return list(default) if options["protocols"] is None else names_of(options["protocols"], "--protocols")


def _compare_sessions(
    agents: list[str], options: dict[str, Any], report: Callable[[str], None]
) -> tuple[Any, dict[str, Any]]:
    from recsim_mnar.policy import registry
    from recsim_mnar.protocols import compare as comparing
    from recsim_mnar.simulate.executor import workers

    preset = options["preset"] or "jeunen2019"
    if options["world"] != "sessions":
        make_world(options["world"], None, ())
        raise UserError(
            f"--world {options['world']}: compare runs on the sessions world and on purchases; campaigns are judged by "
            "recsim_mnar.protocols.temporal.weighted_leave_one_out, ratings by recsim_mnar.estimators.ratings"
        )
    _refuse(options, _OF_PURCHASES, "is of --world purchases")
    world = make_world("sessions", preset, options["settings"])
    if preset not in comparing.SETTINGS:
        raise UserError(
            f"--preset {preset}: compare runs on {', '.join(sorted(comparing.SETTINGS))} of the sessions world; "
            "campaigns are judged by recsim_mnar.protocols.temporal.weighted_leave_one_out"
        )
    given = {
        name: options[name]
        for name in ("train_users", "test_users", "arm_users", "truth_users", "folds")
        if options[name] is not None
    }
    clip = 15.0 if options["clip"] is None else options["clip"]
    settings = replace(comparing.SETTINGS[preset], **given, clip=clip, level=options["level"], paired=options["paired"])
    protocols = _protocols(options, comparing.PROTOCOLS)
    comparing.check_protocols(protocols)
    learners = {name: registry.learner(name) for name in agents}
    logging = "user-popularity" if options["logging_agent"] is None else options["logging_agent"]
    logger = registry.learner(logging)
    with workers(n_workers(options["workers"])) as executor:
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
    return comparison, _run_config(world, preset, settings, options, logging=logging)


def _run_config(world: World, preset: str, settings: Any, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What suffices to make a comparison again."""
    known = {"world": world.describe(), "preset": preset, "settings": asdict(settings)}
    return {**known, **more, "seed": options["seed"]}


def _compare_purchases(
    agents: list[str], options: dict[str, Any], report: Callable[[str], None]
) -> tuple[Any, dict[str, Any]]:
    from recsim_mnar.policy import registry
    from recsim_mnar.protocols.compare import check_protocols
    from recsim_mnar.protocols.uplift import protocol as uplift
    from recsim_mnar.simulate.executor import workers

    _refuse(
        options, ("test_users", "arm_users", "truth_users"), "is of --world sessions: --train-users are all there are"
    )
    _refuse(options, ("folds",), "is of leave-one-out, which --world purchases has not")
    _refuse(options, ("logging_agent",), "is of --world sessions: --set deployment=... names the deployed recommender")
    preset = options["preset"] or "personalised"
    world: Any = make_world("purchases", preset, options["settings"])
    given: dict[str, Any] = {
        name: options[option]
        for option, name in (("train_users", "users"), ("test_periods",) * 2, ("length",) * 2, ("clip",) * 2)
        if options[option] is not None
    }
    if options["metrics"] is not None:
        given["metrics"] = tuple(names_of(options["metrics"], "--metrics"))
    settings = replace(uplift.SETTINGS[preset], **given, level=options["level"], paired=options["paired"])
    protocols = _protocols(options, uplift.PROTOCOLS)
    check_protocols(protocols, uplift.PROTOCOLS)
    specs = {name: uplift.spec_of(name, settings) for name in agents}
    with workers(n_workers(options["workers"])) as executor:
        comparison = uplift.compare_uplift(
            world,
            {name: registry.learner(spec) for name, spec in specs.items()},
            protocols=protocols,
            settings=settings,
            seed=options["seed"],
            executor=executor,
            report=report,
        )
    return comparison, _run_config(world, preset, settings, options, agents=specs)


def _compare_interactions(
    agents: list[str], options: dict[str, Any], report: Callable[[str], None]
) -> tuple[Any, dict[str, Any]]:
    from recsim_mnar.datasets.interactions import read_interactions
    from recsim_mnar.policy import registry
    from recsim_mnar.protocols.compare import PROTOCOLS, Comparison, check_protocols
    from recsim_mnar.protocols.leave_one_out.protocol import leave_one_out
    from recsim_mnar.protocols.uplift import protocol as uplift
    from recsim_mnar.rng import check_seed, derive_seed
    from recsim_mnar.simulate.executor import workers

    _refuse(options, _OF_PURCHASES, "is of --world purchases")
    protocols = _protocols(options, ("loocv",))
    check_protocols(protocols, sorted({*PROTOCOLS, *uplift.PROTOCOLS}))
    for protocol in protocols:
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
    seed = check_seed(options["seed"], "--seed")
    report(f"leave-one-out, {folds} folds")
    with workers(n_workers(options["workers"])) as executor:
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
    run_config = {"interactions": str(options["interactions"]), "items": data.n_items, "folds": folds, "seed": seed}
    notes = []
    if records[0].details.get("candidates") == "unseen":
        notes.append("No user meets an item twice, so items that a user has seen are not ranked for that user.")
    return Comparison(records, notes=notes), run_config


def _write_comparison(folder: Path, comparison: Any, run_config: dict[str, Any]) -> None:
    from recsim_mnar.log.files import write_json
    from recsim_mnar.protocols.compare import summary
    from recsim_mnar.report.page import write_page

    if comparison.log is not None:
        comparison.log.write(folder / "log")
    if comparison.exposures is not None:
        comparison.exposures.write(folder)
    write_json(folder / "summary.json", {**run_config, **summary(comparison)})
    write_json(folder / "results.json", [record.to_dict() for record in comparison.records])
    write_page(folder / "report.html", comparison, run_config)


def _print_comparison(comparison: Any, folder: Path) -> None:
    from recsim_mnar.report.tables import comparison_table

    screen = console()
    screen.print(comparison_table(comparison))
    for sentence in [comparison.headline] if comparison.headline else [j.sentence() for j in comparison.judgements]:
        screen.print(sentence, soft_wrap=True)
    for note in comparison.notes:
        screen.print(note, soft_wrap=True)
    screen.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
