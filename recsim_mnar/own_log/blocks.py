"""Estimate from a log read in blocks: gather sums by user block by block, without keeping rows."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
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
from recsim_mnar.progress import counted
from recsim_mnar.tables.rows import AgainError, n_repeats, repeats

SORTED_ROWS = 1 << 21
"""Rows sorted at a time if users come in no order."""
_SAMPLES = 1 << 20
_MARGIN = 1.25


@dataclass(frozen=True)
class BlockQuestion:
    """Policies to estimate from a log that is read in blocks, and how.

    Attributes:
        reward: column of rewards.
        propensity: column of propensities; as a policy it is the one that logged the rows.
        policies: columns of policies.
        baseline: one of them, or None.
        compared: those that are compared with the baseline.
        clip: largest weight of the clipped estimators.
        missing: by policy, the column of its mass where the logging probability is 0.
        facts: known facts about the log.
        limit: column of the largest possible reward of each row's action, or None.
        today: further names of the policy that logged the rows.
        estimators: names of estimators that need only moments.
        precision: half the interval over the value up to which a value is trusted.
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
    today: Sequence[str] = ()
    estimators: Sequence[str] = (LEADING,)
    precision: float = PRECISION

    def missing_mass(self, block: Block, name: str) -> NDArray[np.float64] | None:
        """Return a policy's mass (n,) where the logging probability is 0, None if unknown; 0 for the logging policy."""
        if name in self.missing:
            return block.columns[self.missing[name]]
        if name == self.propensity or name in self.today:
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
        """Return the largest weight of an estimator."""
        if check_name(estimator).clips:
            return self.clip
        return math.inf


def _resolved(estimator: str) -> str:
    """Return the estimator that "auto" stands for; any other name as it is."""
    if estimator == AUTO:
        return LEADING
    return estimator


@dataclass
class Gathered:
    """Sums for the estimates of a question.

    Attributes:
        question: policies and estimators.
        shift: reward from which rewards are counted.
        policies: sums by policy.
        scores: sums by policy and estimator.
        pairs: sums by policy that is compared, and estimator.
        items: sums by item; None if items are not known.
        repeats: sums over consecutive rows of users.
        copies: number of rows that repeat others.
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
            more = self._of_block(block)
        except UserError:
            question.check(block)
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
        self._merge(more)

    def _of_block(self, block: Block) -> Gathered:
        """Compute the sums of a block, except those over consecutive rows."""
        question = self.question
        question.check_rewards(block)
        columns = block.columns
        reward = columns[question.reward]
        propensity = columns[question.propensity]
        clusters = block.clusters
        sums = Gathered(question, self.shift)
        scored: dict[tuple[str, str], tuple[Rows, Scores, ScoreSums]] = {}
        estimators = [_resolved(estimator) for estimator in question.estimators]
        for name in question.policies:
            missing = question.missing_mass(block, name)
            rows = Rows.of(reward, propensity, columns[name], clusters=clusters, shift=self.shift, missing=missing)
            policy = PolicySums.of_rows(rows, question.facts)
            sums.policies[name] = policy
            for estimator in estimators:
                info = check_name(estimator)
                clipped = replace(rows, clip=question.clip) if info.clips else rows
                scores = info.scores(clipped)
                score_sums = ScoreSums.of(scores, clipped, policy)
                sums.scores[name, estimator] = score_sums
                scored[name, estimator] = clipped, scores, score_sums
        for name in question.compared:
            for estimator in estimators:
                pair = scored[name, estimator], scored[str(question.baseline), estimator]
                sums.pairs[name, estimator] = PairSums.of(*pair)
        if block.action is not None:
            sums.items = ItemSums.of(block.action, propensity, clusters)
        return sums

    def _merge(self, other: Gathered) -> None:
        """Add sums of rows with other users in place, except those over consecutive rows."""
        for name in ("policies", "scores", "pairs"):
            sums = getattr(self, name)
            for key, more in getattr(other, name).items():
                sums[key] = sums[key] + more if key in sums else more
        if self.items is None or other.items is None:
            self.items = self.items or other.items
        else:
            self.items = self.items + other.items

    def __add__(self, other: Gathered) -> Gathered:
        """Add the sums of further rows; no user may be in both."""
        both = Gathered(self.question, self.shift)
        both._merge(self)
        both._merge(other)
        both.repeats = self.repeats + other.repeats
        both.copies = self.copies + other.copies
        return both


def needs_all_rows(estimators: Sequence[str], interval: str) -> bool:
    """Return whether an estimator, or the interval, needs all rows at once."""
    return interval != "auto" or not all(check_name(_resolved(name)).in_blocks for name in estimators)


def gather_blocks(log: BanditLog, question: BlockQuestion) -> Gathered:
    """Gather sums that are equal, bit by bit, to those of all rows at once.

    The log is read once; again if rewards turn out to be negative (they are counted from the smallest), or if users do
    not come in ascending order.

    Raises:
        UserError: invalid values, with column and row.
    """
    in_order = True
    shift = question.facts.counted_from(math.inf)
    read = functools.partial(log.blocks, BLOCK_ROWS)
    while True:
        gathered = Gathered(question, shift)
        lowest = math.inf
        try:
            for block in cut_blocks(read()) if in_order else sorted_blocks(read(), SORTED_ROWS, log.user_ranks):
                lowest = min(lowest, float(block.columns[question.reward].min()))
                if question.facts.counted_from(lowest) >= shift:  # otherwise another pass follows
                    gathered.add(block)
                else:
                    question.check_rewards(block)
        except OutOfOrderError:
            in_order = not log.out_of_order()
            continue
        except AgainError:
            continue
        if question.facts.counted_from(lowest) >= shift:
            return gathered
        shift = question.facts.counted_from(lowest)


class OutOfOrderError(Exception):
    """Raised if users do not come in ascending order."""


def cut_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Cut rows into blocks of whole users or, without users, of multiples of 16,384 rows except the last.

    Few rows are copied: those of the user (or the chunk) that a block divides.

    Raises:
        OutOfOrderError: the users' ids descend somewhere.
    """
    pending: list[Block] = []  # rows of one user, or of less than a chunk
    for block in blocks:
        first = _rows_of_pending(pending, block)
        if pending and first == len(block) and _may_continue(pending, block):
            pending.append(block)
            continue
        if pending:
            yield Block.concat([*pending, block[:first]])
        last = _last_edge(block, first)
        if last > first:
            yield block[first:last]
        pending = []
        if last < len(block):
            pending.append(block[last:])
    if pending:
        yield Block.concat(pending)


