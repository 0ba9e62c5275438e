"""Estimate from a log read in blocks: gather sums by user block by block, without keeping rows."""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import MachineError, UserError
from recsim_mnar.estimators.facts import PRECISION, Facts, check_rows, limit_column, missing_column, refuse_outside
from recsim_mnar.estimators.refuters import ItemSums
from recsim_mnar.estimators.repeats import RepeatSums
from recsim_mnar.estimators.scores import Rows, Scores, check_name
from recsim_mnar.estimators.sums import CHUNK, PolicySums, ScoreSums
from recsim_mnar.estimators.value import AUTO, LEADING, PairSums, difference_of, value_of
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.own_log.bandit_file import BLOCK_ROWS, Block
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.tables.rows import AgainError, n_repeats, repeats

SORTED_ROWS = 1 << 21
"""Number of rows sorted at a time if users come in no order."""
_SAMPLES = 1 << 20
"""Largest number of rows from which the ranges of users for sorting are found."""
_MARGIN = 1.25
"""Factor of the number of ranges, so that a range rarely has more than :data:`SORTED_ROWS` rows."""


@dataclass(frozen=True)
class BlockQuestion:
    """Policies to estimate from a log that is read in blocks, and how.

    Attributes:
        reward: column of rewards.
        propensity: column of propensities; it also names the logging policy.
        policies: columns of the policies' probabilities of the logged actions.
        baseline: the policy with which others are compared, one of ``policies``; None without a comparison.
        compared: policies whose difference from the baseline is estimated.
        clip: largest weight; only clipped estimators use it.
        missing: for some policies, the column of their probability of all actions that the logging policy never takes.
        facts: known facts about the log.
        limit: column of the largest possible reward of each row's action, or None.
        logging_names: further columns that name the logging policy.
        estimators: names of estimators that need only sums over rows.
        precision: largest ratio of half the interval to the value with which a value is trusted.
    """

    reward: str
    propensity: str
    policies: Sequence[str]
    baseline: str | None
    compared: Sequence[str]
    clip: float
    missing: Mapping[str, str]
    facts: Facts
    limit: str | None = None
    logging_names: Sequence[str] = ()
    estimators: Sequence[str] = (LEADING,)
    precision: float = PRECISION

    def missing_mass(self, block: Block, name: str) -> NDArray[np.float64] | None:
        """Return a policy's probability of all actions that the logging policy never takes, by row.

        Returns:
            (n,) probabilities, 0 for the logging policy itself; None if they are unknown.
        """
        if name in self.missing:
            return block.columns[self.missing[name]]
        if name == self.propensity or name in self.logging_names:
            return np.zeros(len(block))
        return None

    def check_rewards(self, block: Block) -> None:
        """Raise UserError, with the row, for a reward outside the stated limits."""
        rewards = block.columns[self.reward]
        refuse_outside(rewards, self.facts.reward_min, self.facts.reward_max, self.reward, block.numbers)
        if self.limit is not None:
            limit_column(block.columns[self.limit], rewards, (self.reward, self.limit), block.numbers)

    def check(self, block: Block) -> None:
        """Raise UserError, with the row, for any invalid value."""
        columns = block.columns
        for name in self.policies:
            names = (self.reward, self.propensity, name)
            check_rows(columns[self.reward], columns[self.propensity], columns[name], names, block.numbers)
        self.check_rewards(block)
        for name, column in self.missing.items():
            missing_column(columns[column], columns[name], block.numbers)

    def clip_of(self, estimator: str) -> float:
        """Return the largest weight that an estimator uses; infinity if it does not clip."""
        if check_name(estimator).clips:
            return self.clip
        return math.inf


def _resolved(estimator: str) -> str:
    """Return the leading estimator in place of "auto", and any other name unchanged."""
    if estimator == AUTO:
        return LEADING
    return estimator


