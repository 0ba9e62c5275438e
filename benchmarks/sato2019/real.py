"""The study on real logs: Tables 4 to 6, Figures 2 (a) and 3. What was caused is estimated, and known to nobody."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from findings import checks
from histories import history_of, log_from, made_up
from learn import METHODS, Data, Search, fit, kept
from window import METRICS, OTHER, TAKEN, RealLog, Window, phase

from recsim_mnar import rng
from recsim_mnar.estimators.uplift import top_items
from recsim_mnar.log.exposure_index import CLASSES
from recsim_mnar.log.files import write_json

CURVES = ("rmf", "bpr", "ulrmf", "ulbpr")


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
