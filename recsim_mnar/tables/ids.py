"""A column of ids, numbered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.tables.arrow import is_text


@dataclass(frozen=True)
class Ids:
    """A column of ids, numbered.

    Attributes:
        codes: (n,) 0 .. number - 1; -1 where the id is missing.
        ids: (number,) the file's own, integers where all are written as such, else text; ascending.
    """

    codes: NDArray[np.int64]
    ids: NDArray[Any]

    @property
    def number(self) -> int:
        """How many ids there are."""
        return len(self.ids)

    def used(self) -> Ids:
        """Those that stand in a row, numbered anew; none may be missing."""
        found, codes = np.unique(self.codes, return_inverse=True)
        return Ids(codes.reshape(-1), self.ids[found])


def numbered(column: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Numbers 0 .. k - 1 in place of ids, -1 for null, and the ids ascending: integers where all are written so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = as_dictionary(column)
    ids = encoded.dictionary
    place = None
    if is_text(ids.type):
        bare = pc.replace_substring_regex(pc.utf8_trim_whitespace(ids), r"^(0|-?[1-9][0-9]{0,17})\.0$", r"\1")
        again = bare.dictionary_encode()  # "a" and "a " are one id, and so are 7 and what pandas makes of it, 7.0
        ids = again.dictionary
        place = again.indices
        # Written as integers without signs, spaces or leading zeros, so that nothing of an id is lost.
        whole = pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")
        if len(ids) and pc.all(pc.or_(whole, pc.equal(ids, ""))).as_py():
            ids = pc.if_else(pc.equal(ids, ""), pa.scalar(None, ids.type), ids).cast(pa.int64())
        else:
            ids = pc.if_else(pc.equal(ids, ""), pa.scalar(None, ids.type), ids)
    elif not (pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type)):
        ids = ids.cast(pa.string())
    order = pc.sort_indices(ids).to_numpy()  # null last
    order = order[: len(ids) - ids.null_count]
    rank = np.full(len(ids) + 1, -1, np.int64)
    rank[order] = np.arange(len(order))
    if place is not None:
        rank = np.append(rank[place.fill_null(len(ids)).to_numpy()], -1)
    used = encoded.indices.cast(pa.int64()).fill_null(len(rank) - 1).to_numpy()
    return rank[used], ids.take(pa.array(order)).to_numpy(zero_copy_only=False)


def spelled_alike(ids: NDArray[Any]) -> list[list[str]]:
    """Groups of text ids that differ only in capitals, such as DE and de."""
    groups: dict[str, list[str]] = {}
    for text in ids if ids.dtype.kind == "O" else ():
        groups.setdefault(str(text).casefold(), []).append(str(text))
    return [group for group in groups.values() if len(group) > 1]


def padded(ids: NDArray[Any]) -> dict[str, str]:
    """Those of text ids that are digits with leading zeros, without these: 7 of 007."""
    texts = ids if ids.dtype.kind == "O" else ()
    return {text: text.lstrip("0") or "0" for text in texts if text[:1] == "0" and len(text) > 1 and text.isdigit()}


def as_dictionary(column: Any) -> Any:
    """A column as one dictionary array."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
