"""What a log identifies of a sessions world, with intervals; what it does not, with the range that was taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.fitting.calibration import functionals as told
from recsim_mnar.fitting.calibration.members import Maker
from recsim_mnar.fitting.calibration.transitions import fitted_rows
from recsim_mnar.progress import counting
from recsim_mnar.worlds.sessions.catalogue import Catalogue
from recsim_mnar.worlds.sessions.params import SessionsParams

LEVEL = 0.9


def identified_by(
    maker: Maker, best: SessionsParams, catalogue: Catalogue, members: list[tuple[SessionsParams, Catalogue]]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """What the log identifies, with intervals, and what not, with the range that was taken."""
    from recsim_mnar.worlds.sessions.world import SessionsWorld

    here = told.functionals(SessionsWorld(best, catalogue=catalogue))
    draws = [told.functionals(SessionsWorld(p, catalogue=c)) for p, c in counting(members, "worlds")]
    known = _known(maker)
    identified = {
        name: {**_interval(here[name], [each[name] for each in draws]), "why": told.SAYS[name]}
        for name in told.SAYS
        if name in known
    }
    return identified, _unknown(maker, here, draws, known)


def _known(maker: Maker) -> set[str]:
    known: set[str] = (
        set(fitted_rows(maker.found)) if maker.found.both else {"p_leave_organic"} & set(fitted_rows(maker.found))
    )
    if maker.views is not None:
        known |= {"popularity_entropy", "popularity_gini", "personal_bits", "views_per_user"}
        known |= {"drift_per_event"} if maker.views.scales.drift_found and maker.n_factors else set()
    if maker.clicks is not None:
        known |= {"click_rate", "click_spread_items"}
    if maker.found.both:
        known |= {"recommendations_per_user"}
        known |= {"click_spread_users", "click_view_agreement"} if maker.n_factors else set()
    return known - set(maker.assume)


def _unknown(
    maker: Maker, here: dict[str, float], draws: list[dict[str, float]], known: set[str]
) -> dict[str, dict[str, Any]]:
    unknown: dict[str, dict[str, Any]] = {}
    for name in told.SAYS:
        if name in known or (maker.views is None and name in (*told.OF_VIEWS, *told.OF_CLICKS)):
            continue
        values = [each[name] for each in draws] or [here[name]]
        why = f"{told.SAYS[name]}: {_reason(maker, name)}"
        unknown[name] = {"used": here[name], "low": min(values), "high": max(values), "why": why}
    if maker.views is None:
        unknown["views"] = {
            "why": "the log has no views: what users view, how they differ and how their interests drift is not "
            "known; in this world all items are viewed alike and all users are alike, so agents that learn from "
            "views have nothing to learn from"
        }
    elif not maker.n_factors:
        unknown["differences"] = {
            "why": "users are not found to differ in what they view: views that were held out are foretold by "
            "popularity as well as by factors, as in a log whose items were shuffled; agents that personalise "
            "have nothing to learn from here"
        }
    if maker.views is not None:
        unknown["rotation"] = {
            "why": "factors are identified up to a rotation and a common scale of interests and factors: "
            "sigma_omega_initial is set to 1"
        }
        unknown["end"] = {
            "why": "whether a user's last row is the end of their life or of the log is not known: it counts as leaving"
        }
    return unknown


def _reason(maker: Maker, name: str) -> str:
    if name in maker.assume:
        return "assumed, as asked"
    if maker.views is None:
        return "the log has no views"
    if name == "drift_per_event" and not maker.n_factors:
        return "users are not found to differ in what they view, so nothing can drift"
    if maker.clicks is None and name != "drift_per_event":
        return "the log has no recommendations"
    if name == "drift_per_event":
        return "lives are too short: too few pairs of views far apart"
    return "users are not found to differ in what they view"


def _interval(value: float, draws: list[float]) -> dict[str, float]:
    """90 %: between quantiles of the ensemble, of 20 worlds the least and the largest; fewer give less."""
    low, high = np.quantile(draws or [value], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="weibull")
    return {"value": value, "low": float(low), "high": float(high)}
