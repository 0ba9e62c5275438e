"""Estimates from a log read in blocks: sums by user are gathered block by block and no row is kept."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import PRECISION, Facts, check_rows, limit_column, missing_column, refuse_outside
from recsim_mnar.estimators.refuters import ItemSums
from recsim_mnar.estimators.repeats import RepeatSums
from recsim_mnar.estimators.scores import Rows, Scores, check_name
from recsim_mnar.estimators.sums import CHUNK, PolicySums, ScoreSums
from recsim_mnar.estimators.value import AUTO, LEADING, PairSums, difference_of, value_of
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.columns import Clusters
from recsim_mnar.progress import counted
from recsim_mnar.tables.parts import Parts
from recsim_mnar.tables.rows import AgainError, n_repeats, repeats

BLOCK_ROWS = 1 << 19
"""Rows that are read at a time."""
SORTED_ROWS = 1 << 21
"""Rows that are sorted at a time where users come in no order."""
_SAMPLES = 1 << 20
_MARGIN = 1.25


@dataclass(frozen=True)
class Block:
    """Consecutive bandit rows of a file.

    Attributes:
        columns: (n,) numbers by name.
        user: (n,) int64 ids of the users, or None.
        numbers: (n,) row numbers in the file, from 1 below the header.
        action: (n,) int64 ids of what was shown, or None if not needed.
        digest: (n,) equal for rows that are equal in the columns looked at for copies, or None if not needed.
    """

    columns: dict[str, NDArray[np.float64]]
    user: NDArray[np.int64] | None
    numbers: NDArray[np.int64]
    action: NDArray[np.int64] | None = None
    digest: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Block:
        other_columns = [None if column is None else column[rows] for column in (self.user, self.action, self.digest)]
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Block(columns, other_columns[0], self.numbers[rows], *other_columns[1:])

    @staticmethod
    def concat(blocks: Sequence[Block]) -> Block:
        """The rows of several blocks, concatenated."""
        if len(blocks) == 1:
            return blocks[0]

        def together(name: str) -> Any:
            columns = [getattr(block, name) for block in blocks]
            if columns[0] is None:
                return None
            return np.concatenate(columns)

        columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
        return Block(columns, *(together(name) for name in ("user", "numbers", "action", "digest")))


class BlockSource(Protocol):
    """A log that is read in blocks; :class:`recsim_mnar.own_log.bandit_log.BanditLog` is one."""

    @property
    def parts(self) -> Parts:
        """Its files."""

    @property
    def counts(self) -> Counter[str]:
        """Counts of the last pass over it."""

    def at(self, part: Path) -> BlockSource:
        """One of its files, read alike."""

    def blocks(self, rows: int) -> Iterator[Block]:
        """Its rows, some at a time; AgainError where another pass is necessary."""

    def out_of_order(self) -> bool:
        """Take note that users are not in ascending order; whether their rows must be sorted."""


@dataclass(frozen=True)
class BlockQuestion:
    """A question to a log that comes in blocks.

    Attributes:
        reward: column of rewards.
        propensity: column of propensities; as a policy it is the one that logged the rows.
        policies: columns of policies.
        baseline: one of them, or None.
        compared: those that are compared with the baseline.
        clip: of the clipped estimators.
        missing: by policy, the column of its mass where the logging probability is 0.
        facts: of the log.
        clustered: whether blocks have users.
        limit: column of the largest reward possible of each row's action, or None.
        today: policies that are the one that logged the rows, by whatever name.
        estimators: names, of such as need no more than a block.
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
    clustered: bool
    limit: str | None = None
    today: Sequence[str] = ()
    estimators: Sequence[str] = (LEADING,)
    precision: float = PRECISION


def _named(estimator: str) -> str:
    if estimator == AUTO:
        return LEADING
    return estimator


