"""Schemes against the structural bias of campaigns, and which additions campaigns caused.

Where the log does not say which they caused, that is estimated from the jumps in what is added
(:func:`caused_additions`). De Myttenaere et al. 2015 leave the structural bias of campaigns to future work. A log that
says what campaigns caused can be reduced to what users added alone; for any other log this module estimates it.
Additions of item i on day d of the window after campaign c have the mean

    o_i(d) + e_ci f_c(d - day_c),    f_c summing to 1,

an own rate o_i, and e_ci additions that the campaign caused, spread over the days by a delay that all its items share.

Identified where the campaign days are known, the window is as long as the delay, and quiet days on both sides say what
own rates are: linear or exponential in time from the first quiet day looked at to the last (a window and two sides, 150
days by default). A season bends them within that time and is taken for a campaign; so are own additions that a campaign
day itself sets off (a promotion that begins then). A window that ends before the delay does gives too few. No such log
can show any of these. Of a single addition only a probability follows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import _support_kernel
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import BOUND, Scheme, Weighing, fit_item_weights, make_scheme, weigh_by_user
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.protocols.base import Trial, protocol
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms

Floats = NDArray[np.float64]

OWN = {
    "drawn": f"{__name__}:Drawn",
    "at-t0": f"{__name__}:AtReference",
    "item-first": f"{__name__}:ItemFirst",
    "random-phase": f"{__name__}:RandomPhase",
    "stratified-recall": f"{__name__}:StratifiedRecall",
    "snips": f"{__name__}:PopularitySNIPS",
    "wtd": f"{__name__}:WTD",
    "wtd-h": f"{__name__}:WTD",
    "alone": f"{__name__}:Alone",
    "alone-estimated": f"{__name__}:AloneEstimated",
    "structure": f"{__name__}:StructureWeights",
}
"""Names of the schemes of this module."""


def scheme_of(spec: str) -> Scheme:
    """Make the scheme of a spec, of this module or of the package."""
    if spec.partition("+")[0] not in OWN:
        return make_scheme(spec)
    made = protocol(spec, OWN)
    assert isinstance(made, Scheme)
    return made


class Drawn(Scheme):
    """The classical score: a user by P(u), then one of their items by P(i|u), both uniform unless said otherwise.

    De Myttenaere et al. 2015, section 2.2: P(u) "might reflect the business importance of the users", P(i|u) "could
    favor items recently associated to a profile", and "random edge selection" draws one of all pairs.

    Args:
        users: P(u) up to a factor: ``uniform``; ``edges``, by the number of items held, which draws pairs alike; or a
            weight for each user's id.
        half_life: days after which an item counts half as much in P(i|u) as one just added; 0 counts them alike.
    """

    name = "drawn"
    summary = "leave-one-out, users and items drawn by weights of their own (campaigns)"
    words = "drawn"

    def __init__(self, users: str | Mapping[int, float] = "uniform", half_life: float = 0.0) -> None:
        if not (users in ("uniform", "edges") if isinstance(users, str) else isinstance(users, Mapping)):
            raise UserError(f"drawn: users must be uniform, edges or a weight for each user's id, got {users!r}")
        self.users, self.half_life = users, number_in(half_life, "drawn: half_life")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        if self.users == "uniform" and not self.half_life:
            return weigh_by_user(now, np.ones(now.n_items))
        item = self._recency(now) if self.half_life else np.ones(now.n_pairs)
        total = np.add.reduceat(item, now.starts[:-1])
        return _by_pair(now, item * np.repeat(self._user_weights(now) / total, now.lengths()))

    def _recency(self, now: Profiles) -> Floats:
        """Relative to the user's last item, so that no half-life is too short; a weight of 2 ** -1100 is 0 anyway."""
        latest = np.repeat(np.maximum.reduceat(now.added, now.starts[:-1]), now.lengths())
        return np.exp2(-np.minimum(latest - now.added, 1100.0 * self.half_life) / self.half_life)

    def _user_weights(self, now: Profiles) -> Floats:
        if isinstance(self.users, str):
            return now.lengths().astype(np.float64) if self.users == "edges" else np.ones(now.n_users)
        given = (self.users.get(int(user)) for user in now.users)
        found = np.array([weight if isinstance(weight, Real) else np.nan for weight in given], np.float64)
        if not (found >= 0.0).all() or not np.isfinite(found).all():
            user = int(now.users[np.flatnonzero(~((found >= 0.0) & np.isfinite(found)))[0]])
            raise UserError(f"drawn: user {user} has no weight from 0. Give one for each user who holds an item")
        return found


