"""Figure 6: what is learnt from selected ratings, with known propensities and with estimated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from fits import CLOSE, FINAL, FitCount, Search, choose
from scipy import stats
from semi_synthetic import Setting, mcar_sample, t_band

from recsim_mnar.estimators import propensities as propensity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise


class Case(NamedTuple):
    """One point of a curve.

    Attributes:
        alpha: severity of the selection.
        sample: size of the MCAR sample behind the propensities; None where they are known.
        trials: draws.
        loss: ``mse`` or ``mae``.
        redraw: lambda is chosen on each draw, not on the first alone.
        naive_by_ips: MF-Naive alone, its lambda chosen by the IPS score with the known propensities.
    """

    alpha: float
    sample: int | None
    trials: int
    loss: str
    redraw: bool = False
    naive_by_ips: bool = False


def weightings(s: Setting, case: Case, trial: int) -> tuple[Ratings, dict[str, np.ndarray], np.ndarray]:
    """One draw's ratings, the propensities that each method weights by, and the true ones."""
    p, observed = s.draw(case.alpha, trial)
    known, equal = observed.at(p), np.full(len(observed), observed.density)
    if case.naive_by_ips:
        return observed, {"MF-Naive": equal}, known
    if case.sample is None:
        return observed, {"MF-IPS": known, "MF-Naive": equal}, known
    estimated = propensity.naive_bayes(observed, mcar_sample(s, case.sample, trial))
    return observed, {"MF-IPS-NB": estimated.of(observed.values)}, known


def chosen_on(s: Setting, case: Case, trial: int, fits: FitCount) -> dict[str, dict[str, Any]]:
    """What cross-validation chooses on one draw, by the score under each method's own propensities."""
    observed, weighting, known = weightings(s, case, trial)
    search = Search(s.settings["rank"], tuple(s.settings["penalties"]), s.settings["folds"], s.seed)
    return {
        name: choose(search, observed, p, known if case.naive_by_ips else p, case.loss, fits)
        for name, p in weighting.items()
    }


def point(s: Setting, case: Case) -> dict[str, Any]:
    """Errors of every trial over all cells (equation 1).

    Lambda is chosen on the first draw, or with ``redraw`` on each. The first draw's fits are taken on to a hundredth of
    the tolerance: by how much the objective was above that is ``gap``.
    """
    choosing, fits = FitCount(), FitCount()
    chosen = [chosen_on(s, case, trial, choosing) for trial in range(case.trials if case.redraw else 1)]
    out: dict[str, Any] = {"mse": {}, "mae": {}, "chosen": chosen, "gap": {}, "mse_at_the_end": {}}
    for trial in range(case.trials):
        observed, weighting, _ = weightings(s, case, trial)
        for name, choice in chosen[trial if case.redraw else 0].items():
            form = FactorizationConfig(rank=s.settings["rank"], penalty=choice["penalty"], loss=case.loss)
            weights = 1.0 / weighting[name]
            fit = fits.add(factorise(observed, weights, form, seed=trial, **FINAL))
            error = fit.factors.matrix() - s.truth
            out["mse"].setdefault(name, []).append(round(float((error**2).mean()), 6))
            out["mae"].setdefault(name, []).append(round(float(np.abs(error).mean()), 6))
            if trial == 0 and not case.redraw:
                end = factorise(observed, weights, form, start=fit.factors, **CLOSE)
                out["gap"][name] = fit.value / end.value - 1.0
                out["mse_at_the_end"][name] = float(((end.factors.matrix() - s.truth) ** 2).mean())
    return {"case": list(case), **out, "fits": fits.to_dict(), "choosing": choosing.to_dict()}


def cases(s: Setting) -> dict[str, Case]:
    """All points by name; the alpha of the right half comes first."""
    one, trials = s.settings["alpha"], s.settings["figure6_trials"]
    few, right = s.settings["mae_trials"], s.settings["right_trials"]
    alphas = sorted(s.settings["alphas"], key=lambda a: (a != one, -a))
    found = {f"alpha {a:g}": Case(a, None, trials, "mse") for a in alphas}
    found |= {f"sample {n}": Case(one, n, right, "mse") for n in s.settings["mcar_samples"]}
    found["redrawn"] = Case(one, None, s.settings["redrawn_trials"], "mse", redraw=True)
    found["by the IPS score"] = Case(one, None, few, "mse", naive_by_ips=True)
    found |= {f"mae {a:g}": Case(a, None, few, "mae") for a in alphas}
    return found


def fill(s: Setting, points: dict[str, Any], save: Callable[[], None]) -> None:
    """Make the points that are missing, or of another case."""
    for key, case in cases(s).items():
        if points.get(key, {}).get("case") != list(case):
            points[key] = point(s, case)
            print(f"figure6: {key} done", flush=True)
            save()


