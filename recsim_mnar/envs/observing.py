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
    """Keeps an observation for each of some lanes.

    Attributes:
        space: of one lane's observation.
        counts_shown: whether every recommendation changes it; :meth:`answered` is then called with each of them.
    """

    space: gym.Space[Any]
    counts_shown: bool = False

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Begin new users in these lanes, with their features if the world has any."""

    def see(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Add organic events in order, (m,) each; ``values`` are their ratings, None for views."""

    def answered(self, lanes: Ints, items: Array, rewards: Array) -> None:
        """Add answers to recommendations, at most one per lane: ratings that they revealed."""
        self.see(lanes, items, rewards)

    @abc.abstractmethod
    def all(self) -> Any:
        """Return the observations of all lanes, in new arrays."""

    def present(self) -> Any:
        """Return the observations of all lanes, valid until they change."""
        return self.all()

    @abc.abstractmethod
    def one(self, lane: int) -> Any:
        """Return the observation of one lane, in a new array."""

    def alone(self) -> Any:
        """Observation of the only lane, at every step of a single environment."""
        return self.one(0)

    def alone_shown(self, item: int) -> Any:
        """Observation of the only lane after a recommendation that earned nothing."""
        return self.alone()

    def alone_sees(self, items: Sequence[int], values: Sequence[float] | None) -> None:
        """:meth:`see` for the only lane there is, from what ``info`` holds."""
        ratings = None if values is None else np.array(values)
        self.see(np.zeros(len(items), np.int64), np.array(items, np.int64), ratings)


class _OfArray(Observer):
    """Observer whose observation is one row of an array."""

    array: Array

    def keep(self, array: Array) -> None:
        """Write observations into this array, one row per lane."""
        self.array = array
        self._flat = array.reshape(-1)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_flat"}

    def __setstate__(self, held: Mapping[str, Any]) -> None:
        vars(self).update(held)
        self._flat = self.array.reshape(-1)  # of a copy it is another array's

    def all(self) -> Array:
        """Implement :meth:`Observer.all`."""
        return self.array.copy()

    def present(self) -> Array:
        """Implement :meth:`Observer.present`; read-only, for the next observation is made of this one."""
        view = self.array.view()
        view.flags.writeable = False
        return view

    def one(self, lane: int) -> Array:
        """Implement :meth:`Observer.one`."""
        return self.array[lane].copy()

    def alone(self) -> Array:
        """Implement :meth:`Observer.alone`."""
        return self._flat.copy()

    def alone_shown(self, item: int) -> Array:
        """Implement :meth:`Observer.alone_shown`."""
        return self._flat.copy()


