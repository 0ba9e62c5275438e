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
    """Both methods at every density, on each log that is given; on Dunnhumby with what ``chosen`` gives.

    Raises:
        UserError: no log is given.
    """
    names = [name for name in settings["real"]["densities"] if quick or files[name] is not None]
    if not names:
        history_of("dunnhumby", files)  # says what is missing
    logs = {name: _of_log(name, files, settings, cache, chosen, quick) for name in names}
    checks = {}
    for name, log in logs.items():
        better = all(p["ulbpr"]["uplift"][0] > p["bpr"]["uplift"][0] for p in log["points"].values())
        checks[f"{name}: ulbpr above bpr in Uplift@{log['n']} at every density"] = better
    return {"logs": logs, "checks": checks}


def _of_log(
    name: str, files: dict[str, Path | None], settings: dict[str, Any], out: Path, choice: Choice, quick: bool
) -> Any:
    real = settings["real"]
    least, n, n_test = real["densities"][name], real["lengths"][0], real["test_periods"][name]
    chosen = choice() if name == "dunnhumby" and not quick else {}
    if quick:
        log = made_up(name, n_test)
    else:
        option = {"min_weeks": least[0]} if name == "dunnhumby" else {"min_periods": least[0]}
        log = log_from(history_of(name, files, **option), name, n_test, files[name])
    if not chosen:  # at the filter of the other tables
        chosen = choose(log.at_least(real["existed"].get(name, least[0])), settings, out, f"density.{name}")

    def one(periods: str) -> Any:
        part = log.at_least(int(periods))
        return {"items": part.exposures.n_items, **tested(part, chosen, settings, seed=0)}

    picks = {m: [chosen[m]["settings"], chosen[m]["updates"]] for m in PAIR}
    of = [sizes(log), settings["training"], picks, n]
    return {"n": n, "chosen": picks, "points": kept(out / f"density.{name}.points.json", of, map(str, least), one)}


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
