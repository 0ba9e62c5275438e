"""What a user was shown before, effects that last, and rows that were written twice (docs/verdict.md)."""

from __future__ import annotations

import math
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
TEST = "this is the value of single decisions: A/B-test whole users"


@dataclass
class ScoreSums:
    """Sums over users of a number whose mean is 0 where nothing is wrong, and of its square."""

    total: float = 0.0
    square: float = 0.0

    def add(self, by_user: Floats) -> None:
        """Add numbers (U,), one per user."""
        self.total += float(by_user.sum())
        self.square += float(by_user @ by_user)

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(self.total + other.total, self.square + other.square)

    @property
    def score(self) -> float:
        """The sum in standard errors."""
        return self.total / math.sqrt(self.square) if self.square > 0.0 else 0.0


@dataclass
class ShownSums:
    """What an item earns where a user was shown it before, by two tests.

    Attributes:
        moved: of (r - m) E / propensity. E is the sum over earlier rows of 1{same item} / propensity - 1, which has
            mean 0 whatever users do; m is the item's mean reward.
        totals: (4,) sums of r over pairs of rows of a user: of the later and of the earlier row of pairs with the same
            item, and of pairs with two.
        products: (4, 4) sums over users of products of these.
    """

    moved: ScoreSums = field(default_factory=ScoreSums)
    totals: Floats = field(default_factory=lambda: np.zeros(4))
    products: Floats = field(default_factory=lambda: np.zeros((4, 4)))

    def add(self, moved: Floats, parts: Floats, starts: Ints) -> None:
        """Add rows (n,) and (4, n) of users whose rows stand together from ``starts`` on."""
        self.moved.add(np.add.reduceat(moved, starts))
        by_user = np.add.reduceat(parts, starts, axis=1)
        self.totals += by_user.sum(axis=1)
        self.products += by_user @ by_user.T

    def __add__(self, other: ShownSums) -> ShownSums:
        return ShownSums(self.moved + other.moved, self.totals + other.totals, self.products + other.products)

    @property
    def ratio(self) -> tuple[float, float]:
        """Logarithm of the double ratio: what an item earns when shown again over what it earned, over the same of any
        two items of the user; and in standard errors. 0 and 0 where one of the sums is 0.
        """
        if self.totals.min() <= 0.0:
            return 0.0, 0.0
        signs = np.array([1.0, -1.0, -1.0, 1.0])
        slope = signs / self.totals
        effect = float(signs @ np.log(self.totals))
        return effect, effect / math.sqrt(max(float(slope @ self.products @ slope), 1e-300))

    @property
    def proved(self) -> bool:
        """Whether both tests say the same: either alone cries wolf (benchmarks/ope_trust)."""
        both = self.moved.score / MOVED, self.ratio[1] / TIRED
        return min(both) > 1.0 or max(both) < -1.0


