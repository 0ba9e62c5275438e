"""Uplift estimators: by hand, against the truth of a world, and what bad input gets."""

import functools
import runpy
from pathlib import Path

import numpy as np
import pytest

from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.purchases.uplift import (
    LIST_METRICS,
    causal_precision,
    evaluate_lists,
    top_items,
)
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate
from toys import refused
from twins.findings import codes, finding
from twins.purchases_log import of_grid, random_grid


def test_list_metrics_are_the_papers_equations():
    z, y, e = random_grid(1)
    exposures = of_grid(z, y, e)
    lists = np.array([[0, 1, 3, 4], [1, 0, 2, 5], [6, 0, 1, 2], [0, 1, 5, 6], [3, 1, 0, 2], [2, 1, 0, 6]])
    users = np.arange(6)[:, None]
    treated, bought = z[users, lists], y[users, lists]  # user by place by period
    propensity = e[users, lists].astype(float)
    weight = np.where(treated, 1 / propensity, 1 / (1 - propensity))
    gain, base = ((weight * bought * half).sum(axis=1) for half in (treated, ~treated))
    gain_weight, base_weight = ((weight * half).sum(axis=1) for half in (treated, ~treated))
    gain_share, base_share = ((bought & half).sum(axis=1) / half.sum(axis=1) for half in (treated, ~treated))
    expected = {
        "uplift": gain_share - base_share,
        "uplift_snips": gain / gain_weight - base / base_weight,
        "uplift_ips": (gain - base) / 4,
        "precision": bought.mean(axis=1),
        "precision_recommended": gain_share,
    }
    result = evaluate_lists(exposures, lists, metrics=LIST_METRICS)
    for metric in LIST_METRICS:
        assert result[metric].value == pytest.approx(expected[metric].mean(), rel=1e-6)
    # nothing is bought without a recommendation: what is left is the counterfactual precision of the recommended
    clicks = evaluate_lists(of_grid(z, y & z, e), lists, metrics=("uplift", "precision_recommended"))
    assert clicks["uplift"].value == clicks["precision_recommended"].value
    twice = evaluate_lists(exposures, np.stack([lists, lists]), metrics=LIST_METRICS)
    assert {m: r.value for m, r in twice.items()} == {m: r.value for m, r in result.items()}


def test_intervals_do_not_depend_on_what_else_is_asked_for():
    z, y, e = random_grid(4)
    lists = np.tile([0, 1, 4], (6, 1))
    together = evaluate_lists(of_grid(z, y, e), lists, metrics=LIST_METRICS)
    for metric in LIST_METRICS:
        alone = evaluate_lists(of_grid(z, y, e), lists, metrics=(metric,))[metric]
        assert (alone.low, alone.high) == (together[metric].low, together[metric].high), metric


@pytest.fixture
def halves():
    """Purchases and lists: user 0 has treated and control items, users 1 to 3 have either."""
    z, y = np.zeros((2, 4, 4, 1), bool)
    z[0, 0], z[1, :2], z[2, 2] = True, True, True
    y[:, 1], y[0, 0] = True, True
    return of_grid(z, y, np.full((1, 1, 1), 0.5)), np.tile([0, 1], (4, 1))


def test_users_without_a_treated_or_a_control_item_are_left_out_and_counted(halves):
    result = evaluate_lists(*halves)
    uplift = result["uplift"]
    assert uplift.value == 1.0 - 1.0  # user 0 alone: both of its items were bought
    details = uplift.diagnostics
    assert (details["user_periods"], details["without_treated"], details["without_control"]) == (4, 2, 1)
    assert finding(uplift, "left_out").message.startswith("75 % of lists")
    assert uplift.verdict.level == "do_not_use"  # four users
    assert result["uplift_ips"].value == pytest.approx(np.mean([0, 1, -1, -1]))
    assert "left_out" not in codes(result["uplift_ips"])


