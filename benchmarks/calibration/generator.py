"""Worlds drawn from the prior of ``calibrate``, and their logs: five settings, each a click link, a logger and a clock.

docs/calibrate.md has the prior in words. What is flat or Jeffreys' there is drawn from the ranges below. The prior of
the coefficients of clicks is read from the fit itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.fitting.clicks import PRIORS
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.catalogue import checked_catalogue

SETTINGS = {
    "recogym": ("recogym", "random"),
    "logistic": ("logistic", "random"),
    "user-popularity": ("logistic", "user-popularity+epsilon=0.3"),
    "item-knn": ("logistic", "item-knn+epsilon=0.3"),
    "clock": ("recogym", "random"),
}
"""Click link and logger; ``clock`` has times that are drawn."""
FACTORS = (2, 5)
RANGES = {
    "n_items": (10.0, 60.0),
    "factors": (0.6, 1.2),
    "offsets": (0.1, 2.0),
    "drift": (0.0, 0.12),
    "p_organic_to_bandit": (0.1, 0.4),
    "p_leave_organic": (0.01, 0.05),
    "p_bandit_to_organic": (0.02, 0.1),
    "p_leave_bandit": (0.005, 0.02),
    "clock_mean": (0.0, 2.0),
    "clock_sd": (0.3, 1.0),
}
"""n_items, p_leave_organic and p_leave_bandit on the scale of logarithms; factors, offsets, drift: deviations."""
TRAINING_USERS = 300


def world_of(setting: str, number: int) -> SessionsWorld:
    """World ``number`` of a setting."""
    seed = rng.derive_seed(371, f"sbc/{setting}")
    u = iter(rng.uniforms(seed, rng.Stream.SEED, number, np.arange(16)).tolist())

    def drawn(name: str, *, logs: bool = False) -> float:
        low, high = RANGES[name]
        at = next(u)
        return float(low * (high / low) ** at) if logs else low + (high - low) * at

    n_items, k = round(drawn("n_items", logs=True)), FACTORS[int(len(FACTORS) * next(u))]
    link, _ = SETTINGS[setting]
    prior = PRIORS[link]
    normal = rng.normals(seed, rng.Stream.CATALOGUE, number, (n_items + 1, 2 * k + 2))
    r, also, level, s, s_b = normal[-1, :5]
    factors, offsets = drawn("factors") * normal[:-1, :k], drawn("offsets") * normal[:-1, k]
    clicks = prior.relations * r * factors + prior.factors * abs(s) * normal[:-1, k + 1 : 2 * k + 1]
    levels = prior.relations * also * (offsets - offsets.mean()) + prior.offsets * abs(s_b) * normal[:-1, -1]
    levels += prior.level + prior.levels * level
    params: dict[str, Any] = {
        "sigma_omega_initial": 1.0,
        "sigma_omega": drawn("drift"),
        "p_organic_to_bandit": drawn("p_organic_to_bandit"),
        "p_leave_organic": drawn("p_leave_organic", logs=True),
        "p_bandit_to_organic": drawn("p_bandit_to_organic"),
        "p_leave_bandit": drawn("p_leave_bandit", logs=True),
        "click_link": link,
    }
    if setting == "clock":
        mean, sd = drawn("clock_mean"), drawn("clock_sd")
        params |= {"clock": "normal", "clock_mean": mean, "clock_sd": sd}
        params["sigma_omega"] /= float(np.sqrt(mean**2 + sd**2))
    catalogue = checked_catalogue(factors, offsets, clicks, levels, "the prior")
    return SessionsWorld(SessionsParams(**params), catalogue=catalogue)


def log_of(world: SessionsWorld, setting: str, users: int, seed: int) -> Log:
    """A log under the setting's logger, with nothing in its provenance but the number of items."""
    train, (_, name) = Log({}), SETTINGS[setting]
    if name != "random":
        train = simulate(
            world, registry.learner("random").fit(train, n_items=world.n_items, seed=0), TRAINING_USERS, seed
        )
    policy = registry.learner(name).fit(train, n_items=world.n_items, seed=0)
    log = simulate(world, policy, users, rng.derive_seed(seed, "log"))
    return Log(log.columns, {"world": {"params": {"n_items": world.n_items}}})
