"""What the difference of two policies needs, gathered in one pass over rows that may come in blocks."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.intervals.limits import ROUNDING, Deviations
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.log.columns import Clusters, Floats

Form = Sequence[float]
"""Coefficients of a sum of a user's numbers."""


@functools.cache
def _places(width: int) -> dict[tuple[int, ...], int]:
    """Where the product of some of ``width`` numbers stands, as ``_pairs_kernel.put_products`` writes them."""
    every = [each for k in (1, 2, 3, 4) for each in itertools.combinations_with_replacement(range(width), k)]
    return {each: place for place, each in enumerate(every)}


@dataclass(frozen=True)
class Products:
    """Sums over users of products of a few numbers that each user has.

    Attributes:
        width: how many numbers.
        pairs: (2, k) the sums as pairs, of products of up to four numbers or, where rows are users, of up to two.
    """

    width: int
    pairs: NDArray[np.float64]

    @staticmethod
    def empty(width: int, degree: int) -> Products:
        """No user."""
        return Products(width, np.zeros((2, math.comb(width + degree, degree) - 1)))

    def of(self, *forms: Form) -> float:
        """Sum over users of the product of one to four sums of their numbers, each with its coefficients."""
        sums = self.pairs.sum(axis=0).tolist()
        places, total = _places(self.width), 0.0
        terms = [[(i, c) for i, c in enumerate(form) if c != 0.0] for form in forms]
        for chosen in itertools.product(*terms):
            place = places[tuple(sorted(i for i, _ in chosen))]
            total += math.prod(c for _, c in chosen) * sums[place]
        return total

    def deviations(self, form: Form, moments: Moments) -> Deviations:
        """Of the users' sums ``form``, whose mean is 0."""
        grouped = moments.clustered and moments.users < moments.rows
        second = self.of(form, form)
        units = np.eye(self.width).tolist()
        squares = sum(c * c * self.of(unit, unit) for c, unit in zip(form, units, strict=True))
        if second <= ROUNDING * squares:
            return Deviations(0.0, 0.0, 0.0, moments.users, moments.rewarded_users, grouped)
        third = self.of(form, form, form) if grouped else 0.0
        fourth = max(self.of(form, form, form, form), 0.0) if grouped else 0.0
        return Deviations(second, third, fourth, moments.users, moments.rewarded_users, grouped)


@dataclass
class PairMoments:
    """Moments of the rows of two policies, and of the gains and losses between them.

    Attributes:
        ours: of the target policy.
        theirs: of the baseline.
        plain: per user its rows l, gains (w - b)+ r and losses (b - w)+ r.
        cut: likewise, of weights cut at the clip of ``ours``.
        ratio: per user (w - b) r, b r, w - b and b.
        excesses: (4,) most by which a user's gains, losses, and those of cut weights, without the reward, sum to more
            than the user has rows.
        differing: rows whose weights differ.
    """

    ours: Moments
    theirs: Moments
    plain: Products = field(init=False)
    cut: Products = field(init=False)
    ratio: Products = field(init=False)
    excesses: NDArray[np.float64] = field(default_factory=lambda: np.full(4, -np.inf))
    differing: int = 0

    def __post_init__(self) -> None:
        """Start without rows."""
        degree = 4 if self.ours.clustered else 2
        self.plain, self.cut, self.ratio = (Products.empty(width, degree) for width in (3, 3, 4))

    def extend(self, reward: Floats, p: Floats, target: Floats, baseline: Floats, clusters: Clusters | None) -> None:
        """Add rows that the moments of both policies have met, in place; blocks as :meth:`Moments.extend`.

        Args:
            reward: (n,) rewards.
            p: (n,) propensities.
            target: (n,) probabilities of the target policy.
            baseline: (n,) likewise.
            clusters: users.
        """
        from recsim_mnar.estimators.off_policy import _pairs_kernel as kernels

        shift = self.ours.shift
        r = reward - shift if shift else reward
        rest = [self.ours.clip, self.plain.pairs, self.cut.pairs, self.ratio.pairs, self.excesses, np.empty(86)]
        if clusters is None:
            self.differing += kernels.gather(target, baseline, p, r, *rest)
            return
        columns = [clusters.together(values) for values in (target, baseline, p, r, clusters.codes)]
        self.differing += kernels.gather_by_user(*columns, *rest)

    def merged(self, other: PairMoments, ours: Moments, theirs: Moments) -> PairMoments:
        """Of the rows of both, which share no user; ``ours`` and ``theirs`` are the policies' merged moments."""
        from recsim_mnar.estimators.off_policy import _moments_kernel as kernels

        same = PairMoments(ours, theirs)
        for products, a, b in (
            (same.plain, self.plain, other.plain),
            (same.cut, self.cut, other.cut),
            (same.ratio, self.ratio, other.ratio),
        ):
            products.pairs[:] = a.pairs
            kernels.add_exactly(products.pairs[0], products.pairs[1], b.pairs[0])
            products.pairs[1] += b.pairs[1]
        same.excesses = np.maximum(self.excesses, other.excesses)
        same.differing = self.differing + other.differing
        return same

    def unclipped(self) -> PairMoments:
        """Of the same rows without clipping."""
        if math.isinf(self.ours.clip):
            return self
        same = PairMoments(self.ours.unclipped(), self.theirs.unclipped())
        same.plain = same.cut = self.plain
        same.ratio, same.differing = self.ratio, self.differing
        same.excesses = np.concatenate([self.excesses[:2], self.excesses[:2]])
        return same
