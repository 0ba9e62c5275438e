"""Table 1 and Figures 2 and 10: ML-100K completed, so that the truth is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from fits import FINAL, FitCount
from parts import student
from scipy import stats

from recsim_mnar import rng
from recsim_mnar.datasets.rating_studies import load_ml100k
from recsim_mnar.estimators import ratings as propensity
from recsim_mnar.estimators.ratings import Loss, estimate_ratings, loss, ranks
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.ratings import STARS, alpha_propensities, observe, rerank
from recsim_mnar.worlds.ratings.observation import complete

NAMES = ("REC_ONES", "REC_FOURS", "ROTATE", "SKEWED", "COARSENED")
ESTIMATORS = ("ips", "snips", "naive")
CURVES = ("mse", "dcg@50")


def ratings_of(path: Path | None, settings: dict[str, Any]) -> Ratings:
    """ML-100K; with ``shape`` in the settings its first users and items, or made-up ratings where there is no file."""
    if "shape" not in settings:
        assert path is not None  # run.py asked for it
        return load_ml100k(path)
    n_users, n_items = settings["shape"]
    if path is not None:
        full = load_ml100k(path)
        inside = (full.users < n_users) & (full.items < n_items)
        return Ratings(full.users[inside], full.items[inside], full.values[inside], n_users, n_items)
    taste = rng.normals(settings["seed"], Stream.USER, 0, (n_users, 3))
    items = rng.normals(settings["seed"], Stream.CATALOGUE, 0, (n_items, 3))
    truth = rerank(taste @ items.T, (0.1, 0.15, 0.25, 0.3, 0.2))
    return Ratings.from_dense(truth, observe(np.full(truth.shape, 0.2), settings["seed"]))


class Setting:
    """The completed matrix, the five predictions and their losses.

    Args:
        ratings: to complete.
        settings: section ``semi_synthetic`` of settings.toml, with the seed.
    """

    def __init__(self, ratings: Ratings, settings: dict[str, Any]) -> None:
        self.ratings, self.seed, self.settings = ratings, settings["seed"], settings
        # A slice says nothing about the best completion: one form is enough.
        few: dict[str, Any] = {"ranks": (5,), "penalties": (1e-3,)} if "shape" in settings else {}
        done = complete(ratings, seed=self.seed, **few)
        self.truth, self.form, self.accuracy = done.ratings, done.form, done.accuracy
        self.predictions = prediction_matrices(self.truth, self.seed)
        self.losses = losses(self.predictions, self.seed)

    def draw(self, alpha: float, trial: int) -> tuple[np.ndarray, Ratings]:
        """P, and the ratings that one draw of O reveals."""
        p = alpha_propensities(self.truth, alpha, self.settings["density"])
        return p, Ratings.from_dense(self.truth, observe(p, derive_seed(self.seed, f"O/{alpha:g}/{trial}")))

    def describe(self) -> dict[str, Any]:
        return {"completion": self.form.to_dict(), "accuracy": self.accuracy, "shape": list(self.truth.shape)}


def prediction_matrices(truth: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The five matrices of section 3.4."""
    flat = truth.ravel()
    n_fives = int((flat == 5).sum())
    u = rng.uniforms(seed, Stream.PROTOCOL, np.arange(flat.size), 9)

    def promoted(star: int) -> np.ndarray:
        cells = np.flatnonzero(flat == star)
        out = flat.copy()
        out[cells[np.argsort(u[cells], kind="stable")[:n_fives]]] = 5
        return out.reshape(truth.shape)

    noise = rng.normals(seed, Stream.PROTOCOL, 0, truth.shape)
    return {
        "REC_ONES": promoted(1),
        "REC_FOURS": promoted(4),
        "ROTATE": np.where(truth == 1, 5, truth - 1),
        "SKEWED": np.clip(truth + noise * (6 - truth) / 2, 0, 6),
        "COARSENED": np.where(truth <= 3, 3.0, 4.0),
    }


def losses(predictions: dict[str, np.ndarray], seed: int) -> dict[str, dict[str, Loss]]:
    out: dict[str, dict[str, Loss]] = {}
    for name, matrix in predictions.items():
        out[name] = {
            "mae": loss("mae", matrix),
            "mse": loss("mse", matrix),
            "dcg@50": loss("dcg@k", matrix, k=50, ranking=ranks(matrix, seed=seed)),
        }
    return out


