"""Findings on the behaviour of a log's users: repeated items, lasting effects, copies, clicks (docs/verdict.md)."""

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
"""Number of rows whose item the user was shown before, and of other rows, below which repeated items are not tested."""
FEWEST_PAIRS = 30
"""Number of rewarded rows that can be compared with another row below which copies are not tested."""
MOVED, TIRED, COPIED, LASTING = 3.3, 2.0, 4.0, 5.0
"""Numbers of standard errors from which an effect counts as proved: of earlier showings by the randomisation test, and
by the double ratio; of copied rows; and on later rows (whose scores have a standard deviation of about 1.3 even if
nothing lasts)."""
ALIKE = 0.15
"""Least difference between the share of copies that are both rewarded, and the same share of other rows."""
_IN_A_ROW, _LASTING = 2, (3, 4)
"""Columns of :attr:`RepeatSums.scores`: that of items shown in a row, and those of lasting effects, one per half."""
WITHIN = 10
"""Number of a user's next rows whose rewards a shown item may change."""


@dataclass
class RepeatSums:
    """Sums over users of statistics of their rows in time order, gathered from blocks of whole users.

    Four kinds of scores of a row are summed by user:

    - *moved*: (r - m) E / propensity, where m is the item's mean reward and E the sum, over the user's earlier rows, of
      1{same item} / propensity - 1.
    - *before*: the same, with the row just before in place of all earlier rows.
    - *in a row*: 1{same item as in the row before} / propensity - 1.
    - *lasting*: the item's effect on later rewards, estimated from the other half of the users, times the rewards of
      the user's next rows, over the propensity.

    The first three have mean 0, however users behave, if propensities are right and earlier rows have no effect.

    Attributes:
        items: ids of the items in the first block, ascending; None before the first block.
        means: (items + 1,) mean reward of each of these items, and the mean of these means for any other item.
        effects: (2, items + 1) estimated effect of each item on the rewards of the user's next rows, over its variance
            and centred, from every second user of the first block and from the other users; 0 for any other item.
        scores: (2, 5) sums over users of each score, and sums of squares: columns moved, before, in a row, and lasting
            for each half of the users.
        totals: (3, 4) sums over pairs of rows of the same user. Row 0 is for all pairs, row 1 for neighbouring rows:
            sums of rewards of the later and of the earlier row of pairs with the same item, and of pairs with two
            items. Row 2 is for pairs with the same item whose first row is rewarded: sums of 1 / propensity of pairs
            whose second row is rewarded too, and of all pairs; first for neighbouring rows, then for rows apart, which
            are weighted so that each first row counts once.
        products: (3, 4, 4) sums over users of products of the user's four sums, for each row of ``totals``.
        counts: (5,) numbers of rows whose item the user was shown before, of other rows, of rewarded rows, of
            neighbouring pairs in row 2 of ``totals``, and of rows with a pair apart there.
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
        """Gather the sums of all rows of a log; they are empty if users or items are not known.

        Args:
            reward: (n,) rewards, each user's in time order.
            propensity: (n,) propensities in (0, 1].
            action: (n,) ids of the items shown, or None.
            cluster: (n,) user ids, or None.
        """
        sums = RepeatSums()
        clusters = Clusters.of(cluster, reward.size)
        shown_items = Clusters.of(action, reward.size, "action")
        if clusters is not None and shown_items is not None:
            sums.extend(reward, propensity, shown_items.codes, clusters)
        return sums

    def extend(self, reward: Floats, propensity: Floats, action: Ints, clusters: Clusters) -> None:
        """Add rows of whole users.

        Args:
            reward: (n,) rewards, each user's in time order.
            propensity: (n,) propensities in (0, 1].
            action: (n,) ids of the items shown.
            clusters: user of each row.
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
        least = min(float(r.min()), 0.0)  # subtracted, because ratios need sums that are not negative
        scratch = np.zeros(4 * self.means.size + 17)  # four columns by item, 5 scores and 12 totals of a user
        kernels.add_repeats(user, place, r, p, self.means, self.effects, later, least, scratch, *sums)

    def _place_of(self, action: Ints, reward: Floats, propensity: Floats) -> Ints:
        """Return (n,) the index of each row's item among those of the first block; the last index for other items.

        In the first block, also set ``items`` and their mean rewards ``means``, weighted by 1 / propensity.
        """
        if self.items is None:
            self.items, codes = np.unique(action, return_inverse=True)
            means = np.bincount(codes, reward / propensity) / np.bincount(codes, 1.0 / propensity)
            self.means = np.append(means, means.mean())
            return codes.reshape(-1)
        place = np.minimum(np.searchsorted(self.items, action), self.items.size - 1)
        return np.where(self.items[place] == action, place, self.items.size)

    def _later(self, starts: Ints, place: Ints, reward: Floats, propensity: Floats) -> Floats:
        """Compute the sum of the user's next rewards for each row; in the first block, also set ``effects``.

        Args:
            starts: (U,) number of the first row of each user.
            place: (n,) index of each row's item.
            reward: (n,) rewards, the rows of a user together.
            propensity: (n,) propensities.

        Returns:
            (n,) sums of the next :data:`WITHIN` rewards of the user, centred; 0 for the last row of a user.
        """
        n = reward.size
        sizes = np.diff(np.append(starts, n))
        ends = np.repeat(np.append(starts[1:], n), sizes)
        following = np.arange(1, n + 1)
        # Sums of windows are differences of a running sum, in which centred rewards cause smaller rounding errors.
        running = np.append(0.0, np.cumsum(reward - reward.mean()))
        later = running[np.minimum(following + WITHIN, ends)] - running[following]
        followed = following < ends
        mean = 0.0
        if followed.any():
            mean = later[followed].mean()
        later = np.where(followed, later - mean, 0.0)
        if not self.effects.size:
            half = np.repeat(np.arange(starts.size) % 2, sizes)
            chosen = [followed & (half == which) for which in (0, 1)]
            self.effects = np.stack([_effects(place, later / propensity, rows, self.means.size) for rows in chosen])
        return later

    def empty(self) -> RepeatSums:
        """Return sums without rows, but with the items, means and effects of the same first block.

        Sums of several parts, gathered this way, equal those of one part after another.
        """
        return RepeatSums(self.items, self.means, self.effects)

    def __add__(self, other: RepeatSums) -> RepeatSums:
        """Return the sums of both blocks of rows, which have no user in common."""
        if self.items is not None:
            first = self
        else:
            first = other
        added = [getattr(self, name) + getattr(other, name) for name in ("scores", "totals", "products", "counts")]
        return RepeatSums(first.items, first.means, first.effects, *added)

    def ratio(self, which: int) -> tuple[float, float]:
        """Compute the log of a double ratio: reward of the later over the earlier showing of an item, over a reference.

        The reference is the same ratio for two different items of the user, so that a trend in time cancels.

        Args:
            which: row of ``totals``: 0 for all pairs of rows, 1 for neighbouring rows.

        Returns:
            The logarithm.
            The logarithm in standard errors (delta method). Both are 0 if one of the four sums is 0.
        """
        totals = self.totals[which]
        if totals.min() <= 0.0:
            return 0.0, 0.0
        signs = np.array([1.0, -1.0, -1.0, 1.0])
        slope = signs / totals
        effect = float(signs @ np.log(totals))
        return effect, effect / math.sqrt(max(float(slope @ self.products[which] @ slope), 1e-300))

    def score(self, which: int) -> float:
        """Return one of the five sums of scores in standard errors; ``which`` is its column in ``scores``."""
        total, square = self.scores[:, which].tolist()
        if square > 0.0:
            return total / math.sqrt(square)
        return 0.0

    def shown_before(self, which: int) -> bool:
        """Return whether two tests agree that earlier showings of an item change its reward.

        Either test alone gives too many false alarms (benchmarks/ope_trust).

        Args:
            which: 0 for showings in any earlier row, 1 for those in the row before.
        """
        # Both tests in units of the number of standard errors that proves an effect.
        randomisation_test = self.score(which) / MOVED
        double_ratio_test = self.ratio(which)[1] / TIRED
        both_up = min(randomisation_test, double_ratio_test) > 1.0
        both_down = max(randomisation_test, double_ratio_test) < -1.0
        return min(self.counts[:2]) >= LEAST_REPEATS and (both_up or both_down)

    @property
    def lasting_score(self) -> float:
        """The effect of the item shown on the rewards of the user's next rows, in standard errors."""
        return sum(self.score(column) for column in _LASTING) / math.sqrt(2.0)  # two independent halves of the users

    @property
    def copied_score(self) -> float:
        """The excess of neighbouring rows with the same item that are both rewarded, in standard errors.

        It is the share of rewarded rows that are followed by another reward of the same item, minus the same share for
        rows of that item apart. Both are weighted by 1 / propensity, so that a policy that repeats what a user likes
        causes no excess. If hardly any rows are apart, the share of rewarded rows of the log is subtracted instead,
        but only if items follow themselves more often than their propensities say.
        """
        shown_before, first_shown, rewarded, pairs_near, rows_with_pair_apart = self.counts
        if pairs_near < FEWEST_PAIRS:
            return 0.0
        both_near, all_near, both_far, all_far = self.totals[2].tolist()
        share = both_near / all_near
        other = 0.0
        if all_far > 0.0:
            other = both_far / all_far
        # Derivatives of share - other by the four sums (delta method).
        far = max(all_far, 1e-300)
        slope = np.array([1.0 / all_near, -share / all_near, -1.0 / far, other / far])
        if rows_with_pair_apart < FEWEST_PAIRS:
            other = float(rewarded / (shown_before + first_shown))
            slope[2:] = 0.0
            if self.score(_IN_A_ROW) <= COPIED:
                return 0.0
        if share < other + ALIKE:
            return 0.0
        return (share - other) / math.sqrt(max(float(slope @ self.products[2] @ slope), 1e-12))

    def findings(self) -> list[Finding]:
        """Return the findings ``shown_before`` and ``lasts``, or ``copied_rows`` alone, which explains the others."""
        if self.copied_score > COPIED:
            return [Finding("copied_rows", CAUTION, round(self.copied_score))]
        result: list[Finding] = []
        # Showings at any distance come first; the row before is named only if those show nothing.
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
    """Compute the effect of each item: the sum of its rows' parts over the sum of their squares, centred.

    Args:
        place: (n,) index of each row's item.
        parts: (n,) later rewards over the propensity.
        chosen: (n,) mask of the rows that are used.
        size: number of items, plus 1 for any other item.

    Returns:
        (size,) effects; the last one is 0.
    """
    sums = np.bincount(place[chosen], parts[chosen], size)[:-1]
    squares = np.bincount(place[chosen], parts[chosen] ** 2, size)[:-1]
    effects = np.divide(sums, squares, out=np.zeros(size - 1), where=squares > 0.0)
    return np.append(effects - effects.mean(), 0.0)


