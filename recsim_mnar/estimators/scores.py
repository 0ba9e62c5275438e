"""Estimators, one record each: a mean plus a ratio of row scores, mean(linear) + sum(numerator) / sum(denominator).

Notation: r is the reward, w = target / propensity the importance weight. A reward model predicts q_logged for the
logged action, and q_target is the mean of its predictions under the target policy. No function here needs an array of
rows times actions.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, described
from recsim_mnar.estimators.facts import HIGHEST_TARGET, check_rows, missing_column
from recsim_mnar.estimators.verdict import CAUTION, Finding
from recsim_mnar.log.columns import Clusters, Floats, column, finite_column
from recsim_mnar.plugins import announced, imported, unknown


@dataclass(frozen=True)
class Rows:
    """Checked columns of a log, for one target policy.

    Attributes:
        reward: (n,) rewards, from which ``shift`` has been subtracted.
        propensity: (n,) the logging policy's probabilities of the logged actions, in (0, 1].
        target: (n,) the target policy's probabilities of the logged actions, in [0, 1].
        weight: (n,) target / propensity, times ``stands_for``.
        q_logged: (n,) a reward model's predictions for the logged actions; None without a model.
        q_target: (n,) means of the model's predictions under the target policy; None without a model.
        clusters: user of each row; None if rows are independent.
        clip: largest weight of clipped estimators; inf for no clipping.
        stands_for: (n,) number of rows that each row stands for, scaled to mean 1; 1.0 if every row stands for itself.
        shift: reward that was subtracted from all rewards.
        missing: (n,) the target's probability of actions whose logging probability is 0; None if it is not known.
    """

    reward: Floats
    propensity: Floats
    target: Floats
    weight: Floats
    q_logged: Floats | None = None
    q_target: Floats | None = None
    clusters: Clusters | None = None
    clip: float = math.inf
    stands_for: Floats | float = 1.0
    shift: float = 0.0
    missing: Floats | None = None

    @staticmethod
    def of(
        reward: Any,
        propensity: Any,
        target: Any,
        *,
        clusters: Clusters | None = None,
        shift: float = 0.0,
        missing: Any = None,
        names: tuple[str, str, str] = ("reward", "propensity", "target"),
    ) -> Rows:
        """Check columns of rewards and probabilities, and compute the weights.

        Args:
            reward: (n,) logged rewards.
            propensity: (n,) the logging policy's probabilities of the logged actions, in (0, 1].
            target: (n,) the target policy's probabilities of the logged actions, in [0, 1].
            clusters: user of each row; None if rows are independent.
            shift: reward to subtract from all rewards.
            missing: (n,) the target's probability of actions whose logging probability is 0; None if it is not known.
            names: names of the three columns in error messages.

        Raises:
            UserError: an invalid value, with its row.
        """
        r = column(reward, names[0])
        p = column(propensity, names[1], rows=r.size)
        t = column(target, names[2], rows=r.size)
        check_rows(r, p, t, names)
        with np.errstate(over="ignore"):  # a weight that overflows is refused where it is summed
            weight = t / p
        if missing is not None:
            missing = missing_column(missing, t)
        if shift:
            r = r - shift
        return Rows(r, p, t, weight, clusters=clusters, shift=shift, missing=missing)

    @functools.cached_property
    def earned(self) -> Floats:
        """The (n,) products of weight and reward."""
        return self.weight * self.reward

    @property
    def residual(self) -> Floats:
        """The (n,) rewards minus the model's predictions for the logged actions."""
        assert self.q_logged is not None  # estimate_value requires it where an estimator needs it
        return self.reward - self.q_logged

    @property
    def model_mean(self) -> Floats:
        """The (n,) means of the model's predictions under the target policy."""
        assert self.q_target is not None
        return self.q_target


@dataclass(frozen=True)
class Scores:
    """Row scores of an estimator, whose estimate is mean(linear) + sum(numerator) / sum(denominator).

    Attributes:
        linear: (n,) scores that are averaged; None for 0.
        numerator: (n,) parts of the numerator of the ratio; None for no ratio.
        denominator: (n,) parts of the denominator of the ratio; None for no ratio.
        used: (n,) weights that the estimator uses in place of w, which may bias it; None if it uses w.
        counts: whether ``linear`` is a weight times the reward, so that the gamma interval applies.
        most: largest value that ``used`` can have for any w; inf if it is unbounded.
        other_weights: whether the weights have other probabilities than target and propensity, so that stated bounds
            of the latter do not apply.
        slope: largest amount that ``linear`` subtracts per unit of weight, for control variates.
        signed: (n,) weights in place of w that may be negative and cause no bias; None for none.
        warnings: findings that the estimator reports itself.
    """

    linear: Floats | None = None
    numerator: Floats | None = None
    denominator: Floats | None = None
    used: Floats | None = None
    counts: bool = False
    most: float = float("inf")
    other_weights: bool = False
    slope: float = 0.0
    signed: Floats | None = None
    warnings: tuple[Finding, ...] = ()


