"""Telling real users from simulated ones: logistic regression on features of users, judged on users it did not see."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.validation.checks import Check
from recsim_mnar.fitting.validation.features import user_features
from recsim_mnar.fitting.validation.lives import Floats, Ints, Lives
from recsim_mnar.fitting.validation.material import Material, prepared
from recsim_mnar.fitting.validation.two_groups import Groups
from recsim_mnar.rng import Stream, derive_seed, uniforms

FOLDS = 5
PLANTED = 0.2
"""Share of views that the planted defect replaces."""
FOUND = 0.01
"""Level at which the planted defect must be found."""
_HALVES = 3
_RIDGE = 1.0
_STEPS = 12
_NAMED = 5


@dataclass(frozen=True)
class Told:
    """How well two groups of users were told apart.

    Attributes:
        auc: area under the ROC curve, mean over folds; .5 is chance.
        z: (auc - .5) over its standard deviation by chance alone.
    """

    auc: float
    z: float

    def above(self, floor: float) -> Told:
        """As if an area of ``floor`` were chance."""
        return Told(self.auc, self.z * (self.auc - floor) / (self.auc - 0.5) if self.auc != 0.5 else 0.0)

    def p(self, allowance: float = 1.0) -> float:
        """Of telling them apart so well by chance, one-sided."""
        return 0.5 * math.erfc(self.z / math.sqrt(2.0 * allowance))


def telling_apart(m: Material, groups: Groups) -> Check | None:
    """The check by a classifier, with its ceiling and its positive control; None where users have no features."""
    names, features = user_features(m)
    tested = np.arange(groups.n_known, m.lives.n_users)
    if not names:
        return None
    real = tested < groups.n_real
    found = told_apart(features[tested], real, derive_seed(groups.seed, "classifier"))
    between = [
        told_apart(*_halves(features, groups, i), derive_seed(groups.seed, f"halves {i}")) for i in range(_HALVES)
    ]
    again = [_known_again(features, groups, i) for i in range(_HALVES)] if groups.n_known else []
    control = _planted(m, groups)
    ceiling = [each.auc for each in (again or between)]
    floor = max(float(np.mean(ceiling)), 0.5) if again else 0.5
    away = _giving_away(names, features[tested], real)
    return Check(
        name="classifier", kind="classifier",
        question="what single users look like, to a classifier that knows these features alone",
        what="area under the curve of a classifier of users (.5: cannot tell)",
        real=float(np.mean(ceiling)), simulated=found.auc, distance=max(found.auc - 0.5, 0.0),
        ceiling=max(float(np.median(ceiling)) - 0.5, 0.0), ceiling_high=max(max(ceiling) - 0.5, 0.0),
        visible=2.4 * _sd(groups.n_held, groups.n_simulated), tolerance=0.05, p=found.above(floor).p(groups.allowance),
        picture={"kind": "features", "features": away},
        details={"features": away, "planted_auc": control.auc, "planted": PLANTED,
                 "control_found": control.p() <= FOUND, "halves": [each.auc for each in between],
                 "known_users_again": [each.auc for each in again]},
    )  # fmt: skip


def told_apart(features: Floats, first: NDArray[np.bool_], seed: int) -> Told:
    """Cross-validated AUC of a logistic regression on normal scores of the features and their squares.

    Args:
        features: (n, f).
        first: (n,) which users are of the first group.
        seed: of the folds.
    """
    x = _scores(features)
    fold = _folds(first, seed)
    areas, variances = [], []
    for i in range(FOLDS):
        train, test = fold != i, fold == i
        weights = logistic_regression(x[train], first[train])
        areas.append(auc(x[test] @ weights[1:], first[test]))
        variances.append(_sd(int(first[test].sum()), int((~first[test]).sum())) ** 2)
    mean, sd = float(np.mean(areas)), math.sqrt(sum(variances)) / FOLDS
    return Told(mean, (mean - 0.5) / sd)


def logistic_regression(x: Floats, y: NDArray[np.bool_], ridge: float = _RIDGE) -> Floats:
    """(1 + d,) intercept and weights of the largest likelihood less ridge / 2 times their squares (Newton's method)."""
    design = np.hstack([np.ones((len(x), 1)), x])
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-6
    weights = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (y - p) - penalty * weights
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        weights = weights + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-4:
            break
    return weights


def auc(score: Floats, first: NDArray[np.bool_]) -> float:
    """Probability that a member of the first group scores higher than one of the second; ties count half."""
    values, code, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2.0)[code]
    n, m = int(first.sum()), int((~first).sum())
    if n == 0 or m == 0 or len(values) == 1:
        return 0.5
    return float((rank[first].sum() - n * (n + 1) / 2.0) / (n * m))


