"""Speed of the factorisation: one evaluation beside NumPy, a fit beside scipy's L-BFGS-B, at ML-100K's size, d = 20.

    python benchmarks/speed/factorization.py

CPU seconds of one thread, the best of several turns; the fits are timed to the same loss.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402  (threads are set before numpy is loaded)

from recsim_mnar.factorization import Form, Objective, Ratings, _alternate  # noqa: E402
from recsim_mnar.lbfgs import minimise  # noqa: E402

N_USERS, N_ITEMS, N, RANK = 943, 1682, 100_000, 20


def data() -> Objective:
    """Ratings of ML-100K's size, with its long tail of items, from a noisy rank-5 model; weights as in MF-IPS."""
    g = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(N_ITEMS) + 20.0)
    users = g.integers(0, N_USERS, 2 * N)
    items = g.choice(N_ITEMS, 2 * N, p=popularity / popularity.sum())
    cells = np.unique(users * N_ITEMS + items)
    cells = np.sort(g.choice(cells, min(N, len(cells)), replace=False))
    users, items = np.divmod(cells, N_ITEMS)
    v, w = g.normal(size=(N_USERS, 5)), g.normal(size=(N_ITEMS, 5))
    values = np.clip(np.rint(3.5 + 0.4 * (v[users] * w[items]).sum(axis=1) + g.normal(size=len(cells))), 1, 5)
    weights = g.uniform(5, 40, len(cells))
    return Objective(Ratings(users, items, values, N_USERS, N_ITEMS), weights, Form(rank=RANK, penalty=3e-4))


def with_bincount(o: Objective, x: np.ndarray) -> tuple[float, np.ndarray]:
    """The same loss and gradient in NumPy."""
    v, w, a, b = o.parts(x)
    vu, wi = v[o.users], w[o.items]
    e = np.einsum("nd,nd->n", vu, wi) + a[o.users] + b[o.items] + x[-1] - o.values
    c = 2 * o.weights * e
    g = 2 * o.form.penalty * x
    g[-1] = c.sum()
    gv, gw, ga, gb = o.parts(g)
    for k in range(v.shape[1]):
        gv[:, k] += np.bincount(o.users, c * wi[:, k], o.n_users)
        gw[:, k] += np.bincount(o.items, c * vu[:, k], o.n_items)
    ga += np.bincount(o.users, c, o.n_users)
    gb += np.bincount(o.items, c, o.n_items)
    return o.form.penalty * (x[:-1] @ x[:-1]) + (o.weights * e * e).sum(), g


def timed(call: Callable[[], Any], turns: int) -> float:
    best = float("inf")
    for _ in range(turns):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    from scipy.optimize import minimize

    o = data()
    x, g = o.start(0), np.empty(o.size)
    value, (expected, gradient) = o(x, g), with_bincount(o, x)
    print(f"value differs by {abs(value - expected):.1e}, gradient by {np.abs(g - gradient).max():.1e}")
    ours, numpy_ = timed(lambda: o(x, g), 30), timed(lambda: with_bincount(o, x), 7)
    print(f"one evaluation: {ours * 1e3:.2f} ms, NumPy bincount {numpy_ * 1e3:.1f} ms: {numpy_ / ours:.1f} times")

    class ReachedError(Exception):
        pass

    found = minimise(o, x, max_iterations=400, value_tolerance=1e-6, warn=False)
    target = found.value * 1.001
    minimise(o, x, max_iterations=2, warn=False)
    _alternate(o, x, 1, 0.0, warn=False)

    def scipy_fit() -> None:
        def f(y: np.ndarray) -> tuple[float, np.ndarray]:
            out = np.empty_like(y)
            loss = o(y, out)
            if loss <= target:
                raise ReachedError
            return loss, out

        try:
            minimize(
                f, x, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10_000, "ftol": 0, "gtol": 0}
            )
        except ReachedError:
            return

    spare = np.empty(o.size)
    theirs = timed(scipy_fit, 3)
    lbfgs = timed(lambda: minimise(o, x, max_iterations=5000, value_tolerance=0.0, target=target, warn=False), 3)
    als = timed(lambda: _alternate(o, x, 500, 0.0, warn=False, watch=lambda y: o(y, spare) <= target), 3)
    print(f"fit to loss {target:.6f}: scipy L-BFGS-B {theirs:.2f} s; own L-BFGS {lbfgs:.2f} s ({theirs / lbfgs:.1f}); "
          f"ALS {als:.2f} s ({theirs / als:.1f} times)")  # fmt: skip


if __name__ == "__main__":
    main()
