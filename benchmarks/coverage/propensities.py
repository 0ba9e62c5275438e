"""Coverage of intervals of rating estimates whose propensities are estimated.

    python benchmarks/coverage/propensities.py [--quick] [--logs N]

Ratings world, naive Bayes (Schnabel et al. 2016, section 5.1) from random samples of three sizes. Naive intervals take
the estimated propensities as known; corrected ones refit them in resamples of the users and of the random sample. A
second part reveals by item as well, which naive Bayes cannot see, and states the largest ratio of the true propensities
to the right fit of the wrong model. The truth is the whole matrix of the log's users.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import columns_of, exact_limits, into_marks, parser_of, table, word
from analysis import load, save

from recsim_mnar import rng
from recsim_mnar.estimators.ratings import Loss, estimate_ratings, loss, naive_bayes
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.ratings.observation import observe

HERE = Path(__file__).resolve().parent
USERS, SIZES, LOGS, LEVEL, SEED = 1000, (50, 200, 1000), 500, 0.95, 2016
BY_ITEM = 1.2  # second part: half of the items are revealed so many times as often, the others as much less
WRONG = BY_ITEM**2  # largest ratio of P to the mean of P over the cells of a rating, whatever items have which ratings
Hits = dict[tuple[str, ...], list[tuple[bool, bool, float]]]


def losses(truth: np.ndarray, item_means: np.ndarray, seed: int) -> dict[str, Loss]:
    """Predictions of section 6.2 of the paper, and a recommender that knows the items' means among other users."""
    noise = rng.normals(seed, rng.Stream.FIT, 0, truth.shape)
    skewed = np.clip(truth + (6.0 - truth) / 2.0 * noise, 0.0, 6.0)
    by_item = np.tile(item_means, (len(truth), 1))
    return {
        "ROTATE, MAE": loss("mae", np.where(truth > 1.0, truth - 1.0, 5.0)),
        "COARSENED, MAE": loss("mae", np.where(truth <= 3.0, 3.0, 4.0)),
        "SKEWED, MAE": loss("mae", skewed),
        "item means, MAE": loss("mae", by_item),
        "item means, DCG@10": loss("dcg@k", by_item, k=10),
    }


def one_log(world: Any, item_means: np.ndarray, number: int, sizes: tuple[int, ...], wrong: bool, hits: Hits) -> None:
    """Add to ``hits`` whether each end of each interval is right, and the width."""
    seed = rng.derive_seed(SEED, f"log/{number}")
    users = np.arange(USERS)
    truth = np.asarray(world.ratings_of(seed, users), np.float64)
    p = world.propensities_of(users, truth)
    if wrong:
        p = p * np.where(item_means > np.median(item_means), BY_ITEM, 1.0 / BY_ITEM)
    ratings = Ratings.from_dense(truth, observe(p, rng.derive_seed(seed, "reveal")))
    known = ratings.at(p)
    for size in sizes:
        cells = (rng.uniforms(seed, rng.Stream.PROTOCOL, np.arange(size), size) * truth.size).astype(np.int64)
        bayes = naive_bayes(ratings, truth.ravel()[cells])
        methods: dict[str, tuple[Any, str, float]] = {
            "naive IPS": (bayes.of(ratings.values), "ips", 1.0),
            "naive SNIPS": (bayes.of(ratings.values), "snips", 1.0),
            "corrected": (bayes, "ips", 1.0),
        }
        if wrong:
            methods["ratio stated, IPS"] = bayes, "ips", WRONG
            methods["ratio stated, SNIPS"] = bayes, "snips", WRONG
        else:
            methods["P known, IPS"] = known, "ips", 1.0
        for name, delta in losses(truth, item_means, seed).items():
            risk = delta.risk(truth)
            for method, (given, estimator, ratio) in methods.items():
                found = estimate_ratings(delta, ratings, given, level=LEVEL, largest_ratio=ratio, seed=seed)
                low, high = found.intervals[estimator]
                hits.setdefault((str(size), name, method), []).append((low <= risk, risk <= high, high - low))


def part(logs: int, sizes: tuple[int, ...], wrong: bool) -> list[dict[str, Any]]:
    world = make_world("ratings", "quick")
    others = np.arange(4000)
    item_means = world.ratings_of(rng.derive_seed(SEED, "others"), others).mean(axis=0)
    hits: Hits = {}
    for number in range(logs):
        one_log(world, item_means, number, sizes, wrong, hits)
    rows = []
    for (size, name, method), found in hits.items():
        low, high, width = np.array(found, np.float64).T
        covered = int((low * high).sum())
        least, most = exact_limits(covered, logs, LEVEL)
        rows.append({
            "random_ratings": int(size), "estimate": name, "interval": method, "logs": logs,
            "coverage": covered / logs, "low": least, "high": most,
            "truth_below": float(1 - low.mean()), "truth_above": float(1 - high.mean()), "width": float(width.mean()),
        })  # fmt: skip
    return rows


def cells(rows: list[dict[str, Any]]) -> list[str]:
    methods = list(dict.fromkeys(row["interval"] for row in rows))
    lines = []
    for size, name in dict.fromkeys((row["random_ratings"], row["estimate"]) for row in rows):
        own = [row for row in rows if (row["random_ratings"], row["estimate"]) == (size, name)]
        shown = [f"{r['coverage']:.3f} [{r['low']:.3f}, {r['high']:.3f}] ({r['width']:.3g})" for r in own]
        lines.append([f"{size:,}", name, *shown])
    return table(["random ratings", "estimate", *methods], lines)


def report(result: dict[str, Any]) -> str:
    right, wrong = result["model right"], result["model wrong"]
    corrected = [row for row in right if row["interval"] == "corrected"]
    naive = [row for row in right if row["interval"].startswith("naive")]
    covers = sum(row["high"] >= LEVEL for row in corrected)
    misses = sum(row["high"] < LEVEL for row in naive)
    return "\n".join([
        "## Intervals of rating estimates with estimated propensities",
        "",
        f"{right[0]['logs']} logs of {USERS:,} users and 100 items each, 5 % revealed at alpha = .25, nominal 95 %. "
        "Each cell: coverage [exact 95 % limits] (mean width). Naive intervals take estimated propensities as known.",
        "",
        *cells(right),
        "",
        f"Corrected intervals: the exact limits reach .95 or more in {covers} of {len(corrected)} cells "
        f"({word(covers == len(corrected))}). Naive intervals: below .95 beyond their limits in "
        f"{misses} of {len(naive)}.",
        "",
        f"### Where naive Bayes is the wrong model, {wrong[0]['random_ratings']} random ratings",
        "",
        f"Half of the items are revealed {BY_ITEM:g} times as often, the others as much less, so that P and its mean "
        f"by rating differ by at most {WRONG:g}, the stated largest ratio.",
        "",
        *cells(wrong),
        "",
    ])  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, quick="10 logs, printed and not kept")
    parser.add_argument("--logs", type=int, default=LOGS)
    options = parser.parse_args()
    logs = 10 if options.quick else options.logs
    began = time.process_time()
    result: dict[str, Any] = {"model right": part(logs, SIZES, False), "model wrong": part(logs, SIZES[2:], True)}
    text = report(result)
    if not options.quick:
        kept = {name: columns_of(rows) for name, rows in result.items()}
        save(load() | {"propensities": kept | {"cpu_seconds": time.process_time() - began}})
        into_marks(HERE / "results.md", "propensities", text.splitlines())
    print(text)


if __name__ == "__main__":
    main()
