"""Intervals of rating estimates: against plain resampling, against a known truth, and under a stated ratio."""

import itertools

import numpy as np
import pytest
from scipy import stats

from recsim_mnar import rng
from recsim_mnar.estimators import ratings
from recsim_mnar.estimators.intervals import resampled_counts
from recsim_mnar.estimators.ratings import naive_bayes, popularity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import alpha_propensities, observe
from toys import refused
from twins.findings import codes, finding

SHARES = [0.5, 0.25, 0.15, 0.06, 0.04]
TRUTH = np.random.default_rng(0).choice(5, (150, 40), p=SHARES) + 1.0
P = alpha_propensities(TRUTH, 0.3, 0.15)
DELTA = ratings.loss("mae", np.where(TRUTH > 1, TRUTH - 1, 5.0))  # of 4 where the rating is 1, else of 1


def sample_of(size, seed):
    return np.random.default_rng(seed).choice(TRUTH.ravel(), size)


def observe_some(p, seed):
    return Ratings.from_dense(TRUTH, observe(p, seed))


@pytest.fixture(scope="module")
def observed():
    return observe_some(P, 3)


def losses_of(observed):
    return DELTA.at(observed.users, observed.items, observed.values)


def resampled_by_hand(observed, counts):
    """Users, items and values of a resample, copy by copy, and the row that each is a copy of."""
    copied_user = np.repeat(np.arange(len(counts)), counts)
    rows_of_copies = [np.flatnonzero(observed.users == user) for user in copied_user]
    owner = np.repeat(np.arange(len(copied_user)), [len(rows) for rows in rows_of_copies])
    rows = np.concatenate(rows_of_copies)
    again = Ratings(owner, observed.items[rows], observed.values[rows], len(copied_user), observed.n_items)
    return again, rows


@pytest.mark.parametrize("clip", [0.0, 0.08])
def test_naive_bayes_from_counts_is_the_whole_fit_again(observed, clip):
    fit = naive_bayes(observed, sample_of(30, 4))
    d = losses_of(observed)
    factor = np.random.default_rng(5).uniform(0.5, 2.0, len(d))
    total, weight, cells = ratings.Refits(fit, clip, 24, 6).sums(observed, d, factor)
    counts = resampled_counts(150, replicates=24, seed=6)
    edges = np.cumsum(fit.marginals)
    for b in range(24):
        again, rows = resampled_by_hand(observed, counts[:, b])
        draws = [rng.uniforms(6, rng.Stream.BOOTSTRAP, 2**62 + b, j)[0] for j in range(30)]
        sample = [1.0 + sum(draw >= edge for edge in edges[:-1]) for draw in draws]
        p = np.maximum(naive_bayes(again, sample).of(again.values), clip)
        w = factor[rows] / p
        assert (total[b], weight[b]) == pytest.approx(((w * d[rows]).sum(), w.sum()), rel=1e-12)
        assert cells[b] == again.n_users * 40


def weigh_by_popularity(observed, users=None):
    return 1.0 / observed.at(popularity(observed))


def test_any_fit_is_made_again_with_the_users_it_stands_for(observed):
    d = losses_of(observed)
    refitted = []

    def weigh(again, users):
        refitted.append(users)
        return weigh_by_popularity(again)

    total, weight, cells = ratings.Refits(weigh, 0.0, 20, 6).sums(observed, d, np.ones(len(d)))
    counts = resampled_counts(150, replicates=20, seed=6)
    for b in range(20):
        again, rows = resampled_by_hand(observed, counts[:, b])
        w = weigh_by_popularity(again)
        assert (total[b], weight[b]) == pytest.approx(((w * d[rows]).sum(), w.sum()), rel=1e-12)
        np.testing.assert_array_equal(refitted[b], np.repeat(np.arange(150), counts[:, b]))
        assert cells[b] == again.n_users * 40


def covers(estimates, truth, name="ips"):
    low, high = estimates.intervals[name]
    return low <= truth <= high