# ----------------------------------------------------------------------------------------------------- clicks of slates

BELOW, CLICKS = 0.2, 0.3
"""Shares of the error probability 1 - level for the test of items below, and for the other tests of clicks."""
Limits = tuple[float, float, float]
"""A number, and its lower and upper confidence limit."""


@dataclass(frozen=True)
class ClickFacts:
    """Direct evidence about users from their clicks on slates; None for what the log cannot show.

    Attributes:
        position_effect: change of the click rate of the same items per position further down, with limits.
        clicks_after_click: click rate below a click, minus that of the same users at the same positions in their next
            slates, each above the mean of its item at the position; with limits.
        items_below: additional reward of an item if the items further down are the target's instead of the log's, with
            limits.
        clicks_by_position: (k,) click rates by position, as if every item were shown equally often.
    """

    position_effect: Limits | None = None
    clicks_after_click: Limits | None = None
    items_below: Limits | None = None
    clicks_by_position: list[float] | None = None


def click_facts(log: SlateLog, level: float) -> ClickFacts:
    """Compute the evidence about users from clicks.

    The confidence limits share the error probability 1 - level of an estimate's tests (:data:`BELOW`, :data:`CLICKS`).
    """
    if log.action is None or log.slate_size < 2:
        return ClickFacts()
    clicks_level = 1.0 - CLICKS * (1.0 - level)
    below_level = 1.0 - BELOW * (1.0 - level)
    propensity = log.logging.get("marginal")
    logging_down = log.logging.get("cumulative")
    target_down = log.targets.get("cumulative")
    effect = below = rates = None
    if propensity is not None:
        weight = log.by_slate(1.0 / propensity)
        rates = ((weight * log.by_slate(log.reward)).sum(0) / weight.sum(0)).tolist()
        effect = _position_effect(log, log.action, 1.0 / propensity, clicks_level)
    if logging_down is not None and target_down is not None and not log.gaps:
        below = items_below(log, log.by_slate(target_down / logging_down), below_level)
    return ClickFacts(
        position_effect=effect,
        clicks_after_click=_after_click(log, log.action, clicks_level),
        items_below=below,
        clicks_by_position=rates,
    )