def t_band(values: np.ndarray) -> dict[str, list[float]]:
    """Mean over trials (rows) and its 95 % t interval."""
    return {name: each.tolist() for name, each in zip(("mean", "low", "high"), student(values), strict=True)}


# ------------------------------------------------------------------------------------------------------------- table 1


def table1(s: Setting) -> dict[str, Any]:
    draws = s.settings["table1_draws"]
    found: dict[str, Any] = {name: {metric: [] for metric in ("mae", "dcg@50")} for name in NAMES}
    for trial in range(draws):
        p, observed = s.draw(s.settings["alpha"], trial)
        at = observed.at(p)
        for name in NAMES:
            for metric, rows in found[name].items():
                e = estimate_ratings(s.losses[name][metric], observed, at)
                rows.append([getattr(e, estimator) for estimator in ESTIMATORS])
    out: dict[str, Any] = {**s.describe(), "draws": draws, "rows": {}}
    p = alpha_propensities(s.truth, s.settings["alpha"], s.settings["density"])
    out["revealed_shares"] = [float(p[s.truth == r].sum() / p.sum()) for r in STARS]
    for name in NAMES:
        out["rows"][name] = {}
        for metric, rows in found[name].items():
            x = np.array(rows)
            row: dict[str, Any] = {"true": s.losses[name][metric].risk(s.truth)}
            for j, estimator in enumerate(ESTIMATORS):
                row[estimator] = [float(x[:, j].mean()), float(x[:, j].std(ddof=1))]
            out["rows"][name][metric] = row
    return out


def check_table1(result: dict[str, Any], published: dict[str, Any] | None) -> dict[str, bool]:
    """What must hold of Table 1; without ``published`` only what does not compare with the paper."""
    checks: dict[str, bool] = {}
    if published is not None:
        reported = published["revealed_shares"]
        text = " / ".join(f"{share:.2f}" for share in result["revealed_shares"])
        checks[f"shares of 1 to 5 among the revealed {text}, as printed"] = all(
            round(a, 2) == b for a, b in zip(result["revealed_shares"], reported, strict=True)
        )
    for name, metrics in result["rows"].items():
        mae = metrics["mae"]
        for estimator in ("ips", "snips"):
            mean, sd = mae[estimator]
            error = abs(mean - mae["true"]) / (sd / math.sqrt(result["draws"]))
            checks[f"{name}: {estimator} MAE {error:.1f} standard errors from the truth (<= 3.5)"] = error <= 3.5
        if published is not None:
            checks |= _beside_published(name, metrics, published[name])
    return checks


def _beside_published(name: str, metrics: dict[str, Any], published: dict[str, Any]) -> dict[str, bool]:
    checks: dict[str, bool] = {}
    mae, reported = metrics["mae"], published["mae"]
    for text, gap, bar in (
        ("MAE true", mae["true"] - reported["true"], 0.0006 if name != "SKEWED" else 0.003),
        ("Naive MAE", mae["naive"][0] - reported["naive"][0], 0.006),
    ):
        checks[f"{name}: {text} {gap:+.4f} from the published (<= {bar})"] = abs(gap) <= bar
    for estimator in ("ips", "snips"):
        if reported[estimator][1] >= 0.005:
            ratio = mae[estimator][1] / reported[estimator][1]
            checks[f"{name}: {estimator} MAE sd {ratio:.2f} times the published (.5 to 2)"] = 0.5 <= ratio <= 2
    dcg, reported = metrics["dcg@50"], published["dcg@50"]
    for key in ("true", "ips", "snips"):
        ours, theirs = (x["true"] if key == "true" else x[key][0] for x in (dcg, reported))
        checks[f"{name}: DCG@50 {key} {ours / theirs - 1:+.1%} from the published (<= 8 %)"] = (
            abs(ours / theirs - 1) <= 0.08
        )
    return checks


def completions(s: Setting, fits: FitCount) -> list[dict[str, Any]]:
    """True and expected Naive DCG@50 under other completions of the same ratings.

    The Naive DCG is decided by the few users with hardly a rating 1 in their row, so by how Y was completed: the
    definition is the same in every row.
    """
    out = [_dcg_of("as in the rest of this table", s.form, s.truth, s)]
    for biases, rank, penalty in s.settings["completions"]:
        form = FactorizationConfig(rank=rank, penalty=penalty, biases=biases)
        fit = fits.add(factorise(s.ratings, None, form, seed=s.seed, **FINAL))
        offsets = {"none": "no offsets", "free": "free offsets", "regularised": "regularised offsets"}[biases]
        out.append(_dcg_of(f"{offsets}, d={rank}, lambda={penalty:g}", form, rerank(fit.factors.matrix()), s))
    return out