class Counts(_OfArray):
    """Views so far of each item; in a world of ratings the rating that each item got, 0 for none."""

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self.space = ContextRule().space(world.n_items)
        if world.rates:
            self.space = gym.spaces.Box(0.0, RATING_LIMIT, (world.n_items,), np.float32)
        self.keep(np.zeros((n_lanes, world.n_items), np.float32))

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = 0

    def see(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.see`."""
        if values is not None:
            self.array[lanes, items] = values
        else:
            # One index, not a pair of them: numpy has a fast path for it.
            np.add.at(self._flat, lanes * self.array.shape[1] + items, np.float32(1))

    def alone_sees(self, items: Sequence[int], values: Sequence[float] | None) -> None:
        """Implement :meth:`Observer.alone_sees`: events are few.

        Each array made for them costs more than they do.
        """
        counts = self._flat
        if values is not None:
            for item, value in zip(items, values, strict=True):
                counts[item] = value
        else:
            for item in items:
                counts[item] += 1


class Features(_OfArray):
    """Features of a user, known from the start and never changed."""

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self.space = gym.spaces.Box(-_LARGEST, _LARGEST, (world.n_user_features,), np.float32)
        self.keep(np.zeros((n_lanes, world.n_user_features), np.float32))

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = features


class DecayedRatings(_OfArray):
    """Sums of the ratings of each item, decaying with every later one.

    Args:
        world: where users live.
        n_lanes: how many.
        decay: in (0, 1): what of a share an event leaves.
    """

    def __init__(self, world: LaneWorld, n_lanes: int, decay: float) -> None:
        self._decay = np.float32(decay)
        # A little above what sums can be, and not by the same factor: no space of ratings is one of views.
        high = min(RATING_LIMIT * 1.002 / (1.0 - decay), COUNT_LIMIT)
        self.space = gym.spaces.Box(0.0, high, (world.n_items,), np.float32)
        self.keep(np.zeros((n_lanes, world.n_items), np.float32))

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = 0

    def see(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.see`."""
        if values is None:
            values = np.ones(len(items), np.float32)
        for lane, item, value in zip(lanes.tolist(), items.tolist(), values.tolist(), strict=True):
            self.array[lane] *= self._decay
            self.array[lane, item] += np.float32(value)


class OfRule(_OfArray):
    """Observer of an :class:`recsim_mnar.log.contexts.Observation`: of views and, where it counts them, of showings.

    Args:
        world: where users live.
        n_lanes: how many.
        rule: what is observed.

    Raises:
        UserError: showings count, in a world of ratings or of slates.
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
        self.keep(rule.empty(n_lanes, world.n_items))
        self._row = np.zeros(1, np.int64)
        self._item = np.zeros(1, np.int32)
        self._nothing = np.zeros(1, np.float32)

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self.array[lanes] = 0

    def see(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.see`."""
        self._rule.observe(self.array, lanes, items)

    def answered(self, lanes: Ints, items: Array, rewards: Array) -> None:
        """Implement :meth:`Observer.answered`; where showings count those that earned nothing too."""
        if self.counts_shown:
            self._rule.show(self.array, lanes, items, rewards)
        else:
            self.see(lanes, items, rewards)

    def alone_shown(self, item: int) -> Array:
        """Implement :meth:`Observer.alone_shown`."""
        if self.counts_shown:
            self._item[0] = item
            self._rule.show(self.array, self._row, self._item, self._nothing)
        return self.alone()


class Last(OfRule):
    """The last items, as integers: ``last`` of :class:`recsim_mnar.log.contexts.ContextRule`."""

    def all(self) -> Array:
        """Implement :meth:`Observer.all`."""
        return self.array.astype(np.int64)

    present = Observer.present

    def one(self, lane: int) -> Array:
        """Implement :meth:`Observer.one`."""
        return self.array[lane].astype(np.int64)

    def alone(self) -> Array:
        """Implement :meth:`Observer.alone`."""
        return self.one(0)


class WithFeatures(Observer):
    """Observer that appends the user's features to another observation."""

    def __init__(self, world: LaneWorld, n_lanes: int, events: _OfArray) -> None:
        self._events = events
        self._known = Features(world, n_lanes)
        self.counts_shown = events.counts_shown
        self.space = joined_space(events.space, world.n_user_features)

    def begin(self, lanes: Ints, features: Floats32 | None) -> None:
        """Implement :meth:`Observer.begin`."""
        self._events.begin(lanes, features)
        self._known.begin(lanes, features)

    def see(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.see`."""
        self._events.see(lanes, items, values)

    def answered(self, lanes: Ints, items: Array, rewards: Array) -> None:
        """Implement :meth:`Observer.answered`."""
        self._events.answered(lanes, items, rewards)

    def all(self) -> Array:
        """Implement :meth:`Observer.all`."""
        return joined(self._events.array, self._known.array)

    def one(self, lane: int) -> Array:
        """Implement :meth:`Observer.one`."""
        return joined(self._events.array[lane, None], self._known.array[lane, None])[0]

    def alone_shown(self, item: int) -> Array:
        """Implement :meth:`Observer.alone_shown`."""
        self._events.alone_shown(item)
        return self.one(0)


class ByName(Observer):
    """A dictionary: ``counts``, and where the world has them ``user`` and ``item_features``, the features of both.

    PyTorch's ModuleDict, in which libraries keep one network per key, refuses names that a dictionary has: ``items``.
    """

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self._parts: dict[str, _OfArray] = {"counts": Counts(world, n_lanes)}
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

    def see(self, lanes: Ints, items: Array, values: Array | None) -> None:
        """Implement :meth:`Observer.see`."""
        for part in self._parts.values():
            part.see(lanes, items, values)

    def all(self) -> dict[str, Array]:
        """Implement :meth:`Observer.all`."""
        observations = {name: part.all() for name, part in self._parts.items()}
        if self._items is not None:
            observations["item_features"] = np.repeat(self._items[None], self._n_lanes, axis=0)
        return dict(sorted(observations.items()))

    def one(self, lane: int) -> dict[str, Array]:
        """Implement :meth:`Observer.one`."""
        observations = {name: part.one(lane) for name, part in self._parts.items()}
        if self._items is not None:
            observations["item_features"] = self._items.copy()
        return dict(sorted(observations.items()))


KINDS = ("counts", "decayed", "last", "shown", "features", "own", "dict")


def observer(world: LaneWorld, n_lanes: int, kind: str | None = None) -> Observer:
    """Observer of the users of a world.

    Args:
        world: where they live.
        n_lanes: how many at once.
        kind: of :data:`KINDS`, ``decayed=0.95``, ``shown=0.95`` or ``last=20`` with a number of its own, and
            ``+features`` behind it; ``own`` is what the world's :attr:`LaneWorld.observation` defines. None: that where
            the world has it, else the user's features, else counts.

    Raises:
        UserError: an unknown kind, a number that cannot be, or a kind that does not fit the world.
    """
    usual = "features" if world.n_user_features else "counts"
    if world.observation is not None:
        usual = "own"
    name, plus, more = (kind or usual).partition("+")
    sort, equals, _ = name.partition("=")
    if sort not in KINDS:
        raise UserError(f"observation={kind!r}: {nearest(sort, KINDS)}")
    if (plus or sort == "features") and not world.n_user_features:
        raise UserError(f"observation={kind!r}: features: users of the {world.name} world have none")
    if sort == "dict" and not (plus or equals):
        return ByName(world, n_lanes)
    if sort == "own" and not equals and more in ("", "features"):
        if world.observation is None:
            raise UserError(f"observation={kind!r}: the {world.name} world defines none: set its observation")
        rule: Observation = world.observation
    else:
        rule = observation_of(kind or usual)[0]
    events = _event_observer(world, n_lanes, rule)
    if plus:
        return WithFeatures(world, n_lanes, events)
    return events


def _event_observer(world: LaneWorld, n_lanes: int, rule: Observation) -> _OfArray:
    """Return the observer of a rule."""
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
    return OfRule(world, n_lanes, rule)
