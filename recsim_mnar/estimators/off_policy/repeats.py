"""What a user was shown before, at any distance, and rows that were written twice (docs/verdict.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from recsim_mnar.estimators.verdict import CAUTION, Finding
from recsim_mnar.log.columns import Clusters, Floats, Ints
from recsim_mnar.log.rows import user_starts

LEAST_REPEATS = 200
"""Rows with an item that the user was shown before, and without, below which nothing is said."""
FEWEST_PAIRS = 30
"""Rewarded rows that are followed by the same item, and by another, below which nothing is said of copies."""
MOVED, TIRED, COPIED = 3.3, 2.0, 4.0
"""Standard errors from which an effect is proved: by the randomisation, by the double ratio, and of copies."""
ALIKE = 0.15
"""How much more often than other neighbours copies must be rewarded alike."""


@dataclass
class RepeatSums:
    """Sums over users of what their earlier rows say, gathered from blocks of whole users.

    With E the sum over the user's earlier rows of 1{same item} / propensity - 1, which has mean 0 whatever the users
    do, ``moved`` is the sum of (r - m) E / propensity, m being the item's mean reward. The double ratio compares what
    an item earns where it is shown again with what it earned before, over the same of any two items of the user.

    Attributes:
        items, means: ids of the first block's items and their mean rewards m; another item's m is the mean of these.
        again, fresh: rows whose item the user was shown before, or not.
        moved, moved_square: sum over users of the users' sums, and of their squares.
        totals: (4,) sums of r over pairs of rows of a user: of the later and of the earlier row of pairs with the same
            item, and of pairs with two.
        products: (4, 4) sums over users of products of these.
        neighbours: (2, 2) rewarded rows before one of the same item, or of another; and how many of them are followed
            by the same reward.
        in_a_row, in_a_row_square: sums over users of the users' sums, and of their squares, of 1{same item as the row
            before} / propensity - 1, which has mean 0.
    """

    items: Ints | None = None
    means: Floats = field(default_factory=lambda: np.zeros(0))
    again: int = 0
    fresh: int = 0
    moved: float = 0.0
    moved_square: float = 0.0
    totals: Floats = field(default_factory=lambda: np.zeros(4))
    products: Floats = field(default_factory=lambda: np.zeros((4, 4)))
    neighbours: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    in_a_row: float = 0.0
    in_a_row_square: float = 0.0

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
        if not reward.size:
            return
        r, p, a = (clusters.together(values) for values in (reward, propensity, action))
        user = clusters.together(clusters.codes)
        starts = user_starts(user)
        earlier, later = _places(starts, r.size)
        same = _SameItem.of(user, a, 1.0 / p)
        self.again += int(np.count_nonzero(same.earlier))
        self.fresh += int(np.count_nonzero(same.earlier == 0))
        moved = np.add.reduceat((r - self._mean_of(a, r, p)) * (same.inverse - earlier) / p, starts)
        self.moved += float(moved.sum())
        self.moved_square += float(moved @ moved)
        above = r - min(float(r.min()), 0.0)
        parts = np.stack([above * same.earlier, above * same.later, above * earlier, above * later])
        parts[2:] -= parts[:2]
        by_user = np.add.reduceat(parts, starts, axis=1)
        self.totals += by_user.sum(axis=1)
        self.products += by_user @ by_user.T
        self._add_neighbours(user, a, r, p)

    def _mean_of(self, action: Ints, reward: Floats, propensity: Floats) -> Floats:
        """(n,) mean reward of each row's item, as the first block has it."""
        if self.items is None:
            self.items, codes = np.unique(action, return_inverse=True)
            self.means = np.bincount(codes, reward / propensity) / np.bincount(codes, 1.0 / propensity)
        place = np.minimum(np.searchsorted(self.items, action), self.items.size - 1)
        return np.where(self.items[place] == action, self.means[place], float(self.means.mean()))

    def _add_neighbours(self, user: Ints, action: Ints, reward: Floats, propensity: Floats) -> None:
        follows = user[1:] == user[:-1]
        first = follows & (reward[:-1] != 0.0)
        alike = first & (reward[1:] == reward[:-1])
        same = action[1:] == action[:-1]
        apart = np.append(0.0, follows * (same / propensity[1:] - 1.0))
        by_user = np.add.reduceat(apart, user_starts(user))
        self.in_a_row += float(by_user.sum())
        self.in_a_row_square += float(by_user @ by_user)
        for place, which in enumerate((same, ~same)):
            self.neighbours[place] += np.count_nonzero(first & which), np.count_nonzero(alike & which)

    def __add__(self, other: RepeatSums) -> RepeatSums:
        """Of the rows of both; no user may be in both."""
        first = self if self.items is not None else other
        names = [each.name for each in fields(self) if each.name not in ("items", "means")]
        return RepeatSums(first.items, first.means, **{n: getattr(self, n) + getattr(other, n) for n in names})

    @property
    def moved_score(self) -> float:
        """How many standard errors earlier showings of an item move what it earns."""
        return self.moved / math.sqrt(self.moved_square) if self.moved_square > 0.0 else 0.0

    @property
    def tired(self) -> tuple[float, float]:
        """Logarithm of the double ratio, and in standard errors; 0 and 0 where one of its sums is 0."""
        if self.totals.min() <= 0.0:
            return 0.0, 0.0
        signs = np.array([1.0, -1.0, -1.0, 1.0])
        slope = signs / self.totals
        effect = float(signs @ np.log(self.totals))
        return effect, effect / math.sqrt(max(float(slope @ self.products @ slope), 1e-300))

    @property
    def copied_score(self) -> float:
        """How many standard errors neighbours with one item are rewarded alike more often than those with two.

        0 where an item follows itself no more often than its propensity says: then it is a taste.
        """
        if self.in_a_row <= COPIED * math.sqrt(self.in_a_row_square):
            return 0.0
        (same, same_alike), (other, other_alike) = self.neighbours.tolist()
        if min(same, other) < FEWEST_PAIRS or same_alike / same < other_alike / other + ALIKE:
            return 0.0
        share = (same_alike + other_alike) / (same + other)
        return (same_alike / same - other_alike / other) / math.sqrt(share * (1.0 - share) * (1.0 / same + 1.0 / other))

    def findings(self) -> list[Finding]:
        """Findings ``shown_before`` and ``copied_rows``."""
        found = []
        effect, score = self.tired
        both = (self.moved_score / MOVED, score / TIRED)
        if min(self.again, self.fresh) >= LEAST_REPEATS and (min(both) > 1.0 or max(both) < -1.0):
            message = f"an item earns {100 * math.expm1(effect):+.2g} % where the user was shown it before"
            action = "this is the value of single decisions: A/B-test whole users"
            found.append(Finding("shown_before", CAUTION, effect, message, action))
        if self.copied_score > COPIED:
            message = "rows of one item in a row are rewarded alike far more often than others, as copies are"
            found.append(Finding("copied_rows", CAUTION, self.copied_score, message, "leave copies of rows out"))
        return found


