"""Rankings: every probability against plain Python that goes through all orders, or against decimals of 80 digits."""

from __future__ import annotations

import decimal
import itertools
import math
from collections import defaultdict
from decimal import Decimal

import numpy as np
import pytest

from recsim_mnar.agents.baselines import UserPopularity
from recsim_mnar.policies import (
    EpsilonMixture,
    Policy,
    RankingPolicy,
    SoftmaxPolicy,
    as_ranking_policy,
    ranking_uniforms,
    rankings,
)
from recsim_mnar.policies.rankings import SAMPLED
from toys import refused

USERS = np.array([0, 1, 2])
SCORES = np.array([[0.3, -1.0, 0.8, 0.3, 0.0], [2.0, 2.0, -1.0, 2.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
"""Of three users over five items: a tie in the middle, one at the top, all the same."""


class Given(Policy):
    """Probabilities and scores as they are given, a row for each user."""

    batches_decisions = True

    def __init__(self, probability, scores=None, name="given"):
        self.probability = np.atleast_2d(probability)
        self.given = self.probability if scores is None else np.atleast_2d(scores)
        self.n_items, self.name = self.probability.shape[1], name

    def act(self, users, uniforms):
        cumulative = self.probability[users].cumsum(axis=1)
        actions = np.minimum((cumulative <= uniforms[:, None]).sum(axis=1), self.n_items - 1)
        return actions, self.probability[users, actions]

    def probabilities(self, users):
        return self.probability[users]

    def scores(self, users):
        return self.given[users]


class Fixed(Given):
    """The same for all users."""

    def fixed_distribution(self):
        return self.probability[0]


def greedy():
    top = SCORES.max(axis=1, keepdims=True)
    best = (top == SCORES).astype(float)
    return Given(best / best.sum(axis=1, keepdims=True), SCORES, "greedy")


def softmax():
    return SoftmaxPolicy(Given(np.full(SCORES.shape, 0.2), SCORES, "scored"), 0.5)


def popularity():
    """User 2 has viewed nothing, user 0 two items, user 1 three."""
    policy = UserPopularity(5)
    policy.reset(USERS)
    policy.observe(np.array([0, 0, 0, 1, 1, 1, 1]), np.array([3, 1, 3, 0, 2, 4, 4]))
    return policy


# ---------------------------------------------------------------------------------------- twins: the next item, plainly


def by_weights(weight, score, above):
    """The next item by weights; when none has a positive one, those of largest score, all as likely."""
    left = [i for i in range(len(weight)) if i not in above]
    total = sum(weight[i] for i in left)
    if total > 0:
        return {i: weight[i] / total for i in left}
    best = [i for i in left if score[i] == max(score[k] for k in left)]
    return {i: (1 / len(best) if i in best else 0.0) for i in left}


def order_by(step, order):
    probability = 1.0
    for j, item in enumerate(order):
        probability *= step(order[:j])[item]
    return probability


def mixture(epsilon, step, n):
    """Of whole rankings: all are as likely with probability epsilon."""

    def of_order(order):
        random = math.prod(1 / (n - j) for j in range(len(order)))
        return epsilon * random + (1 - epsilon) * order_by(step, order)

    return of_order


def softmax_of(score):
    weight = [math.exp(s / 0.5) for s in score]
    return [w / sum(weight) for w in weight]


VIEWS = [[0, 1 / 3, 0, 2 / 3, 0], [0.25, 0, 0.25, 0, 0.5], [0.2] * 5]


def order_of(logger, user):
    """Probability of an ordered ranking, as a function of it."""
    score = SCORES[user].tolist()
    if logger == "softmax":
        return lambda order: order_by(lambda above: by_weights(softmax_of(score), score, above), order)
    if logger == "epsilon":
        return mixture(0.3, lambda above: by_weights([s == max(score) for s in score], score, above), 5)
    return lambda order: order_by(lambda above: by_weights(VIEWS[user], VIEWS[user], above), order)


LOGGERS = {
    "softmax": lambda k: as_ranking_policy(softmax(), k),
    "epsilon": lambda k: as_ranking_policy(EpsilonMixture(greedy(), 0.3), k),
    "views": lambda k: as_ranking_policy(popularity(), k),
}


def all_orders(n, k):
    return np.array(list(itertools.permutations(range(n), k)))


def enumerated(of_order, orders):
    """Marginals, conditionals, slates and sets of all rankings, by sums over them."""
    slate = [of_order(order) for order in map(tuple, orders.tolist())]
    begun, sets, at = defaultdict(float), defaultdict(float), defaultdict(float)
    for order, probability in zip(map(tuple, orders.tolist()), slate, strict=True):
        sets[frozenset(order)] += probability
        for j, item in enumerate(order):
            at[item, j] += probability
            begun[order[: j + 1]] += probability
    begun[()] = 1.0
    marginal, conditional, of_set = [], [], []
    for order in map(tuple, orders.tolist()):
        marginal.append([at[item, j] for j, item in enumerate(order)])
        steps = [(begun[order[: j + 1]], begun[order[:j]]) for j in range(len(order))]
        conditional.append([here / before if before > 0 else np.nan for here, before in steps])
        of_set.append(sets[frozenset(order)])
    return np.array(marginal), np.array(conditional), np.array(slate), np.array(of_set)


# -------------------------------------------------------------------------------------------------- against enumeration


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("logger", LOGGERS)
def test_every_probability_against_enumeration(logger, k):
    policy, orders = LOGGERS[logger](k), all_orders(5, k)
    for user in USERS:
        users = np.full(len(orders), user)
        found = policy.propensities_of(users, orders)
        marginal, conditional, slate, of_set = enumerated(order_of(logger, user), orders)
        assert found.slate.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(found.slate, slate, rtol=1e-12, atol=0)
        np.testing.assert_allclose(found.marginal, marginal, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(found.set, of_set, rtol=1e-10, atol=1e-15)
        possible = np.isfinite(conditional)
        np.testing.assert_allclose(found.conditional[possible], conditional[possible], rtol=1e-11, atol=1e-15)
        assert np.isfinite(found.conditional).all()
        np.testing.assert_allclose(found.conditional.prod(axis=1), found.slate, rtol=1e-12)


@pytest.mark.parametrize("logger", LOGGERS)
def test_conditional_is_what_the_rest_is_made_of(logger):
    """Its rows are distributions over what is left, and those of given rankings are its entries."""
    policy, orders = LOGGERS[logger](4), all_orders(5, 4)
    for user in USERS:
        users = np.full(len(orders), user)
        found = policy.propensities_of(users, orders).conditional
        for j in range(4):
            every = policy.conditional(users, orders[:, :j])
            np.testing.assert_allclose(every.sum(axis=1), 1.0, atol=1e-12)
            assert (np.take_along_axis(every, orders[:, :j], axis=1) == 0.0).all()
            np.testing.assert_allclose(every[np.arange(len(users)), orders[:, j]], found[:, j], rtol=1e-12, atol=0)


@pytest.mark.parametrize("logger", [*LOGGERS, "own"])
def test_draws_follow_conditional(logger):
    """On a fine grid of one position's uniforms each item is drawn in the share of its conditional probability."""
    policy, m = {**LOGGERS, "own": lambda k: NoRepeats(softmax(), k)}[logger](3), 4_000
    grid = (np.arange(m) + 0.5) / m
    for user in USERS:
        for column in (0, 1):
            uniforms = np.full((m, 4), 0.9)
            uniforms[:, 1 + column] = grid
            drawn = policy.rank(np.full(m, user), uniforms)
            # Column 0 at .9: the branch of the policy within.
            policy_within = as_ranking_policy(greedy(), 3) if logger == "epsilon" else policy
            above = drawn[:1, :column]
            assert (drawn[:, :column] == above).all()
            share = np.bincount(drawn[:, column], minlength=5) / m
            np.testing.assert_allclose(share, policy_within.conditional(np.array([user]), above)[0], atol=2 / m)


# -------------------------------------------------------------------------------------------------------- precision


def exact_set(weights, items):
    """By subsets, in decimals of 80 digits."""
    with decimal.localcontext() as context:
        context.prec = 80
        w, k = [Decimal(float(each)) for each in weights], len(items)
        total, paths = sum(w), [Decimal(0)] * (1 << k)
        paths[0] = Decimal(1)
        for taken in range(1 << k):
            left = total - sum(w[items[i]] for i in range(k) if taken >> i & 1)
            for i in range(k):
                if not taken >> i & 1:
                    paths[taken | 1 << i] += paths[taken] * w[items[i]] / left
        return paths[-1]


def exact_positions(weights, k):
    """Of every item at every position, through all sets of items above, in decimals of 80 digits."""
    with decimal.localcontext() as context:
        context.prec = 80
        w, n = [Decimal(float(each)) for each in weights], len(weights)
        level, found = {0: Decimal(1)}, [[Decimal(0)] * k for _ in range(n)]
        for j in range(k):
            after = defaultdict(Decimal)
            for taken, probability in level.items():
                rest = [i for i in range(n) if not taken >> i & 1]
                total = sum(w[i] for i in rest)
                for i in rest:
                    here = probability * w[i] / total
                    found[i][j] += here
                    after[taken | 1 << i] += here
            level = after
        return found


def of_deviation(deviation, n, generator):
    weights = np.exp(deviation * generator.standard_normal(n))
    return weights / weights.sum()


def relative_error(found, exact):
    """Where it can be said in a float64 at all."""
    return abs(float(Decimal(float(found)) / exact - 1)) if exact > Decimal("1e-290") else 0.0


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 7, 8, 9, 10])
@pytest.mark.parametrize("deviation", [0, 1, 2, 4, 8])
def test_sets_are_right_to_1e_10(deviation, k):
    generator = np.random.default_rng([deviation, k])
    for n in (k + 1, 2 * k, 40):
        weights = of_deviation(deviation, n, generator)
        ordered = np.argsort(weights)
        sets = [ordered[:k], ordered[-k:], generator.permutation(n)[:k]][: 3 if k < 9 else 2]
        found = as_ranking_policy(Given(weights), k).propensities_of(np.zeros(len(sets), int), np.array(sets)).set
        for items, each in zip(sets, found, strict=True):
            assert relative_error(each, exact_set(weights, items.tolist())) < 1e-10


@pytest.mark.parametrize(("n", "k"), [(4, 4), (7, 3), (9, 6), (10, 10)])
@pytest.mark.parametrize("deviation", [0, 1, 2, 4, 8])
def test_marginals_are_right_to_1e_10(deviation, n, k):
    """One ranking by one, and the table of all items for a policy that ignores its users."""
    weights = of_deviation(deviation, n, np.random.default_rng([deviation, n]))
    exact = exact_positions(weights, k)
    orders = np.array([np.roll(np.argsort(weights), shift)[:k] for shift in range(n)])
    single = as_ranking_policy(Given(weights), k).propensities_of(np.zeros(n, int), orders).marginal
    table = as_ranking_policy(Fixed(weights), k).propensities_of(np.zeros(n, int), orders).marginal
    for found in (single, table):
        for i, j in itertools.product(range(n), range(k)):
            assert relative_error(found[i, j], exact[orders[i, j]][j]) < 1e-10
    table = rankings.position_table(weights, k)
    np.testing.assert_allclose(table.sum(axis=0), 1.0, atol=1e-10)
    np.testing.assert_allclose(table[:, 1], [float(row[1]) for row in exact], rtol=1e-10)


@pytest.mark.parametrize(("n", "k"), [(60, 30), (200, 100), (1000, 20)])
def test_long_rankings(n, k):
    """Nearly equal weights, where the integral is taken, against equal ones, of which all is known."""
    weights = np.full(n, 1.0)
    weights[0] += 1e-13
    found = as_ranking_policy(Given(weights / weights.sum()), k).propensities_of(np.zeros(1, int), np.arange(k)[None])
    assert found.set[0] == pytest.approx(1 / math.comb(n, k), rel=1e-10)
    np.testing.assert_allclose(found.marginal, 1 / n, rtol=1e-10)
    assert found.slate[0] == pytest.approx(1 / math.perm(n, k), rel=1e-10)


@pytest.mark.parametrize("tiny", [1e-300, 5e-324, 1e-30])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_extreme_weights_give_numbers(tiny, epsilon):
    generator = np.random.default_rng(0)
    weights = np.where(np.arange(12) < 4, 0.25, tiny)
    weights[5] *= 7
    policy = as_ranking_policy(EpsilonMixture(Given(weights), epsilon), 6)
    users = np.zeros(50, int)
    orders = np.array([generator.permutation(12)[:6] for _ in range(50)])
    orders[0] = np.arange(6)
    for each in policy.propensities_of(users, orders):
        assert np.isfinite(each).all()
        assert (each >= 0.0).all()
        assert (each <= 1.0).all()
    drawn = np.sort(policy.rank(users, generator.random((50, 7))), axis=1)
    assert (drawn[:, 1:] > drawn[:, :-1]).all()
    assert policy.propensities_of(users[:1], orders[:1]).set[0] > 0.0


def test_a_law_that_ignores_its_users_is_worked_out_once(monkeypatch):
    weights = of_deviation(1, 50, np.random.default_rng(5))
    users, made = np.arange(20), []
    table = rankings.position_table
    monkeypatch.setattr(rankings, "position_table", lambda *given: made.append(1) or table(*given))
    fixed, plain = as_ranking_policy(Fixed(weights), 5), as_ranking_policy(Given(np.tile(weights, (20, 1))), 5)
    uniforms = ranking_uniforms(1, users, users, 5)
    drawn = fixed.rank(users, uniforms)
    np.testing.assert_array_equal(drawn, plain.rank(users, uniforms))
    for found in (fixed.propensities_of(users, drawn), fixed.fresh().propensities_of(users, drawn)):
        for a, b in zip(found, plain.propensities_of(users, drawn), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
    assert len(made) == 1


def test_a_uniform_policy_takes_whatever_is_left():
    """Item number floor(u (n - j)) of those left, ascending, as a simulator does by itself."""

    class Random(Given):
        is_uniform = True

    policy, users = as_ranking_policy(Random(np.full(7, 1 / 7)), 4), np.zeros(300, int)
    uniforms = ranking_uniforms(2, users, np.arange(300), 4)
    drawn = policy.rank(users, uniforms)
    for row, mine in zip(uniforms, drawn.tolist(), strict=True):
        left = list(range(7))
        assert mine == [left.pop(int(u * len(left))) for u in row[1:]]
    found = policy.propensities_of(users, drawn)
    np.testing.assert_array_equal(found.marginal, 1 / 7)
    np.testing.assert_allclose(found.conditional, [[1 / 7, 1 / 6, 1 / 5, 1 / 4]] * 300, rtol=1e-15)
    np.testing.assert_allclose(found.slate, 1 / 840, rtol=1e-14)
    np.testing.assert_allclose(found.set, 1 / 35, rtol=1e-14)
    assert policy.epsilon == 0.0


# ---------------------------------------------------------------------------------------------------- laws of one's own


class NoRepeats(RankingPolicy):
    """Of one's own: never an item next to its neighbour of one number less, while there is another."""

    def conditional(self, users, above):
        out = np.repeat(self.policy.probabilities(users), 1, axis=0)
        if above.shape[1]:
            follows = np.minimum(above[:, -1] + 1, self.n_items - 1)
            out[np.arange(len(users)), follows] *= 1e-3
            np.put_along_axis(out, above, 0.0, axis=1)
        return out / out.sum(axis=1, keepdims=True)


class OwnPlackettLuce(RankingPolicy):
    set_suffices = True

    def conditional(self, users, above):
        out = self.policy.probabilities(users).copy()
        np.put_along_axis(out, above, 0.0, axis=1)
        return out / out.sum(axis=1, keepdims=True)


def own_order(weights):
    def of_order(order):
        probability = 1.0
        for j, item in enumerate(order):
            w = np.array(weights)
            if j:
                w[min(order[j - 1] + 1, len(w) - 1)] *= 1e-3
                w[list(order[:j])] = 0.0
            probability *= w[item] / w.sum()
        return probability

    return of_order


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_law_of_ones_own_needs_conditional_alone(k):
    weights = [0.3, 0.1, 0.25, 0.15, 0.2]
    policy, orders = NoRepeats(Given(weights), k), all_orders(5, k)
    users = np.zeros(len(orders), int)
    found = policy.propensities_of(users, orders)
    marginal, _, slate, of_set = enumerated(own_order(weights), orders)
    np.testing.assert_allclose(found.slate, slate, rtol=1e-12)
    np.testing.assert_allclose(found.marginal, marginal, rtol=1e-12)
    np.testing.assert_allclose(found.set, of_set, rtol=1e-12)


@pytest.mark.parametrize("k", [2, 6, 10])
def test_subsets_suffice_where_the_order_above_does_not_matter(k):
    """The integral, and k 2^k conditionals."""
    weights = of_deviation(2, 14, np.random.default_rng(k))
    order = np.random.default_rng(k).permutation(14)[None, :k]
    own, ours = OwnPlackettLuce(Given(weights), k), as_ranking_policy(Given(weights), k)
    users = np.zeros(1, int)
    assert own._set_probabilities(users, order)[0] == pytest.approx(
        ours.propensities_of(users, order).set[0], rel=1e-11
    )


@pytest.mark.verify
def test_marginals_of_a_large_law_of_ones_own_are_means_over_a_sample():
    """They deviate by less than shares of so many rankings do, and the same sample is drawn again."""
    weights = of_deviation(1, 40, np.random.default_rng(9))
    own, users = OwnPlackettLuce(Given(weights), 5), np.zeros(8, int)
    order = np.arange(40).reshape(8, 5)
    mean = own.propensities_of(users, order).marginal
    exact = as_ranking_policy(Given(weights), 5).propensities_of(users, order).marginal
    np.testing.assert_allclose(mean[:, 0], exact[:, 0], rtol=1e-12)
    z = (mean - exact)[:, 1:] / np.sqrt(exact * (1.0 - exact) / SAMPLED)[:, 1:]
    assert 0.0 < (z**2).mean() < 1.0
    np.testing.assert_array_equal(own.propensities_of(users, order).marginal, mean)


def test_too_many_orders_are_refused_with_what_to_do():
    weights, order = np.full(9, 1 / 9), np.arange(8)[None]
    with refused(r"8 items would take 8! orders: .* declare set_suffices = True"):
        NoRepeats(Given(weights), 8).propensities_of(np.zeros(1, int), order)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda n, above: np.full((n, 4), 0.25), r"must return shape \(1, 5\), got \(1, 4\)"),
        (lambda n, above: np.full((n, 5), 0.3), "must sum to 1 over the items, a sum is 1.5"),
        (lambda n, above: np.full((n, 5), 0.2), "must be 0 for the items above, item 2 has more"),
        (lambda n, above: np.array([[1.5, -0.5, 0, 0, 0]] * n), "must return probabilities, one is -0.5"),
        (lambda n, above: np.full((n, 5), np.nan), "must return probabilities, one is nan"),
        (lambda n, above: [["a"] * 5] * n, "must return numbers"),
        (lambda n, above: above.fill(0), "writes in the arrays"),
    ],
)
def test_an_answer_that_cannot_be(answer, says):
    class Own(RankingPolicy):
        def conditional(self, users, above):
            return answer(len(users), above)

    policy = Own(Given([0.2] * 5), 2)
    with refused(says):
        policy.propensities_of(np.zeros(1, int), np.array([[2, 0]]))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([[0, 1, 2]], r"rankings must have shape \(1, 2\), got \(1, 3\)"),
        ([[0.0, 1.0]], "rankings must be integers, got float64"),
        ([[0, 5]], r"item 5 of a ranking is out of range, there are items 0\.\.4"),
        ([[3, 3]], "item 3 stands in a ranking twice"),
    ],
)
def test_rankings_that_are_none(answer, says):
    class Own(OwnPlackettLuce):
        def rank(self, users, uniforms):
            return answer

    policy, users = Own(Given([0.2] * 5, name="mine"), 2), np.zeros(1, int)
    with refused("ranking 'mine': " + says):
        rankings.drawn_rankings(policy, users, np.zeros((1, 3)))
    for of in (policy, as_ranking_policy(policy.policy, 2)):
        with refused(says):
            of.propensities_of(users, answer)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((1, 2), "must return Propensities"),
        ((np.ones(2), np.ones((1, 2)), np.ones(1), np.ones(1)), r"shape \(1, 2\) for marginal, got \(2,\)"),
        ((np.ones((1, 2)), np.ones((1, 2)), np.ones(1), np.full(1, 2.0)), r"must return set in \[0, 1\]"),
        ((np.ones((1, 2)), np.full((1, 2), 0.5), np.ones(1), np.ones(1)), r"says 1 for a slate, .* is 0.25"),
    ],
)
def test_propensities_that_cannot_be(answer, says):
    class Own(OwnPlackettLuce):
        def propensities_of(self, users, rankings):
            return answer

    with refused(says):
        rankings.checked_propensities_of(Own(Given([0.5, 0.5]), 2), np.zeros(1, int), np.array([[0, 1]]))