def planted_defect(lives: Lives, users: Ints, seed: int, share: float = PLANTED) -> Lives:
    """Lives in which some users' views are, one in so many, replaced by what another user viewed (or rated)."""
    rows = np.flatnonzero(~lives.shown & np.isin(lives.owner, users))
    draw = uniforms(seed, Stream.PROTOCOL, rows, 0)
    chosen = rows[draw < share]
    pool = np.flatnonzero(~lives.shown)
    taken = pool[(uniforms(seed, Stream.PROTOCOL, chosen, 1) * len(pool)).astype(np.int64)]
    item, reward = lives.item.copy(), lives.reward.copy()
    item[chosen], reward[chosen] = lives.item[taken], lives.reward[taken]
    return Lives(lives.n_users, lives.n_items, lives.owner, lives.shown, item, reward, lives.time)


def _planted(m: Material, groups: Groups) -> Told:
    """The positive control: real users against real users of whom views were replaced."""
    real = m.lives.users(np.arange(groups.n_real))
    first, second = (np.flatnonzero(flags[0]) for flags in groups.divided)
    seed = derive_seed(groups.seed, "planted")
    both = Lives.joined([real.users(first), real.users(second)])
    spoilt = planted_defect(both, np.arange(len(first)), seed)
    _, features = user_features(prepared(spoilt, same_items=m.same_items, clock=m.clock))
    return told_apart(features, np.arange(both.n_users) < len(first), seed) if features.shape[1] else Told(0.5, 0.0)


def _halves(features: Floats, groups: Groups, i: int) -> tuple[Floats, NDArray[np.bool_]]:
    first, second = (np.flatnonzero(flags[i]) for flags in groups.divided)
    both = np.concatenate([first, second])
    return features[both], np.arange(len(both)) < len(first)


def _known_again(features: Floats, groups: Groups, i: int) -> Told:
    """Held-out users against the users that a world was fitted on, drawn again with replacement.

    What a world would do that knows these users by heart: it has their chance in every feature.
    """
    seed = derive_seed(groups.seed, f"known users again {i}")
    draw = uniforms(seed, Stream.PROTOCOL, np.arange(groups.n_simulated), 0)
    known = features[(draw * groups.n_known).astype(np.int64)]
    held = features[groups.n_known : groups.n_real]
    return told_apart(np.vstack([held, known]), np.arange(len(held) + len(known)) < len(held), seed)


def _giving_away(names: list[str], features: Floats, real: NDArray[np.bool_]) -> list[dict[str, float | str]]:
    """The features that tell most by themselves."""
    rows: list[dict[str, float | str]] = []
    for name, values in zip(names, features.T, strict=True):
        area = auc(values, real)
        rows.append({"feature": name, "auc": max(area, 1.0 - area), "real": float(values[real].mean()),
                     "simulated": float(values[~real].mean())})  # fmt: skip
    return sorted(rows, key=lambda row: -float(row["auc"]))[:_NAMED]


def _scores(features: Floats) -> Floats:
    """Normal scores of each feature (ties share one), and their squares."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    z = ndtri((rankdata(features, axis=0) - 0.5) / len(features))
    x = np.hstack([z, z**2])
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _folds(first: NDArray[np.bool_], seed: int) -> Ints:
    """(n,) folds of equal size in both groups."""
    draw = uniforms(seed, Stream.PROTOCOL, np.arange(len(first)), 0)
    fold = np.empty(len(first), np.int64)
    for group in (first, ~first):
        members = np.flatnonzero(group)
        fold[members[np.argsort(draw[members], kind="stable")]] = np.arange(len(members)) % FOLDS
    return fold


def _sd(n: int, m: int) -> float:
    """Standard deviation of the AUC of groups of n and m by chance."""
    return math.sqrt((n + m + 1) / (12.0 * max(n, 1) * max(m, 1)))
