"""The first step with nothing compiled: `python benchmarks/speed/first_step.py [--repeats N]`.

Processor's seconds of a process that imports the package, makes an environment, resets and steps it once, with an empty
cache; and how many kernels it compiled: for the default catalogue, for a second size of the same sampler and one of
another, both in the cache that the default's kernel is in, and after `recsim-mnar warm --parts sessions`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = """
import resource
import gymnasium as gym
import recsim_mnar
env = gym.make("recsim_mnar/Sessions-v0", **{params})
{at_once}
env.reset(seed=1)
for _ in range({steps}):
    if env.step(1)[2]:
        env.reset()
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""
AT_ONCE = """
from recsim_mnar.worlds.sessions import lanes
lanes._FIRST_CALLS.left = 0
env = gym.make("recsim_mnar/Sessions-v0", **{params})
"""


def first(cache: Path, params: dict[str, object], *, steps: int = 1, at_once: bool = False) -> tuple[float, int]:
    """Seconds of one process, and the kernels that it added to the cache."""
    before = compiled(cache)
    code = STEPS.format(params=params, steps=steps, at_once=AT_ONCE.format(params=params) if at_once else "")
    environment = {**os.environ, "RECSIM_MNAR_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout), compiled(cache) - before


def compiled(cache: Path) -> int:
    return sum(1 for _ in cache.rglob("*.nbc"))


def repeated(repeats: int, line: str, **given: object) -> None:
    """The median over empty caches, printed."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as empty:
            found.append(first(Path(empty), {}, **given))  # type: ignore[arg-type]
    seconds = [one for one, _ in found]
    print(f"{line}: {statistics.median(seconds):.2f} CPU s ({min(seconds):.2f} to {max(seconds):.2f}), "
          f"{found[0][1]} kernels compiled", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    repeated(options.repeats, "make; reset; step")
    repeated(options.repeats, "the same, its kernel compiled at once", at_once=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        seconds, n = first(cache, {}, steps=2000)
        print(f"2,000 steps: {seconds:.2f} CPU s, {n} kernels compiled", flush=True)
        for line, params in (("150 items", {"n_items": 150}), ("300 items, another sampler", {"n_items": 300})):
            seconds, n = first(cache, params, steps=2000)
            print(f"then {line}: {seconds:.2f} CPU s, {n} kernels compiled", flush=True)
        environment = {**os.environ, "RECSIM_MNAR_CACHE_DIR": folder}
        warm = [sys.executable, "-m", "recsim_mnar", "warm", "--parts", "sessions"]
        subprocess.run(warm, check=True, env=environment, stdout=subprocess.DEVNULL)
        for params in ({}, {"n_items": 150}, {"n_items": 300}, {"n_items": 500, "sigma_mu_organic": 0.5}):
            seconds, n = first(cache, params, steps=2000)
            print(f"after warm, {params or 'default'}: {seconds:.2f} CPU s, {n} kernels compiled", flush=True)


if __name__ == "__main__":
    main()
