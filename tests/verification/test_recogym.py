"""The sessions world against RecoGym's own figures, configuration by configuration.

``recogym_reference.json`` was measured on RecoGym 0.1.3 itself by ``recogym_reference.py``, with standard errors by
jackknife over catalogues; ours are made the same way on catalogues of our own.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

REFERENCE = Path(__file__).parent / "recogym_reference.json"
CONFIGURATIONS = {c["name"]: c for c in json.loads(REFERENCE.read_text())["configurations"]}

# 10 configurations of some 20 figures each: the largest of 200 standard normals passes 4.5 once in 700 such suites.
LIMIT = 4.5


def sums_of_log(log: Log, n_users: int) -> dict[str, float]:
    """What the figures of a policy are ratios of."""
    user, shown, item = log["user"], log.is_bandit, log["item"]
    same = user[1:] == user[:-1]
    starts = np.append(True, ~same | (shown[1:] != shown[:-1]))
    steps = np.diff(log["time"])[same]
    both_views = same & ~shown[1:] & ~shown[:-1]
    return {
        "users": n_users,
        "views": float((~shown).sum()),
        "decisions": float(shown.sum()),
        "organic_sessions": float((starts & ~shown).sum()),
        "bandit_sessions": float((starts & shown).sum()),
        "never": n_users - len(np.unique(user[shown])),
        "clicks": float(np.nansum(log["reward"])),
        "probability": float(np.nansum(log["click_probability"])),
        "steps": len(steps),
        "time": float(steps.sum()),
        "time2": float((steps**2).sum()),
        "distinct": len(np.unique(user[~shown] * 100_000 + item[~shown])),
        "pairs": float(both_views.sum()),
        "repeats": float((both_views & (item[1:] == item[:-1])).sum()),
    }


def figures_of_log(s: dict[str, float]) -> dict[str, float]:
    mean = s["time"] / s["steps"]
    return {
        "organic_events_per_user": s["views"] / s["users"],
        "bandit_events_per_user": s["decisions"] / s["users"],
        "organic_session_length": s["views"] / s["organic_sessions"],
        "bandit_session_length": s["decisions"] / s["bandit_sessions"],
        "share_users_without_bandit": s["never"] / s["users"],
        "ctr": s["clicks"] / s["decisions"],
        "mean_click_probability": s["probability"] / s["decisions"],
        "time_step_mean": mean,
        "time_step_sd": math.sqrt(max(s["time2"] / s["steps"] - mean**2, 0.0)),
        "distinct_items_per_view": s["distinct"] / s["views"],
        "repeat_view_share": s["repeats"] / s["pairs"],
    }


def figures_of_catalogue(world: SessionsWorld, draws: np.ndarray) -> dict[str, float]:
    """Popularity against clicks, both averaged over interests from the initial distribution."""
    from scipy.stats import spearmanr

    share, click = np.zeros(world.n_items), np.zeros(world.n_items)
    for part in np.array_split(draws, max(1, world.n_items * len(draws) // 1_000_000)):
        share += world.view_probabilities(part).sum(axis=0)
        click += world.click_probabilities(part).sum(axis=0)
    return {
        "pearson_log_view_share_click": float(np.corrcoef(np.log(share), click)[0, 1]),
        "spearman_view_share_click": float(spearmanr(share, click).statistic),
        "mean_click_probability_of_all": float(click.mean() / len(draws)),
        "click_probability_sd_over_items": float(click.std() / len(draws)),
    }


def jackknife(rows: list[dict[str, float]], figures) -> tuple[dict[str, float], dict[str, float]]:
    """Figures of the pooled sums, and their standard errors over catalogues."""
    names = list(rows[0])
    table = np.array([[row[name] for name in names] for row in rows])
    total = table.sum(axis=0)
    whole = figures(dict(zip(names, total, strict=True)))
    without = [figures(dict(zip(names, total - row, strict=True))) for row in table]
    n = len(rows)
    errors = {}
    for name in whole:
        x = np.array([figure[name] for figure in without])
        errors[name] = math.sqrt((n - 1) / n * float(((x - x.mean()) ** 2).sum()))
    return whole, errors


def compare(ours: dict[str, float], errors: dict[str, float], theirs: dict[str, dict[str, float]]) -> None:
    for name, value in ours.items():
        reference = theirs[name]
        error = math.hypot(errors[name], reference["se"])
        assert abs(value - reference["value"]) <= LIMIT * error + 1e-9, (
            f"{name}: {value:.6g}, RecoGym {reference['value']:.6g}, standard error {error:.2g}"
        )


QUICK = ("p10-flips3", "p100-flips50")


@pytest.mark.verify
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGURATIONS],
)
def test_agrees_with_recogym(name):
    configuration = CONFIGURATIONS[name]
    params = SessionsParams.from_recogym(configuration["recogym"])
    first = 1000 * list(CONFIGURATIONS).index(name)
    uniform = registry.learner("random").fit(Log({}), n_items=params.n_items, seed=0)
    viewed = registry.learner("user-popularity").fit(Log({}), n_items=params.n_items, seed=0)
    policies = {"uniform": uniform, "user-views": viewed}
    rows = {policy: [] for policy in policies}
    catalogues = []
    for j in range(configuration["catalogues"]):
        world = SessionsWorld(dataclasses.replace(params, catalogue_seed=first + j))
        for policy, acting in policies.items():
            n = configuration["users_per_catalogue"][policy]
            rows[policy].append(sums_of_log(simulate(world, acting, n, seed=first + j, keep_truth=True), n))
        if j < 24:  # the expensive part, and its spread over catalogues is small
            rng = np.random.default_rng(first + j)
            draws = rng.normal(0, params.sigma_omega_initial, (1000, params.n_factors))
            catalogues.append(figures_of_catalogue(world, draws))
    for policy in policies:
        compare(*jackknife(rows[policy], figures_of_log), configuration["policies"][policy])
    means = {key: float(np.mean([c[key] for c in catalogues])) for key in catalogues[0]}
    errors = {key: float(np.std([c[key] for c in catalogues], ddof=1)) / math.sqrt(len(catalogues)) for key in means}
    compare(means, errors, configuration["catalogue"])
