"""Rankings: ordered lists of k distinct items, drawn with probabilities that are known exactly.

Any :class:`~recsim_mnar.policies.Policy` ranks through :func:`as_ranking_policy`. Each position holds one of the items
left, drawn by the policy's probabilities (a Plackett-Luce ranking: a softmax policy's temperature is that of the
ranking). When no item of positive probability is left, the one of largest score follows, ties evenly. So a greedy
policy gives its top k. A policy softened by epsilon gives with that probability a ranking in which all items are as
likely, else the ranking of the policy within. :class:`ExploringTopK` explores at each position by itself.

A ranking of one's own derives from :class:`RankingPolicy` and defines ``conditional``.
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
from recsim_mnar.kernels.checks import number_in, refuse_first, whole_number
from recsim_mnar.policies.answers import call_readonly, checked_distribution, checked_scores
from recsim_mnar.policies.base import Floats, Ints, Policy, Ranks
from recsim_mnar.policies.door import EventForwarder, as_policy, has_fixed_distribution
from recsim_mnar.policies.slots import Indices
from recsim_mnar.policies.softening import EpsilonMixture

ENUMERATED = 100_000
"""Rankings of a law of one's own that are enumerated for marginals; of larger catalogues a sample is drawn."""

SAMPLED = 2_000
"""Rankings in that sample."""

MOST_ORDERS = 5_040
"""Orders of a set (7!) that are enumerated for its probability, where the next item depends on the order above."""

MOST_SUBSETS = 1 << 14
"""Subsets of a set that are gone through for its probability, where the next item depends on the set above alone."""

_ENTRIES = 1 << 21
"""Probabilities that are held at a time, of as many users as fit."""

_TOLERANCE = 1e-12
"""Relative error of an integral that its rule and its ends may cause."""

Rankings = NDArray[np.int32]


class Propensities(NamedTuple):
    """Probabilities of n rankings of k items.

    Attributes:
        marginal: (n, k), of each item at its position.
        conditional: (n, k), of each item at its position, given the items above it.
        slate: (n,), of the items in this order.
        set: (n,), of the items in any order.
    """

    marginal: Floats
    conditional: Floats
    slate: Floats
    set: Floats


