"""Group the rows of a log into segments, test that a column was fixed before the recommendation, and describe segments.

Segments group the rows by a column whose values were fixed before the recommendation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.answers.sentence import Record, baseline_of, label, subject, target_of
from recsim_mnar.errors import UserError, printable
from recsim_mnar.estimators.checks import mean_weight_limits
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.intervals import gamma_limits, small_sample_factor
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import LEVEL_WORDS, LEVELS, written
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats, Ints

MOST = 100
"""Largest number of segments that are estimated."""
FIXED = 0.99
"""Joint two-sided level of the tests of mean weights that refuse a column: at most one in 200 columns that were fixed
before the recommendation is refused by chance."""
CERTAIN = 20
"""Number of users of a segment from which it is no chance that all its rows have a reward while most rows of the log
have none, or the opposite."""
THIN = 30
"""Number of users below which a segment has no interval: at the high level that joint intervals need, it would miss too
often."""
NOT_FIXED, TOO_MANY = "segment_not_fixed", "too_many_segments"
"""Codes of reasons to refuse a column."""


class RefusedColumnError(UserError):
    """Raised for a column that cannot define segments; estimates of all rows do not depend on it.

    Attributes:
        column: name of the column.
        code: reason, :data:`NOT_FIXED` or :data:`TOO_MANY`.
    """

    def __init__(self, message: str, column: str = "", code: str = NOT_FIXED) -> None:
        super().__init__(message, code=code)
        self.column = column

    @staticmethod
    def of(column: str, code: str = NOT_FIXED, **params: Any) -> RefusedColumnError:
        """Create the error with the text of ``findings.toml``; ``params`` are parameters of that text."""
        return RefusedColumnError(printable(f"--by {column}: {written(code, 'says', params)}"), column, code)

    def to_dict(self) -> Mapping[str, object]:
        """Convert to JSON types."""
        return {"by": self.column, "code": self.code, "message": str(self)}


@dataclass(frozen=True)
class Segments:
    """Rows grouped by the values of a column, the largest group first and rows without a value last.

    Attributes:
        column: name of the column.
        names: value of the column in each segment; None for the segment of rows without a value.
        rows: numbers of each segment's rows, in ascending order.
    """

    column: str
    names: tuple[str | None, ...]
    rows: tuple[Ints, ...]

    @staticmethod
    def of(column: str, codes: Ints, values: Any) -> Segments:
        """Group rows into segments.

        Args:
            column: name of the column.
            codes: (n,) index of each row's value in ``values``; -1 for rows without a value.
            values: distinct values of the column.

        Raises:
            RefusedColumnError: more than :data:`MOST` segments.
        """
        used, sizes = np.unique(codes, return_counts=True)
        if used.size > MOST:
            raise RefusedColumnError.of(column, TOO_MANY, number=used.size, most=MOST)
        # A stable sort by code puts the rows of each segment next to each other, in ascending order.
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(sizes)
        rows_of = {int(code): order[end - size : end] for code, size, end in zip(used, sizes, ends, strict=True)}
        # Code -1, of rows without a value, is last; ties in size are broken by code.
        by_size = sorted(rows_of, key=lambda code: (code < 0, -rows_of[code].size, code))
        names = tuple(None if code < 0 else str(values[code]) for code in by_size)
        return Segments(column, names, tuple(rows_of[code] for code in by_size))

    def where(self, value: str | None) -> str:
        """Describe a segment within a sentence."""
        if value is not None:
            return f"where {self.column} is {value}"
        return f"where {self.column} has no value"

    def __iter__(self) -> Iterator[tuple[str | None, Ints]]:
        """Iterate over pairs of a segment's value and the numbers of its rows."""
        return iter(zip(self.names, self.rows, strict=True))


