"""Whether this installation works: versions, threads, the kernels' cache, extras, and a clash over ``agents``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OK, NOTE, PROBLEM = "ok", "note", "problem"
"""A check's level: as it should be; worth knowing; something will not work."""

_DISTRIBUTION = "recsim-mnar"
_FOR_DEVELOPERS = ("test", "dev")
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Check:
    """One item of the inspection.

    Attributes:
        name: what.
        found: as a person reads it.
        level: of :data:`OK`, :data:`NOTE` and :data:`PROBLEM`.
        advice: what to do; empty where there is nothing.
    """

    name: str
    found: str
    level: str = OK
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def check_installation() -> list[Check]:
    """Inspect everything; nothing is compiled, downloaded or left on disk."""
    return [*_versions(), *_dependencies(), *_threads(), *_cache(), *_extras(), *_agents()]


def _versions() -> Iterator[Check]:
    from recsim_mnar._version import __version__

    where = Path(__file__).resolve().parent
    try:
        installed = importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        advice = "install it (pip install .): agents are found by the entry points of an installed package"
        yield Check("recsim-mnar", f"{__version__} in {where}, not installed", PROBLEM, advice)
    else:
        if installed == __version__:
            yield Check("recsim-mnar", f"{__version__} in {where}")
        else:
            advice = "install it again, so that the code and what pip knows of it agree"
            yield Check("recsim-mnar", f"{__version__} in {where}, installed as {installed}", PROBLEM, advice)
    yield Check("Python", f"{platform.python_version()} at {sys.executable}, {platform.platform()}")


def _dependencies() -> Iterator[Check]:
    for requirement, extra in _requirements():
        if not extra:
            yield _package(requirement, missing=PROBLEM)


def _requirements() -> Iterator[tuple[Any, str]]:
    """Required packages, each with the extra that requires it ("" for none)."""
    from packaging.requirements import Requirement

    try:
        asked = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    extras = importlib.metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or []
    for line in asked:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            yield requirement, ""
        else:
            yield from ((requirement, extra) for extra in extras if marker.evaluate({"extra": extra}))


def _package(requirement: Any, *, missing: str, name: str = "") -> Check:
    """Whether a package that is asked for is there, in a version that will do."""
    name = name or requirement.name
    install = f"pip install '{requirement.name}{requirement.specifier}'"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "not installed", missing, install)
    if not requirement.specifier.contains(version, prereleases=True):
        return Check(name, f"{version}, {requirement.specifier} is asked for", PROBLEM, install)
    return Check(name, version)


def _threads() -> Iterator[Check]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    there = os.cpu_count() or usable
    of = "" if there == usable else f" of {there}"
    yield Check("processors", f"{usable}{of} usable, so --workers {usable} unless named")
    for name in _THREADS:
        if os.environ.get(name):
            yield Check(name, os.environ[name])
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        advice = "unset it: kernels run as plain Python, a hundred times slower and more"
        yield Check("NUMBA_DISABLE_JIT", os.environ["NUMBA_DISABLE_JIT"], PROBLEM, advice)


def _cache() -> Iterator[Check]:
    from recsim_mnar.kernels.jit import cache_folders

    folders = cache_folders()
    if not folders:
        advice = "set RECSIM_MNAR_CACHE_DIR to a folder that can be written: without one every run compiles anew"
        yield Check("kernel cache", "no folder can be written", PROBLEM, advice)
    for folder in folders:
        files = list(Path(folder).rglob("*.nb[ic]"))
        kernels = sum(path.suffix == ".nbc" for path in files)
        size = sum(path.stat().st_size for path in files) / 1e6
        if kernels:
            yield Check("kernel cache", f"{folder}, writable, {kernels:,} compiled kernels, {size:,.0f} MB")
        else:
            advice = "recsim-mnar warm compiles the kernels ahead; else the first run waits for them"
            yield Check("kernel cache", f"{folder}, writable, empty", NOTE, advice)


def _extras() -> Iterator[Check]:
    for requirement, extra in _requirements():
        if extra and extra not in _FOR_DEVELOPERS:
            yield _package(requirement, missing=NOTE, name=f"extra {extra}: {requirement.name}")


def _agents() -> Iterator[Check]:
    """Ours is ``recsim_mnar.agents``; a package that is called ``agents`` and stands at the top is somebody else's."""
    own = _folder_of("recsim_mnar.agents")
    if own is None or not _is_ours(own):
        found = f"recsim_mnar.agents is {own}, which is not this package's" if own else "recsim_mnar.agents is missing"
        yield Check("agents", found, PROBLEM, "install recsim-mnar again")
    else:
        yield Check("agents", f"recsim_mnar.agents in {own}")
    top = _folder_of("agents")
    foreign = [name for name in _distributions_of("agents") if name.lower() != _DISTRIBUTION]
    if top is None:
        return
    if _is_ours(top) and foreign:
        advice = f"start Python elsewhere: in a checkout `import agents` finds the folder {top}, not the package"
        yield Check("package agents", f"{', '.join(foreign)} is installed and hidden", PROBLEM, advice)
    elif not _is_ours(top):
        by = f" ({', '.join(foreign)})" if foreign else ""
        yield Check("package agents", f"another package's{by}, in {top}; no clash: ours is recsim_mnar.agents")


def _folder_of(package: str) -> Path | None:
    """Where a package is, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None


def _is_ours(folder: Path) -> bool:
    return (folder / "state" / "acting.py").exists()


def _distributions_of(package: str) -> list[str]:
    """Names of the installed distributions that bring a top-level package."""
    found = []
    for distribution in importlib.metadata.distributions():
        top = (distribution.read_text("top_level.txt") or "").split()
        files = distribution.files or []
        if package in top or any(path.parts[:1] == (package,) for path in files):
            found.append(str(distribution.metadata["Name"]))
    return sorted(set(found))
