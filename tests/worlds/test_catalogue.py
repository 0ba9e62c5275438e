"""Flips against the full sort, and what a catalogue is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.catalogue import flip_pairs
from recsim_mnar.worlds.sessions.views import ViewSampler, view_tables
from twins import sessions as twin

SIZES = ((2, 5), (11, 3), (60, 5), (61, 1), (150, 20))
NORMAL = [np.random.default_rng(n).normal(size=(n, k)) for n, k in SIZES]
TIED = np.random.default_rng(1).integers(-1, 2, size=(40, 2)).astype(float)


@pytest.mark.parametrize(("factors", "flips"), [*zip(NORMAL, (1, 5, 30, 12, 75), strict=True), (TIED, 20)])
def test_flips_are_those_of_the_full_sort(factors, flips):
    np.testing.assert_array_equal(flip_pairs(factors, flips), twin.flipped_pairs(factors, flips))


def test_a_smaller_catalogue_is_the_beginning_of_a_larger_one():
    small, large = (SessionsWorld(SessionsParams(n_items=n, catalogue_seed=4)).catalogue for n in (10, 300))
    np.testing.assert_array_equal(small.item_factors, large.item_factors[:10])
    np.testing.assert_array_equal(small.item_offsets, large.item_offsets[:10])


def test_view_tables_hold_every_item_once_within_its_box():
    catalogue = SessionsWorld(SessionsParams(n_items=777)).catalogue
    tables = view_tables(catalogue, ViewSampler(32, 1.0))
    assert sorted(tables.order) == list(range(777))
    assert tables.starts[0] == 0
    assert tables.starts[-1] == 777
    for g, (a, b) in enumerate(zip(tables.starts[:-1], tables.starts[1:], strict=True)):
        away = np.abs(tables.rows[a:b] - tables.centre[:, g])
        assert (away <= tables.half[:, g] + 1e-6).all()


def test_tiers_hold_every_item_once_within_its_boxes():
    catalogue = SessionsWorld(SessionsParams(n_items=1501)).catalogue
    tables = view_tables(catalogue, ViewSampler(32, waste=1.0, hot=64, warm=1000, cold=128, cold_boxes=32))
    first_cold = tables.n_hot + tables.n_warm
    held = tables.offsets[: len(tables.order)] > -1e29
    assert sorted(tables.order[held]) == list(range(1501))
    tiers = [catalogue.item_offsets[tables.order[held]][a:b] for a, b in ((0, 64), (64, 1064), (1064, None))]
    assert tiers[0].min() >= tiers[1].max() > tiers[1].min() >= tiers[2].max()
    for place in range(tables.n_hot, first_cold):
        box = (place - tables.n_hot) % tables.n_boxes
        assert (np.abs(tables.rows[place] - tables.centre[:, box]) <= tables.half[:, box] + 1e-6).all()
    assert first_cold + tables.cold_starts[-1] == len(tables.order)
    assert len(tables.cold_offsets) == 128
    for e, (a, b) in enumerate(itertools.pairwise(tables.cold_starts)):
        rows, box = tables.rows[first_cold + a : first_cold + b], tables.n_boxes + e % 32
        assert (np.abs(rows - tables.cold[:5, e]) <= tables.cold[5:, e] + 1e-6).all()
        assert (np.abs(rows - tables.centre[:, box]) <= tables.half[:, box] + 1e-6).all()
        np.testing.assert_allclose(np.exp(tables.cold_offsets[e]), tables.cold_weights[a:b].sum(), rtol=1e-5)


@pytest.mark.verify
@pytest.mark.parametrize(("n_items", "expected"), [(10, 0.58), (100, 0.794), (1000, 0.902)])
def test_flipped_partners_are_as_alike_as_in_recogym(n_items, expected):
    """Mean cosine of flipped pairs at F = P/2, measured on RecoGym's own catalogues (P = 10: its self-pairs left
    out).
    """
    cosines = []
    for seed in range(30 if n_items < 1000 else 3):
        world = SessionsWorld(SessionsParams(n_items=n_items, n_flips=n_items // 2, catalogue_seed=seed))
        factors = world.catalogue.item_factors
        a, b = factors[world.catalogue.flips[:, 0]], factors[world.catalogue.flips[:, 1]]
        positive = (a * b).sum(1) > 0
        cosines.append(((a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1)))[positive].mean())
    error = np.std(cosines, ddof=1) / np.sqrt(len(cosines))
    assert abs(np.mean(cosines) - expected) < 4 * error + 0.02
