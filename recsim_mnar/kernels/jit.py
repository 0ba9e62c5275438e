"""Decorators that compile kernels, with a cache on disk that cannot become stale.

Numba's own cache notices a change in the file of a compiled function, but not in the files of the compiled functions
that it calls. Here the name of the cache folder is a digest of all kernel sources (the modules named ``_*_kernel.py``),
so machine code is reused only with the sources that produced it. Each cache file also contains its own digest, by which
damage is noticed. There is no cache if no folder is writable, or if other users may write to it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.extending import overload, register_jitable

_DIGEST = hashlib.sha256().digest_size


class _CheckedFile(IndexDataCacheFile):
    """Numba's cache files of one function, each preceded by its digest; a full disk is no error.

    The methods override Numba's: a damaged file counts as missing, and is then compiled and written again.
    """

    def save(self, key: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[Any, Any]:
        """Return the names of data files by signature; {} if the index is damaged, or of other source or version."""
        try:
            version, stamp, overloads = pickle.loads(_checked(self._index_path))
        except (OSError, ValueError):
            return {}
        if (version, stamp) == (self._version, self._source_stamp):
            return overloads
        return {}

    def _save_index(self, overloads: dict[Any, Any]) -> None:
        self._write(self._index_path, self._dump((self._version, self._source_stamp, overloads)))

    def _load_data(self, name: str) -> Any:
        """Return the compiled code in a data file; raise OSError if it is damaged."""
        try:
            return pickle.loads(_checked(self._data_path(name)))
        except ValueError as error:
            raise OSError(str(error)) from None  # numba treats the file as missing

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _write(self, path: str, data: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


def _checked(path: str) -> bytes:
    """Return the contents of a cache file that follow its digest.

    Raises:
        ValueError: the contents do not have this digest.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        digest = file.read(_DIGEST)
        data = file.read()
    if hashlib.sha256(data).digest() != digest:
        raise ValueError(f"{path} is damaged")
    return data


def guard(compiled: Any) -> Any:
    """Make a function compiled by Numba check the digests of its cache files; return the same function.

    Numba has no hook for this, so the class of its cache object is replaced. A function without a cache, or whose
    cache Numba implements otherwise, is left as it is.
    """
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if type(file) is IndexDataCacheFile:
        file.__class__ = _CheckedFile
    return compiled


def is_private(folder: Path) -> bool:
    """Return True if only this user and the superuser may write to a folder; cache files are executed when loaded."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


# Every kernel works on the arrays passed to it and allocates none, so reference counting (``_nrt``) is off: counting
# each array at each call of an inner function took three quarters of the simulator's time. The option is private to
# Numba, and missing in its type annotations.
_njit: Any = numba.njit
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cfunc_wrapper": True,
    # Set explicitly, because a function without these options takes those of the kernel that happens to call it first.
    "fastmath": False,
    "forceinline": False,
}

# The wrappers through which Python and C call a compiled function took two fifths of the compilation time, because
# every array of every argument is unpacked there. So the wrapper for Python is compiled for entry points only, and the
# wrapper for C never.
_NO_ENTRY: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}


def _cache_root() -> Path:
    """Return the folder of all caches: from the environment, else the system's usual place for a user's caches."""
    folder_named = os.environ.get("RECSIM_MNAR_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    if folder_named:
        return Path(folder_named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "recsim-mnar"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recsim-mnar"


@functools.cache
def _cache_dir(folder: str) -> str | None:
    """Return the cache folder for kernels whose sources are in ``folder``; None if it is not writable or not private.

    Its name is a digest of all kernel sources of this package and of the top-level package that contains ``folder``,
    and of the versions of Numba and Python.
    """
    package = Path(__file__).resolve().parents[1]
    top = Path(folder)
    while (top.parent / "__init__.py").exists():
        top = top.parent
    roots = {package, top}
    sources = sorted({path for root in roots for path in root.rglob("_*_kernel.py")} | {Path(__file__).resolve()})
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(f"{numba.__version__} {sys.version}".encode())
    try:
        target = _cache_root() / digest.hexdigest()[:20]
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_private(target):
            return None
        with tempfile.TemporaryFile(dir=target):  # raises OSError if nothing can be written
            pass
    except (OSError, RuntimeError):  # RuntimeError: no home folder is known
        return None
    return str(target)


def cache_folders() -> list[str]:
    """Return the cache folders of this package's kernels and of the agents'; an empty list if there is no cache."""
    package = str(Path(__file__).resolve().parents[1])
    if (Path(package) / "agents").exists():  # installed
        agents = package
    else:  # a source tree, in which the agents stand next to the package
        agents = str(Path(package).parent / "agents")
    caches = [_cache_dir(folder) for folder in (package, agents)]
    return sorted({cache for cache in caches if cache is not None})


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of a kernel module that Python calls, and cache it on disk.

    Arithmetic is strict IEEE, the GIL is released, and a division by zero gives infinity or NaN instead of an error. A
    function whose name begins with an underscore is compiled for calls from kernels only, as by :func:`inner`.
    """
    return _compile(function, {})


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function for calls from kernels only; called from Python it runs uncompiled."""
    return register_jitable(**_NO_ENTRY)(function)


def summing(function: Callable[..., Any]) -> Any:
    """Compile a reduction whose additions may be reordered and fused with products, so that memory limits its speed.

    The last bits of its results may differ between CPU models (never between runs or shards on the same one), so no
    random draw may depend on them.
    """
    return _compile(function, {"fastmath": {"reassoc", "contract"}})


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function whose machine code replaces each call in a kernel; called from Python it runs uncompiled.

    Suitable for functions that are short or take many arrays: a real call passes each array as seven numbers.
    """
    return register_jitable(**{**_NO_ENTRY, "forceinline": True})(function)


