"""What files are made with: versions and sources on which their bytes may depend, beside what they are made of."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from recsim_mnar.errors import UserError

_LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow")
_NO_PART = ("cli", "testing", "export", "report", "warming.py")
"""Places of the package that have no part in any log or result."""


@functools.cache
def _made_with() -> dict[str, str]:
    from recsim_mnar._version import __version__

    found = {"recsim-mnar": __version__, "sources": _sources(), "python": ".".join(platform.python_version_tuple()[:2])}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "machine": platform.machine()}


def made_with() -> dict[str, str]:
    """Versions of the package, its sources and the libraries, and the kind of machine."""
    return dict(_made_with())


def peak_memory() -> int:
    """Bytes that this process has held in memory at most; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return _most_held("RUSAGE_SELF")


def peak_memory_of_a_child() -> int:
    """As :func:`peak_memory`, of the largest of the processes that this one started and that have ended."""
    return _most_held("RUSAGE_CHILDREN")


def _most_held(of: str) -> int:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(getattr(resource, of)).ru_maxrss


def _sources() -> str:
    """A digest of the sources that make logs and results: two states of one version may differ."""
    package = Path(__file__).resolve().parents[1]
    agents = package / "agents" if (package / "agents").exists() else package.parent / "agents"
    digest = hashlib.sha256()
    for root in dict.fromkeys((package, agents)):
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(root).as_posix()
            first = place.split("/")[0]
            if root != package or first not in (*_NO_PART, "agents"):
                digest.update(f"{place}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def refuse_other_versions(what: str, before: Mapping[str, str]) -> None:
    """Raise UserError where an earlier run, of which ``what`` says where it is, was made with other versions."""
    here = made_with() if before else {}
    names = [name for name in {**before, **here} if before.get(name) != here.get(name)]
    if names:
        changed = [f"{name} ({before.get(name, 'none')} there, {here.get(name, 'none')} here)" for name in names]
        raise UserError(
            f"cannot resume: {what} with other versions: {', '.join(changed)}; restore them, or name another folder"
        )
