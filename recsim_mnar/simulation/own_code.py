"""Users' own code: digests of its sources and fitted arrays, and one-line reports of its errors."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

import numpy as np

from recsim_mnar.errors import described
from recsim_mnar.plugins import own_folder
from recsim_mnar.policies.door import role_of
from recsim_mnar.policies.storage import Stored
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.receipts import file_digest
from recsim_mnar.worlds.base import Lanes, World

TRACEBACK = "RECSIM_MNAR_TRACEBACK"
"""Environment variable: if it is set, an error's traceback is printed before its line."""
_MAY_EXIT = ("recsim_mnar.", "click.")
"""Packages whose code may end the process without a report."""
_DEEP = 4
"""Depth to which objects are searched for objects they hold: an adapter may hold a softened policy, which holds one."""

_MODULE = re.compile(r"\b([A-Za-z_][\w.]*):[A-Za-z_]")


def origin_of(*things: Any) -> dict[str, str]:
    """Return digests of the users' own modules, fitted arrays and files on which objects depend.

    Args:
        *things: objects such as a world and a policy.

    Returns:
        Digests by module name, by ``file`` and attribute, or by ``fitted``, class and a number.
    """
    origins: dict[str, str] = {}
    for thing in _objects_within(things):
        kinds = [thing] if inspect.isfunction(thing) else type(thing).__mro__
        for kind in kinds:
            origins.update(_code(kind))
        if isinstance(thing, Stored) and thing.fitted()[0]:
            origins[f"fitted {type(thing).__name__} {len(origins)}"] = _fitted(thing)
        for name, value in _values(thing).items():
            if isinstance(value, str) and _is_file(value):
                origins[f"file {name}"] = file_digest(value)
    return dict(sorted(origins.items()))


def files_of(modules: Iterable[str]) -> dict[str, Path]:
    """Return the source files of users' own modules among ``modules`` and of those they import, by module name."""
    files: dict[str, Path] = {}
    for name in modules:
        file = _own_file(name)
        if file is not None:
            files.update(_imported(file, name))
    return dict(sorted(files.items()))


def is_installed(file: Path) -> bool:
    """Return whether a source file is in a folder of installed packages."""
    return bool({"site-packages", "dist-packages"} & set(file.parts))


def has_own_code(*things: Any) -> bool:
    """Return whether objects, or objects they hold, have classes outside this package, NumPy and Python's library."""
    ours = ("recsim_mnar", "agents", *sys.stdlib_module_names)
    kinds = {type(thing) for thing in _objects_within(things) if not inspect.isfunction(thing)}
    return any(kind.__module__.partition(".")[0] not in (*ours, "numpy") for kind in kinds)


def modules_named(settings: Any) -> list[str]:
    """Import the modules that settings of JSON types name (``package.module:Name``), and return their names, sorted."""
    modules = {match.group(1) for text in _texts(settings) for match in _MODULE.finditer(text)}
    for name in sorted(modules):
        with contextlib.suppress(Exception), own_folder():  # a failing import is reported when the module is used
            importlib.import_module(name)
    return sorted(modules)


def origin_named(settings: Any) -> dict[str, str]:
    """Return digests of the users' own modules (``package.module:Name``) and files named in settings of JSON types."""
    files = {f"file {text}": file_digest(text) for text in sorted(set(_texts(settings))) if _is_file(text)}
    return _digests(modules_named(settings)) | files


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings in a value of JSON types."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _objects_within(things: tuple[Any, ...]) -> Iterator[Any]:
    """Yield objects, and the objects and functions in their attributes down to a depth of :data:`_DEEP`, each once."""
    seen: set[int] = set()
    level = list(things)
    for _ in range(_DEEP):
        next_level = []
        for thing in level:
            if id(thing) not in seen:
                seen.add(id(thing))
                yield thing
                next_level += [value for value in _values(thing).values() if _may_hold_code(value)]
        level = next_level


def _may_hold_code(value: Any) -> bool:
    """Return whether a value is a function, or an object of a class that is not NumPy's or built in."""
    if inspect.isfunction(value):
        return True
    plain = isinstance(value, (type, ModuleType)) or type(value).__module__.partition(".")[0] in ("numpy", "builtins")
    return hasattr(value, "__dict__") and not plain


