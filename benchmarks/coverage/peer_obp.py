"""Intervals of obp's own code for logs in an .npz file; runs in obp's environment (benchmarks/speed/make_peers_obp.sh).

    python peer_obp.py LOGS.npz OUT.json

obp wants the target's probabilities of all actions and reads that of the logged one: two actions stand for all, the
logged one and the rest. Its bootstrap, with 200 resamples where its default is 10,000,
which changes its coverage by less than the study can see.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

import numpy as np
import peer_obp_modules  # noqa: F401 - puts empty modules in place of torch and seaborn, before obp asks for them
from obp.ope.estimators import InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting

RESAMPLES = 200


def main() -> None:
    logs = np.load(sys.argv[1])
    ends = {"obp ips, bootstrap": [], "obp snips, bootstrap": []}
    for number in range(int(logs["number"])):
        reward, propensity, target = (logs[f"{name}{number}"] for name in ("reward", "propensity", "target"))
        data = {
            "reward": reward,
            "action": np.zeros(reward.size, int),
            "pscore": propensity,
            "action_dist": np.stack([target, 1.0 - target], axis=1)[:, :, None],
            "position": np.zeros(reward.size, int),
        }
        for name, kind in zip(
            ends, (InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting), strict=True
        ):
            found = kind().estimate_interval(**data, n_bootstrap_samples=RESAMPLES, random_state=number)
            ends[name].append([v for k, v in found.items() if k != "mean"])
    Path(sys.argv[2]).write_text(json.dumps(ends))


if __name__ == "__main__":
    main()