@dataclass
class Gathered:
    """Sums of every policy, of its scores and of compared pairs, and over users' rows in their order.

    Attributes:
        question: what is asked.
        shift: reward from which rewards are counted.
        policies: sums by policy.
        scores: by policy and estimator.
        pairs: by policy that is compared, and estimator.
        items: sums by item; None where items are not known.
        repeats: what rows say in their order.
        copies: rows that repeat others.
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
        """The estimate of a policy's value, as :func:`recsim_mnar.estimators.estimate_value` of all rows."""
        name = _named(estimator)
        question = self.question
        clip = math.inf
        if check_name(name).clips:
            clip = question.clip
        scored = self.scores[policy, name]
        return value_of(scored, name, facts=question.facts, level=level, precision=question.precision, clip=clip)

    def difference(self, policy: str, estimator: str, *, level: float) -> Estimate:
        """The estimate of its difference from the baseline, as :func:`recsim_mnar.estimators.difference`."""
        name = _named(estimator)
        clip = math.inf
        if check_name(name).clips:
            clip = self.question.clip
        return difference_of(self.pairs[policy, name], name, facts=self.question.facts, level=level, clip=clip)

    def add(self, block: Block) -> None:
        """Add the rows of a block; an invalid value is reported with its row in the file."""
        try:
            more = self._of_block(block)
        except UserError:
            _refuse(self.question, block)
            raise
        clusters = None
        if block.user is not None:
            clusters = Clusters(block.user, None)
        if block.digest is not None and (number := n_repeats(block.digest)):
            self.copies += number
            if clusters is None:
                clusters = None
            else:
                clusters = replace(clusters, again=repeats(block.digest))
        if block.action is not None and clusters is not None:
            columns = block.columns[self.question.reward], block.columns[self.question.propensity]
            self.repeats.extend(*columns, block.action, clusters)
        self._merge(more)

    def _of_block(self, block: Block) -> Gathered:
        """The sums of a block, but for what rows say in their order."""
        question = self.question
        columns = block.columns
        _check_stated(question, block)
        more = Gathered(question, self.shift)
        clusters = None
        if block.user is not None:
            clusters = Clusters(block.user, None)
        r = columns[question.reward]
        p = columns[question.propensity]
        of_policy: dict[tuple[str, str], tuple[Rows, Scores, ScoreSums]] = {}
        for name in question.policies:
            missing = _missing(question, block, name)
            rows = Rows.of(r, p, columns[name], clusters=clusters, shift=self.shift, missing=missing)
            policy = more.policies[name] = PolicySums.of_rows(rows, question.facts)
            for estimator in map(_named, question.estimators):
                info = check_name(estimator)
                clipped = rows
                if info.clips:
                    clipped = replace(rows, clip=question.clip)
                scores = info.scores(clipped)
                more.scores[name, estimator] = ScoreSums.of(scores, clipped, policy)
                of_policy[name, estimator] = clipped, scores, more.scores[name, estimator]
        for name in question.compared:
            for estimator in map(_named, question.estimators):
                both = of_policy[name, estimator], of_policy[str(question.baseline), estimator]
                more.pairs[name, estimator] = PairSums.of(*both)
        if block.action is not None:
            more.items = ItemSums.of(block.action, p, clusters)
        return more

    def _merge(self, other: Gathered) -> None:
        """Add the sums of other rows, which share no user, in place; but for what rows say in their order."""
        if not self.policies:
            self.policies = other.policies
            self.scores = other.scores
            self.pairs = other.pairs
            self.items = other.items
            return
        self.policies = {name: sums + other.policies[name] for name, sums in self.policies.items()}
        self.scores = {key: scored + other.scores[key] for key, scored in self.scores.items()}
        self.pairs = {key: pair + other.pairs[key] for key, pair in self.pairs.items()}
        if other.items is not None:
            if self.items is None:
                self.items = other.items
            else:
                self.items = self.items + other.items

    def __add__(self, other: Gathered) -> Gathered:
        """Add the sums of further rows; no user may be in both."""
        both = Gathered(self.question, self.shift, self.policies, self.scores, self.pairs, self.items)
        both._merge(other)
        both.repeats = self.repeats + other.repeats
        both.copies = self.copies + other.copies
        return both


def _missing(question: BlockQuestion, block: Block, name: str) -> NDArray[np.float64] | None:
    if name in question.missing:
        return block.columns[question.missing[name]]
    # The policy that logged the rows takes nothing that it cannot take.
    if name == question.propensity or name in question.today:
        return np.zeros(len(block))
    return None


