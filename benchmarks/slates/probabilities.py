"""What the exact probabilities of rankings cost, and how exact they are: see README.md."""

from __future__ import annotations

import argparse
import decimal
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import check_lines, table, write_results

from recsim_mnar.policies import EpsilonMixture, ExploringTopK, PlackettLuce, Policy
from recsim_mnar.policies import _rankings_kernel as kernel
from recsim_mnar.policies import rankings as module

HERE = Path(__file__).resolve().parent
DEVIATIONS = (0.0, 1.0, 2.0, 4.0, 8.0)
SIZES = (2, 5, 10)


class Weights(Policy):
    """A row of probabilities for each user."""

    batches_decisions = True

    def __init__(self, probability: np.ndarray) -> None:
        self.probability, self.n_items = probability, probability.shape[1]

    def act(self, users: Any, uniforms: Any) -> Any:
        raise NotImplementedError

    def probabilities(self, users: Any) -> np.ndarray:
        return self.probability[users]


class Same(Weights):
    """The same for all users."""

    def fixed_distribution(self) -> np.ndarray:
        return self.probability[0]


def weights_of(deviation: float, users: int, n: int, seed: int) -> np.ndarray:
    """Log weights are normal with this deviation, and of 1e-9 where it is 0: equal ones need no integral."""
    weights = np.exp(max(deviation, 1e-9) * np.random.default_rng(seed).standard_normal((users, n)))
    return weights / weights.sum(axis=1, keepdims=True)


def exact_set(weights: np.ndarray, items: list[int]) -> Decimal:
    """By all subsets, in decimals of 80 digits."""
    with decimal.localcontext() as context:
        context.prec = 80
        w, k = [Decimal(float(each)) for each in weights], len(items)
        total, paths = sum(w), [Decimal(0)] * (1 << k)
        paths[0] = Decimal(1)
        for taken in range(1 << k):
            left = total - sum(w[items[i]] for i in range(k) if taken >> i & 1)
            for i in range(k):
                if not taken >> i & 1:
                    paths[taken | 1 << i] += paths[taken] * w[items[i]] / left
        return paths[-1]


def worst_error(deviation: float, k: int, sets: int) -> float:
    """Largest relative error over sets of the heaviest, of the lightest and of random items, of k + 1 to 100."""
    worst = 0.0
    for number in range(sets):
        n = (k + 1, 2 * k, 20, 100)[number % 4]
        generator = np.random.default_rng([number, k])
        weights = weights_of(deviation, 1, n, number)
        ordered = np.argsort(weights[0])
        items = (ordered[:k], ordered[-k:], generator.permutation(n)[:k])[number % 3]
        found = PlackettLuce(Weights(weights), k).propensities_of(np.zeros(1, np.int64), items[None]).set[0]
        exact = exact_set(weights[0], items.tolist())
        if exact > Decimal("1e-290"):
            worst = max(worst, abs(float(Decimal(float(found)) / exact - 1)))
    return worst


def least_us(function: Callable[[], Any], n: int, rounds: int) -> float:
    """CPU microseconds for each of n, the least of several rounds: other processes can only add."""
    function()
    best = np.inf
    for _ in range(rounds):
        began = time.process_time()
        function()
        best = min(best, time.process_time() - began)
    return 1e6 * best / n


def costs(n: int, k: int, deviation: float, rounds: int) -> dict[str, float]:
    """Microseconds a ranking: drawing it, its conditionals and its set, and all with marginals."""
    users = np.arange(500)
    weights = weights_of(deviation, len(users), n, 0)
    policy = PlackettLuce(Weights(weights), k)
    uniforms = module.ranking_uniforms(0, users, users, k)
    drawn = policy.rank(users, uniforms)
    rule = module._rule(k)
    empty = np.empty((len(users), k)), np.empty(len(users)), np.empty((len(users), k))
    space = np.zeros(n, np.int8), np.empty(n), np.empty(k), np.empty((rule.roots.size, k))
    ends = rule.lowest, rule.roots, rule.waits, module._TOLERANCE

    def sets() -> None:
        kernel.price(weights, weights, users, drawn, *ends, *space, *empty)

    same = PlackettLuce(Same(weights[:1]), k)
    exploring = ExploringTopK(Weights(weights), k, 0.1)
    mixed = PlackettLuce(EpsilonMixture(Weights(weights), 0.1), k)
    ways = {
        "draw": lambda: policy.rank(users, uniforms),
        "set and order": sets,
        "all": lambda: policy.propensities_of(users, drawn),
        "all, epsilon": lambda: mixed.propensities_of(users, drawn),
        "all, same for all users": lambda: same.propensities_of(users, drawn),
        "all, exploring top k": lambda: exploring.propensities_of(users, drawn),
    }
    return {name: least_us(way, len(users), rounds) for name, way in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds and sets: it runs, its figures are no results")
    parser.add_argument(
        "--json", type=Path, default=None, help="where figures go: HERE/probabilities.json unless quick"
    )
    options = parser.parse_args()
    rounds, sets = (2, 4) if options.quick else (9, 24)
    errors = {f"{d:g}": {str(k): worst_error(d, k, sets) for k in SIZES} for d in DEVIATIONS}
    lines = table(["deviation of log weights", *(f"k = {k}" for k in SIZES)],
                  [[d, *(f"{error:.1e}" for error in by_size.values())] for d, by_size in errors.items()])  # fmt: skip
    print("Largest relative error of a set's probability\n", *lines, sep="\n", flush=True)
    cells = [(n, k, d) for n in (100, 1000) for k in SIZES for d in (1.0, 8.0)]
    found = [{"items": n, "k": k, "deviation": d} | costs(n, k, d, rounds) for n, k, d in cells]
    lines = table(list(found[0]), [[f"{value:.4g}" for value in row.values()] for row in found])
    print("\nCPU microseconds a ranking\n", *lines, sep="\n", flush=True)
    at_ten = [row["set and order"] for row in found if row["k"] == 10]
    checks = {
        "every set to a relative 1e-10": max(max(each.values()) for each in errors.values()) <= 1e-10,
        "set and order at k = 10 in at most 20 microseconds": max(at_ten) <= 20.0,
    }
    print("", *check_lines(checks), sep="\n")
    out = options.json or (None if options.quick else HERE / "probabilities.json")
    if out:
        write_results(out, {"relative error of sets": errors, "microseconds": found}, 3)


if __name__ == "__main__":
    main()
