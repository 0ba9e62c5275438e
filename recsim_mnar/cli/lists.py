"""``recsim-mnar worlds | agents | estimators | protocols | presets``: what there is, a line each."""

from __future__ import annotations

import click

from recsim_mnar.cli.console import print_list


@click.command()
def worlds() -> None:
    """List the worlds."""
    from recsim_mnar.worlds.registry import listed

    print_list(listed())


@click.command(short_help="List the agents, and the worlds they are for.")
def agents() -> None:
    """List the agents, and the worlds that those are for which need more than views."""
    from recsim_mnar.policy import registry
    from recsim_mnar.protocols.compare import worlds_for

    rows = []
    for name, text in registry.agents():
        where = worlds_for(registry.needs_of_agent(name))
        rows.append((name, text if where is None else f"{text.removesuffix('.')} ({', '.join(where)})."))
    print_list(rows)


@click.command()
def estimators() -> None:
    """List the estimators."""
    from recsim_mnar.estimators.off_policy.registry import known_estimators

    print_list(list(known_estimators().items()))


@click.command(short_help="List the protocols and the options of comparisons.")
def protocols() -> None:
    """List the protocols, and the options of each world's comparison."""
    from recsim_mnar.protocols.base import known_protocols, summary_of
    from recsim_mnar.protocols.compare import experiment_of
    from recsim_mnar.worlds.registry import WORLDS

    worlds = {name: experiment_of(entry.world_class()) for name, entry in WORLDS.items()}
    rows = [(name, summary_of(name)) for name in known_protocols()]
    for world, experiment in worlds.items():
        rows += [(f"{world}: {name}", summary_of(name, experiment.own_protocols)) for name in experiment.own_protocols]
    print_list(rows)
    print()
    for world, experiment in worlds.items():
        settings = experiment.settings(experiment.preset)
        options = ", ".join(f"{name}={value}" for name, value in settings.to_dict().items())
        print(f"--option of --world {world}: {options}")


@click.command()
def presets() -> None:
    """List the presets of every world."""
    from recsim_mnar.worlds.registry import listed_presets

    print_list(listed_presets())
