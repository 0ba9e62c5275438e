"""Figure 6: what is learnt from selected ratings, with known propensities and with estimated ones.

"In all experiments" lambda is chosen "using the IPS estimator" (section 6.1). The part ``figure6_by_ips`` chooses
MF-Naive's so too; in ``figure6`` its held-out ratings are weighted alike, as those that it is fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from fits import CLOSE, FINAL, FitCount, Search, choose
from scipy import stats
from semi_synthetic import Setting, mcar_sample, t_band

from recsim_mnar.estimators import ratings as propensity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise

BOTH = ("MF-IPS", "MF-Naive")


class Case(NamedTuple):
    """One point of a curve.

    Attributes:
        alpha: severity of the selection.
        sample: size of the MCAR sample behind the propensities; None where they are known.
        trials: draws.
        loss: ``mse`` or ``mae``.
        redraw: lambda is chosen on each draw, not on the first alone.
        naive_by_ips: MF-Naive's lambda, too, is chosen by the IPS score with the known propensities.
    """

    alpha: float
    sample: int | None
    trials: int
    loss: str
    redraw: bool = False
    naive_by_ips: bool = False


class Method(NamedTuple):
    """One method on one draw.

    Attributes:
        fitted: (n,) propensities by which its fit weights the ratings.
        judged: (n,) propensities by which cross-validation weights held-out ratings.
    """

    fitted: np.ndarray
    judged: np.ndarray


def methods(s: Setting, case: Case, trial: int) -> tuple[Ratings, dict[str, Method]]:
    """One draw's ratings and the methods that learn from them."""
    p, observed = s.draw(case.alpha, trial)
    if case.sample is not None:
        estimated = propensity.naive_bayes(observed, mcar_sample(s, case.sample, trial)).of(observed.values)
        return observed, {"MF-IPS-NB": Method(estimated, estimated)}
    known, equal = observed.at(p), np.full(len(observed), observed.density)
    naive = Method(equal, known if case.naive_by_ips else equal)
    return observed, dict(zip(BOTH, (Method(known, known), naive), strict=True))


def chosen_on(s: Setting, case: Case, trial: int, fits: FitCount) -> dict[str, dict[str, Any]]:
    """What cross-validation chooses on one draw."""
    observed, found = methods(s, case, trial)
    search = Search(s.settings["rank"], tuple(s.settings["penalties"]), s.settings["folds"], s.seed)
    return {
        name: choose(search, observed, method.fitted, method.judged, case.loss, fits) for name, method in found.items()
    }


def point(s: Setting, case: Case) -> dict[str, Any]:
    """Errors of every trial over all cells (equation 1); lambda is chosen on the first, or with ``redraw`` on each."""
    found = begun(s, case)
    for trial in range(case.trials):
        add_draw(s, case, found, trial)
    return found


def begun(s: Setting, case: Case) -> dict[str, Any]:
    """A point with its lambdas and without draws."""
    choosing = FitCount()
    chosen = [chosen_on(s, case, trial, choosing) for trial in range(case.trials if case.redraw else 1)]
    empty: dict[str, Any] = {name: {} for name in ("mse", "mae", "gap", "mse_at_the_end", "range")}
    counts = {"fits": FitCount().to_dict(), "choosing": choosing.to_dict()}
    return {"case": list(case), **empty, "chosen": chosen, **counts}


def add_draw(s: Setting, case: Case, found: dict[str, Any], trial: int) -> None:
    """Fit one more draw.

    The first draw's fits are taken on to a hundredth of the tolerance: by how much the objective was above that is
    ``gap``. Its predictions reach over ``range``.
    """
    fits = FitCount()
    observed, weighting = methods(s, case, trial)
    for name, choice in found["chosen"][trial if case.redraw else 0].items():
        form = FactorizationConfig(rank=s.settings["rank"], penalty=choice["penalty"], loss=case.loss)
        weights = 1.0 / weighting[name].fitted
        fit = fits.add(factorise(observed, weights, form, seed=trial, **FINAL))
        predicted = fit.factors.matrix()
        error = predicted - s.truth
        found["mse"].setdefault(name, []).append(round(float((error**2).mean()), 6))
        found["mae"].setdefault(name, []).append(round(float(np.abs(error).mean()), 6))
        if trial == 0 and not case.redraw:
            end = factorise(observed, weights, form, start=fit.factors, **CLOSE)
            found["gap"][name] = fit.value / end.value - 1.0
            found["mse_at_the_end"][name] = float(((end.factors.matrix() - s.truth) ** 2).mean())
            found["range"][name] = [float(predicted.min()), float(predicted.max())]
    found["fits"] = FitCount.sum([found["fits"], fits.to_dict()]).to_dict()


