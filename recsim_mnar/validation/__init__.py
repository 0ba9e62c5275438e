"""A world held against a log: ``validate_world``, and what it returns."""

from recsim_mnar.validation.checks import Check
from recsim_mnar.validation.rated import log_of_ratings
from recsim_mnar.validation.validating import Validation, validate_world

__all__ = ["Check", "Validation", "log_of_ratings", "validate_world"]
