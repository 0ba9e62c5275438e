"""The benchmark of Sato et al. 2019: what is chosen, judged and kept, its cells, learners, worlds and propensities."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy, draw
from recsim_mnar.purchases.uplift import evaluate_lists, top_items
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.simulation import simulate
from toys import refused
from twins.purchases_log import propensity_matrix, small_exposures
from twins.training import neighbour_uplift

N_USERS, N_ITEMS = 30, 20


def test_the_four_lists_are_ranked_in_opposite_order(sato):
    found = sato["argument"].table1()
    assert all(found["checks"].values())
    assert [r["total"] for r in found["rows"].values()] == [6, 4, 2, 0]
    assert not sato["argument"].falls([2, 2, 1])


def test_periods_are_split_as_in_the_paper(sato):
    # 93 weeks, 8 in an evaluation; the paper counts from 1: 1..77 and 78..85, then 9..85 and 86..93.
    parts = sato["logs"].phases(93, 8)
    ends = {name: [(int(p[0]) + 1, int(p[-1]) + 1) for p in pair] for name, pair in parts.items()}
    assert ends == {"validation": [(1, 77), (78, 85)], "test": [(9, 85), (86, 93)]}
    with refused("too few"):
        sato["logs"].phases(5, 2)


def test_the_benchmarks_logs_are_those_of_simulate(sato):
    world = PurchasesWorld(PurchasesParams(n_items=N_ITEMS, n_periods=3, slate_size=5))
    ours = sato["semi"].log_of(world, N_USERS, 3, 5)
    theirs = Exposures.from_log(
        simulate(world, DeployedPolicy(world), N_USERS, 5), n_users=N_USERS, n_items=N_ITEMS, n_periods=3
    )
    for name in ("user", "item", "time", "recommended", "purchased"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    np.testing.assert_allclose(propensity_matrix(ours), world.deployed_propensities(5, np.arange(N_USERS)), rtol=1e-6)


def test_a_window_judges_as_the_package_does(sato, log, drawn_scores):
    logs = sato["logs"]
    data, window = logs.phase(log, "test")
    scores = drawn_scores()
    lists = top_items(scores, 4)
    result = evaluate_lists(
        data.exposures, lists, metrics=logs.METRICS, periods=window.periods, present=log.present, clip=1e-3
    )
    ours = window.estimates(lists)
    for metric, estimate in result.items():
        # the window keeps propensities in single precision
        np.testing.assert_allclose(ours[metric], [estimate.value, estimate.low, estimate.high], rtol=1e-5)
    assert window.uplift(scores, 4) == pytest.approx(result["uplift"].value, rel=1e-12)
    for empty in ("zero", "half"):
        both = evaluate_lists(
            data.exposures, lists, metrics=("uplift", "uplift_snips"), periods=window.periods, present=log.present,
            clip=1e-3, empty=empty,
        )  # fmt: skip
        assert window.uplift(scores, 4, empty) == pytest.approx(both["uplift"].value, rel=1e-12)
        for metric, estimate in both.items():
            assert ours[f"{metric}_{empty}"] == pytest.approx(estimate.value, rel=1e-5)
    shares = window.classes(lists)
    z, y = (
        np.concatenate([f[log.present[:, t]] for t, f in flags])
        for flags in zip(*([(t, f) for f in log.exposures.flags(np.arange(N_USERS)[:, None], lists, t)]
                           for t in window.periods), strict=True)
    )  # fmt: skip
    assert shares == pytest.approx([(z & y).mean(), (z & ~y).mean(), (~z & y).mean(), (~z & ~y).mean()])


def test_propensities_are_of_the_training_periods(sato, log):
    x = log.exposures
    data, window = sato["logs"].phase(log, "test")
    kept = x.time < window.periods[0]
    cut = Exposures(
        x.user[kept], x.item[kept], x.time[kept], x.recommended[kept], x.purchased[kept], N_USERS, N_ITEMS, x.n_periods
    )
    again, _ = sato["logs"].phase(replace(log, exposures=cut), "test")
    np.testing.assert_array_equal(data.exposures.propensities, again.exposures.propensities)
    np.testing.assert_array_equal(data.popularity(), again.popularity())


def test_nothing_of_the_test_periods_enters_the_choice(sato, log, settings, tmp_path):
    x = log.exposures
    other = Exposures(
        x.user, x.item, x.time, np.where(x.time >= 5, ~x.purchased | ~x.recommended, x.recommended),
        np.where(x.time >= 5, True, x.purchased), N_USERS, N_ITEMS, x.n_periods,
    )  # fmt: skip
    picks = [
        sato["real"].validation(replace(log, exposures=e), settings, tmp_path / str(k))
        for k, e in enumerate((x, other))
    ]
    assert picks[0] == picks[1]
    assert (tmp_path / "0" / "tafeng.chosen.json").exists()


def test_the_committed_tables_are_those_of_the_committed_summary(sato, tmp_path):
    run = sato["run"]
    shutil.copy(run.HERE / "results.json", tmp_path / "results.json")
    assert run.main(["claims", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "results.md").read_text() == (run.HERE / "results.md").read_text()


# ------------------------------------------------------------------------------------------ cells, intervals, equations


def test_what_is_judged_without_all_cells_is_what_a_window_judges(sato, log, drawn_scores):
    data, window = sato["logs"].phase(log, "test")
    for seed in range(3):
        lists = top_items(drawn_scores(seed), 4)
        result, ours = window.estimates(lists), sato["logs"].judged(data.exposures, lists, window.periods, log.present)
        for metric in ("uplift", "uplift_snips", "precision"):
            np.testing.assert_allclose(ours[metric], result[metric], rtol=1e-5)
        assert (ours["left_out"], ours["periods_without"]) == (result["left_out"], result["periods_without"])


def test_intervals_of_paired_differences_cover(sato):
    """Users and trainings drawn anew: the 95 % interval covers the truth in 95 % of draws."""
    analysis, g = sato["analysis"], np.random.default_rng(11)
    n_users, n_periods, n_trainings, n_draws, truth = 120, 3, 5, 600, 0.3
    user, period = (x.ravel() for x in np.mgrid[:n_users, :n_periods])
    covered = 0
    for _ in range(n_draws):
        taste = 3.0 * g.normal(size=n_users)[user]  # what a user has in common under all methods
        parts = []
        for shift in (truth, 0.0):
            own = g.normal(size=n_users)[user] * 0.5  # of the method
            level = g.normal(scale=0.15, size=(n_trainings, 1))
            values = shift + taste + own + level + g.normal(scale=0.5, size=(n_trainings, len(user)))
            values[g.random(values.shape) < 0.1] = np.nan
            parts.append(analysis.training_parts(values, user, period))
        _, low, high = analysis.paired_difference(*parts)
        covered += low <= truth <= high
    error = np.sqrt(0.05 * 0.95 / n_draws)
    assert covered / n_draws == pytest.approx(0.95, abs=4 * error)


@pytest.mark.parametrize("coupling", ["independent", "shared"])
def test_equations_7_and_8_are_shares_of_the_drawn_classes(sato, coupling):
    world = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=-2.0, effect=1.5, coupling=coupling))
    n, n_periods = 300, 60
    result = sato["argument"].equations(world, n, 4)[coupling]["as it is"]
    users, e = np.arange(n), world.deployed_propensities(4, np.arange(n))
    counts = np.zeros(6)
    for t in range(n_periods):
        control, treated = world.potential_outcomes(4, users, t)
        tu = treated & ~control
        z = draw(4, users, t, e, world.params)
        y = np.where(z, treated, control)
        sets = (~z & ~y, tu, tu & ~z & ~y, z & y, tu & z & y, control & ~treated)
        counts += [x.sum() for x in sets]
    nrnp, tu, both, rp, tu_rp, td = counts
    cells = n * 40 * n_periods
    for name, share, size in (
        ("NR-NP", nrnp / cells, cells), ("TU", tu / cells, cells), ("TD", td / cells, cells),
        ("TU in NR-NP", both / cells, cells),
        ("TU given NR-NP", both / nrnp, nrnp), ("TU given R-P", tu_rp / rp, rp),
    ):  # fmt: skip
        assert result[name] == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / size)), name


def test_the_logs_without_an_effect_are_those_with_it_but_for_what_recommendations_cause(sato):
    own = {"users": 200, "world": {"n_items": 30, "n_periods": 4}}
    with_effect, without = (sato["no_effect"].world_of("personalised", effect, 1, own) for effect in (True, False))
    users = np.arange(200)
    truth, nothing = with_effect.outcomes_of(1, users), without.outcomes_of(1, users)
    assert np.array_equal(truth.control, nothing.control)
    assert np.array_equal(nothing.treated, nothing.control)
    assert truth.uplift.mean() > 0.01
    e = [world.deployed_propensities(1, users) for world in (with_effect, without)]
    assert np.array_equal(*e)


# ------------------------------------------------------------------------------------------------------- later learners


later = study_module("sato2019", "later_learners")
CIBN, CUBN, DLCE = later.CIBN, later.CUBN, later.DLCE
CERTAIN = small_exposures().with_propensities(np.ones((1, 1, 1)))


def tallies(exposures):
    """Per (user, item): recommended periods, purchases in them, other purchases; periods with a purchase per user."""
    periods = (exposure_propensities.dense(exposures, t) for t in range(exposures.n_periods))
    shown, bought = (np.stack(x) for x in zip(*periods, strict=True))
    active = bought.any(axis=2)
    shown = shown & active[:, :, None]
    return shown.sum(0), (shown & bought).sum(0), (bought & ~shown).sum(0), active.sum(0)


def cosines(x):
    norms = np.sqrt((x**2).sum(axis=1))
    return (x @ x.T) / np.maximum(np.outer(norms, norms), 1e-30)


@pytest.mark.parametrize("kind", [CUBN, CIBN])
@pytest.mark.parametrize("similar_by", ["purchases", "treatment"])
@pytest.mark.parametrize("neighbours", [3, 100])
def test_scores_are_the_definition(kind, similar_by, neighbours):
    exposures = small_exposures()
    shown, sold, alone, periods = tallies(exposures)
    similar = (sold + alone if similar_by == "purchases" else shown).astype(float)
    similarity = cosines(similar if kind is CUBN else similar.T)
    learner = kind(neighbours=neighbours, similar_by=similar_by, shrinkage_treated=0.7, shrinkage_control=2.0)
    policy = learner.fit_exposures(exposures)
    users = np.arange(exposures.n_users)
    policy.reset(users)
    scores = policy.scores(users)
    for u in (0, 7, 29):
        for i in range(exposures.n_items):
            own = similarity[u if kind is CUBN else i]
            near = [v for v in np.argsort(-np.round(own, 12), kind="stable") if own[v] > 0][:neighbours]
            if kind is CUBN:
                args = (u, i, near, own[near], shown, sold, alone, periods)
            else:
                n = np.full(exposures.n_items, periods[u])
                args = (i, u, near, own[near], shown.T, sold.T, alone.T, n)
            assert scores[u, i] == pytest.approx(neighbour_uplift(*args, (0.7, 2.0)), abs=1e-6)


def test_dlce_weights_by_clipped_propensities():
    trainer = DLCE(chi=0.25).trainer(CERTAIN)
    _, _, part = later.item_columns(trainer.plan.observed)
    weights = trainer.loss.signed[part != 4]
    assert np.abs(weights).mean() == pytest.approx(1.0, rel=1e-6)
    assert np.unique(np.round(weights / weights.max(), 6)).size == 2
    assert np.abs(weights).max() / np.abs(weights).min() == pytest.approx(4.0, rel=1e-6)


# ------------------------------------------------------------------------------------------------------ smoothed worlds


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


# -------------------------------------------------------------------------------------------- propensities of exposures


exposure_propensities = study_module("sato2019", "exposure_propensities")
recent, shares = exposure_propensities.recent, exposure_propensities.shares
logistic_of_groups = exposure_propensities.logistic_of_groups


def of_grid(z, y=None, e=None):
    y = np.zeros_like(z) if y is None else y
    u, i, t = np.nonzero(z | y)
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *z.shape, propensities=e)


def test_shares_are_those_of_the_training_periods_and_stay_inside():
    z = np.zeros((4, 3, 6), bool)
    z[:, 0, :4], z[:2, 1, 0], z[:, 2, 4:] = True, True, True
    table = shares(of_grid(z), range(4), prior=1e-9)
    assert table.shape == (1, 3, 1)
    assert np.allclose(table[0, :, 0], [1.0, 2 / 16, 0.0])
    table = shares(of_grid(z), range(4))[0, :, 0]
    assert np.all((table > 0) & (table < 1))
    present = np.ones((4, 6), bool)
    present[2:, :2] = False
    z[2:, :, :2] = False
    assert np.allclose(shares(of_grid(z), range(4), present=present, prior=1e-9)[0, :, 0], [1.0, 2 / 12, 0.0])


def test_grouped_logistic_regression_finds_where_the_gradient_vanishes():
    design = np.array([[1.0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]])
    positive, total = np.array([10.0, 60, 5, 30]), np.array([100.0, 90, 80, 70])
    beta = logistic_of_groups(design, positive, total, ridge=0.0)
    fitted = 1 / (1 + np.exp(-(design @ beta)))
    assert np.allclose(design.T @ (positive - total * fitted), 0, atol=1e-6)
    apart = logistic_of_groups(design[:2], np.array([0.0, 90]), total[:2])  # separable: the ridge keeps it finite
    assert np.all(np.isfinite(apart))


def standard_errors(features, true):
    """Of a logistic regression's coefficients, from the information at the true ones."""
    design = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    probability = logistic(true, features)
    return np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (probability * (1 - probability))[:, None]))))


