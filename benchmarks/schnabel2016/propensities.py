"""Propensities by popularity, naive Bayes, logistic regression and gradient boosting, next to each other.

    python benchmarks/schnabel2016/propensities.py [--coat DIR] [--quick] [--out DIR]

On synthetic worlds whose propensities are known (a law of feature pairs, and one of thresholds): mean error,
calibration, balance of the features, and MSE of MF-IPS over all cells. On Coat: held-out log-likelihood, calibration,
balance, and the test MSE of MF-IPS (d = 20, lambda = .001, regularised, as Table 2 chooses). Needs the extra
``scikit-learn``.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import bounds
import numpy as np
import parts
from balance import LIMITS, balance
from boosted import boosted
from fits import FINAL, FitCount
from logistic_propensities import logistic as fit_logistic

from recsim_mnar.datasets.rating_studies import load_coat
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ratings as propensity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise

FORM = FactorizationConfig(rank=20, penalty=1e-3)


def synthetic(law: str, size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, z, ratings, propensities): tastes and reveals both depend on the features."""
    g = np.random.default_rng(seed)
    x, z = g.normal(size=(size, 4)), g.normal(size=(size, 4))
    taste = x[:, :2] @ z[:, :2].T + 0.7 * g.normal(size=(size, 1)) + 0.7 * g.normal(size=size)
    ratings = np.clip(np.rint(3 + taste + 0.5 * g.normal(size=taste.shape)), 1, 5)
    if law == "pairs":
        logits = -2.5 + 0.8 * x[:, :1] * z[:, 0] + 0.5 * x[:, 1:2] + 0.5 * g.normal(size=size)
        return x, z, ratings, 1 / (1 + np.exp(-logits))
    far = (np.abs(x[:, :1]) > 0.8) & (np.abs(z[:, 0]) > 0.8)
    return x, z, ratings, np.where(far, 0.4, np.where(x[:, 1:2] > 0.5, 0.12, 0.04))


def estimates(train: Ratings, x: Any, z: Any, sample: Any, seed: int) -> dict[str, tuple[Any, float | None, float]]:
    """By name: propensities (of all cells, or of the ratings), held-out log-likelihood, CPU seconds.

    A logistic penalty that is the best at its grid's edge is said on the way.
    """
    out = {}

    def made(name: str, make: Any) -> None:
        began = time.process_time()
        p, likelihood = make()
        out[name] = p, likelihood, time.process_time() - began

    def logistic() -> Any:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            fit = fit_logistic(train, x, z, seed=seed)
        for warning in found:
            print(f"logistic, {train.n_users} x {train.n_items}, seed {seed}: {warning.message}")
        return fit.matrix, max(fit.scores.values())

    def trees() -> Any:
        fit = boosted(train, x, z, seed=seed)
        return fit.matrix, fit.log_likelihood

    made("popularity", lambda: (propensity.popularity(train), None))
    made("naive Bayes", lambda: (propensity.naive_bayes(train, sample).of(train.values), None))
    made("logistic", logistic)
    made("boosted", trees)
    return out


def judged(train: Ratings, p: Any, x: Any, z: Any, error_of: Any, fits: FitCount) -> dict[str, Any]:
    """Calibration, balance, sum of 1/P over the cells, and the error of MF-IPS weighted with them."""
    at = train.at(p) if p.ndim == 2 else p
    bound = bounds.calibration(train, p) if p.ndim == 2 else None
    balanced = balance(train, np.minimum(p, 1.0), x, z) if p.ndim == 2 else None
    fit = fits.add(factorise(train, 1.0 / at, FORM, seed=1, **FINAL))
    return {
        "calibration_error": bound.error if bound else None,
        "unbalanced": len(balanced.unbalanced) if balanced else None,
        "total": float((1.0 / at).sum() / (train.n_users * train.n_items)), "mse": error_of(fit.factors),
    }  # fmt: skip


