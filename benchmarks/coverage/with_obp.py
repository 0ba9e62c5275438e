"""Coverage of what obp's own code computes, on the study's first logs: `python benchmarks/coverage/with_obp.py`.

For settings of at most 10,000 rows; PEERS_DIR is where make_peers_obp.sh made its environment. Writes results/obp.json,
which run.py adds to its table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from settings import GRID  # noqa: E402
from worlds import World  # noqa: E402

LOGS = 300
MOST_ROWS = 10_000
OUT = HERE / "results" / "obp.json"


def main() -> None:
    python = Path(os.environ.get("PEERS_DIR", HERE.parent / "speed" / ".venvs")) / "obp" / "bin" / "python"
    if not python.exists():
        sys.exit("obp: not measured; make its environment with benchmarks/speed/make_peers_obp.sh")
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for setting in GRID:
        if setting.users * setting.rows > MOST_ROWS or setting.name in results:
            continue
        world = World(setting)
        with tempfile.TemporaryDirectory() as folder:
            logs = {"number": np.array(LOGS)}
            for number in range(LOGS):
                reward, propensity, target, _ = world.log(number)
                logs |= {f"reward{number}": reward, f"propensity{number}": propensity, f"target{number}": target}
            source, out = Path(folder) / "logs.npz", Path(folder) / "out.json"
            np.savez(source, **logs)
            subprocess.run([str(python), str(HERE / "peer_obp.py"), str(source), str(out)], check=True)
            ends = json.loads(out.read_text())
        results[setting.name] = {}
        for name, pairs in ends.items():
            low, high = np.array(pairs).T
            results[setting.name][name] = {
                "logs": LOGS,
                "coverage": float(np.mean((low <= world.value) & (world.value <= high))),
                "above": float(np.mean(low > world.value)),
                "below": float(np.mean(high < world.value)),
                "width": float(np.mean(high - low)),
            }
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        print(setting.name, {name: found["coverage"] for name, found in results[setting.name].items()}, flush=True)


if __name__ == "__main__":
    main()
