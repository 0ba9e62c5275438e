"""Examination of each place of a slate, relative to the first, from items' known probabilities of places.

The probability of a click at place j is that of a look there, theta_j, times the item's appeal to this user. A row has
the weight 1 / p_j, with p_j the probability of this item at this place given the context: so all items that the place
can show count equally (inverse propensity weighting by position, McInerney et al. 2020). The weighted click rates of
two places that can show the same items are averages over the same contexts and items, and their ratio is theta_j /
theta_1; the level of theta is not identified. Weights are self-normalised: divided by their observed sums, which
removes the chance variation of contexts and of explored slates, and a common factor of all propensities. They are not
clipped: clipping would affect different items at each place, so that places would be compared on different items. Where
weights are so uneven that the largest ones may be missing from the log, the place is declared unidentified.

That places can show the same items is tested, not assumed. The mean of 1 / p_j is the number of items that place j can
show: two places for which it is the number of all items show the same ones. Otherwise, if all k! orders of a set are
possible, every item of the set can be at every place: the mean of set_propensity / slate_propensity is the number of
possible orders.

Where users read from the top and stop (cascade), the chance of a look depends on the items above: the estimate is then
the mean under the policy that made the log. With at most one click per slate it includes the clicks that other places
take away.
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

LEAST_CLICKS = 10.0
"""Smallest effective number of clicks at a place: (sum)^2 / sum of squares of users' sums of weighted clicks."""
LEAST_USERS = 50.0
"""Smallest effective number of users at a place: the same for users' sums of weights."""
_CERTAIN = 1.0 - 1e-9
"""Propensity from which an item counts as certain of its place."""
_TEST_LEVEL = 0.999
"""Nominal coverage of the interval of the mean weight."""
_LEAST_SHARE = 0.75
"""Share of the mean weight's full value that the lower end of its interval must reach."""


@dataclass(frozen=True)
class Examination:
    """Probability of examining each of the k places of a slate, relative to the first.

    Numbers are NaN where the log has no evidence. Intervals and tests are clustered by user.

    Attributes:
        relative: (k,) examination relative to the first place, whose value is 1.
        low: (k,) lower ends of the intervals of ``relative``.
        high: (k,) upper ends of the intervals of ``relative``.
        plain: (k,) click rates over that of the first place, which mix the effects of items and places.
        effective_clicks: (k,) effective number of clicks at each place after weighting.
        exponent: x of the power j^-x, j = 1, 2, ..., by weighted least squares of the logarithms.
        exponent_low: lower end of the interval of ``exponent``.
        exponent_high: upper end of the interval of ``exponent``.
        p_same: p-value of the hypothesis that clicks do not depend on the place, given the item (Wald's test).
        p_power: p-value of the hypothesis that places follow a power; NaN for fewer than three places.
        why: sentence on why the log does not identify examination; empty where it does.
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
        """Return whether the log identifies examination at two places at least."""
        return not self.why


def examination(log: Log, *, n_items: int | None = None, level: float = 0.9) -> Examination:
    """Estimate the relative examination of the places of a log's slates.

    Args:
        log: a log of slates. With the columns ``set_propensity`` and ``slate_propensity`` examination is identified
            even if a place cannot show all items, provided that all orders of each set are possible.
        n_items: number of items; None for the log's.
        level: nominal coverage of the intervals.

    Raises:
        UserError: the log has no slates, or slates of several sizes.
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
    owner = log["user"][rows[:, 0]]
    plain = reward.mean(axis=0)
    if plain[0] > 0:
        plain = plain / plain[0]
    else:
        plain = np.full(len(plain), np.nan)
    orders = None
    if {"slate_propensity", "set_propensity"} <= set(log.columns):
        orders = log["set_propensity"][rows[:, 0]] / log["slate_propensity"][rows[:, 0]]
    if not np.all((p > 0) & (p <= 1)):
        return _unidentified(plain, "propensities of items at their places are missing")
    # Slates with a certain item at some place say nothing of places; whether it is certain depends on the context
    # alone, so that leaving them out does not bias the rest.
    varied = np.flatnonzero((p < _CERTAIN).all(axis=1))
    if not len(varied):
        return _unidentified(plain, "given the context items do not change places: the logged propensities are 1")
    if orders is not None:
        orders = orders[varied]
    return _estimate_examination(
        reward[varied], p[varied], owner[varied], orders=orders, n_items=n_items, plain=plain, level=level
    )


