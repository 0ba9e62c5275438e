"""``recsim-mnar compare`` and ``study``: in any world, over catalogues, and on a user's own interactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import (
    NEW_PATH,
    NUMBER,
    READ_PATH,
    WHOLE,
    names_of,
    option,
    pairs_of,
    seed_option,
)
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.cli.workers import RUN, RunRecord, executor, refuse_both, worker_options
from recsim_mnar.errors import UserError, nearest

if TYPE_CHECKING:
    from recsim_mnar.protocols.comparison import Comparison, Setup

Report = Callable[[str], None]

OPTION_FLAGS = (
    *("logging", "clip", "length", "metrics", "test_periods", "train_users", "test_users", "arm_users"),
    *("truth_users", "folds", "paired", "level"),
)
"""Flags that name an option of one world's comparison, as ``--option name=value`` does."""

_COLUMNS = ("user_column", "item_column", "time_column")
_OF_INTERACTIONS = (*_COLUMNS, "events", "drop_missing", "test_share", "candidates")
_WHO = ("workers", "scheduler")
_OWN_DATA = (
    *("interactions", "agents", "protocols", "folds", "length", "level", "seed", "out"),
    *_WHO,
    *_OF_INTERACTIONS,
)
_OWN_DATA_AGENTS = "random,popularity,user-popularity,svd,item-knn,user-knn"


@click.command(short_help="Find out which offline metric ranks agents correctly.")
@option("--world", "A world's name, or package.module:Class.  [default: sessions]")
@option("--preset", "A preset of the world; the comparison's own unless named (sessions: jeunen2019).")
@option("--agents", "Names or package.module:Class, with commas; the world's list unless named.")
@option("--references", "Further agents, which are shown and cannot be picked; oracle knows the users' states.")
@option(
    "--protocols",
    "Names or package.module:Class, with commas; options follow a name, as in loocv+fit_on=train (`recsim-mnar "
    "describe protocol loocv` lists them); the world's list unless named.",
)
@option("--set params", "A parameter of the world; may be repeated.", multiple=True, metavar="NAME=VALUE")
@option(
    "--option options",
    "An option of this world's comparison (`recsim-mnar list protocols` shows them); may be repeated.",
    multiple=True,
    metavar="NAME=VALUE",
)
@option("--tie", "Treat costs up to this share of the best true value as ties.", NUMBER)
@option("--logging", "Sessions: the logging policy.  [default: user-popularity]")
@option("--clip", "Largest weight of clipped IPS, and of estimates of lists. [default: 15; purchases: none]", NUMBER)
@option("--length", "Purchases and --interactions: items of a list, N.  [default: 10]", WHOLE)
@option("--metrics", "Purchases: precision,uplift,uplift_snips,uplift_ips unless named.")
@option("--test-periods", "Purchases: further periods that the metrics read.", WHOLE)
@option("--train-users", "Users that agents learn from.", WHOLE)
@option("--test-users", "Users whose log leave-one-out and IPS read.", WHOLE)
@option("--arm-users", "Users of each arm of the A/B test.", WHOLE)
@option("--truth-users", "Users over whom the truth is averaged.", WHOLE)
@option("--folds", "Folds of leave-one-out.  [default: 10]", WHOLE)
@option("--paired", "All arms of the A/B test share their users.", bool)
@option("--level", "Coverage of the intervals.  [default: 0.95]", NUMBER)
@seed_option("Seed of everything but the catalogue.")
@option("--catalogues", "Run a study on this many catalogues, each with different users.", WHOLE)
@option(
    "--first-seed", "With --catalogues: catalogue c has users of seed FIRST + c, not one derived from --seed.", WHOLE
)
@option("--resume", "With --catalogues: take up the study in --out, which may get more catalogues.", bool)
@worker_options
@option("--out", "A new folder; under ./runs unless named.", NEW_PATH)
@option("--interactions", "Your own interactions: a file.", READ_PATH)
@option("--user-column", "Column of users in --interactions; recognised unless named.")
@option("--item-column", "Column of items in --interactions; recognised unless named.")
@option("--time-column", "Column of times in --interactions; recognised unless named.")
@option("--events", "Which events of --interactions count, as view,purchase; all of them unless named.")
@option("--drop-missing", "Leave out rows of --interactions without a user, item or time, and count them.", bool)
@option(
    "--test-share",
    "Share of the rows of --interactions, the latest, that the split by time holds out.  [default: 0.2]",
    NUMBER,
)
@option(
    "--candidates",
    "Items of --interactions that are ranked for a user; auto: unseen where no user meets an item twice.",
    click.Choice(["auto", "all", "unseen"]),
)
@json_option("records, judgements and notes")
def compare(json_output: JsonOutput, **options: Any) -> None:
    """Judge agents by protocols, and the protocols by the truth.

    In the sessions world by leave-one-out, off-policy estimates and an A/B test; in the purchases world by precision
    and the uplift metrics of a further log, and by an A/B test; in the ratings world by naive, IPS and SNIPS estimates
    from revealed ratings; in the campaigns world by leave-one-out, unweighted and weighted. On your own --interactions
    by leave-one-out and by a split by time, and show what is recommended next to them.
    """
    json_output.check(options["interactions"])
    refuse_both(options["workers"], options["scheduler"])
    if options["interactions"] is not None:
        of_a_world = [name for name in options if name not in _OWN_DATA]
        _refuse_given(options, of_a_world, "needs a world: with --interactions there is none")
        _to_folder(options, _on_interactions, json_output)
        return
    _refuse_given(options, _COLUMNS, "names a column of --interactions FILE: give that too")
    _refuse_given(options, _OF_INTERACTIONS, "needs --interactions FILE: give that too")
    options["setup"] = setup = setup_of(options)
    if options["catalogues"] is None:
        _refuse_given(options, ("resume", "first_seed"), "needs a study: give --catalogues too")
        _to_folder(options, _in_world, json_output)
        return
    from recsim_mnar.runs.folder import new_folder
    from recsim_mnar.studies.tasks import seeds_from

    if options["resume"] and options["out"] is None:
        raise UserError("--resume: name the study's folder with --out")
    seeds = seeds_from(options["catalogues"], options["first_seed"])
    given = {"worlds": [setup], "seeds": seeds, "seed": options["seed"]}
    _study("compare", given, {**options, "out": new_folder(options["out"], "study")}, json_output)


