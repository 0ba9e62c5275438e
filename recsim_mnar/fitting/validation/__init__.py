"""A world held against a log: ``validate_world``, and what it returns."""

from recsim_mnar.fitting.validation.checks import Check, Validation
from recsim_mnar.fitting.validation.validating import validate_world
from recsim_mnar.log.ratings import log_of_ratings

__all__ = ["Check", "Validation", "log_of_ratings", "validate_world"]
