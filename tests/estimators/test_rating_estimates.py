import math

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ratings as r
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import alpha_propensities, observe

TRUTH = np.random.default_rng(0).integers(1, 6, (30, 20)).astype(float)
GUESS = np.clip(TRUTH + np.random.default_rng(1).normal(size=TRUTH.shape), 1, 5)
P = alpha_propensities(TRUTH, 0.5, 0.3)


def deltas():
    top = (r.ranks(GUESS) <= 3).astype(float)
    for metric in r.METRICS:
        yield r.loss(metric, top if metric == "cg" else GUESS, k=3)


@pytest.mark.parametrize("delta", list(deltas()), ids=r.METRICS)
def test_ips_is_unbiased(delta):
    everywhere = delta.everywhere(TRUTH)
    found = []
    for seed in range(400):
        observed = Ratings.from_dense(TRUTH, observe(P, seed))
        e = r.estimate_ratings(delta, observed, P)
        found.append(e.ips)
    assert abs(np.mean(found) - everywhere.mean()) < 4 * np.std(found) / math.sqrt(400) + 1e-12


@pytest.mark.slow
@pytest.mark.verify
def test_ips_stays_unbiased_where_observations_depend_on_each_other():
    """A user reveals all or nothing of what has the same propensity: P is the same, O is not independent."""
    delta = r.loss("mse", GUESS)
    u = np.random.default_rng(4).random((2_000, len(TRUTH), 1))  # one draw a user
    found = [r.estimate_ratings(delta, Ratings.from_dense(TRUTH, one < P), P).ips for one in u]
    assert abs(np.mean(found) - delta.risk(TRUTH)) < 4 * np.std(found) / math.sqrt(len(found))
    alone = [r.estimate_ratings(delta, Ratings.from_dense(TRUTH, observe(P, s)), P).ips for s in range(200)]
    assert np.std(found) > 1.3 * np.std(alone)  # dependence costs variance, no bias


def test_snips_has_the_minimiser_of_ips():
    guesses = [np.clip(TRUTH + np.random.default_rng(k).normal(size=TRUTH.shape), 1, 5) for k in range(20)]
    for seed in range(30):
        observed = Ratings.from_dense(TRUTH, observe(P, seed))
        found = [r.estimate_ratings(r.loss("mse", guess), observed, P) for guess in guesses]
        assert np.argmin([e.snips for e in found]) == np.argmin([e.ips for e in found])


def test_metrics_are_what_they_say():
    truth, guess = np.array([[5.0, 1.0, 3.0]]), np.array([[1.0, 3.0, 2.0]])  # ranking: item 1, 2, 0
    assert r.loss("mse", guess).risk(truth) == pytest.approx((16 + 4 + 1) / 3)
    assert r.loss("mae", guess).risk(truth) == pytest.approx((4 + 2 + 1) / 3)
    assert r.loss("dcg@k", guess, k=3).risk(truth) == pytest.approx(1 / 1 + 3 / math.log2(3) + 5 / 2)
    assert r.loss("dcg@k", guess, k=2).risk(truth) == pytest.approx(1 + 3 / math.log2(3))
    assert r.loss("cg", np.array([[1, 0, 1]]), k=2).risk(truth) == pytest.approx((5 + 3) / 2)


def test_uniform_propensities_make_snips_naive():
    observed = Ratings.from_dense(TRUTH, observe(np.full(TRUTH.shape, 0.2), 3))
    e = r.estimate_ratings(r.loss("mse", GUESS), observed, 0.2)
    assert e.snips == pytest.approx(e.naive, rel=1e-12)
    assert e.effective_n == pytest.approx(e.n)


def test_clipping_bounds_the_weights():
    observed = Ratings.from_dense(TRUTH, observe(P, 3))
    d = r.loss("mse", GUESS)
    at = np.maximum(observed.at(P), 0.2)
    assert r.estimate_ratings(d, observed, P, clip=0.2) == r.estimate_ratings(d, observed, at)


def test_ties_are_broken_by_a_draw_not_by_index():
    first = r.ranks(np.zeros((400, 10)))[:, 0]
    assert 4.5 < first.mean() < 6.5
    assert np.array_equal(np.sort(r.ranks(np.zeros((2, 10))), axis=1), np.tile(np.arange(1, 11), (2, 1)))


@pytest.mark.slow
@pytest.mark.verify
def test_clipping_can_help():
    """The paper's conjecture: where few propensities are tiny, raising them costs little bias and much variance."""
    g = np.random.default_rng(0)
    truth = g.integers(1, 6, (60, 40)).astype(float)
    p = np.where(g.random(truth.shape) < 0.02, 0.001, 0.3)
    delta = r.loss("mse", np.full(truth.shape, 3.0))
    risk = delta.risk(truth)
    errors = []
    for seed in range(400):
        observed = Ratings.from_dense(truth, observe(p, seed))
        errors.append([r.estimate_ratings(delta, observed, p, clip=c).ips - risk for c in (0.0, 0.05)])
    square = np.array(errors) ** 2
    difference = square[:, 1] - square[:, 0]
    assert difference.mean() + 3 * difference.std() / math.sqrt(400) < 0


def zeroed():
    p = P.copy()
    u, i = np.argwhere(observe(P, 0))[0]
    p[u, i] = 0.0
    return p


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda o, d: r.estimate_ratings(d, o, zeroed()), r"of the observed rating of user \d+, item \d+ is 0"),
        (lambda o, d: r.estimate_ratings(d, o, P[:2]), "shape"),
        (lambda o, d: r.estimate_ratings(d, o, np.ones(3)), "propensities must be"),
        (lambda o, d: r.estimate_ratings(d, o.select(np.zeros(len(o), bool)), P), "no observed ratings"),
        (lambda o, d: r.loss("rmse", GUESS), "unknown metric"),
        (lambda o, d: r.loss("dcg@k", GUESS), "needs k"),
        (lambda o, d: r.loss("mse", np.full((2, 2), np.nan)), "not a finite number"),
        (lambda o, d: r.loss("mse", np.zeros(3)), r"\(U, I\) matrix"),
        (lambda o, d: r.clip_propensities(P, 2.0), "smallest propensity"),
        (lambda o, d: r.estimate_ratings(r.loss("mse", GUESS[:-1]), o, P), r"predictions have shape \(29, 20\)"),
        (lambda o, d: r.loss("mae", GUESS[:, :-1]).risk(TRUTH), r"predictions have shape \(30, 19\)"),
        (lambda o, d: r.loss("dcg@k", GUESS, k=3, ranking=np.ones((2, 2))), r"ranking has shape \(2, 2\)"),
    ],
)
def test_bad_input_gets_one_line(call, text):
    observed = Ratings.from_dense(TRUTH, observe(P, 0))
    with pytest.raises(UserError, match=text) as caught:
        call(observed, r.loss("mse", GUESS))
    assert "\n" not in str(caught.value)
