"""Speed of the factorisation beside its peers: `python benchmarks/speed/factorization.py [--quick] [--out FILE]`.

Ratings of ML-100K's size (943 x 1,682, 100,000) and of Yahoo R3's (15,400 x 1,000, 311,704), d = 20, with their long
tails, from a noisy rank-5 model. CPU seconds of one thread, the best of several turns, the peers measured in turn in
the same run:

- one evaluation of loss and gradient: the fused kernel beside NumPy's bincount;
- a weighted fit to the same loss: our L-BFGS and ALS beside scipy's L-BFGS-B driving the same kernel, as it comes (ten
  pairs), with twenty pairs, and told the scales that ours is told;
- an unweighted fit to the squared error that surprise's SVD and cornac's MF reach with their defaults: beside them
  (virtual environment by make_peers.sh mf; without it "not measured").
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402  (threads are set before numpy is loaded)
from table import Row, child, into_results, peer  # noqa: E402

from recsim_mnar.kernels.lbfgs import minimise  # noqa: E402
from recsim_mnar.models.factorization import FactorizationConfig, Objective, Ratings, _alternate  # noqa: E402

HERE = Path(__file__).resolve().parent
SIZES = {"ML-100K": (943, 1682, 100_000), "Yahoo R3": (15_400, 1000, 311_704)}
RANK = 20
ABOVE = 1.001
"""Fits are timed to this multiple of the loss at which a long run ends."""


class ReachedError(Exception):
    """The loss aimed at."""


def ratings(n_users: int, n_items: int, n: int) -> Ratings:
    """Distinct pairs, items with a long tail, rounded values from 1 to 5."""
    g = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(n_items) + 20.0)
    users = g.integers(0, n_users, 2 * n)
    items = g.choice(n_items, 2 * n, p=popularity / popularity.sum())
    cells = np.unique(users * n_items + items)
    cells = np.sort(g.choice(cells, min(n, len(cells)), replace=False))
    users, items = np.divmod(cells, n_items)
    v, w = g.normal(size=(n_users, 5)), g.normal(size=(n_items, 5))
    values = np.clip(np.rint(3.5 + 0.4 * (v[users] * w[items]).sum(axis=1) + g.normal(size=len(cells))), 1, 5)
    return Ratings(users, items, values, n_users, n_items)


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


def timed(call: Callable[[], Any], turns: int) -> tuple[float, Any]:
    """CPU seconds of the fastest turn, and what the call gave."""
    best, found = float("inf"), None
    for _ in range(turns):
        began = time.process_time()
        found = call()
        best = min(best, time.process_time() - began)
    return best, found


def scipy_fit(o: Objective, x: np.ndarray, target: float, pairs: int, scale: np.ndarray) -> int:
    """Until the loss is reached; returns the number of evaluations."""
    from scipy.optimize import minimize

    made = 0

    def f(y: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal made
        made += 1
        out = np.empty_like(y)
        loss = o(y / scale, out)
        if loss <= target:
            raise ReachedError
        return loss, out / scale

    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 0, "gtol": 0, "maxcor": pairs}
    try:
        minimize(f, x * scale, jac=True, method="L-BFGS-B", options=options)
    except ReachedError:
        return made
    raise RuntimeError("scipy's L-BFGS-B stopped above the loss aimed at")


def own_fits(o: Objective, x: np.ndarray, target: float, turns: int) -> dict[str, tuple[float, int]]:
    """Seconds and evaluations (sweeps) of our solvers until the loss is reached."""
    spare = np.empty(o.size)
    lbfgs, found = timed(
        lambda: minimise(
            o, x, preconditioner=o.preconditioner(), max_iterations=5000, value_tolerance=0.0, target=target, warn=False
        ),
        turns,
    )
    als, fit = timed(lambda: _alternate(o, x, 500, 0.0, warn=False, watch=lambda y: o(y, spare) <= target), turns)
    if max(found.value, o(o.vector(fit.factors), spare)) > target:
        raise RuntimeError("a solver stopped above the loss aimed at")
    return {"own L-BFGS": (lbfgs, found.evaluations), "own ALS": (als, fit.iterations)}


def weighted(data: Ratings, turns: int) -> dict[str, Any]:
    """One evaluation, and fits to the same loss, with weights as in MF-IPS."""
    given = np.random.default_rng(1).uniform(5, 40, len(data))
    # As strong at both sizes: a row's weights sum to about 1 / rows, so the penalty shrinks with the rows.
    o = Objective(data, given, FactorizationConfig(rank=RANK, penalty=0.8 / sum(data.shape)))
    x, g = o.start(0), np.empty(o.size)
    value, (expected, gradient) = o(x, g), with_bincount(o, x)
    ours, _ = timed(lambda: o(x, g), 10 * turns)
    numpy_, _ = timed(lambda: with_bincount(o, x), 2 * turns)
    target = (
        ABOVE
        * minimise(o, x, preconditioner=o.preconditioner(), max_iterations=150, value_tolerance=0.0, warn=False).value
    )
    fits: dict[str, tuple[float, int]] = {}
    one, scale = np.ones(o.size), np.sqrt(o.preconditioner())
    for name, pairs, scaled in (("", 10, one), (", 20 pairs", 20, one), (", same scales", 10, scale / scale.mean())):
        fits[f"scipy L-BFGS-B{name}"] = timed(lambda p=pairs, s=scaled: scipy_fit(o, x, target, p, s), turns)
    fits |= own_fits(o, x, target, turns)
    return {
        "agreement": [abs(value - expected), float(np.abs(g - gradient).max())],
        "evaluation": {"numpy": numpy_, "kernel": ours, "ratio": numpy_ / ours},
        "loss": target,
        "fits": {name: {"seconds": s, "evaluations": n} for name, (s, n) in fits.items()},
    }


def beside(name: str, data: Ratings, turns: int) -> dict[str, Any] | None:
    """A peer's fit, and ours to the squared error that it reached; None where it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.npz"
        np.savez(path, users=data.users, items=data.items, values=data.values)
        found = peer("mf", "peer_mf.py", [name, path, RANK])
    if found is None:
        return None
    # Next to no penalty: what counts is the error on the ratings, on which the peers' own penalty weighs little.
    o = Objective(data, None, FactorizationConfig(rank=RANK, penalty=1e-6))
    fits = own_fits(o, o.start(0), found["mse"], turns)
    found["fits"] = {name: {"seconds": s, "evaluations": n} for name, (s, n) in fits.items()}
    return found


