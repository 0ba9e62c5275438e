"""The command line, run in this process."""

from __future__ import annotations

import pytest

from recsim_mnar import cli


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Its status, what it prints and what it says on the error stream."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    return (ended.value.code or 0, *capsys.readouterr())
