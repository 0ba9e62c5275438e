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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

Floats = NDArray[np.float64]
ALPHA = 2e-3
"""Probability of a false alarm over all tests of a log, at most."""
TOLERANCE = 0.01
"""How far from 1 the probabilities of one decision may sum, as GrowthBook's SDKs allow."""
_BLOCKS = 5
_BINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_MOST_CELLS = 200
_MOST_COMMON = 20


class Damage(NamedTuple):
    """A fault of a log: a stable code, its amount, the evidence, and what to do."""

    code: str
    size: float
    message: str
    advice: str


@dataclass(frozen=True)
class LoggedShares:
    """Probabilities of all actions in n decisions, m entries of a decision and an action.

    Attributes:
        row: (m,) the decision, ascending.
        arm: (m,) number of the action.
        p: (m,) its probability.
        shown: (m,) whether it is the action that was shown.
        names: of the actions.
        groups: by name, (n,) codes of what was known before the action was drawn: a bandit's version, a leaf.
    """

    row: NDArray[np.int64]
    arm: NDArray[np.int64]
    p: Floats
    shown: NDArray[np.bool_]
    names: Sequence[str]
    groups: dict[str, NDArray[np.int64]]

    @staticmethod
    def of(table: Floats, shown: NDArray[np.int64], names: Sequence[str], **groups: NDArray[np.int64]) -> LoggedShares:
        """From probabilities (n, K) of the same K actions in every decision, and which was shown (n,)."""
        n, k = table.shape
        arm = np.tile(np.arange(k), n)
        return LoggedShares(
            np.repeat(np.arange(n), k), arm, table.ravel(), arm == np.repeat(shown, k), names, dict(groups)
        )

    @property
    def n(self) -> int:
        """Number of decisions."""
        if len(self.row):
            return int(self.row[-1]) + 1
        return 0

    def least(self) -> float | None:
        """The least probability of any action, None where one has none."""
        least = float(self.p.min(initial=1.0))
        if least > 0.0:
            return least
        return None

    def damages(self) -> list[Damage]:
        """List the probabilities of a log that the log itself disproves; empty where there are none."""
        sums = np.bincount(self.row, self.p, self.n)
        off = ~(np.abs(sums - 1.0) <= TOLERANCE) | (np.bincount(self.row, self.p < 0.0, self.n) > 0)
        if off.any():
            first = float(sums[np.argmax(off)])
            message = f"the probabilities of all actions do not sum to 1 in {off.sum():,} rows (first: {first:.4g})"
            return [Damage("share_sums", float(off.mean()), message, "log the probabilities that were drawn from")]
        return self._disproved()

    def _disproved(self) -> list[Damage]:
        """The test that is furthest beyond what chance allows.

        Given the past, the sum over decisions of f(action shown) - E f(action) has mean 0 and the variance V for every
        f that was known before the draw, and no term beyond b; so it passes t with probability
        2 exp(-t^2 / (2 V + 2 b t / 3)) at most (Freedman 1975), whatever the bandit learns meanwhile.
        """
        tests = list(self._tests())
        limit = math.log(2.0 * max(len(tests), 1) / ALPHA)
        worst = None
        for what, f in tests:
            mean = np.bincount(self.row, self.p * f, self.n)
            centred = f - mean[self.row]
            sum_ = float(centred[self.shown].sum())
            variance = float((self.p * centred**2).sum())
            bound = float(np.abs(centred[(self.p > 0.0) | self.shown]).max(initial=0.0))
            if sum_:
                score = sum_**2 / (2.0 * (variance + bound * abs(sum_) / 3.0))
            else:
                score = 0.0
            if score > limit and (worst is None or score > worst[0]):
                worst = score, what, float(f[self.shown].sum()), float((self.p * f).sum())
        if worst is None:
            return []
        message = f"the logged probabilities are proved wrong: {worst[1].format(*_in_words(worst[2], worst[3]))}"
        advice = "log the probabilities of the moment of the decision, one per action in the order of the actions"
        return [Damage("shares_disproved", worst[0] / limit, message, advice)]

    def _tests(self) -> Iterator[tuple[str, Floats]]:
        """Yield functions f of decision and action, (m,), each after what its sum means."""
        log_probability = np.log(np.maximum(self.p, 1e-4))
        yield "the actions shown have a log probability of {} in all, expected {}", log_probability
        yield "the likeliest action was shown {} times, expected {}", self._is_likeliest().astype(float)
        yield from self._by_probability()
        fifths = np.arange(self.n) * _BLOCKS // max(self.n, 1)
        groups = {"": np.zeros(self.n, np.int64), "a fifth of the log": fifths, **self.groups}
        for name, codes in groups.items():
            yield from self._by_action(name, codes)

    def _is_likeliest(self) -> NDArray[np.bool_]:
        """(m,) whether an action is the likeliest of its decision, in decisions whose actions are not all alike."""
        largest = np.zeros(self.n)
        np.maximum.at(largest, self.row, self.p)
        n_actions = np.bincount(self.row, minlength=self.n).astype(float)
        uneven = largest > n_actions**-1 + 1e-9
        return (self.p == largest[self.row]) & uneven[self.row]

    def _by_probability(self) -> Iterator[tuple[str, Floats]]:
        """Yield a test per range of probabilities."""
        bin_of = np.searchsorted(_BINS, self.p)
        for number in np.unique(bin_of):
            low, high = (0.0, *_BINS, 1.0)[number : number + 2]
            words = f"actions with a probability of {low:g} to {high:g} were shown {{}} times, expected {{}}"
            yield words, (bin_of == number).astype(float)

    def _by_action(self, name: str, codes: NDArray[np.int64]) -> Iterator[tuple[str, Floats]]:
        """Yield a test per common action and group of decisions; none where these are too many.

        Args:
            name: of the groups, "" where there is one.
            codes: (n,) the group of each decision.
        """
        arms, counts = np.unique(self.arm[self.shown], return_counts=True)
        common = arms[np.argsort(-counts, kind="stable")][:_MOST_COMMON]
        groups = np.unique(codes)
        if len(groups) * len(common) > _MOST_CELLS:
            return
        for group in groups:
            in_group = (codes == group)[self.row]
            if name:
                where = f" in {name} ({group + 1})"
            else:
                where = ""
            for arm in common:
                words = _plain(f"action {self.names[arm]}{where} was shown ") + "{} times, expected {}"
                yield words, ((self.arm == arm) & in_group).astype(float)


