"""List the commands that can read a file with their command lines, and what other commands lack."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from recsim_mnar.datasets.interactions import events_in_words
from recsim_mnar.kernels.checks import rounded_down
from recsim_mnar.own_log.bandit_file import PROBLEM
from recsim_mnar.own_log.doctor import Examination, TargetFacts
from recsim_mnar.own_log.doctor_columns import BANDIT, HOLDS_ITEMS, INTERACTIONS
from recsim_mnar.own_log.shown_item import IN_CAPITALS
from recsim_mnar.tables.roles import GUESSED, NAMED, NONE, in_words

_UNREADABLE = (
    *("propensity_above_1", "propensity_not_positive", "outside", "not_a_number", "not_finite", "not_a_date"),
    "unclear",
)
"""Codes of problems with which a command refuses the column."""
_LOGGED = ("reward", "propensity", "action", "user", "time", "logger")
"""Roles of columns that ``estimate`` has options for."""
_OF = "--propensities-of"
_FIX = "first correct what is marked with !"


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
    """List every command that reads a file, those that fit first."""
    estimate = _estimate(found)
    fits = [estimate, *_by_segments(found, estimate), _plan_ab(found), _compare(found), _replay(found)]
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
            named += [f"--{role}-column", found.columns[role]]
    slates = found.contents.slates
    if slates and (words[0] == "estimate" or words[:2] == ["plan", "ab"]):
        options = slates.options
        if words[0] == "estimate" or _OF not in options:
            named += options
        else:  # a plan has no such option; it and its value are the last two
            named += options[: options.index(_OF)]
    for role in roles:
        if role in found.columns.without:
            named += [f"--{role}-column", NONE]
    # The commands on interactions read no numbers with decimals.
    takes_decimal = words[0] in ("estimate", "replay") or words[:2] == ["plan", "ab"]
    stated = []
    if found.decimal is not None and takes_decimal:
        stated = ["--decimal", found.decimal]
    return shlex.join(["recsim-mnar", *words, *named, *stated])


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
    options = found.columns.how
    guessed = [
        f"{found.columns[role]} {text}"
        for role, text in what.items()
        if options.get(role) == GUESSED and f"--{role}-column" in words
    ]
    target = ""
    if "--target" in words:
        target = words[words.index("--target") + 1]
    perhaps = [name for name in _perhaps_targets(found) if not found.targets and name in target.split(",")]
    if perhaps:
        guessed += [_as_policies(found, perhaps).replace(" is ", " ")]
    if guessed:
        # The first guess is a clause, "ctr is the reward"; the following ones leave out the verb.
        return f"guessed: {', '.join(guessed).replace(' ', ' is ', 1)}"
    return ""


def first_of(fits: Sequence[Fit]) -> Fit | None:
    """Return the command to run first; None if none fits."""
    return next((fit for fit in fits if fit.fits and fit.command.partition(" ")[0] in ("estimate", "compare")), None)


def _refused(found: Examination) -> str:
    """Explain why rewards and propensities cannot be read as they are; "" if they can."""
    if "reward" in found.columns.unclear:
        return f"the reward could be column {in_words(found.columns.unclear['reward'])}: say which with --reward-column"
    if "reward" not in found.columns:
        return "needs a column of rewards (--reward-column) and one of propensities or actions"
    if found.kind != BANDIT:
        return "needs propensities, or actions that were shown: these rows say who met what"
    unclear = [str(problem) for problem in found.problems if problem.code == "unclear_propensities"]
    if unclear:
        return unclear[0]
    if any(problem.code.startswith("slate") and problem.level == PROBLEM for problem in found.problems):
        return _FIX
    read = [found.columns[role] for role in found.columns.names if role not in ("time", "action", "item", "event")]
    unclear = [name for role in ("propensity", "user", "action") for name in found.columns.unclear.get(role, ())]
    if found.has("no_recommendations") or _blocked(found, [*read, *found.targets, *unclear]):
        return _FIX
    return ""


def _perhaps_targets(found: Examination) -> list[str]:
    """List columns that look like a new policy's probabilities or items."""
    codes = ("maybe_target", HOLDS_ITEMS)
    return [name for problem in found.problems if problem.code in codes for name in problem.columns]


