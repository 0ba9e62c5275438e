"""The floors: bandwidth, draws and arithmetic of one core, measured in the same run as what is compared with them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from table import in_turn, least

from recsim_mnar import rng


@dataclass(frozen=True)
class Machine:
    """Of one core, at its best moment.

    Attributes:
        read: bytes a second, a long array.
        write: bytes a second into pages that are there already.
        draw: seconds a uniform with 53 bits (Philox4x32-10).
        flop: seconds a multiplication or addition of float64 in the first-level cache.
        single_flop: the same of float32 in a matrix product (BLAS, one thread).
        increment: seconds an increment at a random place of 20,000 int32 (80 kB).
    """

    read: float
    write: float
    draw: float
    flop: float
    single_flop: float
    increment: float


@functools.cache
def machine(rounds: int = 7) -> Machine:
    """Measure once a run."""
    from _floors_kernel import increments, multiply_adds, read

    n = 1 << 21
    columns = [np.ones(n) for _ in range(3)]
    users, zeros = np.arange(1 << 18, dtype=np.uint64), np.zeros(1 << 18, np.uint64)
    x, y = np.ones(1024), np.ones(1024)
    a, b = np.ones((512, 512), np.float32), np.ones((512, 512), np.float32)
    c = np.empty_like(a)
    table, places = np.zeros(20_000, np.int32), np.random.default_rng(0).integers(0, 20_000, 1 << 20).astype(np.uint32)
    seconds = least(
        in_turn(
            {
                "read": lambda: read(*columns),
                "write": lambda: columns[0].fill(1.0),
                "draw": lambda: rng.uniforms(1, rng.Stream.POLICY, users, zeros),
                "flop": lambda: multiply_adds(x, y, 4096),
                "single": lambda: np.matmul(a, b, out=c),
                "increment": lambda: increments(table, places),
            },
            rounds,
        )
    )
    return Machine(
        read=3 * 8 * n / seconds["read"],
        write=8 * n / seconds["write"],
        draw=seconds["draw"] / len(users),
        flop=seconds["flop"] / (2 * 1024 * 4096),
        single_flop=seconds["single"] / (2 * 512**3),
        increment=seconds["increment"] / len(places),
    )
