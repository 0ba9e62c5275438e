"""What tests of fitting share: a small log of few items, in which users differ much."""

from __future__ import annotations

import pytest

from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import untrained


@pytest.fixture(scope="package")
def small_log():
    """Users differ much, so that factors are found and their strength is looked for."""
    world = SessionsWorld(SessionsParams(n_items=12, n_factors=2, sigma_omega_initial=3.0))
    return simulate(world, untrained("random", 12), 120, 3)
