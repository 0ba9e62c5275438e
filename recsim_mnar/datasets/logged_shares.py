"""Whether what was shown fits the probabilities that a log gives all actions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ALPHA = 2e-3
"""Probability of a false alarm over all tests of a log, at most."""
TOLERANCE = 0.01
"""How far from 1 the probabilities of one decision may sum, as GrowthBook's SDKs allow."""
_BLOCKS = 5
_BINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_MOST_CELLS = 200


class Damage(NamedTuple):
    """What is wrong with a log: a stable code, how much, what was found, and what to do."""

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
        return int(self.row[-1]) + 1 if len(self.row) else 0

    def least(self) -> float | None:
        """The least probability of any action, None where one has none."""
        least = float(self.p.min(initial=1.0))
        return least if least > 0.0 else None

    def damages(self) -> list[Damage]:
        """What the log proves wrong of its own probabilities; empty where nothing is."""
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
        limit, found = math.log(2.0 * max(len(tests), 1) / ALPHA), None
        for what, f in tests:
            mean = np.bincount(self.row, self.p * f, self.n)
            centred = f - mean[self.row]
            sum_ = float(centred[self.shown].sum())
            variance = float((self.p * centred**2).sum())
            bound = float(np.abs(centred[(self.p > 0.0) | self.shown]).max(initial=0.0))
            score = sum_**2 / (2.0 * (variance + bound * abs(sum_) / 3.0)) if sum_ else 0.0
            if score > limit and (found is None or score > found[0]):
                found = score, what, float(f[self.shown].sum()), float((self.p * f).sum())
        if found is None:
            return []
        message = f"the logged probabilities are proved wrong: {found[1].format(*_in_words(found[2], found[3]))}"
        advice = "log the probabilities of the moment of the decision, one per action in the order of the actions"
        return [Damage("shares_disproved", found[0] / limit, message, advice)]

    def _tests(self) -> Iterator[tuple[str, Floats]]:
        """Functions f of decision and action, (m,), and what each means."""
        p, row = self.p, self.row
        yield "the actions shown have a log probability of {} in all, expected {}", np.log(np.maximum(p, 1e-4))
        most = np.zeros(self.n)
        np.maximum.at(most, row, p)
        uneven = most > np.bincount(row, minlength=self.n).astype(float) ** -1 + 1e-9
        yield "the likeliest action was shown {} times, expected {}", ((p == most[row]) & uneven[row]).astype(float)
        bin_ = np.searchsorted(_BINS, p)
        for number in np.unique(bin_):
            ends = (0.0, *_BINS, 1.0)[number : number + 2]
            words = f"actions with a probability of {ends[0]:g} to {ends[1]:g} were shown {{}} times, expected {{}}"
            yield words, (bin_ == number).astype(float)
        arms, counts = np.unique(self.arm[self.shown], return_counts=True)
        common = arms[np.argsort(-counts, kind="stable")][:20]
        blocks = np.arange(self.n) * _BLOCKS // max(self.n, 1)
        for name, codes in {"": np.zeros(self.n, np.int64), "a fifth of the log": blocks, **self.groups}.items():
            cells = np.unique(codes)
            if len(cells) * len(common) > _MOST_CELLS:
                continue
            for cell in cells:
                for arm in common:
                    where = f" in {name} ({cell + 1})" if name else ""
                    words = _plain(f"action {self.names[arm]}{where} was shown ") + "{} times, expected {}"
                    yield words, ((self.arm == arm) & (codes == cell)[row]).astype(float)
        yield from self._earlier()

    def _earlier(self) -> Iterator[tuple[str, Floats]]:
        """The way from the logged probabilities to those of the group before: were those drawn from?"""
        size = int(self.arm.max(initial=0)) + 1
        for name, codes in self.groups.items():
            cells = list(dict.fromkeys(codes.tolist()))
            if not 1 < len(cells) <= _MOST_CELLS:
                continue
            of = codes[self.row] * size + self.arm
            total, number = (np.bincount(of, w, (max(cells) + 1) * size) for w in (self.p, np.ones(len(of))))
            mean = total / np.maximum(number, 1.0)
            before = dict(zip(cells[1:], cells, strict=False))
            last = np.array([before.get(code, code) for code in range(max(cells) + 1)])[codes][self.row]
            words = f"the actions shown fit the {name} before better"
            yield words, mean[last * size + self.arm] - self.p


def _in_words(*values: float) -> list[str]:
    return [f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}" for value in values]


def _plain(text: str) -> str:
    """Text without marks of ``str.format``."""
    return text.replace("{", "(").replace("}", ")")
