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

import numpy as np
from fits import FitCount

from recsim_mnar.kernels.lbfgs import NotConverged
from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, factorise

Candidate = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """What every fit needs.

    Attributes:
        train: revealed ratings.
        propensities: of each, by name of the estimate; ``none`` stands for all alike.
        n_folds: k.
        seed: of folds and starts.
        max_iterations: of a factorisation.
    """

    train: Ratings
    propensities: dict[str, Any]
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
    """Predictions of all cells by a factorisation of some of the ratings, not cut off at the ends of the scale."""
    fit = factorise(
        problem.train.select(rows), 1.0 / p[rows], FactorizationConfig(**candidate["form"]),
        seed=problem.seed + candidate.get("start", 0),
        max_iterations=problem.max_iterations, value_tolerance=1e-5 if choosing else 1e-7,
    )  # fmt: skip
    return fit.factors.matrix()


def apart(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a function returns in a process of its own, with one thread for linear algebra as in :class:`Workers`."""
    with Workers(Problem(Ratings([], [], [], 0, 0), {}, 2, 0, 1), 1) as workers:  # type: ignore[arg-type]  # empty
        return workers.pool.submit(function, *arguments, **named).result()
