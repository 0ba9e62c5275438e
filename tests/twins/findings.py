"""What was found of an estimate, of a record of one, and of a file, by codes."""

from __future__ import annotations

from recsim_mnar.estimators.verdict import Finding
from recsim_mnar.own_log.doctor_commands import commands_for


def findings(judged):
    """Findings of an estimate or of its record, or doctor's problems."""
    if isinstance(judged, dict):
        return [Finding.from_dict(each) for each in judged["findings"]]
    return judged.problems if hasattr(judged, "problems") else judged.verdict.findings


def codes(judged, *levels):
    """Codes of all findings, or of those of some levels."""
    return {each.code for each in findings(judged) if not levels or each.level in levels}


def doubts(judged):
    """Codes that speak against trust."""
    return codes(judged, "caution", "do_not_use")


def finding(judged, code):
    """The one finding of a code."""
    (found,) = (each for each in findings(judged) if each.code == code)
    return found


def advice_of(examination):
    """The judgement of doctor on each command for a file, by the command's name."""
    return {fit.command: fit for fit in commands_for(examination)}


def fitting_lines(examination):
    """The lines that fit a file, by their commands."""
    return {name: fit.line for name, fit in advice_of(examination).items() if fit.fits}
