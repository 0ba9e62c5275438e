# mypy: ignore-errors
"""Jitted core of training factor models: draws, gradients of the pair and point losses, Adam and SGD, and their loops.

A sample, a user and one or two items of the observed classes, is drawn in constant time. A row of a table is [factors,
padded with zeros to d | bias, response, zeros], float32; d and the row length are multiples of 8. A table with separate
rows for recommended items has these after all others.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from recsim_mnar.kernels._rng_kernel import block, exp32, unit53
from recsim_mnar.kernels.jit import inlined, kernel

_U32 = np.uint64(32)
_BLOCK_0 = np.uint64(0)
_BLOCK_1 = np.uint64(1)
_LINE = 16  # int32 or float32 in a cache line


@intrinsic
def _prefetch(typingctx, array, place):
    """Compile LLVM's prefetch of an array's element: for reading (0), to stay in all caches (3), data (1)."""

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
        """Prefetch the cache line of element ``place`` of a C-ordered array."""
        _prefetch(array, np.int64(place))


@inlined
def _below(word, n):
    """Map a random 32-bit word to 0 .. n - 1, as floor(word n / 2^32), uniform up to a relative n / 2^32."""
    return np.int64((word * np.uint64(n)) >> _U32)


@inlined
def _free(taken, first, last, k):
    """Return the k-th (from 0) number that is not among the ascending taken[first:last].

    Of the numbers below taken[j], taken[j] - (j - first) are free, which grows with j. So a binary search finds it,
    here without branches; its length does not depend on the number of items.
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
    """Return the number of a row's items in the classes of a mask; b0 .. b3 are the row's bounds.

    Bits of the mask: 1 for NR-P, 2 for R-P, 4 for R-NP, 8 for NR-NP.
    """
    total = b1 - b0 if mask & 1 else 0
    total += b2 - b1 if mask & 2 else 0
    total += b3 - b2 if mask & 4 else 0
    total += n_items - (b3 - b0) if mask & 8 else 0
    return total


