"""Logs of slates, checked for estimators of rankings, and these estimators, one record each.

Most estimators score a row by an importance weight times the reward. The weight is the target's probability over the
log's probability of an event, by which kinds of weights are named:

- ``marginal``: the item is shown at the position,
- ``cumulative``: the items down to the position are shown, in this order,
- ``slate``: all items of the slate are shown, in this order,
- ``set``: all items of the slate are shown, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Deviations
from recsim_mnar.estimators.refuters import STRICT
from recsim_mnar.estimators.scores import ESTIMATORS, Rows, Scores, check_name
from recsim_mnar.estimators.verdict import GRAVE, Finding
from recsim_mnar.kernels.checks import told_apart, whole_number
from recsim_mnar.log.columns import Clusters, Floats, Ints, column, finite_column, refuse_rows, user_sums
from recsim_mnar.log.table import Log
from recsim_mnar.plugins import unknown

LOGGED = {
    "marginal": "propensity",
    "conditional": "conditional_propensity",
    "slate": "slate_propensity",
    "set": "set_propensity",
}
"""Names of the columns with the log's probabilities, by kind."""
SUFFIXES = {"marginal": "", "conditional": "_conditional", "slate": "_slate", "set": "_set"}
"""Suffixes that a target's name gets in the names of its columns, by kind of probability."""
MADE_OF = {"cumulative": "conditional", "adaptive": "conditional"}
"""Kinds of probabilities that are computed from a column of another kind, and that kind."""
MOST_RANKINGS, MOST_PAIRS = 50_000, 400
"""Largest numbers of rankings, and of pairs of item and position, that the pseudo-inverse enumerates for one context: a
dense (pairs, pairs) matrix is inverted."""
MOST_ITEMS = 10_000_000
"""Item number from which items are renumbered, because arrays with one entry per item would be too large."""

PREMISES = {
    "": "nothing about users",
    "independent": "a click depends on the item and its position, not on the other items of the slate",
    "cascade": "a click depends on the item, its position and the items above it, not on those below",
    "unordered": "the clicks of a slate depend on which items it shows, not on their order",
    "additive": "the expected clicks of a slate are a sum of one term per item and position",
    "behaviour": "each slate's user behaves as the column of behaviours says",
}
"""Assumptions of estimators about users in words, by key."""
STATEMENTS: dict[str, tuple[str, ...]] = {
    "independent": ("independent", "additive", "cascade"),
    "cascade": ("cascade",),
    "unordered": ("unordered",),
    "whole": (),
}
"""Values of the argument ``assumption``, and the premises that each one implies."""


# ------------------------------------------------------------------------------------------------------ logs of slates


@dataclass(frozen=True)
class SlateLog:
    """A checked log of S slates with k items each, in n = S k rows: one per position, slate by slate from the top.

    Attributes:
        rows: (n,) numbers of the input's rows that are used, in the order of the columns below.
        given_rows: number of rows of the input.
        slate_size: number k of items per slate.
        reward: (n,) logged rewards.
        clusters: user of each row; each slate's own number if users are not known.
        items: (n,) the log's ids of the items shown; None if the log lacks them.
        action: (n,) numbers of these items, from 0; None if the log lacks them.
        logging: (n,) the log's probabilities, by kind.
        targets: (n,) the target's probabilities, by kind.
        unsupported: (n,) the target's probability of items that the log never shows at the position; None if unknown.
    """

    rows: Ints
    given_rows: int
    slate_size: int
    reward: Floats
    clusters: Clusters
    items: NDArray[Any] | None
    action: Ints | None
    logging: dict[str, Floats]
    targets: dict[str, Floats]
    unsupported: Floats | None

    def given(self, values: Any) -> Any:
        """Select the used rows of an argument that has one entry per row of the input; return any other unchanged."""
        if np.shape(values) == (self.given_rows,):
            return np.asarray(values)[self.rows]
        return values

    def by_slate(self, values: NDArray[Any]) -> NDArray[Any]:
        """Reshape values (n,) to (S, k)."""
        return values.reshape(-1, self.slate_size)

    @property
    def kinds(self) -> list[str]:
        """Kinds of probabilities that both the log and the target have."""
        return [kind for kind in self.logging if kind in self.targets]

    @property
    def gaps(self) -> bool:
        """Return whether the target has a known probability of items that the log never shows at a position."""
        return self.unsupported is not None and bool(np.any(self.unsupported > 0.0))


