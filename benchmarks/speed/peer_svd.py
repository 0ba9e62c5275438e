"""Truncated SVD by scikit-learn or scipy on given interactions, one thread, in its own environment; prints JSON.

    PYTHON_OF_SKLEARN benchmarks/speed/peer_svd.py randomized|arpack FILE.npz OUT.npy --rank 50

FILE.npz holds ``indptr``, ``indices`` and ``shape`` of a binary CSR matrix. OUT.npy takes the right singular vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402  (threads are set before it is loaded)
import scipy  # noqa: E402
import sklearn  # noqa: E402
from scipy.sparse.linalg import svds  # noqa: E402
from sklearn.utils.extmath import randomized_svd  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=("randomized", "arpack"))
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--rank", type=int, required=True)
    a = parser.parse_args()
    with np.load(a.file) as data:
        indptr, indices, shape = data["indptr"], data["indices"], tuple(data["shape"])
    matrix = scipy.sparse.csr_matrix((np.ones(len(indices)), indices, indptr), shape=shape)
    began = time.process_time()
    if a.method == "randomized":
        _, _, vectors = randomized_svd(matrix, n_components=a.rank, random_state=0)
    else:
        _, _, vectors = svds(matrix, k=a.rank, random_state=0)
    seconds = time.process_time() - began
    np.save(a.out, vectors)
    print(json.dumps({"version": [sklearn.__version__, scipy.__version__], "seconds": seconds}))


if __name__ == "__main__":
    main()
