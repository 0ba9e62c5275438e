"""Logs as the arrays, files and tables of other libraries, none of which is imported: see docs/export.md."""

from recsim_mnar.export.arrays import Decisions, decisions, distributions, from_arrays
from recsim_mnar.export.episodes import (
    action_dist,
    from_minari,
    from_obp,
    from_vw,
    to_d3rlpy,
    to_minari,
    to_obp,
    to_vw,
)

__all__ = [
    "Decisions",
    "action_dist",
    "decisions",
    "distributions",
    "from_arrays",
    "from_minari",
    "from_obp",
    "from_vw",
    "to_d3rlpy",
    "to_minari",
    "to_obp",
    "to_vw",
]