@dataclass
class Gathered:
    """Sums over the rows of a log from which all estimates of a question follow.

    Attributes:
        question: policies and estimators.
        shift: constant that is subtracted from each reward before it is weighted.
        policies: sums of each policy's weights.
        scores: sums of the scores of each policy and estimator.
        pairs: sums of the paired scores of each compared policy and its baseline, by policy and estimator.
        items: sums by item; None if items are unknown.
        repeats: sums over consecutive rows of users.
        copies: number of rows that are copies of earlier rows.
    """

    question: BlockQuestion
    shift: float
    policies: dict[str, PolicySums] = field(default_factory=dict)
    scores: dict[tuple[str, str], ScoreSums] = field(default_factory=dict)
    pairs: dict[tuple[str, str], PairSums] = field(default_factory=dict)
    items: ItemSums | None = None
    repeats: RepeatSums = field(default_factory=RepeatSums)
    copies: int = 0

    def value(self, policy: str, estimator: str, *, level: float) -> Estimate:
        """Estimate a policy's value as :func:`recsim_mnar.estimators.estimate_value` does from all rows."""
        name = _resolved(estimator)
        question = self.question
        sums = self.scores[policy, name]
        clip = question.clip_of(name)
        return value_of(sums, name, facts=question.facts, level=level, precision=question.precision, clip=clip)

    def difference(self, policy: str, estimator: str, *, level: float) -> Estimate:
        """Estimate a difference from the baseline as :func:`recsim_mnar.estimators.difference` does."""
        name = _resolved(estimator)
        question = self.question
        sums = self.pairs[policy, name]
        return difference_of(sums, name, facts=question.facts, level=level, clip=question.clip_of(name))

    def add(self, block: Block) -> None:
        """Add the rows of a block.

        Raises:
            UserError: an invalid value, with its row in the file.
        """
        question = self.question
        try:
            self._add_sums(block)
        except UserError:
            question.check(block)  # raises an error that names the row, which the estimators' error does not
            raise
        clusters = block.clusters
        if block.digest is not None:
            copies = n_repeats(block.digest)
            self.copies += copies
            if copies and clusters is not None:
                clusters = replace(clusters, again=repeats(block.digest))
        if block.action is not None and clusters is not None:
            columns = block.columns
            self.repeats.extend(columns[question.reward], columns[question.propensity], block.action, clusters)

    def _add_sums(self, block: Block) -> None:
        """Add the sums of a block, except ``repeats`` and ``copies``."""
        question = self.question
        question.check_rewards(block)
        columns = block.columns
        reward = columns[question.reward]
        propensity = columns[question.propensity]
        clusters = block.clusters
        scored: dict[tuple[str, str], tuple[Rows, Scores, ScoreSums]] = {}
        estimators = [_resolved(estimator) for estimator in question.estimators]
        for name in question.policies:
            missing = question.missing_mass(block, name)
            rows = Rows.of(reward, propensity, columns[name], clusters=clusters, shift=self.shift, missing=missing)
            policy = PolicySums.of_rows(rows, question.facts)
            _add(self.policies, name, policy)
            for estimator in estimators:
                info = check_name(estimator)
                clipped = replace(rows, clip=question.clip) if info.clips else rows
                scores = info.scores(clipped)
                score_sums = ScoreSums.of(scores, clipped, policy)
                _add(self.scores, (name, estimator), score_sums)
                scored[name, estimator] = clipped, scores, score_sums
        for name in question.compared:
            for estimator in estimators:
                of_baseline = scored[str(question.baseline), estimator]
                _add(self.pairs, (name, estimator), PairSums.of(scored[name, estimator], of_baseline))
        if block.action is not None:
            items = ItemSums.of(block.action, propensity, clusters)
            self.items = items if self.items is None else self.items + items


def _add(sums: dict[Any, Any], key: Any, further: Any) -> None:
    """Add further sums to those of a key, in place."""
    sums[key] = sums[key] + further if key in sums else further


def needs_all_rows(estimators: Sequence[str], interval: str) -> bool:
    """Return True if an estimator, or the kind of interval, needs all rows at once and not only sums over them."""
    return interval != "auto" or not all(check_name(_resolved(name)).in_blocks for name in estimators)


def gather_blocks(log: BanditLog, question: BlockQuestion) -> Gathered:
    """Gather the sums of a log block by block, equal bit by bit to those of all rows at once.

    The log is read once, and once more in two cases: if a reward is negative, because the smallest reward is subtracted
    from all of them, or if users do not come in ascending order.

    Raises:
        UserError: invalid values, with column and row.
    """
    in_order = True
    shift = question.facts.counted_from(math.inf)
    read = functools.partial(log.blocks, BLOCK_ROWS)
    while True:  # once more for each exception below, and if the shift was too large
        gathered = Gathered(question, shift)
        lowest = math.inf
        try:
            if in_order:
                blocks = cut_blocks(read())
            else:
                blocks = sorted_blocks(read(), SORTED_ROWS, log.users.ranks)
            for block in blocks:
                lowest = min(lowest, float(block.columns[question.reward].min()))
                if question.facts.counted_from(lowest) >= shift:
                    gathered.add(block)
                else:  # the shift is too large, and another pass follows; this one only finds the smallest reward
                    question.check_rewards(block)
        except OutOfOrderError:
            in_order = not log.out_of_order()
            continue
        except AgainError:  # the log itself has found that it must be read in another way
            continue
        if question.facts.counted_from(lowest) >= shift:
            return gathered
        shift = question.facts.counted_from(lowest)


class OutOfOrderError(Exception):
    """Raised if users do not come in ascending order."""


