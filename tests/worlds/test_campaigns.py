"""The campaigns world: its kernels against plain twins, its log, its truth, and what a wrong call gets."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.campaigns import CampaignsParams, CampaignsWorld
from recsim_mnar.campaigns.platform import platform_log, run_campaign, run_campaigns
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.policies import registry
from recsim_mnar.worlds import make_world
from twins import campaigns as twin

SMALL = {
    "n_users": 40,
    "n_items": 30,
    "n_clusters": 3,
    "n_never": 4,
    "never_from": 10,
    "n_focus": 2,
    "user_growth": 0.4,
    "item_growth": 0.2,
    "n_promoted": 4,
    "promotion_start": 50,
    "promotion_end": 200,
    "acceptance_strength": 0.7,
    "appeal_sd": 0.5,
    "activity_max": 4,
}


def small(**changes):
    return CampaignsWorld(CampaignsParams(**{**SMALL, **changes}))


def test_growth_is_its_twin():
    world = small()
    platform = world.open_platform(5)
    for day in (100.0, 100.0, 333.3, 500.0):  # stopping on the way changes nothing
        platform.advance(day)
    found = sorted(
        zip(
            *(platform._additions[n][: platform._n_additions].tolist() for n in ("users", "items", "times")),
            strict=True,
        )
    )
    expected = sorted(twin.organic(world, 5, 500.0))
    assert [row[:2] for row in found] == [(u, i) for u, i, _ in expected]
    np.testing.assert_allclose([row[2] for row in found], [t for *_, t in expected], rtol=1e-12)


def test_answers_are_their_twin():
    world = small(user_growth=0.0, item_growth=0.0)
    platform = run_campaigns(world, 2)
    for campaign in platform.campaigns:
        accepted, added = twin.answers(world, platform, campaign)
        np.testing.assert_array_equal(campaign.accepted, accepted)
        np.testing.assert_array_equal(campaign.added, added)
    assert sum(c.accepted.sum() for c in platform.campaigns) > 40


def test_lists_follow_the_weights_one_place_after_another():
    world = small(n_users=4000, user_growth=0.0, item_growth=0.0, starting_items=1, organic_items=0.0)
    platform = world.open_platform(1)
    weights = np.zeros(30)
    weights[[3, 7, 9]] = [1.0, 2.0, 5.0]
    log = platform_log(platform)
    lists, probabilities = platform.draw_lists(weights, log["user"][weights[log["item"]] == 0], k=4)
    assert (lists[:, 3] == -1).all()
    assert np.isnan(probabilities[:, 3]).all()
    assert np.isin(lists[:, :3], [3, 7, 9]).all()
    first = np.array([(lists[:, 0] == i).mean() for i in (3, 7, 9)])
    np.testing.assert_allclose(first, [1 / 8, 2 / 8, 5 / 8], atol=0.03)
    np.testing.assert_allclose(probabilities[:, 0], weights[lists[:, 0]] / 8)
    np.testing.assert_allclose(probabilities[:, 1], weights[lists[:, 1]] / (8 - weights[lists[:, 0]]))
    second = (lists[lists[:, 0] == 9][:, 1] == 7).mean()
    assert abs(second - 2 / 3) < 0.05


def test_campaigns_share_no_draws_however_long_their_lists():
    """Lists of 10, then of 5: by addresses campaign * k + place the second would repeat draws of the first."""
    world = CampaignsWorld(CampaignsParams(n_users=4000, n_items=60, n_never=0, starting_items=1, organic_items=0.0))
    platform = world.open_platform(1)
    platform.advance(1)
    first, _ = platform.draw_lists(np.ones(60), k=10)
    platform.recommend(np.full((4000, 1), -1))  # a campaign that shows nothing changes no profile
    second, _ = platform.draw_lists(np.ones(60), k=5)
    for place in range(10):
        same = (first[:, place] == second[:, 0]).mean()
        assert same < 1 / 59 + 4.5 * np.sqrt(1 / 59 / 4000)
    again, _ = platform.draw_lists(np.ones(60), k=3)
    np.testing.assert_array_equal(again, second[:, :3])  # a shorter list is the beginning of a longer one


def test_mean_affinity_is_zero_over_the_items_of_each_catalogue():
    """So ``acceptance`` is what it says: the mean logit is its own, but for the groups that users happen to be in."""
    for catalogue in range(3):
        world = make_world("campaigns", "affinity", [f"catalogue_seed={catalogue}"])
        probability = world.reward_means(np.arange(12.0)[:, None])  # one user of each group
        logit = np.log(probability / (1 - probability))
        assert logit.mean() == pytest.approx(np.log(0.2 / 0.8), abs=1e-12)


def test_lists_leave_out_what_users_hold_and_what_is_not_there_yet():
    world = small()
    platform = world.open_platform(3)
    platform.advance(150)
    users = platform.present()
    held = Profiles.of(platform_log(platform), 150, 30)
    for lists, probabilities in (
        platform.draw_lists(np.ones(30), k=8),
        platform.best_lists(np.tile(np.arange(30.0), (len(users), 1)), k=8),
    ):
        for j, user in enumerate(users):
            row = np.searchsorted(held.users, user)
            own = held.items[held.starts[row] : held.starts[row + 1]]
            shown = lists[j][lists[j] >= 0]
            assert not np.isin(shown, own).any()
            assert (world.birth[shown] <= 150).all()
            assert len(set(shown)) == len(shown)
        assert ((probabilities > 0) == (lists >= 0)).all()
    level = platform.best_lists(np.zeros((len(users), 30)), k=3)[0]
    assert len(np.unique(level)) > 20  # where all scores are equal every item has its turn
    best = platform.best_lists(np.tile(np.arange(30.0), (len(users), 1)), k=3)[0]
    assert (np.diff(best[best[:, 2] >= 0]) < 0).all()


def test_a_campaign_changes_nobody_whom_it_does_not_reach():
    world = small(user_growth=0.0)
    logs = []
    for days in ([], [330]):
        platform = world.open_platform(4)
        for day in days:
            platform.advance(day)
            some = np.arange(0, 40, 2)
            platform.recommend(*platform.draw_lists(world.deployed_weights, some), some)
        platform.advance(500)
        log = platform_log(platform)
        logs.append(log.select(log["user"] % 2 == 1))
    assert logs[0].digest() == logs[1].digest()


def test_the_log_says_what_a_campaign_caused():
    world = small()
    platform = run_campaigns(world, 6)
    log = platform_log(platform).validate(30)
    bandit = log.is_bandit
    assert (log["campaign"][~bandit] == -1).all()
    assert set(log["campaign"][bandit]) == {0, 1}
    assert (log["added"][~bandit] == log["time"][~bandit]).all()
    came = bandit & (log["reward"] == 1)
    assert (log["added"][came] >= log["time"][came]).all()
    assert np.isnan(log["added"][bandit & (log["reward"] == 0)]).all()
    shown = sum((c.lists >= 0).sum() for c in platform.campaigns)
    assert bandit.sum() == shown
    profiles = Profiles.of(log, 500, 30)
    assert (profiles.causes >= 0).sum() == came.sum()
    assert log.provenance["campaign_days"] == [330.0, 430.0]


def test_what_is_accepted_but_not_yet_added_is_not_in_the_log():
    world = small(delay=0.05)
    platform = run_campaigns(world, 6, until=432)
    last = platform.campaigns[-1]
    log = platform_log(platform)
    rows = (log["campaign"] == 1) & (log["reward"] == 1)
    assert rows.sum() == (last.added <= 432).sum() < last.accepted.sum()
    platform.advance(10_000)
    assert (
        (platform_log(platform)["campaign"] == 1) & (platform_log(platform)["reward"] == 1)
    ).sum() == last.accepted.sum()


def test_promotion_and_growth_do_what_they_say():
    world = CampaignsWorld(
        CampaignsParams(n_users=3000, n_promoted=5, promotion_boost=6.0, item_growth=0.3, user_growth=0.5)
    )
    platform = run_campaigns(world, 0, days=[])
    log = platform_log(platform)
    on = (log["time"] >= 380) & (log["time"] < 400)
    promoted = np.isin(log["item"], world.promoted_items)
    assert promoted[on].mean() > 2 * promoted[~on].mean()
    assert (world.birth[log["item"]] <= log["time"]).all()
    late = np.array([(platform.arrival <= day).mean() for day in (0, 250, 500)])
    np.testing.assert_allclose(late, [0.5, 0.75, 1.0], atol=0.03)
    assert (platform.arrival[log["user"]] <= log["time"]).all()


def test_acceptance_is_the_same_for_all_in_the_papers_preset():
    world = CampaignsWorld(CampaignsParams(n_users=500))
    platform = run_campaigns(world, 0)
    probabilities = platform.acceptance(np.arange(500))
    np.testing.assert_allclose(probabilities, 0.22, rtol=1e-12)
    np.testing.assert_allclose(platform.acceptance(np.arange(3), campaign=1), 0.176, rtol=1e-12)
    rates = [c.accepted[c.lists >= 0].mean() for c in platform.campaigns]
    np.testing.assert_allclose(rates, [0.22, 0.176], atol=0.03)


def test_quality_is_the_expected_share_of_accepted_recommendations():
    world = small(n_users=3000, user_growth=0.0, item_growth=0.0, fatigue=1.0)
    platform = world.open_platform(0)
    platform.advance(330)
    lists, probabilities = platform.draw_lists(world.deployed_weights)
    expected = platform.quality(lists)
    campaign = platform.recommend(lists, probabilities)
    assert abs(campaign.accepted.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / lists.size)
    short = lists.copy()
    short[:, 1:] = -1
    np.testing.assert_allclose(
        platform.quality(short) * 5, platform.acceptance(np.arange(3000))[np.arange(3000), lists[:, 0]].mean()
    )
    np.testing.assert_allclose(world.reward_means(platform.cluster[:, None]), platform.acceptance(np.arange(3000)))


def test_a_personalised_campaign_hits_tastes_more_often():
    world = make_world("campaigns", "quick")
    rates = []
    for recommender in (None, "cosine-cf"):
        platform = world.open_platform(0)
        platform.advance(330)
        campaign = run_campaign(platform, recommender and registry.learner(recommender), sharpness=4.0)
        rates.append(campaign.accepted.mean())
        assert (world.deployed_weights[campaign.lists[campaign.lists >= 0]] > 0).all()
    assert rates[1] > 1.1 * rates[0]


@pytest.mark.slow
@pytest.mark.verify
def test_viadeo_has_the_size_of_the_paper():
    pairs = [
        Profiles.of(
            platform_log(run_campaigns(make_world("campaigns", "viadeo", [f"catalogue_seed={s}"]), s)), 500, 180
        ).n_pairs
        for s in range(3)
    ]
    assert abs(np.mean(pairs) / 117_376 - 1) < 0.02


def test_the_last_items_left_are_found():
    """A user who holds nearly everything still adds what is left: proposals give way to a scan."""
    world = CampaignsWorld(
        CampaignsParams(
            n_users=20, n_items=6, n_never=0, never_from=0, n_focus=0, starting_items=9, popularity_exponent=14.0
        )
    )
    platform = world.open_platform(0)
    log = platform_log(platform)
    assert (np.bincount(log["user"]) == 6).all()
