"""Worlds drawn from a stated prior, whose logs calibration is to recover; drawn and committed before the first run.

Calibration was developed on ``recogym`` worlds of other seeds. Held out: ``once`` (no item is met twice), ``logistic``
(another click link) and ``clock`` (times drawn, interests drift by them).
"""

from __future__ import annotations

import numpy as np

from recsim_mnar import rng
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.catalogue import checked_catalogue

FAMILIES = ("recogym", "once", "logistic", "clock")
HELD_OUT = ("once", "logistic", "clock")


def family_of(number: int) -> str:
    """Half of the worlds are of the family that calibration was developed on."""
    return "recogym" if number % 2 == 0 else HELD_OUT[number // 2 % 3]


def world_of(number: int) -> SessionsWorld:
    """World ``number`` of the prior."""
    u = iter(rng.uniforms(2026, rng.Stream.SEED, number, np.arange(32)).tolist())

    def between(low: float, high: float) -> float:
        return low + (high - low) * next(u)

    def log_between(low: float, high: float) -> float:
        return float(low * (high / low) ** next(u))

    family = family_of(number)
    n_items = round(log_between(200, 500) if family == "once" else log_between(10, 200))
    params = {
        "n_items": n_items,
        "n_factors": 2 + int(5 * next(u)),
        "sigma_omega_initial": between(0.6, 1.2),
        "sigma_omega": between(0.0, 0.12),
        "sigma_mu_organic": between(0.1, 2.0),
        "n_flips": int(between(0.0, 1.0) * (n_items // 2)),
        "p_organic_to_bandit": between(0.1, 0.4),
        "p_leave_organic": log_between(0.005, 0.03),
        "p_bandit_to_organic": between(0.02, 0.1),
        "p_leave_bandit": log_between(0.005, 0.02),
        "catalogue_seed": number,
    }
    if family == "once":
        params["no_repeats"] = True
    if family == "clock":
        params |= {"clock": "normal", "clock_mean": between(0.0, 2.0), "clock_sd": between(0.3, 1.0)}
        params["sigma_omega"] = params["sigma_omega"] / 2
    if family != "logistic":
        return SessionsWorld(SessionsParams(**params))
    drawn = SessionsWorld(SessionsParams(**params)).catalogue
    strength, level, spread = between(0.2, 0.6), between(-4.5, -2.5), between(0.1, 0.6)
    offsets = level + spread * drawn.click_offsets / params["sigma_mu_organic"]
    catalogue = checked_catalogue(
        drawn.item_factors, drawn.item_offsets, strength * drawn.click_factors, offsets, "the prior"
    )
    return SessionsWorld(SessionsParams(**params, click_link="logistic"), catalogue=catalogue)
