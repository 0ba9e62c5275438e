"""What the machine can do at most, one core: reading columns, multiply-adds from registers, increments in a cache."""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel, summing


@summing
def read(first, second, third):
    """The sum of everything."""
    total = 0.0
    for i in range(first.size):
        total += first[i] + second[i] + third[i]
    return total


@summing
def multiply_adds(x, y, rounds):
    """Sum of rounds * x.y from the first-level cache: 2 * x.size * rounds operations."""
    total = 0.0
    for _ in range(rounds):
        for i in range(x.size):
            total += x[i] * y[i]
    return total


@kernel
def increments(table, places):
    """table[places[i]] += 1, one after another."""
    for i in range(places.size):
        table[places[i]] += 1
