"""What an Arrow file says of its batches: rows, and bytes once they are unpacked. None of them is unpacked for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_FOOTER, _DICTIONARIES, _BATCHES = b"ARROW1", 2, 3
_HEADER_KIND, _HEADER, _OF_DICTIONARY, _LENGTH, _BUFFERS = 1, 2, 1, 0, 2
"""Numbers of fields in Arrow's tables: of its footer, of a message, of a batch in a dictionary's, and of a batch."""
_DICTIONARY = 2
_BLOCK, _BUFFER = 24, 16


@dataclass(frozen=True)
class _Place:
    """A place in a flatbuffer, or in a file; numbers are little-endian, and 0 where the bytes end."""

    data: memoryview
    at: int

    def number(self, size: int, behind: int = 0) -> int:
        first = self.at + behind
        return int.from_bytes(self.data[first : first + size], "little", signed=size > 2) if first >= 0 else 0

    def field(self, number: int) -> _Place | None:
        """A field of the table that is here."""
        known = _Place(self.data, self.at - self.number(4))
        place = known.number(2, 4 + 2 * number) if 4 + 2 * number < known.number(2) else 0
        return _Place(self.data, self.at + place) if place else None

    def followed(self) -> _Place:
        return _Place(self.data, self.at + self.number(4))

    def structs(self, number: int, size: int) -> Iterator[_Place]:
        """The entries, of so many bytes each, of a field that is a vector."""
        field = self.field(number)
        vector = None if field is None else field.followed()
        for k in range(0 if vector is None else min(vector.number(4), len(self.data) // size)):
            assert vector is not None
            yield _Place(self.data, vector.at + 4 + size * k)


def sizes_of(data: memoryview) -> tuple[list[int], int]:
    """Rows of each batch of an Arrow file's bytes, and the bytes of all batches and dictionaries once unpacked.

    Raises:
        ValueError: it is none.
    """
    end = len(data) - len(_FOOTER) - 4
    if end < 0 or bytes(data[end + 4 :]) != _FOOTER:
        raise ValueError("it does not end as an Arrow file does")
    footer = _Place(data, end - _Place(data, end).number(4)).followed()
    rows, unpacked = [], 0
    for number in (_DICTIONARIES, _BATCHES):
        for block in footer.structs(number, _BLOCK):
            length, size = _batch(data, block)
            unpacked += size
            rows += [length] if number == _BATCHES else []
    return rows, unpacked


def _batch(data: memoryview, block: _Place) -> tuple[int, int]:
    """Rows of a batch, and the bytes of its buffers: what stands before a packed one, the size of another."""
    start, head, body = block.number(8), block.number(4, 8), block.number(8, 16)
    marked = 8 if _Place(data, start).number(4) == -1 else 4
    message = _Place(data, start + marked).followed()
    kind, table = message.field(_HEADER_KIND), message.field(_HEADER)
    if table is None or kind is None:
        raise ValueError("a batch of it is damaged")
    batch = table.followed()
    within = batch.field(_OF_DICTIONARY) if kind.number(1) == _DICTIONARY else None
    batch = batch if within is None else within.followed()
    length, packed, size = batch.field(_LENGTH), batch.field(_BUFFERS + 1) is not None, 0
    for buffer in batch.structs(_BUFFERS, _BUFFER):
        place, taken = buffer.number(8), buffer.number(8, 8)
        said = _Place(data, start + head + place).number(8) if packed and 8 <= taken <= body else -1
        size += taken if said < 0 else said
    return 0 if length is None else length.number(8), size
