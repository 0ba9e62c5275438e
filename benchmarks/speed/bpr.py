"""Speed of a BPR update next to implicit's, one thread each, measured in turn on the same interactions.

An update is one sampled (user, item, other item): its draw, checked not to be a purchase, and the step on three rows.
Both do plain SGD on user and item factors and item biases, positives uniform over the interactions; implicit draws
negatives by popularity, ours are uniform. CPU seconds; the best of several turns.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fits import interactions
from table import Row, machine, peer

from recsim_mnar.agents.purchases.learners import BPR, ULBPR
from recsim_mnar.agents.purchases.training import Loss, Observed, Trainer

RATE, PENALTY, FACTORS = 0.01, 0.01, 64


def with_recommendations(counts: Any) -> Observed:
    """The same purchases, a third of them and as many other items recommended: every class is there."""
    from recsim_mnar.purchases.exposures import Exposures

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


def implicit(counts: Any) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "interactions.npz"
        np.savez(file, indptr=counts.indptr, indices=counts.indices, shape=np.array(counts.shape))
        return peer("implicit", "implicit_bpr", [file, FACTORS, RATE, PENALTY])


def rows(quick: bool) -> list[Row]:
    """An update of BPR and of ULBPR next to implicit's BPR."""
    n_users, n_items, n, updates, turns = (2000, 500, 40_000, 100_000, 1) if quick else (
        100_000, 20_000, 5_000_000, 3_000_000, 3)  # fmt: skip
    counts = interactions(n_users, n_items, n)
    # Our penalty is lambda |x|^2, implicit's half of it.
    common = {"factors": FACTORS, "rate": RATE, "penalty": PENALTY / 2, "optimizer": "sgd", "batch": 1}
    learners = {
        "BPR": (BPR(draw="cell", **common), Observed.of_counts(counts)),
        "ULBPR": (ULBPR(**common), with_recommendations(counts)),
    }
    trainers = {name: Trainer(a.plan(seen), Loss(pairs=True), a.settings) for name, (a, seen) in learners.items()}
    for trainer in trainers.values():
        trainer.advance(2000)  # compiles
    best, theirs = dict.fromkeys(trainers, np.inf), []
    for _ in range(turns):
        for name, trainer in trainers.items():
            best[name] = min(best[name], nanoseconds(trainer, updates))
        if (found := implicit(counts)) is not None:
            theirs.append(found["ns"])
    floor = 1e9 * (3 * 2 * 4 * FACTORS / machine().read + 2 * machine().draw)
    return [
        Row(f"{name} update, d = {FACTORS}, SGD", "implicit's BPR", ns, min(theirs) if theirs else None, "ns", 1,
            floor=floor, floor_is="three rows read and written at the bandwidth of memory, and two draws")
        for name, ns in best.items()
    ]  # fmt: skip
