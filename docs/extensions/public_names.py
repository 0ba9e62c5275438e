"""What is public, and what the modules of the package hold: the latter read from the source."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("datasets", "envs", "estimators", "export", "testing", "worlds")
"""Whose ``__all__`` is public, beside that of ``recsim_mnar`` itself; and every module of ``integrations``."""


@dataclass(frozen=True)
class Module:
    """One module.

    Attributes:
        name: its dotted name.
        is_package: whether it is a folder.
        classes: public classes that it defines.
        functions: public functions that it defines.
        methods: public methods and properties of its classes, as ``Class.name``.
        exported: what its ``__all__`` names, a package's re-exports among them.
        constants: public constants and aliases of types that it assigns, each with what its comment says.
        comes_from: of an imported name the dotted name of what it is.
    """

    name: str
    is_package: bool
    classes: tuple[str, ...]
    functions: tuple[str, ...]
    methods: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    constants: dict[str, str] = field(default_factory=dict)
    comes_from: dict[str, str] = field(default_factory=dict)

    @property
    def defined(self) -> list[str]:
        """Dotted names of all that it defines."""
        return [f"{self.name}.{name}" for name in (*self.classes, *self.methods, *self.functions, *self.constants)]


@functools.cache
def modules() -> list[Module]:
    """Every module, by name: what is internal, too, for docstrings name it."""
    found = [_read(name, path) for name, path in sources()]
    return sorted(found, key=lambda module: module.name)


def public_names() -> dict[str, str]:
    """Where each public thing is defined -> the dotted name under which it is described: the top's, if it is there."""
    tops = ("recsim_mnar", *(f"recsim_mnar.{package}" for package in PACKAGES))
    found: dict[str, str] = {}
    for package in tops:
        held = importlib.import_module(package)
        for name in held.__all__:
            thing = getattr(held, name)
            if not (name.startswith("__") or inspect.ismodule(thing)):
                found.setdefault(_defined_at(thing, f"{package}.{name}"), f"{package}.{name}")
    found.update({value: value for value in agents()})
    for module in modules():
        if module.name.startswith("recsim_mnar.integrations."):
            found.update({name: name for name in (module.name, *module.defined)})
    return found


def constant_said(name: str) -> str:
    """What the source says of a constant that a public package exports."""
    package, _, last = name.rpartition(".")
    everything = modules()
    module, _, own = origin_of(next(m for m in everything if m.name == package), last, everything).rpartition(".")
    return next(m for m in everything if m.name == module).constants[own]


def agents() -> list[str]:
    """Dotted names of the classes that agents are entered with."""
    return sorted({point.value.replace(":", ".") for point in entry_points(group="recsim_mnar.agents")})


def _defined_at(thing: Any, otherwise: str) -> str:
    """The dotted name of a class or function where it is defined; a constant has none but the public one."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{module}.{name}" if module and name else otherwise


def origin_of(module: Module, name: str, all_modules: list[Module]) -> str:
    """The dotted name under which something that a module exports is described."""
    by_name = {known.name: known for known in all_modules}
    while name in module.comes_from:
        source, _, original = module.comes_from[name].rpartition(".")
        if source not in by_name:
            break
        module, name = by_name[source], original
    return f"{module.name}.{name}"


def sources() -> Iterator[tuple[str, Path]]:
    """Every module's dotted name and file, but for those with an underscore."""
    for base, prefix in ((ROOT / "recsim_mnar", "recsim_mnar"), (ROOT / "agents", "recsim_mnar.agents")):
        for path in base.rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            name = ".".join((prefix, *parts))
            if not any(part.startswith("_") for part in parts):
                yield name, path


def _read(name: str, path: Path) -> Module:
    classes, functions, methods = [], [], []
    constants: dict[str, str] = {}
    exported: tuple[str, ...] = ()
    comes_from: dict[str, str] = {}
    text = path.read_text()
    statements = list(_statements(ast.parse(text)))
    for node, after in zip(statements, [*statements[1:], None], strict=True):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            classes.append(node.name)
            methods += [f"{node.name}.{name}" for name in _methods(node)]
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            functions.append(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            comes_from.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in _targets(node):
                if target == "__all__":
                    exported = _texts(node.value)
                elif _is_constant(target):
                    constants[target] = _said(node, after, text.splitlines())
    defined = tuple(classes), tuple(functions), tuple(methods)
    return Module(name, path.name == "__init__.py", *defined, exported, constants, comes_from)


def _methods(node: ast.ClassDef) -> list[str]:
    names = [member.name for member in node.body if isinstance(member, ast.FunctionDef)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    single = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target.id for target in single if isinstance(target, ast.Name)]


def _is_constant(name: str) -> bool:
    """``PRESETS`` and ``Floats`` are, ``T`` (a type's variable) and ``_MOST`` are not."""
    return name[0].isupper() and len(name) > 1


def _said(node: ast.stmt, after: ast.stmt | None, lines: list[str]) -> str:
    """The string below an assignment, the comment behind it or above it, or what is assigned, in one line."""
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return _text(" ".join(after.value.value.split()))
    behind = lines[node.lineno - 1].partition("  # ")[2]
    above = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.startswith("# "):
            break
        above.append(line[2:])
    said = behind if behind and not behind.startswith(("noqa", "type:")) else " ".join(reversed(above))
    value = getattr(node, "value", None)
    return _text(said) if said or value is None else f"``{_shortened(ast.unparse(value))}``"


def _shortened(code: str) -> str:
    one_line = " ".join(code.split())
    return one_line if len(one_line) <= 100 else f"{one_line[:97].rstrip()}..."


def _text(comment: str) -> str:
    """A comment as text of a page: code and roles stay, what else would be marks does not."""
    parts = re.split(r"(``.+?``|:\w+:`[^`]+`)", comment)
    return "".join(part if "`" in part else re.sub(r"([*|_\\])", r"\\\1", part) for part in parts)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements of the top level, and of ``if TYPE_CHECKING:`` on it."""
    for node in tree.body:
        if isinstance(node, ast.If):
            yield from node.body
        else:
            yield node


def _texts(value: ast.expr | None) -> tuple[str, ...]:
    found = value.elts if isinstance(value, (ast.List, ast.Tuple)) else []
    return tuple(item.value for item in found if isinstance(item, ast.Constant) and isinstance(item.value, str))
