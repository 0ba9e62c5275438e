import numpy as np
import pytest

from recsim_mnar import rng
from recsim_mnar.agents.factors import mf
from recsim_mnar.agents.factors.mf import MFIPS, MFPolicy
from recsim_mnar.policies import registry
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import untrained
from twins.logs import log_of

N_ITEMS = 12
WORLD = make_world("sessions", "recogym-v1", [f"n_items={N_ITEMS}", "n_flips=6", "sigma_mu_organic=1"])
FIXED = "+spread=0.02+offset_spread=0.1+map_spread=0"


def uniform(n_items=N_ITEMS):
    return untrained("random", n_items)


LOG = simulate(WORLD, uniform(), 300, 3)


def test_scores_are_the_fitted_model_and_unseen_users_are_folded_in():
    policy = MFIPS(rank=3, spread=0.02, offset_spread=0.1, map_spread=0.1).fit(LOG, n_items=N_ITEMS)
    assert isinstance(policy, MFPolicy)
    users = np.array([2**50, 2**50 + 9])
    policy.reset(users)
    policy.observe(np.full(3, users[0]), np.array([1, 1, 5]))
    h = np.zeros(N_ITEMS)
    h[[1, 5]] = 2, 1
    arrays, found = policy.fitted()
    expected = (h @ arrays["mapping"]) @ arrays["factors"] / (3 + found["shrinkage"]) + arrays["offsets"]
    scores = policy.scores(users)
    assert scores[0] == pytest.approx(expected, abs=1e-6)
    assert scores[1] == pytest.approx(arrays["offsets"], abs=1e-6)


def test_weights_undo_a_skewed_logging_policy():
    both = [registry.learner(name + FIXED).fit(LOG, n_items=N_ITEMS) for name in ("mf-naive", "mf-ips")]
    np.testing.assert_allclose(both[0].fitted()[0]["offsets"], both[1].fitted()[0]["offsets"])  # uniform logging
    # Item 0 pays 1 to users of kind A (they viewed item 0), 0 to kind B; it was recommended to A far more often.
    g = np.random.default_rng(0)
    n = 4000
    kind = g.integers(0, 2, n)
    shown = np.where(g.random(n) < np.where(kind == 0, 0.9, 0.1), 0, 1)
    p = np.where(shown == 0, np.where(kind == 0, 0.9, 0.1), np.where(kind == 0, 0.1, 0.9))
    reward = np.where(shown == 0, (kind == 0) * 1.0, 0.6)

    def pairs(view, decision):
        return np.stack(np.broadcast_arrays(view, decision), 1).ravel()

    users, columns = np.repeat(np.arange(n), 2), (pairs(np.nan, p), pairs(np.nan, reward))
    log = log_of(users, pairs(kind, -1), pairs(-1, shown), *columns)
    # Factors held at 0: the model sees no kinds, so only weights can separate 1/2 from the logged mean of .9.
    constant = "+spread=0.000001+offset_spread=100+map_spread=0+rank=1+shrinkage=1000000000"
    naive, weighted = (
        registry.learner(name + constant).fit(log, n_items=2).fitted()[0]["offsets"] for name in ("mf-naive", "mf-ips")
    )
    # 4,000 users: a standard error of at most sqrt(1 / .1 / 4000) = .05 of the weighted mean.
    assert weighted == pytest.approx([0.5, 0.6], abs=0.15)
    assert naive[0] == pytest.approx(0.9, abs=0.03)
    assert weighted.argmax() == 1
    assert naive.argmax() == 0


def test_chosen_settings_are_kept_and_make_the_same_policy():
    learner = MFIPS()
    chosen = learner.chosen_on(LOG, n_items=N_ITEMS, seed=4)
    assert learner.spread == "auto"
    assert all(isinstance(s, float) for s in (chosen.spread, chosen.offset_spread, chosen.map_spread))
    first, second = (a.fit(LOG, n_items=N_ITEMS, seed=4) for a in (learner, chosen))
    assert first.describe() == second.describe()
    np.testing.assert_allclose(first.fitted()[0]["factors"], second.fitted()[0]["factors"], rtol=1e-6, atol=1e-12)


def counting(original, calls):
    def counted(*arguments, **named):
        calls.append(original)
        return original(*arguments, **named)

    return counted


def test_leave_one_out_chooses_once(monkeypatch):
    made, scored = [], []
    monkeypatch.setattr(MFIPS, "chosen_on", counting(MFIPS.chosen_on, made))
    monkeypatch.setattr(mf._Problem, "_score", counting(mf._Problem._score, scored))
    records = leave_one_out(LOG, {"a": registry.learner("mf-ips+epsilon=0.1")}, n_items=N_ITEMS, folds=3)
    assert len(made) == 1
    in_all = len(scored)
    MFIPS().chosen_on(LOG, n_items=N_ITEMS)
    assert len(scored) == 2 * in_all  # no cross-validation but the one
    assert 0.0 < records[0].value < 1.0


@pytest.mark.verify
def test_where_views_mislead_mf_ips_beats_what_learns_from_views():
    world = make_world("sessions", "recogym-v1", ["n_items=20", "n_flips=10", "sigma_mu_organic=3"])
    log = simulate(world, uniform(20), 4000, 1)
    ctr = {}
    for name in ("mf-ips", "popularity", "svd", "item-knn"):
        arm = run_arm(world, registry.learner(name).fit(log, n_items=20), 1000, rng.derive_seed(1, "arm"))
        ctr[name] = arm.means.sum() / arm.decisions.sum()
    assert ctr.pop("mf-ips") > 1.2 * max(ctr.values())
