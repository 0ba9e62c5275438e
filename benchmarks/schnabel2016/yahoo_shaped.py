"""The Yahoo! R3 path at full size, on a synthetic world of its shape: 15,400 users, 1,000 songs, known truth.

    python benchmarks/schnabel2016/yahoo_shaped.py [--quick] [--out DIR]

Some 300,000 self-selected ratings, 5,400 users with ten random songs each as the test, of which 5 % are the sample
behind naive Bayes propensities, as in the paper. Chooses lambda by cross-validated IPS score, trains MF-IPS and
MF-Naive for MSE, and prints errors on the test and over all cells, the paired test, seconds and memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
import parts
from fits import FINAL, FitCount, Search, choose
from scipy import stats

from recsim_mnar.estimators import propensities as propensity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise
from recsim_mnar.worlds.ratings import alpha_propensities, observe, rerank

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def made(n_users: int, n_items: int, seed: int) -> tuple[np.ndarray, Ratings]:
    """Ratings of all cells, and those that users reveal: about 20 each."""
    g = np.random.default_rng(seed)
    taste = g.normal(size=(n_users, 6)) @ g.normal(size=(6, n_items))
    taste += 1.2 * g.normal(size=(n_users, 1)) + 1.2 * g.normal(size=n_items)
    truth = rerank(taste + 1.5 * g.normal(size=taste.shape))
    p = alpha_propensities(truth, 0.35, 20.0 / n_items)
    return truth, Ratings.from_dense(truth, observe(p, seed))


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the users")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    out = parts.folder(options.out, options.quick)
    n_users, n_items, tested, rank = (1540, 300, 540, 5) if options.quick else (15_400, 1_000, 5_400, 10)
    began, cpu = time.perf_counter(), time.process_time()
    truth, train = made(n_users, n_items, 2016)
    g = np.random.default_rng(1)
    users = np.repeat(np.arange(tested), 10)
    items = np.argsort(g.random((tested, n_items)), axis=1)[:, :10].ravel()
    sample = g.random(len(users)) < 0.05
    values = truth[users, items]
    test = Ratings(users[~sample], items[~sample], values[~sample], n_users, n_items)
    bayes = propensity.naive_bayes(train, values[sample]).of(train.values)
    rows, errors, fits, choosing = {}, {}, FitCount(), FitCount()
    for name, p in (("MF-IPS", bayes), ("MF-Naive", np.full(len(train), train.density))):
        choice = choose(Search(rank, PENALTIES, 4, 1), train, p, p, "mse", choosing)
        form = FactorizationConfig(rank=rank, penalty=choice["penalty"])
        fit = fits.add(factorise(train, 1.0 / p, form, seed=1, **FINAL))
        errors[name] = fit.factors.at(test.users, test.items) - test.values
        everywhere = fit.factors.matrix() - truth
        rows[name] = {
            "lambda": form.penalty, "scores": choice["scores"], "inside": choice["inside"],
            "mse": float((errors[name] ** 2).mean()), "mae": float(np.abs(errors[name]).mean()),
            "mse_all": float((everywhere**2).mean()), "mae_all": float(np.abs(everywhere).mean()),
        }  # fmt: skip
    test_p = float(stats.ttest_rel(errors["MF-IPS"] ** 2, errors["MF-Naive"] ** 2).pvalue)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ours, theirs = rows["MF-IPS"]["mse"], rows["MF-Naive"]["mse"]
    near = all(abs(row["mse"] / row["mse_all"] - 1) < 0.05 for row in rows.values())
    checks = {
        f"MF-IPS MSE {ours:.3f} below MF-Naive {theirs:.3f}, p = {test_p:.1e} < .001": ours < theirs and test_p < 0.001,
        "the test's MSE is that of all cells within 5 %": near,
        f"{fits.converged} of {fits.made} final fits converged": fits.converged == fits.made,
        f"{choosing.converged} of {choosing.made} fits of cross-validation converged": (
            choosing.converged == choosing.made
        ),
        "both lambdas inside their grid": all(row["inside"] for row in rows.values()),
    }
    lines = [
        "## A world of Yahoo! R3's shape", "",
        f"{n_users:,} users, {n_items:,} songs, {len(train):,} revealed ratings, {len(test):,} test ratings, "
        f"{sample.sum():,} in the random sample; d = {rank}. {time.perf_counter() - began:.0f} s, "
        f"{time.process_time() - cpu:.0f} CPU s, {memory:.1f} GB.", "",
        "| method | lambda | test MSE | all cells | test MAE | all cells |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, r in rows.items():
        lines.append(
            f"| {name} | {r['lambda']:g} | {r['mse']:.3f} | {r['mse_all']:.3f} | {r['mae']:.3f} | {r['mae_all']:.3f} |"
        )
    lines += ["", "```", *(f"{'PASS ' if ok else 'short'} {text}" for text, ok in checks.items()), "```"]
    result = {"rows": rows, "p": test_p, "memory_gb": memory, "fits": fits.to_dict(), "choosing": choosing.to_dict()}
    parts.write(out, "yahoo_shaped", result, "\n".join(lines))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
