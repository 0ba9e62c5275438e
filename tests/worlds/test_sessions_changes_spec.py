"""What the four switches of the sessions world mean, by cases that a reader can work out by hand.

The plain twin alone is tested here: no kernel, and no world of the package, but the defaults of its parameters.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from recsim_mnar import rng
from recsim_mnar.rng import Stream
from recsim_mnar.worlds.sessions.params import SessionsParams
from twins import sessions as twin
from twins.sessions import BANDIT, ORGANIC

SEED = 4
OFF = {
    "fatigue": 0.0,
    "fatigue_spread": 0.7,
    "fatigue_of_views": 0.4,
    "fatigue_memory": 0.6,
    "retention": 0.0,
    "retention_memory": 0.3,
    "influence": 0.0,
    "calendar": 0.0,
    "arriving": 0.5,
    "ageing": 2.0,
    "trend": 1.5,
}


def settings(**changes):
    """Three items in two dimensions, interests that stand still, every switch off."""
    plain = {
        "n_items": 3,
        "n_factors": 2,
        "n_flips": 0,
        "catalogue_seed": 9,
        "sigma_mu_organic": 0.0,
        "sigma_omega_initial": 1.0,
        "sigma_omega": 0.0,
        "normalize_beta": False,
        "click_link": "ff",
        "clock": "unit",
        "drift_in_bandit": False,
        "no_repeats": False,
        "p_organic_to_bandit": 0.3,
        "p_leave_organic": 0.1,
        "p_bandit_to_organic": 0.2,
        "p_leave_bandit": 0.1,
    }
    return SimpleNamespace(**SessionsParams().to_dict() | plain | OFF | changes)


def lives(params, act, users, catalogue=None):
    catalogue = catalogue or twin.catalogue(params)
    return [twin.life(params, catalogue, SEED, user, act) for user in users]


def always(item):
    return lambda history, uniform: (item, 1.0)


def in_turn(*items):
    """Recommend these items one after another, for a single life."""
    left = iter(items * 1000)
    return lambda history, uniform: (next(left), 1.0)


def kinds(life):
    return [row.event for row in life]


def uniform(stream, user, index):
    return float(rng.uniforms(SEED, stream, [user], [index])[0])


def move_uniform(stream, user, number):
    """The uniform of the next state after a view (the first of its block) or a recommendation (the second)."""
    w = [int(x) for x in rng.blocks(SEED, stream, [user], [number])[0]]
    high, low = w[:2] if stream == Stream.ORGANIC else w[2:]
    return ((high << 32 | low) >> 11) * 2.0**-53


# --- all of them -----------------------------------------------------------------------------------------------------


# --- fatigue ---------------------------------------------------------------------------------------------------------


def clicks_of(life):
    return [row.click_probability for row in life if row.event == BANDIT]


def test_three_showings_of_one_item_in_a_row():
    """m is 0, then d, then d (1 + d); M is 0, 0, then d times the m of the second showing."""
    phi, s = 0.5, 0.7  # d is 0.6
    seen = 0
    for life in lives(settings(fatigue=phi, fatigue_of_views=0.0, p_leave_organic=0.0), always(1), range(60)):
        first = kinds(life).index(BANDIT)
        if kinds(life)[first : first + 3] != [BANDIT] * 3:
            continue
        seen += 1
        p, once, twice = clicks_of(life)[:3]
        assert once == pytest.approx(p * math.exp(-phi * 0.6), rel=1e-12)
        assert twice == pytest.approx(p * math.exp(-phi * (0.6 * 1.6 + s * 0.36)), rel=1e-12)
        assert p == pytest.approx(twin.ff(twin.catalogue(settings()).gamma[1] @ life[0].omega), rel=1e-12)
    assert seen > 10


def test_views_count_as_events_and_add_to_recency_alone():
    """n views of another item between two showings: m shrinks n + 1 times. A view of the item itself adds 0.4."""
    d, phi = 0.6, 0.5
    seen = set()
    for user in range(150):
        params = settings(fatigue=phi, fatigue_spread=1.0, p_bandit_to_organic=0.6)
        (life,) = lives(params, always(2), [user])
        shown = [k for k, row in enumerate(life) if row.event == BANDIT]
        if len(shown) < 2:
            continue
        # By powers of d: what each earlier event adds to m at the second showing, and M of the first showing.
        own_views = [k for k, row in enumerate(life[: shown[1]]) if row.item == 2]
        m_first = sum(0.4 * d ** (shown[0] - k) for k in own_views if k < shown[0])
        m = sum(0.4 * d ** (shown[1] - k) for k in own_views) + d ** (shown[1] - shown[0])
        M = m_first * d ** (shown[1] - shown[0])
        p = float(twin.ff(twin.catalogue(params).gamma[2] @ life[0].omega))
        assert clicks_of(life)[0] == pytest.approx(p * math.exp(-phi * m_first), rel=1e-12)
        assert clicks_of(life)[1] == pytest.approx(p * math.exp(-phi * (m + M)), rel=1e-12)
        seen.add((shown[1] - shown[0] > 1, m_first > 0))
    assert len(seen) == 4


# --- retention -------------------------------------------------------------------------------------------------------


def test_satisfaction_after_two_recommendations():
    """Interests (3, 4) are 5 long: items (1, 2) and (-1, 0) have 11/5 and -3/5."""
    omega = np.array([3.0, 4.0])
    once = twin.satisfaction(0.0, 0.25, np.array([1.0, 2.0]), omega)
    assert once == pytest.approx(0.75 * math.tanh(2.2))
    twice = twin.satisfaction(once, 0.25, np.array([-1.0, 0.0]), omega)
    assert twice == pytest.approx(0.25 * 0.75 * math.tanh(2.2) - 0.75 * math.tanh(0.6))
    assert twin.satisfaction(0.8, 0.25, np.array([1.0, 2.0]), np.zeros(2)) == pytest.approx(0.2)


# In one dimension an item's liking is its factor, or minus it, by the sign of the interests.
LINE = twin.Catalogue(np.array([[1.5], [-1.5]]), np.zeros(2), np.array([[1.5], [-1.5]]), np.zeros(2))


def test_satisfaction_has_the_interests_at_the_recommendation():
    """A click with influence 1 makes the interests those of the item, yet z is of the interests before."""
    clicked = twin.Catalogue(LINE.gamma, LINE.mu, np.zeros((2, 1)), np.full(2, 40.0))
    params = settings(n_items=2, n_factors=1, retention=1.2, influence=1.0, click_link="logistic")
    differs = 0
    for user, life in enumerate(lives(params, always(0), range(300), clicked)):
        k = kinds(life).index(BANDIT) if BANDIT in kinds(life) else None
        if k is None or life[0].omega[0] > 0:
            continue
        assert life[k].reward == 1.0
        assert life[k + 1].event == ORGANIC  # whatever was drawn
        assert life[k + 1].omega[0] == 1.5
        u = move_uniform(Stream.ORGANIC, user, k)
        z = -0.7 * math.tanh(1.5)
        assert (k + 1 == len(life) - 1) == (0.3 <= u < 0.3 + 0.1 * math.exp(-1.2 * z))
        differs += (0.3 <= u < 0.3 + 0.1 * math.exp(-1.2 * z)) != (0.3 <= u < 0.3 + 0.1 * math.exp(1.2 * z))
    assert differs > 5


# --- influence -------------------------------------------------------------------------------------------------------


def test_a_click_pulls_interests_a_quarter_of_the_way_before_they_drift():
    """Without drift the next interests are 3/4 of the old and 1/4 of the item; with it, the same drift is added."""
    catalogue = twin.Catalogue(*twin.catalogue(settings())[:2], np.zeros((3, 2)), np.zeros(3))  # half are clicked
    counts = {"pulled": 0, "drifted": 0, "not": 0}
    for sigma in (0.0, 0.5):
        pulling = settings(influence=0.25, click_link="logistic", sigma_omega=sigma)
        for user in range(100):
            life = twin.life(pulling, catalogue, SEED, user, always(1))
            drifts = decisions = 0
            for row, following in itertools.pairwise(life):
                stream, first, leave = (
                    (Stream.ORGANIC, 0.3, 0.1) if row.event == ORGANIC else (Stream.RESPONSE, 0.2, 0.1)
                )
                u = move_uniform(stream, user, decisions if row.event == BANDIT else row.step - decisions)
                decisions += row.event == BANDIT
                expected = row.omega
                if row.reward == 1:
                    expected = 0.75 * row.omega + 0.25 * catalogue.gamma[1]
                    counts["pulled"] += 1
                else:
                    counts["not"] += 1
                if u >= first + leave if row.event == ORGANIC else u < first:  # browsing was drawn
                    drifts += 1
                    expected = expected + sigma * twin.normal_vector(SEED, Stream.USER, user, drifts, 2)
                    counts["drifted"] += row.reward == 1
                np.testing.assert_allclose(following.omega, expected, rtol=1e-12)
    assert min(counts.values()) > 20


# --- calendar --------------------------------------------------------------------------------------------------------


def item_uniforms(params):
    n = params.n_items
    return rng.uniforms(params.catalogue_seed, Stream.CALENDAR, np.arange(n), np.zeros(n, int))


def test_ages_by_hand():
    """With T = 64 a period is 1 long. Nothing walks; ageing 64 makes a shift minus the age at its middle."""
    params = settings(n_items=40, calendar=64.0, arriving=0.5, ageing=64.0, trend=0.0)
    a = item_uniforms(params)
    assert a.max() > 0.5
    for time, middle in ((0.0, 0.5), (0.99, 0.5), (1.0, 1.5), (40.3, 40.5), (63.0, 63.5), (64.0, 63.5), (900.0, 63.5)):
        shift = twin.shifts(params, time)
        for i in range(40):
            if a[i] < 0.5:
                age = middle - 128 * a[i]
                expected = -age if age >= 0 else -np.inf
            else:
                expected = -(middle + 128 * (a[i] - 0.5))
            assert shift[i] == pytest.approx(expected)
    assert np.isinf(twin.shifts(params, 0.0)).sum() == ((a < 0.5) & (128 * a > 0.5)).sum() > 10
    assert np.isfinite(twin.shifts(params, 63.6)).sum() >= 39


def test_popularity_walks_by_an_eighth_of_the_trend_per_period():
    params = settings(calendar=128.0, arriving=0.0, ageing=0.0, trend=1.6)
    np.testing.assert_array_equal(twin.shifts(params, 1.9), np.zeros(3))
    total = np.zeros(3)
    for k in range(1, 64):
        total += 0.2 * rng.normals_at(9, Stream.CALENDAR, 3, k)
        np.testing.assert_allclose(twin.shifts(params, 2.0 * k + 1), total, rtol=1e-9)
    np.testing.assert_allclose(twin.shifts(params, 500.0), total, rtol=1e-9)
    params.n_items = 300  # sqrt(63)/8 is .992
    assert 1.4 < twin.shifts(params, 500.0).std() < 1.8
