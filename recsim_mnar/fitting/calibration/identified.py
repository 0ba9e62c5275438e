"""What a log identifies of a sessions world, with intervals; what it does not, with the range that was taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.fitting.calibration.functionals import OF_CLICKS, OF_VIEWS, SAYS, functionals
from recsim_mnar.fitting.calibration.members import Maker, Member
from recsim_mnar.fitting.calibration.transitions import fitted_rows
from recsim_mnar.progress import counting
from recsim_mnar.worlds.sessions.world import SessionsWorld

LEVEL, LINK_SURE = 0.9, 0.95
_OFF = 3.0
"""Standard errors of the log's click rate by which a fit may miss it before that is said."""
_NO_VIEWS = (
    "the log has no views: what users view, how they differ and how their interests drift is not known; in this world "
    "all items are viewed alike and all users are alike, so agents that learn from views have nothing to learn from"
)
_ALIKE = (
    "users are not found to differ in what they view: views that were held out are foretold by popularity as well as by "
    "factors, as in a log whose items were shuffled; agents that personalise have nothing to learn from here"
)
_ROTATION = "factors are known up to a rotation and a scale that interests share: sigma_omega_initial is set to 1"
_END = "whether a user's last row is the end of their life or of the log is not known: it counts as leaving"

Table = dict[str, dict[str, Any]]


def identified_by(maker: Maker, best: Member, members: list[Member]) -> tuple[Table, Table]:
    """What the log identifies, with intervals, and what not, with the range that was taken."""
    here = functionals(SessionsWorld(best[0], catalogue=best[1]))
    draws = [functionals(SessionsWorld(p, catalogue=c)) for p, c in counting(members, "worlds")]
    known = _known(maker) - set(maker.assume)
    identified, unknown = {}, {}
    for name, says in SAYS.items():
        values = [each[name] for each in draws] or [here[name]]
        if name in known:
            identified[name] = {**interval(here[name], values), "why": says}
        elif maker.views is not None or name not in (*OF_VIEWS, *OF_CLICKS):
            why = f"{says}: {_reason(maker, name)}"
            unknown[name] = {"used": here[name], "low": min(values), "high": max(values), "why": why}
    if maker.clicks is not None:
        identified["click_rate_on_log"] = _rate_on_log(*maker.clicks.rates)
    if maker.views is None:
        unknown["views"] = {"why": _NO_VIEWS}
        return identified, unknown
    if not maker.n_factors:
        unknown["differences"] = {"why": _ALIKE}
    return identified, {**unknown, "rotation": {"why": _ROTATION}, "end": {"why": _END}}


def _rate_on_log(rate: float, error: float, fitted: float) -> dict[str, Any]:
    """The fitted world's click rate held against the log's."""
    why = "click rate of the best fit on the log's own recommendations; the interval is the log's own"
    if abs(fitted - rate) > _OFF * error:
        why = f"OFF by {abs(fitted - rate) / error:.1f} standard errors: trust no click of this world; {why}"
    return {"value": fitted, "low": rate - 1.645 * error, "high": rate + 1.645 * error, "why": why}


def _known(maker: Maker) -> set[str]:
    known = set(fitted_rows(maker.found))
    if not maker.found.both:
        known &= {"p_leave_organic"}
    if maker.views is not None:
        known |= {"views_per_user"}
        known |= set() if maker.views.lives.no_repeats else {"popularity_entropy", "popularity_gini", "personal_bits"}
        known |= {"drift_per_event"} if maker.views.lives.far and maker.n_factors else set()
    if maker.clicks is not None:
        known |= {"click_rate", "click_spread_items"}
    if maker.found.both:
        known |= {"recommendations_per_user"}
        known |= {"click_spread_users", "click_view_agreement"} if maker.n_factors else set()
    return known


def _reason(maker: Maker, name: str) -> str:
    if name in maker.assume:
        return "assumed, as asked"
    if maker.views is None:
        return "the log has no views"
    if maker.views.lives.no_repeats and name in OF_VIEWS:
        return "nobody meets an item twice; the range is the ensemble's, not known to hold the truth"
    if name == "drift_per_event" and maker.n_factors:
        return "lives are too short: too few pairs of views far apart"
    if maker.clicks is None and name != "drift_per_event":
        return "the log has no recommendations"
    return "users are not found to differ in what they view"


def interval(value: float, draws: list[float]) -> dict[str, float]:
    """90 %: between quantiles of the ensemble, of 20 worlds the least and the largest; fewer give less."""
    low, high = np.quantile(draws or [value], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="weibull")
    return {"value": float(value), "low": float(low), "high": float(high)}
