"""Gymnasium's own tests of environments, run on our ids.

In its repository: ``PYTHONPATH=<this folder> pytest -p gymnasium_ids tests/envs/test_envs.py``. ``World-v0`` needs a
world, so that it stands as two ids that name one.
"""

import gymnasium as gym
import tests.envs.utils as tested

import recsim_mnar  # noqa: F401  (registers the ids)

world = gym.registry.pop("recsim_mnar/World-v0").entry_point
gym.register("recsim_mnar/Features-v0", world, kwargs={"world": "features"})
gym.register("recsim_mnar/Dict-v0", world, kwargs={"world": "features", "observation": "dict"})
specs = [spec for name, spec in gym.registry.items() if name.startswith("recsim_mnar/")]
tested.all_testing_env_specs[:] = specs
tested.all_testing_initialised_envs[:] = [spec.make(disable_env_checker=True).unwrapped for spec in specs]
