"""A user's events so far as a row of numbers: from a whole log at once, or one by one while a policy acts."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

KINDS = ("counts", "decayed", "last", "shown")
DECAY, LENGTH = 0.9, 10
"""Default decay of ``decayed`` and ``shown``, and default number of items of ``last``."""
UserFeatures = Callable[[NDArray[Any]], Any]
"""Function from users (n,) to features (n, k) that are known when they arrive."""
COUNT_LIMIT = float(2**24)
"""Upper bound of a view count: float32 counts exactly up to here, and no user has nearly as many views."""
_LARGEST = float(np.finfo(np.float32).max)


class Observation(abc.ABC):
    """Rule by which a user's events become an observation: a row of float32 numbers, 0 at first, that events change.

    Environments, :class:`recsim_mnar.FeaturePolicy`, replays and exports all use this one definition. To define one for
    a world of your own, derive a class with :meth:`width` and :meth:`observe`, and :meth:`show` if recommendations
    change the observation, and set the world's ``observation`` to an object of it. Events of one user must change no
    other user's row.

    Attributes:
        kind: name of the observation.
        counts_shown: True if recommendations and their rewards change the row, so that :meth:`show` must be called.
    """

    kind: str = "own"
    counts_shown: bool = False

    @abc.abstractmethod
    def width(self, n_items: int) -> int:
        """Return the number of columns of a row."""

    @abc.abstractmethod
    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Update ``states`` by views, one after another.

        Args:
            states: (n, width) observations of n users, changed in place.
            rows: (v,) row of ``states`` of the user of each view; a user may occur several times.
            items: (v,) viewed items.
        """

    def show(self, states: NDArray[np.float32], rows: Any, actions: Any, rewards: Any) -> None:
        """Update ``states`` by recommendations, one after another.

        Args:
            states: (n, width) observations of n users, changed in place.
            rows: (v,) row of ``states`` of the user of each recommendation.
            actions: (v,) recommended items.
            rewards: (v,) their rewards.
        """
        raise NotImplementedError(f"{type(self).__name__} has counts_shown and no show(states, rows, actions, rewards)")

    def space(self, n_items: int) -> gym.Space[Any]:
        """Return Gymnasium's space of a row; by default any finite float32 numbers."""
        return gym.spaces.Box(-_LARGEST, _LARGEST, (self.width(n_items),), np.float32)

    def settings(self) -> Mapping[str, Any]:
        """Return the parameters of the rule by name, for a policy's provenance; JSON types only."""
        return {}

    def empty(self, n: int, n_items: int) -> NDArray[np.float32]:
        """Return the observations of ``n`` users without events, (n, width) zeros."""
        return np.zeros((n, self.width(n_items)), np.float32)

    def of(self, log: Log, n_items: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Compute the observations at the d decisions of a log of u users, and after each user's last event.

        Args:
            log: log ordered by (user, step).
            n_items: number of items; they are 0 .. n_items - 1.

        Returns:
            out: (d, width) observation before each decision, in the order of the log.
            states: (u, width) observation after each user's last event, users in the order of the log.

        Raises:
            UserError: a viewed item out of range, or, if ``counts_shown``, a recommended one.
        """
        bandit, items = self._decisions_and_items(log, n_items)
        begins = np.flatnonzero(user_begins(log["user"]))
        lengths = np.diff(np.append(begins, len(bandit)))  # number of events of each user
        states = self.empty(len(begins), n_items)
        decision_of_row = np.cumsum(bandit) - 1  # row of ``out`` for a bandit row of the log
        out = self.empty(int(bandit.sum()), n_items)
        # One event of every user per turn, as few calls with many users are faster than a call per event.
        for step in range(int(lengths.max(initial=0))):
            users = np.flatnonzero(lengths > step)
            rows = begins[users] + step
            decides = bandit[rows]
            out[decision_of_row[rows[decides]]] = states[users[decides]]
            if not decides.all():
                self.observe(states, users[~decides], items[rows[~decides]])
            if self.counts_shown and decides.any():
                rewards = log["reward"][rows[decides]]
                self.show(states, users[decides], items[rows[decides]], rewards)
        return out, states

    def _decisions_and_items(self, log: Log, n_items: int) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Return the columns of a log that determine observations, after checking the items in use.

        Returns:
            bandit: (n,) True for rows that are decisions.
            items: (n,) int32 viewed item; in decisions the recommended one if ``counts_shown``, else not to be used.

        Raises:
            UserError: an item in use is out of range.
        """
        bandit = log["event"] == schema.BANDIT
        items = np.array(log["item"], np.int32)
        if self.counts_shown:
            items[bandit] = log["action"][bandit]
            used = items
        else:
            used = items[~bandit]
        if len(used) and (used.min() < 0 or used.max() >= n_items):
            bad = int(used[(used < 0) | (used >= n_items)][0])
            raise UserError(f"the log has item {bad}, but n_items = {n_items}: items must be in 0..{n_items - 1}")
        return bandit, items


class NoEvents(Observation):
    """Observation without events, of width 0: for policies that observe the users' features alone."""

    kind = "features"

    def width(self, n_items: int) -> int:
        """Implement :meth:`Observation.width`."""
        return 0

    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Implement :meth:`Observation.observe`."""


@dataclass(frozen=True)
class ContextRule(Observation):
    """Rule that turns a user's views, and for the kind ``shown`` also the recommendations, into a context.

    The context of ``shown`` has 3 n_items numbers: v (views), s (recommendations) and r (their rewards), n_items each,
    in this order, all 0 when the user arrives. Each event of the user, a view or a recommendation, first multiplies
    every number by ``decay``. Then a view of item i adds 1 to v[i], and a recommendation of item a with reward y adds 1
    to s[a] and y to r[a]. Events are applied in the order of the log; the context of a decision has the events before
    it. All arithmetic is float32: ``decay`` and y are rounded to float32 first, then each product and each sum. In a
    log of slates every row is a recommendation, so a context within a slate would include the rewards of the slate's
    earlier rows: use another kind for slates.

    Attributes:
        kind: one of four. ``counts``: the number of views of each item, (n_items,), the environments' default.
            ``decayed``: such counts, all multiplied by ``decay`` before each view is added. ``last``: the items viewed
            last, the newest first, (last,), each plus 1, and 0 in the rest if there were fewer views. ``shown``: views,
            recommendations and rewards as described, (3 n_items,).
        decay: factor in [0, 1]; used by ``decayed`` and ``shown`` only.
        last: number of items, at least 1; used by ``last`` only.
    """

    kind: str = "counts"
    decay: float = DECAY
    last: int = LENGTH

    def __post_init__(self) -> None:
        """Refuse an invalid rule."""
        if self.kind not in KINDS:
            raise UserError(f"unknown observation {str(self.kind)!r:.60}; {nearest(str(self.kind), KINDS)}")
        number_in(self.decay, "decay", 0.0, 1.0)
        whole_number(self.last, "last", 1)

    @property
    def counts_shown(self) -> bool:  # type: ignore[override]  # by its kind
        """Return True for ``shown``, the one kind that recommendations change."""
        return self.kind == "shown"

    def width(self, n_items: int) -> int:
        """Return the number of columns of a context."""
        if self.kind == "last":
            return self.last
        if self.counts_shown:
            return 3 * n_items
        return n_items

    def space(self, n_items: int) -> gym.Space[Any]:
        """Return Gymnasium's space of a context.

        The bounds depend on the decay, so that a model trained on one kind of context is refused for another one.
        """
        if self.kind == "last":
            return gym.spaces.MultiDiscrete(np.full(self.last, n_items + 1))
        decays = self.kind in ("decayed", "shown") and self.decay < 1
        most = COUNT_LIMIT
        if decays:  # the limit of 1 + decay + decay^2 + ..., with a margin for float32's rounding
            most = min(1.001 / (1.0 - self.decay), COUNT_LIMIT)
        if not self.counts_shown:
            return gym.spaces.Box(0.0, most, (n_items,), np.float32)
        # Views, recommendations and their rewards, n_items columns each; a reward may be any number.
        low, high = np.repeat([[0.0, 0.0, -_LARGEST], [most, most, _LARGEST]], n_items, axis=1).astype(np.float32)
        return gym.spaces.Box(low, high, dtype=np.float32)

    def settings(self) -> Mapping[str, Any]:
        """Implement :meth:`Observation.settings`."""
        parameter = {"decayed": "decay", "shown": "decay", "last": "last"}.get(self.kind)
        if parameter is None:
            return {}
        return {parameter: getattr(self, parameter)}

    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Implement :meth:`Observation.observe`."""
        from recsim_mnar.log import _contexts_kernel

        keeps_items = self.kind == "last"  # rather than counts
        _contexts_kernel.see_all(
            states, _kernel_array(rows, np.int64), _kernel_array(items, np.int32), self._factor, keeps_items
        )

    def show(self, states: NDArray[np.float32], rows: Any, actions: Any, rewards: Any) -> None:
        """Implement :meth:`Observation.show`; for the kind ``shown`` only."""
        from recsim_mnar.log import _contexts_kernel

        recommendations = (
            _kernel_array(rows, np.int64),
            _kernel_array(actions, np.int32),
            _kernel_array(rewards, np.float32),
        )
        _contexts_kernel.show_all(states, *recommendations, self._factor)

    def of(self, log: Log, n_items: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Implement :meth:`Observation.of`."""
        from recsim_mnar.log import _contexts_kernel

        n_items = whole_number(n_items, "n_items", 1)
        bandit, items = self._decisions_and_items(log, n_items)
        rewards = np.empty(0, np.float32)  # not read unless recommendations count
        if self.counts_shown:
            rewards = log["reward"].astype(np.float32)
        begins = user_begins(log["user"])
        out = self.empty(int(bandit.sum()), n_items)
        final = self.empty(int(begins.sum()), n_items)
        _contexts_kernel.contexts(
            begins,
            bandit,
            items,
            rewards,
            self._factor,
            self.kind == "last",  # True: rows are the last items; False: counts
            self.counts_shown,
            self.empty(1, n_items)[0],  # scratch: the present user's context
            out,
            final,
        )
        return out, final

    @property
    def _factor(self) -> np.float32:
        """Factor by which an event multiplies the context before it is added; 1 for kinds without decay."""
        if self.kind in ("decayed", "shown"):
            return np.float32(self.decay)
        return np.float32(1.0)


Context = str | Observation
"""Name of an observation, as :func:`observation_of` parses it, or an object that a user's own world defines."""


def observation_of(given: Context, *, user_features: UserFeatures | None = None) -> tuple[Observation, bool]:
    """Parse the name of an observation.

    Args:
        given: ``counts``, ``decayed=0.95``, ``last=20`` or ``shown=0.95``; without a number :data:`DECAY` or
            :data:`LENGTH` is used. With ``+features`` the users' features are appended; the name ``features`` means
            these alone. An Observation is returned as it is.
        user_features: function from users to their features; None without any. With a name that has no ``+features``
            the features replace the events; with an Observation they are appended.

    Returns:
        rule: the observation of events.
        has_features: True if the users' features are appended to it.

    Raises:
        UserError: an unknown name, or an invalid number.
    """
    if isinstance(given, Observation):
        return given, user_features is not None
    name, plus, appended = str(given).partition("+")
    kind, equals, text = name.partition("=")
    rule: Observation = NoEvents()
    if kind != NoEvents.kind:
        rule = ContextRule(kind)
    if plus and (appended != NoEvents.kind or kind == NoEvents.kind):
        raise UserError(f"observation {given!r}: after + comes features, once, or nothing")
    if equals and not rule.settings():
        raise UserError(f"observation {given!r}: {kind} takes no number")
    if equals and kind == "last":
        rule = ContextRule(kind, last=whole_number(_number(given, text, int), "observation's length", 1))
    elif equals:
        rule = ContextRule(kind, decay=number_in(_number(given, text, float), "observation's decay", 0.0, 1.0))
    if user_features is not None and not plus:  # features replace the events; the name was only checked
        rule = NoEvents()
    return rule, bool(plus) or isinstance(rule, NoEvents)


def contexts_of(
    log: Log, n_items: int, given: Context, *, user_features: UserFeatures | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute the contexts at the d decisions of a log of u users, and after each user's last event.

    Args:
        log: log ordered by (user, step).
        n_items: number of items.
        given: name of the observation, or an object.
        user_features: function from users to the features that are appended, if the observation has them.

    Returns:
        contexts: (d, width) before each decision.
        finals: (u, width) after each user's last event.

    Raises:
        UserError: an unknown name, missing features, or an item out of range.
    """
    rule, has_features = observation_of(given, user_features=user_features)
    contexts, finals = rule.of(log, n_items)
    if not has_features:
        return contexts, finals
    features = checked_features(user_features, given)
    users = log["user"]
    contexts = joined(contexts, features(users[log.is_bandit]))
    finals = joined(finals, features(users[user_begins(users)]))
    return contexts, finals


def feature_texts(context: NDArray[np.floating[Any]]) -> Iterator[str]:
    """Yield each row of contexts (n, c) in Vowpal Wabbit's form, ``f0:1.0 f7:2.0``, with zeros left out."""
    for row in context:
        columns = np.flatnonzero(row)
        values = zip(columns.tolist(), row[columns].tolist(), strict=True)
        yield " ".join(f"f{column}:{value!r}" for column, value in values)


def checked_features(user_features: UserFeatures | None, given: Context) -> UserFeatures:
    """Return ``user_features``; raise UserError if an observation ``given`` needs it and there is none."""
    if user_features is None:
        raise UserError(f"{given!r} needs user_features, a function of users (n,) that gives (n, k)")
    return user_features


def joined(states: NDArray[np.float32], features: Any) -> NDArray[np.float32]:
    """Append users' features (n, k) to their observations (n, width), as float32."""
    return np.concatenate([states, np.asarray(features, np.float32)], axis=1)


def joined_space(space: gym.Space[Any], n_features: int) -> gym.spaces.Box:
    """Return the observation space with n_features unbounded columns appended; ``space`` is a Box or MultiDiscrete."""
    lowest: Any
    highest: Any
    if isinstance(space, gym.spaces.Box):
        lowest = space.low
        highest = space.high
    else:  # MultiDiscrete
        lowest = space.start  # type: ignore[attr-defined]
        highest = space.nvec - 1  # type: ignore[attr-defined]
    low = np.append(np.asarray(lowest, np.float32), np.full(n_features, -_LARGEST, np.float32))
    high = np.append(np.asarray(highest, np.float32), np.full(n_features, _LARGEST, np.float32))
    return gym.spaces.Box(low, high, dtype=np.float32)


def _number(given: Context, text: str, kind: Any) -> Any:
    """Parse the number in an observation's name by ``kind``, int or float; raise UserError if it is none."""
    try:
        return kind(text)
    except ValueError:
        raise UserError(f"observation {given!r}: {text!r} is not a valid number for it") from None


def _kernel_array(values: Any, kind: Any) -> NDArray[Any]:
    """Return values as a contiguous writable array of a type, the one kind for which kernels are compiled.

    They are copied only if they are not such an array already.
    """
    array = np.ascontiguousarray(values, kind)
    if array.flags.writeable:
        return array
    return array.copy()
