from types import SimpleNamespace

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.rng import Stream, uniforms

semisynthetic = study_module("sato2019", "semisynthetic")
ranked_propensities = semisynthetic.ranked_propensities
smoothed_world = semisynthetic.smoothed_world


def counts_of(seed=0, n_users=30, n_items=12):
    draw = np.random.default_rng(seed)
    visits = draw.integers(5, 40, n_users)
    t = draw.binomial(visits[:, None], draw.uniform(0.1, 0.7, n_items))
    ty = draw.binomial(t, 0.3)
    y = ty + draw.binomial(visits[:, None] - t, 0.1)
    return SimpleNamespace(visits=visits, treatments=t, purchases=y, treated_purchases=ty)


def test_smoothing_is_the_published_formula():
    c, w = counts_of(), 0.4
    world = smoothed_world(c, weight=w)
    truth = world.outcomes_of(0, np.arange(30))
    e = world.deployed_propensities(0, np.arange(30))
    for u, i in ((0, 0), (7, 3), (29, 11)):
        v, t, y, ty = c.visits[u], c.treatments[u, i], c.purchases[u, i], c.treated_purchases[u, i]
        mean_t, mean_ty = c.treatments[:, i].mean(), c.treated_purchases[:, i].mean()
        mean_y, mean_v = c.purchases[:, i].mean(), c.visits.mean()
        assert truth.treated[u, i] == pytest.approx((ty + w * mean_ty) / (t + w * mean_t))
        control = (y - ty + w * (mean_y - mean_ty)) / (v - t + w * (mean_v - mean_t))
        assert truth.control[u, i] == pytest.approx(control)
        assert e[u, i] == pytest.approx((t + w * mean_t) / (v + w * mean_v))
    # What the house shows has the data's own rate.
    assert e.mean() == pytest.approx((c.treatments.sum(0) / c.visits.sum()).mean(), rel=0.1)


def test_personalised_propensities_fall_with_the_rank_and_keep_their_number():
    preference = np.random.default_rng(1).random((6, 50))
    e = ranked_propensities(preference, 8, exponent=2.0)
    assert np.allclose(e.sum(axis=1), 8)
    order = np.argsort(-preference, axis=1)
    ranked = np.take_along_axis(e, order, axis=1)
    assert np.all(np.diff(ranked, axis=1) <= 0)
    free = ranked[:, 10:] * np.arange(11, 51) ** 2  # proportional to rank^-2 where no cap holds
    assert np.allclose(free, free[:, :1])
    assert ranked.max() <= 1 - 1e-6
    log = np.sort(ranked_propensities(preference, 5, rank_decay="log"), axis=1)[:, ::-1]
    assert np.allclose(log * np.log2(np.arange(2, 52)), log[:, :1])
    personal = smoothed_world(counts_of(), deployment="personalised", n_recommended=4)
    assert np.allclose(personal.deployed_propensities(0, np.arange(30)).sum(axis=1), 4)


def test_the_descent_is_that_of_the_plain_twin():
    draw = np.random.default_rng(4)
    for logistic in (False, True):
        p, q = draw.normal(size=(5, 6)), draw.normal(size=(4, 6))
        cells, values = np.array([0, 3, 9, 10, 18]), np.array([1.0, 0, 1, 1, 0])
        mine, own = p.copy(), q.copy()
        with np.errstate(over="ignore"):
            semisynthetic._descent_kernel.descend(
                np.uint64(7), np.uint64(Stream.FIT), 3, 200, cells, values, mine, own, 0.05, 0.01, logistic
            )
        for u in uniforms(7, Stream.FIT, 0, 3 + np.arange(200)):
            j = int(u * 5)
            a, b = divmod(cells[j], 4)
            guess = p[a] @ q[b]
            error = values[j] - (1 / (1 + np.exp(-guess)) if logistic else guess)
            p[a], q[b] = p[a] + 0.05 * (error * q[b] - 0.01 * p[a]), q[b] + 0.05 * (error * p[a] - 0.01 * q[b])
        assert np.allclose(mine, p, rtol=1e-9)
        assert np.allclose(own, q, rtol=1e-9)
