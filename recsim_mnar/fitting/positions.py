"""Examination of each place of a slate, relative to the first, from items' known probabilities of places.

A click at place j is a look there, of chance theta_j, times the item's appeal to this user. A row's weight 1 / p_j, p_j
the probability of this item at this place given the context, makes every item that the place can show count alike
(inverse propensity weighting by position, McInerney et al. 2020). So the weighted click rates of two places that can
show the same items are averages over the same contexts and items, and their ratio is theta_j / theta_1; the level of
theta is lost in it. Weights are self-normalised: their sums vary less with the draw of contexts and of explored slates
than expected ones, and a common factor of a log's propensities cancels. They are not clipped: a clip bites other items
at each place, after which places would be compared on different items. Where weights are so uneven that the heaviest
may not have come up, the place is declared unidentified.

That places can show the same items is tested, not assumed. The mean of 1 / p_j is the number of items that place j can
show: where it reaches all items, so do the places. Else, where all k! orders of a set are possible, every item of the
set can be at every place: the mean of set_propensity / slate_propensity is the number of possible orders.

Where users read from the top and stop (cascade), how often they look depends on the items above: what is found then is
the mean under the policy that made the log. With at most one click per slate it includes what other places take away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Deviations, ratio_interval
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import Log
from recsim_mnar.rng import Stream, derive_seed, normals
from recsim_mnar.worlds.sessions.invariants import OF_CLICKS
from recsim_mnar.worlds.sessions.params import CASCADE, INDEPENDENT, ONE, POSITION, SEVERAL, SessionsParams

LEAST_CLICKS, LEAST_USERS = 10.0, 50.0
"""Effective numbers that a place needs, (sum)^2 / sum of squares of users' sums: of weighted clicks, of weights."""
_SURE, _DOUBT, _KNOWN = 1.0 - 1e-9, 0.999, 0.75
"""A certain propensity; level of tests of the mean weight; what its lower end must reach of what it should be."""


@dataclass(frozen=True)
class Examination:
    """Relative examination by place; NaN at places on which the log has no evidence.

    Attributes:
        relative: (k,) the first is 1.
        low: (k,) lower ends of the intervals, by user.
        high: (k,) upper ends.
        plain: (k,) ratios of plain click rates, in which items and places are mixed.
        effective_clicks: (k,) by user: what the weights leave of the clicks.
        exponent: x of j^-x, j = 1, 2, ..., by weighted least squares of the logarithms; with an interval; or NaN.
        exponent_low: lower end.
        exponent_high: upper end.
        p_same: p-value of that clicks do not depend on the place, given the item (Wald's test, by user).
        p_power: p-value of that the places follow a power; NaN of fewer than three.
        why: the sentence on why the log does not say it; empty where it does.
    """

    relative: Floats
    low: Floats
    high: Floats
    plain: Floats
    effective_clicks: Floats
    exponent: float = math.nan
    exponent_low: float = math.nan
    exponent_high: float = math.nan
    p_same: float = math.nan
    p_power: float = math.nan
    why: str = ""

    @property
    def identified(self) -> bool:
        """True if the log says it of two places at least."""
        return not self.why


def examination(log: Log, *, n_items: int | None = None, level: float = 0.9) -> Examination:
    """Estimate the relative examination of the places of a log's slates.

    Args:
        log: of slates; where it has ``set_propensity`` and ``slate_propensity``, whether all orders are possible is
            known of a set whose items cannot reach all places.
        n_items: how many items there are; as the log says where None.
        level: nominal coverage of the intervals.

    Raises:
        UserError: there are no slates, or they are not of one size.
    """
    rows = slates_of(log)
    if rows is None:
        raise UserError("the log has no slates: examination is of places. Columns slate and position say them")
    if n_items is None:
        n_items = log.n_items
    else:
        n_items = whole_number(n_items, "n_items", log.n_items)
    reward = log["reward"][rows]
    p = log["propensity"][rows]
    owner = np.unique(log["user"][rows[:, 0]], return_inverse=True)[1]
    plain = reward.mean(axis=0)
    if plain[0] > 0:
        plain = plain / plain[0]
    else:
        plain = np.full(len(plain), np.nan)
    orders = None
    if {"slate_propensity", "set_propensity"} <= set(log.columns):
        orders = log["set_propensity"][rows[:, 0]] / log["slate_propensity"][rows[:, 0]]
    if not np.all((p > 0) & (p <= 1)):
        return _unknown(plain, "propensities of items at their places are missing")
    varied = np.flatnonzero((p < _SURE).all(axis=1))  # given the context a place is certain of its item or is not
    if not len(varied):
        return _unknown(plain, "given the context items do not change places: the logged propensities are 1")
    if orders is None:
        orders = None
    else:
        orders = orders[varied]
    return _examined(reward[varied], p[varied], owner[varied], orders, n_items, plain, level)


