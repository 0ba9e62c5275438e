"""What tests of fitting share: a small log of few items, in which users differ much."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.log.ratings import Ratings
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.ratings import RatingsParams, RatingsWorld
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import untrained


@pytest.fixture(scope="package")
def small_log():
    """Users differ much, so that factors are found and their strength is looked for."""
    world = SessionsWorld(SessionsParams(n_items=12, n_factors=2, sigma_omega_initial=3.0))
    return simulate(world, untrained("random", 12), 120, 3)


@pytest.fixture(scope="package")
def revealed():
    """Ratings of 60 users, of which three in ten are revealed whatever they are."""
    full = RatingsWorld(RatingsParams(n_items=40)).ratings_of(0, np.arange(60))
    users, items = np.divmod(np.flatnonzero(uniforms(0, Stream.PROTOCOL, np.arange(full.size), 0) < 0.3), 40)
    return Ratings(users, items, full[users, items], 60, 40)
