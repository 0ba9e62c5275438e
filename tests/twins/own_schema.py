"""Estimates of a file whose columns have the names of our own logs, or these: nothing is recognised."""

from __future__ import annotations

from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.estimating import Question, estimate_log


def estimate_file(path, targets, *, cluster=None, reward="reward", propensity="propensity", **question):
    fields = {name: question.pop(name) for name in Question.__dataclass_fields__ if name in question}
    columns = {"reward": reward, "propensity": propensity, "user": cluster}
    asked = Question(targets, **fields, stated=question)
    found = estimate_log(path, asked, reading=Reading(columns, exact=True))
    return found.records + found.segments
