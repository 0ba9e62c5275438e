"""Run inside the environment of make_peers.sh mf: fit a peer's biased matrix factorisation and print JSON.

    python peer_mf.py surprise|cornac RATINGS.npz RANK

Prints CPU seconds of the fit alone, with the peer's own defaults (20 epochs of stochastic gradient descent, one
thread), and the mean squared error that it reached on the ratings it was fitted on.
"""

from __future__ import annotations

import json
import os
import sys
import time

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402  (threads are set before numpy is loaded)


def with_surprise(users, items, values, rank):
    from surprise import SVD, Reader, Trainset

    shape = (int(users.max()) + 1, int(items.max()) + 1)
    ur, ir = {u: [] for u in range(shape[0])}, {i: [] for i in range(shape[1])}
    for u, i, r in zip(users.tolist(), items.tolist(), values.tolist(), strict=True):
        ur[u].append((i, r))
        ir[i].append((u, r))
    names = {u: u for u in range(shape[0])}, {i: i for i in range(shape[1])}
    train = Trainset(ur, ir, *shape, len(users), Reader(rating_scale=(1, 5)).rating_scale, *names)
    model = SVD(n_factors=rank, random_state=0)
    began = time.process_time()
    model.fit(train)
    seconds = time.process_time() - began
    guess = model.trainset.global_mean + model.bu[users] + model.bi[items]
    return seconds, guess + (model.pu[users] * model.qi[items]).sum(axis=1)


def with_cornac(users, items, values, rank):
    import cornac

    data = cornac.data.Dataset.build(list(zip(users.tolist(), items.tolist(), values.tolist(), strict=True)), seed=0)
    model = cornac.models.MF(k=rank, max_iter=20, use_bias=True, early_stop=False, num_threads=1, verbose=False, seed=0)
    began = time.process_time()
    model.fit(data)
    seconds = time.process_time() - began
    u, i = data.uir_tuple[0], data.uir_tuple[1]
    guess = model.global_mean + model.u_biases[u] + model.i_biases[i] + (model.u_factors[u] * model.i_factors[i]).sum(1)
    return seconds, guess, data.uir_tuple[2]


def main() -> None:
    which, path, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with np.load(path) as stored:
        users, items, values = stored["users"], stored["items"], stored["values"]
    call = {"surprise": with_surprise, "cornac": with_cornac}[which]
    runs = [call(users, items, values, rank) for _ in range(3)]
    seconds, guess, truth = (*min(runs, key=lambda run: run[0]), values)[:3]
    print(json.dumps({"seconds": seconds, "mse": float(np.mean((guess - truth) ** 2))}))


if __name__ == "__main__":
    main()
