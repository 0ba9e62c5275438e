"""What tests of benchmarks share: their modules; of Sato et al. 2019 a tiny log and few settings."""

from contextlib import ExitStack

import numpy as np
import pytest
from study_modules import bring

from recsim_mnar import rng

N_USERS, N_ITEMS = 30, 20


@pytest.fixture
def modules_of():
    """Modules of a benchmark's folder, for one test."""
    with ExitStack() as stack:
        yield lambda study, *names: stack.enter_context(bring(study, *names))


@pytest.fixture
def sato(modules_of):
    return modules_of(
        "sato2019", "run", "tables", "learn", "semi", "logs", "analysis", "real", "density", "argument",
        "no_effect",
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
