"""Effects that outlast a decision, from the order of rows: carry-over and staying (docs/verdict-theory.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Deviations, student_limits
from recsim_mnar.estimators.off_policy.differences import Form, Products
from recsim_mnar.estimators.off_policy.limits import STRICT
from recsim_mnar.estimators.verdict import CAUTION, LEAST_USERS, Finding, Verdict
from recsim_mnar.log.columns import Clusters, Floats, Ints
from recsim_mnar.log.rows import user_starts

ROWS, REWARD, WEIGHT, LEAD = np.eye(4).tolist()
"""A user's numbers: rows l; and over the rows that another follows, sums of (w - 1) w' r', (w - 1) w' and w - 1, where
w' and r' are those of the next row."""

TEST = "leave copies out if rows repeat (see doctor); else it is the value of single decisions: A/B-test whole users"
Limits = tuple[float, float, float]
"""A number, and its lower and upper limit."""
AT_ONCE = 1 << 14
"""Rows of whole users that are summed at a time: few enough to stay in the cache."""


@dataclass
class OrderSums:
    """Sums over users of what their rows in order say; gathered from blocks of whole users.

    Attributes:
        shift: what rewards are counted from: any number of their size, the same in all blocks. The effects do not
            depend on it, but for roundings.
        rows, users: how many.
        weight, weighted: sums over rows of w and of w r, r above ``shift``, as those below.
        weight_max: largest weight.
        reward_min, reward_max: least and largest reward.
        products: of the numbers ``ROWS``, ``REWARD``, ``WEIGHT`` and ``LEAD`` of a user, up to four of them.
    """

    shift: float = 0.0
    rows: int = 0
    users: int = 0
    weight: float = 0.0
    weighted: float = 0.0
    weight_max: float = 0.0
    reward_min: float = np.inf
    reward_max: float = -np.inf
    products: Products = field(default_factory=lambda: Products.empty(4, 4))

    def extend(self, reward: Floats, propensity: Floats, target: Floats, cluster: Any) -> None:
        """Add rows of whole users, each user's in the order of the decisions; one that repeats another is none.

        Args:
            reward: (n,).
            propensity: (n,) in (0, 1].
            target: (n,) the target policy's probability of the logged action.
            cluster: (n,) the user of each row.
        """
        clusters = Clusters.of(cluster, reward.size)
        if clusters is None or reward.size == 0:
            return
        r, w = clusters.together(reward) - self.shift, clusters.together(target / propensity)
        starts = user_starts(clusters.together(clusters.codes))
        once = None if clusters.again is None else ~clusters.together(clusters.again)
        if once is not None:
            once[starts] = True
        for some in np.split(starts, np.flatnonzero(np.diff(starts // AT_ONCE)) + 1):
            first, last = some[0], r.size if some[-1] == starts[-1] else starts[np.searchsorted(starts, some[-1]) + 1]
            these = None if once is None else once[first:last]
            numbers = numbers_of_users(r[first:last], w[first:last], some - first, these)
            self.products.pairs[0] += sums_of_products(numbers)
        if once is not None:
            r, w = r[once], w[once]
        self.rows, self.users = self.rows + r.size, self.users + starts.size
        self.weight, self.weighted = self.weight + float(np.sum(w)), self.weighted + float(w @ r)
        self.weight_max = max(self.weight_max, float(np.max(w)))
        self.reward_min = min(self.reward_min, float(np.min(r)))
        self.reward_max = max(self.reward_max, float(np.max(r)))

    def __add__(self, other: OrderSums) -> OrderSums:
        """Of the rows of both; no user may be in both."""
        if not isinstance(other, OrderSums):
            return NotImplemented
        if self.shift != other.shift:
            raise UserError(f"sums by order merge only with the same shift, not {self.shift:g} and {other.shift:g}")
        added = {name: getattr(self, name) + getattr(other, name) for name in ("rows", "users", "weight", "weighted")}
        most = {name: max(getattr(self, name), getattr(other, name)) for name in ("weight_max", "reward_max")}
        products = Products(4, self.products.pairs + other.products.pairs)
        return OrderSums(
            self.shift, **added, **most, reward_min=min(self.reward_min, other.reward_min), products=products
        )

    @property
    def value(self) -> float:
        """The self-normalised mean of w r, above ``shift``."""
        return self.weighted / self.weight if self.weight > 0.0 else 0.0

    def carry_over(self, level: float) -> Limits:
        """Effect, and its limits by user, of the target's decision on the value of the next one, per decision."""
        above, below = self.reward_max - self.value, self.value - self.reward_min
        heavy, light = max(self.weight_max - 1.0, 0.0) * self.weight_max, self.weight_max
        up, down = max(heavy * above, light * below), max(light * above, heavy * below)
        return self._limits([0.0, 1.0, -self.value, 0.0], up, down, level)

    def staying(self, level: float) -> Limits:
        """Change, and its limits by user, of the share of decisions that another follows, where the target decides."""
        return self._limits(LEAD, max(self.weight_max - 1.0, 0.0), 1.0, level)

    def _limits(self, form: Form, up: float, down: float, level: float) -> Limits:
        mean = self.products.of(form) / self.rows
        about = [form[0] - mean, *form[1:]]
        second = max(self.products.of(about, about), 0.0)
        third = self.products.of(about, about, about)
        fourth = max(self.products.of(about, about, about, about), 0.0)
        found = Deviations(second, third, fourth, self.users, self.users, grouped=True)
        less, more = found.spread(self.rows, up, down, level).reaches(level)
        return mean, mean - less, mean + more

    def findings(self, half_width: float, level: float = 0.95) -> list[Finding]:
        """Caution where an effect is proved, at the strict level, and may be larger than the interval's half width.

        Args:
            half_width: of the interval of the value, or of the difference, in the reward's unit.
            level: of the interval.
        """
        if self.users < LEAST_USERS or self.rows == self.users or self.reward_max <= self.reward_min:
            return []
        found = []
        if proved(self.carry_over(STRICT)) and _most(self.carry_over(level)) > half_width:
            effect, low, high = self.carry_over(level)
            message = (
                "what is shown changes what the next decision earns: it moves the value per decision by "
                f"{effect:.3g} [{low:.3g}, {high:.3g}] where the decision before is the new policy's as well, and the "
                f"interval reaches {half_width:.3g}"
            )
            found.append(Finding("carry_over", CAUTION, effect, message, TEST))
        size = self.value - min(self.reward_min, -self.shift)  # above 0, or above the least reward
        if proved(self.staying(STRICT)) and _most(self.staying(level)) * size > half_width:
            change, low, high = self.staying(level)
            share = 1.0 - self.users / self.rows
            message = (
                f"what is shown changes who goes on: another decision follows {100 * share:.3g} % of the log's, and "
                f"under the new policy {100 * change:+.2g} [{100 * low:+.2g}, {100 * high:+.2g}] points of that"
            )
            found.append(Finding("staying", CAUTION, change, message, TEST))
        return found


