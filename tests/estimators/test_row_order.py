"""Carry-over and staying, from rows in their order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.limits import STRICT
from recsim_mnar.estimators.off_policy.row_order import (
    OrderSums,
    earlier_showings,
    moved_by,
    order_findings,
    sums_of_products,
    tiring,
)
from twins.log_checks import order_numbers


def log(seed, users=400, rows=15, repeat=1.0, stay=(0.95, 0.95), rate=0.3, items=4):
    """Reward, propensity, target and user; rewards after a repeated item are ``repeat`` times as likely."""
    rng = np.random.default_rng(seed)
    shape = (users, rows)
    action = rng.integers(0, items, shape)
    base = rate * np.exp(0.4 * rng.standard_normal((users, 1)))
    chance = np.minimum(base * (1.0 + 0.3 * (action == 0)), 0.95)
    chance[:, 1:] *= np.where(action[:, 1:] == action[:, :-1], repeat, 1.0)
    goes_on = rng.random(shape) < np.where(action == 0, stay[0], stay[1])
    here = np.ones(shape, bool)
    here[:, 1:] = np.cumprod(goes_on[:, :-1], axis=1) > 0
    target = np.where(action == 0, 0.7, 0.3 / (items - 1))
    user = np.broadcast_to(np.arange(users)[:, None], shape)
    reward = (rng.random(shape) < chance).astype(float)
    return reward[here], np.full(here.sum(), 1.0 / items), target[here], user[here]


def gathered(columns):
    sums = OrderSums()
    sums.extend(*columns)
    return sums


def test_the_sums_are_those_of_the_twin():
    reward, propensity, target, user = log(1, users=50)
    numbers = np.array(list(order_numbers(reward, target / propensity, user).values())).T
    found = gathered((reward, propensity, target, user))
    assert found.products.pairs.sum(axis=0) == pytest.approx(sums_of_products(numbers), rel=1e-11, abs=1e-9)
    places = [c for k in (1, 2, 3, 4) for c in itertools.combinations_with_replacement(range(4), k)]
    plain = [sum(np.prod(numbers[list(c), u]) for u in range(50)) for c in places]
    assert sums_of_products(numbers) == pytest.approx(plain, rel=1e-11, abs=1e-9)


def test_users_may_come_in_any_order_and_in_blocks():
    """Each user's rows stay in their order."""
    columns = log(2, users=3000)  # more rows than are summed at once
    whole = gathered(columns)
    mixed = np.argsort(np.random.default_rng(0).random(columns[0].size) + np.arange(columns[0].size) * 1e-4)
    mixed = mixed[np.argsort(columns[3][mixed] % 5, kind="stable")]
    back = np.lexsort((mixed, columns[3][mixed]))  # no user's rows may change their order
    mixed[np.argsort(columns[3][mixed], kind="stable")] = mixed[back]
    interleaved = gathered(tuple(c[mixed] for c in columns))
    halves = [gathered(tuple(c[part] for c in columns)) for part in (columns[3] < 1000, columns[3] >= 1000)]
    for other in (interleaved, halves[0] + halves[1]):
        assert other.carry_over(0.95) == pytest.approx(whole.carry_over(0.95), rel=1e-9)
        assert other.staying(0.95) == pytest.approx(whole.staying(0.95), rel=1e-9)


def test_the_effects_are_the_exact_ones():
    """Users of two decisions, every outcome enumerated; the second comes with probability .9, after item 0 .6."""
    share, target, rate = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6]), np.array([0.3, 0.5, 0.6])
    w, stay = target / share, np.array([0.6, 0.9, 0.9])
    numbers, chances = [], []
    for a, b, follows in itertools.product(range(3), range(3), (True, False)):
        chance = share[a] * (stay[a] if follows else 1.0 - stay[a]) * share[b]
        earned = rate[b] * (0.4 if a == b else 1.0)
        numbers.append([1.0 + follows, w[a] * rate[a] + follows * w[b] * earned, w[a] + follows * w[b],
                        follows * (w[a] - 1.0) * w[b] * earned, follows * (w[a] - 1.0) * w[b],
                        follows * (w[a] - 1.0)])  # fmt: skip
        chances.append(chance)
    mean = np.array(chances) @ np.array(numbers)
    carry = (mean[3] - mean[1] / mean[2] * mean[4]) / mean[0]
    rng = np.random.default_rng(3)
    users = 200_000
    a, b = (rng.choice(3, users, p=share) for _ in range(2))
    follows = rng.random(users) < stay[a]
    first = rng.random(users) < rate[a]
    second = rng.random(users) < rate[b] * np.where(a == b, 0.4, 1.0)
    user = np.concatenate([np.arange(users), np.flatnonzero(follows)])
    action = np.concatenate([a, b[follows]])
    reward = np.concatenate([first, second[follows]]).astype(float)
    found = gathered((reward, share[action], target[action], user))
    level = 1.0 - 1e-5
    for (value, low, high), truth in ((found.carry_over(level), carry), (found.staying(level), mean[5] / mean[0])):
        assert low < truth < high
        assert high - low < abs(truth)  # or it would hold anything
        assert low < value < high


@pytest.mark.parametrize("rate", [0.3, 0.03])
def test_logs_without_effects_keep_their_trust(rate):
    """Whatever the width that is compared with: here 0, so that every test that rejects is a finding."""
    found = sum(bool(order_findings(*log([4, seed], rate=rate), half_width=0.0)) for seed in range(200))
    assert found <= stats.binom.isf(1e-4, 200, 2.0 * (1.0 - STRICT))


