"""Columns of a log, which nobody changes; and those of some rows of it, each copied when it is first read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.schema import read_only

Column = NDArray[Any]


class FixedColumns(dict[str, Column]):
    """Arrays by name, read-only each and together; :meth:`recsim_mnar.log.Log.with_column` makes another log."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        super().__init__({name: read_only(values) for name, values in columns.items()})

    def __getitem__(self, name: str) -> Column:
        return super().__getitem__(name).view()  # its shape and type can be set, whatever is read-only

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: a log is read-only."""
        raise TypeError("a log is read-only: log.with_column(name, values) makes another")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse

    def __reduce__(self) -> Any:
        return FixedColumns, (dict(self),)


class ColumnsWhenRead(Mapping[str, Column]):
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
            self._read[name] = read_only(np.asarray(self._whole[name])[self._rows])
        return self._read[name].view()

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    def __contains__(self, name: object) -> bool:
        return name in self._whole  # as it stands in the mixin it would read the column

    def __reduce__(self) -> Any:
        return FixedColumns, (dict(self),)  # who is sent them gets these rows alone
