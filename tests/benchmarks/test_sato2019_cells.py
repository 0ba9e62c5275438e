"""The benchmark of Sato et al. 2019: density, cells and their intervals, equations."""

import numpy as np
import pytest

from recsim_mnar.purchases.policies import draw
from recsim_mnar.purchases.uplift import top_items
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld


def test_what_is_judged_without_all_cells_is_what_a_window_judges(sato, log, drawn_scores):
    data, window = sato["logs"].phase(log, "test")
    for seed in range(3):
        lists = top_items(drawn_scores(seed), 4)
        result, ours = window.estimates(lists), sato["logs"].judged(data.exposures, lists, window.periods, log.present)
        for metric in ("uplift", "uplift_snips", "precision"):
            np.testing.assert_allclose(ours[metric], result[metric], rtol=1e-5)
        assert (ours["left_out"], ours["periods_without"]) == (result["left_out"], result["periods_without"])


def test_intervals_of_paired_differences_cover(sato):
    """Users and trainings drawn anew: the 95 % interval covers the truth in 95 % of draws."""
    analysis, g = sato["analysis"], np.random.default_rng(11)
    n_users, n_periods, n_trainings, n_draws, truth = 120, 3, 5, 600, 0.3
    user, period = (x.ravel() for x in np.mgrid[:n_users, :n_periods])
    covered = alone = 0
    for _ in range(n_draws):
        taste = 3.0 * g.normal(size=n_users)[user]  # what a user has in common under all methods
        parts = []
        for shift in (truth, 0.0):
            own = g.normal(size=n_users)[user] * 0.5  # of the method
            level = g.normal(scale=0.15, size=(n_trainings, 1))
            values = shift + taste + own + level + g.normal(scale=0.5, size=(n_trainings, len(user)))
            values[g.random(values.shape) < 0.1] = np.nan
            parts.append(analysis.training_parts(values, user, period))
        _, low, high = analysis.paired_difference(*parts)
        covered += low <= truth <= high
        users_alone = analysis.paired_difference(*((m.mean(keepdims=True), i) for m, i in parts))
        alone += users_alone[1] <= truth <= users_alone[2]
    error = np.sqrt(0.05 * 0.95 / n_draws)
    assert covered / n_draws == pytest.approx(0.95, abs=4 * error)
    assert alone / n_draws < 0.95 - 4 * error  # an interval over users alone would not


@pytest.mark.parametrize("coupling", ["independent", "shared"])
def test_equations_7_and_8_are_shares_of_the_drawn_classes(sato, coupling):
    world = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=-2.0, effect=1.5, coupling=coupling))
    n, n_periods = 300, 60
    result = sato["argument"].equations(world, n, 4)[coupling]["as it is"]
    users, e = np.arange(n), world.deployed_propensities(4, np.arange(n))
    counts = np.zeros(6)
    for t in range(n_periods):
        control, treated = world.potential_outcomes(4, users, t)
        tu = treated & ~control
        z = draw(4, users, t, e, world.params)
        y = np.where(z, treated, control)
        sets = (~z & ~y, tu, tu & ~z & ~y, z & y, tu & z & y, control & ~treated)
        counts += [x.sum() for x in sets]
    nrnp, tu, both, rp, tu_rp, td = counts
    cells = n * 40 * n_periods
    for name, share, size in (
        ("NR-NP", nrnp / cells, cells), ("TU", tu / cells, cells), ("TD", td / cells, cells),
        ("TU in NR-NP", both / cells, cells),
        ("TU given NR-NP", both / nrnp, nrnp), ("TU given R-P", tu_rp / rp, rp),
    ):  # fmt: skip
        assert result[name] == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / size)), name


def test_the_logs_without_an_effect_are_those_with_it_but_for_what_recommendations_cause(sato):
    own = {"users": 200, "world": {"n_items": 30, "n_periods": 4}}
    with_effect, without = (sato["no_effect"].world_of("personalised", effect, 1, own) for effect in (True, False))
    users = np.arange(200)
    truth, nothing = with_effect.outcomes_of(1, users), without.outcomes_of(1, users)
    assert np.array_equal(truth.control, nothing.control)
    assert np.array_equal(nothing.treated, nothing.control)
    assert truth.uplift.mean() > 0.01
    e = [world.deployed_propensities(1, users) for world in (with_effect, without)]
    assert np.array_equal(*e)
