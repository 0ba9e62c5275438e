"""Checks of a world against a log: the distance of two groups of users, and its distribution by chance.

A statistic is a sum over each user's rows, so that a group's is a sum over its users, and every other way to divide the
same users costs one product of matrices. Users are what is exchanged: their rows depend on each other.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
from recsim_mnar.log.ratings import split_folds
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.studies.paired import holm

MATCHES, CLOSE, OFF, CANNOT_SAY = "matches", "close", "off", "cannot say"
LEVEL = 0.025
"""Of false alarms over all checks of one validation (Holm 1979): half of 5 %, for some policies are estimated."""
_WIDE = 2.0
"""A check that finds nothing must have been able to see a difference of so many tolerances, or it cannot say."""
CUMULATIVE, SHARES, SCALED, STANDARD = "cumulative", "shares", "scaled", "standard"
_CELLS = 1 << 23
"""Numbers held at once while groups are summed: 64 MB of float64."""
FOLDS, _PICTURED, _NAMED = 5, 60, 5


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name, kind: of the check; the kind is ``statistic`` or ``classifier``.
        question: what it bears on.
        what: what ``real`` (of the log's held-out users) and ``simulated`` (of the world's) are.
        distance: between real and simulated users; its unit is the check's.
        chance: its median where the same users are divided at random: what no world can be expected to undercut.
        visible: its .95 quantile there: what would have been distinguished from chance.
        tolerance: an excess over chance up to so much is small; chance and difference add up in squares.
        p: of no difference, by itself; None where it cannot be tested.
        p_adjusted: by Holm, over all checks.
        grade: matches, close, off or cannot say.
        says: one sentence.
        picture: what a picture shows; JSON types.
    """

    name: str
    kind: str
    question: str
    what: str
    real: float
    simulated: float
    distance: float
    chance: float
    visible: float
    tolerance: float
    p: float | None
    p_adjusted: float | None = None
    grade: str = CANNOT_SAY
    says: str = ""
    picture: dict[str, Any] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        """True if its test rejects that the world is the log's."""
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL


@dataclass(frozen=True)
class Validation:
    """Comparison of a world with a log.

    Attributes:
        checks: graded.
        not_checked: questions that no check bears on, each with the reason.
        notes: what must be known to read the figures.
        facts: users, items, seed, the policy that simulated users met; JSON types.
    """

    checks: list[Check]
    not_checked: list[str]
    notes: list[str] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def _questions(self, *grades: str) -> list[str]:
        return [check.question for check in self.checks if check.grade in grades]

    @property
    def valid_for(self) -> list[str]:
        """Questions whose checks the world passes: indistinguishable from the log, or nearly so."""
        return self._questions(MATCHES, CLOSE)

    @property
    def not_valid_for(self) -> list[str]:
        """Questions whose checks it fails."""
        return self._questions(OFF)

    @property
    def cannot_say(self) -> list[str]:
        """Questions whose checks had too little data to see a difference, or could not be tested."""
        return self._questions(CANNOT_SAY)

    def check(self, name: str) -> Check:
        """Return a check by its name; UserError where there is none."""
        by_name = {check.name: check for check in self.checks}
        if name not in by_name:
            raise UserError(f"no check {name!r}; {nearest(name, by_name)}")
        return by_name[name]

    def to_dict(self) -> Mapping[str, Any]:
        """JSON types."""
        return {
            "valid_for": self.valid_for,
            "not_valid_for": self.not_valid_for,
            "cannot_say": self.cannot_say,
            "not_checked": self.not_checked,
            "notes": self.notes,
            "facts": self.facts,
            "checks": [vars(check) for check in self.checks],
        }


def graded(checks: Sequence[Check]) -> list[Check]:
    """Return the checks with adjusted p-values and grades; one that cannot be tested is unchanged."""
    adjusted = iter(holm(np.array([check.p for check in checks if check.p is not None])).tolist())
    return [check if check.p is None else _graded(check, next(adjusted)) for check in checks]


