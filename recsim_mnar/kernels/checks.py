"""Checks of arguments; each raises UserError with a message of one line that names the argument."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError


def refuse_first(bad: NDArray[np.bool_], says: Callable[..., str]) -> None:
    """Raise UserError for the first True entry of a mask.

    Args:
        bad: mask of any shape.
        says: function from the entry's indices, one int per dimension, to the message.
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
        ends: two brackets, ``[`` or ``]`` if that end belongs to the range and ``(`` or ``)`` if not.

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
    """Return True if a number given as a share is probably a percentage; below 2 it may as well be a mistyped share."""
    return 2.0 <= value <= 100.0


def _as_share(percent: float) -> str:
    """Return the hint that a percentage should have been given as a share."""
    return f"this looks like percent: {percent / 100.0:g}"


def one_of(value: Any, name: str, known: Iterable[str]) -> Any:
    """Return ``value`` if it is one of the allowed words.

    Raises:
        UserError: it is not.
    """
    known = tuple(known)
    if value not in known:
        raise UserError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def of_type(value: Any, name: str, wanted: Any, words: str) -> Any:
    """Return ``value`` if it has the right type.

    Args:
        value: the argument.
        name: name of the argument in messages.
        wanted: class, or tuple of classes.
        words: description of the type in messages.

    Raises:
        UserError: it has another type.
    """
    if not isinstance(value, wanted):
        raise UserError(f"{name} must be {words}, got {value!r:.80}")
    return value


def text_of(value: Any, name: str) -> str:
    """Return ``value`` if it is a string.

    Raises:
        UserError: it is not.
    """
    return str(of_type(value, name, str, "a text"))


def texts_of(value: Any, name: str) -> list[str]:
    """Return ``value`` as a list of strings; a single string is refused.

    Raises:
        UserError: it is no list or tuple of strings.
    """
    texts = of_type(value, name, (list, tuple), "a list of texts")
    return [text_of(text, f"each of {name}") for text in texts]


def list_of(value: Any, name: str) -> Any:
    """Return ``value`` if it is iterable and no string.

    Raises:
        UserError: it is not.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UserError(f"{name} must be a list, got {value!r:.80}")
    return value


def table_by_name(value: Any, name: str) -> Mapping[str, Any]:
    """Return ``value`` if it is a mapping.

    Raises:
        UserError: it is not.
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
        UserError: it is not a number strictly between 0 and 1; for a likely percentage the message states the share.
    """
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and 0.0 < float(value) < 1.0):
        hint = "0.95 is usual"
        if number and _is_percent(value) and value < 100.0:
            hint = _as_share(float(value))
        raise UserError(f"{name} must be strictly between 0 and 1, got {value!r}; {hint}")
    return float(value)


def value_of(text: str) -> Any:
    """Parse the text of a parameter's value as a bool, an int or a float; return the text itself if it is none."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def told_apart(value: float, other: float) -> tuple[str, str]:
    """Format two numbers with the fewest digits that distinguish them, at least three and at most nine."""
    for digits in range(3, 10):
        texts = f"{value:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def rounded_down(value: float) -> str:
    """Format a positive number, rounded down to four digits so that it stays a lower bound."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(float(value)))):g}"