def _check_stated(question: BlockQuestion, block: Block) -> None:
    facts = question.facts
    columns = block.columns
    refuse_outside(columns[question.reward], facts.reward_min, facts.reward_max, question.reward, block.numbers)
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


def needs_all_rows(estimators: Sequence[str], interval: str) -> bool:
    """True if part of a question needs all rows at once."""
    return interval != "auto" or not all(name == AUTO or check_name(name).in_blocks for name in estimators)


def gather_blocks(log: BlockSource, question: BlockQuestion) -> Gathered:
    """Gather sums with the bits of all rows at once.

    The log is read once; again where rewards turn out to be negative (they are counted from the least of them), and in
    several passes where users do not come in ascending order.

    Raises:
        UserError: values that are no data, with column and row.
    """
    in_order = True
    shift = question.facts.counted_from(math.inf)
    while True:
        gathered = Gathered(question, shift)
        lowest = math.inf
        blocks = functools.partial(log.blocks, BLOCK_ROWS)
        try:
            for block in cut_blocks(blocks()) if in_order else sorted_blocks(blocks, SORTED_ROWS):
                lowest = min(lowest, float(block.columns[question.reward].min()))
                if question.facts.counted_from(lowest) >= shift:  # else these sums are of no use
                    gathered.add(block)
                else:
                    _check_stated(question, block)
        except OutOfOrderError:
            in_order = not log.out_of_order()
            continue
        except AgainError:
            continue
        if question.facts.counted_from(lowest) >= shift:
            return gathered
        shift = question.facts.counted_from(lowest)


class OutOfOrderError(Exception):
    """Users do not come in ascending order."""


def cut_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same rows in blocks that divide no user or, without users, of a multiple of 16,384 rows but for the last.

    Few rows are copied: those of the user (or the chunk) that a block divides.

    Raises:
        OutOfOrderError: the users' ids descend somewhere.
    """
    kept: list[Block] = []  # rows of one user, or of less than a chunk
    for block in blocks:
        first = _ends_here(kept, block)
        if kept and first == len(block) and _goes_on(kept, block):
            kept.append(block)
            continue
        if kept:
            yield Block.concat([*kept, block[:first]])
        last = _last_edge(block, first)
        if last > first:
            yield block[first:last]
        kept = []
        if last < len(block):
            kept = [block[last:]]
    if kept:
        yield Block.concat(kept)


def _ends_here(kept: list[Block], block: Block) -> int:
    """Number of a block's first rows that belong to the rows kept before."""
    if block.user is None:
        return min(-sum(len(entry) for entry in kept) % CHUNK, len(block))
    before = kept[-1].user if kept else None
    if (before is not None and block.user[0] < before[-1]) or not np.all(block.user[1:] >= block.user[:-1]):
        raise OutOfOrderError
    if before is None:
        return 0
    return int(np.searchsorted(block.user, before[-1], side="right"))


def _goes_on(kept: list[Block], block: Block) -> bool:
    """True if all rows of a block belong to the rows kept before, and more may follow."""
    return block.user is not None or (sum(len(entry) for entry in kept) + len(block)) % CHUNK > 0


def _last_edge(block: Block, first: int) -> int:
    """The last place of a block, from ``first`` on, at which it may be cut."""
    if block.user is None:
        return first + (len(block) - first) // CHUNK * CHUNK
    if first == len(block):
        return first
    return max(int(np.searchsorted(block.user, block.user[-1], side="left")), first)


def sorted_blocks(blocks: Callable[[], Iterable[Block]], rows: int) -> Iterator[Block]:
    """Rows whose users come in any order, user by user, each user's in theirs: a range of ids at a time.

    The log is read once to see how ids are spread, and once more for every range; all but one of them have about
    ``rows`` rows or, where one user has more, as many as that user.
    """
    n, sample = _sampled(blocks())
    n_ranges = max(1, int(np.ceil(n * _MARGIN / rows)))
    edges = np.unique(np.quantile(sample, np.arange(1, n_ranges) / n_ranges, method="lower")).tolist()
    lows = [None, *map(int, edges)]
    for low, high in zip(lows, [*lows[1:], None], strict=True):
        result = []
        for block in blocks():
            user = block.user
            assert user is not None
            inside = np.ones(len(block), np.bool_)
            if low is not None:
                inside &= user >= low
            if high is not None:
                inside &= user < high
            if inside.any():
                result.append(block if inside.all() else block[inside])
        if result:
            together = Block.concat(result)
            assert together.user is not None
            yield together[np.argsort(together.user, kind="stable")]


