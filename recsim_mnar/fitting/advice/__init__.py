"""What to do with a log: which protocol finds the best agent in worlds like the one it comes from."""

from recsim_mnar.fitting.advice.advising import advise_on
from recsim_mnar.fitting.advice.findings import Advice

__all__ = ["Advice", "advise_on"]
