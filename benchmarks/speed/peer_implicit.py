"""implicit on given interactions, one thread, in its own virtual environment (make_peers.sh implicit); prints JSON.

    PYTHON_OF_IMPLICIT benchmarks/speed/peer_implicit.py top FILE.npz OUT.npy --neighbours 50
    PYTHON_OF_IMPLICIT benchmarks/speed/peer_implicit.py bpr FILE.npz --factors 64 --rate .05 --penalty .01

FILE.npz holds ``indptr``, ``indices`` and ``shape`` of a binary CSR matrix. OUT.npy takes the top ten of every user. An
epoch of BPR is as many updates as there are interactions; its time is the difference between a fit of ``1 + epochs``
and one of 1 epoch, so that setting up counts nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import implicit  # noqa: E402  (threads are set before it is loaded)
import numpy as np  # noqa: E402
from implicit.bpr import BayesianPersonalizedRanking  # noqa: E402
from implicit.nearest_neighbours import CosineRecommender  # noqa: E402
from scipy import sparse  # noqa: E402


def top(a: argparse.Namespace, matrix: sparse.csr_matrix) -> dict[str, float]:
    model = CosineRecommender(K=a.neighbours, num_threads=1)
    began = time.process_time()
    model.fit(matrix, show_progress=False)
    fitted = time.process_time()
    lists, _ = model.recommend(np.arange(matrix.shape[0]), matrix, N=10, filter_already_liked_items=False)
    ended = time.process_time()
    np.save(a.out, lists)
    return {"fit": fitted - began, "top": ended - fitted}


def bpr(a: argparse.Namespace, matrix: sparse.csr_matrix) -> dict[str, float]:
    def seconds(epochs: int) -> float:
        model = BayesianPersonalizedRanking(
            factors=a.factors, learning_rate=a.rate, regularization=a.penalty, iterations=epochs, num_threads=1,
            random_state=1, verify_negative_samples=True,
        )  # fmt: skip
        began = time.process_time()
        model.fit(matrix.astype(np.float32), show_progress=False)
        return time.process_time() - began

    once = seconds(1)
    return {"ns": 1e9 * (seconds(1 + a.epochs) - once) / (a.epochs * matrix.nnz)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("top", "bpr"))
    parser.add_argument("file")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--neighbours", type=int)
    parser.add_argument("--factors", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--penalty", type=float)
    parser.add_argument("--epochs", type=int, default=1)
    a = parser.parse_args()
    with np.load(a.file) as data:
        indptr, indices, shape = data["indptr"], data["indices"], tuple(data["shape"])
    matrix = sparse.csr_matrix((np.ones(len(indices)), indices, indptr), shape=shape)
    print(json.dumps({"version": implicit.__version__, **{"top": top, "bpr": bpr}[a.what](a, matrix)}))


if __name__ == "__main__":
    main()
