"""Findings on a log's users: repeated items, effects that last, copies, clicks (docs/verdict.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.checks import FEW_ESS
from recsim_mnar.estimators.intervals import Deviations
from recsim_mnar.estimators.ranking_records import SlateLog
from recsim_mnar.estimators.verdict import CAUTION, Finding
from recsim_mnar.log.columns import Clusters, Floats, Ints, user_sums
from recsim_mnar.log.rows import user_starts

LEAST_REPEATS = 200
"""Rows with an item that the user was shown before, and without, below which nothing is said."""
FEWEST_PAIRS = 30
"""Rewarded rows with a row to compare below which nothing is said of copies."""
MOVED, TIRED, COPIED, LASTING = 3.3, 2.0, 4.0, 5.0
"""Standard errors from which an effect is proved: by the randomisation, by the double ratio, of copies, and on later
rows (its scores have a standard deviation of about 1.3 where nothing lasts)."""
ALIKE = 0.15
"""How much more often than other rows copies must be rewarded alike."""
WITHIN = 10
"""Later rows of a user whose rewards a shown item may change."""


@dataclass
class RepeatSums:
    """Sums over users of statistics of their rows in order, gathered from blocks of whole users.

    Three scores have mean 0 where nothing is wrong, whatever users do: *moved* is (r - m) E / propensity, where E is
    the sum over earlier rows of 1{same item} / propensity - 1 and m the item's mean reward; *before* the same of the
    row before alone; *in a row* is 1{same item as the row before} / propensity - 1. *Lasting* is an item's effect, from
    the other half of the users, times what the user's next rows earn, over the propensity.

    Attributes:
        items: ids of the first block's items.
        means: (items + 1,) their mean rewards, and the mean of these for any other item.
        effects: (2, items + 1) what an item adds to the rewards of the user's next rows, over its variance, less the
            mean of all items: of every second user of the first block, and of the others; 0 for any other item.
        scores: (2, 5) sums over users, and of their squares: moved, before, in a row, and lasting by half.
        totals: (3, 4) first and second: sums of r over pairs of rows of a user, of the later and of the earlier row of
            pairs with the same item, and of pairs with two; of all pairs, and of rows in a row. Third: over pairs with
            one item whose first row is rewarded, of 1 / propensity where the second is, and of all; in a row, and apart
            with a weight of one in all for each first row.
        products: (3, 4, 4) sums over users of products of these.
        counts: (5,) rows whose item the user was shown before, other rows, rewarded rows; pairs of the third kind in a
            row, and rows with one apart.
    """

    items: Ints | None = None
    means: Floats = field(default_factory=lambda: np.zeros(0))
    effects: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    scores: Floats = field(default_factory=lambda: np.zeros((2, 5)))
    totals: Floats = field(default_factory=lambda: np.zeros((3, 4)))
    products: Floats = field(default_factory=lambda: np.zeros((3, 4, 4)))
    counts: Ints = field(default_factory=lambda: np.zeros(5, np.int64))

    @staticmethod
    def of(reward: Floats, propensity: Floats, action: Any, cluster: Any) -> RepeatSums:
        """Gather the sums of all rows of a log; each user's rows are in the order of the decisions."""
        sums = RepeatSums()
        clusters = Clusters.of(cluster, reward.size)
        shown_items = Clusters.of(action, reward.size, "action")
        if clusters is not None and shown_items is not None:
            sums.extend(reward, propensity, shown_items.codes, clusters)
        return sums

    def extend(self, reward: Floats, propensity: Floats, action: Ints, clusters: Clusters) -> None:
        """Add rows of whole users.

        Args:
            reward: (n,).
            propensity: (n,) in (0, 1].
            action: (n,) ids of the items shown.
            clusters: the user of each row.
        """
        from recsim_mnar.estimators import _by_user_kernel as kernels

        if not reward.size:
            return
        columns = [clusters.together(values) for values in (clusters.codes, reward, propensity, action)]
        if clusters.again is not None:  # a row that repeats another is no decision
            once = ~clusters.together(clusters.again)
            columns = [values[once] for values in columns]
        user, r, p, a = columns
        place = self._place_of(a, r, p)
        later = self._later(user_starts(user), place, r, p)
        sums = self.scores, self.totals, self.products, self.counts
        least = min(float(r.min()), 0.0)
        scratch = np.zeros(4 * self.means.size + 17)
        kernels.add_repeats(user, place, r, p, self.means, self.effects, later, least, scratch, *sums)

    def _place_of(self, action: Ints, reward: Floats, propensity: Floats) -> Ints:
        """Return (n,) the place of each row's item among those of the first block, or the last place for others."""
        if self.items is None:
            self.items, codes = np.unique(action, return_inverse=True)
            means = np.bincount(codes, reward / propensity) / np.bincount(codes, 1.0 / propensity)
            self.means = np.append(means, means.mean())
            return codes.reshape(-1)
        place = np.minimum(np.searchsorted(self.items, action), self.items.size - 1)
        return np.where(self.items[place] == action, place, self.items.size)

    def _later(self, starts: Ints, place: Ints, reward: Floats, propensity: Floats) -> Floats:
        """Return (n,) the centred sum of the user's next rewards, 0 where none follows; compute the effects once."""
        n = reward.size
        sizes = np.diff(np.append(starts, n))
        ends = np.repeat(np.append(starts[1:], n), sizes)
        following = np.arange(1, n + 1)
        running = np.append(0.0, np.cumsum(reward - reward.mean()))
        later = running[np.minimum(following + WITHIN, ends)] - running[following]
        followed = following < ends
        later = np.where(followed, later - (later[followed].mean() if followed.any() else 0.0), 0.0)
        if not self.effects.size:
            half = np.repeat(np.arange(starts.size) % 2, sizes)
            chosen = [followed & (half == which) for which in (0, 1)]
            self.effects = np.stack([_effects(place, later / propensity, rows, self.means.size) for rows in chosen])
        return later

    def empty(self) -> RepeatSums:
        """No rows, with the items of the same first block: sums of parts are those of one part after another."""
        return RepeatSums(self.items, self.means, self.effects)

    def __add__(self, other: RepeatSums) -> RepeatSums:
        """Add the sums of further rows; no user may be in both."""
        if self.items is not None:
            first = self
        else:
            first = other
        added = [getattr(self, name) + getattr(other, name) for name in ("scores", "totals", "products", "counts")]
        return RepeatSums(first.items, first.means, first.effects, *added)

    def ratio(self, which: int) -> tuple[float, float]:
        """Return the logarithm of a double ratio, and in standard errors; 0 and 0 where one of its sums is 0.

        It is what an item earns when it is shown again over what it earned, over the same of any two items of the user.

        Args:
            which: 0 of all pairs of rows, 1 of rows in a row.
        """
        totals = self.totals[which]
        if totals.min() <= 0.0:
            return 0.0, 0.0
        signs = np.array([1.0, -1.0, -1.0, 1.0])
        slope = signs / totals
        effect = float(signs @ np.log(totals))
        return effect, effect / math.sqrt(max(float(slope @ self.products[which] @ slope), 1e-300))

    def score(self, which: int) -> float:
        """One of the five scores in standard errors."""
        total, square = self.scores[:, which].tolist()
        if square > 0.0:
            return total / math.sqrt(square)
        return 0.0

    def shown_before(self, which: int) -> bool:
        """Return whether two tests say that earlier showings count: either alone cries wolf (benchmarks/ope_trust).

        Args:
            which: 0 of all earlier rows, 1 of the row before.
        """
        both = self.score(which) / MOVED, self.ratio(which)[1] / TIRED
        return min(self.counts[:2]) >= LEAST_REPEATS and (min(both) > 1.0 or max(both) < -1.0)

    @property
    def lasting_score(self) -> float:
        """Compute by how many standard errors what is shown changes the rewards of the user's next rows."""
        return (self.score(3) + self.score(4)) / math.sqrt(2.0)

    @property
    def copied_score(self) -> float:
        """Compute by how many standard errors neighbouring rows of one item are rewarded alike more often than others.

        Weighted by 1 / propensity both are means over rewarded rows, so that tastes are no copies. Where there are
        hardly any rows apart, than all rows are, if items follow themselves more often than their propensities say.
        """
        if self.counts[3] < FEWEST_PAIRS:
            return 0.0
        alike, near, alike_apart, far = self.totals[2].tolist()
        share = alike / near
        if far > 0.0:
            other = alike_apart / far
        else:
            other = 0.0
        slope = np.array([1.0 / near, -share / near, -1.0 / max(far, 1e-300), other / max(far, 1e-300)])
        if self.counts[4] < FEWEST_PAIRS:
            other = float(self.counts[2] / self.counts[:2].sum())
            slope[2:] = 0.0
            if self.score(2) <= COPIED:
                return 0.0
        if share < other + ALIKE:
            return 0.0
        return (share - other) / math.sqrt(max(float(slope @ self.products[2] @ slope), 1e-12))

    def findings(self) -> list[Finding]:
        """Make the findings ``copied_rows``, which explains the others, or ``shown_before`` and ``lasts``."""
        if self.copied_score > COPIED:
            return [Finding("copied_rows", CAUTION, round(self.copied_score))]
        result: list[Finding] = []
        # Showings at any distance come first; the row before alone is named where they show nothing.
        at_any_distance: Mapping[str, Any] = {}
        in_the_row_before = {"says": "next"}
        for effect, text in enumerate((at_any_distance, in_the_row_before)):
            if self.shown_before(effect):
                log_ratio = float(f"{self.ratio(effect)[0]:.6g}")  # sums of blocks differ by roundings
                percent = 100 * math.expm1(log_ratio)
                result.append(Finding("shown_before", CAUTION, log_ratio, percent=percent, **text))
                break
        if self.lasting_score > LASTING:
            score = round(self.lasting_score)
            result.append(Finding("lasts", CAUTION, score, rows=WITHIN, score=score))
        return result


