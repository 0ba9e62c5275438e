"""The study on real logs: Tables 3 to 6, Figures 2 and 3. What was caused is estimated here, and known to nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from learn import METHODS, OF_THE_PAPER, Data, Search, fit, kept
from semi import SOURCES, log_of

from recsim_mnar import rng
from recsim_mnar.datasets.purchase_history import PurchaseHistory
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import EMPTY, evaluate_lists, halves, top_items
from recsim_mnar.log.exposure_index import CLASSES
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.files import write_json
from recsim_mnar.propensities.exposure import recent, shares
from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld

LOGS = ("dunnhumby", "tafeng")
CURVES = ("rmf", "bpr", "ulrmf", "ulbpr")
METRICS = ("uplift", "uplift_snips", "uplift_ips", "precision")
ALL = "uplift_snips_zero"  # UpliftSNIPS where a user without an estimate counts 0 instead of being left out
TAKEN = tuple(f"{metric}_{empty}" for metric in METRICS[:2] for empty in EMPTY[1:])
OTHER = "uplift_snips_user"  # UpliftSNIPS under the other reading of the paper's propensities
CLIP = 1e-3  # smallest propensity divided by
NEAR = 0.95  # of its best: where a learning curve is taken to have converged


@dataclass(frozen=True)
class RealLog:
    """A log of purchases and recommendations.

    Attributes:
        name: ``dunnhumby`` or ``tafeng``.
        exposures: without propensities.
        present: (U, P) who was there.
        items: (I,) names.
        n_test: periods of each evaluation.
    """

    name: str
    exposures: Exposures
    present: Any
    items: Any
    n_test: int


class Window:
    """The periods of an evaluation, laid out by (user, period) of those present, so that many lists are judged quickly.

    Args:
        log: the log.
        periods: evaluated.
        propensity_of: (users, items, periods) -> P(recommended).
        other: the same under another reading, shown beside it.
    """

    def __init__(self, log: RealLog, periods: Any, propensity_of: Any, other: Any = None) -> None:
        x = log.exposures
        self.periods = np.asarray(periods)
        self.user, at = np.nonzero(log.present[:, self.periods])
        self.period = self.periods[at]
        self._row = np.full((x.n_users, x.n_periods), -1)
        self._row[self.user, self.period] = np.arange(len(self.user))
        self.shown, self.bought = np.zeros((2, len(self.user), x.n_items), bool)
        self.e = np.zeros((len(self.user), x.n_items), np.float32)
        self.other = None if other is None else np.zeros_like(self.e)
        items = np.arange(x.n_items)
        for t in self.periods:
            rows = np.flatnonzero(self.period == t)
            shown, bought = x.dense(int(t))
            self.shown[rows], self.bought[rows] = shown[self.user[rows]], bought[self.user[rows]]
            cells = np.broadcast_arrays(self.user[rows][:, None], items, t)
            self.e[rows] = propensity_of(*cells)
            if self.other is not None:
                self.other[rows] = other(*cells)
        self.present = log.present
        kept = x.between(int(self.periods[0]), int(self.periods[-1]) + 1)
        self.exposures = kept.with_propensities(self._propensity)

    def _propensity(self, users: Any, items: Any, periods: Any) -> Any:
        return self.e[self._row[users, periods], items].astype(np.float64)

    def uplift(self, scores: Any, n: int, empty: str = "leave_out") -> float:
        """Uplift@n as evaluate_lists has it, ties broken as they fall; 0 where no user has an estimate."""
        top = np.argpartition(-scores, n - 1, axis=1)[:, :n]
        return self._mean_of_halves(top, None, empty)

    def _mean_of_halves(self, lists: Any, e: Any, empty: str) -> float:
        own = lists[self.user]
        z, y = (np.take_along_axis(table, own, axis=1) for table in (self.shown, self.bought))
        weight = np.ones(own.shape)
        if e is not None:
            p = np.take_along_axis(e, own, axis=1).astype(np.float64)
            weight = 1.0 / np.maximum(np.where(z, p, 1.0 - p), CLIP)
        told = halves(z, y, weight, empty)
        there = ~np.isnan(told)
        if not there.any():
            return 0.0
        return float(np.mean([told[there & (self.period == t)].mean() for t in np.unique(self.period[there])]))

    def estimates(self, lists: Any) -> dict[str, Any]:
        """Every metric of (U, N) lists with its interval by user, and the share of user-periods without an estimate.

        A period in which nobody has an Uplift@N is left out of the two that need one, and counted.
        """
        own = np.take_along_axis(self.shown, lists[self.user], axis=1)
        there = own.any(axis=1) & ~own.all(axis=1)
        some = [t for t in self.periods if there[self.period == t].any()]
        out = {}
        for metrics, periods in ((METRICS[:2], some), (METRICS[2:], self.periods)):
            told = evaluate_lists(
                self.exposures, lists, metrics=metrics, periods=periods, present=self.present, clip=CLIP
            )
            out |= {name: [float(x) for x in (e.value, e.low, e.high)] for name, e in told.items()}
        missing = {"left_out": float(1.0 - there.mean()), "periods_without": len(self.periods) - len(some)}
        e = {METRICS[0]: None, METRICS[1]: self.e}
        taken = {f"{m}_{empty}": self._mean_of_halves(lists, e[m], empty) for m in METRICS[:2] for empty in EMPTY[1:]}
        if self.other is not None:
            taken[OTHER] = self._mean_of_halves(lists, self.other, "leave_out")
        return {**out, **missing, **taken}

    def calibration(self, items: Any, table: Any = None) -> list[float]:
        """Means of Z/e and (1 - Z)/(1 - e) over some items: 1 where the propensities are right."""
        table = self.e if table is None else table
        z, e = self.shown[:, items], np.clip(table[:, items].astype(np.float64), CLIP, 1.0 - CLIP)
        return [float((z / e).mean()), float((~z / (1.0 - e)).mean())]

    def deciles(self, table: Any = None) -> list[list[float]]:
        """By decile of e: its mean, the share recommended, and the mean of Z/e."""
        e, z = (self.e if table is None else table).ravel(), self.shown.ravel()
        parts = np.array_split(np.argsort(e, kind="stable"), 10)
        return [
            [float(x.mean()) for x in (e[p], z[p], z[p] / np.maximum(e[p].astype(np.float64), CLIP))] for p in parts
        ]

    def classes(self, lists: Any) -> list[float]:
        """Share of each observed class among the listed items of those present (Table 5)."""
        own = lists[self.user]
        z, y = (np.take_along_axis(flags, own, axis=1) for flags in (self.shown, self.bought))
        return [float(x.mean()) for x in (z & y, z & ~y, ~z & y, ~z & ~y)]


def phases(n_periods: int, n_test: int) -> dict[str, tuple[Any, Any]]:
    """Training and evaluation periods of validation and test (section 5.1), from 0.

    Raises:
        UserError: too few periods.
    """
    if n_periods <= 2 * n_test + 1:
        raise UserError(f"{n_periods} periods are too few for two evaluations of {n_test}")
    return {
        "validation": (np.arange(n_periods - 2 * n_test), np.arange(n_periods - 2 * n_test, n_periods - n_test)),
        "test": (np.arange(n_test, n_periods - n_test), np.arange(n_periods - n_test, n_periods)),
    }


def phase(log: RealLog, which: str) -> tuple[Data, Window]:
    """What is learnt from, with propensities of the training periods, and what is judged by."""
    x = log.exposures
    train, judged = phases(x.n_periods, log.n_test)[which]
    if log.name == "dunnhumby":
        of, other = (recent(x, train, by=by, present=log.present) for by in ("item", "user"))
        return Data(x.with_propensities(of), train), Window(log, judged, of, other)
    table = shares(x, train, present=log.present)
    return Data(x.with_propensities(table), train), Window(log, judged, lambda u, i, t: table[0, i, 0])


# ------------------------------------------------------------------------------------------------------------ the logs


def history_of(name: str, files: dict[str, Path | None], **options: Any) -> PurchaseHistory:
    """A log after the paper's filters.

    Raises:
        UserError: its data is not given.
    """
    path = files[name]
    if path is None:
        raise UserError(f"{name} needs --{name}: {SOURCES[name]}")
    if name == "dunnhumby":
        from recsim_mnar.datasets.dunnhumby import load_dunnhumby

        return load_dunnhumby(path, **options)
    from recsim_mnar.datasets.tafeng import load_tafeng

    return load_tafeng(path, **options)


def log_from(history: PurchaseHistory, name: str, n_test: int) -> RealLog:
    return RealLog(name, history.exposures(), history.present, np.asarray(history.items).astype(str), n_test)


def made_up(name: str, n_test: int, *, n_users: int = 80, n_items: int = 60, n_periods: int = 12) -> RealLog:
    """A log of a synthetic world, for --quick and the tests."""
    params = PurchasesParams(n_items=n_items, n_periods=n_periods, slate_size=15, base=-2.5, effect=0.75)
    exposures = log_of(PurchasesWorld(params), n_users, n_periods, 7).with_propensities(None)
    present = np.zeros((n_users, n_periods), bool)
    present[exposures.user, exposures.time] = True
    return RealLog(name, exposures, present, np.arange(n_items).astype(str), n_test)


def statistics(files: dict[str, Path | None], quick: bool) -> dict[str, Any]:
    """Table 3: sizes of the logs that are given."""
    found = {}
    for name in LOGS:
        if files[name] is not None:
            history = history_of(name, files)
            found[name] = {"sizes": history.statistics(), "notes": list(history.notes)}
    if not found and not quick:
        history_of(LOGS[0], files)  # says what is missing
    return {"logs": found} if found else {}


# ----------------------------------------------------------------------------------------------------------- the study


def study(name: str, files: dict[str, Path | None], settings: dict[str, Any], out: Path, *, quick: bool) -> Any:
    """Validation, then test, of one log."""
    n_test = settings["real"]["test_periods"][name]
    log = made_up(name, n_test) if quick else log_from(history_of(name, files), name, n_test)
    x = log.exposures
    settings = {**settings, "again": settings["real"]["again"]}
    if not quick:
        settings["stages"] = settings["real"]["stages"]
        settings["own"] = {m: {**own, **settings["real"]["own"].get(m, {})} for m, own in settings["own"].items()}
    own = {key: settings[key] for key in ("seed", "training")}
    identity = {"log": name, "users": x.n_users, "items": x.n_items, "periods": x.n_periods, "rows": len(x), **own}
    result = validation(log, settings, out, identity)
    picks = {**result["chosen"], **result["chosen_otherwise"]}
    result |= test(log, settings, out, identity, picks)
    return {"settings": settings, **result, "checks": checks(result)}


def validation(log: RealLog, settings: dict[str, Any], out: Path, identity: Any) -> dict[str, Any]:
    """Choose on the validation periods, and write it before the test periods are looked at; Figures 2 (a) and 3."""
    data, window = phase(log, "validation")
    n = settings["real"]["lengths"][0]
    search = Search(data, lambda s: window.uplift(s, n), settings, out / f"{log.name}.search.json", identity)
    chosen = {}
    for method in METHODS:
        chosen[method] = search.choose(method)
        print(f"{log.name}: {method} chosen, {chosen[method]['settings']}, {chosen[method]['score']:.4f}", flush=True)
    write_json(out / f"{log.name}.chosen.json", {"identity": identity, "chosen": chosen})
    alphas = {}
    for method in ("ulrmf", "ulbpr"):
        values = sorted(settings["own"][method]["alpha"])
        pick = chosen[method]["settings"]
        alphas[method] = [[a, search.score(method, {**pick, "alpha": a})] for a in values]
    otherwise = {}
    for empty in settings["real"]["chosen_by"]:
        path = out / f"{log.name}.{empty}.search.json"

        def judge(scores: Any, empty: str = empty) -> float:
            return window.uplift(scores, n, empty)

        other = Search(data, judge, settings, path, {"of": identity, "empty": empty})
        for method in settings["real"]["chosen_methods"]:
            otherwise[f"{method}, by {empty}"] = {**other.choose(method), "method": method}
            print(f"{log.name}: {method} chosen by {empty}", flush=True)
    return {
        "chosen": chosen,
        "chosen_otherwise": otherwise,
        "alphas": alphas,
        "curves": curves(log, settings, out, identity, chosen, (data, window)),
    }


def curves(
    log: RealLog, settings: dict[str, Any], out: Path, identity: Any, chosen: dict[str, Any], on: tuple[Data, Window]
) -> dict[str, Any]:
    """Figure 2 (a): the metric against updates, with the settings that were chosen, on the validation periods."""
    n, training = settings["real"]["lengths"][0], settings["training"]

    def one(method: str) -> Any:
        picked = chosen[method]["settings"]
        never = {**training, "patience": None, "checks": 2 * training["checks"]}
        return fit(
            method, picked, on[0], never, seed=settings["seed"], factors=training["search_factors"],
            updates=training["updates"] // 2, validate=lambda s: on[1].uplift(s, n),
        ).curve  # fmt: skip

    return kept(out / f"{log.name}.curves.json", [identity, chosen], CURVES, one)


def converged(curve: list[Any]) -> int:
    """Updates after which the running mean of three looks first comes to NEAR of its highest value."""
    values = np.array([value for _, value in curve])
    smooth = np.convolve(values, np.ones(3) / 3, "valid") if len(values) >= 3 else values
    first = int(np.argmax(smooth >= NEAR * smooth.max()))
    return int(curve[min(first + (1 if len(values) >= 3 else 0), len(curve) - 1)][0])


def test(log: RealLog, settings: dict[str, Any], out: Path, identity: Any, chosen: dict[str, Any]) -> dict[str, Any]:
    """Tables 4 to 6: fitted anew on the periods before the test, several trainings, intervals by user of the first."""
    lengths, seeds = settings["real"]["lengths"], settings["real"]["seeds"]
    data, window = phase(log, "test")
    popularity = data.popularity()
    began = time.process_time()

    def scores_of(method: str, seed: int) -> Any:
        shape = (log.exposures.n_users, log.exposures.n_items)
        if method == "random":
            cells = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
            return rng.uniforms(seed, rng.Stream.PROTOCOL, *cells).reshape(shape)
        if method == "popularity":
            return np.tile(popularity, (shape[0], 1))
        pick = chosen[method]
        return fit(
            pick.get("method", method), pick["settings"], data, settings["training"], seed=seed, updates=pick["updates"]
        ).scores

    def one(name: str) -> Any:
        method, k = name.split("/")
        scores = scores_of(method, rng.derive_seed(settings["seed"], f"test/{k}"))
        lists = top_items(scores, max(lengths))
        first = lists[window.user, : lengths[0]]
        often = np.bincount(first.ravel(), minlength=len(popularity)) / len(first)
        top = np.argsort(-often, kind="stable")[:10]
        rank = np.argsort(np.argsort(-popularity, kind="stable"), kind="stable") + 1
        print(f"{log.name}: {name} judged", flush=True)
        return {
            "estimates": {str(n): window.estimates(lists[:, :n]) for n in lengths},
            "classes": window.classes(lists[:, : lengths[0]]),
            "often": [[str(log.items[i]), float(often[i]), int(rank[i])] for i in top],
            "popularity": float((often * popularity).sum() / lengths[0] / popularity.mean()),
            "distinct": int((often > 0).sum()),
        }

    methods = ("random", "popularity", *chosen)
    names = [f"{m}/{k}" for k in range(seeds) for m in methods if k == 0 or m not in ("popularity", "cubn", "cibn")]
    of = [identity, {m: [c["settings"], c["updates"]] for m, c in chosen.items()}, lengths]
    found = kept(out / f"{log.name}.test.json", of, names, one)
    rows = {m: mean_of([found[f"{m}/{k}"] for k in range(seeds) if f"{m}/{k}" in found]) for m in methods}
    popular = np.argsort(-popularity, kind="stable")[: lengths[0]]
    calibration = {
        "all items": window.calibration(np.arange(len(popularity))),
        f"the {lengths[0]} most bought": window.calibration(popular),
    }
    if window.other is not None:
        calibration["all items, by user"] = window.calibration(np.arange(len(popularity)), window.other)
        calibration[f"the {lengths[0]} most bought, by user"] = window.calibration(popular, window.other)
    deciles = {"item" if window.other is not None else "shares": window.deciles()}
    if window.other is not None:
        deciles["user"] = window.deciles(window.other)
    return {
        "deciles": deciles, "rows": rows, "lengths": lengths, "classes": list(CLASSES), "calibration": calibration,
        "test_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def mean_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over trainings; the half width by user and the often recommended items are the first one's."""
    estimates = {}
    for n, first in parts[0]["estimates"].items():
        estimates[n] = {
            m: [float(np.mean([p["estimates"][n][m][0] for p in parts])), (first[m][2] - first[m][1]) / 2]
            for m in METRICS
        }
        for key in ("left_out", "periods_without", *TAKEN, *([OTHER] if OTHER in first else [])):
            estimates[n][key] = float(np.mean([p["estimates"][n][key] for p in parts]))
    means = {k: np.mean([p[k] for p in parts], axis=0).tolist() for k in ("classes", "popularity", "distinct")}
    return {"estimates": estimates, **means, "often": parts[0]["often"], "trainings": len(parts)}