Weights = tuple[Floats, bool, float]
"""Result of a function of weights: (n,) weights that replace w, whether they may bias the estimate because they differ
from w, and the largest value that they can have for any w."""


def weighted(weights: Callable[..., Weights], *, model: bool = False) -> Callable[..., Scores]:
    """Make an estimator from a function of weights.

    Args:
        weights: function from rows, and parameters of the estimator, to weights.
        model: whether the estimator is doubly robust, with scores q_target + weight (r - q_logged); otherwise the
            scores are weight times reward.

    Returns:
        A function from rows to scores that takes the parameters of ``weights``.
    """

    @functools.wraps(weights)
    def scores(rows: Rows, **parameters: Any) -> Scores:
        used, biased, most = weights(rows, **parameters)
        if model:
            linear = rows.model_mean + used * rows.residual
        elif used is rows.weight:
            linear = rows.earned  # its sums by user are computed already
        else:
            linear = used * rows.reward
        return Scores(linear=linear, used=used if biased else None, counts=not model, most=most)

    return scores


doubly_robust = functools.partial(weighted, model=True)
"""Make a doubly robust estimator (Dudik, Langford & Li 2011) from a function of weights."""


def plain(rows: Rows) -> Weights:
    """Return w itself."""
    return rows.weight, False, math.inf


def clipped(rows: Rows) -> Weights:
    """Return min(w, clip) (Ionides 2008), so that the estimate is mean(r min(M, w)), M the clip.

    This is equation 1 of Jeunen, Rohde & Vasile 2019, CIPS, with w = pi(a | x) / p and M = 15 there.
    """
    limit = rows.clip * rows.stands_for
    return np.minimum(rows.weight, limit), math.isfinite(rows.clip), float(np.max(limit))


def shrunk(rows: Rows, *, lam: float = 0.05) -> Weights:
    """Return the sub-Gaussian weights w / (1 - lam + lam w) of Metelli, Russo & Restelli (2021, s = -1).

    At lam = 1 the formula is 0 / 0 where w is 0; the weight is 0 there.
    """
    lam = _checked_number("lam", lam, 0.0, 1.0)
    weight = rows.weight
    used = np.divide(weight, 1.0 - lam + lam * weight, out=np.zeros_like(weight), where=weight > 0.0)
    return used, lam > 0.0, _inverse(lam)


def explored(rows: Rows, *, gamma: float = 0.01) -> Weights:
    """Return the weights of implicit exploration, target / (propensity + gamma) (Gabbianelli, Neu & Papini 2024)."""
    gamma = _checked_number("gamma", gamma, 0.0, math.inf)
    return rows.target / (rows.propensity + gamma), gamma > 0.0, _inverse(gamma)


def switched(rows: Rows, *, tau: float = 15.0) -> Weights:
    """Return w where it is at most tau, and 0 elsewhere, so that only the model counts (Wang, Agarwal & Dudik 2017)."""
    tau = _checked_number("tau", tau, 0.0, math.inf)
    above = rows.weight > tau
    return np.where(above, 0.0, rows.weight), bool(np.any(above)), tau


def optimistic(rows: Rows, *, lam: float = 225.0) -> Weights:
    """Return the shrunk weights lam w / (w^2 + lam) of Su et al. (2020, eq. 9), which are w at lam = inf.

    At lam = 0 the formula is 0 / 0 where w is 0; the weight is 0 there. The largest weight, sqrt(lam) / 2, is at
    w = sqrt(lam).
    """
    lam = _checked_number("lam", lam, 0.0, math.inf)
    weight = rows.weight
    if math.isinf(lam):
        return weight, False, math.inf
    used = np.divide(lam * weight, weight * weight + lam, out=np.zeros_like(weight), where=weight > 0.0)
    return used, True, 0.5 * lam**0.5


def snips(rows: Rows) -> Scores:
    """Return scores whose estimate is the sum of w r over the sum of w (Swaminathan & Joachims 2015)."""
    return Scores(numerator=rows.earned, denominator=rows.weight)


