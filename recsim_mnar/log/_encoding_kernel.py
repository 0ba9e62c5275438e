# mypy: ignore-errors
"""Jitted core of Parquet's encodings: columns of a log into the bytes of its pages.

Every function writes from place ``at`` of ``out`` (uint8, with room enough) and returns the place after its last byte.
The format: github.com/apache/parquet-format, Encodings.md.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.numerics.jit import inlined, kernel

_BLOCK = 128
_MINIBLOCK = 32
_NARROW = np.uint64(16)
"""Bits of numbers of which eight are packed at once."""


@inlined
def _varint(value, out, at):
    """An unsigned number, seven bits a byte, lowest first."""
    value = np.uint64(value)
    while value >= np.uint64(128):
        out[at] = np.uint8((value & np.uint64(127)) | np.uint64(128))
        value >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@inlined
def _zigzag(value):
    """A signed number as an unsigned one, small where it is near 0."""
    value = np.int64(value)
    return np.uint64((value << np.int64(1)) ^ (value >> np.int64(63)))


@inlined
def _four_bytes(word, out, at):
    """The lowest 32 bits, lowest byte first; the compiler makes one store of these."""
    out[at] = np.uint8(word & np.uint64(255))
    out[at + 1] = np.uint8((word >> np.uint64(8)) & np.uint64(255))
    out[at + 2] = np.uint8((word >> np.uint64(16)) & np.uint64(255))
    out[at + 3] = np.uint8((word >> np.uint64(24)) & np.uint64(255))


@inlined
def _is_there(value, null):
    """Whether a value is not null; that of floating-point numbers is NaN, whatever ``null`` says."""
    return (value == value) & (value != null)


@inlined
def _group_present(part, size, null, dense, j):
    """A bit for each of ``size`` <= 8 values that is there; they go into ``dense`` from j on. Bits, and the next j."""
    bits = np.uint64(0)
    for k in range(size):
        value = part[k]
        there = np.uint64(_is_there(value, null))
        dense[j] = value  # written over by the next where it is null
        j += there
        bits |= there << np.uint64(k)
    return np.uint8(bits), j


@kernel
def put_present(values, null, dense, out, at):
    """One bit-packed run: which values are not ``null`` (nor NaN). They go into ``dense``; how many, and place."""
    n = values.size
    whole = n >> 3
    n_groups = (n + 7) >> 3
    at = _varint((n_groups << 1) | 1, out, at)
    j = np.uint64(0)
    for group in range(whole):
        out[at + group], j = _group_present(values[8 * group : 8 * group + 8], 8, null, dense, j)
    if whole < n_groups:
        out[at + whole], j = _group_present(values[8 * whole : n], n - 8 * whole, null, dense, j)
    return np.int64(j), at + n_groups


@inlined
def _eight_bytes(word, out, at):
    """All of 64 bits, lowest byte first; one store, too."""
    _four_bytes(word, out, at)
    _four_bytes(word >> np.uint64(32), out, at + 4)


@inlined
def _four_packed(part, first, width):
    """Four whole numbers of ``width`` <= 16 bits each, one behind another."""
    word = np.uint64(part[first]) | (np.uint64(part[first + 1]) << width)
    more = np.uint64(part[first + 2]) | (np.uint64(part[first + 3]) << width)
    return word | (more << (width + width))


@inlined
def _put_eight(part, width, out, at):
    """Eight whole numbers of ``width`` <= 16 bits each: so many bytes, and some beyond that the next are written over.

    No eight wait for those before them, as they do where bits are held back for a word.
    """
    low = _four_packed(part, 0, width)
    high = _four_packed(part, 4, width)
    both = width << np.uint64(2)
    if width <= np.uint64(8):
        _eight_bytes(low | (high << both), out, at)
    else:
        # Of 16 bits each none of ``high`` goes into the first word: it is shifted by 64, which takes two steps.
        _eight_bytes(low | ((high << (both - np.uint64(1))) << np.uint64(1)), out, at)
        _eight_bytes(high >> (np.uint64(64) - both), out, at + 8)
    return at + np.int64(width)


@inlined
def _packed(word, width, held, n_held, out, at):
    """Add ``width`` <= 32 bits to those held, write 32 of them once there are so many; what is held then, and place."""
    held |= word << n_held
    n_held += width
    if n_held >= np.uint64(32):
        _four_bytes(held, out, at)
        at += 4
        held >>= np.uint64(32)
        n_held -= np.uint64(32)
    return held, n_held, at


@kernel
def put_deltas(values, narrow, deltas, out, at):
    """DELTA_BINARY_PACKED of integers (n,); ``narrow``: they are 32 bits wide, and so are their differences.

    deltas (128,) int64 is scratch.
    """
    n = values.size
    at = _varint(_BLOCK, out, at)
    at = _varint(_BLOCK // _MINIBLOCK, out, at)
    at = _varint(n, out, at)
    at = _varint(_zigzag(values[0] if n else 0), out, at)
    for first in range(1, n, _BLOCK):
        size = min(_BLOCK, n - first)
        these, before = values[first : first + size], values[first - 1 : first - 1 + size]
        if narrow:
            for k in range(size):
                deltas[k] = np.int64(np.int32(np.int64(these[k]) - np.int64(before[k])))
        else:
            for k in range(size):
                deltas[k] = np.int64(these[k]) - np.int64(before[k])
        least = deltas[0]
        for k in range(size):
            least = min(least, deltas[k])
        for k in range(size):
            deltas[k] -= least
        for k in range(size, _BLOCK):
            deltas[k] = 0
        at = _varint(_zigzag(least), out, at)
        widths = at
        at += _BLOCK // _MINIBLOCK
        for mini in range(_BLOCK // _MINIBLOCK):
            part = deltas[mini * _MINIBLOCK : (mini + 1) * _MINIBLOCK]
            bits = np.uint64(0)
            for k in range(_MINIBLOCK):
                bits |= np.uint64(part[k])
            width = np.uint64(0)
            while bits >> width and width < np.uint64(64):
                width += np.uint64(1)
            out[widths + mini] = np.uint8(width)
            if width == np.uint64(0):
                continue
            if width <= _NARROW:
                for k in range(0, _MINIBLOCK, 8):
                    at = _put_eight(part[k : k + 8], width, out, at)
                continue
            held, n_held = np.uint64(0), np.uint64(0)
            low = min(width, np.uint64(32))
            mask = (np.uint64(1) << low) - np.uint64(1)
            for k in range(_MINIBLOCK):
                word = np.uint64(part[k])
                held, n_held, at = _packed(word & mask, low, held, n_held, out, at)
                if width > np.uint64(32):
                    high = word >> np.uint64(32)
                    held, n_held, at = _packed(high, width - np.uint64(32), held, n_held, out, at)
    return at


@kernel
def find_distinct(bits, slots, distinct, indices):
    """Number (n,) uint64 by their first appearance, up to ``distinct.size`` of them.

    slots (a power of two) int32 is filled with -1; returns how many there are, -1 where there are more.
    """
    mask = np.uint64(slots.size - 1)
    n_found = 0
    last, last_index = np.uint64(0), np.int32(-1)
    for i in range(bits.size):
        value = bits[i]
        if value == last and last_index >= 0:
            indices[i] = last_index
            continue
        # A clock begins anew with every user and takes its numbers in the same order: the next one needs no search.
        if last_index + 1 < n_found and distinct[last_index + 1] == value:
            last_index = np.int32(last_index + 1)
            indices[i] = last_index
            last = value
            continue
        # The product's upper half depends on all bits of the value.
        slot = ((value * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & mask
        index = slots[slot]
        while index >= 0 and distinct[index] != value:
            slot = (slot + np.uint64(1)) & mask
            index = slots[slot]
        if index < 0:
            if n_found == distinct.size:
                return -1
            index = np.int32(n_found)
            slots[slot] = index
            distinct[n_found] = value
            n_found += 1
        indices[i] = index
        last, last_index = value, index
    return n_found


@kernel
def put_bits(values, width, out, at):
    """One bit-packed run of whole numbers (n,) of ``width`` <= 32 bits each."""
    n = values.size
    n_groups = (n + 7) >> 3
    at = _varint((n_groups << 1) | 1, out, at)
    end = at + n_groups * width
    width = np.uint64(width)
    first = 0
    if width <= _NARROW:
        first = n - n % 8
        for i in range(0, first, 8):
            at = _put_eight(values[i : i + 8], width, out, at)
    held, n_held = np.uint64(0), np.uint64(0)
    for i in range(first, n):
        held, n_held, at = _packed(np.uint64(values[i]), width, held, n_held, out, at)
    while at < end:
        out[at] = np.uint8(held & np.uint64(255))
        held >>= np.uint64(8)
        at += 1
    return end


@kernel
def put_run(n, value, out, at):
    """One run of ``n`` times the same number below 256."""
    at = _varint(n << 1, out, at)
    out[at] = np.uint8(value)
    return at + 1