def shares(s: Setting) -> dict[str, list[float]]:
    """Shares of the ratings 1 to 5, and the mean: as rated, of all cells as completed, and re-ranked."""
    fit = factorise(s.ratings, None, s.form, seed=s.seed, **FINAL)
    matrices = {
        "as rated": s.ratings.values, "all cells, completed": np.clip(np.rint(fit.factors.matrix()), 1, 5),
        "all cells, re-ranked": s.truth,
    }  # fmt: skip
    return {name: [*(float((m == r).mean()) for r in STARS), float(m.mean())] for name, m in matrices.items()}


def _dcg_of(text: str, form: FactorizationConfig, truth: np.ndarray, s: Setting) -> dict[str, Any]:
    p = alpha_propensities(truth, s.settings["alpha"], s.settings["density"])
    row: dict[str, Any] = {"completion": text, "form": form.to_dict(), "dcg@50": {}}
    row["users_with_under_50_ones"] = int(((truth == 1).sum(axis=1) < 50).sum())
    for name, matrix in prediction_matrices(truth, s.seed).items():
        delta = loss("dcg@k", matrix, k=50, seed=s.seed).everywhere(truth)
        # Naive is the mean of delta over the observed; its expectation, to first order in 1/n.
        row["dcg@50"][name] = {"true": float(delta.mean()), "naive": float((delta * p).sum() / p.sum())}
    return row


# ---------------------------------------------------------------------------------------------------- figures 2 and 10


def mcar_sample(s: Setting, size: int, trial: int) -> np.ndarray:
    """Ratings of ``size`` cells drawn uniformly; smaller samples are the beginnings of larger ones."""
    flat = s.truth.ravel()
    u = rng.uniforms(derive_seed(s.seed, f"MCAR/{trial}"), Stream.PROTOCOL, 0, np.arange(size))
    return flat[(u * flat.size).astype(np.int64)]