def read_log(columns: Any, target: Any, cluster: Any) -> SlateLog:
    """Check the columns of a log and order their rows slate by slate.

    Args:
        columns: a mapping, a frame or a :class:`recsim_mnar.log.Log`, see ``estimate_ranking_value``.
        target: name of the target's columns, or (n,) arrays by kind of probability.
        cluster: name of the user column, (n,) ids, or None for independent slates.

    Raises:
        UserError: columns that are missing or invalid, slates of several sizes or with missing positions.
    """
    is_log = isinstance(columns, Log)
    table = columns.columns if is_log else columns
    names = set(getattr(table, "column_names", table))

    def get(name: str) -> NDArray[Any]:
        return np.asarray(table[name])

    rows, k = _whole_slates(get, names)
    logged_columns = {kind: (name, get(name)) for kind, name in LOGGED.items() if name in names}
    target_name = target if isinstance(target, str) else ""
    if target_name:
        target_columns = {
            kind: (target_name + suffix, get(target_name + suffix))
            for kind, suffix in SUFFIXES.items()
            if target_name + suffix in names
        }
        if not target_columns:
            if is_log:
                hint = ": give what replay_ranking(log, policy) returns"
            else:
                hint = ""
            raise UserError(f"the log has no column {target_name!r} of a target's probabilities{hint}")
    elif not set(target) <= set(LOGGED):
        raise UserError(f"target must be a column's name or arrays by kind ({', '.join(LOGGED)}), got {list(target)}")
    else:
        target_columns = {kind: ("target" + SUFFIXES[kind], np.asarray(values)) for kind, values in target.items()}
    items = get("action")[rows] if "action" in names else None
    missing_name = f"{target_name}_unsupported"
    unsupported = None
    if target_name and missing_name in names:
        unsupported = get(missing_name)[rows].astype(np.float64)
    if isinstance(cluster, str):
        cluster = get(cluster) if cluster in names else None
    above_0 = float(np.nextafter(0.0, 1.0))  # the log's own probabilities of what it showed cannot be 0
    return SlateLog(
        rows=rows,
        given_rows=get("reward").size,
        slate_size=k,
        clusters=_users_of_slates(cluster, rows, k),
        reward=column(get("reward")[rows], "reward"),
        items=items,
        action=_item_numbers(items),
        logging=_probabilities(logged_columns, rows, k, "the log", least=above_0),
        targets=_probabilities(target_columns, rows, k, f"the target {target_name or 'target'!r}", least=0.0),
        unsupported=unsupported,
    )


