"""Logs of worlds that ask for slates: who was shown what, with which probability, and what was bought."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.table import Log
from recsim_mnar.policies.slates import SlatePolicy, as_slate_policy, draw
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.simulation.executor import together

if TYPE_CHECKING:
    from recsim_mnar.worlds.base import ExposureWorld
    from recsim_mnar.worlds.slates import PurchasesLanes

Columns = dict[str, NDArray[Any]]

_CELLS = 1 << 22
"""Cells (user, item) simulated at once; results do not depend on it."""

_TABLE_BYTES = 1 << 31
"""Bound on a table of propensities."""


def simulate_shard(
    world: ExposureWorld, policy: SlatePolicy, seed: int, first_user: int, n_users: int, *, keep_truth: bool = False
) -> Columns:
    """The columns of a few users, ordered by (user, step); see :func:`recsim_mnar.simulation.items.simulate_shard`."""
    parts: list[Columns] = []
    for users in _batches(first_user, n_users, world.n_items):
        recommender = policy.fresh()
        lanes: PurchasesLanes = world.open_lanes(len(users), keep_truth=keep_truth)
        which = np.arange(len(users))
        lanes.begin(which, np.full(len(users), seed, np.uint64), users)
        recommender.reset(users)
        periods: list[Columns] = []
        for period in range(world.params.n_periods):
            if period == 0 or recommender.changes:
                probability = recommender.probabilities(seed, users)
            shown = draw(seed, users, period, probability, world.params)
            periods.append(lanes.show(which, shown, probability).columns)
            recommender.observe_events(periods[-1])
        order = np.argsort(np.concatenate([part["user"] for part in periods]), kind="stable")
        parts.append({name: values[order] for name, values in together(periods).items()})
    return together(parts)


def exposures_of(world: ExposureWorld, policy: Any, log: Log, n_users: int, seed: int) -> Exposures:
    """The exposures of a log that ``simulate`` made, with the propensity of every cell.

    Args:
        world: that made the log.
        policy: that made it.
        log: of users 0 .. n_users - 1.
        n_users: how many.
        seed: of the log.

    Raises:
        UserError: a table of the propensities would not fit.
    """
    sizes = {"n_users": n_users, "n_items": world.n_items, "n_periods": world.params.n_periods}
    return Exposures.from_log(log, **sizes, propensities=propensity_table(world, policy, log, n_users, seed))


def propensity_table(world: ExposureWorld, policy: Any, log: Log, n_users: int, seed: int) -> NDArray[np.float32]:
    """P(shown) of every cell: (U, I, 1) where it is the same in every period, else (U, I, P); arguments as above."""
    recommender = as_slate_policy(policy, world.params).fresh()
    n_periods = world.params.n_periods if recommender.changes else 1
    size = 4 * n_users * world.n_items * n_periods
    if size > _TABLE_BYTES:
        raise UserError(
            f"the propensities of {n_users:,} users x {world.n_items:,} items x {n_periods} periods would take "
            f"{size / 2**30:.1f} GiB: simulate fewer users"
        )
    table = np.empty((n_users, world.n_items, n_periods), np.float32)
    time, user = log["time"], log["user"]
    for users in _batches(0, n_users, world.n_items):
        recommender.reset(users)
        first, last = np.searchsorted(user, [users[0], users[-1] + 1])
        here = {name: log[name][first:last] for name in ("user", "action", "item", "reward")}
        period = time[first:last]
        for t in range(n_periods):
            table[users, :, t] = recommender.probabilities(seed, users)
            if t < n_periods - 1:
                recommender.observe_events({name: values[period == t] for name, values in here.items()})
    return table


def write_exposures(folder: Path, world: ExposureWorld, policy: Any, n_users: int, seed: int, keep_truth: bool) -> None:
    """Write the second part of a log in ``folder / "log"``, and with ``keep_truth`` ``outcomes.npz``.

    That file holds P(Y^C) and P(Y^T) of every user and item, (U, I) float32 ``control`` and ``treated``.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        exposures_of(world, policy, Log.read(folder / "log"), n_users, seed).write(folder)
        if not keep_truth:
            return
        truth = np.empty((2, n_users, world.n_items), np.float32)
        for users in _batches(0, n_users, world.n_items):
            outcomes = world.outcomes_of(seed, users)
            truth[0, users], truth[1, users] = outcomes.control, outcomes.treated
        with into.recording("outcomes.npz") as path, replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, control=truth[0], treated=truth[1])


def _batches(first_user: int, n_users: int, n_items: int) -> Iterator[NDArray[np.int64]]:
    size = max(1, _CELLS // n_items)
    for first in range(first_user, first_user + n_users, size):
        yield np.arange(first, min(first + size, first_user + n_users))
