"""Fits against their peers, one thread each, in turn: item neighbourhoods, the truncated SVD, and leave-one-out.

*Neighbours*: fit, and the top ten per user, against implicit. K = 50 with the item itself, as implicit counts; both
start from a binary CSR matrix with a long tail of items. *SVD*: of the same view counts, k = 50, against scikit-learn's
randomized_svd and scipy's svds (ARPACK). Captured energy is the squared norm of the counts projected on the vectors
found, as a share of that on the exact ones (ours at tolerance 1e-9). *Leave-one-out*: exhaustive, against ten folds of
refitting, on training data of the 2019 study: 2,000 users, 2,000 items.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from table import Row, cpu_seconds, in_turn, least, machine, peer

from recsim_mnar.agents.factors.svd import right_singular_vectors
from recsim_mnar.agents.neighbours.knn import ItemKNNPolicy, most_similar
from recsim_mnar.log import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies import Learner, registry
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.protocols.ranks import exhaustive_ranks
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

SIZES = ((2_000, 2_000, 40_000, 5), (100_000, 20_000, 5_000_000, 2))
NEIGHBOURS, TOP = 50, 10
RANK = 50
TOLERANCE = {2_000: 1e-6, 20_000: 0.05}
"""Of our fit, by the number of items: the default, and what is advised for millions of interactions."""
PEERS = {"randomized": "sklearn randomized_svd", "arpack": "scipy svds, ARPACK"}
AGENTS = ("popularity", "item-knn", "user-knn")


def interactions(n_users: int, n_items: int, n: int) -> Any:
    """Binary (n_users, n_items) CSR array of about n entries with a long tail of items."""
    g = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(n_items) + 50.0) ** 0.8
    users, items = g.integers(0, n_users, n), g.choice(n_items, n, p=popularity / popularity.sum())
    counts = sparse.csr_array((np.ones(n, np.int32), (users, items)), shape=(n_users, n_items))
    counts.sum_duplicates()
    counts.sort_indices()
    counts.data[:] = 1
    return counts


def fitted(counts: Any) -> ItemKNNPolicy:
    """What ``ItemKNN.fit`` does once the log's views are counted."""
    starts, neighbours, similarities = most_similar(counts, NEIGHBOURS, True)
    options = {"neighbours": NEIGHBOURS, "include_self": True}
    return ItemKNNPolicy(
        counts.shape[1], "item-knn", starts=starts, neighbours=neighbours, similarities=similarities, parameters=options
    )


