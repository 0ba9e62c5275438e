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
from recogym_figures import figures_of, jackknife, sums_of

from recsim_mnar.log import Log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import untrained

REFERENCE = Path(__file__).parent / "recogym_reference.json"
CONFIGURATIONS = {c["name"]: c for c in json.loads(REFERENCE.read_text())["configurations"]}

# 10 configurations of some 20 figures each: the largest of 200 standard normals passes 4.5 once in 700 such suites.
LIMIT = 4.5


def sums_of_log(log: Log, n_users: int) -> dict[str, float]:
    sums = sums_of(n_users, log["user"], log.is_bandit, log["item"], log["reward"], log["time"])
    return sums | {"probability": float(np.nansum(log["click_probability"]))}


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


def compare(ours: dict[str, float], errors: dict[str, float], theirs: dict[str, dict[str, float]]) -> None:
    for name, value in ours.items():
        reference = theirs[name]
        error = math.hypot(errors[name], reference["se"])
        assert abs(value - reference["value"]) <= LIMIT * error + 1e-9, (
            f"{name}: {value:.6g}, RecoGym {reference['value']:.6g}, standard error {error:.2g}"
        )


QUICK = ("p100-flips50",)


@pytest.mark.verify
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGURATIONS]
)
def test_agrees_with_recogym(name):
    configuration = CONFIGURATIONS[name]
    params = SessionsParams.from_recogym(configuration["recogym"])
    first = 1000 * list(CONFIGURATIONS).index(name)
    uniform = untrained("random", params.n_items)
    viewed = untrained("user-popularity", params.n_items)
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
        compare(*jackknife(rows[policy], figures_of), configuration["policies"][policy])
    means = {key: float(np.mean([c[key] for c in catalogues])) for key in catalogues[0]}
    errors = {key: float(np.std([c[key] for c in catalogues], ddof=1)) / math.sqrt(len(catalogues)) for key in means}
    compare(means, errors, configuration["catalogue"])
