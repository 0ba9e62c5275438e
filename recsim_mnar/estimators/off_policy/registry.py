"""The estimators there are, a record each, and those that others write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, described
from recsim_mnar.estimators.off_policy import scores
from recsim_mnar.estimators.off_policy.scores import Rows, Scores
from recsim_mnar.estimators.verdict import CAUTION, Finding
from recsim_mnar.plugins import announced, imported, unknown

GROUP = "recsim_mnar.estimators"
"""Entry-point group in which a package announces its estimators."""


@dataclass(frozen=True)
class EstimatorInfo:
    """All that is said of an estimator, once.

    Attributes:
        name: as in ``estimate_value(estimator=...)``.
        title: one line.
        source: paper.
        scores: its function: rows in, one score a row out.
        needs: columns beside reward, propensity and target that must be given.
        requires: parameters that must be given.
        takes: parameters that may be given.
        clips: whether ``clip`` cuts its weights.
        from_moments: whether the moments of one pass over the rows suffice; then the difference of two policies is
            known, too.
        less_bias: what brings its weights closer to target / propensity, where it changes them.
        lighter: the estimator to use where a few heavy weights decide.
    """

    name: str
    title: str
    source: str
    scores: Callable[..., Scores]
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    clips: bool = False
    from_moments: bool = False
    less_bias: str = ""
    lighter: str = "clipped_ips"


_Q = ("q_logged", "q_target")
_GROUPS = ("group_target", "group_propensity", "groups", "context")

ESTIMATORS: dict[str, EstimatorInfo] = {
    info.name: info
    for info in (
        EstimatorInfo("ips", "mean of w r", "Horvitz & Thompson 1952", scores.ips, from_moments=True),
        EstimatorInfo(
            "clipped_ips", "mean of min(w, clip) r", "Ionides 2008; Bottou et al. 2013", scores.clipped_ips,
            clips=True, from_moments=True, less_bias="raise the clip",
        ),
        EstimatorInfo(
            "snips", "sum of w r over sum of w", "Swaminathan & Joachims 2015", scores.snips, from_moments=True
        ),
        EstimatorInfo(
            "dm", "mean of the reward model under the target", "Beygelzimer & Langford 2009", scores.dm, _Q[1:]
        ),
        EstimatorInfo(
            "dr", "reward model plus mean of w (r - q)", "Dudik, Langford & Li 2011", scores.dr, _Q,
            lighter="clipped_dr",
        ),
        EstimatorInfo(
            "clipped_dr", "dr with min(w, clip)", "Su et al. 2020", scores.clipped_dr, _Q,
            clips=True, less_bias="raise the clip",
        ),
        EstimatorInfo(
            "sndr", "dr with the correction divided by mean w", "Thomas & Brunskill 2016", scores.sndr, _Q,
            lighter="clipped_dr",
        ),
        EstimatorInfo(
            "switch_dr", "dr where w <= tau, else the model", "Wang et al. 2017", scores.switch_dr, _Q,
            takes=("tau",), less_bias="raise tau",
        ),
        EstimatorInfo(
            "dros", "dr with w lam / (w^2 + lam)", "Su et al. 2020", scores.dros, _Q,
            takes=("lam",), less_bias="raise lam",
        ),
        EstimatorInfo(
            "sg_ips", "ips with w / (1 - lam + lam w)", "Metelli et al. 2021", scores.sg_ips,
            takes=("lam",), less_bias="lower lam",
        ),
        EstimatorInfo(
            "sg_dr", "dr with w / (1 - lam + lam w)", "Metelli et al. 2021", scores.sg_dr, _Q,
            takes=("lam",), less_bias="lower lam",
        ),
        EstimatorInfo(
            "mips", "weights of action groups in place of actions", "Saito & Joachims 2022", scores.mips, takes=_GROUPS
        ),
        EstimatorInfo(
            "beta_ips", "ips minus b (w - 1), b cross-fitted", "Gupta et al. 2024", scores.beta_ips, takes=("folds",)
        ),
        EstimatorInfo(
            "ix_ips", "mean of pi / (pi_0 + gamma) r", "Gabbianelli et al. 2024", scores.ix_ips,
            takes=("gamma",), less_bias="lower gamma",
        ),
        EstimatorInfo(
            "replay", "mean reward where the target takes the logged action", "Li et al. 2011", scores.replay
        ),
        EstimatorInfo(
            "balanced_ips", "ips over the mixture of the loggers", "Agarwal et al. 2017", scores.balanced_ips,
            requires=("loggers", "logger"),
        ),
    )
}  # fmt: skip


def known_estimators() -> dict[str, str]:
    """Name and one line of every estimator, those that installed packages announce too."""
    own = {name: _own(name, point.load()).title for name, point in announced(GROUP).items() if name not in ESTIMATORS}
    return {name: info.title for name, info in ESTIMATORS.items()} | own


def check_name(name: str) -> EstimatorInfo:
    """The estimator that a name stands for.

    Args:
        name: of :data:`ESTIMATORS`, announced in the entry-point group :data:`GROUP`, or ``package.module:function``.

    Raises:
        UserError: an unknown name, with the nearest one, or a function that cannot be had or called.
    """
    if isinstance(name, str) and name in ESTIMATORS:
        return ESTIMATORS[name]
    if isinstance(name, str) and ":" in name:
        return _own(name, imported("estimator", name))
    if isinstance(name, str) and name in announced(GROUP):
        return _own(name, announced(GROUP)[name].load())
    raise UserError(unknown("estimator", str(name), {**ESTIMATORS, **announced(GROUP)}, "function"))


def known_to_differ() -> tuple[str, ...]:
    """Names of the estimators whose difference of two policies is known."""
    return tuple(name for name, info in ESTIMATORS.items() if info.from_moments)


def _own(name: str, function: Any) -> EstimatorInfo:
    """The record of a function of somebody else's: rows in, one score a row (or :class:`Scores`) out."""
    if not callable(function) or inspect.isclass(function):
        raise UserError(f"estimator {name!r} must be a function of the rows, got {function!r}")
    parameters = list(inspect.signature(function).parameters.values())
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not places or any(p.default is p.empty for p in places[1:]):
        raise UserError(
            f"estimator {name!r}: define {name.rpartition(':')[2]}(rows, *, ...), its own takes other arguments"
        )
    options = [p for p in parameters if p is not places[0] and p.kind is not p.VAR_KEYWORD]
    return EstimatorInfo(
        name,
        (inspect.getdoc(function) or "an estimator of your own").partition("\n")[0],
        getattr(function, "source", "your own"),
        functools.partial(_own_scores, name, function),
        requires=tuple(p.name for p in options if p.default is p.empty),
        takes=tuple(p.name for p in options if p.default is not p.empty),
    )


def _own_scores(name: str, function: Callable[..., Any], rows: Rows, **parameters: Any) -> Scores:
    """What somebody else's function makes of the rows, checked; nobody here knows whether it is biased."""
    try:
        found = function(rows, **parameters)
    except UserError:
        raise
    except Exception as error:  # a user's own code may raise anything
        raise UserError(f"estimator {name!r} raised {described(error)}") from error
    if isinstance(found, Scores):
        return found
    n = rows.reward.size
    try:
        linear = np.ascontiguousarray(found, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"estimator {name!r} must return one number a row ({n}), got {type(found).__name__}") from None
    if linear.shape != (n,):
        raise UserError(f"estimator {name!r} must return one number a row ({n}), got shape {linear.shape}")
    bad = ~np.isfinite(linear)
    if bad.any():
        row = int(np.argmax(bad))
        raise UserError(f"estimator {name!r}, row {row} (counted from 0): the score is {linear[row]}, no finite number")
    message = "whether this estimator is biased is known to who wrote it alone"
    return Scores(linear=linear, warnings=(Finding("own_estimator", CAUTION, 1.0, message, "compare with ips"),))
