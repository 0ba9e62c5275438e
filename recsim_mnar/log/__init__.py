"""The log, the only thing that passes from a world to an estimator: its columns, its rules and its files."""

from recsim_mnar.log.files import replacing
from recsim_mnar.log.table import Log, from_columns

__all__ = ["Log", "from_columns", "replacing"]