class AtReference(Scheme):
    """The classical score on the database as it was at t0: one of the ways out that the paper names."""

    name = "at-t0"
    summary = "leave-one-out on the data of before the campaigns (campaigns)"
    words = "before campaigns"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return weigh_by_user(reference, np.ones(reference.n_items))


class ItemFirst(Scheme):
    """An item by P_t0(i), then one of the users who hold it now, uniformly: another of them."""

    name = "item-first"
    summary = "leave-one-out, an item by its former share, then a holder (campaigns)"
    words = "item first"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_pair(now, reference.item_probabilities()[now.items] / now.n_holders()[now.items])


class RandomPhase(Scheme):
    """Only what users accepted in a campaign that recommended at random: the third, which costs a campaign.

    Args:
        campaign: number of that campaign.
    """

    name = "random-phase"
    summary = "leave-one-out on what a further, random campaign made users add (campaigns)"
    words = "random campaign"

    def __init__(self, campaign: int = 0) -> None:
        self.campaign = whole_number(campaign, "random-phase: campaign")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        from_it = (now.causes == self.campaign).astype(np.float64)
        if not from_it.any():
            raise UserError(
                f"random-phase: no user has added anything from campaign {self.campaign} by time {now.time:g}"
            )
        return _by_pair(now, from_it, {"pairs_from_campaign": int(from_it.sum())})


class StratifiedRecall(Scheme):
    """Popularity-stratified recall (Steck 2011, "Item popularity and recommendation accuracy").

    Pairs by s_i = n_i ** -beta, a user's weight being the sum of theirs, so that the score is sum s hit / sum s.

    Args:
        beta: gamma / (gamma + 1) in Steck's notation; 0 counts pairs alike, 1 items.
    """

    name = "stratified-recall"
    summary = "leave-one-out, popularity-stratified recall of Steck 2011 (campaigns)"
    words = "stratified recall"

    def __init__(self, beta: float = 0.5) -> None:
        self.beta = number_in(beta, "stratified-recall: beta")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_pair(now, now.n_holders()[now.items].astype(np.float64) ** -self.beta)


class PopularitySNIPS(Scheme):
    """Self-normalised inverse propensities in each user (Yang et al. 2018, "Unbiased offline recommender evaluation").

    P_i ~ n_i ** ((gamma + 1) / 2): a user uniformly, then one of their items by 1 / P_i.

    Args:
        gamma: exponent of the observation's power law.
    """

    name = "snips"
    summary = "leave-one-out, popularity propensities of Yang et al. 2018 (campaigns)"
    words = "popularity SNIPS"

    def __init__(self, gamma: float = 1.5) -> None:
        self.gamma = number_in(gamma, "snips: gamma")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        holders = np.maximum(now.n_holders(), 1).astype(np.float64)
        return weigh_by_user(now, (holders / holders.max()) ** (-(self.gamma + 1.0) / 2.0))


class WTD(Scheme):
    """Test pairs by w_u w_i = P_MAR(u, i) / P_MNAR(u, i) (Carraro & Bridge 2020, "Debiased offline evaluation").

    P_MAR is uniform, P_MNAR the product of the shares of pairs that each user and each item has. The authors call this
    WTD_H, of hypothesised probabilities: their WTD takes P_MAR from a sample of ratings missing at random, which a log
    of additions does not have. ``wtd-h`` names the same scheme.
    """

    name = "wtd"
    summary = "leave-one-out, pairs weighted as Carraro & Bridge 2020 (campaigns)"
    words = "WTD"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_pair(now, 1.0 / (now.lengths()[now.owners()].astype(np.float64) * now.n_holders()[now.items]))


def _by_pair(profiles: Profiles, weights: Floats, details: dict[str, Any] | None = None) -> Weighing:
    most = weights.max()
    if not most > 0.0:
        raise UserError(f"no pair at time {profiles.time:g} has a weight above 0")
    weights = weights / most  # the largest weights have no finite sum
    return Weighing(profiles, weights / weights.sum(), details or {})


