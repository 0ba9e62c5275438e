"""Recognise the kind of a file and the likely roles of its columns, by their names and values."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.weights import Segments, SegmentTest
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import STRICT, mean_weight_limits
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.refuters import ItemSums
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.own_log.bandit_file import NOTE, PROBLEM, Problem, Reading, but_for_slates
from recsim_mnar.own_log.shown_item import IN_CAPITALS, ShownItem, find_shown, same_items
from recsim_mnar.own_log.slate_estimates import SlateLog, endings_of, read_slates
from recsim_mnar.own_log.slate_file import SlateFile, find_slates
from recsim_mnar.tables.files import is_text
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import (
    GUESSED,
    NONE,
    USUAL_NAMES,
    Columns,
    are_amounts,
    find_columns,
    likely_columns,
    new_policies,
    of_what_was_shown,
    plain_name,
    say_which,
)
from recsim_mnar.tables.rows import DROP, Rows
from recsim_mnar.tables.values import MISSING, Decimal, Fault, Ids, listed, spelled_alike, text_numbers

HOLDS_ITEMS = "holds_items"
"""Code of a problem: columns of items that a new policy may show."""


def problems_of(faults: Iterable[Fault]) -> list[Problem]:
    """Convert faults of values to problems, without missing values, which are reported for all columns together."""
    return [
        Problem(fault.code, PROBLEM, fault.message, fault.advice, (fault.column,))
        for fault in faults
        if fault.code != MISSING
    ]


HIGHEST = 1.0 + 1e-6
"""Largest probability, with room for rounding."""
_PERCENT = 100.0
_SHOWN = 3
"""Number of bad rows that a problem names."""


@dataclass(frozen=True)
class MeanWeight:
    """Test whether the mean weight of a policy is 1, as it must be.

    Attributes:
        policy: column of a target; "" for the policy that shows every action equally often, which needs no column.
        mean: mean of target / propensity over the rows with possible values.
        low, high: confidence limits of its expectation at :data:`STRICT`, users being independent.
        actions: number of actions of that policy, None for a target's column.
        exchanged_holds: True if the mean is 1 with the column as the propensities and the propensities as the target.
    """

    policy: str
    mean: float
    low: float
    high: float
    actions: int | None = None
    exchanged_holds: bool = False

    @property
    def holds(self) -> bool:
        """True if the mean can be 1."""
        return self.low <= 1.0 <= self.high

    def to_dict(self) -> Mapping[str, object]:
        """Return JSON types; None for a limit that is not finite."""
        return {
            "policy": self.policy or None,
            "mean": self.mean,
            "low": self.low if np.isfinite(self.low) else None,
            "high": self.high if np.isfinite(self.high) else None,
            "actions": self.actions,
            "holds": self.holds,
            "line": self.line(),
        }

    def line(self) -> str:
        """Describe the test and its numbers in one line."""
        mean_text, expected_text = told_apart(self.mean, 1.0)
        numbers = f"{mean_text} ({self.low:.3g} to {self.high:.3g} at {100 * STRICT:g} %), should be {expected_text}"
        if self.actions is None:
            return f"of {self.policy} / logged probability: {numbers}"
        return f"of equal shares of the {self.actions:,} items shown / logged probability: {numbers}"

    def problem(self, column: str) -> Problem:
        """Return the problem of a mean that cannot be 1, with propensities in ``column``."""
        is_target = self.actions is None
        below = self.mean < 1.0
        case = ("target" if is_target else "shares") + ("_below" if below else "_above")
        if below and self.low <= 1.0 / _PERCENT <= self.high:  # propensities in per cent
            case = "percent"
        elif self.exchanged_holds:
            case = "exchanged"
        return Problem.of(
            "mean_weight",
            PROBLEM if is_target else NOTE,
            column,
            do=case,
            line=self.line(),
            policy=self.policy,
            possible=self.mean * (self.actions or 1),
        )


@dataclass(frozen=True)
class Propensities:
    """Contents of a column of propensities.

    Attributes:
        least, largest: limits of the values; None if there are none.
        zero, negative, above_1: counts of impossible values.
        impossible: count of all of them.
        percent: whether they look like per cent.
    """

    least: float | None
    largest: float | None
    zero: int
    negative: int
    above_1: int
    impossible: int
    percent: bool

    @staticmethod
    def of(values: Floats) -> Propensities:
        """Summarise (n,) propensities, NaN where missing."""
        present = values[~np.isnan(values)]
        zero = int(np.sum(present == 0.0))
        negative = int(np.sum(present < 0.0))
        above = int(np.sum(present > HIGHEST))
        least = largest = None
        percent = False
        if present.size:
            least = float(present.min())
            largest = float(present.max())
            percent = above >= max(present.size / 2, 1) and least >= 0.0 and largest <= _PERCENT
        return Propensities(least, largest, zero, negative, above, zero + negative + above, percent)

    def problems(self, values: Floats, column: str, numbers: NDArray[np.int64]) -> list[Problem]:
        """Report impossible values.

        Args:
            values: (n,) propensities.
            column: name of their column.
            numbers: (n,) rows in the file, from 1.
        """
        problems = []
        if self.above_1:
            rows = _rows(values, np.flatnonzero(values > HIGHEST), numbers)
            case = {"do": "percent"} if self.percent else {}
            problems.append(Problem.of("propensity_above_1", PROBLEM, column, rows=rows, **case))
        if self.zero or self.negative:
            rows = _rows(values, np.flatnonzero(values <= 0.0), numbers)
            problems.append(Problem.of("propensity_not_positive", PROBLEM, column, rows=rows))
        return problems


def _rows(values: Floats, bad: NDArray[np.int64], numbers: NDArray[np.int64]) -> str:
    """Format the numbers and values of bad rows."""
    examples = listed((f"{numbers[row]}: {values[row]:g}" for row in bad), _SHOWN)
    if bad.size > 1:
        return f"{bad.size:,} rows ({examples})"
    return f"row {examples}"


def mean_weight(
    propensity: Floats, target: Floats, user: NDArray[np.int64] | None, *, policy: str = "", actions: int | None = None
) -> MeanWeight | None:
    """Compute the mean weight of a policy with its limits; None if no row has possible values.

    Args:
        propensity: (n,) propensities.
        target: (n,) the policy's probability of the logged action.
        user: (n,) numbers of users, -1 where missing; None if rows are independent.
        policy: column of the policy.
        actions: number of actions, for the policy that shows each equally often.
    """
    good = (propensity > 0.0) & (propensity <= HIGHEST) & (target >= 0.0) & (target <= HIGHEST)
    if user is not None:
        good &= user >= 0
        user = user[good]
    if not good.any():
        return None
    sums = PolicySums.of(np.minimum(propensity[good], 1.0), target[good], Clusters.of(user, int(good.sum())))
    low, high = mean_weight_limits(sums, STRICT)
    return MeanWeight(policy, sums.mean_weight, low, high, actions)


BANDIT, INTERACTIONS, TABLE = "bandit log", "interactions", "table"
"""Kinds of files: recommendations with their outcomes; users with the items they met; anything else."""

_ROLES = ("user", "action", "reward", "propensity", "time", "logger", "event", "item")
_RATINGS = USUAL_NAMES["reward"][-1]
_LOOKED_AT = 1000
"""Number of values to inspect of a column without a role."""
_TWO = 2
"""Number of distinct shares above which a column may be a policy's whatever its mean weight."""
_MOST_SEGMENTS = 30
"""Most values of a column of segments."""
_ROWS_OF_A_CELL = 20
"""Least number of rows, on average, for each item and each combination of values of a context."""
_MOST_TESTED, _MOST_COMPARED = 20, 6
"""Most candidates for the propensities that are tested by themselves, and with one another."""
_DISPROVED = 4
"""Score of a candidate for the propensities that the rows disprove."""
_GUESSES = ("reward", "propensity", "user", "item", "action", "time")
"""Roles for which a column is guessed, in this order."""
_LEAST_USERS = 20
"""Least number of values of a column of users."""


