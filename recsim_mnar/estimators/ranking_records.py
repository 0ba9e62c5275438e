"""Logs of slates as estimators of rankings read them, and these estimators, one record each.

A score is for most of them the weight of their kind times the reward, where the weight is a ratio of the target's and
the log's probability of

- ``marginal``: this item at this position,
- ``cumulative``: the items down to this position, in order,
- ``slate``: the whole slate in order,
- ``set``: the items of the slate in any order.
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
"""Columns of the log's probabilities, by kind."""
SUFFIXES = {"marginal": "", "conditional": "_conditional", "slate": "_slate", "set": "_set"}
"""What follows a target's name in the names of its columns, by kind."""
MADE_OF = {"cumulative": "conditional", "adaptive": "conditional"}
"""Kinds that no column has, and the one that they are made of."""
MOST_RANKINGS, MOST_PAIRS = 50_000, 400
"""Rankings, and pairs of item and position, that the pseudo-inverse enumerates for one context."""
MOST_ITEMS = 10_000_000
"""Numbers of items from which on they are counted anew."""

PREMISES = {
    "": "nothing about users",
    "independent": "a click depends on the item and its position, not on the other items of the slate",
    "cascade": "a click depends on the item, its position and the items above it, not on those below",
    "unordered": "the clicks of a slate depend on which items it shows, not on their order",
    "additive": "the expected clicks of a slate are a sum of one term per item and position",
    "behaviour": "each slate's user behaves as the column of behaviours says",
}
"""What estimators assume of users, by a key."""
STATEMENTS: dict[str, tuple[str, ...]] = {
    "independent": ("independent", "additive", "cascade"),
    "cascade": ("cascade",),
    "unordered": ("unordered",),
    "whole": (),
}
"""What ``assumption`` may state, and the premises that follow from it."""


# ------------------------------------------------------------------------------------------------------ logs of slates