def checks(result: dict[str, Any]) -> dict[str, bool]:
    """What the paper found, asked of this log; figures in the text."""
    rows, lengths, out = result["rows"], [str(n) for n in result["lengths"]], {}

    def of(metric: str, n: str) -> list[tuple[float, str]]:
        return sorted(((rows[m]["estimates"][n][metric][0], m) for m in OF_THE_PAPER), reverse=True)

    middle, first = of("precision", lengths[1]), of("uplift_snips", lengths[0])
    text = ", ".join(f"{m} {v:.4f}" for v, m in middle[:3])
    out[f"rmf and bpr are the best in Precision@{lengths[1]}: {text}"] = {m for _, m in middle[:2]} == {"rmf", "bpr"}
    text = ", ".join(f"{m} {v:.4f}" for v, m in first[:3])
    out[f"ulrmf or ulbpr is the best in UpliftSNIPS@{lengths[0]}: {text}"] = first[0][1] in ("ulrmf", "ulbpr")
    for empty in EMPTY[1:]:
        key = f"uplift_snips_{empty}"
        every = sorted(((rows[m]["estimates"][lengths[0]][key], m) for m in OF_THE_PAPER), reverse=True)
        text = ", ".join(f"{m} {v:.4f}" for v, m in every[:3])
        out[f"the same where {COUNTS[empty]}: {text}"] = every[0][1] in ("ulrmf", "ulbpr")
    out |= headline(rows, lengths) | tendencies(result)
    for method, than in (("ulrmf", "rmf"), ("ulbpr", "bpr")):
        ours, theirs = rows[method], rows[than]
        for k, name in ((2, "NR-P"), (1, "R-NP")):
            a, b = ours["classes"][k], theirs["classes"][k]
            out[f"{method} recommends fewer {name} items than {than}: {a:.4f} < {b:.4f}"] = a < b
        a, b = ours["popularity"], theirs["popularity"]
        out[f"{method} recommends less popular items than {than}: {a:.2f} < {b:.2f} times the mean item"] = a < b
        a, b = converged(result["curves"][method]), converged(result["curves"][than])
        out[f"{method} converges in fewer updates than {than}: {a:,} < {b:,}"] = a < b
        best = max(result["alphas"][method], key=lambda pair: pair[1])
        out[f"the best alpha of {method} on validation is below 1: {best[0]:g}"] = best[0] < 1
    return out