def _in_words(*values: float) -> list[str]:
    return [f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}" for value in values]


def _plain(text: str) -> str:
    """Text without marks of ``str.format``."""
    return text.replace("{", "(").replace("}", ")")


ENDINGS = (".dsjson", ".json", ".jsonl", ".ndjson")
_OTHER_KINDS = {"_outcomes": "slots (CCB or slates)", "_label_ca": "continuous actions"}
_MOST_BROKEN = 0.01
_OFF = 1e-4


ToolColumns = dict[str, Sequence[Any] | NDArray[Any]]
"""Columns of decisions by name; values of several kinds may stand in one."""


class ToolRows(NamedTuple):
    """Contents of a tool's log: decisions, probabilities of all actions, lines on the columns taken, faults."""

    columns: ToolColumns
    shares: LoggedShares | None
    lines: list[str]
    damages: list[Damage]


def is_dsjson(path: Path) -> bool:
    """Return whether a file's name ends as that of DSJSON does, compressed or not."""
    return path.is_file() and any(suffix.lower() in ENDINGS for suffix in path.suffixes[-2:])


def read_dsjson(path: Path, fields: Sequence[str] = ()) -> ToolRows:
    """Decisions of a file.

    Args:
        path: the file, as it is or compressed with gzip or bz2.
        fields: of the shared context, with dots (``User.id``), each of which becomes a column.

    Raises:
        UserError: no DSJSON, or a kind of it that is no choice of one action.
    """
    reader = _Reader(str(path), fields)
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith(b"{"):
                reader.take(number, line)
    return reader.finish()


def _opened(path: Path) -> Any:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
    return openers.get(path.suffix.lower(), open)(path, "rb")