def numbers_of_users(reward: Floats, weight: Floats, starts: Ints, once: NDArray[np.bool_] | None = None) -> Floats:
    """(4, U) ``ROWS``, ``REWARD``, ``WEIGHT`` and ``LEAD`` of users whose rows stand together from ``starts`` on.

    If ``once`` is given, only these rows count, but for ``LEAD``: a copy says nothing of who stays, and where times are
    days a row that only looks like one does.
    """
    lead = _lead(weight, starts)
    leads = np.add.reduceat(lead, starts)
    if once is not None:
        starts, reward, weight = np.cumsum(once)[starts] - 1, reward[once], weight[once]
        lead = _lead(weight, starts)
    paired = lead * np.append(weight[1:], 0.0)
    rewarded = paired * np.append(reward[1:], 0.0)
    sums = [np.add.reduceat(values, starts) for values in (rewarded, paired)]
    return np.stack([np.diff(np.append(starts, weight.size)).astype(np.float64), *sums, leads])


def _lead(weight: Floats, starts: Ints) -> Floats:
    lead = weight - 1.0
    lead[np.append(starts[1:], weight.size) - 1] = 0.0  # a user's last row is followed by nothing
    return lead


def sums_of_products(numbers: Floats) -> Floats:
    """Sums over users of products of one to four of their numbers (k, U), in the order of :class:`Products`."""
    from itertools import combinations_with_replacement as chosen

    k = len(numbers)
    pairs = {each: numbers[each[0]] * numbers[each[1]] for each in chosen(range(k), 2)}
    sums = [float(np.sum(row)) for row in numbers]
    sums += [float(np.sum(pair)) for pair in pairs.values()]
    sums += [float(pairs[a, b] @ numbers[c]) for a, b, c in chosen(range(k), 3)]
    sums += [float(pairs[a, b] @ pairs[c, d]) for a, b, c, d in chosen(range(k), 4)]
    return np.array(sums)