def _as_policies(found: Examination, names: Sequence[str]) -> str:
    """Describe columns as a new policy's probabilities of the item shown, or as its items."""
    of_slates = _propensities_of(found) in ("slate", "set")
    same = f"a new policy's probability of showing the same {'slate' if of_slates else 'item'}"
    kinds = {same: [name for name in names if name not in found.items],
             "the item that a new policy would show": [name for name in names if name in found.items]}  # fmt: skip
    return " and ".join(f"{' and '.join(of)} is {what}" for what, of in kinds.items() if of)


def _propensities_of(found: Examination) -> str:
    """Return the kind of the propensities of slates; "" if it is not known, and for single items."""
    slates = found.contents.slates
    column = found.columns.get("propensity")
    if slates is None or column is None:
        return ""
    return slates.propensities_of.get(column, "")


def _folded(found: Examination, targets: Iterable[str]) -> list[str]:
    """Return the option --fold-case if a target's items are written in other capitals; empty if none is."""
    return ["--fold-case"] * any(found.items.get(name) == IN_CAPITALS for name in targets)


def _estimate(found: Examination) -> Fit:
    """Write the command line of estimates, for the file's targets, likely targets or the logging policy."""
    no = functools.partial(Fit, "estimate", False, "")
    why = _refused(found)
    if why:
        return no(why)
    wrong = _not_of_the_item(found)
    if wrong:
        says = (
            f"{found.columns['propensity']} and {', '.join(wrong)} cannot both be right: either the logged "
            "probabilities or the new policy's column are not of the item shown. Correct that first"
        )
        return no(says)
    if "propensity" not in found.columns and "action" not in found.columns:
        return no("needs a column of propensities (--propensity-column) or of actions (--action-column)")
    second = found.contents.target_file
    if second is not None:
        return _with_targets(found, second)
    perhaps = () if found.targets else _perhaps_targets(found)
    if "propensity" not in found.columns and not found.targets and not perhaps:
        return no(
            "needs a target: name a column of a policy's probabilities of the logged action with --target, or give "
            f"--target-file FILE --on KEY{_estimated(found)[1]}"
        )
    targets = ",".join(found.targets or perhaps) or "propensity"
    words = ["estimate", found.source, "--target", targets, *_flags(found), *_folded(found, targets.split(","))]
    says = (
        "what today's policy earned, with an interval; for another policy name its column of probabilities of the "
        "logged action in place of propensity, or give --target-file FILE --on KEY"
    )
    if perhaps:
        says = f"if {_as_policies(found, perhaps)}: what it would have earned, and the difference from today's policy"
    elif found.targets:
        says = "what these policies would have earned, and their difference from today's policy"
    if found.targets or perhaps:
        options, estimated = _estimated(found)
        words += ["--baseline", "today", *options]
        says += estimated or _least(found)
    return Fit("estimate", True, _line(found, words, _LOGGED), says)


def _estimated(found: Examination) -> tuple[list[str], str]:
    """Return the option and the sentences, to be appended to others, for propensities that are estimated.

    Both are empty if a column holds propensities.
    """
    if "propensity" in found.columns:
        return [], ""
    within = "share of the rows"
    options = []
    if found.context:
        within += f" with the same {' and '.join(found.context)}"
        options = ["--context-columns", ",".join(found.context)]
    return options, (
        f". No column holds propensities, so they are estimated: each item's {within}. They are right only if "
        "--context-columns names all by which today's system chose the items, and nothing that came later"
    )


def _least(found: Examination) -> str:
    """Return a question to the user for the smallest propensity, to be appended to a sentence; may be empty.

    The smallest in the log is no bound, so that it is only mentioned.
    """
    if found.contents.slates and _propensities_of(found) != "marginal":
        return ""
    propensity = found.contents.propensity
    seen = ""
    if propensity is not None and propensity.least is not None:
        seen = f" (the smallest in this log is {rounded_down(propensity.least)}: is it?)"
    return (
        ". What is the smallest probability with which today's system shows any item? Add it as --propensity-min P"
        f"{seen}"
    )