def _graded(check: Check, adjusted: float) -> Check:
    check = dataclasses.replace(check, p_adjusted=adjusted)
    excess = np.sqrt(max(check.distance**2 - check.chance**2, 0.0))
    blindness = np.sqrt(max(check.visible**2 - check.chance**2, 0.0))
    if check.differs:
        if excess <= check.tolerance:
            grade = CLOSE
        else:
            grade = OFF
    else:
        if blindness > _WIDE * check.tolerance:
            grade = CANNOT_SAY
        else:
            grade = MATCHES
    ending = {
        MATCHES: "indistinguishable",
        CLOSE: "slightly different",
        OFF: "different",
        CANNOT_SAY: f"too few users to see less than {check.visible:.3g}",
    }[grade]
    sides = f"{check.what}: {check.real:.4g} real, {check.simulated:.4g} simulated"
    says = f"{sides}; {check.distance:.3g} apart, by chance {check.chance:.3g}: {ending}"
    return dataclasses.replace(check, grade=grade, says=says)


@dataclass(frozen=True)
class Columns:
    """Columns per user whose sums over a group suffice for a statistic; U users.

    Attributes:
        sums: (U, k) sums over each user's rows; an array or a scipy sparse array.
        values, headline: reduce sums of groups (P, k) to values (P, v), and to one telling number (P,).
        distance: :data:`CUMULATIVE`: largest gap between cumulative shares; :data:`SHARES`: half the sum of their
            absolute differences, tested by the sum of (a - b)^2 / (a + b); :data:`SCALED`: differences relative to the
            values, root mean square with each value's precision as its weight, tested in the metric of their
            covariance (Hotelling); :data:`STANDARD`: the same, but of values in standard deviations, as they are.
        entries, axis: names of the values, and what they are.
        features: (U,) each, by name: what a classifier is shown of users.
    """

    sums: Any
    values: Callable[[Floats], Floats]
    distance: str
    headline: Callable[[Floats], Floats]
    entries: list[str]
    axis: str
    features: Mapping[str, Floats]


@dataclass
class Groups:
    """Users in order: known to a world that was fitted on them (none to another one), held out, and simulated.

    ``seed`` is of all ``draws`` divisions by chance. ``allowance`` is the variance of a difference between held-out and
    simulated users where the world carries the error of the users it was fitted on, over that where it carries none.
    """

    n_known: int
    n_held: int
    n_simulated: int
    seed: int
    allowance: float = 1.0
    draws: int = 999

    @functools.cached_property
    def permuted(self) -> Floats:
        """(draws + 1, n_held + n_simulated) 1 for users of the first group, else 0; first row: the held-out users."""
        n = self.n_held + self.n_simulated
        statistics = np.zeros((self.draws + 1, n))
        statistics[0, : self.n_held] = 1.0
        seed = derive_seed(self.seed, "permutations")
        for row in range(1, self.draws + 1):
            drawn = uniforms(seed, Stream.PROTOCOL, np.arange(n), row)
            statistics[row, np.argpartition(drawn, self.n_held - 1)[: self.n_held]] = 1.0
        return statistics


class Comparison(TypedDict):
    """Evidence of a :class:`Check` about its numbers."""

    real: float
    simulated: float
    distance: float
    chance: float
    visible: float
    p: float
    picture: dict[str, Any]


