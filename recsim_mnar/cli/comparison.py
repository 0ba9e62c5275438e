"""``recsim-mnar compare``, ``study`` and ``evaluate``."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from recsim_mnar.cli import output
from recsim_mnar.cli.options import (
    NEW_PATH,
    NUMBER,
    READ_PATH,
    WHOLE,
    GroupedCommand,
    names_of,
    option,
    pairs_of,
    seed_option,
)
from recsim_mnar.cli.output import RUN, Crew, JsonOutput, RunRecord, is_quiet, json_option, progress, worker_options
from recsim_mnar.errors import UserError, why_unreadable

if TYPE_CHECKING:
    from recsim_mnar.protocols.comparison import Comparison, Setup
    from recsim_mnar.studies.design import Design


@click.command(short_help="Score an agent on a frozen task.")
@click.argument("agent")
@option("--task", "The task's name; `recsim-mnar list tasks` shows them.", required=True)
@option("--against", "Other agents, with commas: how far AGENT is ahead of each on the same users.")
@option("--seeds", "Fit AGENT with this many training seeds, and score their mean.", click.IntRange(2))
@option("--quoted", "On users that nobody can have tried on: their seed follows from what the agent does.", bool)
@option("--users", "How many users, for a quick look; the task's number unless named.", WHOLE)
@option("--verify", "A file that --json wrote: evaluate again, and say whether it holds.", READ_PATH)
@worker_options
@json_option("the evaluation, which --verify checks")
def evaluate(crew: Crew, json_output: JsonOutput, **options: Any) -> None:
    """Score AGENT on a frozen task: 0 is the uniform policy, 1 the reference, which knows the users' states.

    AGENT is a name (`recsim-mnar list agents`; or oracle and planner, which know the world) or package.module:Class; a
    learner is fitted on the task's log. A paper quotes the score of --quoted; with --against the others run on these
    users of AGENT, too. See docs/tasks.md.
    """
    from recsim_mnar.tasks import evaluate as evaluated
    from recsim_mnar.tasks import task

    verified: Path | None = options["verify"]
    json_output.check(verified)
    rivals = names_of(options["against"], "--against") if options["against"] else []
    frozen = task(options["task"])
    users = "quoted" if options["quoted"] else "public"
    n_users = options["users"]
    n_seeds = options["seeds"] or 1
    recorded: Mapping[str, Any] = {}
    if verified is not None:
        recorded = _read_evaluation(verified, frozen.name)
        users = recorded["which"]
        n_users = recorded["users"]
        n_seeds = len(recorded.get("scores", [0]))
    with crew.executor(RunRecord("evaluate"), named=[options["agent"]]) as pool, progress():
        run = functools.partial(evaluated, on=frozen, n_users=n_users, executor=pool)
        result = run(n_seeds * [options["agent"]], users=users)
        rival_results = [run(rival, users=result) for rival in rivals]
    # Written first: whoever reads the answer may close the pipe before its end.
    content = result.to_dict()
    json_output.write(content)
    for line in str(result).splitlines():
        json_output.sentence(line)
    unit = frozen.runner().unit_noun
    for rival in rival_results:
        lead = result.ahead_of(rival)
        json_output.sentence(f"{rival.agent}: score {rival.score:.3f}; {result.agent} is {lead}, {unit} by {unit}.")
    if users == "public":
        json_output.sentence("A paper quotes the score of --quoted: nobody can have tried on its users.", remark=True)
    if verified is not None:
        different = sorted(name for name in content if recorded.get(name) != content[name])
        if different:
            raise UserError(
                f"{verified} does not hold: {', '.join(different)} differ: it is of another agent, task or version"
            )
        json_output.say(f"{verified} holds.")


@click.command(short_help="Make the data set of a frozen task.")
@click.argument("task")
@option("--quality", "Of the policy that logged it: random, mediocre or good.", required=True)
@option(
    "--format form",
    "parquet: a log, as other commands read it. minari: a data set of Minari.",
    click.Choice(["parquet", "minari"]),
    "parquet",
)
@option("--out", "A new folder.", NEW_PATH, required=True)
@json_option("the recipe, and what was written")
def dataset(json_output: JsonOutput, task: str, quality: str, form: str, out: Path) -> None:
    """Make the data set of a frozen TASK from its recipe, with the bytes that are frozen.

    OUT/log holds it in Parquet, with propensities; --format minari makes OUT a root of Minari's data sets. See
    docs/tasks.md.
    """
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.tasks import task as task_of
    from recsim_mnar.tasks import task_dataset

    json_output.check(out)
    with RunFolder.fill(out, what="--out"), progress():
        made = task_dataset(task, quality)
        made.write(out, form)
    recipe = made.recipe
    n_units = len(made.decisions.episodes())
    runner = task_of(task).runner()
    policy = recipe.policy
    if recipe.epsilon:
        policy += f" and a share of {recipe.epsilon:g} at random"
    json_output.say(
        f"{recipe.decisions:,} {runner.step_noun}s of {n_units:,} {runner.unit_noun}s, by {policy}, whose score is "
        f"{recipe.score:.3f}; sha256 {recipe.sha256[:12]}, as frozen."
    )
    if form == "minari":
        json_output.say(f"MINARI_DATASETS_PATH={out}: {recipe.minari_id}")
    else:
        json_output.say(str(out / "log"))
    json_output.write({**dataclasses.asdict(recipe), "minari_id": recipe.minari_id, "format": form, "out": str(out)})


def _read_evaluation(path: Path, name: str) -> Mapping[str, Any]:
    """Read an evaluation that ``--json`` wrote.

    Raises:
        UserError: the file has none, or one of another task.
    """
    try:
        stored: Any = json.loads(path.read_text())
        if stored["task"] == name and {"which", "users", "score"} <= stored.keys():
            return dict(stored)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is no evaluation that --json wrote: {why_unreadable(error)}") from None
    raise UserError(f"{path} is of the task {stored['task']}: name it with --task")


Report = Callable[[str], None]
Executor = Callable[..., AbstractContextManager[Any]]

_INTERACTIONS_OPTIONS = "user_column item_column time_column drop_missing"
_WORLD_OPTIONS = "world preset params references tie logging clip catalogues first_seed resume"
"""Options that need ``--interactions``, and options that it excludes."""
_OWN_DATA_AGENTS = "random,popularity,user-popularity,svd,item-knn,user-knn"


@dataclass(frozen=True)
class Arguments:
    """Arguments of ``compare``, by the names of its options."""

    world: str | None
    preset: str | None
    params: Sequence[str]
    agents: str | None
    references: str | None
    protocols: str | None
    options: Sequence[str]
    tie: float | None
    logging: str | None
    clip: str | None
    seed: int
    catalogues: int | None
    first_seed: int | None
    resume: bool
    save_raw: bool
    out: Path | None
    interactions: Path | None
    user_column: str | None
    item_column: str | None
    time_column: str | None
    drop_missing: bool

    def flags(self) -> Mapping[str, str | None]:
        """Return the older flags of options of a comparison, by the names of ``--option name=value``."""
        return {"logging": self.logging, "clip": self.clip}

    def refuse(self, names: str, why: str) -> None:
        """Raise UserError for one of these options that was typed and has no meaning here."""
        for name in names.split():
            value = getattr(self, name)
            if not (value is None or value is False or value == ()):
                flag = "set" if name == "params" else name.replace("_", "-")
                raise UserError(f"--{flag} {why}")


GROUPS = {
    "What is compared": "world preset set agents references protocols option logging clip tie seed",
    "Over many catalogues": "catalogues first-seed resume",
    "Your own file in place of a world": "interactions user-column item-column time-column",
    "Output": "workers out json quiet help",
}


@click.command(cls=GroupedCommand, groups=GROUPS, short_help="Find out which offline metric ranks agents correctly.")
@option("--world", "A world's name, or package.module:Class.  [default: sessions]")
@option("--preset", "A preset of the world.  [default: the comparison's own; sessions: jeunen2019]")
@option("--set params", "A parameter of the world; may be repeated.", multiple=True, metavar="NAME=VALUE")
@option("--agents", "Names or package.module:Class, with commas.  [default: the preset's]")
@option("--references", "Further agents, shown and never picked; oracle knows the users' states.")
@option("--protocols", "Names or package.module:Class, with commas; options follow a name: loocv+fit_on=train.")
@option(
    "--option options",
    "An option of the comparison, such as clip=5, logging=AGENT or train_users=500; may be repeated. With --catalogues "
    "several levels, clip=5,15, are a factor, as they are of --set. `recsim-mnar describe world NAME` lists options, "
    "`describe protocol NAME` those of a protocol, and for --interactions `describe command compare`.",
    multiple=True,
    metavar="NAME=VALUE",
)
@option("--tie", "Treat costs up to this share of the best true value as ties.", NUMBER)
@option("--logging", "As --option logging=AGENT: the logging policy.")
@option("--clip", "As --option clip=M: the largest weight of clipped IPS.")
@seed_option("Seed of everything but the catalogue.")
@option("--catalogues", "Run a study on this many catalogues, each with different users.", WHOLE)
@option("--first-seed", "Catalogue c has users of seed FIRST + c, not one derived from --seed.", WHOLE)
@option("--resume", "Continue the study in --out, which may get more levels and catalogues.", bool)
@option(
    "--save-raw",
    "With --catalogues or --interactions: keep one Parquet file per comparison, a row per user or event.",
    bool,
    hidden=True,
)
@worker_options
@option("--out", "A new folder; under ./runs unless named.", NEW_PATH)
@option("--interactions", "A file of interactions: a user and an item per row, and a time.", READ_PATH)
@option("--user-column", "Its column of users; recognised unless named.")
@option("--item-column", "Its column of items; recognised unless named.")
@option("--time-column", "Its column of times; recognised unless named.")
@option("--drop-missing", "Leave out rows of --interactions without a user, item or time.", bool, hidden=True)
@json_option("records, judgements and notes")
def compare(crew: Crew, json_output: JsonOutput, **options: Any) -> None:
    """Judge agents by protocols, and the protocols by the truth.

    The sessions world: leave-one-out, off-policy estimates and an A/B test. Ratings: naive, IPS and SNIPS estimates.
    Campaigns: leave-one-out, unweighted and weighted. Purchases: precision, uplift metrics and an A/B test.
    --interactions: leave-one-out and a split by time; there is no truth.
    """
    arguments = Arguments(**options)
    json_output.check(arguments.interactions)
    if arguments.interactions is not None:
        arguments.refuse(_WORLD_OPTIONS, "needs a world: with --interactions there is none")
        job = functools.partial(_compare_on_interactions, arguments, arguments.interactions)
        _run_to_folder(arguments.out, crew, job, json_output)
        return
    arguments.refuse(_INTERACTIONS_OPTIONS, "needs --interactions FILE: give that too")
    arguments, factors = _split_factors(arguments)
    setup = setup_of(arguments)
    if arguments.catalogues is None:
        arguments.refuse("resume first_seed save_raw", "needs a study: give --catalogues too")
        if factors:
            raise UserError(f"{next(iter(factors))} has several levels, which needs a study: give --catalogues too")
        _run_to_folder(arguments.out, crew, functools.partial(_compare_in_world, setup, arguments), json_output)
        return
    from recsim_mnar.runs.folder import output_path
    from recsim_mnar.studies import Design

    if arguments.resume and arguments.out is None:
        raise UserError("--resume: name the study's folder with --out")
    design = Design(
        worlds=[setup],
        factors=factors,
        catalogues=arguments.catalogues,
        first_seed=arguments.first_seed,
        seed=arguments.seed,
    )
    folder = output_path(arguments.out, "study")
    _run_study("compare", design, crew, json_output, out=folder, resume=arguments.resume, save_raw=arguments.save_raw)


@click.command(short_help="Repeat comparisons over many catalogues (TOML file).")
@click.argument("settings", type=READ_PATH)
@option("--catalogues", "Number of catalogues, instead of the file's.", WHOLE)
@option("--resume", "Continue the study in --out, which may get more levels and catalogues.", bool)
@option("--save-raw", "Keep one Parquet file per comparison, a row per user or event.", bool)
@worker_options
@option("--out", "A new folder.", NEW_PATH, required=True)
@json_option("the summary")
def study(settings: Path, catalogues: int | None, crew: Crew, json_output: JsonOutput, **options: Any) -> None:
    """Run the study that SETTINGS, a TOML file, describes: comparisons over catalogues."""
    from recsim_mnar.studies.design import design_of

    json_output.check(settings)
    design = design_of(settings)
    if catalogues is not None:
        design = replace(design, catalogues=catalogues)
    _run_study("study", design, crew, json_output, **options)


_LISTS = ("estimators", "metrics")
"""Options that are lists: a comma in them does not separate levels."""


def _split_factors(arguments: Arguments) -> tuple[Arguments, dict[str, list[Any]]]:
    """Find options with several levels, which are factors of a study.

    Returns:
        arguments: the arguments without these options.
        factors: by name of the option, its levels.
    """
    from recsim_mnar.kernels.checks import value_of

    factors = {}
    flags: dict[str, None] = {}
    for name, flag in arguments.flags().items():
        if flag is not None and "," in flag:
            factors[name] = [value_of(level) for level in names_of(flag, f"--{name}")]
            flags[name] = None
    options, option_factors = _split_levels(arguments.options)
    params, param_factors = _split_levels(arguments.params)
    kept: Any = {"options": options, "params": params, **flags}
    return replace(arguments, **kept), factors | option_factors | param_factors


def _split_levels(texts: Sequence[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Split texts ``name=value`` into those of one value and, by name, the levels of the others."""
    from recsim_mnar.kernels.checks import value_of

    single = []
    factors = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if "," in value and name not in _LISTS:
            factors[name] = [value_of(level) for level in names_of(value, name)]
        else:
            single.append(text)
    return single, factors


