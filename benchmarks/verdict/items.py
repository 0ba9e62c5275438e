"""Propensities wrong by item, and right ones: python benchmarks/verdict/items.py [--quick]

Three tables: the share flagged of wrong logs (items' odds times exp(s z) after scoring), of right logs, and of logs
whose errors average out within every item, with and without the context column. Writes "items" of results.json.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import read, write_results

from recsim_mnar.estimators.refuters import item_findings

RESULTS = Path(__file__).parent / "results.json"
SIZES, STRENGTHS, CONTEXTS, USER_ROWS = (2_000, 20_000, 100_000), (0.1, 0.2, 0.5), 4, 20
EXPLORED = 0.2
"""Share of decisions that a policy of the kind "epsilon" leaves to chance."""


def policy(rng: np.random.Generator, n_items: int, kind: str) -> np.ndarray:
    """(contexts, items) probabilities."""
    scores = rng.standard_normal((CONTEXTS, n_items))
    if kind == "uniform":
        return np.full(scores.shape, 1.0 / n_items)
    if kind == "softmax":
        return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    best = scores == scores.max(axis=1, keepdims=True)
    return EXPLORED / n_items + (1.0 - EXPLORED) * best


def log(rng: np.random.Generator, logged: np.ndarray, actual: np.ndarray, n: int, kind: str) -> dict[str, Any]:
    """Rows whose items ``actual`` chose, with the propensities of ``logged``; "held" draws once per user."""
    user = np.arange(n) // USER_ROWS
    x = rng.integers(0, len(logged), n)
    draws = rng.random(n)
    if kind == "held":
        x, draws = x[user * USER_ROWS], draws[user * USER_ROWS]
    action = np.empty(n, np.int64)
    for context, chances in enumerate(actual):
        here = x == context
        action[here] = np.searchsorted(np.cumsum(chances)[:-1], draws[here] * chances.sum(), side="right")
    return {"action": action, "propensity": logged[x, action], "cluster": user, "context": x.astype(str)}


def flagged(columns: dict[str, Any], least: float | None, *, by_context: bool = False) -> bool:
    context = columns["context"] if by_context else None
    found = item_findings(
        columns["action"], columns["propensity"], columns["cluster"],
        propensity_min=least, context=context,
    )  # fmt: skip
    return bool(found)


def wrong(n_items: int, n: int, strength: float, number: int) -> bool:
    rng = np.random.default_rng([1, n_items, n, int(1000 * strength), number])
    logged = policy(rng, n_items, ("uniform", "softmax", "epsilon")[number % 3])
    return flagged(log(rng, logged, logged * np.exp(strength * rng.standard_normal(n_items)), n, ""), None)


def right(n_items: int, number: int) -> tuple[bool, bool]:
    """Of a right log: whether items are flagged, and whether items and contexts are; the least propensity is given."""
    rng = np.random.default_rng([2, n_items, number])
    kind = ("uniform", "softmax", "epsilon", "held")[number % 4]
    logged = policy(rng, n_items, kind.replace("held", "softmax"))
    columns = log(rng, logged, logged, 20_000, kind)
    least = float(logged.min())
    return flagged(columns, least), flagged(columns, least, by_context=True)


def averaging_out(n: int, strength: float, number: int) -> tuple[bool, bool]:
    """Odds that are higher in one context by as much as they are lower in another."""
    rng = np.random.default_rng([3, n, int(1000 * strength), number])
    p = policy(rng, 10, "softmax")[0]
    tilt = np.tanh(strength * rng.standard_normal(10))
    tilt = np.clip(tilt - p @ tilt, -0.95, 0.95)
    actual = p * (1.0 + np.array([[1.0], [-1.0]]) * (tilt - p @ tilt))
    columns = log(rng, np.stack([p, p]), np.maximum(actual, 0.0), n, "")
    return flagged(columns, None), flagged(columns, None, by_context=True)


def main() -> None:
    quick = "--quick" in sys.argv
    n_wrong, n_right, sizes = (6, 12, SIZES[:2]) if quick else (200, 500, SIZES)
    result: dict[str, Any] = {
        "logs": {"wrong": n_wrong, "right": n_right},
        "wrong": {},
        "right": {},
        "averaging_out": {},
    }
    print("wrong logs flagged: items, rows", *(f"s = {s}" for s in STRENGTHS), sep="\t")
    for n_items in (10, 100):
        for n in sizes if n_items == 10 else (20_000,):
            shares = [np.mean([wrong(n_items, n, s, i) for i in range(n_wrong)]) for s in STRENGTHS]
            result["wrong"][f"{n_items} items, {n} rows"] = dict(zip(map(str, STRENGTHS), shares, strict=True))
            print(n_items, n, *shares, sep="\t", flush=True)
    print("right logs flagged: items", "by item", "by item or item and context", sep="\t")
    for n_items in (10, 100, 1000):
        shares = np.mean([right(n_items, i) for i in range(n_right)], axis=0).tolist()
        result["right"][str(n_items)] = shares
        print(n_items, *shares, sep="\t", flush=True)
    print("errors that average out within items: rows, s", "without the column", "with it", sep="\t")
    for n in SIZES[:2]:
        for s in STRENGTHS:
            shares = np.mean([averaging_out(n, s, i) for i in range(n_wrong)], axis=0).tolist()
            result["averaging_out"][f"{n} rows, s = {s}"] = shares
            print(n, s, *shares, sep="\t", flush=True)
    if not quick:
        write_results(RESULTS, read(RESULTS) | {"items": result})


if __name__ == "__main__":
    main()
