"""Checks of an installation (versions, processors, cache), and ahead-of-time compilation of kernels."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.kernels.jit import compiled_so_far
from recsim_mnar.log.table import Log

SESSIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sessions", {"n_items": 10, "n_flips": 5}),
    ("sessions of 200 items and more", {"n_items": 300}),
    ("sessions of 400 items and more, even popularity", {"n_items": 500, "sigma_mu_organic": 0.5}),
)
"""Catalogues of the sessions world that compile its kernels: one for each way in which views are sampled. The first one
flips all its items, because flips have kernels of their own."""


@dataclass(frozen=True)
class Warmed:
    """Result of compiling the kernels of one part of the package.

    Attributes:
        part: name of the part.
        kernels: number of newly compiled kernels, without those in the cache.
        seconds: CPU time of the part.
    """

    part: str
    kernels: int
    seconds: float


def warm() -> Iterator[Warmed]:
    """Compile and cache all kernels, by running a little of every world and of the estimates; yield after each part."""
    parts: list[tuple[str, Callable[[], None]]] = [
        *((part, functools.partial(_run_decisions, "sessions", None, params)) for part, params in SESSIONS),
        *((world, functools.partial(_run_decisions, world, "quick", {})) for world in ("ratings", "features")),
        ("purchases", _run_purchases),
        ("campaigns", _run_campaigns),
        ("estimators", _run_estimators),
    ]
    for name, run in parts:
        before = compiled_so_far()
        began = time.process_time()
        run()
        yield Warmed(name, compiled_so_far() - before, time.process_time() - began)


def _run_decisions(name: str, preset: str | None, params: dict[str, Any]) -> None:
    """Run a world of single decisions: environments, and simulations with and without a policy in Python.

    Args:
        name: name of the world.
        preset: name of a preset of its parameters; None for the defaults.
        params: parameters that differ from the preset.
    """
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv
    from recsim_mnar.policies import registry
    from recsim_mnar.simulation.items import simulate
    from recsim_mnar.worlds import make_world

    world: Any = make_world(name, preset, params)
    env: Any = WorldEnv(world)
    env.reset(seed=0)
    for _ in range(150):  # the first steps run in plain Python; this many reach the kernel
        if env.step(0)[2]:
            env.reset()
    lanes = WorldVectorEnv(world, 2)
    lanes.reset(seed=0)
    for _ in range(40):
        lanes.step(np.zeros(2, np.int64))
    for agent in ("random", "user-popularity"):  # the kernel acts for the first; the second acts in Python
        policy = registry.learner(agent).fit(Log({}), n_items=world.n_items, seed=0)
        keep_truth = agent == "random"  # once with the truth, once without it
        simulate(world, policy, 3, 0, keep_truth=keep_truth)


def _run_purchases() -> None:
    """Simulate a small log of the purchases world."""
    from recsim_mnar.simulation.run_folder import Request
    from recsim_mnar.worlds.registry import entry_of, make_world

    with tempfile.TemporaryDirectory() as folder:
        request = Request(out=Path(folder) / "log", policy="deployed", n_users=3)
        entry_of("purchases").simulator()(make_world("purchases", "quick"), request)


def _run_campaigns() -> None:
    """Step once through the campaigns world."""
    from recsim_mnar.envs import world_env

    env = world_env("campaigns", "quick")
    env.reset(seed=0)
    env.step(np.ones(env.action_space.shape, np.float32))


def _run_estimators() -> None:
    """Estimate a value and a difference from made-up rows: 100 users of four rows each."""
    from recsim_mnar.estimators import difference, estimate_value

    n = 400
    reward = (np.arange(n) % 5 == 0).astype(np.float64)
    propensity = np.full(n, 0.5)
    target = np.where(np.arange(n) % 2 == 0, 0.6, 0.4)
    user = np.arange(n) // 4
    for name in ("snips", "ips"):
        estimate_value(reward, propensity, target, estimator=name, cluster=user)
    difference(reward, propensity, target, propensity, estimator="ips", cluster=user)


OK, NOTE, PROBLEM = "ok", "note", "problem"
"""Levels of a check: no problem; worth knowing; something will not work."""

_DISTRIBUTION = "recsim-mnar"


@dataclass(frozen=True)
class Check:
    """Result of checking one part of the installation.

    Attributes:
        name: name of the part, such as ``Python``.
        found: result in words.
        level: :data:`OK`, :data:`NOTE` or :data:`PROBLEM`.
        advice: next step; may be empty.
    """

    name: str
    found: str
    level: str = OK
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the fields, as JSON types."""
        return asdict(self)


def check_installation() -> list[Check]:
    """Check versions, processors and the kernel cache, without compiling, downloading or writing."""
    return [*_check_versions(), *_check_processors(), *_check_cache()]


def _check_versions() -> Iterator[Check]:
    """Check that the imported package is the installed one, and name Python and the platform."""
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


def _check_processors() -> Iterator[Check]:
    """Report the number of usable processors, and check that numba compiles."""
    usable = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    yield Check("processors", f"{usable} usable, so --workers {usable} unless named")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        advice = "unset it: kernels run as plain Python, a hundred times slower and more"
        yield Check("NUMBA_DISABLE_JIT", os.environ["NUMBA_DISABLE_JIT"], PROBLEM, advice)


def _check_cache() -> Iterator[Check]:
    """Check that compiled kernels can be cached, and count those that are there."""
    from recsim_mnar.kernels.jit import cache_folders

    folders = cache_folders()
    if not folders:
        advice = "set RECSIM_MNAR_CACHE_DIR to a folder that can be written: without one every run compiles anew"
        yield Check("kernel cache", "no folder can be written", PROBLEM, advice)
    for folder in folders:
        files = list(Path(folder).rglob("*.nb[ic]"))  # numba's indexes (nbi) and machine code (nbc)
        kernels = sum(path.suffix == ".nbc" for path in files)
        size = sum(path.stat().st_size for path in files) / 1e6
        if kernels:
            yield Check("kernel cache", f"{folder}, writable, {kernels:,} compiled kernels, {size:,.0f} MB")
        else:
            advice = "recsim-mnar warm compiles the kernels ahead; else the first run waits for them"
            yield Check("kernel cache", f"{folder}, writable, empty", NOTE, advice)