def setup_of(arguments: Arguments) -> Setup:
    """Build the setup of a comparison, and check all names before any work."""
    from recsim_mnar.protocols.comparison import Setup, experiment_of
    from recsim_mnar.worlds import entry_of

    flags = {name: value for name, value in arguments.flags().items() if value is not None}
    world = arguments.world or "sessions"
    options = pairs_of(arguments.options, "--option")
    for name in sorted(flags.keys() & options.keys()):
        raise UserError(f"--{name} and --option {name} are one setting: give one of them")
    experiment = experiment_of(entry_of(world).world_class())
    for name in (*flags, *options):
        try:
            experiment.field_of(name)
        except UserError as error:
            raise UserError(f"{f'--{name}' if name in flags else '--option'}: {error}") from None
    setup = Setup(
        world=world,
        preset=arguments.preset,
        params=pairs_of(arguments.params, "--set"),
        agents=_parse_names(arguments.agents, "--agents"),
        references=_parse_names(arguments.references, "--references") or (),
        protocols=_parse_names(arguments.protocols, "--protocols"),
        options={**flags, **options},
        tie=arguments.tie or 0.0,
    )
    setup.resolved()
    return setup


def _parse_names(text: str | None, flag: str) -> tuple[str, ...] | None:
    """Split names at commas; None if the option is absent."""
    return None if text is None else tuple(names_of(text, flag))