def _users_of_slates(cluster: Any, rows: Ints, k: int) -> Clusters:
    """Return the user of each used row; without users, the slate's number.

    Raises:
        UserError: a slate with rows of several users.
    """
    if cluster is None:
        users = np.repeat(np.arange(rows.size // k), k)
    else:
        users = np.asarray(cluster)[rows]
    clusters = Clusters.of(users, rows.size)
    assert clusters is not None
    if np.any(np.ptp(clusters.codes.reshape(-1, k), axis=1)):
        raise UserError("a slate has rows of several users: every slate is one user's")
    return clusters


def _whole_slates(get: Callable[[str], NDArray[Any]], names: Collection[str]) -> tuple[Ints, int]:
    """Find the rows of whole slates, sorting them if they are not in order.

    Args:
        get: function that returns a column by its name.
        names: names of the columns.

    Returns:
        (n,) numbers of the rows with a position of 0 or more, slate by slate from the top.
        The number of rows per slate.

    Raises:
        UserError: missing columns, no slate, or slates without one row for each position.
    """
    if not {"reward", "position"} <= set(names):
        raise UserError("a log of slates needs the columns reward and position, one row per position from 0 at the top")
    # Rows without a position are no part of a slate: -1 marks them.
    place = finite_column(np.nan_to_num(get("position").astype(np.float64), nan=-1.0), "position", get("reward").size)
    rows = np.flatnonzero(place >= 0.0)
    if not rows.size:
        raise UserError("the log has no slate: no row has a position of 0 or more")
    k = int(place.max()) + 1

    def in_order() -> bool:
        """Return whether the positions of ``rows`` are 0 .. k - 1, over and over."""
        return rows.size % k == 0 and bool(np.all(place[rows].reshape(-1, k) == np.arange(k)))

    if not in_order() and {"user", "slate"} <= set(names):
        rows = rows[np.lexsort((place[rows], get("slate")[rows], get("user")[rows]))]
    if not in_order():
        raise UserError(
            f"each slate must have one row for each position from 0 to {k - 1}, in this order: sort the rows, or give "
            "the columns user and slate"
        )
    return rows, k


def _item_numbers(items: NDArray[Any] | None) -> Ints | None:
    """Return item numbers from 0: the ids themselves if they are whole, not negative and below :data:`MOST_ITEMS`.

    Returns None if the items are not known.
    """
    if items is None:
        return None
    shown_items = Clusters.of(items, items.size, "action")
    if shown_items is None:
        return None
    if shown_items.codes.min() >= 0 and shown_items.codes.max() < MOST_ITEMS:
        return shown_items.codes
    return shown_items.dense()[0]


def _probabilities(
    columns: Mapping[str, tuple[str, NDArray[Any]]], rows: Ints, k: int, whose: str, least: float
) -> dict[str, Floats]:
    """Check probabilities, and compute the kinds "cumulative" and "slate" from conditional ones.

    Args:
        columns: name of the column and its values in all rows of the input, by kind.
        rows: (n,) numbers of the rows that are used.
        k: number of rows per slate.
        whose: owner of the probabilities in error messages, the log or the target.
        least: least probability that is allowed.

    Returns:
        (n,) probabilities by kind.

    Raises:
        UserError: values that are no probabilities, or conditional ones whose product is not the slate's probability.
    """
    rounding = 1e-6  # of probabilities in float32
    by_kind: dict[str, Floats] = {}
    for kind, (name, values) in columns.items():
        by_kind[kind] = column(values[rows], name, rows=rows.size)
        # A target has no conditional probability below an item that it does not show: any value may stand there.
        if kind != "conditional" or least > 0.0:
            wrong = ~((by_kind[kind] >= least) & (by_kind[kind] <= 1.0 + rounding))
            refuse_rows(wrong, by_kind[kind], name, "is no probability of what was shown")
            by_kind[kind] = np.minimum(by_kind[kind], 1.0)
    if "conditional" in by_kind:
        conditional = by_kind.pop("conditional").reshape(-1, k)
        # Below an item of probability 0, conditional probabilities are undefined, and the product stays 0.
        impossible = np.logical_or.accumulate(conditional == 0.0, axis=1)
        cumulative: Floats = np.where(impossible, 0.0, conditional).cumprod(axis=1)
        if not np.all((cumulative >= 0.0) & (cumulative <= 1.0 + rounding)):
            raise UserError(f"the conditional probabilities of {whose} are not in [0, 1]")
        by_kind["cumulative"] = cumulative.ravel()
        # A slate's probability is that of all its items down to the last; a column of it must agree.
        product = np.repeat(cumulative[:, -1], k)
        if not np.allclose(by_kind.setdefault("slate", product), product, rtol=rounding, atol=0.0):
            raise UserError(f"the slate probabilities of {whose} are not the products of its conditional ones")
    return by_kind


# ---------------------------------------------------------------------------------------------------------- estimators


@dataclass(frozen=True, kw_only=True)
class RankingRows(Rows):
    """Checked columns of a log of slates, slate by slate with one row per position from the top.

    Rewards are multiplied by the position's weight and by ``slate_size``, so that their mean over rows is the value of
    a slate.

    Attributes:
        slate_size: number of items per slate.
        position: (n,) positions, 0 at the top.
        action: (n,) numbers of the items shown, from 0, or None.
        logging: (n,) the log's probabilities, by kind.
        targets: (n,) the target's probabilities, by kind.
        factor: (n,) factors that the logged rewards were multiplied by.
    """

    slate_size: int
    position: Ints
    action: Ints | None
    logging: Mapping[str, Floats]
    targets: Mapping[str, Floats]
    factor: Floats

    def ratio(self, kind: str) -> Floats:
        """Return (n,) importance weights of a kind: the target's probabilities over the log's.

        Raises:
            UserError: the log or the target has no probabilities of that kind.
        """
        for probabilities_of, whose in ((self.logging, "log"), (self.targets, "target")):
            if kind not in probabilities_of:
                raise UserError(
                    f"the {whose} has no probabilities of the kind {kind!r}: give {columns_of(kind, whose)}"
                )
        return self.targets[kind] / self.logging[kind]

    def by_slate(self, values: NDArray[Any]) -> NDArray[Any]:
        """Reshape values (n,) to (S, k)."""
        return values.reshape(-1, self.slate_size)


@dataclass(frozen=True)
class RankingEstimatorInfo:
    """Description of an estimator of rankings.

    Attributes:
        name: name for ``estimate_ranking_value(estimators=...)``.
        title: description in one line.
        source: paper, and number of the equation if it has one.
        weight: kind of its importance weights.
        premise: assumption about users, a key of :data:`PREMISES`.
        estimates_if_wrong: quantity that it estimates if the assumption is wrong, in words.
        item_estimator_name: estimator of :data:`recsim_mnar.estimators.ESTIMATORS` that computes the scores from the
            weights; "" if ``scores`` does.
        clipped_item_estimator: estimator that computes the scores if a clip is given; "" if the weights are not
            clipped.
        weaker: names of estimators that assume less, which it is compared with.
        requires: names of required arguments.
        takes: names of optional arguments.
        scores: function from rows to one score per row, if ``item_estimator_name`` is "".
    """

    name: str
    title: str
    source: str
    weight: str
    premise: str = ""
    estimates_if_wrong: str = ""
    item_estimator_name: str = "ips"
    clipped_item_estimator: str = "clipped_ips"
    weaker: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    scores: Callable[..., Scores] | None = None

    def item_estimator(self, clip: float) -> str:
        """Return the name of the estimator of single items that computes the scores; "" if ``scores`` does."""
        if math.isinf(clip):
            return self.item_estimator_name
        return self.clipped_item_estimator

    @property
    def assumes(self) -> str:
        """The estimator's assumption about users, in words."""
        return PREMISES[self.premise]


def pseudo_inverse(
    rows: RankingRows, *, logger: Any, n_items: Any = None, inclusion: Any = None, context: Any = None
) -> Scores:
    """Score slates by reward times q' G^+ 1_s (Swaminathan et al. 2017).

    1_s is the slate's indicator vector of pairs of item and position, G its second moment matrix under the logging
    policy, and q its mean under the target.

    Args:
        rows: rows of the log.
        logger: logging policy: "uniform" (all rankings of ``n_items`` items without repetition are equally likely),
            "independent" (positions are filled independently of each other), or a function from a context to its
            rankings (L, k), and their probabilities (L,) under the log's policy and (L,) under the target.
        n_items: number of items that can be shown; for "uniform".
        inclusion: (n,) the target's probability that the row's item is at any position; for "uniform", unless the
            slate shows all items.
        context: (n,) labels of contexts, for a function; None if there is only one context.
    """
    missing = 0.0
    if callable(logger):
        weight, missing = _weights_by_enumeration(rows, logger, context)
    elif str(logger) == "uniform":
        items = whole_number(n_items or 0, "n_items", least=max(rows.slate_size, 2))
        weight = _uniform_weights(rows, items, inclusion)
    elif str(logger) == "independent":
        # G^+ in closed form: one term per position, of which all but one have their mean 1 subtracted.
        weight = rows.by_slate(rows.ratio("marginal")).sum(1) - (rows.slate_size - 1.0)
    else:
        raise UserError(
            "pseudo_inverse knows logger='uniform', logger='independent' and a function that returns the rankings of a "
            f"context with their probabilities, got {logger!r}. For other loggers use slate_ips"
        )
    if missing > 1e-9:  # more than rounding errors of the inversion
        findings = [Finding("support_missing", GRAVE, missing, says="slates", do="slates")]
    else:
        findings = []
    findings += _check_mean_weight(weight, rows)
    weight = np.repeat(weight, rows.slate_size)
    linear = weight * rows.reward
    most = float(np.max(np.abs(weight))) or 1.0  # a divisor, also if every weight is 0
    # Weights may be negative: one more row may lower the estimate by the most negative weight times a reward.
    down = max(float(np.max(-weight)) * float(np.max(rows.reward)), float(np.mean(linear)), 0.0)
    return Scores(linear=linear, signed=weight, slope=down / most, warnings=tuple(findings))


def _uniform_weights(rows: RankingRows, m: int, inclusion: Any) -> Floats:
    """Return (S,) weights q' G^+ 1_s in closed form if all rankings of m items are equally likely.

    Args:
        rows: rows of the log.
        m: number of items that can be shown.
        inclusion: (n,) the target's probability that the row's item is at any position; not used if slates show all
            m items.

    Raises:
        UserError: propensities other than 1 / m, or no inclusion.
    """
    k = rows.slate_size
    if np.max(np.abs(rows.logging["marginal"] * m - 1.0)) > 1e-6:
        raise UserError(f"pseudo_inverse: the log is not uniform over {m} items, its propensities are not 1 / {m}")
    weight = (m - 1.0) * rows.by_slate(rows.targets["marginal"]).sum(1) - (k - 1.0)
    if k == m:
        return weight + 1.0
    if inclusion is None:
        raise UserError("pseudo_inverse of a uniform log needs inclusion: the target's probability of the item")
    inclusions = rows.by_slate(finite_column(inclusion, "inclusion", rows.reward.size)).sum(1)
    return weight + ((m - 1.0) * inclusions - k * (k - 1.0)) / (m - k)


def _weights_by_enumeration(rows: RankingRows, logger: Callable[[Any], Any], context: Any) -> tuple[Floats, float]:
    """Compute weights q' G^+ 1_s by enumeration of each context's rankings.

    Args:
        rows: rows of the log, with the items shown.
        logger: function from a context to its rankings and their probabilities, see :func:`pseudo_inverse`.
        context: (n,) labels of contexts; None if there is only one.

    Returns:
        (S,) weights.
        The largest part of q that is outside the span of the logged rankings; above 0 if the log lacks support.

    Raises:
        UserError: no items, or too many rankings or pairs.
    """
    k = rows.slate_size
    outside_span = 0.0
    if rows.action is None:
        raise UserError("pseudo_inverse with a function needs the column action: the items shown")
    shown_items = rows.by_slate(rows.action)
    if context is None:
        labels = np.zeros(len(shown_items), np.int64)
    else:
        labels = rows.by_slate(np.asarray(context))[:, 0]
    weight = np.empty(len(shown_items))
    for label in np.unique(labels):
        rankings, logging, target = (np.asarray(values) for values in logger(label))
        items = int(max(rankings.max(), shown_items.max())) + 1
        if len(rankings) > MOST_RANKINGS or k * items > MOST_PAIRS:
            raise UserError(
                f"pseudo_inverse enumerates at most {MOST_RANKINGS:,} rankings and {MOST_PAIRS} pairs of item and "
                f"position, got {len(rankings):,} and {k * items}: use slate_ips, or a uniform log"
            )
        # Pair (item, position) is column position * items + item.
        indicators = np.zeros((len(rankings), k * items))
        np.put_along_axis(indicators, rankings + items * np.arange(k), 1.0, axis=1)
        gram = indicators.T @ (logging[:, None] * indicators)
        target_marginals = target @ indicators
        pair_weights = np.linalg.pinv(gram, hermitian=True) @ target_marginals
        outside_span = max(outside_span, float(np.max(np.abs(gram @ pair_weights - target_marginals))))
        in_context = labels == label
        weight[in_context] = pair_weights[shown_items[in_context] + items * np.arange(k)].sum(1)
    return weight, outside_span


def _check_mean_weight(weight: Floats, rows: RankingRows) -> list[Finding]:
    """Return the finding of slate weights (S,), of either sign, whose mean is proved not to be 1, if it is."""
    mean = float(np.mean(weight))
    sums = user_sums(np.repeat(weight - mean, rows.slate_size), rows.clusters)
    largest = float(np.max(np.abs(weight)))
    spread = Deviations.of(sums).spread(scale=rows.reward.size, up=largest, down=largest, level=STRICT)
    less, more = spread.reaches(STRICT)
    if mean - less <= 1.0 <= mean + more:
        return []
    mean_text, expected_text = told_apart(mean, 1.0)
    return [Finding("propensities", GRAVE, mean, says="signed", do="signed", mean=mean_text, wanted=expected_text)]


_MCINERNEY, _CHAIN = "McInerney et al. 2020", ("reward_interaction_ips", "slate_ips")
"""A paper, and estimators in the order of ever weaker assumptions."""
_BELOW = "the target's clicks above what the log happened to show further down"
_record = RankingEstimatorInfo
# Each entry: name, title, source, kind of weight, premise, and what is estimated if the premise is wrong.
_WEIGHTED = (
    _record("slate_ips", "weights of whole slates in order", f"{_MCINERNEY}, eq. 1", "slate"),
    _record(
        "set_ips",
        "weights of the items of a slate in any order",
        "Horvitz & Thompson 1952, on sets",
        "set",
        "unordered",
        "the clicks on the target's sets of items in the log's orders",
        weaker=_CHAIN[1:],
    ),
    _record(
        "independent_ips",
        "weights of an item at its position",
        f"Li et al. 2018 (item-position); {_MCINERNEY}, eq. 2",
        "marginal",
        "independent",
        "the target's clicks beside the items that the log happened to show with its items",
        weaker=_CHAIN,
    ),
    _record(
        "reward_interaction_ips",
        "weights of the items down to a position",
        f"{_MCINERNEY}, eq. 3-4",
        "cumulative",
        "cascade",
        _BELOW,
        weaker=_CHAIN[1:],
    ),
)
_NORMALISED = tuple(
    replace(
        info,
        name=info.name.replace("_ips", "_snips"),
        title=f"{info.name} over the mean weight",
        source=f"Swaminathan & Joachims 2015, on {info.name}",
        item_estimator_name="snips",
        clipped_item_estimator="",
    )
    for info in _WEIGHTED
)
_WITH_ARGUMENTS = (
    _record(
        "pseudo_inverse",
        "a linear model of slates, inverted",
        "Swaminathan et al. 2017",
        "marginal",
        "additive",
        "the target's value under the sum of items and positions that fits the log's clicks best",
        item_estimator_name="",
        clipped_item_estimator="",
        weaker=_CHAIN[1:],
        requires=("logger",),
        takes=("n_items", "inclusion", "context"),
        scores=pseudo_inverse,
    ),
    _record(
        "cascade_dr",
        "reward model by position, corrected down the slate",
        "Kiyohara et al. 2022",
        "cumulative",
        "cascade",
        _BELOW,
        item_estimator_name="dr",
        clipped_item_estimator="clipped_dr",
        weaker=_CHAIN[1:],
        requires=("q_logged", "q_target"),
    ),
    _record(
        "adaptive_ips",
        "weights of the positions that matter to the slate's user",
        "Kiyohara et al. 2023",
        "adaptive",
        "behaviour",
        "the target's clicks beside what the log shows where behaviours say it is ignored",
        weaker=_CHAIN[1:],
        requires=("behaviour",),
    ),
)
RANKING_ESTIMATORS: dict[str, RankingEstimatorInfo] = {
    info.name: info for info in (*_WEIGHTED, *_NORMALISED, *_WITH_ARGUMENTS)
}
MEANING = {
    "q_logged": "a model's reward of each row, given the items down to it",
    "q_target": "its mean over the item that the target would show there, given the items above",
    "logger": "'uniform', 'independent', or a function of a context",
    "behaviour": "one of independent, cascade and whole per row",
}
"""Descriptions of the arguments of estimators, by name."""


def ranking_estimator(name: str) -> RankingEstimatorInfo:
    """Return the record of an estimator by its name.

    Args:
        name: a key of :data:`RANKING_ESTIMATORS`, or ``package.module:function`` for a function that gets
            :class:`RankingRows` and returns one score per row, or :class:`recsim_mnar.estimators.scores.Scores`.

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
    info = check_name(name)
    return RankingEstimatorInfo(
        name,
        info.title,
        info.source,
        weight="slate",
        item_estimator_name="",
        clipped_item_estimator="",
        requires=info.requires,
        takes=info.takes,
        scores=info.scores,
    )


def columns_of(kind: str, whose: str, target: str = "NAME") -> str:
    """Return the words "the column NAME" for the column that a kind of probabilities is read from.

    Args:
        kind: kind of probabilities.
        whose: "log" or "target".
        target: name of the target.
    """
    kind = MADE_OF.get(kind, kind)
    name = target + SUFFIXES[kind]
    if whose == "log":
        name = LOGGED[kind]
    return f"the column {name!r}"
