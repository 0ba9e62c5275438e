"""Estimates of a log that is read in blocks: moments are gathered from one after another, and no row is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.blocks import OutOfOrderError, cut_blocks, sorted_blocks
from recsim_mnar.estimators.off_policy.differences import PairMoments, estimate_difference
from recsim_mnar.estimators.off_policy.from_moments import AUTO, estimate_from_moments
from recsim_mnar.estimators.off_policy.inputs import check_rows
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.row_order import OrderSums, weights_agree
from recsim_mnar.estimators.off_policy.scores import check_name
from recsim_mnar.estimators.off_policy.stated import Stated, limit_column, missing_column, refuse_outside
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.column_files import Block
from recsim_mnar.log.columns import Clusters


def needs_all_rows(estimators: Sequence[str], interval: str) -> str:
    """What of a question cannot be answered from moments, in words; empty where all of it can."""
    if interval != "auto":
        return f"the {interval} interval"
    return next((name for name in estimators if name != AUTO and not check_name(name).from_moments), "")


@dataclass(frozen=True)
class BlockQuestion:
    """What is asked of a log that comes in blocks.

    Attributes:
        reward: column of rewards.
        propensity: column of propensities; as a policy it is the one that logged the rows.
        policies: columns of policies.
        baseline: one of them, or None.
        compared: those that are held against the baseline.
        clip: of the clipped estimators.
        missing: by policy, the column of its mass where the logging probability is 0.
        stated: what is known of the log.
        clustered: whether blocks have users.
        limit: column of the largest reward possible of each row's action, or None.
    """

    reward: str
    propensity: str
    policies: Sequence[str]
    baseline: str | None
    compared: Sequence[str]
    clip: float
    missing: Mapping[str, str]
    stated: Stated
    clustered: bool
    limit: str | None = None


@dataclass
class Gathered:
    """Moments of every policy and of every pair that is compared, and what users' rows say in their order."""

    question: BlockQuestion
    moments: dict[str, Moments] = field(default_factory=dict)
    pairs: dict[str, PairMoments] = field(default_factory=dict)
    orders: dict[str, OrderSums] = field(default_factory=dict)

    def value(self, policy: str, estimator: str, *, level: float) -> Estimate:
        """The estimate of a policy's value, as :func:`recsim_mnar.estimators.estimate_value` of all rows."""
        moments = self.moments[policy]
        moments = moments if estimator != AUTO and check_name(estimator).clips else moments.unclipped()
        found = estimate_from_moments(moments, estimator, level=level, stated=self.question.stated)
        return self._in_order(found, policy)

    def difference(self, policy: str, estimator: str, *, level: float) -> Estimate:
        """The estimate of its difference from the baseline, as :func:`recsim_mnar.estimators.difference`."""
        pair = self.pairs[policy]
        pair = pair if estimator != AUTO and check_name(estimator).clips else pair.unclipped()
        return self._in_order(estimate_difference(pair, estimator, level=level, stated=self.question.stated), policy)

    def _in_order(self, estimate: Estimate, policy: str) -> Estimate:
        """The estimate, its verdict with what the rows say in their order."""
        if policy not in self.orders or not weights_agree(estimate.verdict):
            return estimate
        found = self.orders[policy].findings((estimate.high - estimate.low) / 2.0, estimate.level)
        return estimate.with_findings(found)


def gather_blocks(blocks: Callable[[], Iterable[Block]], question: BlockQuestion, sorted_rows: int) -> Gathered:
    """Gather moments with the bits of all rows at once.

    The log is read once; again where rewards turn out to be negative (they are counted from the least of them), and in
    several passes where users do not come in ascending order.

    Args:
        blocks: reads the log anew at every call.
        question: what is asked.
        sorted_rows: rows that are sorted at a time where users are out of order.

    Raises:
        UserError: values that are no data, with column and row.
    """
    ordered, given = True, question.stated.reward_min
    least = 0.0 if given is None else float(given)
    while True:
        found = start_gathering(question, least)
        lowest = math.inf
        try:
            for block in cut_blocks(blocks()) if ordered else sorted_blocks(blocks, sorted_rows):
                if given is None:
                    lowest = min(lowest, float(block.columns[question.reward].min()))
                if not lowest < least:  # else these moments are of no use
                    add_block(found, block)
        except OutOfOrderError:
            ordered = False
            continue
        if not lowest < least:
            return found
        least = lowest


def start_gathering(question: BlockQuestion, shift: float) -> Gathered:
    """Moments of no row.

    Args:
        question: what is asked.
        shift: the least reward, from which rewards are counted.
    """
    found = Gathered(question)
    for name in question.policies:
        found.moments[name] = Moments(question.clip, question.clustered, shift)
        if question.clustered:
            found.orders[name] = OrderSums(shift)
    for name in question.compared:
        assert question.baseline is not None
        found.pairs[name] = PairMoments(found.moments[name], found.moments[question.baseline])
    return found


def add_block(found: Gathered, block: Block) -> None:
    """Add the rows of a block; what is no data is named with its row in the file."""
    question, columns = found.question, block.columns
    r, p = columns[question.reward], columns[question.propensity]
    clusters = None if block.user is None else Clusters(block.user, None)
    limits = None if question.limit is None else columns[question.limit]
    try:
        _check_stated(question, block)
        for name, moments in found.moments.items():
            missing = _missing(question, block, name)
            moments.extend(r, p, columns[name], clusters, missing=missing, limit=limits)
            moments.denied += question.stated.denied(columns[name], p)
    except UserError:
        _refuse(question, block)
        raise
    for name, order in found.orders.items():
        order.extend(r, p, columns[name], clusters)
    for name, pair in found.pairs.items():
        assert question.baseline is not None
        pair.extend(r, p, columns[name], columns[question.baseline], clusters)


def _missing(question: BlockQuestion, block: Block, name: str) -> np.ndarray | None:
    if name in question.missing:
        return block.columns[question.missing[name]]
    # The policy that logged the rows takes nothing that it cannot take.
    return np.zeros(len(block)) if name == question.propensity else None


def _check_stated(question: BlockQuestion, block: Block) -> None:
    stated, columns = question.stated, block.columns
    refuse_outside(columns[question.reward], stated.reward_min, stated.reward_max, question.reward, block.numbers)
    if question.limit is not None:
        names = (question.reward, question.limit)
        limit_column(columns[question.limit], columns[question.reward], names, block.numbers)


def _refuse(question: BlockQuestion, block: Block) -> None:
    """Raise the UserError that names the row of the file, where a row is to blame."""
    columns = block.columns
    for name in question.policies:
        names = (question.reward, question.propensity, name)
        check_rows(columns[question.reward], columns[question.propensity], columns[name], names, block.numbers)
    _check_stated(question, block)
    for name, column in question.missing.items():
        missing_column(columns[column], columns[name], block.numbers)