@click.command(short_help="Repeat comparisons over many catalogues (TOML file).")
@click.argument("settings", type=READ_PATH)
@option("--catalogues", "Number of catalogues, instead of the file's.", WHOLE)
@option("--resume", "Take up the study in --out, which may get more catalogues.", bool)
@worker_options
@option("--out", "A new folder.", NEW_PATH, required=True)
@json_option("the summary")
def study(settings: Path, catalogues: int | None, json_output: JsonOutput, **options: Any) -> None:
    """Run the study that SETTINGS, a TOML file, describes: comparisons over catalogues."""
    from recsim_mnar.studies.tasks import read_settings

    json_output.check(settings)
    refuse_both(options["workers"], options["scheduler"])
    given = read_settings(settings)
    if catalogues is not None:
        seeds = given["seeds"]
        given["seeds"] = catalogues if isinstance(seeds, int) else [seeds[0] + c for c in range(catalogues)]
    _study("study", given, options, json_output)


def setup_of(options: dict[str, Any]) -> Setup:
    """Meaning of the flags, looked up once so that a mistake is found before any work."""
    from recsim_mnar.protocols.comparison import Setup

    given = {name: value for name in OPTION_FLAGS if (value := options[name]) is not None and value is not False}
    if options["metrics"] is not None:
        given["metrics"] = ",".join(names_of(options["metrics"], "--metrics"))
    world, more = options["world"] or "sessions", pairs_of(options["options"], "--option")
    for twice in sorted(given.keys() & more.keys()):
        raise UserError(f"--{twice.replace('_', '-')} and --option {twice} are one setting: give one of them")
    _check_options(
        world, {**{name: f"--{name.replace('_', '-')}" for name in given}, **dict.fromkeys(more, "--option")}
    )
    setup = Setup(
        world=world,
        preset=options["preset"],
        params=pairs_of(options["params"], "--set"),
        agents=_named(options["agents"], "--agents"),
        references=_named(options["references"], "--references") or (),
        protocols=_named(options["protocols"], "--protocols"),
        options={**given, **more},
        tie=options["tie"] or 0.0,
    )
    setup.resolved()
    return setup


