"""Objects named ``package.module:name``, and those that installed packages announce."""

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
"""Names that a message lists; of more it says where they stand."""


class _OwnFolder:
    """The folder of a user's own modules, and how many threads look for one at the moment."""

    path: str | None = None
    lookers = 0
    lock = threading.Lock()


def look_in(folder: str | None) -> None:
    """Name the folder in which :func:`own_folder` looks: the command line and its workers name the current one."""
    _OwnFolder.path = folder


def own_folder_named() -> str | None:
    """The folder that was named; None where the program's own ``sys.path`` is all there is."""
    return _OwnFolder.path


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """Within the block a module of the named folder can be imported, where no other place has one of its name.

    So a file in it runs where it is asked for, and never in the place of a library's.
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
    """Entry points of a group by name, as installed packages announce them."""
    return {point.name: point for point in entry_points(group=group)}


def imported(
    what: str, spec: str, *, base: type[Any] | None = None, wanted: Callable[[Any], bool] | None = None
) -> Any:
    """The object that ``package.module:name`` names.

    Args:
        what: word for messages, such as ``world``.
        spec: its place.
        base: class whose subclasses are proposed where the module has no such name.
        wanted: says of a class whether it is proposed, where that is no question of what it derives from.

    Raises:
        UserError: it is written otherwise, the module cannot be imported, or has nothing of that name.
    """
    path, _, attribute = spec.partition(":")
    if not (path and attribute) or path.startswith(".") or path.endswith(".py") or "/" in path:
        if path:
            meant = re.sub(r"^(\./)+|\.py$", "", path).strip("/").replace("/", ".")
        else:
            meant = ""
        if meant and attribute and not meant.startswith("."):
            like = f": {meant}:{attribute}"
        else:
            like = ""
        raise UserError(f"{what} {spec!r}: write it as package.module:name{like}")
    try:
        with own_folder():
            module = importlib.import_module(path)
    except ImportError as error:
        raise UserError(f"{what} {spec!r}: module {path!r} cannot be imported: {error}") from error
    except SyntaxError as error:
        raise UserError(f"{what} {spec!r}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a module's own code may raise anything
        raise UserError(f"{what} {spec!r}: importing {path!r} raised {described(error)}") from error
    result: Any = module
    for part in attribute.split("."):
        if not hasattr(result, part):
            classes = {n: v for n, v in vars(module).items() if isinstance(v, type)}
            candidates = [n for n, v in classes.items() if (base and issubclass(v, base)) or (wanted and wanted(v))]
            raise UserError(
                f"{what} {spec!r}: {path} has no {attribute!r}"
                + (_hidden(path, module) or (f"; {nearest(attribute, candidates)}" if candidates else ""))
            )
        result = getattr(result, part)
    return result


def _hidden(path: str, module: Any) -> str:
    """Warn where a module of this name is in the named folder and another was imported; else ""."""
    own_file = Path(_OwnFolder.path or "", *path.split(".")).with_suffix(".py")
    file = getattr(module, "__file__", None)
    if _OwnFolder.path is None or not own_file.is_file() or (file and own_file.samefile(file)):
        return ""
    return f": it is {file or 'part of Python'}, which comes before your {own_file.name}; rename yours"


def unknown(what: str, name: str, known: Iterable[str], kind: str, *, methods: Sequence[str] = ()) -> str:
    """Message for an unknown name.

    Args:
        what: word for messages, such as ``world``.
        name: as it was given.
        known: the names that there are.
        kind: what one of the user's own is in its module: ``Class`` or ``function``.
        methods: that classes of this kind have; where the name is a module's, its classes that have one are proposed.
    """
    module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
    inside = _definitions(module, methods, kind)
    if inside is None and "." in module:
        module, _, last = module.rpartition(".")
        inside = [name for name in _definitions(module, methods, kind) or [] if name == last] or None
    if inside is not None:
        like = inside[0] if inside else kind
        return f"{what} {name!r} is a module: say which {kind.lower()} of it, {module}:{like}"
    if what[0] in "aeiou":
        article = "an"
    else:
        article = "a"
    known = list(known)
    meant = nearest(name, known)
    if meant.startswith("known") and len(known) > _MOST_LISTED:
        meant = f"`recsim-mnar list {what}s` lists all {len(known)}"
    return f"unknown {what} {name!r}; {meant} ({article} {what} of your own: package.module:{kind})"


def option_of(kind: Any, key: str, text: str, where: str) -> Any:
    """The value of an option that is written as ``key=text``, for a parameter of a class.

    Raises:
        UserError: the parameter is a flag, and the text is neither true nor false.
    """
    value = value_of(text)
    parameters = inspect.signature(kind).parameters if inspect.isclass(kind) else {}
    if key not in parameters or not (
        isinstance(parameters[key].default, bool) or parameters[key].annotation in (bool, "bool")
    ):
        return value
    if value not in (0, 1):
        raise UserError(f"{where}: {key} must be true or false, got {text!r}")
    return bool(value)


def _definitions(module: str, methods: Sequence[str], kind: str) -> list[str] | None:
    """List a module's definitions: functions, or classes with any of these methods; None where there is no module.

    The module is not run.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module):
        return None
    try:
        with own_folder():
            spec = importlib.util.find_spec(module)
        if spec and spec.origin and spec.origin.endswith(".py"):
            source = Path(spec.origin).read_bytes()
        else:
            source = b""
        tree = ast.parse(source)
    except (ImportError, ValueError, OSError, SyntaxError):
        return None
    if spec is None:
        return None
    if kind == "function":
        return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    named = [c.name for c in classes if any(isinstance(f, ast.FunctionDef) and f.name in methods for f in c.body)]
    return named or [c.name for c in classes if not c.name.startswith("_")]
