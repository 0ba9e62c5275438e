"""A user's views so far as a row of numbers: from a whole log at once, or view by view while a policy acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Context = Literal["counts", "decayed", "last"]
COUNT_LIMIT = float(2**24)
"""Upper bound of a view count: float32 counts exactly up to here, and no life comes near it."""


@dataclass(frozen=True)
class ContextRule:
    """How a user's views become numbers.

    Attributes:
        kind: ``counts``: how often each item was viewed, (n_items,), as the environments observe. ``decayed``: the
            same, all multiplied by ``decay`` before each further view is added. ``last``: the items viewed last, the
            newest first, (last,), each one more than its number, 0 where there were fewer. All three as the
            environments observe where they are asked for them.
        decay: in [0, 1]; of ``decayed`` only.
        last: at least 1; of ``last`` only.
    """

    kind: Context = "counts"
    decay: float = 0.9
    last: int = 10

    def __post_init__(self) -> None:
        """Refuse an invalid rule."""
        if self.kind not in get_args(Context):
            raise UserError(f"unknown context {self.kind!r}; {nearest(str(self.kind), get_args(Context))}")
        number_in(self.decay, "decay", 0.0, 1.0)
        whole_number(self.last, "last", 1)

    def width(self, n_items: int) -> int:
        """Numbers in a context."""
        return self.last if self.kind == "last" else n_items

    def space(self, n_items: int) -> gym.Space[Any]:
        """Gymnasium's space of a context, as environments state it: two contexts are alike only if their spaces are."""
        if self.kind == "last":
            return gym.spaces.MultiDiscrete(np.full(self.last, n_items + 1))
        decays = self.kind == "decayed" and self.decay < 1
        most = min(1.001 / (1.0 - self.decay), COUNT_LIMIT) if decays else COUNT_LIMIT
        return gym.spaces.Box(0.0, most, (n_items,), np.float32)

    def empty(self, n: int, n_items: int) -> NDArray[np.float32]:
        """Contexts of ``n`` users who have viewed nothing, (n, width)."""
        return np.zeros((n, self.width(n_items)), np.float32)

    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Views in their order: ``items[j]`` by the user in row ``rows[j]`` of ``states``, which is changed."""
        from recsim_mnar.log import _contexts_kernel

        rows_ = np.array(rows, np.int64)
        _contexts_kernel.see_all(states, rows_, np.array(items, np.int32), self._factor, self.kind == "last")

    def of(self, log: Log, n_items: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Contexts of a log's decisions, and of its users at their ends.

        Args:
            log: ordered by (user, step).
            n_items: items are 0 .. n_items - 1.

        Returns:
            (d, width) for the decisions in their order, (u, width) for the users in theirs.

        Raises:
            UserError: an item out of range.
        """
        from recsim_mnar.log import _contexts_kernel

        n_items = whole_number(n_items, "n_items", 1)
        bandit, items = log["event"] == schema.BANDIT, np.array(log["item"], np.int32)
        viewed = items[~bandit]
        if len(viewed) and (viewed.min() < 0 or viewed.max() >= n_items):
            bad = int(viewed[(viewed < 0) | (viewed >= n_items)][0])
            raise UserError(f"the log has item {bad}, but n_items = {n_items}: items must be in 0..{n_items - 1}")
        begins = user_begins(log["user"])
        out, final = self.empty(int(bandit.sum()), n_items), self.empty(int(begins.sum()), n_items)
        keeps, state = self.kind == "last", self.empty(1, n_items)[0]
        _contexts_kernel.contexts(begins, bandit, items, self._factor, keeps, state, out, final)
        return out, final

    @property
    def _factor(self) -> np.float32:
        return np.float32(self.decay if self.kind == "decayed" else 1.0)
