"""PPO end to end: `python benchmarks/speed/ppo.py [--pairs N] [--steps N] [--lanes N ...] [--out FILE]`.

Stable-Baselines3 trains on the native vector environment and on its own DummyVecEnv of as many single ones, in turn, in
one process with one thread. Seconds are of the processor, so that a busy machine changes little. It needs
`pip install 'recsim-mnar[stable-baselines3]'` and says so where that is missing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import gymnasium as gym
from table import into_results

import recsim_mnar  # noqa: F401  (registers the environments)

try:
    import stable_baselines3
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter
except ImportError as error:
    print(f"left out: {error}: pip install 'recsim-mnar[stable-baselines3]'")
    sys.exit(0)

ID, ITEMS = "recsim_mnar/Sessions-v0", 50


class Timed(VecEnvWrapper):
    """Counts the processor's seconds inside the environment."""

    seconds = 0.0

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        began = time.process_time()
        out = self.venv.step_wait()
        self.seconds += time.process_time() - began
        return out


def native(lanes: int) -> VecEnvAdapter:
    given = {"vectorization_mode": "vector_entry_point", "autoreset_mode": "SameStep", "n_items": ITEMS}
    return VecEnvAdapter(gym.make_vec(ID, num_envs=lanes, **given))


def dummy(lanes: int) -> DummyVecEnv:
    return DummyVecEnv([lambda: gym.make(ID, n_items=ITEMS)] * lanes)


def trained(make, lanes: int, steps: int) -> dict[str, float]:
    """Steps a second of the processor, and the share of them spent in the environment."""
    env = Timed(make(lanes))
    env.seed(1)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64 * lanes // 4, n_epochs=4, seed=1, device="cpu")
    began = time.process_time()
    model.learn(steps)
    seconds = time.process_time() - began
    return {"steps_a_second": model.num_timesteps / seconds, "environment_share": env.seconds / seconds}


def paired(lanes: int, steps: int, pairs: int) -> dict[str, object]:
    """Both kinds in turn, printed: medians, and the ratio of each pair."""
    kinds = {"native": native, "DummyVecEnv": dummy}
    for make in kinds.values():
        trained(make, lanes, 64 * lanes)  # compiles
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for pair in range(pairs):
        for kind in list(kinds)[:: 1 if pair % 2 else -1]:
            runs[kind].append(trained(kinds[kind], lanes, steps))
    medians = {
        kind: {name: statistics.median(run[name] for run in of_kind) for name in of_kind[0]}
        for kind, of_kind in runs.items()
    }
    ratios = sorted(
        a["steps_a_second"] / b["steps_a_second"] for a, b in zip(runs["native"], runs["DummyVecEnv"], strict=True)
    )
    for kind, speeds in medians.items():
        print(
            f"{lanes} lanes, {kind:12s} {speeds['steps_a_second']:9,.0f} steps a second, "
            f"environment {speeds['environment_share']:.1%}"
        )
    middle = statistics.median(ratios)
    print(f"native over DummyVecEnv {middle:.2f} (pairs from {ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
    return {"steps": steps, "medians": medians, "ratios": ratios, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=32_768, help="at least 64 a lane")
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    made: dict[str, object] = {str(lanes): paired(lanes, options.steps, options.pairs) for lanes in options.lanes}
    made |= {"items": ITEMS, "torch": torch.__version__, "stable_baselines3": stable_baselines3.__version__}
    if options.out is not None:
        into_results(options.out, "ppo", made)


if __name__ == "__main__":
    main()
