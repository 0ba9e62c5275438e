"""``recsim-mnar worlds | agents | estimators | presets``: what there is, a line each."""

from __future__ import annotations

import click

from recsim_mnar.cli.console import print_list


@click.command()
def worlds() -> None:
    """List the worlds."""
    from recsim_mnar.worlds.registry import listed

    print_list(listed())


@click.command()
def agents() -> None:
    """List the agents."""
    from recsim_mnar.policy import registry

    print_list(registry.agents())


@click.command()
def estimators() -> None:
    """List the estimators."""
    from recsim_mnar.estimators import ESTIMATORS

    print_list([(name, info.title) for name, info in ESTIMATORS.items()])


@click.command()
def presets() -> None:
    """List the presets of every world."""
    from recsim_mnar.worlds.registry import listed_presets

    print_list(listed_presets())
