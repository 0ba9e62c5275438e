"""Segments of a log: the rows by a column's values, and whether the column was fixed before the recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, printable
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.sampling import mean_weight_limits
from recsim_mnar.estimators.off_policy.stated import LOOSE, Stated
from recsim_mnar.estimators.off_policy.written import Record, baseline_of, target_of
from recsim_mnar.estimators.verdict import LEVELS
from recsim_mnar.log.columns import Clusters, Floats, Ints

MOST = 100
"""Segments that are estimated at most."""
FIXED = 0.99
"""Level of the limits of all mean weights together that refuse a column: by chance, one fixed column in 200 at most."""
CERTAIN = 20
"""Users of a segment from which it is no chance that all its rows have what at most half of the log's rows have."""
THIN = 30
"""Users below which a segment has no interval: at the level that many intervals share, it would miss too often."""
NO_VALUE = "no value"
ADVICE = "Name a column that was known before, such as country or device"


@dataclass(frozen=True)
class Segments:
    """Rows by the values of a column, those of most rows first and those without a value last.

    Attributes:
        column: its name.
        names: the values; None for the rows without one.
        rows: by segment, its rows in ascending order.
    """

    column: str
    names: tuple[str | None, ...]
    rows: tuple[Ints, ...]

    @staticmethod
    def of(column: str, codes: Ints, values: Any) -> Segments:
        """Segments of rows.

        Args:
            column: its name.
            codes: (n,) which of the values each row has; -1 for none.
            values: all of them.

        Raises:
            UserError: more than :data:`MOST` segments.
        """
        used, sizes = np.unique(codes, return_counts=True)
        if used.size > MOST:
            raise UserError(
                f"--by {column}: it has {used.size:,} values, and at most {MOST} segments can be estimated at once. "
                "Write the rare ones as one value (other), or numbers as ranges; ids of users are no segments"
            )
        order, ends = np.argsort(codes, kind="stable"), np.cumsum(sizes)
        found = {int(code): order[end - size : end] for code, size, end in zip(used, sizes, ends, strict=True)}
        listed = sorted(found, key=lambda code: (code < 0, -found[code].size, code))
        names = tuple(None if code < 0 else str(values[code]) for code in listed)
        return Segments(column, names, tuple(found[code] for code in listed))

    def where(self, value: str | None) -> str:
        """A segment, in a sentence."""
        return f"where {self.column} is {value}" if value is not None else f"where {self.column} has no value"

    def __iter__(self) -> Iterator[tuple[str | None, Ints]]:
        return iter(zip(self.names, self.rows, strict=True))


def users_of(clusters: Clusters | None, rows: Ints) -> Clusters | None:
    """The users of some rows."""
    return None if clusters is None else Clusters.of(clusters.codes[rows], rows.size)


@dataclass(frozen=True)
class Weights:
    """What says whether a column was fixed before the recommendation: E[w | segment] = 1 then, of any policy.

    Where the log lacks support it is less, so that below 1 is a proof only where support and a bound of the weights are
    stated.

    Attributes:
        reward: (n,).
        propensity: (n,).
        users: of the rows, or None.
        targets: by policy, (n,) its probability of the logged action.
        missing: by policy, (n,) its mass where the logging probability is 0.
        action: (n,) numbers of the items shown, from 0; None where they are not known.
        stated: what is known of the log.
    """

    reward: Floats
    propensity: Floats
    users: Clusters | None
    targets: Mapping[str, Floats]
    missing: Mapping[str, Floats]
    action: Ints | None
    stated: Stated

    def refuse(self, segments: Segments) -> None:
        """Refuse a column that depends on what was recommended.

        By each policy's weights; and, where the items shown are known, by those of a policy that shows the items a
        segment has too many of: found on half of the users, and tested on the others. What the whole log's weights fail
        is the propensities' fault and not the column's, so it is passed over: the verdicts say it.

        Raises:
            UserError: a mean weight is proved not to be 1; all segments, policies and items together at :data:`FIXED`.
                Or the column says what the reward is.
        """
        self._refuse_outcomes(segments)
        level = 1.0 - (1.0 - FIXED) / (len(segments.names) * (len(self.targets) + 2))
        everything = np.arange(self.propensity.size)
        sound = [name for name in self.targets if not self._by_policy(name, everything, level)]
        items = self.action is not None and not self._by_items(everything, level)
        for value, rows in segments:
            named = [f"the mean weight of {name} is {{:.3g}}" for name in sound]
            found = [self._by_policy(name, rows, level) for name in sound]
            if items:
                named.append("the items shown there have a mean weight of {:.3g}")
                found.append(self._by_items(rows, level))
            for words, mean in zip(named, found, strict=True):
                if mean is not None:
                    raise UserError(printable(
                        f"--by {segments.column}: {segments.where(value)} {words.format(mean)} and should be 1, so the "
                        f"column depends on what was recommended (or the propensities there are wrong). {ADVICE}"
                    ))  # fmt: skip

    def _refuse_outcomes(self, segments: Segments) -> None:
        """Refuse a column with a segment all of whose rows are rewarded, or none where most are."""
        rewarded = self.reward > self.reward.min()
        usual = bool(rewarded.mean() > 0.5)
        for value, rows in segments:
            users = rows if self.users is None else np.unique(self.users.codes[rows])
            if users.size >= CERTAIN and np.all(rewarded[rows] != usual):
                what = "none of the {:,} rows is" if usual else "all {:,} rows are"
                raise UserError(printable(
                    f"--by {segments.column}: {segments.where(value)} {what.format(rows.size)} rewarded, so the column "
                    f"depends on what came of the recommendation. {ADVICE}"
                ))  # fmt: skip

    def _by_policy(self, name: str, rows: Ints, level: float) -> float | None:
        missing = self.missing.get(name)
        lost = 0.0 if missing is None else float(np.mean(missing[rows]))
        return self._off(self.targets[name][rows], rows, level, lost, self.stated)

    def _by_items(self, rows: Ints, level: float) -> float | None:
        """The mean weight, proved to be above 1, of a policy made of half of the users, on the other half."""
        assert self.action is not None
        half = np.arange(rows.size) if self.users is None else self.users.dense()[0][rows]
        for first in (0, 1):
            law = _too_many(self.action[rows[half % 2 == first]], self.propensity[rows[half % 2 == first]])
            others = rows[half % 2 != first]
            if law.any() and others.size:
                target = np.append(law, np.zeros(self.action.max() + 1 - law.size))[self.action[others]]
                mean = self._off(target, others, level, 0.0, Stated())
                if mean is not None:
                    return mean
        return None

    def _off(self, target: Floats, rows: Ints, level: float, lost: float, stated: Stated) -> float | None:
        """The mean weight on some rows, where it is proved to be none of a column that was fixed before."""
        moments = Moments.of(np.zeros(rows.size), self.propensity[rows], target, cluster=users_of(self.users, rows))
        low, high = mean_weight_limits(moments, stated, level)
        below = stated.supports and stated.largest_weight is not None and high + lost < 1.0
        return moments.sum("w") / rows.size if low + lost > 1.0 or below else None


