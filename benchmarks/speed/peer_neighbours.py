"""Item neighbourhoods of implicit on given interactions, one thread, in its own virtual environment; prints JSON.

    PYTHON_OF_IMPLICIT benchmarks/speed/peer_neighbours.py FILE.npz OUT.npy --neighbours 50 --rounds 1

FILE.npz holds ``indptr``, ``indices`` and ``shape`` of a binary CSR matrix. OUT.npy takes the top ten of every user.
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
from implicit.nearest_neighbours import CosineRecommender  # noqa: E402
from scipy import sparse  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--neighbours", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    a = parser.parse_args()
    with np.load(a.file) as data:
        indptr, indices, shape = data["indptr"], data["indices"], tuple(data["shape"])
    matrix = sparse.csr_matrix((np.ones(len(indices)), indices, indptr), shape=shape)
    fit, top = [], []
    for _ in range(a.rounds):
        model = CosineRecommender(K=a.neighbours, num_threads=1)
        began = time.process_time()
        model.fit(matrix, show_progress=False)
        fitted = time.process_time()
        lists, _ = model.recommend(np.arange(shape[0]), matrix, N=10, filter_already_liked_items=False)
        top.append(time.process_time() - fitted)
        fit.append(fitted - began)
    np.save(a.out, lists)
    print(json.dumps({"version": implicit.__version__, "fit": min(fit), "top": min(top)}))


if __name__ == "__main__":
    main()