@inlined
def _place(b0, b1, b2, b3, mask, k):
    """Return the place in ``items`` of the k-th item of the masked classes, and the bit of its class.

    A row's items are ordered [NR-P | R-P | R-NP], so a class is a slice. NR-NP items are all others: for the k'-th of
    these the place is -1 - k'.
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
    """Draw samples first .. first + n - 1 into the first n entries of the arrays of ``out``.

    A sample depends on the seed and its number alone. Drawing one is a chain of four cache misses; so all samples go
    through the chain together, in four passes that prefetch for the next one.

    plan: cumulative probabilities of the strata (K,), masks of the first and of the second item (K,; second 0: none),
        pointers (K + 1,) to groups, pointers (groups + 1,) to slots, rows of the slots.
    observed: user of each row, bounds (n_rows, 4), items by class, and the same items of each row ascending.
    out: user, first item, second item, stratum, class of the first item, its place in items (-1: NR-NP); and, as
        scratch between the passes, row, two random words, place of the second item.
    """
    cumulative, firsts, seconds, groups, slots, rows = plan
    row_user, bounds, items, items_held = observed
    users, ones, other_items, strata, parts, places, row_of, words, seconds_at = out
    several = cumulative.size > 1 or groups[1] > 1
    for s in range(n):
        number = np.uint64(first + s)
        w0, w1, w2, w3 = block(seed, stream, number, _BLOCK_0)
        k = 0
        group = groups[0]
        if several:
            w4, w5, w6, _w7 = block(seed, stream, number, _BLOCK_1)
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
        b0 = bounds[row, 0]
        b1 = bounds[row, 1]
        b2 = bounds[row, 2]
        b3 = bounds[row, 3]
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
            prefetch(items_held, line)
    for s in range(n):
        row = row_of[s]
        place = places[s]
        if place >= 0:
            ones[s] = items[place]
        else:
            ones[s] = _free(items_held, bounds[row, 0], bounds[row, 3], -1 - place)
            places[s] = -1
        if seconds[strata[s]] > 0:
            place = seconds_at[s]
            if place >= 0:
                other_items[s] = items[place]
            else:
                other_items[s] = _free(items_held, bounds[row, 0], bounds[row, 3], -1 - place)


_F = np.float32
_NIL = _F(0.0)
_ONE = _F(1.0)
_TWO = _F(2.0)
_EPSILON = _F(1e-8)
_LIMIT = _F(1e4)
"""Score from which on a model has diverged: the logistic function is 0 or 1 in float32 from 104 on."""
_AHEAD = 8  # number of samples by which rows are prefetched ahead


@inlined
def dot(a, b, d):
    """Return the sum of the first d products, d a multiple of 8, by eight partial sums: the same bits anywhere."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _NIL
    for k in range(0, d, 8):
        x = a[k : k + 8]
        y = b[k : k + 8]
        s0 += x[0] * y[0]
        s1 += x[1] * y[1]
        s2 += x[2] * y[2]
        s3 += x[3] * y[3]
        s4 += x[4] * y[4]
        s5 += x[5] * y[5]
        s6 += x[6] * y[6]
        s7 += x[7] * y[7]
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@inlined
def difference_dot(a, b, c, d):
    """Return the sum of a (b - c) over the first d entries, summed as in :func:`dot`."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _NIL
    for k in range(0, d, 8):
        x = a[k : k + 8]
        y = b[k : k + 8]
        z = c[k : k + 8]
        s0 += x[0] * (y[0] - z[0])
        s1 += x[1] * (y[1] - z[1])
        s2 += x[2] * (y[2] - z[2])
        s3 += x[3] * (y[3] - z[3])
        s4 += x[4] * (y[4] - z[4])
        s5 += x[5] * (y[5] - z[5])
        s6 += x[6] * (y[6] - z[6])
        s7 += x[7] * (y[7] - z[7])
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@inlined
def sigmoid(x):
    """Compute the logistic function in float32."""
    return _ONE / (_ONE + exp32(-x))


@inlined
def pair_slope(x, signed):
    """Return the derivative by x of |w| log(1 + exp(-sign(w) x)), w being ``signed``."""
    if signed >= _NIL:
        return -signed * sigmoid(-x)
    return -signed * sigmoid(x)


@inlined
def _ask(table, row, width):
    """Prefetch a row of a table."""
    for k in range(0, width, _LINE):
        prefetch(table, np.int64(row) * width + k)


@inlined
def _slot(row, slot_of, touched, count, gradient):
    """Return the index of a row's gradient and the number of rows with one; a new row gets the next, with zeros."""
    if slot_of[row] < 0:
        slot_of[row] = count
        touched[count] = row
        g = gradient[count]
        for k in range(g.size):
            g[k] = _NIL
        count += 1
    return slot_of[row], count


@kernel
def pair_gradients(users, items, d, drawn, signed, n, penalties, gathered):
    """Add the gradients of n drawn pairs' losses to the collected gradients of their rows.

    The loss of a pair is |w| log(1 + exp(-sign(w)(s_ui - s_uj))) plus the penalties of its three rows, penalties[0]
    ||factors||^2 + penalties[1] ||bias and response||^2. Returns the numbers of users' and of items' rows with a
    gradient, and the first sample at which the model had diverged, -1 for none.
    """
    who = drawn[0]
    ones = drawn[1]
    other_items = drawn[2]
    places = drawn[5]
    slot_u, touched_u, gradient_u, slot_i, touched_i, gradient_i = gathered
    n_u = n_i = 0
    two = _TWO * penalties[0]
    two_own = _TWO * penalties[1]
    width = users.shape[1]
    for s in range(n):
        if s + _AHEAD < n:
            _ask(users, who[s + _AHEAD], width)
            _ask(items, ones[s + _AHEAD], width)
            _ask(items, other_items[s + _AHEAD], width)
        u = who[s]
        i = ones[s]
        j = other_items[s]
        a = users[u]
        b = items[i]
        c = items[j]
        x = difference_dot(a, b, c, d) + (b[d] - c[d])
        if not abs(x) < _LIMIT:
            return n_u, n_i, s
        if signed.size:
            w = signed[places[s]]
        else:
            w = _ONE
        g = pair_slope(x, w)
        at, n_u = _slot(u, slot_u, touched_u, n_u, gradient_u)
        ga = gradient_u[at]
        at, n_i = _slot(i, slot_i, touched_i, n_i, gradient_i)
        gb = gradient_i[at]
        at, n_i = _slot(j, slot_i, touched_i, n_i, gradient_i)
        gc = gradient_i[at]
        for k in range(d):
            ga[k] += g * (b[k] - c[k]) + two * a[k]
        for k in range(d):
            gb[k] += g * a[k] + two * b[k]
        for k in range(d):
            gc[k] += two * c[k] - g * a[k]
        gb[d] += g
        gc[d] -= g
        for k in range(d, width):
            ga[k] += two_own * a[k]
            gb[k] += two_own * b[k]
            gc[k] += two_own * c[k]
    return n_u, n_i, -1


