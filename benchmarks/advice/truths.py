"""What each agent is worth in the hidden worlds: its own clicks per recommendation, over whole lives.

    python benchmarks/advice/truths.py --out FOLDER [--module FILE] [--only NAME ...] [--seed 0] [--times 8] [--table]

Agents are fitted on the world's own log of one seed, under its logger. One JSON file a world and seed; those that are
there already are kept. ``--module`` names the file whose ``WORLDS`` are taken, ``seen.py`` unless named; ``--table``
prints what the folder holds and computes nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from interface import Hidden

from recsim_mnar.log.files import write_json
from recsim_mnar.log.table import Log
from recsim_mnar.policy import Policy, registry
from recsim_mnar.policy.adapting import fitted
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.protocols.judgement import ratio_influence
from recsim_mnar.replay import replay_with_support
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulate import simulate
from recsim_mnar.truth import sums_by_user
from recsim_mnar.worlds import DecisionWorld

HERE = Path(__file__).parent
TRAIN_USERS = 2000
"""As ``simulate`` fits a logging policy that learns, unless it is asked for more."""
REPLAYED = 3000
"""Users of the log in whose states agents are valued; whole lives, so that standard errors are over users."""


def worlds_of(file: Path) -> tuple[Hidden, ...]:
    """The hidden worlds of a file, whose imports may stand next to this one."""
    spec = importlib.util.spec_from_file_location(f"hidden_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    worlds: tuple[Hidden, ...] = module.WORLDS
    return worlds


def logger_of(hidden: Hidden, world: DecisionWorld, seed: int) -> Policy:
    """The logging policy as ``simulate`` makes it for a log of this seed."""
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, TRAIN_USERS, derive_seed(seed, "train"))
    return registry.learner(hidden.logging).fit(train, n_items=world.n_items, seed=derive_seed(seed, "fit"))


def agents_of(hidden: Hidden, log: Log, n_items: int) -> dict[str, Policy]:
    """The agents, fitted on a log."""
    return {name: fitted(registry.learner(name), log, n_items=n_items, seed=0) for name in hidden.agents}


def truth_of(hidden: Hidden, seed: int, times: float) -> dict[str, Any]:
    """What one file says: the log, each agent's value, its value in the log's states, and what the log shows of it."""
    world, began = hidden.make(), time.process_time()
    logger = logger_of(hidden, world, seed)
    log = simulate(world, logger, hidden.users, seed)
    log_cpu = time.process_time() - began
    policies = agents_of(hidden, log, world.n_items)
    fit_cpu = time.process_time() - began - log_cpu
    values, influence = lived(world, policies, math.ceil(times * hidden.users), derive_seed(seed, "truth"))
    on_log, on_log_influence = replayed(world, log, policies, seed)
    weighted, weighted_influence, uncovered = by_weights(log, policies, logger)
    best = max(values, key=values.__getitem__)
    rest = {name: value for name, value in values.items() if name != best}
    second = max(rest, key=rest.__getitem__)
    shown = log.is_bandit
    return {
        "name": hidden.name,
        "family": hidden.family,
        "inside": hidden.inside,
        "logging": hidden.logging,
        "seed": seed,
        "items": world.n_items,
        "users": hidden.users,
        "recommendations": int(shown.sum()),
        "views": int((~shown).sum()),
        "ctr": float(log["reward"][shown].mean()),
        "truth_users": math.ceil(times * hidden.users),
        "value": values,
        "se": {name: error_of(values_) for name, values_ in influence.items()},
        "best": best,
        "second": second,
        "gap": values[best] - values[second],
        "gap_se": error_of(influence[best] - influence[second]),
        "below_best": {name: values[best] - value for name, value in rest.items()},
        "below_best_se": {name: error_of(influence[best] - influence[name]) for name in rest},
        "on_log": on_log,
        "on_log_se": {name: error_of(values_) for name, values_ in on_log_influence.items()},
        "best_on_log": max(on_log, key=on_log.__getitem__),
        "ips": weighted,
        "ips_se": {name: error_of(values_) for name, values_ in weighted_influence.items()},
        "below_best_ips_se": {name: error_of(weighted_influence[best] - weighted_influence[name]) for name in rest},
        "uncovered": uncovered,
        "cpu": {"log": log_cpu, "fits": fit_cpu, "all": time.process_time() - began},
    }


def lived(
    world: DecisionWorld, policies: dict[str, Policy], n_users: int, seed: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Values over whole lives of the same users under each agent, by exact click probabilities; and users' parts."""
    values, influence = {}, {}
    for name, policy in policies.items():
        arm = run_arm(world, policy, n_users, seed)
        sums, counts = np.zeros(n_users), np.zeros(n_users)
        sums[arm.user], counts[arm.user] = arm.means, arm.decisions
        values[name], influence[name] = float(sums.sum() / counts.sum()), ratio_influence(sums, counts)
    return values, influence