def slates_of(log: Log) -> Ints | None:
    """(S, k) rows of each slate of a log, from the top; None where every recommendation is a single item.

    Raises:
        UserError: one of the columns slate and position only; slates that are not of one size, or not whole.
    """
    there = [name for name in ("slate", "position") if name in log.columns]
    if not there or not log.is_bandit.any():
        return None
    if len(there) == 1:
        if there == ["slate"]:
            lacking = "position"
        else:
            lacking = "slate"
        raise UserError(
            f"the log has a column {there[0]} and none of {lacking}: which rows are one decision is not known. Add "
            "both: slate counts a user's slates, position their places, each from 0"
        )
    rows = _blocks(log, np.flatnonzero(log.is_bandit))
    if rows.shape[1] > 1:
        return rows
    return None


def decisions_of(log: Log, rows: Ints | None) -> Log:
    """Return the log with one row per decision: the first of slates ``rows`` (S, k), its reward 1 if any place's is."""
    if rows is None:
        return log
    reward = log["reward"].copy()
    keep = ~log.is_bandit
    reward[rows[:, 0]], keep[rows[:, 0]] = log["reward"][rows].max(axis=1), True
    return log.with_column("reward", reward).select(keep)


def _blocks(log: Log, rows: Ints) -> Ints:
    """Return rows (n,) as (S, k): whole slates of one size, each on consecutive rows of one user.

    Raises:
        UserError: they are not whole, or of several sizes.
    """
    place = log["position"][rows]
    size = max(int(place.max(initial=0)) + 1, 1)
    wrong = place != np.arange(len(place)) % size
    at = np.arange(len(rows)) % size > 0
    for values in (log["user"][rows], log["slate"][rows]):
        wrong[1:] |= at[1:] & (values[1:] != values[:-1])
    wrong[1:] |= at[1:] & (np.diff(rows) != 1)
    if wrong.any() or len(rows) % size:
        if wrong.any():
            row = int(rows[np.argmax(wrong)])
        else:
            row = int(rows[-1])
        raise UserError(
            f"row {row}: slates must be whole and of one size, here {size}: consecutive rows of one user and slate, "
            "positions from 0 on. Keep the slates of one size"
        )
    return rows.reshape(-1, size)


def _unknown(plain: Floats, why: str, effective: Floats | None = None) -> Examination:
    none = np.full(len(plain), np.nan)
    return Examination(none, none, none, plain, none if effective is None else effective, why=why)


def _examined(
    reward: Floats, p: Floats, owner: Ints, orders: Floats | None, n_items: int, plain: Floats, level: float
) -> Examination:
    """From slates (S, k), none of whose items is certain of its place; ``orders`` (S,) of the set over this one's."""
    owner = np.unique(owner, return_inverse=True)[1]
    weights = 1.0 / p
    slates = np.bincount(owner).astype(np.float64)
    clicks = _by_user(owner, weights * reward)
    by_user = _by_user(owner, weights)
    size = p.shape[1]
    effective = _effective(clicks)
    every = orders is not None and not _short(
        np.bincount(owner, orders).astype(np.float64), slates, math.factorial(size)
    )
    why = [
        ("" if every else _short(by_user[:, j], slates, n_items)) or _few(effective[j], _effective(by_user)[j])
        for j in range(size)
    ]
    kept = np.array([j for j in range(size) if not why[j]], np.int64)
    if why[0] or len(kept) < 2:
        return _unknown(plain, f"at place {1 if why[0] else 2} {why[0] or why[1]}", effective)
    total = by_user.sum(axis=0)[kept]
    logs = np.log(clicks.sum(axis=0)[kept] / total)
    # Influence of users on the logarithms, as the others have it: a user pulls the estimate towards himself.
    apart = (clicks[:, kept] / (total * np.exp(logs)) - by_user[:, kept] / total) / (1.0 - by_user[:, kept] / total)
    relative = np.full(size, np.nan)
    relative[0] = 1.0
    low = relative.copy()
    high = relative.copy()
    for i, j in enumerate(kept[1:], 1):
        reach = _reach(apart[:, i] - apart[:, 0], level)
        relative[j], low[j], high[j] = np.exp(logs[i] - logs[0] + np.array([0.0, -reach, reach]))
    covariance = np.einsum("ui,uj->ij", apart, apart) * len(apart) / max(len(apart) - 1, 1)
    line = np.log(kept + 1.0)
    inverse = 1.0 / np.maximum(np.diag(covariance), 1e-12)
    centred = line - (inverse * line).sum() / inverse.sum()
    slope = inverse * centred / (inverse * centred**2).sum()
    exponent = -float(slope @ logs)
    reach = _reach(apart @ slope, level)
    ones = np.ones(len(kept))
    return Examination(
        relative,
        low,
        high,
        plain,
        effective,
        exponent,
        exponent - reach,
        exponent + reach,
        _wald(logs, covariance, ones[:, None]),
        _wald(logs, covariance, np.stack([ones, line], axis=1)),
    )


