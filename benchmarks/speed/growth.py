"""How cost grows: `python benchmarks/speed/run.py growth [--quick] [--out FOLDER] [--only NAME,...]`.

CPU seconds of one thread against items, users and factors (simulate), rows (estimators) and interactions (fits); the
least of a few rounds in which the sizes of a curve take turns. Exponents are slopes of a straight line through the
upper half of each log-log curve. Writes "growth" of results.json, and growth.png. By users the log is made shard by
shard, as for a folder of Parquet parts: that of a million users has some 80 million rows.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _study import parser_of, save_picture
from table import in_turn, into_results, least

from recsim_mnar.log import Log
from recsim_mnar.policies import Policy, registry
from recsim_mnar.simulation import map_shards, simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import World

HERE = Path(__file__).resolve().parent
Curve = dict[int, Callable[[], Any]]


def scene(**settings: int) -> tuple[World, Policy]:
    """A world, its catalogue made beforehand, and uniform logging."""
    world = make_world("sessions", "recogym-v1", [f"{name}={value}" for name, value in settings.items()])
    return world, registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)


def lives(n_users: int, **settings: int) -> Callable[[], Any]:
    """A simulation under uniform logging."""
    world, policy = scene(**settings)
    return lambda: simulate(world, policy, n_users, seed=2)


def shards(n_users: int, **settings: int) -> Callable[[], Any]:
    """The same, one shard in memory at a time."""
    world, policy = scene(**settings)
    return lambda: collections.deque(map_shards(dict, world, policy, n_users, 2), maxlen=0)


def by_items(quick: bool) -> Curve:
    sizes = (10, 100, 1000) if quick else (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
    return {n: lives(200 if quick else 2000, n_items=n) for n in sizes}


def by_users(quick: bool) -> Curve:
    sizes = (100, 1000) if quick else (100, 1000, 10_000, 100_000, 1_000_000)
    return {n: shards(n, n_items=100) for n in sizes}


def by_factors(quick: bool) -> Curve:
    sizes = (5, 20) if quick else (5, 10, 20, 50, 100)
    return {k: lives(200 if quick else 1000, n_items=1000, n_factors=k) for k in sizes}


def by_rows(quick: bool) -> Curve:
    from estimators import columns, two_values

    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000)
    return {n: functools.partial(two_values, *columns(n)) for n in sizes}


def interactions_of(n: int) -> Any:
    """n interactions of n / 50 users with n / 250 items."""
    from fits import interactions

    return interactions(n // 50, max(n // 250, 100), n)


def sizes_of_fits(quick: bool) -> tuple[int, ...]:
    return (10_000, 40_000) if quick else (10_000, 50_000, 200_000, 1_000_000, 5_000_000)


def item_knn(quick: bool) -> Curve:
    from fits import fitted

    return {n: functools.partial(fitted, interactions_of(n)) for n in sizes_of_fits(quick)}


def svd(quick: bool) -> Curve:
    from recsim_mnar.agents.factors.svd import right_singular_vectors

    fit = functools.partial(right_singular_vectors, rank=50, tolerance=0.05)
    return {n: functools.partial(fit, interactions_of(n)) for n in sizes_of_fits(quick)}


def factorization(quick: bool) -> Curve:
    from recsim_mnar.kernels.lbfgs import minimise
    from recsim_mnar.log.ratings import Ratings
    from recsim_mnar.models.factorization import FactorizationConfig, Objective

    def fit(n: int) -> Callable[[], Any]:
        c = interactions_of(n)
        g = np.random.default_rng(1)
        users = np.repeat(np.arange(c.shape[0]), np.diff(c.indptr))
        values = g.integers(1, 6, len(users)).astype(float)
        data = Ratings(users, np.asarray(c.indices, np.int64), values, *c.shape)
        o = Objective(data, g.uniform(5, 40, len(users)), FactorizationConfig(rank=20, penalty=3e-4))
        return lambda: minimise(o, o.start(0), max_iterations=20, value_tolerance=0.0, warn=False)

    return {n: fit(n) for n in sizes_of_fits(quick)[:4]}


CURVES: dict[str, tuple[str, Callable[[bool], Curve]]] = {
    "simulate by items": ("items", by_items),
    "simulate by users, 100 items": ("users", by_users),
    "simulate by factors, 1,000 items": ("factors", by_factors),
    "clipped IPS by rows": ("rows", by_rows),
    "item-kNN by interactions": ("interactions", item_knn),
    "SVD (k = 50) by interactions": ("interactions", svd),
    "20 iterations of MF-IPS by interactions": ("interactions", factorization),
}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of the upper half of the curve on logarithmic axes."""
    half = max(2, (len(sizes) + 1) // 2)
    return float(np.polyfit(np.log(sizes[-half:]), np.log(seconds[-half:]), 1)[0])


def plot(found: dict[str, Any], path: Path) -> None:
    """One panel for each kind of size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    kinds = list(dict.fromkeys(curve["of"] for curve in found.values()))
    figure, panels = plt.subplots(1, len(kinds), figsize=(3.6 * len(kinds), 3.4), squeeze=False)
    for panel, kind in zip(panels[0], kinds, strict=True):
        for name, curve in found.items():
            if curve["of"] == kind:
                panel.loglog(
                    curve["sizes"],
                    curve["seconds"],
                    "o-",
                    ms=3,
                    label=f"{name.split(' by ')[0]}: {curve['exponent']:.2f}",
                )
        panel.set_xlabel(kind)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=7, title="fitted exponent", title_fontsize=7)
    panels[0][0].set_ylabel("CPU seconds")
    figure.tight_layout()
    save_picture(figure, path)
    plt.close(figure)


def main(given: list[str]) -> int:
    parser = parser_of(__doc__, quick="a small slice")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--only", help="curves whose name contains one of these, with commas")
    a = parser.parse_args(given)
    found: dict[str, Any] = {}
    for name, (kind, make) in CURVES.items():
        if a.only and not any(part in name for part in a.only.split(",")):
            continue
        curve = make(a.quick)
        seconds = least(in_turn({str(n): call for n, call in curve.items()}, 1 if a.quick else 2))
        sizes, costs = list(curve), [seconds[str(n)] for n in curve]
        found[name] = {"of": kind, "sizes": sizes, "seconds": costs, "exponent": exponent(sizes, costs)}
        shown = ", ".join(f"{n:,}: {s:.3g} s" for n, s in zip(sizes, costs, strict=True))
        print(f"{name}: exponent {found[name]['exponent']:.2f} ({shown})", flush=True)
    into_results(a.out / "results.json", "growth", found)
    plot(found, a.out / "growth.png")
    return 0
