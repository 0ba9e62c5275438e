"""Which additions campaigns caused, where the log does not say: estimated from the jumps in what is added.

De Myttenaere et al. 2015 leave the structural bias of campaigns to future work. A log that says what campaigns caused
can be reduced to what users added alone; for any other log this module estimates it. Additions of item i on day d of
the window after campaign c have the mean

    o_i(d) + e_ci f_c(d - day_c),    f_c summing to 1,

an own rate o_i, and e_ci additions that the campaign caused, spread over the days by a delay that all its items share.

Identified where the campaign days are known, the window is as long as the delay, and quiet days on both sides say what
own rates are: linear or exponential in time from the first quiet day looked at to the last (a window and two sides, 150
days by default). A season bends them within that time and is taken for a campaign; so are own additions that a campaign
day itself sets off (a promotion that begins then). A window that ends before the delay does gives too few. No such log
can show any of these. Of a single addition only a probability follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.profiles import Profiles

Floats = NDArray[np.float64]

_SWEEPS = 20_000
_SETTLED = 1e-7
"""Change of a sweep, as a share of the additions, below which the search is at its end."""

_LEAST_SPREAD = 1e-3
"""Least variance of items' caused additions over their mean."""


@dataclass(frozen=True)
class CausedAdditions:
    """Estimated additions that campaigns caused.

    Attributes:
        days: (C,) of the campaigns.
        expected: (C, n_items) additions of each item that each campaign caused, until the profiles' time.
        deviation: (C, n_items) standard error of ``expected`` from the counts alone: own additions of the window and
            of the quiet days as Poisson counts. Too small where users arrive with several items at once, and 0 for an
            item that no user added alone on a quiet day. The delay makes the estimate itself a little more exact.
        delays: (C, window) share of each campaign's additions by days since the campaign.
        probabilities: (E,) of each pair of the profiles, that a campaign caused it.
    """

    days: Floats
    expected: Floats
    deviation: Floats
    delays: Floats
    probabilities: Floats


def caused_additions(
    profiles: Profiles, days: Sequence[float], *, window: int = 30, side: int = 60, prior: float | None = None
) -> CausedAdditions:
    """Estimate how many additions of each item each campaign caused, and the probability of each single one.

    Own rates: between the quiet days before and after the window, the total geometrically (exact for a rate that
    fades exponentially), the items' shares of it linearly. An item's share on quiet days is drawn towards its share
    of all additions on earlier quiet days, which counts as ``prior`` additions. An item that is new in the window has
    no earlier share: what users add of it alone is largely taken for caused.

    A delay is assumed whose share never rises from one day to the next.

    Args:
        profiles: at a time; their ``causes`` are not read.
        days: of the campaigns, ascending and at least a window apart; those after the profiles' time are ignored.
        window: days, from the campaign's own on, in which its additions come; later ones are missed.
        side: most quiet days looked at on either side.
        prior: see above; the number of items by default.

    Raises:
        UserError: bad arguments, no quiet day on one side of a window, or a search that does not converge.
    """
    prior = float(profiles.n_items) if prior is None else prior
    at = _checked(days, window, side, prior)
    at = at[at <= profiles.time]
    added = np.floor(profiles.added).astype(np.int64)
    quiet = np.ones(int(np.floor(profiles.time)) + 1, bool)
    for day in at:
        quiet[day : day + window] = False
    expected, deviation = np.zeros((2, len(at), profiles.n_items))
    delays, probabilities = np.zeros((len(at), window)), np.zeros(profiles.n_pairs)
    for c, day in enumerate(at):
        own, variance = _own_additions(profiles, added, quiet, int(day), window, side, prior)
        inside = np.flatnonzero((added >= day) & (added < day + window))
        cell = profiles.items[inside].astype(np.int64) * window + (added[inside] - day)
        counts = np.bincount(cell, minlength=own.size).reshape(own.shape).astype(np.float64)
        deviation[c] = np.sqrt(own.sum(axis=1) + variance)
        expected[c], delays[c], chance = _separate(counts, own, variance)
        probabilities[inside] = chance.ravel()[cell]
    return CausedAdditions(at.astype(np.float64), expected, deviation, delays, probabilities)


