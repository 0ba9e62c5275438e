"""Blocks of rows cut so that moments gathered from one after another have the bits of all rows gathered at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.column_files import Block

CHUNK = 16384
"""Rows a chunk of rows without users, as in ``_moments_kernel``."""
_SAMPLES = 1 << 20
_MARGIN = 1.25


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
        kept = [block[last:]] if last < len(block) else []
    if kept:
        yield Block.concat(kept)


def _ends_here(kept: list[Block], block: Block) -> int:
    """How many of a block's first rows belong to what was kept."""
    if block.user is None:
        return min(-sum(len(each) for each in kept) % CHUNK, len(block))
    _check_order(kept, block.user)
    if not kept:
        return 0
    before = kept[-1].user
    assert before is not None
    return int(np.searchsorted(block.user, before[-1], side="right"))


def _goes_on(kept: list[Block], block: Block) -> bool:
    """Whether all of a block's rows belong to what was kept, and more may follow."""
    return block.user is not None or (sum(len(each) for each in kept) + len(block)) % CHUNK > 0


def _last_edge(block: Block, first: int) -> int:
    """The last place of a block, from ``first`` on, at which it may be cut."""
    if block.user is None:
        return first + (len(block) - first) // CHUNK * CHUNK
    if first == len(block):
        return first
    return max(int(np.searchsorted(block.user, block.user[-1], side="left")), first)


def _check_order(kept: list[Block], user: NDArray[np.int64]) -> None:
    before = kept[-1].user if kept else None
    if (before is not None and user[0] < before[-1]) or not np.all(user[1:] >= user[:-1]):
        raise OutOfOrderError


def sorted_blocks(blocks: Callable[[], Iterable[Block]], rows: int) -> Iterator[Block]:
    """Rows whose users come in any order, user by user, each user's in theirs: a range of ids at a time.

    The log is read once to see how ids lie, and once more for every range; all but one of them have about ``rows``
    rows or, where one user has more, as many as that user.
    """
    n, sample = _sampled(blocks())
    n_ranges = max(1, int(np.ceil(n * _MARGIN / rows)))
    edges = np.unique(np.quantile(sample, np.arange(1, n_ranges) / n_ranges, method="lower")).tolist()
    lows = [None, *map(int, edges)]
    for low, high in zip(lows, [*lows[1:], None], strict=True):
        found = []
        for block in blocks():
            user = block.user
            assert user is not None
            inside = np.ones(len(block), np.bool_)
            if low is not None:
                inside &= user >= low
            if high is not None:
                inside &= user < high
            if inside.any():
                found.append(block if inside.all() else block[inside])
        if found:
            together = Block.concat(found)
            assert together.user is not None
            yield together[np.argsort(together.user, kind="stable")]


def _sampled(blocks: Iterable[Block]) -> tuple[int, NDArray[np.int64]]:
    """How many rows there are, and some of the users' ids, evenly spread over them."""
    n, every, sample = 0, 1, np.zeros(0, np.int64)
    for block in blocks:
        assert block.user is not None
        sample = np.concatenate([sample, block.user[-n % every :: every]])
        n += len(block)
        while len(sample) > _SAMPLES:
            sample, every = sample[::2], every * 2
    return n, sample
