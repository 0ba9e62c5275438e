"""What a user was shown before, effects that last, and rows that were written twice (docs/verdict.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.verdict import CAUTION, Finding
from recsim_mnar.log.columns import Clusters, Floats, Ints
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
    """Sums over users of what their rows in order say, gathered from blocks of whole users.

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
        sums, clusters = RepeatSums(), Clusters.of(cluster, reward.size)
        shown = Clusters.of(action, reward.size, "action")
        if clusters is not None and shown is not None:
            sums.extend(reward, propensity, shown.codes, clusters)
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
        """(n,) place of each row's item among those of the first block, whose means are kept; the last for others."""
        if self.items is None:
            self.items, codes = np.unique(action, return_inverse=True)
            means = np.bincount(codes, reward / propensity) / np.bincount(codes, 1.0 / propensity)
            self.means = np.append(means, means.mean())
            return codes.reshape(-1)
        place = np.minimum(np.searchsorted(self.items, action), self.items.size - 1)
        return np.where(self.items[place] == action, place, self.items.size)

    def _later(self, starts: Ints, place: Ints, reward: Floats, propensity: Floats) -> Floats:
        """(n,) what the user's next rows earn, less its mean; 0 where none follows. Makes the effects once."""
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
        """Of the rows of both; no user may be in both."""
        first = self if self.items is not None else other
        added = [getattr(self, name) + getattr(other, name) for name in ("scores", "totals", "products", "counts")]
        return RepeatSums(first.items, first.means, first.effects, *added)

    def ratio(self, which: int) -> tuple[float, float]:
        """Logarithm of a double ratio, and in standard errors; 0 and 0 where one of its sums is 0.

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
        return total / math.sqrt(square) if square > 0.0 else 0.0

    def shown_before(self, which: int) -> bool:
        """Whether two tests say that earlier showings count: either alone cries wolf (benchmarks/ope_trust).

        Args:
            which: 0 of all earlier rows, 1 of the row before.
        """
        both = self.score(which) / MOVED, self.ratio(which)[1] / TIRED
        return min(self.counts[:2]) >= LEAST_REPEATS and (min(both) > 1.0 or max(both) < -1.0)

    @property
    def lasting_score(self) -> float:
        """How many standard errors what is shown changes the rewards of the user's next rows."""
        return (self.score(3) + self.score(4)) / math.sqrt(2.0)

    @property
    def copied_score(self) -> float:
        """How many standard errors rows of one item in a row are rewarded alike more often than rows apart are.

        Weighted by 1 / propensity both are means over rewarded rows, so that tastes are no copies. Where there are
        hardly any rows apart, than all rows are, if items follow themselves more often than their propensities say.
        """
        if self.counts[3] < FEWEST_PAIRS:
            return 0.0
        alike, near, alike_apart, far = self.totals[2].tolist()
        share = alike / near
        other = alike_apart / far if far > 0.0 else 0.0
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
        found: list[Finding] = []
        # Showings at any distance come first; the row before alone is named where they show nothing.
        at_any_distance: Mapping[str, Any] = {}
        in_the_row_before = {"says": "next"}
        for effect, text in enumerate((at_any_distance, in_the_row_before)):
            if self.shown_before(effect):
                log_ratio = float(f"{self.ratio(effect)[0]:.6g}")  # sums of blocks differ by roundings
                percent = 100 * math.expm1(log_ratio)
                found.append(Finding("shown_before", CAUTION, log_ratio, percent=percent, **text))
                break
        if self.lasting_score > LASTING:
            score = round(self.lasting_score)
            found.append(Finding("lasts", CAUTION, score, rows=WITHIN, score=score))
        return found


def _effects(place: Ints, parts: Floats, chosen: NDArray[np.bool_], size: int) -> Floats:
    """(size,) sums of ``parts`` over the chosen rows of each item, over their variances, less their mean; a last 0."""
    sums = np.bincount(place[chosen], parts[chosen], size)[:-1]
    squares = np.bincount(place[chosen], parts[chosen] ** 2, size)[:-1]
    effects = np.divide(sums, squares, out=np.zeros(size - 1), where=squares > 0.0)
    return np.append(effects - effects.mean(), 0.0)
