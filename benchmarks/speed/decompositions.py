"""Truncated SVD of view counts, k = 50, beside scikit-learn's randomized_svd and scipy's svds (ARPACK), in turn.

    bash benchmarks/speed/make_peers_sklearn.sh
    python benchmarks/speed/decompositions.py [--rounds N]

One thread each; the interactions are those of neighbours.py. Captured energy is the squared norm of the counts
projected on the vectors found, as a share of that on the exact ones (ours at tolerance 1e-9).
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
from neighbours import SIZES, interactions
from table import HEADER, Row, cpu_seconds, line

from recsim_mnar.agents.factors.svd import right_singular_vectors

HERE = Path(__file__).resolve().parent
RANK = 50
TOLERANCE = {2_000: 1e-6, 20_000: 0.05}
"""Of our fit, by the number of items: the default, and what is advised for millions of interactions."""
PEERS = {"randomized": "sklearn randomized_svd", "arpack": "scipy svds, ARPACK"}


def peer(method: str, counts: Any) -> tuple[float, Any] | None:
    """Its seconds and vectors, None where it is not there."""
    python = Path(os.environ.get("PEERS_DIR", HERE / ".venvs")) / "sklearn" / "bin" / "python"
    if not python.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "in.npz", Path(folder) / "out.npy"
        np.savez(given, indptr=counts.indptr, indices=counts.indices, shape=np.array(counts.shape))
        command = [str(python), str(HERE / "peer_svd.py"), method, str(given), str(out), "--rank", str(RANK)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])["seconds"], np.load(out)


def energy(counts: Any, vectors: Any) -> float:
    """Squared norm of the projection."""
    return float(np.square(counts.astype(np.float64) @ np.asarray(vectors, np.float64).T).sum())


def measured(n_users: int, n_items: int, n: int, rounds: int) -> list[Row]:
    """Seconds beside both peers, and the energy that each captures."""
    counts = interactions(n_users, n_items, n)
    right_singular_vectors(interactions(300, 200, 3000), 20)
    ours, theirs = [], {method: [] for method in PEERS}
    captured: dict[str, float] = {}
    for _ in range(rounds):
        seconds, vectors = cpu_seconds(lambda: right_singular_vectors(counts, RANK, tolerance=TOLERANCE[n_items]))
        ours.append(seconds)
        for method in PEERS:
            found = peer(method, counts)
            if found is not None:
                theirs[method].append(found[0])
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