@inlined
def _couple(a, b, ga, gb, d, distance, weight):
    """Add weight times the gradient of the distance of rows a and b to their gradients ga and gb.

    distance: 1 for L1, 2 for squared L2, 3 for 1 - cosine of the factors.
    """
    if distance == 1:
        for k in range(a.size):
            e = a[k] - b[k]
            h = weight * ((_ONE if e > _NIL else _NIL) - (_ONE if e < _NIL else _NIL))  # the sign of e
            ga[k] += h
            gb[k] -= h
    elif distance == 2:
        for k in range(a.size):
            h = _TWO * weight * (a[k] - b[k])
            ga[k] += h
            gb[k] -= h
    else:
        aa = dot(a, a, d)
        bb = dot(b, b, d)
        if aa > _NIL and bb > _NIL:
            norm = _ONE / np.sqrt(aa * bb)
            cosine = dot(a, b, d) * norm
            for k in range(d):
                ga[k] -= weight * (norm * b[k] - cosine / aa * a[k])
                gb[k] -= weight * (norm * a[k] - cosine / bb * b[k])


@kernel
def point_gradients(users, items, d, drawn, n, form, penalties, between, gathered):
    """Add the gradients of n drawn single items' losses to the collected gradients of their rows.

    The loss is the logistic loss of the label plus the penalties of the two rows, and ``between`` times the distance of
    each row from its counterpart in the other half of its table, if it has one. form: (labels of the strata, -1 for
    "purchased or not"; response 0 or 1; offset of users' separate rows, 0 for none; offset of items' separate rows;
    number of the distance). Returns the same as :func:`pair_gradients`.
    """
    who = drawn[0]
    ones = drawn[1]
    strata = drawn[3]
    parts = drawn[4]
    labels, response, apart_u, apart_i, distance = form
    slot_u, touched_u, gradient_u, slot_i, touched_i, gradient_i = gathered
    n_u = n_i = 0
    two = _TWO * penalties[0]
    two_own = _TWO * penalties[1]
    width = users.shape[1]
    for s in range(n):
        if parts[s] == 2 or parts[s] == 4:  # R-P, R-NP
            is_shown = 1
        else:
            is_shown = 0
        label = labels[strata[s]]
        if label < 0:
            label = 1 if parts[s] <= 2 else 0  # NR-P and R-P are purchased
        u = who[s] + is_shown * apart_u
        i = ones[s] + is_shown * apart_i
        a = users[u]
        b = items[i]
        x = dot(a, b, d) + (a[d] + b[d])
        z = _F(is_shown * response)
        x += z * (a[d + 1] + b[d + 1])
        if not abs(x) < _LIMIT:
            return n_u, n_i, s
        g = sigmoid(x) - _F(label)
        at, n_u = _slot(u, slot_u, touched_u, n_u, gradient_u)
        ga = gradient_u[at]
        at, n_i = _slot(i, slot_i, touched_i, n_i, gradient_i)
        gb = gradient_i[at]
        for k in range(d):
            ga[k] += g * b[k] + two * a[k]
        for k in range(d):
            gb[k] += g * a[k] + two * b[k]
        ga[d] += g
        gb[d] += g
        ga[d + 1] += z * g
        gb[d + 1] += z * g
        for k in range(d, width):
            ga[k] += two_own * a[k]
            gb[k] += two_own * b[k]
        if apart_u:
            if is_shown:
                v = u - apart_u
            else:
                v = u + apart_u
            at, n_u = _slot(v, slot_u, touched_u, n_u, gradient_u)
            _couple(a, users[v], ga, gradient_u[at], d, distance, between)
        if apart_i:
            if is_shown:
                j = i - apart_i
            else:
                j = i + apart_i
            at, n_i = _slot(j, slot_i, touched_i, n_i, gradient_i)
            _couple(b, items[j], gb, gradient_i[at], d, distance, between)
    return n_u, n_i, -1