@pytest.mark.parametrize(("code", "kind"), [("carry_over", {"repeat": 0.3}), ("staying", {"stay": (0.75, 0.97)})])
def test_a_tired_user_and_who_leaves_are_found(code, kind):
    logs = [log([5 if code == "carry_over" else 6, seed], users=800, **kind) for seed in range(20)]
    found = [{f.code for f in order_findings(*columns, half_width=0.02)} for columns in logs]
    assert sum(code in codes for codes in found) >= stats.binom.isf(1 - 1e-4, 20, 0.9)
    assert code == "staying" or not any("staying" in codes for codes in found)


def test_an_effect_within_the_interval_takes_no_trust():
    columns = log(7, users=800, repeat=0.3, stay=(0.75, 0.97))
    assert {f.code for f in order_findings(*columns, half_width=0.02)} == {"carry_over", "staying"}
    assert order_findings(*columns, half_width=5.0) == []


def test_the_effect_does_not_depend_on_where_rewards_are_counted_from():
    reward, propensity, target, user = log(8, repeat=0.3)
    one = gathered((reward, propensity, target, user)).carry_over(0.95)
    shifted = OrderSums(shift=1000.0)
    shifted.extend(reward + 1000.0, propensity, target, user)
    assert shifted.carry_over(0.95) == pytest.approx(one, rel=1e-9)
    assert gathered((reward + 10.0, propensity, target, user)).carry_over(0.95) == pytest.approx(one, rel=1e-6)
    plain, far = (order_findings(r, propensity, target, user, half_width=0.02) for r in (reward, reward + 1000.0))
    assert [(f.code, f.message) for f in far if f.code == "carry_over"] == [(f.code, f.message) for f in plain]
    with pytest.raises(UserError, match="same shift"):
        shifted + gathered((reward, propensity, target, user))


def test_nothing_is_said_without_users_or_without_a_second_row():
    reward, propensity, target, user = log(9)
    assert order_findings(reward, propensity, target, None, half_width=0.0) == []
    assert order_findings(reward, propensity, target, np.arange(reward.size), half_width=0.0) == []
    few = user < 20
    assert order_findings(reward[few], propensity[few], target[few], user[few], half_width=0.0) == []


def test_a_pair_of_heavy_weights_that_was_not_seen_has_its_room():
    """Weights of 20 that never follow one another: one more pair of them, fully rewarded, and more by chance."""
    rng = np.random.default_rng(10)
    user = np.repeat(np.arange(300), 4)
    heavy = (np.arange(1200) % 4 == 0) & (rng.random(1200) < 0.1)
    reward = (rng.random(1200) < 0.2).astype(float)
    sums = gathered((reward, np.where(heavy, 0.05, 0.95), np.where(heavy, 1.0, 0.0), user))
    effect, low, high = sums.carry_over(0.95)
    assert high - effect >= 3.0 * 20.0 * 19.0 * (1.0 - sums.value) / 1200
    assert effect - low >= 3.0 * 20.0 * 19.0 * sums.value / 1200
    change, _, high = sums.staying(0.95)
    assert high - change >= 3.0 * 19.0 / 1200


def pairs(user, within):
    """Two decisions of a user, at most ``within`` apart."""
    every = itertools.combinations(range(len(user)), 2)
    return [(i, j) for i, j in every if user[i] == user[j] and j - i <= within]


USER, REWARD = np.array([0, 0, 0, 0, 0, 3, 3]), np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
PROPENSITY = np.array([0.5, 0.2, 0.4, 0.4, 0.5, 0.2, 0.8])


@pytest.mark.parametrize(("uniform", "within"), [(True, 3), (False, 3), (False, 1)])
def test_tiring_is_the_ratio_of_ratios(uniform, within):
    rows = [(0, 1, 1.0), (0, 1, 0.0), (0, 2, 1.0), (0, 1, 1.0), (0, 1, 0.0), (1, 3, 1.0), (1, 3, 1.0), (1, 1, 1.0)]
    user, action, reward = (np.array(column) for column in zip(*rows, strict=True))
    sums = np.zeros(4)
    for i, j in pairs(user, within):
        k = 0 if action[i] == action[j] else 2
        sums[k : k + 2] += reward[j], 1.0 if uniform else reward[i]
    propensity = np.full(8, 0.5) if uniform else np.linspace(0.1, 0.8, 8)
    effect, low, high = tiring(user, action, reward, propensity, within, 0.95)
    assert effect == pytest.approx(np.log(sums[0] / sums[1]) - np.log(sums[2] / sums[3]))
    assert low < effect < high


@pytest.mark.parametrize("within", [1, 2, 60])
def test_the_past_is_a_sum_over_the_decisions_before(within):
    action, weight = np.array([1, 0, 1, 1, 0, 0, 0]), np.array([1.0, 0.0, 2.5, 0.5, 1.0, 0.5, 1.25])
    showings = np.zeros(7)
    for i, j in pairs(USER, within):
        showings[j] += (action[i] == action[j]) / PROPENSITY[i] - 1.0
    assert earlier_showings(USER, action, PROPENSITY, within) == pytest.approx(showings)
    effect, low, high = moved_by(USER, REWARD, weight, showings, 0.95)
    assert effect == pytest.approx(np.mean(weight * (REWARD - weight @ REWARD / weight.sum()) * showings))
    assert low < effect < high
