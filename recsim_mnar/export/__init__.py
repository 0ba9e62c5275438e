"""Logs as the arrays, files and tables of other libraries, none of which is imported: see docs/export.md."""

from recsim_mnar.export.arrays import Decisions, decisions, distributions, from_arrays
from recsim_mnar.export.d3rlpy import to_d3rlpy
from recsim_mnar.export.minari import from_minari, to_minari
from recsim_mnar.export.obp import action_dist, from_obp, to_obp
from recsim_mnar.export.rllib import from_rllib, to_rllib
from recsim_mnar.export.vw import from_vw, to_vw

__all__ = [
    "Decisions",
    "action_dist",
    "decisions",
    "distributions",
    "from_arrays",
    "from_minari",
    "from_obp",
    "from_rllib",
    "from_vw",
    "to_d3rlpy",
    "to_minari",
    "to_obp",
    "to_rllib",
    "to_vw",
]