def jackknife(found: np.ndarray, without: np.ndarray) -> dict[str, list[float]]:
    """Values (cases,) with 95 % bands, from those without one trial each (cases, trials)."""
    n = without.shape[1]
    spread = np.sqrt((n - 1) / n * ((without - without.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    half = stats.t.ppf(0.975, n - 1) * spread
    return {"mean": found.tolist(), "low": (found - half).tolist(), "high": (found + half).tolist()}


def rmse_band(errors: np.ndarray) -> dict[str, list[float]]:
    """RMSE over trials, averaged over matrices, with a 95 % band from leaving out one trial at a time (jackknife).

    Args:
        errors: (cases, trials, matrices).
    """
    n = errors.shape[1]
    squares = errors**2
    total = squares.sum(axis=1, keepdims=True)
    found = np.sqrt(total[:, 0] / n).mean(axis=1)
    without = np.sqrt(np.maximum(total - squares, 0.0) / (n - 1)).mean(axis=2)
    return jackknife(found, without)


def ratio_band(above: np.ndarray, below: np.ndarray) -> dict[str, list[float]]:
    """Ratio of two estimators' RMSEs on the same draws, averaged over matrices first, with the jackknife's 95 % band.

    Args:
        above: (cases, trials, matrices) errors.
        below: likewise.
    """
    n = above.shape[1]

    def rmse(squares: np.ndarray, without: bool) -> np.ndarray:
        total = squares.sum(axis=1, keepdims=True)
        left = np.maximum(total - squares, 0.0) / (n - 1) if without else total / n
        return np.asarray(np.sqrt(left).mean(axis=2))

    found = (rmse(above**2, False) / rmse(below**2, False))[:, 0]
    each = rmse(above**2, True) / rmse(below**2, True)
    return jackknife(found, each)


def errors(s: Setting, trials: int, cases: list[tuple[float, int | None]]) -> dict[str, Any]:
    """Errors of the estimators in each case: (alpha, size of the MCAR sample or None for known propensities)."""
    true = {name: {m: s.losses[name][m].risk(s.truth) for m in CURVES} for name in NAMES}
    x = np.empty((len(CURVES), len(ESTIMATORS), len(cases), trials, len(NAMES)))
    for c, (alpha, sample) in enumerate(cases):
        for trial in range(trials):
            p, observed = s.draw(alpha, trial)
            at = observed.at(p)
            if sample is not None:
                at = propensity.naive_bayes(observed, mcar_sample(s, sample, trial)).of(observed.values)
            for i, name in enumerate(NAMES):
                for j, metric in enumerate(CURVES):
                    e = estimate_ratings(s.losses[name][metric], observed, at)
                    x[j, :, c, trial, i] = [getattr(e, k) - true[name][metric] for k in ESTIMATORS]
    out: dict[str, Any] = {**s.describe(), "trials": trials, "matrices": list(NAMES)}
    for j, metric in enumerate(CURVES):
        for k, estimator in enumerate(ESTIMATORS):
            by_matrix = np.sqrt((x[j, k] ** 2).mean(axis=1))
            out[f"{metric}/{estimator}"] = {"rmse": rmse_band(x[j, k]), "by_matrix": by_matrix.tolist()}
        out[f"{metric}/snips to ips"] = ratio_band(x[j, 1], x[j, 0])
    return out


def figure2(s: Setting) -> dict[str, Any]:
    alphas = s.settings["alphas"]
    return {"alphas": alphas, **errors(s, s.settings["figure2_trials"], [(a, None) for a in alphas])}


def figure10(s: Setting) -> dict[str, Any]:
    """The last case is that of known propensities."""
    sizes, alpha = s.settings["mcar_samples"], s.settings["alpha"]
    cases: list[tuple[float, int | None]] = [(alpha, n) for n in sizes]
    return {"sizes": sizes, **errors(s, s.settings["figure10_trials"], [*cases, (alpha, None)])}


def check_figure2(r: dict[str, Any]) -> dict[str, bool]:
    alphas = r["alphas"]
    one, quarter = alphas.index(1.0), alphas.index(0.25)
    gap = max(
        abs(a - b) / b for m in CURVES
        for a, b in zip(r[f"{m}/snips"]["by_matrix"][one], r[f"{m}/naive"]["by_matrix"][one], strict=True)
    )  # fmt: skip
    checks = {f"alpha = 1: SNIPS is Naive to rounding (largest relative gap of RMSEs {gap:.1e})": gap < 1e-9}
    naive = np.array(r["mse/naive"]["by_matrix"][quarter])
    for estimator in ("ips", "snips"):
        gain = naive / np.array(r[f"mse/{estimator}"]["by_matrix"][quarter])
        average = r["mse/naive"]["rmse"]["mean"][quarter] / r[f"mse/{estimator}"]["rmse"]["mean"][quarter]
        for name, ratio in zip(r["matrices"], gain, strict=True):
            checks[f"alpha = .25, MSE, {name}: Naive's RMSE {ratio:.0f} times {estimator}'s (>= 10)"] = ratio >= 10
        checks[f"alpha = .25, MSE, average: Naive's RMSE {average:.0f} times {estimator}'s (>= 30)"] = average >= 30
    for k, alpha in enumerate(alphas):
        band = r["dcg@50/snips to ips"]
        mean, low, high = (band[name][k] for name in ("mean", "low", "high"))
        text = f"alpha = {alpha:g}: SNIPS's RMSE of DCG is {mean:.2f} [{low:.2f}, {high:.2f}] times IPS's, tied"
        checks[text] = low <= 1 <= high
        if alpha < 1:
            checks[f"alpha = {alpha:g}: SNIPS's RMSE of MSE below IPS's"] = r["mse/snips to ips"]["high"][k] < 1
            for metric in CURVES:
                found = {e: r[f"{metric}/{e}"]["rmse"]["mean"][k] for e in ESTIMATORS}
                ok = max(found["ips"], found["snips"]) < found["naive"]
                checks[f"alpha = {alpha:g}: IPS and SNIPS below Naive for {metric}"] = ok
    return checks


def check_figure10(r: dict[str, Any]) -> dict[str, bool]:
    checks = {}
    for metric in CURVES:
        for k, size in enumerate(r["sizes"]):
            found = {e: r[f"{metric}/{e}"]["rmse"]["mean"][k] for e in ESTIMATORS}
            ok = max(found["ips"], found["snips"]) <= found["naive"]
            checks[f"{size} MCAR ratings: IPS and SNIPS not worse than Naive for {metric}"] = ok
    found = r["mse/ips"]["rmse"]["mean"]
    text = (
        f"IPS-NB with {r['sizes'][-1]} MCAR ratings {found[-2]:.4f} below IPS with known propensities {found[-1]:.4f}"
    )
    checks[f"estimated propensities can beat the known ones (MSE): {text}"] = found[-2] < found[-1]
    return checks