def cases(s: Setting) -> dict[str, Case]:
    """All points by name; the alpha of the right half comes first."""
    one, trials = s.settings["alpha"], s.settings["figure6_trials"]
    few, right = s.settings["mae_trials"], s.settings["right_trials"]
    alphas = sorted(s.settings["alphas"], key=lambda a: (a != one, -a))
    found = {f"alpha {a:g}": Case(a, None, trials, "mse") for a in alphas}
    found |= {f"sample {n}": Case(one, n, right, "mse") for n in s.settings["mcar_samples"]}
    found["redrawn"] = Case(one, None, s.settings["redrawn_trials"], "mse", redraw=True)
    found |= {f"mae {a:g}": Case(a, None, few, "mae") for a in alphas}
    return found


def cases_by_ips(s: Setting) -> dict[str, Case]:
    """The points of the left half with every lambda by the IPS score."""
    found = {f"alpha {a:g}": Case(a, None, s.settings["mse_trials"], "mse") for a in s.settings["mse_alphas"]}
    found |= {f"mae {a:g}": Case(a, None, s.settings["mae_trials"], "mae") for a in s.settings["mae_alphas"]}
    return {key: case._replace(naive_by_ips=True) for key, case in found.items()}


def fill(s: Setting, wanted: dict[str, Case], points: dict[str, Any], save: Callable[[], None]) -> None:
    """Make the points that are missing, or of another case."""
    for key, case in wanted.items():
        if points.get(key, {}).get("case") != list(case):
            points[key] = point(s, case)
            print(f"{key} done", flush=True)
            save()


def paired(points: dict[str, Any], key: str, metric: str) -> dict[str, float]:
    """MF-IPS against MF-Naive: ratio of means, and the paired t-test over draws."""
    return tested(*(np.array(points[key][metric][name]) for name in BOTH))


def paired_right(points: dict[str, Any], alpha: float, sample: int) -> dict[str, float]:
    """MF-IPS-NB, its propensities from so many MCAR ratings, against MF-Naive on the same draws, likewise."""
    ours, naive = points[f"sample {sample}"]["mse"]["MF-IPS-NB"], points[f"alpha {alpha:g}"]["mse"]["MF-Naive"]
    draws = min(len(ours), len(naive))
    return tested(np.array(ours[:draws]), np.array(naive[:draws]))


