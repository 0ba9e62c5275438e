"""Mixtures against a grid that is drawn ever finer, their certificates, and a problem that is solved by hand."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.own_log.plan.pricing import Problem, cheapest, least_largest


def drawn(seed, targets=None):
    rng = np.random.default_rng(seed)
    targets, groups = targets or int(rng.integers(1, 5)), int(rng.integers(20, 200))
    shares = rng.random((groups, targets + 1)) * (rng.random((groups, targets + 1)) < 0.4)
    shares[np.arange(groups), rng.integers(1, targets + 1, groups)] += 0.2
    amounts = (shares[:, 1:] ** 2 * rng.random((groups, 1)) * 10.0 / groups).T
    return Problem(amounts, shares, np.append(0.0, rng.uniform(0.3, 1.0, targets))), rng.uniform(0.5, 2.0, targets)


def by_grid(problem, limits, budget):
    """The twin: the least of a grid over two candidates' weights, drawn anew around the best point, ever finer."""
    centre, width, best = np.full(2, 0.5), 0.5, np.inf
    for _ in range(25):
        sides = [np.clip(np.linspace(c - width, c + width, 41), 0.0, 1.0) for c in centre]
        for part in np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2):
            others = part * min(1.0, budget / problem.costs[1:].max())
            # Out of reach is moved to the edge, where the best mixture often is.
            others /= max(1.0, others.sum(), problem.costs[1:] @ others / budget)
            worst = (problem.moments(np.append(1.0 - others.sum(), others)) / limits).max()
            if worst < best:
                best, centre = worst, part
        width *= 0.6
    return best


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [0.001, 0.3])
def test_as_good_as_the_best_point_of_a_grid(seed, budget):
    problem, limits = drawn(seed, targets=2)
    assert least_largest(problem, limits, budget).objective == pytest.approx(by_grid(problem, limits, budget), rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_mixtures_are_certified(seed):
    problem, limits = drawn(seed)
    for budget in (0.001, 0.02, 0.3):
        found = least_largest(problem, limits, budget)
        assert found.weights.sum() == pytest.approx(1.0, abs=1e-9)
        assert found.weights.min() >= 0.0
        assert problem.costs @ found.weights <= budget * (1.0 + 1e-9)
        assert 0.0 <= found.gap < 1e-6
        assert found.objective == pytest.approx((problem.moments(found.weights) / limits).max(), rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_two_problems_are_each_others_inverse(seed):
    """What a budget buys costs that budget, as long as more money would buy more."""
    problem, limits = drawn(seed)
    found = least_largest(problem, limits, 0.05)
    back = cheapest(problem, limits * found.objective)
    assert back is not None
    assert 0.0 <= back.gap < 1e-6
    assert problem.costs @ back.weights == pytest.approx(0.05, rel=2e-3)


def test_the_certificate_holds_against_random_mixtures():
    problem, limits = drawn(3)
    found = least_largest(problem, limits, 0.2)
    rng = np.random.default_rng(0)
    for weights in rng.dirichlet(np.full(len(problem.costs), 0.5), 2000):
        part = min(1.0, 0.2 / (problem.costs @ weights))
        weights = part * weights + (1.0 - part) * np.eye(len(weights))[0]
        assert (problem.moments(weights) / limits).max() >= found.bound * (1.0 - 1e-9)


def test_two_deterministic_candidates_by_hand():
    """S_t = q_t / w_t: at a budget b the largest is least at w_t proportional to q_t."""
    problem = Problem(np.diag([3.0, 1.0]), np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), np.array([0.0, 1.0, 1.0]))
    found = least_largest(problem, np.ones(2), 0.1)
    assert found.weights == pytest.approx([0.9, 0.075, 0.025], abs=1e-6)
    assert found.objective == pytest.approx(40.0, rel=1e-6)
    back = cheapest(problem, np.array([40.0, 40.0]))
    assert back is not None
    assert back.objective == pytest.approx(0.1, rel=1e-4)


def test_no_mixture_is_none():
    problem = Problem(np.array([[3.0]]), np.array([[0.0, 1.0]]), np.array([0.0, 1.0]))
    assert cheapest(problem, np.array([2.9])) is None


def test_groups_of_equal_shares_are_put_together():
    problem, _ = drawn(5)
    twice = Problem(np.tile(problem.amounts / 2, 2), np.tile(problem.shares, (2, 1)), problem.costs)
    assert twice.grouped().shares.shape[0] <= problem.shares.shape[0]
    weights = np.full(len(problem.costs), 1.0 / len(problem.costs))
    assert twice.grouped().moments(weights) == pytest.approx(problem.moments(weights))
