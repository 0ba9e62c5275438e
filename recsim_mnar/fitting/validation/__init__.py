"""A world compared with a log: ``validate_world`` and its result."""

from recsim_mnar.fitting.validation.checks import Check, Validation
from recsim_mnar.fitting.validation.validating import validate_world

__all__ = ["Check", "Validation", "validate_world"]
