"""Code of users: digests of its sources and fitted arrays, and one-line reports of its errors."""

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
"""Environment variable: where it is set, an error's traceback is printed before its line."""
_ENDS_US = ("recsim_mnar.", "click.")
"""Packages that may end the process."""
_DEEP = 4
"""How far objects within objects are looked at: a policy in a policy that softens it in one that adapts it."""

_MODULE = re.compile(r"\b([A-Za-z_][\w.]*):[A-Za-z_]")


def origin_of(*things: Any) -> dict[str, str]:
    """Return digests of the users' modules, fitted arrays and files that objects depend on.

    Args:
        things: a world, a policy.

    Returns:
        Digests by what they are of: ``module``, ``file name``, ``fitted name``.
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
    """The sources of these modules, where they are loaded and not this package's, and of what they import."""
    files: dict[str, Path] = {}
    for name in modules:
        file = _own_file(name)
        if file is not None:
            files.update(_imported(file, name))
    return dict(sorted(files.items()))


def is_installed(file: Path) -> bool:
    """Return whether a source stands where packages are installed."""
    return bool({"site-packages", "dist-packages"} & set(file.parts))


def has_own_code(*things: Any) -> bool:
    """Return whether objects, or what they hold, are of classes that are not this package's."""
    ours = ("recsim_mnar", "agents", *sys.stdlib_module_names)
    kinds = {type(thing) for thing in _objects_within(things) if not inspect.isfunction(thing)}
    return any(kind.__module__.partition(".")[0] not in (*ours, "numpy") for kind in kinds)


def modules_named(settings: Any) -> list[str]:
    """The modules that settings of JSON types name (``package.module:Name``); those that can be are imported."""
    modules = {match.group(1) for text in _texts(settings) for match in _MODULE.finditer(text)}
    for name in sorted(modules):
        with contextlib.suppress(Exception), own_folder():  # what cannot be imported is reported where it is used
            importlib.import_module(name)
    return sorted(modules)


def origin_named(settings: Any) -> dict[str, str]:
    """Return digests of the modules (``package.module:Name``) and files named in settings of JSON types."""
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
    """Yield objects, and the objects and functions that they hold, each once."""
    seen: set[int] = set()
    level = list(things)
    for _ in range(_DEEP):
        following = []
        for thing in level:
            if id(thing) not in seen:
                seen.add(id(thing))
                yield thing
                following += [value for value in _values(thing).values() if _may_hold_code(value)]
        level = following


def _may_hold_code(value: Any) -> bool:
    """Return whether a value is a function, or an object of a class that is not NumPy's or built in."""
    if inspect.isfunction(value):
        return True
    plain = isinstance(value, (type, ModuleType)) or type(value).__module__.partition(".")[0] in ("numpy", "builtins")
    return hasattr(value, "__dict__") and not plain


def _values(thing: Any) -> dict[str, Any]:
    return dict(getattr(thing, "__dict__", {}))


def _is_file(text: str) -> bool:
    return len(text) < 4096 and "\0" not in text and bool(Path(text).suffix) and path_of(text).is_file()


def _code(kind: Any) -> dict[str, str]:
    """The digest of the module of a class or function and of what it imports; of a script its own source alone."""
    if kind.__module__ == "__main__":
        try:
            return {f"__main__ {kind.__qualname__}": hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()}
        except (OSError, TypeError):
            return {}
    return _digests([kind.__module__])


def _digests(modules: Iterable[str]) -> dict[str, str]:
    return {name: file_digest(file) for name, file in files_of(modules).items()}


def _own_file(name: str) -> Path | None:
    """The source of a loaded module that is neither this package's nor Python's own."""
    if name.partition(".")[0] in ("recsim_mnar", "agents", *sys.stdlib_module_names):
        return None
    file = getattr(sys.modules.get(name), "__file__", None)
    if file and Path(file).suffix == ".py" and Path(file).is_file():
        return Path(file)
    return None


def _imported(file: Path, name: str) -> dict[str, Path]:
    """Sources of a module and, where it is not an installed one, of the modules next to it that it imports."""
    files = {name: file}
    if is_installed(file):
        return files
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    waiting = [(file, name)]
    while waiting:
        for other in _names_in(*waiting.pop()):
            place = root.joinpath(*other.split("."))
            for source in (place.with_name(place.name + ".py"), place / "__init__.py"):
                if other not in files and source.is_file():
                    files[other] = source
                    waiting.append((source, other))
    return files


def _names_in(file: Path, module: str) -> Iterator[str]:
    """Names of the modules that a source may import, wherever in it."""
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
            with contextlib.suppress(ImportError):  # from above all packages
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _fitted(policy: Stored) -> str:
    """Return a digest of a policy's fitted arrays and parameters."""
    arrays, parameters = policy.fitted()
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=str).encode())
    for name, array in sorted(arrays.items()):
        values = np.ascontiguousarray(array)
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
        digest.update(values.tobytes() if values.dtype.hasobject else values.data)
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------- what it raised


def of_own_code(error: BaseException) -> str | None:
    """Describe what a user's own code did where it raised an exception or ended the process; None where it did not."""
    own_raise = _raised_by_own_code(error)
    if own_raise is not None or not isinstance(error, SystemExit) or error.__traceback__ is None:
        return own_raise
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    if _name(trace.tb_frame).startswith(_ENDS_US):
        return None
    return f"{_place(trace)}: raised {described(error)}; code of your own must return or raise an error"


def _raised_by_own_code(error: BaseException) -> str | None:
    """Find the method and exception of a class that is not this package's; else None."""
    # An exception that a generator or another library turned into one of its own is the cause of that.
    for cause in (error, error.__cause__):
        if cause is None:
            continue
        trace = cause.__traceback__
        while trace is not None:
            method = _own_method(trace.tb_frame)
            if method is not None:
                what = described(cause)
                if "read-only" in str(cause) and isinstance(cause, ValueError):  # as NumPy says it, and Cython
                    what += ": logs are read-only, so copy what is to be changed (log['item'].copy())"
                return f"{method} raised {what} ({_place(trace)}; {TRACEBACK}=1 shows the traceback)"
            trace = trace.tb_next
    return None


def _place(trace: TracebackType) -> str:
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")) + "."


def _own_method(frame: FrameType) -> str | None:
    """The method of a policy, learner, world or protocol that a frame runs, unless the code is this package's."""
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
