"""Four lists of ten items: the more of a list is bought, the less it may cause.

    python examples/uplift_four_lists.py

The illustration of Sato et al. 2019 (section 2.1, Table 1) with lists of our own that have the properties which the
paper names. Half of each list was recommended by the deployed recommender. What a list would cause if all of it were
recommended is its number of true uplifts (bought only if recommended) less its true drops (bought only if not). The log
shows none of this, but Uplift@10 finds it; precision ranks the lists the other way round, and precision among what was
recommended cannot separate them. Below, the same in a world where recommendations are personal: how far each metric
is off, over many logs.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar import simulate
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.purchases.uplift import causal_precision, evaluate_lists, top_items
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld

# Items of each list by hidden class: first the five that were recommended, then the five that were not.
LISTS = {
    "A": ("TU TU TU FD FD", "TU TU TU FD FD"),
    "B": ("TU TU FU FD FD", "TU TU FU FD FD"),
    "C": ("TU FU FU FD FD", "TU FU FU FD FD"),
    "D": ("TU FU FU TD FD", "TU FU FU TD FD"),
}
CAUSED = {"TU": 1, "TD": -1, "FU": 0, "FD": 0}


def four_lists() -> list[tuple[str, int, float, float, float]]:
    """(list, total uplift, precision of all, precision of the recommended, Uplift@10) of each list."""
    rows = []
    for name, halves in LISTS.items():
        shown, hidden = (half.split() for half in halves)
        classes = shown + hidden
        bought = [kind in ("TU", "FU") for kind in shown] + [kind in ("FU", "TD") for kind in hidden]
        recommended = [True] * len(shown) + [False] * len(hidden)
        there = np.flatnonzero(np.array(recommended) | np.array(bought))
        exposures = Exposures(
            np.zeros(len(there)), there, np.zeros(len(there)), np.array(recommended)[there], np.array(bought)[there],
            1, len(classes), 1,
        )  # fmt: skip
        metrics = ("precision", "precision_recommended", "uplift")
        estimates = evaluate_lists(exposures, np.arange(len(classes))[None], metrics=metrics)
        rows.append((name, sum(CAUSED[kind] for kind in classes), *(estimates[metric].value for metric in metrics)))
    return rows


def personal_world(n_logs: int = 200) -> tuple[float, dict[str, tuple[float, float]]]:
    """True uplift of lists of ten, and each metric's mean error with its standard error, recommendations personal."""
    n_users = 100
    params = PurchasesParams(
        n_items=60, n_periods=1, slate_size=10, base=-2.5, smallest_propensity=0.01, exponent=1.0, effect=0.75
    )
    truth = PurchasesWorld(params).outcomes_of(0, np.arange(n_users))
    world = PurchasesWorld(params, control=truth.control, treated=truth.treated)
    lists = top_items(truth.treated, 10)
    true = causal_precision(truth.uplift, lists).value
    propensities = world.deployed_propensities(0, np.arange(n_users))[:, :, None]
    errors: dict[str, list[float]] = {}
    for seed in range(n_logs):
        log = simulate(world, DeployedPolicy(world), n_users, seed)
        sizes = {"n_users": n_users, "n_items": 60, "n_periods": 1}
        exposures = Exposures.from_log(log, **sizes, propensities=propensities)
        for metric, estimate in evaluate_lists(exposures, lists).items():
            errors.setdefault(metric, []).append(estimate.value - true)
    return true, {m: (float(np.mean(e)), float(np.std(e, ddof=1) / np.sqrt(n_logs))) for m, e in errors.items()}


def main() -> None:
    print("list  total uplift  precision  precision of the recommended  Uplift@10")
    for name, total, precision, recommended, uplift in four_lists():
        print(f"{name:<4}  {total:>12}  {precision:>9.1f}  {recommended:>28.1f}  {uplift:>9.1f}")
    true, errors = personal_world()
    print(f"\nA world with personal recommendations; true uplift of the lists, an item: {true:.3f}")
    for metric, (error, se) in errors.items():
        print(f"{metric:<13} off by {error:+.3f} (standard error {se:.3f})")


if __name__ == "__main__":
    main()
