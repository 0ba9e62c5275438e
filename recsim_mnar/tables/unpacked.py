"""What the pages of a Parquet file and the batches of an Arrow file would unpack to; none is unpacked for it.

A page's header is a struct in Thrift's compact protocol: fields, each with its number and kind, to a zero byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_UNPACKED, _PACKED = 2, 3
"""Numbers of the fields of a page's header: its size in memory, and in the file."""
_TRUE, _FALSE, _BYTE, _SMALL, _LARGE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 6, 7, 8, 12
_USUAL, _LONGEST = 128, 1 << 26
"""Bytes of a header: it may hold the least and the largest text of its page."""


def unpacked_pages(data: memoryview, chunk: Any) -> int:
    """Bytes of a column chunk's pages in memory, from where its metadata say that they begin and end.

    Raises:
        ValueError: they do not follow one another so.
    """
    at = min((place for place in (chunk.data_page_offset, chunk.dictionary_page_offset) if place), default=0)
    end, size = at + chunk.total_compressed_size, 0
    while at < end:
        length, unpacked, packed = _header(data, at)
        size += unpacked
        at += length + packed
    return size


def _header(data: memoryview, at: int) -> tuple[int, int, int]:
    """Length of a header, and what it says of its page."""
    length = _USUAL
    while length <= _LONGEST:
        try:
            return _parsed(bytes(data[at : at + length]))
        except IndexError:
            length *= 8
    raise ValueError("the header of a page is damaged")


def _parsed(header: bytes) -> tuple[int, int, int]:
    """As :func:`_header`; IndexError where the header is longer."""
    found, number, at = {_UNPACKED: -1, _PACKED: -1}, 0, 0
    around: list[int] = []
    while (head := header[at]) or around:
        at, kind = at + 1, head & 15
        if not head:
            number = around.pop()
            continue
        number += head >> 4
        if not head >> 4:
            number, at = _whole(header, at)
        if _SMALL <= kind <= _LARGE:
            value, at = _whole(header, at)
            if not around:
                found[number] = value
        elif kind == _STRUCT:
            around.append(number)
            number = 0
        else:
            at = _passed(header, at, kind)
    if min(found[_UNPACKED], found[_PACKED]) < 0:
        raise ValueError("the header of a page is damaged")
    return at + 1, found[_UNPACKED], found[_PACKED]


def _whole(header: bytes, at: int) -> tuple[int, int]:
    """A whole number, and the place behind it."""
    found = header[at]
    if found > 127:
        found, at = _varint(header, at)
        at -= 1
    return found >> 1 ^ -(found & 1), at + 1


def _varint(header: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while shift < 64:
        byte = header[at]
        found, at, shift = found | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return found, at
    raise ValueError("the header of a page is damaged")


def _passed(header: bytes, at: int, kind: int) -> int:
    """The place behind a value that is no whole number."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    if kind == _BINARY:
        length, at = _varint(header, at)
        return at + length
    raise ValueError("the header of a page is damaged")


# ---------------------------------------------------------------------------------------------------------------- Arrow

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
