"""Questions to the logs of tools: what every variation, or all alike, would have earned, without a target file."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from recsim_mnar.datasets.tool_logs import ToolLog
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.refuters import with_findings
from recsim_mnar.estimators.verdict import GRAVE, Finding
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.doctor.examination import BANDIT, Asked, Examination, examine_file
from recsim_mnar.own_log.doctor.fitting import Fit
from recsim_mnar.own_log.doctor.problems import PROBLEM, Problem
from recsim_mnar.own_log.estimating import Answer, Question, estimate_log


def estimate_tool_log(tool: ToolLog, question: Question, reading: Reading, gather: Any = None) -> Answer:
    """Estimates of a tool's log; without targets, of its own policies against the one that logged.

    Args:
        tool: as :func:`recsim_mnar.datasets.tool_logs.opened` gives it.
        question: as :func:`recsim_mnar.own_log.estimating.estimate_log`.
        reading: likewise.
        gather: likewise.

    Raises:
        UserError: likewise.
    """
    if not question.targets and question.target_file is None:
        today = "today" if tool.has_propensities else None
        question = replace(question, targets=tool.policies, baseline=question.baseline or today)
    if "reward" not in tool.file.names:
        raise UserError(
            f"{tool.file.path}: assignments without what came of them. Give --metrics FILE, a table with user, "
            "time and, where a row does not count 1, a value"
        )
    columns = {role: name for role, name in reading.columns.items() if name in tool.file.names}
    context = [*reading.context, *(name for name in tool.context if name not in reading.context)]
    answer = estimate_log(
        tool.file, question, reading=replace(reading, columns=columns, context=context), gather=gather
    )
    findings = [Finding(each.code, GRAVE, each.size, each.message, each.advice) for each in tool.damages]
    records = [with_findings(record, findings) for record in answer.records]
    return replace(answer, records=records, lines=[*tool.lines, *answer.lines])


def examine_tool_log(tool: ToolLog, asked: Asked) -> Examination:
    """What is found about a tool's log, as :func:`recsim_mnar.own_log.doctor.examine_file`."""
    columns = {role: name for role, name in asked.columns.items() if name in tool.file.names}
    targets = tuple(asked.targets or tool.policies if tool.has_propensities else ())
    found = examine_file(tool.file.parts.path, replace(asked, columns=columns, targets=targets))
    damages = [Problem(each.code, PROBLEM, each.message, each.advice, ("propensity",)) for each in tool.damages]
    return replace(found, source=str(tool.file.path), kind=BANDIT, problems=[*damages, *found.problems])


def command_for_tool_log(found: Examination) -> list[Fit]:
    """The one command for a tool's log."""
    words = ["recsim-mnar", "estimate", found.source]
    words += [] if "reward" in found.columns else ["--metrics", "METRICS.csv"]
    says = "what each of these policies would have earned, and the difference from what was logged"
    return [Fit("estimate", True, shlex.join(words), says)]