@dataclass(frozen=True)
class SlateLog:
    """A log of slates, read once for all estimators.

    Attributes:
        rows: which rows of the input, in order: whole slates, from the top, users' slates in order.
        given_rows: rows of the input.
        slate_size: items per slate.
        reward: (n,) as logged.
        clusters: users; slates where users are not known.
        items: (n,) what the log calls the items shown, or None.
        action: (n,) their numbers, from 0, or None.
        logging: by kind, (n,).
        targets: by kind, (n,).
        unsupported: (n,) the target's mass on items that the log never shows at the position, or None.
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
        """Select the used rows of an argument with one entry per row of the input; return others unchanged."""
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
        """Return whether a column says that the log never shows part of the target."""
        return self.unsupported is not None and bool(np.any(self.unsupported > 0.0))


def read_log(columns: Any, target: Any, cluster: Any) -> SlateLog:
    """Check the columns and order them as whole slates; arguments as of ``estimate_ranking_value``.

    Raises:
        UserError: columns that are missing or are no data, slates of several sizes or in pieces.
    """
    of_the_house = isinstance(columns, Log)
    table = columns.columns if of_the_house else columns
    names = set(getattr(table, "column_names", table))

    def get(name: str) -> NDArray[Any]:
        return np.asarray(table[name])

    rows, k = _whole_slates(get, names)
    named_columns = {kind: (name, get(name)) for kind, name in LOGGED.items() if name in names}
    named = target if isinstance(target, str) else ""
    if named:
        aims = {kind: (named + end, get(named + end)) for kind, end in SUFFIXES.items() if named + end in names}
        if not aims:
            if of_the_house:
                made = ": give what replay_ranking(log, policy) returns"
            else:
                made = ""
            raise UserError(f"the log has no column {named!r} of a target's probabilities{made}")
    elif not set(target) <= set(LOGGED):
        raise UserError(f"target must be a column's name or arrays by kind ({', '.join(LOGGED)}), got {list(target)}")
    else:
        aims = {kind: ("target" + SUFFIXES[kind], np.asarray(values)) for kind, values in target.items()}
    if isinstance(cluster, str):
        cluster = get(cluster) if cluster in names else None
    if cluster is None:
        users = np.repeat(np.arange(rows.size // k), k)
    else:
        users = np.asarray(cluster)[rows]
    clusters = Clusters.of(users, rows.size)
    assert clusters is not None
    if np.any(np.ptp(clusters.codes.reshape(-1, k), axis=1)):
        raise UserError("a slate has rows of several users: every slate is one user's")
    items = get("action")[rows] if "action" in names else None
    lost = f"{named}_unsupported"
    return SlateLog(
        rows=rows,
        given_rows=get("reward").size,
        slate_size=k,
        reward=column(get("reward")[rows], "reward"),
        clusters=clusters,
        items=items,
        action=_numbers(items),
        logging=_probabilities(named_columns, rows, k, "the log", float(np.nextafter(0.0, 1.0))),
        targets=_probabilities(aims, rows, k, f"the target {named or 'target'!r}", 0.0),
        unsupported=get(lost)[rows].astype(np.float64) if named and lost in names else None,
    )


def _whole_slates(get: Callable[[str], NDArray[Any]], names: Collection[str]) -> tuple[Ints, int]:
    """Return the rows of whole slates, each from the top, and the number of rows per slate."""
    if not {"reward", "position"} <= set(names):
        raise UserError("a log of slates needs the columns reward and position, one row per position from 0 at the top")
    place = finite_column(np.nan_to_num(get("position").astype(np.float64), nan=-1.0), "position", get("reward").size)
    rows = np.flatnonzero(place >= 0.0)
    if not rows.size:
        raise UserError("the log has no slate: no row has a position of 0 or more")
    k = int(place.max()) + 1

    def in_order() -> bool:
        return rows.size % k == 0 and bool(np.all(place[rows].reshape(-1, k) == np.arange(k)))

    if not in_order() and {"user", "slate"} <= set(names):
        rows = rows[np.lexsort((place[rows], get("slate")[rows], get("user")[rows]))]
    if not in_order():
        raise UserError(
            f"each slate must have one row for each position from 0 to {k - 1}, in this order: sort the rows, or give "
            "the columns user and slate"
        )
    return rows, k


def _numbers(items: NDArray[Any] | None) -> Ints | None:
    """Numbers of items from 0: their own ones where these are whole and not too large."""
    if items is None:
        shown_items = None
    else:
        shown_items = Clusters.of(items, items.size, "action")
    if shown_items is None:
        return None
    small = shown_items.codes.min() >= 0 and shown_items.codes.max() < MOST_ITEMS
    if small:
        return shown_items.codes
    return shown_items.dense()[0]


def _probabilities(
    given: Mapping[str, tuple[str, NDArray[Any]]], rows: Ints, k: int, whose: str, least: float
) -> dict[str, Floats]:
    """Checked probabilities by kind, with those of the items down to each position, and of the slate, from each one's.

    Args:
        given: by kind, the column's name and its values in all rows.
        rows: which are used.
        k: rows per slate.
        whose: the log's or the target's, for messages.
        least: what no probability is below.

    Raises:
        UserError: they are no probabilities, or contradict those of the slates.
    """
    by_kind: dict[str, Floats] = {}
    for kind, (name, values) in given.items():
        by_kind[kind] = column(values[rows], name, rows=rows.size)
        if kind != "conditional" or least > 0.0:  # a target has none below an item that it does not show
            wrong = ~((by_kind[kind] >= least) & (by_kind[kind] <= 1.0 + 1e-6))
            refuse_rows(wrong, by_kind[kind], name, "is no probability of what was shown")
            by_kind[kind] = np.minimum(by_kind[kind], 1.0)
    if "conditional" in by_kind:
        conditional = by_kind.pop("conditional").reshape(-1, k)
        # What follows an impossible item has no probability, and counts as 0.
        down: Floats = np.where(np.logical_or.accumulate(conditional == 0.0, axis=1), 0.0, conditional).cumprod(axis=1)
        if not np.all((down >= 0.0) & (down <= 1.0 + 1e-6)):
            raise UserError(f"the conditional probabilities of {whose} are not in [0, 1]")
        by_kind["cumulative"], product = down.ravel(), np.repeat(down[:, -1], k)
        if not np.allclose(by_kind.setdefault("slate", product), product, rtol=1e-6, atol=0.0):
            raise UserError(f"the slate probabilities of {whose} are not the products of its conditional ones")
    return by_kind


# ---------------------------------------------------------------------------------------------------------- estimators


@dataclass(frozen=True, kw_only=True)
class RankingRows(Rows):
    """Checked columns of a log of slates, ``slate_size`` rows each from the top.

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
        """Return (n,) weights of a kind.

        Raises:
            UserError: the columns of that kind are missing.
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
        name: as in ``estimate_ranking_value(estimators=...)``.
        title: one line.
        source: paper, and equation where it has a number there.
        weight: kind of its weight.
        premise: what it assumes of users, a key of :data:`PREMISES`.
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

    def item_estimator(self, clip: float) -> str:
        """Return the estimator of single items that uses its weights, "" for its own scores."""
        if math.isinf(clip):
            return self.machine
        return self.clipped

    @property
    def assumes(self) -> str:
        """Get the estimator's assumption about users, in words."""
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
    missing = 0.0
    if callable(logger):
        weight, missing = _enumerated(rows, logger, context)
    elif str(logger) == "uniform":
        weight = _of_uniform(rows, whole_number(n_items or 0, "n_items", least=max(rows.slate_size, 2)), inclusion)
    elif str(logger) == "independent":
        weight = rows.by_slate(rows.ratio("marginal")).sum(1) - (rows.slate_size - 1.0)
    else:
        raise UserError(
            "pseudo_inverse knows logger='uniform', logger='independent' and a function that returns the rankings of a "
            f"context with their probabilities, got {logger!r}. For other loggers use slate_ips"
        )
    if missing > 1e-9:
        findings = [Finding("support_missing", GRAVE, missing, says="slates", do="slates")]
    else:
        findings = []
    findings += _mean_of_weights(weight, rows)
    weight = np.repeat(weight, rows.slate_size)
    linear = weight * rows.reward
    most = float(np.max(np.abs(weight))) or 1.0
    down = max(float(np.max(-weight)) * float(np.max(rows.reward)), float(np.mean(linear)), 0.0)
    return Scores(linear=linear, signed=weight, slope=down / most, warnings=tuple(findings))


