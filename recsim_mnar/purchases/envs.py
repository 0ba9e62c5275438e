"""Environments of worlds of slates, single and vector: a step is a period with a recommended slate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.envs.slates import Ints, SeveralEnv, SeveralVectorEnv, ShowsSeveral, earning_rows
from recsim_mnar.envs.user_queue import Info
from recsim_mnar.envs.validation import as_array
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.purchases.world import ExposureWorld
from recsim_mnar.worlds.base import Transition, World, as_world, checked_slates

Array = NDArray[Any]


def make_slate_env(world: ExposureWorld, n_lanes: int | None, options: Mapping[str, Any]) -> Any:
    """Make the single or the vector environment of a world of slates.

    Args:
        world: the world.
        n_lanes: number of lanes of a vector environment; None for the single environment.
        options: keywords of the environment.
    """
    if n_lanes is None:
        return PurchasesEnv(world, **options)
    return PurchasesVectorEnv(world, n_lanes, **options)


class _Purchases(ShowsSeveral):
    """Actions that are slates, sets of a world's items; the reward is the number of purchases."""

    event = "bought"
    world: ExposureWorld

    def _checked_world(self, world: World) -> ExposureWorld:
        """Return the world; raise UserError if it shows no slates."""
        world = as_world(world)
        if not isinstance(world, ExposureWorld):
            raise UserError(
                f"this environment recommends slates, the {world.name} world does not: use recsim_mnar/World-v0"
            )
        return world

    @property
    def size(self) -> int:
        """Implement :attr:`ShowsSeveral.size`."""
        return int(self.world.params.slate_size)

    def shown(self, items: Any, lanes: int | None) -> Ints:
        """Implement :meth:`ShowsSeveral.shown`: check an action, one slate if ``lanes`` is None, and return (n, N)."""
        n_slates = lanes or 1
        if lanes is None:  # the single environment
            items = as_array(items, "a slate")[None]
        slates = checked_slates(items, n_slates, self.world.n_items)
        if slates.shape[1] != self.size:
            raise UserError(f"a slate must have {self.size} items, got {slates.shape[1]}")
        return slates

    def earned(self, transition: Transition) -> NDArray[np.float64]:
        """Implement :meth:`ShowsSeveral.earned`: the items bought in each lane, recommended or not."""
        columns = transition.columns
        bought = (columns["event"] == schema.ORGANIC) | (columns["reward"] == 1)
        return np.add.reduceat(bought.astype(np.float64), transition.starts[:-1])

    def observe_shown(self, lanes: Ints, shown: NDArray[np.integer], transition: Transition) -> None:
        """Implement :meth:`ShowsSeveral.observe_shown`: bought items count as organic events do, recommended or not."""
        rows = earning_rows(transition)
        edges = rows.searchsorted(transition.starts)
        self._observer.add_events(lanes.repeat(np.diff(edges)), transition.columns["action"][rows], None)


class PurchasesEnv(_Purchases, SeveralEnv):
    """Environment of one user at a time: an episode is a user's visit, a step is a period with a recommended slate.

    The action holds N items. A repeated item is recommended once, and its second place is lost. The reward is the
    number of items that the user buys in the period, recommended or not, so that an agent gains only by purchases that
    it causes. The observation counts the user's purchases of each item. ``info`` has ``user``, ``step`` and ``time``
    (the period) of the awaited decision, ``n_views``, the number of purchases without a recommendation since the
    previous decision, and ``n_bought``, the number of recommended items that were bought; with ``info="views"`` the
    items themselves, ``views`` and ``bought``. Seeds and user ids work as in :class:`recsim_mnar.envs.WorldEnv`.

    Args:
        world: the world of slates.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`, with purchases as the events.
    """

    _more_events = ("bought",)

    def _observe_outcome(self, shown: NDArray[np.integer], transition: Transition, info: Info) -> Any:
        """Add purchases without a recommendation, and then those of the slate, to the observation, and return it."""
        self._observe_views(info)
        self.observe_shown(self._lane, shown, transition)
        return self._observer.observation_alone()

    def slate_uplift(self, action: Array) -> float:
        """Return the true number of purchases that a slate is expected to cause; for evaluation, never for agents."""
        self._check_waiting()
        assert self._queue.seed is not None
        return float(self.world.slate_uplift(self._queue.seed, self._queue.lanes.user, np.asarray(action)[None])[0])


class PurchasesVectorEnv(_Purchases, SeveralVectorEnv):
    """Vector environment of a world of slates: each lane behaves like a :class:`PurchasesEnv`.

    Args:
        world: the world of slates.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`; ``max_episode_steps`` is a number of periods.
    """

    _more_counts = ("n_bought",)

    def _observe_outcomes(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Add the purchases of a transition to the observations and to ``infos``."""
        super()._observe_outcomes(which, transition, infos)
        no_slates = np.zeros((0, 0), np.int64)  # `observe_shown` does not read them
        self.observe_shown(which, no_slates, transition)