@dataclass(frozen=True)
class Asked:
    """The user's statements about a file.

    Attributes:
        columns: by role (user, item, action, reward, propensity, time, logger); None or left out: recognised.
        targets: columns of target policies' probabilities of the logged action.
        n_actions: number of actions; None if only the file tells.
        target_file: path of a second file with the targets; None without one.
        on: column of both files by which rows of the second one are found; None if they are in the same order.
        guessed: roles of ``columns`` that the user did not name.
        decimal: decimal mark of a text file; None to detect it.
        propensities_of: event that propensities of slates are of, a value of ``--propensities-of``; None to detect it.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    targets: Sequence[str] = ()
    n_actions: int | None = None
    target_file: str | os.PathLike[str] | None = None
    on: str | None = None
    guessed: Collection[str] = ()
    propensities_of: str | None = None
    decimal: str | None = None


def columns_of(file: TableFile, source: str, asked: Asked) -> tuple[str, Columns, ShownItem]:
    """Recognise the kind of a file and its columns.

    Args:
        file: the table.
        source: name of the file in messages.
        asked: the user's statements about it.

    Returns:
        kind: :data:`BANDIT`, :data:`INTERACTIONS` or :data:`TABLE`.
        columns: columns by role.
        shown_item: how the column of the items shown was chosen; empty for interactions and tables.
    """
    named = asked.columns
    item = named.get("item")
    targets: Sequence[str] = [name for name in asked.targets if name in file.names]
    columns = find_columns(source, file.names, named=named, optional=_ROLES, leave=targets)
    shown_item = ShownItem()
    if item is None:
        shown_item = find_shown(file, columns, targets)
    columns = columns.with_action(shown_item.column, GUESSED, shown_item.rivals)
    unclear = dict(columns.unclear)
    targets = targets or targets_of(file, columns)
    if "propensity" not in {*columns.names, *unclear, *columns.without} and item is None:
        shares = _perhaps_propensities(file, {*columns.names.values(), *targets})
        if shares:
            unclear["propensity"] = shares
    logged = "propensity" in {*columns.names, *unclear} or (bool(targets) and item is None)
    if "reward" not in columns:
        rewards = _perhaps_rewards(file, columns, logged=logged)
        if rewards:
            unclear["reward"] = rewards
    columns = replace(columns, unclear=unclear)
    rated = plain_name(columns.get("reward") or "") in _RATINGS
    rewarded = "reward" in columns and not rated and item is None
    if logged or rewarded or asked.targets or asked.target_file is not None:
        is_bandit = "reward" in columns or "propensity" in columns
        return BANDIT if is_bandit else TABLE, columns, shown_item
    # No bandit log: items are those of interactions now, not of recommendations.
    named = {role: named.get(role) for role in ("user", "item", "time")}
    columns = find_columns(source, file.names, named=named, optional=("user", "item", "time", "event"))
    kind = INTERACTIONS if "user" in columns and "item" in columns else TABLE
    return kind, columns, ShownItem()


def targets_of(file: TableFile, columns: Columns) -> tuple[str, ...]:
    """List columns that are targets by their names: those written by ``replay``, and names of new policies.

    Without propensities, the latter must hold shares, since ``target`` is a name of much else.
    """
    free = [name for name in file.names if name not in columns.names.values()]
    targets = [name for name in free if f"{name}_unsupported" in file.names]
    named = new_policies(free)
    if named and "propensity" not in columns:
        head = file.head()
        named = [name for name in named if _are_shares(head.get(name, ()), file.decimal)]
    return tuple(dict.fromkeys([*targets, *named]))


def _are_shares(column: Any, decimal: Decimal, *, zero: bool = True) -> bool:
    """Return whether the first values are in [0, 1], not only 0 and 1; without ``zero`` in (0, 1], not only 1."""
    import pyarrow as pa

    words = [str(value) for value in column[:_LOOKED_AT] if not isinstance(value, bool)]
    values, _, bad = text_numbers(pa.array(words, pa.string()), decimal)
    present = values[~np.isnan(values)]
    if bad.any() or np.any(present > 1.0) or np.any(present < 0.0 if zero else present <= 0.0):
        return False
    inside = np.any((present > 0.0) & (present < 1.0))
    return bool(inside and (not zero or len(np.unique(present)) > 1))


def _perhaps_propensities(file: TableFile, used: Collection[str]) -> tuple[str, ...]:
    """List unused columns whose first values are all in (0, 1]: likely propensity columns."""
    return tuple(
        name
        for name, values in file.head().items()
        if name not in used and _are_shares(values, file.decimal, zero=False)
    )


def _perhaps_rewards(file: TableFile, columns: Columns, *, logged: bool) -> tuple[str, ...]:
    """List columns that could be the reward, the likeliest first.

    If several columns have usual names of rewards, these are the candidates, those of zeros and ones first. Otherwise
    all columns of zeros and ones are, those with a word for an outcome first, and then numbers named as amounts.

    Args:
        file: the table.
        columns: columns by role.
        logged: True if the file seems to have propensities; without them and without usual names there is no candidate.
    """
    import pyarrow as pa

    candidates = columns.unclear.get("reward", ())
    if not candidates and not logged:
        return ()
    binary = []
    amounts = []
    for name, values in file.head().items():
        numbers, _, bad = text_numbers(pa.array([str(value) for value in values], pa.string()))
        if name in columns.names.values() or bad.any():
            continue
        if set(numbers[~np.isnan(numbers)]) == {0.0, 1.0}:
            binary.append(name)
        elif are_amounts(name):
            amounts.append(name)
    if candidates:
        return tuple(sorted(candidates, key=lambda name: name not in binary))
    likely = likely_columns("reward", file.names)
    return (*sorted(binary, key=lambda name: name not in likely), *amounts)


@dataclass(frozen=True)
class Unnamed:
    """Columns without a role, to guess their use from names and values.

    Attributes:
        rows: the recommendations; faults in them are ignored.
        columns: columns with a role.
        targets: columns of target policies.
        others: columns without a role.
        decimal: decimal mark of the file's numbers.
        items: by column of ``others`` that holds items, the way in which it does (ALIKE or IN_CAPITALS).
        of_slates: True if rows are of slates, whose propensities are not tested here.
    """

    rows: Rows
    columns: Columns
    targets: Sequence[str]
    others: Sequence[str]
    decimal: Decimal
    items: Mapping[str, str] = field(default_factory=dict)
    of_slates: bool = False

    def guesses(self) -> dict[str, str]:
        """Return by role the likeliest column of ambiguous roles, and of the user if that has no column.

        If the rows disprove all candidates for the propensities, the file has none (NONE).
        A column of users has a likely name and the most different values, if each occurs twice on average.
        """
        guesses: dict[str, str] = {}
        for role in _GUESSES:
            names = [name for name in self.columns.unclear.get(role, ()) if name not in guesses.values()]
            if role == "propensity":
                names.sort(key=lambda name: (self.contradictions.get(name, 1), not of_what_was_shown(name)))
                if self._all_disproved:
                    names = [NONE]
            if names:
                guesses[role] = names[0]
        if "user" not in {*self.columns.names, *guesses, *self.columns.without} and len(self.rows):
            most = 0
            for name in likely_columns("user", self.others):
                if name not in guesses.values():
                    number = self.rows.ids(name).number
                    if max(_LEAST_USERS, most + 1) <= number <= len(self.rows) / 2:
                        guesses["user"] = name
                        most = number
        return guesses

    @cached_property
    def contradictions(self) -> dict[str, int]:
        """By candidate for the propensities, a score of what the rows say against it; 0 for nothing.

        Of candidates with the least score by :meth:`_contradiction`, the mean weight of another one is 1 at most.
        """
        candidates: dict[str, Floats] = {}
        if not self.of_slates:
            for name in self.columns.unclear.get("propensity", ()):
                values = self.rows.column(name).slice(0, _LOOKED_AT).drop_null().to_pylist()
                if _are_shares(values, self.decimal) and len(candidates) < _MOST_TESTED:
                    candidates[name] = self.rows.numbers(name)
        scores = {name: self._contradiction(values) for name, values in candidates.items()}
        least = [name for name, score in scores.items() if score == min(scores.values())][:_MOST_COMPARED]
        user = self._codes.get("user")
        for name in least:
            others = [candidates[other] for other in least if other != name]
            weights = [mean_weight(candidates[name], values, user) for values in others]
            scores[name] += any(weight is not None and weight.low > 1.0 for weight in weights)
        return scores

    @property
    def _all_disproved(self) -> bool:
        """True if the rows disprove all candidates for the propensities."""
        scores = self.contradictions.values()
        n_candidates = len(self.columns.unclear.get("propensity", ()))
        return n_candidates == len(scores) > 0 and min(scores) >= _DISPROVED

    def _contradiction(self, propensity: Floats) -> int:
        """Return what the rows say against a candidate (n,) by itself.

        The mean of 1 / propensity by item is 1 at most: otherwise the candidate is disproved. Less is said by the mean
        weight of a policy that shows all items equally often, which is 1 if every row could show each of them.
        """
        user = self._codes.get("user")
        action = self._codes.get("action")
        if action is None:
            return 0
        n_actions = len(np.unique(action[action >= 0]))
        equal = mean_weight(propensity, np.full(len(propensity), 1.0 / max(n_actions, 1)), user)
        score = 2 * int(equal is not None and not equal.holds)
        good = (propensity > 0.0) & (propensity <= 1.0) & (action >= 0)
        if user is not None:
            good &= user >= 0
            user = user[good]
        if good.any() and ItemSums.of(action[good], propensity[good], user).findings():
            score += _DISPROVED
        return score

    def on_candidates(self, guess: str) -> dict[str, str]:
        """Return parameters of the text on an ambiguous propensity: which columns the rows contradict.

        Args:
            guess: the column that is guessed.
        """
        scores = self.contradictions
        which = say_which("propensity")
        if self._all_disproved:
            return {"do": "disproved", "which": which, "column": " and ".join(scores)}
        worse = [name for name, score in scores.items() if score > scores.get(guess, 1)]
        if worse:
            return {"do": "likelier", "which": which, "column": guess, "others": " and ".join(worse)}
        if len(scores) > 1:
            return {"do": "alike", "which": which, "column": guess}
        return {"which": which}

    def context(self, segments: Sequence[str]) -> list[str]:
        """Choose columns within whose values the propensities of a log without them can be estimated.

        Args:
            segments: candidates; the first ones are taken as long as all items have rows with all of their values.
        """
        action = self._codes.get("action")
        names: list[str] = []
        if action is None or "propensity" in self.columns:
            return names
        cells = len(np.unique(action))
        for name in segments:
            number = self.rows.ids(name).number
            if cells * number * _ROWS_OF_A_CELL <= len(self.rows):
                cells *= number
                names.append(name)
        return names

    def segments(self) -> tuple[list[str], list[Problem]]:
        """Find columns by which estimates can be split: texts of few values, independent of what was recommended.

        Returns:
            names: names of the columns.
            remarks: notes on values that differ only in capitals.
        """
        names = []
        remarks = []
        unclear = {name for candidates in self.columns.unclear.values() for name in candidates}
        for name in self.others:
            if name in unclear or name in self.items or not len(self.rows) or not is_text(self.rows.column(name).type):
                continue
            values = self.rows.ids(name)
            few_words = values.ids.dtype.kind == "O" and 2 <= values.number <= _MOST_SEGMENTS
            # Decimal commas make texts of probabilities.
            if not few_words or _are_shares(list(values.ids), self.decimal) or self._depends(name, values):
                continue
            names.append(name)
            counts = dict(zip(values.ids, np.bincount(values.codes[values.codes >= 0]).tolist(), strict=True))
            groups = [sorted(group, key=lambda word: (-counts[word], word)) for group in spelled_alike(values.ids)]
            if groups:
                groups.sort(key=lambda group: -counts[group[0]])
                pairs = ", ".join(map(" and ".join, groups))
                share = sum(counts[word] for group in groups for word in group[1:]) / len(self.rows)
                remarks.append(Problem.of("spelled_alike", NOTE, name, pairs=pairs, percent=100 * share))
        return names, remarks

    def items_of_policies(self) -> list[Problem]:
        """Report columns of the items that a policy would have shown, unless they repeat the item shown."""
        if not (self.items and len(self.rows)):
            return []
        action = self.rows.ids(self.columns["action"])
        names = [name for name in self.items if not same_items(self.rows.ids(name), action, fold=True).all()]
        names = new_policies(names, items=True) or names
        if not names:
            return []
        target = ",".join(names)
        if any(self.items[name] == IN_CAPITALS for name in names):
            target += " --fold-case"
        case = {"says": "several", "do": "several"} if len(names) > 1 else {}
        return [Problem.of(HOLDS_ITEMS, NOTE, *names, listed=", ".join(names), target=target, **case)]

    def _depends(self, name: str, values: Ids) -> bool:
        """Return whether a column depends on what was recommended, so that `estimate --by` would refuse it.

        Without propensities, a column does that has one value for each item, or one reward for each value.
        """
        weights = self._weights
        if weights is None:
            pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
            if "action" in self._codes:
                pairs.append((self._codes["action"], values.codes))
            if "reward" in self.columns:
                pairs.append((values.codes, self._numbers("reward")))
            return any(_tells(one, other) for one, other in pairs)
        try:
            weights.refuse(Segments.of(name, values.codes[self._good], values.ids))
        except UserError:
            return True
        return False

    def _numbers(self, role: str) -> Floats:
        """Return the numbers (n,) in the column of a role."""
        return self.rows.numbers(self.columns[role])

    @cached_property
    def _codes(self) -> dict[str, NDArray[np.int64]]:
        """By role the users and actions (n,), if the file has them."""
        return {role: self.rows.ids(self.columns[role]).codes for role in ("user", "action") if role in self.columns}

    @cached_property
    def _good(self) -> NDArray[np.int64]:
        """Indices of the rows whose reward, propensity, targets, user and action are present and possible."""
        good = np.ones(len(self.rows), np.bool_)
        if "reward" in self.columns:
            good &= np.isfinite(self._numbers("reward"))
        if "propensity" in self.columns:
            propensity = self._numbers("propensity")
            good &= (propensity > 0.0) & (propensity <= 1.0)
        for name in self.targets:
            good &= np.isfinite(self.rows.numbers(name))
        for codes in self._codes.values():
            good &= codes >= 0
        return np.flatnonzero(good)

    @cached_property
    def _weights(self) -> SegmentTest | None:
        """The test of columns of segments; None without rewards or propensities."""
        good = self._good
        if not {"reward", "propensity"} <= set(self.columns.names) or not good.size:
            return None
        codes = {role: codes[good] for role, codes in self._codes.items()}
        return SegmentTest(
            self._numbers("reward")[good],
            self._numbers("propensity")[good],
            Clusters.of(codes.get("user"), good.size),
            {name: self.rows.numbers(name)[good] for name in self.targets},
            {},
            codes.get("action"),
            Facts(),
        )

    def maybe_targets(self, user: NDArray[np.int64] | None) -> list[Problem]:
        """Return a note on columns that look like a policy's probabilities of the logged action; empty without any.

        These are columns whose mean weight can be 1 or, if there are none or no propensities, columns with more than
        two different shares.

        Args:
            user: (n,) numbers of users, -1 where missing; None if rows are independent.
        """
        rows = self.rows
        shares = {}
        for name in self.others:
            if name and name not in self.columns.unclear.get("reward", ()):
                values = rows.column(name).slice(0, _LOOKED_AT).drop_null().to_pylist()
                if _are_shares(values, self.decimal):
                    shares[name] = rows.numbers(name)
        names = []
        if "propensity" in self.columns:
            propensity = self._numbers("propensity")
            for name, values in shares.items():
                weight = mean_weight(propensity, values, user, policy=name)
                if weight is not None and weight.holds:
                    names.append(name)
        names = names or [name for name, values in shares.items() if len(np.unique(values[:_LOOKED_AT])) > _TWO]
        if not names:
            return []
        case = {"says": "several"} if len(names) > 1 else {}
        examples = ", ".join(map(repr, names))
        return [Problem.of("maybe_target", NOTE, *names, listed=examples, target=",".join(names), **case)]


def _tells(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether each value (n,) of one column comes with one value (n,) of another column only."""
    first, second = (np.unique(values, return_inverse=True)[1].reshape(-1) for values in (one, other))
    pairs = np.unique(first * (int(second.max(initial=0)) + 1) + second)
    return len(pairs) == len(np.unique(first))


