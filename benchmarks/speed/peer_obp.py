"""Times obp's own estimators, in its own environment (make_peers.sh obp); prints JSON.

obp imports torch and seaborn, which what is timed here does not use: empty modules stand in for them.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import peer_obp_modules  # noqa: F401 - puts empty modules in place of torch and seaborn, before obp asks for them
from obp.ope.estimators import InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting


def log(rows: int, actions: int) -> dict:
    rng = np.random.default_rng(0)
    dist = rng.random((rows, actions, 1))
    dist /= dist.sum(axis=1, keepdims=True)
    return {
        "reward": (rng.random(rows) < 0.05).astype(float),
        "action": rng.integers(0, actions, rows),
        "pscore": rng.uniform(0.01, 0.5, rows),
        "action_dist": dist,
        "position": np.zeros(rows, int),
    }


def timed(function, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    rows, actions, resamples = (int(a) for a in sys.argv[1:4])
    data = log(rows, actions)
    out = {"rows": rows, "actions": actions}
    for label, estimator in (
        ("ips", InverseProbabilityWeighting()),
        ("snips", SelfNormalizedInverseProbabilityWeighting()),
    ):
        out[label] = timed(lambda e=estimator: e.estimate_policy_value(**data), 3)
    if resamples:
        out["resamples"] = resamples
        ips = InverseProbabilityWeighting()
        out["bootstrap"] = timed(
            lambda: ips.estimate_interval(**data, n_bootstrap_samples=resamples, random_state=0), 1
        )
    print(json.dumps(out))


if __name__ == "__main__":
    main()