def spread_of_resamples(refits, observed):
    """The variance of IPS over resamples."""
    d = losses_of(observed)
    total, _, cells = refits.sums(observed, d, np.ones(len(d)))
    return (total / cells).var(ddof=1)


@pytest.mark.slow
@pytest.mark.verify
def test_the_error_of_the_random_sample_is_in_the_interval():
    """400 logs of one matrix, random samples of 60: the naive ends miss far oftener than they say, ours do not."""
    logs = 400
    truth = DELTA.risk(TRUTH)
    values = []
    spreads = []
    ours = naive = 0
    for seed in range(logs):
        observed = observe_some(P, seed)
        fit = naive_bayes(observed, sample_of(60, 1000 + seed))
        refitted = ratings.estimate_ratings(DELTA, observed, fit, largest_ratio=1.0, seed=seed)
        fixed = ratings.estimate_ratings(DELTA, observed, fit.of(observed.values))
        ours += covers(refitted, truth)
        naive += covers(fixed, truth, "snips")
        values.append(refitted.ips)
        spreads.append(spread_of_resamples(ratings.Refits(fit, 0.0, 40, seed), observed))
    assert naive < stats.binom.ppf(1e-4, logs, 0.95) <= ours
    # A standard deviation of 400 values is known to 1 / sqrt(800).
    assert np.sqrt(np.mean(spreads)) == pytest.approx(np.std(values, ddof=1), rel=4 / np.sqrt(2 * logs))


@pytest.mark.slow
@pytest.mark.verify
def test_refitting_popularity_takes_away_the_noise_in_counts_and_covers():
    """150 logs, P by item: resamples spread as the estimate does, and user sums with the P as known spread more."""
    p = np.broadcast_to(np.linspace(0.05, 0.5, 40), TRUTH.shape)
    logs = 150
    truth = DELTA.risk(TRUTH)
    covered = 0
    values = []
    spreads = []
    fixed = []
    for seed in range(logs):
        observed = observe_some(p, seed)
        d = losses_of(observed)
        w = weigh_by_popularity(observed)
        refits = ratings.Refits(weigh_by_popularity, 0.0, 40, seed)
        spreads.append(spread_of_resamples(refits, observed))
        low, high = ratings.intervals(observed, w, d, 0.95, refits=refits)["ips"]
        covered += low <= truth <= high
        values.append((w * d).sum() / TRUTH.size)
        fixed.append(150 * np.bincount(observed.users, w * d, 150).var() / TRUTH.size**2)
    assert covered >= stats.binom.ppf(1e-4, logs, 0.95)
    # A standard deviation of 150 values is known to 1 / sqrt(300).
    assert np.sqrt(np.mean(spreads)) == pytest.approx(np.std(values, ddof=1), rel=4 / np.sqrt(2 * logs))
    assert np.sqrt(np.mean(fixed)) > (1 + 4 / np.sqrt(2 * logs)) * np.std(values, ddof=1)


@pytest.mark.slow
@pytest.mark.verify
def test_the_bias_of_smoothing_is_taken_from_the_ends_and_not_from_the_value():
    """Laplace draws P(1) towards 1/5 by more than a standard error; in 300 logs the ends cover all the same."""
    logs = 300
    truth = DELTA.risk(TRUTH)
    errors = []
    middles = []
    covered = 0
    for seed in range(logs):
        observed = observe_some(P, seed)
        fit = naive_bayes(observed, sample_of(100, 2000 + seed), laplace=5.0)
        estimates = ratings.estimate_ratings(DELTA, observed, fit, seed=seed)
        covered += covers(estimates, truth)
        errors.append(estimates.ips - truth)
        middles.append(np.mean(estimates.intervals["ips"]) - truth)
    assert np.mean(errors) < -np.std(errors)
    # Measured at the smoothed shares, the bias is seen but for the share 25 / 125 that smoothing has in them.
    assert np.mean(middles) == pytest.approx(25 / 125 * np.mean(errors), abs=5 * np.std(middles) / np.sqrt(logs))
    assert covered >= stats.binom.ppf(1e-4, logs, 0.95)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("signs", [np.ones(8), np.array([1, -1, -1, 1, 1, -1, 1, -1])], ids=["positive", "mixed"])
