"""Readings of the semi-synthetic worlds: their propensities, three methods in each, and the number published.

Dunnhumby personalised has five. Propensities ~ rank^-2 "scaled to 210 recommendations a user" are raised until they
add up to 210 with none above 1, or scaled once and then cut, with training logs of ten periods or of one; or they are
made as the published simulator makes them, whose rank follows the user's number (``as published``). In each BPR, ULBPR
and DLCE (true propensities) are searched as in semi.py. With the tuned settings that the simulator's README prints
(``[published]`` of the settings: plain SGD one sample at a time, 200 factors, no biases, starting factors of deviation
.1) learners are trained as there, and looked at as they go. ML-100K: the descents behind its world are stopped by
their length, so other lengths, ranks and penalties are other worlds; their sizes alone.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dunnhumby import load_dunnhumby
from learn import FACTOR_LEARNERS, PURCHASES_ONLY, Data, Search, fit, kept
from semi import (
    RECOMMENDED,
    SOURCES,
    causal_precision_of,
    judge,
    log_of,
    realised,
    summary,
    users_of,
    world_of,
)
from semisynthetic import CAP, describe, rated_world, smoothed_world

from recsim_mnar import rng
from recsim_mnar.agents.purchases.training import Loss, Settings, Trainer
from recsim_mnar.datasets.rating_studies import load_ml100k
from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import write_json
from recsim_mnar.worlds.purchases import PurchasesWorld

METHODS = ("bpr", "ulbpr", "dlce")
MAIN = "raised to 210, 10 periods"  # the reading of the part semisynthetic
AS_PUBLISHED = "as published, 10 periods"
DESCENTS: dict[str, dict[str, Any]] = {
    "as published (100 M updates, d = 100, penalty .01)": {},
    "50 M updates": {"n_updates": 50_000_000},
    "d = 50": {"rank": 50},
    "penalty .03": {"penalty": 0.03},
    "200 M updates": {"n_updates": 200_000_000},
}


def scaled_then_cut(ranked: PurchasesWorld, n_recommended: int, exponent: float = 2.0) -> PurchasesWorld:
    """The same outcomes with propensities n w / sum w cut at the cap, w = rank^-exponent.

    Args:
        ranked: a world whose propensities have the order of the ranks, no two of a user alike.
        n_recommended: n.
        exponent: of the law.
    """
    users = np.arange(users_of(ranked))
    truth, e = ranked.outcomes_of(0, users), ranked.deployed_propensities(0, users)
    law = np.arange(1, ranked.n_items + 1) ** -exponent
    cut = np.clip(n_recommended * law / law.sum(), CAP, 1.0 - CAP)
    own = np.empty_like(e)
    np.put_along_axis(own, np.argsort(-e, axis=1, kind="stable"), np.broadcast_to(cut, e.shape), axis=1)
    return PurchasesWorld.from_matrices(truth.control, truth.treated, own)


def personalised(counts: Any) -> dict[str, Any]:
    """(function that makes the world, periods) of the five readings of Dunnhumby personalised."""
    n = RECOMMENDED["dunnhumby-personalised"]
    make = partial(smoothed_world, counts, deployment="personalised")

    def cut() -> PurchasesWorld:  # one recommendation a user and a law that falls slowly: nothing reaches a cap
        return scaled_then_cut(make(n_recommended=1, exponent=1.0), n)

    ours = partial(make, n_recommended=n)
    found: dict[str, Any] = {}
    for periods in (10, 1):
        found[f"raised to 210, {periods} periods"] = (ours, periods)
        found[f"scaled and then cut, {periods} periods"] = (cut, periods)
    found[AS_PUBLISHED] = (partial(make, n_recommended=n, rank="as published"), 10)
    return found


def worlds_of(files: dict[str, Path | None], cache: Path, quick: bool) -> dict[str, Any]:
    """The readings whose data is given.

    Raises:
        UserError: none is.
    """
    found: dict[str, Any] = {}
    if quick:
        return {AS_PUBLISHED: (lambda: world_of("ml100k", files, None, True), 2)}
    if files["dunnhumby"] is not None:
        found |= personalised(load_dunnhumby(files["dunnhumby"], filters="sato2020").counts())
    if files["ml100k"] is not None:
        ratings = load_ml100k(files["ml100k"])

        def descended(changes: dict[str, Any]) -> PurchasesWorld:
            if not changes:
                return world_of("ml100k", files, cache, False)
            return rated_world(ratings, n_recommended=RECOMMENDED["ml100k"], **changes).world

        found |= {f"ML-100K, {name}": (partial(descended, changes), 1) for name, changes in DESCENTS.items()}
    if not found:
        raise UserError(f"name --dunnhumby ({SOURCES['dunnhumby']}) or --ml100k ({SOURCES['ml100k']})")
    return found


def sizes(world: PurchasesWorld, lengths: list[int]) -> dict[str, Any]:
    """Means and oracles of a world, and how its recommendations are spread over users."""
    n = users_of(world)
    e = world.deployed_propensities(0, np.arange(n))
    own = np.sort(e.sum(axis=1))
    return {
        **describe(world, 0, n, lengths),
        "users shown more than 90 % of the items": float((own > 0.9 * world.n_items).mean()),
        "cells recommended with certainty": float((e > 0.999).mean()),
        "recommendations per user": np.quantile(own, np.linspace(0, 1, 21)).tolist(),
    }


def by_rank(world: PurchasesWorld) -> dict[str, Any]:
    """Quantiles over users of the propensity at some places of each user's own order."""
    e = -np.sort(-world.deployed_propensities(0, np.arange(users_of(world))), axis=1)
    ranks = np.unique(np.geomspace(1, world.n_items, 25).astype(int))
    at = {str(q): np.quantile(e[:, ranks - 1], q, axis=0).tolist() for q in (0.1, 0.5, 0.9)}
    return {"ranks": ranks.tolist(), "quantiles": at}