def _by_user(owner: Ints, values: Floats) -> Floats:
    """Return (U, k) sums of values (S, k) over each user's slates."""
    return np.stack([np.bincount(owner, column).astype(np.float64) for column in values.T], axis=1)


def _effective(sums: Floats) -> Floats:
    """Return (k,) the effective number of users' sums (U, k)."""
    return np.asarray(sums.sum(axis=0) ** 2 / np.maximum((sums**2).sum(axis=0), 1e-300))


def _short(sums: Floats, slates: Floats, wanted: int) -> str:
    """Why users' sums of weights do not show that the mean weight is the number wanted; empty if they do."""
    mean, low, high = ratio_interval(sums, slates, _DOUBT)
    if high < wanted:
        of = f"the policy can show about {mean:.3g} of {wanted} items, given the context"
        return f"{of}: whether other places can show the same ones the log does not say"
    if low < _KNOWN * wanted:
        return "the weights are too uneven: heavier ones may be missing. A policy that explores more would show it"
    return ""


def _few(clicks: float, users: float) -> str:
    """Why there is too little to go by; empty if there is enough."""
    for number, least, what in ((users, LEAST_USERS, "users"), (clicks, LEAST_CLICKS, "clicks")):
        if number < least:
            return f"the weights leave {number:.3g} effective {what}: at least {least:g} are needed"
    return ""


def _reach(apart: Floats, level: float) -> float:
    """Distance of the ends from the value, on the scale of logarithms."""
    return _quantile(level) * math.sqrt(Deviations.of(apart).spread(1.0, 0.0, 0.0, level).variance)


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2.0))


def _wald(logs: Floats, covariance: Floats, model: Floats) -> float:
    """p-value of that logarithms (m,) are in the span of a model (m, d); NaN where it holds whatever they are."""
    from scipy.special import chdtrc

    left = len(logs) - model.shape[1]
    if left < 1:
        return math.nan
    across = np.linalg.qr(model, mode="complete")[0][:, model.shape[1] :]
    apart = across.T @ logs
    return float(chdtrc(left, apart @ np.linalg.pinv(across.T @ covariance @ across) @ apart))


_LEVEL, _DENIED, _PAIRS = 0.9, 0.01, 5.0
"""Of intervals; p-values below which a power is denied; slates of two clicks expected, from which none means one."""


class Evidence(TypedDict, total=False):
    """Evidence of a log on a number: ``value`` in an interval.

    Or the ``used`` value where there is none, and a range.
    """

    value: float
    low: float
    high: float
    used: object
    why: str


