"""Find objects named ``package.module:name``, and entry points of installed packages."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, described, nearest
from recsim_mnar.kernels.checks import value_of

_MOST_LISTED = 16
"""Names that a message lists; for more it names the command that lists them."""


class _OwnFolder:
    """The folder of the user's modules, shared by all threads.

    Attributes:
        path: path of the folder; None to import from ``sys.path`` alone.
        n_importing: number of threads that import from it at the moment; ``sys.path`` has the folder while it is
            positive.
        lock: lock of ``n_importing`` and ``sys.path``.
    """

    path: str | None = None
    n_importing = 0
    lock = threading.Lock()


def look_in(folder: str | None) -> None:
    """Set the folder of the user's modules; the command line and its worker processes set the current folder."""
    _OwnFolder.path = folder


def own_folder_named() -> str | None:
    """Return the folder of the user's modules that was set; None to import from ``sys.path`` alone."""
    return _OwnFolder.path


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """Append the user's folder to ``sys.path`` within the block, so that its modules can be imported.

    It comes after all other places, so that no file in it replaces a module of a library.
    """
    folder = _OwnFolder.path
    if folder is None:
        yield
        return
    with _OwnFolder.lock:
        _OwnFolder.n_importing += 1
        if _OwnFolder.n_importing == 1:
            sys.path.append(folder)
    try:
        yield
    finally:
        with _OwnFolder.lock:
            _OwnFolder.n_importing -= 1
            if _OwnFolder.n_importing == 0 and folder in sys.path:
                # The last occurrence is the appended one: the user's own path may have the folder too.
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
    module = _imported_module(path, f"{what} {spec!r}")
    result = module
    for part in attribute.split("."):
        if not hasattr(result, part):
            hint = _hint_if_hidden(path, module)
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


def _imported_module(path: str, named: str) -> Any:
    """Import a module; any failure becomes a UserError, which begins with ``named``."""
    try:
        with own_folder():
            return importlib.import_module(path)
    except ImportError as error:
        raise UserError(f"{named}: module {path!r} cannot be imported: {error}") from error
    except SyntaxError as error:
        raise UserError(f"{named}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a module's code may raise anything
        raise UserError(f"{named}: importing {path!r} raised {described(error)}") from error


def _hint_if_hidden(path: str, module: Any) -> str:
    """Return a hint if an installed module was imported instead of the one in the user's folder; else ""."""
    own_file = Path(_OwnFolder.path or "", *path.split(".")).with_suffix(".py")
    file = getattr(module, "__file__", None)
    if _OwnFolder.path is None or not own_file.is_file():
        return ""
    if file and own_file.samefile(file):
        return ""
    return f": it is {file or 'part of Python'}, which comes before your {own_file.name}; rename yours"


def unknown(what: str, name: str, known: Iterable[str], kind: str) -> str:
    """Return the message for an unknown name, with the most helpful suggestion.

    Args:
        what: word for messages, such as ``world``.
        name: the unknown name.
        known: the existing names.
        kind: kind of a user's own object in its module: ``Class`` or ``function``.
    """
    article = "an" if what[0] in "aeiou" else "a"
    names = list(known)
    hint = nearest(name, names)
    if hint.startswith("known") and len(names) > _MOST_LISTED:
        hint = f"`recsim-mnar list {what}s` lists all {len(names)}"
    return f"unknown {what} {name!r}; {hint} ({article} {what} of your own: package.module:{kind})"


def option_of(kind: Any, key: str, text: str, where: str) -> Any:
    """Parse the value of an option ``key=text``, which becomes a parameter of a class.

    Args:
        kind: the class; flags are recognised by its signature.
        key: name of the parameter.
        text: text of the value.
        where: place of the option, for the message.

    Raises:
        UserError: the parameter is a flag, and the text is neither true nor false.
    """
    value = value_of(text)
    parameter = inspect.signature(kind).parameters.get(key) if inspect.isclass(kind) else None
    if parameter is None or not (isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")):
        return value
    if value not in (0, 1):  # True and False equal 1 and 0
        raise UserError(f"{where}: {key} must be true or false, got {text!r}")
    return bool(value)