def _rows_of_pending(pending: list[Block], block: Block) -> int:
    """Count a block's first rows that belong to the user, or chunk, of the pending rows."""
    if block.user is None:
        return min(-sum(map(len, pending)) % CHUNK, len(block))
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
    """Return whether the next block may have more rows of the same user, or chunk."""
    return block.user is not None or (sum(map(len, pending)) + len(block)) % CHUNK > 0


def _last_edge(block: Block, first: int) -> int:
    """Find the last place of a block, from ``first`` on, at which it may be cut."""
    if block.user is None:
        return first + (len(block) - first) // CHUNK * CHUNK
    if first == len(block):
        return first
    return max(int(np.searchsorted(block.user, block.user[-1], side="left")), first)


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
            raise MachineError(
                f"rows whose users come in no order are sorted in {tempfile.gettempdir()}: {error.strerror}. "
                "Make room there, set TMPDIR to another folder, or sort the log by user"
            ) from None

    def array(self, name: str) -> NDArray[Any] | None:
        """Map a column (n,) into memory; None where no block has it."""
        file = self._files.get(name)
        if file is None:
            return None
        file.flush()
        return np.memmap(file, self._dtypes[name], "r")

    def rows(self, places: NDArray[np.int64]) -> Block:
        """Read the rows (n,) at these places as a block."""

        def values(name: str) -> Any:
            column = self.array(name)
            return None if column is None else np.asarray(column[places])

        columns = {name: values(f"column {name}") for name in self._columns}
        return Block(columns, *(values(name) for name in ("user", "numbers", "action", "digest")))


