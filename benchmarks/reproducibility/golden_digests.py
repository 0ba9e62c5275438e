"""How goldens are written: short digests, and beside them the words by which a difference is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from interfaces import digest

Found = dict[str, str]


def sha(parts: list[str]) -> str:
    """The first 10 digits of a sha256 of texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]


def log_digest(log: Any) -> str:
    """Values, columns with their types, and the keys of the provenance, of a log that was read."""
    columns = " ".join(f"{name}:{values.dtype}" for name, values in log.columns.items())
    return f"{digest(log.columns)[:10]} {columns} | {' '.join(sorted(log.provenance))}"


def json_keys(value: Any) -> tuple[str, str]:
    """A digest of all paths of keys, and the names of keys."""
    paths = sorted(set(_paths(value, "")))
    names = {part for path in paths for part in path.split("/") if part not in ("", "[]")}
    return sha(paths), " ".join(sorted(names))


def _paths(value: Any, above: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield f"{above}/{name}"
            yield from _paths(each, f"{above}/{name}")
    elif isinstance(value, list):
        yield from (path for each in value for path in _paths(each, f"{above}/[]"))


def keys_of(old: str | None, new: str | None) -> str:
    """What differs between two goldens, in words: by their parts where they have any."""
    if old is None or new is None:
        return "new" if old is None else "gone"
    if re.match(r"\d ", old) or re.match(r"[a-z_.]+:", old):
        return f"was {old!r}, is {new!r}"
    before, after = old.split(), new.split()
    gone, come = [w for w in before if w not in after], [w for w in after if w not in before]
    return f"was {' '.join(gone) or '-'}, is {' '.join(come) or '-'}"