@dataclass(frozen=True)
class Places:
    """Reading of the slates of a log, and the values taken where it has no evidence.

    Attributes:
        size: items of a slate.
        n_slates: slates.
        clicked: share of the slates with a click.
        rate: clicks per slate.
        exponent: that is used, of ``position`` users; 0 of ``independent`` ones.
        deviation: its standard error; 0 where it is not the log's.
        assumed: what is set, of ``user_model``, ``examination`` and ``clicks``.
        clicks: ``one`` or ``several``; None where the log does not say.
        found: the relative examination.
    """

    size: int
    n_slates: int
    clicked: float
    rate: float
    exponent: float
    deviation: float
    assumed: Mapping[str, Any]
    clicks: str | None
    found: Examination

    @classmethod
    def of(cls, log: Log, rows: Ints, n_items: int, assume: Mapping[str, Any]) -> Places:
        """Find the places of the slates ``rows`` (S, k) of a log.

        UserError where the assumption does not fit its slates.
        """
        (n, size), clicked = rows.shape, log["reward"][rows]
        if assume.get("slate_size", size) != size:
            raise UserError(f"slate_size is {assume['slate_size']}, the log's slates have {size} items: leave it out")
        model = assume.get("user_model", POSITION)
        if model == CASCADE:
            raise UserError(f"slates are fitted with {POSITION} or {INDEPENDENT} users: set user_model to one of them")
        examined = examination(log, n_items=n_items, level=_LEVEL)
        exponent = assume.get("examination", SessionsParams.examination)
        deviation = 0.0
        if model == INDEPENDENT:
            exponent = 0.0
        elif examined.identified and "examination" not in assume:
            reach = examined.exponent_high - examined.exponent
            exponent = max(examined.exponent, 0.0)
            deviation = reach / _quantile(_LEVEL)
        rates = clicked.mean(axis=0)
        many = clicked.sum(axis=1)
        pairs = n * float(rates.sum() ** 2 - (rates**2).sum()) / 2.0
        clicks = None
        if many.max() > 1:
            clicks = SEVERAL
        elif pairs > _PAIRS:
            clicks = ONE
        assumed = {name: assume[name] for name in ("user_model", "examination", "clicks") if name in assume}
        shares = float((many > 0).mean()), float(many.mean())
        return cls(size, n, *shares, float(exponent), deviation, assumed, clicks, examined)

    def params(self, exponent: float) -> dict[str, object]:
        """Parameters of the world."""
        return {
            "slate_size": self.size,
            "user_model": POSITION,
            "examination": exponent,
            "clicks": self.clicks or SEVERAL,
        }

    def drawn(self, seed: int, i: int) -> float:
        """Draw the exponent of the ensemble's i-th member."""
        normal = normals(derive_seed(seed, "calibrate/examination"), Stream.BOOTSTRAP, i, (1, 1))
        return max(self.exponent + self.deviation * float(normal[0, 0]), 0.0)

    def facts(self) -> Mapping[str, float]:
        """Statistics of the slates."""
        result = {"slate_size": self.size, "slates_clicked": self.clicked, "clicks_per_slate": self.rate}
        if self.found.identified:
            result["p_no_position_effect"] = self.found.p_same
            if not math.isnan(self.found.p_power):
                result["p_power_of_position"] = self.found.p_power
        return result

    def method(self) -> list[str]:
        """Sentences on slates."""
        lines = [
            f"slates: {self.n_slates:,} of {self.size} items, each one decision; {self.clicked:.1%} have a click, "
            f"{self.rate:.3g} clicks per slate"
        ]
        if self.found.identified:
            lines.append(
                f"position, not item: that an item is clicked alike everywhere has p = {self.found.p_same:.2g}"
            )
        return lines

    def tell(self, identified: dict[str, Evidence], unknown: dict[str, Evidence]) -> None:
        """Add what the log says of places, and what it does not, to the tables of a fitted world."""
        examined = self.found
        rate = identified["click_rate_on_log"]
        identified["clicks_per_slate"] = {
            "value": self.size * rate["value"],
            "low": self.size * rate["low"],
            "high": self.size * rate["high"],
            "why": "clicks per slate of the log",
        }
        for j in range(1, self.size):
            if math.isfinite(examined.relative[j]):
                identified[f"examination_at_{j + 1}"] = {
                    "value": float(examined.relative[j]),
                    "low": float(examined.low[j]),
                    "high": float(examined.high[j]),
                    "why": f"looks at place {j + 1} per look at the first; plain click rates: {examined.plain[j]:.3g}",
                }
        if {"examination", "user_model"} & set(self.assumed):
            why = "assumed, as asked"
        else:
            why = examined.why
        if why:
            unknown["examination"] = {"used": self.exponent, "why": f"{_EXPONENT}: {why}"}
        else:
            if examined.p_power < _DENIED:
                denied = f"; places deny a power (p = {examined.p_power:.2g})"
            else:
                denied = ""
            if self.clicks == ONE:
                remark = "; at most one click per slate: other places take away from it"
            else:
                remark = ""
            identified["examination"] = {
                "value": self.exponent,
                "low": max(examined.exponent_low, 0.0),
                "high": max(examined.exponent_high, 0.0),
                "why": _EXPONENT + denied + remark,
            }
        unknown["examination_level"] = {"used": 1.0, "why": _OF_LEVEL}
        unknown["user_model"] = {"used": self.assumed.get("user_model", POSITION), "why": _OF_MODEL}
        if self.clicks is None and "clicks" not in self.assumed:
            unknown["clicks"] = {"used": SEVERAL, "why": "too few clicks to say whether a slate can have two"}


OF_SLATES = {
    "recommendations_per_user": ", a slate being one",
    **dict.fromkeys(OF_CLICKS, ", at the first place of a slate"),
}
"""What slates make of the numbers of a sessions world."""
_EXPONENT = "exponent x of j^-x, how often place j is looked at relative to the first"
_OF_LEVEL = "how often the first place is looked at: only its product with click probabilities shows; 1 is taken"
_OF_MODEL = (
    "users look at places by themselves; if they read from the top and stop, relative examination is the mean under "
    "the log's policy"
)