# ---------------------------------------------------------------------------------------------------------- the door


def test_what_as_ranking_policy_takes():
    policy = EpsilonMixture(softmax(), 0.2)
    ours = as_ranking_policy(policy, 3)
    assert (ours.name, ours.slate_size, ours.n_items, ours.epsilon) == (policy.name, 3, 5, 0.2)
    assert as_ranking_policy(ours, 3) is ours
    twice = as_ranking_policy(EpsilonMixture(policy, 0.5), 3)
    assert twice.epsilon == pytest.approx(0.6)
    says = ours.describe()
    assert {"ranking": "plackett-luce", "slate_size": 3, "epsilon": 0.2, "temperature": 0.5}.items() <= says.items()
    assert (ours.learns, ours.replayable) == ("nothing", True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: as_ranking_policy(softmax(), 6), "slate_size is 6, there are 5 items"),
        (lambda: as_ranking_policy(softmax(), 0), "slate_size must be a whole number of at least 1"),
        (lambda: as_ranking_policy(LOGGERS["views"](3), 2), "it ranks 3 items, the world shows 2"),
        (lambda: as_ranking_policy(NoRepeats, 2), "NoRepeats is a class: give an object of it"),
        (lambda: as_ranking_policy("svd", 2), "is a name, a policy is wanted"),
        (
            lambda: as_ranking_policy(Given([0.0, 1.0], [np.nan, 1.0]), 2).rank(np.zeros(1, int), np.zeros((1, 3))),
            "one of its scores is not a number",
        ),
        (
            lambda: as_ranking_policy(Given([0.5, 0.6]), 2).rank(np.zeros(1, int), np.zeros((1, 3))),
            "its probabilities must sum to 1",
        ),
    ],
)
def test_what_is_refused(call, says):
    with refused(says):
        call()