COUNTS = {"zero": "a user without an estimate counts 0", "half": "an empty half counts 0 and the other stays"}


def headline(rows: dict[str, Any], lengths: list[str], counted: Sequence[str] = EMPTY) -> dict[str, bool]:
    """The paper's main claim: ULRMF or ULBPR best in Uplift@N and UpliftSNIPS@N "for most cases": 4 of 6 cells."""
    out = {}
    for empty in counted:
        cells = []
        for metric in METRICS[:2]:
            for n in lengths:
                value = {}
                for m in OF_THE_PAPER:
                    of = rows[m]["estimates"][n]
                    value[m] = of[metric][0] if empty == "leave_out" else of[f"{metric}_{empty}"]
                cells.append(max(value, key=lambda m: value[m]))
        best = sum(m in ("ulrmf", "ulbpr") for m in cells)
        how = "left out" if empty == "leave_out" else COUNTS[empty]
        out[f"ulrmf or ulbpr best in at least 4 of {len(cells)} cells, users without an estimate: {how}: {best}"] = (
            best >= 4 * len(cells) / 6
        )
    return out


def tendencies(result: dict[str, Any]) -> dict[str, bool]:
    """Section 5.3's further remarks."""
    from scipy.stats import kendalltau

    rows, curve, out = result["rows"], result["curves"], {}
    step = {m: float(np.abs(np.diff([v for _, v in curve[m]])).mean()) for m in ("ulrmf", "ulbpr")}
    text = f"mean step of its learning curve {step['ulbpr']:.4f} < {step['ulrmf']:.4f}"
    out[f"ulbpr is steadier than ulrmf: {text}"] = step["ulbpr"] < step["ulrmf"]
    for m in ("ulrmf", "ulbpr"):
        values = [v for _, v in curve[m]]
        test = kendalltau(np.arange(len(values)), values)
        at = int(np.argmax(values)) + 1
        text = (
            f"Kendall's tau with updates {test.statistic:+.2f}, p = {test.pvalue:.2f}; best look {at} of {len(values)}"
        )
        out[f"Uplift@N of {m} rises with training: {text}"] = test.statistic > 0 and test.pvalue < 0.05 and at > 1
    for method, than in (("ulrmf", "rmf"), ("ulbpr", "bpr")):
        a, b = (sum(rows[m]["classes"][:2]) for m in (method, than))
        out[f"R-P + R-NP of {method} not higher than of {than}: {a:.4f} <= {b:.4f}"] = a <= b
    for n in (str(k) for k in result["lengths"]):
        pairs = np.array([[rows[m]["estimates"][n][metric][0] for metric in METRICS[:2]] for m in OF_THE_PAPER])
        tau = float(kendalltau(pairs[:, 0], pairs[:, 1]).statistic)
        out[f"Uplift@{n} and UpliftSNIPS@{n} order the seven methods alike: tau {tau:.2f} >= .5"] = tau >= 0.5
    return out


