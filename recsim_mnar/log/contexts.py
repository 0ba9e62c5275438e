"""A user's events so far as a row of numbers: from a whole log at once, or one by one while a policy acts."""

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

Context = Literal["counts", "decayed", "last", "shown"]
COUNT_LIMIT = float(2**24)
"""Upper bound of a view count: float32 counts exactly up to here, and no life comes near it."""
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ContextRule:
    """How a user's views, and with ``shown`` the recommendations too, become numbers.

    A context of ``shown`` has 3 n_items numbers: v (views), s (recommendations) and r (their rewards), n_items each, in
    this order, all 0 when the user arrives. Each event of the user, a view or a recommendation, first multiplies every
    number by ``decay``. Then a view of i adds 1 to v[i], and a recommendation of a that earns y adds 1 to s[a] and y to
    r[a]. Events come in the order of the log; at a decision the context holds those before it. All of it is float32:
    ``decay`` and y are rounded to float32 first, then each product and each sum. In a log of slates every row is a
    recommendation, so contexts within a slate hold the answers to its earlier rows: use another kind there.

    Attributes:
        kind: ``counts``: how often each item was viewed, (n_items,), as the environments observe. ``decayed``: the
            same, all multiplied by ``decay`` before each further view is added. ``last``: the items viewed last, the
            newest first, (last,), each one more than its number, 0 where there were fewer. ``shown``: what was viewed,
            shown and earned, (3 n_items,), see above. All of them as the environments observe where they are asked for
            them.
        decay: in [0, 1]; of ``decayed`` and ``shown`` only.
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

    @property
    def counts_shown(self) -> bool:
        """Whether recommendations and their rewards are in a context, so that :meth:`show` must be called."""
        return self.kind == "shown"

    def width(self, n_items: int) -> int:
        """Numbers in a context."""
        return self.last if self.kind == "last" else 3 * n_items if self.counts_shown else n_items

    def space(self, n_items: int) -> gym.Space[Any]:
        """Gymnasium's space of a context, as environments state it: two contexts are alike only if their spaces are."""
        if self.kind == "last":
            return gym.spaces.MultiDiscrete(np.full(self.last, n_items + 1))
        decays = self.kind in ("decayed", "shown") and self.decay < 1
        most = min(1.001 / (1.0 - self.decay), COUNT_LIMIT) if decays else COUNT_LIMIT
        if not self.counts_shown:
            return gym.spaces.Box(0.0, most, (n_items,), np.float32)
        low, high = np.repeat([[0.0, 0.0, -_LARGEST], [most, most, _LARGEST]], n_items, axis=1).astype(np.float32)
        return gym.spaces.Box(low, high, dtype=np.float32)  # a reward may be any number

    def empty(self, n: int, n_items: int) -> NDArray[np.float32]:
        """Contexts of ``n`` users who arrive, (n, width)."""
        return np.zeros((n, self.width(n_items)), np.float32)

    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Views in their order: ``items[j]`` by the user in row ``rows[j]`` of ``states``, which is changed."""
        from recsim_mnar.log import _contexts_kernel

        viewed = _plain(rows, np.int64), _plain(items, np.int32)
        _contexts_kernel.see_all(states, *viewed, self._factor, self.kind == "last")

    def show(self, states: NDArray[np.float32], rows: Any, actions: Any, rewards: Any) -> None:
        """Recommendations in their order, as :meth:`observe`, with what they earned; for ``shown`` only."""
        from recsim_mnar.log import _contexts_kernel

        shown = _plain(rows, np.int64), _plain(actions, np.int32), _plain(rewards, np.float32)
        _contexts_kernel.show_all(states, *shown, self._factor)

    def of(self, log: Log, n_items: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Contexts of a log's decisions, and of its users at their ends.

        Args:
            log: ordered by (user, step).
            n_items: items are 0 .. n_items - 1.

        Returns:
            (d, width) for the decisions in their order, (u, width) for the users in theirs.

        Raises:
            UserError: an item out of range; with ``shown`` an action too.
        """
        from recsim_mnar.log import _contexts_kernel

        n_items = whole_number(n_items, "n_items", 1)
        bandit, items, rewards = log["event"] == schema.BANDIT, np.array(log["item"], np.int32), np.empty(0, np.float32)
        if self.counts_shown:
            items[bandit], rewards = log["action"][bandit], log["reward"].astype(np.float32)
        read = items if self.counts_shown else items[~bandit]
        if len(read) and (read.min() < 0 or read.max() >= n_items):
            bad = int(read[(read < 0) | (read >= n_items)][0])
            raise UserError(f"the log has item {bad}, but n_items = {n_items}: items must be in 0..{n_items - 1}")
        begins = user_begins(log["user"])
        out, final = self.empty(int(bandit.sum()), n_items), self.empty(int(begins.sum()), n_items)
        keeps, state = self.kind == "last", self.empty(1, n_items)[0]
        _contexts_kernel.contexts(
            begins, bandit, items, rewards, self._factor, keeps, self.counts_shown, state, out, final
        )
        return out, final

    @property
    def _factor(self) -> np.float32:
        return np.float32(self.decay if self.kind in ("decayed", "shown") else 1.0)


def _plain(values: Any, kind: Any) -> NDArray[Any]:
    """Values as the one sort of array that kernels are compiled for; a copy only where they are of another."""
    array = np.ascontiguousarray(values, kind)
    return array if array.flags.writeable else array.copy()
