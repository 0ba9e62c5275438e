"""What a log of rankings says of its users: which assumption of an estimator it contradicts, and what it cannot test.

An estimator that assumes more is compared with one that assumes less on the same slates. Where the assumption holds
both have the same mean, so that a difference is its contradiction, and the interval of the difference, by user, says
how large a bias the log could overlook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recsim_mnar.estimators.intervals import Deviations
from recsim_mnar.estimators.off_policy.verdict import FEW_ESS
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding, scaled
from recsim_mnar.log.columns import Clusters, Floats, Ints, user_sums

Limits = tuple[float, float, float]
"""A number, and its lower and upper limit."""

PREMISES = {
    "": "nothing about users",
    "independent": "a click depends on the item and its position, not on the other items of the slate",
    "cascade": "a click depends on the item, its position and the items above it, not on those below",
    "unordered": "the clicks of a slate depend on which items it shows, not on their order",
    "additive": "the expected clicks of a slate are a sum of one term per item and position",
    "behaviour": "each slate's user behaves as the column of behaviours says",
}
"""What estimators assume of users, by a key."""
STATEMENTS: dict[str, tuple[str, ...]] = {
    "independent": ("independent", "additive", "cascade"),
    "cascade": ("cascade",),
    "unordered": ("unordered",),
    "whole": (),
}
"""What ``assumption`` may state, and the premises that follow from it."""
BELOW, CLICKS = 0.2, 0.3
"""Shares of the errors that are allowed: of the test of items below, and of the other tests of clicks by themselves."""
TESTED = {"independent": BELOW + CLICKS, "cascade": BELOW, "additive": CLICKS, "unordered": CLICKS}
"""Share of the errors that clicks have, by premise; differences between estimators have the rest."""
SLATES = "use slate_ips, which assumes nothing about users"

TOLERABLE, WIDE = 0.2, 0.5
"""Shares of the value from which a proved bias is a reason for caution and against using the estimate."""
ROOM = 0.25
"""Share of the interval's half width that an overlooked bias may have: it costs less than a hundredth of coverage."""


@dataclass(frozen=True)
class ClickFacts:
    """What clicks say of users directly; None where the log cannot say it.

    Attributes:
        position_effect: change of the click rate of the same items per position further down.
        after_click: click rate below a click, less that of the same users at the same positions in their next slates,
            both above the mean of their items there.
        by_position: (k,) click rates by position, as if every item were shown equally often.
        items_below: how much more an item earns beside the items that the target shows further down; one limit for
            each log and target.
    """

    position_effect: Limits | None
    after_click: Limits | None
    by_position: tuple[float, ...] | None
    items_below: Limits | None = None