def _check_options(world: str, flags: dict[str, str]) -> None:
    """Raise UserError, naming the flag, for an option that the world's comparison does not have."""
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds import entry_of

    experiment = experiment_of(entry_of(world).world_class())
    for name, flag in flags.items():
        try:
            experiment.field_of(name)
        except UserError as error:
            raise UserError(f"{flag}: {error}") from None


def _named(text: str | None, flag: str) -> tuple[str, ...] | None:
    return None if text is None else tuple(names_of(text, flag))


def _refuse_given(options: dict[str, Any], names: Any, why: str) -> None:
    """Raise UserError for an option that has no meaning here."""
    for name in names:
        if not (options[name] is None or options[name] is False or options[name] == ()):
            flag = "set" if name == "params" else name.replace("_", "-")
            raise UserError(f"--{flag} {why}")


def _to_folder(options: dict[str, Any], job: Callable[..., Any], json_output: JsonOutput) -> None:
    """Run a comparison, write its folder and print the result."""
    from recsim_mnar.report.page import results_of, write_comparison
    from recsim_mnar.runs.folder import RunFolder, new_folder

    folder = new_folder(options["out"], "compare")
    record = RunRecord("compare")
    with RunFolder.fill(folder, what="--out"), progress() as report:
        comparison, run_config = job({**options, "out": folder, "record": record}, report)
        report("write the report")
        write_comparison(folder, comparison, run_config, record.seconds())
        record.write(folder / RUN)
    _print_comparison(comparison, folder, json_output)
    json_output.write(results_of(comparison, folder))


def _in_world(options: dict[str, Any], report: Report) -> tuple[Comparison, dict[str, Any]]:
    from recsim_mnar.protocols.records import plain

    resolved = options["setup"].resolved()
    run_config = resolved.run_config(options["seed"])
    with _executor(options, named=[plain(run_config), options["world"] or ""]) as found:
        comparison = resolved.run(options["seed"], executor=found, report=report)
    return comparison, run_config


def _study(command: str, arguments: dict[str, Any], options: dict[str, Any], json_output: JsonOutput) -> None:
    """Run a study with these arguments, write its folder and print the result."""
    from recsim_mnar.protocols.comparison import Setup
    from recsim_mnar.protocols.records import plain
    from recsim_mnar.report.study_page import study_table, write_study
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.studies import run_study

    folder, record = options["out"], RunRecord(command)
    named = [plain(asdict(each) if isinstance(each, Setup) else each) for each in arguments["worlds"]]
    # Each catalogue is compared by one worker, which meets agents by their names.
    named += plain([arguments.get(key) for key in ("agents", "protocols", "estimators", "options")])
    options = {**options, "record": record}
    with RunFolder.fill(folder, resume=options["resume"], what="--out"), progress() as report:
        with _executor(options, named, read_by_name=True, in_processes=True) as found:
            result = run_study(**arguments, folder=folder, resume=options["resume"], executor=found, report=report)
        report("write the report")
        write_study(folder, result, record.seconds())
        record.write(folder / RUN)
    json_output.show(study_table(result))
    for sentence in result.sentences():
        json_output.sentence(sentence)
    json_output.say(f"Report: {folder / 'report.html'}")
    written = {name: getattr(result, name)() for name in ("summary", "judgements", "sentences")}
    json_output.write({"settings": result.settings, **written, "folder": str(folder)})


def _executor(options: dict[str, Any], named: list[Any], **how: Any) -> Any:
    who = options["workers"], options["scheduler"], options["record"]
    return executor(*who, folder=options["out"], named=named, **how)