def replayed(
    world: DecisionWorld, log: Log, policies: dict[str, Policy], seed: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """One-step values: expected clicks of an agent in the states that the logger led users into."""
    first = log["user"] < REPLAYED
    some = Log({name: values[first] for name, values in log.columns.items()}, log.provenance)
    decisions, sums = sums_by_user(world, some, policies, seed)
    values = {name: float(each.sum() / decisions.sum()) for name, each in sums.items()}
    return values, {name: ratio_influence(each, decisions) for name, each in sums.items()}


def by_weights(log: Log, policies: dict[str, Policy], logger: Policy) -> tuple[dict[str, float], dict[str, Any], Any]:
    """Plain inverse propensity scoring on the log, users' parts, and each agent's mass that the logger never shows."""
    shown = log.is_bandit
    users, place = np.unique(log["user"][shown], return_inverse=True)
    counts = np.bincount(place, minlength=len(users)).astype(np.float64)
    values, influence, uncovered = {}, {}, {}
    for name, policy in policies.items():
        probability, mass = replay_with_support(log, policy, logger)
        terms = (probability * log["reward"] / log["propensity"])[shown]
        sums = np.bincount(place, terms, minlength=len(users))
        values[name], influence[name] = float(terms.mean()), ratio_influence(sums, counts)
        uncovered[name] = float(mass[shown].mean())
    return values, influence, uncovered


def error_of(influence: Any) -> float:
    """Standard error of a mean over users."""
    return float(np.std(influence, ddof=1) / math.sqrt(len(influence)))


def table(folder: Path) -> None:
    """Print one line per file of a folder."""
    for file in sorted(folder.glob("*.json")):
        t = json.loads(file.read_text())
        share = t["gap"] / t["value"][t["best"]]
        moved = {n: t["value"][n] - t["on_log"][n] for n in t["value"]}
        most = max(moved, key=lambda n: abs(moved[n]))
        errors = min(t["below_best"][n] / max(t["below_best_ips_se"][n], 1e-12) for n in t["below_best"])
        print(
            f"{t['name']:13s} {t['logging']:34s} items {t['items']:3d} users {t['users']:6,d} rows "
            f"{t['recommendations']:7,d} CTR {t['ctr']:.4f} best {t['best']} gap {t['gap']:.5f} ({share:.1%}) se "
            f"{t['gap_se']:.5f} next {t['second']}, {errors:.1f} errors of IPS, uncovered "
            f"{max(t['uncovered'].values()):.2f}; in the log's states {t['best_on_log']}, moved most {most} "
            f"{moved[most]:+.4f}; CPU {t['cpu']['log']:.1f} log, {t['cpu']['all']:.0f} all"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--module", type=Path, default=HERE / "seen.py")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=float, default=8.0, help="users of the truth, in users of the log")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.table:
        return table(given.out)
    for hidden in worlds_of(given.module):
        file = given.out / f"{hidden.name}.{given.seed}.json"
        if file.exists() or (given.only and hidden.name not in given.only and hidden.family not in given.only):
            continue
        write_json(file, truth_of(hidden, given.seed, given.times))
        print(f"{hidden.name}: written", flush=True)
    return None


if __name__ == "__main__":
    main()
