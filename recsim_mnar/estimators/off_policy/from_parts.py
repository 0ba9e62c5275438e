"""Estimates of a log whose parts are read side by side: each worker gathers the moments of a part that it is told of.

A job names a part by its path and hands back moments, whose size does not depend on the log; the worker holds the part
against its receipt. Moments of parts add up to those of the whole, where no user is in two of them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.blocks import OutOfOrderError, cut_blocks
from recsim_mnar.estimators.off_policy.from_blocks import BlockQuestion, Gathered, add_block, start_gathering
from recsim_mnar.log.column_files import LogFile
from recsim_mnar.progress import counted

RunInOrder = Callable[[Iterable[Callable[[], "PartFound | None"]], Executor], Iterable["PartFound | None"]]


@dataclass(frozen=True)
class PartFound:
    """What a part holds.

    Attributes:
        gathered: its moments; None where it has no bandit rows.
        lowest: of its rewards.
        users: the first and the last.
    """

    gathered: Gathered | None
    lowest: float
    users: tuple[int, int]


def gather_parts(
    file: LogFile, question: BlockQuestion, rows: int, executor: Executor, run_in_order: RunInOrder
) -> Gathered | None:
    """Moments of all parts; None where they must be read one after another.

    That is so where rows have no users (then chunks of rows go over from one part to the next), users are not in
    ascending order or in two parts, or something is wrong with a row, whose number in the whole log is to be named.

    Args:
        file: the log.
        question: what is asked.
        rows: that are read at a time.
        executor: of the jobs.
        run_in_order: :func:`recsim_mnar.simulation.executor.run_in_order`.
    """
    if file.cluster is None or len(file.parts.files) < 2:
        return None
    given = question.stated.reward_min
    least = 0.0 if given is None else float(given)
    while True:
        ask = functools.partial(_gather_part, list(file.names), file.cluster, question, least, rows)
        advance = counted(len(file.parts.files), "parts")
        found: list[PartFound] = []
        for each in run_in_order((functools.partial(ask, path.absolute()) for path in file.parts.files), executor):
            if each is None:
                return None
            advance(1)
            if each.gathered is not None:
                found.append(each)
        if not found or any(a.users[1] >= b.users[0] for a, b in itertools.pairwise(found)):
            return None
        lowest = min(each.lowest for each in found)
        if given is not None or not lowest < least:
            return functools.reduce(_merged, (each.gathered for each in found if each.gathered is not None))
        least = lowest


def _gather_part(
    names: Sequence[str], cluster: str, question: BlockQuestion, least: float, rows: int, path: Path
) -> PartFound | None:
    """On a worker: the moments of one part; None where it cannot stand alone."""
    given = question.stated.reward_min
    gathered = start_gathering(question, least)
    lowest, users = math.inf, []
    try:
        file = LogFile.open(path, names, cluster=cluster, reward=question.reward, propensity=question.propensity)
        for block in cut_blocks(file.blocks(rows)):
            lowest = min(lowest, float(block.columns[question.reward].min()))
            assert block.user is not None
            users += [int(block.user[0]), int(block.user[-1])]
            if given is not None or not lowest < least:
                add_block(gathered, block)
    except (OutOfOrderError, UserError):
        return None
    return PartFound(gathered, lowest, (users[0], users[-1])) if users else PartFound(None, lowest, (0, 0))


def _merged(one: Gathered, other: Gathered) -> Gathered:
    moments = {name: one.moments[name] + other.moments[name] for name in one.moments}
    baseline = one.question.baseline
    pairs = {
        name: one.pairs[name].merged(other.pairs[name], moments[name], moments[str(baseline)]) for name in one.pairs
    }
    orders = {name: one.orders[name] + other.orders[name] for name in one.orders}
    return Gathered(one.question, moments, pairs, orders)