class Job(Protocol):
    """A function that runs a comparison."""

    def __call__(self, executor: Executor, folder: Path, report: Report) -> tuple[Comparison, Mapping[str, Any]]:
        """Return the comparison, and the settings that reproduce it.

        Args:
            executor: function that opens the executor of the work.
            folder: folder of the results, which exists.
            report: function that is called with a line when a stage begins.
        """


def _run_to_folder(out: Path | None, crew: Crew, job: Job, json_output: JsonOutput) -> None:
    """Run a comparison, write its folder and print the result.

    Args:
        out: the folder; None for a new one under ``./runs``.
        crew: workers of the command.
        job: function that runs the comparison.
        json_output: destination of the JSON.
    """
    from recsim_mnar.protocols.scoreboard import WIDTH, scoreboard
    from recsim_mnar.report.page import results_of, write_comparison
    from recsim_mnar.runs.folder import RunFolder, output_path

    folder = output_path(out, "compare")
    record = RunRecord("compare")
    with RunFolder.fill(folder, what="--out"), progress() as report:
        comparison, run_config = job(functools.partial(crew.executor, record), folder, report)
        report("write the report")
        write_comparison(folder, comparison, run_config, record.seconds())
        record.write(folder / RUN)
    board = scoreboard(comparison)
    if is_quiet():
        board = replace(board, notes=[])
    json_output.answer(*board.lines(output.screen_width() or WIDTH))
    json_output.say(f"Report: {folder / 'report.html'}")
    json_output.write(results_of(comparison, folder))