@dataclass
class RepeatSums:
    """Sums over users of what their rows in order say, gathered from blocks of whole users.

    Attributes:
        items: ids of the first block's items.
        means: (items + 1,) their mean rewards, and the mean of these for any other item.
        effects: (2, items + 1) what an item adds to the rewards of the user's next rows, over its variance, less the
            mean of all items: of every second user of the first block, and of the others; 0 for any other item.
        again, fresh: rows whose item the user was shown before, or not.
        rewarded: rows with a reward.
        earlier, last: what all earlier rows say, and the row before alone.
        lasting: of effect / propensity times the next rows' rewards, over users who did not make the effects.
        in_a_row: of 1{same item as the row before} / propensity - 1.
        neighbours: (3, 2) rewarded rows of a user whose next row has the same item, whose item comes again later, and
            whose next row has another item; and how many of them are followed by the same reward there.
    """

    items: Ints | None = None
    means: Floats = field(default_factory=lambda: np.zeros(0))
    effects: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    again: int = 0
    fresh: int = 0
    rewarded: int = 0
    earlier: ShownSums = field(default_factory=ShownSums)
    last: ShownSums = field(default_factory=ShownSums)
    lasting: tuple[ScoreSums, ScoreSums] = field(default_factory=lambda: (ScoreSums(), ScoreSums()))
    in_a_row: ScoreSums = field(default_factory=ScoreSums)
    neighbours: Floats = field(default_factory=lambda: np.zeros((3, 2)))

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
        columns = [clusters.together(values) for values in (clusters.codes, reward, propensity, action)]
        if clusters.again is not None:  # a row that repeats another is no decision
            once = ~clusters.together(clusters.again)
            columns = [values[once] for values in columns]
        user, r, p, a = columns
        starts = user_starts(user)
        order = np.lexsort((np.arange(r.size), a, user))
        place = self._place_of(a, r, p)
        self._add_shown(user, starts, order, a, r, p, (r - self.means[place]) / p)
        self._add_lasting(starts, place, r, p)
        self._add_neighbours(user, starts, order, a, r, p)

    def _place_of(self, action: Ints, reward: Floats, propensity: Floats) -> Ints:
        """(n,) place of each row's item among those of the first block, whose means are kept; the last for others."""
        if self.items is None:
            self.items, codes = np.unique(action, return_inverse=True)
            means = np.bincount(codes, reward / propensity) / np.bincount(codes, 1.0 / propensity)
            self.means = np.append(means, means.mean())
        place = np.minimum(np.searchsorted(self.items, action), self.items.size - 1)
        return np.where(self.items[place] == action, place, self.items.size)

    def _add_shown(self, user: Ints, starts: Ints, order: Ints, a: Ints, r: Floats, p: Floats, apart: Floats) -> None:
        """Add what earlier rows, and the row before, say of a row; ``apart`` is (r - m) / propensity."""
        n = r.size
        earlier, later = _places(starts, n)
        changes = (user[order][1:] != user[order][:-1]) | (a[order][1:] != a[order][:-1])
        firsts = np.flatnonzero(np.append(True, changes))
        back = np.argsort(order)
        same_earlier, same_later = (counts[back] for counts in _places(firsts, n))
        weights = 1.0 / p[order]
        running = np.cumsum(weights) - weights
        inverse = (running - np.repeat(running[firsts], np.diff(np.append(firsts, n))))[back]
        above = r - min(float(r.min()), 0.0)
        self.again += int(np.count_nonzero(same_earlier))
        self.fresh += int(np.count_nonzero(same_earlier == 0))
        self.rewarded += int(np.count_nonzero(r))
        counts = np.stack([same_earlier, same_later, earlier - same_earlier, later - same_later])
        self.earlier.add(apart * (inverse - earlier), above * counts, starts)
        follows, same = user[1:] == user[:-1], a[1:] == a[:-1]
        last = np.append(0.0, follows * (same / p[:-1] - 1.0))
        again, other = follows & same, follows & ~same
        counts = np.stack([np.append(0, again), np.append(again, 0), np.append(0, other), np.append(other, 0)])
        self.last.add(apart * last, above * counts, starts)

    def _add_lasting(self, starts: Ints, place: Ints, reward: Floats, propensity: Floats) -> None:
        n = reward.size
        sizes = np.diff(np.append(starts, n))
        ends = np.repeat(np.append(starts[1:], n), sizes)
        following = np.arange(1, n + 1)
        upto = np.minimum(following + WITHIN, ends)
        running = np.append(0.0, np.cumsum(reward - reward.mean()))
        later, followed = running[upto] - running[following], following < ends
        if not followed.any():
            return
        later -= later[followed].mean()
        half = np.repeat(np.arange(starts.size) % 2, sizes)
        if not self.effects.size:
            chosen = [followed & (half == which) for which in (0, 1)]
            self.effects = np.stack([_effects(place, later / propensity, rows, self.means.size) for rows in chosen])
        by_user = np.add.reduceat(followed * self.effects[1 - half, place] * later / propensity, starts)
        for which in (0, 1):
            self.lasting[which].add(by_user[which::2])

    def _add_neighbours(self, user: Ints, starts: Ints, order: Ints, a: Ints, r: Floats, p: Floats) -> None:
        follows, same = user[1:] == user[:-1], a[1:] == a[:-1]
        now, then = order[:-1], order[1:]
        apart = (user[now] == user[then]) & (a[now] == a[then]) & (then > now + 1)
        pairs = [(follows & same, r[:-1], r[1:]), (apart, r[now], r[then]), (follows & ~same, r[:-1], r[1:])]
        for place, (chosen, first, second) in enumerate(pairs):
            rewarded = chosen & (first != 0.0)
            self.neighbours[place] += np.count_nonzero(rewarded), np.count_nonzero(rewarded & (first == second))
        self.in_a_row.add(np.add.reduceat(np.append(0.0, follows * (same / p[1:] - 1.0)), starts))

    def __add__(self, other: RepeatSums) -> RepeatSums:
        """Of the rows of both; no user may be in both."""
        first = self if self.items is not None else other
        one, two = (a + b for a, b in zip(self.lasting, other.lasting, strict=True))
        return RepeatSums(
            first.items,
            first.means,
            first.effects,
            self.again + other.again,
            self.fresh + other.fresh,
            self.rewarded + other.rewarded,
            self.earlier + other.earlier,
            self.last + other.last,
            (one, two),
            self.in_a_row + other.in_a_row,
            self.neighbours + other.neighbours,
        )

    @property
    def lasting_score(self) -> float:
        """How many standard errors what is shown changes the rewards of the user's next rows."""
        return sum(each.score for each in self.lasting) / math.sqrt(2.0)

    @property
    def copied_score(self) -> float:
        """How many standard errors rows of one item in a row are rewarded alike more often than others.

        Than rows of one item that are apart or, where these are few and items follow themselves more often than their
        propensities say, than rows of two items in a row, or than all rows: so tastes are no copies.
        """
        (same, same_alike), *others = self.neighbours.tolist()
        others.append([float(self.again + self.fresh), float(self.rewarded)])
        known = [(place, pair) for place, pair in enumerate(others) if pair[0] >= FEWEST_PAIRS]
        if same < FEWEST_PAIRS or not known:
            return 0.0
        place, (other, other_alike) = known[0]
        by_chance = place > 0 and self.in_a_row.score <= COPIED
        if by_chance or same_alike / same < other_alike / other + ALIKE:
            return 0.0
        share = (same_alike + other_alike) / (same + other)
        error = math.sqrt(share * (1.0 - share) * (1.0 / same + 1.0 / other))
        return (same_alike / same - other_alike / other) / max(error, 1e-9)

    def findings(self) -> list[Finding]:
        """Findings ``copied_rows``, which explain the others, or ``shown_before`` and ``lasts``."""
        if self.copied_score > COPIED:
            message = "rows of one item in a row are rewarded alike far more often than others, as copies are"
            return [Finding("copied_rows", CAUTION, self.copied_score, message, "leave copies of rows out")]
        found = []
        enough = min(self.again, self.fresh) >= LEAST_REPEATS
        for sums, when in ((self.earlier, "before"), (self.last, "in the row before")):
            if enough and sums.proved and not found:
                effect = sums.ratio[0]
                message = f"an item earns {100 * math.expm1(effect):+.2g} % where the user was shown it {when}"
                found.append(Finding("shown_before", CAUTION, effect, message, TEST))
        if self.lasting_score > LASTING:
            message = f"what is shown changes what the user's next {WITHIN} rows earn (score {self.lasting_score:.3g})"
            found.append(Finding("lasts", CAUTION, self.lasting_score, message, TEST))
        return found


def _effects(place: Ints, parts: Floats, chosen: NDArray[np.bool_], size: int) -> Floats:
    """(size,) sums of ``parts`` over the chosen rows of each item, over their variances, less their mean; a last 0."""
    sums = np.bincount(place[chosen], parts[chosen], size)[:-1]
    squares = np.bincount(place[chosen], parts[chosen] ** 2, size)[:-1]
    effects = np.divide(sums, squares, out=np.zeros(size - 1), where=squares > 0.0)
    return np.append(effects - effects.mean(), 0.0)


def _places(starts: Ints, n: int) -> tuple[Ints, Ints]:
    """(n,) rows of the same group before and after each row; rows stand group by group."""
    sizes = np.diff(np.append(starts, n))
    earlier = np.arange(n) - np.repeat(starts, sizes)
    return earlier, np.repeat(sizes, sizes) - 1 - earlier
