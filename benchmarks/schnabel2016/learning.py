"""Figure 6: what is learnt from selected ratings, with known propensities and with estimated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from semi_synthetic import Setting, mcar_sample, t_band

from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, factorise
from recsim_mnar.propensities import observation as propensity

SOLVERS: dict[str, dict[str, Any]] = {
    "mse": {"solver": "als", "max_iterations": 40, "value_tolerance": 1e-4, "warn": False},
    "mae": {"solver": "lbfgs", "max_iterations": 80, "value_tolerance": 1e-4, "warn": False},
}
POWERS = {"mse": 2, "mae": 1}


def choose(s: Setting, observed: Ratings, p: np.ndarray, loss: str = "mse") -> FactorizationConfig:
    """Lambda by cross-validated IPS score, the propensities scaled by (k - 1)/k and 1/k (section 6.1)."""
    k = s.settings["folds"]
    fold = split_folds(len(observed), k, s.seed)
    forms = [
        FactorizationConfig(rank=s.settings["rank"], penalty=penalty, loss=loss) for penalty in s.settings["penalties"]
    ]
    scores = np.zeros(len(forms))
    for f in range(k):
        train, test = observed.select(fold != f), observed.select(fold == f)
        for j, form in enumerate(forms):
            fit = factorise(train, 1.0 / (p[fold != f] * (k - 1) / k), form, seed=s.seed, **SOLVERS[loss])
            error = np.abs(fit.factors.at(test.users, test.items) - test.values) ** POWERS[loss]
            scores[j] += float((error / (p[fold == f] / k)).sum())
    return forms[int(scores.argmin())]


def errors_of(s: Setting, observed: Ratings, p: np.ndarray, form: FactorizationConfig, seed: int) -> list[float]:
    """MSE and MAE over all cells (equation 1) of the model fitted with weights 1/P."""
    fit = factorise(observed, 1.0 / p, form, seed=seed, **SOLVERS[form.loss])
    error = fit.factors.matrix() - s.truth
    return [float((error**2).mean()), float(np.abs(error).mean())]


def weightings(s: Setting, severity: float, size: int | None, trial: int) -> tuple[Ratings, dict[str, np.ndarray]]:
    """One draw's ratings, and the propensities of each method."""
    p, observed = s.draw(severity, trial)
    if size is None:
        return observed, {"MF-IPS": observed.at(p), "MF-Naive": np.full(len(observed), observed.density)}
    estimated = propensity.naive_bayes(observed, mcar_sample(s, size, trial))
    return observed, {"MF-IPS-NB": estimated.of(observed.values)}


def point(s: Setting, severity: float, size: int | None, trials: int, loss: str, *, redraw: bool) -> dict[str, Any]:
    """Errors of every trial; lambda is chosen on the first one, or with ``redraw`` on each, for each method."""
    chosen: dict[str, FactorizationConfig] = {}
    out: dict[str, Any] = {"mse": {}, "mae": {}, "penalty": {}}
    for trial in range(trials):
        observed, weighting = weightings(s, severity, size, trial)
        for name, at in weighting.items():
            if redraw or name not in chosen:
                chosen[name] = choose(s, observed, at, loss)
                out["penalty"].setdefault(name, []).append(chosen[name].penalty)
            for metric, value in zip(POWERS, errors_of(s, observed, at, chosen[name], trial), strict=True):
                out[metric].setdefault(name, []).append(value)
    return out


def cases(s: Setting) -> dict[str, tuple[float, int | None, int, str, bool]]:
    """Severity, size of the MCAR sample, trials, loss, and whether lambda is chosen on every draw, by name.

    What is asked of the one severity of the right half comes first.
    """
    one, trials = s.settings["alpha"], s.settings["figure6_trials"]
    found: dict[str, tuple[float, int | None, int, str, bool]] = {
        f"alpha {one:g}": (one, None, trials, "mse", False),
        "redrawn": (one, None, s.settings["redrawn_trials"], "mse", True),
    }
    for alpha in s.settings["mae_alphas"]:
        found[f"mae {alpha:g}"] = (alpha, None, s.settings["mae_trials"], "mae", False)
    for alpha in s.settings["alphas"]:
        found[f"alpha {alpha:g}"] = (alpha, None, trials, "mse", False)
    for n in s.settings["mcar_samples"]:
        found[f"sample {n}"] = (one, n, trials, "mse", False)
    return found


def fill(s: Setting, points: dict[str, Any], save: Callable[[], None]) -> None:
    """Make the points that are missing."""
    for key, (severity, size, trials, loss, redraw) in cases(s).items():
        if key not in points:
            points[key] = point(s, severity, size, trials, loss, redraw=redraw)
            print(f"figure6: {key} done", flush=True)
            save()


def summarise(s: Setting, points: dict[str, Any]) -> dict[str, Any]:
    """Means and 95 % bands of each curve."""
    alphas, sizes, mae_alphas = (s.settings[name] for name in ("alphas", "mcar_samples", "mae_alphas"))
    both = ("MF-IPS", "MF-Naive")

    def curves(keys: list[str], metric: str, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: t_band(np.array([points[key][metric][name] for key in keys]).T) for name in names}

    left = [f"alpha {a:g}" for a in alphas]
    return {
        **s.describe(), "alphas": alphas, "sizes": sizes, "mae_alphas": mae_alphas,
        "left": curves(left, "mse", both), "left_mae": curves(left, "mae", both),
        "right": curves([f"sample {n}" for n in sizes], "mse", ("MF-IPS-NB",))["MF-IPS-NB"],
        "mae": curves([f"mae {a:g}" for a in mae_alphas], "mae", both),
        "redrawn": curves(["redrawn"], "mse", both),
        "trials": s.settings["figure6_trials"], "mae_trials": s.settings["mae_trials"],
        "redrawn_trials": s.settings["redrawn_trials"], "alpha": s.settings["alpha"], "points": points,
    }  # fmt: skip


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
    for k, alpha in enumerate(result["mae_alphas"]):
        a, b = (result["mae"][name]["mean"][k] for name in ("MF-IPS", "MF-Naive"))
        if alpha < 1:
            checks[f"trained for and judged by MAE, alpha = {alpha:g}: MF-IPS {a:.4f} below MF-Naive {b:.4f}"] = a < b
    at = result["alphas"].index(result["alpha"])
    first = {
        n: result["points"][f"alpha {result['alpha']:g}"]["mse"][n][: result["redrawn_trials"]]
        for n in ("MF-IPS", "MF-Naive")
    }
    for name, values in first.items():
        ours, each = float(np.mean(values)), result["redrawn"][name]["mean"][0]
        text = f"{name}: lambda of every draw {each:.4f}, of the first draw alone {ours:.4f} on the same draws"
        checks[f"{text} (within 2 %)"] = abs(each / ours - 1) <= 0.02
    reference = naive["mean"][at]
    for k, size in enumerate(result["sizes"]):
        found = result["right"]["mean"][k]
        checks[f"{size} MCAR ratings: MF-IPS-NB {found:.4f} below MF-Naive {reference:.4f}"] = found < reference
    return checks
