"""Compile kernels, with an on-disk cache that no upgrade leaves stale.

Numba's own cache notices a change in the file of a jitted function but not in the files of the jitted functions that it
calls. Here the cache folder's name is a digest of every kernel source (the modules named ``_*_kernel.py``), so machine
code is only ever found again by the sources that made it, and each file bears its digest. Where no folder can be
written, or others may write there too, there is no cache.
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
    """Numba's index and data files, checked against their digests; a disk that takes no more of them is no error."""

    def save(self, key: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[Any, Any]:
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
        try:
            return pickle.loads(_checked(self._data_path(name)))
        except ValueError as error:
            raise OSError(str(error)) from None  # numba takes it for a file that is gone

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _write(self, path: str, data: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


def _checked(path: str) -> bytes:
    """Read the contents after a file's digest.

    Raises:
        ValueError: it is not what the digest was taken of.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        digest = file.read(_DIGEST)
        data = file.read()
    if hashlib.sha256(data).digest() != digest:
        raise ValueError(f"{path} is damaged")
    return data


def guard(compiled: Any) -> Any:
    """Make a function of numba check the digests of its cache files, and return it."""
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if type(file) is IndexDataCacheFile:
        file.__class__ = _CheckedFile
    return compiled


def is_private(folder: Path) -> bool:
    """Return True if only this user and the superuser may write there."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


# Every kernel works on arrays that it is given and allocates none, so reference counting (``_nrt``) is off: counting
# each array at each call of an inner function took three quarters of the simulator's time. Numba's types do not list
# the option.
_njit: Any = numba.njit
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cfunc_wrapper": True,
    # Unless they are given a function takes them from the kernel that happens to call it first.
    "fastmath": False,
    "forceinline": False,
}

# Wrappers with which Python calls a compiled function (and C, which is not used) took two fifths of the time of
# compilation: every array of every argument is unpacked there. So they are made only where Python calls.
_NO_ENTRY: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}


def _cache_root() -> Path:
    folder_named = os.environ.get("RECSIM_MNAR_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    if folder_named:
        return Path(folder_named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "recsim-mnar"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recsim-mnar"


@functools.cache
def _cache_dir(folder: str) -> str | None:
    """Return the cache folder for the kernels of a folder; None if nothing, or anybody, can write there.

    The digest covers every kernel of this package and of the top-level package that holds the folder, however deep.
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
        with tempfile.TemporaryFile(dir=target):
            pass
    except (OSError, RuntimeError):  # RuntimeError: no home folder is known
        return None
    return str(target)


def cache_folders() -> list[str]:
    """Return the folders with compiled kernels; none if nothing can be written."""
    package = str(Path(__file__).resolve().parents[1])
    if (Path(package) / "agents").exists():
        agents = package
    else:
        agents = str(Path(package).parent / "agents")
    return sorted({found for folder in (package, agents) if (found := _cache_dir(folder)) is not None})


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of a kernel module: strict arithmetic, no GIL, divisions without a branch, cached on disk.

    One whose name begins with an underscore is :func:`inner`.
    """
    return _compile(function, {})


def inner(function: Callable[..., Any]) -> Any:
    """Compile a kernel as :func:`kernel` does, for calls from kernels alone: a plain function for Python."""
    return register_jitable(**_NO_ENTRY)(function)


def summing(function: Callable[..., Any]) -> Any:
    """Compile a reduction whose additions may be reordered and fused with products: it runs at the speed of memory.

    Its last bits may differ from one CPU model to another (never between two runs or shards on one), so it has no place
    on a path that decides a draw.
    """
    return _compile(function, {"fastmath": {"reassoc", "contract"}})


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function so that its machine code is copied to each of its calls; a plain function for Python.

    For functions that are short or take many arrays: each array is passed as seven numbers.
    """
    return register_jitable(**{**_NO_ENTRY, "forceinline": True})(function)


def compiled_as(intrinsic: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile an intrinsic of one argument where kernels call the function; Python calls the function as it stands."""

    def decorate(function: Callable[..., Any]) -> Any:
        def typed(value: Any) -> Any:
            return lambda value: intrinsic(value)

        config = numba.config
        options = {**_NO_ENTRY, "forceinline": True}
        if not config.DISABLE_JIT:  # type: ignore[attr-defined]  # its settings are attributes made at run time
            overload(function, jit_options=options, strict=False)(typed)  # type: ignore[arg-type]  # _nrt is not listed
        return function

    return decorate


def spliced(function: Callable[..., Any]) -> Any:
    """Put the source of a function in the place of its calls, before anything is compiled.

    For a long function with one call: compiled for itself it would be optimised twice.
    """
    return _njit(inline="always", **_OPTIONS)(function)


@functools.cache
def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel as plain Python, with the kernels that it calls; results have the same bits.

    For a few calls on few items, which are over long before the kernel could be compiled. Needs NumPy 2, by whose rules
    an unsigned integer and a Python one make an unsigned integer; unsigned integers wrap as they do in compiled code,
    of which NumPy warns (``np.errstate(over="ignore")``).
    """
    plain = getattr(function, "py_func", function)
    within = {name: plain.__globals__[name] for name in plain.__code__.co_names if name in plain.__globals__}
    called = {name: interpreted(value) for name, value in within.items() if _is_of_kernels(value)}
    return FunctionType(
        plain.__code__, {**plain.__globals__, **called}, plain.__name__, plain.__defaults__, plain.__closure__
    )


def _is_of_kernels(value: Any) -> bool:
    plain = getattr(value, "py_func", value)
    return isinstance(plain, FunctionType) and plain.__module__.rpartition(".")[2].endswith("_kernel")


class _Compilations(event.Listener):
    """Counts what numba compiles in this process, without garbage collection while it does.

    Its many small objects set off passes over all that is loaded.
    """

    def __init__(self) -> None:
        self.count = 0
        self._depth = 0
        self._was_on = False

    def on_start(self, _started: event.Event) -> None:
        if self._depth == 0:  # what a kernel calls is compiled within it
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
    """Return the number of kernels that this process has compiled, without those from the cache."""
    return _COMPILATIONS.count


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    if function.__name__.startswith("_"):
        return register_jitable(**{**_NO_ENTRY, **options})(function)
    options = {**_OPTIONS, **options}
    folder = _cache_dir(str(Path(function.__code__.co_filename).resolve().parent))
    if folder is None:
        return _njit(**options)(function)
    # The folder is read when the cache object is made, which is here; restoring it leaves other packages' caches alone.
    config: Any = numba.config  # its settings are attributes made at run time
    before = config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        return guard(_njit(cache=True, **options)(function))
    finally:
        config.CACHE_DIR = before