def tested(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """How many times a's mean b's is, and the paired t-test over draws."""
    found = stats.ttest_rel(a, b)
    return {"ratio": float(b.mean() / a.mean()), "t": float(found.statistic), "p": float(found.pvalue)}


def ratio_band(points: dict[str, Any], key: str, metric: str) -> dict[str, float]:
    """95 % interval of MF-Naive's mean over MF-IPS', both on the same draws, to first order."""
    a, b = (np.array(points[key][metric][name]) for name in BOTH)
    ratio = float(b.mean() / a.mean())
    half = float(stats.t.ppf(0.975, len(a) - 1) * (b - ratio * a).std(ddof=1) / math.sqrt(len(a)) / a.mean())
    return {"low": ratio - half, "high": ratio + half}


def curves_of(points: dict[str, Any], keys: list[str], metric: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Means and 95 % bands of some methods at some points."""
    return {name: t_band(np.array([points[key][metric][name] for key in keys]).T) for name in names}


def counts_of(points: dict[str, Any]) -> dict[str, dict[str, int]]:
    """How many fits were made, and converged, at all points."""
    return {kind: FitCount.sum(p[kind] for p in points.values()).to_dict() for kind in ("fits", "choosing")}


def is_constant(choice: dict[str, Any]) -> bool:
    """True where no lambda scores below the constant model, so that the one chosen stands in for infinity."""
    return bool(choice["scores"][f"{choice['penalty']:g}"] >= choice["scores"]["infinity"])


def summarise_by_ips(s: Setting, points: dict[str, Any]) -> dict[str, Any]:
    """Errors by the loss that models are trained for, with paired tests and intervals of the ratio."""
    out: dict[str, Any] = {**s.describe(), "range": {key: p["range"] for key, p in points.items()}}
    for loss, name in (("mse", "alpha"), ("mae", "mae")):
        alphas = s.settings[f"{loss}_alphas"]
        if not alphas:
            continue
        keys = [f"{name} {alpha:g}" for alpha in alphas]
        tests = [paired(points, key, loss) | ratio_band(points, key, loss) for key in keys]
        curves = curves_of(points, keys, loss, BOTH)
        trials = s.settings[f"{loss}_trials"]
        out[loss] = {"alphas": alphas, "trials": trials, "keys": keys, "curves": curves, "paired": tests}
    return {**out, **counts_of(points), "points": points}


def check_by_ips(result: dict[str, Any]) -> dict[str, bool]:
    """What must hold of Figure 6 with every lambda by the IPS score."""
    checks: dict[str, bool] = {}
    for loss, text in (("mse", "MSE"), ("mae", "trained for and judged by MAE")):
        found = result.get(loss, {"alphas": [], "paired": []})
        for alpha, test in zip(found["alphas"], found["paired"], strict=True):
            claim = f"{text}, alpha = {alpha:g}: MF-Naive {test['ratio']:.3f} times MF-IPS, paired p = {test['p']:.1e}"
            checks[f"{claim} < .001"] = test["ratio"] > 1.0 and test["p"] < 0.001
    return checks | check_convergence(result)


def summarise(s: Setting, points: dict[str, Any]) -> dict[str, Any]:
    """Means and 95 % bands of each curve, paired tests, and how many fits converged."""
    alphas, sizes = s.settings["alphas"], s.settings["mcar_samples"]

    def curves(keys: list[str], metric: str, names: tuple[str, ...]) -> dict[str, Any]:
        return curves_of(points, keys, metric, names)

    left, absolute = [f"alpha {a:g}" for a in alphas], [f"mae {a:g}" for a in alphas]
    return {
        **s.describe(), "alphas": alphas, "sizes": sizes, "alpha": s.settings["alpha"],
        "left": curves(left, "mse", BOTH), "left_mae": curves(left, "mae", BOTH),
        "right": curves([f"sample {n}" for n in sizes], "mse", ("MF-IPS-NB",))["MF-IPS-NB"],
        "mae": curves(absolute, "mae", BOTH), "redrawn": curves(["redrawn"], "mse", BOTH),
        "paired": [paired(points, key, "mse") for key in left],
        "paired_mae": [paired(points, key, "mae") for key in absolute],
        "trials": s.settings["figure6_trials"], "mae_trials": s.settings["mae_trials"],
        "right_trials": s.settings["right_trials"],
        "redrawn_trials": s.settings["redrawn_trials"], **counts_of(points), "points": points,
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
    for name in BOTH:
        first = result["points"][f"alpha {result['alpha']:g}"]["mse"][name][: result["redrawn_trials"]]
        ours, each = float(np.mean(first)), result["redrawn"][name]["mean"][0]
        text = f"{name}: lambda of every draw {each:.4f}, of the first draw alone {ours:.4f} on the same draws"
        checks[f"{text} (within 2 %)"] = abs(each / ours - 1) <= 0.02
    for size in result["sizes"]:
        checks |= check_right(size, paired_right(result["points"], result["alpha"], size))
    return checks


def check_right(size: int, test: dict[str, float]) -> dict[str, bool]:
    """Whether MF-IPS-NB is proved better; below MF-Naive it is by chance, too, where nothing is selected."""
    claim = f"{size} MCAR ratings: MF-Naive {test['ratio']:.3f} times MF-IPS-NB, paired p = {test['p']:.1e}"
    return {f"{claim} < .001": test["ratio"] > 1.0 and test["p"] < 0.001}


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
