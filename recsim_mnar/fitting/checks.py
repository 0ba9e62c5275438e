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
"""Probability of a false alarm over all checks of one validation (Holm 1979): half of 5 %, since the policy that made
the log may be estimated, which the tests do not allow for."""
_MOST_TOLERANCES = 2.0
"""Tolerances of a difference that a check must have been able to see; otherwise its finding nothing means nothing."""
CUMULATIVE, SHARES, SCALED, STANDARD = "cumulative", "shares", "scaled", "standard"
_CELLS_AT_ONCE = 1 << 23
"""Numbers in memory at once while groups are summed: 64 MB of float64."""
FOLDS = 5
"""Folds of the classifier's cross-validation."""
_MOST_IN_PICTURE = 60
"""Largest number of values in a picture."""
_MOST_NAMED = 5
"""Number of features that are named as separating real from simulated users best."""


@dataclass(frozen=True)
class Check:
    """Comparison of real and simulated users in one respect.

    Attributes:
        name: name of the check.
        kind: ``statistic`` or ``classifier``.
        question: question that the check bears on.
        what: name of the number that ``real`` and ``simulated`` are.
        real: number of the log's users with whom the world is compared.
        simulated: number of the world's users.
        distance: distance between real and simulated users, in the check's own unit.
        chance: median distance where the same users are divided at random, which no world can be expected to undercut.
        visible: 0.95 quantile of these distances, above which a distance is distinguished from chance.
        tolerance: excess of the distance over chance that counts as small; both add up in squares.
        p: p-value of the hypothesis of no difference, before adjustment; None where it cannot be tested.
        p_adjusted: p-value adjusted over all checks (Holm 1979).
        grade: matches, close, off or cannot say.
        says: sentence on the result.
        picture: data of the check's picture; JSON types.
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
        """Return whether the test rejects the hypothesis of no difference."""
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL


@dataclass(frozen=True)
class Validation:
    """Comparison of a world with a log.

    Attributes:
        checks: the checks, graded.
        not_checked: questions that no check bears on, each with the reason.
        notes: sentences that a reader of the checks must know.
        facts: numbers of users and items, seed, and the policy that recommended to simulated users; JSON types.
    """

    checks: list[Check]
    not_checked: list[str]
    notes: list[str] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def _questions(self, *grades: str) -> list[str]:
        """Return the questions of the checks with one of the grades."""
        return [check.question for check in self.checks if check.grade in grades]

    @property
    def valid_for(self) -> list[str]:
        """Questions whose checks the world passes: indistinguishable from the log, or nearly so."""
        return self._questions(MATCHES, CLOSE)

    @property
    def not_valid_for(self) -> list[str]:
        """Questions whose checks the world fails."""
        return self._questions(OFF)

    @property
    def cannot_say(self) -> list[str]:
        """Questions whose checks had too little data to see a difference, or could not be tested."""
        return self._questions(CANNOT_SAY)

    def check(self, name: str) -> Check:
        """Return a check by its name.

        Raises:
            UserError: there is no check of that name.
        """
        by_name = {check.name: check for check in self.checks}
        if name not in by_name:
            raise UserError(f"no check {name!r}; {nearest(name, by_name)}")
        return by_name[name]

    def to_dict(self) -> Mapping[str, Any]:
        """Return questions by verdict, notes, facts and checks as JSON types."""
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
    """Return the checks with adjusted p-values and grades; a check without a p-value stays as it is."""
    adjusted = iter(holm(np.array([check.p for check in checks if check.p is not None])).tolist())
    return [check if check.p is None else _with_grade(check, next(adjusted)) for check in checks]


def _with_grade(check: Check, adjusted: float) -> Check:
    """Return the check with its adjusted p-value, grade and sentence.

    A difference that the test finds is ``close`` if it is small and ``off`` otherwise; where the test finds none, the
    world ``matches`` if the test could have seen a relevant difference, and otherwise the check ``cannot say``.
    """
    check = dataclasses.replace(check, p_adjusted=adjusted)
    # Chance and difference add up in squares.
    excess = np.sqrt(max(check.distance**2 - check.chance**2, 0.0))
    least_visible = np.sqrt(max(check.visible**2 - check.chance**2, 0.0))
    if check.differs and excess <= check.tolerance:
        grade = CLOSE
    elif check.differs:
        grade = OFF
    elif least_visible > _MOST_TOLERANCES * check.tolerance:
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
class Statistic:
    """A statistic of a group of users, computed from the sums of k numbers over the group's users.

    Attributes:
        sums: (U, k) sums over each user's rows; an array or a scipy sparse array.
        values: function from the sums of P groups (P, k) to the statistic's values (P, v).
        distance: measure of the difference between two groups' values. :data:`CUMULATIVE`: largest gap between
            cumulative shares; :data:`SHARES`: half the sum of the absolute differences of shares, tested by the sum of
            (a - b)^2 / (a + b); :data:`SCALED`: differences relative to the values, root mean square weighted by each
            value's precision, tested in the metric of their covariance (Hotelling); :data:`STANDARD`: as SCALED, but
            without division by the values, which are in standard deviations already.
        headline: function from the sums of P groups (P, k) to one number for each group (P,).
        entries: names of the v values.
        axis: title of the values together.
        features: by name, features (U,) of single users for the classifier.
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
    """Groups of users in the order of their numbers: those the world was fitted on, held-out ones, simulated ones.

    Attributes:
        n_fitted_on: number of users that the world was fitted on; 0 for a world that was not fitted for the comparison.
        n_held: number of held-out users.
        n_simulated: number of simulated users.
        seed: seed of the random divisions.
        allowance: factor by which the error of the fit raises the variance of a difference between held-out and
            simulated users; 1 for a world that was not fitted.
        draws: number of random divisions.
    """

    n_fitted_on: int
    n_held: int
    n_simulated: int
    seed: int
    allowance: float = 1.0
    draws: int = 999

    @functools.cached_property
    def permuted(self) -> Floats:
        """Divisions of held-out and simulated users into a first group of ``n_held`` users and a second one.

        (draws + 1, n_held + n_simulated): 1 for users of the first group, else 0. The first row is the actual division,
        with the held-out users as first group; the others are random.
        """
        n = self.n_held + self.n_simulated
        divisions = np.zeros((self.draws + 1, n))
        divisions[0, : self.n_held] = 1.0
        seed = derive_seed(self.seed, "permutations")
        for row in range(1, self.draws + 1):
            drawn = uniforms(seed, Stream.PROTOCOL, np.arange(n), row)
            divisions[row, np.argpartition(drawn, self.n_held - 1)[: self.n_held]] = 1.0
        return divisions