def _position_effect(log: SlateLog, action: Ints, weight: Floats, level: float) -> Limits | None:
    """Estimate the slope of the reward on the position within items, by weighted least squares with item effects.

    Args:
        log: log of slates.
        action: (n,) numbers of the items shown.
        weight: (n,) 1 / propensity.
        level: nominal coverage of the limits.

    Returns:
        The slope with its limits; None if no item is shown at several positions.
    """
    reward = log.reward
    n = reward.size
    position = np.tile(np.arange(log.slate_size, dtype=np.float64), n // log.slate_size)
    # Item effects are removed by centring position and reward at the item's weighted means.
    item_weight, *item_sums = (np.bincount(action, weight * x) for x in (np.ones(n), position, reward))
    mean_position, mean_reward = (
        np.divide(x, item_weight, out=np.zeros_like(x), where=item_weight > 0.0)[action] for x in item_sums
    )
    centred = position - mean_position
    weighted = weight * centred
    sum_of_squares = float(weighted @ centred)
    if sum_of_squares <= 0.0:
        return None
    slope = float(weighted @ reward) / sum_of_squares
    influence = weighted * (reward - mean_reward - slope * centred) * (n / sum_of_squares)
    return _limits(slope, influence, log.clusters, level)


def items_below(log: SlateLog, ratio: Floats, level: float) -> Limits:
    """Estimate the additional reward of an item if the items further down are the target's instead of the log's.

    However users react to the items above, the log's policy draws each later item given those above. So the target's
    probability of it over the log's, minus 1, has mean 0, and is correlated with an earlier reward only if that reward
    depends on the later item. Rewards are centred by the mean of their item at their position.

    Args:
        log: log of slates, with the items shown.
        ratio: (S, k) the target's probability of the items down to each position over the log's.
        level: nominal coverage of the limits.
    """
    before = ratio[:, :-1]
    # Conditional ratio of each item but the first, minus 1; 0 below an item that the target does not show.
    surprise = np.where(before > 0.0, ratio[:, 1:] / np.where(before > 0.0, before, 1.0) - 1.0, 0.0)
    parts = _above_usual(log)
    # Each reward times the sum over all positions further down.
    parts[:, :-1] *= np.cumsum(surprise[:, ::-1], axis=1)[:, ::-1]
    parts[:, -1] = 0.0
    return mean_limits(parts.ravel(), log.clusters, level)


def _above_usual(log: SlateLog) -> Floats:
    """Return (S, k) the rewards minus the mean reward of their item at their position."""
    assert log.action is not None
    cell = log.action * log.slate_size + np.tile(np.arange(log.slate_size), log.reward.size // log.slate_size)
    usual = np.bincount(cell, log.reward) / np.maximum(np.bincount(cell), 1)
    return log.by_slate(log.reward - usual[cell])


def _after_click(log: SlateLog, action: Ints, level: float) -> Limits | None:
    """Estimate how much larger rewards below a click are than those of the same user's next slate.

    Rewards are centred by the mean of their item at their position. Of the next slate, only rows count whose item is
    not above the same position in this slate, because it could not be shown below. A policy that knows a user's
    taste shows other items below given ones than it shows overall, among them those that the user likes most. So the
    rows of this slate are weighted by the item's probability at its position over that given the items above
    (:func:`_place_weights`): then both sides have the same shares of items.

    Args:
        log: log of slates.
        action: (n,) numbers of the items shown.
        level: nominal coverage of the limits.

    Returns:
        The difference with its limits; None if too few rows can be compared.
    """
    shown_items = log.by_slate(action)
    following = _next_slates(log)
    excess = _above_usual(log)
    n, k = shown_items.shape
    has_next = following != np.arange(n)  # a user's only slate is followed by itself
    # Of this slate: True in rows below a click.
    below_click = np.zeros((n, k), bool)
    below_click[:, 1:] = np.logical_or.accumulate(log.by_slate(log.reward) > 0.0, axis=1)[:, :-1]
    below_click &= has_next[:, None]
    shown_next = shown_items[following]
    excess_next = excess[following]
    # Of the next slate: True if the item is above the same position in this slate.
    stands_above = np.stack([(shown_next[:, j, None] == shown_items[:, :j]).any(1) for j in range(k)], axis=1)
    compared = below_click & ~stands_above
    weights = below_click * _place_weights(log)
    # By position: numbers of rows, and sums of weights.
    rows = below_click.sum(0)
    weight_sums = weights.sum(0)
    rows_next = compared.sum(0)
    # Positions are left out if the effective number of rows is small, as for items that are hardly ever shown below
    # those above them.
    enough = (rows_next > 0) & (weight_sums**2 >= FEW_ESS * (weights**2).sum(0)) & (weight_sums > 0.0)
    if not enough.any():
        return None
    # 1 avoids 0 / 0 at positions that are left out.
    weight_sums = np.where(enough, weight_sums, 1.0)
    rows_next = np.where(enough, rows_next, 1.0)
    total = float(rows[enough].sum())
    rate = (excess * weights).sum(0) / weight_sums
    rate_next = (excess_next * compared).sum(0) / rows_next
    effect = float(((rate - rate_next) * rows)[enough].sum()) / total
    # Influence of each row on the effect, an average over positions weighted by rows, times n k / total.
    influence = weights * (excess - rate) / weight_sums - compared * (excess_next - rate_next) / rows_next
    parts = enough * rows * influence
    return _limits(effect, parts.ravel() * (n * k / total), log.clusters, level)


def _place_weights(log: SlateLog) -> Floats:
    """Return (S, k) the item's probability at its position over its probability given the items above.

    All are 1 if the log lacks one of the two.
    """
    weights = np.ones((log.reward.size // log.slate_size, log.slate_size))
    if "marginal" in log.logging and "cumulative" in log.logging:
        at_place = log.by_slate(log.logging["marginal"])
        down = log.by_slate(log.logging["cumulative"])
        weights[:, 1:] = at_place[:, 1:] * down[:, :-1] / down[:, 1:]
    return weights


def _next_slates(log: SlateLog) -> Ints:
    """Return (S,) the number of the user's next slate; after a user's last slate, that of the first."""
    user = log.clusters.dense()[0][:: log.slate_size]
    order = np.argsort(user, kind="stable")  # slates of a user together, in the order of the log
    starts = user_starts(user[order])
    ends = np.r_[starts[1:], user.size] - 1
    after = np.roll(order, -1)
    after[ends] = order[starts]  # each user's last slate is followed by the first
    following = np.empty(user.size, np.int64)
    following[order] = after
    return following


def _limits(value: float, influence: Floats, clusters: Clusters, level: float) -> Limits:
    """Return a number with Student's limits, clustered by user.

    Args:
        value: the number.
        influence: (n,) value of its influence function for each row, with mean 0.
        clusters: user of each row.
        level: nominal coverage.
    """
    return value, *Deviations.of(user_sums(influence, clusters)).limits(value, influence.size, level)


def mean_limits(parts: Floats, clusters: Clusters, level: float) -> Limits:
    """Return the mean over rows of ``parts`` (n,) with Student's limits, clustered by user."""
    value = float(np.mean(parts))
    return _limits(value, parts - value, clusters, level)


def excludes_0(limits: Limits) -> bool:
    """Return whether the confidence limits of a number exclude 0."""
    _, low, high = limits
    return low > 0.0 or high < 0.0
