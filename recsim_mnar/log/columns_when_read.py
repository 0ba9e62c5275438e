"""Columns of some rows of a table, each of them copied when it is first read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]


class ColumnsWhenRead(MutableMapping[str, Column]):
    """What ``{name: values[rows] for name, values in columns.items()}`` holds; what nobody reads takes no memory.

    Args:
        columns: (n,) each; not changed.
        rows: a boolean mask or indices.
    """

    def __init__(self, columns: Mapping[str, Column], rows: Column) -> None:
        self._whole, self._rows = dict(columns), rows
        self._read: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._read:
            self._read[name] = np.asarray(self._whole[name])[self._rows]
        return self._read[name]

    def __setitem__(self, name: str, values: Column) -> None:
        self._whole[name] = self._read[name] = values

    def __delitem__(self, name: str) -> None:
        del self._whole[name]
        self._read.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    def __contains__(self, name: object) -> bool:
        return name in self._whole  # as it stands in the mixin it would read the column

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # who is sent them gets these rows alone