class Comparison(TypedDict):
    """Numbers of a :class:`Check`, with the meaning that they have there."""

    real: float
    simulated: float
    distance: float
    chance: float
    visible: float
    p: float
    picture: dict[str, Any]


def permutation_test(statistic: Statistic, groups: Groups) -> Comparison:
    """Test whether held-out and simulated users differ, by comparison with random divisions of the same users.

    Args:
        statistic: the statistic, with the sums of all users.
        groups: numbers of users by group, and the random divisions.

    Returns:
        The numbers of a check. ``p`` is the share of divisions, the actual one included, whose test statistic is as
        large as the actual one; the picture has the .05 and .95 quantiles of the values over random divisions.
    """
    tested = statistic.sums[groups.n_fitted_on :]
    total = _sum(np.ones((1, tested.shape[0])), tested)
    weights, inverse = _variation_by_chance(statistic, groups, tested, total)
    kept = np.zeros(0, np.int64)
    tests = []
    distances = []
    values_of_first = []
    for a, b in _values_by_division(statistic, groups, tested, total):
        if not len(kept):  # the first row of the first block is the actual division
            kept = _values_in_picture(statistic, a[0], b[0])
        test, distance = _differences(statistic.distance, a, b, weights, inverse)
        tests.append(test)
        distances.append(distance)
        values_of_first.append(a[:, kept])
    test = np.concatenate(tests)
    distance = np.concatenate(distances)
    values = np.concatenate(values_of_first)
    # Allow for the error of a fitted world: test statistics are squares, except the largest gap of CUMULATIVE.
    power = 1.0
    if statistic.distance == CUMULATIVE:
        power = 0.5
    limit = test[0] / groups.allowance**power
    held = _sum(groups.permuted[:1], tested)
    # Variation over random divisions, about the actual value.
    low, high = values[0] + np.quantile(values[1:] - values[1:].mean(axis=0), (0.05, 0.95), axis=0)
    return {
        "real": float(statistic.headline(held)[0]),
        "simulated": float(statistic.headline(total - held)[0]),
        "distance": float(distance[0]),
        "chance": float(np.median(distance[1:])),
        "visible": float(np.quantile(distance[1:], 0.95)),
        # The factor counts divisions as large that differ by rounding only.
        "p": (1 + int(np.sum(test[1:] >= limit * (1 - 1e-12)))) / len(test),
        "picture": {
            "kind": statistic.distance,
            "axis": statistic.axis,
            "entries": [statistic.entries[i] for i in kept],
            "real": values[0].tolist(),
            "simulated": statistic.values(total - held)[0, kept].tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        },
    }


