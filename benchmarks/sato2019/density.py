"""Figure 2 (b): BPR and ULBPR where items must be bought in more and more periods, and where they are products."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from learn import Data, Search, fit, kept
from logs import RealLog, history_of, judged, log_from, made_up, phases, propensities_of

PAIR = ("bpr", "ulbpr")


Choice = Callable[[], dict[str, Any]]


def density(
    files: dict[str, Path | None], settings: dict[str, Any], cache: Path, chosen: Choice, *, quick: bool
) -> dict[str, Any]:
    """Both methods at every density of Dunnhumby, with what ``chosen`` gives.

    Raises:
        UserError: its data is not given.
    """
    real = settings["real"]
    least, n, n_test = real["densities"], real["lengths"][0], real["test_periods"]["dunnhumby"]
    if quick:
        log = made_up("dunnhumby", n_test)
        picked = choose(log.at_least(least[0]), settings, cache, "density.dunnhumby")
    else:
        picked = chosen()
        log = log_from(history_of("dunnhumby", files, min_weeks=least[0]), "dunnhumby", n_test)

    def one(periods: str) -> Any:
        part = log.at_least(int(periods))
        return {"items": part.exposures.n_items, **tested(part, picked, settings, seed=0)}

    picks = {m: [picked[m]["settings"], picked[m]["updates"]] for m in PAIR}
    of = [sizes(log), settings["training"], picks, n]
    points = kept(cache / "density.dunnhumby.points.json", of, map(str, least), one)
    better = all(p["ulbpr"]["uplift"][0] > p["bpr"]["uplift"][0] for p in points.values())
    checks = {f"dunnhumby: ulbpr above bpr in Uplift@{n} at every density": better}
    return {"logs": {"dunnhumby": {"n": n, "chosen": picks, "points": points}}, "checks": checks}


def product(
    files: dict[str, Path | None], settings: dict[str, Any], out: Path, choice: Choice, *, quick: bool
) -> dict[str, Any]:
    """Section 5.3: the same two methods where an item of Dunnhumby is a product."""
    real = settings["real"]
    if quick:
        log = made_up("dunnhumby", real["test_periods"]["dunnhumby"])
    else:
        history = history_of("dunnhumby", files, level="product")
        log = log_from(history, "dunnhumby", real["test_periods"]["dunnhumby"])
    if quick or real["search_products"]:
        chosen = choose(log, settings, out, "product")
    else:
        chosen = {m: pick for m, pick in choice().items() if m in PAIR}
    picks = {m: [chosen[m]["settings"], chosen[m]["updates"]] for m in PAIR}

    def one(seed: str) -> Any:
        return tested(log, chosen, settings, seed=int(seed))

    of = [sizes(log), settings["training"], picks]
    found = kept(out / "product.points.json", of, [str(k) for k in range(real["seeds"]["product"])], one)
    return {"items": log.exposures.n_items, "users": log.exposures.n_users, "trainings": found, "chosen": picks}


def sizes(log: RealLog) -> list[Any]:
    x = log.exposures
    return [log.name, x.n_users, x.n_items, x.n_periods, len(x)]


def choose(log: RealLog, settings: dict[str, Any], out: Path, name: str) -> dict[str, Any]:
    """Both methods by Uplift@N in the validation periods."""
    n = settings["real"]["lengths"][0]
    train, periods = phases(log.exposures.n_periods, log.n_test)["validation"]
    exposures = log.exposures.with_propensities(propensities_of(log, train)[0])

    def uplift(lists: Any) -> float:
        value = judged(exposures, lists, periods, log.present)["uplift"][0]
        return value if np.isfinite(value) else 0.0

    identity = [sizes(log), settings["training"], settings["seed"]]
    search = Search(Data(exposures, train), uplift, settings, out / f"{name}.search.json", identity, listed=n)
    return {method: search.choose(method) for method in PAIR}


def tested(log: RealLog, chosen: dict[str, Any], settings: dict[str, Any], *, seed: int) -> dict[str, Any]:
    """Both methods, fitted on the periods before the test and judged on it."""
    n = settings["real"]["lengths"][0]
    train, periods = phases(log.exposures.n_periods, log.n_test)["test"]
    exposures = log.exposures.with_propensities(propensities_of(log, train)[0])
    out = {}
    for method in PAIR:
        pick = chosen[method]
        done = fit(
            method, pick["settings"], Data(exposures, train), settings["training"], seed=seed, updates=pick["updates"],
            listed=n,
        )  # fmt: skip
        out[method] = judged(exposures, done.scores, periods, log.present)
    return out