class Alone(Scheme):
    """Only what users added alone, with item weights that give back P_t0(i) on these pairs.

    Needs to know what campaigns caused. What they did to the rest of a profile, and to what recommenders learn from,
    stays, unless these too are reduced to what users added alone.

    Args:
        learn: 1: recommenders learn from what users added alone, and observe only that; 0: from everything.
    """

    name = "alone"
    summary = "leave-one-out on what users added alone, as the log says (campaigns)"
    words = "added alone"

    def __init__(self, learn: int = 0) -> None:
        self.learn = whole_number(learn, f"{self.name}: learn", 0, 1)

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        kept = self.kept(now)
        part = now.pairs(kept)
        fit = fit_item_weights(part, reference.item_probabilities())
        if self.learn:
            return weigh_by_user(part, fit.weights, {"pairs_alone": part.n_pairs, "kl": fit.divergence})
        out = np.zeros(now.n_pairs)
        out[kept] = weigh_by_user(part, fit.weights).probabilities
        return Weighing(now, out, {"pairs_alone": int(kept.sum()), "kl": fit.divergence})

    def kept(self, now: Profiles) -> NDArray[np.bool_]:
        """(E,) the pairs that users added alone."""
        return now.causes < 0


class AloneEstimated(Alone):
    """The same where the log does not say what campaigns caused: see :func:`caused_additions`.

    A pair is kept with the estimated probability that its user added it alone, by a draw of its own, so that items keep
    the estimated number of such pairs.

    Args:
        days: of the campaigns, ``330/430`` in a spec; None for those of a comparison's world.
        learn: as in :class:`Alone`.
        window: days in which a campaign's additions come.
        draw: seed of the draws; a score's mean over several has less of their noise.
    """

    name = "alone-estimated"
    summary = "leave-one-out on what users added alone, estimated from jumps (campaigns)"
    words = "added alone, estimated"

    def __init__(
        self, days: Sequence[float] | float | str | None = None, learn: int = 0, window: int = 30, draw: int = 0
    ) -> None:
        super().__init__(learn)
        try:
            given = np.asarray(days.split("/") if isinstance(days, str) else () if days is None else days, np.float64)
        except (TypeError, ValueError):
            raise UserError(f"alone-estimated: days must be numbers, as in 330/430, got {days!r}") from None
        self.days = tuple(np.atleast_1d(given).tolist())
        self.window, self.draw = window, check_seed(draw, "draw")

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`Scheme.judge`."""
        self.days = self.days or tuple(study.data.platform.world.campaign_days())
        return super().judge(study)

    def kept(self, now: Profiles) -> NDArray[np.bool_]:
        """(E,) a draw of the pairs that users added alone."""
        if not self.days:
            raise UserError("alone-estimated lacks the days of the campaigns. Write alone-estimated+days=330/430")
        caused = caused_additions(now, self.days, window=self.window).probabilities
        seed = derive_seed(self.draw, "alone-estimated")
        return uniforms(seed, Stream.PROTOCOL, now.users[now.owners()], now.items) >= caused


class StructureWeights(Scheme):
    """Weights of pairs, w_ui = a_i b_c(u, i), that give back P_t0(i) and how predictable held-out pairs were at t0.

    The item weights leave the structural bias that the 2015 paper names as future work: campaigns change which items
    stand together. The support of a pair, the largest share of the holders at t0 of one of the user's other items who
    held the item, says how well the rest of the profile predicts it, by the data of t0. Its values at t0 are cut into
    ``bins`` of equal probability, one b each; a and b are fitted in turn until both marginals are those of t0.

    Args:
        bins: of the support, at least 2.
    """

    name = "structure"
    summary = "leave-one-out, pairs as predictable as before the campaigns (campaigns)"
    words = "structure weights"

    def __init__(self, bins: int = 10) -> None:
        self.bins = whole_number(bins, "structure: bins", 2)

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        before, after = support(reference, reference), support(now, reference)
        at_t0 = weigh_by_user(reference, np.ones(reference.n_items)).probabilities
        order = np.argsort(before, kind="stable")
        share = np.cumsum(at_t0[order])
        edges = before[order][np.searchsorted(share, np.arange(1, self.bins) / self.bins)]
        cells = [np.searchsorted(edges, values, side="right") for values in (before, after)]
        targets = (reference.item_probabilities(), np.bincount(cells[0], at_t0, self.bins))
        out, log_weights = np.empty(now.n_pairs), np.zeros(now.n_pairs)
        places = (now.items.astype(np.int64), cells[1])
        gap = np.inf
        for _ in range(500):
            gap = 0.0
            for place, target in zip(places, targets, strict=True):
                _normalised(now.starts, log_weights, out)
                found = np.bincount(place, out, len(target))
                both = (target > 0) & (found > 0)
                step = np.zeros(len(target))
                step[both] = np.log(target[both] / found[both])
                step[(target == 0) & (found > 0)] = -1.0  # absent at t0: towards 0
                gap = max(gap, float(np.abs(target - found)[both].max()))
                log_weights += np.clip(step, -1.0, 1.0)[place]
            log_weights = np.clip(log_weights, -2 * BOUND, 2 * BOUND)
            if gap < 1e-7:
                break
        _normalised(now.starts, log_weights, out)
        return Weighing(now, out, {"bins": self.bins, "largest_gap": gap})


def support(profiles: Profiles, reference: Profiles) -> Floats:
    """(E,) of each pair (u, i): the largest share, over the user's other items j, of j's holders at t0 who held i.

    The user is not counted among the holders: no user supports themselves.
    """
    n_items = profiles.n_items
    held = np.zeros(0, np.bool_)
    rows = np.searchsorted(reference.users, profiles.users)
    known = rows < reference.n_users
    known[known] = reference.users[rows[known]] == profiles.users[known]
    rows = np.where(known, rows, -1)
    counts = np.zeros((n_items, n_items))
    _support_kernel.together(reference.starts, reference.items, counts)
    out, held = np.empty(profiles.n_pairs), np.zeros(n_items, np.bool_)
    _support_kernel.support(profiles.starts, profiles.items, rows, reference.starts, reference.items, counts, held, out)
    return out


def _normalised(starts: NDArray[np.int64], log_weights: Floats, out: Floats) -> None:
    """P(u, i), a user uniformly and one of their items by weight."""
    length = np.diff(starts)
    largest = np.repeat(np.maximum.reduceat(log_weights, starts[:-1]), length)
    weights = np.exp(log_weights - largest)
    out[:] = weights / np.repeat(np.add.reduceat(weights, starts[:-1]), length) / len(length)


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


def sampled_score(
    weighing: Weighing, probabilities: Floats, samples: int, *, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """The stochastic score of one recommender: value, low and high, of so many drawn pairs.

    Draw j has the address (seed, PROTOCOL, j, .), the same for every recommender.

    Args:
        weighing: pairs and their probabilities.
        probabilities: (E,) probability that the recommender finds each pair's item.
        samples: number of drawn pairs.
        seed: of the draws.
        level: of the binomial interval.
    """
    cumulative = np.cumsum(weighing.probabilities)
    draws = np.arange(samples)
    which = uniforms(seed, Stream.PROTOCOL, draws, 0) * cumulative[-1]
    last = int(np.flatnonzero(weighing.probabilities > 0.0)[-1])
    pair = np.minimum(np.searchsorted(cumulative, which, side="right"), last)
    right = uniforms(seed, Stream.PROTOCOL, draws, 1) < probabilities[pair]
    return binomial_interval(int(right.sum()), samples, level)


def binomial_interval(hits: int, n: int, level: float) -> tuple[float, float, float]:
    """Share of hits and p +- z sqrt(p (1 - p) / n), the paper's; Clopper & Pearson's where no or all n are hits."""
    from scipy.special import betaincinv, ndtri

    tail = (1.0 - level) / 2.0
    p = hits / n
    if hits in (0, n):
        low = 0.0 if hits == 0 else float(betaincinv(n, 1.0, tail))
        return p, low, 1.0 if hits == n else float(betaincinv(1.0, n, 1.0 - tail))
    half = float(ndtri(1.0 - tail)) * math.sqrt(p * (1.0 - p) / n)
    return p, max(p - half, 0.0), min(p + half, 1.0)
