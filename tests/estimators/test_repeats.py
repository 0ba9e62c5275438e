"""What a user was shown before: the kernel against its definition, planted effects, and logs without any."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar import difference, estimate
from recsim_mnar.estimators import Facts
from recsim_mnar.estimators.repeats import WITHIN, RepeatSums
from recsim_mnar.log.columns import Clusters
from twins.findings import codes


def life(seed, *, factor=1.0, last=1.0, loud=1.0, users=500, rows=20, items=10, tastes=0.7, personal=False):
    """A log of users with tastes of their own.

    Args:
        factor: of what an item earns that its user was shown before, at any distance.
        last: of what it earns where the row before had it.
        loud: of all that a user earns after item 0, for five rows.
        personal: whether the logger knows the tastes; else all items are equally likely.
    """
    rng = np.random.default_rng(seed)
    liked = np.exp(tastes * rng.standard_normal((users, items)))
    base = 0.05 + 0.15 * rng.random(items)
    law = np.full((users, items), 1.0 / items)
    if personal:
        law = 0.1 / items + 0.9 * base * liked / (base * liked).sum(1, keepdims=True)
    lots = rng.random((users, rows, 1))
    action = (np.cumsum(law, 1)[:, None] < lots).sum(2).clip(max=items - 1)
    chance = np.take_along_axis(base * liked, action, 1)
    for i in range(rows):
        seen = (action[:, :i] == action[:, i : i + 1]).any(1)
        chance[:, i] *= np.where(seen, factor, 1.0) * np.where((action[:, max(i - 5, 0) : i] == 0).any(1), loud, 1.0)
        if i:
            chance[:, i] *= np.where(action[:, i] == action[:, i - 1], last, 1.0)
    reward = (rng.random(action.shape) < chance.clip(max=0.9)).astype(float)
    best = int(np.argmax(base))
    return {
        "reward": reward.ravel(),
        "propensity": np.take_along_axis(law, action, 1).ravel(),
        "action": action.ravel(),
        "user": np.repeat(np.arange(users), rows),
        "target": np.where(action == best, 0.91, 0.01).ravel(),
    }


def sums_of(log):
    return RepeatSums.of(log["reward"], log["propensity"], log["action"], log["user"])


def found_in(sums):
    return {finding.code for finding in sums.findings()}


def by_definition(log):
    """Scores (2, 3), totals (3, 4) and counts (5,) by loops over pairs of rows of a user."""
    reward, action, user = (log[name] for name in ("reward", "action", "user"))
    weight = 1 / log["propensity"]
    hit = reward != 0
    mean = {k: np.average(reward[action == k], weights=weight[action == k]) for k in np.unique(action)}
    scores = np.zeros((user.max() + 1, 3))
    before, last = np.zeros((2, 2, 2))  # of the same item and of another one: the row's reward and the earlier one's
    after_hit, long_after_hit = np.zeros((2, 2))
    counts = np.zeros(5, int)
    for t in range(len(reward)):
        earlier = [s for s in range(t) if user[s] == user[t]]
        same = [s for s in earlier if action[s] == action[t]]
        surplus = (reward[t] - mean[action[t]]) * weight[t]
        scores[user[t], 0] += surplus * (sum(weight[s] for s in same) - len(earlier))
        for s in earlier:
            before[int(s not in same)] += reward[t], reward[s]
        counts[int(not same)] += 1
        counts[2] += hit[t]
        if earlier:
            again = t - 1 in same
            scores[user[t], 1] += surplus * (again * weight[t - 1] - 1)
            scores[user[t], 2] += again * weight[t] - 1
            last[int(not again)] += reward[t], reward[t - 1]
            if again and hit[t - 1]:
                counts[3] += 1
                after_hit += hit[t] * weight[t], weight[t]
        apart = [s for s in same if s < t - 1 and hit[s]]
        counts[4] += bool(apart)
        share = sum(1 / (np.sum(user == user[t]) - 2 - (s - earlier[0])) for s in apart)
        long_after_hit += hit[t] * share * weight[t], share * weight[t]
    totals = np.concatenate([before.ravel(), last.ravel(), after_hit, long_after_hit])
    return np.stack([scores.sum(0), (scores**2).sum(0)]), totals.reshape(3, 4), counts


@pytest.mark.parametrize("personal", [False, True])
def test_the_kernel_is_its_definition(personal):
    log = life(3, users=30, rows=8, items=4, personal=personal)
    log["reward"] = log["reward"] * np.arange(1, 1 + 30 * 8) % 3
    sums = sums_of(log)
    scores, totals, counts = by_definition(log)
    np.testing.assert_allclose(sums.scores[:, :3], scores, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(sums.totals, totals, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(sums.counts, counts)


def test_later_rewards_are_of_the_next_rows_and_of_the_other_half():
    log = life(4, users=40, rows=14, items=3)
    reward = log["reward"].reshape(40, 14)
    surplus = np.pad(reward - reward.mean(), ((0, 0), (0, WITHIN)))
    later = np.stack([surplus[:, t + 1 : t + 1 + WITHIN].sum(axis=1) for t in range(13)], axis=1)
    later = 3.0 * (later - later.mean())
    action = log["action"].reshape(40, 14)[:, :13]
    expected = np.zeros(2)
    for half in (0, 1):
        effects = []
        for item in range(3):
            rewards = later[half::2][action[half::2] == item]
            effects.append(rewards.sum() / np.sum(rewards**2))
        centred = effects - np.mean(effects)
        expected[1 - half] = np.sum(centred[action[1 - half :: 2]] * later[1 - half :: 2])
    np.testing.assert_allclose(sums_of(log).scores[0, 3:], expected, rtol=1e-6)


def test_blocks_add_up():
    log = life(5, users=200)
    in_blocks = RepeatSums()
    parts = []
    for users in (log["user"] < 90, log["user"] >= 90):
        rows = {name: values[users] for name, values in log.items()}
        in_blocks.extend(rows["reward"], rows["propensity"], rows["action"], Clusters(rows["user"], None))
        parts.append(sums_of(rows))
    expected = sums_of(log)
    for sums in (in_blocks, parts[0] + parts[1]):
        np.testing.assert_allclose(sums.totals, expected.totals, rtol=1e-6)
        np.testing.assert_array_equal(sums.counts, expected.counts)
        assert sums.ratio(0) == pytest.approx(expected.ratio(0))


@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("effect", [{"factor": 0.5}, {"last": 0.2}, {"factor": 2.0}])
def test_an_item_that_was_shown_before_is_found(effect, personal):
    assert "shown_before" in found_in(sums_of(life(1, users=1500, personal=personal, **effect)))


def test_an_effect_that_lasts_is_found():
    assert "lasts" in found_in(sums_of(life(1, users=1500, loud=0.4)))


@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("tastes", [0.0, 1.0])
def test_tastes_are_no_effect(personal, tastes):
    """Users with tastes, which the logger follows, are shown what they like again and again."""
    for seed in range(10):
        assert not found_in(sums_of(life(seed, tastes=tastes, personal=personal)))


def copied(log, share=0.3):
    """The log, some of its rows once more right behind."""
    n = len(log["reward"])
    twice = np.repeat(np.arange(n), 1 + (np.random.default_rng(0).random(n) < share))
    return {name: values[twice] for name, values in log.items()}


@pytest.mark.parametrize("personal", [False, True])
def test_rows_written_twice_are_copies_and_no_effect(personal):
    assert found_in(sums_of(copied(life(1, personal=personal)))) == {"copied_rows"}


def test_a_tired_log_is_trusted_no_more():
    """Every fact is true, and an A/B test of whole users finds less: an item that was shown before earns half."""
    log = life(2, factor=0.5, users=2000)
    columns = (log["reward"], log["propensity"], log["target"])
    options = {"cluster": log["user"], "action": log["action"], "facts": Facts(propensity_min=0.1)}
    gap = difference(*columns, log["propensity"], **options)
    assert gap.low > 0.0
    for result in (gap, estimate(*columns, **options)):
        assert not result.trusted
        assert "shown_before" in codes(result)


def test_few_rows_and_single_rows_say_nothing():
    sums = sums_of(life(1, users=1500, rows=1))
    assert sums.score(0) == 0.0
    assert not found_in(sums)
    assert math.isfinite(sums_of(life(1, users=3, rows=2)).lasting_score)
