"""Estimators of rankings, one record each: what its scores are, and what it assumes of users.

A score is for most of them the weight of their kind times the reward, where the weight is a ratio of the target's and
the log's probability of

- ``marginal``: this item at this position,
- ``cumulative``: the items down to this position, in order,
- ``slate``: the whole slate in order,
- ``set``: the items of the slate in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Deviations
from recsim_mnar.estimators.ranking_assumptions import PREMISES
from recsim_mnar.estimators.refuters import STRICT
from recsim_mnar.estimators.scores import ESTIMATORS, Rows, Scores, check_name
from recsim_mnar.estimators.verdict import GRAVE, Finding
from recsim_mnar.kernels.checks import told_apart, whole_number
from recsim_mnar.log.columns import Floats, Ints, finite_column, user_sums
from recsim_mnar.plugins import unknown

LOGGED = {
    "marginal": "propensity",
    "conditional": "conditional_propensity",
    "slate": "slate_propensity",
    "set": "set_propensity",
}
"""Columns of the log's probabilities, by kind."""
SUFFIXES = {"marginal": "", "conditional": "_conditional", "slate": "_slate", "set": "_set"}
"""What follows a target's name in the names of its columns, by kind."""
MOST_RANKINGS, MOST_PAIRS = 50_000, 400
"""Rankings, and pairs of item and position, that the pseudo-inverse enumerates for one context."""


@dataclass(frozen=True, kw_only=True)
class RankingRows(Rows):
    """The checked columns of a log of slates, ``slate_size`` rows each from the top.

    Rewards are weighted by position and multiplied by ``slate_size``, so that the mean over rows is a value.

    Attributes:
        slate_size: items per slate.
        position: (n,) places from the top, from 0.
        action: (n,) numbers of the items shown, from 0, or None.
        logging: by kind, (n,) the log's probabilities.
        targets: by kind, (n,) the target's.
        factor: (n,) what rewards were multiplied by.
    """

    slate_size: int
    position: Ints
    action: Ints | None
    logging: Mapping[str, Floats]
    targets: Mapping[str, Floats]
    factor: Floats

    def ratio(self, kind: str) -> Floats:
        """(n,) weights of a kind.

        Raises:
            UserError: the columns of that kind are missing.
        """
        for known, whose in ((self.logging, "log"), (self.targets, "target")):
            if kind not in known:
                raise UserError(
                    f"the {whose} has no probabilities of the kind {kind!r}: give {columns_of(kind, whose)}"
                )
        return self.targets[kind] / self.logging[kind]


@dataclass(frozen=True)
class RankingEstimatorInfo:
    """The complete description of an estimator of rankings.

    Attributes:
        name: as in ``estimate_ranking_value(estimators=...)``.
        title: one line.
        source: paper, and equation where it has a number there.
        weight: kind of its weight.
        premise: what it assumes of users, a key of :data:`recsim_mnar.estimators.ranking_assumptions.PREMISES`.
        fails: what it estimates where that is wrong.
        machine: the estimator of :data:`recsim_mnar.estimators.ESTIMATORS` that its weights go to; "" for its own
            scores.
        clipped: likewise with a clip; "" where a clip changes nothing.
        less: estimators that assume less, which it is compared with.
        requires: arguments that must be given.
        takes: arguments that may be given.
        scores: its function where ``machine`` is "": rows in, one score per row out.
    """

    name: str
    title: str
    source: str
    weight: str
    premise: str = ""
    fails: str = ""
    machine: str = "ips"
    clipped: str = "clipped_ips"
    less: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    scores: Callable[..., Scores] | None = None

    @property
    def assumes(self) -> str:
        """What it assumes of users, in words."""
        return PREMISES[self.premise]


