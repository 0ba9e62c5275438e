"""With NUMBA_DISABLE_JIT=1 the kernels run in the interpreter: what has many rows is left to the compiled run."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

HERE = Path(__file__).parent
MANY_ROWS = ("bootstrap", "every_estimator_and_interval", "a_higher_level")


def pytest_collection_modifyitems(items):
    if not numba.config.DISABLE_JIT:
        return
    for item in items:
        long = item.get_closest_marker("verify") or any(word in item.name for word in MANY_ROWS)
        if long and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="too many rows for the interpreter"))