@dataclass(frozen=True)
class SegmentTest:
    """Test whether a column of segments was fixed before the recommendation, by mean weights within segments.

    If it was, E[w | segment] is 1 for any policy. Without support the mean is smaller, so a mean below 1 counts as a
    proof only if the user states support and a bound of the weights.

    Attributes:
        reward: (n,) rewards.
        propensity: (n,) propensities.
        users: user of each row; None if rows are independent.
        targets: (n,) each policy's probability of the logged action, by policy.
        missing: (n,) each policy's probability of actions whose logging probability is 0, by policy, if it is known.
        action: (n,) numbers of the items shown, from 0; None if they are not known.
        facts: facts about the log that the user states.
    """

    reward: Floats
    propensity: Floats
    users: Clusters | None
    targets: Mapping[str, Floats]
    missing: Mapping[str, Floats]
    action: Ints | None
    facts: Facts

    def refuse(self, segments: Segments) -> None:
        """Refuse a column of segments that depends on what was recommended.

        The test uses each policy's weights and, if the items shown are known, those of a policy that shows the items
        that are too frequent in a segment. That policy is chosen on half of the users and tested on the other half.
        Policies whose mean weight is wrong in the whole log are left out: their propensities are wrong, which verdicts
        report.

        Raises:
            RefusedColumnError: a mean weight is proved not to be 1, at the joint level :data:`FIXED` for all segments,
                policies and items; or a segment determines the reward.
        """
        self._refuse_outcomes(segments)
        # Each segment has one test per policy, and two of items, one for each half of the users.
        level = 1.0 - (1.0 - FIXED) / (len(segments.names) * (len(self.targets) + 2))
        all_rows = np.arange(self.propensity.size)
        sound = [name for name in self.targets if not self._wrong_mean_of_policy(name, all_rows, level)]
        test_items = self.action is not None and not self._wrong_mean_of_items(all_rows, level)
        for value, rows in segments:
            descriptions = [f"the mean weight of {name} is" for name in sound]
            wrong_means = [self._wrong_mean_of_policy(name, rows, level) for name in sound]  # None: not proved wrong
            if test_items:
                descriptions.append("the items shown there have a mean weight of")
                wrong_means.append(self._wrong_mean_of_items(rows, level))
            for words, mean in zip(descriptions, wrong_means, strict=True):
                if mean is not None:
                    mean_text, expected_text = told_apart(mean, 1.0)
                    params = {"where": segments.where(value), "what": words, "said": mean_text, "wanted": expected_text}
                    raise RefusedColumnError.of(segments.column, says="weights", **params)

    def _refuse_outcomes(self, segments: Segments) -> None:
        """Refuse a column that is made from rewards, which a segment whose rows all differ from most rows shows.

        Raises:
            RefusedColumnError: a segment of :data:`CERTAIN` users in which all rows are rewarded while most rows of the
                log are not, or none while most are.
        """
        rewarded = self.reward > self.reward.min()
        most_are_rewarded = bool(rewarded.mean() > 0.5)
        for value, rows in segments:
            users = rows
            if self.users is not None:
                users = np.unique(self.users.codes[rows])
            if users.size >= CERTAIN and np.all(rewarded[rows] != most_are_rewarded):
                if most_are_rewarded:
                    what = f"none of the {rows.size:,} rows is"
                else:
                    what = f"all {rows.size:,} rows are"
                raise RefusedColumnError.of(segments.column, says="rewards", where=segments.where(value), what=what)

    def _wrong_mean_of_policy(self, name: str, rows: Ints, level: float) -> float | None:
        """Return a policy's mean weight on some rows if it is proved wrong, else None."""
        missing = self.missing.get(name)
        missing_mass = 0.0
        if missing is not None:
            missing_mass = float(np.mean(missing[rows]))
        weights = self.targets[name] / self.propensity
        return self._wrong_mean(self.targets[name][rows], rows, level, missing_mass, self.facts, weights)

    def _wrong_mean_of_items(self, rows: Ints, level: float) -> float | None:
        """Test a policy that shows the items that are too frequent in half of the users, on the other half.

        Both halves take both roles.

        Returns:
            The mean weight of the first policy for which it is proved to be above 1, else None.
        """
        assert self.action is not None
        if self.users is None:
            user = np.arange(rows.size)  # each row counts as a user
        else:
            user = self.users.dense()[0][rows]
        for half in (0, 1):
            fitted = rows[user % 2 == half]
            tested = rows[user % 2 != half]
            probabilities = _too_frequent_items(self.action[fitted], self.propensity[fitted])
            if probabilities.any() and tested.size:
                # Items with larger numbers are in the other half only, and the policy never shows them.
                unseen = np.zeros(self.action.max() + 1 - probabilities.size)
                target = np.append(probabilities, unseen)[self.action[tested]]
                mean = self._wrong_mean(target, tested, level, missing_mass=0.0, facts=Facts())
                if mean is not None:
                    return mean
        return None

    def _wrong_mean(
        self,
        target: Floats,
        rows: Ints,
        level: float,
        missing_mass: float,
        facts: Facts,
        weights_in_log: Floats | None = None,
    ) -> float | None:
        """Return a policy's mean weight on some rows if it is proved to differ from 1 - missing_mass, else None.

        Args:
            target: (m,) the policy's probabilities of the logged actions.
            rows: (m,) numbers of the rows.
            level: two-sided level of the proof.
            missing_mass: mean probability of actions that the log never takes.
            facts: stated facts; a mean that is too small counts only if they include support.
            weights_in_log: (n,) the policy's weights in the whole log, needed if a mean that is too small counts.
        """
        cluster = None
        if self.users is not None:
            cluster = self.users.at(rows)
        sums = PolicySums.of(self.propensity[rows], target, cluster)
        # A segment may have a handful of users, at a level far in the tail.
        low, high = mean_weight_limits(sums, level, degrees=sums.users - 1.0)
        if facts.supports and high < 1.0 and weights_in_log is not None:
            # The mean may be small because the heaviest weights are not among the segment's few rows.
            variance = sums.mean_weight_error**2 * small_sample_factor(sums.users, level)
            heaviest = float(np.max(weights_in_log)) / rows.size
            high = max(high, gamma_limits(sums.mean_weight, variance, heaviest, level)[1])
        # Without support the log may lack actions of the target, and then a mean below 1 is no error.
        too_small = facts.supports and high + missing_mass < 1.0
        if low + missing_mass > 1.0 or too_small:
            return sums.mean_weight
        return None


