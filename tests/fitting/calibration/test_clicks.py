"""What is clicked: links, evidence at a mode, the click rate against the log's, and logs unlike any world."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from recsim_mnar import rng
from recsim_mnar.fitting import clicks as module
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.clicks import PRIORS, Posterior, Recommended, link_of, why_rate_is_impossible
from recsim_mnar.fitting.members import rate_on_log
from recsim_mnar.log.table import Log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.catalogue import checked_catalogue
from toys import refused, untrained
from twins.cases import quick_first

LINKS = ("recogym", "logistic")


def world_of(link, level, seed=5, n_items=12):
    n = rng.normals(seed, rng.Stream.CATALOGUE, 0, (n_items, 6))
    catalogue = checked_catalogue(n[:, :2], n[:, 2], 0.3 * n[:, 3:5], level + 0.3 * n[:, 5], "the test")
    return SessionsWorld(SessionsParams(sigma_omega=0.03, p_leave_organic=0.04, click_link=link), catalogue=catalogue)


def log_of(world, users=150, seed=3):
    uniform = untrained("random", world.n_items)
    log = simulate(world, uniform, users, seed)
    return Log(log.columns, {"world": {"params": {"n_items": world.n_items}}})


@pytest.fixture(scope="module")
def clicked_much():
    return log_of(world_of("logistic", -0.9))


@pytest.mark.parametrize("link", LINKS)
def test_links_are_the_worlds_and_slopes_their_derivatives(link):
    x = np.linspace(-6.0, 6.0, 25)
    catalogue = checked_catalogue(np.zeros((25, 1)), np.zeros(25), np.zeros((25, 1)), x, "the test")
    world = SessionsWorld(SessionsParams(click_link=link), catalogue=catalogue)
    p, slope = link_of(x, link)
    np.testing.assert_allclose(p, world.click_probabilities(np.zeros((1, 1)))[0], rtol=1e-9)
    np.testing.assert_allclose(slope, (link_of(x + 1e-5, link)[0] - link_of(x - 1e-5, link)[0]) / 2e-5, rtol=1e-6)


def test_a_link_is_refused_where_its_range_excludes_the_rate():
    assert "between 0.00448 and 0.0293, the log's is 0.3" in why_rate_is_impossible("recogym", 0.3, 0.01)
    assert not why_rate_is_impossible("recogym", 0.032, 0.001)
    assert why_rate_is_impossible("recogym", 0.034, 0.001)
    assert why_rate_is_impossible("recogym", 0.001, 0.0002)
    assert not why_rate_is_impossible("logistic", 0.9, 0.001)


def test_a_log_that_is_clicked_much_gets_the_link_that_can(clicked_much):
    found = calibrate_world(clicked_much, ensemble=20, seed=1)
    assert found.params.click_link == "logistic"
    assert "are between" in found.facts["click_links_refused"]["recogym"]
    assert all(result["low"] <= result["value"] <= result["high"] for result in found.identified.values())
    held = found.identified["click_rate_on_log"]
    assert held["value"] == pytest.approx(clicked_much["reward"][clicked_much.is_bandit].mean())
    assert held["low"] < found.facts["click_rate_fitted"] < held["high"]
    with refused(r"no click model can be fitted: recogym: its click rates are between"):
        calibrate_world(clicked_much, ensemble=0, assume={"click_link": "recogym"})


def test_a_rate_that_is_missed_is_said():
    facts = {"click_rate_of_log": [0.1, 0.01], "click_rate_fitted": 0.125, "click_rate_off": 2.5}
    assert not rate_on_log(facts)["why"].startswith("OFF")
    missed = {**facts, "click_rate_fitted": 0.135, "click_rate_off": 3.5}
    assert rate_on_log(missed)["why"].startswith("OFF by 3.5 standard errors")


def bare(times, clicks):
    """Two items that were shown so often, nothing known of users."""
    none = (np.zeros((2, 0)), np.zeros((2, 0, 0)), np.zeros((2, 0)), np.zeros(2), np.zeros((2, 0, 0)))
    return Recommended(np.array([0, 1]), np.array([0, 1]), np.array(times), np.array(clicks), *none)


def half_normal(s):
    """Chances of the middles of equal steps."""
    return np.sqrt(2 / np.pi) * np.exp(-0.5 * s**2) * (s[1] - s[0])


@pytest.mark.parametrize("spread", quick_first([0.02, 0.3, 1.5]))
def test_the_spread_of_items_is_known_as_well_as_their_number_says(spread):
    """40 items whose rates are all but known: log s_b's posterior against a sum, its mean to a fifth of its deviation.

    A grid that does not narrow to the posterior has one node in it, and then no deviation.
    """
    n, prior = 40, PRIORS["logistic"]
    b = -2.0 + spread * rng.normals(5, rng.Stream.CATALOGUE, 0, (n, 1))[:, 0]
    times = np.full(n, 1e7)
    none = (np.zeros((n, 0)), np.zeros((n, 0, 0)), np.zeros((n, 0)), np.zeros(n), np.zeros((n, 0, 0)))
    fit = Posterior(
        Recommended(np.arange(n), np.arange(n), times, times * link_of(b, "logistic")[0], *none), "logistic"
    )
    logs = np.linspace(np.log(0.3 * spread), np.log(3 * spread), 2001)
    common = prior.levels**2 * np.ones((n, n))
    exact = [multivariate_normal(np.full(n, prior.level), np.exp(2 * x) * np.eye(n) + common).logpdf(b) for x in logs]
    exact = np.array(exact) + logs - 0.5 * np.exp(2 * logs) / prior.offsets**2
    found = []
    for x, values in ((logs, exact), (fit.axes[1] + np.log(prior.offsets), fit.values[0])):
        p = np.exp(values - values.max()) / np.exp(values - values.max()).sum()
        found.append((p @ x, np.sqrt(p @ (x - p @ x) ** 2)))
    (mean, sd), (mine, my_sd) = found
    assert abs(mine - mean) < 0.2 * sd
    assert my_sd == pytest.approx(sd, rel=0.1)
    drawn = [
        np.log(fit._draw_spreads(u).spreads[1])
        for u in rng.uniforms(1, rng.Stream.BOOTSTRAP, np.arange(900), 0).reshape(-1, 3)
    ]
    assert np.mean(drawn) == pytest.approx(mean, abs=4 * sd / np.sqrt(300))
    assert np.std(drawn) == pytest.approx(sd, rel=0.2)


@pytest.mark.parametrize("link", quick_first(LINKS))
def test_evidence_is_the_integral_of_the_likelihood(link):
    """Laplace's error is of the order of one over the clicks: .02 here, compared with a sum over a grid."""
    fit = Posterior(bare([9000.0, 7000.0], [90.0, 120.0]), link)
    prior = PRIORS[link]
    axis = [np.linspace(fit.theta[i, 0] - 3, fit.theta[i, 0] + 3, 401) for i in (0, 1)]
    both = np.stack(np.meshgrid(*axis, indexing="ij"), axis=-1)
    p = link_of(both, link)[0]
    logs = 90 * np.log(p[..., 0]) + 8910 * np.log1p(-p[..., 0]) + 120 * np.log(p[..., 1]) + 6880 * np.log1p(-p[..., 1])
    spreads = np.linspace(0.002, 4.0, 200)
    density = sum(
        chance
        * multivariate_normal([prior.level] * 2, prior.levels**2 + (prior.offsets * s) ** 2 * np.eye(2)).pdf(both)
        for chance, s in zip(half_normal(spreads), spreads, strict=True)
    )
    cell = (axis[0][1] - axis[0][0]) * (axis[1][1] - axis[1][0])
    exact = logs.max() + np.log((np.exp(logs - logs.max()) * density).sum() * cell)
    assert fit.evidence == pytest.approx(exact, abs=0.05)
    assert fit.evidence < fit.value_at_mode


