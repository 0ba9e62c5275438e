"""The world that models of other libraries are made for."""

from __future__ import annotations

import pytest

from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld


@pytest.fixture(scope="session")
def world():
    return SessionsWorld(SessionsParams(n_items=10, p_leave_bandit=0.1))