def dm(rows: Rows) -> Scores:
    """Return scores whose estimate is the mean of the reward model under the target."""
    return Scores(linear=rows.model_mean, warnings=(Finding("model", CAUTION, 1.0),))


def sndr(rows: Rows) -> Scores:
    """Return scores of self-normalised dr: mean q_target plus the sum of w (r - q_logged) over the sum of w.

    See Thomas & Brunskill 2016.
    """
    return Scores(linear=rows.model_mean, numerator=rows.weight * rows.residual, denominator=rows.weight)


def mips(rows: Rows, *, group_target: Any = None, group_propensity: Any = None) -> Scores:
    """Return scores whose estimate is the mean of w_g r, w_g = p_target(g | x) / p_logging(g | x).

    See Saito & Joachims 2022. The estimate is unbiased if the reward depends on the action only by its group g.

    Args:
        rows: rows of the log.
        group_target: (n,) the target's probability of the group of the row's action.
        group_propensity: (n,) the logging policy's probability of that group.

    Raises:
        UserError: an argument is missing, or has values that are no probabilities.
    """
    if group_target is None or group_propensity is None:
        raise UserError(
            "estimator 'mips' needs the group's probability under both policies: give group_target and group_propensity"
        )
    names = "reward", "group_propensity", "group_target"
    propensity = column(group_propensity, names[1], rows=rows.reward.size)
    # A group's probability is a sum, which may exceed 1 by rounding errors; larger values are refused below.
    propensity = np.where(propensity <= HIGHEST_TARGET, np.minimum(propensity, 1.0), propensity)
    of_groups = Rows.of(rows.reward, propensity, group_target, names=names)
    assumption = Finding("embedding", CAUTION, 1.0)
    return Scores(of_groups.earned, used=of_groups.weight, counts=True, other_weights=True, warnings=(assumption,))


def beta_ips(rows: Rows, *, folds: Any = 5) -> Scores:
    """Return scores whose estimate is the mean of w r - b (w - 1), with w - 1 as control variate (Gupta et al. 2024).

    The coefficient b with the least variance is E[(w^2 - w) r] / E[w^2 - w]. For the rows of each fold it is estimated
    from the other folds, which keeps the estimate unbiased.

    Args:
        rows: rows of the log.
        folds: number of folds of users.
    """
    fold, n_folds = _folds(folds, rows)
    product = rows.weight * rows.weight - rows.weight
    fold_numerators = np.bincount(fold, product * rows.reward, n_folds)
    fold_denominators = np.bincount(fold, product, n_folds)
    # Sums over the other folds: the total minus those of the fold.
    numerators = fold_numerators.sum() - fold_numerators
    denominators = fold_denominators.sum() - fold_denominators
    beta = np.divide(numerators, denominators, out=np.zeros(n_folds), where=denominators != 0.0)
    linear = rows.weight * rows.reward - beta[fold] * (rows.weight - 1.0)
    return Scores(linear=linear, slope=float(np.max(np.abs(beta))))


def replay(rows: Rows) -> Scores:
    """Return scores whose estimate is the mean reward of rows where the target takes the logged action.

    See Li et al. 2011. A stochastic target takes it with its probability, which is the weight of the row.
    """
    return Scores(numerator=rows.target * rows.reward, denominator=rows.target)


def balanced_ips(rows: Rows, *, loggers: Any, logger: Any) -> Scores:
    """Return scores of ips with the mixture of several logging policies as propensity (Agarwal et al. 2017).

    Args:
        rows: rows of the log.
        loggers: (n, J) each logging policy's probability of the logged action.
        logger: (n,) number of the policy that logged the row, from 0.

    Raises:
        UserError: arguments of another shape, values that are no probabilities, or numbers of no logger.
    """
    n = rows.reward.size
    probabilities = np.asarray(loggers, dtype=np.float64)
    if probabilities.ndim != 2 or len(probabilities) != n:
        raise UserError(
            f"loggers must have one row per row of the log and one column per logger, got {probabilities.shape}"
        )
    if not np.all((probabilities >= 0.0) & (probabilities <= 1.0)):
        raise UserError("loggers must hold probabilities: each logger's probability of the row's action")
    n_loggers = probabilities.shape[1]
    logger_of_row = column(logger, "logger", rows=n).astype(np.int64)
    if logger_of_row.min() < 0 or logger_of_row.max() >= n_loggers:
        raise UserError(f"logger must number the columns of loggers, 0 to {n_loggers - 1}, got {logger_of_row.max()}")
    mixture = probabilities @ (np.bincount(logger_of_row, minlength=n_loggers) / n)
    if not np.all(mixture > 0.0):
        row = int(np.argmin(mixture))
        raise UserError(f"loggers, row {row} (counted from 0): no logger could take the logged action")
    weight = rows.target / mixture
    return Scores(linear=weight * rows.reward, used=weight, counts=True, other_weights=True)


