import numpy as np
import pytest

from recsim_mnar.policies import registry
from recsim_mnar.purchases import policies
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy, draw, exposures_of
from recsim_mnar.purchases.world import COUPLINGS, PRESETS, PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.pools import pool
from toys import refused
from twins import purchases as twin
from twins.purchases_log import propensity_matrix

SMALL = {"n_items": 9, "n_periods": 3, "slate_size": 3, "base": -1.0, "smallest_propensity": 0.05}


def world_of(**params):
    return PurchasesWorld(PurchasesParams(**{**SMALL, **params}))


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("mode", ["independent", "fixed"])
@pytest.mark.parametrize("deployment", ["uniform", "popularity", "personalised"])
def test_the_log_is_that_of_the_plain_twin(mode, deployment, coupling):
    world = world_of(slates=mode, deployment=deployment, rank_decay="log", coupling=coupling)
    log = simulate(world, DeployedPolicy(world), 4, seed=5, first_user=2).validate(n_items=9)
    for user in range(2, 6):
        own = log.select(log["user"] == user)
        found = [
            (t, "bandit", a, p, r) if b else (t, "organic", i, None, None)
            for t, b, i, a, p, r in zip(
                own["time"], own.is_bandit, own["item"], own["action"], own["propensity"], own["reward"], strict=True
            )
        ]
        assert found == twin.rows(world, 5, user)


def test_scaled_chances_are_those_of_plain_bisection():
    from recsim_mnar.purchases import _slates_kernel

    weights = np.random.default_rng(0).random((20, 30)) ** 6 + 1e-9
    out = np.empty_like(weights)
    for size, low, high in ((3.0, 1e-3, 0.5), (1.0, 1e-6, 1 - 1e-6), (14.0, 0.01, 0.5)):
        _slates_kernel.scale_rows(weights, size, low, high, out)
        for row, own in zip(weights, out, strict=True):
            assert np.allclose(own, twin.scaled(row, size, low, high), rtol=1e-8)
            assert abs(own.sum() - size) < 1e-9 * size


def test_one_uniform_for_both_outcomes_changes_no_purchase_without_a_recommendation():
    apart, together = (world_of(coupling=coupling) for coupling in COUPLINGS)
    users = np.arange(400)
    control, treated = apart.potential_outcomes(3, users, 1)
    same_control, other_treated = together.potential_outcomes(3, users, 1)
    assert np.array_equal(control, same_control)
    assert not np.array_equal(treated, other_treated)
    truth = together.outcomes_of(3, users)
    assert not (same_control & ~other_treated)[truth.uplift >= 0].any()  # no drop where a recommendation helps
    assert not (other_treated & ~same_control)[truth.uplift <= 0].any()
    assert (control & ~treated)[truth.uplift >= 0].any()  # drawn apart there are such
    assert np.array_equal(truth.uplift, apart.outcomes_of(3, users).uplift)


def test_a_recommendation_without_effect_changes_no_purchase_where_one_uniform_is_shared():
    same = np.full((1, 9), 0.4)
    changed = {}
    for coupling in COUPLINGS:
        world = PurchasesWorld(PurchasesParams(**SMALL, coupling=coupling), control=same, treated=same)
        control, treated = world.potential_outcomes(3, np.arange(400), 1)
        changed[coupling] = (control != treated).mean()
    assert changed["shared"] == 0
    assert changed["independent"] == pytest.approx(2 * 0.4 * 0.6, abs=4 * np.sqrt(0.25 / 3600))


def test_an_unknown_coupling_is_refused():
    with refused("coupling"):
        world_of(coupling="opposed")


