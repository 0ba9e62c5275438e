"""Speed of the factorisation next to its peers.

Ratings of ML-100K's size (943 x 1,682, 100,000) and of Yahoo R3's (15,400 x 1,000, 311,704), d = 20, with their long
tails, from a noisy rank-5 model. CPU seconds of one thread, the best of several turns, the peers measured in turn in
the same run:

- a weighted fit to the same loss: our L-BFGS and ALS next to scipy's L-BFGS-B driving the same kernel, as it comes (ten
  pairs), with twenty pairs, and with the scales that ours has;
- an unweighted fit to the squared error that surprise's SVD and cornac's MF reach with their defaults: next to them
  (virtual environment by make_peers.sh mf; without it "not measured").
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from table import Row, peer

from recsim_mnar.kernels.lbfgs import minimise
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, Factors, Objective

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


def alternate(o: Objective, x: np.ndarray, sweeps: int, ended: Callable[[np.ndarray], bool]) -> tuple[np.ndarray, int]:
    """Exact alternating least squares until ``ended`` says so: the vector, and how many sweeps it took."""
    from recsim_mnar.models import _factorization_kernel as k

    form, start = o.form, o.factors(x)
    v, w, a, b, c = start.v, start.w, start.a, start.b, start.c
    by_user, by_item = np.arange(len(o.values)), np.argsort(o.items, kind="stable")
    item_starts = np.concatenate([[0], np.cumsum(np.bincount(o.items, minlength=o.n_items))])
    work, out = np.empty((form.rank + 3, form.rank + 1)), np.empty(len(o.values))
    r, s, penalties = o.values, o.weights, (form.penalty, form.penalty)
    for sweep in range(1, sweeps + 1):
        k.solve_rows(o.starts, o.items, r, s, by_user, c, w, b, *penalties, v, a, work)
        k.solve_rows(item_starts, o.users, r, s, by_item, c, v, a, *penalties, w, b, work)
        k.predict(o.users, o.items, v, w, a, b, 0.0, out)
        c = -float((s * (out - r)).sum() / s.sum())
        x = o.vector(Factors(v, w, a, b, c))
        if ended(x):
            return x, sweep
    return x, sweeps


def own_fits(o: Objective, x: np.ndarray, target: float, turns: int) -> dict[str, tuple[float, int]]:
    """Seconds and evaluations (sweeps) of our solvers until the loss is reached."""
    spare = np.empty(o.size)
    lbfgs, found = timed(
        lambda: minimise(
            o, x, preconditioner=o.preconditioner(), max_iterations=5000, value_tolerance=0.0, target=target, warn=False
        ),
        turns,
    )
    als, (best, sweeps) = timed(lambda: alternate(o, x, 500, lambda y: o(y, spare) <= target), turns)
    if max(found.value, o(best, spare)) > target:
        raise RuntimeError("a solver stopped above the loss aimed at")
    return {"own L-BFGS": (lbfgs, found.evaluations), "own ALS": (als, sweeps)}


def weighted(data: Ratings, turns: int) -> tuple[float, dict[str, tuple[float, int]]]:
    """Seconds of one evaluation, and seconds and evaluations of fits to the same loss, with weights as in MF-IPS."""
    given = np.random.default_rng(1).uniform(5, 40, len(data))
    # As strong at both sizes: a row's weights sum to about 1 / rows, so the penalty shrinks with the rows.
    o = Objective(data, given, FactorizationConfig(rank=RANK, penalty=0.8 / sum(data.shape)))
    x, g = o.start(0), np.empty(o.size)
    evaluation, _ = timed(lambda: o(x, g), 10 * turns)
    best = minimise(o, x, preconditioner=o.preconditioner(), max_iterations=150, value_tolerance=0.0, warn=False)
    target = ABOVE * best.value
    one, scale = np.ones(o.size), np.sqrt(o.preconditioner())
    fits: dict[str, tuple[float, int]] = {}
    for name, pairs, scaled in (("", 10, one), (", 20 pairs", 20, one), (", same scales", 10, scale / scale.mean())):
        fits[f"scipy L-BFGS-B{name}"] = timed(lambda p=pairs, s=scaled: scipy_fit(o, x, target, p, s), turns)
    return evaluation, fits | own_fits(o, x, target, turns)


def peer_of(name: str, data: Ratings, turns: int) -> tuple[float, float] | None:
    """Seconds of our fit to the squared error that a peer reached, and of the peer's; None where it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.npz"
        np.savez(path, users=data.users, items=data.items, values=data.values)
        found = peer("mf", name, [path, RANK])
    if found is None:
        return None
    # Next to no penalty: what counts is the error on the ratings, on which the peers' own penalty weighs little.
    o = Objective(data, None, FactorizationConfig(rank=RANK, penalty=1e-6))
    ours = min(seconds for seconds, _ in own_fits(o, o.start(0), found["mse"], turns).values())
    return ours, float(found["seconds"])


def rows(quick: bool) -> list[Row]:
    """A weighted fit to the same squared loss, next to scipy's L-BFGS-B; and the two peers' own fits."""
    found, turns = [], 1 if quick else 3
    for size, (n_users, n_items, n) in SIZES.items():
        data = ratings(n_users // 8, n_items // 8, n // 20) if quick else ratings(n_users, n_items, n)
        evaluation, fits = weighted(data, turns)
        fastest = min((name for name in fits if name.startswith("own")), key=lambda name: fits[name][0])
        found.append(
            Row(f"MF-IPS fit, {size} size, d = 20: {fastest}", "scipy L-BFGS-B, same kernel", fits[fastest][0],
                fits["scipy L-BFGS-B"][0], "CPU s", 5, floor=min(made for _, made in fits.values()) * evaluation,
                floor_is="the fewest passes over the ratings that any of the solvers needed, each as fast as a loss")
        )  # fmt: skip
        for name in ("surprise", "cornac"):
            ours, theirs = peer_of(name, data, turns) or (fits[fastest][0], None)
            found.append(Row(f"the same ratings, to {name}'s squared error", name, ours, theirs, "CPU s", None))
    return found