def _inverse(limit: float) -> float:
    """Return 1 / limit; inf for 0."""
    if limit > 0.0:
        return 1.0 / limit
    return math.inf


def _checked_number(name: str, value: Any, low: float, high: float) -> float:
    """Return a parameter as a float, or raise UserError unless it is a number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not low <= float(value) <= high:
        raise UserError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}")
    return float(value)


def _folds(folds: Any, rows: Rows) -> tuple[NDArray[np.int64], int]:
    """Assign users (rows, if there are no users) to K folds: number i of them to fold i modulo K.

    Returns:
        (n,) the fold of each row.
        The number of folds.
    """
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 2:
        raise UserError(f"folds must be a whole number of at least 2, got {folds!r}")
    units = np.arange(rows.reward.size)
    if rows.clusters is not None:
        units, _ = rows.clusters.dense()
    return units % int(folds), int(folds)


GROUP = "recsim_mnar.estimators"
"""Entry-point group in which a package announces its estimators."""


@dataclass(frozen=True)
class EstimatorInfo:
    """Description of an estimator.

    Attributes:
        name: name for ``estimate_value(estimator=...)``.
        title: description in one line.
        source: paper that describes it.
        scores: function from rows to scores.
        needs: names of required columns besides reward, propensity and target.
        requires: names of required parameters.
        takes: names of optional parameters.
        clips: whether ``clip`` limits its weights.
        counts: whether its :class:`Scores` count weights times rewards.
        in_blocks: whether the scores of a row depend on no other row, and on no column but the three, so that a log can
            be read in blocks; only then can the difference of two policies be estimated.
        less_bias: advice that brings changed weights closer to target / propensity; "" if weights are not changed.
        lighter: name of the estimator to use if a few heavy weights decide the estimate.
    """

    name: str
    title: str
    source: str
    scores: Callable[..., Scores]
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    clips: bool = False
    counts: bool = False
    in_blocks: bool = False
    less_bias: str = ""
    lighter: str = "clipped_ips"


def _info(name: str, title: str, source: str, scores: Callable[..., Scores], **more: Any) -> EstimatorInfo:
    """Make the record of an estimator's function, reading its parameters from the signature after ``rows``."""
    parameters = list(inspect.signature(scores).parameters.values())
    options = [p for p in parameters[1:] if p.kind is not p.VAR_KEYWORD]  # without the first one, rows
    required = tuple(p.name for p in options if p.default is p.empty)
    optional = tuple(p.name for p in options if p.default is not p.empty)
    return EstimatorInfo(name, title, source, scores, requires=required, takes=optional, **more)


_CLIPS: dict[str, Any] = {"clips": True, "less_bias": "raise the clip"}
_MODEL: dict[str, Any] = {"needs": ("q_logged", "q_target")}
_LIGHTER: dict[str, Any] = _MODEL | {"lighter": "clipped_dr"}
_SU, _METELLI = "Su et al. 2020", "Metelli et al. 2021"

