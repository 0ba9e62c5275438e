"""Logs that the gate is judged on: `python benchmarks/gate/run.py` writes a step a source and population under logs/.

Of every log: how far the estimate is from the truth, what each gate sees of it (our largest severity, the share of
logged rows
that the target supports, Kish's effective sample), the severities by finding, and whether the target (B) looks better
than the policy that logged (A), and is. A step that is done is not run again.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import once
from analysis import MIX, POPULATION, USERS

from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.uplift import evaluate_lists
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay_with_support
from recsim_mnar.replays.truth import sums_by_user
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds import make_world

HERE = Path(__file__).resolve().parent
GENERATOR = runpy.run_path(str(HERE.parent / "verdict" / "generator.py"), run_name="generator")
"""The verdict study's settings and the logs that it draws of them."""

CLIP = 15.0
SEED = 2026_1122
FIRST = 40_000  # number of the first log of a setting
LOGGERS = ("random", "user-popularity", "user-popularity+epsilon=0.05", "user-popularity+epsilon=0.3")
TARGETS = ("item-knn", "popularity", "random+epsilon=0.5", "item-knn+epsilon=0.5")
PERIODS, LISTED = 2, 10


def row(estimate: Any, gap: Any, truth: float, baseline: float, overlap: float) -> dict[str, Any]:
    """What is kept of one log; ``truth`` and ``baseline`` are the values of B and A."""
    return {
        "value": estimate.value,
        "truth": truth,
        "baseline": baseline,
        "severity": estimate.verdict.severity,
        "ess": estimate.ess,
        "overlap": overlap,
        "findings": {f.code: f.severity for f in estimate.verdict.findings},
        "gap": gap.value,
        "gap_low": gap.low,
        "gap_high": gap.high,
        "gap_severity": gap.verdict.severity,
        "level": estimate.verdict.level,
        "gap_level": gap.verdict.level,
    }


def of_generator() -> Iterator[tuple[str, Any]]:
    """All settings in turn."""
    settings = [*GENERATOR["draw_settings"](), *GENERATOR["draw_fresh"]()]
    each, more = divmod(MIX["generator"], len(settings))
    for number, setting in enumerate(settings):
        yield f"generator-{setting.name}", lambda s=setting, n=each + (number < more): generated(s, n)


def generated(setting: Any, logs: int) -> list[dict[str, Any]]:
    """Logs beyond those of the coverage study."""
    world, rows = GENERATOR["World"](setting), []
    for number in range(FIRST, FIRST + logs):
        log = world.log(number)
        baseline = log.pop("baseline")
        if setting.support == "no":
            log.pop("unsupported", None)
        given = log | world.stated()
        lost = {"baseline_unsupported": np.zeros(baseline.size)} if "unsupported" in log else {}
        estimate = estimate_value(**given, clip=CLIP)
        gap = difference(**given, **lost, baseline=baseline, clip=CLIP)
        # Values count from the least reward there is: with a cost they may be next to 0.
        found = row(estimate, gap, world.value, world.baseline_value, estimate.diagnostics["support"])
        rows.append(found | {"shift": -setting.cost})
    return rows


def of_worlds(name: str) -> Iterator[tuple[str, Any]]:
    """One population a logging policy; every target has its share of the logs."""
    share = MIX[name] // len(LOGGERS)
    for logger in LOGGERS:
        yield f"{name}-{logger}", lambda spec=logger: simulated(name, spec, share)


