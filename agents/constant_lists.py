"""Constant lists: the same few items for everybody, given or read off a log of campaigns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.baselines import FixedPolicy
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.views import views_of
from recsim_mnar.policies.base import Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


def list_policy(n_items: int, name: str, items: Sequence[int] | NDArray[np.integer]) -> FixedPolicy:
    """A policy that ranks the listed items first to last, and never recommends another (score -inf)."""
    scores = np.full(n_items, -np.inf)
    scores[np.asarray(items, np.int64)] = np.arange(len(items), 0, -1)
    return FixedPolicy(n_items, name, scores)


class ConstantList(Learner):
    """The same given items for everybody.

    Args:
        items: numbers, best first; as text with semicolons between them (``constant-list+items=3;1;4``).
    """

    name = "constant-list"
    ignores_own_views = True

    def __init__(self, items: str | int | Sequence[int] = "0") -> None:
        try:
            parts = items.split(";") if isinstance(items, str) else np.atleast_1d(items).tolist()
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
        """See :meth:`recsim_mnar.policies.Learner.fit`; the log is not read."""
        if max(self.items) >= n_items:
            raise UserError(
                f"constant-list: item {max(self.items)} is out of range, the world has items 0..{n_items - 1}"
            )
        return list_policy(n_items, self.name, self.items)


class MostRecommended(Learner):
    """The items that the log's bandit rows recommend most often: the paper's g1.

    Args:
        places: how many.
    """

    name = "most-recommended"
    needs = frozenset({"outcomes"})

    def __init__(self, places: int = 5) -> None:
        self.places = whole_number(places, f"{self.name}: places", least=1)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; equally often recommended ones by index."""
        shown = times_recommended(log, n_items)
        if shown.sum() == 0:
            raise UserError(f"{self.name}: the log holds no recommendation (bandit row) to learn from")
        best = np.argsort(-shown, kind="stable")[: self.places]
        return list_policy(n_items, self.name, best[shown[best] > 0])


class NeverRecommended(Learner):
    """The most frequent items among those that no bandit row recommends: the paper's g2.

    Args:
        places: how many.
    """

    name = "never-recommended"
    needs = frozenset({"outcomes"})

    def __init__(self, places: int = 5) -> None:
        self.places = whole_number(places, f"{self.name}: places", least=1)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; frequency is of organic rows, equal ones by index."""
        held = np.bincount(views_of(log, n_items)[1], minlength=n_items)
        held[times_recommended(log, n_items) > 0] = 0
        best = np.argsort(-held, kind="stable")[: self.places]
        best = best[held[best] > 0]
        if len(best) == 0:
            raise UserError(f"{self.name}: every item that users hold is recommended in the log")
        return list_policy(n_items, self.name, best)


def times_recommended(log: Log, n_items: int) -> NDArray[np.int64]:
    """(n_items,) how often the bandit rows recommend each item."""
    shown = log["action"][log["event"] == schema.BANDIT]
    if len(shown) and (shown.min() < 0 or shown.max() >= n_items):
        raise UserError(f"the log recommends item {int(shown.max())}, but n_items = {n_items}")
    return np.bincount(shown, minlength=n_items)
