"""Observations of users: counts, the last items, recommendations, or features."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import number_in
from recsim_mnar.log.contexts import COUNT_LIMIT, ContextRule, Observation, joined, joined_space, observation_of
from recsim_mnar.worlds.base import DecisionWorld, LaneWorld

Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]


Array = NDArray[Any]

RATING_LIMIT = 5.0
"""Upper bound of a rating."""
_LARGEST = float(np.finfo(np.float32).max)


class Observer(abc.ABC):
    """Observations of the users in a fixed number of lanes; a lane holds one user at a time.

    Attributes:
        space: space of one lane's observation.
        counts_shown: True if every recommendation changes the observation. The environment then calls
            :meth:`add_recommendations` for all of them, otherwise only for those that revealed a rating.
    """

    space: gym.Space[Any]
    counts_shown: bool = False

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Start new users in lanes (m,), with their features (m, n_user_features) if the world has any."""

    def add_events(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Add organic events in order.

        Args:
            lanes: (m,) lane of each event.
            items: (m,) item of each event.
            values: (m,) ratings; None in a world of views.
        """

    def add_recommendations(self, lanes: Ints, items: Array, rewards: Array) -> None:
        """Add recommended items (m,) and their rewards (m,), at most one per lane; a rating is such a reward."""
        self.add_events(lanes, items, rewards)

    @abc.abstractmethod
    def observations(self) -> Any:
        """Return the observations of all lanes, in new arrays."""

    def observations_view(self) -> Any:
        """Return the observations of all lanes, valid only until the next step: a subclass may share its array."""
        return self.observations()

    @abc.abstractmethod
    def observation(self, lane: int) -> Any:
        """Return the observation of one lane, in a new array."""

    def observation_alone(self) -> Any:
        """Return the observation of the only lane, in a new array; a single environment calls this at every step."""
        return self.observation(0)

    def observe_unrewarded(self, item: int) -> Any:
        """Add a recommended item without reward to the only lane, and return its observation."""
        return self.observation_alone()

    def add_events_alone(self, items: Sequence[int], values: Sequence[float] | None) -> None:
        """Add organic events to the only lane: :meth:`add_events` for the sequences that ``info`` holds."""
        ratings = None if values is None else np.array(values)
        self.add_events(np.zeros(len(items), np.int64), np.array(items, np.int64), ratings)


class _ArrayObserver(Observer):
    """Observer that holds one row per lane in an array.

    Attributes:
        array: (n_lanes, size) observations.
    """

    array: Array

    def write_into(self, array: Array) -> None:
        """Store observations in this array, one row per lane."""
        self.array = array
        self._flat = array.reshape(-1)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_flat"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        # A pickled view becomes an array of its own: make the view again, so that both share their memory.
        self._flat = self.array.reshape(-1)

    def observations(self) -> Array:
        """Implement :meth:`Observer.observations`."""
        return self.array.copy()

    def observations_view(self) -> Array:
        """Implement :meth:`Observer.observations_view`: read-only, because the next step updates the same array."""
        view = self.array.view()
        view.flags.writeable = False
        return view

    def observation(self, lane: int) -> Array:
        """Implement :meth:`Observer.observation`."""
        return self.array[lane].copy()

    def observation_alone(self) -> Array:
        """Implement :meth:`Observer.observation_alone`."""
        return self._flat.copy()

    def observe_unrewarded(self, item: int) -> Array:
        """Implement :meth:`Observer.observe_unrewarded`."""
        return self._flat.copy()


class Counts(_ArrayObserver):
    """Number of the user's views of each item; in a world of ratings the rating revealed for each item, 0 for none."""

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self.space = ContextRule().space(world.n_items)
        if world.rates:
            self.space = gym.spaces.Box(0.0, RATING_LIMIT, (world.n_items,), np.float32)
        self.write_into(np.zeros((n_lanes, world.n_items), np.float32))

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = 0

    def add_events(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.add_events`."""
        if values is not None:
            self.array[lanes, items] = values
        else:
            # np.add.at has a fast path for a single index array, but not for a pair (row, column).
            np.add.at(self._flat, lanes * self.array.shape[1] + items, np.float32(1))

    def add_events_alone(self, items: Sequence[int], values: Sequence[float] | None) -> None:
        """Implement :meth:`Observer.add_events_alone` in a loop: for few events, allocating arrays would cost more."""
        counts = self._flat
        if values is not None:
            for item, value in zip(items, values, strict=True):
                counts[item] = value
        else:
            for item in items:
                counts[item] += 1


class Features(_ArrayObserver):
    """Features of the user, which stay the same for the whole episode."""

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self.space = gym.spaces.Box(-_LARGEST, _LARGEST, (world.n_user_features,), np.float32)
        self.write_into(np.zeros((n_lanes, world.n_user_features), np.float32))

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = features


class DecayedRatings(_ArrayObserver):
    """Sum of the ratings of each item, which each later event of the user multiplies by ``decay``.

    Args:
        world: world of the users.
        n_lanes: number of lanes.
        decay: factor in (0, 1).
    """

    def __init__(self, world: LaneWorld, n_lanes: int, decay: float) -> None:
        self._decay = np.float32(decay)
        # A geometric series bounds the sums by RATING_LIMIT / (1 - decay), and 0.2 % is added for rounding. View counts
        # add another margin, so that the spaces of the two never compare equal.
        high = min(RATING_LIMIT * 1.002 / (1.0 - decay), COUNT_LIMIT)
        self.space = gym.spaces.Box(0.0, high, (world.n_items,), np.float32)
        self.write_into(np.zeros((n_lanes, world.n_items), np.float32))

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = 0

    def add_events(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.add_events`."""
        if values is None:
            values = np.ones(len(items), np.float32)
        for lane, item, value in zip(lanes.tolist(), items.tolist(), values.tolist(), strict=True):
            self.array[lane] *= self._decay
            self.array[lane, item] += np.float32(value)


class RuleObserver(_ArrayObserver):
    """Observer that applies an observation rule to views and, if the rule counts them, to shown items.

    Args:
        world: world of the users.
        n_lanes: number of lanes.
        rule: the observation rule.

    Raises:
        UserError: the rule counts shown items, and the world is one of ratings or of slates.
    """

    def __init__(self, world: LaneWorld, n_lanes: int, rule: Observation) -> None:
        if rule.counts_shown and (world.rates or not isinstance(world, DecisionWorld)):
            has = "ratings" if world.rates else "slates"
            raise UserError(
                f"observation={rule.kind!r}: the {world.name} world has {has}; take counts, decayed or last"
            )
        self._rule = rule
        self.counts_shown = rule.counts_shown
        self.space = rule.space(world.n_items)
        self.write_into(rule.empty(n_lanes, world.n_items))
        # Arguments of one recommendation to the only lane, allocated once: a single environment uses them every step.
        self._row = np.zeros(1, np.int64)
        self._item = np.zeros(1, np.int32)
        self._no_reward = np.zeros(1, np.float32)

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = 0

    def add_events(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.add_events`."""
        self._rule.observe(self.array, lanes, items)

    def add_recommendations(self, lanes: Ints, items: Array, rewards: Array) -> None:
        """Implement :meth:`Observer.add_recommendations`; if the rule counts shown items, rewards of 0 count too."""
        if self.counts_shown:
            self._rule.show(self.array, lanes, items, rewards)
        else:
            self.add_events(lanes, items, rewards)

    def observe_unrewarded(self, item: int) -> Array:
        """Implement :meth:`Observer.observe_unrewarded`."""
        if self.counts_shown:
            self._item[0] = item
            self._rule.show(self.array, self._row, self._item, self._no_reward)
        return self.observation_alone()


class Last(RuleObserver):
    """The user's latest items as integers: ``last`` of :class:`recsim_mnar.log.contexts.ContextRule`."""

    def observations(self) -> Array:
        """Implement :meth:`Observer.observations`."""
        return self.array.astype(np.int64)

    observations_view = Observer.observations_view  # a copy: the array holds floats

    def observation(self, lane: int) -> Array:
        """Implement :meth:`Observer.observation`."""
        return self.array[lane].astype(np.int64)

    def observation_alone(self) -> Array:
        """Implement :meth:`Observer.observation_alone`."""
        return self.observation(0)


class WithFeatures(Observer):
    """Observer that appends the user's features to another observation."""

    def __init__(self, world: LaneWorld, n_lanes: int, events: _ArrayObserver) -> None:
        self._events = events
        self._features = Features(world, n_lanes)
        self.counts_shown = events.counts_shown
        self.space = joined_space(events.space, world.n_user_features)

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self._events.begin(lanes, features)
        self._features.begin(lanes, features)

    def add_events(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.add_events`."""
        self._events.add_events(lanes, items, values)

    def add_recommendations(self, lanes: Ints, items: Array, rewards: Array) -> None:
        """Implement :meth:`Observer.add_recommendations`."""
        self._events.add_recommendations(lanes, items, rewards)

    def observations(self) -> Array:
        """Implement :meth:`Observer.observations`."""
        return joined(self._events.array, self._features.array)

    def observation(self, lane: int) -> Array:
        """Implement :meth:`Observer.observation`."""
        return joined(self._events.array[lane, None], self._features.array[lane, None])[0]

    def observe_unrewarded(self, item: int) -> Array:
        """Implement :meth:`Observer.observe_unrewarded`."""
        self._events.observe_unrewarded(item)
        return self.observation(0)


class ByName(Observer):
    """Observer of a dictionary: ``counts`` and, if the world has them, features of the ``user`` and ``item_features``.

    The key is not ``items``: libraries keep one network per key in PyTorch's ModuleDict, which refuses the names of a
    dictionary's methods.
    """

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self._parts: dict[str, _ArrayObserver] = {"counts": Counts(world, n_lanes)}
        if world.n_user_features:
            self._parts["user"] = Features(world, n_lanes)
        spaces: dict[str, gym.Space[Any]] = {name: part.space for name, part in self._parts.items()}
        self._items: Floats32 | None = None
        features = getattr(world, "item_features", None)
        if features is not None:
            self._items = np.ascontiguousarray(features, np.float32)
            spaces["item_features"] = gym.spaces.Box(-_LARGEST, _LARGEST, self._items.shape, np.float32)
        self._n_lanes = n_lanes
        self.space = gym.spaces.Dict(spaces)

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        for part in self._parts.values():
            part.begin(lanes, features)

    def add_events(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.add_events`."""
        for part in self._parts.values():
            part.add_events(lanes, items, values)

    def observations(self) -> dict[str, Array]:
        """Implement :meth:`Observer.observations`."""
        observations = {name: part.observations() for name, part in self._parts.items()}
        if self._items is not None:
            observations["item_features"] = np.repeat(self._items[None], self._n_lanes, axis=0)
        return dict(sorted(observations.items()))

    def observation(self, lane: int) -> dict[str, Array]:
        """Implement :meth:`Observer.observation`."""
        observations = {name: part.observation(lane) for name, part in self._parts.items()}
        if self._items is not None:
            observations["item_features"] = self._items.copy()
        return dict(sorted(observations.items()))


KINDS = ("counts", "decayed", "last", "shown", "features", "own", "dict")


def observer(world: LaneWorld, n_lanes: int, kind: str | None = None) -> Observer:
    """Make the observer for a requested kind of observation.

    Args:
        world: world of the users.
        n_lanes: number of lanes.
        kind: one of :data:`KINDS`, optionally with a number (``decayed=0.95``, ``shown=0.95``, ``last=20``) and with
            ``+features`` appended; ``own`` is the rule in the world's :attr:`LaneWorld.observation`. None selects
            ``own`` if the world has such a rule, else ``features`` if its users have features, else ``counts``.

    Raises:
        UserError: the kind is unknown, its number is out of range, or it does not fit the world.
    """
    default = "features" if world.n_user_features else "counts"
    if world.observation is not None:
        default = "own"
    # "decayed=0.95+features" is the name "decayed", a number, and the suffix "features".
    rule_text, plus, suffix = (kind or default).partition("+")
    kind_name, equals, _ = rule_text.partition("=")
    if kind_name not in KINDS:
        raise UserError(f"observation={kind!r}: {nearest(kind_name, KINDS)}")
    if (plus or kind_name == "features") and not world.n_user_features:
        raise UserError(f"observation={kind!r}: features: users of the {world.name} world have none")
    if kind_name == "dict" and not (plus or equals):
        return ByName(world, n_lanes)
    if kind_name == "own" and not equals and suffix in ("", "features"):
        if world.observation is None:
            raise UserError(f"observation={kind!r}: the {world.name} world defines none: set its observation")
        rule: Observation = world.observation
    else:
        rule = observation_of(kind or default)[0]
    events = _event_observer(world, n_lanes, rule)
    if plus:
        return WithFeatures(world, n_lanes, events)
    return events


def _event_observer(world: LaneWorld, n_lanes: int, rule: Observation) -> _ArrayObserver:
    """Make the observer of user features or of events that applies an observation rule."""
    if rule.kind == "features" and not isinstance(rule, ContextRule):
        return Features(world, n_lanes)
    if isinstance(rule, ContextRule):
        number_in(rule.decay, "observation's decay", 0, 1, ends="()")
        if rule.kind == "counts":
            return Counts(world, n_lanes)
        if rule.kind == "decayed" and world.rates:
            return DecayedRatings(world, n_lanes, rule.decay)
        if rule.kind == "last":
            return Last(world, n_lanes, rule)
    return RuleObserver(world, n_lanes, rule)