def _sampled(blocks: Iterable[Block]) -> tuple[int, NDArray[np.int64]]:
    """The number of rows, and a sample of user ids spread evenly over them."""
    n = 0
    every = 1
    sample = np.zeros(0, np.int64)
    for block in blocks:
        assert block.user is not None
        sample = np.concatenate([sample, block.user[-n % every :: every]])
        n += len(block)
        while len(sample) > _SAMPLES:
            sample = sample[::2]
            every = every * 2
    return n, sample


RunInOrder = Callable[[Iterable[Callable[[], "PartFound | None"]], Executor], Iterable["PartFound | None"]]


@dataclass(frozen=True)
class PartFound:
    """Contents of a part.

    Attributes:
        gathered: its sums; None where it has no bandit rows.
        lowest: of its rewards.
        users: the first and the last.
        counts: as the log's own.
    """

    gathered: Gathered | None
    lowest: float
    users: tuple[int, int]
    counts: Counter[str]


def gather_parts(
    log: BlockSource, question: BlockQuestion, executor: Executor, run_in_order: RunInOrder
) -> Gathered | None:
    """Sums of all parts, read side by side; None where they must be read one after another.

    A job names a part and hands back sums, whose size does not depend on the log. Parts must be read one after
    another where rows have no users (then chunks of rows go over from one part to the next), where users are not in
    ascending order or in two parts, and where something is wrong with a row, whose number in the whole log is named.

    Args:
        log: the log.
        question: what is asked.
        executor: of the jobs.
        run_in_order: :func:`recsim_mnar.simulation.executor.run_in_order`.
    """
    if not question.clustered or len(log.parts) < 2:
        return None
    shift = question.facts.counted_from(math.inf)
    start = _first_items(log, question)
    while True:
        ask = functools.partial(_gather_part, log, question, shift, start)
        advance = counted(len(log.parts), "parts")
        result: list[PartFound] = []
        counts: Counter[str] = Counter()
        jobs = (functools.partial(ask, path.absolute()) for path in log.parts.files)
        for part in run_in_order(jobs, executor):
            if part is None:
                return None
            advance(1)
            counts += part.counts
            if part.gathered is not None:
                result.append(part)
        if not result or any(a.users[1] >= b.users[0] for a, b in itertools.pairwise(result)):
            return None
        needed = question.facts.counted_from(min(part.lowest for part in result))
        if needed >= shift:
            log.counts.clear()
            log.counts.update(counts)
            parts = [part.gathered for part in result if part.gathered is not None]
            return functools.reduce(lambda one, other: one + other, parts)
        shift = needed


def _first_items(log: BlockSource, question: BlockQuestion) -> RepeatSums:
    """The items of the log's first block; none where its first rows cannot be read, which its part says then."""
    for path in log.parts.files:
        part = log.at(path.absolute())
        first = Gathered(question, question.facts.counted_from(-math.inf))
        try:
            for block in cut_blocks(part.blocks(BLOCK_ROWS)):
                first.add(block)
                return first.repeats.empty()
        except (OutOfOrderError, AgainError, UserError):
            break
    return RepeatSums()


def _gather_part(
    log: BlockSource, question: BlockQuestion, shift: float, start: RepeatSums, path: Path
) -> PartFound | None:
    """On a worker: the sums of one part; None where it cannot stand alone."""
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
    if users:
        ends = (users[0], users[-1])
    else:
        ends = (0, 0)
    return PartFound(gathered if users else None, lowest, ends, part.counts)


Gather = Callable[[BlockSource, BlockQuestion], Gathered | None]