def slates_of(log: Log) -> Ints | None:
    """Return the rows of each slate of a log.

    Returns:
        (S, k) row numbers, the first column for the first place; None where every recommendation is a single item.

    Raises:
        UserError: the log has only one of the columns slate and position, or slates are incomplete or of several
            sizes.
    """
    present = [name for name in ("slate", "position") if name in log.columns]
    if not present or not log.is_bandit.any():
        return None
    if len(present) == 1:
        if present == ["slate"]:
            missing = "position"
        else:
            missing = "slate"
        raise UserError(
            f"the log has a column {present[0]} and none of {missing}: which rows are one decision is not known. Add "
            "both: slate counts a user's slates, position their places, each from 0"
        )
    rows = _as_slates(log, np.flatnonzero(log.is_bandit))
    if rows.shape[1] > 1:
        return rows
    return None


def decisions_of(log: Log, rows: Ints | None) -> Log:
    """Return the log with one row per decision: a slate's first row, rewarded if any of its items was.

    Args:
        log: a log of views and recommendations.
        rows: (S, k) rows of the slates; None without slates, where the log is returned as it is.
    """
    if rows is None:
        return log
    reward = log["reward"].copy()
    keep = ~log.is_bandit
    reward[rows[:, 0]] = log["reward"][rows].max(axis=1)
    keep[rows[:, 0]] = True
    return log.with_column("reward", reward).select(keep)


def _as_slates(log: Log, rows: Ints) -> Ints:
    """Reshape the recommendations' rows (n,) to slates (S, k), each on consecutive rows of one user.

    Raises:
        UserError: slates are incomplete or of several sizes.
    """
    place = log["position"][rows]
    size = max(int(place.max(initial=0)) + 1, 1)
    wrong = place != np.arange(len(place)) % size
    continues = np.arange(len(rows)) % size > 0  # rows that must belong to the same slate as the row before
    for values in (log["user"][rows], log["slate"][rows]):
        wrong[1:] |= continues[1:] & (values[1:] != values[:-1])
    wrong[1:] |= continues[1:] & (np.diff(rows) != 1)
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


def _unidentified(plain: Floats, why: str, effective_clicks: Floats | None = None) -> Examination:
    """Return an examination that the log does not identify, all of whose estimates are NaN, with the reason."""
    nan = np.full(len(plain), np.nan)
    if effective_clicks is None:
        effective_clicks = nan
    return Examination(nan, nan, nan, plain, effective_clicks, why=why)


