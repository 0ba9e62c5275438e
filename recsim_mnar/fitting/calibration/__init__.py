"""Worlds fitted to a log: ``calibrate_world`` makes a ``FittedWorld``."""

from recsim_mnar.fitting.calibration.calibrating import calibrate_world
from recsim_mnar.fitting.calibration.members import FittedWorld

__all__ = ["FittedWorld", "calibrate_world"]