@dataclass(frozen=True)
class SlateFacts:
    """Contents of a file of slates.

    Attributes:
        form: "one row per position" or "one row per slate".
        slates: number of slates; None if they could not be read.
        least: number of items of the smallest slate; None if slates could not be read.
        most: number of items of the largest slate; None if slates could not be read.
        propensities_of: by column, the kind of its probabilities.
        columns: columns of slates and positions by role; empty if a row is a slate.
        options: command-line options to read the file like this.
        lines: notes for a person on how the file was read.
    """

    form: str
    slates: int | None = None
    least: int | None = None
    most: int | None = None
    propensities_of: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class KnownSlates:
    """A file of slates and its contents.

    Attributes:
        file: the file.
        columns: column by role, named or recognised.
        recognised: roles that the user did not name.
        main: kind of the propensities; "" if it is not known.
        facts: the contents.
    """

    file: SlateFile
    columns: dict[str, str | None]
    recognised: frozenset[str]
    main: str
    facts: SlateFacts


def slates_of_file(file: TableFile, asked: Asked) -> tuple[KnownSlates | None, list[Problem]]:
    """Read a file of slates.

    Returns:
        slates: the file and its contents; None for a file of single items.
        problems: problems of the slates.
    """
    slate_file = find_slates(file, asked.columns, endings_of(asked.targets, file.names))
    if slate_file is None:
        return None, []
    options: list[str] = []
    for role in ("slate", "position"):
        name = asked.columns.get(role)
        if name is not None:
            options += [f"--{role}-column", name]
    if asked.propensities_of is not None:
        options += ["--propensities-of", asked.propensities_of]
    of_slates = {role: slate_file.columns[role] for role in ("slate", "position") if not slate_file.per_slate}
    facts = SlateFacts(slate_file.form, columns=of_slates, options=options, lines=[slate_file.form])
    names = {}
    if slate_file.per_slate:
        names["action"] = slate_file.columns["action"]
    log, problems = _read(slate_file, asked)
    if log is not None:
        slates = log.slates
        by_role = log.log.columns.names
        names |= {role: by_role[role] for role in ("user", "propensity", "reward") if role in by_role}
        least = int(slates.sizes.min())
        most = int(slates.sizes.max())
        sizes = "several sizes" if least < most else f"{most} items"
        lines = log.lines if slates.size else [f"{slate_file.form}: {slates.number:,} slates of {sizes}"]
        facts = replace(
            facts,
            slates=slates.number,
            least=least,
            most=most,
            propensities_of={name: kind for kind, name in log.kinds.items()},
            lines=lines,
        )
    columns = but_for_slates(asked.columns)
    recognised = frozenset(role for role in names if columns.get(role) is None)
    columns |= {role: names[role] for role in recognised}
    return KnownSlates(slate_file, columns, recognised, "" if log is None else log.main, facts), problems


