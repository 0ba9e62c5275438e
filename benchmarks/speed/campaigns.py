"""Speed of the weighted leave-one-out: `python benchmarks/speed/campaigns.py [--edges N] [--out FILE]`.

One core. On a platform of the paper's size, its last pairs left away so that 117,376 remain: exhaustive leave-one-out
of the collaborative filters, and the search for all weights. On N pairs of synthetic users: a gradient, and P(i|w).
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from table import into_results

from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policies import registry
from recsim_mnar.protocols.temporal import _weights_kernel
from recsim_mnar.protocols.temporal.item_weights import fit_item_weights
from recsim_mnar.protocols.temporal.weighing import hit_probabilities
from recsim_mnar.simulation.platform import platform_log, run_campaigns
from recsim_mnar.worlds import make_world

PAIRS = 117_376
REPEATS = 9


def best(function: Callable[[], Any]) -> float:
    """Least wall seconds of some runs, the first one (which compiles) left out."""
    function()
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def paper_size() -> tuple[Profiles, Profiles]:
    """Profiles at t0 and at the end of the first platform with enough pairs, the newest left away."""
    for seed in range(100):
        log = platform_log(run_campaigns(make_world("campaigns", "viadeo", [f"catalogue_seed={seed}"]), seed))
        now = Profiles.of(log, 500, 180)
        if now.n_pairs >= PAIRS:
            kept = np.zeros(now.n_pairs, bool)
            kept[np.argsort(now.added, kind="stable")[:PAIRS]] = True
            return Profiles.of(log, 300, 180), now.pairs(kept)
    raise RuntimeError("no platform has enough pairs")


def synthetic(edges: int, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and items of users with a power law of profile lengths, ordered by length as the weights order them."""
    generator = np.random.default_rng(0)
    length = np.minimum(generator.zipf(2.2, edges // 2) + 1, 80)
    length = np.sort(length[: int(np.searchsorted(np.cumsum(length), edges))])
    popularity = (np.arange(n_items) + 5.0) ** -0.85
    starts = np.concatenate([[0], np.cumsum(length)])
    items = generator.choice(n_items, starts[-1], p=popularity / popularity.sum())
    return starts, items.astype(np.uint32)


def passes(starts: np.ndarray, items: np.ndarray, n_items: int) -> dict[str, float]:
    """Nanoseconds a pair of the two kernels behind the weights."""
    inverse, target, out = np.empty(len(starts) - 1), np.empty(n_items), np.empty(n_items)
    scratch, weights = np.empty(n_items), np.exp(0.3 * np.random.default_rng(1).normal(size=n_items))
    p0 = np.empty(n_items)
    _weights_kernel.marginals(starts, items, np.ones(n_items), inverse, p0)
    size = f"{len(items):,} pairs, {n_items:,} items, ns a pair"
    first = best(lambda: _weights_kernel.marginals(starts, items, weights, inverse, target))
    second = best(lambda: _weights_kernel.gradient(starts, items, weights, inverse, scratch, target, p0, out))
    return {f"P(i|w), {size}": first / len(items) * 1e9, f"gradient, {size}": second / len(items) * 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    before, now = paper_size()
    reference = before.item_probabilities()
    assert now.n_pairs == PAIRS
    found: dict[str, float] = {}
    for name in ("cosine-cf", "naive-cf"):
        learner = registry.learner(name)
        found[f"exhaustive leave-one-out of {name}, s"] = best(
            lambda learner=learner: hit_probabilities(now, learner, 5)
        )
    found["all weights, s"] = best(lambda: fit_item_weights(now, reference))
    for n_items in (180, 35_741):
        found |= passes(*synthetic(options.edges, n_items), n_items)
    told = {"machine": platform.processor() or platform.machine(), "python": platform.python_version(), **found}
    for name, value in found.items():
        print(f"{name:60s} {value:8.3f}")
    if options.out:
        into_results(options.out, "campaigns", told)


if __name__ == "__main__":
    main()
