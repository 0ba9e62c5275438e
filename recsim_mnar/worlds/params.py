"""Parameters of a world: a checked, frozen dataclass that reads and writes TOML and JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from recsim_mnar.errors import UserError, nearest, why_unreadable
from recsim_mnar.kernels import checks


class KeywordError(UserError, TypeError):
    """Error about an unknown keyword.

    It is also a TypeError, because libraries that try out their own keywords catch TypeError.
    """

    @classmethod
    def of(cls, name: str, known: Iterable[str]) -> KeywordError:
        """Return the error about the keyword ``name``, which suggests the nearest of the ``known`` ones."""
        return cls(f"unknown keyword {name!r}; {nearest(name, known)} (unexpected keyword argument {name!r})")


def added(off: Any) -> Any:
    """Declare a parameter that a world did not have from the start, with the default that leaves it without effect.

    While it is off, a log's provenance does not name it, so that older parameters still give the same bytes.
    """
    return dataclasses.field(default=off, metadata={"added": True})


@dataclasses.dataclass(frozen=True)
class Params:
    """Base of the parameters of worlds: a subclass declares fields and may define ``check``.

    Attributes:
        counts_of_items: names of parameters that count items, and so go with ``n_items``.
    """

    counts_of_items: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Convert every field to its declared type, then call ``check``."""
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = _converted(field.name, getattr(self, field.name), hints[field.name])
            object.__setattr__(self, field.name, value)  # the dataclass is frozen
        self.check()

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""

    def to_dict(self) -> dict[str, Any]:
        """Return all parameters by name; JSON types only."""
        return dataclasses.asdict(self)

    def left_behind(self, preset: Params, names: Collection[str]) -> list[str]:
        """Describe counts of items that kept the preset's value although the number of items changed.

        Args:
            preset: the preset's parameters.
            names: names of the parameters that were set.

        Returns:
            One sentence, or none where every count of items was set or is 0.
        """
        n_before = preset.to_dict().get("n_items")
        n_now = self.to_dict().get("n_items")
        if not n_before or n_now == n_before:
            return []
        kept = {name: getattr(self, name) for name in self.counts_of_items if name not in names}
        stayed = ", ".join(f"{name}={count}" for name, count in kept.items() if count)
        if not stayed:
            return []
        in_proportion = ", ".join(f"{name}={count * n_now // n_before}" for name, count in kept.items() if count)
        return [
            f"n_items is {n_now:,}, not the preset's {n_before:,}. Unchanged: {stayed}. In proportion: "
            f"{in_proportion}. Set that too."
        ]

    def to_provenance(self) -> dict[str, Any]:
        """Return the parameters for a log's provenance: all but those declared by :func:`added` that are off."""
        off = {field.name: field.default for field in dataclasses.fields(self) if field.metadata.get("added")}
        return {name: value for name, value in self.to_dict().items() if name not in off or value != off[name]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the parameters with these values, the inverse of :meth:`to_dict`; missing ones keep their defaults.

        Raises:
            UserError: an unknown name, a value of the wrong kind, or one that breaks a rule.
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in fields:
                raise UserError(f"unknown parameter {name!r}; {nearest(name, fields)}")
        return cls(**values)

    def to_json(self) -> str:
        """Return the parameters as the text of a JSON object."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the parameters in the text of a JSON object; missing ones keep their defaults."""
        return cls._from_text(text, json.loads, "JSON")

    def to_toml(self) -> str:
        """Return the parameters as the text of a TOML document."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Return the parameters in the text of a TOML document; missing ones keep their defaults."""
        return cls._from_text(text, tomllib.loads, "TOML")

    @classmethod
    def _from_text(cls, text: str, load: Callable[[str], Any], form: str) -> Self:
        """Return the parameters in a text that ``load`` parses; ``form`` names its format in the error message."""
        try:
            values = load(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"the parameters are not valid {form}: {why_unreadable(error)}") from None
        return cls.from_dict(values)

    def with_keywords(self, keywords: Mapping[str, Any]) -> Self:
        """Return a copy with the parameters in ``keywords`` changed.

        Raises:
            KeywordError: an unknown name.
            UserError: a value of the wrong kind, or one that breaks a rule.
        """
        values = self.to_dict()
        for name in keywords:
            if name not in values:
                raise KeywordError.of(name, values)
        return type(self).from_dict({**values, **keywords})

    def with_settings(self, settings: Iterable[str]) -> Self:
        """Return a copy with the parameters changed that ``name=value`` texts set.

        Raises:
            UserError: an unknown or repeated name, a value of the wrong kind, or one that breaks a rule. The message
                begins with the setting at fault.
        """
        values = self.to_dict()
        texts: dict[str, str] = {}
        for setting in settings:
            name, equals, value = setting.partition("=")
            name = name.strip()
            if not equals:
                raise UserError(f"--set {setting}: write it as name=value")
            if name not in values:
                raise UserError(f"--set {setting}: unknown parameter {name!r}; {nearest(name, values)}")
            if name in texts:
                raise UserError(f"--set {setting}: {name} is given already, as {texts[name]}; give it once")
            values[name] = texts[name] = value.strip()
        try:
            return type(self).from_dict(values)
        except UserError as error:
            # The first setting whose parameter the message names is at fault.
            at_fault = [name for name in texts if re.search(rf"\b{re.escape(name)}\b", str(error))]
            where = "".join(f"--set {name}={texts[name]}: " for name in at_fault[:1])
            raise UserError(f"{where}{error}") from None


# Rules by their words in error messages.
_RULES: dict[str, Callable[[Any], bool]] = {
    "be at least 0": lambda value: value >= 0,
    "be at least 1": lambda value: value >= 1,
    "be at most 10": lambda value: value <= 10,
    "be at most 10,000,000": lambda value: value <= 10_000_000,
    "be below 2**31": lambda value: value < 2**31,
    "be above 0": lambda value: value > 0,
    "not be negative": lambda value: value >= 0,
    "be in 1..1000": lambda value: 1 <= value <= 1000,
    "be in [0, 1]": lambda value: 0 <= value <= 1,
    "be in [0, 1)": lambda value: 0 <= value < 1,
    "be in (0, 1]": lambda value: 0 < value <= 1,
}


def must(params: Any, rule: str, *names: str) -> None:
    """Raise UserError for the first of the named parameters that breaks a rule, a key of :data:`_RULES`."""
    for name in names:
        value = getattr(params, name)
        if not _RULES[rule](value):
            text = str(value)
            if isinstance(value, float):
                text = f"{value:g}"
            raise UserError(f"{name} must {rule}, got {text}")


def one_of(params: Any, **known: Sequence[str]) -> None:
    """Raise UserError for the first parameter that is not one of the allowed words given under its name."""
    for name, words in known.items():
        checks.one_of(getattr(params, name), name, words)


def _converted(name: str, value: Any, kind: Any) -> Any:
    """Return the value of a parameter as its declared type; texts, as the command line has them, are parsed.

    Args:
        name: name of the parameter, for the message.
        value: value to convert.
        kind: bool, int or float; every other type gives a string.

    Raises:
        UserError: the value cannot be converted without loss.
    """
    try:
        if kind is bool:
            if isinstance(value, bool):
                return value
            words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
            return words[str(value).lower()]
        if kind is int:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            return int(value)
        if kind is float:
            number = float(value)
            if isinstance(value, bool) or not math.isfinite(number):
                raise ValueError
            return number
        return str(value)
    except (KeyError, ValueError, TypeError):
        expected = {bool: "true or false", int: "a whole number", float: "a finite number"}.get(kind, "a string")
        raise UserError(f"{name} must be {expected}, got {value!r}") from None