def _read(slate_file: SlateFile, asked: Asked) -> tuple[SlateLog | None, list[Problem]]:
    """Read the slates without faulty rows.

    Returns:
        log: the slates; None if they cannot be read, or no row is left.
        problems: problems of the slates or, without ``log``, the reason for that.
    """
    named = {role: name for role, name in asked.columns.items() if role != "item"}
    reading = Reading(named, drop_missing=True, drop_invalid=1.0, propensities_of=asked.propensities_of)
    targets = [name for name in asked.targets if endings_of([name], slate_file.file.names)]
    try:
        log = read_slates(slate_file, reading, targets)
    except UserError:
        try:  # the faults, now that no row is left without them
            read_slates(slate_file, replace(reading, drop_missing=False, drop_invalid=None))
        except UserError as error:
            message = str(error).removeprefix(f"{slate_file.file.path}: ")
            return None, [Problem("slates_not_read", PROBLEM, message)]
        return None, []
    problems = []
    both = (slate_file.columns["slate"], slate_file.columns["position"])
    missing = {name: log.log.counts[f"lacks:{name}"] for name in both}
    examples = ", ".join(f"{name} {n:,}" for name, n in missing.items() if n)
    if examples:
        problems.append(Problem.of("missing", PROBLEM, *both, listed=examples, drop=DROP))
    problems += log.slates.problems
    if not log.main and log.slates.size:
        problems.append(Problem("unclear_propensities", PROBLEM, *log.unclear, ("propensity",)))
    return log, problems
