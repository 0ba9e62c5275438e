"""Choosing by cross-validation on the training file, spread over processes.

Each held-out rating counts 1/P: the score estimates the error over all cells. With k folds a rating is both revealed
and in the training folds with probability P (k - 1)/k, and held out with P/k (Schnabel et al. 2016, section 6.1). A
candidate is a small dictionary; what it scores depends on it, the data and the fold alone, so any number of processes
finds the same. Its ``propensities`` are those that it is fitted with, and scored with unless ``scored_by`` names
others.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import joint_learning
import numpy as np
from fits import FitCount
from ordinal import HL
from product_kernel import ProductKernelConfig, Sides, fit_side

from recsim_mnar.kernels.lbfgs import NotConverged
from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, factorise

Candidate = dict[str, Any]
STARS = (1.0, 5.0)


@dataclass(frozen=True)
class Problem:
    """What every fit needs.

    Attributes:
        train: revealed ratings.
        propensities: of each, by name of the estimate; ``none`` stands for all alike.
        sides: features, where there are some.
        n_folds: k.
        seed: of folds and starts.
        max_iterations: of a factorisation.
    """

    train: Ratings
    propensities: dict[str, Any]
    sides: Sides | None
    n_folds: int
    seed: int
    max_iterations: int


_problem: Problem | None = None


def _begin(problem: Problem) -> None:
    global _problem  # one a process, so that the data travels once
    _problem = problem


class Workers:
    """Processes that fit; each with one thread for linear algebra, whose last bits can depend on the number."""

    def __init__(self, problem: Problem, n_workers: int) -> None:
        self.problem, self.cpu, self.final = problem, 0.0, FitCount()
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = "1"  # read by processes that start from here on
        self.pool = ProcessPoolExecutor(
            n_workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(problem,)
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: Any) -> None:
        self.pool.shutdown(cancel_futures=True)

    def scores(self, candidates: Sequence[Candidate]) -> tuple[list[float], int]:
        """The mean IPS score over folds of each candidate, and how many fits did not converge."""
        k = self.problem.n_folds
        jobs = [(candidate, fold) for candidate in candidates for fold in range(k)]
        found = list(self.pool.map(_score, jobs, chunksize=max(1, min(8, len(jobs) // 16))))
        self.cpu += sum(cpu for _, _, cpu in found)
        means = [float(np.mean([score for score, _, _ in found[j * k : (j + 1) * k]])) for j in range(len(candidates))]
        return means, sum(failed for _, failed, _ in found)

    def fits(self, candidates: Sequence[Candidate]) -> list[np.ndarray]:
        """Predictions of all cells, (U, I), of each candidate fitted to the whole training file; ``final`` counts."""
        found = list(self.pool.map(_fit, candidates))
        self.final.made += len(found)
        self.final.converged += sum(converged for _, converged in found)
        return [matrix for matrix, _ in found]

    def best(self, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """The candidate with the lowest score, what it scores, and how many fits did not converge."""
        scores, failed = self.scores(candidates)
        at = int(np.argmin(scores))
        return {**candidates[at], "score": scores[at], "tried": len(candidates), "fits_not_converged": failed}

    def search(
        self, start: Candidate, moves: Sequence[tuple[str, int | None]], factors: Sequence[float], *, gain: float = 2e-4
    ) -> dict[str, Any]:
        """Pattern search over a side form: each number in turn is multiplied and divided as long as the score falls.

        Args:
            start: a candidate of kind ``side``.
            moves: (field, place in it or None), in the order in which they are tried.
            factors: a round each, by which numbers are multiplied.
            gain: a move must lower the score by this.
        """
        now, score, failed, tried = start, *self._one(start), 1
        for factor in factors:
            for field, place in moves:
                ways = [_moved(now, field, place, f) for f in (factor, 1.0 / factor)]
                scores, more = self.scores(ways)
                failed, tried = failed + more, tried + 2
                way = int(np.argmin(scores))
                step = (factor, 1.0 / factor)[way]
                candidate, found = ways[way], scores[way]
                while found < score - gain:
                    now, score = candidate, found
                    candidate = _moved(now, field, place, step)
                    found, more = self._one(candidate)
                    failed, tried = failed + more, tried + 1
        return {**now, "score": score, "tried": tried, "fits_not_converged": failed}

    def _one(self, candidate: Candidate) -> tuple[float, int]:
        scores, failed = self.scores([candidate])
        return scores[0], failed


def _moved(candidate: Candidate, field: str, place: int | None, factor: float) -> Candidate:
    form = dict(candidate["form"])
    if place is None:
        moved = form[field] * factor
        form[field] = min(moved, 1.0) if field == "weighting" else moved
    else:
        form[field] = [v * factor if j == place else v for j, v in enumerate(form[field])]
    return {**candidate, "form": form}


def _score(job: tuple[Candidate, int]) -> tuple[float, int, float]:
    began = time.process_time()
    candidate, fold = job
    problem = _problem
    assert problem is not None  # set as the process began
    train, k = problem.train, problem.n_folds
    held = split_folds(len(train), k, problem.seed) == fold
    test = train.select(held)
    p = _propensities(problem, candidate["propensities"])
    matrix, converged = noting_convergence(problem, candidate, ~held, p * (k - 1) / k, choosing=True)
    error = np.abs(test.at(matrix) - test.values)
    delta = error if loss_of(candidate) == "mae" else error**2
    scored_by = candidate.get("scored_by", candidate["propensities"])
    weights = k / _propensities(problem, scored_by)[held]
    # A fit that ran away has no score, and is not chosen.
    value = float(weights @ delta / (train.n_users * train.n_items))
    return value if math.isfinite(value) else math.inf, int(not converged), time.process_time() - began


def _fit(candidate: Candidate) -> tuple[np.ndarray, bool]:
    problem = _problem
    assert problem is not None  # set as the process began
    everything = np.ones(len(problem.train), bool)
    p = _propensities(problem, candidate["propensities"])
    return noting_convergence(problem, candidate, everything, p, choosing=False)


def noting_convergence(*arguments: Any, choosing: bool) -> tuple[np.ndarray, bool]:
    """What :func:`predict` returns, and whether no fit of it warned that it had not converged."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", NotConverged)
        matrix = predict(*arguments, choosing=choosing)
    return matrix, not any(issubclass(w.category, NotConverged) for w in found)


