"""Coverage of what obp's own code computes, on the study's first logs: `python benchmarks/coverage/with_obp.py`.

PEERS_DIR is where make_peers.sh made obp's environment. As many logs of each setting as --rows allows, each setting
a step that is kept in results.json with what run.py found, which comes first. obp's SNIPS resamples w r over the log's
own mean weight: with the same draws its ends are those of its IPS over that mean, which its own code confirms on the
first logs of every batch and which is not computed twice for the rest.

On the same logs, as many draws from the law that row_bootstrap.py computes give ends of their own. If obp samples from
that law, their mean differences from obp's ends are 0 within their standard errors; the settings' z are printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from analysis import load, save
from methods import normal_by_user, summary
from row_bootstrap import RowBootstrap
from worlds import GRID, LEVEL, Setting, World

HERE = Path(__file__).resolve().parent

RESAMPLES = 200  # obp's own default is 10,000, which takes fifty times as long
ROWS = 8_000_000  # of a setting; some 23 CPU minutes in all
BATCH = 4_000_000  # rows handed to obp's environment at once
SNIPS_CHECKED = 3  # logs of a batch
LAW_DRAWS = 4242  # part of the seed of the draws from the law


def obp_ends(python: Path, logs: dict[int, tuple]) -> list[tuple[float, float]]:
    """The ends of obp's IPS for each log, after its SNIPS was found to be their quotient by the mean weight."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "logs.npz", Path(folder) / "out.json"
        columns = {"numbers": np.array(list(logs)), "snips": np.array(SNIPS_CHECKED)}
        for number, (reward, propensity, target, _) in logs.items():
            columns |= {f"reward{number}": reward, f"propensity{number}": propensity, f"target{number}": target}
        np.savez(source, **columns)
        subprocess.run([str(python), str(HERE / "peer_obp.py"), str(source), str(RESAMPLES), str(out)], check=True)
        found = json.loads(out.read_text())
    for (_, propensity, target, _), ips, snips in zip(logs.values(), found["ips"], found["snips"], strict=False):
        np.testing.assert_allclose(snips, np.array(ips) / np.mean(target / propensity), rtol=1e-9, atol=0.0)
    return [(low, high) for low, high in found["ips"]]


def _z(differences: np.ndarray) -> float:
    """Mean over its standard error; 0 where nothing differs."""
    spread = float(differences.std(ddof=1))
    return float(differences.mean()) / spread * math.sqrt(differences.size) if spread > 0.0 else 0.0


def agreement(own: np.ndarray, drawn: np.ndarray, value: float) -> dict[str, float]:
    """obp's (logs, 2) ends beside those of as many draws from the law: z of the differences."""

    def covers(ends: np.ndarray) -> np.ndarray:
        return ((ends[:, 0] <= value) & (value <= ends[:, 1])).astype(float)

    return {
        "low": _z(own[:, 0] - drawn[:, 0]),
        "high": _z(own[:, 1] - drawn[:, 1]),
        "coverage": _z(covers(own) - covers(drawn)),
        "coverage_of_draws": float(covers(drawn).mean()),
    }


def measure(python: Path, setting: Setting, logs: int) -> dict:
    """One setting: two methods for its table, and whether the law is obp's."""
    world = World(setting)
    start = time.process_time()
    ips, snips, drawn, in_law, normal = [], [], [], [], []
    size = max(BATCH // (setting.users * setting.rows), 1)
    for first in range(0, logs, size):
        batch = {number: world.log(number) for number in range(first, min(first + size, logs))}
        own = obp_ends(python, batch)
        for (number, (reward, propensity, target, user)), (low, high) in zip(batch.items(), own, strict=True):
            w = target / propensity
            law = RowBootstrap(w * reward)
            uniforms = np.random.default_rng([setting.seed, number, LAW_DRAWS]).random(RESAMPLES)
            drawn.append(law.sampled_interval(LEVEL, uniforms))
            in_law.append(law.interval(LEVEL))
            normal.append(normal_by_user(reward, propensity, target, user, setting.users))
            ips.append((low, high))
            snips.append((low / w.mean(), high / w.mean()))
    width = summary(normal, world.value)["width"]
    return {
        "methods": {
            "obp ips, own code": summary(ips, world.value) | {"normal_width": width},
            "obp snips, own code": summary(snips, world.value) | {"normal_width": width},
        },
        "obp": {"logs": logs, "resamples": RESAMPLES, "cpu_seconds_without_obp": time.process_time() - start}
        | agreement(np.array(ips), np.array(drawn), world.value)
        | {"coverage_in_law": summary(in_law, world.value)["coverage"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help="names or parts of names; all where none is given")
    parser.add_argument("--rows", type=float, default=ROWS, help="rows of a setting, which decide on its logs")
    arguments = parser.parse_args()
    python = Path(os.environ.get("PEERS_DIR", HERE.parent / "speed" / ".venvs")) / "obp" / "bin" / "python"
    if not python.exists():
        sys.exit("obp: not measured; make its environment with benchmarks/speed/make_peers.sh obp")
    found = load()
    chosen = [s for s in GRID if not arguments.settings or any(part in s.name for part in arguments.settings)]
    for setting in chosen:
        if setting.name not in found["settings"]:
            sys.exit(f"{setting.name}: not in results.json. Run python benchmarks/coverage/run.py first.")
        result = found["settings"][setting.name]
        logs = min(setting.logs, int(arguments.rows) // (setting.users * setting.rows))
        if result.get("obp", {"logs": 0})["logs"] < logs:
            measured = measure(python, setting, logs)
            result["obp"] = measured["obp"]
            result["methods"] |= measured["methods"]
            save(found)
        shown = {name: row["coverage"] for name, row in result["methods"].items() if name.endswith("own code")}
        z = {name: round(result["obp"][name], 2) for name in ("low", "high", "coverage")}
        print(f"{setting.name}: {result['obp']['logs']} logs, {shown}, z against the law {z}", flush=True)


if __name__ == "__main__":
    main()
