"""Does clipped IPS on a log with full support hold the truth? 500 logs of a small world, six agents.

    python benchmarks/jeunen2019/interval_coverage.py [--logs N] [--users N] [--keep]

Logging is ``user-popularity+epsilon=0.2``. The truth is ``value_on_log``: the target's exact mean click probability
in the states that this very log met. Beside it, the gap to the on-policy CTR, which single-step weighting does not
estimate.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
from tables import keep

from recsim_mnar.estimators import estimate_value
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.truth import truth
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import sums_by_user
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn", "user-knn")
SETTINGS = ("n_items=50", "n_flips=25", "sigma_mu_organic=0.1", "sigma_omega=0.05")


def study(n_logs: int, n_users: int, seed: int = 5) -> list[dict[str, Any]]:
    """One row per agent: logs covered, by the whole interval and by its sampling part; the gap to the on-policy CTR."""
    world = make_world("sessions", "recogym-v1", SETTINGS)
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, 1000, seed + 1)
    policies = {name: registry.learner(name).fit(train, n_items=world.n_items, seed=0) for name in AGENTS}
    logger = registry.learner("user-popularity+epsilon=0.2").fit(train, n_items=world.n_items, seed=0)
    # One simulation of many users, cut into logs: users are independent, so the pieces are independent logs.
    log = simulate(world, logger, n_logs * n_users, seed)
    decisions, sums = sums_by_user(world, log, policies, seed)
    shown = log.is_bandit
    user, reward, propensity = log["user"][shown], log["reward"][shown], log["propensity"][shown]
    edges = np.searchsorted(user, np.arange(0, (n_logs + 1) * n_users, n_users))
    by_log = decisions.reshape(n_logs, n_users).sum(axis=1)
    on_policy = {r.agent: r.value for r in truth(world, policies, 20_000, seed)}
    rows = []
    for name, policy in policies.items():
        target = replay(log, policy)[shown]
        exact = sums[name].reshape(n_logs, n_users).sum(axis=1) / by_log
        estimates = [
            estimate_value(reward[a:b], propensity[a:b], target[a:b], clip=15.0, cluster=user[a:b])
            for a, b in itertools.pairwise(edges)
        ]
        covered = sum(e.low <= value <= e.high for e, value in zip(estimates, exact, strict=True))
        sampling = sum(
            e.diagnostics["sampling_low"] <= value <= e.diagnostics["sampling_high"]
            for e, value in zip(estimates, exact, strict=True)
        )
        on_log = float(sums[name].sum() / decisions.sum())
        rows.append(
            {
                "agent": name,
                "logs": n_logs,
                "covered": int(covered),
                "covered_by_sampling_part": int(sampling),
                "mean_estimate": float(np.mean([e.value for e in estimates])),
                "value_on_log": on_log,
                "on_policy_ctr": on_policy[name],
                "gap": on_policy[name] / on_log - 1,
                "mean_width": float(np.mean([e.high - e.low for e in estimates])),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--users", type=int, default=200, help="users of a log")
    parser.add_argument("--keep", action="store_true", help="put the rows into the study's results")
    options = parser.parse_args()
    rows = study(options.logs, options.users)
    heads = ("agent", "covered", "by sampling part", "estimate", "value on log", "on-policy CTR", "gap", "width")
    print(
        f"{heads[0]:<16} {heads[1]:>10} {heads[2]:>17} {heads[3]:>10} {heads[4]:>13} {heads[5]:>14} {heads[6]:>8} "
        f"{heads[7]:>8}"
    )
    for row in rows:
        print(
            f"{row['agent']:<16} {row['covered']:>4} / {row['logs']:<3} {row['covered_by_sampling_part']:>11} / "
            f"{row['logs']:<3} {row['mean_estimate']:>10.5f} {row['value_on_log']:>13.5f} "
            f"{row['on_policy_ctr']:>14.5f} "
            f"{row['gap']:>+8.2%} {row['mean_width']:>8.4f}"
        )
    if options.keep:
        keep("interval_coverage", rows)


if __name__ == "__main__":
    main()