def _too_frequent_items(action: Ints, propensity: Floats) -> Floats:
    """Return the item probabilities of a policy that shows the items logged more often than their propensities say.

    For a right propensity the mean over rows of 1{item} / propensity is at most 1. An item's probability is
    proportional to its excess over 1 divided by its variance, which gives the test of the mean weight much power.

    Args:
        action: (n,) numbers of the items shown.
        propensity: (n,) their propensities.

    Returns:
        (largest item number + 1,) probabilities; zeros if no item has an excess.
    """
    weight = 1.0 / propensity
    total = np.bincount(action, weight)
    squares = np.bincount(action, weight**2)
    probabilities = np.maximum(total - action.size, 0.0) / np.maximum(squares, 1e-300)  # 1e-300 avoids 0 / 0
    if probabilities.any():
        return probabilities / probabilities.sum()
    return probabilities


NO_VALUE = "no value"


def segment_label(record: Record) -> str:
    """Return the name of a record's segment for readers."""
    if record["segment"] is None:
        return NO_VALUE
    return str(record["segment"])


def segment_title(records: Sequence[Record]) -> str:
    """Describe how many segments there are, and the joint coverage of their intervals."""
    first = records[0]
    n = len({record["segment"] for record in records})
    coverage = f"{100 * first['level_of_all']:g} %"
    return f"By {first['by']}: {n} segments; all {first['intervals']} intervals hold at once with {coverage}"