def searched(name: str, world: PurchasesWorld, periods: int, settings: dict[str, Any], cache: Path) -> Any:
    """The metrics of each method chosen and tested in a world by the study's own search."""
    n, lengths = users_of(world), settings["semisynthetic"]["lengths"]
    drawn = [rng.derive_seed(settings["seed"], f"{name}/{k}") for k in ("search", "validation", "test")]
    tau = realised(world, n, drawn[1])
    identity = [name, n, world.n_items, periods, settings["training"], settings["stages"], settings["own"]]
    data = Data(log_of(world, n, periods, drawn[0]), np.arange(periods))
    search = Search(
        data, lambda s: causal_precision_of(tau, s, lengths[0]), settings, cache / f"readings.{name}.search.json",
        identity,
    )  # fmt: skip
    chosen = {method: search.choose(method) for method in METHODS}
    uplift = world.outcomes_of(0, np.arange(n)).uplift
    values: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    for k in range(settings["readings"]["seeds"]):
        seed = rng.derive_seed(drawn[2], str(k))
        test = Data(log_of(world, n, periods, seed), np.arange(periods))
        for method, pick in chosen.items():
            found = fit(method, pick["settings"], test, settings["training"], seed=seed, updates=pick["updates"])
            values[method].append(judge(uplift, found.scores, lengths))
    return {"chosen": chosen, "rows": {method: summary(v) for method, v in values.items()}}