def test_extreme_weights_are_the_most_extreme_of_all(estimator, signs):
    g = np.random.default_rng(3)
    observed = Ratings(np.arange(8), np.zeros(8, int), np.ones(8), 8, 3)
    w = g.uniform(1, 9, 8)
    d = g.uniform(0, 4, 8).round(1) * signs
    corners = [
        ratings.estimate(w * factors, d, observed, estimator)
        for factors in np.array(list(itertools.product((0.5, 2.0), repeat=8)))
    ]
    extremes = [
        ratings.estimate(w * factors, d, observed, estimator)
        for factors in ratings.extreme_factors(w, d, 2.0, estimator)
    ]
    assert extremes == pytest.approx([min(corners), max(corners)], rel=1e-12)


def test_lemma_3_under_a_stated_ratio():
    """P is up to 1.5 times what is taken for it where the loss is large, and as much below where it is small."""
    delta = ratings.loss("mae", np.random.default_rng(1).uniform(1, 5, TRUTH.shape))
    d = delta.everywhere(TRUTH)
    wrong = P * np.where(d > np.median(d), 1 / 1.5, 1.5)
    expected = (d * P / np.minimum(wrong, 1.0)).mean()  # Lemma 3
    taken = np.minimum(wrong, 1.0)
    covered = {1.0: 0, 1.5: 0}
    for seed in range(40):
        observed = observe_some(P, seed)
        for ratio in covered:
            estimates = ratings.estimate_ratings(delta, observed, taken, largest_ratio=ratio)
            covered[ratio] += covers(estimates, d.mean())
            assert covers(estimates, expected) or ratio == 1.0
    assert covered[1.0] < 20
    assert covered[1.5] >= stats.binom.ppf(1e-4, 40, 0.95)
    plain = ratings.estimate_ratings(delta, observed, P).intervals
    stated = ratings.estimate_ratings(delta, observed, P, largest_ratio=1.5).intervals
    low, high = plain["ips"]
    assert stated["ips"] == pytest.approx((low / 1.5, high * 1.5), rel=1e-9)  # Lemma 3, losses not negative
    low, high = stated["snips"]
    assert low < plain["snips"][0] < plain["snips"][1] < high


def test_verdicts_of_fits(observed):
    widths = {}
    for size in (10, 3000):
        fit = naive_bayes(observed, sample_of(size, 4))
        estimates = ratings.estimate_ratings(DELTA, observed, fit)
        widths[size] = finding(estimates, "wide_interval")
        assert estimates.snips == pytest.approx(estimates.ips)
        assert finding(estimates, "estimated").level == "caution"
        certain = ratings.estimate_ratings(DELTA, observed, fit, largest_ratio=1.0)
        assert "estimated" not in codes(certain)
    assert widths[10].number > 3 * widths[3000].number
    assert widths[3000].level == "trust"
    wide = ratings.estimate_ratings(DELTA, observed, fit, largest_ratio=3.0)
    assert wide.verdict.level == "do_not_use"


@pytest.fixture
def fit(observed):
    return naive_bayes(observed, sample_of(60, 4))


def test_losses_of_either_sign_have_an_interval(observed, fit):
    negative = ratings.Loss("minus", lambda users, items, values: -DELTA.at(users, items, values))
    low, high = ratings.estimate_ratings(DELTA, observed, fit).intervals["ips"]
    under, over = ratings.estimate_ratings(negative, observed, fit).intervals["ips"]
    assert under < -high + 0.2 * (high - low)
    assert over > -low - 0.2 * (high - low)
    assert over - under == pytest.approx(high - low, rel=0.3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"largest_ratio": 0.5}, "largest_ratio must be a number from 1"),
        ({"replicates": 5}, "replicates must be a whole number of at least 20"),
        ({"level": 95}, "looks like percent"),
        ({"seed": -1}, "seed must be in"),
    ],
)
def test_bad_input_gets_one_line(observed, fit, options, words):
    with refused(words):
        ratings.estimate_ratings(DELTA, observed, fit, **options)
