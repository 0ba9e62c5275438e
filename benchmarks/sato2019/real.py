"""The study on real logs: Tables 4 to 6, Figures 2 (a) and 3. What was caused is estimated, and never known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from analysis import cells_of
from learn import METHODS, OF_THE_PAPER, Data, Search, fit, kept
from logs import METRICS, OTHER, TAKEN, RealLog, Window, history_of, log_from, made_up, phase

from recsim_mnar import rng
from recsim_mnar.log import replacing
from recsim_mnar.purchases.uplift import EMPTY, top_items
from recsim_mnar.runs.files import write_json

CURVES = ("rmf", "bpr", "ulrmf", "ulbpr")
KEPT = ("training", "stages", "own")  # of the settings, with a log's results
COUNTED = ("leave_out", "half")  # "zero" is "leave_out" with NaN as 0


def study(name: str, files: dict[str, Path | None], settings: dict[str, Any], cache: Path, *, quick: bool) -> Any:
    """Validation, then test, of one log."""
    n_test = settings["real"]["test_periods"][name]
    log = made_up(name, n_test) if quick else log_from(history_of(name, files), name, n_test)
    settings = {**settings, "again": settings["real"]["again"]}
    if not quick:
        settings["stages"] = settings["real"]["stages"]
        settings["own"] = {m: {**own, **settings["real"]["own"].get(m, {})} for m, own in settings["own"].items()}
    result = validation(log, settings, cache)
    picks = {**result["chosen"], **result["chosen_otherwise"]}
    result |= test(log, settings, cache, picks, settings["real"]["seeds"][name])
    return {"settings": {key: settings[key] for key in KEPT}, **result}


def identity_of(log: RealLog, settings: dict[str, Any]) -> dict[str, Any]:
    """What every fit on a log depends on."""
    x, own = log.exposures, {key: settings[key] for key in ("seed", "training")}
    return {"log": log.name, "users": x.n_users, "items": x.n_items, "periods": x.n_periods, "rows": len(x), **own}


def validation(log: RealLog, settings: dict[str, Any], out: Path) -> dict[str, Any]:
    """Choose on the validation periods, and write it before the test periods are looked at; Figures 2 (a) and 3."""
    identity = identity_of(log, settings)
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
    otherwise, n_fits = {}, len(search.fits)
    first = settings["training"]["updates"] // settings["training"]["checks"]  # samples at the first look
    for empty in settings["real"]["chosen_by"][log.name]:
        path = out / f"{log.name}.{empty}.search.json"

        def judge(scores: Any, empty: str = empty) -> float:
            return window.uplift(scores, n, empty)

        other = Search(data, judge, settings, path, {"of": identity, "empty": empty})
        for method in settings["real"]["chosen_methods"]:
            otherwise[f"{method}, by {empty}"] = {**other.choose(method), "method": method}
            print(f"{log.name}: {method} chosen by {empty}", flush=True)
        n_fits += len(other.fits)
    return {
        "search_fits": n_fits + len(CURVES),
        "diverged": sum("stopped" in f for f in search.fits.values()),
        "early": sum(f["updates"] == first for f in search.fits.values()),
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


def test(log: RealLog, settings: dict[str, Any], cache: Path, chosen: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Tables 4 to 6: fitted anew on the periods before the test, several trainings; the six cells as differences."""
    lengths, identity = settings["real"]["lengths"], identity_of(log, settings)
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
        if method in OF_THE_PAPER:
            store(values_path(cache, log, name), halves_of(window, lists, lengths))
        print(f"{log.name}: {name} judged", flush=True)
        return {
            "estimates": {str(n): window.estimates(lists[:, :n]) for n in lengths},
            "classes": window.classes(lists[:, : lengths[0]]),
            "often": [[str(log.items[i]), float(often[i]), int(rank[i])] for i in top] if method in CURVES else [],
            "popularity": float((often * popularity).sum() / lengths[0] / popularity.mean()),
            "distinct": int((often > 0).sum()),
        }

    methods = ("random", "popularity", *chosen)
    names = [f"{m}/{k}" for k in range(seeds) for m in methods if k < trainings(m, settings)]
    of = [identity, {m: [c["settings"], c["updates"]] for m, c in chosen.items()}, lengths, COUNTED]
    found = kept(cache / f"{log.name}.test.json", of, names, one)
    rows = {m: mean_of([found[f"{m}/{k}"] for k in range(seeds) if f"{m}/{k}" in found]) for m in methods}
    fits = sum(not name.startswith(("random", "popularity")) for name in names)
    return {
        "rows": rows, "lengths": lengths, "classes": ["R-P", "R-NP", "NR-P", "NR-NP"], "users": log.exposures.n_users,
        "items": log.exposures.n_items, "test_fits": fits, "cells": differences(log, window, cache, lengths, seeds),
        **propensities_checked(window, popularity, lengths[0]),
        "test_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def trainings(method: str, settings: dict[str, Any]) -> float:
    """How many trainings a method gets at most: one where nothing is drawn, few next to the paper's seven."""
    if method in ("popularity", "cubn", "cibn"):
        return 1
    return float("inf") if method in OF_THE_PAPER else settings["real"]["seeds_of_others"]


def values_path(cache: Path, log: RealLog, name: str) -> Path:
    """Where the uplift of each user-period by one training's lists is kept."""
    return cache / f"{log.name}.values" / f"{name.replace('/', '-')}.npy"


def store(path: Path, values: Any) -> None:
    """Write an array under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, values, allow_pickle=False)


def halves_of(window: Window, lists: Any, lengths: list[int]) -> Any:
    """(metric, counting, length, user-period) Uplift and UpliftSNIPS of lists; NaN where a user has no estimate."""
    return np.array(
        [[[window.halves(lists[:, :n], e, empty) for n in lengths] for empty in COUNTED] for e in (None, window.e)],
        np.float32,
    )


def differences(log: RealLog, window: Window, cache: Path, lengths: list[int], seeds: int) -> dict[str, Any]:
    """The six cells under every counting: ULRMF and ULBPR less the best other method."""
    kept_values = {
        m: np.stack([np.load(values_path(cache, log, f"{m}/{k}"), allow_pickle=False) for k in range(seeds)])
        for m in OF_THE_PAPER
    }
    out = {}
    for empty in EMPTY:
        at = COUNTED.index("half" if empty == "half" else "leave_out")
        for j, metric in enumerate(METRICS[:2]):
            for i, n in enumerate(lengths):
                values = {m: v[:, j, at, i].astype(np.float64) for m, v in kept_values.items()}
                if empty == "zero":
                    values = {m: np.nan_to_num(v) for m, v in values.items()}
                out[f"{metric}/{empty}/{n}"] = cells_of(values, window.user, window.period)
    return out


def propensities_checked(window: Window, popularity: Any, n: int) -> dict[str, Any]:
    """Whether the estimated propensities are right on the test periods: by item, by decile, by whose numbers."""
    everything, popular = np.arange(len(popularity)), np.argsort(-popularity, kind="stable")[:n]
    tables = {"": window.e} if window.other is None else {"": window.e, ", by user": window.other}
    calibration = {
        f"{what}{by}": window.calibration(items, table)
        for by, table in tables.items()
        for what, items in (("all items", everything), (f"the {n} most bought", popular))
    }
    names = ("shares",) if window.other is None else ("item", "user")
    deciles = {name: window.deciles(table) for name, table in zip(names, tables.values(), strict=True)}
    return {"deciles": deciles, "calibration": calibration}


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
