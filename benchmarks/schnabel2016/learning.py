"""Figure 6: what is learnt from selected ratings, with known propensities and with estimated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from semi_synthetic import Setting, mcar_sample, t_band

from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, factorise
from recsim_mnar.propensities import observation as propensity

SOLVER: dict[str, Any] = {"solver": "als", "max_iterations": 40, "value_tolerance": 1e-4, "warn": False}


def choose(s: Setting, observed: Ratings, p: np.ndarray) -> FactorizationConfig:
    """Lambda by cross-validated IPS score, the propensities scaled by (k - 1)/k and 1/k (section 6.1)."""
    k = s.settings["folds"]
    fold = split_folds(len(observed), k, s.seed)
    forms = [FactorizationConfig(rank=s.settings["rank"], penalty=penalty) for penalty in s.settings["penalties"]]
    scores = np.zeros(len(forms))
    for f in range(k):
        train, test = observed.select(fold != f), observed.select(fold == f)
        for j, form in enumerate(forms):
            fit = factorise(train, 1.0 / (p[fold != f] * (k - 1) / k), form, seed=s.seed, **SOLVER)
            error = fit.factors.at(test.users, test.items) - test.values
            scores[j] += float((error**2 / (p[fold == f] / k)).sum())
    return forms[int(scores.argmin())]


def mse_of(s: Setting, observed: Ratings, p: np.ndarray, form: FactorizationConfig, seed: int) -> float:
    """MSE over all cells (equation 1) of the model fitted with weights 1/P."""
    fit = factorise(observed, 1.0 / p, form, seed=seed, **SOLVER)
    return float(((fit.factors.matrix() - s.truth) ** 2).mean())


def fill(s: Setting, points: dict[str, Any], save: Callable[[], None]) -> None:
    """Make the points that are missing; lambda is chosen on each point's first trial, for each method."""
    alpha = s.settings["alpha"]
    cases: list[tuple[str, float, int | None]] = [(f"alpha {a:g}", a, None) for a in s.settings["alphas"]]
    cases += [(f"sample {n}", alpha, n) for n in s.settings["mcar_samples"]]
    for key, severity, size in cases:
        if key in points:
            continue
        chosen: dict[str, FactorizationConfig] = {}
        mse: dict[str, list[float]] = {}
        for trial in range(s.settings["figure6_trials"]):
            p, observed = s.draw(severity, trial)
            if size is None:
                weighting = {"MF-IPS": observed.at(p), "MF-Naive": np.full(len(observed), observed.density)}
            else:
                estimated = propensity.naive_bayes(observed, mcar_sample(s, size, trial))
                weighting = {"MF-IPS-NB": estimated.of(observed.values)}
            for name, at in weighting.items():
                if name not in chosen:
                    chosen[name] = choose(s, observed, at)
                mse.setdefault(name, []).append(mse_of(s, observed, at, chosen[name], trial))
        points[key] = {"mse": mse, "penalty": {name: form.penalty for name, form in chosen.items()}}
        save()


def summarise(s: Setting, points: dict[str, Any]) -> dict[str, Any]:
    """Means and 95 % bands of each curve."""
    alphas, sizes = s.settings["alphas"], s.settings["mcar_samples"]
    left = {
        name: t_band(np.array([points[f"alpha {a:g}"]["mse"][name] for a in alphas]).T)
        for name in ("MF-IPS", "MF-Naive")
    }
    right = t_band(np.array([points[f"sample {n}"]["mse"]["MF-IPS-NB"] for n in sizes]).T)
    trials = s.settings["figure6_trials"]
    return {**s.describe(), "alphas": alphas, "sizes": sizes, "left": left, "right": right, "trials": trials,
            "alpha": s.settings["alpha"], "points": points}  # fmt: skip


def check(result: dict[str, Any]) -> dict[str, bool]:
    """What must hold of Figure 6."""
    checks: dict[str, bool] = {}
    ips, naive = result["left"]["MF-IPS"], result["left"]["MF-Naive"]
    for k, alpha in enumerate(result["alphas"]):
        if alpha < 1:
            text = f"alpha = {alpha:g}: MF-IPS {ips['mean'][k]:.4f} below MF-Naive {naive['mean'][k]:.4f}"
            checks[text] = ips["mean"][k] < naive["mean"][k]
        if alpha <= 0.25:
            checks[f"alpha = {alpha:g}: disjoint 95 % bands"] = ips["high"][k] < naive["low"][k]
    reference = naive["mean"][result["alphas"].index(result["alpha"])]
    for k, size in enumerate(result["sizes"]):
        found = result["right"]["mean"][k]
        checks[f"{size} MCAR ratings: MF-IPS-NB {found:.4f} below MF-Naive {reference:.4f}"] = found < reference
    return checks
