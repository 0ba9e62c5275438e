"""The log, the only thing that passes from a world to an estimator: its columns, its rules and its files."""

from recsim_mnar.log.table import Log
from recsim_mnar.runs.files import replacing

__all__ = ["Log", "replacing"]
