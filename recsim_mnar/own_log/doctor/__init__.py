"""What a file holds, what is wrong with it, and which commands fit."""

from recsim_mnar.own_log.doctor.columns import Asked
from recsim_mnar.own_log.doctor.examination import Examination, examine_file

__all__ = ["Asked", "Examination", "examine_file"]