def paired(points: dict[str, Any], key: str, metric: str, other: str = "MF-Naive") -> dict[str, float]:
    """MF-IPS against another method: ratio of means, and the paired t-test over draws."""
    a, b = (np.array(points[key][metric][name]) for name in ("MF-IPS", other))
    found = stats.ttest_rel(a, b)
    return {"ratio": float(b.mean() / a.mean()), "t": float(found.statistic), "p": float(found.pvalue)}


def summarise(s: Setting, points: dict[str, Any]) -> dict[str, Any]:
    """Means and 95 % bands of each curve, paired tests, and how many fits converged."""
    alphas, sizes = s.settings["alphas"], s.settings["mcar_samples"]
    both = ("MF-IPS", "MF-Naive")

    def curves(keys: list[str], metric: str, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: t_band(np.array([points[key][metric][name] for key in keys]).T) for name in names}

    left, absolute = [f"alpha {a:g}" for a in alphas], [f"mae {a:g}" for a in alphas]
    return {
        **s.describe(), "alphas": alphas, "sizes": sizes, "alpha": s.settings["alpha"],
        "left": curves(left, "mse", both), "left_mae": curves(left, "mae", both),
        "right": curves([f"sample {n}" for n in sizes], "mse", ("MF-IPS-NB",))["MF-IPS-NB"],
        "mae": curves(absolute, "mae", both), "redrawn": curves(["redrawn"], "mse", both),
        "by_ips_score": curves(["by the IPS score"], "mse", ("MF-Naive",)),
        "paired": [paired(points, key, "mse") for key in left],
        "paired_mae": [paired(points, key, "mae") for key in absolute],
        "trials": s.settings["figure6_trials"], "mae_trials": s.settings["mae_trials"],
        "right_trials": s.settings["right_trials"],
        "redrawn_trials": s.settings["redrawn_trials"],
        "fits": FitCount.sum(p["fits"] for p in points.values()).to_dict(),
        "choosing": FitCount.sum(p["choosing"] for p in points.values()).to_dict(), "points": points,
    }  # fmt: skip


def check(result: dict[str, Any]) -> dict[str, bool]:
    """What must hold of Figure 6."""
    checks: dict[str, bool] = {}
    for which, text in (("paired", "MSE"), ("paired_mae", "trained for and judged by MAE")):
        curves = result["left" if which == "paired" else "mae"]
        for k, alpha in enumerate(result["alphas"]):
            if alpha < 1:
                a, b, test = curves["MF-IPS"]["mean"][k], curves["MF-Naive"]["mean"][k], result[which][k]
                claim = f"{text}, alpha = {alpha:g}: MF-IPS {a:.4f} below MF-Naive {b:.4f}, paired p = {test['p']:.1e}"
                checks[f"{claim} < .001"] = a < b and test["p"] < 0.001
    checks |= check_convergence(result)
    for name in ("MF-IPS", "MF-Naive"):
        first = result["points"][f"alpha {result['alpha']:g}"]["mse"][name][: result["redrawn_trials"]]
        ours, each = float(np.mean(first)), result["redrawn"][name]["mean"][0]
        text = f"{name}: lambda of every draw {each:.4f}, of the first draw alone {ours:.4f} on the same draws"
        checks[f"{text} (within 2 %)"] = abs(each / ours - 1) <= 0.02
    reference = result["left"]["MF-Naive"]["mean"][result["alphas"].index(result["alpha"])]
    for k, size in enumerate(result["sizes"]):
        found = result["right"]["mean"][k]
        checks[f"{size} MCAR ratings: MF-IPS-NB {found:.4f} below MF-Naive {reference:.4f}"] = found < reference
    return checks


def check_convergence(result: dict[str, Any]) -> dict[str, bool]:
    """Fits that ended, how near to their minimum, and whether a chosen lambda is at its grid's edge."""
    points = result["points"].values()
    fits, choosing = result["fits"], result["choosing"]
    gap = max(g for p in points for g in p["gap"].values())
    edge = sum(not c["inside"] for p in points for each in p["chosen"] for c in each.values())
    return {
        f"{fits['converged']} of {fits['made']} final fits converged": fits["converged"] == fits["made"],
        f"{choosing['converged']} of {choosing['made']} fits of cross-validation converged": (
            choosing["converged"] == choosing["made"]
        ),
        f"largest objective above its converged value: {gap:.1e} of it (<= 1e-2)": gap <= 1e-2,
        f"{edge} chosen lambdas without a minimum inside (no lambda scores below the constant model)": edge == 0,
    }
