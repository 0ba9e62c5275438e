"""What the pages of a Parquet file would unpack to, by their own headers; none of them is unpacked for it.

A page's header is a struct in Thrift's compact protocol: fields, each with its number and kind, to a zero byte.
"""

from __future__ import annotations

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
