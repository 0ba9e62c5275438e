"""The command line, run in this process as somebody types it."""

from __future__ import annotations

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


def done(capsys, *arguments) -> str:
    """Output of a command that must succeed."""
    status, out, err = run(capsys, *arguments)
    assert status == 0, err
    return out
