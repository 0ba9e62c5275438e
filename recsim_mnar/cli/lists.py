"""``recsim-mnar worlds | agents | estimators | protocols | presets``: what there is, a line each."""

from __future__ import annotations

from typing import Any

import click

from recsim_mnar.cli.json_output import JsonOutput, json_option
from recsim_mnar.cli.output import answer, is_quiet, say, show_pairs

_LIST = json_option("the list")


def _show(rows: list[tuple[str, str]], content: Any, json_output: JsonOutput) -> None:
    """A name and a text a line, names alone with ``--quiet``; and the list as JSON."""
    json_output.check()
    if not json_output.alone and is_quiet():
        for name, _ in rows:
            answer(name)
    elif not json_output.alone:
        show_pairs(rows)
    json_output.write(content)


@click.command(short_help="List the worlds.")
@_LIST
def worlds(json_output: JsonOutput) -> None:
    """List the worlds; `describe world NAME` has their parameters."""
    from recsim_mnar.worlds.registry import listed

    rows = listed()
    _show(rows, [{"name": name, "summary": text} for name, text in rows], json_output)


@click.command(short_help="List the agents, and the worlds they are for.")
@_LIST
def agents(json_output: JsonOutput) -> None:
    """List the agents, and the worlds that each is for; `describe agent NAME` has its parameters."""
    from recsim_mnar.policies import registry
    from recsim_mnar.protocols.comparison import worlds_for
    from recsim_mnar.worlds.registry import worlds as known_worlds

    rows, content = [], []
    for name, text in registry.agents():
        where = worlds_for(registry.needs_of_agent(name))
        rows.append((name, f"{text.removesuffix('.')} ({', '.join(where or ['every world'])})."))
        content.append({"name": name, "summary": text, "worlds": where or sorted(known_worlds())})
    _show(rows, content, json_output)


@click.command(short_help="List the estimators.")
@_LIST
def estimators(json_output: JsonOutput) -> None:
    """List the estimators; `describe estimator NAME` says what each needs."""
    from recsim_mnar.estimators.off_policy.scores import known_estimators

    rows = list(known_estimators().items())
    _show(rows, [{"name": name, "summary": text} for name, text in rows], json_output)


@click.command(short_help="List the protocols and the options of comparisons.")
@_LIST
def protocols(json_output: JsonOutput) -> None:
    """List the protocols, and the options of each world's comparison; `describe protocol NAME` has more."""
    from recsim_mnar.protocols.base import known_protocols, summary_of
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds.registry import WORLDS

    worlds = {name: experiment_of(entry.world_class()) for name, entry in WORLDS.items()}
    found = [{"name": name, "world": None, "summary": summary_of(name)} for name in known_protocols()]
    for world, experiment in worlds.items():
        found += [
            {"name": name, "world": world, "summary": summary_of(name, experiment.own_protocols)}
            for name in experiment.own_protocols
        ]
    options = {name: own.settings(own.preset).to_dict() for name, own in worlds.items()}
    rows = [
        (f"{one['world']}: {one['name']}" if one["world"] else f"{one['name']}", f"{one['summary']}") for one in found
    ]
    _show(rows, {"protocols": found, "options": options}, json_output)
    if json_output.alone:
        return
    say("")
    for world, values in options.items():
        say(f"--option of --world {world}: {', '.join(f'{name}={value}' for name, value in values.items())}")


@click.command(short_help="List the presets of every world.")
@_LIST
def presets(json_output: JsonOutput) -> None:
    """List the presets of every world; `describe preset NAME` has their parameters."""
    from recsim_mnar.worlds.registry import listed_presets

    rows = listed_presets()
    content = [{"world": name.split()[0], "name": name.split()[1], "summary": text} for name, text in rows]
    _show(rows, content, json_output)