def _compare_in_world(
    setup: Setup, arguments: Arguments, executor: Executor, folder: Path, report: Report
) -> tuple[Comparison, Mapping[str, Any]]:
    """Run the comparison of a world; the function is a :class:`Job` once its first two arguments are bound."""
    from recsim_mnar.protocols.records import plain

    resolved = setup.resolved()
    run_config = resolved.run_config(arguments.seed)
    with executor(named=[plain(run_config), arguments.world or ""]) as pool:
        return resolved.run(arguments.seed, executor=pool, report=report), run_config


def _run_study(
    command: str, design: Design, crew: Crew, json_output: JsonOutput, *, out: Path, resume: bool, save_raw: bool
) -> None:
    """Run a study, write its folder and print the result.

    Args:
        command: name of the command, for the record of the run.
        design: the study's comparisons.
        crew: workers of the command.
        json_output: destination of the JSON.
        out: the folder.
        resume: True to continue an earlier run in the folder.
        save_raw: True to keep the raw results of each comparison.
    """
    from recsim_mnar.protocols.scoreboard import WIDTH
    from recsim_mnar.report.study_page import study_lines, write_study
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.studies import run_study

    record = RunRecord(command)
    # A worker compares a whole catalogue, and makes the agents from their names.
    named = [design.manifest()["cells"]]
    remarks: list[str] = []

    def warn(remark: str) -> None:
        """Print a remark before the work begins, and keep it for the end, where a long study's reader sees it."""
        output.warn(remark)
        remarks.append(remark)

    with RunFolder.fill(out, resume=resume, what="--out"), progress() as report:
        with crew.executor(record, named=named, in_processes=True) as pool:
            result = run_study(
                design, folder=out, resume=resume, save_raw=save_raw, executor=pool, report=report, warn=warn
            )
        report("write the report")
        write_study(out, result, record.seconds())
        record.write(out / RUN)
    json_output.answer(*study_lines(result, output.screen_width() or WIDTH))
    for remark in remarks:
        json_output.sentence(remark, remark=True)
    json_output.say(f"Report: {out / 'report.html'}")
    json_output.write(
        {
            "settings": result.settings,
            "summary": result.summary(),
            "judgements": result.judgements(),
            "sentences": result.sentences(),
            "folder": str(out),
        }
    )


