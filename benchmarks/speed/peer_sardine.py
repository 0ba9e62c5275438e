"""Steps a CPU second of SARDINE's single-item environment with random actions, in its own environment; prints JSON.

    PYTHON_OF_SARDINE benchmarks/speed/peer_sardine.py --items 100 --steps 20000 [--lanes 1024]

Without ``--lanes`` one environment made by ``gymnasium.make`` without its checker; with it Gymnasium's SyncVectorEnv of
so many. Actions are drawn before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
import warnings

warnings.filterwarnings("ignore")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import sardine  # noqa: E402, F401  (registers its environments)

NAME = "sardine/SingleItem-Static-v0"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--lanes", type=int, default=0)
    a = parser.parse_args()

    def make():
        return gymnasium.make(NAME, disable_env_checker=True, num_items=a.items, env_embedds=None)

    generator = np.random.default_rng(0)
    if a.lanes:
        env = gymnasium.vector.SyncVectorEnv([make] * a.lanes)
        rounds = max(1, a.steps // a.lanes)
        actions = generator.integers(0, a.items, (rounds, a.lanes, 1))
        env.reset(seed=0)
        began = time.process_time()
        for action in actions:
            env.step(action)
        steps = rounds * a.lanes
    else:
        env = make()
        steps = a.steps
        actions = generator.integers(0, a.items, (steps, 1))
        env.reset(seed=0)
        began = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
    seconds = time.process_time() - began
    print(json.dumps({"version": importlib.metadata.version("sardine-rec"), "rate": steps / seconds}))


if __name__ == "__main__":
    main()