def cut_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Cut rows into blocks of whole users or, without users, of multiples of :data:`CHUNK` rows except the last.

    Sums then equal those of all rows at once, which are formed by user or by chunk. Only the rows of the user (or the
    chunk) that two blocks share are copied.

    Args:
        blocks: blocks of any sizes, in the order of the log.

    Raises:
        OutOfOrderError: the users' ids descend somewhere.
    """
    pending: list[Block] = []  # rows of one user, or of less than a chunk, that the next block may continue
    for block in blocks:
        start = _rows_of_pending(pending, block)
        if pending and start == len(block) and _may_continue(pending, block):
            pending.append(block)
            continue
        if pending:
            yield Block.concat([*pending, block[:start]])
        stop = _last_edge(block, start)
        if stop > start:
            yield block[start:stop]
        pending = []
        if stop < len(block):
            pending.append(block[stop:])
    if pending:
        yield Block.concat(pending)


def _rows_of_pending(pending: list[Block], block: Block) -> int:
    """Count a block's first rows that belong to the user, or chunk, of the pending rows.

    Raises:
        OutOfOrderError: the users' ids descend, from the pending rows to the block or within it.
    """
    if block.user is None:
        return min(-sum(map(len, pending)) % CHUNK, len(block))  # rows that are missing to the next multiple
    last_user = None
    if pending and pending[-1].user is not None:
        last_user = pending[-1].user[-1]
    descends = last_user is not None and block.user[0] < last_user
    if descends or not np.all(block.user[1:] >= block.user[:-1]):
        raise OutOfOrderError
    if last_user is None:
        return 0
    return int(np.searchsorted(block.user, last_user, side="right"))


def _may_continue(pending: list[Block], block: Block) -> bool:
    """Return True if the pending rows and this block may be continued by rows of the same user, or chunk."""
    return block.user is not None or (sum(map(len, pending)) + len(block)) % CHUNK > 0


def _last_edge(block: Block, start: int) -> int:
    """Find the last row of a block, from ``start`` on, before which it may be cut: the first row of its last user."""
    if block.user is None:
        return start + (len(block) - start) // CHUNK * CHUNK
    if start == len(block):
        return start
    return max(int(np.searchsorted(block.user, block.user[-1], side="left")), start)


class RowStore(ExitStack):
    """Rows in temporary files, one per column, so that the log is read once."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, IO[bytes]] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._columns: list[str] = []

    def append(self, block: Block) -> None:
        """Append the rows of a block.

        Raises:
            MachineError: no room for them.
        """
        self._columns = list(block.columns)
        fields = {name: getattr(block, name) for name in ("user", "numbers", "action", "digest")}
        arrays = {f"column {name}": values for name, values in block.columns.items()} | fields
        try:
            for name, values in arrays.items():
                if values is None:
                    continue
                if name not in self._files:
                    self._files[name] = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (the stack closes it)
                    self._dtypes[name] = values.dtype
                self._files[name].write(np.ascontiguousarray(values).data)
        except OSError as error:
            folder = tempfile.tempdir or "a temporary folder"  # gettempdir() would raise again if there is none
            raise MachineError(
                f"rows whose users come in no order are sorted in {folder}: {error.strerror}. "
                "Make room there, set TMPDIR to another folder, or sort the log by user"
            ) from None

    def array(self, name: str) -> NDArray[Any] | None:
        """Map a column (n,) into memory; return None if no block has it."""
        file = self._files.get(name)
        if file is None:
            return None
        file.flush()
        return np.memmap(file, self._dtypes[name], "r")

    def rows(self, places: NDArray[np.int64]) -> Block:
        """Read the rows at these places (n,), counted from the first row appended, as a block."""

        def values(name: str) -> Any:
            """Return the column's values in these rows, None without the column."""
            column = self.array(name)
            return None if column is None else np.asarray(column[places])

        columns = {name: values(f"column {name}") for name in self._columns}
        return Block(columns, *(values(name) for name in ("user", "numbers", "action", "digest")))


def sorted_blocks(blocks: Iterable[Block], rows: int, ranks: Callable[[], NDArray[np.int64] | None]) -> Iterator[Block]:
    """Yield the rows sorted by user, in blocks of whole users; the rows of each user keep their order.

    The rows are written to temporary files, and each block has a range of users, with about ``rows`` rows or, if one
    user has more, the rows of that user.

    Args:
        blocks: the rows, with users in any order.
        rows: number of rows to sort at a time.
        ranks: function that returns the rank of each user by its number, or None if the numbers are ranks; it is
            called after the last block, when all users are known.
    """
    with RowStore() as store:
        for block in blocks:
            store.append(block)
        numbers = store.array("user")
        if numbers is None:
            return
        rank = ranks()
        users = numbers if rank is None else rank[numbers]
        # The edges of ranges are quantiles of a sample of the users of rows, so that each has about as many rows.
        n_ranges = max(1, math.ceil(len(users) * _MARGIN / rows))
        sample = users[:: max(1, len(users) // _SAMPLES)]
        edges = np.unique(np.quantile(sample, np.arange(1, n_ranges) / n_ranges, method="lower"))
        lows = [users.min(), *edges]
        highs = [*edges, users.max() + 1]
        for low, high in zip(lows, highs, strict=True):
            selected = np.flatnonzero((users >= low) & (users < high))
            if len(selected):
                # Files are read in their order, and sorted in memory.
                block = replace(store.rows(selected), user=np.asarray(users[selected]))
                yield block[np.argsort(users[selected], kind="stable")]
