"""What the benchmark of Sato et al. 2019 and its programs share in tests: its modules, a tiny log, few settings."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from recsim_mnar import rng

FOLDER = Path(__file__).parents[2] / "benchmarks" / "sato2019"
N_USERS, N_ITEMS = 30, 20


@pytest.fixture
def sato(monkeypatch):
    """The modules of the benchmark's folder, forgotten afterwards: other benchmarks have modules of these names."""
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    names = (
        "run",
        "tables",
        "pictures",
        "learn",
        "semi",
        "logs",
        "analysis",
        "real",
        "density",
        "argument",
        "procedure",
        "readings",
        "results",
    )
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


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
