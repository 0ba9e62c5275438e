"""Refuters: each finds the fault it is for, and right logs hardly ever give a finding."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import STRICT
from recsim_mnar.estimators.refuters import ALARM, last_from_0, refute
from recsim_mnar.log.columns import Clusters

ALL = {"item_propensities", "earlier_rewards", "tastes", "halves"}


def log(seed, users=600, actual=None, items=5):
    """A log of users with tastes and activities of their own, in two contexts; ``actual`` gives what chooses."""
    rng = np.random.default_rng(seed)
    n, user = users * 20, np.repeat(np.arange(users), 20)
    taste, x = rng.integers(0, 2, users)[user], rng.integers(0, 2, n)
    logged = 0.7 * rng.dirichlet(np.full(items, 2.0), 2) + 0.3 / items
    liked = 0.2 * np.exp(0.6 * rng.standard_normal((2, items)))
    new = rng.dirichlet(np.full(items, 2.0), 2)
    chances = logged[x] if actual is None else actual(logged, x, taste, liked, rng)
    if actual is taste_left_out:
        by_taste = logged[None] * (liked**2)[:, None]
        logged = (by_taste / by_taste.sum(axis=2, keepdims=True)).mean(axis=0)
    action = (np.cumsum(chances, axis=1) > rng.random((n, 1)) * chances.sum(axis=1, keepdims=True)).argmax(axis=1)
    active = np.exp(0.7 * rng.standard_normal(users))[user]
    reward = (rng.random(n) < np.minimum(liked[taste, action] * active, 0.95)).astype(float)
    return {"reward": reward, "propensity": logged[x, action], "target": new[x, action], "cluster": user,
            "action": action, "context": x}  # fmt: skip


def changed(logged, x, taste, liked, rng):
    return logged[x] * np.exp(0.5 * rng.standard_normal(logged.shape[1]))


def by_little(logged, x, taste, liked, rng):
    return logged[x] * np.where(np.arange(logged.shape[1]) % 2, 1.1, 0.9)


def taste_left_out(logged, x, taste, liked, rng):
    return logged[x] * liked[taste] ** 2


def new_version(logged, x, taste, liked, rng):
    late = np.arange(x.size)[:, None] > x.size // 2
    return np.where(late, np.roll(logged, 1, axis=1)[x], logged[x])


def found(columns, **more):
    return {finding.code for finding in refute(**columns | more) if finding.severity >= 1.0}


@pytest.mark.slow
@pytest.mark.verify
def test_right_logs_give_hardly_a_finding():
    """``ALARM`` for all tests together, and two at the strict level."""
    alarms = sum(bool(found(log([1, seed]))) for seed in range(100))
    assert alarms <= stats.binom.isf(1e-4, 100, ALARM + 2.0 * (1.0 - STRICT))


def test_what_was_run_is_reported():
    columns = log(2)
    assert {f.code: f.severity for f in refute(**columns)} == dict.fromkeys(ALL, 0.0)
    alone = columns | {"cluster": None}
    assert {f.code for f in refute(**alone)} == ALL - {"earlier_rewards", "tastes"}
    short = {name: columns[name] for name in ("reward", "propensity", "target", "cluster")}
    assert {f.code for f in refute(**short)} == {"halves"}


@pytest.mark.parametrize(
    ("actual", "code"),
    [(changed, "item_propensities"), (taste_left_out, "tastes"), (new_version, "item_propensities")],
)
def test_propensities_of_another_policy_are_found(actual, code):
    times = sum(code in found(log([3, seed], actual=actual, users=1500)) for seed in range(10))
    assert times >= 8


def test_small_errors_of_many_items_are_found_together():
    """In logs in which none is proved alone: the score finds some of them."""
    proved = together = 0
    for seed in range(10):
        columns = log([4, seed], items=40, users=800, actual=by_little) | {"context": None}
        messages = [f.message for f in refute(**columns) if f.code == "item_propensities"]
        together += "together" in messages[0]
        proved += "proved wrong" in messages[0]
    assert together > proved
    assert together + proved >= 8


def test_rewards_in_the_row_before_their_own_are_found():
    columns = log(5, users=2000)
    columns["reward"] = np.append(columns["reward"][1:], 0.0)
    assert "earlier_rewards" in found(columns)


def test_rewards_that_fall_are_found_and_a_time_column_is_used():
    columns = log(7)
    late = np.arange(columns["reward"].size) > columns["reward"].size // 2
    columns["reward"] = columns["reward"] * ~(late & (np.random.default_rng(0).random(late.size) < 0.6))
    assert "halves" in found(columns)
    order = np.argsort(np.random.default_rng(1).random(600)[columns["cluster"]], kind="stable")  # users in any order
    mixed = {name: values[order] for name, values in columns.items()}
    assert "halves" in found(mixed, time=np.arange(late.size)[order])
    assert "halves" not in found(mixed)


def test_a_learner_is_found_out_only_where_it_was_fitted_on_the_log():
    columns = log(8, users=200)
    cell = columns["context"] * 5 * 40 + columns["cluster"] % 40 * 5

    def fit(reward, rows=slice(None)):
        counts = np.bincount((cell + columns["action"])[rows], minlength=400)
        means = np.bincount((cell + columns["action"])[rows], reward[rows], 400) / np.maximum(counts, 1)
        return (means.reshape(80, 5).argmax(axis=1)[cell // 5] == columns["action"]) * 1.0

    assert "refit" in found(columns | {"target": fit(columns["reward"])}, refit=fit)
    first = columns["cluster"] < 100
    rest = {name: values[~first] for name, values in columns.items()}

    def fit_elsewhere(reward):
        """On permuted rewards of the other users, whose permutation goes with that of these."""
        everything = np.zeros(first.size)
        everything[first] = reward[: first.sum()]
        return fit(everything, first)[~first]

    rest["target"] = fit(columns["reward"], first)[~first]
    assert "refit" not in found(rest, refit=fit_elsewhere)


def test_one_draw_for_all_rows_of_a_user_is_no_fault():
    rng = np.random.default_rng(9)
    user = np.repeat(np.arange(2000), 10)
    action = rng.integers(0, 4, 2000)[user]
    reward = (rng.random(user.size) < 0.1 + 0.1 * action).astype(float)
    findings = refute(reward, np.full(user.size, 0.25), (action == 3) * 1.0, cluster=user, action=action)
    assert {f.code: f.severity for f in findings} == {"halves": 0.0, "item_propensities": 0.0}


def test_rows_of_users_may_be_interleaved():
    columns = log(10, users=300, actual=taste_left_out)
    order = np.argsort(np.arange(6000) % 20, kind="stable")  # every user's first rows, then the second ones
    mixed = {name: values[order] for name, values in columns.items()}
    for one, other in zip(refute(**columns), refute(**mixed), strict=True):
        if one.code in ("item_propensities", "earlier_rewards", "tastes"):
            assert other.number == pytest.approx(one.number, rel=1e-9)


def test_a_target_that_the_log_never_took_is_refused():
    with pytest.raises(UserError, match="none of the logged actions"):
        refute([0.0, 1.0], [0.5, 0.5], [0.0, 0.0])


def test_what_came_before_is_the_users_own():
    rng = np.random.default_rng(11)
    user, liked = rng.integers(0, 6, 80), rng.integers(-1, 3, 80)
    last = []
    for row in range(80):
        own = [liked[i] for i in range(row) if user[i] == user[row]]
        last.append(next((v for v in reversed(own) if v >= 0), -1))
    clusters = Clusters.of(user, 80)
    assert last_from_0(liked, clusters).tolist() == last
