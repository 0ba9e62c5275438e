"""Intervals of rating estimates: against plain resampling, against a known truth, and under a stated ratio."""

import itertools

import numpy as np
import pytest
from scipy import stats

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ratings as made
from recsim_mnar.estimators import ratings as r
from recsim_mnar.estimators.intervals import resampled_counts
from recsim_mnar.estimators.ratings import naive_bayes, popularity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import alpha_propensities, observe
from twins.findings import codes, finding

SHARES = [0.5, 0.25, 0.15, 0.06, 0.04]
TRUTH = np.random.default_rng(0).choice(5, (150, 40), p=SHARES) + 1.0
P = alpha_propensities(TRUTH, 0.3, 0.15)
DELTA = r.loss("mae", np.where(TRUTH > 1, TRUTH - 1, 5.0))  # of 4 where the rating is 1, else of 1


def sample_of(size, seed):
    return np.random.default_rng(seed).choice(TRUTH.ravel(), size)


def resampled_by_hand(ratings, counts):
    """Users, items and values of a resample, copy by copy."""
    found, copies = [], 0
    for user, count in enumerate(counts):
        for _ in range(count):
            rows = np.flatnonzero(ratings.users == user)
            found += [(copies, ratings.items[row], ratings.values[row], row) for row in rows]
            copies += 1
    owner, items, values, rows = zip(*found, strict=True)
    return Ratings(np.array(owner), np.array(items), np.array(values), copies, ratings.n_items), np.array(rows)


@pytest.mark.parametrize("clip", [0.0, 0.08])
def test_naive_bayes_from_counts_is_the_whole_fit_again(clip):
    observed = Ratings.from_dense(TRUTH, observe(P, 3))
    fit = naive_bayes(observed, sample_of(30, 4))
    d = DELTA.at(observed.users, observed.items, observed.values)
    factor = np.random.default_rng(5).uniform(0.5, 2.0, len(d))
    total, weight, cells = made.Refits(fit, clip, 24, 6).sums(observed, d, factor)
    counts = resampled_counts(150, replicates=24, seed=6)
    edges = np.cumsum(fit.marginals)
    for b in range(24):
        again, rows = resampled_by_hand(observed, counts[:, b])
        draws = [rng.uniforms(6, rng.Stream.BOOTSTRAP, 2**62 + b, j)[0] for j in range(30)]
        sample = [1.0 + sum(draw >= edge for edge in edges[:-1]) for draw in draws]
        p = np.maximum(naive_bayes(again, sample).of(again.values), clip)
        w = factor[rows] / p
        assert total[b] == pytest.approx((w * d[rows]).sum(), rel=1e-12)
        assert weight[b] == pytest.approx(w.sum(), rel=1e-12)
        assert cells[b] == again.n_users * 40


def test_any_fit_is_made_again_with_the_users_it_stands_for():
    observed = Ratings.from_dense(TRUTH, observe(P, 3))
    d = DELTA.at(observed.users, observed.items, observed.values)
    seen = []

    def weigh(ratings, users):
        seen.append(users)
        return 1.0 / ratings.at(popularity(ratings))

    total, weight, cells = made.Refits(weigh, 0.0, 20, 6).sums(observed, d, np.ones(len(d)))
    counts = resampled_counts(150, replicates=20, seed=6)
    for b in range(20):
        again, rows = resampled_by_hand(observed, counts[:, b])
        w = 1.0 / again.at(popularity(again))
        assert (total[b], weight[b]) == pytest.approx(((w * d[rows]).sum(), w.sum()), rel=1e-12)
        assert np.array_equal(seen[b], np.repeat(np.arange(150), counts[:, b]))
        assert cells[b] == len(seen[b]) * 40


def ends_of(estimates, name="ips"):
    return estimates.intervals[name]