def _propensities(problem: Problem, name: str) -> np.ndarray:
    return np.full(len(problem.train), problem.train.density) if name == "none" else problem.propensities[name]


def loss_of(candidate: Candidate) -> str:
    """``mse`` or ``mae``."""
    return str(candidate["form"].get("loss", "mse"))


def predict(problem: Problem, candidate: Candidate, rows: Any, p: np.ndarray, *, choosing: bool) -> np.ndarray:
    """Predictions of all cells by a candidate fitted to some of the ratings; see the fits below.

    Factorisations are as the paper's, not cut off at the scale's ends; models with side information are.
    """
    return FITS[candidate["kind"]](problem, candidate, problem.train.select(rows), p[rows], choosing)


def _mf(problem: Problem, candidate: Candidate, ratings: Ratings, p: np.ndarray, choosing: bool) -> np.ndarray:
    fit = factorise(
        ratings, 1.0 / p, FactorizationConfig(**candidate["form"]), seed=problem.seed + candidate.get("start", 0),
        max_iterations=problem.max_iterations, value_tolerance=1e-5 if choosing else 1e-7,
    )  # fmt: skip
    return fit.factors.matrix()


def _joint(problem: Problem, candidate: Candidate, ratings: Ratings, p: np.ndarray, choosing: bool) -> np.ndarray:
    fit = joint_learning.learn(
        ratings, p, FactorizationConfig(**candidate["form"]), FactorizationConfig(**candidate["imputation"]),
        anchor=candidate["anchor"],
        clip=candidate["clip"], seed=problem.seed + candidate.get("start", 0), rounds=10 if choosing else 50,
    )  # fmt: skip
    return fit.prediction


def _side(problem: Problem, candidate: Candidate, ratings: Ratings, p: np.ndarray, choosing: bool) -> np.ndarray:
    form = ProductKernelConfig.from_dict(candidate["form"])
    matrix = fit_side(
        ratings, p, _sides(problem), form, tolerance=1e-3 if choosing else 1e-6, max_sweeps=6 if choosing else 60
    )
    return np.clip(matrix, *STARS)


def _side_dr(problem: Problem, candidate: Candidate, ratings: Ratings, p: np.ndarray, choosing: bool) -> np.ndarray:
    side = _side(problem, {"form": candidate["side"]}, ratings, p, choosing)
    corrected = joint_learning.correct(
        ratings, p, side, FactorizationConfig(**candidate["form"]), clip=candidate["clip"],
        seed=problem.seed + candidate.get("start", 0),
    )  # fmt: skip
    return np.clip(corrected, *STARS)


def _sides(problem: Problem) -> Sides:
    assert problem.sides is not None  # candidates with side information are made only where there are features
    return problem.sides


FITS: dict[str, Callable[[Problem, Candidate, Ratings, np.ndarray, bool], np.ndarray]] = {
    "mf": _mf, "joint": _joint, "side": _side, "side_dr": _side_dr,
}  # fmt: skip


def fit_hl(job: tuple[Ratings, dict[str, Any], int]) -> tuple[np.ndarray, np.ndarray, list[float], bool]:
    """HL-MAR or HL-MNAR: means and medians of all cells, lower bounds, and whether it converged."""
    ratings, settings, seed = job
    fit = HL(**settings).fit(ratings, seed)
    return fit.matrix, fit.medians, list(fit.bounds), fit.converged


def apart(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a function returns in a process of its own, with one thread for linear algebra as in :class:`Workers`."""
    with Workers(Problem(Ratings([], [], [], 0, 0), {}, None, 2, 0, 1), 1) as workers:  # type: ignore[arg-type]  # empty
        return workers.pool.submit(function, *arguments, **named).result()
