"""Profile CFs: scores against plain twins, and leave-one-out in closed form against refitting, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.neighbours import profile_cf
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policies import registry
from twins import campaigns as twin
from twins.logs import random_log

N = 11
NAMES = ("cosine-cf", "naive-cf")


@pytest.fixture(params=[0, 1, 2])
def profiles(request):
    return Profiles.of(random_log(request.param, 25, N, 9), 99, N)


def known_without(profiles, e):
    user = int(profiles.owners()[e])
    row = profiles.items[profiles.starts[user] : profiles.starts[user + 1]].tolist()
    return user, int(profiles.items[e]), [i for i in row if i != profiles.items[e]]


def test_closed_form_is_the_definition(profiles):
    for name in NAMES:
        above, level = registry.learner(name).inner.leave_one_out_ranks(profiles.to_log(), n_items=N)
        for e in range(profiles.n_pairs):
            user, item, known = known_without(profiles, e)
            if name == "cosine-cf":
                scores = twin.cosine_scores(profiles, user, known)
            else:
                scores = twin.naive_scores(profiles, user, item, known)
            assert (above[e], level[e]) == twin.place(scores, item)


@pytest.mark.parametrize("name", NAMES)
def test_closed_form_is_refitting_without_the_pair(profiles, name):
    """The learner itself, fitted on a log without the row; its user begins as the training user that they are."""
    learner, log = registry.learner(name).inner, profiles.to_log()
    above, level = learner.leave_one_out_ranks(log, n_items=N)
    for e in range(profiles.n_pairs):
        user, item, known = known_without(profiles, e)
        policy = learner.fit(log.select(np.arange(len(log)) != e), n_items=N)
        who = profiles.users[[user]]
        policy.reset_training_users(who, who)
        policy.observe(np.repeat(who, len(known)), np.array(known, np.int32))
        row = policy.scores(who)[0]
        others = np.delete(row, item)
        assert above[e] == (others > row[item]).sum()
        assert level[e] == (others == row[item]).sum()


def test_scores_of_a_new_user(profiles):
    learner = registry.learner("cosine-cf").inner
    policy = learner.fit(profiles.to_log(), n_items=N)
    policy.reset([7])
    policy.observe([7, 7, 7], [2, 5, 2])
    expected = twin.cosine_scores(profiles, -1, [2, 5])
    row = policy.scores(np.array([7]))[0]
    assert [None if np.isneginf(x) else x for x in row] == [None if s is None else float(s) for s in expected]
    naive = registry.learner("naive-cf").inner.fit(profiles.to_log(), n_items=N)
    naive.reset([7])
    naive.observe([7, 7], [2, 5])
    expected = twin.naive_scores(profiles, -1, -1, [2, 5])
    np.testing.assert_array_equal(
        naive.scores(np.array([7]))[0], [-np.inf if s is None else float(s) for s in expected]
    )


def test_a_user_who_viewed_an_item_twice_has_no_closed_form(profiles):
    log = random_log(3, 20, 4, 9)
    for name in NAMES:
        learner = registry.learner(name).inner
        learner.fit(log, n_items=4)
        assert learner.leave_one_out_ranks(log, n_items=4) is None
        assert learner.leave_one_out_ranks(profiles.to_log(), n_items=N, unseen=False) is None


@pytest.fixture
def pairs_alone(monkeypatch):
    """No table of all pairs of items, however few there are."""
    monkeypatch.setattr(profile_cf, "MOST_DENSE", 0)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_that_were_met_give_what_all_pairs_give(monkeypatch, tmp_path, seed):
    """Places, scores of training users and of others, and what is stored: the same to the last bit."""
    n_items = 40  # most pairs are never met
    log = Profiles.of(random_log(seed, 12, n_items, 6), 99, n_items).to_log()
    found = {}
    for most in (10_000, 0):
        monkeypatch.setattr(profile_cf, "MOST_DENSE", most)
        found[most] = []
        for name in NAMES:
            learner = registry.learner(name).inner
            found[most] += learner.leave_one_out_ranks(log, n_items=n_items)
            policy = learner.fit(log, n_items=n_items)
            policy.save(tmp_path / f"{name}-{most}.npz")
            for one in (policy, type(policy).load(tmp_path / f"{name}-{most}.npz")):
                one.reset_training_users(np.arange(3), np.arange(3))
                one.reset([7, 8])
                one.observe([0, 0, 1, 7, 7, 7], np.array([1, 5, 30, 2, 5, 2], np.int32))
                found[most].append(one.scores(np.array([0, 1, 2, 7, 8])))
    assert len(found[0]) == len(found[10_000]) == 8
    for a, b in zip(found[0], found[10_000], strict=True):
        np.testing.assert_array_equal(a, b)


def test_closed_form_of_pairs_that_were_met_is_the_definition(profiles, pairs_alone):
    test_closed_form_is_the_definition(profiles)


def test_more_items_than_a_table_holds():
    """35,741 items, as on the whole platform: a table would take 10 GB."""
    n_items = 35_741
    log = Profiles.of(random_log(5, 200, n_items, 9), 99, n_items).to_log()
    for name in NAMES:
        above, level = registry.learner(name).inner.leave_one_out_ranks(log, n_items=n_items)
        assert len(above) == len(log)
        assert (above + level < n_items).all()
        policy = registry.learner(name).fit(log, n_items=n_items)
        policy.reset([3])
        assert policy.scores(np.array([3])).shape == (1, n_items)
