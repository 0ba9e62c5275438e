"""Which commands fit a file, and the line to type; what does not fit, and what it lacks."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recsim_mnar.datasets.column_roles import NAMED
from recsim_mnar.own_log.doctor.examination import BANDIT, INTERACTIONS, Examination
from recsim_mnar.own_log.doctor.problems import PROBLEM

_UNREADABLE = (
    *("propensity_above_1", "propensity_not_positive", "outside", "not_a_number", "not_finite", "not_a_date"),
    "unclear",
)
_FIX = "first correct what is marked above"


@dataclass(frozen=True)
class Fit:
    """Whether a command can read a file.

    Attributes:
        command: its name.
        fits: whether the line works on the file as it is.
        line: to type; empty where none works.
        says: what it gives, or what is lacking.
    """

    command: str
    fits: bool
    line: str
    says: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def commands_for(found: Examination) -> list[Fit]:
    """Every command that reads a file, those that fit first."""
    fits = [_estimate(found), _compare(found), _replay(found)]
    return sorted(fits, key=lambda fit: not fit.fits)


def _line(found: Examination, words: Sequence[str], roles: Sequence[str]) -> str:
    """A command line with the columns that the user had to name."""
    named = [
        part
        for role in roles
        if found.columns.how.get(role) == NAMED
        for part in (f"--{role}-column", found.columns[role])
    ]
    return shlex.join(["recsim-mnar", *words, *named])


def _blocked(found: Examination, columns: Iterable[str]) -> bool:
    """Whether values of these columns are refused."""
    return any(
        problem.code in _UNREADABLE and problem.level == PROBLEM and set(problem.columns) & set(columns)
        for problem in found.problems
    )


def _estimate(found: Examination) -> Fit:
    roles = ("reward", "propensity", "action", "user", "time", "logger")
    if "reward" not in found.columns:
        return Fit(
            "estimate", False, "", "needs a column of rewards (--reward-column) and one of propensities or actions"
        )
    if found.kind != BANDIT:
        return Fit("estimate", False, "", "needs propensities, or actions that were shown: these rows say who met what")
    words = ["estimate", found.source, "--target", ",".join(found.targets) or "propensity"]
    if found.has("missing"):
        words.append("--drop-missing")
    if found.facts["duplicates"] and "time" in found.columns and "user" in found.columns:
        words.append("--deduplicate")
    if found.targets and "propensity" in found.columns:
        words += ["--baseline", "propensity"]
    line = _line(found, words, roles)
    read = [found.columns[role] for role in found.columns.names if role not in ("time", "action")]
    unclear = [name for role in ("propensity", "user") for name in found.columns.unclear.get(role, ())]
    if _blocked(found, [*read, *found.targets, *unclear]):
        return Fit("estimate", False, line, _FIX)
    if "propensity" not in found.columns:
        return _estimate_without(found, line)
    if found.targets:
        return Fit(
            "estimate", True, line, "what these policies would have earned, and their difference to today's policy"
        )
    says = (
        "what today's policy earned, with an interval; for another policy name its column of probabilities of the "
        "logged action in place of propensity, or give --target-file FILE --on KEY"
    )
    return Fit("estimate", True, line, says)


def _estimate_without(found: Examination, line: str) -> Fit:
    if "action" not in found.columns:
        return Fit(
            "estimate",
            False,
            "",
            "needs a column of propensities (--propensity-column) or of actions (--action-column)",
        )
    if not found.targets:
        says = (
            "needs a target: name a column of a policy's probabilities of the logged action with --target, or give "
            "--target-file FILE --on KEY; there is no column of propensities, so they would be estimated"
        )
        return Fit("estimate", False, "", says)
    return Fit("estimate", True, line, "what these policies would have earned, under estimated propensities")


def _compare(found: Examination) -> Fit:
    if found.kind != INTERACTIONS:
        return Fit(
            "compare --interactions", False, "",
            "needs a column of users and one of items that they met of their own accord (--user-column, --item-column)",
        )  # fmt: skip
    line = _line(found, ["compare", "--interactions", found.source], ("user", "item", "time"))
    names = list(found.columns.names.values())
    missing = [name for name in names if found.facts["missing"].get(name)]
    if missing or _blocked(found, names):
        return Fit("compare --interactions", False, line, _FIX)
    rows = found.facts["rows_of_a_user"]
    if rows is None or rows["most"] < 2:
        return Fit("compare --interactions", False, line, "needs users with two rows or more")
    if not found.facts["items"] or found.facts["items"] < 2:
        return Fit("compare --interactions", False, line, "needs two items or more")
    by = "leave-one-out and a split by time" if found.facts["time"] is not None else "leave-one-out"
    return Fit("compare --interactions", True, line, f"which recommender foresees what users do, by {by}")


def _replay(found: Examination) -> Fit:
    if not found.ours or not found.facts["organic_rows"]:
        return Fit(
            "replay", False, "",
            "needs what users did between the recommendations: user, step, event (organic, bandit), item, action",
        )  # fmt: skip
    if _blocked(found, found.columns.names.values()) or found.has("missing"):
        return Fit("replay", False, "", _FIX)
    line = shlex.join(
        ["recsim-mnar", "replay", found.source, "--policy", "user-popularity", "--out", "replayed.parquet"]
    )
    return Fit(
        "replay", True, line, "a column with a policy's probability of each logged action, for estimate --target"
    )
