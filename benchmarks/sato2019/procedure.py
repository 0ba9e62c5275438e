"""The paper's procedure where ours is another: the order in which a sample is drawn, and the whole grid at d = 100.

Order: ours draws the class (stratum), then a period, then a user who has such items in it, so that every class has
exactly its share. The paper's (section 5.1 and algorithms 1 and 2) draws a period, then one of its active users, then
the class; where the user has no such item the draw is made anew, which is our reading of what the text leaves open.
Both train the same learners with the settings chosen on the validation periods (d = 32); Welch's t between trainings.

Grid: every combination of lambda, lambda_between, distance and alpha (156 fits of the seven methods) at one rate on
Ta-Feng instead of a search stage by stage, chosen by Uplift@10 in the validation periods and then tested like the rest.
"""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from learn import FACTOR_LEARNERS, OF_THE_PAPER, Data, fit, kept
from logs import RealLog, Window, phase
from scipy import stats

from recsim_mnar import rng
from recsim_mnar.agents.purchases.observed import Plan
from recsim_mnar.agents.purchases.training import Trainer, train
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import top_items

METHODS = ("rmf", "bpr", "ulrmf", "ulbpr")
ORDERS = ("class first", "period first")
COPIES = 40  # of a row of the busiest period; more where there are fewer users
SHOWN = ("Uplift@10", "UpliftSNIPS@10", "Precision@10")
PENALTIES = (1e-2, 1e-4, 1e-6, 1e-8)
ALPHAS = {"alpha": (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)}
COUPLED = {"between": (1e-2, 1e-4, 1e-6, 1e-8), "distance": ("l1", "l2", "cosine")}
OWN: dict[str, dict[str, Any]] = {"ulrmf": ALPHAS, "ulbpr": ALPHAS, "cause": COUPLED, "cause-prod": COUPLED}


def period_first(plan: Plan) -> Plan:
    """The same strata, drawn as the paper says: all periods alike, their active users alike, then the class.

    With draws made anew where the user lacks the class, a stratum's share is its probability times the share of draws
    that can use it, and a usable row has the weight 1 / (active users of its period).
    """
    observed = plan.observed
    active = np.bincount(observed.period)
    weight = 1.0 / active[observed.period]
    copies = np.rint(COPIES * active.max() * weight).astype(np.int64)
    shares, rows, slots = [], [], [0]
    for stratum in plan.strata:
        usable = observed.sizes(stratum.first) > 0
        if stratum.second:
            usable &= observed.sizes(stratum.second) > 0
        chosen = np.flatnonzero(usable)
        shares.append(stratum.probability * weight[chosen].sum())
        rows.append(np.repeat(chosen, copies[chosen]).astype(np.int32))
        slots.append(slots[-1] + len(rows[-1]))
    share = np.array(shares) / np.sum(shares)
    strata = tuple(replace(s, probability=float(p)) for s, p in zip(plan.strata, share, strict=True))
    _, first, second, _, _, _ = plan.arrays()
    groups = np.arange(len(strata) + 1)
    arrays = (np.cumsum(share), first, second, groups, np.array(slots), np.concatenate(rows))
    return Plan(observed, strata, plan.passed_over, arrays)


def shares_of(method: str, pick: dict[str, Any], data: Data) -> list[list[float]]:
    """Shares of the strata under both orders."""
    learner = FACTOR_LEARNERS[method](**pick["settings"])
    plan = learner.plan(data.purchases if method in ("rmf", "bpr") else data.observed)
    total = sum(s.probability for s in plan.strata)
    return [[s.probability / total for s in plan.strata], [s.probability for s in period_first(plan).strata]]


def trained(method: str, pick: dict[str, Any], data: Data, window: Window, order: str, seed: int, training: Any) -> Any:
    """Uplift@10, UpliftSNIPS@10 and Precision@10 of one training."""
    bought = method in ("rmf", "bpr")
    observed, exposures = (data.purchases, data.bought) if bought else (data.observed, data.exposures)
    learner = FACTOR_LEARNERS[method](
        **pick["settings"], updates=pick["updates"], factors=training["search_factors"], batch=training["batch"]
    )
    plan = learner.plan(observed)
    if order == ORDERS[1]:
        plan = period_first(plan)
    seed = rng.derive_seed(seed, f"{order}/{method}")  # the two orders share no draws
    trainer = Trainer(plan, learner.loss(observed, exposures), learner.settings, seed)
    model = train(trainer, pick["updates"]).model
    lists = top_items(model.scores(np.arange(data.exposures.n_users)), 10)
    own = np.take_along_axis(window.bought, lists[window.user], axis=1)
    snips = window.mean_of_halves(lists, window.e, "leave_out")
    return [window.mean_of_halves(lists, None, "leave_out"), snips, float(own.mean())]


