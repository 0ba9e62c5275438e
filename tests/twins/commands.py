"""The command line, run in this process as somebody types it."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from recsim_mnar import cli


def status_of(*arguments) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    return int(ended.value.code or 0)


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Exit status, output and errors of a command."""
    return (status_of(*arguments), *capsys.readouterr())


def all_commands(group: click.Group = cli.cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, those within groups too."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def done(capsys, *arguments) -> str:
    """Output of a command that must succeed."""
    status, out, err = run(capsys, *arguments)
    assert status == 0, err
    return out


def fails(capsys, *arguments) -> str:
    """The one line with an error of a command that must fail with status 2."""
    status, _, err = run(capsys, *arguments)
    assert status == 2
    *remarks, error = err.splitlines()
    assert error.startswith("error: ")
    assert not any(line.startswith(("error: ", "Traceback")) for line in remarks)
    return error
