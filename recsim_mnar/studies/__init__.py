"""Studies: comparisons over many catalogues, in one tidy table, because one catalogue is an anecdote."""

from recsim_mnar.studies.design import Design, design_of
from recsim_mnar.studies.result import Study
from recsim_mnar.studies.running import processes, run_study

__all__ = ["Design", "Study", "design_of", "processes", "run_study"]