def rows(quick: bool) -> list[Row]:
    """A weighted fit to the same squared loss, beside scipy's L-BFGS-B; and the two peers' own fits."""
    sizes = child("factorization", ["--quick"] if quick else [], "--out")
    found = []
    for size, result in sizes.items():
        fits = result["fits"]
        fastest = min((name for name in fits if name.startswith("own")), key=lambda name: fits[name]["seconds"])
        ours = fits[fastest]
        least_sweeps = min(fit["evaluations"] for fit in fits.values())
        found.append(
            Row(f"MF-IPS fit, {size} size, d = 20: {fastest}", "scipy L-BFGS-B, same kernel", ours["seconds"],
                fits["scipy L-BFGS-B"]["seconds"], "CPU s", 5,
                floor=least_sweeps * result["evaluation"]["kernel"],
                floor_is="the fewest passes over the ratings that any of the solvers needed, each as fast as a loss")
        )  # fmt: skip
        for name in ("surprise", "cornac"):
            other = result.get(name)
            seconds = min(fit["seconds"] for fit in other["fits"].values()) if other else ours["seconds"]
            found.append(
                Row(f"the same ratings, to {name}'s squared error", name, seconds,
                    other["seconds"] if other else None, "CPU s", None)
            )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the ratings, one turn")
    parser.add_argument("--out", type=Path, help="write JSON here")
    arguments = parser.parse_args()
    turns, results = 1 if arguments.quick else 3, {}
    for size, (n_users, n_items, n) in SIZES.items():
        if arguments.quick:
            n_users, n_items, n = n_users // 8, n_items // 8, n // 20
        data = ratings(n_users, n_items, n)
        found = results[size] = weighted(data, turns)
        e, fits = found["evaluation"], found["fits"]
        print(f"{size}: {n_users:,} x {n_items:,}, {len(data):,} ratings, d = {RANK}")
        print("  agreement of value and gradient: {:.1e}, {:.1e}".format(*found["agreement"]))
        print(f"  one evaluation: kernel {e['kernel'] * 1e3:.2f} ms, NumPy bincount {e['numpy'] * 1e3:.1f} ms: "
              f"{e['ratio']:.1f} times")  # fmt: skip
        print(f"  weighted fit to loss {found['loss']:.6f}:")
        for name, fit in fits.items():
            ratio = fits["scipy L-BFGS-B"]["seconds"] / fit["seconds"]
            print(f"    {name:30s} {fit['seconds']:8.3f} s  {fit['evaluations']:5d} evaluations  {ratio:6.1f} times")
        for other in ("surprise", "cornac"):
            found[other] = beside(other, data, turns)
            if found[other] is None:
                print(f"  {other}: not measured (make_peers.sh mf)")
                continue
            print(f"  unweighted fit to {other}'s squared error {found[other]['mse']:.4f}: "
                  f"{other} {found[other]['seconds']:.3f} s; " + "; ".join(
                      f"{name} {fit['seconds']:.3f} s ({found[other]['seconds'] / fit['seconds']:.1f} times)"
                      for name, fit in found[other]["fits"].items()))  # fmt: skip
    if arguments.out:
        into_results(arguments.out, "factorization", results)


if __name__ == "__main__":
    main()