def simulated(name: str, spec: str, logs: int) -> list[dict[str, Any]]:
    """Draws of users from a population whose values are known exactly."""
    world: Any = make_world(name, "quick")
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, 500, derive_seed(SEED, "train"))
    logging = registry.learner(spec).fit(train, n_items=world.n_items, seed=1)
    seed = derive_seed(SEED, f"log/{spec}")
    log = simulate(world, logging, POPULATION, seed)
    shown = log.is_bandit
    user, reward, propensity = (log[key][shown] for key in ("user", "reward", "propensity"))
    ids, starts = np.unique(user, return_index=True)
    ends = np.append(starts[1:], user.size)
    least, largest = (0.0, 1.0) if name == "sessions" else (1.0, 5.0)
    targets = {target: registry.learner(target).fit(train, n_items=world.n_items, seed=1) for target in TARGETS}
    decisions, sums = sums_by_user(world, log, targets | {"logging": logging}, seed)
    values = {key: float(each.sum() / decisions.sum()) for key, each in sums.items()}
    rows = []
    for k, target in enumerate(TARGETS):
        probability, lost = (each[shown] for each in replay_with_support(log, targets[target], logging))
        for number in range(logs // len(TARGETS)):
            rng = np.random.default_rng([SEED, k, number])
            chosen = rng.choice(ids.size, min(USERS[number % len(USERS)], ids.size), replace=False)
            take = np.concatenate([np.arange(starts[u], ends[u]) for u in chosen])
            columns = {
                "reward": reward[take],
                "propensity": propensity[take],
                "target": np.minimum(probability[take], 1.0 - lost[take]),
                "cluster": user[take],
                "unsupported": lost[take],
                "reward_min": least,
                "reward_max": largest,
            }
            estimate = estimate_value(**columns, clip=CLIP)
            gap = difference(**columns, baseline=propensity[take], baseline_unsupported=np.zeros(take.size), clip=CLIP)
            found = row(estimate, gap, values[target], values["logging"], estimate.diagnostics["support"])
            rows.append(found | {"shift": least})
    return rows


def of_purchases() -> Iterator[tuple[str, Any]]:
    """Lists of two kinds against the popular ones, from the deployed recommender's exposures."""
    for kind in ("random", "treated"):
        yield f"purchases-{kind}", lambda kind=kind: purchased(kind, MIX["purchases"] // 2)


def purchased(kind: str, logs: int) -> list[dict[str, Any]]:
    """Uplift by IPS of lists (B) and of the most bought items (A); the truth is the mean effect of the lists."""
    world: Any = make_world("purchases", "quick")
    population = np.arange(2_000)
    e = world.deployed_propensities(SEED, population)
    uplift = world.outcomes_of(SEED, population).uplift
    outcomes = [world.potential_outcomes(SEED, population, t) for t in range(PERIODS)]
    rng = np.random.default_rng([SEED, len(kind)])
    control, treated = (np.mean([o[i] for o in outcomes], axis=0) for i in (0, 1))
    popular = np.argsort(-control.mean(axis=0), kind="stable")[:LISTED]
    ours = np.tile(popular, (population.size, 1))
    lists = np.tile(np.argsort(-treated.mean(axis=0), kind="stable")[:LISTED], (population.size, 1))
    if kind == "random":
        lists = np.argsort(rng.random(uplift.shape), axis=1)[:, :LISTED]
    values = [float(np.take_along_axis(uplift, each, axis=1).mean()) for each in (lists, ours)]
    rows = []
    for number in range(logs):
        rng = np.random.default_rng([SEED, len(kind), number])
        users = rng.choice(population.size, USERS[number % len(USERS)], replace=True)
        z = rng.random((users.size, e.shape[1], PERIODS)) < e[users][:, :, None]
        y = np.stack([np.where(z[:, :, t], outcomes[t][1][users], outcomes[t][0][users]) for t in range(PERIODS)], 2)
        u, i, t = np.nonzero(z | y)
        exposures = Exposures(
            u, i, t, z[u, i, t], y[u, i, t], *z.shape, propensities=e[users][:, :, None].astype(np.float64)
        )
        b, a = (evaluate_lists(exposures, each[users], metrics=["uplift_ips"])["uplift_ips"] for each in (lists, ours))
        width = float(np.hypot(b.high - b.low, a.high - a.low)) / 2.0
        gap = b.value - a.value
        found = row(b, b, values[0], values[1], float(z.any(axis=2).mean()))
        rows.append(found | {"gap": gap, "gap_low": gap - width, "gap_high": gap + width})
    return rows


def main() -> None:
    work = [*of_generator(), *of_worlds("sessions"), *of_worlds("ratings"), *of_purchases()]
    for name, job in work:
        if len(sys.argv) == 1 or name.startswith(sys.argv[1]):
            began = time.process_time()
            rows = once(HERE / "logs" / f"{name}.json", job, finite=False)  # a severity has no upper end
            print(f"{name}: {len(rows)} logs, {time.process_time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
