"""Profile CFs: scores against plain twins, and leave-one-out in closed form against refitting, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policy import registry
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


def test_too_many_items_are_refused():
    for name in NAMES:
        with pytest.raises(UserError, match="at most 20,000 items"):
            registry.learner(name).fit(random_log(0, 5, 4, 3), n_items=20_001)
