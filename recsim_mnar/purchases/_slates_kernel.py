# mypy: ignore-errors
"""A period: slates drawn with known probabilities, and what each user would buy, recommended or not."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import kernel


@kernel
def logistic(x, out):
    """``out`` = 1 / (1 + exp(-x)), (n, I)."""
    n, m = x.shape
    for r in range(n):
        for i in range(m):
            out[r, i] = 1.0 / (1.0 + exp64(-x[r, i]))


@kernel
def _uniforms(seed, stream, user, index, shared):
    """The uniforms below which Y^C and Y^T are 1: one for both where ``shared``, else one each from the same block."""
    a, b, c, d = block(seed, stream, user, index)
    of_control = unit53(a, b)
    if shared:
        of_treated = of_control
    else:
        of_treated = unit53(c, d)
    return of_control, of_treated


@kernel
def buy(seeds, stream, users, periods, shared, control, treated, shown, bought):
    """One period: ``bought[r, i]`` is Y^T of the item where it is shown and Y^C where it is not.

    Args:
        seeds: (n,) addresses, with the next three.
        stream: see above.
        users: see above.
        periods: see above.
        shared: whether one uniform decides both outcomes of a cell, see :func:`_uniforms`.
        control: (n, I) P(Y^C = 1).
        treated: (n, I) P(Y^T = 1).
        shown: (n, I) uint8.
        bought: (n, I) uint8, out.
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
    """Both potential outcomes of every item in one period, (n, I) uint8; arguments as :func:`buy`."""
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            of_control, of_treated = _uniforms(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i), shared)
            y_control[r, i] = np.uint8(of_control < control[r, i])
            y_treated[r, i] = np.uint8(of_treated < treated[r, i])


@kernel
def scale_rows(weights, size, low, high, out):
    """``out[r, i]`` = min(max(c_r weights[r, i], low), high), c_r such that every row sums to ``size``.

    Arrays are (n, I) float64; the weights are above 0 and low I <= size <= high I.
    """
    n, n_items = weights.shape
    for r in range(n):
        smallest = weights[r, 0]
        total = 0.0
        for i in range(n_items):
            smallest = min(smallest, weights[r, i])
            total += weights[r, i]
        # At c = 0 the row sums to low I, at this c to high I: the answer lies between.
        below = 0.0
        above = high / smallest
        # The unclipped answer is the first guess, and often the last.
        c = size / total
        for _ in range(200):
            got = 0.0
            for i in range(n_items):
                got += min(max(c * weights[r, i], low), high)
            if abs(got - size) <= 1e-12 * size:
                break
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
    """``shown[r, i]`` = 1 with probability ``probability[r, i]``, each cell by its own draw; (n, I) uint8."""
    n, n_items = probability.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            a, b, _c, _d = block(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i))
            shown[r, i] = np.uint8(unit53(a, b) < probability[r, i])


@kernel
def draw_slates(seeds, stream, users, periods, starts, probability, order, slates):
    """Draw ``slates.shape[1]`` distinct items a row, item i among them with probability ``probability[r, i]``.

    Systematic sampling: the items stand in a random order on a line, item i over a length of ``probability[r, i]``, and
    those at the points u, u + 1, u + 2, ... are drawn. The items of a slate come out in the order of the line.

    Args:
        seeds: (n,) addresses of the random order, with the next three.
        stream: see above.
        users: see above.
        periods: see above.
        starts: (n,) u in [0, 1).
        probability: (n, I) at most 1, rows summing to the size of a slate.
        order: (I,) int32, a place to work.
        slates: (n, N) int32, out.
    """
    n, n_items = probability.shape
    size = slates.shape[1]
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            order[i] = i
        for i in range(n_items - 1, 0, -1):
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
        # The line may end a rounding error before the last point.
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
