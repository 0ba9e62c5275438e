"""The first difference between two results, in words: a failure says where and what, not only that there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def difference(left: Any, right: Any, where: str = "", exact: bool = True) -> str:
    """Name the first place where two results differ, or nothing; without ``exact`` arrays need equal values only."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() != right.keys():
            return f"{where}: only one has {sorted(map(str, left.keys() ^ right.keys()))}"
        pairs = [(key, left[key], right[key]) for key in left]
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        pairs = [(i, one, other) for i, (one, other) in enumerate(zip(left, right, strict=False))]
    elif isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return _of_arrays(np.asarray(left), np.asarray(right), where, exact)
    else:
        no_numbers = left != left and right != right  # NaN
        same = (left == right or no_numbers) and (type(left) is type(right) or not exact)
        return "" if same else f"{where}: {left!r} and {right!r}"
    for key, one, other in pairs:
        found = difference(one, other, f"{where}[{key!r}]", exact)
        if found:
            return found
    if len(left) != len(right):
        return f"{where}: {len(left)} and {len(right)} entries, the first {len(pairs)} alike"
    return ""


def _of_arrays(left: np.ndarray, right: np.ndarray, where: str, exact: bool) -> str:
    if exact and left.dtype != right.dtype:
        return f"{where}: of type {left.dtype} and {right.dtype}"
    if left.shape[1:] != right.shape[1:] or left.ndim != right.ndim:
        return f"{where}: of shape {left.shape} and {right.shape}"
    if left.dtype == object:
        return difference(left.tolist(), right.tolist(), where, exact)
    if _alike(left, right, exact):
        return ""
    for row, (one, other) in enumerate(zip(np.atleast_1d(left), np.atleast_1d(right), strict=False)):
        if not _alike(one, other, exact):
            return f"{where}, row {row}: {one} and {other}"
    return f"{where}: {len(left)} and {len(right)} rows, the first ones alike"


def _alike(left: Any, right: Any, exact: bool) -> bool:
    if exact:
        return left.shape == right.shape and left.tobytes() == right.tobytes()
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def assert_same(left: Any, right: Any, where: str = "", exact: bool = True) -> None:
    """Fail with the first difference, if there is one."""
    found = difference(left, right, where, exact)
    assert not found, found
