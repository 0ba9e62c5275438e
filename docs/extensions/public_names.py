"""What is public: read from the source, so that nothing has to be imported to know it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Modules that no page of the reference describes, and why. Everything else without an underscore is public.
NOT_PUBLIC = {
    "recsim_mnar.__main__": "the command line",
    "recsim_mnar.cli": "the commands have a page of their own",
    "recsim_mnar.installation": "what `doctor` prints",
    "recsim_mnar.numerics": "how kernels are compiled: contributors read the source",
    "recsim_mnar.plugins": "how names of others are found",
    "recsim_mnar.warming": "what `warm` runs",
}


@dataclass(frozen=True)
class Module:
    """One public module.

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


def modules() -> list[Module]:
    """Every public module, by name."""
    found = [_read(name, path) for name, path in sources()]
    return sorted(found, key=lambda module: module.name)


def public_names() -> list[str]:
    """Dotted names of all that is public: modules, classes, functions, and constants that other modules re-export."""
    all_modules = modules()
    names = {module.name for module in all_modules}
    for module in all_modules:
        names.update(module.defined)
        names.update(origin_of(module, name, all_modules) for name in module.exported if name != "__version__")
    return sorted(names)


def origin_of(module: Module, name: str, all_modules: list[Module]) -> str:
    """The dotted name under which something that a module exports is described."""
    by_name = {known.name: known for known in all_modules}
    while name in module.comes_from:
        source, _, original = module.comes_from[name].rpartition(".")
        if source not in by_name:
            break
        module, name = by_name[source], original
    return f"{module.name}.{name}"


def further_of(module: Module, all_modules: list[Module]) -> list[str]:
    """Names that a module exports and takes from a module that is not public: they are described here."""
    known = (*module.classes, *module.functions, *module.constants)
    mine = [name for name in module.exported if origin_of(module, name, all_modules) == f"{module.name}.{name}"]
    return [name for name in mine if name not in known and not name.startswith("__")]


def is_hidden(name: str) -> bool:
    """Whether a dotted name lies in a module that is not public."""
    return any(name == hidden or name.startswith(f"{hidden}.") for hidden in NOT_PUBLIC)


def sources() -> Iterator[tuple[str, Path]]:
    """Every public module's dotted name and file."""
    for base, prefix in ((ROOT / "recsim_mnar", "recsim_mnar"), (ROOT / "agents", "recsim_mnar.agents")):
        for path in base.rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            name = ".".join((prefix, *parts))
            if not any(part.startswith("_") for part in parts) and not is_hidden(name):
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
