"""Thrift's compact protocol, as far as the headers and the footer of a Parquet file need it.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any

BOOL, I16, I32, I64, BINARY, LIST, STRUCT = 1, 4, 5, 6, 8, 9, 12
_FALSE = 2


def struct(*fields: tuple[int, int, Any]) -> bytes:
    """A struct of (number, type, value), numbers ascending; a field whose value is None is left out.

    A value is a bool, an int, bytes (of a text or of a struct made here), or for a list (type of its elements, values).
    """
    out = bytearray()
    before = 0
    for number, kind, value in fields:
        if value is None:
            continue
        written = _FALSE if kind == BOOL and not value else kind
        out.append((number - before) << 4 | written)
        before = number
        if kind != BOOL:
            out += _value(kind, value)
    out.append(0)
    return bytes(out)


def _value(kind: int, value: Any) -> bytes:
    if kind in (I16, I32, I64):
        return _varint((value << 1) ^ (value >> 63))
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind == LIST:
        inner, values = value
        head = bytes([len(values) << 4 | inner]) if len(values) < 15 else bytes([0xF0 | inner]) + _varint(len(values))
        return head + b"".join(_value(inner, each) for each in values)
    return bytes(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
