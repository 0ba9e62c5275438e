"""What a file holds, what is wrong with it, and which commands fit."""

from recsim_mnar.own_log.doctor.examination import Asked, Examination, examine_file

__all__ = ["Asked", "Examination", "examine_file"]
