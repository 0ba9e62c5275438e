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
    """Logged probabilities of all actions: m entries, one per action of each of n decisions.

    Attributes:
        row: (m,) index of the decision, ascending.
        arm: (m,) index of the action in ``names``.
        p: (m,) probability of the action.
        shown: (m,) True for the action that was shown.
        names: names of the actions.
        groups: (n,) codes by name of anything known before the draw: the bandit's version, a leaf.
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
        is_off = ~(np.abs(sums - 1.0) <= TOLERANCE) | (self._sum(self.p < 0.0) > 0)
        if is_off.any():
            first = float(sums[np.argmax(is_off)])
            message = f"the probabilities of all actions do not sum to 1 in {is_off.sum():,} rows (first: {first:.4g})"
            return [Damage("share_sums", float(is_off.mean()), message, "log the probabilities that were drawn from")]
        return self._disproved()

    def _sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum (m,) values over the actions of each decision, (n,)."""
        return np.bincount(self.row, values, self.n)

    def _disproved(self) -> list[Damage]:
        """Return the test furthest beyond chance, if any is.

        Given the past, the sum over decisions of f(action shown) - E f(action) has mean 0 and the variance V for every
        f that was known before the draw, and no term beyond b; so it passes t with probability
        2 exp(-t^2 / (2 V + 2 b t / 3)) at most (Freedman 1975), whatever the bandit learns meanwhile.
        """
        tests = list(self._tests())
        limit = math.log(2.0 * max(len(tests), 1) / ALPHA)
        largest = limit
        evidence = ""
        for template, f in tests:
            centred = f - self._sum(self.p * f)[self.row]
            total = float(centred[self.shown].sum())
            if total == 0.0:
                continue
            variance = float((self.p * centred**2).sum())
            bound = float(np.abs(centred[(self.p > 0.0) | self.shown]).max())
            score = total**2 / (2.0 * (variance + bound * abs(total) / 3.0))
            if score > largest:
                largest = score
                evidence = template.format(_in_words(float(f[self.shown].sum())), _in_words(float((self.p * f).sum())))
        if not evidence:
            return []
        message = f"the logged probabilities are proved wrong: {evidence}"
        advice = "log the probabilities of the moment of the decision, one per action in the order of the actions"
        return [Damage("shares_disproved", largest / limit, message, advice)]

    def _tests(self) -> Iterator[tuple[str, Floats]]:
        """Yield functions f of decision and action, (m,), each with a sentence for its observed and expected sum."""
        log_probability = np.log(np.maximum(self.p, 1e-4))
        yield "the actions shown have a log probability of {} in all, expected {}", log_probability
        yield "the likeliest action was shown {} times, expected {}", self._is_likeliest().astype(float)
        yield from self._by_probability()
        fifths = np.arange(self.n) * _BLOCKS // max(self.n, 1)
        groups = {"": np.zeros(self.n, np.int64), "a fifth of the log": fifths, **self.groups}
        for name, codes in groups.items():
            yield from self._by_action(name, codes)

    def _is_likeliest(self) -> NDArray[np.bool_]:
        """Mark the likeliest action of each decision, (m,); none where all are equally likely."""
        largest = np.zeros(self.n)
        np.maximum.at(largest, self.row, self.p)
        n_actions = np.bincount(self.row, minlength=self.n).astype(float)
        is_uneven = largest > n_actions**-1 + 1e-9
        return (self.p == largest[self.row]) & is_uneven[self.row]

    def _by_probability(self) -> Iterator[tuple[str, Floats]]:
        """Yield a test per range of probabilities."""
        bin_of = np.searchsorted(_BINS, self.p)
        for number in np.unique(bin_of):
            low, high = (0.0, *_BINS, 1.0)[number : number + 2]
            template = f"actions with a probability of {low:g} to {high:g} were shown {{}} times, expected {{}}"
            yield template, (bin_of == number).astype(float)

    def _by_action(self, name: str, codes: NDArray[np.int64]) -> Iterator[tuple[str, Floats]]:
        """Yield a test per common action and group of decisions; none if there are too many of these.

        Args:
            name: name of the grouping, "" for a single group.
            codes: (n,) group of each decision.
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
                subject = f"action {self.names[arm]}{where}".replace("{", "(").replace("}", ")")
                yield subject + " was shown {} times, expected {}", ((self.arm == arm) & in_group).astype(float)


def _in_words(value: float) -> str:
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.3g}"


ENDINGS = (".dsjson", ".json", ".jsonl", ".ndjson")
_OTHER_KINDS = {"_outcomes": "slots (CCB or slates)", "_label_ca": "continuous actions"}
_MOST_BROKEN = 0.01
_OFF = 1e-4


ToolColumns = dict[str, Sequence[Any] | NDArray[Any]]
"""Columns of decisions by name; one column may mix kinds of values."""


class ToolRows(NamedTuple):
    """A tool's log: decisions, probabilities of all actions, lines about what was read, and faults."""

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
    """Collects the decisions of the lines read so far.

    Attributes:
        counts: number of lines of each kind.
        columns: values of the decisions by column.
        shares: per decision the actions and their probabilities, where the line has both.
    """

    def __init__(self, source: str, fields: Sequence[str]) -> None:
        self.source = source
        self.fields = fields
        self.counts: Counter[str] = Counter()
        self.columns: defaultdict[str, list[Any]] = defaultdict(list)
        self.shares: list[tuple[list[int], list[float]]] = []
        self._outcomes: dict[str, tuple[int, str]] = {}

    def read_line(self, number: int, line: bytes) -> None:
        """Read one line; its number is for messages."""
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
            if not self._is_repeat(number, event):
                self._add_decision(event)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
            self.counts["broken"] += 1

    def _is_repeat(self, number: int, event: Mapping[str, Any]) -> bool:
        """Return True, and count the line, if an earlier one has its EventId."""
        key = event.get("EventId")
        if key is None:
            return False
        outcome = json.dumps([event.get(name) for name in ("_label_cost", "_label_Action", "p")])
        first_number, first_outcome = self._outcomes.setdefault(key, (number, outcome))
        if first_number == number:
            return False
        self.counts["repeated" if first_outcome == outcome else "joined_twice"] += 1
        return True

    def _add_decision(self, event: Mapping[str, Any]) -> None:
        chosen = int(event["_label_Action"])
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
            # _label_probability may have the probability of a drop in it.
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
        hash(version)  # a list is no version
        decision = {
            "time": event.get("Timestamp"),
            "event_id": event.get("EventId"),
            "action": name or str(chosen),
            "propensity": propensity,
            "reward": 0.0 - cost,
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
        """Return all decisions, after refusing a file that is no log of shown actions."""
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
        keep = self._thinned()
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

    def _thinned(self) -> list[bool]:
        """Choose decisions to keep, so that all are dropped with the largest of the log's probabilities of a drop.

        A line with ``pdrop`` survived with 1 - pdrop. Where that differs, decisions that survived more easily are
        drawn with (1 - largest pdrop) / (1 - pdrop), by a hash of their ids.
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
        """Return the probabilities of the kept decisions; None if a line lacks them or their lengths differ."""
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
    """Return the id of an action's features: its ``_tag`` or ``id``."""
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
    """Return a plain value of the context by its dotted path; None if there is none."""
    for name in path.removeprefix("c.").split("."):
        if isinstance(context, list):
            context = next((part for part in context if isinstance(part, dict) and name in part), None)
        context = context.get(name) if isinstance(context, dict) else None
    if isinstance(context, (str, int, float, bool)):
        return context
    return None
