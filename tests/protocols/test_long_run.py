"""The long-run rate from lives that halt at occasions, compared with lives that are lived in full."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from recsim_mnar.kernels import _vectors_kernel
from recsim_mnar.policies import registry
from recsim_mnar.protocols import decisions as module
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.protocols.decisions import SHARE, asks_at_occasions, interval, long_run, truth, without_controls
from recsim_mnar.protocols.records import HALF_WIDTHS, half_width, ratio_influence
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first
from twins.policies import OrderReader

AGENTS = ("svd", "random", "popularity", "user-popularity", "item-knn", "user-knn")
SMALL = SessionsParams(n_items=40, n_flips=20, sigma_mu_organic=0.1, sigma_omega=0.05)


def fitted(world, *names):
    log = simulate(world, registry.uniform_policy(world.n_items), 300, 77)
    return {name: registry.learner(name).fit(log, n_items=world.n_items, seed=0) for name in names}


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SMALL)


@pytest.fixture(scope="module")
def policies(world):
    return fitted(world, *AGENTS)


@pytest.mark.parametrize(
    "params",
    [
        SMALL,
        SessionsParams(n_items=40, clock="normal", sigma_omega=0.2),
        SessionsParams(n_items=40, drift_in_bandit=True),
    ],
    ids=["unit", "normal clock", "drift in bandit"],
)
def test_occasions_are_the_decisions_of_plain_lives_that_a_click_could_follow(params, monkeypatch):
    monkeypatch.setattr(module, "_DRAWS", 1)  # what is shown alone
    world = SessionsWorld(params)
    policy = fitted(world, "svd")["svd"]
    log = simulate(world, policy, 200, 5, keep_truth=True)
    shown = log.is_bandit
    user = log["user"][shown]
    drawn = uniforms(5, Stream.RESPONSE, user, np.arange(len(user)) - np.searchsorted(user, user))
    share = world.open_occasions(1, views=True).share
    at = drawn < share
    expected = np.bincount(user[at], log["click_probability"][shown][at], minlength=200)
    sums = module._simulate_occasions(world, policy, 5, np.arange(200))
    np.testing.assert_allclose(sums[0], expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(sums[1], np.bincount(user[at], minlength=200))
    assert log["reward"][shown][~at].sum() == 0


@pytest.mark.verify
@pytest.mark.parametrize("name", quick_first(AGENTS))
def test_control_variates_have_expectation_zero(world, policies, name):
    sums = module._simulate_occasions(world, policies[name], 11, np.arange(20_000))
    controls = sums[2:]
    z = controls.mean(axis=1) / (controls.std(axis=1) / np.sqrt(controls.shape[1]))
    assert np.abs(z).max() < 4.3  # of 45: one in 1,300 by chance
    assert (z * z).mean() < 2.0


@pytest.mark.verify
@pytest.mark.parametrize("name", quick_first(AGENTS))
def test_the_rate_is_that_of_plain_lives_and_its_interval_no_wider(world, policies, name):
    n = 12_000
    arm = run_arm(world, policies[name], n, 21)
    plain = arm.means.sum() / arm.decisions.sum()
    spread = ratio_influence(arm.means, arm.decisions).std() / np.sqrt(n)
    found = long_run(world, policies[name], int(SHARE * n), 22)
    low, high = interval(found, 0.95)
    half = (high - low) / 2.0
    assert abs(found.value - plain) < 4.0 * np.hypot(spread, half / 1.96)
    assert half < 1.96 * spread * 1.03


def test_every_worker_has_users_to_follow(world, policies, monkeypatch):
    given = []
    lives = module._simulate_occasions
    monkeypatch.setattr(module, "_simulate_occasions", lambda *asked: given.append(len(asked[-1])) or lives(*asked))
    monkeypatch.setattr(module, "SHARD_USERS", 64)
    alone = long_run(world, policies["user-knn"], 600, 3)
    assert given == [600]
    with ThreadPoolExecutor(2) as executor:
        shared = long_run(world, policies["user-knn"], 600, 3, executor=executor)
    assert sorted(given[1:]) == [150] * 4
    assert alone.value == shared.value
    np.testing.assert_array_equal(alone.influence, shared.influence)


def test_who_is_asked_at_occasions(world, policies):
    class Own(SessionsWorld):
        pass

    assert all(asks_at_occasions(world, policy) for policy in policies.values())
    assert not asks_at_occasions(Own(SMALL), policies["svd"])
    assert not asks_at_occasions(world, OrderReader(40))
    assert not asks_at_occasions(make_world("ratings"), policies["svd"])


def test_policies_of_both_kinds_stand_side_by_side(world, policies):
    known = {
        r.agent: r
        for r in truth(
            world, {"svd": policies["svd"], "item-knn": policies["item-knn"], "order": OrderReader(40)}, 1000, 4
        )
    }
    assert known["svd"].details["method"] == "occasions"
    assert known["order"].details["method"] == "lives"
    assert set(known["svd"].details[HALF_WIDTHS]) == {"item-knn"}
    assert half_width(known["svd"], known["order"]) > 0.0


def test_fewer_users_live_plainly(world, policies):
    (record,) = truth(world, {"svd": policies["svd"]}, 200, 4)
    assert (record.details["method"], record.details["users"]) == ("lives", 200)


def test_controls_are_left_alone_where_values_are_few():
    values = np.arange(12.0)
    left, n = without_controls(values, np.ones((2, 12)))
    assert n == 0
    np.testing.assert_array_equal(left, values)


def test_controls_that_explain_everything_leave_nothing():
    control = np.random.default_rng(0).normal(size=(2, 400))
    left, n = without_controls(3.0 * control[0] - control[1], control)
    assert n == 2
    np.testing.assert_allclose(left, 0.0, atol=1e-12)


@pytest.mark.parametrize("n", [0, 5, 8, 1023, 1024, 1033, 2500])
def test_products_of_rows_twin(n):
    rows = np.random.default_rng(n).normal(size=(4, n)) * [[1e-3], [1.0], [1e3], [1.0]]
    lanes = np.zeros((4, 4, 8))
    whole = n - n % 8
    for first in range(0, whole, 8):
        eight = rows[:, first : first + 8]
        lanes += eight[:, None] * eight[None]
    s = [lanes[:, :, k] for k in range(8)]
    expected = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    for column in rows[:, whole:].T:
        expected = expected + column[:, None] * column[None]
    found = np.full((4, 4), np.nan)
    _vectors_kernel.gram(rows, np.zeros((4, 4, 8)), found)
    np.testing.assert_array_equal(found, expected)