def _on_interactions(options: dict[str, Any], report: Report) -> tuple[Comparison, dict[str, Any]]:
    from recsim_mnar.datasets.interactions import open_interactions
    from recsim_mnar.policies import registry
    from recsim_mnar.protocols.comparison import check_comparable
    from recsim_mnar.protocols.interactions import compare_interactions
    from recsim_mnar.tables.faults import in_rows

    protocols = _named(options["protocols"], "--protocols")
    share = options["test_share"]
    if share is not None and not 0.0 < share < 1.0:
        raise UserError(f"--test-share {share:g}: a share of the rows, above 0 and below 1")
    _check_own_data_protocols(protocols or ())
    agents = names_of(_OWN_DATA_AGENTS if options["agents"] is None else options["agents"], "--agents")
    events = None if options["events"] is None else names_of(options["events"], "--events")
    learners = {name: registry.learner(name) for name in agents}
    _refuse_slates(options)
    read = open_interactions(options["interactions"], *(options[name] for name in _COLUMNS))
    report(f"read {options['interactions']}")
    data = read(events, options["drop_missing"])
    check_comparable(len(learners), data.n_items)
    defaults = {"folds": 10, "level": 0.95, "test_share": 0.2, "candidates": "auto"}
    given: dict[str, Any] = defaults | {n: options[n] for n in (*defaults, "length") if options[n] is not None}
    with _executor(options, named=[agents, list(protocols or ())]) as found:
        comparison = compare_interactions(
            data, learners, protocols=protocols, seed=options["seed"], executor=found, report=report, **given
        )
    if data.left_out:
        left = f"{in_rows(data.left_out)} of the file left out: values are missing."
        comparison = replace(comparison, notes=[left, *comparison.notes])
    asked = {"interactions": str(options["interactions"]), "items": data.n_items, "seed": options["seed"]}
    return comparison, {**asked, **given}


def _refuse_slates(options: dict[str, Any]) -> None:
    """Raise UserError for a file of slates: what was shown is no interaction. Named events are the user's choice."""
    from recsim_mnar.own_log.slate_file import find_slates
    from recsim_mnar.tables.parts import TableFile
    from recsim_mnar.tables.roles import find_columns

    path, named = options["interactions"], {role: options[f"{role}_column"] for role in ("user", "item")}
    file = TableFile.open(path)
    known = find_columns(str(path), file.names, named=named, optional=("user", "item"))
    found = None if options["events"] else find_slates(file, {"user": known.get("user"), "action": known.get("item")})
    if found is not None:
        raise UserError(
            f"{path} holds slates, {found.form}: what was shown is no interaction. Give a file of what users viewed or "
            f"bought; recsim-mnar doctor {path} says what this one is for"
        )


def _check_own_data_protocols(protocols: tuple[str, ...]) -> None:
    """Raise UserError for a protocol that needs more than interactions."""
    from recsim_mnar.protocols.base import protocol as find_protocol
    from recsim_mnar.protocols.interactions import PROTOCOLS

    for name in protocols:
        if name not in PROTOCOLS:
            near = nearest(name, PROTOCOLS)
            if near.startswith("did you mean"):
                raise UserError(f"unknown protocol {name!r}; {near}")
            find_protocol(name)
            kind = name.partition("+")[0].strip()
            if kind in PROTOCOLS:
                alone = (
                    f"with --interactions {kind} has no options. Write {kind} alone; --length N sets the lists' length."
                )
                raise UserError(f"--protocols {name}: {alone}")
            raise UserError(
                f"--protocols {name} needs a world: with --interactions {', '.join(PROTOCOLS)} run, there is no truth "
                "and no propensity"
            )


def _print_comparison(comparison: Comparison, folder: Path, json_output: JsonOutput) -> None:
    from recsim_mnar.estimators.ranking_records import RANKING_ESTIMATORS
    from recsim_mnar.report.tables import comparison_table

    json_output.show(comparison_table(comparison))
    for sentence in [*comparison.identified(), *comparison.sentences()]:
        json_output.sentence(sentence)
    for note in comparison.notes:
        json_output.sentence(note, remark=True)
    doubted: dict[str, list[str]] = {}
    for r in comparison.records:
        judged = r.protocol == "off_policy" and r.metric in ("clipped_ips", *RANKING_ESTIMATORS)
        if judged and r.details.get("verdict_level") == "do_not_use" and not r.covers:
            doubted.setdefault(comparison.headings.get((r.protocol, r.metric), r.metric), []).append(r.agent)
    for heading, agents in doubted.items():
        json_output.sentence(f"Do not use {heading} of {', '.join(agents)}: the report says why.", remark=True)
    if comparison.again and comparison.judgements:
        json_output.sentence(f"One run is an anecdote; how often each is right: {comparison.again}", remark=True)
    json_output.say(f"Report: {folder / 'report.html'}")