def latest(by, flags, present, t):
    """Of the last two periods (users, items, 2): a user's own counts, or an item's share of the users present."""
    last = [x[:, :, max(t - 2, 0) : t] for x in flags]
    if by == "user":
        return np.stack([x.sum(axis=2) for x in last], axis=2)
    users = max(present[:, max(t - 2, 0) : t].sum(), 1)
    shares = np.stack([x.sum(axis=(0, 2)) / users for x in last], axis=1)
    return np.broadcast_to(shares, (len(present), *shares.shape))


def logistic(coefficients, features):
    return 1 / (1 + np.exp(-(coefficients[0] + features @ coefficients[1:])))


@pytest.mark.verify
@pytest.mark.parametrize(("by", "true"), [("user", [-2.0, 0.8, 0.5]), ("item", [-2.0, 2.5, 1.5])])
def test_recent_periods_give_back_the_law_that_made_them(by, true):
    """Recommendations drawn by that law from the last two periods; within 4.5 standard errors."""
    draw, true, shape = np.random.default_rng(0), np.array(true), (300, 25, 14)
    present = draw.random((300, 14)) < 0.7
    y, z = (draw.random(shape) < draw.random((1, 25, 1)) * 0.6) & present[:, None], np.zeros(shape, bool)
    for t in range(14):
        probability = logistic(true, latest(by, (z, y), present, t))
        z[:, :, t] = (draw.random(shape[:2]) < probability) & present[:, t, None]
    exposures = of_grid(z, y)
    fitted = recent(exposures, range(10), by=by, lags=2, present=present)
    rows = [latest(by, (z, y), present, t)[present[:, t]].reshape(-1, 2) for t in range(2, 10)]
    assert np.all(np.abs(fitted.coefficients - true) < 4.5 * standard_errors(np.concatenate(rows), true))
    asked, (u, i) = exposures.with_propensities(fitted), np.indices(shape[:2])
    for t in (0, 11):
        expected = logistic(fitted.coefficients, latest(by, (z, y), present, t))
        np.testing.assert_allclose(asked.propensity_of(u, i, np.full(u.shape, t)), expected, rtol=1e-6)