@pytest.mark.verify
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_cells_are_shown_and_bought_as_often_as_stated(coupling):
    """Counts against their binomial law, and how Y^C and Y^T go together; 4.5 standard errors, some 700 comparisons."""
    params = PurchasesParams(**SMALL, coupling=coupling)
    base = PurchasesWorld(params)
    truth = base.outcomes_of(1, np.arange(6))
    world = PurchasesWorld(params, control=truth.control, treated=truth.treated)
    n = 6 * 2000
    users = np.arange(n)
    for mode in ("independent", "fixed"):
        probability = world.deployed_propensities(0, users)
        shown = draw(3, users, 1, probability, PurchasesParams(**{**SMALL, "slates": mode}))
        share = shown.reshape(2000, 6, 9).mean(axis=0)
        error = np.sqrt(probability[:6] * (1 - probability[:6]) / 2000)
        assert np.abs((share - probability[:6]) / error).max() < 4.5
        if mode == "fixed":
            assert np.all(shown.sum(axis=1) == 3)
    control, treated = world.potential_outcomes(3, users, 2)
    both = (control & treated).reshape(2000, 6, 9).mean(axis=0)
    for share, probability in (
        (control.reshape(2000, 6, 9).mean(axis=0), truth.control),
        (treated.reshape(2000, 6, 9).mean(axis=0), truth.treated),
        (both, np.minimum(truth.control, truth.treated) if coupling == "shared" else truth.control * truth.treated),
    ):
        assert np.abs((share - probability) / np.sqrt(probability * (1 - probability) / 2000)).max() < 4.5


def test_two_recommenders_share_what_would_have_been_bought():
    """Common random numbers: outcomes belong to the cell, not to who recommends."""
    world = world_of(slate_size=4)
    control, treated = world.potential_outcomes(8, np.arange(30), 1)
    for deployment in ("uniform", "popularity"):
        other = world_of(slate_size=4, deployment=deployment)
        recommended, purchased = Exposures.from_log(
            simulate(other, DeployedPolicy(other), 30, 8), n_users=30, n_items=9, n_periods=3
        ).flags(np.arange(30)[:, None], np.arange(9), 1)
        assert np.array_equal(purchased, np.where(recommended, treated, control))


@pytest.mark.parametrize("name", ["random", "popularity", "user-popularity-greedy", "deployed"])
def test_any_agent_recommends_with_known_propensities_whoever_computes_them(name, monkeypatch):
    world = world_of(n_items=12, slate_size=4)
    train = simulate(world, DeployedPolicy(world), 40, 1)
    policy = DeployedPolicy(world) if name == "deployed" else registry.learner(name).fit(train, n_items=12, seed=0)
    log = simulate(world, policy, 25, 2)
    with pool(3) as executor:
        monkeypatch.setattr(policies, "_CELLS", 7 * 12)
        monkeypatch.setattr("recsim_mnar.simulation.executor.SHARD_USERS", 10)
        assert simulate(world, policy, 25, 2, executor=executor).digest() == log.digest()
    exposures = exposures_of(world, policy, log, 25, 2)
    shown = log.is_bandit
    logged = Exposures.from_log(log).propensity_of(0, 0, 0)  # a log alone does not know what was not recommended
    assert np.isnan(logged)
    at = exposures.propensity_of(log["user"][shown], log["action"][shown], log["time"][shown].astype(int))
    assert np.allclose(at, log["propensity"][shown], rtol=1e-6)
    users = propensity_matrix(exposures, 2).sum(axis=1)
    assert np.allclose(users, 4, rtol=1e-5)
    if name == "random":
        assert np.allclose(exposures.propensities, 4 / 12)
    if name == "user-popularity-greedy":
        assert exposures.propensities.shape == (25, 12, 3)
        assert np.ptp(exposures.propensities, axis=2).max() > 0


def test_given_probabilities_are_used_row_by_row():
    control, treated = np.full((2, 9), 0.1), np.full((2, 9), [0.9])
    control[1], treated[1] = 0.0, 1.0
    world = PurchasesWorld.from_matrices(control, treated, np.full((2, 9), 0.5), slate_size=3)
    assert world.params.n_periods == 1
    log = simulate(world, DeployedPolicy(world), 41, 0)
    exposures = Exposures.from_log(log, n_users=41, n_items=9, n_periods=1)
    recommended, purchased = exposures.flags(np.arange(41)[:, None], np.arange(9), 0)
    odd = np.arange(41) % 2 == 1
    assert np.array_equal(recommended[odd], purchased[odd])
    assert np.allclose(world.slate_uplift(0, [0, 1], [[0, 1, 2], [0, 0, 4]]), [2.4, 2.0])


def test_presets_hold_up():
    for params, _text in PRESETS.values():
        probability = PurchasesWorld(params).deployed_propensities(0, np.arange(5))
        assert np.allclose(probability.sum(axis=1), params.slate_size)
        assert params.smallest_propensity <= probability.min() < probability.max() <= params.largest_propensity or (
            params.deployment == "uniform"
        )
