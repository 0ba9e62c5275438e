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
"""Of ``decayed`` and ``shown``, and of ``last``, where no number is given."""
UserFeatures = Callable[[NDArray[Any]], Any]
"""Of users (n,), what is known of them from the start: (n, k)."""
COUNT_LIMIT = float(2**24)
"""Upper bound of a view count: float32 counts exactly up to here, and no life comes near it."""
_LARGEST = float(np.finfo(np.float32).max)


class Observation(abc.ABC):
    """Observation of users, each a row of float32 numbers that starts at 0 and that events change.

    One definition for environments, :class:`recsim_mnar.FeaturePolicy`, replays and exports. Derive one for a world of
    your own: define :meth:`width` and :meth:`observe`, :meth:`show` where recommendations count, and set the world's
    ``observation`` to an object of it. What happens to one user's row must not depend on other rows.

    Attributes:
        kind: its name.
        counts_shown: whether recommendations and their rewards change it, so that :meth:`show` must be called.
    """

    kind: str = "own"
    counts_shown: bool = False

    @abc.abstractmethod
    def width(self, n_items: int) -> int:
        """Numbers in a row."""

    @abc.abstractmethod
    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Views in their order: ``items[j]`` by the user in row ``rows[j]`` of ``states`` (n, width), to be changed.

        A user may stand in ``rows`` several times.
        """

    def show(self, states: NDArray[np.float32], rows: Any, actions: Any, rewards: Any) -> None:
        """Recommendations in their order, as :meth:`observe`, with what they earned."""
        raise NotImplementedError(f"{type(self).__name__} has counts_shown and no show(states, rows, actions, rewards)")

    def space(self, n_items: int) -> gym.Space[Any]:
        """Gymnasium's space of a row: any numbers, unless defined."""
        return gym.spaces.Box(-_LARGEST, _LARGEST, (self.width(n_items),), np.float32)

    def settings(self) -> Mapping[str, Any]:
        """Its numbers, for a policy's provenance; JSON types only."""
        return {}

    def empty(self, n: int, n_items: int) -> NDArray[np.float32]:
        """Rows of ``n`` users who arrive, (n, width)."""
        return np.zeros((n, self.width(n_items)), np.float32)

    def of(self, log: Log, n_items: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rows at a log's decisions, and of its users at their ends.

        Args:
            log: ordered by (user, step).
            n_items: items are 0 .. n_items - 1.

        Returns:
            (d, width) for the decisions in their order, (u, width) for the users in theirs.

        Raises:
            UserError: an item out of range; where recommendations count an action too.
        """
        bandit, items = self._read(log, n_items)
        begins = np.flatnonzero(user_begins(log["user"]))
        lengths = np.diff(np.append(begins, len(bandit)))
        states = self.empty(len(begins), n_items)
        place = np.cumsum(bandit) - 1
        out = self.empty(int(bandit.sum()), n_items)
        for step in range(int(lengths.max(initial=0))):  # all users side by side
            users = np.flatnonzero(lengths > step)
            now = begins[users] + step
            asked_rows = bandit[now]
            out[place[now[asked_rows]]] = states[users[asked_rows]]
            if not asked_rows.all():
                self.observe(states, users[~asked_rows], items[now[~asked_rows]])
            if self.counts_shown and asked_rows.any():
                self.show(states, users[asked_rows], items[now[asked_rows]], log["reward"][now[asked_rows]])
        return out, states

    def _read(self, log: Log, n_items: int) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Flags of decisions, and what was viewed or shown in each row, after a look at those that are read."""
        bandit = log["event"] == schema.BANDIT
        items = np.array(log["item"], np.int32)
        if self.counts_shown:
            items[bandit] = log["action"][bandit]
        read = items
        if not self.counts_shown:
            read = items[~bandit]
        if len(read) and (read.min() < 0 or read.max() >= n_items):
            bad = int(read[(read < 0) | (read >= n_items)][0])
            raise UserError(f"the log has item {bad}, but n_items = {n_items}: items must be in 0..{n_items - 1}")
        return bandit, items


class NoEvents(Observation):
    """Nothing that users do: their features alone."""

    kind = "features"

    def width(self, n_items: int) -> int:
        """Implement :meth:`Observation.width`."""
        return 0

    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Implement :meth:`Observation.observe`."""


@dataclass(frozen=True)
class ContextRule(Observation):
    """Rule that turns a user's views, and with ``shown`` the recommendations too, into numbers.

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

    kind: str = "counts"
    decay: float = DECAY
    last: int = LENGTH

    def __post_init__(self) -> None:
        """Refuse an invalid rule."""
        if self.kind not in KINDS:
            raise UserError(f"unknown context {self.kind!r}; {nearest(str(self.kind), KINDS)}")
        number_in(self.decay, "decay", 0.0, 1.0)
        whole_number(self.last, "last", 1)

    @property
    def counts_shown(self) -> bool:  # type: ignore[override]  # by its kind
        """Implement :class:`Observation`."""
        return self.kind == "shown"

    def width(self, n_items: int) -> int:
        """Numbers in a context."""
        if self.kind == "last":
            return self.last
        if self.counts_shown:
            return 3 * n_items
        return n_items

    def space(self, n_items: int) -> gym.Space[Any]:
        """Gymnasium's space of a context, as environments state it: two contexts are alike only if their spaces are."""
        if self.kind == "last":
            return gym.spaces.MultiDiscrete(np.full(self.last, n_items + 1))
        decays = self.kind in ("decayed", "shown") and self.decay < 1
        most = COUNT_LIMIT
        if decays:
            most = min(1.001 / (1.0 - self.decay), COUNT_LIMIT)
        if not self.counts_shown:
            return gym.spaces.Box(0.0, most, (n_items,), np.float32)
        low, high = np.repeat([[0.0, 0.0, -_LARGEST], [most, most, _LARGEST]], n_items, axis=1).astype(np.float32)
        return gym.spaces.Box(low, high, dtype=np.float32)  # a reward may be any number

    def settings(self) -> Mapping[str, Any]:
        """Implement :meth:`Observation.settings`."""
        number = {"decayed": "decay", "shown": "decay", "last": "last"}.get(self.kind)
        if number is None:
            return {}
        return {number: getattr(self, number)}

    def observe(self, states: NDArray[np.float32], rows: NDArray[Any], items: NDArray[Any]) -> None:
        """Views in their order: ``items[j]`` by the user in row ``rows[j]`` of ``states``, which is changed."""
        from recsim_mnar.log import _contexts_kernel

        viewed = _plain(rows, np.int64), _plain(items, np.int32)
        _contexts_kernel.see_all(states, *viewed, self._factor, self.kind == "last")

    def show(self, states: NDArray[np.float32], rows: Any, actions: Any, rewards: Any) -> None:
        """Recommendations in their order, as :meth:`observe`, with what they earned; for ``shown`` only."""
        from recsim_mnar.log import _contexts_kernel

        showings = _plain(rows, np.int64), _plain(actions, np.int32), _plain(rewards, np.float32)
        _contexts_kernel.show_all(states, *showings, self._factor)

    def of(self, log: Log, n_items: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Implement :meth:`Observation.of`."""
        from recsim_mnar.log import _contexts_kernel

        n_items = whole_number(n_items, "n_items", 1)
        bandit, items = self._read(log, n_items)
        if self.counts_shown:
            rewards = log["reward"].astype(np.float32)
        else:
            rewards = np.empty(0, np.float32)
        begins = user_begins(log["user"])
        out = self.empty(int(bandit.sum()), n_items)
        final = self.empty(int(begins.sum()), n_items)
        keeps = self.kind == "last"
        state = self.empty(1, n_items)[0]
        _contexts_kernel.contexts(
            begins, bandit, items, rewards, self._factor, keeps, self.counts_shown, state, out, final
        )
        return out, final

    @property
    def _factor(self) -> np.float32:
        return np.float32(self.decay if self.kind in ("decayed", "shown") else 1.0)


Context = str | Observation
"""A name of :func:`observation_of`, or what a world of one's own defines."""


def observation_of(given: Context, *, user_features: UserFeatures | None = None) -> tuple[Observation, bool]:
    """Parse the name of an observation, and whether the users' features follow it.

    Args:
        given: ``counts``, ``decayed=0.95``, ``last=20`` or ``shown=0.95``, without a number :data:`DECAY` and
            :data:`LENGTH`; with ``+features`` the users' features follow; ``features`` are they alone. An object is
            taken as it is.
        user_features: known of users. Next to a name without ``+features`` they stand in the place of events, next to
            an object behind it.

    Raises:
        UserError: an unknown name, a number that cannot be, or features that are not given.
    """
    if isinstance(given, Observation):
        return given, user_features is not None
    name, plus, more = str(given).partition("+")
    sort, equals, text = name.partition("=")
    rule: Observation = NoEvents() if sort == NoEvents.kind else ContextRule(sort)
    if plus and (more != NoEvents.kind or sort == NoEvents.kind):
        raise UserError(f"observation {given!r}: after + comes features, once, or nothing")
    if equals and not rule.settings():
        raise UserError(f"observation {given!r}: {sort} takes no number")
    if equals and sort == "last":
        rule = ContextRule(sort, last=whole_number(_number(given, text, int), "observation's length", 1))
    elif equals:
        rule = ContextRule(sort, number_in(_number(given, text, float), "observation's decay", 0.0, 1.0))
    if user_features is not None and not plus:
        rule = NoEvents()
    return rule, bool(plus) or isinstance(rule, NoEvents)


def contexts_of(
    log: Log, n_items: int, given: Context, *, user_features: UserFeatures | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """:meth:`Observation.of` of what :func:`observation_of` makes of a name, with the users' features."""
    rule, more = observation_of(given, user_features=user_features)
    at, ends = rule.of(log, n_items)
    if not more:
        return at, ends
    features = checked_features(user_features, given)
    users = log["user"]
    return joined(at, features(users[log.is_bandit])), joined(ends, features(users[user_begins(users)]))


def feature_texts(context: NDArray[np.floating[Any]]) -> Iterator[str]:
    """Yield each row of a context (n, c) as Vowpal Wabbit has it, ``f0:1.0 f7:2.0``, zeros left out."""
    for row in context:
        held = np.flatnonzero(row)
        yield " ".join(f"f{place}:{value!r}" for place, value in zip(held.tolist(), row[held].tolist(), strict=True))


def checked_features(user_features: UserFeatures | None, given: Context) -> UserFeatures:
    """The function of users, where there is one."""
    if user_features is None:
        raise UserError(f"{given!r} needs user_features, a function of users (n,) that gives (n, k)")
    return user_features


def joined(states: NDArray[np.float32], features: Any) -> NDArray[np.float32]:
    """Rows with the users' features behind them, (n, width + k) float32."""
    return np.concatenate([states, np.asarray(features, np.float32)], axis=1)


def joined_space(space: gym.Space[Any], n_features: int) -> gym.spaces.Box:
    """Gymnasium's space of rows with so many features behind them."""
    bounds = (space.low, space.high) if isinstance(space, gym.spaces.Box) else (space.start, space.nvec - 1)  # type: ignore[attr-defined]
    low, high = (
        np.append(np.asarray(bound, np.float32), np.full(n_features, end, np.float32))
        for bound, end in zip(bounds, (-_LARGEST, _LARGEST), strict=True)
    )
    return gym.spaces.Box(low, high, dtype=np.float32)


def _number(given: Context, text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UserError(f"observation {given!r}: {text!r} is not a valid number for it") from None


def _plain(values: Any, kind: Any) -> NDArray[Any]:
    """Values as the one sort of array that kernels are compiled for; a copy only where they are of another."""
    array = np.ascontiguousarray(values, kind)
    if array.flags.writeable:
        return array
    return array.copy()
