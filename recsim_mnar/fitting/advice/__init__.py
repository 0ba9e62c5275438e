"""What to do to find the best of some agents: trust the log, run an A/B test, or log with exploration first."""

from recsim_mnar.fitting.advice.advising import Advice, Question, advise_on

__all__ = ["Advice", "Question", "advise_on"]