def compared(c: Columns, groups: Groups) -> Comparison:
    """Compare sums of simulated and held-out users, and of the same users divided by chance.

    ``p`` is the share of divisions as far apart, the one found among them; the picture has chance's .05 to .95.
    """
    tested = c.sums[groups.n_known :]
    total = _sum(np.ones((1, tested.shape[0])), tested)
    weights, inverse = _metric(c, groups, tested, total)
    kept = np.zeros(0, np.int64)
    blocks: list[tuple[Floats, Floats, Floats]] = []
    for a, b in _pairs(c, groups, tested, total):
        if not len(kept):
            kept = _pictured(c, a[0], b[0])
        blocks.append((*_apart(c.distance, a, b, weights, inverse), a[:, kept]))
    test = np.concatenate([block[0] for block in blocks])
    distance = np.concatenate([block[1] for block in blocks])
    values = np.concatenate([block[2] for block in blocks])
    limit = test[0] / groups.allowance ** (0.5 if c.distance == CUMULATIVE else 1.0)
    held = _sum(groups.permuted[:1], tested)
    low, high = values[0] + np.quantile(values[1:] - values[1:].mean(axis=0), (0.05, 0.95), axis=0)
    return {
        "real": float(c.headline(held)[0]),
        "simulated": float(c.headline(total - held)[0]),
        "distance": float(distance[0]),
        "chance": float(np.median(distance[1:])),
        "visible": float(np.quantile(distance[1:], 0.95)),
        "p": (1 + int(np.sum(test[1:] >= limit * (1 - 1e-12)))) / len(test),
        "picture": {
            "kind": c.distance,
            "axis": c.axis,
            "entries": [c.entries[i] for i in kept],
            "real": values[0].tolist(),
            "simulated": c.values(total - held)[0, kept].tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        },
    }


def _sum(labels: NDArray[Any], sums: Any) -> Floats:
    """Return (P, k) sums over the users of each group."""
    return np.asarray((sums.T @ np.asarray(labels, np.float64).T).T, np.float64)