def _effects(place: Ints, parts: Floats, chosen: NDArray[np.bool_], size: int) -> Floats:
    """(size,) sums of ``parts`` over the chosen rows of each item, over their variances, less their mean; a last 0."""
    sums = np.bincount(place[chosen], parts[chosen], size)[:-1]
    squares = np.bincount(place[chosen], parts[chosen] ** 2, size)[:-1]
    effects = np.divide(sums, squares, out=np.zeros(size - 1), where=squares > 0.0)
    return np.append(effects - effects.mean(), 0.0)


# ----------------------------------------------------------------------------------------------------- clicks of slates

BELOW, CLICKS = 0.2, 0.3
"""Shares of the errors that are allowed: of the test of items below, and of the other tests of clicks by themselves."""
Limits = tuple[float, float, float]
"""A number, and its lower and upper limit."""


@dataclass(frozen=True)
class ClickFacts:
    """Direct evidence of clicks about users; None where the log has none.

    Attributes:
        position_effect: change of the click rate of the same items per position further down.
        clicks_after_click: click rate below a click, less that of the same users at the same positions in their next
            slates, both above the mean of their items there.
        items_below: how much more an item earns beside the items that the target shows further down.
        clicks_by_position: (k,) click rates by position, as if every item were shown equally often.
    """

    position_effect: Limits | None = None
    clicks_after_click: Limits | None = None
    items_below: Limits | None = None
    clicks_by_position: list[float] | None = None