def world(law: str, size: int, seeds: int, fits: FitCount) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for seed in range(seeds):
        x, z, truth, p = synthetic(law, size, seed)
        g = np.random.default_rng(1000 + seed)
        train = Ratings.from_dense(truth, g.random(p.shape) < p)
        found = estimates(train, x, z, g.choice(truth.ravel(), 300), seed)
        found["true"] = p, None, 0.0
        found["none (MF-Naive)"] = np.full(p.shape, train.density), None, 0.0
        for name, (q, likelihood, seconds) in found.items():
            row = judged(train, q, x, z, lambda f, truth=truth: float(((f.matrix() - truth) ** 2).mean()), fits)
            known = p if q.ndim == 2 else train.at(p)
            row |= {"error": float(np.abs(q - known).mean()) if q.ndim == 2 else None}
            rows.setdefault(name, []).append({**row, "log_likelihood": likelihood, "seconds": seconds})
    return {name: mean_of(ones) for name, ones in rows.items()}


def mean_of(ones: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"n": len(ones)}
    for key in ones[0]:
        values = [one[key] for one in ones]
        out[key] = None if values[0] is None else float(np.mean(values))
    spread = [one["mse"] for one in ones]
    out["mse_se"] = float(np.std(spread, ddof=1) / np.sqrt(len(ones))) if len(ones) > 1 else None
    return out


def coat(folder: Path, fits: FitCount) -> dict[str, Any]:
    data = load_coat(folder)
    order = np.random.default_rng(5).permutation(len(data.test))
    sample, rest = data.test.select(order[:232]), data.test.select(order[232:])
    found = estimates(data.train, data.user_features, data.item_features, sample.values, 2016)
    if data.propensities is not None:
        found["released with the data"] = data.propensities, None, 0.0
    found["none (MF-Naive)"] = np.full(data.train.shape, data.train.density), None, 0.0
    out = {}
    features = data.user_features, data.item_features
    for name, (p, likelihood, seconds) in found.items():
        row = judged(
            data.train, p, *features, lambda f: float(((f.at(rest.users, rest.items) - rest.values) ** 2).mean()), fits
        )
        out[name] = {**row, "log_likelihood": likelihood, "seconds": seconds}
    return out


def markdown(result: dict[str, Any]) -> str:
    lines = ["## Propensities from features: popularity, naive Bayes, logistic regression, gradient boosting", ""]
    for name, rows in result.items():
        lines += [f"### {name}", "", "| propensities | mean error | calibration error | held-out log-likelihood "
                  "| out of balance | sum of 1/P | MSE of MF-IPS | CPU s |", "|---" * 8 + "|"]  # fmt: skip
        for method, row in rows.items():
            keys = {"error": ".4f", "calibration_error": ".4f", "log_likelihood": ".4f"}
            keys |= {"unbalanced": ".3g", "total": ".4f"}
            text = ["-" if row.get(key) is None else format(row[key], form) for key, form in keys.items()]
            se = f" +- {row['mse_se']:.4f}" if row.get("mse_se") else ""
            lines.append(f"| {method} | {' | '.join(text)} | {row['mse']:.4f}{se} | {row['seconds']:.1f} |")
        lines.append("")
    lines += [
        "Out of balance: how many covariates (8 in the synthetic worlds, 47 on Coat) have in one of five strata",
        "a mean of the observed entries off its expectation under the propensities (simultaneous 95 % intervals; mean",
        "over worlds).",
        LIMITS,
        "",
    ]
    return "\n".join(lines)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coat", type=Path, help="folder of the Coat study")
    parser.add_argument("--quick", action="store_true", help="small worlds")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    out = parts.folder(options.out, options.quick)
    size, seeds = (60, 1) if options.quick else (200, 3)
    fits = FitCount()
    try:
        result = {
            "synthetic, a law of feature pairs": world("pairs", size, seeds, fits),
            "synthetic, a law of thresholds": world("thresholds", size, seeds, fits),
        }
        if options.coat is not None:
            result["Coat (test ratings but for the 232 of naive Bayes)"] = coat(options.coat, fits)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = markdown(result) + f"\n{fits.converged} of {fits.made} fits of MF-IPS converged."
    parts.write(out, "propensities", {**result, "fits": fits.to_dict()}, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