def _pairs(c: Columns, groups: Groups, tested: Any, total: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Values of both groups, block by block of divisions."""
    step = max(1, _CELLS // (8 * max(tested.shape[1], 1)))
    for begin in range(0, groups.draws + 1, step):
        first = _sum(groups.permuted[begin : begin + step], tested)
        yield c.values(first), c.values(total - first)


def _metric(c: Columns, groups: Groups, tested: Any, total: Floats) -> tuple[Floats, Floats]:
    """1 / variance of each value's difference over divisions, and the inverse of their correlation."""
    if c.distance not in (SCALED, STANDARD):
        return np.zeros(0), np.zeros((0, 0))
    d = np.concatenate([a - b for a, b in _pairs(c, groups, tested, total)])
    scale = d.std(axis=0)
    used = scale > 1e-12 * max(float(scale.max(initial=0.0)), 1e-300)
    weights = np.divide(1.0, scale**2, out=np.zeros_like(scale), where=used)
    z = d * np.sqrt(weights)
    # A ridge: values that go together in every division must not be separated by their rounding.
    return weights, np.linalg.inv(z.T @ z / len(z) + 1e-3 * np.eye(d.shape[1]))


def _apart(distance: str, a: Floats, b: Floats, weights: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """Return (P,) test statistics, and (P,) natural sizes of differences."""
    if distance == CUMULATIVE:
        gap = np.abs(a - b).max(axis=1)
        return gap, gap
    if distance == SHARES:
        both = a + b
        test = np.divide((a - b) ** 2, both, out=np.zeros_like(both), where=both > 0).sum(axis=1)
        return test, 0.5 * np.abs(a - b).sum(axis=1)
    z = (a - b) * np.sqrt(weights)
    if distance == STANDARD:
        of = np.ones_like(a)
    else:
        of = (np.abs(a) + np.abs(b)) / 2
    size = np.sqrt(of**2 @ weights)
    natural = np.divide(np.sqrt((a - b) ** 2 @ weights), size, out=np.zeros(len(a)), where=size > 0)
    return np.einsum("pi,pi->p", z @ inverse, z), natural


def _pictured(c: Columns, a: Floats, b: Floats) -> NDArray[np.int64]:
    """At most some sixty entries: the largest shares, or evenly chosen ones."""
    if c.distance == SHARES and len(a) > _PICTURED:
        return np.argsort(-(a + b), kind="stable")[:_PICTURED]
    return np.unique(np.linspace(0, len(a) - 1, min(len(a), _PICTURED)).astype(np.int64))


def classifier_check(columns: Sequence[Columns], groups: Groups) -> list[Check]:
    """Run the check by a classifier, with its positive control; none where no feature of users differs."""
    named = {name: values for c in columns for name, values in c.features.items() if np.ptp(values) > 0}
    if not named:
        return []
    names = [*named]
    features = np.stack([*named.values()], axis=1)
    tested = features[groups.n_known :]
    real = groups.permuted[0] > 0
    areas = cross_validated_auc(tested, groups.permuted, derive_seed(groups.seed, "folds"))
    if groups.n_known:
        floor = _known_again(features, groups)
    else:
        floor = 0.5
    over = (areas[0] - floor) / np.sqrt(groups.allowance)
    chance = np.abs(areas[1:] - 0.5)
    return [
        Check(
            name="classifier",
            kind="classifier",
            question="what single users look like, to a classifier that knows these features alone",
            what="area under the curve of a classifier of users (.5: no better than chance)",
            real=floor,
            simulated=float(areas[0]),
            distance=max(float(areas[0]) - 0.5, 0.0),
            chance=max(float(np.median(chance)), floor - 0.5),
            visible=float(np.quantile(chance, 0.95)),
            tolerance=0.05,
            p=(1 + int(np.sum(areas[1:] - 0.5 >= over))) / len(areas),
            picture={"kind": "features", "features": _giving_away(names, tested, real)},
        )
    ]


def cross_validated_auc(features: Floats, labels: Floats, seed: int) -> Floats:
    """(P,) areas under the ROC curve, mean over folds, of least squares on normal scores of features and their squares.

    Of features (n, f) and divisions (P, n), whose folds and products are the same, so that chance is known exactly.
    """
    x = _scores(features)
    fold = split_folds(len(features), FOLDS, seed)
    total = np.zeros(len(labels))
    for i in range(FOLDS):
        train = fold != i
        test = fold == i
        centred = labels[:, train] - labels[:, train].mean(axis=1, keepdims=True)
        gram = x[train].T @ x[train] + np.eye(x.shape[1])  # a ridge of one user
        total += auc(x[test] @ np.linalg.solve(gram, x[train].T @ centred.T), labels[:, test].T)
    return total / FOLDS


def auc(scores: Floats, labels: Floats) -> Floats:
    """Return (P,) the probability that a member of the first group (n, P) scores higher than one of the second."""
    from scipy.stats import rankdata

    n = labels.sum(axis=0)
    m = len(labels) - n
    over = (rankdata(scores, axis=0) * labels).sum(axis=0) - n * (n + 1) / 2.0
    return np.divide(over, n * m, out=np.full(len(n), 0.5), where=n * m > 0)


def _known_again(features: Floats, groups: Groups) -> float:
    """Return the area of a world that memorised its users: between these, drawn again, and held-out ones."""
    features_found = []
    held = features[groups.n_known : groups.n_known + groups.n_held]
    for i in range(3):
        seed = derive_seed(groups.seed, f"known users again {i}")
        draw = uniforms(seed, Stream.PROTOCOL, np.arange(groups.n_simulated), 0)
        drawn_features = features[(draw * groups.n_known).astype(np.int64)]
        features_found.append(
            float(cross_validated_auc(np.vstack([held, drawn_features]), groups.permuted[:1], seed)[0])
        )
    return max(float(np.mean(features_found)), 0.5)


def _giving_away(names: list[str], features: Floats, real: NDArray[np.bool_]) -> list[dict[str, float | str]]:
    """Name the features that alone separate the two groups best."""
    areas = auc(features, np.repeat(real[:, None], len(names), axis=1).astype(np.float64))
    rows: list[dict[str, float | str]] = [
        {
            "feature": name,
            "auc": max(float(area), 1.0 - float(area)),
            "real": float(values[real].mean()),
            "simulated": float(values[~real].mean()),
        }
        for name, values, area in zip(names, features.T, areas, strict=True)
    ]
    return sorted(rows, key=lambda row: -float(row["auc"]))[:_NAMED]


def _scores(features: Floats) -> Floats:
    """Normal scores of each feature (ties share one), and their squares."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    z = ndtri((rankdata(features, axis=0) - 0.5) / len(features))
    x = np.hstack([z, z**2])
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
