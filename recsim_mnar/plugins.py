"""Find objects named ``package.module:name``, and entry points of installed packages."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, described, nearest
from recsim_mnar.kernels.checks import value_of

_MOST_LISTED = 16
"""Names that a message lists; for more it names the command that lists them."""


class _OwnFolder:
    """The folder of the user's modules, and the number of threads that import from it at the moment."""

    path: str | None = None
    lookers = 0
    lock = threading.Lock()


def look_in(folder: str | None) -> None:
    """Set the folder of :func:`own_folder`; the command line and its workers set the current one."""
    _OwnFolder.path = folder


def own_folder_named() -> str | None:
    """Return the folder that was set; None to import from ``sys.path`` alone."""
    return _OwnFolder.path


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """Allow imports from the user's folder within the block, after all other places.

    So a file in it never replaces a module of a library.
    """
    folder = _OwnFolder.path
    if folder is None:
        yield
        return
    with _OwnFolder.lock:
        _OwnFolder.lookers += 1
        if _OwnFolder.lookers == 1:
            sys.path.append(folder)
    try:
        yield
    finally:
        with _OwnFolder.lock:
            _OwnFolder.lookers -= 1
            if _OwnFolder.lookers == 0 and folder in sys.path:
                del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


@functools.cache
def announced(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def imported(
    what: str, spec: str, *, base: type[Any] | None = None, wanted: Callable[[Any], bool] | None = None
) -> Any:
    """Import the object that ``package.module:name`` names.

    Args:
        what: word for messages, such as ``world``.
        spec: name of the object.
        base: class whose subclasses are suggested if the module has no such name.
        wanted: function that decides which classes are suggested, in place of ``base``.

    Raises:
        UserError: the name is malformed, the module cannot be imported, or has no such name.
    """
    path, _, attribute = spec.partition(":")
    if not (path and attribute) or path.startswith(".") or path.endswith(".py") or "/" in path:
        module_name = re.sub(r"^(\./)+|\.py$", "", path).strip("/").replace("/", ".")
        hint = ""
        if module_name and attribute and not module_name.startswith("."):
            hint = f": {module_name}:{attribute}"
        raise UserError(f"{what} {spec!r}: write it as package.module:name{hint}")
    try:
        with own_folder():
            module = importlib.import_module(path)
    except ImportError as error:
        raise UserError(f"{what} {spec!r}: module {path!r} cannot be imported: {error}") from error
    except SyntaxError as error:
        raise UserError(f"{what} {spec!r}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a module's code may raise anything
        raise UserError(f"{what} {spec!r}: importing {path!r} raised {described(error)}") from error
    result: Any = module
    for part in attribute.split("."):
        if not hasattr(result, part):
            hint = _hidden(path, module)
            candidates = [
                name
                for name, value in vars(module).items()
                if isinstance(value, type) and ((base and issubclass(value, base)) or (wanted and wanted(value)))
            ]
            if candidates and not hint:
                hint = f"; {nearest(attribute, candidates)}"
            raise UserError(f"{what} {spec!r}: {path} has no {attribute!r}{hint}")
        result = getattr(result, part)
    return result


def _hidden(path: str, module: Any) -> str:
    """Return a hint if another module was imported in place of one in the user's folder; else ""."""
    own_file = Path(_OwnFolder.path or "", *path.split(".")).with_suffix(".py")
    file = getattr(module, "__file__", None)
    if _OwnFolder.path is None or not own_file.is_file() or (file and own_file.samefile(file)):
        return ""
    return f": it is {file or 'part of Python'}, which comes before your {own_file.name}; rename yours"


def unknown(what: str, name: str, known: Iterable[str], kind: str, *, methods: Sequence[str] = ()) -> str:
    """Return the message for an unknown name.

    Args:
        what: word for messages, such as ``world``.
        name: the unknown name.
        known: the existing names.
        kind: kind of a user's own object in its module: ``Class`` or ``function``.
        methods: methods of classes of this kind, which are suggested if the name is a module's.
    """
    module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
    inside = _definitions(module, methods, kind)
    if inside is None and "." in module:
        module, _, last = module.rpartition(".")
        inside = [name for name in _definitions(module, methods, kind) or [] if name == last] or None
    if inside is not None:
        like = inside[0] if inside else kind
        return f"{what} {name!r} is a module: say which {kind.lower()} of it, {module}:{like}"
    article = "an" if what[0] in "aeiou" else "a"
    names = list(known)
    hint = nearest(name, names)
    if hint.startswith("known") and len(names) > _MOST_LISTED:
        hint = f"`recsim-mnar list {what}s` lists all {len(names)}"
    return f"unknown {what} {name!r}; {hint} ({article} {what} of your own: package.module:{kind})"


def option_of(kind: Any, key: str, text: str, where: str) -> Any:
    """Parse the value of an option ``key=text``, for a parameter of a class.

    Raises:
        UserError: the parameter is a flag, and the text is neither true nor false.
    """
    value = value_of(text)
    parameter = inspect.signature(kind).parameters.get(key) if inspect.isclass(kind) else None
    if parameter is None or not (isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")):
        return value
    if value not in (0, 1):
        raise UserError(f"{where}: {key} must be true or false, got {text!r}")
    return bool(value)


def _definitions(module: str, methods: Sequence[str], kind: str) -> list[str] | None:
    """List the functions of a module, or its classes with any of these methods, without running it.

    Returns:
        their names; None if there is no such module.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module):
        return None
    try:
        with own_folder():
            spec = importlib.util.find_spec(module)
        if spec is None:
            return None
        source = b""
        if spec.origin and spec.origin.endswith(".py"):
            source = Path(spec.origin).read_bytes()
        tree = ast.parse(source)
    except (ImportError, ValueError, OSError, SyntaxError):
        return None
    if kind == "function":
        return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    named = [c.name for c in classes if any(isinstance(f, ast.FunctionDef) and f.name in methods for f in c.body)]
    return named or [c.name for c in classes if not c.name.startswith("_")]
