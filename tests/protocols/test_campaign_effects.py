"""Additions that campaigns caused: against a plain twin, against what platforms know, and where it must fail."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.protocols.temporal.schemes import AloneEstimated, caused_additions
from recsim_mnar.protocols.temporal.weighing import make_scheme
from recsim_mnar.simulation.platform import platform_log, run_campaigns
from recsim_mnar.worlds import make_world
from twins import campaigns as twins

BUSY = ("n_users=4000", "organic_items=8", "fading=600", "acceptance=0.06", "delay=0.08")
"""About as many own as caused additions in a window."""


def profiles_of(seed, settings=BUSY, preset="affinity", until=500.0, days=None):
    world = make_world("campaigns", preset, [*settings, f"catalogue_seed={seed}"])
    return world, Profiles.of(platform_log(run_campaigns(world, seed, days=days)), until, world.n_items)


def true_counts(profiles, n_campaigns=2):
    return np.stack(
        [np.bincount(profiles.items[profiles.causes == c], minlength=profiles.n_items) for c in range(n_campaigns)]
    )


@pytest.mark.parametrize("until", [500.0, 455.5])
def test_the_estimate_is_its_twins(until):
    """Own rates by definition, EM written out; at 455.5 only 13 quiet days follow the second window."""
    _, now = profiles_of(3, (), "quick", until)
    found = caused_additions(now, [330, 430], window=12, side=25, prior=40.0)
    for c, day in enumerate((330, 430)):
        own = twins.own_additions(now, [330, 430], day, 12, 25, 40.0)
        variance = found.deviation[c] ** 2 - own.sum(axis=1)
        assert (variance > 0).all()
        caused, delay, chance = twins.caused_by_days(now, own, day, 12, variance, 400)
        np.testing.assert_allclose(found.expected[c], caused, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.delays[c], delay, atol=1e-5)
        inside = (now.added >= day) & (now.added < day + 12)
        places = now.items[inside], np.floor(now.added[inside]).astype(int) - day
        np.testing.assert_allclose(found.probabilities[inside], chance[places], atol=1e-4)
    assert (found.probabilities[now.added < 330] == 0).all()


def test_the_causes_of_the_log_are_not_read():
    _, now = profiles_of(1, (), "quick")
    blind = caused_additions(dataclasses.replace(now, causes=np.full_like(now.causes, -1)), [330, 430])
    np.testing.assert_array_equal(blind.probabilities, caused_additions(now, [330, 430]).probabilities)


def test_numbers_of_caused_additions_are_within_their_errors():
    """Of six platforms: each campaign's sum within 4 standard errors, their mean too, and 95 % of the items."""
    z, within, share = [], [], []
    for seed in range(6):
        _, now = profiles_of(seed)
        found, true = caused_additions(now, [330, 430], window=60), true_counts(now)
        z += list((found.expected.sum(axis=1) - true.sum(axis=1)) / np.sqrt((found.deviation**2).sum(axis=1)))
        within += list((np.abs(found.expected - true) < 1.96 * found.deviation).ravel())
        # Single additions only as probabilities: of those with even chances, as many were caused as they say.
        even = (found.probabilities > 0.1) & (found.probabilities < 0.9)
        share.append((now.causes[even] >= 0).mean() - found.probabilities[even].mean())
    assert max(np.abs(z)) < 4
    assert abs(np.mean(z)) < 4 / np.sqrt(len(z))
    assert abs(np.mean(share)) < 0.03
    assert np.mean(within) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(within))


def test_where_no_campaign_ran_none_is_found():
    for seed in range(4):
        _, now = profiles_of(seed, days=[])
        found = caused_additions(now, [330, 430], window=60)
        assert (found.expected.sum(axis=1) < 4 * np.sqrt((found.deviation**2).sum(axis=1))).all()


def test_own_rates_that_move_with_the_campaign_are_taken_for_it():
    """The assumption broken: a promotion of five items from the campaign's day on looks the same."""
    moved = (*BUSY, "n_promoted=5", "promotion_boost=50", "promotion_start=330", "promotion_end=390")
    world, now = profiles_of(0, moved)
    found, true = caused_additions(now, [330], window=60), true_counts(now)[0]
    z = (found.expected[0] - true) / found.deviation[0]
    assert z[world.promoted_items].min() > 4
    assert np.abs(np.delete(z, world.promoted_items)).max() < 6