@pytest.mark.slow
@pytest.mark.verify
def test_the_error_of_the_random_sample_is_in_the_interval():
    """400 logs of one matrix, random samples of 60: the naive ends miss far oftener than they say, ours do not."""
    truth, logs = DELTA.risk(TRUTH), 400
    values, spreads, ours, naive = [], [], 0, 0
    for seed in range(logs):
        observed = Ratings.from_dense(TRUTH, observe(P, seed))
        fit = naive_bayes(observed, sample_of(60, 1000 + seed))
        found = r.estimate_ratings(DELTA, observed, fit, largest_ratio=1.0, seed=seed)
        known = r.estimate_ratings(DELTA, observed, fit.of(observed.values))
        low, high = ends_of(found)
        ours += low <= truth <= high
        low, high = ends_of(known, "snips")
        naive += low <= truth <= high
        values.append(found.ips)
        d = DELTA.at(observed.users, observed.items, observed.values)
        total, _, cells = made.Refits(fit, 0.0, 40, seed).sums(observed, d, np.ones(len(d)))
        spreads.append((total / cells).var(ddof=1))
    assert naive < stats.binom.ppf(1e-4, logs, 0.95) <= ours
    # A standard deviation of 400 values is known to 1 / sqrt(800).
    assert np.sqrt(np.mean(spreads)) == pytest.approx(np.std(values, ddof=1), rel=4 / np.sqrt(2 * logs))


@pytest.mark.slow
@pytest.mark.verify
def test_refitting_popularity_takes_away_the_noise_in_counts_and_covers():
    """150 logs, P by item: resamples spread as the estimate does, and user sums with the P as known spread more."""
    p = np.broadcast_to(np.linspace(0.05, 0.5, 40), TRUTH.shape)
    truth, logs, covered, values, spreads, known = DELTA.risk(TRUTH), 150, 0, [], [], []
    for seed in range(logs):
        observed = Ratings.from_dense(TRUTH, observe(p, seed))
        d = DELTA.at(observed.users, observed.items, observed.values)
        w = 1.0 / observed.at(popularity(observed))
        refits = made.Refits(lambda ratings, users: 1.0 / ratings.at(popularity(ratings)), 0.0, 40, seed)
        total, _, cells = refits.sums(observed, d, np.ones(len(d)))
        low, high = made.intervals(observed, w, d, 0.95, refits=refits)["ips"]
        covered += low <= truth <= high
        values.append((w * d).sum() / TRUTH.size)
        spreads.append((total / cells).var(ddof=1))
        known.append(150 * np.bincount(observed.users, w * d, 150).var() / TRUTH.size**2)
    assert covered >= stats.binom.ppf(1e-4, logs, 0.95)
    # A standard deviation of 150 values is known to 1 / sqrt(300).
    assert np.sqrt(np.mean(spreads)) == pytest.approx(np.std(values, ddof=1), rel=4 / np.sqrt(2 * logs))
    assert np.sqrt(np.mean(known)) > (1 + 4 / np.sqrt(2 * logs)) * np.std(values, ddof=1)


@pytest.mark.slow
@pytest.mark.verify
def test_the_bias_of_smoothing_is_taken_from_the_ends_and_not_from_the_value():
    """Laplace draws P(1) towards 1/5 by more than a standard error; in 300 logs the ends cover all the same."""
    truth, logs = DELTA.risk(TRUTH), 300
    errors, middles, covered = [], [], 0
    for seed in range(logs):
        observed = Ratings.from_dense(TRUTH, observe(P, seed))
        fit = naive_bayes(observed, sample_of(100, 2000 + seed), laplace=5.0)
        found = r.estimate_ratings(DELTA, observed, fit, seed=seed)
        low, high = ends_of(found)
        covered += low <= truth <= high
        errors.append(found.ips - truth)
        middles.append((low + high) / 2 - truth)
    assert np.mean(errors) < -np.std(errors)
    # Measured at the smoothed shares, the bias is seen but for the share 25 / 125 that smoothing has in them.
    assert np.mean(middles) == pytest.approx(25 / 125 * np.mean(errors), abs=5 * np.std(middles) / np.sqrt(logs))
    assert covered >= stats.binom.ppf(1e-4, logs, 0.95)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_extreme_weights_are_the_most_extreme_of_all(estimator):
    g = np.random.default_rng(3)
    ratings = Ratings(np.arange(8), np.zeros(8, int), np.ones(8), 8, 3)
    for signs in (np.ones(8), g.choice([-1.0, 1.0], 8)):
        w, d = g.uniform(1, 9, 8), g.uniform(0, 4, 8).round(1) * signs
        corners = [
            made.estimate(w * np.array(f), d, ratings, estimator) for f in itertools.product((0.5, 2.0), repeat=8)
        ]
        least, largest = made.extreme_factors(w, d, 2.0, estimator)
        assert made.estimate(w * least, d, ratings, estimator) == pytest.approx(min(corners), rel=1e-12)
        assert made.estimate(w * largest, d, ratings, estimator) == pytest.approx(max(corners), rel=1e-12)