_OF_ROWS = ("time", "event_id", "action", "propensity", "reward", "_index", "n_actions", "pdrop", "version")
"""What stands in a row that is read, before the fields of the context."""


class _Reader:
    """Lines read so far."""

    def __init__(self, source: str, fields: Sequence[str]) -> None:
        self.source = source
        self.fields = fields
        self.counts: Counter[str] = Counter()
        self.rows: list[tuple[Any, ...]] = []
        self.shares: list[tuple[Any, Any]] = []
        self.seen: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    def take(self, number: int, line: bytes) -> None:
        """Take a line."""
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
            if self._is_new(number, event):
                self._decision(event)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
            self.counts["broken"] += 1

    def _is_new(self, number: int, event: Mapping[str, Any]) -> bool:
        key = event.get("EventId")
        if key is None:
            return True
        joined = json.dumps([event.get(name) for name in ("_label_cost", "_label_Action", "p")])
        earlier = self.seen.setdefault(key, joined)
        if self.numbers.setdefault(key, number) == number:
            return True
        self.counts["repeated" if earlier == joined else "joined_twice"] += 1
        return False

    def _decision(self, event: Mapping[str, Any]) -> None:
        chosen = int(event["_label_Action"])
        probability = _number(event.get("_label_probability"))
        self.counts["index"] += event.get("_labelIndex", chosen - 1) != chosen - 1
        cost = _number(event["_label_cost"])
        self.counts["apprentice"] += abs(_number(event.get("_original_label_cost", cost)) - cost) > 1e-6
        actions = [int(action) for action in event.get("a") or []]
        p = [float(pair) for pair in event.get("p") or event.get("_p") or []]
        pdrop = float(event.get("pdrop", 0.0))
        if not pdrop >= 0.0 or min(actions, default=0) < 0:
            raise ValueError("no probability of a drop, or no number of an action")
        if pdrop >= 1.0:
            self.counts["dropped"] += 1
            return
        if actions and p:
            place = actions.index(chosen)
            self.counts["lengths"] += len(actions) != len(p)
            known_values = p[place]
            bounds = (known_values, known_values * (1.0 - pdrop))
            if not math.isnan(probability) and min(abs(probability - pair) for pair in bounds) > _OFF:
                self.counts["label"] += 1
            else:
                probability = known_values
        context = event.get("c") or {}
        multi = context.get("_multi") or []
        if 0 < chosen <= len(multi):
            name = _name_of(multi[chosen - 1])
        else:
            name = None
        version = (event.get("VWState") or {}).get("m")
        hash(version)  # a list is no version
        row = (
            event.get("Timestamp"),
            event.get("EventId"),
            name or str(chosen),
            probability,
            0.0 - cost,
            chosen,
            len(actions or multi) or math.nan,
            pdrop,
            version,
            *(_field(context, name) for name in self.fields),
        )
        if actions and p:
            self.shares.append((actions, p))
        self.rows.append(row)

    def finish(self) -> ToolRows:
        """Columns of all decisions, and what was left out."""
        counts = self.counts
        if not self.rows:
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
        keep = self._thinned()
        rows = [row for row, kept in zip(self.rows, keep, strict=True) if kept]
        named = dict(zip((*_OF_ROWS, *self.fields), zip(*rows, strict=True), strict=True))
        index, number = (np.array(named[name], float) for name in ("_index", "n_actions"))
        columns: ToolColumns = {name: list(values) for name, values in named.items()}
        del columns["_index"], columns["pdrop"]
        columns["first_action"] = (index == 1).astype(float)
        columns["uniform"] = 1.0 / number
        for name in ("time", "version"):
            if any(value is None for value in columns[name]):
                del columns[name]
        return ToolRows(columns, self._shares(keep, rows, index), self._lines(len(rows)), self._damages())

    def _thinned(self) -> list[bool]:
        """Choose decisions to keep, so that all are dropped with the largest of the log's probabilities of a drop.

        A line with ``pdrop`` survived with 1 - pdrop. Where that differs, decisions that survived more easily are
        drawn with (1 - largest pdrop) / (1 - pdrop), by a hash of their ids.
        """
        pdrops = [row[7] for row in self.rows]
        most = max(pdrops)
        self.counts["pdrop"] = int(most > 0.0)
        if min(pdrops) == most:
            return [True] * len(pdrops)
        draws = (
            int.from_bytes(hashlib.blake2b(f"pdrop {row[1]} {i}".encode(), digest_size=8).digest(), "little") / 2.0**64
            for i, row in enumerate(self.rows)
        )
        keep = [u < (1.0 - most) / (1.0 - p) for u, p in zip(draws, pdrops, strict=True)]
        self.counts["thinned"] = len(keep) - sum(keep)
        return keep

    def _shares(self, keep: list[bool], rows: list[tuple[Any, ...]], index: Any) -> LoggedShares | None:
        if len(self.shares) < len(self.rows) or self.counts["lengths"]:
            return None
        both = [pair for pair, kept in zip(self.shares, keep, strict=True) if kept]
        sizes = [len(actions) for actions, _ in both]
        row = np.repeat(np.arange(len(both)), sizes)
        action = np.concatenate([np.asarray(actions, np.int64) for actions, _ in both])
        p = np.concatenate([np.asarray(p, float) for _, p in both])
        there, arm = np.unique(action, return_inverse=True)
        names = [str(number) for number in there]
        versions = [entry[8] for entry in rows]
        known_versions = dict.fromkeys(versions)
        numbered = {version: i for i, version in enumerate(known_versions)}
        if None in known_versions:
            groups = {}
        else:
            groups = {"version": np.array([numbered[v] for v in versions])}
        return LoggedShares(row, arm, p, action == index[row], names, groups)

    def _lines(self, kept: int) -> list[str]:
        words = {
            "broken": "lines cannot be read and are left out",
            "skipped": "lines are marked _skipLearn, decisions that were not shown, and are left out",
            "dangling": "lines are outcomes without a decision and are left out",
            "dropped": "lines have pdrop 1 and are left out, as VW does",
            "repeated": "lines repeat an earlier EventId and are left out",
            "thinned": "decisions with a smaller pdrop are left out by chance, so that all had the largest",
        }
        lines = [f"{self.source}: DSJSON of Vowpal Wabbit, {kept:,} decisions; the reward is minus _label_cost"]
        lines += [f"{self.counts[name]:,} {texts}" for name, texts in words.items() if self.counts[name]]
        if self.counts["pdrop"] and not self.counts["thinned"]:
            lines.append("pdrop is the same in every line: each decision counts alike")
        return lines

    def _damages(self) -> list[Damage]:
        messages = {
            "label": ("_label_probability is not the p of the logged action", "log the p of the action that was shown"),
            "index": ("_labelIndex is not _label_Action - 1", "log the place of the action that was shown"),
            "lengths": ("p has not one probability per action of a", "log one probability per action"),
            "joined_twice": ("an EventId comes back with another outcome", "join each decision once"),
        }
        n = max(len(self.rows), 1)
        return [
            Damage(f"dsjson_{name}", self.counts[name] / n, f"in {self.counts[name]:,} lines {what}", advice)
            for name, (what, advice) in messages.items()
            if self.counts[name]
        ]


def _number(value: Any) -> float:
    """A number, NaN where there is none; VW writes ``"NaN"``."""
    if value is None:
        return math.nan
    return float(value)


def _name_of(action: Any) -> str | None:
    """The id of an action's features: ``_tag``, or ``id``."""
    if not isinstance(action, dict):
        return None
    inner = action.get("i")
    name = action.get("_tag") or action.get("id") or (inner.get("id") if isinstance(inner, dict) else None)
    if name is None:
        return None
    return str(name)


def _field(context: Any, path: str) -> Any:
    """A value of the context by its names with dots; None where there is none."""
    for name in path.removeprefix("c.").split("."):
        if isinstance(context, list):
            context = next((part for part in context if isinstance(part, dict) and name in part), None)
        if isinstance(context, dict):
            context = context.get(name)
        else:
            context = None
    if isinstance(context, (str, int, float, bool)):
        return context
    return None
