"""List the commands that can read a file with their command lines, and what the likeliest one lacks."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from recsim_mnar.kernels.checks import rounded_down
from recsim_mnar.own_log.bandit_file import PROBLEM
from recsim_mnar.own_log.doctor import Examination
from recsim_mnar.own_log.doctor_columns import BANDIT, HOLDS_ITEMS, INTERACTIONS
from recsim_mnar.own_log.shown_item import IN_CAPITALS
from recsim_mnar.tables.roles import GUESSED, NAMED, NONE, option_of

_UNREADABLE = ("outside", "not_a_number", "not_finite", "not_a_date")
"""Codes of problems with which a command refuses the column."""
_LOGGED = ("reward", "propensity", "action", "user", "time", "logger")
"""Roles of columns that ``estimate`` has options for."""
_OF_SLATES = ("--slate-column", "--position-column", "--propensities-of")
_NOT_TAKEN: dict[str, Sequence[str]] = {
    "estimate": (),
    "plan": ("--propensities-of",),
    "replay": _OF_SLATES,
    "compare": (*_OF_SLATES, "--decimal"),
}
"""Options of statements about a file that a command does not have."""
_FIX = "first correct what is marked with !"
_ESTIMATED = (
    ". No column holds propensities, so they are estimated: each item's share of the rows. They are right only if "
    "--context-columns, to be added, names all by which today's system chose the items, and nothing that came later"
)
"""Sentences on propensities that are estimated."""


@dataclass(frozen=True)
class Fit:
    """Verdict on whether a command can read a file.

    Attributes:
        command: name of the command.
        fits: whether the command line works on the file as it is.
        line: the command line, with guessed columns if ``fits`` is false; empty if there is none.
        says: description of the command's result, or of what the file lacks.
    """

    command: str
    fits: bool
    line: str
    says: str

    def to_dict(self) -> dict[str, str | bool]:
        """Return the fields by name."""
        return asdict(self)


def commands_for(found: Examination) -> list[Fit]:
    """List the commands that fit a file, then what the likeliest one lacks if it does not fit."""
    likeliest = _compare(found) if found.kind == INTERACTIONS else _estimate(found)
    fits = [fit for fit in (likeliest, _plan_ab(found), _replay(found)) if fit is not None]
    return sorted(fits, key=lambda fit: not fit.fits)


def _line(found: Examination, words: Sequence[str], roles: Sequence[str]) -> str:
    """Format a command line with options for the columns that the user named and those guessed.

    Args:
        found: the file.
        words: the command and its arguments.
        roles: roles of columns that the command has options for.
    """
    named = []
    for role in roles:
        if found.columns.how.get(role) in (NAMED, GUESSED):
            named += [option_of(role), found.columns[role]]
    for option, value in found.stated.items():
        if option not in _NOT_TAKEN[words[0]]:
            named += [option, value]
    for role in roles:
        if role in found.columns.without:
            named += [option_of(role), NONE]
    return shlex.join(["recsim-mnar", *words, *named])


def _blocked(found: Examination, columns: Iterable[str]) -> bool:
    """Return whether one of these columns has values that commands refuse."""
    blocked: set[str] = set()
    for problem in found.problems:
        if problem.code in _UNREADABLE and problem.level == PROBLEM:
            blocked |= {*problem.columns}
    return not blocked.isdisjoint(columns)


def _flags(found: Examination) -> list[str]:
    """Return the options that drop unreadable rows."""
    # Views without a column of events have neither rewards nor propensities.
    views = found.contents.organic_rows and "event" not in found.columns
    flags = []
    if found.has("missing") or views:
        flags = ["--drop-missing"]
    return flags + ["--deduplicate"] * bool(found.contents.copies)


def guessed_in_words(found: Examination, line: str) -> str:
    """Describe the guesses in a command line in a sentence; "" without any."""
    what = {"reward": "the reward", "propensity": "the logged probability", "user": "the users", "time": "the time",
            "action": "the item shown", "item": "the item"}  # fmt: skip
    words = shlex.split(line)
    how = found.columns.how
    guessed = [
        (found.columns[role], text)
        for role, text in what.items()
        if how.get(role) == GUESSED and option_of(role) in words
    ]
    if "--target" in words and not found.targets:
        targets = words[words.index("--target") + 1].split(",")
        guessed += [(name, "a new policy's") for name in _perhaps_targets(found) if name in targets]
    if not guessed:
        return ""
    # The first guess is a clause, "ctr is the reward"; the following ones leave out the verb.
    clauses = [f"{name} {text}" for name, text in guessed[1:]]
    return f"guessed: {', '.join([' is '.join(guessed[0]), *clauses])}"


def first_of(fits: Sequence[Fit]) -> Fit | None:
    """Return the command to run first; None if none fits."""
    return next((fit for fit in fits if fit.fits and fit.command.partition(" ")[0] in ("estimate", "compare")), None)


def _refused(found: Examination) -> str:
    """Explain why rewards and propensities cannot be read as they are; "" if they can."""
    codes = ("unclear", "unclear_propensities")
    unclear = [problem for problem in found.problems if problem.code in codes and problem.level == PROBLEM]
    if unclear:
        return str(unclear[0])
    if "reward" not in found.columns:
        return (
            "needs a column of rewards (--reward-column) and one of propensities or actions; or, for compare "
            "--interactions, one of users and one of items that they met (--user-column, --item-column)"
        )
    if found.kind != BANDIT:
        return "needs propensities, or actions that were shown: these rows say who met what"
    read = [found.columns[role] for role in found.columns.names if role not in ("time", "action", "item", "event")]
    slates = any(problem.code.startswith("slate") and problem.level == PROBLEM for problem in found.problems)
    if slates or found.has("no_recommendations") or _blocked(found, [*read, *found.targets]):
        return _FIX
    return ""


def _perhaps_targets(found: Examination) -> list[str]:
    """List columns that look like a new policy's probabilities or items."""
    codes = ("maybe_target", HOLDS_ITEMS)
    return [name for problem in found.problems if problem.code in codes for name in problem.columns]


