"""Checks of arguments: a whole number, a number in a range, a flag, an array; one line for each mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError


def refuse_first(bad: NDArray[np.bool_], says: Callable[..., str]) -> None:
    """Raise UserError for the first entry that is bad.

    Args:
        bad: mask of any shape.
        says: the message, from the entry's place: an int for each dimension.
    """
    if bad.any():
        raise UserError(says(*(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))))


def whole_number(value: Any, name: str, least: int = 0, most: int | None = None) -> int:
    """Return ``value`` as an int.

    Raises:
        UserError: not an integer (a bool is none), below ``least`` or above ``most``.
    """
    integral = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not integral or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if most is not None and value > most:
        raise UserError(f"{name} must be at most {most:,}, got {value:,}")
    return int(value)


def number_in(value: Any, name: str, low: float = 0.0, high: float = math.inf, *, ends: str = "[]") -> float:
    """Return ``value`` as a float.

    Args:
        value: the argument.
        name: name of the argument in messages.
        low: lower end.
        high: upper end.
        ends: ``[`` or ``(`` and ``]`` or ``)``: whether each end belongs to the range.

    Raises:
        UserError: not a finite real number (a bool is none), or outside the range.
    """
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    inside = (
        real
        and math.isfinite(value)
        and (value >= low if ends[0] == "[" else value > low)
        and (value <= high if ends[1] == "]" else value < high)
    )
    if not inside:
        if high == math.inf:
            raise UserError(f"{name} must be a number {'from' if ends[0] == '[' else 'above'} {low:g}, got {value!r}")
        hint = ""
        if real and (low, high) == (0.0, 1.0) and _is_percent(value):
            hint = f"; {_as_share(value)}"
        raise UserError(f"{name} must be in {ends[0]}{low:g}, {high:g}{ends[1]}, got {value!r}{hint}")
    return float(value)


def _is_percent(value: float) -> bool:
    """Return True if a share was probably meant as per cent: nobody writes 1.5 % for a level or a power."""
    return 2.0 <= value <= 100.0


def _as_share(percent: float) -> str:
    return f"this looks like percent: {percent / 100.0:g}"


def one_of(value: Any, name: str, known: Iterable[str]) -> Any:
    """Return ``value`` if it is one of the known words.

    Raises:
        UserError: it is another.
    """
    known = tuple(known)
    if value not in known:
        raise UserError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def of_type(value: Any, name: str, wanted: Any, words: str) -> Any:
    """Return ``value`` if it is of a class, or of one of several, that ``words`` name.

    Raises:
        UserError: it is of another.
    """
    if not isinstance(value, wanted):
        raise UserError(f"{name} must be {words}, got {value!r:.80}")
    return value


def text_of(value: Any, name: str) -> str:
    """Return ``value`` if it is a text.

    Raises:
        UserError: it is none.
    """
    return str(of_type(value, name, str, "a text"))


def texts_of(value: Any, name: str) -> list[str]:
    """Return ``value`` if it is a list of texts; a single text is none.

    Raises:
        UserError: it is none.
    """
    texts = of_type(value, name, (list, tuple), "a list of texts")
    return [text_of(text, f"each of {name}") for text in texts]


def list_of(value: Any, name: str) -> Any:
    """Return ``value`` if it is a list; a text is none.

    Raises:
        UserError: it is none.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UserError(f"{name} must be a list, got {value!r:.80}")
    return value


def table_by_name(value: Any, name: str) -> Mapping[str, Any]:
    """Return ``value`` if it is a table by name.

    Raises:
        UserError: it is none.
    """
    table: Mapping[str, Any] = of_type(value, name, Mapping, "a table by name (a dict)")
    return table


def flag(value: Any, name: str) -> bool:
    """Return ``value`` as a bool.

    Raises:
        UserError: it is neither True nor False.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise UserError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def level_of(value: Any, name: str = "level") -> float:
    """Return the coverage of an interval as a float.

    Raises:
        UserError: not a number strictly between 0 and 1; the message gives one that looks like percent as its share.
    """
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and 0.0 < float(value) < 1.0):
        hint = "0.95 is usual"
        if number and _is_percent(value) and value < 100.0:
            hint = _as_share(float(value))
        raise UserError(f"{name} must be strictly between 0 and 1, got {value!r}; {hint}")
    return float(value)


def value_of(text: str) -> Any:
    """Parse a parameter's value: true or false, an integer, a number, or else the text."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def told_apart(value: float, other: float) -> tuple[str, str]:
    """Format two numbers with as many digits as distinguish them, from three to nine."""
    for digits in range(3, 10):
        texts = f"{value:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def rounded_down(value: float) -> str:
    """Round a positive number down to four digits, for use as a lower bound."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(float(value)))):g}"
