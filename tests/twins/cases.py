"""Cases of a test of which the first run always, the others in nightly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick_first(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """Mark all cases after the first ``quick`` as slow; cases of a dictionary are named by its keys."""
    named = isinstance(cases, dict)
    made = []
    for place, (name, case) in enumerate(cases.items() if named else ((None, case) for case in cases)):
        values = case if isinstance(case, tuple) else (case,)
        made.append(pytest.param(*values, id=name, marks=() if place < quick else pytest.mark.slow))
    return made