def _folded(found: Examination, targets: Iterable[str]) -> list[str]:
    """Return the option --fold-case if a target's items are written in other capitals; empty if none is."""
    return ["--fold-case"] * any(found.items.get(name) == IN_CAPITALS for name in targets)


def _estimate(found: Examination) -> Fit:
    """Write the command line of estimates, for the file's targets, likely targets or the logging policy."""
    no = functools.partial(Fit, "estimate", False, "")
    why = _refused(found)
    if why:
        return no(why)
    if "propensity" not in found.columns and "action" not in found.columns:
        return no("needs a column of propensities (--propensity-column) or of actions (--action-column)")
    perhaps = () if found.targets else _perhaps_targets(found)
    if "propensity" not in found.columns and not found.targets and not perhaps:
        return no("needs a target: name a column of a policy's probabilities of the logged action with --target")
    targets = ",".join(found.targets or perhaps) or "propensity"
    words = ["estimate", found.source, "--target", targets, *_flags(found), *_folded(found, targets.split(","))]
    says = (
        "what today's policy earned, with an interval; for another policy name its column of probabilities of the "
        "logged action in place of propensity, or give --target-file FILE --on KEY"
    )
    if perhaps:
        holds = "item" if any(name in found.items for name in perhaps) else "probability of what was shown"
        says = f"what a new policy would have earned, if its {holds} is in {' or '.join(perhaps)}"
    elif found.targets:
        says = "what these policies would have earned"
    if found.targets or perhaps:
        words += ["--baseline", "today"]
        says += ", and the difference from today's policy"
        says += _least(found) if "propensity" in found.columns else _ESTIMATED
    return Fit("estimate", True, _line(found, words, _LOGGED), says)


def _least(found: Examination) -> str:
    """Return a question to the user for the smallest propensity, to be appended to a sentence; may be empty.

    The smallest in the log is no bound, so that it is only mentioned.
    """
    slates = found.contents.slates
    if slates and slates.propensities_of.get(found.columns["propensity"]) != "marginal":
        return ""
    propensity = found.contents.propensity
    seen = f" (the smallest in this log is {rounded_down(propensity['least'])}: is it?)" if propensity else ""
    return (
        ". What is the smallest probability with which today's system shows any item? Add it as --propensity-min P"
        f"{seen}"
    )


def _plan_ab(found: Examination) -> Fit | None:
    """Write the command line of a plan of an A/B test; None if the file does not allow one."""
    if _refused(found) or "user" not in found.columns:
        return None
    line = _line(
        found,
        ["plan", "ab", found.source, "--lift", "5%", *_flags(found)],
        ("reward", "propensity", "action", "user", "time"),
    )
    return Fit("plan ab", True, line, "how many users an A/B test needs to find a lift of 5 %")


def _compare(found: Examination) -> Fit:
    """Write the command line of a comparison of recommenders on interactions."""
    fit = functools.partial(Fit, "compare --interactions")
    line = _line(found, ["compare", "--interactions", found.source], ("user", "item", "time"))
    names = list(found.columns.names.values())
    if _blocked(found, names):
        return fit(False, line, _FIX)
    missing = any(found.contents.missing.get(found.columns.get(role) or "") for role in ("user", "item", "time"))
    line += " --drop-missing" * missing
    rows = found.contents.rows_of_a_user
    if rows is None or rows["most"] < 2:
        return fit(False, line, "needs users with two rows or more")
    if not found.contents.items or found.contents.items < 2:
        return fit(False, line, "needs two items or more")
    by = "leave-one-out"
    if found.contents.time is not None:
        by = "leave-one-out and a split by time"
    source = shlex.quote(str(found.source))
    if len(found.contents.events or {}) > 1:
        by += ", all events pooled (--option events=NAME chooses)"
    says = f"which recommender foresees what users do, by {by}"
    if not missing:
        says += f"; a simulator like it: recsim-mnar calibrate {source} --out world.toml"
    return fit(True, line, says)


def _replay(found: Examination) -> Fit | None:
    """Write the command line of a replay, for a log with views between recommendations; None for another one."""
    needed = {"user", "action", "reward", "propensity"}
    if not found.contents.organic_rows or not needed <= set(found.columns.names):
        return None
    if _blocked(found, found.columns.names.values()) or (found.ours and found.has("missing")):
        return None
    words = ["replay", found.source, "--policy", "user-popularity", "--out", "replayed.parquet"]
    if found.has("missing"):
        words += ["--drop-missing"]
    says = "a column with a policy's probability of each logged action, for estimate --target"
    return Fit("replay", True, _line(found, words, _LOGGED[:-1]), says)


def command_for_tool_log(found: Examination) -> list[Fit]:
    """List the one command for a tool's log."""
    words = ["recsim-mnar", "estimate", found.source]
    words += [] if "reward" in found.columns else ["--metrics", "METRICS.csv"]
    says = "what each of these policies would have earned, and the difference from what was logged"
    return [Fit("estimate", True, shlex.join(words), says)]
