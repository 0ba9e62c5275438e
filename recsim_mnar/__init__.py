"""Simulated people, recommendations and logs whose known truth judges evaluation protocols."""

from pathlib import Path

from recsim_mnar._start import leave_quietly_on_interrupt

leave_quietly_on_interrupt()  # before Gymnasium and NumPy, which take the better part of a command's start

import gymnasium  # noqa: E402  (the watch comes first)

__version__ = "0.1.0"

# Installed, the agents lie inside this package; in a checkout they lie beside it, and Python started there imports the
# checkout even where the package is installed.
_beside = Path(__file__).resolve().parents[1]
if not Path(__file__).with_name("agents").exists() and (_beside / "agents" / "state" / "acting.py").exists():
    __path__.append(str(_beside))

gymnasium.register(
    id="recsim_mnar/Sessions-v0",
    entry_point="recsim_mnar.envs:sessions_env",
    vector_entry_point="recsim_mnar.envs:sessions_vector_env",
)

gymnasium.register(
    id="recsim_mnar/Campaigns-v0",
    entry_point="recsim_mnar.envs:campaigns_env",
)

gymnasium.register(
    id="recsim_mnar/Ratings-v0",
    entry_point="recsim_mnar.envs:ratings_env",
    vector_entry_point="recsim_mnar.envs:ratings_vector_env",
)

gymnasium.register(
    id="recsim_mnar/Purchases-v0",
    entry_point="recsim_mnar.envs.slates:purchases_env",
    vector_entry_point="recsim_mnar.envs.slates:purchases_vector_env",
)
