"""Modules of the user's own on their way to workers: the very bytes, by sha256, before any that lie there."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from recsim_mnar.runs.receipts import file_digest
from recsim_mnar.simulation.origin import files_of, is_installed


@dataclass(frozen=True)
class Source:
    """A module.

    Attributes:
        path: where it lies with who sent it.
        data: its bytes.
        sha256: of these.
    """

    path: str
    data: bytes
    sha256: str

    @property
    def is_package(self) -> bool:
        """Whether other modules may lie in it."""
        return Path(self.path).name == "__init__.py"


def sources_of(modules: Iterable[str]) -> tuple[dict[str, Source], dict[str, str]]:
    """What of these modules travels, and the digests of those that are installed, which each worker must have."""
    travel: dict[str, Source] = {}
    installed: dict[str, str] = {}
    for name, file in files_of(modules).items():
        if is_installed(file):
            installed[name] = file_digest(file)
            continue
        data = file.read_bytes()
        travel[name] = Source(str(file), data, hashlib.sha256(data).hexdigest())
    for name in list(travel):
        parts = name.split(".")[:-1]
        for k in range(len(parts)):  # a folder without __init__.py is a package too
            above = ".".join(parts[: k + 1])
            folder = Path(travel[name].path).parents[len(parts) - k - 1 + travel[name].is_package]
            travel.setdefault(above, Source(str(folder / "__init__.py"), b"", hashlib.sha256(b"").hexdigest()))
    return dict(sorted(travel.items())), installed


def digests_here(modules: Iterable[str]) -> dict[str, str]:
    """The digests of installed modules as this process would import them; "none" where it has none."""
    found = {}
    for name in modules:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        place = None if spec is None else spec.origin
        found[name] = file_digest(place) if place and Path(place).is_file() else "none"
    return found


class _Sent(importlib.abc.MetaPathFinder):
    """Finds modules that were sent, before any that lie on this host."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """See :class:`importlib.abc.MetaPathFinder`."""
        source = self.sources.get(fullname)
        if source is None:
            return None
        loader = _SourceLoader(fullname, source)
        return importlib.util.spec_from_loader(fullname, loader, is_package=source.is_package)


class _SourceLoader(importlib.abc.ExecutionLoader):
    """Runs the bytes that were sent."""

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source = name, source

    def is_package(self, fullname: str) -> bool:
        """See :class:`importlib.abc.InspectLoader`."""
        return self.source.is_package

    def get_source(self, fullname: str) -> str:
        """See :class:`importlib.abc.InspectLoader`; for tracebacks and ``inspect``."""
        return importlib.util.decode_source(self.source.data)

    def get_filename(self, fullname: str) -> str:
        """See :class:`importlib.abc.ExecutionLoader`."""
        return self.source.path

    def get_code(self, fullname: str) -> Any:
        """See :class:`importlib.abc.InspectLoader`."""
        return self.source_to_code(self.source.data, self.source.path)


_FINDER = _Sent()


def installed_digests() -> dict[str, str]:
    """Digests of the modules that were sent and are in use."""
    return {name: source.sha256 for name, source in _FINDER.sources.items()}


def install(sources: Mapping[str, Source]) -> bool:
    """Let this process import these modules from the bytes that were sent.

    A module of such a name that it has imported already, of other bytes, is forgotten.

    Returns:
        whether one was: objects of its classes may be about.

    Raises:
        ValueError: bytes that are not those of their digest.
    """
    for name, source in sources.items():
        if hashlib.sha256(source.data).hexdigest() != source.sha256:
            raise ValueError(f"{name}: bytes of another digest")
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    others = [name for name, source in sources.items() if _digest_of_loaded(name) not in (None, source.sha256)]
    if others:
        # Modules that were sent may hold each other's functions: all go, so that none keeps an old one.
        for name in {*sources, *_FINDER.sources}:
            sys.modules.pop(name, None)
    _FINDER.sources.update(sources)
    importlib.invalidate_caches()
    return bool(others)


def _digest_of_loaded(name: str) -> str | None:
    """The digest of a module that this process has imported; None where it has none of that name."""
    module = sys.modules.get(name)
    if module is None:
        return None
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if isinstance(loader, _SourceLoader):
        return loader.source.sha256
    return "of this host"  # what lies there may have changed since it was imported
