"""Vowpal Wabbit's decision-service log (DSJSON): one JSON object per line, a decision with its joined outcome.

What the fields mean is read from VW's parser (``parse_example_json.cc``) and from the joiner that writes them
(``log_converter.cc`` of VowpalWabbit/reinforcement_learning).
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

Floats = NDArray[np.float64]
ALPHA = 2e-3
"""Probability of a false alarm over all tests of a log, at most."""
TOLERANCE = 0.01
"""Largest difference from 1 of the sum of a decision's probabilities, as GrowthBook's SDKs allow."""
_BLOCKS = 5
"""Consecutive stretches of the log in which each action is tested on its own: a change in time shows there."""
_BINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Edges between the ranges of probabilities that are tested; 0 and 1 are the outer ones."""
_MOST_CELLS = 200
"""Largest number of tests per grouping: more would weaken every test through the correction for their number."""
_MOST_COMMON = 20
"""Number of actions tested singly, the most often shown ones."""


class Damage(NamedTuple):
    """Fault of a log.

    Attributes:
        code: stable name of the kind of fault.
        size: amount of the fault, such as the share of rows.
        message: evidence, in a sentence.
        advice: remedy, in a sentence.
    """

    code: str
    size: float
    message: str
    advice: str


@dataclass(frozen=True)
class LoggedShares:
    """Logged probabilities of all actions: m entries, one per action of each of n decisions.

    Attributes:
        row: (m,) index of the decision, ascending.
        arm: (m,) index of the action in ``names``.
        p: (m,) probability of the action.
        shown: (m,) True for the action that was shown.
        names: names of the actions.
        groups: (n,) integer codes by the name of a grouping that is fixed before the draw, such as the bandit's
            version or the leaf of the context.
    """

    row: NDArray[np.int64]
    arm: NDArray[np.int64]
    p: Floats
    shown: NDArray[np.bool_]
    names: Sequence[str]
    groups: dict[str, NDArray[np.int64]]

    @staticmethod
    def of(table: Floats, shown: NDArray[np.int64], names: Sequence[str], **groups: NDArray[np.int64]) -> LoggedShares:
        """Build from (n, K) probabilities of the same K actions and the (n,) indices of the shown ones."""
        n, n_arms = table.shape
        row = np.repeat(np.arange(n), n_arms)
        arm = np.tile(np.arange(n_arms), n)
        return LoggedShares(row, arm, table.ravel(), arm == shown[row], names, groups)

    @property
    def n(self) -> int:
        """Number of decisions."""
        if len(self.row) == 0:
            return 0
        return int(self.row[-1]) + 1

    def least(self) -> float | None:
        """Return the smallest probability of any action; None if it is 0."""
        return float(self.p.min(initial=1.0)) or None

    def damages(self) -> list[Damage]:
        """Return the faults of the probabilities that the log itself proves; an empty list if it proves none."""
        sums = self._sum(self.p)
        # ~(<=) rather than >: a sum that is NaN is invalid, too.
        is_invalid = ~(np.abs(sums - 1.0) <= TOLERANCE) | (self._sum(self.p < 0.0) > 0)
        if is_invalid.any():
            n_invalid = is_invalid.sum()
            first = float(sums[np.argmax(is_invalid)])
            message = f"the probabilities of all actions do not sum to 1 in {n_invalid:,} rows (first: {first:.4g})"
            advice = "log the probabilities that were drawn from"
            return [Damage("share_sums", float(is_invalid.mean()), message, advice)]
        return self._worst_rejected_test()

    def _sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum (m,) values over the actions of each decision, (n,)."""
        return np.bincount(self.row, values, self.n)

    def _worst_rejected_test(self) -> list[Damage]:
        """Return the most significant rejected test of the probabilities as a fault; an empty list if none is rejected.

        Each test has a function f(decision, action) that is fixed before the draw. If the logged probabilities are
        right, f(action shown) - E f(action), summed over decisions, is a martingale. With V the sum of the conditional
        variances and b the largest possible term, its absolute value exceeds t with probability at most
        2 exp(-t^2 / (2 V + 2 b t / 3)) (Freedman 1975), however the bandit learns meanwhile. The bound is for V and b
        fixed in advance; those of the log are inserted, so the level is approximate.
        """
        tests = list(self._tests())
        # Bonferroni: 2 exp(-score) < ALPHA / number of tests is the same as score > limit.
        limit = math.log(2.0 * max(len(tests), 1) / ALPHA)
        largest = limit
        evidence = ""
        for template, f in tests:
            centred = f - self._sum(self.p * f)[self.row]
            total = float(centred[self.shown].sum())  # t
            if total == 0.0:
                continue
            variance = float((self.p * centred**2).sum())  # V
            bound = float(np.abs(centred[(self.p > 0.0) | self.shown]).max())  # b
            score = total**2 / (2.0 * (variance + bound * abs(total) / 3.0))
            if score > largest:
                largest = score
                observed = float(f[self.shown].sum())
                expected = float((self.p * f).sum())
                evidence = template.format(_in_words(observed), _in_words(expected))
        if not evidence:
            return []
        message = f"the logged probabilities are proved wrong: {evidence}"
        advice = "log the probabilities of the moment of the decision, one per action in the order of the actions"
        return [Damage("shares_disproved", largest / limit, message, advice)]

    def _tests(self) -> Iterator[tuple[str, Floats]]:
        """Yield the tests.

        Yields:
            template: sentence with places for the observed and the expected sum of f.
            f: (m,) value of the test's function for each decision and action.
        """
        log_probability = np.log(np.maximum(self.p, 1e-4))  # the floor bounds f, and with it the largest term b
        yield "the actions shown have a log probability of {} in all, expected {}", log_probability
        yield "the likeliest action was shown {} times, expected {}", self._is_likeliest().astype(float)
        yield from self._by_probability()
        fifths = np.arange(self.n) * _BLOCKS // max(self.n, 1)
        all_decisions = np.zeros(self.n, np.int64)
        groups = {"": all_decisions, "a fifth of the log": fifths, **self.groups}
        for name, codes in groups.items():
            yield from self._by_action(name, codes)

    def _is_likeliest(self) -> NDArray[np.bool_]:
        """Mark the likeliest action of each decision, (m,) bool; no action where all are equally likely."""
        largest = np.zeros(self.n)
        np.maximum.at(largest, self.row, self.p)
        n_actions = np.bincount(self.row, minlength=self.n).astype(float)
        is_uneven = largest > n_actions**-1 + 1e-9  # the margin is for the rounding of 1 / K
        return (self.p == largest[self.row]) & is_uneven[self.row]

    def _by_probability(self) -> Iterator[tuple[str, Floats]]:
        """Yield a test for each range of probabilities: how often actions with such a probability were shown."""
        bin_of = np.searchsorted(_BINS, self.p)
        edges = (0.0, *_BINS, 1.0)
        for number in np.unique(bin_of):
            low, high = edges[number : number + 2]
            template = f"actions with a probability of {low:g} to {high:g} were shown {{}} times, expected {{}}"
            yield template, (bin_of == number).astype(float)

    def _by_action(self, name: str, codes: NDArray[np.int64]) -> Iterator[tuple[str, Floats]]:
        """Yield a test for each common action in each group of decisions: how often it was shown there.

        If these are more than ``_MOST_CELLS`` tests, none is yielded.

        Args:
            name: name of the grouping, "" for a single group.
            codes: (n,) group of each decision, numbered from 0.
        """
        arms, counts = np.unique(self.arm[self.shown], return_counts=True)
        common = arms[np.argsort(-counts, kind="stable")][:_MOST_COMMON]
        groups = np.unique(codes)
        if len(groups) * len(common) > _MOST_CELLS:
            return
        for group in groups:
            in_group = (codes == group)[self.row]
            where = ""
            if name:
                where = f" in {name} ({group + 1})"
            for arm in common:
                # The sentence is a template: braces in an action's name would be places in it.
                subject = f"action {self.names[arm]}{where}".replace("{", "(").replace("}", ")")
                yield subject + " was shown {} times, expected {}", ((self.arm == arm) & in_group).astype(float)


def _in_words(value: float) -> str:
    """Format a sum for a sentence: whole with thousands separated from 10 on, else with three digits."""
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.3g}"


ENDINGS = (".dsjson", ".json", ".jsonl", ".ndjson")
_OTHER_KINDS = {"_outcomes": "slots (CCB or slates)", "_label_ca": "continuous actions"}
"""Keys of lines that are no choice of one action, with the kind of decision that they mark."""
_MOST_BROKEN = 0.01
"""Largest share of unreadable lines: a file with more is refused."""
_OFF = 1e-4
"""Smallest difference of two probabilities that is more than the rounding of written numbers."""


ToolColumns = dict[str, Sequence[Any] | NDArray[Any]]
"""Columns of decisions by name; one column may mix kinds of values."""


class ToolRows(NamedTuple):
    """A tool's log as one decision per row.

    Attributes:
        columns: columns of the decisions by name.
        shares: logged probabilities of all actions; None if the log lacks them.
        lines: sentences for the user about the rows that were read and left out.
        damages: faults of the log that were noticed while reading.
    """

    columns: ToolColumns
    shares: LoggedShares | None
    lines: list[str]
    damages: list[Damage]


def is_dsjson(path: Path) -> bool:
    """Return True if the file's name ends like DSJSON, compressed or not."""
    return path.is_file() and any(suffix.lower() in ENDINGS for suffix in path.suffixes[-2:])


