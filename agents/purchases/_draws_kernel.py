# mypy: ignore-errors
"""Jitted core of the training draws: users and items of the observed classes, in constant time."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from recsim_mnar.kernels._rng_kernel import block, unit53
from recsim_mnar.kernels.jit import inlined, kernel

_U32 = np.uint64(32)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_LINE = 16  # int32 in a cache line


@intrinsic
def _prefetch(typingctx, array, place):
    def codegen(context, builder, signature, args):
        ir = cgutils.ir
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        hint = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0")
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


if config.DISABLE_JIT:

    def prefetch(array, place):
        """Nothing, in plain Python."""

else:

    @inlined
    def prefetch(array, place):
        """Bring the cache line of a place, counted in elements of a C-ordered array, nearer ahead of its use."""
        _prefetch(array, np.int64(place))


@inlined
def _below(word, n):
    """floor(word n / 2^32): uniform on 0 .. n - 1 but for a relative n / 2^32."""
    return np.int64((word * np.uint64(n)) >> _U32)


@inlined
def _free(taken, first, last, k):
    """The k-th (from 0) number that is not among the ascending taken[first:last].

    taken[j] - (j - first) of the numbers below taken[j] are free, which grows with j: a binary search without branches,
    whose length does not depend on the number of items.
    """
    low = first
    n = last - first
    while n > 1:
        half = n >> 1
        low += half if taken[low + half - 1] - (low + half - 1 - first) <= k else 0
        n -= half
    if n == 1 and taken[low] - (low - first) <= k:
        low += 1
    return k + (low - first)


@inlined
def _count(b0, b1, b2, b3, n_items, mask):
    """Number of items of the classes in the mask."""
    total = b1 - b0 if mask & 1 else 0
    total += b2 - b1 if mask & 2 else 0
    total += b3 - b2 if mask & 4 else 0
    total += n_items - (b3 - b0) if mask & 8 else 0
    return total


@inlined
def _place(b0, b1, b2, b3, mask, k):
    """The k-th item of the masked classes: (its place in items, its class), or (-1 - k', NR-NP) for the k'-th free.

    A row's items lie as [NR-P | R-P | R-NP], so a class is a slice; NR-NP is what is not taken.
    """
    n0 = b1 - b0 if mask & 1 else 0
    n1 = b2 - b1 if mask & 2 else 0
    n2 = b3 - b2 if mask & 4 else 0
    if k < n0:
        return b0 + k, 1
    k -= n0
    if k < n1:
        return b1 + k, 2
    k -= n1
    if k < n2:
        return b2 + k, 4
    return -1 - (k - n2), 8


@kernel
def draw(seed, stream, first, n, plan, observed, n_items, out):
    """Samples first .. first + n - 1 into the head of the arrays of ``out``; each is a function of its number.

    In passes, so that the loads of one pass do not wait for each other: a sample is a chain of four cache misses.

    plan: cumulative probabilities of the strata (K,), masks of the first and of the second item (K,; second 0: none),
        pointers (K + 1,) to groups, pointers (groups + 1,) to slots, rows of the slots.
    observed: user of each row, bounds (n_rows, 4), items, taken.
    out: user, first item, second item, stratum, class of the first item, its place in items (-1: NR-NP); and, for the
        passes, row, two words, place of the second item.
    """
    cumulative, firsts, seconds, groups, slots, rows = plan
    row_user, bounds, items, taken = observed
    users, ones, others, strata, parts, places, row_of, words, seconds_at = out
    several = cumulative.size > 1 or groups[1] > 1
    for s in range(n):
        number = np.uint64(first + s)
        w0, w1, w2, w3 = block(seed, stream, number, _ZERO)
        k = 0
        group = groups[0]
        if several:
            w4, w5, w6, _w7 = block(seed, stream, number, _ONE)
            u = unit53(w4, w5)
            while u >= cumulative[k] and k < cumulative.size - 1:
                k += 1
            group = groups[k] + _below(w6, groups[k + 1] - groups[k])
        start = slots[group]
        size = slots[group + 1] - start
        strata[s] = k
        places[s] = start + min(np.int64(unit53(w0, w1) * size), size - 1)
        prefetch(rows, places[s])
        words[s, 0] = w2
        words[s, 1] = w3
    for s in range(n):
        row = rows[places[s]]
        row_of[s] = row
        prefetch(bounds, 4 * np.int64(row))
        prefetch(row_user, row)
    for s in range(n):
        row = row_of[s]
        users[s] = row_user[row]
        b0, b1, b2, b3 = bounds[row, 0], bounds[row, 1], bounds[row, 2], bounds[row, 3]
        mask = firsts[strata[s]]
        k = _below(np.uint64(words[s, 0]), _count(b0, b1, b2, b3, n_items, mask))
        places[s], parts[s] = _place(b0, b1, b2, b3, mask, k)
        if places[s] >= 0:
            prefetch(items, places[s])
        mask = seconds[strata[s]]
        if mask > 0:
            k = _below(np.uint64(words[s, 1]), _count(b0, b1, b2, b3, n_items, mask))
            seconds_at[s], _part = _place(b0, b1, b2, b3, mask, k)
            if seconds_at[s] >= 0:
                prefetch(items, seconds_at[s])
        for line in range(b0, min(b3, b0 + 8 * _LINE), _LINE):
            prefetch(taken, line)
    for s in range(n):
        row = row_of[s]
        place = places[s]
        if place >= 0:
            ones[s] = items[place]
        else:
            ones[s] = _free(taken, bounds[row, 0], bounds[row, 3], -1 - place)
            places[s] = -1
        if seconds[strata[s]] > 0:
            place = seconds_at[s]
            if place >= 0:
                others[s] = items[place]
            else:
                others[s] = _free(taken, bounds[row, 0], bounds[row, 3], -1 - place)
