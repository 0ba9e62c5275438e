"""Refuters: each finds the fault it is for, and right logs hardly ever give a finding."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.estimators.checks import STRICT
from recsim_mnar.estimators.refuters import ALARM, last_from_0, refute
from recsim_mnar.log.columns import Clusters
from toys import refused

ALL = {"item_propensities", "earlier_rewards", "tastes", "halves"}


def as_logged(logged, x, taste, liked, rng):
    return logged[x]


def log(seed, users=600, actual=as_logged, items=5):
    """A log of users with tastes and activities of their own, in two contexts; ``actual`` gives the chances."""
    rng = np.random.default_rng(seed)
    n = users * 20
    user = np.repeat(np.arange(users), 20)
    taste = rng.integers(0, 2, users)[user]
    x = rng.integers(0, 2, n)
    logged = 0.7 * rng.dirichlet(np.full(items, 2.0), 2) + 0.3 / items
    liked = 0.2 * np.exp(0.6 * rng.standard_normal((2, items)))
    new = rng.dirichlet(np.full(items, 2.0), 2)
    chances = actual(logged, x, taste, liked, rng)
    if actual is taste_left_out:
        by_taste = logged[None] * (liked**2)[:, None]
        logged = (by_taste / by_taste.sum(axis=2, keepdims=True)).mean(axis=0)
    action = (np.cumsum(chances, axis=1) > rng.random((n, 1)) * chances.sum(axis=1, keepdims=True)).argmax(axis=1)
    active = np.exp(0.7 * rng.standard_normal(users))[user]
    reward = (rng.random(n) < np.minimum(liked[taste, action] * active, 0.95)).astype(float)
    return {"reward": reward, "propensity": logged[x, action], "target": new[x, action], "cluster": user,
            "action": action, "context": x}  # fmt: skip


def by_little(logged, x, taste, liked, rng):
    return logged[x] * np.where(np.arange(logged.shape[1]) % 2, 1.1, 0.9)


def taste_left_out(logged, x, taste, liked, rng):
    return logged[x] * liked[taste] ** 2


def new_version(logged, x, taste, liked, rng):
    late = np.arange(x.size)[:, None] > x.size // 2
    return np.where(late, np.roll(logged, 1, axis=1)[x], logged[x])


def grave(columns, **options):
    """Codes of findings that speak against trust."""
    return {finding.code for finding in refute(**columns | options) if finding.severity >= 1.0}


def severities(columns):
    return {finding.code: finding.severity for finding in refute(**columns)}


def reordered(columns, order):
    return {name: values[order] for name, values in columns.items()}


@pytest.mark.slow
@pytest.mark.verify
def test_right_logs_give_hardly_a_finding():
    """``ALARM`` for all tests together, and two at the strict level."""
    alarms = sum(bool(grave(log([1, seed]))) for seed in range(100))
    assert alarms <= stats.binom.isf(1e-4, 100, ALARM + 2.0 * (1.0 - STRICT))


def test_a_test_without_a_finding_is_reported():
    columns = log(2)
    assert severities(columns) == dict.fromkeys(ALL, 0.0)
    assert severities(columns | {"cluster": None}).keys() == ALL - {"earlier_rewards", "tastes"}
    del columns["action"], columns["context"]
    assert severities(columns).keys() == {"halves"}


@pytest.mark.parametrize(
    ("actual", "code"),
    [(taste_left_out, "tastes"), (new_version, "item_propensities")],
)
def test_propensities_of_another_policy_are_found(actual, code):
    assert sum(code in grave(log([3, seed], actual=actual, users=1500)) for seed in range(10)) >= 8


def test_small_errors_of_many_items_are_found_together():
    """In logs in which none is proved alone: the score finds some of them."""
    messages = []
    for seed in range(10):
        columns = log([4, seed], items=40, users=800, actual=by_little) | {"context": None}
        messages += [finding.message for finding in refute(**columns) if finding.code == "item_propensities"]
    together = sum("together" in message for message in messages)
    proved = sum("proved wrong" in message for message in messages)
    assert together > proved
    assert together + proved >= 8


def test_rewards_in_the_row_before_their_own_are_found():
    columns = log(5, users=2000)
    columns["reward"] = np.append(columns["reward"][1:], 0.0)
    assert "earlier_rewards" in grave(columns)


def test_rewards_that_fall_are_found_and_a_time_column_is_used():
    columns = log(7)
    n = columns["reward"].size
    late = np.arange(n) > n // 2
    columns["reward"] = columns["reward"] * ~(late & (np.random.default_rng(0).random(n) < 0.6))
    assert "halves" in grave(columns)
    order = np.argsort(np.random.default_rng(1).random(600)[columns["cluster"]], kind="stable")  # users in any order
    mixed = reordered(columns, order)
    assert "halves" in grave(mixed, time=order)
    assert "halves" not in grave(mixed)


def test_a_learner_is_found_out_only_where_it_was_fitted_on_the_log():
    columns = log(8, users=200)
    cell = columns["context"] * 40 + columns["cluster"] % 40

    def fit(reward, rows=slice(None)):
        """The best action of each of 80 cells by the rewards of some rows."""
        number = (5 * cell + columns["action"])[rows]
        means = np.bincount(number, reward[rows], 400) / np.maximum(np.bincount(number, minlength=400), 1)
        return (means.reshape(80, 5).argmax(axis=1)[cell] == columns["action"]) * 1.0

    assert "refit" in grave(columns | {"target": fit(columns["reward"])}, refit=fit)
    first = columns["cluster"] < 100

    def fit_elsewhere(reward):
        """On permuted rewards of the other users, whose permutation goes with that of these."""
        everything = np.zeros(first.size)
        everything[first] = reward[: first.sum()]
        return fit(everything, first)[~first]

    rest = reordered(columns, ~first)
    rest["target"] = fit(columns["reward"], first)[~first]
    assert "refit" not in grave(rest, refit=fit_elsewhere)


def test_one_draw_for_all_rows_of_a_user_is_no_fault():
    rng = np.random.default_rng(9)
    user = np.repeat(np.arange(2000), 10)
    action = rng.integers(0, 4, 2000)[user]
    reward = (rng.random(user.size) < 0.1 + 0.1 * action).astype(float)
    columns = {"reward": reward, "propensity": np.full(user.size, 0.25), "target": (action == 3) * 1.0}
    assert severities(columns | {"cluster": user, "action": action}) == {"halves": 0.0, "item_propensities": 0.0}


def test_rows_of_users_may_be_interleaved():
    columns = log(10, users=300, actual=taste_left_out)
    order = np.argsort(np.arange(6000) % 20, kind="stable")  # every user's first rows, then the second ones
    mixed = refute(**reordered(columns, order))
    for finding, other in zip(refute(**columns), mixed, strict=True):
        if finding.code in ("item_propensities", "earlier_rewards", "tastes"):
            assert other.number == pytest.approx(finding.number, rel=1e-9)


def test_a_target_that_the_log_never_took_is_refused():
    with refused("none of the logged actions"):
        refute([0.0, 1.0], [0.5, 0.5], [0.0, 0.0])


def test_the_last_of_a_user_is_the_users_own():
    rng = np.random.default_rng(11)
    user = rng.integers(0, 6, 80)
    liked = rng.integers(-1, 3, 80)
    latest = np.full(6, -1)
    expected = []
    for number, value in zip(user, liked, strict=True):
        expected.append(latest[number])
        if value >= 0:
            latest[number] = value
    np.testing.assert_array_equal(last_from_0(liked, Clusters.of(user, 80)), expected)
