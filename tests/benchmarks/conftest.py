"""What tests of benchmarks share: their modules; of Sato et al. 2019 a tiny log and few settings."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from study_modules import BENCHMARKS

from recsim_mnar import rng

N_USERS, N_ITEMS = 30, 20


@pytest.fixture
def modules_of(monkeypatch):
    """Modules of a benchmark's folder, forgotten afterwards: other benchmarks have modules of these names."""
    brought = []

    def bring(benchmark, *names):
        if not (BENCHMARKS / benchmark).is_dir():
            pytest.skip("the benchmarks are not beside the tests")
        monkeypatch.syspath_prepend(str(BENCHMARKS / benchmark))
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)
        brought.extend(names)
        return {name: importlib.import_module(name) for name in names}

    yield bring
    for name in brought:
        sys.modules.pop(name, None)


@pytest.fixture
def sato(modules_of):
    return modules_of(
        "sato2019", "run", "tables", "pictures", "learn", "semi", "logs", "analysis", "real", "density", "argument",
        "results",
    )  # fmt: skip


@pytest.fixture
def log(sato):
    return sato["logs"].made_up("tafeng", 2, n_users=N_USERS, n_items=N_ITEMS, n_periods=7)


@pytest.fixture
def settings(sato):
    small = sato["run"].settings_of(True)
    small["training"] |= {"updates": 4_000, "checks": 2}
    small["real"]["lengths"] = [3, 5]
    return small


@pytest.fixture
def drawn_scores():
    """Scores of every user and item, drawn."""

    def scores(seed=0):
        cells = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
        return rng.uniforms(seed, rng.Stream.PROTOCOL, *cells).reshape(N_USERS, N_ITEMS)

    return scores