@kernel
def adam(table, first, second, powers, slot_of, touched, count, gradient, scale, rate, betas):
    """Make a step of Adam on the rows with a gradient, and forget the gradients.

    The bias correction of a row counts the steps of this row: powers (rows, 2) float64 has each row's beta^steps. The
    gradient is multiplied by ``scale``.
    """
    b1 = _F(betas[0])
    b2 = _F(betas[1])
    c1 = _F(1.0 - betas[0])
    c2 = _F(1.0 - betas[1])
    width = table.shape[1]
    for t in range(count):
        if t + _AHEAD < count:
            _ask(table, touched[t + _AHEAD], width)
            _ask(first, touched[t + _AHEAD], width)
            _ask(second, touched[t + _AHEAD], width)
            prefetch(powers, 2 * touched[t + _AHEAD])
        row = touched[t]
        slot_of[row] = -1
        powers[row, 0] *= betas[0]
        powers[row, 1] *= betas[1]
        step = _F(rate / (1.0 - powers[row, 0]))  # with the bias correction of the first moment
        spread = _F(1.0 / (1.0 - powers[row, 1]))  # the bias correction of the second moment
        w = table[row]
        m = first[row]
        v = second[row]
        g = gradient[t]
        for k in range(w.size):
            e = scale * g[k]
            m[k] = b1 * m[k] + c1 * e
            v[k] = b2 * v[k] + c2 * (e * e)
            w[k] -= step * m[k] / (np.sqrt(v[k] * spread) + _EPSILON)


@kernel
def forget(slot_of, touched, count):
    """Forget the collected gradients: mark the touched rows as rows without one."""
    for t in range(count):
        slot_of[touched[t]] = -1


@inlined
def _step(users, items, moments, gathered, n_u, n_i, n, rate, betas):
    """Make a step of Adam by the collected gradients of n samples, whose mean loss is reduced."""
    slot_u, touched_u, gradient_u, slot_i, touched_i, gradient_i = gathered
    mu, vu, pu, mi, vi, pi = moments
    scale = _F(1.0 / n)
    adam(users, mu, vu, pu, slot_u, touched_u, n_u, gradient_u, scale, rate, betas)
    adam(items, mi, vi, pi, slot_i, touched_i, n_i, gradient_i, scale, rate, betas)


@kernel
def train(where, draws, tables, d, form, signed, penalties, between, moments, gathered, rate, betas):
    """Train on batches first .. last - 1, and return the batch at which the model diverged, -1 for none.

    where: (seed, stream, first, last, batch size). draws: (plan, observed, n_items, arrays of a batch). form: as in
    :func:`point_gradients`; None for samples that are pairs. signed: weights of pairs, empty for 1. between:
    coefficient of the distance between separate rows. moments: Adam's. gathered: arrays for the gradients of a batch.
    """
    seed, stream, first, last, batch = where
    plan, observed, n_items, drawn = draws
    users, items = tables
    for t in range(first, last):
        draw(seed, stream, t * batch, batch, plan, observed, n_items, drawn)
        if form is None:
            n_u, n_i, bad = pair_gradients(users, items, d, drawn, signed, batch, penalties, gathered)
        else:
            n_u, n_i, bad = point_gradients(users, items, d, drawn, batch, form, penalties, between, gathered)
        if bad >= 0:
            forget(gathered[0], gathered[1], n_u)
            forget(gathered[3], gathered[4], n_i)
            return t
        _step(users, items, moments, gathered, n_u, n_i, batch, rate, betas)
    return -1


@kernel
def uplift_of_scores(shown, hidden):
    """Replace the scores ``shown`` by sigma(shown) - sigma(hidden), in place; both (n, n_items) float32."""
    for j in range(shown.shape[0]):
        a = shown[j]
        b = hidden[j]
        for i in range(a.size):
            a[i] = sigmoid(a[i]) - sigmoid(b[i])
