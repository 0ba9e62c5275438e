"""HL-MAR and HL-MNAR: kernels, bound, and recovery of what they model."""

import numpy as np
import pytest
from scipy.stats import norm
from study_modules import study_module

from recsim_mnar.log.ratings import Ratings
from twins import ordinal as twin
from twins.cases import quick_first

kernel, updates = (study_module("schnabel2016", name) for name in ("_ordinal_kernel", "posterior"))
HL, Posterior = study_module("schnabel2016", "ordinal").HL, updates.Posterior
LEVELS = np.arange(1.0, 6.0)


def drawn_from_hl(seed, n_users, n_items):
    """Ratings of the model's own making: high ones are revealed more often."""
    g = np.random.default_rng(seed)
    y = g.normal(size=(n_users, 2)) @ g.normal(size=(2, n_items)) + g.normal(size=(n_users, 1)) * 0.5
    y = y + g.normal(size=y.shape)
    truth = 1.0 + np.searchsorted([-0.5, 0.3, 1.0, 1.8], y)
    z = np.array([-2.2, -1.8, -1.0, -0.2, 0.4])
    h = z[truth.astype(int) - 1] + 0.2 * g.normal(size=(1, n_items)) + 0.2 * g.normal(size=(n_users, 1))
    return Ratings.from_dense(truth, h + g.normal(size=truth.shape) > 0)


def some_posterior(missing, seed=0, shape=(5, 4)):
    """A posterior in no special place."""
    g = np.random.default_rng(seed)
    truth = g.integers(1, 6, shape).astype(float)
    made = Posterior(
        Ratings.from_dense(truth, g.random(shape) < 0.4), LEVELS, rank=2, missing_rank=1, response_spread=0.5,
        base_spread=1.0, seed=seed,
    )  # fmt: skip
    made.missing = missing
    made.cuts, made.base = np.array([-1.0, -0.2, 0.5, 1.1]), np.array([-1.2, -0.9, -0.1, 0.2, 0.9])
    for side in made.sides:
        side.response.mean = 0.3 * g.normal(size=side.response.mean.shape)
        for part in (side.taste, side.activity):
            part.mean[:, part.free] += 0.5 * g.normal(size=(len(part.mean), part.free.sum()))
    made.evaluate()
    return made


def cell(made, u, i):
    """F of one cell as a function of m, g, z, p_u and cuts, by the twin."""
    spread = np.ones(5)
    for side, row in zip(made.sides, (u, i), strict=True):
        spread = spread * np.exp(-0.5 * np.diag(side.response.covariance[row]))
    p, q = made.sides[0].response.mean[u], made.sides[1].response.mean[i]

    def value(m, g=0.0, z=0.0, cuts=0.0):
        h = made.base + z + made.cells.activity[u, i] + g + p + q
        known = twin.reveal(made.observed[u, i], made.missing, h, spread)
        return twin.likelihood(m, made.cuts + cuts, known), known

    return value


@pytest.mark.parametrize("missing", [False, True])
def test_cells_are_the_plain_twins(missing):
    made = some_posterior(missing)
    cells, e = made.cells, 1e-5
    variance = twin.moments(made.sides[0].taste, made.sides[1].taste)[1]
    activity_variance = twin.moments(made.sides[0].activity, made.sides[1].activity)[1]
    bounds, mass, push = np.zeros((5, 4)), np.zeros((5, 4, 5)), np.zeros((5, 4, 5))
    cut_slope, information = np.zeros(4), np.zeros((9, 9))
    for u, i in np.ndindex(5, 4):
        seen = made.observed[u, i]
        if seen < 0 and not missing:
            assert cells.slope[u, i] == cells.sharpness[u, i] == 0
            continue
        f, m = cell(made, u, i), cells.mean[u, i]
        value, known = f(m)
        bounds[u, i] = value - 0.5 * cells.sharpness[u, i] * variance[u, i] - 0.5 * missing * activity_variance[u, i]
        assert cells.slope[u, i] == pytest.approx((f(m + e)[0] - f(m - e)[0]) / (2 * e), abs=1e-8)
        assert cells.activity_slope[u, i] == pytest.approx((f(m, g=e)[0] - f(m, g=-e)[0]) / (2 * e), abs=1e-8)
        worst = updates._limits(made.cuts)[seen] if seen >= 0 else twin.sharpest(made.cuts, known)
        assert worst <= cells.sharpness[u, i] + 1e-6  # the curvature bound is one
        assert cells.sharpness[u, i] <= 1.15 * worst + 0.02  # and not far away
        probabilities = twin.level_chances(m, made.cuts) * known
        mass[u, i] = probabilities / probabilities.sum()
        push[u, i] = [(f(m, z=e * d)[0] - f(m, z=-e * d)[0]) / (2 * e) for d in np.eye(5)]
        own = [(f(m, cuts=e * d)[0] - f(m, cuts=-e * d)[0]) / (2 * e) for d in np.eye(4)]
        cut_slope += own
        information += np.outer([*own, *push[u, i]], [*own, *push[u, i]])
    for side in (0, 1):
        assert cells.bounds[side] == pytest.approx(bounds.sum(axis=1 - side), abs=1e-10)
        assert cells.mass[side] == pytest.approx(mass.sum(axis=1 - side), abs=1e-10)
        assert cells.push[side] == pytest.approx(push.sum(axis=1 - side), abs=1e-7)
    assert cells.base_slope == pytest.approx(push.sum(axis=(0, 1)), abs=1e-7)
    assert cells.cut_slope == pytest.approx(cut_slope, abs=1e-7)
    assert cells.information == pytest.approx(information, abs=1e-6)