def sorted_blocks(blocks: Iterable[Block], rows: int, ranks: Callable[[], NDArray[np.int64] | None]) -> Iterator[Block]:
    """Yield rows user by user where users come in any order, each user's rows in theirs.

    The rows are written to a temporary file. Each block has a range of users, with about ``rows`` rows or, where one
    user has more, those of that user.

    Args:
        blocks: the rows.
        rows: how many to sort at a time.
        ranks: called after the last block, the place of each user's number in the order of users; None for the
            numbers' own order.
    """
    with RowStore() as store:
        for block in blocks:
            store.append(block)
        numbers = store.array("user")
        if numbers is None:
            return
        rank = ranks()
        users = numbers if rank is None else rank[numbers]
        n_ranges = max(1, math.ceil(len(users) * _MARGIN / rows))
        sample = users[:: max(1, len(users) // _SAMPLES)]
        edges = np.unique(np.quantile(sample, np.arange(1, n_ranges) / n_ranges, method="lower"))
        lows = [users.min(), *edges]
        highs = [*edges, users.max() + 1]
        for low, high in zip(lows, highs, strict=True):
            places = np.flatnonzero((users >= low) & (users < high))
            if len(places):
                places = places[np.argsort(users[places], kind="stable")]
                yield replace(store.rows(places), user=np.asarray(users[places]))


RunInOrder = Callable[[Iterable[Callable[[], "PartSums | None"]], Executor], Iterable["PartSums | None"]]


@dataclass(frozen=True)
class PartSums:
    """Sums of one part of a log.

    Attributes:
        gathered: the sums; None without decisions.
        lowest: smallest reward.
        users: the first and the last user.
        counts: counts of the pass over the part.
    """

    gathered: Gathered | None
    lowest: float
    users: tuple[int, int]
    counts: Counter[str]


def gather_parts(
    log: BanditLog, question: BlockQuestion, executor: Executor, run_in_order: RunInOrder
) -> Gathered | None:
    """Gather the sums of all parts in parallel; None if they must be read one after another.

    A job reads one part and returns sums, whose size does not depend on the log. Parts must be read one after another
    if rows have no users (chunks of rows then continue in the next part), if users are not in ascending order or in two
    parts, and if a row is faulty, whose number in the whole log is reported.

    Args:
        log: the log.
        question: policies and estimators.
        executor: runs the jobs.
        run_in_order: :func:`recsim_mnar.simulation.executor.run_in_order`.
    """
    if "user" not in log.columns or len(log.parts) < 2:
        return None
    shift = question.facts.counted_from(math.inf)
    start = _first_items(log, question)
    while True:
        gather = functools.partial(_gather_part, log, question, shift, start)
        advance = counted(len(log.parts), "parts")
        parts: list[PartSums] = []
        counts: Counter[str] = Counter()
        jobs = (functools.partial(gather, path.absolute()) for path in log.parts.files)
        for part in run_in_order(jobs, executor):
            if part is None:
                return None
            advance(1)
            counts += part.counts
            if part.gathered is not None:
                parts.append(part)
        if not parts or any(part.users[1] >= following.users[0] for part, following in itertools.pairwise(parts)):
            return None
        needed = question.facts.counted_from(min(part.lowest for part in parts))
        if needed >= shift:
            log.counts.clear()
            log.counts.update(counts)
            return functools.reduce(operator.add, [part.gathered for part in parts])
        shift = needed


def _first_items(log: BanditLog, question: BlockQuestion) -> RepeatSums:
    """Return empty sums with the items of the log's first block; without items if that cannot be read."""
    part = log.at(log.parts.files[0].absolute())
    first = Gathered(question, question.facts.counted_from(-math.inf))
    try:
        for block in cut_blocks(part.blocks(BLOCK_ROWS)):
            first.add(block)
            return first.repeats.empty()
    except (OutOfOrderError, AgainError, UserError):
        pass
    return RepeatSums()


def _gather_part(
    log: BanditLog, question: BlockQuestion, shift: float, start: RepeatSums, path: Path
) -> PartSums | None:
    """Gather the sums of one part on a worker; None if it cannot be read by itself."""
    gathered = Gathered(question, shift)
    gathered.repeats = start.empty()
    lowest = math.inf
    users = []
    try:
        part = log.at(path)
        for block in cut_blocks(part.blocks(BLOCK_ROWS)):
            lowest = min(lowest, float(block.columns[question.reward].min()))
            assert block.user is not None
            users += [int(block.user[0]), int(block.user[-1])]
            if question.facts.counted_from(lowest) >= shift:
                gathered.add(block)
    except (OutOfOrderError, AgainError, UserError):
        return None
    if not users:
        return PartSums(None, lowest, (0, 0), part.counts)
    return PartSums(gathered, lowest, (users[0], users[-1]), part.counts)


Gather = Callable[[BanditLog, BlockQuestion], Gathered | None]