def _not_of_the_item(found: Examination) -> list[str]:
    """List columns of new policies whose mean weight is proved to be above 1."""
    weights = [weight for weight in found.contents.mean_weight if weight.policy and weight.actions is None]
    return [weight.policy for weight in weights if 1.0 < weight.low < math.inf]


def _by_segments(found: Examination, estimate: Fit) -> list[Fit]:
    """Write the command line of estimates by a column of segments, if there is one."""
    targets = found.targets or _perhaps_targets(found)
    if not (estimate.fits and found.segments and targets and "propensity" in found.columns):
        return []
    first, *other_segments = found.segments
    line = f"{estimate.line} {shlex.join(['--by', first])}"
    says = f"the same by {first}, if that was fixed before anything was shown"
    if other_segments:
        says += f"; likewise by {', '.join(other_segments)}"
    return [Fit("estimate --by", True, line, says)]


def _with_targets(found: Examination, second: TargetFacts) -> Fit:
    """Write the command line of estimates with a second file of targets."""
    if found.has("target_file"):
        return Fit("estimate", False, "", _FIX)
    words = ["estimate", found.source, "--target-file", second.file]
    words += [] if second.on is None else ["--on", second.on]
    flags = _flags(found)
    if found.has("without_target") and "--drop-missing" not in flags:
        flags += ["--drop-missing"]
    options, estimated = _estimated(found)
    says = f"what {', '.join(second.policies)} would have earned{estimated}"
    return Fit("estimate", True, _line(found, [*words, "--baseline", "today", *options, *flags], _LOGGED), says)


def _plan_ab(found: Examination) -> Fit:
    """Write the command line of a plan of an A/B test."""
    lack = _refused(found)
    slates = found.contents.slates
    if not lack and "user" not in found.columns:
        lack = "needs a column of users (--user-column)"
    if not lack and slates and not slates.columns:
        lack = "needs one row per position"
    if lack:
        return Fit("plan ab", False, "", lack)
    line = _line(
        found,
        ["plan", "ab", found.source, "--lift", "5%", *_flags(found)],
        ("reward", "propensity", "action", "user", "time"),
    )
    return Fit("plan ab", True, line, "how many users an A/B test needs to find a lift of 5 %")


def _compare(found: Examination) -> Fit:
    """Write the command line of a comparison of recommenders on interactions."""
    fit = functools.partial(Fit, "compare --interactions")
    if "propensity" in found.columns.unclear:
        return fit(False, "", _FIX)
    if found.kind != INTERACTIONS:
        needs = "a column of users and one of items that they met of their own accord (--user-column, --item-column)"
        return fit(False, "", f"needs {needs}")
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
    events = found.contents.events or {}
    pooled = ""
    if len(events) > 1:
        pooled = f"; {events_in_words(events)} rows are pooled: --option events=NAME chooses"
    says = f"which recommender foresees what users do, by {by}"
    if not missing:
        says += f"; a simulator like it: recsim-mnar calibrate {source} --out world.toml"
    says += pooled
    return fit(True, line, says)


def _replay(found: Examination) -> Fit:
    """Write the command line of a replay, for a log with views between recommendations."""
    needs = "needs rows for what users viewed between the recommendations, and a column of users"
    if not found.contents.organic_rows and {"user", "action", "reward", "propensity"} <= set(found.columns.names):
        says = f"{needs}. Without them only --policy random works, which needs no history"
        return Fit("replay", False, "", says)
    if not found.contents.organic_rows or "user" not in found.columns or "action" not in found.columns:
        return Fit("replay", False, "", needs)
    if not {"reward", "propensity"} <= set(found.columns.names):
        return Fit("replay", False, "", "needs columns of rewards and of propensities")
    if _blocked(found, found.columns.names.values()) or (found.ours and found.has("missing")):
        return Fit("replay", False, "", _FIX)
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