def pseudo_inverse(
    rows: RankingRows, *, logger: Any, n_items: Any = None, inclusion: Any = None, context: Any = None
) -> Scores:
    """Slate rewards times q' G^+ 1_s (Swaminathan et al. 2017).

    Args:
        rows: of the log.
        logger: "uniform" (every ranking of ``n_items`` items without repetition alike), "independent" (positions are
            filled independently of each other), or a function of a context that returns its rankings (L, k), and their
            probabilities (L,) under the log's policy and (L,) under the target.
        n_items: items that can be shown; for "uniform".
        inclusion: (n,) the target's probability of the row's item at any position; for "uniform", unless the slate
            shows all items.
        context: (n,) labels of contexts for a function; None where there is one.
    """
    k = rows.slate_size
    slates = rows.reward.size // k
    found: list[Finding] = []
    if isinstance(logger, str) and logger == "uniform":
        m = whole_number(n_items if n_items is not None else 0, "n_items", least=max(k, 2))
        if np.max(np.abs(rows.logging["marginal"] * m - 1.0)) > 1e-6:
            raise UserError(f"pseudo_inverse: the log is not uniform over {m} items, its propensities are not 1 / {m}")
        weight = (m - 1.0) * rows.targets["marginal"].reshape(slates, k).sum(1) - (k - 1.0)
        if k < m:
            if inclusion is None:
                raise UserError("pseudo_inverse of a uniform log needs inclusion: the target's probability of the item")
            shown = finite_column(inclusion, "inclusion", rows.reward.size).reshape(slates, k).sum(1)
            weight += ((m - 1.0) * shown - k * (k - 1.0)) / (m - k)
        else:
            weight += 1.0
    elif isinstance(logger, str) and logger == "independent":
        weight = rows.ratio("marginal").reshape(slates, k).sum(1) - (k - 1.0)
    elif callable(logger):
        weight, missing = _enumerated(rows, logger, context)
        if missing > 1e-9:
            message = "the target shows items at positions where the log's policy cannot show them"
            found.append(Finding("support_missing", GRAVE, missing, message, "log with exploration"))
    else:
        raise UserError(
            "pseudo_inverse knows logger='uniform', logger='independent' and a function that returns the rankings of a "
            f"context with their probabilities, got {logger!r}. For other loggers use slate_ips"
        )
    found += _mean_of_weights(weight, rows)
    weight = np.repeat(weight, k)
    linear, most = weight * rows.reward, float(np.max(np.abs(weight))) or 1.0
    down = max(float(np.max(-weight)) * float(np.max(rows.reward)), float(np.mean(linear)), 0.0)
    return Scores(linear=linear, signed=weight, slope=down / most, warnings=tuple(found))


def _enumerated(rows: RankingRows, logger: Callable[[Any], Any], context: Any) -> tuple[Floats, float]:
    """(slates,) weights by enumeration of each context's rankings, and how far the target is from what is logged."""
    k, off = rows.slate_size, 0.0
    if rows.action is None:
        raise UserError("pseudo_inverse with a function needs the column action: the items shown")
    shown = rows.action.reshape(-1, k)
    labels = np.zeros(len(shown), np.int64) if context is None else np.asarray(context).reshape(-1, k)[:, 0]
    weight = np.empty(len(shown))
    for label in np.unique(labels):
        rankings, logging, target = (np.asarray(each) for each in logger(label))
        items = int(max(rankings.max(), shown.max())) + 1
        if len(rankings) > MOST_RANKINGS or k * items > MOST_PAIRS:
            raise UserError(
                f"pseudo_inverse enumerates at most {MOST_RANKINGS:,} rankings and {MOST_PAIRS} pairs of item and "
                f"position, got {len(rankings):,} and {k * items}: use slate_ips, or a uniform log"
            )
        hot = np.zeros((len(rankings), k * items))
        np.put_along_axis(hot, rankings + items * np.arange(k), 1.0, axis=1)
        gram, wanted = hot.T @ (logging[:, None] * hot), target @ hot
        parts = np.linalg.pinv(gram, hermitian=True) @ wanted
        off = max(off, float(np.max(np.abs(gram @ parts - wanted))))
        weight[labels == label] = parts[shown[labels == label] + items * np.arange(k)].sum(1)
    return weight, off


def _mean_of_weights(weight: Floats, rows: RankingRows) -> list[Finding]:
    """The finding of signed weights (slates,) whose mean is proved not to be 1."""
    mean = float(np.mean(weight))
    sums = user_sums(np.repeat(weight - mean, rows.slate_size), rows.clusters)
    top = float(np.max(np.abs(weight)))
    less, more = Deviations.of(sums).spread(rows.reward.size, top, top, STRICT).reaches(STRICT)
    if mean - less <= 1.0 <= mean + more:
        return []
    message = "the mean weight of the pseudo-inverse is {} and should be {}".format(*told_apart(mean, 1.0))
    return [Finding("propensities", GRAVE, mean, message, "check the probabilities of log and target")]


