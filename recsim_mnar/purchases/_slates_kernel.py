# mypy: ignore-errors
"""Kernels of a period: slates drawn with known probabilities, and users' purchases with and without recommendations."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import kernel


@kernel
def logistic(x, out):
    """Compute ``out`` = 1 / (1 + exp(-x)), (n, I)."""
    n, m = x.shape
    for r in range(n):
        for i in range(m):
            out[r, i] = 1.0 / (1.0 + exp64(-x[r, i]))


@kernel
def _uniforms(seed, stream, user, index, shared):
    """Return two uniforms: Y^C and Y^T are 1 if they are below P(Y^C) and P(Y^T); with ``shared`` they are the same."""
    a, b, c, d = block(seed, stream, user, index)
    of_control = unit53(a, b)
    if shared:
        of_treated = of_control
    else:
        of_treated = unit53(c, d)
    return of_control, of_treated


@kernel
def buy(seeds, stream, users, periods, shared, control, treated, shown, bought):
    """Draw the purchases of one period: ``bought[r, i]`` is Y^T if the item is shown and Y^C if it is not.

    Args:
        seeds: (n,) seed of each user, the first part of the address of a draw.
        stream: stream of the draws.
        users: (n,) id of each user.
        periods: (n,) period of each user; with the item it gives the index of a draw.
        shared: True if one uniform decides both outcomes of a cell.
        control: (n, I) P(Y^C = 1).
        treated: (n, I) P(Y^T = 1).
        shown: (n, I) uint8 flags of shown items.
        bought: (n, I) uint8 output.
    """
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            of_control, of_treated = _uniforms(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i), shared)
            if shown[r, i]:
                bought[r, i] = np.uint8(of_treated < treated[r, i])
            else:
                bought[r, i] = np.uint8(of_control < control[r, i])


@kernel
def outcomes(seeds, stream, users, periods, shared, control, treated, y_control, y_treated):
    """Draw both potential outcomes of every item in one period, by the same uniforms as :func:`buy`.

    Args:
        seeds: (n,) seed of each user, the first part of the address of a draw.
        stream: stream of the draws.
        users: (n,) id of each user.
        periods: (n,) period of each user; with the item it gives the index of a draw.
        shared: True if one uniform decides both outcomes of a cell.
        control: (n, I) P(Y^C = 1).
        treated: (n, I) P(Y^T = 1).
        y_control: (n, I) uint8 output, Y^C.
        y_treated: (n, I) uint8 output, Y^T.
    """
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            of_control, of_treated = _uniforms(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i), shared)
            y_control[r, i] = np.uint8(of_control < control[r, i])
            y_treated[r, i] = np.uint8(of_treated < treated[r, i])


@kernel
def scale_rows(weights, size, low, high, out):
    """Compute ``out[r, i]`` = min(max(c_r weights[r, i], low), high) with factors c_r such that rows sum to ``size``.

    Arrays are (n, I) float64; the weights are above 0 and low I <= size <= high I. Each c_r is found by bisection, on a
    logarithmic scale while its bounds differ by more than a factor of 4.
    """
    n, n_items = weights.shape
    for r in range(n):
        smallest = weights[r, 0]
        total = 0.0
        for i in range(n_items):
            smallest = min(smallest, weights[r, i])
            total += weights[r, i]
        # At c = 0 the row sums to low I, and at c = above to high I: the solution lies between.
        below = 0.0
        above = high / smallest
        # The first guess is the solution without clipping, which is often exact.
        c = size / total
        for _ in range(200):  # far more halvings than float64 has bits; rounding may keep the tolerance out of reach
            got = 0.0
            for i in range(n_items):
                got += min(max(c * weights[r, i], low), high)
            if abs(got - size) <= 1e-12 * size:
                break
            # The sum rises with c: if it is too small, the solution is above c.
            if got < size:
                below = c
            else:
                above = c
            if above <= 4.0 * below or below == 0.0:
                c = 0.5 * (below + above)
            else:
                c = np.sqrt(below * above)
        for i in range(n_items):
            out[r, i] = min(max(c * weights[r, i], low), high)


@kernel
def draw_independently(seeds, stream, users, periods, probability, shown):
    """Set ``shown[r, i]`` (n, I), uint8, to 1 with probability ``probability[r, i]``, independently for each cell."""
    n, n_items = probability.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            a, b, _c, _d = block(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i))
            shown[r, i] = np.uint8(unit53(a, b) < probability[r, i])


@kernel
def draw_slates(seeds, stream, users, periods, starts, probability, order, slates):
    """Draw slates of N distinct items, of which item i is one with probability ``probability[r, i]``.

    Systematic sampling: the items form consecutive segments of a line in random order, item i with the length
    ``probability[r, i]``, and the items at the points u, u + 1, u + 2, ... are drawn, in the order of the line.

    Args:
        seeds: (n,) seed of each user, the first part of the address of a draw of the random order.
        stream: stream of these draws.
        users: (n,) id of each user.
        periods: (n,) period of each user.
        starts: (n,) first point u in [0, 1).
        probability: (n, I) probabilities, at most 1, with rows that sum to N.
        order: (I,) int32 scratch array.
        slates: (n, N) int32 output.
    """
    n, n_items = probability.shape
    size = slates.shape[1]
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            order[i] = i
        for i in range(n_items - 1, 0, -1):  # shuffle (Fisher-Yates)
            a, b, _c, _d = block(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i))
            j = min(int(unit53(a, b) * (i + 1)), i)
            order[i], order[j] = order[j], order[i]
        reached = 0.0
        k = 0
        for i in range(n_items):
            reached += probability[r, order[i]]
            if k < size and reached > starts[r] + k:
                slates[r, k] = order[i]
                k += 1
        # By rounding, the line may end before the last point: fill up with the line's last items that are not drawn.
        last = n_items - 1
        while k < size:
            is_taken = False
            for j in range(k):
                if slates[r, j] == order[last]:
                    is_taken = True
            if not is_taken:
                slates[r, k] = order[last]
                k += 1
            last -= 1