def order(log: RealLog, chosen: dict[str, Any], training: Any, seeds: int, cache: Path) -> dict[str, Any]:
    """Both orders of the draws on one log: each method's metrics over trainings, and Welch's t between the orders."""
    data, window = phase(log, "test")
    names = [f"{m}/{how}/{k}" for m in METHODS for how in ORDERS for k in range(seeds)]

    def one(key: str) -> Any:
        method, how, k = key.split("/")
        return trained(method, chosen[method], data, window, how, int(k), training)

    picks = {m: [chosen[m]["settings"], chosen[m]["updates"]] for m in METHODS}
    of = [log.name, log.exposures.n_users, log.exposures.n_items, picks]
    found = kept(cache / f"order.{log.name}.points.json", of, names, one)
    rows: dict[str, Any] = {}
    for m in METHODS:
        tables = [np.array([found[f"{m}/{how}/{k}"] for k in range(seeds)]) for how in ORDERS]
        a, b = shares_of(m, chosen[m], data)
        rows[m] = {"change": float(np.abs(np.subtract(a, b)).max())}
        for j, metric in enumerate(SHOWN):
            first, second = (t[:, j] for t in tables)
            spread = [[float(x.mean()), float(x.std(ddof=1))] for x in (first, second)]
            rows[m][metric] = [*spread, float(stats.ttest_ind(first, second, equal_var=False).pvalue)]
    values = [(row[metric][2], f"{m}, {metric}") for m, row in rows.items() for metric in SHOWN]
    smallest, what = min(values)
    bound = 0.05 / len(values)
    text = f"{log.name}: no difference beyond noise; smallest p of {len(values)} {smallest:.3f} ({what}) >= {bound:.4f}"
    return {"log": log.name, "seeds": seeds, "rows": rows, "checks": {text: smallest >= bound}}


def candidates(method: str, rate: float) -> list[dict[str, Any]]:
    """All settings of a method in the paper's grid."""
    axes = {"penalty": PENALTIES, **OWN.get(method, {})}
    return [{"rate": rate, **dict(zip(axes, values, strict=True))} for values in itertools.product(*axes.values())]


def fitted(method: str, candidate: dict[str, Any], data: Data, window: Window, settings: dict[str, Any]) -> Any:
    """Validation Uplift@10 of the best look, the samples it took, and CPU seconds."""
    began = time.process_time()
    n = settings["real"]["lengths"][0]
    try:
        done = fit(
            method, candidate, data, settings["training"], seed=settings["seed"], validate=lambda s: window.uplift(s, n)
        )
        found = {"score": max(value for _, value in done.curve), "updates": done.updates}
    except UserError as error:
        if "diverged" not in str(error):
            raise
        found = {"score": -1.0, "updates": None}
    return {**found, "seconds": round(time.process_time() - began, 1)}


def tested(method: str, best: dict[str, Any], data: Data, window: Window, settings: dict[str, Any]) -> dict[str, Any]:
    """Both metrics of the chosen settings on the test periods, and the share without an estimate."""
    seed = rng.derive_seed(settings["seed"], "test/0")
    done = fit(method, best["settings"], data, settings["training"], seed=seed, updates=best["updates"])
    told = window.estimates(top_items(done.scores, settings["real"]["lengths"][0]))
    return {m: told[m] for m in ("uplift", "uplift_snips", "left_out")}


def of_rate(found: dict[str, Any], rate: float) -> dict[str, dict[str, Any]]:
    """The fits at a rate by method: its settings as JSON, and what was found."""
    out: dict[str, dict[str, Any]] = {method: {} for method in OF_THE_PAPER}
    for key, one in found.items():
        method, settings = key.split(" ", 1)
        if json.loads(settings)["rate"] == rate:
            out[method][settings] = one
    return out


def best_of(fits: dict[str, Any]) -> dict[str, Any]:
    """The settings of the largest score."""
    settings, best = max(fits.items(), key=lambda pair: pair[1]["score"])
    return {"settings": json.loads(settings), **best}


def whole(
    log: RealLog,
    methods: list[str],
    settings: dict[str, Any],
    cache: Path,
    *,
    rate: float,
    minutes: float,
    by_search: Any,
) -> dict[str, Any]:
    """The whole grid of each method at a rate, as far as it came in so many CPU minutes, and its best in the test."""
    data, window = phase(log, "validation")
    x = log.exposures
    of = [x.n_users, x.n_items, len(x), settings["training"], settings["seed"]]
    began, keys = time.process_time(), [f"{m} {key_of(c)}" for m in methods for c in candidates(m, rate)]
    path = cache / "grid.tafeng.points.json"
    there = kept(path, of, (), lambda _: None)

    def one(key: str) -> Any:
        method, candidate = key.split(" ", 1)
        return fitted(method, json.loads(candidate), data, window, settings)

    for key in keys:
        if key in there or time.process_time() - began <= 60 * minutes:
            there = kept(path, of, [key], one)
    fits = of_rate(there, rate)
    best = {m: best_of(fits[m]) for m in OF_THE_PAPER if fits[m] and len(fits[m]) == len(candidates(m, rate))}
    data, window = phase(log, "test")
    tests = kept(
        cache / f"grid.tafeng.{rate:g}.tests.json", of, best, lambda m: tested(m, best[m], data, window, settings)
    )
    first = settings["training"]["updates"] // settings["training"]["checks"]
    made = [f for found in fits.values() for f in found.values()]
    rows = {
        m: {
            "fits": len(fits[m]), "of": len(candidates(m, rate)), "by_search": by_search.get(m, {}).get("score"),
            **({"best": best_of(fits[m])} if fits[m] else {}), **({"test": tests[m]} if m in best else {}),
        }
        for m in OF_THE_PAPER
    }  # fmt: skip
    minutes = sum(f["seconds"] for f in made) / 60
    return {"rate": rate, "rows": rows, "minutes": minutes, "early": sum(f["updates"] == first for f in made)}


def key_of(candidate: dict[str, Any]) -> str:
    return json.dumps(candidate, sort_keys=True)