def test_an_own_ranking_that_was_not_begun():
    class Forgetful(OwnPlackettLuce):
        def __init__(self):
            pass

    with refused("ranking Forgetful: call super"):
        as_ranking_policy(Forgetful(), 2)


def test_events_reach_the_policy_within_and_fresh_ones_have_no_users():
    policy = as_ranking_policy(UserPopularity(4), 2)
    users = np.array([7])
    policy.reset(users)
    policy.observe(users, np.array([3]))
    policy.observe_ratings(users, np.array([3]), np.array([5.0]))
    policy.learn(users, np.array([1]), np.array([1.0]), np.array([0.5]))
    assert policy.rank(users, np.full((1, 3), 0.5))[0, 0] == 3
    again = policy.fresh()
    assert (again.name, again.slate_size) == (policy.name, 2)
    again.reset(users)
    assert again.conditional(users, np.empty((1, 0), int)).max() < 0.4
    policy.forget(users)
    with refused("user 7 has not begun"):
        policy.rank(users, np.full((1, 3), 0.5))


@pytest.mark.parametrize("logger", LOGGERS)
def test_a_ranking_does_not_depend_on_who_else_is_asked(logger, monkeypatch):
    policy, users = LOGGERS[logger](3), np.tile(USERS, 4)
    uniforms = ranking_uniforms(8, users, np.arange(12), 3)
    drawn = policy.rank(users, uniforms)
    found = policy.propensities_of(users, drawn)
    monkeypatch.setattr(rankings, "_ENTRIES", 10)  # two users at a time
    np.testing.assert_array_equal(policy.rank(users, uniforms), drawn)
    for a, b in zip(policy.propensities_of(users, drawn), found, strict=True):
        np.testing.assert_array_equal(a, b)
    nobody = policy.propensities_of(users[:0], drawn[:0])
    assert [each.shape for each in nobody] == [(0, 3), (0, 3), (0,), (0,)]
