"""Modules of a benchmark's folder, for tests of one of them; ``modules_of`` of conftest.py brings whole studies."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def study_module(study: str, name: str) -> ModuleType:
    """A module whose name no other benchmark has; without the benchmarks the test file is skipped."""
    folder = BENCHMARKS / study
    if not folder.is_dir():
        pytest.skip("the benchmarks are not beside the tests", allow_module_level=True)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
