"""Docstrings as ``describe`` shows them: what a thing is, and what each of its parameters means."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Examples?|Notes?):$")


def plain(text: str) -> str:
    """Text without the marks of reStructuredText: ``code`` and :class:`~module.Name` as what they name."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?([\w]+)`", r"\1", text)
    return " ".join(text.replace("``", "").split())


def paragraphs(kind: Any) -> list[str]:
    """The docstring of a class or function, without its sections: a line a paragraph."""
    lines = (inspect.getdoc(kind) or "").splitlines()
    end = next((i for i, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    blocks = "\n".join(lines[:end]).split("\n\n")
    return [plain(block) for block in blocks if block.strip()]


def meanings(kind: Any) -> dict[str, str]:
    """What ``Args:`` and ``Attributes:`` of a docstring say of each name."""
    found: dict[str, str] = {}
    inside, name = False, ""
    for line in (inspect.getdoc(kind) or "").splitlines():
        section = _SECTION.match(line)
        if section or (line.strip() and not line.startswith(" ")):
            inside = bool(section) and section is not None and section[1] in ("Args", "Attributes")
            continue
        begins = re.match(r"^    (\*{0,2}\w+)(?: \([^)]*\))?: (.*)$", line)
        if inside and begins:
            name = begins[1].lstrip("*")
            found[name] = begins[2]
        elif inside and name and line.strip():
            found[name] += " " + line.strip()
    return {each: plain(text) for each, text in found.items()}


def parameters(kind: Any, *, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Name, default and meaning of what a class or function is made with, in order.

    Args:
        kind: the class or function.
        without: names that callers do not give.
    """
    told: dict[str, str] = {}
    for each in reversed(inspect.getmro(kind) if inspect.isclass(kind) else (kind,)):
        told |= meanings(each)
        if inspect.isclass(each) and "__init__" in vars(each):
            told |= meanings(each.__init__)
    rows = []
    for name, parameter in _accepted(kind).items():
        if name in without:
            continue
        needed = parameter.default is parameter.empty
        default = None if needed else parameter.default
        rows.append({"name": name, "default": default, "needed": needed, "meaning": told.get(name, "")})
    return rows


def _accepted(kind: Any) -> dict[str, inspect.Parameter]:
    """Parameters by name; what a class hands on as ``**keywords`` is its base's."""
    found: dict[str, inspect.Parameter] = {}
    for each in inspect.getmro(kind) if inspect.isclass(kind) else (kind,):
        if inspect.isclass(each) and "__init__" not in vars(each):
            continue
        try:
            signature = inspect.signature(each)
        except (TypeError, ValueError):
            break
        own = signature.parameters
        varied = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        found = found | {name: p for name, p in own.items() if name not in found and p.kind not in varied}
        if not any(p.kind is p.VAR_KEYWORD for p in own.values()):
            break
    return found