_MCINERNEY, _CHAIN = "McInerney et al. 2020", ("reward_interaction_ips", "slate_ips")
_BELOW = "the target's clicks above what the log happened to show further down"
_record = RankingEstimatorInfo
_WEIGHTED = (
    _record("slate_ips", "weights of whole slates in order", f"{_MCINERNEY}, eq. 1", "slate"),
    _record(
        "set_ips", "weights of the items of a slate in any order", "Horvitz & Thompson 1952, on sets", "set",
        "unordered", "the clicks on the target's sets of items in the log's orders", less=_CHAIN[1:],
    ),
    _record(
        "independent_ips", "weights of an item at its position", f"Li et al. 2018 (item-position); {_MCINERNEY}, eq. 2",
        "marginal", "independent", "the target's clicks beside the items that the log happened to show with its items",
        less=_CHAIN,
    ),
    _record(
        "reward_interaction_ips", "weights of the items down to a position", f"{_MCINERNEY}, eq. 3-4", "cumulative",
        "cascade", _BELOW, less=_CHAIN[1:],
    ),
)  # fmt: skip
_NORMALISED = tuple(
    replace(
        info, name=info.name.replace("_ips", "_snips"), title=f"{info.name} over the mean weight",
        source=f"Swaminathan & Joachims 2015, on {info.name}", machine="snips", clipped="",
    )
    for info in _WEIGHTED
)  # fmt: skip
_OTHERS = (
    _record(
        "pseudo_inverse", "a linear model of slates, inverted", "Swaminathan et al. 2017", "marginal", "additive",
        "the target's value under the sum of items and positions that fits the log's clicks best", machine="",
        clipped="", less=_CHAIN[1:], requires=("logger",), takes=("n_items", "inclusion", "context"),
        scores=pseudo_inverse,
    ),
    _record(
        "cascade_dr", "reward model by position, corrected down the slate", "Kiyohara et al. 2022", "cumulative",
        "cascade", _BELOW, "dr", "clipped_dr", _CHAIN[1:], ("q_logged", "q_target"),
    ),
    _record(
        "adaptive_ips", "weights of the positions that matter to the slate's user", "Kiyohara et al. 2023", "adaptive",
        "behaviour", "the target's clicks beside what the log shows where behaviours say it is ignored",
        less=_CHAIN[1:], requires=("behaviour",),
    ),
)  # fmt: skip
RANKING_ESTIMATORS: dict[str, RankingEstimatorInfo] = {info.name: info for info in (*_WEIGHTED, *_NORMALISED, *_OTHERS)}
MEANING = {
    "q_logged": "a model's reward of each row, given the items down to it",
    "q_target": "its mean over the item that the target would show there, given the items above",
    "logger": "'uniform', 'independent', or a function of a context",
    "behaviour": "one of independent, cascade and whole per row",
}
"""What an argument of an estimator is."""


def ranking_estimator(name: str) -> RankingEstimatorInfo:
    """The record of an estimator, or of a function ``package.module:function``.

    The function gets :class:`RankingRows` and returns one score per row, or
    :class:`recsim_mnar.estimators.scores.Scores`.

    Raises:
        UserError: an unknown name, or a function that cannot be called.
    """
    if name in RANKING_ESTIMATORS:
        return RANKING_ESTIMATORS[name]
    if isinstance(name, str) and name in ESTIMATORS:
        every = ", ".join(RANKING_ESTIMATORS)
        raise UserError(f"estimator {name!r} is of single items, and these are slates: use one of {every}")
    if not (isinstance(name, str) and ":" in name):
        raise UserError(unknown("estimator", str(name), RANKING_ESTIMATORS, "function"))
    own = check_name(name)
    return RankingEstimatorInfo(
        name, own.title, own.source, "slate", machine="", clipped="", requires=own.requires, takes=own.takes,
        scores=own.scores,
    )  # fmt: skip


def columns_of(kind: str, whose: str) -> str:
    """The column of a kind of probabilities of "log" or "target", in words."""
    parts = {"cumulative": "conditional", "adaptive": "conditional"}
    name = LOGGED[parts.get(kind, kind)] if whose == "log" else "NAME" + SUFFIXES[parts.get(kind, kind)]
    return f"the column {name!r}"
