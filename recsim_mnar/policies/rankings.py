"""Ranking policies: ordered lists of k distinct items, drawn with probabilities that are known exactly.

Any :class:`~recsim_mnar.policies.Policy` ranks through :func:`as_ranking_policy`. Each position holds one of the
remaining items, drawn with the policy's probabilities (a Plackett-Luce ranking, whose temperature is that of a softmax
policy). When no item of positive probability remains, the item of largest score follows, ties broken uniformly. A
greedy policy therefore ranks its top k. A policy softened by epsilon draws, with probability epsilon, any ranking with
equal probability, and otherwise the inner policy's ranking.

To define another ranking, derive from :class:`RankingPolicy` and define ``conditional``.
"""

from __future__ import annotations

import abc
import copy
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import refuse_first, whole_number
from recsim_mnar.policies.answers import call_readonly, checked_distribution, checked_scores
from recsim_mnar.policies.base import Floats, Ints, Policy, Ranks
from recsim_mnar.policies.door import EventForwarder, as_policy, has_fixed_distribution
from recsim_mnar.policies.slots import Indices
from recsim_mnar.policies.softening import EpsilonMixture

ENUMERATED = 100_000
"""Largest number of possible rankings that a user-defined ranking enumerates to compute marginals exactly."""

SAMPLED = 2_000
"""Number of rankings drawn to estimate marginals when there are more than :data:`ENUMERATED`."""

MOST_ORDERS = 5_040
"""Largest number of orders of a set (7!) that are enumerated for its probability, if the next item depends on the order
of the items above it."""

MOST_SUBSETS = 1 << 14
"""Largest number of subsets that are enumerated for a set's probability, if the next item depends only on which items
are above it."""

_ENTRIES = 1 << 21
"""Largest number of probabilities in memory at a time (16 MB); users are processed in pieces of this size."""

_TOLERANCE = 1e-12
"""Largest relative error that the quadrature rule, and each truncated end, may contribute to an integral."""

Rankings = NDArray[np.int32]


class Propensities(NamedTuple):
    """Probabilities of n rankings of k items.

    Attributes:
        marginal: (n, k) probability of each item to stand at its position.
        conditional: (n, k) probability of each item to stand at its position, given the items above it.
        slate: (n,) probability of the items in this order.
        set: (n,) probability of the items in any order.
    """

    marginal: Floats
    conditional: Floats
    slate: Floats
    set: Floats


