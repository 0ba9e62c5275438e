"""Item neighbourhoods beside implicit's: fit, and the top ten of every user; one thread each, in turn.

    bash benchmarks/speed/make_peers_implicit.sh
    python benchmarks/speed/neighbours.py [--rounds N]

K = 50 with the item itself, as implicit counts; both start from a binary CSR matrix with a long tail of items.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from floors import machine
from scipy import sparse
from table import HEADER, Row, cpu_seconds, line

from recsim_mnar.agents.neighbours.knn import ItemKNNPolicy
from recsim_mnar.agents.neighbours.similarity import most_similar

HERE = Path(__file__).resolve().parent
SIZES = ((2_000, 2_000, 40_000, 5), (100_000, 20_000, 5_000_000, 2))
NEIGHBOURS, TOP = 50, 10


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
    told = {"neighbours": NEIGHBOURS, "include_self": True}
    return ItemKNNPolicy(
        counts.shape[1], "item-knn", starts=starts, neighbours=neighbours, similarities=similarities, parameters=told
    )


def implicit(counts: Any, rounds: int) -> tuple[dict[str, Any], Any] | None:
    """Its times and lists, None where it is not there."""
    python = Path(os.environ.get("PEERS_DIR", HERE / ".venvs")) / "implicit" / "bin" / "python"
    if not python.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "in.npz", Path(folder) / "out.npy"
        np.savez(given, indptr=counts.indptr, indices=counts.indices, shape=np.array(counts.shape))
        command = [str(python), str(HERE / "peer_neighbours.py"), str(given), str(out)]
        command += ["--neighbours", str(NEIGHBOURS), "--rounds", str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1]), np.load(out)


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


def measured(n_users: int, n_items: int, n: int, rounds: int) -> list[Row]:
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
        found = implicit(counts, 1)
        if found is not None:
            peers.append(found)
    peer = {key: min(p[0][key] for p in peers) if peers else None for key in ("fit", "top")}
    size = f"{n_users // 1000}k x {n_items // 1000}k, {counts.nnz:,}"
    lengths = np.diff(counts.indptr).astype(float)
    products = float((lengths**2).sum())
    adds = float(lengths.sum()) * NEIGHBOURS
    rows = [
        Row(f"item-kNN fit, {size}", "implicit", min(fit), peer["fit"], "CPU s", 2,
            floor=products * machine().increment, floor_is="an increment for each pair of items of a user"),
        Row(f"item-kNN top 10 of all users, {size}", "implicit", min(top), peer["top"], "CPU s", 4,
            floor=adds * machine().increment, floor_is="an addition for each neighbour of each view"),
    ]  # fmt: skip
    if peers:
        given, but_for_ties = agreement(counts, ours[0], peers[-1][1])
        note = f"but for ties; {100 * given:.2f} with them"
        rows.append(Row(f"agreement of the lists, {size}", "", 100 * but_for_ties, None, "%", 99.5, note=note))
    else:
        rows.append(Row(f"agreement of the lists, {size}", "implicit", None, None, "%", 99.5))
    return rows


def rows(quick: bool, rounds: int | None = None) -> list[Row]:
    """Both sizes, or the small one."""
    return [row for *size, turns in SIZES[: 1 if quick else 2] for row in measured(*size, rounds or turns)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int)
    print(HEADER)
    for row in rows(False, parser.parse_args().rounds):
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
