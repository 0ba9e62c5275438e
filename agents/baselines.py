"""Baselines: random, constant, popularity, the user's own views, and fixed short lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import GreedyPolicy, SlotPolicy, as_array, checked_items
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.views import times_viewed
from recsim_mnar.policies.base import Floats, Ints, Learner, Policy
from recsim_mnar.policies.storage import Stored

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


class FixedPolicy(Stored, Policy):
    """Policy that recommends the item with the largest of fixed scores to every user; ties are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        item_scores: (n_items,) scores.
    """

    def __init__(self, n_items: int, name: str, item_scores: NDArray[Any]) -> None:
        self.n_items = int(n_items)
        self.name = name
        self.item_scores = np.asarray(item_scores, dtype=np.float64)
        if self.item_scores.shape != (self.n_items,):
            raise UserError(f"item_scores must have shape ({n_items},), got {self.item_scores.shape}")
        best = self.item_scores == self.item_scores.max()
        self._probability = best / best.sum()
        self._cumulative = np.cumsum(self._probability)
        self._last = int(np.flatnonzero(best)[-1])  # last item with a positive probability

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`recsim_mnar.policies.Policy.act`."""
        # Rounding may leave the cumulative sum below 1: a uniform beyond it belongs to the last possible item.
        actions = np.minimum(np.searchsorted(self._cumulative, uniforms, side="right"), self._last).astype(np.int32)
        return actions, self._probability[actions]

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        return self._probability[checked_items(actions, self.n_items)]

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.probabilities`."""
        return np.tile(self._probability, (len(users), 1))

    def scores(self, users: Ints) -> Floats:
        """Return the fixed scores for each user, (n, n_items)."""
        return np.tile(self.item_scores, (len(users), 1))

    def fixed_distribution(self) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.fixed_distribution`."""
        return self._probability.copy()

    def fitted(self) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {"item_scores": self.item_scores}, {}


class Random(FixedPolicy):
    """Policy that recommends a uniformly random item.

    Args:
        n_items: number of items.
        name: the name under which results are reported.

    Attributes:
        is_uniform: True: the action is floor(uniform * n_items) and its propensity exactly 1 / n_items, which a
            simulator may compute without calling the policy.
    """

    is_uniform = True

    def __init__(self, n_items: int, name: str = "random") -> None:
        super().__init__(n_items, name, np.zeros(whole_number(n_items, "n_items", 1)))

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`recsim_mnar.policies.Policy.act`."""
        actions = np.minimum((np.asarray(uniforms) * self.n_items).astype(np.int32), self.n_items - 1)
        return actions, self._probability[actions]

    def fitted(self) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {}, {}


class Constant(Learner):
    """Learner of a policy that recommends the same item to every user.

    Args:
        item: the recommended item.
    """

    name = "constant"
    ignores_own_views = True

    def __init__(self, item: int = 0) -> None:
        self.item = whole_number(item, "constant: item")

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; the log is not read."""
        if self.item >= n_items:
            raise UserError(f"constant: item {self.item} is out of range, the world has items 0..{n_items - 1}")
        scores = np.zeros(n_items)
        scores[self.item] = 1.0
        return FixedPolicy(n_items, self.name, scores)


class Popularity(Learner):
    """Learner of a policy that recommends the item with the most views in the training log to every user."""

    name = "popularity"

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`."""
        return FixedPolicy(n_items, self.name, times_viewed(log, n_items))

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool) -> tuple[Ints, Ints]:
        """Rank each view's item by a policy fitted without that view, for all V views of a log, without refitting.

        Args:
            log: log of which each view is left out in turn.
            n_items: number of items.
            unseen: True to exclude the items of the user's other views from the candidates.

        Returns:
            n_above: (V,) number of candidates with a larger score than the item.
            n_equal: (V,) number of other candidates with an equal score.
        """
        from recsim_mnar.agents.neighbours.knn import popularity_places

        return popularity_places(log, n_items, unseen)