def click_facts(log: SlateLog, level: float) -> ClickFacts:
    """Compute the evidence of clicks, each number with limits at its share of the level's errors."""
    if log.action is None or log.slate_size < 2:
        return ClickFacts()
    of_clicks, of_below = (1.0 - share * (1.0 - level) for share in (CLICKS, BELOW))
    propensity = log.logging.get("marginal")
    down = log.logging.get("cumulative")
    aim = log.targets.get("cumulative")
    effect = below = rates = None
    if propensity is not None:
        weight = log.by_slate(1.0 / propensity)
        rates = ((weight * log.by_slate(log.reward)).sum(0) / weight.sum(0)).tolist()
        effect = _position_effect(log, log.action, 1.0 / propensity, of_clicks)
    if down is not None and aim is not None and not log.gaps:
        below = items_below(log, log.by_slate(aim / down), of_below)
    return ClickFacts(effect, _after_click(log, log.action, of_clicks), below, rates)


def _position_effect(log: SlateLog, action: Ints, weight: Floats, level: float) -> Limits | None:
    """Slope of the reward on the position within items, weighted by 1 / propensity."""
    reward, n = log.reward, log.reward.size
    place = np.tile(np.arange(log.slate_size, dtype=np.float64), n // log.slate_size)
    sums = [np.bincount(action, weight * x) for x in (np.ones(n), place, reward)]
    middle, rate = (np.divide(x, sums[0], out=np.zeros_like(x), where=sums[0] > 0.0)[action] for x in sums[1:])
    off = weight * (place - middle)
    below = float(off @ (place - middle))
    if below <= 0.0:
        return None
    slope = float(off @ reward) / below
    return _limits(slope, off * (reward - rate - slope * (place - middle)) * (n / below), log.clusters, level)


def items_below(log: SlateLog, ratio: Floats, level: float) -> Limits:
    """Compute how much more an item earns beside the items that the target shows further down than beside the log's.

    Whatever users do with the items above, an item that comes later is drawn by the log's policy given those above. So
    the target's probability of it over the log's, less 1, has mean 0, and is correlated with no earlier reward unless
    that depends on it. Rewards are counted from the mean of their item at their position.

    Args:
        log: with the items shown.
        ratio: (S, k) the target's probability of the items down to each position over the log's.
        level: of the limits.
    """
    before = ratio[:, :-1]
    # Below an item that the target does not show nothing is compared.
    apart = np.where(before > 0.0, ratio[:, 1:] / np.where(before > 0.0, before, 1.0) - 1.0, 0.0)
    parts = _above_usual(log)
    parts[:, :-1] *= np.cumsum(apart[:, ::-1], axis=1)[:, ::-1]
    parts[:, -1] = 0.0
    return mean_limits(parts.ravel(), log.clusters, level)


def _above_usual(log: SlateLog) -> Floats:
    """Return (S, k) rewards less the mean of their item at their position."""
    assert log.action is not None
    cell = log.action * log.slate_size + np.tile(np.arange(log.slate_size), log.reward.size // log.slate_size)
    usual = np.bincount(cell, log.reward) / np.maximum(np.bincount(cell), 1)
    return log.by_slate(log.reward - usual[cell])


def _after_click(log: SlateLog, action: Ints, level: float) -> Limits | None:
    """Rewards below a click in the same slate, less those in the user's next slate.

    Rewards are counted from the mean of their item at their position. Of the next slate those rows count whose item
    does not stand above in this one: there it could not be shown. A policy that knows a user's taste shows other items
    below given ones than in a slate at large, and what a user likes more than others do is among them. So rows of this
    slate are weighted (S, k) by the item's probability at its position over that given the items above: then the items
    that do not stand above have the same shares on both sides.
    """
    shown_items = log.by_slate(action)
    following = _next_slates(log)
    excess = _above_usual(log)
    n, k = shown_items.shape
    has_next = following != np.arange(n)
    below_click = np.zeros((n, k), bool)
    below_click[:, 1:] = np.logical_or.accumulate(log.by_slate(log.reward) > 0.0, axis=1)[:, :-1]
    below_click &= has_next[:, None]
    shown_next = shown_items[following]
    excess_next = excess[following]
    stands_above = np.stack([(shown_next[:, j, None] == shown_items[:, :j]).any(1) for j in range(k)], axis=1)
    compared = below_click & ~stands_above
    weighted = below_click * _place_weights(log)
    rows = below_click.sum(0)
    sums = weighted.sum(0)
    rows_next = compared.sum(0)
    # Positions are left out where few rows carry the weight: an item that hardly ever stands below those above it.
    enough = (rows_next > 0) & (sums**2 >= FEW_ESS * (weighted**2).sum(0)) & (sums > 0.0)
    if not enough.any():
        return None
    sums = np.where(enough, sums, 1.0)
    rows_next = np.where(enough, rows_next, 1.0)
    total = float(rows[enough].sum())
    rate = (excess * weighted).sum(0) / sums
    rate_next = (excess_next * compared).sum(0) / rows_next
    effect = float(((rate - rate_next) * rows)[enough].sum()) / total
    parts = enough * rows * (weighted * (excess - rate) / sums - compared * (excess_next - rate_next) / rows_next)
    return _limits(effect, parts.ravel() * (n * k / total), log.clusters, level)


def _place_weights(log: SlateLog) -> Floats:
    """Return (S, k) the item's probability at its position over that given the items above; 1 where not known."""
    weights = np.ones((log.reward.size // log.slate_size, log.slate_size))
    if "marginal" in log.logging and "cumulative" in log.logging:
        at_place = log.by_slate(log.logging["marginal"])
        down = log.by_slate(log.logging["cumulative"])
        weights[:, 1:] = at_place[:, 1:] * down[:, :-1] / down[:, 1:]
    return weights


def _next_slates(log: SlateLog) -> Ints:
    """Return (S,) the user's next slate, or the first one after the last."""
    user = log.clusters.dense()[0][:: log.slate_size]
    order = np.argsort(user, kind="stable")
    starts = user_starts(user[order])
    after = np.roll(order, -1)
    after[np.r_[starts[1:], user.size] - 1] = order[starts]
    following = np.empty(user.size, np.int64)
    following[order] = after
    return following


def _limits(value: float, influence: Floats, clusters: Clusters, level: float) -> Limits:
    """Limits by user of a number with this influence (n,) of rows, whose mean is 0."""
    return value, *Deviations.of(user_sums(influence, clusters)).limits(value, influence.size, level)


def mean_limits(parts: Floats, clusters: Clusters, level: float) -> Limits:
    """Return a mean over rows (n,), with limits by user."""
    value = float(np.mean(parts))
    return _limits(value, parts - value, clusters, level)


def excludes_0(limits: Limits) -> bool:
    """Return whether a number is told from 0 by its limits."""
    return limits[1] > 0.0 or limits[2] < 0.0
