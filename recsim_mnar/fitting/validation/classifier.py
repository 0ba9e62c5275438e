"""Telling real users from simulated ones: least squares on features of users, judged on users it did not see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.validation.checks import Check
from recsim_mnar.fitting.validation.lives import Floats
from recsim_mnar.fitting.validation.statistics import Material, Row
from recsim_mnar.fitting.validation.two_groups import Groups
from recsim_mnar.rng import Stream, derive_seed, uniforms

FOLDS = 5
_RIDGE = 1.0
_NAMED = 5


def user_features(m: Material, rows: Sequence[Row]) -> tuple[list[str], Floats]:
    """Names, and (n_users, f) features that rows of the table have of users; those the same for all are left out."""
    made = [row.columns(m) for row in rows]
    found = {name: values for c in made if c is not None for name, values in c.features.items()}
    kept = {name: values for name, values in found.items() if np.ptp(values) > 0}
    return [*kept], np.stack([*kept.values()], axis=1) if kept else np.zeros((m.lives.n_users, 0))


def telling_apart(m: Material, rows: Sequence[Row], groups: Groups) -> list[Check]:
    """The check by a classifier, with its positive control; none where users have no features."""
    names, features = user_features(m, rows)
    if not names:
        return []
    tested, real = features[groups.n_known :], groups.permuted[0] > 0
    areas = told_apart(tested, groups.permuted, derive_seed(groups.seed, "folds"))
    floor = _known_again(features, groups) if groups.n_known else 0.5
    over = (areas[0] - floor) / np.sqrt(groups.allowance)
    chance = np.abs(areas[1:] - 0.5)
    return [Check(
        name="classifier", kind="classifier",
        question="what single users look like, to a classifier that knows these features alone",
        what="area under the curve of a classifier of users (.5: cannot tell)",
        real=floor, simulated=float(areas[0]), distance=max(float(areas[0]) - 0.5, 0.0),
        chance=max(float(np.median(chance)), floor - 0.5), visible=float(np.quantile(chance, 0.95)), tolerance=0.05,
        p=(1 + int(np.sum(areas[1:] - 0.5 >= over))) / len(areas),
        picture={"kind": "features", "features": _giving_away(names, tested, real)},
    )]  # fmt: skip


def told_apart(features: Floats, labels: Floats, seed: int) -> Floats:
    """Areas under the ROC curve, mean over folds, of least squares on normal scores of features and their squares.

    The folds and all products are the same for every division of the users, so that chance is known exactly.

    Args:
        features: (n, f).
        labels: (P, n) divisions: 1 for users of the first group, else 0.
        seed: of the folds.

    Returns:
        (P,) areas; .5 is chance.
    """
    x, n = _scores(features), len(features)
    fold = np.argsort(np.argsort(uniforms(seed, Stream.PROTOCOL, np.arange(n), 0), kind="stable")) % FOLDS
    total = np.zeros(len(labels))
    for i in range(FOLDS):
        train, test = fold != i, fold == i
        centred = labels[:, train] - labels[:, train].mean(axis=1, keepdims=True)
        gram = x[train].T @ x[train] + _RIDGE * np.eye(x.shape[1])
        total += auc(x[test] @ np.linalg.solve(gram, x[train].T @ centred.T), labels[:, test].T)
    return total / FOLDS


def auc(scores: Floats, labels: Floats) -> Floats:
    """(P,) probability that a member of the first group scores higher than one of the second; both (n, P)."""
    from scipy.stats import rankdata

    n = labels.sum(axis=0)
    m = len(labels) - n
    over = (rankdata(scores, axis=0) * labels).sum(axis=0) - n * (n + 1) / 2.0
    return np.divide(over, n * m, out=np.full(len(n), 0.5), where=n * m > 0)


def _known_again(features: Floats, groups: Groups) -> float:
    """The area at which held-out users are told from those that a world was fitted on, drawn again with replacement.

    What a world would do that knows these users by heart: it has their chance in every feature.
    """
    found = []
    for i in range(3):
        seed = derive_seed(groups.seed, f"known users again {i}")
        draw = uniforms(seed, Stream.PROTOCOL, np.arange(groups.n_simulated), 0)
        known = features[(draw * groups.n_known).astype(np.int64)]
        both = np.vstack([features[groups.n_known : groups.n_known + groups.n_held], known])
        found.append(float(told_apart(both, groups.permuted[:1], seed)[0]))
    return max(float(np.mean(found)), 0.5)


def _giving_away(names: list[str], features: Floats, real: NDArray[np.bool_]) -> list[dict[str, float | str]]:
    """The features that tell most by themselves."""
    areas = auc(features, np.repeat(real[:, None], len(names), axis=1).astype(np.float64))
    rows: list[dict[str, float | str]] = [
        {"feature": name, "auc": max(float(area), 1.0 - float(area)), "real": float(values[real].mean()),
         "simulated": float(values[~real].mean())}
        for name, values, area in zip(names, features.T, areas, strict=True)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row["auc"]))[:_NAMED]


def _scores(features: Floats) -> Floats:
    """Normal scores of each feature (ties share one), and their squares."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    z = ndtri((rankdata(features, axis=0) - 0.5) / len(features))
    x = np.hstack([z, z**2])
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