def _estimate_examination(
    reward: Floats, p: Floats, owner: Ints, *, orders: Floats | None, n_items: int, plain: Floats, level: float
) -> Examination:
    """Estimate relative examination from slates none of whose items is certain of its place.

    Args:
        reward: (S, k) clicks.
        p: (S, k) propensity of each item at its place.
        owner: (S,) user of each slate.
        orders: (S,) set propensity over slate propensity; None where the log does not have both.
        n_items: number of items.
        plain: (k,) click rates over that of the first place.
        level: nominal coverage of the intervals.
    """
    owner = np.unique(owner, return_inverse=True)[1]  # numbered from 0
    weights = 1.0 / p
    clicks = _by_user(owner, weights * reward)
    by_user = _by_user(owner, weights)
    effective_clicks = _effective_numbers(clicks)
    problems = _problems(owner, by_user, orders, n_items, effective_clicks)
    kept = np.array([j for j, problem in enumerate(problems) if not problem], np.int64)
    if problems[0]:
        return _unidentified(plain, f"at place 1 {problems[0]}", effective_clicks)
    if len(kept) < 2:
        return _unidentified(plain, f"at place 2 {problems[1]}", effective_clicks)
    total = by_user.sum(axis=0)[kept]
    logs = np.log(clicks.sum(axis=0)[kept] / total)
    # (U, m) influence of each user on the m logarithms of weighted click rates. The division by 1 - share compares the
    # user with the estimate from all other users (jackknife), which the user's own clicks do not affect.
    influence = clicks[:, kept] / (total * np.exp(logs)) - by_user[:, kept] / total
    influence = influence / (1.0 - by_user[:, kept] / total)
    relative = np.full(p.shape[1], np.nan)
    relative[0] = 1.0
    low = relative.copy()
    high = relative.copy()
    for i, j in enumerate(kept[1:], 1):
        reach = _half_length(influence[:, i] - influence[:, 0], level)
        relative[j], low[j], high[j] = np.exp(logs[i] - logs[0] + np.array([0.0, -reach, reach]))
    covariance = np.einsum("ui,uj->ij", influence, influence) * len(influence) / max(len(influence) - 1, 1)
    # Weighted least squares of the logarithms on log j: the exponent is minus the slope, linear in the logarithms.
    log_place = np.log(kept + 1.0)
    precision = 1.0 / np.maximum(np.diag(covariance), 1e-12)
    centred = log_place - (precision * log_place).sum() / precision.sum()
    slope = precision * centred / (precision * centred**2).sum()
    exponent = -float(slope @ logs)
    reach = _half_length(influence @ slope, level)
    ones = np.ones(len(kept))
    return Examination(
        relative,
        low,
        high,
        plain,
        effective_clicks,
        exponent,
        exponent_low=exponent - reach,
        exponent_high=exponent + reach,
        p_same=_wald(logs, covariance, ones[:, None]),
        p_power=_wald(logs, covariance, np.stack([ones, log_place], axis=1)),
    )


def _problems(owner: Ints, by_user: Floats, orders: Floats | None, n_items: int, effective_clicks: Floats) -> list[str]:
    """Return for each place the reason why it cannot be compared with others; "" where it can.

    Args:
        owner: (S,) user of each slate, numbered from 0.
        by_user: (U, k) sums of the weights of each user's slates.
        orders: (S,) set propensity over slate propensity, whose mean is the number of possible orders; or None.
        n_items: number of items, the mean weight at a place that can show all of them.
        effective_clicks: (k,) effective numbers of clicks after weighting.
    """
    slates = np.bincount(owner).astype(np.float64)
    size = by_user.shape[1]
    all_orders = False
    if orders is not None:
        orders_by_user = np.bincount(owner, orders).astype(np.float64)
        all_orders = not _why_support_is_incomplete(orders_by_user, slates, math.factorial(size))
    effective_users = _effective_numbers(by_user)
    problems = []
    for j in range(size):
        problem = ""
        if not all_orders:
            problem = _why_support_is_incomplete(by_user[:, j], slates, n_items)
        if not problem:
            problem = _why_too_few(effective_clicks[j], effective_users[j])
        problems.append(problem)
    return problems


def _by_user(owner: Ints, values: Floats) -> Floats:
    """Return (U, k) sums of values (S, k) over each user's slates."""
    return np.stack([np.bincount(owner, column).astype(np.float64) for column in values.T], axis=1)


def _effective_numbers(sums: Floats) -> Floats:
    """Return the effective numbers (k,) of users' sums (U, k): (sum)^2 over sum of squares."""
    return np.asarray(sums.sum(axis=0) ** 2 / np.maximum((sums**2).sum(axis=0), 1e-300))


def _why_support_is_incomplete(sums: Floats, slates: Floats, full: int) -> str:
    """Return the reason why the mean weight does not show that everything is possible; "" if it does.

    Args:
        sums: (U,) sums of the weights of each user's slates.
        slates: (U,) number of each user's slates.
        full: mean weight if everything is possible: the number of items, or of orders of a set.
    """
    mean, low, high = ratio_interval(sums, slates, _TEST_LEVEL)
    if high < full:
        possible = f"the policy can show about {mean:.3g} of {full} items, given the context"
        return f"{possible}: whether other places can show the same ones the log does not say"
    if low < _LEAST_SHARE * full:
        return "the weights are too uneven: heavier ones may be missing. A policy that explores more would show it"
    return ""