def _sum(labels: NDArray[Any], sums: Any) -> Floats:
    """Return sums (P, k) of users' numbers (U, k) over the users of each group, marked by labels (P, U)."""
    return np.asarray((sums.T @ np.asarray(labels, np.float64).T).T, np.float64)


def _values_by_division(
    statistic: Statistic, groups: Groups, tested: Any, total: Floats
) -> Iterator[tuple[Floats, Floats]]:
    """Yield the values (P, v) of the first and of the second group, for one block of P divisions after another.

    Args:
        statistic: the statistic.
        groups: the divisions.
        tested: (U, k) sums of held-out and simulated users.
        total: (1, k) sums over all of them.
    """
    step = max(1, _CELLS_AT_ONCE // (8 * max(tested.shape[1], 1)))
    for begin in range(0, groups.draws + 1, step):
        first = _sum(groups.permuted[begin : begin + step], tested)
        yield statistic.values(first), statistic.values(total - first)


def _variation_by_chance(statistic: Statistic, groups: Groups, tested: Any, total: Floats) -> tuple[Floats, Floats]:
    """Return how the differences of values between two groups vary over random divisions.

    Args:
        statistic: the statistic.
        groups: the divisions.
        tested: (U, k) sums of held-out and simulated users.
        total: (1, k) sums over all of them.

    Returns:
        weights: (v,) 1 / variance of each value's difference; 0 for a value that hardly varies.
        inverse: (v, v) inverse of the correlation matrix of the differences. Both are empty for distances that do not
            use them.
    """
    if statistic.distance not in (SCALED, STANDARD):
        return np.zeros(0), np.zeros((0, 0))
    differences = np.concatenate([a - b for a, b in _values_by_division(statistic, groups, tested, total)])
    scale = differences.std(axis=0)
    used = scale > 1e-12 * max(float(scale.max(initial=0.0)), 1e-300)
    weights = np.divide(1.0, scale**2, out=np.zeros_like(scale), where=used)
    z = differences * np.sqrt(weights)
    # A ridge: where values are collinear in all divisions, rounding errors must not count as differences.
    return weights, np.linalg.inv(z.T @ z / len(z) + 1e-3 * np.eye(differences.shape[1]))


def _differences(distance: str, a: Floats, b: Floats, weights: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """Measure the difference between the values of two groups, for P divisions.

    Args:
        distance: measure of the difference, as :class:`Statistic` explains it.
        a: (P, v) values of the first group.
        b: (P, v) values of the second group.
        weights: (v,) precisions of the differences, from :func:`_variation_by_chance`.
        inverse: (v, v) inverse correlation of the differences, from :func:`_variation_by_chance`.

    Returns:
        test: (P,) test statistics.
        natural: (P,) distances in the unit that a reader sees.
    """
    if distance == CUMULATIVE:
        gap = np.abs(a - b).max(axis=1)
        return gap, gap
    if distance == SHARES:
        both = a + b
        test = np.divide((a - b) ** 2, both, out=np.zeros_like(both), where=both > 0).sum(axis=1)
        return test, 0.5 * np.abs(a - b).sum(axis=1)
    z = (a - b) * np.sqrt(weights)
    if distance == STANDARD:
        scale = np.ones_like(a)
    else:
        scale = (np.abs(a) + np.abs(b)) / 2
    size = np.sqrt(scale**2 @ weights)
    natural = np.divide(np.sqrt((a - b) ** 2 @ weights), size, out=np.zeros(len(a)), where=size > 0)
    return np.einsum("pi,pi->p", z @ inverse, z), natural


def _values_in_picture(statistic: Statistic, a: Floats, b: Floats) -> NDArray[np.int64]:
    """Return indices of at most ``_MOST_IN_PICTURE`` values to draw: the largest shares, or evenly spaced values.

    Args:
        statistic: the statistic.
        a: (v,) values of the held-out users.
        b: (v,) values of the simulated users.
    """
    if statistic.distance == SHARES and len(a) > _MOST_IN_PICTURE:
        return np.argsort(-(a + b), kind="stable")[:_MOST_IN_PICTURE]
    return np.unique(np.linspace(0, len(a) - 1, min(len(a), _MOST_IN_PICTURE)).astype(np.int64))


def classifier_check(columns: Sequence[Statistic], groups: Groups) -> list[Check]:
    """Check whether a classifier of single users tells real from simulated ones.

    For a world that was fitted on real users, the area under the curve is compared with that of a world that repeats
    these very users: sampling makes them differ from the held-out ones as well.

    Args:
        columns: statistics with features of users.
        groups: numbers of users by group, and the random divisions.

    Returns:
        One check; none where every feature is constant.
    """
    varying: dict[str, Floats] = {}
    for statistic in columns:
        varying |= {name: values for name, values in statistic.features.items() if np.ptp(values) > 0}
    if not varying:
        return []
    names = [*varying]
    features = np.stack([*varying.values()], axis=1)
    tested = features[groups.n_fitted_on :]
    real = groups.permuted[0] > 0
    areas = cross_validated_auc(tested, groups.permuted, derive_seed(groups.seed, "folds"))
    floor = 0.5
    if groups.n_fitted_on:
        floor = _area_of_repeated_users(features, groups)
    excess = (areas[0] - floor) / np.sqrt(groups.allowance)
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
            p=(1 + int(np.sum(areas[1:] - 0.5 >= excess))) / len(areas),
            picture={"kind": "features", "features": _separating_features(names, tested, real)},
        )
    ]


