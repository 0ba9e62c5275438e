"""Commands whose help shows their options in groups; options of one comparison are named by ``--option``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from recsim_mnar.errors import UserError

Row = tuple[str, str]


class GroupedCommand(click.Command):
    """A command whose help shows options under headings, and leaves the hidden ones to ``describe command``.

    Args:
        groups: by heading, long names of options without their dashes; those of no group follow in the last one.
    """

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        for heading, rows in self.rows(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def rows(self, ctx: click.Context) -> dict[str, list[Row]]:
        """Name and help of each option that is not hidden, by heading."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = {_long_name(each): each.get_help_record(ctx) for each in options}
        helps = {name: row for name, row in records.items() if row is not None}
        grouped = {name for names in self.groups.values() for name in names}
        rows = {heading: [helps[name] for name in names if name in helps] for heading, names in self.groups.items()}
        rows[list(rows)[-1]] += [row for name, row in helps.items() if name not in grouped]
        return rows

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and name ``--option`` where the option is one of a comparison."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            if self.name == "compare" and name in option_names():
                raise UserError(
                    f"{error.option_name} is an option of the comparison: write --option {name}=VALUE"
                ) from None
            raise


def _long_name(parameter: click.Parameter) -> str:
    """The first name of two dashes, without them."""
    return next(name for name in parameter.opts if name.startswith("--")).removeprefix("--")


def option_names() -> set[str]:
    """Names of the options of every comparison."""
    return {name for names in comparison_options() for name in names}


def comparison_options() -> Iterator[list[str]]:
    """Names of the options of each comparison: one list per world, and one for interactions."""
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.protocols.interactions import InteractionsSettings
    from recsim_mnar.worlds.registry import WORLDS

    for entry in WORLDS.values():
        experiment = experiment_of(entry.world_class())
        yield [*experiment.settings_type().to_dict(), *experiment.aliases]
    yield list(InteractionsSettings().to_dict())
