"""Commands, run as somebody types them."""

from __future__ import annotations

import pytest

from recsim_mnar import cli


def status_of(*arguments):
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    return ended.value.code


def run(capsys, *arguments):
    """Exit status, output and errors of a command."""
    return (status_of(*arguments), *capsys.readouterr())
