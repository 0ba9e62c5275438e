"""What to do to find the best of some agents: trust the log, run an A/B test, or log with exploration first."""

from recsim_mnar.fitting.advice.advising import Question, advise_on
from recsim_mnar.fitting.advice.findings import Advice

__all__ = ["Advice", "Question", "advise_on"]
