"""What the learning agents draw their samples from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from recsim_mnar.agents.purchases.learners import BPR, RMF, ULBPR, ULRMF, RecResp
from recsim_mnar.agents.purchases.training import NP, NR_NP, NR_P, R_NP, R_P, Observed, P, Plan, Stratum
from recsim_mnar.purchases.exposures import Exposures
from twins.purchases_log import small_exposures
from twins.training import classes_of, draw

LEARNERS = (BPR(), BPR(draw="cell"), RMF(), ULRMF(alpha=0.3), ULBPR(alpha=0.4), RecResp(gamma_r=0.3))


@pytest.fixture(scope="module")
def observed():
    return Observed.of(small_exposures().classes())


def test_rows_hold_the_flags_of_every_cell(observed):
    exposures = small_exposures()
    met = 0
    grid = np.ix_(np.arange(exposures.n_users), np.arange(exposures.n_items))
    for row, (user, period) in enumerate(zip(observed.user, observed.period, strict=True)):
        shown, bought = exposures.flags(*grid, int(period))
        parts = classes_of(observed, row)
        for mask, r, p in ((R_P, True, True), (R_NP, True, False), (NR_P, False, True), (NR_NP, False, False)):
            assert parts[mask] == np.flatnonzero((shown[user] == r) & (bought[user] == p)).tolist()
            assert observed.sizes(mask)[row] == len(parts[mask])
        assert bought[user].any()
        met += 1
    assert met == sum(len(exposures.active_users(t)) for t in range(exposures.n_periods))


def test_some_periods_alone():
    exposures = small_exposures()
    alone = Observed.of(exposures.classes([2]))
    assert set(alone.period.tolist()) == {2}
    np.testing.assert_array_equal(alone.user, exposures.active_users(2))


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_draws_are_the_twins(observed, learner):
    plan = learner.plan(observed)
    by = "cell" if getattr(learner, "draw", "") == "cell" else "row"
    users, ones, others, strata, parts, places = plan.draw(11, 5, 200)
    for s in range(200):
        user, item, other, k, part = draw(plan, 11, 5 + s, by)
        assert (users[s], ones[s], strata[s], parts[s]) == (user, item, k, part)
        if other is not None:
            assert others[s] == other
        assert places[s] == -1 if part == NR_NP else observed.items[places[s]] == item


def test_a_sample_depends_on_its_number_alone(observed):
    plan = ULBPR().plan(observed)
    whole = plan.draw(3, 0, 500)
    for first, n in ((0, 1), (17, 100), (499, 1)):
        for all_of_it, part in zip(whole, plan.draw(3, first, n), strict=True):
            np.testing.assert_array_equal(all_of_it[first : first + n], part)
    assert not np.array_equal(whole[1], plan.draw(4, 0, 500)[1])


def test_users_in_one_class_only_are_passed_over():
    """User 0 buys only what is recommended, user 1 only what is not, user 2 bought all there is."""
    user = [0, 1, 2, 2, 2]
    item = [0, 1, 0, 1, 2]
    shown = [True, False, True, False, False]
    exposures = Exposures(user, item, np.zeros(5), shown, np.ones(5, bool), n_users=3, n_items=3, n_periods=1)
    observed = Observed.of(exposures.classes())
    plan = Plan.of(observed, [Stratum(0.5, R_P, NP), Stratum(0.5, NR_P, R_P)])
    users, ones, others, strata, _, _ = plan.draw(0, 0, 300)
    assert set(users[strata == 0]) == {0}
    assert set(users[strata == 1]) == {2}
    assert set(ones[strata == 1]) == {1, 2}
    assert set(others[strata == 1]) == {0}


def test_views_are_purchases_of_one_period():
    counts = sparse.csr_array(np.array([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]))
    observed = Observed.of_counts(counts)
    assert observed.user.tolist() == [0, 2]
    assert classes_of(observed, 0) == {1: [1, 2], 2: [], 4: [], 8: [0, 3]}
    users = Plan.of(observed, [Stratum(1.0, P, NP)]).draw(0, 0, 50)[0]
    assert set(users) == {0}  # user 2 viewed all there is: no pair can be made