def trainer_as_published(method: str, own: dict[str, Any], data: Data, factors: int, seed: int) -> Trainer:
    """A learner trained as the published code does: SGD one sample at a time, no biases, weights as they are.

    The published step shrinks a factor by rate x gamma, ours by 2 x rate x penalty, so that the penalty is gamma / 2;
    so with the distance between tasks. A bias penalty of 1 / (2 rate) leaves a bias nothing but its last step, which
    stands for no bias. Purchases are drawn by cell for BPR and DLCE, as a shuffled table of purchases is.
    """
    rate = own["rate"]
    options: dict[str, Any] = {k: own[k] for k in ("alpha", "chi") if k in own}
    if method == "bpr":
        options["draw"] = "cell"
    if "between" in own:
        options |= {"between": own["between"] / 2, "distance": "l2"}
    learner = FACTOR_LEARNERS[method](**options, factors=factors)
    bought = method in PURCHASES_ONLY
    observed, exposures = (data.purchases, data.bought) if bought else (data.observed, data.exposures)
    loss = learner.loss(observed, exposures)
    if method == "dlce":
        loss = Loss(pairs=True, signed=inverse_propensities(observed, exposures, own["chi"]))
    run_config = Settings(factors, rate, own["penalty"] / 2, 0.5 / rate, 1, "sgd", 0.1 * factors**0.5)
    return Trainer(learner.plan(observed), loss, run_config, seed)


def inverse_propensities(observed: Any, exposures: Any, chi: float) -> Any:
    """DLCE's weights as they are: 1 / max(e, chi) of what was recommended, -1 / max(1 - e, chi) of what was not."""
    users, periods, part = observed.of_place()
    e = exposures.propensity_of(users, observed.items, periods)
    shown = (part & 6) > 0  # R-P and R-NP
    return np.where(shown, 1 / np.maximum(e, chi), -1 / np.maximum(1 - e, chi)).astype(np.float32)