def _of_uniform(rows: RankingRows, m: int, inclusion: Any) -> Floats:
    """Return (S,) weights where every ranking of m items is equally likely."""
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


def _enumerated(rows: RankingRows, logger: Callable[[Any], Any], context: Any) -> tuple[Floats, float]:
    """Return (S,) weights by enumeration of each context's rankings, and the target's distance from their span."""
    k = rows.slate_size
    off = 0.0
    if rows.action is None:
        raise UserError("pseudo_inverse with a function needs the column action: the items shown")
    shown_items = rows.by_slate(rows.action)
    if context is None:
        labels = np.zeros(len(shown_items), np.int64)
    else:
        labels = rows.by_slate(np.asarray(context))[:, 0]
    weight = np.empty(len(shown_items))
    for label in np.unique(labels):
        rankings, logging, target = (np.asarray(number) for number in logger(label))
        items = int(max(rankings.max(), shown_items.max())) + 1
        if len(rankings) > MOST_RANKINGS or k * items > MOST_PAIRS:
            raise UserError(
                f"pseudo_inverse enumerates at most {MOST_RANKINGS:,} rankings and {MOST_PAIRS} pairs of item and "
                f"position, got {len(rankings):,} and {k * items}: use slate_ips, or a uniform log"
            )
        hot = np.zeros((len(rankings), k * items))
        np.put_along_axis(hot, rankings + items * np.arange(k), 1.0, axis=1)
        gram = hot.T @ (logging[:, None] * hot)
        wanted_marginals = target @ hot
        parts = np.linalg.pinv(gram, hermitian=True) @ wanted_marginals
        off = max(off, float(np.max(np.abs(gram @ parts - wanted_marginals))))
        weight[labels == label] = parts[shown_items[labels == label] + items * np.arange(k)].sum(1)
    return weight, off