def click_facts(
    reward: Floats,
    propensity: Floats | None,
    action: Ints | None,
    k: int,
    clusters: Clusters,
    level: float,
    cumulative: Floats | None = None,
) -> ClickFacts:
    """Clicks by position given the item, and clicks below a click.

    Args:
        reward: (n,) rewards of whole slates, k rows each from the top, slates of a user in order.
        propensity: (n,) the log's probability of the item at its position; None where it is not known.
        action: (n,) numbers of the items shown, from 0; None where they are not known.
        k: items per slate.
        clusters: users of the rows.
        level: of the limits.
        cumulative: (n,) the log's probability of the items down to each position; None where it is not known, and then
            clicks below a click are compared as if each position's items were shown alike whatever stands above.
    """
    effect = below = rates = None
    if action is not None and propensity is not None and k > 1:
        found = _position_effect(reward, propensity, action, k)
        if found is not None:
            effect = _limits(*found, clusters, level)
        weight = (1.0 / propensity).reshape(-1, k)
        rates = tuple(((weight * reward.reshape(-1, k)).sum(0) / weight.sum(0)).tolist())
    if action is not None and k > 1:
        weight = np.ones((reward.size // k, k))
        if propensity is not None and cumulative is not None:
            down = cumulative.reshape(-1, k)
            weight[:, 1:] = propensity.reshape(-1, k)[:, 1:] * down[:, :-1] / down[:, 1:]
        found = _below_clicks(reward, action.reshape(-1, k), clusters.dense()[0][::k], weight)
        if found is not None:
            below = _limits(*found, clusters, level)
    return ClickFacts(effect, below, rates)


def _position_effect(reward: Floats, propensity: Floats, action: Ints, k: int) -> tuple[float, Floats] | None:
    """Slope of the reward on the position within items, weighted by 1 / propensity, and its influence (n,)."""
    place = np.tile(np.arange(k, dtype=np.float64), reward.size // k)
    weight = 1.0 / propensity
    sums = [np.bincount(action, weight * x) for x in (np.ones(reward.size), place, reward)]
    middle, rate = (np.divide(x, sums[0], out=np.zeros_like(x), where=sums[0] > 0.0)[action] for x in sums[1:])
    off = weight * (place - middle)
    below = float(off @ (place - middle))
    if below <= 0.0:
        return None
    slope = float(off @ reward) / below
    return slope, off * (reward - rate - slope * (place - middle)) * (reward.size / below)


def _below_clicks(reward: Floats, action: Ints, user: Ints, weight: Floats) -> tuple[float, Floats] | None:
    """Rewards below a click in the same slate, less those in the user's next slate, and the influence (n,).

    Rewards are counted from the mean of their item at their position. Of the next slate those rows count whose item
    does not stand above in this one: there it could not be shown. A policy that knows a user's taste shows other items
    below given ones than in a slate at large, and what a user likes more than others do is among them. So rows of this
    slate are weighted (n, k) by the item's probability at its position over that given the items above: then the items
    that do not stand above have the same shares on both sides.
    """
    n, k = action.shape
    cell = (action * k + np.arange(k)).ravel()
    counts = np.maximum(np.bincount(cell), 1)
    off = (reward - (np.bincount(cell, reward) / counts)[cell]).reshape(n, k)
    order = np.argsort(user, kind="stable")
    starts = np.flatnonzero(np.r_[True, user[order][1:] != user[order][:-1]])
    after = np.roll(order, -1)
    after[np.r_[starts[1:], n] - 1] = order[starts]  # a user's last slate is followed by the first
    following = np.empty(n, np.int64)
    following[order] = after
    above = np.zeros((n, k), bool)
    above[:, 1:] = np.logical_or.accumulate(reward.reshape(n, k) > 0.0, axis=1)[:, :-1]
    above &= (following != np.arange(n))[:, None]
    then = action[following]
    free = above & ~np.stack([(then[:, j, None] == action[:, :j]).any(1) for j in range(k)], axis=1)
    mine = above * weight
    number, sums, others = above.sum(0), mine.sum(0), free.sum(0)
    # Positions are left out where few rows carry the weight: an item that hardly ever stands below those above it.
    known = (others > 0) & (sums**2 >= FEW_ESS * (mine**2).sum(0)) & (sums > 0.0)
    if not known.any():
        return None
    here, later = off, off[following]
    rate = np.divide((here * mine).sum(0), sums, out=np.zeros(k), where=known)
    usual = np.divide((later * free).sum(0), others, out=np.zeros(k), where=known)
    total = float(number[known].sum())
    effect = float(((rate - usual) * number)[known].sum()) / total
    less, more = (np.divide(number, each, out=np.zeros(k), where=known) for each in (sums, others))
    parts = known * (less * mine * (here - rate) - more * free * (later - usual))
    return effect, parts.ravel() * (n * k / total)


def _limits(value: float, influence: Floats, clusters: Clusters, level: float) -> Limits:
    """Limits by user of a number with this influence (n,) of rows, whose mean is 0."""
    sums = user_sums(influence, clusters)
    return value, *Deviations.of(sums).limits(value, influence.size, level)


def items_below(reward: Floats, action: Ints | None, ratio: Floats, clusters: Clusters, level: float) -> Limits | None:
    """How much more an item earns beside the items that the target shows further down than beside the log's.

    Whatever users do with the items above, an item that comes later is drawn by the log's policy given those above. So
    the target's probability of it over the log's, less 1, has mean 0, and is correlated with no earlier reward unless
    that depends on it. Rewards are counted from the mean of their item at their position.

    Args:
        reward: (n,) rewards of whole slates, from the top.
        action: (n,) numbers of the items shown, from 0; None where they are not known.
        ratio: (n, k) the target's probability of the items down to each position over the log's, for each slate.
        clusters: users of the rows.
        level: of the limits.

    Returns:
        The number, per item shown, with limits by user; None where no item stands below another, or is not known.
    """
    slates, k = ratio.shape
    if action is None or k < 2:
        return None
    before = ratio[:, :-1]
    # Below an item that the target does not show nothing is compared.
    apart = np.where(before > 0.0, ratio[:, 1:] / np.where(before > 0.0, before, 1.0) - 1.0, 0.0)
    below = np.cumsum(apart[:, ::-1], axis=1)[:, ::-1]
    cell = (action.reshape(slates, k) * k + np.arange(k)).ravel()
    usual = np.bincount(cell, reward) / np.maximum(np.bincount(cell), 1)
    off = (reward - usual[cell]).reshape(slates, k)
    parts = np.zeros((slates, k))
    parts[:, :-1] = off[:, :-1] * below
    value = float(np.mean(parts))
    found = Deviations.of(user_sums(parts.ravel() - value, clusters))
    return value, *found.limits(value, parts.size, level)


class Apart(NamedTuple):
    """How much larger one estimator's mean score is than another's on the same rows.

    Attributes:
        mean: of the differences.
        found: their deviations by user.
        rows: how many.
        step: the most that one more row could add to either.
    """

    mean: float
    found: Deviations
    rows: int
    step: float

    @staticmethod
    def of(scores: Floats, other: Floats, clusters: Clusters) -> Apart:
        """Of row scores (n,), and those of the estimator that assumes less."""
        parts = scores - other
        mean = float(np.mean(parts))
        step = float(np.max(other, initial=0.0))
        return Apart(mean, Deviations.of(user_sums(parts - mean, clusters)), parts.size, step)

    def limits(self, level: float) -> Limits:
        """The mean with limits by user."""
        return self.mean, *self.found.limits(self.mean, self.rows, level)


def _size(value: float, low: float, high: float) -> str:
    """A difference and its limits without their sign, which words give."""
    ends = (low, high) if value > 0.0 else (-high, -low)
    return f"{abs(value):.3g} [{ends[0]:.3g}, {ends[1]:.3g}]"


def _excludes_0(limits: Limits) -> bool:
    return limits[1] > 0.0 or limits[2] < 0.0


def assumption_findings(
    premise: str,
    estimate: Estimate,
    assumption: str | None,
    differences: Mapping[str, Limits],
    facts: ClickFacts,
    lacking: str = "",
) -> list[Finding]:
    """Findings on what an estimator assumes of users.

    What contradicts an assumption is an objection whether the assumption is stated or not, by the same test.
    All tests of one answer together object to what is true about as often as the interval misses.
    Where nothing is stated the verdict is trust only if the log excludes a bias of more than ``ROOM`` times the half
    width of the estimate's interval, which costs the interval less than a hundredth of its coverage.

    Args:
        premise: a key of :data:`PREMISES`.
        estimate: of the target, without these findings.
        assumption: a key of :data:`STATEMENTS`, or None.
        differences: by estimators that assume less, how much larger this one is; that from slate_ips bounds its bias.
            Without those that hardly see what the target shows.
        facts: of the clicks.
        lacking: why the difference from slate_ips is not known, where it is not.
    """
    if not premise:
        return []
    stated = premise == "behaviour" or (assumption is not None and premise in STATEMENTS[assumption])
    size, half = abs(estimate.value), (estimate.high - estimate.low) / 2.0
    words, found = PREMISES[premise], []
    proved = {name: limits for name, limits in differences.items() if _excludes_0(limits)}
    if proved:
        name, (value, low, high) = max(proved.items(), key=lambda item: abs(item[1][0]))
        message = f"it assumes that {words}, and the log contradicts that: on the same slates it is "
        message += f"{_size(value, low, high)} {'above' if value > 0.0 else 'below'} {name}, which assumes less"
        relative = abs(value) / size if size > 0.0 else WIDE
        severity = max(scaled(relative, TOLERABLE, WIDE), CAUTION)
        found.append(Finding("assumption_contradicted", min(severity, GRAVE), value, message, f"use {name}"))
    found += (
        _direct(premise, facts)
        if not proved
        else [each for each in _direct(premise, facts) if each.code != "assumption_contradicted"]
    )
    if stated or any(each.code == "assumption_contradicted" for each in found):
        return found
    if assumption is not None:
        message = f"it assumes that {words}, which does not follow from the stated assumption {assumption!r}"
        found.append(Finding("assumption_unstated", CAUTION, 1.0, message, SLATES))
        return found
    bound = differences.get("slate_ips")
    action = f"{SLATES}, or state the assumption (--assumption) if you know it"
    if bound is None:
        message = f"it assumes that {words}, and that cannot be tested: {lacking}"
        found.append(Finding("assumption_untested", CAUTION, np.inf, message, action))
        return found
    _, low, high = bound
    most = max(abs(low), abs(high))
    share = f"{100.0 * most / size:.0f} % of the estimate" if size > 0.0 else "more than the estimate"
    if (high - low) / 2.0 > TOLERABLE * size:
        message = f"it assumes that {words}, and the log is too small to test that: a bias of up to {most:.3g} "
        message += f"({share}) would not show"
        found.append(Finding("assumption_untested", CAUTION, most, message, action))
    else:
        message = f"it assumes that {words}. It may still be up to {most:.3g} ({share}) from slate_ips"
        severity = scaled(most / half, ROOM, np.inf) if half > 0.0 else CAUTION
        found.append(Finding("assumption_unstated", severity, most, message, action))
    return found


def _direct(premise: str, facts: ClickFacts) -> list[Finding]:
    """What clicks say of a premise."""
    found = []
    if premise == "unordered" and facts.position_effect is not None:
        value, low, high = facts.position_effect
        if _excludes_0(facts.position_effect):
            message = f"the same items are clicked {_size(value, low, high)} {'more' if value > 0.0 else 'less'} often "
            message += "per position further down, so their order matters"
            found.append(Finding("position_effect", CAUTION, value, message, SLATES))
    if premise in ("independent", "cascade") and facts.items_below is not None and _excludes_0(facts.items_below):
        value, low, high = facts.items_below
        message = f"beside the target's items further down an item earns {_size(value, low, high)} "
        message += f"{'more' if value > 0.0 else 'less'} than beside the log's, so a click depends on the items below"
        found.append(Finding("assumption_contradicted", CAUTION, value, message, SLATES))
    if premise in ("independent", "additive") and facts.after_click is not None:
        value, low, high = facts.after_click
        if _excludes_0(facts.after_click):
            message = (
                f"below a click, clicks are {_size(value, low, high)} {'more' if value > 0.0 else 'less'} frequent "
            )
            message += "than in the same users' next slates, so a click may depend on the items above"
            # Moods that pass between a user's slates make clicks more frequent too, where each click depends on its own
            # item alone. No log tells the two apart, so this is a caution and not a proof.
            found.append(Finding("clicks_after_click", CAUTION, value, message, "use reward_interaction_ips"))
    return found


def about_users(code: str) -> bool:
    """Whether a finding's code is one of those above."""
    return code.startswith("assumption") or code in ("position_effect", "clicks_after_click")
