"""The average effect of the study of verdicts: by hand and against the truth of a world."""

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate
from twins.purchases_log import of_grid, random_grid

study = study_module("verdict", "average_effect")
EFFECTS, average_effect = study.EFFECTS, study.average_effect


def test_effects_are_the_papers_equations():
    z, y, e = random_grid()
    exposures, e = of_grid(z, y, e), e.astype(np.float64)
    naive = y[z].mean() - y[~z].mean()
    ips = ((z * y / e) - (~z * y / (1 - e))).mean()
    snips = (z * y / e).sum() / (z / e).sum() - (~z * y / (1 - e)).sum() / (~z / (1 - e)).sum()
    for name, value in zip(EFFECTS, (naive, ips, snips), strict=True):
        assert average_effect(exposures, name).value == pytest.approx(value, rel=1e-6)
    one = average_effect(exposures, "snips", periods=[1]).value
    assert one == pytest.approx(average_effect(of_grid(z[:, :, 1:], y[:, :, 1:], e[:, :, 1:]), "snips").value)
    constant = of_grid(z, y, np.full((1, 1, 1), 0.3))
    assert average_effect(constant, "snips").value == pytest.approx(naive)
    everywhere = lambda u, i, t: np.full(len(u), 0.3)  # noqa: E731
    assert average_effect(constant.with_propensities(everywhere), "ips").value == average_effect(constant, "ips").value


@pytest.mark.verify
@pytest.mark.slow
@pytest.mark.parametrize("deployment", ["uniform", "personalised"])
def test_weighted_effects_are_unbiased_and_their_intervals_cover(deployment):
    """300 logs of 100 users: the bias within three and a half standard errors, and three below 95 % covered."""
    params = PurchasesParams(
        n_items=60, n_periods=1, slate_size=10, deployment=deployment, base=-2.5, smallest_propensity=0.01, exponent=1.0
    )
    truth = PurchasesWorld(params).outcomes_of(0, np.arange(100))
    world = PurchasesWorld(params, control=truth.control, treated=truth.treated)
    e = world.deployed_propensities(0, np.arange(100))[:, :, None]
    true, values, covered = float(truth.uplift.mean()), {}, {}
    for seed in range(300):
        log = simulate(world, DeployedPolicy(world), 100, seed)
        exposures = Exposures.from_log(log, n_users=100, n_items=60, n_periods=1, propensities=e)
        for name in EFFECTS:
            estimate = average_effect(exposures, name)
            values.setdefault(name, []).append(estimate.value - true)
            covered.setdefault(name, []).append(estimate.low <= true <= estimate.high)
    bias = {name: (np.mean(v), np.std(v, ddof=1) / np.sqrt(300)) for name, v in values.items()}
    for name in EFFECTS if deployment == "uniform" else ("ips", "snips"):
        assert abs(bias[name][0]) < 3.5 * bias[name][1], name
        assert np.mean(covered[name]) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300), name
    if deployment == "personalised":
        assert bias["naive"][0] > 10 * bias["naive"][1]
