"""RLlib's behaviour cloning, end to end: an exported log in, a policy that is simulated, replayed and judged out."""

from __future__ import annotations

import logging
import warnings

import gymnasium as gym
import numpy as np
import pytest

from recsim_mnar.export import decisions, distributions, to_rllib
from recsim_mnar.policies import FeaturePolicy
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import untrained

P = 6


@pytest.mark.filterwarnings("ignore")
def test_behaviour_cloning_of_a_log(tmp_path):
    """From Parquet, through RLlib's offline data and learner, to a policy near the one that logged."""
    pytest.importorskip("ray.rllib")
    import pyarrow.parquet as pq
    import ray
    import torch
    from ray.rllib.algorithms.bc import BCConfig
    from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.rl_module import RLModule

    world = SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))
    logged_by = untrained("user-popularity+epsilon=0.2", P)
    log = simulate(world, logged_by, n_users=600, seed=3)
    pq.write_table(to_rllib(decisions(log, P)), tmp_path / "log.parquet")

    # Names of slots, not of processors: reading, its two workers and the learner each take one, or wait for ever.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        config = (
            BCConfig()
            .environment(
                observation_space=gym.spaces.Box(0.0, 1e6, (P,), np.float32), action_space=gym.spaces.Discrete(P)
            )
            .offline_data(
                input_=[str(tmp_path / "log.parquet")],
                input_read_method="read_parquet",
                dataset_num_iters_per_learner=20,
            )
            .training(lr=3e-3, train_batch_size_per_learner=512)
            .evaluation(evaluation_interval=None)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            algorithm = config.build_algo()
            for _ in range(5):
                algorithm.train()
            algorithm.save_to_path(str(tmp_path / "saved"))
            algorithm.stop()
    finally:
        ray.shutdown()

    where = tmp_path / "saved" / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE / DEFAULT_MODULE_ID
    module = RLModule.from_checkpoint(str(where))

    def distribution(x):
        with torch.no_grad():
            logits = module.forward_inference({Columns.OBS: torch.as_tensor(x)})[Columns.ACTION_DIST_INPUTS]
            return torch.softmax(logits.double(), dim=1).numpy()

    policy = FeaturePolicy(P, distribution=distribution, rows=64, name="rllib-bc")
    held = simulate(world, logged_by, n_users=200, seed=4)
    true = distributions(held, logged_by)

    def distance(other):
        return float(0.5 * np.abs(true - other).sum(axis=1).mean())

    assert distance(distributions(held, policy)) < 0.5 * distance(np.full_like(true, 1 / P))
    own = simulate(world, policy, n_users=40, seed=9)
    shown = own.is_bandit
    np.testing.assert_array_equal(replay(own, policy)[shown], own["propensity"][shown])