ESTIMATORS: dict[str, EstimatorInfo] = {
    info.name: info
    for info in (
        _info("ips", "mean of w r", "Horvitz & Thompson 1952", weighted(plain), counts=True, in_blocks=True),
        _info(
            "clipped_ips",
            "mean of min(w, clip) r",
            "Ionides 2008; Bottou et al. 2013",
            weighted(clipped),
            counts=True,
            in_blocks=True,
            **_CLIPS,
        ),
        _info("snips", "sum of w r over sum of w", "Swaminathan & Joachims 2015", snips, in_blocks=True),
        _info(
            "dm", "mean of the reward model under the target", "Beygelzimer & Langford 2009", dm, needs=("q_target",)
        ),
        _info(
            "dr", "reward model plus mean of w (r - q)", "Dudik, Langford & Li 2011", doubly_robust(plain), **_LIGHTER
        ),
        _info("clipped_dr", "dr with min(w, clip)", _SU, doubly_robust(clipped), **_MODEL, **_CLIPS),
        _info("sndr", "dr with the correction divided by mean w", "Thomas & Brunskill 2016", sndr, **_LIGHTER),
        _info(
            "switch_dr",
            "dr where w <= tau, else the model",
            "Wang et al. 2017",
            doubly_robust(switched),
            less_bias="raise tau",
            **_MODEL,
        ),
        _info("dros", "dr with w lam / (w^2 + lam)", _SU, doubly_robust(optimistic), less_bias="raise lam", **_MODEL),
        _info(
            "sg_ips", "ips with w / (1 - lam + lam w)", _METELLI, weighted(shrunk), counts=True, less_bias="lower lam"
        ),
        _info(
            "sg_dr", "dr with w / (1 - lam + lam w)", _METELLI, doubly_robust(shrunk), less_bias="lower lam", **_MODEL
        ),
        _info("mips", "weights of action groups in place of actions", "Saito & Joachims 2022", mips, counts=True),
        _info("beta_ips", "ips minus b (w - 1), b cross-fitted", "Gupta et al. 2024", beta_ips),
        _info(
            "ix_ips",
            "mean of pi / (pi_0 + gamma) r",
            "Gabbianelli et al. 2024",
            weighted(explored),
            counts=True,
            less_bias="lower gamma",
        ),
        _info("replay", "mean reward where the target takes the logged action", "Li et al. 2011", replay),
        _info("balanced_ips", "ips over the mixture of the loggers", "Agarwal et al. 2017", balanced_ips, counts=True),
    )
}


def known_estimators() -> dict[str, str]:
    """Return the titles of all estimators by name, including those that installed packages announce."""
    titles = {name: info.title for name, info in ESTIMATORS.items()}
    for name, point in announced(GROUP).items():
        if name not in titles:
            titles[name] = _info_of_function(name, point.load()).title
    return titles


def check_name(name: str) -> EstimatorInfo:
    """Return the record of an estimator by its name.

    Args:
        name: a key of :data:`ESTIMATORS`, a name in the entry-point group :data:`GROUP`, or
            ``package.module:function``.

    Raises:
        UserError: an unknown name, with the most similar one, or a function that cannot be imported or called.
    """
    if isinstance(name, str):
        if name in ESTIMATORS:
            return ESTIMATORS[name]
        if ":" in name:
            return _info_of_function(name, imported("estimator", name))
        if name in announced(GROUP):
            return _info_of_function(name, announced(GROUP)[name].load())
    raise UserError(unknown("estimator", str(name), {**ESTIMATORS, **announced(GROUP)}, "function"))


def known_to_differ() -> tuple[str, ...]:
    """Return the names of the estimators that can estimate the difference of two policies."""
    return tuple(name for name, info in ESTIMATORS.items() if info.in_blocks)


def _info_of_function(name: str, function: Any) -> EstimatorInfo:
    """Make the record of a user's own estimator.

    Args:
        name: name of the estimator.
        function: function from :class:`Rows` to one score per row or to :class:`Scores`. Its other parameters have
            defaults or are keyword-only.

    Raises:
        UserError: no function, or one with other positional parameters.
    """
    if not callable(function) or inspect.isclass(function):
        raise UserError(f"estimator {name!r} must be a function of the rows, got {function!r}")
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not positional or any(p.default is p.empty for p in positional[1:]):
        raise UserError(
            f"estimator {name!r}: define {name.rpartition(':')[2]}(rows, *, ...). The one found takes other arguments"
        )
    title = (inspect.getdoc(function) or "an estimator of your own").partition("\n")[0]
    record = _info(name, title, getattr(function, "source", "your own"), function)
    return replace(record, scores=functools.partial(_checked_scores, name, function))


def _checked_scores(name: str, function: Callable[..., Any], rows: Rows, **parameters: Any) -> Scores:
    """Call a user's own estimator and check its scores.

    Scores that are plain numbers get a finding, because their bias is unknown.

    Raises:
        UserError: the function raised an error, or returned no finite numbers.
    """
    try:
        scores = function(rows, **parameters)
    except UserError:
        raise
    except Exception as error:  # a user's own code may raise anything
        raise UserError(f"estimator {name!r} raised {described(error)}") from error
    if isinstance(scores, Scores):
        return scores
    linear = finite_column(scores, f"scores of {name}", rows.reward.size)
    return Scores(linear=linear, warnings=(Finding("own_estimator", CAUTION, 1.0),))