def _mean_of_weights(weight: Floats, rows: RankingRows) -> list[Finding]:
    """Find signed weights (S,) whose mean is proved not to be 1."""
    mean = float(np.mean(weight))
    sums = user_sums(np.repeat(weight - mean, rows.slate_size), rows.clusters)
    top = float(np.max(np.abs(weight)))
    less, more = Deviations.of(sums).spread(rows.reward.size, top, top, STRICT).reaches(STRICT)
    if mean - less <= 1.0 <= mean + more:
        return []
    mean_text, expected_text = told_apart(mean, 1.0)
    return [Finding("propensities", GRAVE, mean, says="signed", do="signed", mean=mean_text, wanted=expected_text)]


_MCINERNEY, _CHAIN = "McInerney et al. 2020", ("reward_interaction_ips", "slate_ips")
_BELOW = "the target's clicks above what the log happened to show further down"
_record = RankingEstimatorInfo
_WEIGHTED = (
    _record("slate_ips", "weights of whole slates in order", f"{_MCINERNEY}, eq. 1", "slate"),
    _record(
        "set_ips",
        "weights of the items of a slate in any order",
        "Horvitz & Thompson 1952, on sets",
        "set",
        "unordered",
        "the clicks on the target's sets of items in the log's orders",
        less=_CHAIN[1:],
    ),
    _record(
        "independent_ips",
        "weights of an item at its position",
        f"Li et al. 2018 (item-position); {_MCINERNEY}, eq. 2",
        "marginal",
        "independent",
        "the target's clicks beside the items that the log happened to show with its items",
        less=_CHAIN,
    ),
    _record(
        "reward_interaction_ips",
        "weights of the items down to a position",
        f"{_MCINERNEY}, eq. 3-4",
        "cumulative",
        "cascade",
        _BELOW,
        less=_CHAIN[1:],
    ),
)
_NORMALISED = tuple(
    replace(
        info,
        name=info.name.replace("_ips", "_snips"),
        title=f"{info.name} over the mean weight",
        source=f"Swaminathan & Joachims 2015, on {info.name}",
        machine="snips",
        clipped="",
    )
    for info in _WEIGHTED
)
_OTHERS = (
    _record(
        "pseudo_inverse",
        "a linear model of slates, inverted",
        "Swaminathan et al. 2017",
        "marginal",
        "additive",
        "the target's value under the sum of items and positions that fits the log's clicks best",
        machine="",
        clipped="",
        less=_CHAIN[1:],
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
        "dr",
        "clipped_dr",
        _CHAIN[1:],
        ("q_logged", "q_target"),
    ),
    _record(
        "adaptive_ips",
        "weights of the positions that matter to the slate's user",
        "Kiyohara et al. 2023",
        "adaptive",
        "behaviour",
        "the target's clicks beside what the log shows where behaviours say it is ignored",
        less=_CHAIN[1:],
        requires=("behaviour",),
    ),
)
RANKING_ESTIMATORS: dict[str, RankingEstimatorInfo] = {info.name: info for info in (*_WEIGHTED, *_NORMALISED, *_OTHERS)}
MEANING = {
    "q_logged": "a model's reward of each row, given the items down to it",
    "q_target": "its mean over the item that the target would show there, given the items above",
    "logger": "'uniform', 'independent', or a function of a context",
    "behaviour": "one of independent, cascade and whole per row",
}
"""What an argument of an estimator is."""


def ranking_estimator(name: str) -> RankingEstimatorInfo:
    """Return the record of an estimator, or of a function ``package.module:function``.

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
    function_name = check_name(name)
    return RankingEstimatorInfo(
        name,
        function_name.title,
        function_name.source,
        "slate",
        machine="",
        clipped="",
        requires=function_name.requires,
        takes=function_name.takes,
        scores=function_name.scores,
    )


def columns_of(kind: str, whose: str, target: str = "NAME") -> str:
    """Name the column of a kind of probabilities of "log" or "target"."""
    kind = MADE_OF.get(kind, kind)
    return f"the column {LOGGED[kind] if whose == 'log' else target + SUFFIXES[kind]!r}"
