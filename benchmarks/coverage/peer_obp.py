"""Intervals of obp's own code for logs in an .npz file; runs in obp's environment (benchmarks/speed/make_peers.sh obp).

    python peer_obp.py LOGS.npz RESAMPLES OUT.json

obp wants the target's probabilities of all actions and reads that of the logged one: two actions stand for all, the
logged one and the rest. The file says for how many logs SNIPS is asked for too.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np

# Puts empty modules in place of torch and seaborn, before obp asks for them.
runpy.run_path(str(Path(__file__).resolve().parents[1] / "speed" / "peer_obp_modules.py"))

from obp.ope.estimators import InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting  # noqa: E402


def main() -> None:
    logs = np.load(sys.argv[1])
    ends = {"ips": [], "snips": []}
    kinds = {"ips": InverseProbabilityWeighting, "snips": SelfNormalizedInverseProbabilityWeighting}
    for place, number in enumerate(logs["numbers"].tolist()):
        reward, propensity, target = (logs[f"{name}{number}"] for name in ("reward", "propensity", "target"))
        data = {
            "reward": reward,
            "action": np.zeros(reward.size, int),
            "pscore": propensity,
            "action_dist": np.stack([target, 1.0 - target], axis=1)[:, :, None],
            "position": np.zeros(reward.size, int),
        }
        for name, kind in kinds.items():
            if name == "ips" or place < int(logs["snips"]):
                found = kind().estimate_interval(**data, n_bootstrap_samples=int(sys.argv[2]), random_state=number)
                ends[name].append([v for k, v in found.items() if k != "mean"])
    Path(sys.argv[3]).write_text(json.dumps(ends))


if __name__ == "__main__":
    main()
