"""Steps a CPU second of the environments, beside Gymnasium's SyncVectorEnv and SARDINE, measured in turn.

    bash benchmarks/speed/make_peers_sardine.sh
    python benchmarks/speed/environments.py [--quick]

Random actions, drawn before the clock starts, 100 items, the sessions world with RecoGym's defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from floors import machine
from table import HEADER, Row, line, middle

from recsim_mnar.envs import sessions_env, sessions_vector_env

HERE = Path(__file__).resolve().parent
N_ITEMS, LANES = 100, 1024


def single(steps: int, seed: int) -> float:
    """Of our single environment."""
    env = sessions_env("recogym-v1", n_items=N_ITEMS)
    actions = np.random.default_rng(seed).integers(0, N_ITEMS, steps)
    env.reset(seed=seed)
    env.step(actions[0])
    began = time.process_time()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return steps / (time.process_time() - began)


def vector(env: Any, steps: int) -> float:
    """Of a vector environment, steps of all lanes counted."""
    rounds = max(2, steps // LANES)
    actions = np.random.default_rng(0).integers(0, N_ITEMS, (rounds, LANES))
    env.reset(seed=0)
    env.step(actions[0])
    began = time.process_time()
    for action in actions:
        env.step(action)
    return rounds * LANES / (time.process_time() - began)


def sardine(steps: int, lanes: int = 0) -> float | None:
    """Of SARDINE's, in its own virtual environment; None where that is not there."""
    python = Path(os.environ.get("PEERS_DIR", HERE / ".venvs")) / "sardine" / "bin" / "python"
    if not python.exists():
        return None
    command = [str(python), str(HERE / "peer_sardine.py"), "--items", str(N_ITEMS), "--steps", str(steps)]
    done = subprocess.run([*command, "--lanes", str(lanes)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr[-1000:], file=sys.stderr)
        return None
    return float(json.loads(done.stdout.splitlines()[-1])["rate"])


def rows(quick: bool) -> list[Row]:
    """Three rows: single, vector beside SyncVectorEnv of ours, vector beside SARDINE's."""
    rounds, scale = (1, 0.2) if quick else (5, 1.0)
    ours = sessions_vector_env(LANES, "recogym-v1", n_items=N_ITEMS)
    synced = gymnasium.vector.SyncVectorEnv([lambda: sessions_env("recogym-v1", n_items=N_ITEMS)] * LANES)
    found: dict[str, list[float]] = {name: [] for name in ("single", "vector", "synced", "sardine", "sardine, synced")}
    single(1000, 0)
    for i in range(rounds):
        found["single"].append(single(int(200_000 * scale), i))
        found["vector"].append(vector(ours, int(2_000_000 * scale)))
        found["synced"].append(vector(synced, int(200_000 * scale)))
        for name, rate in (
            ("sardine", sardine(int(20_000 * scale))),
            ("sardine, synced", sardine(int(20_000 * scale), LANES)),
        ):
            if rate is not None:
                found[name].append(rate)
    synced.close()
    rate = {name: middle(values) if values else None for name, values in found.items()}
    copy = 1.0 / (4 * N_ITEMS / machine().read + 4 * N_ITEMS / machine().write)
    floor = {
        "of_costs": False,
        "unit": "steps a CPU s",
        "floor": copy,
        "floor_is": "a copy of the observation, 400 bytes read and written",
    }
    assert rate["single"] is not None
    assert rate["vector"] is not None
    return [
        Row(f"single environment, {N_ITEMS} items", "SARDINE", rate["single"], rate["sardine"], bar=15, **floor),
        Row("vector environment, 1,024 lanes", "SyncVectorEnv of ours", rate["vector"], rate["synced"], bar=10,
            **floor),
        Row(
            "vector environment, 1,024 lanes", "SyncVectorEnv of SARDINE", rate["vector"], rate["sardine, synced"],
            bar=200, **floor,
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    print(HEADER)
    for row in rows(parser.parse_args().quick):
        print(line(row))


if __name__ == "__main__":
    main()