def read_dsjson(path: Path, fields: Sequence[str] = ()) -> ToolRows:
    """Read the decisions of a DSJSON file.

    Args:
        path: the file, plain or compressed with gzip or bz2.
        fields: fields of the shared context to read as columns, with dots (``User.id``).

    Raises:
        UserError: the file is no DSJSON, or of a kind without a choice of one action.
    """
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
    reader = _Reader(str(path), fields)
    with openers.get(path.suffix.lower(), open)(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith(b"{"):
                reader.read_line(number, line)
    return reader.finish()


class _Reader:
    """Reads DSJSON line by line, and collects the decisions.

    Attributes:
        counts: number of lines by what was noticed about them ("broken", "skipped", "repeated", ...).
        columns: values of the decisions by column.
        shares: the numbers of the actions and their probabilities, one pair of lists for each decision that has both.
    """

    def __init__(self, source: str, fields: Sequence[str]) -> None:
        self.source = source
        self.fields = fields
        self.counts: Counter[str] = Counter()
        self.columns: defaultdict[str, list[Any]] = defaultdict(list)
        self.shares: list[tuple[list[int], list[float]]] = []
        self._outcomes: dict[str, str] = {}  # by EventId: outcome in its first line

    def read_line(self, number: int, line: bytes) -> None:
        """Read one line: add its decision to the columns, or count the reason why it has none.

        Args:
            number: number of the line in the file, from 1, for messages.
            line: the line, a JSON object.

        Raises:
            UserError: the line is a decision of another kind than the choice of one action.
        """
        self.counts["lines"] += 1
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            self.counts["broken"] += 1
            return
        for key, kind in _OTHER_KINDS.items():
            if key in event:
                raise UserError(
                    f"{self.source}: line {number} holds {kind}, not one action of several. Give a contextual bandit's"
                )
        if "_label_cost" not in event:
            self.counts["dangling"] += "RewardValue" in event or "EventId" in event
            return
        if event.get("_skipLearn") is True:
            self.counts["skipped"] += 1
            return
        try:
            if not self._is_repeat(event):
                self._add_decision(event)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
            self.counts["broken"] += 1

    def _is_repeat(self, event: Mapping[str, Any]) -> bool:
        """Return True, and count the line, if an earlier one has its EventId; if not, remember the line's outcome.

        A line is "repeated" with the same outcome as the first, and "joined_twice", a fault of the log, with another.
        """
        event_id = event.get("EventId")
        if event_id is None:
            return False
        outcome = json.dumps([event.get(name) for name in ("_label_cost", "_label_Action", "p")])
        if event_id not in self._outcomes:
            self._outcomes[event_id] = outcome
            return False
        count = "joined_twice"
        if outcome == self._outcomes[event_id]:
            count = "repeated"
        self.counts[count] += 1
        return True

    def _add_decision(self, event: Mapping[str, Any]) -> None:
        """Append a decision to ``columns`` and ``shares``, and count what contradicts itself in its line.

        Any of the errors that :meth:`read_line` catches means that the line is broken; nothing was appended then.
        """
        chosen = int(event["_label_Action"])  # from 1
        propensity = _number(event.get("_label_probability"))
        self.counts["index"] += event.get("_labelIndex", chosen - 1) != chosen - 1
        cost = _number(event["_label_cost"])
        self.counts["apprentice"] += abs(_number(event.get("_original_label_cost", cost)) - cost) > 1e-6
        actions = [int(action) for action in event.get("a") or []]
        p = [float(share) for share in event.get("p") or event.get("_p") or []]
        pdrop = float(event.get("pdrop", 0.0))
        if not pdrop >= 0.0 or min(actions, default=0) < 0:
            raise ValueError("no probability of a drop, or no number of an action")
        if pdrop >= 1.0:
            self.counts["dropped"] += 1
            return
        if actions and p:
            logged = p[actions.index(chosen)]
            self.counts["lengths"] += len(actions) != len(p)
            # In some logs _label_probability was multiplied by 1 - pdrop, the probability that the line was kept.
            if min(abs(propensity - logged), abs(propensity - logged * (1.0 - pdrop))) > _OFF:
                self.counts["label"] += 1
            else:
                propensity = logged
        context = event.get("c") or {}
        multi = context.get("_multi") or []
        name = None
        if 0 < chosen <= len(multi):
            name = _name_of(multi[chosen - 1])
        version = (event.get("VWState") or {}).get("m")
        hash(version)  # raises TypeError for a list or an object: versions are grouped by equality later
        decision = {
            "time": event.get("Timestamp"),
            "event_id": event.get("EventId"),
            "action": name or str(chosen),
            "propensity": propensity,
            "reward": 0.0 - cost,  # not -cost, which is -0.0 where the cost is 0
            "_index": chosen,
            "n_actions": len(actions or multi) or math.nan,
            "pdrop": pdrop,
            "version": version,
            **{path: _field(context, path) for path in self.fields},
        }
        if actions and p:
            self.shares.append((actions, p))
        for column, value in decision.items():
            self.columns[column].append(value)

    def finish(self) -> ToolRows:
        """Return the decisions of all lines that were read.

        Raises:
            UserError: the file has no decision or too many broken lines, or its logged actions were not shown.
        """
        counts = self.counts
        if not self.columns:
            raise UserError(
                f"{self.source}: no line is a decision of DSJSON (_label_cost, _label_Action, a, p). Give such a log; "
                "a table in JSON lines is read as CSV or Parquet (pandas.read_json(FILE, lines=True).to_parquet(...))"
            )
        if counts["broken"] > _MOST_BROKEN * counts["lines"]:
            raise UserError(
                f"{self.source}: {counts['broken']:,} of {counts['lines']:,} lines are no DSJSON. Restore them"
            )
        if counts["apprentice"]:
            raise UserError(
                f"{self.source}: in {counts['apprentice']:,} lines _original_label_cost is another cost: the log is of "
                "apprentice mode, in which the logged action was not shown. Give the lines of the time after it"
            )
        keep = self._draw_kept()
        columns: ToolColumns = {name: list(compress(values, keep)) for name, values in self.columns.items()}
        chosen = np.array(columns.pop("_index"))
        shares = self._logged_shares(keep, chosen)
        del columns["pdrop"]
        columns["first_action"] = (chosen == 1).astype(float)
        columns["uniform"] = 1.0 / np.array(columns["n_actions"], float)
        for name in ("time", "version"):
            if None in columns[name]:
                del columns[name]
        return ToolRows(columns, shares, self._lines(len(chosen)), self._damages())

    def _draw_kept(self) -> list[bool]:
        """Return a flag per decision, True if it is kept, such that all decisions survive with the same probability.

        VW kept a line with probability 1 - pdrop. Where pdrop differs between lines, a decision is kept here with
        probability (1 - largest pdrop) / (1 - pdrop), so that its total probability is 1 - largest pdrop. The uniform
        number for this is a hash of the event's id and index: the same file always gives the same decisions.
        """
        pdrops = self.columns["pdrop"]
        largest = max(pdrops)
        self.counts["pdrop"] = int(largest > 0.0)
        if min(pdrops) == largest:
            return [True] * len(pdrops)
        keep = []
        for i, (event_id, pdrop) in enumerate(zip(self.columns["event_id"], pdrops, strict=True)):
            digest = hashlib.blake2b(f"pdrop {event_id} {i}".encode(), digest_size=8).digest()
            uniform = int.from_bytes(digest, "little") / 2.0**64
            keep.append(uniform < (1.0 - largest) / (1.0 - pdrop))
        self.counts["thinned"] = len(keep) - sum(keep)
        return keep

    def _logged_shares(self, keep: list[bool], chosen: NDArray[np.int64]) -> LoggedShares | None:
        """Return the probabilities of all actions of the kept decisions.

        Args:
            keep: a flag per decision, True for those that are kept.
            chosen: number of the shown action, from 1, of each kept decision.

        Returns:
            the probabilities; None if a line lacks them, or has not as many probabilities as actions.
        """
        if len(self.shares) < len(keep) or self.counts["lengths"]:
            return None
        kept = list(compress(self.shares, keep))
        row = np.repeat(np.arange(len(kept)), [len(actions) for actions, _ in kept])
        action = np.concatenate([np.asarray(actions, np.int64) for actions, _ in kept])
        p = np.concatenate([np.asarray(probabilities, float) for _, probabilities in kept])
        numbers, arm = np.unique(action, return_inverse=True)
        groups = {}
        versions = list(compress(self.columns["version"], keep))
        code_of = {version: code for code, version in enumerate(dict.fromkeys(versions))}
        if None not in code_of:
            groups["version"] = np.array([code_of[version] for version in versions])
        return LoggedShares(row, arm, p, action == chosen[row], numbers.astype(str).tolist(), groups)

    def _lines(self, n_decisions: int) -> list[str]:
        """Return sentences for the user: the number of decisions, and the number of lines left out for each reason."""
        sentences = {
            "broken": "lines cannot be read and are left out",
            "skipped": "lines are marked _skipLearn, decisions that were not shown, and are left out",
            "dangling": "lines are outcomes without a decision and are left out",
            "dropped": "lines have pdrop 1 and are left out, as VW does",
            "repeated": "lines repeat an earlier EventId and are left out",
            "thinned": "decisions with a smaller pdrop are left out by chance, so that all had the largest",
        }
        lines = [f"{self.source}: DSJSON of Vowpal Wabbit, {n_decisions:,} decisions; the reward is minus _label_cost"]
        lines += [f"{self.counts[name]:,} {text}" for name, text in sentences.items() if self.counts[name]]
        if self.counts["pdrop"] and not self.counts["thinned"]:
            lines.append("pdrop is the same in every line: each decision counts alike")
        return lines

    def _damages(self) -> list[Damage]:
        """Return the faults that were counted while reading; the size of each is its lines per decision."""
        messages = {
            "label": ("_label_probability is not the p of the logged action", "log the p of the action that was shown"),
            "index": ("_labelIndex is not _label_Action - 1", "log the place of the action that was shown"),
            "lengths": ("p has not one probability per action of a", "log one probability per action"),
            "joined_twice": ("an EventId comes back with another outcome", "join each decision once"),
        }
        n = len(self.columns["action"])
        return [
            Damage(f"dsjson_{name}", self.counts[name] / n, f"in {self.counts[name]:,} lines {fault}", advice)
            for name, (fault, advice) in messages.items()
            if self.counts[name]
        ]


def _number(value: Any) -> float:
    """Return a number as a float, NaN for None; VW writes ``"NaN"``."""
    if value is None:
        return math.nan
    return float(value)


def _name_of(action: Any) -> str | None:
    """Return the name of an action: its ``_tag`` or ``id``, or the ``id`` in its namespace ``i``; None without any."""
    if not isinstance(action, dict):
        return None
    inner = action.get("i")
    name = action.get("_tag") or action.get("id")
    if not name:
        name = inner.get("id") if isinstance(inner, dict) else None
    if name is None:
        return None
    return str(name)


def _field(context: Any, path: str) -> Any:
    """Return the value at a dotted path in the context, if it is text, a number or a flag; else None."""
    for name in path.removeprefix("c.").split("."):
        if isinstance(context, list):  # a namespace may be a list of objects; the first that has the name counts
            context = next((part for part in context if isinstance(part, dict) and name in part), None)
        context = context.get(name) if isinstance(context, dict) else None
    if isinstance(context, (str, int, float, bool)):
        return context
    return None
