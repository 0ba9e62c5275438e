# mypy: ignore-errors
"""Jitted core of reading columns without a copy: some of their values, those that are null as NaN."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel


@kernel
def take(data, bits, offset, rows, out):
    """Values at ``rows + offset`` of ``data`` into ``out`` (r,); rows (r,) int64.

    bits uint8: which values are there, eight a byte, lowest first; empty where all are.
    """
    none = bits.size == 0
    for j in range(out.size):
        i = np.uint64(rows[j] + offset)
        there = none or (bits[i >> np.uint64(3)] >> np.uint8(i & np.uint64(7))) & np.uint8(1)
        out[j] = data[i] if there else np.nan
