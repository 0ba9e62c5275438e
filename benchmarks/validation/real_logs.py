"""Real logs: ML-100K, the Open Bandit sample, Coat. None of them is shipped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.datasets.open_bandit import CAMPAIGNS, POLICIES, OpenBanditLog, load
from recsim_mnar.datasets.rating_studies import load_coat
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.validation import Validation, log_of_ratings, validate_world
from recsim_mnar.fitting.validation.checks import graded
from recsim_mnar.fitting.validation.out_of_policy import other_policy, random_ratings
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.worlds.ratings.completion import complete
from recsim_mnar.worlds.ratings.world import RatingsWorld

Result = dict[str, Any]
MEMBERS = 20
_KEPT = ("name", "grade", "what", "real", "simulated", "distance", "ceiling", "ceiling_high", "p_adjusted", "says")


def _row(check: Any) -> Result:
    return {name: getattr(check, name) for name in _KEPT}


def ml100k(path: Path, folder: Path) -> Result:
    """Fitted on half of the users, held against the others: real, simulated, ceiling; agents ranked."""
    began = time.process_time()
    data = read_interactions(path)
    found: Validation = validate_world(
        lambda log: calibrate_world(log, "sessions", 0, n_items=data.n_items, ensemble=0),
        data.log,
        0,
        n_items=data.n_items,
    )
    rows = [_row(check) for check in found.checks]
    ranking = found.check("ranking of agents").details
    short = {
        row["name"]: [row["grade"], *(round(row[k], 4) for k in ("real", "simulated", "distance", "ceiling"))]
        for row in rows
    }
    return {"checks": rows, "ranking": ranking, "features": found.check("classifier").details, "short": short,
            "valid_for": found.valid_for, "not_valid_for": found.not_valid_for,
            "cpu_seconds": round(time.process_time() - began, 1)}  # fmt: skip


def log_of(data: OpenBanditLog) -> Log:
    """Each row another user's: the sample has no users."""
    n = len(data)
    return Log({
        "user": np.arange(n), "step": np.zeros(n, np.int32), "time": np.zeros(n),
        "event": np.full(n, schema.BANDIT, np.int8), "action": data.action, "propensity": data.propensity,
        "reward": data.reward,
    })  # fmt: skip


def open_bandit(source: Path, folder: Path) -> Result:
    """Fitted on one policy's log: the other policy's click rate, beside two baselines."""
    pairs = []
    for campaign in CAMPAIGNS:
        data = {policy: load(source, policy=policy, campaign=campaign) for policy in POLICIES}
        for known, other in (POLICIES, POLICIES[::-1]):
            began = time.process_time()
            log = log_of(data[known])
            fitted = calibrate_world(log, "sessions", 0, n_items=data[known].n_actions, ensemble=MEMBERS)
            worlds = [fitted.make(), *(fitted.make(i) for i in range(MEMBERS))]
            check = other_policy(worlds, log, log_of(data[other]), 0)
            pairs.append({"campaign": campaign, "fitted_on": known, "predicts": other, "real": check.real,
                          "predicted": check.simulated, **check.details, "half_gap": check.ceiling * check.real,
                          "own_half_width": (check.details["interval_high"] - check.details["interval_low"]) / 2,
                          **_baseline_intervals(data[known], data[other]),
                          "cpu_seconds": round(time.process_time() - began, 1)})  # fmt: skip
    short = {"inside": sum(p["inside"] for p in pairs), "same_rate_inside": sum(p["same_rate_inside"] for p in pairs),
             "ips_inside": sum(p["ips_inside"] for p in pairs),
             "mean_absolute_error": {name: float(np.mean([abs(get(p) - p["real"]) for p in pairs]))
                                     for name, get in _PREDICTIONS.items()},
             "half_width": {name: float(np.mean([p[f"{key}_half_width"] for p in pairs]))
                            for name, key in (("world", "own"), ("same rate", "same_rate"), ("IPS", "ips"))},
             "pairs": [[p["campaign"], p["fitted_on"], p["inside"],
                        *(round(value, 5) for value in (p["real"], p["predicted"], p["interval_low"],
                                                        p["interval_high"], *p["baselines"].values()))]
                       for p in pairs]}  # fmt: skip
    return {"pairs": pairs, "short": short}


_PREDICTIONS: dict[str, Callable[[Result], float]] = {
    "world": lambda p: p["predicted"],
    "same rate": lambda p: p["baselines"]["the same rate"],
    "IPS": lambda p: p["baselines"]["IPS"],
}


def _baseline_intervals(known: OpenBanditLog, other: OpenBanditLog) -> Result:
    """Whether the other log's rate lies in 95 % intervals around the baselines, both logs' sampling errors included."""
    shares = other.shares(0.0)
    n_items = known.n_actions
    policy = np.bincount(other.action, minlength=n_items) / len(other)
    weight = policy[known.action] / known.propensity
    error = float(other.reward.std() / math.sqrt(len(other)))
    real = float(other.reward.mean())
    out = {}
    for name, rewards in (("same_rate", known.reward), ("ips", weight * known.reward)):
        own = float(rewards.std() / math.sqrt(len(rewards)))
        out[f"{name}_inside"] = bool(abs(float(rewards.mean()) - real) <= 1.96 * math.hypot(own, error))
        out[f"{name}_half_width"] = 1.96 * math.hypot(own, error)
    by_place = shares[known.position, known.action] / known.propensity
    return {**out, "ips_by_position": float(np.mean(by_place * known.reward)), "rows": len(known)}


def coat(source: Path, folder: Path) -> Result:
    """Fitted on the chosen ratings: the ratings of random items, beside what random ratings of others foresee."""
    began = time.process_time()
    study = load_coat(source)
    log, test = log_of_ratings(study.train), log_of_ratings(study.test)
    fitted = calibrate_world(study.train, "ratings", 0, ensemble=MEMBERS)
    worlds = [fitted.make(), *(fitted.make(i) for i in range(MEMBERS))]
    whole = graded(random_ratings(worlds, log, test, 0))
    completed = graded(random_ratings([_completed(study.train, fitted)], log, test, 0))
    held = validate_world(
        lambda part: calibrate_world(part, "ratings", 0, n_items=study.train.n_items, ensemble=0), log, 0,
        ["statistics", "classifier"], n_items=study.train.n_items,
    )  # fmt: skip
    checks = [_row(check) for check in [*held.checks, *whole]]
    more = [_row(check) for check in completed]
    mean = float(study.train.values.mean())
    baselines = {
        "mean of the chosen ratings": mean,
        "its mean squared error": float(np.mean((study.test.values - mean) ** 2)),
    }
    short = {"checks": {row["name"]: _brief(row) for row in checks}, "foreseen": whole[0].details,
             "completed": {row["name"]: _brief(row) for row in more},
             "completed_details": [c.details for c in completed],
             "baselines": baselines}  # fmt: skip
    return {"checks": checks, "completed": more, "short": short, "cpu_seconds": round(time.process_time() - began, 1)}


def _completed(train: Any, fitted: Any) -> RatingsWorld:
    """The chosen ratings completed by factorisation and ranked to the fitted world's marginals."""
    matrix = complete(train, marginals=fitted.params.shares, seed=0).ratings
    return RatingsWorld.from_matrix(matrix, marginals=fitted.params.marginals, alpha=fitted.params.alpha)


def _brief(row: Result) -> list[Any]:
    return [row["grade"], *(round(row[k], 4) for k in ("real", "simulated", "distance", "ceiling"))]


PARTS: dict[str, Callable[[Path, Path], Result]] = {"ml100k": ml100k, "open_bandit": open_bandit, "coat": coat}
