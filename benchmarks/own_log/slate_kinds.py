"""How often arithmetic says what propensities of slates are of, asks, or is wrong: nine logging policies, four kinds.

``python benchmarks/own_log/slate_kinds.py`` prints counts by number of slates.
"""

from __future__ import annotations

import collections
import itertools

import numpy as np

from recsim_mnar.own_log.slate_file import kind_of

KINDS = ("marginal", "conditional", "slate", "set")
# Name, items, positions, spread of the logarithms of weights, share of random rankings, contexts.
LOGGERS = (
    ("uniform", 8, 3, 0.0, 0.0, 1), ("softmax", 8, 3, 1.0, 0.0, 1), ("steeper", 8, 3, 2.0, 0.0, 1),
    ("steepest", 6, 3, 3.0, 0.0, 1), ("exploring", 8, 3, 4.0, 0.3, 1), ("greedy", 8, 3, 6.0, 0.1, 1),
    ("all items", 4, 4, 1.0, 0.0, 1), ("two of twenty", 20, 2, 1.0, 0.0, 1), ("contexts", 8, 3, 1.5, 0.0, 4),
)  # fmt: skip
REPEATS = 40


def tables(weights: np.ndarray, k: int, epsilon: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """All rankings (R, k) of a law, and their probabilities (R, k) by kind."""
    m = len(weights)
    rankings = list(itertools.permutations(range(m), k))
    law = {}
    for r in rankings:
        left = [weights.sum() - weights[list(r[:j])].sum() for j in range(k)]
        law[r] = (1 - epsilon) * float(np.prod(weights[list(r)] / left)) + epsilon / len(rankings)
    begins, at, sets = collections.Counter(), collections.Counter(), collections.Counter()
    for r, p in law.items():
        sets[frozenset(r)] += p
        begins.update({r[:j]: p for j in range(k + 1)})
        at.update({(j, r[j]): p for j in range(k)})
    return np.array(rankings), {
        "marginal": np.array([[at[j, r[j]] for j in range(k)] for r in rankings]),
        "conditional": np.array([[begins[r[: j + 1]] / begins[r[:j]] for j in range(k)] for r in rankings]),
        "slate": np.array([[law[r]] * k for r in rankings]),
        "set": np.array([[sets[frozenset(r)]] * k for r in rankings]),
    }


def main() -> None:
    """Print the counts."""
    rng, counts = np.random.default_rng(0), collections.defaultdict(collections.Counter)
    for name, m, k, spread, epsilon, contexts in LOGGERS:
        laws = [tables(np.exp(spread * rng.normal(size=m)), k, epsilon) for _ in range(contexts)]
        for n, _ in itertools.product((500, 1000, 10_000), range(REPEATS)):
            context, drawn = rng.integers(contexts, size=n), np.zeros(n, np.int64)
            for c, (_, of) in enumerate(laws):
                p, here = of["slate"][:, 0], context == c
                drawn[here] = rng.choice(len(p), int(here.sum()), p=p / p.sum())
            shown = np.array([ranking for ranking, _ in laws])[context, drawn]
            for kind in KINDS[: 3 if k == m else 4]:  # the set of all items is always shown
                found, _ = kind_of(np.array([of[kind] for _, of in laws])[context, drawn], shown, np.arange(n) // 3, {})
                counts[n]["right" if found == kind else "wrong" if found else "asks"] += 1
                if found not in ("", kind):
                    print(f"{name}, {n:,} slates: {kind} taken for {found}")
    for n, of in counts.items():
        print(f"{n:,} slates: {dict(of)}")


if __name__ == "__main__":
    main()
