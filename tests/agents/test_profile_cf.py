"""Profile CFs: scores against plain twins, and leave-one-out in closed form against refitting, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.policies import registry
from twins import campaigns as twin
from twins.logs import random_log

N = 11
NAMES = ("cosine-cf", "naive-cf")


@pytest.fixture(params=range(5))
def profiles(request):
    """Of a random log."""
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


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_new_user(profiles, name, tmp_path):
    fitted = registry.learner(name).inner.fit(profiles.to_log(), n_items=N)
    fitted.save(tmp_path / "policy.npz")
    if name == "cosine-cf":
        known, scores = [2, 5, 2], twin.cosine_scores(profiles, -1, [2, 5])
    else:
        known, scores = [2, 5], twin.naive_scores(profiles, -1, -1, [2, 5])
    for policy in (fitted, type(fitted).load(tmp_path / "policy.npz")):
        policy.reset([7])
        policy.observe([7] * len(known), known)
        expected = [-np.inf if s is None else float(s) for s in scores]
        np.testing.assert_array_equal(policy.scores(np.array([7]))[0], expected)


def test_a_user_who_viewed_an_item_twice_has_no_closed_form(profiles):
    log = random_log(3, 20, 4, 9)
    for name in NAMES:
        learner = registry.learner(name).inner
        learner.fit(log, n_items=4)
        assert learner.leave_one_out_ranks(log, n_items=4) is None
        assert learner.leave_one_out_ranks(profiles.to_log(), n_items=N, unseen=False) is None


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