class RankingPolicy(EventForwarder, Ranks, abc.ABC):
    """Base of policies that rank ``slate_size`` distinct items for each of many users at once.

    A law of one's own defines ``conditional``; the rest follows. Its set probabilities then take k 2^k conditionals
    for each ranking where ``set_suffices``, else k! orders; its marginals are exact while there are at most
    :data:`ENUMERATED` rankings, else means over :data:`SAMPLED` of them, the same ones whenever they are asked for.

    Args:
        policy: a policy, or an object that :func:`~recsim_mnar.policies.as_policy` takes; events are handed to it.
        slate_size: items in a ranking, at most ``policy.n_items``.
        name: the name under which results are reported; the policy's where None.

    Attributes:
        policy: the policy within, a full one.
        n_items: number of items.
        slate_size: items in a ranking.
        name: the name under which results are reported.
        set_suffices: whether ``conditional`` depends on which items stand above, not on their order.
    """

    set_suffices: bool = False

    def __init__(self, policy: Any, slate_size: int, name: str | None = None) -> None:
        self.policy = as_policy(policy)
        self.n_items = self.policy.n_items
        self.slate_size = checked_slate_size(slate_size, self.n_items)
        self.name = name or self.policy.name

    @property
    def within(self) -> Sequence[Policy]:
        """Implement :class:`EventForwarder`; a user stands in ``learn`` once for each item shown."""
        return (self.policy,)

    def defines(self, method: str) -> bool:
        """Implement :meth:`Policy.defines`; as the policy within."""
        return self.policy.defines(method)

    @abc.abstractmethod
    def conditional(self, users: Ints, above: Ints) -> Floats:
        """Probability of every item to be the next, given the items above it.

        Args:
            users: (n,) ids; a user may stand there several times.
            above: (n, j) distinct items, from the top, j < slate_size.

        Returns:
            (n, n_items), rows summing to 1, 0 for the items above.
        """

    def rank(self, users: Ints, uniforms: Floats) -> Rankings:
        """Draw a ranking for each user.

        Args:
            users: (n,) ids.
            uniforms: (n, slate_size + 1) in [0, 1), the only randomness: column 0 picks the branch of a mixture,
                column 1 + j the item at position j.

        Returns:
            (n, slate_size) int32, distinct in each row.
        """
        rankings = np.empty((len(users), self.slate_size), np.int32)
        for j in range(self.slate_size):
            probability = self._next(users, rankings[:, :j])
            sums = probability.cumsum(axis=1)
            item = (sums <= uniforms[:, j + 1, None] * sums[:, -1:]).sum(axis=1)
            last = self.n_items - 1 - np.argmax(probability[:, ::-1] > 0.0, axis=1)  # where rounding leads past it
            rankings[:, j] = np.minimum(item, last)
        return rankings

    def propensities_of(self, users: Ints, rankings: Ints) -> Propensities:
        """Compute the probabilities of given rankings in each user's present state.

        Args:
            users: (n,) ids; a user may stand there several times.
            rankings: (n, slate_size) distinct items.

        Raises:
            UserError: the rankings are none, or the set's probability would take too long.
        """
        rankings = checked_rankings(self, rankings, len(users))
        conditional = np.empty(rankings.shape)
        for j in range(self.slate_size):
            probability = self._next(users, rankings[:, :j])
            conditional[:, j] = probability[np.arange(len(users)), rankings[:, j]]
        marginal = np.array([self._marginals(users[i : i + 1], rankings[i]) for i in range(len(users))])
        slate = conditional.prod(axis=1)
        return Propensities(marginal.reshape(rankings.shape), conditional, slate, self._sets(users, rankings))

    def fresh(self) -> RankingPolicy:
        """Return the same policy without any user, by default a deep copy."""
        return copy.deepcopy(self)

    def describe(self) -> Mapping[str, Any]:
        """Name and parameters, for a log's provenance; JSON types only."""
        if isinstance(self, PlackettLuce):
            law = "plackett-luce"
        else:
            law = type(self).__name__
        return {**self.policy.describe(), "name": self.name, "ranking": law, "slate_size": self.slate_size}

    def _next(self, users: Ints, above: Ints) -> Floats:
        """``conditional``, checked."""
        conditional = call_readonly(self, "conditional", self.conditional, np.asarray(users).view(), np.array(above))
        return checked_conditional(self, conditional, above)

    def _pieces(self, n: int) -> list[slice]:
        """Split n rows so that few probabilities are in memory at a time."""
        size = max(1, _ENTRIES // self.n_items)
        return [slice(begin, begin + size) for begin in range(0, n, size)]

    def _step(self, user: Ints, above: Ints) -> Floats:
        """``conditional`` of one user after each of many beginnings, (m, n_items)."""
        parts = [self._next(np.repeat(user, len(above[piece])), above[piece]) for piece in self._pieces(len(above))]
        return np.concatenate(parts)

    def _sets(self, users: Ints, rankings: Ints) -> Floats:
        """Compute (n,) probabilities of each set, through all its subsets or all its orders."""
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
        return np.array([self._set(users[i : i + 1], rankings[i]) for i in range(len(users))], np.float64)

    def _set(self, user: Ints, items: Ints) -> float:
        """Compute the probability of one user's set of items, beginnings of the same length together."""
        k = self.slate_size
        beginnings: list[tuple[int, ...]] = [()]
        weight = np.ones(1)
        for _ in range(k):
            above = np.array(beginnings, np.int64).reshape(len(beginnings), -1)
            steps = self._step(user, items[above])[:, items]
            longer: dict[tuple[int, ...], float] = {}
            for beginning, w, step in zip(beginnings, weight.tolist(), steps.tolist(), strict=True):
                for i in range(k):
                    if i in beginning:
                        continue
                    key = (*beginning, i)
                    if self.set_suffices:
                        key = tuple(sorted(key))
                    longer[key] = longer.get(key, 0.0) + w * step[i]
            beginnings = list(longer)
            weight = np.array(list(longer.values()))
        return float(weight.sum())

    def _marginals(self, user: Ints, ranking: Ints) -> Floats:
        """Probability of each item of one ranking at its place, (k,): by all beginnings or by a sample of rankings."""
        k = self.slate_size
        n = self.n_items
        mean = np.empty(k)
        if math.perm(n, k) > ENUMERATED:
            seed = rng.derive_seed(0, "marginals of rankings")  # not a seed that a run shares by chance
            drawn = self.rank(
                np.repeat(user, SAMPLED), ranking_uniforms(seed, np.zeros(SAMPLED, np.int64), np.arange(SAMPLED), k)
            )
            for j in range(k):
                mean[j] = self._step(user, drawn[:, :j])[:, ranking[j]].mean()
            return mean
        above = np.empty((1, 0), np.int64)
        weight = np.ones(1)
        for j in range(k):
            steps = self._step(user, above)
            mean[j] = weight @ steps[:, ranking[j]]
            if j < k - 1:
                begun, item = np.nonzero(steps)
                above = np.column_stack([above[begun], item])
                weight = weight[begun] * steps[begun, item]
        return mean


class PlackettLuce(RankingPolicy):
    """Ranking whose positions are drawn from the items left by a policy's probabilities, then by its scores.

    Of an :class:`~recsim_mnar.policies.EpsilonMixture` the policy within ranks so, and with probability epsilon all
    rankings are as likely. Probabilities are right to 1e-10 of themselves; those of a ranking that cannot come are 0.

    Args:
        policy: as :class:`RankingPolicy`.
        slate_size: as :class:`RankingPolicy`.
        name: as :class:`RankingPolicy`.
    """

    def __init__(self, policy: Any, slate_size: int, name: str | None = None) -> None:
        super().__init__(policy, slate_size, name)
        inner: Policy = self.policy
        epsilon = 0.0
        while isinstance(inner, EpsilonMixture):
            epsilon = inner.epsilon + epsilon * (1.0 - inner.epsilon)
            inner = inner.inner
        self.epsilon = epsilon
        self._random = 1.0 if inner.is_uniform else epsilon
        self._inner = inner
        self.set_suffices = self._random in (0.0, 1.0)
        self._known: tuple[Floats, Floats] | None = None

    def fresh(self) -> RankingPolicy:
        """Implement :meth:`RankingPolicy.fresh`."""
        again = type(self)(self.policy.fresh(), self.slate_size, self.name)
        again._known = self._known
        return again

    def conditional(self, users: Ints, above: Ints) -> Floats:
        """Implement :meth:`RankingPolicy.conditional`."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        above = _items(above)
        out = np.empty((len(users), self.n_items))
        is_taken = np.zeros(self.n_items, np.int8)
        for piece in self._pieces(len(users)):
            kernel.fill_next(*self._weights(users[piece]), above[piece], is_taken, out[piece])
        if self._random > 0.0:
            left = float(self.n_items - above.shape[1])
            random = self._explored(self._orders(users, above))[:, -1:]
            out = random / left + (1.0 - random) * out
            out[np.arange(len(users))[:, None], above] = 0.0
        return out

    def rank(self, users: Ints, uniforms: Floats) -> Rankings:
        """Implement :meth:`RankingPolicy.rank`."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        uniforms = np.require(uniforms, np.float64, ["C", "W"])
        rankings = np.empty((len(users), self.slate_size), np.int32)
        is_taken = np.zeros(self.n_items, np.int8)
        sums = np.empty(-(-self.n_items // 64))
        for piece in self._pieces(len(users)):
            weights = self._weights(users[piece])
            kernel.draw(*weights, uniforms[piece], self._random, is_taken, sums, rankings[piece])
        return rankings

    def propensities_of(self, users: Ints, rankings: Ints) -> Propensities:
        """Implement :meth:`RankingPolicy.propensities_of`."""
        rankings = checked_rankings(self, rankings, len(users))
        k = self.slate_size
        e = self._random
        marginal = np.zeros(rankings.shape)
        conditional = np.zeros(rankings.shape)
        sets = np.zeros(len(users))
        if e < 1.0:
            for piece in self._pieces(len(users)):
                self._price(users[piece], rankings[piece], marginal[piece], conditional[piece], sets[piece])
        slate = conditional.prod(axis=1)
        if e > 0.0:
            random = self._explored(conditional)[:, :-1]
            of_random = random_ranking(self.n_items, k)
            conditional = random * of_random.conditional + (1.0 - random) * conditional
            marginal = e * of_random.marginal + (1.0 - e) * marginal
            slate = e * of_random.slate + (1.0 - e) * slate
            sets = e * of_random.set + (1.0 - e) * sets
        return Propensities(marginal, conditional, slate, sets)

    def _weights(self, users: Ints) -> tuple[Floats, Floats, Indices]:
        """Return weights and scores, (r, n_items), and the row of each user, (n,)."""
        inner = self._inner
        n = self.n_items
        fixed = np.full(n, 1.0 / n) if inner.is_uniform else inner.fixed_distribution()
        if fixed is not None:
            weights = np.array(checked_distribution(inner, fixed, n))[None]
            if np.count_nonzero(weights) >= self.slate_size:
                return weights, weights, np.zeros(len(users), np.int64)
            weights = np.repeat(weights, len(users), axis=0)
        else:
            weights = np.array(checked_distribution(inner, inner.probabilities(users), n, n=len(users)), order="C")
        scores = weights
        if len(users) and int(np.count_nonzero(weights, axis=1).min()) < self.slate_size:
            scores = _scores(inner, users)
        return weights, scores, np.arange(len(users))

    def _price(self, users: Ints, rankings: Ints, marginals: Floats, conditional: Floats, sets: Floats) -> None:
        """Fill in the probabilities of rankings by the policy within."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        k = self.slate_size
        n = self.n_items
        rule = _rule(k)
        weights, scores, which = self._weights(users)
        kernel.price(
            weights,
            scores,
            which,
            rankings,
            rule.lowest,
            rule.roots,
            rule.waits,
            _TOLERANCE,
            np.zeros(n, np.int8),
            np.empty(n),
            np.empty(k),
            np.empty((rule.roots.size, k)),
            conditional,
            sets,
            marginals,
        )
        left = marginals == kernel.INTEGRAL
        if left.any() and weights is scores and has_fixed_distribution(self._inner):
            table = self._table(weights[0])
            marginals[left] = table[rankings, np.arange(k)][left]
        elif left.any():
            room = _room(n, k, rule.roots.size, k)
            kernel.fill_marginals(
                weights,
                which,
                rankings,
                rule.first,
                rule.roots,
                rule.reaches,
                _TOLERANCE,
                np.empty(n),
                *room,
                np.empty((k, k)),
                marginals,
            )

    def _table(self, weights: Floats) -> Floats:
        """Return (n_items, slate_size) marginals of every item at every position; cached."""
        if self._known is None or not np.array_equal(self._known[0], weights):
            self._known = weights, position_table(weights, self.slate_size)
        return self._known[1]

    def _orders(self, users: Ints, above: Rankings) -> Floats:
        """Compute the conditionals of the items above, by the policy within."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        out = np.empty(above.shape)
        every = np.empty((len(users), self.n_items))
        is_taken = np.zeros(self.n_items, np.int8)
        for piece in self._pieces(len(users)):
            weights = self._weights(users[piece])
            for j in range(above.shape[1]):
                kernel.fill_next(*weights, _items(above[piece, :j]), is_taken, every[piece])
                out[piece, j] = every[piece][np.arange(len(every[piece])), above[piece, j]]
        return out

    def _explored(self, conditional: Floats) -> Floats:
        """Compute (n, j + 1) the probability of the uniform branch before each position and after the last."""
        n, j = conditional.shape
        random = np.full((n, j + 1), self._random)
        for t in range(j):
            here = random[:, t] / (self.n_items - t)
            both = here + (1.0 - random[:, t]) * conditional[:, t]
            random[:, t + 1] = np.divide(here, both, out=np.zeros(n), where=both > 0.0)
        return random


class ExploringTopK(RankingPolicy):
    """The top k of a policy's scores with exploration at each position.

    With probability ``epsilon`` a position holds any of the items left, all as likely; else the best of them, ties
    evenly. Every probability is exact.

    Args:
        policy: as :class:`RankingPolicy`; its ``scores`` decide.
        slate_size: as :class:`RankingPolicy`.
        epsilon: in [0, 1].
        name: the policy's name and epsilon where None.
    """

    set_suffices = True

    def __init__(self, policy: Any, slate_size: int, epsilon: float, name: str | None = None) -> None:
        super().__init__(policy, slate_size, name)
        self.epsilon = number_in(epsilon, "epsilon", 0.0, 1.0)
        if isinstance(self.policy, EpsilonMixture):
            raise UserError(f"policy {self.policy.name!r} explores already: give ExploringTopK the policy within")
        self.name = name or f"{self.policy.name}+exploration={self.epsilon:g}"

    def fresh(self) -> RankingPolicy:
        """Implement :meth:`RankingPolicy.fresh`."""
        return type(self)(self.policy.fresh(), self.slate_size, self.epsilon, self.name)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`RankingPolicy.describe`."""
        return {**super().describe(), "ranking": "exploring-top-k", "epsilon": self.epsilon}

    def conditional(self, users: Ints, above: Ints) -> Floats:
        """Implement :meth:`RankingPolicy.conditional`."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        above = _items(above)
        n = self.n_items
        out = np.empty((len(users), n))
        for piece in self._pieces(len(users)):
            scores = _scores(self.policy, users[piece])
            rows = np.arange(len(scores))
            kernel.fill_next(np.zeros_like(scores), scores, rows, above[piece], np.zeros(n, np.int8), out[piece])
        out = (1.0 - self.epsilon) * out + self.epsilon / (n - above.shape[1])
        out[np.arange(len(users))[:, None], above] = 0.0
        return out

    def rank(self, users: Ints, uniforms: Floats) -> Rankings:
        """Implement :meth:`RankingPolicy.rank`."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        uniforms = np.require(uniforms, np.float64, ["C", "W"])
        n = self.n_items
        rankings = np.empty((len(users), self.slate_size), np.int32)
        for piece in self._pieces(len(users)):
            scores = _scores(self.policy, users[piece])
            is_taken = np.zeros(n, np.int8)
            kernel.draw_exploring(np.zeros(n), scores, uniforms[piece], self.epsilon, is_taken, rankings[piece])
        return rankings

    def propensities_of(self, users: Ints, rankings: Ints) -> Propensities:
        """Implement :meth:`RankingPolicy.propensities_of`."""
        from recsim_mnar.policies import _rankings_kernel as kernel

        rankings = checked_rankings(self, rankings, len(users))
        k = self.slate_size
        marginal = np.empty(rankings.shape)
        conditional = np.empty(rankings.shape)
        sets = np.empty(len(users))
        table = _exploring_table(self.n_items, k, self.epsilon).copy()
        for piece in self._pieces(len(users)):
            scores = _scores(self.policy, users[piece])
            kernel.price_exploring(
                scores,
                rankings[piece],
                self.epsilon,
                table,
                np.zeros(self.n_items, np.int8),
                np.empty((k + 1, k + 1, k + 1)),
                conditional[piece],
                sets[piece],
                marginal[piece],
            )
        return Propensities(marginal, conditional, conditional.prod(axis=1), sets)


def random_ranking(n_items: int, slate_size: int) -> Propensities:
    """Probabilities of one ranking, (1, slate_size) and (1,), where all rankings are as likely."""
    conditional = 1.0 / (n_items - np.arange(slate_size))
    in_any_order = conditional * np.arange(slate_size, 0, -1)
    marginal = np.full((1, slate_size), 1.0 / n_items)
    return Propensities(marginal, conditional[None], conditional.prod(keepdims=True), in_any_order.prod(keepdims=True))


# --------------------------------------------------------------------------------------------------- doors and checks


def as_ranking_policy(policy: Any, slate_size: int) -> RankingPolicy:
    """Return a ranking policy of a user's object.

    Args:
        policy: a :class:`RankingPolicy`, which is returned as it is, or what :func:`~recsim_mnar.policies.as_policy`
            takes, which ranks as :class:`PlackettLuce`.
        slate_size: items in a ranking.

    Raises:
        UserError: as ``as_policy``, or another slate size.
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
    """Draw the (n, slate_size + 1) uniforms of :meth:`RankingPolicy.rank` for users' decisions, from 0.

    Two from each block of words, so (slate_size + 2) // 2 blocks a decision.
    """
    blocks = (slate_size + 2) // 2
    index = np.asarray(decisions, np.int64)[:, None] * blocks + np.arange(blocks)
    words = rng.blocks(seed, rng.Stream.RANKING, np.repeat(np.asarray(users), blocks), index.ravel())
    pairs = words.reshape(len(index), 2 * blocks, 2).astype(np.uint64)
    bits = (pairs[:, : slate_size + 1, 0] << np.uint64(32) | pairs[:, : slate_size + 1, 1]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def checked_slate_size(slate_size: Any, n_items: int) -> int:
    """Convert to an int; UserError if it is not in 1 .. n_items."""
    size = whole_number(slate_size, "slate_size", 1)
    if size > n_items:
        raise UserError(f"slate_size is {size}, there are {n_items} items: a ranking shows each item once at most")
    return size


def checked_rankings(policy: RankingPolicy, rankings: Any, n: int) -> Rankings:
    """Check rankings of ``n`` users; return them as int32.

    Raises:
        UserError: wrong shape, not integers, an item out of range, or one that stands in a ranking twice.
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
    return _items(array)


def drawn_rankings(policy: RankingPolicy, users: Ints, uniforms: Floats) -> Rankings:
    """Call ``rank`` with read-only arrays and check its return value."""
    ranked = call_readonly(policy, "rank", policy.rank, users.view(), uniforms.view())
    return checked_rankings(policy, ranked, len(users))


def checked_propensities_of(policy: RankingPolicy, users: Ints, rankings: Ints) -> Propensities:
    """Call ``propensities_of`` with read-only arrays and check its return value.

    Raises:
        UserError: it is none, of another shape, outside [0, 1], or the conditionals' product is not the slate's.
    """
    answer = call_readonly(policy, "propensities_of", policy.propensities_of, users.view(), rankings.view())
    if not isinstance(answer, tuple) or len(answer) != 4:
        _refuse(policy, "propensities_of() must return Propensities(marginal, conditional, slate, set)")
    shapes = [(len(users), policy.slate_size)] * 2 + [(len(users),)] * 2
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
        np.abs(product - slate) > 1e-6 * slate + 1e-300,
        lambda i: (
            f"ranking {policy.name!r}: propensities_of() says {slate[i]:.6g} for a slate, the product of its "
            f"conditionals is {product[i]:.6g}"
        ),
    )
    return propensities


def checked_conditional(policy: RankingPolicy, answer: Any, above: Ints) -> Floats:
    """Check the return value of ``conditional``; return it as float64.

    Raises:
        UserError: wrong shape, not numbers, negative, sums other than 1, or more than 0 for an item above.
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
    raise UserError(f"ranking {policy.name!r}: {why}")


def _items(rankings: Any) -> Rankings:
    """Return rankings as a contiguous, writeable array, as kernels take them."""
    return np.require(rankings, np.int32, ["C", "W"])


def _scores(policy: Policy, users: Ints) -> Floats:
    scores = checked_scores(policy, policy.scores(users), (len(users), policy.n_items))
    if np.isnan(scores).any():
        raise UserError(f"policy {policy.name!r}: one of its scores is not a number, it cannot rank by them")
    return scores


# ----------------------------------------------------------------------------------------------- tables of the kernels


class _Rule(NamedTuple):
    """Nodes of the integrals for rankings of k items."""

    roots: Floats
    lowest: int
    waits: Floats
    first: int
    reaches: Floats


@functools.cache
def _rule(k: int) -> _Rule:
    m = 3
    while _rule_error(k, m) > _TOLERANCE:
        m += 1
    roots = 2.0 ** (np.arange(m) / m)
    last = 0  # e times the integral of x^k exp(-x) beyond 2^last is what may be missing of a set's probability
    while 2.0**last < 2 * k or 1.0 + k * last * math.log(2.0) - 2.0**last + math.log(2.0) > math.log(_TOLERANCE):
        last += 1
    lowest = -60 - k
    x = 2.0 ** np.arange(lowest, last)[:, None] * roots
    # The integral over times from 2^first of a marginal at position 2 or beyond; 0 and 1 have closed forms.
    first = math.floor(math.log2((_TOLERANCE / 6.81) ** (1.0 / 3.0)))
    reaches = [_reach(position) for position in range(1, k + 1)]
    return _Rule(roots, lowest, math.log(2.0) / m * x * np.exp(-x), first, np.array(reaches))


def _rule_error(k: int, m: int) -> float:
    """Bound of the relative error of the trapezoidal rule with m steps to an octave: see the kernel's module."""
    frequency = 2.0 * math.pi * m / math.log(2.0)
    angle = math.atan(frequency / (k + 1))
    return 2.0 * math.exp(-frequency * angle - (k + 1) * math.log(math.cos(angle)))


def _reach(k: int) -> float:
    """The least c from 2 k on with c^k exp(1 - c) below the tolerance: times up to c / V count, V of weight outside."""
    c = 2.0 * k
    while k * math.log(c) + 1.0 - c > math.log(_TOLERANCE):
        c += 1.0
    return c


def _room(n: int, k: int, m: int, asked: int) -> tuple[Floats, ...]:
    """Return the working arrays of ``position_table``, from ``largest`` on."""
    from recsim_mnar.policies._rankings_kernel import OCTAVES

    nodes = m * OCTAVES
    depth = math.ceil(math.log2(max(asked, 1)))
    shapes = [(k,), (n, m), (n, m), (4, nodes), (asked, nodes), (asked, nodes), (depth + 1, k, nodes)]
    return tuple(np.empty(shape) for shape in shapes)


def position_table(weights: Floats, slate_size: int) -> Floats:
    """Probability of every item at every position of a ranking drawn by weights, (n_items, slate_size).

    Args:
        weights: (n_items,), at least ``slate_size`` of them positive.
        slate_size: number of positions.
    """
    from recsim_mnar.policies import _rankings_kernel as kernel

    k = slate_size
    some = weights > 0.0
    rates = weights[some] / weights.sum()
    rule = _rule(k)
    result = np.zeros((len(rates), k))
    room = _room(len(rates), k, rule.roots.size, len(rates))
    kernel.position_table(rates, len(rates), k, rule.first, rule.roots, rule.reaches[k - 1], _TOLERANCE, *room, result)
    result[:, 0] = rates
    if k > 1:
        second = np.empty(len(rates))
        kernel.of_second(rates, 1.0, second)
        result[:, 1] = rates * second
    table = np.zeros((len(weights), k))
    table[some] = np.minimum(result, 1.0)
    return table


@functools.lru_cache(maxsize=64)
def _exploring_table(n: int, k: int, epsilon: float) -> Floats:
    """Probability of the item of rank r (beyond k: the last row) at position j of an exploring top k, (k + 1, k).

    After j items the best one left has some rank f <= j; the other j - f taken items rank below it, and every set of
    that many is as likely, by symmetry. So f is a Markov chain.
    """
    table = np.zeros((k + 1, k))
    at = np.zeros(k + 1)
    at[0] = 1.0  # probability of each f
    for j in range(k):
        after = np.zeros(k + 1)
        for f in range(j + 1):
            n_taken = j - f
            below = n - f - 1
            explored = epsilon / (n - j)
            table[f, j] += at[f] * (1.0 - epsilon + explored)
            table[f + 1 :, j] += at[f] * explored * (below - n_taken) / max(below, 1)
            after[f] += at[f] * explored * (n - j - 1)
            run = at[f] * (1.0 - epsilon + explored)  # f is taken, and with it the ranks that follow and are taken
            for t in range(n_taken + 1):
                if below > t:
                    after[f + 1 + t] += run * (below - n_taken) / (below - t)
                    run *= (n_taken - t) / (below - t)
        at = after
    return table