def test_the_scheme_corrects_as_the_oracle_does():
    """Learning from estimated own additions: a constant list and P_t0 are kept, the draw is addressed."""
    _, now = profiles_of(2, ("n_users=2000",))
    _, before = profiles_of(2, ("n_users=2000",), until=300.0)
    spec = "alone-estimated+days=330/430"
    weighing, oracle = (make_scheme(name).weigh(now, before) for name in (spec, "alone"))
    items = np.bincount(now.items, weighing.probabilities, now.n_items)
    np.testing.assert_allclose(items, before.item_probabilities(), atol=1e-6)
    assert abs(weighing.details["pairs_alone"] - oracle.details["pairs_alone"]) < 0.01 * now.n_pairs
    learnt = make_scheme(spec + "+learn=1").weigh(now, before)
    assert learnt.profiles.n_pairs == weighing.details["pairs_alone"]
    again, other = (make_scheme(f"{spec}+draw={draw}").weigh(now, before) for draw in (0, 1))
    np.testing.assert_array_equal(again.probabilities, weighing.probabilities)
    assert (other.probabilities != weighing.probabilities).any()
    early = make_scheme("alone-estimated+days=480").weigh(before, before)  # the campaign is yet to come
    np.testing.assert_allclose(early.probabilities, make_scheme("weights").weigh(before, before).probabilities)


def test_without_own_additions_on_quiet_days_a_campaign_caused_all():
    """Users who add nothing alone after day 0, and four items on the campaign's days 140 and 141."""
    items = np.array([0, 1, 1, 2, 3, 3], np.int32)
    added = np.array([0.0, 140.0, 0.0, 140.0, 141.0, 140.0])
    starts, causes = np.array([0, 2, 4, 5, 6]), np.full(6, -1, np.int16)
    found = caused_additions(Profiles(200.0, 4, np.arange(4), starts, items, causes, added), [140])
    np.testing.assert_allclose(found.probabilities, added >= 140)
    assert found.expected.sum() == pytest.approx(4.0)
    np.testing.assert_allclose(found.delays[0][:2], [0.75, 0.25])


def test_a_window_without_quiet_days_on_both_sides_is_refused():
    """One side says nothing of a trend: a constant rate in its place gave errors of 6 to 8 standard errors."""
    window = {"window": 12}
    for until, days, where in ((442.9, [330, 430], "day 430: no quiet day after"), (500.0, [0], "day 0: .* before")):
        _, now = profiles_of(1, (), "quick", until)
        with pytest.raises(UserError, match=where):
            caused_additions(now, days, **window)
    _, now = profiles_of(1, (), "quick", 443.0)  # one quiet day has passed
    assert caused_additions(now, [330, 430], **window).expected[1].sum() > 0


def test_bad_input():
    _, now = profiles_of(1, (), "quick")
    for days, changes, says in (
        ([], {}, "name the days of the campaigns"),
        ([-1], {}, "numbers from 0"),
        ([330, 340], {}, "at least a window of 30 days apart"),
        ([430, 330], {}, "in order"),
        ([330], {"window": 0}, "whole numbers of days from 1"),
        ([330], {"side": 2.5}, "whole numbers of days from 1"),
        ([330], {"prior": -1.0}, "prior must be a number above 0"),
        ([300], {"window": 200}, "no quiet day after its window"),
    ):
        with pytest.raises(UserError, match=says):
            caused_additions(now, days, **changes)
    late = dataclasses.replace(now, added=np.maximum(now.added, 480.0))
    with pytest.raises(UserError, match="nothing was added on quiet days before it"):
        caused_additions(late, [430])
    for days in ("330/x", object(), [[1], [2, 3]]):
        with pytest.raises(UserError, match="days must be numbers, as in 330/430"):
            AloneEstimated(days)
    assert AloneEstimated("330/430").days == AloneEstimated([330, 430]).days == (330.0, 430.0)
    with pytest.raises(UserError, match=r"lacks the days of the campaigns. Write alone-estimated\+days="):
        make_scheme("alone-estimated").weigh(now, now)
