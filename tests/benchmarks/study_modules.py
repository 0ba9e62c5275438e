"""Modules of a benchmark's folder, which other benchmarks have under the same names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def bring(study: str, *names: str) -> Iterator[dict[str, ModuleType]]:
    """Modules by name, forgotten afterwards; without the benchmarks the test is skipped."""
    folder = BENCHMARKS / study
    if not folder.is_dir():
        pytest.skip("the benchmarks are not next to the tests", allow_module_level=True)
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(folder))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(folder))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def study_module(study: str, name: str) -> ModuleType:
    """A module whose name no other benchmark has; it stays."""
    with bring(study, name) as found:
        pass
    return sys.modules.setdefault(name, found[name])
