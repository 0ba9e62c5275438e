"""The paper's bounds on estimates of ratings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, refuse_first
from recsim_mnar.log.ratings import Floats


def tail_bound(delta: Any, propensities: Any, eta: float = 0.05) -> float:
    """Proposition 1: with probability 1 - eta, ``|R_IPS - R|`` is at most this.

    sqrt(log(2/eta)/2 sum rho^2) / (U I), rho = delta/P where P < 1, and 0 where P = 1.

    Args:
        delta: (U, I) losses of all entries.
        propensities: (U, I) true P.
        eta: in (0, 1).
    """
    d, p = _matrices(delta, propensities)
    _finite(d, "loss")
    rho = np.where(p < 1.0, d / p, 0.0)
    return math.sqrt(math.log(2.0 / _share(eta)) / 2.0 * float((rho * rho).sum())) / d.size


def erm_bound(largest: float, propensities: Any, n_hypotheses: float, eta: float = 0.05) -> float:
    """Theorem 2: with probability 1 - eta, R(Y_ERM) - R_IPS(Y_ERM) is at most this.

    ``Delta/(U I) sqrt(log(2 |H| / eta) / 2) sqrt(sum 1/P^2)``.

    Args:
        largest: Delta, the largest loss.
        propensities: (U, I) P.
        n_hypotheses: ``|H|``.
        eta: in (0, 1).
    """
    p = np.asarray(propensities, np.float64)
    _positive(p)
    if not 0.0 <= largest < math.inf:
        raise UserError(f"the largest loss must be a finite number of at least 0, got {largest}")
    if not 1 <= n_hypotheses < math.inf:
        raise UserError(f"there must be at least one hypothesis and finitely many, got {n_hypotheses}")
    spread = math.sqrt(math.log(2.0 * n_hypotheses / _share(eta)) / 2.0)
    return largest / p.size * spread * math.sqrt(float((1.0 / p**2).sum()))


def erm_bound_inaccurate(
    largest: float,
    propensities: Any,
    estimated: Any,
    n_hypotheses: float,
    eta: float = 0.05,
    *,
    largest_ratio: float | None = None,
) -> float:
    """Theorem 4: the bound of Theorem 2 for estimated propensities Phat, plus ``Delta/(U I) sum |1 - P/Phat|``.

    Without the true P (``propensities=None``) a ``largest_ratio`` G of P to Phat, either way, must be stated: the sum
    is then at most U I (G - 1).
    """
    if (propensities is None) == (largest_ratio is None):
        raise UserError("Theorem 4 needs the true propensities or the largest ratio of theirs to the estimated ones")
    if largest_ratio is not None:
        off = number_in(largest_ratio, "largest_ratio", 1.0, math.inf, ends="[)") - 1.0
        return largest * off + erm_bound(largest, estimated, n_hypotheses, eta)
    p, q = _matrices(propensities, estimated)
    _finite(p, "propensity")
    return largest / p.size * float(np.abs(1.0 - p / q).sum()) + erm_bound(largest, q, n_hypotheses, eta)


def bias_inaccurate(delta: Any, propensities: Any, estimated: Any) -> float:
    """Lemma 3: sum delta/(U I) (1 - P/Phat).

    This is R minus the expected estimate, as the paper writes it: the opposite sign of the usual convention, so
    **positive where IPS under Phat is too low**.

    Args:
        delta: (U, I) losses of all entries.
        propensities: (U, I) true P.
        estimated: (U, I) Phat > 0.
    """
    d, p = np.asarray(delta, np.float64), np.asarray(propensities, np.float64)
    _, q = _matrices(d, estimated)
    if p.shape != d.shape:
        raise UserError(f"matrices of shape {d.shape} and {p.shape} do not go together")
    _finite(d, "loss")
    _finite(p, "propensity")
    return float((d * (1.0 - p / q)).mean())


def _matrices(first: Any, second: Any) -> tuple[Floats, Floats]:
    """Two matrices of one shape, the second positive."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise UserError(f"matrices of shape {a.shape} and {b.shape} do not go together")
    _positive(b)
    return a, b


def _positive(p: Floats) -> None:
    _check_entries(~((p > 0.0) & (p < math.inf)), p, "propensity", "must be above 0")


def _finite(values: Floats, name: str) -> None:
    _check_entries(~np.isfinite(values), values, name, "must be a finite number")


def _check_entries(bad: NDArray[np.bool_], values: Floats, name: str, rule: str) -> None:
    refuse_first(bad, lambda *at: f"the {name} at ({', '.join(map(str, at))}) is {values[at]:g}: it {rule}")


def _share(eta: float) -> float:
    if not 0.0 < eta < 1.0:
        raise UserError(f"eta must be in (0, 1), got {eta}")
    return eta