def _compare_on_interactions(
    arguments: Arguments, path: Path, executor: Executor, folder: Path, report: Report
) -> tuple[Comparison, Mapping[str, Any]]:
    """Run the comparison on a file of interactions; a :class:`Job` once its first two arguments are bound."""
    from recsim_mnar.datasets.interactions import open_interactions
    from recsim_mnar.policies import registry
    from recsim_mnar.protocols.base import RawResults
    from recsim_mnar.protocols.comparison import Setting, check_comparable
    from recsim_mnar.protocols.interactions import InteractionsSettings, chosen_protocols, compare_interactions
    from recsim_mnar.runs.folder import RunFolder
    from recsim_mnar.studies.running import write_parquet
    from recsim_mnar.tables.values import in_rows

    protocols = _parse_names(arguments.protocols, "--protocols")
    chosen_protocols(protocols, timed=True)  # a mistake is found before the file is read
    settings = InteractionsSettings.from_dict(pairs_of(arguments.options, "--option"))
    agents = names_of(_OWN_DATA_AGENTS if arguments.agents is None else arguments.agents, "--agents")
    events = names_of(settings.events, "--option events") if settings.events else None
    learners = {name: registry.learner(name) for name in agents}
    rating = _rating_column(path, arguments, named_events=events is not None)
    read = open_interactions(path, arguments.user_column, arguments.item_column, arguments.time_column)
    report(f"read {path}")
    data = read(events, arguments.drop_missing)
    check_comparable(len(learners), data.n_items)
    options = settings.to_dict()
    raw = RawResults() if arguments.save_raw else None
    with executor(named=[agents, list(protocols or ())]) as pool:
        comparison = compare_interactions(
            data,
            learners,
            protocols=protocols,
            seed=arguments.seed,
            executor=pool,
            report=report,
            raw=raw,
            **options,
        )
    if raw is not None:
        with RunFolder.fill(folder, keep_others=True) as into, into.recording("raw.parquet") as raw_path:
            write_parquet(raw.table(), raw_path)
    comparison.setting = Setting(path.name, data.n_items, data.n_users, arguments.seed)
    hints = []
    if data.left_out:
        hints.append(f"{in_rows(data.left_out)} of the file left out: values are missing.")
    if rating is not None:
        hints.append(f"Column {rating} is not used: every row counts as one interaction.")
    comparison.hints = [*hints, *comparison.hints]
    return comparison, {"interactions": str(path), "items": data.n_items, "seed": arguments.seed, **options}


def _rating_column(path: Path, arguments: Arguments, *, named_events: bool) -> str | None:
    """Return the name of the column of ratings, for the note that it is not used; None without one.

    Raises:
        UserError: the file has slates and no events are named: shown items are no interactions.
    """
    from recsim_mnar.own_log.slate_file import find_slates
    from recsim_mnar.tables.parts import TableFile
    from recsim_mnar.tables.roles import find_columns

    file = TableFile.open(path)
    named = {"user": arguments.user_column, "item": arguments.item_column}
    columns = find_columns(str(path), file.names, named=named, optional=("user", "item", "reward"))
    if not named_events:
        slates = find_slates(file, {"user": columns.get("user"), "action": columns.get("item")})
        if slates is not None:
            raise UserError(
                f"{path} holds slates: what was shown is no interaction. Give a file of what users "
                f"viewed or bought; recsim-mnar doctor {path} says what this one is for"
            )
    return columns.get("reward")