def _too_many(action: Ints, propensity: Floats) -> Floats:
    """A law on the items whose mean of 1 / propensity is above 1, each by its excess over its variance; 0 if none."""
    weight = 1.0 / propensity
    mean, square = np.bincount(action, weight), np.bincount(action, weight**2)
    law = np.maximum(mean - action.size, 0.0) / np.maximum(square, 1e-300)
    return law / law.sum() if law.any() else law


def segment_label(record: Record) -> str:
    """Reader's name of a record's segment."""
    return NO_VALUE if record["segment"] is None else str(record["segment"])


def segment_title(records: Sequence[Record]) -> str:
    """What holds of the intervals of some segments."""
    first = records[0]
    n, of_all = len({record["segment"] for record in records}), f"{100 * first['level_of_all']:g} %"
    return f"By {first['by']}: {n} segments; all {first['intervals']} intervals hold at once with {of_all}"


def segment_lines(records: Sequence[Record]) -> list[str]:
    """What the records of segments come to, for a person: one line per difference, or one where there is none."""
    if not records:
        return []
    first = records[0]
    n, column = len({record["segment"] for record in records}), first["by"]
    lines = []
    for policy in dict.fromkeys(record["policy"] for record in records if "baseline" in record):
        of_it = [record for record in records if record["policy"] == policy]
        target, other = target_of(of_it[0]), baseline_of(of_it[0])
        found: dict[str, list[str]] = {way: [] for way in ("earns less", "looks worse")}
        for record in of_it:
            found.setdefault(_said(record), []).append(segment_label(record))
        rest = found.pop("", [])
        words = [f"{target} {way} than {other} in {', '.join(which)}" for way, which in found.items() if which]
        if rest:
            words.append(f"cannot tell: {', '.join(rest) if len(rest) < n else f'all {n} segments'}")
        lines.append(f"By {column}: {'; '.join(words)}.")
    return lines or [f"By {column}: {n} segments; --baseline today adds each one's difference from today's policy."]


def loose_segments(records: Sequence[Record]) -> list[str]:
    """A line on the segments whose intervals a stated bound widens, where there are any."""
    loose = {segment_label(r): each for r in records for each in r["findings"] if each["code"] == LOOSE}
    each = next(iter(loose.values()), None)
    return [f"{', '.join(loose)}: {each['message']}. {each['action'].capitalize()}."] if each is not None else []


def segment_summary(whole: Record, records: Sequence[Record]) -> dict[str, Any]:
    """By the key ``segments`` of a leading difference the names of the segments in which it is what; else nothing.

    Args:
        whole: the record of all rows.
        records: those of the segments.
    """
    of_it = [r for r in records if r["policy"] == whole["policy"]]
    if not (of_it and whole["leads"] and "baseline" in whole):
        return {}
    found: dict[str, Any] = {"by": of_it[0]["by"], "worse": [], "better": [], "cannot_tell": [], "do_not_use": []}
    for record in of_it:
        way = {"": "cannot_tell", "earns less": "worse", "looks worse": "worse"}.get(_said(record), "better")
        found["do_not_use" if record["verdict_level"] == "do_not_use" else way].append(segment_label(record))
    return {"segments": found}


def _said(record: Record) -> str:
    """What the record of a difference says; "" where it says nothing."""
    sure, low, high = record["verdict_level"], record["low"], record["high"]
    if sure == "do_not_use" or low <= 0.0 <= high:
        return ""
    words = ("earns more", "earns less") if sure == "trust" else ("looks better", "looks worse")
    return words[0] if low > 0.0 else words[1]


def segment_reasons(records: Sequence[Record]) -> list[str]:
    """The reasons to doubt segments, the gravest first: one line per reason, with the segments that it is about."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for record in records:
        for each in record["findings"]:
            if each["level"] == record["verdict_level"] != "trust":
                found.setdefault((each["level"], each["code"]), {}).setdefault(segment_label(record), each)
    lines = []
    for (level, _), of in sorted(found.items(), key=lambda item: -LEVELS.index(item[0][0])):
        name, each = next(iter(of.items()))
        example = "" if len(of) == 1 else f" (in {name})"
        lines.append(f"{level.replace('_', ' ')} ({', '.join(of)}): {each['message']}{example}.")
    return lines
