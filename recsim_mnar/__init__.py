"""Simulated people, recommendations and logs whose known truth judges evaluation protocols."""

import gymnasium

__version__ = "0.1.0"

gymnasium.register(
    id="recsim_mnar/Sessions-v0",
    entry_point="recsim_mnar.envs:sessions_env",
    vector_entry_point="recsim_mnar.envs:sessions_vector_env",
)

gymnasium.register(
    id="recsim_mnar/Campaigns-v0",
    entry_point="recsim_mnar.envs:campaigns_env",
)