def cross_validated_auc(features: Floats, labels: Floats, seed: int) -> Floats:
    """Return the cross-validated area under the ROC curve of a linear classifier, for each of P divisions of users.

    The classifier is ridge regression on normal scores of the features and on their squares. Folds and matrix products
    are the same for all divisions, so that a permutation test of the areas is exact.

    Args:
        features: (n, f) features of the users.
        labels: (P, n) divisions: 1 for users of the first group, else 0.
        seed: seed of the folds.

    Returns:
        (P,) areas, means over the folds.
    """
    x = _normal_scores(features)
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
    """Return the areas under P ROC curves, by ranks; ties count half.

    Args:
        scores: (n, P) scores of the users.
        labels: (n, P) 1 for users of the first group, else 0.

    Returns:
        (P,) probabilities that a user of the first group scores higher than one of the second; 0.5 without a group.
    """
    from scipy.stats import rankdata

    n = labels.sum(axis=0)
    m = len(labels) - n
    pairs_won = (rankdata(scores, axis=0) * labels).sum(axis=0) - n * (n + 1) / 2.0  # Mann-Whitney's U
    return np.divide(pairs_won, n * m, out=np.full(len(n), 0.5), where=n * m > 0)


def _area_of_repeated_users(features: Floats, groups: Groups) -> float:
    """Return the area under the curve that a world would have if it repeated the users it was fitted on.

    Users are drawn with replacement in place of the simulated ones and classified against the held-out ones; the area
    is the mean of three such draws, at least 0.5.

    Args:
        features: (U, f) features of all users.
        groups: numbers of users by group.
    """
    areas = []
    held = features[groups.n_fitted_on : groups.n_fitted_on + groups.n_held]
    for i in range(3):
        seed = derive_seed(groups.seed, f"known users again {i}")
        draw = uniforms(seed, Stream.PROTOCOL, np.arange(groups.n_simulated), 0)
        drawn_features = features[(draw * groups.n_fitted_on).astype(np.int64)]
        areas.append(float(cross_validated_auc(np.vstack([held, drawn_features]), groups.permuted[:1], seed)[0]))
    return max(float(np.mean(areas)), 0.5)


def _separating_features(names: list[str], features: Floats, real: NDArray[np.bool_]) -> list[dict[str, float | str]]:
    """Return the ``_MOST_NAMED`` features that separate real from simulated users best by themselves, the best first.

    Args:
        names: names of the features.
        features: (n, f) features of the users.
        real: (n,) True for real users.

    Returns:
        One row per feature: name, area under the curve, means over real and over simulated users.
    """
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
    return sorted(rows, key=lambda row: -float(row["auc"]))[:_MOST_NAMED]


def _normal_scores(features: Floats) -> Floats:
    """Return standardised normal scores of features (n, f), tied values sharing one, and of their squares; (n, 2 f)."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    z = ndtri((rankdata(features, axis=0) - 0.5) / len(features))
    x = np.hstack([z, z**2])
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