def proved(limits: Limits) -> bool:
    """True if the limits exclude 0."""
    _, low, high = limits
    return low > 0.0 or high < 0.0


def _most(limits: Limits) -> float:
    _, low, high = limits
    return max(abs(low), abs(high))


def weights_agree(verdict: Verdict) -> bool:
    """True if the mean weight may be 1: otherwise w - 1 measures no effect of the recommendations."""
    proved = ("propensities", "support_missing", "support_denied")
    return not any(f.code in proved and f.level != "trust" for f in verdict.findings)


def order_findings(
    reward: Floats, propensity: Floats, target: Floats, cluster: Any, *, half_width: float, level: float = 0.95
) -> list[Finding]:
    """Findings ``carry_over`` and ``staying`` of a log whose rows stand in the order of the decisions.

    Args:
        reward: (n,).
        propensity: (n,) in (0, 1].
        target: (n,) the target policy's probability of the logged action.
        cluster: (n,) the user of each row; None says nothing of order, and nothing is found.
        half_width: of the interval of the value, or of the difference, in the reward's unit.
        level: of the interval.
    """
    if cluster is None:
        return []
    sums = OrderSums(float(np.mean(reward)) if reward.size else 0.0)
    sums.extend(reward, propensity, target, cluster)
    return sums.findings(half_width, level)


# ------------------------------------------------------------------ of users' rows, which stand together in their order


def tiring(user: Ints, action: Ints, reward: Floats, propensity: Floats, within: int, level: float) -> Limits | None:
    """Logarithm of how much an item earns where it is shown again, over what it earned before; (n,) each.

    Two decisions of a user, at most ``within`` apart, for the same item earn r and later r'. The ratio of the sums of
    r' and r over such pairs is put over the same ratio over pairs for two items: what changes with time for all items
    alike cancels. Where all items are always shown as often, who is shown one again is chance: r counts as 1 then, for
    half of the variance. None where one of the four sums is 0.
    """
    parts, before = np.zeros((4, user.size)), np.ones(user.size) if np.ptp(propensity) == 0.0 else reward
    for lag in range(1, min(within, user.size - 1) + 1):
        same, again = user[lag:] == user[:-lag], action[lag:] == action[:-lag]
        for place, which in ((0, same & again), (2, same & ~again)):
            parts[place, lag:] += which * reward[lag:]
            parts[place + 1, lag:] += which * before[:-lag]
    sums = np.add.reduceat(parts, user_starts(user), axis=1)
    totals, signs = sums.sum(axis=1), np.array([1.0, -1.0, -1.0, 1.0])
    if np.min(totals) <= 0.0:
        return None
    return _about(float(signs @ np.log(totals)), (signs / totals) @ sums, 1.0 / float(np.min(totals)), level)


def earlier_showings(user: Ints, action: Ints, propensity: Floats, within: int) -> Floats:
    """(n,) how often an item was shown before: sums over at most ``within`` earlier decisions of 1 / p, or 0, less 1.

    Every item must have been possible in every decision.
    """
    found = np.zeros(user.size)
    for lag in range(1, min(within, user.size - 1) + 1):
        again = (action[lag:] == action[:-lag]) / propensity[:-lag]
        found[lag:] += (user[lag:] == user[:-lag]) * (again - 1.0)
    return found


def moved_by(user: Ints, reward: Floats, weight: Floats, earlier: Floats, level: float) -> Limits:
    """What earlier decisions add to what the target's decision earns, per decision; (n,) each.

    The mean of w (r - v) times ``earlier``, of :func:`earlier_showings`; v is the target's value. It is 0 where earlier
    decisions change nothing, for their parts have mean 0 whatever went before them.
    """
    parts = weight * (reward - weight @ reward / np.sum(weight)) * earlier / user.size
    return _by_user(np.add.reduceat(parts, user_starts(user)), level)


def _by_user(parts: Floats, level: float) -> Limits:
    """A sum over users with Student's limits: it only warns, and no allowance for rare users makes it late."""
    effect, variance = float(np.sum(parts)), float(np.sum((parts - np.mean(parts)) ** 2))
    return effect, *student_limits(effect, variance, parts.size, level)


def _about(effect: float, apart: Floats, step: float, level: float) -> Limits:
    """An effect with limits by the users' deviations (U,); ``step`` is the most that one more row could add."""
    less, more = Deviations.of(apart).spread(1.0, step, step, level).reaches(level)
    return effect, effect - less, effect + more
