"""Whether a file is a log as this package writes them: then it is read as such, and nothing is recognised."""

from __future__ import annotations

import os
from pathlib import Path

from recsim_mnar.errors import UserError
from recsim_mnar.log.column_files import column_names

OWN = ("user", "step", "event", "propensity", "reward")
"""Columns by which a log of this package's is known."""


def is_own_schema(path: str | os.PathLike[str]) -> bool:
    """Whether a file or folder has the columns of this package's logs; False for what is not readable as one."""
    try:
        return set(OWN) <= set(column_names(Path(path)))
    except UserError:
        return False