@pytest.mark.parametrize("link", quick_first(LINKS))
def test_the_evidence_is_at_a_mode(link, monkeypatch):
    """The gradient of log likelihood and log prior, by differences in every coefficient, is none of its errors."""
    world = world_of(link, -3.0 if link == "logistic" else 0.0)
    kept = {}

    def look(self):
        kept["theta"], kept["step"], kept["cell"] = self.theta.copy(), self.step, self.likeliest
        kept["fit"] = self

    monkeypatch.setattr(Posterior, "_move_to_posterior_mean", look)
    calibrate_world(log_of(world), ensemble=0, assume={"click_link": link})
    fit, theta, cell = kept["fit"], kept["theta"], kept["cell"]
    assert kept["step"] < 0.1

    def height(at):
        fit.theta = at
        fit._update_likelihood()
        return fit.value - fit._penalty(cell)

    for place in ((0, 0), (3, 1), (7, 2)):
        sd = np.sqrt(cell.covariance[place[0], place[1], place[1]])
        step = np.zeros_like(theta)
        step[place] = 0.01 * sd
        assert abs(height(theta + step) - height(theta - step)) / 0.02 < 0.3  # of one standard error's slope


def test_a_fit_that_reaches_no_mode_is_refused(clicked_much, monkeypatch):
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    with refused("did not reach a mode"):
        calibrate_world(clicked_much, ensemble=0)


def changed(log, **columns):
    return Log({**log.columns, **columns}, log.provenance)


def absurd(log, case):
    shown, reward = log.is_bandit, log["reward"].copy()
    first = np.flatnonzero(shown)
    if case == "odd":
        reward[first[:2]] = 3.5, -1
    if case in ("all", "most", "none"):
        reward[shown] = case != "none"
        reward[first[::100]] = case == "all"
    if case == "time":
        return changed(log, time=log["time"][::-1].copy())
    if case == "one item":
        return changed(log, item=np.where(shown, -1, 0), action=np.where(shown, 0, -1))
    return changed(log, reward=reward)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("odd", r"2 rewards that are neither 0 nor 1, such as 3.5: .*Write 1 for a click"),
        ("all", r"100.0% were clicked: .*Look at the column of rewards"),
        ("most", r"99.0% were clicked"),
        ("none", r"none were clicked"),
        ("time", r"time runs backwards within a user, row 1: sort the rows"),
        ("one item", r"one item only, 0: nothing can be preferred. Bring a log of several"),
    ],
)
def test_absurd_logs_get_a_line(clicked_much, case, said):
    with refused(said):
        calibrate_world(absurd(clicked_much, case), ensemble=0)


def test_links_that_look_alike_are_both_drawn():
    """Few clicks, which show nothing about links: both are among the draws as often as their evidence says."""
    shown = bare([9000.0, 7000.0], [90.0, 70.0])
    found = module.fit_clicks(shown, 400, 1, LINKS)
    weight = found.facts["click_link_weight"]
    share = np.mean([draw.link == found.best.link for draw in found.draws])
    assert abs(share - weight) < 4 * np.sqrt(weight * (1 - weight) / 400) + 1e-9
    assert 0.05 < weight < 0.95