def test_an_empty_half_counts_as_stated(halves):
    """The means of the two halves are 1 and 1, .5 and none, none and .5, none and .5."""
    assert evaluate_lists(*halves, empty="zero")["uplift"].value == 0.0
    half = evaluate_lists(*halves, empty="half")["uplift"]
    assert half.value == pytest.approx(np.mean([0.0, 0.5, -0.5, -0.5]))
    assert any("count their other half" in doubt.message for doubt in half.verdict.findings)
    with refused("unknown way to count"):
        evaluate_lists(*halves, metrics=("uplift",), empty="skip")


def test_only_users_who_are_present_count():
    z, y, e = random_grid(3)
    y[2] = False
    exposures = of_grid(z, y, e)
    present = np.ones((6, 2), bool)
    present[2] = False
    lists = np.tile([0, 1, 4], (6, 1))
    flagged, active = (evaluate_lists(exposures, lists, present=p) for p in (present, "active"))
    rest = np.arange(6) != 2
    alone = evaluate_lists(of_grid(z[rest], y[rest], e[rest]), lists[rest])
    for metric in ("uplift", "uplift_snips", "uplift_ips", "precision"):
        assert flagged[metric].value == active[metric].value == pytest.approx(alone[metric].value)


def test_with_the_truth_rankings_are_scored_by_true_uplift():
    tau = np.array([[0.5, -0.1, 0.0], [0.0, 0.2, 0.4]])
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0]])
    assert top_items(scores, 2).tolist() == [[0, 1], [1, 2]]
    assert causal_precision(tau, top_items(scores, 2)).value == pytest.approx(np.mean([0.2, 0.3]))
    ties = top_items(np.zeros((400, 5)), 1)[:, 0]
    assert np.all(np.bincount(ties, minlength=5) > 40)  # 80 expected, standard error 8


# ------------------------------------------------------------------------------------------------- a world's own truth

N_USERS = 100
N_ITEMS = 60


@functools.cache
def study(deployment, n_logs):
    """Errors and coverage over logs of the same users; lists: what each user is most likely to buy if recommended."""
    params = PurchasesParams(
        n_items=N_ITEMS, n_periods=1, slate_size=10, deployment=deployment, base=-2.5, smallest_propensity=0.01,
        exponent=1.0,
    )  # fmt: skip
    truth = PurchasesWorld(params).outcomes_of(0, np.arange(N_USERS))
    world = PurchasesWorld(params, control=truth.control, treated=truth.treated)
    e = world.deployed_propensities(0, np.arange(N_USERS))[:, :, None]
    lists = top_items(truth.treated, 10)
    true = causal_precision(truth.uplift, lists).value
    errors = {name: [] for name in LIST_METRICS[:4]}
    covered = {name: [] for name in errors}
    for seed in range(n_logs):
        log = simulate(world, DeployedPolicy(world), N_USERS, seed)
        exposures = Exposures.from_log(log, n_users=N_USERS, n_items=N_ITEMS, n_periods=1, propensities=e)
        for name, estimate in evaluate_lists(exposures, lists, metrics=tuple(errors)).items():
            errors[name].append(estimate.value - true)
            covered[name].append(estimate.low <= true <= estimate.high)
    bias = {name: (np.mean(v), np.std(v, ddof=1) / np.sqrt(n_logs)) for name, v in errors.items()}
    return true, bias, {name: np.mean(hits) for name, hits in covered.items()}


@pytest.mark.verify
@pytest.mark.slow
def test_with_random_recommendations_every_estimator_is_unbiased():
    """500 logs, within three standard errors."""
    _true, bias, _covered = study("uniform", 500)
    for name, (error, se) in bias.items():
        assert abs(error) < 3.0 * se, name


