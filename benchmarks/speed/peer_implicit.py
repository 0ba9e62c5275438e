"""BPR of implicit on given interactions, in its own virtual environment: prints JSON.

    PYTHON_OF_IMPLICIT benchmarks/speed/peer_implicit.py FILE.npz --factors 64 --epochs 1

FILE.npz holds ``indptr``, ``indices`` and ``shape``. An epoch is as many updates as there are interactions. The time is
the difference between a fit of ``1 + epochs`` and one of 1 epoch, so that setting up counts nowhere.
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
from scipy import sparse  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--factors", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--penalty", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    a = parser.parse_args()
    with np.load(a.file) as data:
        indptr, indices, shape = data["indptr"], data["indices"], tuple(data["shape"])
    matrix = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=shape)

    def seconds(epochs: int) -> float:
        model = BayesianPersonalizedRanking(
            factors=a.factors, learning_rate=a.rate, regularization=a.penalty, iterations=epochs, num_threads=1,
            random_state=1, verify_negative_samples=True,
        )  # fmt: skip
        began = time.process_time()
        model.fit(matrix, show_progress=False)
        return time.process_time() - began

    once = seconds(1)
    more = seconds(1 + a.epochs)
    print(json.dumps({"version": implicit.__version__, "ns": 1e9 * (more - once) / (a.epochs * matrix.nnz)}))


if __name__ == "__main__":
    main()