def _checked(days: Sequence[float], window: int, side: int, prior: float) -> NDArray[np.int64]:
    """Whole days of the campaigns."""
    for name, value in (("window", window), ("side", side)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise UserError(f"window and side must be whole numbers of days from 1, got {name} = {value!r}")
    if not 0.0 < prior < np.inf:
        raise UserError(f"prior must be a number above 0, got {prior!r}")
    at = np.atleast_1d(np.asarray(days, np.float64))
    if len(at) == 0 or not np.isfinite(at).all() or (at < 0).any():
        raise UserError("name the days of the campaigns: numbers from 0, at least one")
    whole = np.floor(at).astype(np.int64)
    if (np.diff(whole) < window).any():
        raise UserError(f"campaigns must be in order and at least a window of {window} days apart: lower window")
    return whole


def _own_additions(
    profiles: Profiles,
    added: NDArray[np.int64],
    quiet: NDArray[np.bool_],
    day: int,
    window: int,
    side: int,
    prior: float,
) -> tuple[Floats, Floats]:
    """(n_items, window) own additions expected by day of a window, and the variance of each item's sum (n_items,)."""
    last, end = len(quiet) - 1, day + window  # the profiles' last day has only begun
    reach = np.arange(max(day - side, 0), day), np.arange(min(end, last), min(end + side, last))
    sides = [part[quiet[part]] for part in reach]
    for part, where in zip(sides, ("before", "after"), strict=True):
        if len(part) == 0:
            raise UserError(
                f"campaign on day {day}: no quiet day {where} its window of {window} days, so own rates are not known "
                "across it. Lower window, raise side, or take profiles of a later day"
            )
    earlier = profiles.items[quiet[added] & (added < day)]
    if len(earlier) == 0:
        raise UserError(f"campaign on day {day}: nothing was added on quiet days before it. Leave this campaign out")
    held = np.bincount(earlier, minlength=profiles.n_items) / len(earlier)
    found = [np.bincount(profiles.items[np.isin(added, part)], minlength=profiles.n_items) for part in sides]
    centre = [part.mean() for part in sides]
    rate = [counts.sum() / len(part) for counts, part in zip(found, sides, strict=True)]
    share = [(counts + prior * held) / (counts.sum() + prior) for counts in found]
    when = np.arange(day, end)
    late = (when - centre[0]) / (centre[1] - centre[0])
    total = rate[0] ** (1 - late) * rate[1] ** late if min(rate) > 0 else rate[0] * (1 - late) + rate[1] * late
    own = (np.outer(share[0], 1 - late) + np.outer(share[1], late)) * total
    parts = zip((1 - late, late), rate, share, sides, strict=True)
    return own, sum(weight.sum() ** 2 * r * s / len(part) for weight, r, s, part in parts)


def _separate(counts: Floats, own: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Caused additions (n_items,), their delay (window,), and P(caused) of an addition (n_items, window), by EM.

    The delay never rises: of most answers the sooner is the likelier. Own additions of an item are a factor on ``own``
    with mean 1 and the relative ``variance`` of its sum; caused ones are drawn towards their mean. Both are Gamma laws
    with the mean and the variance that counts show: without them an item with a chance excess gets too many.
    """
    excess, sums = counts.sum(axis=1) - own.sum(axis=1), own.sum(axis=1)
    mean = excess.mean()
    delay = np.maximum(counts.sum(axis=0) - own.sum(axis=0), 0.0)
    if not (mean > 0 and delay.sum() > 0):
        return np.zeros(len(counts)), np.zeros(counts.shape[1]), np.zeros_like(counts)
    rate = mean / max(float(excess.var()) - (sums + variance).mean(), _LEAST_SPREAD * mean)
    known = np.divide(sums**2, variance, out=np.zeros_like(sums), where=variance > 0)
    caused, delay, factor = np.full(len(counts), mean), delay / delay.sum(), np.ones(len(counts))
    seen, before = counts > 0, np.full(len(counts), np.inf)
    for _ in range(_SWEEPS):
        both = np.outer(caused, delay)
        chance = np.divide(both, both + own * factor[:, None], out=np.zeros_like(both), where=seen)
        parts = chance * counts
        if np.abs(caused - before).sum() <= _SETTLED * counts.sum():
            return caused, delay, chance
        before = caused
        caused, delay = parts.sum(axis=1) + mean * rate, _falling(parts.sum(axis=0))
        caused, delay = caused * (excess.sum() / caused.sum()), delay / delay.sum()
        factor = np.divide(known + (counts - parts).sum(axis=1), known + sums, out=np.ones_like(sums), where=sums > 0)
        factor *= sums.sum() / max(factor @ sums, np.finfo(float).tiny)
    raise UserError(f"what campaigns caused does not converge in {_SWEEPS:,} sweeps: too few additions. Raise window")


def _falling(values: Floats) -> Floats:
    """The nearest values that never rise: min over a <= t of max over b >= t of the mean of values a .. b."""
    n, total = len(values), np.concatenate([[0.0], np.cumsum(values)])
    first, last = np.arange(n)[:, None], np.arange(n)
    means = np.where(last >= first, (total[1:] - total[:-1][:, None]) / np.maximum(last - first + 1, 1), -np.inf)
    best = np.maximum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    found: Floats = np.where(last >= first, best, np.inf).min(axis=0)
    return found
