"""Campaigns by recommenders, and the example of a feedback loop."""

import runpy
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsim_mnar.campaigns.platform import recommended_lists, run_campaign, run_campaigns, true_quality
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.worlds import make_world
from toys import refused
from twins.commands import status_of

EXAMPLE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "feedback_loop.py"))
feedback_loop, gini = EXAMPLE["feedback_loop"], EXAMPLE["gini"]


@pytest.fixture(scope="module")
def world():
    return make_world("campaigns", "quick", ["n_users=300"])


@pytest.fixture
def platform(world):
    """A platform on the day on which a recommender may begin."""
    platform = world.open_platform(0)
    platform.advance(330)
    return platform


def test_a_recommender_shows_its_best_items(platform):
    learner = registry.learner("naive-cf")
    lists, probabilities = recommended_lists(platform, learner)
    assert lists.shape == (300, 5)
    assert (probabilities == 1).all()
    quality = true_quality(platform, learner)
    assert quality == platform.quality(lists)
    assert quality > true_quality(platform, registry.learner("random"))
    campaign = run_campaign(platform, learner, weights=np.ones(60), sharpness=None)
    np.testing.assert_array_equal(campaign.lists, lists)


@pytest.mark.parametrize("sharpness", [None, 1.0])
def test_a_promoted_few_may_be_all_that_is_shown(platform, sharpness):
    weights = np.zeros(60)
    weights[[2, 4, 6]] = 1.0
    campaign = run_campaign(platform, registry.learner("cosine-cf"), weights=weights, sharpness=sharpness)
    assert np.isin(campaign.lists, [-1, 2, 4, 6]).all()


class Negative(type(registry.learner("naive-cf").inner)):
    name = "negative"

    def fit(self, log, *, n_items, seed=0):
        policy = super().fit(log, n_items=n_items, seed=seed)
        policy.scores = lambda users: np.full((len(users), n_items), -1.0)
        return policy


def test_negative_scores_are_no_weights(platform):
    with refused("'negative' has negative scores: run it with sharpness=None"):
        run_campaign(platform, Negative())


def test_yesterdays_recommender_grades_itself_ever_better():
    """Retrained on its own output its leave-one-out score climbs, its true quality does not."""
    world = make_world("campaigns", "quick")
    platform, rounds = feedback_loop(world, registry.learner("cosine-cf"), rounds=4, every=40, seed=2)
    assert [r.day for r in rounds] == [330, 370, 410, 450]
    assert platform.day == 490
    assert rounds[-1].loo > 1.5 * rounds[0].loo
    assert rounds[-1].quality < 1.2 * rounds[0].quality
    assert all(0 < r.gini < 1 and 0 < r.items_shown <= 60 and 0 < r.accepted < 1 for r in rounds)
    assert np.isnan(feedback_loop(world, registry.learner("svd"), rounds=1, every=40, with_loo=False)[1][0].loo)


def test_a_platform_from_the_command_line(tmp_path, capsys):
    for policy in ("deployed", "naive-cf"):
        out = tmp_path / policy
        simulated = f"simulate --world campaigns --preset quick --users 200 --policy {policy} --truth --out {out}"
        arguments = simulated.split()
        assert status_of(*arguments) == 0
        log = Log.read(out).validate(60)
        truth = pq.read_table(out / "truth.parquet")
        assert truth.num_rows == log.is_bandit.sum() == 2000
        rate, probability = log["reward"][log.is_bandit].mean(), truth["acceptance_probability"].to_numpy().mean()
        assert abs(rate - probability) < 0.04
        assert log.provenance["recommender"] == policy
        assert "200 users" in capsys.readouterr().out
    for extra, says in (("", "not empty"), ("--resume", "--resume"), ("--users 0", "--users must be")):
        assert status_of(*arguments, *extra.split()) == 2
        assert says in capsys.readouterr().err


def test_days_and_end_of_a_run(world):
    platform = run_campaigns(world, 1, days=[10, 20], until=30)
    assert [c.day for c in platform.campaigns] == [10, 20]
    assert platform.day == 30


def test_gini():
    assert gini(np.array([3, 3, 3])) == pytest.approx(0)
    assert gini(np.array([0, 0, 0, 9])) == pytest.approx(0.75)
    assert np.isnan(gini(np.zeros(3)))
