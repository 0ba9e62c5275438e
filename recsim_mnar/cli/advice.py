"""``recsim-mnar advise``: from a log to whether it decides which agent is best, or an A/B test does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.options import NUMBER, WHOLE, column_options, columns_of, n_workers, names_of, seed_option
from recsim_mnar.cli.output import JsonOutput, json_option, progress
from recsim_mnar.errors import UserError


@click.command(short_help="Does a log decide which agent is best?")
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--agents",
    required=True,
    help="To choose among: names (`recsim-mnar agents`) or package.module:Class, with commas.",
)
@click.option("--logging", default=None, help="The policy that made LOG; else what a simulated LOG says of itself.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="A new folder; under ./runs unless named.")
@click.option("--users", type=WHOLE, default=None, help="Users an arm that you have.  [default: as many as LOG has]")
@click.option("--items", type=WHOLE, default=None, help="How many items there are, where LOG does not show all.")
@click.option("--reward-min", type=NUMBER, default=None, help="Least reward possible, where rewards are not 0 or 1.")
@click.option("--reward-max", type=NUMBER, default=None, help="Largest reward possible.")
@seed_option("Of everything.")
@click.option("--workers", type=WHOLE, default=None, help="Processes; as many as there are processors unless named.")
@column_options("user", "item", "action", "reward", "propensity", "time")
@json_option("the advice")
def advise(log: Path, json_output: JsonOutput, **options: Any) -> None:
    """Say whether LOG decides which of some agents is best, or an A/B test of how many users does, or neither.

    Agents are fitted on some users of LOG and judged on the others. No simulated world has a vote. Writes advice.json
    and a page into a folder.
    """
    from recsim_mnar.fitting.advice import advise_on
    from recsim_mnar.own_log.sources import read_to_fit
    from recsim_mnar.protocols.records import plain
    from recsim_mnar.report.advice_page import write_advice
    from recsim_mnar.runs.files import write_json
    from recsim_mnar.runs.folder import new_folder, refuse_occupied
    from recsim_mnar.studies import processes

    json_output.check(log)
    folder = new_folder(options["out"], "advise")
    refuse_occupied(folder, "--out")
    columns = columns_of(options)
    with progress() as report:
        report(f"read {log}")
        read = read_to_fit(log, "sessions", columns)
        for line in read.lines:
            json_output.say(line)
        with processes(n_workers(options["workers"])) as executor:
            question = _question(options, read.n_items)
            found = advise_on(read.log, question, report=report, executor=executor)
        found.doctor = _doctor(log, columns)
        report("write the report")
        content = plain(found.to_dict())
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "advice.json", content)
        asked = {name: value for name, value in options.items() if value is not None and name != "out"}
        write_advice(folder / "report.html", found, {"command": "advise", "log": str(log), **plain(asked)})
    for line in [*found.coverage(), *found.sentences()]:
        json_output.answer(line)
    json_output.say(_next(found, log, options["agents"]))
    json_output.say(f"Report: {folder / 'report.html'}")
    json_output.write(content)


def _next(found: Any, log: Path, agents: str) -> str:
    """What to type next."""
    if found.exploration is not None:
        return f"Next, with the new log: recsim-mnar advise NEW-LOG --agents {agents} --logging ITS-POLICY"
    source = log / "log" if (log / "log").is_dir() else log
    users = "--lift 5%" if found.ab_test is None else f"--users {found.ab_test['users']}"
    return f"Next, to see how long an A/B test takes: recsim-mnar plan ab {source} {users}"


def _question(options: dict[str, Any], n_items: int | None) -> Any:
    from recsim_mnar.fitting.advice import Question

    ends = options["reward_min"], options["reward_max"]
    if ends.count(None) == 1:
        raise UserError("--reward-min and --reward-max: name both, the least and the largest reward possible")
    return Question(
        agents=names_of(options["agents"], "--agents"),
        logging=options["logging"],
        seed=options["seed"],
        n_items=options["items"] or n_items,
        users=options["users"],
        rewards=None if ends == (None, None) else ends,
    )


def _doctor(log: Path, columns: dict[str, str | None]) -> list[str]:
    """What doctor finds wrong with a file; nothing of what it cannot read."""
    from recsim_mnar.own_log.doctor import Asked, examine_file

    try:
        found = examine_file(log / "log" if (log / "log").is_dir() else log, Asked(dict(columns), (), None))
    except UserError:
        return []
    return [str(problem) for problem in found.problems]