def segment_lines(records: Sequence[Record]) -> list[str]:
    """Summarise the records of segments in lines of text.

    Returns one line per difference of two policies, naming the segments in which it is positive or negative; or, if
    there is no difference, one line that says how to get one.
    """
    if not records:
        return []
    column = records[0]["by"]
    n = len({record["segment"] for record in records})
    by_difference: dict[tuple[str, str | None], list[Record]] = {}
    for record in records:
        if "baseline" in record:
            by_difference.setdefault(subject(record), []).append(record)
    lines = []
    for group in by_difference.values():
        # Losses are listed first, whatever segment comes first.
        by_direction: dict[str, list[str]] = {"earns less": [], "looks worse": []}
        for record in group:
            by_direction.setdefault(_direction(record), []).append(segment_label(record))
        undecided = by_direction.pop("", [])  # "" is the direction of an interval that includes 0
        target = target_of(group[0])
        than = f"than {baseline_of(group[0])} in"
        clauses = [
            f"{target} {direction} {than} {', '.join(names)}" for direction, names in by_direction.items() if names
        ]
        if len(undecided) == n:
            clauses.append(f"cannot tell: all {n} segments")
        elif undecided:
            clauses.append(f"cannot tell: {', '.join(undecided)}")
        lines.append(f"By {column}: {'; '.join(clauses)}.")
    return lines or [f"By {column}: {n} segments; --baseline today adds each one's difference from today's policy."]


def segment_summary(leader: Record, records: Sequence[Record]) -> dict[str, object]:
    """Return the entry ``segments`` of a leading difference: the segments in which it is positive or negative.

    Args:
        leader: record of all rows.
        records: records of the segments.

    Returns:
        One entry ``segments``, a dict of the column and lists of segment names; an empty dict if ``leader`` is no
        leading difference, or has no segments.
    """
    group = [record for record in records if subject(record) == subject(leader)]
    if not (group and leader["leads"] and "baseline" in leader):
        return {}
    by_outcome: dict[str, list[str]] = {"worse": [], "better": [], "cannot_tell": [], "do_not_use": []}
    for record in group:
        outcome = "cannot_tell"
        if record["verdict_level"] == "do_not_use":
            outcome = "do_not_use"
        elif record["low"] > 0.0:
            outcome = "better"
        elif record["high"] < 0.0:
            outcome = "worse"
        by_outcome[outcome].append(segment_label(record))
    return {"segments": {"by": group[0]["by"], **by_outcome}}


def _direction(record: Record) -> str:
    """Return a verb phrase for the direction of a difference; "" if its interval includes 0 or must not be used."""
    trusted = record["verdict_level"] == "trust"
    if record["verdict_level"] == "do_not_use":
        return ""
    if record["low"] > 0.0:
        return "earns more" if trusted else "looks better"
    if record["high"] < 0.0:
        return "earns less" if trusted else "looks worse"
    return ""


def segment_reasons(records: Sequence[Record]) -> list[str]:
    """List the reasons to doubt segments, the gravest first: one line per reason and policy, with the segments."""
    # The message of each segment, by the level and code of a finding and the policy.
    by_reason: dict[tuple[str, str, str], dict[str, str]] = {}
    for record in records:
        for finding in record["findings"]:
            if finding["level"] == record["verdict_level"] != "trust":
                messages = by_reason.setdefault((finding["level"], finding["code"], label(record)), {})
                messages.setdefault(segment_label(record), finding["message"])
    lines = []
    gravest_first = sorted(by_reason.items(), key=lambda item: -LEVELS.index(item[0][0]))
    for (level, _, policy), messages in gravest_first:
        names = list(messages)
        example = f" (in {names[0]})" if len(names) > 1 else ""
        lines.append(f"{LEVEL_WORDS[level]} ({policy} in {', '.join(names)}): {messages[names[0]]}{example}.")
    return lines
