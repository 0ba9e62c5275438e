"""The A/B test of the purchases world: lists are shown to half of the users."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.protocols.ab_test import ABTest, judged
from recsim_mnar.protocols.base import Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.worlds.base import ExposureWorld

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EVERYTHING = "purchases"
"""The metric that counts all purchases and not only those of listed items."""

_BATCH_CELLS = 1 << 22


def ab_test(
    world: ExposureWorld,
    lists: Mapping[str, Ints],
    users_seed: int,
    periods: Sequence[int],
    *,
    seed: int,
    level: float = 0.95,
    paired: bool = False,
    executor: Executor | None = None,
) -> list[Record]:
    """Show lists to half of the users, drawn anew for each agent, and nothing to the others.

    ``uplift@N``: purchases of the listed items, an item and period, in the arm that is shown them, less those of the
    items that would have been listed in the arm that is not. ``purchases``: all purchases a user and period, likewise,
    as a till would count them: the same effect times N, among the noise of everything else that is bought. The control
    arm is shown nothing, so both estimate Y^T - Y^C and not the difference from the deployed recommender.

    Args:
        world: its outcomes answer what users buy, shown or not shown.
        lists: (U, N) items of users 0 .. U - 1, by agent.
        users_seed: of the users.
        periods: in which the test runs.
        seed: of the split.
        level: of the intervals.
        paired: every user is in both arms, which only a simulator can do.
        executor: to spread periods over.
    """
    began = time.perf_counter()
    one = carrying(one_period, world, lists, users_seed)
    jobs = [functools.partial(one, t) for t in periods]
    sums = functools.reduce(np.add, run_in_order(jobs, executor))
    seconds = (time.perf_counter() - began) / len(lists)
    records = []
    for name, own in zip(lists, sums, strict=True):
        shown_items, other_items, shown_all, other_all = own / len(periods)
        drawn = uniforms(derive_seed(seed, f"ab_test/{name}"), Stream.PROTOCOL, np.arange(len(shown_all)), 0)
        arms = (drawn < 0.5, drawn >= 0.5)
        length = lists[name].shape[1]
        for metric, y, rest in ((f"uplift@{length}", shown_items / length, other_items / length),
                                (EVERYTHING, shown_all, other_all)):  # fmt: skip
            if paired:
                value, low, high = _mean_interval([y - rest], level)
            else:
                value, low, high = _mean_interval([y[arms[0]], -rest[arms[1]]], level)
            treated = int(arms[0].sum())
            users = len(drawn) if paired else min(treated, len(drawn) - treated)
            found = judged(users, abs(value), low, high)
            details = {"users": len(drawn), "treated": treated, "paired": paired, **found.to_dict()}
            n = len(drawn) * len(periods)
            records.append(
                Record(
                    world=world.name,
                    protocol="ab_test",
                    agent=name,
                    metric=metric,
                    value=value,
                    low=low,
                    high=high,
                    level=level,
                    n=n,
                    seconds=seconds,
                    details=details,
                )
            )
    return records


def one_period(world: ExposureWorld, lists: Mapping[str, Ints], users_seed: int, period: int) -> Floats:
    """(A, 4, U) purchases of listed items shown, of the same not shown, of everything with and without the list."""
    n_users = len(next(iter(lists.values())))
    out = np.empty((len(lists), 4, n_users))
    step = max(1, _BATCH_CELLS // world.n_items)
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        control, treated = world.potential_outcomes(users_seed, users, period)
        everything = control.sum(axis=1)
        for k, own in enumerate(lists.values()):
            shown = np.take_along_axis(treated, own[users], axis=1).sum(axis=1)
            other = np.take_along_axis(control, own[users], axis=1).sum(axis=1)
            out[k, :, users] = np.stack([shown, other, everything - other + shown, everything], axis=1)
    return out


def _mean_interval(groups: Sequence[Floats], level: float) -> tuple[float, float, float]:
    """The sum of independent groups' means, with Student's t at Welch's degrees of freedom."""
    from scipy.special import stdtrit

    value = float(sum(group.mean() for group in groups))
    if min(len(group) for group in groups) < 2:
        return value, -math.inf, math.inf
    parts = [float(group.var(ddof=1)) / len(group) for group in groups]
    second = sum(parts)
    if second == 0:
        return value, value, value
    degrees = second**2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    half = float(stdtrit(degrees, 0.5 + level / 2)) * math.sqrt(second)
    return value, value - half, value + half


class UpliftABTest(ABTest):
    """Every agent's lists are shown to half of the users, and nothing to the others."""

    summary = "an A/B test: lists are shown to half of the users (purchases)"
    metrics = ("uplift",)
    needs = frozenset({"users", "exposures"})

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        sizes, own = study.settings, study.data
        study.report(f"A/B test, {sizes.test_periods} periods")
        periods = range(own.last, own.last + sizes.test_periods)
        records = ab_test(
            own.world,
            own.lists,
            own.users_seed,
            periods,
            seed=study.seed,
            level=study.level,
            paired=sizes.paired,
            executor=study.executor,
        )
        return [replace(r, details={**r.details, **own.rankings[r.agent].details}) for r in records]

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return "A/B, all purchases" if metric == EVERYTHING else "A/B uplift"