@pytest.mark.verify
@pytest.mark.slow
def test_with_personalised_recommendations_only_the_ips_forms_are_unbiased():
    """The trap of models.md, measured: plain Uplift@10 is far off, the ratio in each user half as far, IPS not."""
    true, bias, _ = study("personalised", 300)
    error, se = bias["uplift_ips"]
    assert abs(error) < 3.5 * se
    plain, _ = bias["uplift"]
    ratio, ratio_se = bias["uplift_snips"]
    assert plain > 0.4 * true
    assert ratio > 10 * ratio_se
    assert plain > 1.5 * ratio


@pytest.mark.verify
@pytest.mark.slow
def test_intervals_of_unbiased_estimators_cover():
    """95 % intervals; a binomial share over 300 logs has a standard error of 1.3 %, three of them are allowed."""
    _true, _bias, covered = study("personalised", 300)
    assert covered["uplift_ips"] > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)
    assert covered["uplift"] < 0.5


# ------------------------------------------------------------------------------------------------------------ bad input


Z, Y, E = random_grid()
EXPOSURES = of_grid(Z, Y, E)
LISTS = np.tile([0, 1, 2], (6, 1))
ZERO = np.where(np.arange(7)[None, :, None] == 0, 0.0, E)


@pytest.mark.parametrize(
    ("exposures", "lists", "options", "words"),
    [
        (EXPOSURES, LISTS, {"metrics": ["uplft"]}, "unknown list metric"),
        (of_grid(Z, Y), LISTS, {"metrics": ["uplift_ips"]}, "no propensities"),
        (EXPOSURES, LISTS, {"clip": 1.5}, "clip must be in"),
        (EXPOSURES, LISTS, {"level": 95}, "level must be .*, got 95; this looks"),
        (EXPOSURES, LISTS[:3], {}, "lists must have shape"),
        (EXPOSURES, np.tile(np.arange(8), (6, 1)), {}, "N = 8 items cannot be made of 7 items"),
        (EXPOSURES, LISTS * 0, {}, "the list of user 0 has item 0 twice"),
        (EXPOSURES, LISTS + 5, {}, "a list has item 7, outside 0..6"),
        (EXPOSURES, LISTS * 1.0, {}, "must hold integers"),
        (of_grid(Z, Y, ZERO), LISTS, {}, "user 0, item 0, period 0: the propensity is 0"),
        (of_grid(Z & False, Y, E), LISTS, {"metrics": ["uplift"]}, "no user's list has both"),
        (EXPOSURES, LISTS, {"present": "some"}, "present must be 'all', 'active' or flags"),
        (EXPOSURES, LISTS, {"present": np.zeros((6, 2))}, "period 0 has no user who is present"),
        (of_grid(Z, Y & False, E), LISTS, {"present": "active"}, "period 0 has no purchase"),
    ],
)
def test_bad_input_gets_one_line(exposures, lists, options, words):
    with refused(words):
        evaluate_lists(exposures, lists, **options)


def test_a_clip_lifts_a_propensity_of_0():
    assert evaluate_lists(of_grid(Z, Y, ZERO), LISTS, clip=0.05)


@pytest.mark.parametrize(
    ("scores", "n", "words"),
    [
        (np.zeros((2, 3)), 4, "N = 4 items cannot be made of 3"),
        (np.full((2, 3), np.nan), 1, "the score of user 0 for item 0 is not a number"),
    ],
)
def test_bad_scores_get_one_line(scores, n, words):
    with refused(words):
        top_items(scores, n)


def test_accuracy_and_uplift_rank_the_four_lists_in_opposite_order():
    """Table 1: total uplift and Uplift@10 fall where precision rises; precision of the recommended does not move."""
    example = Path(__file__).parents[2] / "examples" / "uplift_four_lists.py"
    rows = runpy.run_path(str(example))["four_lists"]()
    _names, total, precision, recommended, uplift = (np.array(column) for column in zip(*rows, strict=True))
    assert np.all(np.diff(total) < 0)
    assert np.all(np.diff(precision) > 0)
    assert np.ptp(recommended) == 0
    assert np.allclose(uplift, total / 10)
