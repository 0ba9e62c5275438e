"""Options of the commands that read a file of one's own: which column is what, which rows count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

ROLES = ("reward", "propensity", "action", "item", "event", "user", "time", "logger")
_WHAT = {
    "reward": "Column of rewards (clicks, ...).",
    "propensity": "Column of the logging policy's probability of the logged action.",
    "action": "Column of the logged action (what was shown).",
    "item": "Column of items that were viewed.",
    "event": "Column that says view or recommendation.",
    "user": "Column of users: their rows depend on each other.",
    "time": "Column of times: numbers or dates.",
    "logger": "Column of the policy that logged the row, where there are several.",
}


def column_options(*roles: str) -> Callable[[Any], Any]:
    """``--user-column`` and its like for some roles; :func:`columns_of` takes them out of a command's options."""

    def decorate(command: Any) -> Any:
        for role in reversed(roles):
            what = f"{_WHAT[role]} Recognised unless named."
            command = click.option(f"--{role}-column", default=None, help=what)(command)
        return command

    return decorate


def columns_of(options: dict[str, Any]) -> dict[str, str | None]:
    """The options of :func:`column_options`, taken out of a command's: the named column of each role, or None."""
    return {role: options.pop(f"{role}_column") for role in ROLES if f"{role}_column" in options}


def own_log_options(*roles: str, copies: bool = True) -> Callable[[Any], Any]:
    """``--reward-column`` and its like for some roles, ``--drop-missing``, and ``--deduplicate`` (with ``copies``).

    A command gets them as ``columns``-shaped keyword arguments; :func:`reading_of` takes them out.
    """

    def decorate(command: Any) -> Any:
        if copies:
            command = click.option(
                "--deduplicate", is_flag=True, help="Keep the first of rows that are equal in every column read."
            )(command)
        command = click.option(
            "--drop-missing", is_flag=True, help="Leave out rows that miss a value, and count them."
        )(command)
        return column_options(*roles)(command)

    return decorate


def reading_of(options: dict[str, Any], context: str | None = None) -> Any:
    """The options of :func:`own_log_options`, taken out of a command's, as a ``Reading``."""
    from recsim_mnar.cli.shared import names_of
    from recsim_mnar.own_log.bandit_file import Reading

    return Reading(
        columns=columns_of(options),
        context=() if context is None else names_of(context, "--context-columns"),
        drop_missing=options.pop("drop_missing"),
        deduplicate=options.pop("deduplicate", False),
    )