class RankingPolicy(EventForwarder, Ranks, abc.ABC):
    """Base of policies that rank ``slate_size`` distinct items for each of many users at once.

    A subclass defines ``conditional``; drawing and all other probabilities are derived from it. The probability of a
    set of k items then costs k 2^k conditionals per ranking if ``set_suffices``, else k! orders. Marginals are exact if
    there are at most :data:`ENUMERATED` rankings; otherwise they are means over :data:`SAMPLED` drawn rankings, which
    are the same at every call.

    Args:
        policy: a policy, or an object that :func:`~recsim_mnar.policies.as_policy` accepts; it receives all events.
        slate_size: number of items in a ranking, at most ``policy.n_items``.
        name: the name under which results are reported; None for the policy's name.

    Attributes:
        policy: the inner policy, adapted by ``as_policy``.
        n_items: number of items.
        slate_size: number of items in a ranking.
        name: the name under which results are reported.
        set_suffices: True if ``conditional`` depends on which items are above, but not on their order.
    """

    set_suffices: bool = False

    def __init__(self, policy: Any, slate_size: int, name: str | None = None) -> None:
        self.policy = as_policy(policy)
        self.n_items = self.policy.n_items
        self.slate_size = checked_slate_size(slate_size, self.n_items)
        self.name = name or self.policy.name

    @property
    def within(self) -> Sequence[Policy]:
        """Return the inner policy, which receives all events; ``learn`` passes a user once for each item shown."""
        return (self.policy,)

    def defines(self, method: str) -> bool:
        """Return True if the inner policy defines an optional method, see :meth:`Policy.defines`."""
        return self.policy.defines(method)

    @abc.abstractmethod
    def conditional(self, users: Ints, above: Ints) -> Floats:
        """Return the probability of every item to be ranked next, given the items above.

        Args:
            users: (n,) ids; a user may occur several times.
            above: (n, j) distinct items at the top j positions, j < slate_size.

        Returns:
            (n, n_items) probabilities, rows summing to 1, zero for the items above.
        """

    def rank(self, users: Ints, uniforms: Floats) -> Rankings:
        """Draw a ranking for each user.

        Args:
            users: (n,) ids.
            uniforms: (n, slate_size + 1) in [0, 1), the only randomness: column 0 selects the component of a mixture,
                column 1 + j the item at position j.

        Returns:
            (n, slate_size) int32 items, distinct in each row.
        """
        rankings = np.empty((len(users), self.slate_size), np.int32)
        for j in range(self.slate_size):
            probability = self._checked_conditional(users, rankings[:, :j])
            sums = probability.cumsum(axis=1)
            item = (sums <= uniforms[:, j + 1, None] * sums[:, -1:]).sum(axis=1)
            # Rounding may lead past the last item of positive probability: never beyond it.
            last_possible = self.n_items - 1 - np.argmax(probability[:, ::-1] > 0.0, axis=1)
            rankings[:, j] = np.minimum(item, last_possible)
        return rankings

    def propensities_of(self, users: Ints, rankings: Ints) -> Propensities:
        """Compute the probabilities of rankings in each user's present state.

        Args:
            users: (n,) ids; a user may occur several times.
            rankings: (n, slate_size) distinct items.

        Raises:
            UserError: invalid rankings, or too many orders or subsets of the set to enumerate.
        """
        rankings = checked_rankings(self, rankings, len(users))
        conditional = np.empty(rankings.shape)
        for j in range(self.slate_size):
            probability = self._checked_conditional(users, rankings[:, :j])
            conditional[:, j] = probability[np.arange(len(users)), rankings[:, j]]
        marginal = np.array([self._marginals(users[i : i + 1], rankings[i]) for i in range(len(users))])
        slate = conditional.prod(axis=1)
        return Propensities(
            marginal.reshape(rankings.shape), conditional, slate, self._set_probabilities(users, rankings)
        )

    def fresh(self) -> RankingPolicy:
        """Return a copy of the policy that holds no users, by default a deep copy."""
        return copy.deepcopy(self)

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters, for a log's provenance; JSON types only."""
        kind = type(self).__name__
        if isinstance(self, PlackettLuce):
            kind = "plackett-luce"
        return {**self.policy.describe(), "name": self.name, "ranking": kind, "slate_size": self.slate_size}

    def _checked_conditional(self, users: Ints, above: Ints) -> Floats:
        """Return the checked return value of ``conditional``, (n, n_items)."""
        conditional = call_readonly(self, "conditional", self.conditional, np.asarray(users).view(), np.array(above))
        return checked_conditional(self, conditional, above)

    def _pieces(self, n: int) -> list[slice]:
        """Split n users into slices with at most :data:`_ENTRIES` probabilities each."""
        size = max(1, _ENTRIES // self.n_items)
        return [slice(begin, begin + size) for begin in range(0, n, size)]

    def _conditional_of_user(self, user: Ints, above: Ints) -> Floats:
        """Return ``conditional`` of one user for each of m sequences of items above, (m, n_items).

        Args:
            user: (1,) id.
            above: (m, j) items.
        """
        parts = [
            self._checked_conditional(np.repeat(user, len(above[piece])), above[piece])
            for piece in self._pieces(len(above))
        ]
        return np.concatenate(parts)

    def _set_probabilities(self, users: Ints, rankings: Ints) -> Floats:
        """Return the probability of each ranking's set of items in any order, (n,).

        Raises:
            UserError: there are too many orders or subsets to enumerate.
        """
        k = self.slate_size
        if not self.set_suffices and math.factorial(k) > MOST_ORDERS:
            why = (
                f"the probability of a set of {k} items would take {k}! orders: if conditional() depends on "
                "the set of the items above and not on their order, declare set_suffices = True; if not, define "
                "propensities_of()"
            )
            _refuse(self, why)
        if self.set_suffices and 1 << k > MOST_SUBSETS:
            _refuse(self, f"the probability of a set of {k} items would take 2^{k} subsets: define propensities_of()")
        return np.array([self._set_probability(users[i : i + 1], rankings[i]) for i in range(len(users))], np.float64)

    def _set_probability(self, user: Ints, items: Ints) -> float:
        """Return the probability that one user's ranking has these items in any order.

        The recursion runs over the positions. It keeps the probability of every prefix, a tuple of places in ``items``,
        that consists of items of the set; if ``set_suffices``, prefixes with the same items are merged.

        Args:
            user: (1,) id.
            items: (slate_size,) items of the set.
        """
        k = self.slate_size
        prefixes: list[tuple[int, ...]] = [()]
        prefix_probability = np.ones(1)
        for _ in range(k):
            above = np.array(prefixes, np.int64).reshape(len(prefixes), -1)
            steps = self._conditional_of_user(user, items[above])[:, items]
            longer: dict[tuple[int, ...], float] = {}
            for prefix, probability, step in zip(prefixes, prefix_probability.tolist(), steps.tolist(), strict=True):
                for i in range(k):
                    if i in prefix:
                        continue
                    key = (*prefix, i)
                    if self.set_suffices:
                        key = tuple(sorted(key))
                    longer[key] = longer.get(key, 0.0) + probability * step[i]
            prefixes = list(longer)
            prefix_probability = np.array(list(longer.values()))
        return float(prefix_probability.sum())

    def _marginals(self, user: Ints, ranking: Ints) -> Floats:
        """Return the marginal probability of each item of one ranking at its position, (slate_size,).

        This is the mean of the conditional probability over all possible prefixes or, if there are more than
        :data:`ENUMERATED` rankings, over the prefixes of :data:`SAMPLED` drawn rankings.

        Args:
            user: (1,) id.
            ranking: (slate_size,) items.
        """
        k = self.slate_size
        n = self.n_items
        mean = np.empty(k)
        if math.perm(n, k) > ENUMERATED:
            seed = rng.derive_seed(0, "marginals of rankings")  # derived, so that no run has the same seed by chance
            uniforms = ranking_uniforms(seed, np.zeros(SAMPLED, np.int64), np.arange(SAMPLED), k)
            drawn = self.rank(np.repeat(user, SAMPLED), uniforms)
            for j in range(k):
                mean[j] = self._conditional_of_user(user, drawn[:, :j])[:, ranking[j]].mean()
            return mean
        above = np.empty((1, 0), np.int64)
        prefix_probability = np.ones(1)
        for j in range(k):
            steps = self._conditional_of_user(user, above)
            mean[j] = prefix_probability @ steps[:, ranking[j]]
            if j < k - 1:
                prefix, item = np.nonzero(steps)
                above = np.column_stack([above[prefix], item])
                prefix_probability = prefix_probability[prefix] * steps[prefix, item]
        return mean


class PlackettLuce(RankingPolicy):
    """Ranking that draws each position from the remaining items, by a policy's probabilities and then by its scores.

    Scores decide when the remaining items have probability zero. The ranking of an
    :class:`~recsim_mnar.policies.EpsilonMixture` is a mixture: with probability epsilon all rankings have equal
    probability, otherwise the inner policy ranks. Probabilities have a relative error below 1e-10; those of impossible
    rankings are exactly 0.

    Args:
        policy: a policy, or an object that :func:`~recsim_mnar.policies.as_policy` accepts; it receives all events.
        slate_size: number of items in a ranking, at most ``policy.n_items``.
        name: the name under which results are reported; None for the policy's name.
    """

    def __init__(self, policy: Any, slate_size: int, name: str | None = None) -> None:
        super().__init__(policy, slate_size, name)
        inner: Policy = self.policy
        epsilon = 0.0
        while isinstance(inner, EpsilonMixture):
            epsilon = inner.epsilon + epsilon * (1.0 - inner.epsilon)
            inner = inner.inner
        self.epsilon = epsilon
        self._p_random = epsilon  # probability of the branch in which all rankings have equal probability
        if inner.is_uniform:
            self._p_random = 1.0
        self._inner = inner
        # The order of the items above is evidence on the branch, unless only one of the two branches is possible.
        self.set_suffices = self._p_random in (0.0, 1.0)
        self._cached_table: tuple[Floats, Floats] | None = None  # weights of a fixed distribution, and their marginals

    def fresh(self) -> RankingPolicy:
        """Implement :meth:`RankingPolicy.fresh`."""
        twin = type(self)(self.policy.fresh(), self.slate_size, self.name)
        twin._cached_table = self._cached_table
        return twin

    def conditional(self, users: Ints, above: Ints) -> Floats:
        """Implement :meth:`RankingPolicy.conditional`: the two branches, weighted by their posterior probabilities."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        above = _as_kernel_rankings(above)
        out = np.empty((len(users), self.n_items))
        is_taken = np.zeros(self.n_items, np.int8)
        for piece in self._pieces(len(users)):
            kernel.fill_next(*self._weights(users[piece]), above[piece], is_taken, out[piece])
        if self._p_random > 0.0:
            n_left = float(self.n_items - above.shape[1])
            # Given the items above, each of the two branches has its posterior probability.
            p_random = self._branch_posterior(self._prefix_conditionals(users, above))[:, -1:]
            out = p_random / n_left + (1.0 - p_random) * out
            out[np.arange(len(users))[:, None], above] = 0.0
        return out

    def rank(self, users: Ints, uniforms: Floats) -> Rankings:
        """Implement :meth:`RankingPolicy.rank`: column 0 of the uniforms selects the branch of random rankings."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        uniforms = np.require(uniforms, np.float64, ["C", "W"])
        rankings = np.empty((len(users), self.slate_size), np.int32)
        is_taken = np.zeros(self.n_items, np.int8)
        n_blocks = -(-self.n_items // 64)  # rounded up
        sums = np.empty(n_blocks)  # working space: sums of blocks of 64 weights
        for piece in self._pieces(len(users)):
            weights, scores, rows = self._weights(users[piece])
            kernel.draw(weights, scores, rows, uniforms[piece], self._p_random, is_taken, sums, rankings[piece])
        return rankings

    def propensities_of(self, users: Ints, rankings: Ints) -> Propensities:
        """Implement :meth:`RankingPolicy.propensities_of`: a mixture of the inner policy's and of random rankings."""
        rankings = checked_rankings(self, rankings, len(users))
        k = self.slate_size
        p = self._p_random
        marginal = np.zeros(rankings.shape)
        conditional = np.zeros(rankings.shape)
        sets = np.zeros(len(users))
        if p < 1.0:
            for piece in self._pieces(len(users)):
                self._fill_inner_propensities(
                    users[piece], rankings[piece], marginal[piece], conditional[piece], sets[piece]
                )
        slate = conditional.prod(axis=1)
        if p > 0.0:
            # Given the items above a position, the branches are weighted by their posterior probabilities.
            p_before = self._branch_posterior(conditional)[:, :-1]
            random = random_ranking(self.n_items, k)
            conditional = p_before * random.conditional + (1.0 - p_before) * conditional
            marginal = p * random.marginal + (1.0 - p) * marginal
            slate = p * random.slate + (1.0 - p) * slate
            sets = p * random.set + (1.0 - p) * sets
        return Propensities(marginal, conditional, slate, sets)

    def _weights(self, users: Ints) -> tuple[Floats, Floats, Indices]:
        """Return the inner policy's probabilities and scores, by which rankings are drawn.

        Returns:
            weights: (r, n_items) probabilities; one row for all users if they are treated alike, else one per user.
            scores: (r, n_items); the same object as ``weights`` if scores are not needed, because every row has at
                least ``slate_size`` positive weights.
            rows: (n,) row of each user in both arrays.
        """
        inner = self._inner
        n = self.n_items
        if inner.is_uniform:
            fixed: Floats | None = np.full(n, 1.0 / n)
        else:
            fixed = inner.fixed_distribution()
        if fixed is not None:
            weights = np.array(checked_distribution(inner, fixed, n))[None]
            if np.count_nonzero(weights) >= self.slate_size:
                return weights, weights, np.zeros(len(users), np.int64)
            weights = np.repeat(weights, len(users), axis=0)
        else:
            weights = np.array(checked_distribution(inner, inner.probabilities(users), n, n=len(users)), order="C")
        scores = weights
        if len(users) and int(np.count_nonzero(weights, axis=1).min()) < self.slate_size:
            scores = _checked_scores_of(inner, users)
        return weights, scores, np.arange(len(users))

    def _fill_inner_propensities(
        self, users: Ints, rankings: Ints, marginals: Floats, conditional: Floats, sets: Floats
    ) -> None:
        """Write the probabilities of rankings under the inner policy to the last three arguments.

        Args:
            users: (n,) ids.
            rankings: (n, k) items.
            marginals: (n, k), written to.
            conditional: (n, k), written to.
            sets: (n,), written to.
        """
        from recsim_mnar.policies import _rankings_kernel as kernel

        k = self.slate_size
        n = self.n_items
        rule = _quadrature_rule(k)
        n_nodes = rule.roots.size
        weights, scores, rows = self._weights(users)
        kernel.price(
            weights,
            scores,
            rows,
            rankings,
            rule.lowest,
            rule.roots,
            rule.waits,
            _TOLERANCE,
            # Working space: taken, chance, rates, arrived.
            np.zeros(n, np.int8),
            np.empty(n),
            np.empty(k),
            np.empty((n_nodes, k)),
            # Results.
            conditional,
            sets,
            marginals,
        )
        # The kernel leaves a sentinel for marginals that need an integral, which costs far more than all else.
        needs_integral = marginals == kernel.INTEGRAL
        if needs_integral.any() and weights is scores and has_fixed_distribution(self._inner):
            table = self._fixed_position_table(weights[0])
            marginals[needs_integral] = table[rankings, np.arange(k)][needs_integral]
        elif needs_integral.any():
            kernel.fill_marginals(
                weights,
                rows,
                rankings,
                rule.first,
                rule.roots,
                rule.reaches,
                _TOLERANCE,
                np.empty(n),  # working space, as the next two lines
                *_working_space(n, k, n_nodes, k),
                np.empty((k, k)),
                marginals,
            )

    def _fixed_position_table(self, weights: Floats) -> Floats:
        """Return marginals (n_items, slate_size) of every item at every position, cached for equal weights."""
        if self._cached_table is not None:
            cached_weights, table = self._cached_table
            if np.array_equal(cached_weights, weights):
                return table
        table = position_table(weights, self.slate_size)
        self._cached_table = weights, table
        return table

    def _prefix_conditionals(self, users: Ints, above: Rankings) -> Floats:
        """Return the inner policy's conditional probability of each item in ``above``, (n, j) like it."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        out = np.empty(above.shape)
        all_items = np.empty((len(users), self.n_items))
        is_taken = np.zeros(self.n_items, np.int8)
        for piece in self._pieces(len(users)):
            weights, scores, rows = self._weights(users[piece])
            for j in range(above.shape[1]):
                kernel.fill_next(
                    weights, scores, rows, _as_kernel_rankings(above[piece, :j]), is_taken, all_items[piece]
                )
                out[piece, j] = all_items[piece][np.arange(len(rows)), above[piece, j]]
        return out

    def _branch_posterior(self, conditional: Floats) -> Floats:
        """Return the posterior probability of the uniform branch, given the items ranked so far, by Bayes' rule.

        Args:
            conditional: (n, j) inner policy's conditional probability of each ranked item.

        Returns:
            (n, j + 1): before each position, and after the last.
        """
        n, j = conditional.shape
        posterior = np.full((n, j + 1), self._p_random)
        for t in range(j):
            uniform_part = posterior[:, t] / (self.n_items - t)
            total = uniform_part + (1.0 - posterior[:, t]) * conditional[:, t]
            posterior[:, t + 1] = np.divide(uniform_part, total, out=np.zeros(n), where=total > 0.0)
        return posterior


def random_ranking(n_items: int, slate_size: int) -> Propensities:
    """Return the :class:`Propensities` of any one ranking (n = 1) if all rankings have equal probability."""
    conditional = 1.0 / (n_items - np.arange(slate_size))
    in_any_order = conditional * np.arange(slate_size, 0, -1)
    marginal = np.full((1, slate_size), 1.0 / n_items)
    return Propensities(marginal, conditional[None], conditional.prod(keepdims=True), in_any_order.prod(keepdims=True))


# ------------------------------------------------------------------------------------------------ adapters and checks


def as_ranking_policy(policy: Any, slate_size: int) -> RankingPolicy:
    """Return a ranking policy for a user's object.

    Args:
        policy: a :class:`RankingPolicy`, which is returned unchanged, or an object that
            :func:`~recsim_mnar.policies.as_policy` accepts, which then ranks through :class:`PlackettLuce`.
        slate_size: number of items in a ranking.

    Raises:
        UserError: ``as_policy`` refuses the object, or a ranking policy has another slate size.
    """
    if isinstance(policy, RankingPolicy):
        if not isinstance(getattr(policy, "policy", None), Policy):
            raise UserError(f"ranking {type(policy).__name__}: call super().__init__(policy, slate_size) in __init__()")
        if policy.slate_size != checked_slate_size(slate_size, policy.n_items):
            _refuse(policy, f"it ranks {policy.slate_size} items, the world shows {slate_size}: make it for this world")
        return policy
    if isinstance(policy, type) and issubclass(policy, RankingPolicy):
        raise UserError(f"ranking {policy.__name__} is a class: give an object of it")
    return PlackettLuce(policy, slate_size)


def ranking_uniforms(seed: int, users: Ints, decisions: Ints, slate_size: int) -> Floats:
    """Draw the uniforms that :meth:`RankingPolicy.rank` needs for users' decisions.

    A block of four 32-bit words gives two uniforms, so that a decision takes (slate_size + 2) // 2 blocks.

    Args:
        seed: seed of the simulation.
        users: (n,) ids.
        decisions: (n,) number of each user's decision, from 0.
        slate_size: number of items in a ranking.

    Returns:
        (n, slate_size + 1) uniforms in [0, 1) with 53 random bits.
    """
    blocks = (slate_size + 2) // 2
    index = np.asarray(decisions, np.int64)[:, None] * blocks + np.arange(blocks)
    words = rng.blocks(seed, rng.Stream.RANKING, np.repeat(np.asarray(users), blocks), index.ravel())
    pairs = words.reshape(len(index), 2 * blocks, 2).astype(np.uint64)
    high = pairs[:, : slate_size + 1, 0]
    low = pairs[:, : slate_size + 1, 1]
    bits = (high << np.uint64(32) | low) >> np.uint64(11)  # the upper 53 of 64 bits: what a float64 can hold
    return bits.astype(np.float64) * 2.0**-53


def checked_slate_size(slate_size: Any, n_items: int) -> int:
    """Return ``slate_size`` as an int; UserError if it is not a whole number in 1 .. n_items."""
    size = whole_number(slate_size, "slate_size", 1)
    if size > n_items:
        raise UserError(f"slate_size is {size}, there are {n_items} items: a ranking shows each item once at most")
    return size


def checked_rankings(policy: RankingPolicy, rankings: Any, n: int) -> Rankings:
    """Check rankings of ``n`` users, and return them as a contiguous int32 array (n, slate_size).

    Raises:
        UserError: wrong shape, not integers, an item out of range, or the same item twice in a ranking.
    """
    array = np.asarray(rankings)
    shape = (n, policy.slate_size)
    if array.shape != shape:
        _refuse(policy, f"rankings must have shape {shape}, got {array.shape}")
    if n and not np.issubdtype(array.dtype, np.integer):
        _refuse(policy, f"rankings must be integers, got {array.dtype}")
    if n and (int(array.min()) < 0 or int(array.max()) >= policy.n_items):
        bad = array[(array < 0) | (array >= policy.n_items)][0]
        _refuse(policy, f"item {bad} of a ranking is out of range, there are items 0..{policy.n_items - 1}")
    ordered = np.sort(array, axis=1)
    twice = ordered[:, 1:] == ordered[:, :-1]
    if twice.any():
        _refuse(policy, f"item {ordered[:, 1:][twice][0]} stands in a ranking twice: each item at most once")
    return _as_kernel_rankings(array)


def drawn_rankings(policy: RankingPolicy, users: Ints, uniforms: Floats) -> Rankings:
    """Return the rankings (n, slate_size) that a policy draws for users, checked.

    Args:
        policy: ranking policy.
        users: (n,) ids.
        uniforms: (n, slate_size + 1) uniforms for :meth:`RankingPolicy.rank`.

    Raises:
        UserError: invalid rankings, or the policy writes to its arguments.
    """
    ranked = call_readonly(policy, "rank", policy.rank, users.view(), uniforms.view())
    return checked_rankings(policy, ranked, len(users))


def checked_propensities_of(policy: RankingPolicy, users: Ints, rankings: Ints) -> Propensities:
    """Return the propensities of users' rankings by ``propensities_of``, checked and as float64.

    Raises:
        UserError: not four arrays, wrong shapes, values outside [0, 1], or a product of the conditional probabilities
            that differs from the slate's probability.
    """
    answer = call_readonly(policy, "propensities_of", policy.propensities_of, users.view(), rankings.view())
    if not isinstance(answer, tuple) or len(answer) != 4:
        _refuse(policy, "propensities_of() must return Propensities(marginal, conditional, slate, set)")
    shapes = [(len(users), policy.slate_size)] * 2 + [(len(users),)] * 2  # in the order of the fields
    for name, part, shape in zip(Propensities._fields, answer, shapes, strict=True):
        numbers = np.asarray(part)
        if numbers.shape != shape or not np.issubdtype(numbers.dtype, np.number):
            _refuse(policy, f"propensities_of() must return numbers of shape {shape} for {name}, got {numbers.shape}")
        if not np.all((numbers >= 0.0) & (numbers <= 1.0 + 1e-9)):
            _refuse(policy, f"propensities_of() must return {name} in [0, 1]")
    propensities = Propensities(*(np.minimum(np.asarray(part, np.float64), 1.0) for part in answer))
    product = propensities.conditional.prod(axis=1)
    slate = propensities.slate
    refuse_first(
        np.abs(product - slate) > 1e-6 * slate + 1e-300,  # a relative error, or both are 0 or subnormal
        lambda i: (
            f"ranking {policy.name!r}: propensities_of() says {slate[i]:.6g} for a slate, the product of its "
            f"conditionals is {product[i]:.6g}"
        ),
    )
    return propensities


def checked_conditional(policy: RankingPolicy, answer: Any, above: Ints) -> Floats:
    """Check the return value of ``conditional``, and return it as float64 (n, n_items).

    Args:
        policy: ranking policy, for messages.
        answer: return value of its ``conditional``.
        above: (n, j) items above, which must have probability 0.

    Raises:
        UserError: wrong shape, not numbers, a negative probability, a sum other than 1, or a positive probability for
            an item above.
    """
    try:
        probability = np.asarray(answer, np.float64)
    except (TypeError, ValueError):
        _refuse(policy, "conditional() must return numbers")
    shape = (len(above), policy.n_items)
    if probability.shape != shape:
        _refuse(policy, f"conditional() must return shape {shape}, got {probability.shape}")
    if probability.size and not probability.min() >= 0.0:
        _refuse(policy, f"conditional() must return probabilities, one is {probability.min():g}")
    sums = probability.sum(axis=1)
    if not np.all(np.abs(sums - 1.0) < 1e-6):
        _refuse(policy, f"conditional() must sum to 1 over the items, a sum is {sums[np.argmax(np.abs(sums - 1.0))]:g}")
    possible = np.take_along_axis(probability, np.asarray(above, np.int64), axis=1) > 0.0
    if possible.any():
        _refuse(policy, f"conditional() must be 0 for the items above, item {np.asarray(above)[possible][0]} has more")
    return probability


def _refuse(policy: RankingPolicy, why: str) -> NoReturn:
    """Raise UserError about a ranking policy."""
    raise UserError(f"ranking {policy.name!r}: {why}")


def _as_kernel_rankings(rankings: Any) -> Rankings:
    """Return rankings as a contiguous, writeable int32 array, the one type for which kernels are compiled."""
    return np.require(rankings, np.int32, ["C", "W"])


def _checked_scores_of(policy: Policy, users: Ints) -> Floats:
    """Return a policy's scores (n, n_items); UserError if one is NaN, for NaN has no rank."""
    scores = checked_scores(policy, policy.scores(users), (len(users), policy.n_items))
    if np.isnan(scores).any():
        raise UserError(f"policy {policy.name!r}: one of its scores is not a number, it cannot rank by them")
    return scores


# ----------------------------------------------------------------------------------------------- tables of the kernels


class _QuadratureRule(NamedTuple):
    """Nodes of the trapezoidal rule over the logarithm of time, for rankings of k items.

    The nodes are the times x = 2^(o + s/m), in octaves o with m steps s each.

    Attributes:
        roots: (m,) factors 2^(s/m) within an octave.
        lowest: first octave of the integral for a set's probability.
        waits: (octaves, m) step width times x exp(-x) at the nodes of that integral, from octave ``lowest`` on.
        first: octave in which the integral for a marginal starts.
        reaches: (k,) end of the integral for marginals of rankings of 1 .. k positions, by
            :func:`_marginal_integral_end`.
    """

    roots: Floats
    lowest: int
    waits: Floats
    first: int
    reaches: Floats


@functools.cache
def _quadrature_rule(k: int) -> _QuadratureRule:
    """Return the coarsest rule for rankings of k items whose errors are below :data:`_TOLERANCE`."""
    m = 3
    while _quadrature_error(k, m) > _TOLERANCE:
        m += 1
    roots = 2.0 ** (np.arange(m) / m)
    # End of the integral for sets: its tail beyond 2^last is at most e times the integral of x^k exp(-x) there, which
    # is below 2 (2^last)^k exp(-2^last) as 2^last >= 2 k.
    last = 0
    while 2.0**last < 2 * k or 1.0 + k * last * math.log(2.0) - 2.0**last + math.log(2.0) > math.log(_TOLERANCE):
        last += 1
    lowest = -60 - k  # far below any start that the kernel chooses, by its own bound
    x = 2.0 ** np.arange(lowest, last)[:, None] * roots
    # Marginals at positions 0 and 1 have closed forms; from position 2 on the part of the integral before a time x is
    # at most 6.81 x^3 (e x (1.58 x)^2, the kernel's bound).
    first = math.floor(math.log2((_TOLERANCE / 6.81) ** (1.0 / 3.0)))
    reaches = [_marginal_integral_end(n_positions) for n_positions in range(1, k + 1)]
    step = math.log(2.0) / m
    waits = step * x * np.exp(-x)
    return _QuadratureRule(roots=roots, lowest=lowest, waits=waits, first=first, reaches=np.array(reaches))


def _quadrature_error(k: int, m: int) -> float:
    """Return a bound of the relative error of the trapezoidal rule with m steps per octave.

    It is the bound derived in the docstring of ``_rankings_kernel``, at the angle that minimises it.
    """
    frequency = 2.0 * math.pi * m / math.log(2.0)
    angle = math.atan(frequency / (k + 1))
    return 2.0 * math.exp(-frequency * angle - (k + 1) * math.log(math.cos(angle)))


def _marginal_integral_end(k: int) -> float:
    """Return the end of the integral for a marginal of a ranking of k positions, in units of 1 / V.

    V is the weight outside the k - 1 largest weights. The end is the least c = 2 k, 2 k + 1, ... with c^k exp(1 - c)
    below the tolerance.
    """
    c = 2.0 * k
    while k * math.log(c) + 1.0 - c > math.log(_TOLERANCE):
        c += 1.0
    return c


def _working_space(n: int, k: int, m: int, n_asked: int) -> tuple[Floats, ...]:
    """Return the working arrays of the kernel ``position_table``: its parameters from ``largest`` to ``counts``.

    Args:
        n: number of items.
        k: number of positions.
        m: number of nodes per octave.
        n_asked: number of items whose marginals are computed.
    """
    from recsim_mnar.policies._rankings_kernel import OCTAVES

    nodes = m * OCTAVES
    depth = math.ceil(math.log2(max(n_asked, 1)))
    shapes = [(k,), (n, m), (n, m), (4, nodes), (n_asked, nodes), (n_asked, nodes), (depth + 1, k, nodes)]
    return tuple(np.empty(shape) for shape in shapes)


def position_table(weights: Floats, slate_size: int) -> Floats:
    """Compute the probability of every item at every position of a Plackett-Luce ranking, (n_items, slate_size).

    Args:
        weights: (n_items,) weights of the items, at least ``slate_size`` of them positive.
        slate_size: number of positions.
    """
    from recsim_mnar.policies import _rankings_kernel as kernel

    k = slate_size
    positive = weights > 0.0
    rates = weights[positive] / weights.sum()
    n = len(rates)
    rule = _quadrature_rule(k)
    result = np.zeros((n, k))
    working = _working_space(n, k, rule.roots.size, n)
    kernel.position_table(rates, n, k, rule.first, rule.roots, rule.reaches[k - 1], _TOLERANCE, *working, result)
    # The first two positions have closed forms, and rule.first is too late for them.
    result[:, 0] = rates
    if k > 1:
        second = np.empty(n)
        kernel.of_second(rates, 1.0, second)
        result[:, 1] = rates * second
    table = np.zeros((len(weights), k))
    table[positive] = np.minimum(result, 1.0)
    return table