def peer_of(environment: str, name: str, counts: Any, *arguments: Any) -> tuple[dict[str, Any], Any] | None:
    """A peer's answer and array for these counts; None where it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "in.npz", Path(folder) / "out.npy"
        np.savez(given, indptr=counts.indptr, indices=counts.indices, shape=np.array(counts.shape))
        found = peer(environment, name, [given, out, *arguments])
        return None if found is None else (found, np.load(out))


def agreement(counts: Any, ours: Any, theirs: Any) -> tuple[float, float]:
    """Share of their entries that are in our lists: as they are, and but for ties.

    Ties are many, in the neighbourhoods and in the lists: counts are small. Ours go to the lower item, implicit's to
    the higher; so the second figure is of a fit on the items in reverse order, and counts an item that scores as much
    as the last of our list (within 1e-6 of it: implicit's sums of products round, our cosines are of whole numbers).
    """
    n_items = counts.shape[1]
    turned = counts[:, ::-1].tocsr()
    turned.sort_indices()
    policy = fitted(turned)
    items, scores = policy.top(turned, TOP)
    theirs_turned = n_items - 1 - theirs
    agree = (theirs_turned[:, :, None] == items[:, None, :]).any(axis=2)
    starts, neighbours, values = (array for array in policy.fitted()[0].values())
    for u in np.flatnonzero(~agree.all(axis=1)):
        row = np.zeros(n_items)
        for item in turned.indices[turned.indptr[u] : turned.indptr[u + 1]]:
            part = slice(starts[item], starts[item + 1])
            row[neighbours[part]] += values[part]
        agree[u] |= row[theirs_turned[u]] >= scores[u, -1] * (1.0 - 1e-6)
    return float((theirs[:, :, None] == ours[:, None, :]).any(axis=2).mean()), float(agree.mean())


def neighbours_of(n_users: int, n_items: int, n: int, rounds: int) -> list[Row]:
    """Fit, top ten and agreement at one size."""
    counts = interactions(n_users, n_items, n)
    warm = fitted(interactions(200, 100, 2000))
    warm.top(interactions(200, 100, 2000), TOP)
    fit, top, peers = [], [], []
    for _ in range(rounds):
        seconds, policy = cpu_seconds(lambda: fitted(counts))
        fit.append(seconds)
        seconds, ours = cpu_seconds(lambda p=policy: p.top(counts, TOP))
        top.append(seconds)
        found = peer_of("implicit", "implicit_top", counts, NEIGHBOURS)
        if found is not None:
            peers.append(found)
    theirs = {key: min(p[0][key] for p in peers) if peers else None for key in ("fit", "top")}
    size = f"{n_users // 1000}k x {n_items // 1000}k, {counts.nnz:,}"
    lengths = np.diff(counts.indptr).astype(float)
    products = float((lengths**2).sum())
    adds = float(lengths.sum()) * NEIGHBOURS
    rows = [
        Row(f"item-kNN fit, {size}", "implicit", min(fit), theirs["fit"], "CPU s", 2,
            floor=products * machine().increment, floor_is="an increment for each pair of items of a user"),
        Row(f"item-kNN top 10 of all users, {size}", "implicit", min(top), theirs["top"], "CPU s", 4,
            floor=adds * machine().increment, floor_is="an addition for each neighbour of each view"),
    ]  # fmt: skip
    if peers:
        given, but_for_ties = agreement(counts, ours[0], peers[-1][1])
        note = f"but for ties; {100 * given:.2f} with them"
        rows.append(Row(f"agreement of the lists, {size}", "", 100 * but_for_ties, None, "%", 99.5, note=note))
    else:
        rows.append(Row(f"agreement of the lists, {size}", "implicit", None, None, "%", 99.5))
    return rows


def neighbours(quick: bool) -> list[Row]:
    """Both sizes, or the small one."""
    return [row for size in SIZES[: 1 if quick else 2] for row in neighbours_of(*size)]


def energy(counts: Any, vectors: Any) -> float:
    """Squared norm of the projection."""
    return float(np.square(counts.astype(np.float64) @ np.asarray(vectors, np.float64).T).sum())


def svd_of(n_users: int, n_items: int, n: int, rounds: int) -> list[Row]:
    """Seconds of ours and of both peers, and the energy that each captures."""
    counts = interactions(n_users, n_items, n)
    right_singular_vectors(interactions(300, 200, 3000), 20)
    ours, theirs = [], {method: [] for method in PEERS}
    captured: dict[str, float] = {}
    for _ in range(rounds):
        seconds, vectors = cpu_seconds(lambda: right_singular_vectors(counts, RANK, tolerance=TOLERANCE[n_items]))
        ours.append(seconds)
        for method in PEERS:
            found = peer_of("sklearn", "svd", counts, method, RANK)
            if found is not None:
                theirs[method].append(found[0]["seconds"])
                captured[method] = energy(counts, found[1])
    exact = energy(counts, right_singular_vectors(counts, RANK, tolerance=1e-9))
    size = f"{n_users // 1000}k x {n_items // 1000}k, {counts.nnz:,}"
    # A subspace of dimension k can be found with k products by A'A at the least.
    floor = RANK * 4 * counts.nnz * machine().flop
    rows = []
    bars = {"randomized": 1.0, "arpack": 4.0} if n >= 1_000_000 else {"randomized": None, "arpack": None}
    for method, bar in bars.items():
        seconds = min(theirs[method]) if theirs[method] else None
        note = f"{PEERS[method]}: {captured[method] / exact:.4%} of the energy" if seconds else ""
        rows.append(
            Row(f"SVD, k = {RANK}, {size}", PEERS[method], min(ours), seconds, "CPU s", bar, floor=floor,
                floor_is=f"{RANK} products by A'A at the speed of arithmetic", note=note)
        )  # fmt: skip
    share = 100 * energy(counts, vectors) / exact
    rows.append(Row(f"captured energy, tolerance {TOLERANCE[n_items]:g}, {size}", "", share, None, "%", 99.8))
    return rows


def svd(quick: bool) -> list[Row]:
    """Both sizes, or the small one."""
    return [row for size in SIZES[: 1 if quick else 2] for row in svd_of(*size)]


def every_rank(log: Log, learner: dict[str, Learner], n_items: int) -> None:
    """Rank every view, held out alone."""
    for name, one in learner.items():
        exhaustive_ranks(name, one, log, Views.of(log), n_items, False, 0)


def held_out(quick: bool) -> list[Row]:
    """Leave-one-out of every view, a row per agent."""
    world = make_world("sessions", "jeunen2019", [])
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    log = simulate(world, uniform, 300 if quick else 2000, seed=77)
    views = int((log["event"] == 0).sum())
    found = []
    for name in AGENTS:
        learner = {name: registry.learner(name)}
        seconds = least(
            in_turn(
                {
                    "folds": lambda a=learner: leave_one_out(log, a, n_items=world.n_items),
                    "all": lambda a=learner: every_rank(log, a, world.n_items),
                },
                1 if quick else 7,
            )
        )
        read = 13 * len(log) / machine().read  # user, event, item
        draws = views * machine().draw
        found.append(
            Row(
                f"leave-one-out of {name}, exhaustive, {views:,} views", "ten folds, refitted", seconds["all"],
                seconds["folds"], "CPU s", 1.0, floor=read + draws,
                floor_is="reading the log once, and a draw a view for ties",
            )
        )  # fmt: skip
    return found