def _why_too_few(clicks: float, users: float) -> str:
    """Return the sentence that effective users or clicks are too few; "" if there are enough."""
    for number, least, what in ((users, LEAST_USERS, "users"), (clicks, LEAST_CLICKS, "clicks")):
        if number < least:
            return f"the weights leave {number:.3g} effective {what}: at least {least:g} are needed"
    return ""


def _half_length(influence: Floats, level: float) -> float:
    """Return half the length of an interval of an estimate to which users contribute ``influence`` (U,)."""
    return _quantile(level) * math.sqrt(Deviations.of(influence).spread(1.0, 0.0, 0.0, level).variance)


def _quantile(level: float) -> float:
    """Return the standard normal quantile of a two-sided interval."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2.0))


def _wald(logs: Floats, covariance: Floats, model: Floats) -> float:
    """Return the p-value of Wald's test that estimates are in the column space of a linear model.

    Args:
        logs: (m,) estimates.
        covariance: (m, m) their covariance.
        model: (m, d) columns of the model.

    Returns:
        the p-value; NaN where the model has as many columns as there are estimates, so that it always fits.
    """
    from scipy.special import chdtrc

    freedom = len(logs) - model.shape[1]
    if freedom < 1:
        return math.nan
    # Components of the estimates orthogonal to the model, which the hypothesis says are 0.
    orthogonal = np.linalg.qr(model, mode="complete")[0][:, model.shape[1] :]
    misfit = orthogonal.T @ logs
    return float(chdtrc(freedom, misfit @ np.linalg.pinv(orthogonal.T @ covariance @ orthogonal) @ misfit))


_LEVEL = 0.9
"""Coverage of intervals in a fitted world."""
_REJECTED = 0.01
"""p-value below which the log denies that examination is a power of the place."""
_LEAST_PAIRS = 5.0
"""Expected number of pairs of clicks in one slate, if clicks were independent, from which a log without any shows that
a slate has at most one click."""


class Evidence(TypedDict, total=False):
    """Evidence of a log on a number of a fitted world.

    Attributes:
        value: estimate, where the log identifies the number.
        low, high: interval of the estimate; or range of the ensemble where the log does not identify the number.
        used: value in the fitted world, where the log does not identify the number.
        why: sentence on the number, or on the reason why it is not identified.
    """

    value: float
    low: float
    high: float
    used: object
    why: str


@dataclass(frozen=True)
class SlateFit:
    """Slates of a log, and the slate parameters of the world that is fitted to it.

    Attributes:
        size: number of items in a slate.
        n_slates: number of slates.
        clicked: share of the slates with a click.
        rate: clicks per slate.
        exponent: exponent of examination in the world: estimated, set by the user or the default; 0 for
            ``independent`` users.
        deviation: standard error of ``exponent``; 0 where it is not estimated.
        assumed: ``user_model``, ``examination`` and ``clicks`` as far as the user sets them.
        clicks: ``one`` or ``several`` clicks per slate; None where the log does not say.
        examination: the relative examination by place.
    """

    size: int
    n_slates: int
    clicked: float
    rate: float
    exponent: float
    deviation: float
    assumed: Mapping[str, Any]
    clicks: str | None
    examination: Examination

    @classmethod
    def of(cls, log: Log, rows: Ints, n_items: int, assume: Mapping[str, Any]) -> SlateFit:
        """Estimate the slate parameters of a world.

        Args:
            log: a log of slates.
            rows: (S, k) rows of the slates.
            n_items: number of items.
            assume: parameters that the user sets, by name.

        Raises:
            UserError: an assumed parameter contradicts the slates, or its user model cannot be fitted.
        """
        n, size = rows.shape
        clicked = log["reward"][rows]
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
        per_slate = clicked.sum(axis=1)
        expected_pairs = n * float(rates.sum() ** 2 - (rates**2).sum()) / 2.0
        clicks = None
        if per_slate.max() > 1:
            clicks = SEVERAL
        elif expected_pairs > _LEAST_PAIRS:
            clicks = ONE
        return cls(
            size=size,
            n_slates=n,
            clicked=float((per_slate > 0).mean()),
            rate=float(per_slate.mean()),
            exponent=float(exponent),
            deviation=deviation,
            assumed={name: assume[name] for name in ("user_model", "examination", "clicks") if name in assume},
            clicks=clicks,
            examination=examined,
        )

    def params(self, exponent: float) -> dict[str, object]:
        """Return the world's slate parameters by name, with the given exponent of examination."""
        return {
            "slate_size": self.size,
            "user_model": POSITION,
            "examination": exponent,
            "clicks": self.clicks or SEVERAL,
        }

    def draw_exponent(self, seed: int, i: int) -> float:
        """Draw the exponent of examination, at least 0, of member ``i`` of the ensemble."""
        normal = normals(derive_seed(seed, "calibrate/examination"), Stream.BOOTSTRAP, i, (1, 1))
        return max(self.exponent + self.deviation * float(normal[0, 0]), 0.0)

    def facts(self) -> Mapping[str, float]:
        """Return statistics of the slates by name, with the p-values of the tests of places if there are any."""
        result = {"slate_size": self.size, "slates_clicked": self.clicked, "clicks_per_slate": self.rate}
        if self.examination.identified:
            result["p_no_position_effect"] = self.examination.p_same
            if not math.isnan(self.examination.p_power):
                result["p_power_of_position"] = self.examination.p_power
        return result

    def method(self) -> list[str]:
        """Return sentences on the slates and on the test that clicks depend on the place."""
        lines = [
            f"slates: {self.n_slates:,} of {self.size} items, each one decision; {self.clicked:.1%} have a click, "
            f"{self.rate:.3g} clicks per slate"
        ]
        if self.examination.identified:
            lines.append(
                f"position, not item: that an item is clicked alike everywhere has p = {self.examination.p_same:.2g}"
            )
        return lines

    def add_evidence(self, identified: dict[str, Evidence], unknown: dict[str, Evidence]) -> None:
        """Add the evidence on slates to the tables of a fitted world, in place.

        Args:
            identified: by name, evidence on numbers that the log identifies; it must have ``click_rate_on_log``.
            unknown: by name, other numbers with the value in use.
        """
        examined = self.examination
        rate = identified["click_rate_on_log"]  # per recommended item
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
            sentence = _EXPONENT
            if examined.p_power < _REJECTED:
                sentence += f"; places deny a power (p = {examined.p_power:.2g})"
            if self.clicks == ONE:
                sentence += "; at most one click per slate: other places take away from it"
            identified["examination"] = {
                "value": self.exponent,
                "low": max(examined.exponent_low, 0.0),
                "high": max(examined.exponent_high, 0.0),
                "why": sentence,
            }
        unknown["examination_level"] = {"used": 1.0, "why": _REASON_OF_LEVEL}
        unknown["user_model"] = {"used": self.assumed.get("user_model", POSITION), "why": _REASON_OF_MODEL}
        if self.clicks is None and "clicks" not in self.assumed:
            unknown["clicks"] = {"used": SEVERAL, "why": "too few clicks to say whether a slate can have two"}


OF_SLATES = {
    "recommendations_per_user": ", a slate being one",
    **dict.fromkeys(OF_CLICKS, ", at the first place of a slate"),
}
"""By name of a sessions world's number, the words that slates add to its explanation."""
_EXPONENT = "exponent x of j^-x, how often place j is looked at relative to the first"
_REASON_OF_LEVEL = "how often the first place is looked at: only its product with click probabilities shows; 1 is taken"
_REASON_OF_MODEL = (
    "users look at places by themselves; if they read from the top and stop, relative examination is the mean under "
    "the log's policy"
)