def _values(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object by name; {} if it has none."""
    return dict(getattr(thing, "__dict__", {}))


def _is_file(text: str) -> bool:
    """Return whether a string names an existing file with a suffix; longer ones exceed the length of a path."""
    return len(text) < 4096 and "\0" not in text and bool(Path(text).suffix) and path_of(text).is_file()


def _code(kind: Any) -> dict[str, str]:
    """Return digests of the modules on which a class or function depends; for one of a script, of its own source."""
    if kind.__module__ == "__main__":
        try:
            return {f"__main__ {kind.__qualname__}": hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()}
        except (OSError, TypeError):
            return {}
    return _digests([kind.__module__])


def _digests(modules: Iterable[str]) -> dict[str, str]:
    """Return the digests of the users' own source files among modules and their imports, by module name."""
    return {name: file_digest(file) for name, file in files_of(modules).items()}


def _own_file(name: str) -> Path | None:
    """Return the source file of a loaded module; None if it is this package's or Python's own, or has no source."""
    if name.partition(".")[0] in ("recsim_mnar", "agents", *sys.stdlib_module_names):
        return None
    file = getattr(sys.modules.get(name), "__file__", None)
    if file and Path(file).suffix == ".py" and Path(file).is_file():
        return Path(file)
    return None


def _imported(file: Path, name: str) -> dict[str, Path]:
    """Return the source files of a module and of the modules in its folder tree that it imports, by module name.

    For an installed module they are only its own file: its package has a version.
    """
    files = {name: file}
    if is_installed(file):
        return files
    # The folder of the top package: one level up per dot, and one more for a package's __init__.py.
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    waiting = [(file, name)]
    while waiting:
        for imported_name in _names_in(*waiting.pop()):
            place = root.joinpath(*imported_name.split("."))
            for source in (place.with_name(place.name + ".py"), place / "__init__.py"):
                if imported_name not in files and source.is_file():
                    files[imported_name] = source
                    waiting.append((source, imported_name))
    return files


def _names_in(file: Path, module: str) -> Iterator[str]:
    """Yield names of modules that a source file may import, at any place in it.

    ``from a import b`` yields ``a`` and ``a.b``, because b may be a module or a name in one.
    """
    package = module
    if file.name != "__init__.py":
        package = module.rpartition(".")[0]
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # a relative import beyond the top package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _fitted(policy: Stored) -> str:
    """Return a digest of a policy's fitted parameters and of its arrays' names, types, shapes and bytes."""
    arrays, parameters = policy.fitted()
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=str).encode())
    for name, array in sorted(arrays.items()):
        values = np.ascontiguousarray(array)
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
        digest.update(values.tobytes() if values.dtype.hasobject else values.data)
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------- what it raised


def of_own_code(error: BaseException) -> str | None:
    """Describe an exception of a user's own code in one line; None if the error comes from elsewhere.

    The user's own code has raised an exception if a method of a user's class did, or if a SystemExit comes from outside
    this package and its command line.
    """
    own_raise = _raised_by_own_code(error)
    if own_raise is not None or not isinstance(error, SystemExit) or error.__traceback__ is None:
        return own_raise
    trace = error.__traceback__
    while trace.tb_next is not None:  # to the frame that raised it
        trace = trace.tb_next
    if _name(trace.tb_frame).startswith(_MAY_EXIT):
        return None
    return f"{_place(trace)}: raised {described(error)}; code of your own must return or raise an error"


def _raised_by_own_code(error: BaseException) -> str | None:
    """Describe the first method of a user's class in an error's traceback, and its exception; None if there is none."""
    # A generator or another library may have replaced the user's exception by one of its own, whose cause it then is.
    for cause in (error, error.__cause__):
        if cause is None:
            continue
        trace = cause.__traceback__
        while trace is not None:
            method = _own_method(trace.tb_frame)
            if method is not None:
                what = described(cause)
                if "read-only" in str(cause) and isinstance(cause, ValueError):  # the words of NumPy and of Cython
                    what += ": logs are read-only, so copy what is to be changed (log['item'].copy())"
                return f"{method} raised {what} ({_place(trace)}; {TRACEBACK}=1 shows the traceback)"
            trace = trace.tb_next
    return None


def _place(trace: TracebackType) -> str:
    """Return file name and line of a traceback's entry."""
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _name(frame: FrameType) -> str:
    """Return a frame's module name and a dot, so that a prefix matches whole packages."""
    return str(frame.f_globals.get("__name__")) + "."


def _own_method(frame: FrameType) -> str | None:
    """Name the method of a user's policy, learner, world or protocol that a frame runs; None for any other frame."""
    if _name(frame).startswith("recsim_mnar."):
        return None
    actor: Any = frame.f_locals.get("self")
    what = "world" if isinstance(actor, (World, Lanes)) else role_of(actor)
    if what is None and callable(getattr(actor, "judge", None)):
        what = "protocol"
    if what is None:
        return None
    kind = type(actor)
    return f"{what} '{kind.__module__}:{kind.__qualname__}': its {frame.f_code.co_name}()"