def _places(starts: Ints, n: int) -> tuple[Ints, Ints]:
    """(n,) rows of the same group before and after each row; rows stand group by group."""
    sizes = np.diff(np.append(starts, n))
    earlier = np.arange(n) - np.repeat(starts, sizes)
    return earlier, np.repeat(sizes, sizes) - 1 - earlier


@dataclass(frozen=True)
class _SameItem:
    """Of each row, the user's other rows with the same item.

    Attributes:
        earlier, later: (n,) how many come before and after it.
        inverse: (n,) sum of 1 / propensity of those before it.
    """

    earlier: Ints
    later: Ints
    inverse: Floats

    @staticmethod
    def of(user: Ints, action: Ints, weight: Floats) -> _SameItem:
        """Of rows that stand user by user; ``weight`` is 1 / propensity."""
        n = user.size
        order = np.lexsort((np.arange(n), action, user))
        changes = (user[order][1:] != user[order][:-1]) | (action[order][1:] != action[order][:-1])
        starts = np.flatnonzero(np.r_[True, changes])
        before, after = _places(starts, n)
        sizes = np.diff(np.append(starts, n))
        running = np.cumsum(weight[order]) - weight[order]
        inverse = running - np.repeat(running[starts], sizes)
        back = np.argsort(order)
        return _SameItem(before[back], after[back], inverse[back])
