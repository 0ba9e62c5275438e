"""Item weights: sums against plain twins, the gradient, what the search finds, and what a wrong call gets."""

import itertools

import numpy as np
import pytest

from recsim_mnar.campaigns.platform import platform_log, run_campaigns
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import BOUND, Divergence, fit_item_weights, most_moved
from recsim_mnar.log import Log
from recsim_mnar.worlds import make_world
from toys import refused
from twins import campaigns as twin
from twins.logs import log_of, random_log


@pytest.fixture(scope="module")
def two_times():
    """Profiles of a small platform before and after its campaigns."""
    log = platform_log(run_campaigns(make_world("campaigns", "quick"), 3))
    return Profiles.of(log, 300, 60), Profiles.of(log, 500, 60)


def test_profiles_count_each_pair_once_and_only_what_was_added():
    item, action, reward = [3, -1, 3, -1, 0, -1], [-1, 2, -1, 1, -1, 4], [np.nan, 1, np.nan, 0, np.nan, 1]
    log = log_of([1, 1, 1, 1, 2, 5], item, action, 1.0, reward, time=[0.0, 1, 2, 3, 9, 4])
    profiles = Profiles.of(log, 5, 5)
    assert profiles.users.tolist() == [1, 5]
    assert profiles.items.tolist() == [3, 2, 4]
    assert profiles.causes.tolist() == [-1, 0, 0]
    np.testing.assert_allclose(profiles.item_probabilities(), [0, 0, 0.25, 0.25, 0.5])
    np.testing.assert_array_equal(profiles.item_probabilities(), twin.item_probabilities(profiles))
    late = Profiles.of(log.with_column("added", np.array([0.0, 7, 2, np.nan, 9, 4])), 5, 5)
    assert late.items.tolist() == [3, 4]
    kept = profiles.pairs(profiles.items != 4)
    assert (kept.users.tolist(), kept.starts.tolist(), kept.items.tolist()) == ([1], [0, 2], [3, 2])
    assert Profiles.of(profiles.to_log(), 5, 5).items.tolist() == profiles.items.tolist()
    for of, until, n_items, says in (
        (log, -1, 5, "reference time -1 is without users: the first addition is at 0"),
        (log, 5, 4, "the log has 4"),
        (log, np.nan, 5, "finite"),
        (Log({}), 1, 5, "no addition at all"),
    ):
        with refused(says):
            Profiles.of(of, until, n_items)


def test_a_file_without_times_is_refused(tmp_path):
    from recsim_mnar.datasets.interactions import read_interactions

    path = tmp_path / "mine.csv"
    path.write_text("user,item\n1,2\n1,3\n")
    data = read_interactions(path)
    with refused(r"mine\.csv has no times"):
        Profiles.of(data.log, 0, data.n_items)


def test_marginals_value_and_gradient_are_those_of_the_definition(two_times):
    """The gradient by a five-point rule: its error is of order h ** 4, so what is left is rounding."""
    before, now = two_times
    reference = before.item_probabilities()
    divergence, theta, h = Divergence(now, reference), 0.5 * np.random.default_rng(1).normal(size=60), 1e-3
    w = np.exp(theta)
    p1, on = twin.item_probabilities(now, w), reference > 0
    np.testing.assert_allclose(divergence.marginals(w), p1, rtol=1e-12)
    value, gradient = divergence.value_and_gradient(w)
    np.testing.assert_allclose(value, (reference[on] * np.log(reference[on] / p1[on])).sum(), rtol=1e-10)
    for k, step in enumerate(h * np.eye(60)):
        at = [divergence.value_and_gradient(np.exp(theta + s * step))[0] for s in (-2, -1, 1, 2)]
        assert abs((at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h) - gradient[k]) < 1e-8


def test_all_weights_give_the_reference_back(two_times):
    before, now = two_times
    reference = before.item_probabilities()
    fit = fit_item_weights(now, reference)
    assert abs(fit.divergence) < 1e-10 < fit.divergence_before
    np.testing.assert_allclose(twin.item_probabilities(now, fit.weights), reference, atol=1e-7)
    assert fit.details["users_with_one_item"] == (now.lengths() == 1).sum()


def test_the_p_items_that_moved_most_are_weighed(two_times):
    before, now = two_times
    reference, plain = before.item_probabilities(), now.item_probabilities()
    values = []
    for p in (0, 5, 20, 60):
        fit = fit_item_weights(now, reference, p)
        moved = np.argsort(-np.abs(reference - plain), kind="stable")[:p]
        assert (np.flatnonzero(fit.weights != 1.0) == np.sort(moved)).all() or p == 60
        np.testing.assert_array_equal(fit.active, most_moved(reference, plain, p))
        values.append(fit.divergence)
    assert values == sorted(values, reverse=True)
    np.testing.assert_array_equal(fit_item_weights(now, reference, 0).weights, 1.0)


def test_items_absent_at_the_reference_stay_bounded():
    n = 200
    user = np.repeat(np.arange(n), 3)
    item = np.stack([np.arange(n) % 4, 4 + np.arange(n) % 3, np.full(n, 7)], axis=1).ravel()
    time = np.where(item == 7, 1.0, 0.0)
    log = log_of(user, item, time=time)
    before, now = Profiles.of(log, 0, 8), Profiles.of(log, 1, 8)
    fit = fit_item_weights(now, before.item_probabilities())
    assert np.exp(-2 * BOUND) <= fit.weights.min() < 1e-4
    assert fit.divergence < 1e-4
    assert fit.details["items_new_since_reference"] == 1
    assert fit.details["pairs_with_new_items"] == n
    assert fit.details["weights_at_a_bound"] >= 1


def test_users_with_one_item_cannot_respond():
    """Where everybody holds one item no weight changes anything, and the count says so."""
    user = np.arange(30)
    log = log_of(user, user % 3, time=0.1 * user)
    before, now = Profiles.of(log, 1, 3), Profiles.of(log, 3, 3)
    fit = fit_item_weights(now, before.item_probabilities())
    assert fit.details["users_with_one_item"] == now.n_users
    np.testing.assert_allclose(fit.divergence, fit.divergence_before)


def test_bad_input(two_times):
    before, now = two_times
    reference = before.item_probabilities()
    gone = now.pairs(now.items != 5)
    for of, at, options, says in (
        *((now, reference, {"p": p}, "p must be") for p in (61, -1, 2.5, True)),
        (now, reference, {"max_iterations": 2}, "do not converge"),
        (now, reference[:5], {}, "shape"),
        (gone, np.full(60, 1 / 61), {}, "item 5 is held at the reference time and by no user"),
    ):
        with refused(says):
            fit_item_weights(of, at, **options)


def test_profiles_by_length_hold_the_same_pairs():
    profiles = Profiles.of(random_log(0, 50, 9, 7), 99, 9)
    starts, items = profiles.by_length()
    assert (np.diff(np.diff(starts)) >= 0).all()
    rows = sorted(tuple(items[a:b]) for a, b in itertools.pairwise(starts))
    own = [tuple(profiles.items[a:b]) for a, b in zip(profiles.starts[:-1], profiles.starts[1:], strict=True)]
    assert rows == sorted(own)
