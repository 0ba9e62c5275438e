"""Stable-Baselines3 on a frozen task: three lines of ours, marked, and `evaluate` says how good the model is.

    pip install 'recsim-mnar[stable-baselines3]' && python examples/task_stable_baselines3.py [STEPS]

PyPI's torch is the CUDA build, some gigabytes. The library's own lanes are stepped one after another;
`VecEnvAdapter`, as in examples/ppo.py, steps all of them by one call.
"""

import sys

try:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    import recsim_mnar  # ours: it registers the environments
    from recsim_mnar.integrations.stable_baselines3 import PPO_SETTINGS, policy_of  # ours
except ImportError as error:
    print(f"examples/task_stable_baselines3.py: left out, {error}: pip install 'recsim-mnar[stable-baselines3]'")
    sys.exit(0)

torch.set_num_threads(1)  # small networks: more threads cost more than they save
lanes = make_vec_env("recsim_mnar/Flipped100-v1", n_envs=64, seed=1)
model = PPO("MlpPolicy", lanes, **PPO_SETTINGS, seed=1, device="cpu")
model.learn(int(sys.argv[1]) if len(sys.argv) > 1 else 196_608)
print(recsim_mnar.evaluate(policy_of(model), "flipped-100-v1"))  # ours
