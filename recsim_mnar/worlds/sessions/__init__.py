"""The sessions world: people who browse and are shown recommendations (RecoGym's model)."""

from recsim_mnar.worlds.sessions.params import PRESETS, SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

__all__ = ["PRESETS", "SessionsParams", "SessionsWorld"]