# ------------------------------------------------------------------------------------------------------------- density


def density(files: dict[str, Path | None], settings: dict[str, Any], out: Path) -> dict[str, Any]:
    """Figure 2 (b), on Dunnhumby: BPR and ULBPR where items must have been bought in more and more weeks."""
    weeks = settings["real"]["densities"]
    if not weeks:
        return {}
    path = out / "dunnhumby.chosen.json"
    if not path.exists():
        raise UserError(f"{path} does not exist: run the part dunnhumby first, whose choice density takes")
    chosen = json.loads(path.read_text())["chosen"]
    history = history_of("dunnhumby", files, min_weeks=weeks[0])
    existed = np.sum([np.bincount(m.indices[m.data >= 2], minlength=m.shape[1]) > 0 for m in history.cells], axis=0)
    n = settings["real"]["lengths"][0]

    def one(least: str) -> Any:
        items = existed >= int(least)
        part = PurchaseHistory(
            history.name, [m[:, items].tocsr() for m in history.cells], history.present, history.users,
            np.asarray(history.items)[items], history.periods,
        )  # fmt: skip
        log = log_from(part, "dunnhumby", settings["real"]["test_periods"]["dunnhumby"])
        data, window = phase(log, "test")
        found: dict[str, Any] = {"items": int(items.sum())}
        for method in ("bpr", "ulbpr"):
            pick = chosen[method]
            done = fit(method, pick["settings"], data, settings["training"], seed=0, updates=pick["updates"])
            found[method] = window.estimates(top_items(done.scores, n))
        return found

    points = kept(out / "density.points.json", [settings, chosen], [str(w) for w in weeks], one)
    better = all(p["ulbpr"]["uplift"][0] > p["bpr"]["uplift"][0] for p in points.values())
    text = f"ulbpr above bpr in Uplift@{n} at every density"
    return {"settings": settings, "points": points, "checks": {text: better}}