class UserPopularity(SlotPolicy):
    """Policy that recommends the item of a random one of the user's views; before the first view any item.

    The action for the uniform u is the item of the view with index floor(u n) among the user's n views, and its
    propensity is the share of the views that were of this item. This is the stochastic personalised-popularity policy
    of Jeunen, Rohde & Vasile 2019.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
    """

    keeps_views = True

    def __init__(self, n_items: int, name: str = "user-popularity") -> None:
        super().__init__(n_items, name)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`recsim_mnar.policies.Policy.act`."""
        to_be_drawn = np.full(len(users), -1, np.int32)
        return self._draw_or_evaluate(users, uniforms, to_be_drawn)

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        return self._draw_or_evaluate(users, np.empty(0), checked_items(actions, self.n_items))[1]

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.probabilities`."""
        slots = self._slots.find(users)
        n_views = self._histories.length[slots]
        out = np.zeros((len(slots), self.n_items))
        out[n_views == 0] = 1.0 / self.n_items
        owner, item = self._histories.flat(slots)
        entry, counts = np.unique(owner * self.n_items + item, return_counts=True)  # index in the flattened ``out``
        out.ravel()[entry] = counts / n_views[entry // self.n_items]
        return out

    def scores(self, users: Ints) -> NDArray[np.floating]:
        """Return the users' view counts, (n, n_items)."""
        return self._own_counts(self._slots.find(users))

    def _draw_or_evaluate(self, users: Ints, uniforms: Floats, actions: NDArray[np.int32]) -> tuple[Ints, Floats]:
        """Draw actions, or compute the propensities of given ones.

        Args:
            users: (n,) users.
            uniforms: (n,) uniforms; not read for given actions.
            actions: (n,) given actions; -1 for those that are drawn, which are written into this array.

        Returns:
            actions: (n,) the same array.
            propensities: (n,) their propensities.
        """
        from recsim_mnar.agents import _acting_kernel

        propensities = np.empty(len(actions))
        uniforms_ = as_array(uniforms, np.float64)
        slots = self._slots.find(users)
        _acting_kernel.draw_view(self._histories.arrays, slots, uniforms_, self.n_items, actions, propensities)
        return actions, propensities


class UserPopularityGreedy(GreedyPolicy):
    """Policy that recommends the item that the user viewed most often; before the first view any item.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
    """

    keeps_views = True

    def __init__(self, n_items: int, name: str = "user-popularity-greedy") -> None:
        super().__init__(n_items, name)

    def _start(self) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._start`."""
        self._counts = np.zeros(self.n_items, np.int32)  # scratch of the kernel, zeros between calls
        super()._start()

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._own_counts(slots)

    def _rank(self, slots: NDArray[np.int64]) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._rank`, in one pass over each user's views."""
        from recsim_mnar.agents import _acting_kernel

        _acting_kernel.most_viewed(self._histories.arrays, slots, self.n_items, self._counts, self._ties, self._tied)


def list_policy(n_items: int, name: str, items: Sequence[int] | NDArray[np.integer]) -> FixedPolicy:
    """Return a policy whose ranking is the list of items; it recommends the first one, and never an unlisted item."""
    scores = np.full(n_items, -np.inf)
    scores[np.asarray(items, np.int64)] = np.arange(len(items), 0, -1)  # n for the first item, 1 for the last one
    return FixedPolicy(n_items, name, scores)


class ConstantList(Learner):
    """Learner of a policy that ranks the same listed items for every user.

    Args:
        items: distinct item numbers, best first; in text with semicolons between (``constant-list+items=3;1;4``).
    """

    name = "constant-list"
    ignores_own_views = True

    def __init__(self, items: str | int | Sequence[int] = "0") -> None:
        try:
            parts = np.atleast_1d(items).tolist()
            if isinstance(items, str):
                parts = items.split(";")
            self.items = [int(part) for part in parts]
            if any(isinstance(part, float) and part != int(part) for part in parts):
                raise ValueError
        except ValueError:
            raise UserError(
                f"constant-list: items must be whole numbers with semicolons between, got {items!r}"
            ) from None
        if not self.items or min(self.items) < 0 or len(set(self.items)) < len(self.items):
            raise UserError(f"constant-list: items must be distinct whole numbers from 0, got {items!r}")

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; the log is not read."""
        if max(self.items) >= n_items:
            raise UserError(
                f"constant-list: item {max(self.items)} is out of range, the world has items 0..{n_items - 1}"
            )
        return list_policy(n_items, self.name, self.items)


class MostRecommended(Learner):
    """Learner of a fixed list: the items that the log's bandit rows recommend most often, the paper's g1.

    Args:
        places: number of items in the list.

    Attributes:
        nothing: message for a log in which no item qualifies.
    """

    name = "most-recommended"
    needs = frozenset({"outcomes"})
    nothing = "the log holds no recommendation (bandit row) to learn from"

    def __init__(self, places: int = 5) -> None:
        self.places = whole_number(places, f"{self.name}: places", least=1)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; equally frequent items are ordered by index."""
        counts = self._counts(log, n_items)
        best = np.argsort(-counts, kind="stable")[: self.places]
        best = best[counts[best] > 0]
        if len(best) == 0:
            raise UserError(f"{self.name}: {self.nothing}")
        return list_policy(n_items, self.name, best)

    def _counts(self, log: Log, n_items: int) -> NDArray[np.int64]:
        """Return the number by which items are listed, (n_items,); items with 0 are never listed."""
        return times_recommended(log, n_items)


class NeverRecommended(MostRecommended):
    """Learner of a fixed list: the most viewed items that no bandit row recommends, the paper's g2.

    Args:
        places: number of items in the list.
    """

    name = "never-recommended"
    nothing = "every item that users hold is recommended in the log"

    def _counts(self, log: Log, n_items: int) -> NDArray[np.int64]:
        counts = times_viewed(log, n_items)
        counts[times_recommended(log, n_items) > 0] = 0
        return counts


def times_recommended(log: Log, n_items: int) -> NDArray[np.int64]:
    """Count the bandit rows that recommend each item, (n_items,); raise UserError for an item out of range."""
    counts = np.zeros(n_items, np.int64)
    for block in log.blocks():
        actions = block["action"][block["event"] == schema.BANDIT]
        if len(actions) and (actions.min() < 0 or actions.max() >= n_items):
            raise UserError(f"the log recommends item {int(actions.max())}, but n_items = {n_items}")
        counts += np.bincount(actions, minlength=n_items)
    return counts
