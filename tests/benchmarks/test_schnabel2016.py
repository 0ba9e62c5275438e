"""The benchmark of Schnabel et al. 2016: it runs, and judges what it should; propensities found, bounds that hold."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.estimators import ratings as r
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import MARGINALS, alpha_propensities, observe, rerank

FOLDER = Path(__file__).parents[2] / "benchmarks" / "schnabel2016"


@pytest.fixture
def study(modules_of):
    names = "run tables semi_synthetic learning fits parts real real_table selection"
    return modules_of("schnabel2016", *names.split())


def test_skewed_predictions_are_the_papers(study):
    """The true errors of the others are held against the printed ones below."""
    truth = np.random.default_rng(0).choice([1.0, 2, 3, 4, 5], (80, 60), p=[0.5, 0.25, 0.15, 0.06, 0.04])
    found = study["semi_synthetic"].prediction_matrices(truth, 3)
    scaled = ((found["SKEWED"] - truth) / ((6 - truth) / 2))[truth == 3]  # 3 is two standard deviations from each clip
    assert abs(scaled.mean()) < 5 / np.sqrt(len(scaled))
    assert (found["SKEWED"].min(), found["SKEWED"].max()) == (0, 6)


def test_the_band_of_a_ratio_uses_that_the_draws_are_the_same(study):
    """Twice the same errors are 2 without doubt; of independent errors of one size 95 % of the bands hold 1."""
    one, other = np.random.default_rng(1).normal(size=(2, 400, 100, 1))
    same = study["semi_synthetic"].ratio_band(2 * one, one)
    assert [same[name][0] for name in ("mean", "low", "high")] == pytest.approx([2.0] * 3)
    band = {name: np.array(values) for name, values in study["semi_synthetic"].ratio_band(one, other).items()}
    holds = ((band["low"] < 1) & (band["high"] > 1)).mean()
    assert abs(holds - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)


def test_naive_dcg_of_rotate_is_the_published_where_everyone_dislikes_fifty_items(study):
    """With 50 ones in each row ROTATE recommends only those: the published 12.90 and 1.38 follow from sums alone."""
    semi = study["semi_synthetic"]
    shares = np.array(MARGINALS)
    row = np.repeat([1.0, 2, 3, 4, 5], np.rint(shares * 500).astype(int))
    truth = np.array([np.random.default_rng(u).permutation(row) for u in range(20)])

    some = SimpleNamespace(settings={"alpha": 0.25, "density": 0.05}, seed=1)
    found = semi._dcg_of("all alike", semi.FactorizationConfig(), truth, some)
    assert found["users_with_under_50_ones"] == 0
    assert found["dcg@50"]["ROTATE"]["true"] == pytest.approx(12.90, abs=0.005)
    assert found["dcg@50"]["ROTATE"]["naive"] == pytest.approx(1.38, abs=0.02)


def test_the_marginals_are_what_the_paper_prints(study):
    """True MAEs of Table 1 that follow from the marginals alone, and the shares revealed at alpha = .25."""
    truth = rerank(np.random.default_rng(0).normal(size=(943, 1682)))
    found = study["semi_synthetic"].prediction_matrices(truth, 3)
    reported = json.loads((FOLDER / "published.json").read_text())["table1"]
    for name in ("REC_ONES", "REC_FOURS", "ROTATE", "COARSENED"):
        assert np.abs(found[name] - truth).mean() == pytest.approx(reported[name]["mae"]["true"], abs=0.0006)
    p = alpha_propensities(truth, 0.25)
    shares = [p[truth == r].sum() / p.sum() for r in range(1, 6)]
    assert np.round(shares, 2).tolist() == reported["revealed_shares"]


@pytest.fixture
def small_setting(study):
    """A world of 80 users in which alpha = .125 hides most of the low ratings."""
    semi, fits = study["semi_synthetic"], study["fits"]
    settings = {"seed": 3, "shape": [80, 60], "density": 0.1, "rank": 2, "folds": 2, "penalties": [1e-4, 1e-3, 1e-2]}
    settings |= {"mse_alphas": [0.125], "mae_alphas": [0.125], "mse_trials": 3, "mae_trials": 2}
    assert fits.SMALLEST < 1e-4
    return semi.Setting(semi.ratings_of(None, settings), settings)


def test_the_papers_score_judges_every_method_by_the_known_propensities(study, small_setting):
    """Section 6.1: folds are judged "using the IPS estimator"; weighted alike they are judged by what is revealed."""
    learning, s = study["learning"], small_setting
    case = learning.cases_by_ips(s)["alpha 0.125"]
    p, observed = s.draw(case.alpha, 0)
    _, papers = learning.methods(s, case, 0)
    _, plain = learning.methods(s, case._replace(naive_by_ips=False), 0)
    known, equal = observed.at(p), np.full(len(observed), observed.density)
    for found, judge in ((papers, known), (plain, equal)):
        assert np.array_equal(found["MF-Naive"].fitted, equal)
        assert np.array_equal(found["MF-Naive"].judged, judge)
        assert np.array_equal(found["MF-IPS"].judged, known)
    assert known.max() > 2 * known.min()


@pytest.mark.parametrize(("alpha", "better"), [(0.125, True), (1.0, False)], ids=["selection", "none"])
def test_estimated_propensities_are_better_under_selection_alone(study, alpha, better):
    """Figure 6, right: the check fails in a world without the effect, where ratings are revealed at random."""
    semi, learning = study["semi_synthetic"], study["learning"]
    settings = {"seed": 3, "shape": [120, 80], "density": 0.1, "rank": 2, "folds": 2, "penalties": [1e-4, 1e-3, 1e-2]}
    s = semi.Setting(semi.ratings_of(None, settings), settings)
    known, estimated = (learning.Case(alpha, sample, 8, "mse") for sample in (None, 300))
    points = {f"alpha {alpha:g}": learning.point(s, known), "sample 300": learning.point(s, estimated)}
    test = learning.paired_right(points, alpha, 300)
    assert (test["ratio"] > 1.1) == better
    assert list(learning.check_right(300, test).values()) == [better]


@pytest.mark.parametrize("part", ["table1", "figure2", "figure6", "figure6_by_ips", "figure10", "table2"])
def test_the_committed_page_is_that_of_the_committed_results(study, part):
    result = json.loads((FOLDER / "results.json").read_text())[part]
    of = study["real_table"].markdown if part == "table2" else study["tables"].TEXTS[part]
    assert f"<!-- {part} -->\n\n{of(result).strip()}\n" in (FOLDER / "results.md").read_text()


# ------------------------------------------------------------------------------------------------ logistic propensities


kernel = study_module("schnabel2016", "_logistic_kernel")
logistic_propensities = study_module("schnabel2016", "logistic_propensities")


def test_weak_penalties_reach_the_minimum():
    """Next to a search that stops at rounding; a value within 1e-6 of the minimum is per cents off in propensities."""
    from scipy.optimize import minimize

    g = np.random.default_rng(2)
    x, z = g.normal(size=(30, 2)), g.normal(size=(20, 3))
    p = 1 / (1 + np.exp(2 - 0.8 * x[:, :1] * z[:, 0]))
    observed = Ratings.from_dense(np.ones(p.shape), g.random(p.shape) < p)
    shown = np.zeros(p.shape)
    shown[observed.users, observed.items] = 1.0
    model = logistic_propensities._Bilinear(
        shown, np.ones(p.shape, np.uint8),
        np.column_stack([np.ones(30), x]), np.column_stack([np.ones(20), z]), 0.1,
    )  # fmt: skip

    def objective(theta):
        gradient = np.empty(model.size)
        return model(theta, gradient), gradient

    best = minimize(objective, np.zeros(model.size), jac=True, method="BFGS", options={"gtol": 1e-7})
    expected = 1 / (1 + np.exp(-model.logits(best.x)))
    fit = logistic_propensities.logistic(observed, x, z, penalties=(0.1,))
    assert np.abs(fit.matrix / expected - 1).max() < 2e-3


def test_likelihood_kernel_is_the_plain_twin():
    g = np.random.default_rng(0)
    logits, o = g.normal(size=(6, 5)) * 20, (g.random((6, 5)) < 0.5).astype(float)
    mask = (g.random((6, 5)) < 0.7).astype(np.uint8)
    residual = np.empty((6, 5))
    value = kernel.likelihood(logits, o, mask, residual)
    assert value == pytest.approx((mask * (np.logaddexp(0, logits) - o * logits)).sum())
    assert residual == pytest.approx(mask * (1 / (1 + np.exp(-logits)) - o))


# -------------------------------------------------------------------------------------------- propositions and theorems


bounds = study_module("schnabel2016", "bounds")

TRUTH = np.random.default_rng(0).integers(1, 6, (30, 20)).astype(float)
GUESS = np.clip(TRUTH + np.random.default_rng(1).normal(size=TRUTH.shape), 1, 5)
P = alpha_propensities(TRUTH, 0.5, 0.3)


def test_the_tail_bound_holds_and_has_the_papers_form():
    delta = r.loss("mse", GUESS)
    d = delta.everywhere(TRUTH)
    bound = bounds.tail_bound(d, P, eta=0.1)
    assert bound == pytest.approx(math.sqrt(math.log(20) / 2 * ((d / P) ** 2).sum()) / d.size)
    truth = d.mean()
    outside = [
        abs(r.estimate_ratings(delta, Ratings.from_dense(TRUTH, observe(P, s)), P).ips - truth) > bound
        for s in range(200)
    ]
    assert np.mean(outside) <= 0.1
    assert bounds.tail_bound(d, np.ones_like(P)) == 0.0
    # uniform propensities p: O(1 / (p sqrt(UI))); unequal ones of the same sum pay more
    wide = [bounds.tail_bound(np.ones((n, n)), np.full((n, n), p)) for n, p in ((10, 0.2), (40, 0.2), (10, 0.05))]
    assert wide[0] / wide[1] == pytest.approx(4)
    assert wide[2] / wide[0] == pytest.approx(4)
    assert bounds.tail_bound(np.ones_like(P), P) > bounds.tail_bound(np.ones_like(P), np.full_like(P, P.mean()))


def test_theorem_4_covers_what_theorem_2_does_not():
    """Propensities ten times too large: the estimate misses nine tenths of the risk, more than Theorem 2 allows for."""
    g = np.random.default_rng(3)
    truth = g.integers(1, 6, (400, 300)).astype(float)
    p = np.full(truth.shape, 0.05)
    d = r.loss("mse", np.full(truth.shape, 3.0)).everywhere(truth)
    estimated = p * 10
    gaps = np.array([d.mean() - (d * observe(p, seed) / estimated).mean() for seed in range(20)])
    assert np.all(gaps > bounds.erm_bound(4.0, estimated, 1, 0.1))
    assert np.all(gaps <= bounds.erm_bound_inaccurate(4.0, p, estimated, 1, 0.1))
    known = 4.0 / p.size * math.sqrt(math.log(2 * 5 / 0.1) / 2 * (1 / p**2).sum())  # Theorem 2, of five hypotheses
    assert bounds.erm_bound_inaccurate(4.0, p, p, 5, 0.1) == pytest.approx(known)


def test_lemma_3_is_truth_minus_expected_estimate():
    delta = r.loss("mae", GUESS)
    d = delta.everywhere(TRUTH)
    wrong = np.minimum(P * 1.5, 1.0)
    expected_estimate = (P / wrong * d).mean()
    assert bounds.bias_inaccurate(d, P, wrong) == pytest.approx(d.mean() - expected_estimate)
    assert bounds.bias_inaccurate(d, P, wrong) > 0  # propensities too high: the estimate is too low
