"""``recsim-mnar evaluate`` and ``recsim-mnar dataset``."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.options import NEW_PATH, READ_PATH, USERS, names_of, option
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.cli.workers import RunRecord, executor, refuse_both, worker_options
from recsim_mnar.errors import UserError, why_unreadable


@click.command(short_help="Score an agent on a frozen task.")
@click.argument("agent")
@option("--task", "The task's name; `recsim-mnar list tasks` shows them.", required=True)
@option("--against", "Other agents, with commas: how far AGENT is ahead of each on the same users.")
@option("--seeds", "Fit AGENT with this many training seeds, and score their mean.", click.IntRange(2))
@option("--quoted", "On users that nobody can have tried on: their seed follows from what the agent does.", bool)
@option("--users", "How many users, for a quick look; the task's number unless named.", USERS)
@option("--verify", "A file that --json wrote: evaluate again, and say whether it holds.", READ_PATH)
@worker_options
@json_option("the evaluation, which --verify checks")
def evaluate(json_output: JsonOutput, **options: Any) -> None:
    """Score AGENT on a frozen task: 0 is the uniform policy, 1 the reference, which knows the users' states.

    AGENT is a name (`recsim-mnar list agents`; or oracle and planner, which know the world) or package.module:Class; a
    learner is fitted on the task's log. A paper quotes the score of --quoted; with --against the others run on these
    users of AGENT, too. See docs/tasks.md.
    """
    from recsim_mnar.tasks import evaluate as evaluated
    from recsim_mnar.tasks import task

    workers, scheduler, verified = (options[name] for name in ("workers", "scheduler", "verify"))
    json_output.check(verified)
    others = names_of(options["against"], "--against") if options["against"] else []
    refuse_both(workers, scheduler)
    chosen = task(options["task"])
    given = None if verified is None else _read(verified, options["task"])
    users = "quoted" if options["quoted"] else "public"
    n_users, seeds = options["users"], options["seeds"] or 1
    if given is not None:
        users, n_users, seeds = given["which"], given["users"], len(given.get("scores", [0]))
    with (
        executor(workers, scheduler, RunRecord("evaluate"), named=[options["agent"]]) as found,
        progress(),
    ):
        run = functools.partial(evaluated, on=chosen, n_users=n_users, executor=found)
        result = run(seeds * [options["agent"]], users=users)
        rivals = [run(other, users=result) for other in others]
    # Written first: whoever reads the answer may close the pipe before its end.
    content = result.to_dict()
    json_output.write(content)
    for line in str(result).splitlines():
        json_output.sentence(line)
    unit = chosen.runner().unit
    for rival in rivals:
        lead = result.ahead_of(rival)
        json_output.sentence(f"{rival.agent}: score {rival.score:.3f}; {result.agent} is {lead}, {unit} by {unit}.")
    if users == "public":
        json_output.sentence("A paper quotes the score of --quoted: nobody can have tried on its users.", remark=True)
    if given is not None:
        other = sorted(name for name in content if given.get(name) != content[name])
        if other:
            raise UserError(
                f"{verified} does not hold: {', '.join(other)} differ: it is of another agent, task or version"
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
    recipe, n_units, runner = made.recipe, len(made.decisions.episodes()), task_of(task).runner()
    shared = f" and a share of {recipe.epsilon:g} at random" if recipe.epsilon else ""
    json_output.say(
        f"{recipe.decisions:,} {runner.step}s of {n_units:,} {runner.unit}s, by {recipe.policy}{shared}, whose score "
        f"is {recipe.score:.3f}; sha256 {recipe.sha256[:12]}, as frozen."
    )
    where = f"MINARI_DATASETS_PATH={out}: {recipe.minari_id}" if form == "minari" else str(out / "log")
    json_output.say(where)
    json_output.write({**dataclasses.asdict(recipe), "minari_id": recipe.minari_id, "format": form, "out": str(out)})


def _read(path: Path, name: str) -> dict[str, Any]:
    """An evaluation that was written before.

    Raises:
        UserError: it is none, or of another task.
    """
    try:
        found: Any = json.loads(path.read_text())
        if found["task"] == name and {"which", "users", "score"} <= found.keys():
            return dict(found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is no evaluation that --json wrote: {why_unreadable(error)}") from None
    raise UserError(f"{path} is of the task {found['task']}: name it with --task")
