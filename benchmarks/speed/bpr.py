"""Speed of a BPR update beside implicit's, one thread each, measured in turn on the same interactions.

    bash benchmarks/speed/make_peers.sh implicit
    python benchmarks/speed/bpr.py

An update is one sampled (user, item, other item): its draw, checked not to be a purchase, and the step on three rows.
Both do plain SGD on user and item factors and item biases, positives uniform over the interactions; implicit draws
negatives by popularity, ours are uniform. Adam in batches of 1,000, and ULBPR, are printed too: implicit has neither.
``--grow`` adds how an update's cost grows with the number of items at as many interactions. CPU seconds; the best of
several turns. Without implicit its line says "not measured".
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402  (threads are set before numpy is loaded)
from fits import interactions  # noqa: E402  (with the same long tail)
from floors import machine  # noqa: E402
from table import Row, child, into_results, peer  # noqa: E402

from recsim_mnar.agents.purchases.bpr import BPR  # noqa: E402
from recsim_mnar.agents.purchases.observed import Observed  # noqa: E402
from recsim_mnar.agents.purchases.training import Loss, Trainer  # noqa: E402
from recsim_mnar.agents.purchases.uplift import ULBPR  # noqa: E402

HERE = Path(__file__).parent
RATE, PENALTY = 0.01, 0.01


def with_recommendations(counts: Any) -> Observed:
    """The same purchases, a third of them and as many other items recommended: every class is there."""
    from recsim_mnar.log.exposures import Exposures

    g = np.random.default_rng(1)
    shape = counts.shape
    user = np.repeat(np.arange(shape[0]), np.diff(counts.indptr))
    bought = user * shape[1] + counts.indices
    shown = np.unique(
        np.concatenate([bought[g.random(len(bought)) < 1 / 3], g.integers(0, shape[0] * shape[1], counts.nnz // 3)])
    )
    cells = np.union1d(bought, shown)
    flags = np.isin(cells, shown), np.isin(cells, bought)
    users, items = np.divmod(cells, shape[1])
    exposures = Exposures(users, items, np.zeros(len(cells)), *flags, n_users=shape[0], n_items=shape[1], n_periods=1)
    return Observed.of(exposures.classes())


def nanoseconds(trainer: Trainer, updates: int) -> float:
    began = time.process_time()
    if trainer.advance(updates) is not None:
        raise SystemExit("training diverged")
    return 1e9 * (time.process_time() - began) / updates


def implicit(counts: Any, factors: int) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "interactions.npz"
        np.savez(file, indptr=counts.indptr, indices=counts.indices, shape=np.array(counts.shape))
        told = ["--factors", factors, "--rate", RATE, "--penalty", PENALTY]
        return peer("implicit", "peer_implicit.py", ["bpr", file, *told])


def grow(a: argparse.Namespace, n_items: int, common: dict[str, Any]) -> float:
    """Nanoseconds an update with this number of items."""
    rows = Observed.of_counts(interactions(a.users, n_items, a.interactions))
    learner = BPR(draw="cell", optimizer="sgd", batch=1, **common)
    trainer = Trainer(learner.plan(rows), Loss(pairs=True), learner.settings)
    trainer.advance(a.updates // 10)
    return min(nanoseconds(trainer, a.updates) for _ in range(a.turns))


def rows(quick: bool) -> list[Row]:
    """An update of BPR and of ULBPR beside implicit's BPR."""
    small = ["--users", "2000", "--items", "500", "--interactions", "40000", "--updates", "100000", "--turns", "1"]
    result = child("bpr", small if quick else [], "--json")
    theirs, factors = result["implicit_ns_an_update"], result["factors"]
    floor = 1e9 * (3 * 2 * 4 * factors / machine().read + 2 * machine().draw)
    return [
        Row(f"{name.split()[0].upper()} update, d = {factors}, SGD", "implicit's BPR",
            result["ns_an_update"][name], theirs, "ns", 1, floor=floor,
            floor_is="three rows read and written at the bandwidth of memory, and two draws")
        for name in ("bpr sgd", "ulbpr sgd")
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--interactions", type=int, default=5_000_000)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--updates", type=int, default=3_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--grow", type=int, nargs="*", default=[], help="numbers of items")
    parser.add_argument("--json", type=Path, default=HERE / "results.json")
    a = parser.parse_args()

    counts = interactions(a.users, a.items, a.interactions)
    observed, recommended = Observed.of_counts(counts), with_recommendations(counts)
    print(f"{a.users:,} users, {a.items:,} items, {counts.nnz:,} interactions, d = {a.factors}; ns an update")
    common = {"factors": a.factors, "rate": RATE, "penalty": PENALTY / 2}  # ours is lambda |x|^2, implicit's half of it
    learners = {
        "bpr sgd": (BPR(draw="cell", optimizer="sgd", batch=1, **common), observed),
        "ulbpr sgd": (ULBPR(optimizer="sgd", batch=1, **common), recommended),
        "bpr adam": (BPR(draw="cell", **{**common, "rate": 1e-4}), observed),
        "ulbpr adam": (ULBPR(**{**common, "rate": 1e-4}), recommended),
    }
    trainers = {}
    for name, (learner, counted) in learners.items():
        trainers[name] = Trainer(learner.plan(counted), Loss(pairs=True), learner.settings)
        trainers[name].advance(2000)  # compiles
    best = dict.fromkeys(trainers, np.inf)
    theirs, version = np.inf, None
    for _ in range(a.turns):
        for name, trainer in trainers.items():
            best[name] = min(best[name], nanoseconds(trainer, a.updates))
        told = implicit(counts, a.factors)
        if told is not None:
            theirs, version = min(theirs, told["ns"]), told["version"]
    for name, ns in best.items():
        print(f"{name:12s} {ns:8.0f}", f"{theirs / ns:6.2f} x implicit" if version else "")
    print(f"implicit sgd {theirs:8.0f} ({version})" if version else "implicit sgd not measured: make_peers.sh implicit")
    grown = {n: grow(a, n, common) for n in a.grow}
    for n, ns in grown.items():
        print(f"bpr sgd, {n:,} items: {ns:.0f}")
    result = {
        "users": a.users, "items": a.items, "interactions": int(counts.nnz), "factors": a.factors,
        "ns_an_update": {name: round(ns, 1) for name, ns in best.items()},
        "implicit_ns_an_update": round(theirs, 1) if version else None, "implicit_version": version,
        "by_items": {str(n): round(ns, 1) for n, ns in grown.items()},
    }  # fmt: skip
    into_results(a.json, "bpr", result)


if __name__ == "__main__":
    main()