def compiled_as(intrinsic: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function so that kernels call an intrinsic of one argument in its place, and Python the function."""

    def decorate(function: Callable[..., Any]) -> Any:
        def typed(value: Any) -> Any:  # numba calls it with the argument's type, and compiles what it returns
            return lambda value: intrinsic(value)

        config = numba.config
        options = {**_NO_ENTRY, "forceinline": True}
        if not config.DISABLE_JIT:  # type: ignore[attr-defined]  # its settings are attributes made at run time
            overload(function, jit_options=options, strict=False)(typed)  # type: ignore[arg-type]  # _nrt is not listed
        return function

    return decorate


def spliced(function: Callable[..., Any]) -> Any:
    """Decorate a function so that its source replaces each call in a kernel, before the kernel is compiled.

    Suitable for a long function that is called in one place: compiled separately, it would be optimised twice.
    """
    return _njit(inline="always", **_OPTIONS)(function)


@functools.cache
def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an uncompiled version of a kernel and of the kernels that it calls, with the same results bit by bit.

    Suitable for a few calls on few items, which take less time than compiling the kernel. NumPy 2 is required, where
    arithmetic between an unsigned integer and a Python integer stays unsigned. Unsigned integers overflow as in
    compiled code, but NumPy warns, so callers need ``np.errstate(over="ignore")``.
    """
    plain = getattr(function, "py_func", function)
    used_globals = {name: plain.__globals__[name] for name in plain.__code__.co_names if name in plain.__globals__}
    called = {name: interpreted(value) for name, value in used_globals.items() if _is_kernel_function(value)}
    # The same code with other globals: in them the compiled kernels are replaced.
    return FunctionType(
        plain.__code__, {**plain.__globals__, **called}, plain.__name__, plain.__defaults__, plain.__closure__
    )


def _is_kernel_function(value: Any) -> bool:
    """Return True for a function, compiled or not, that is defined in a kernel module."""
    plain = getattr(value, "py_func", value)
    return isinstance(plain, FunctionType) and plain.__module__.rpartition(".")[2].endswith("_kernel")


class _Compilations(event.Listener):
    """Listener that counts the kernels which Numba compiles, and switches garbage collection off meanwhile.

    Compilation creates very many small objects, and each collection they trigger would pass over all loaded modules.
    """

    def __init__(self) -> None:
        self.count = 0
        self._depth = 0
        self._was_on = False

    def on_start(self, _started: event.Event) -> None:
        if self._depth == 0:  # the functions that a kernel calls are compiled during its own compilation
            self.count += 1
            self._was_on = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, _ended: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0 and self._was_on:
            gc.enable()


_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)


def compiled_so_far() -> int:
    """Return the number of kernels that this process has compiled; kernels loaded from the cache do not count."""
    return _COMPILATIONS.count


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Compile a function, with the cache on disk if there is one; ``options`` override the defaults of this module."""
    if function.__name__.startswith("_"):
        return register_jitable(**{**_NO_ENTRY, **options})(function)
    options = {**_OPTIONS, **options}
    folder = _cache_dir(str(Path(function.__code__.co_filename).resolve().parent))
    if folder is None:
        return _njit(**options)(function)
    # Numba reads the folder from its global settings when it creates the cache object, which is in this call. They are
    # restored at once, so that other packages' caches stay where they are.
    config: Any = numba.config  # its settings are attributes made at run time
    before = config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        return guard(_njit(cache=True, **options)(function))
    finally:
        config.CACHE_DIR = before