@pytest.mark.slow
def test_the_curvature_is_at_least_the_largest():
    """Random cuts and reveal probabilities, narrow and wide, flat and steep; the truth on a grid of .03."""
    g = np.random.default_rng(1)
    loose = []
    for case in range(1500):
        cuts = np.sort(g.normal(size=4) * [0.3, 1.2, 3.0][case % 3]) + 2e-3 * np.arange(4)
        reveal = norm.cdf(-(g.normal() + [0.1, 0.5, 1.5, 4.0][case % 4] * g.normal(size=5)))
        m = np.arange(cuts[0] - 9, cuts[-1] + 9, 0.03)
        t = cuts - m[:, None]
        total = twin.level_chances(m[:, None], cuts) @ reveal
        drop = reveal[:-1] - reveal[1:]
        truth = ((norm.pdf(t) @ drop / total) ** 2 + (t * norm.pdf(t)) @ drop / total).max()
        low, high = cuts[0] - updates.REACH, cuts[-1] + updates.REACH
        points = np.linspace(low, high, int(np.ceil((high - low) / updates.SPACING)) + 1)
        table = np.empty((3, len(points), 5))
        kernel.curves(points, cuts, table)
        found = kernel.sharpest(table, reveal)
        if reveal.max() > kernel.SPREAD_OF_REVEALS * reveal.min():
            assert found == 1.0  # the largest there is: -F'' is 1 less a variance
        else:
            assert truth <= found * (1 + 1e-9) + 1e-9
            loose.append(found / truth)
    assert len(loose) > 1000
    assert np.median(loose) < 1.12


def test_divergence_is_that_of_normals():
    g = np.random.default_rng(0)
    root = g.normal(size=(3, 3))
    some = updates.Normal(np.ones((1, 4)), np.zeros((1, 4, 4)), np.array([0.5, 2.0, 1.0, 7.0]), one=3)
    some.mean[0, :3], some.covariance[0, :3, :3] = g.normal(size=3), root @ root.T + np.eye(3)
    mean, covariance, prior = some.mean[0, :3], some.covariance[0, :3, :3], some.prior[:3]
    expected = np.trace(covariance / prior) + (mean**2 / prior).sum() - 3
    expected += np.log(prior).sum() - np.linalg.slogdet(covariance)[1]
    assert some.divergence()[0] == pytest.approx(0.5 * expected)


@pytest.mark.slow
def test_the_bound_is_below_the_evidence():
    """One user, one item, nothing but offsets: the evidence is an integral that Monte Carlo can do."""
    made = some_posterior(True, shape=(1, 1))
    seen, draws = made.observed[0, 0], 40_000
    g = np.random.default_rng(0)
    total = np.zeros((2, draws))
    for row, name in enumerate(("taste", "activity")):
        x, y = (
            np.where(part.free, g.normal(size=(draws, len(part.prior))) * np.sqrt(part.prior), 1.0)
            for part in (getattr(side, name) for side in made.sides)
        )
        total[row] = (x * y).sum(axis=1)
    weights = sum(np.sqrt(side.response.prior) * g.normal(size=(draws, 5)) for side in made.sides)
    h = made.base + total[1][:, None] + weights
    known = np.array([twin.reveal(seen, True, row, 1.0) for row in h])
    probabilities = np.array([twin.level_chances(m, made.cuts) for m in total[0]])
    evidence = (probabilities * known).sum(axis=1)
    for _ in range(20):
        made._update_side(0)
        made._update_side(1)
    pull = 0.5 * ((made.base - made.base.mean()) ** 2).sum()  # z's prior, a constant here
    error = 4 * evidence.std() / np.sqrt(draws) / evidence.mean()
    assert made.bound + pull <= np.log(evidence.mean()) + error
    assert made.bound + pull >= np.log(evidence.mean()) - 0.5


@pytest.mark.parametrize(
    "options", quick_first([{"missing": False}, {"missing_rank": 0}, {"rank": 0}, {"response_spread": 1.0}])
)
def test_the_lower_bound_never_falls(options):
    for seed in range(2):
        observed = drawn_from_hl(seed, 30, 25)
        fit = HL(**{"rank": 2, "iterations": 25, "trial": 5, "warm_up": 10, **options}).fit(observed, seed)
        assert len(fit.bounds) > 5
        assert np.diff(fit.bounds).min() >= -1e-9 * abs(fit.bounds[-1])
        assert fit.shares.sum() == pytest.approx(1.0)
        assert np.all((fit.matrix >= 1) & (fit.matrix <= 5))
        assert np.isin(fit.medians, LEVELS).all()