def followed(method: str, k: int, name: str, world: PurchasesWorld, periods: int, settings: Any, cache: Path) -> Any:
    """One training with the published settings: the metrics at its end and CP@K on the way; it resumes at a look."""
    own, lengths = own_of(name, settings["published"][method]), settings["semisynthetic"]["lengths"]
    n, looks = users_of(world), own.get("looks", settings["published"]["looks"])
    seed = rng.derive_seed(settings["seed"], f"{name}/published/{k}")
    data = Data(log_of(world, n, periods, seed), np.arange(periods))
    trainer = trainer_as_published(method, own, data, settings["published"]["factors"], seed)
    uplift, updates = world.outcomes_of(0, np.arange(n)).uplift, own.get("run", own["updates"])
    half_done = cache / f"readings.{name}.{method}.{k}.half-done.json"
    curve, before = resumed(trainer, half_done)
    began, stopped = time.process_time(), None
    for look in range(len(curve) + 1, looks + 1):
        if trainer.advance(look * updates // looks - trainer.updates) is not None:
            stopped = f"diverged at update {trainer.updates}"
            break
        curve.append([trainer.updates, causal_precision_of(uplift, trainer.model.scores(np.arange(n)), lengths[0])])
        trainer.save(half_done.with_suffix(".npz"))
        write_json(half_done, [curve, before + time.process_time() - began])
    values = judge(uplift, trainer.model.scores(np.arange(n)), lengths) if stopped is None else None
    seconds = round(before + time.process_time() - began, 1)
    for path in (half_done, half_done.with_suffix(".npz")):
        path.unlink(missing_ok=True)
    return {"values": values, "curve": curve, "stopped": stopped, "updates": trainer.updates, "seconds": seconds}


def resumed(trainer: Trainer, half_done: Path) -> tuple[list[list[float]], float]:
    """The looks and CPU seconds of an interrupted training, whose state the trainer takes."""
    if not half_done.exists():
        return [], 0.0
    trainer.resume(half_done.with_suffix(".npz"))
    curve, seconds = json.loads(half_done.read_text())
    return curve, seconds


def own_of(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """A method's published settings in a reading: all updates where the reading is named in ``whole``."""
    dropped = ("seeds", "whole", "run") if name in own.get("whole", ()) else ("seeds", "whole")
    return {k: v for k, v in own.items() if k not in dropped}


def trainings_of(name: str, periods: int, own: dict[str, Any]) -> list[str]:
    """METHOD/K of what is trained as published: every method in the world as published, some in the others."""
    methods = own["everywhere"] if name != AS_PUBLISHED else [m for m in own if isinstance(own[m], dict)]
    return [f"{m}/{k}" for m in methods for k in range(own[m].get("seeds", own["seeds"]) if periods > 1 else 1)]


def of_trainings(parts: list[dict[str, Any]], own: dict[str, Any]) -> dict[str, Any]:
    """What several trainings come to, and the curve of the first; one that diverged is counted, not averaged."""
    whole = [p for p in parts if p["stopped"] is None]
    if not whole:
        raise UserError(f"every training {parts[0]['stopped']}: lower the rate of {own['rate']:g}")
    return {
        "n": len(whole), "diverged": len(parts) - len(whole), "asked": own["updates"], "updates": whole[0]["updates"],
        "row": summary([p["values"] for p in whole]), "curve": whole[0]["curve"],
        "seconds": sum(p["seconds"] for p in parts),
    }  # fmt: skip


def study(
    files: dict[str, Path | None], settings: dict[str, Any], cache: Path, *, quick: bool,
    only: list[str] | None = None, main: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Each reading: sizes, the methods searched, the methods trained as published; of ML-100K the sizes alone.

    Args:
        files: the data.
        settings: of the study.
        cache: of what is fitted.
        quick: a small synthetic world.
        only: readings whose name holds one of these.
        main: what the part semisynthetic found in the reading that it has; it is not searched again.

    Raises:
        UserError: no reading of that name, or no data.
    """
    worlds = worlds_of(files, cache, quick)
    wanted = {name: w for name, w in worlds.items() if not only or any(part in name for part in only)}
    if not wanted:
        raise UserError(
            f"no reading's name holds {' or '.join(map(repr, only or []))}: name one of {', '.join(worlds)}"
        )
    out = {}
    for name, (make, periods) in wanted.items():
        world = make()
        out[name] = {"periods": periods, "world": sizes(world, settings["semisynthetic"]["lengths"])}
        if not name.startswith("ML-100K"):
            out[name] |= rows_of(name, world, periods, settings, cache, main)
            if periods > 1:  # with logs of one period the propensities are the same
                out[name]["propensities"] = by_rank(world)
            out[name]["trained"] = trained(name, world, periods, settings, cache)
        print(f"{name} done", flush=True)
    metrics = [*(f"CP@{k}" for k in settings["semisynthetic"]["lengths"]), "CDCG"]
    return {
        "settings": {k: settings[k] for k in ("stages", "own", "training", "published")},
        "metrics": metrics,
        "worlds": out,
    }


def rows_of(name: str, world: PurchasesWorld, periods: int, settings: Any, cache: Path, main: Any) -> dict[str, Any]:
    """What the study's own search comes to in a reading."""
    if name == MAIN and main is not None:
        return {key: {m: main[key][m] for m in METHODS} for key in ("chosen", "rows")}
    of = [name, settings["training"], settings["semisynthetic"]["lengths"], settings["readings"]["seeds"]]
    path = cache / f"readings.{name}.test.json"
    found: dict[str, Any] = kept(path, of, ["searched"], lambda _: searched(name, world, periods, settings, cache))
    return dict(found["searched"])


def trained(name: str, world: PurchasesWorld, periods: int, settings: Any, cache: Path) -> dict[str, Any]:
    """What learners trained as published come to in a reading."""
    own, lengths = settings["published"], settings["semisynthetic"]["lengths"]
    names = trainings_of(name, periods, own)

    def one(key: str) -> Any:
        method, k = key.split("/")
        print(f"{name}: {key} as published", flush=True)
        return followed(method, int(k), name, world, periods, settings, cache)

    out = {}
    for method in dict.fromkeys(key.split("/")[0] for key in names):
        of = [name, lengths, own["factors"], own["looks"], own_of(name, own[method])]
        keys = [key for key in names if key.startswith(f"{method}/")]
        found = kept(cache / f"readings.{name}.{method}.json", of, keys, one)
        out[method] = of_trainings([found[key] for key in keys], own[method])
    return out
