"""The column ``event`` of a log file: which rows are recommendations, and which words say neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.arrow import is_text

_WORDS = ("organic", "bandit", 0, 1, None)


def bandit_rows(column: Any) -> NDArray[np.bool_]:
    """(n,) which rows are recommendations, from a pyarrow column of names (organic, bandit) or codes (0, 1)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        if not column.null_count:  # a look at each name instead of at each row
            marks = [(bandit_rows(chunk.dictionary), np.asarray(chunk.indices)) for chunk in column.chunks]
            return np.concatenate([np.zeros(0, bool), *(mark[indices] for mark, indices in marks)])
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    try:
        bandit = pc.equal(column, "bandit" if is_text(column.type) else 1)
    except pa.ArrowNotImplementedError:  # dates, lists, ...
        return np.zeros(len(column), dtype=bool)
    return np.asarray(pc.fill_null(bandit, False).to_numpy(zero_copy_only=False), dtype=bool)


@dataclass
class EventWords:
    """Words of a column ``event``, met block by block: others beside organic and bandit could be either.

    A column that holds neither marks no recommendation, which :func:`events_held` says.

    Attributes:
        source: the log's name.
    """

    source: str
    _known: bool = False
    _other: tuple[Any, int] | None = None

    def meet(self, column: Any, first: int = 1) -> None:
        """Look at a pyarrow column whose first row has this number in the file.

        Raises:
            UserError: it holds other words, and organic or bandit stand in it or stood before it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            words = column.unique().to_pylist()
        except pa.ArrowNotImplementedError:  # tables, lists, ...
            return
        others = [value for value in words if value not in _WORDS]
        self._known |= len(others) < len(words)
        if others and self._other is None:
            plain = column.cast(column.type.value_type) if hasattr(column.type, "value_type") else column
            self._other = others[0], pc.index(plain, others[0]).as_py() + first
        if self._known and self._other is not None:
            word, row = self._other
            raise UserError(
                f"{self.source}: column 'event', row {row:,} (from 1, below the header): {word!r} is neither organic "
                "nor bandit: write one of them"
            )


def events_held(column: Any) -> str:
    """Why a pyarrow column ``event`` marks no recommendation, in words."""
    import pyarrow as pa

    try:
        met = [value for value in column.unique().to_pylist() if value is not None]
    except pa.ArrowNotImplementedError:
        met = [column.type]
    unknown = [str(value) for value in met if value not in ("organic", 0)]
    if not unknown:
        return "its column 'event' says so, and nothing was recommended in it"
    listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
    return f"its column 'event' holds {listed}; write bandit (or 1) where something was recommended"