def test_lemma_3_under_a_stated_ratio():
    """P is up to 1.5 times what is taken for it where the loss is large, and as much below where it is small."""
    delta = r.loss("mae", np.random.default_rng(1).uniform(1, 5, TRUTH.shape))
    d = delta.everywhere(TRUTH)
    wrong = P * np.where(d > np.median(d), 1 / 1.5, 1.5)
    expected = (d * P / np.minimum(wrong, 1.0)).mean()  # Lemma 3
    covered = {1.0: 0, 1.5: 0}
    for seed in range(40):
        observed = Ratings.from_dense(TRUTH, observe(P, seed))
        for ratio in covered:
            found = r.estimate_ratings(delta, observed, np.minimum(wrong, 1.0), largest_ratio=ratio)
            low, high = ends_of(found)
            covered[ratio] += low <= d.mean() <= high
            assert low < expected < high or ratio == 1.0
    assert covered[1.0] < 20
    assert covered[1.5] >= stats.binom.ppf(1e-4, 40, 0.95)
    plain, stated = (r.estimate_ratings(delta, observed, P, largest_ratio=ratio) for ratio in (None, 1.5))
    low, high = ends_of(plain)
    assert ends_of(stated) == pytest.approx((low / 1.5, high * 1.5), rel=1e-9)  # Lemma 3, losses not negative
    low, high = ends_of(stated, "snips")
    assert low < ends_of(plain, "snips")[0]
    assert high > ends_of(plain, "snips")[1]


def test_verdicts_of_fits():
    observed = Ratings.from_dense(TRUTH, observe(P, 3))
    widths = {}
    for size in (10, 3000):
        fit = naive_bayes(observed, sample_of(size, 4))
        found = r.estimate_ratings(DELTA, observed, fit)
        widths[size] = finding(found, "wide_interval")
        assert found.snips == pytest.approx(found.ips)
        assert finding(found, "estimated").level == "caution"
        certain = r.estimate_ratings(DELTA, observed, fit, largest_ratio=1.0)
        assert "estimated" not in codes(certain)
    assert widths[10].number > 3 * widths[3000].number
    assert widths[3000].level == "trust"
    wide = r.estimate_ratings(DELTA, observed, naive_bayes(observed, sample_of(3000, 4)), largest_ratio=3.0)
    assert wide.verdict.level == "do_not_use"


def test_losses_of_either_sign_have_an_interval():
    observed = Ratings.from_dense(TRUTH, observe(P, 3))
    fit = naive_bayes(observed, sample_of(60, 4))
    negative = r.Loss("minus", lambda users, items, values: -DELTA.at(users, items, values))
    low, high = ends_of(r.estimate_ratings(DELTA, observed, fit))
    under, over = ends_of(r.estimate_ratings(negative, observed, fit))
    assert under < -high + 0.2 * (high - low)
    assert over > -low - 0.2 * (high - low)
    assert over - under == pytest.approx(high - low, rel=0.3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"largest_ratio": 0.5}, "largest_ratio must be a number from 1"),
        ({"replicates": 5}, "replicates must be a whole number of at least 20"),
        ({"level": 95}, "looks like percent"),
        ({"seed": -1}, "seed must be in"),
    ],
)
def test_bad_input_gets_one_line(options, text):
    observed = Ratings.from_dense(TRUTH, observe(P, 3))
    with pytest.raises(UserError, match=text):
        r.estimate_ratings(DELTA, observed, naive_bayes(observed, sample_of(60, 4)), **options)
