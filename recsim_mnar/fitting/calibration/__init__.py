"""Worlds fitted to a log: ``calibrate_world`` makes a ``FittedWorld``; ``examination`` is of a log's places."""

from recsim_mnar.fitting.calibration.calibrating import calibrate_world
from recsim_mnar.fitting.calibration.members import FittedWorld
from recsim_mnar.fitting.calibration.positions import Examination, examination

__all__ = ["Examination", "FittedWorld", "calibrate_world", "examination"]
