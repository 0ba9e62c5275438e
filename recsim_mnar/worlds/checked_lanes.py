"""Lanes of an own world, checked: what they return keeps the rules before anything is made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.worlds.lanes import Lanes, Transition

_PLACES = ("user", "step", "time", "n_decisions")


def _of_inner(name: str) -> property:
    return property(lambda self: getattr(self.inner, name), doc="See :class:`Lanes`.")


class CheckedLanes(Lanes):
    """Lanes that refuse an impossible transition of the lanes inside with one line: what, and the rule it breaks.

    Args:
        inner: what the world's ``open_lanes`` returned.
        world: the world's name, for messages.
        n_items: of the world.
        n_lanes: how many were asked for.
        rates: whether organic events are ratings.
        truth_column: name of the column of truth that transitions must have; None for none.

    Raises:
        UserError: ``inner`` are no lanes, or not so many.
    """

    trusted = True

    def __init__(
        self, inner: Any, world: str, n_items: int, n_lanes: int, *, rates: bool, truth_column: str | None
    ) -> None:
        self.inner, self.world, self.n_items, self.rates, self.truth_column = inner, world, n_items, rates, truth_column
        if not isinstance(inner, Lanes):
            self._wrong(f"open_lanes must return an object derived from recsim_mnar.worlds.Lanes, got {inner!r}")
        for name in _PLACES:
            shape = getattr(getattr(inner, name, None), "shape", ())
            if shape != (n_lanes,):
                self._wrong(
                    f"open_lanes({n_lanes}): {name} of the lanes must be an array of {n_lanes}, its shape is {shape}"
                )
        self._columns: set[str] | None = None

    # Read where the lanes inside keep them: they may put new arrays there.
    user, step, time, n_decisions = (_of_inner(name) for name in _PLACES)

    @property
    def state(self) -> NDArray[np.float64]:
        """See :attr:`Lanes.state`."""
        state = np.asarray(self.inner.state, np.float64)
        if state.ndim != 2 or len(state) != len(self.user):
            self._wrong(f"state of the lanes must have shape ({len(self.user)}, .), got {state.shape}")
        return state

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Transition:
        """See :meth:`Lanes.begin`."""
        transition = self.inner.begin(which, seeds, users)
        self._check("begin", transition, which, users, np.zeros(len(which), np.int64), np.zeros(len(which), np.int64))
        self._check_places("begin", which, users, np.zeros(len(which), np.int64), transition)
        return transition

    def take(
        self, which: NDArray[np.int64], actions: NDArray[np.int32], propensities: NDArray[np.float64]
    ) -> Transition:
        """See :meth:`Lanes.take`."""
        return self._taken("take", which, np.ones(len(which), np.int64), actions, propensities)

    def runs(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`Lanes.runs`."""
        return self._counts("runs", which, 1)

    def take_runs(
        self,
        which: NDArray[np.int64],
        runs: NDArray[np.int64],
        actions: NDArray[np.int32],
        propensities: NDArray[np.float64],
    ) -> Transition:
        """See :meth:`Lanes.take_runs`."""
        return self._taken("take_runs", which, runs, actions, propensities)

    def skip_uneventful(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`Lanes.skip_uneventful`."""
        return self._counts("skip_uneventful", which, 0)

    # ---------------------------------------------------------------------------------------------------------- inside

    def _wrong(self, what: str) -> None:
        raise UserError(f"world {self.world!r}: {what}")

    def _counts(self, method: str, which: NDArray[np.int64], least: int) -> NDArray[np.int64]:
        counts = np.asarray(getattr(self.inner, method)(which))
        if counts.shape != which.shape or counts.dtype.kind != "i" or (len(counts) and counts.min() < least):
            self._wrong(f"{method} must return ({len(which)},) whole numbers of at least {least}")
        return counts

    def _taken(
        self,
        method: str,
        which: NDArray[np.int64],
        asked: NDArray[np.int64],
        actions: NDArray[np.int32],
        propensities: NDArray[np.float64],
    ) -> Transition:
        users, steps, decided = self.user[which].copy(), self.step[which].copy(), self.n_decisions[which].copy()
        if method == "take":
            transition = self.inner.take(which, actions, propensities)
        else:
            transition = self.inner.take_runs(which, asked, actions, propensities)
        self._check(method, transition, which, users, steps, asked)
        c = transition.columns
        shown = c["event"] == schema.BANDIT
        for name, given in (("action", actions), ("propensity", propensities)):
            if not np.array_equal(c[name][shown], given):
                self._wrong(f"{method}: the bandit rows must hold the {name} that was handed in")
        self._check_places(method, which, users, decided + asked, transition)
        return transition

    def _check(
        self,
        method: str,
        transition: Any,
        which: NDArray[np.int64],
        users: NDArray[np.int64],
        steps: NDArray[np.int64],
        asked: NDArray[np.int64],
    ) -> None:
        """Hold a transition against the rules.

        Args:
            method: that returned it.
            transition: what it returned.
            which: (n,) lanes.
            users: (n,) in them.
            steps: (n,) of the first row of each.
            asked: (n,) recommendations that each answered.
        """
        if not isinstance(transition, Transition):
            self._wrong(f"{method} must return a recsim_mnar.worlds.Transition, got {type(transition).__name__}")
        n = len(which)
        starts, alive = np.asarray(transition.starts), np.asarray(transition.alive)
        if starts.shape != (n + 1,) or starts.dtype.kind != "i":
            self._wrong(
                f"{method}: starts must be ({n + 1},) integers for {n} lanes, got {starts.dtype} of {starts.shape}"
            )
        if alive.shape != (n,) or alive.dtype != np.bool_:
            self._wrong(f"{method}: alive must be ({n},) flags for {n} lanes, got {alive.dtype} of {alive.shape}")
        counts = np.diff(starts)
        if starts[0] != 0 or (counts < 0).any():
            self._wrong(f"{method}: starts must begin with 0 and not fall")
        self._check_columns(method, transition.columns, int(starts[-1]))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        lane = np.repeat(np.arange(n), counts)
        self._check_rows(method, transition.columns, within < asked[lane], users[lane], steps[lane] + within)
        if (counts < asked).any():
            self._wrong(f"{method}: a lane's first row must be the bandit row of the action taken")

    def _check_columns(self, method: str, columns: dict[str, Any], n_rows: int) -> None:
        needed = [*schema.NAMES, *(["observation_propensity"] if self.rates else [])]
        if self.truth_column is not None:
            needed.append(self.truth_column)
        for name in needed:
            if name not in columns:
                self._wrong(f"{method}: the columns lack {name!r}")
        self._columns = self._columns or set(columns)
        if set(columns) != self._columns:
            self._wrong(f"{method}: every transition must have the same columns, got {', '.join(sorted(columns))}")
        for name, values in columns.items():
            if np.shape(values) != (n_rows,):
                self._wrong(f"{method}: column {name!r} has shape {np.shape(values)}, starts end at {n_rows} rows")
            declared = schema.BY_NAME.get(name)
            if declared is not None and values.dtype != declared.dtype:
                self._wrong(f"{method}: column {name!r} must be {declared.dtype}, got {values.dtype}")

    def _check_rows(
        self,
        method: str,
        c: dict[str, Any],
        shown: NDArray[np.bool_],
        users: NDArray[np.int64],
        steps: NDArray[np.int64],
    ) -> None:
        """Rows one by one: ``shown`` says which of them must be bandit rows."""
        alone = ~shown
        rules = [
            (c["user"] != users, "user", "must be the user of the lane"),
            (c["step"] != steps, "step", "must count a user's rows from 0, without a gap"),
            (~np.isfinite(c["time"]), "time", "must be a finite number"),
            (shown & (c["event"] != schema.BANDIT), "event", "must be bandit on a lane's first row, the action's"),
            (alone & (c["event"] != schema.ORGANIC), "event", "must be organic on rows without an action"),
            (alone & ((c["item"] < 0) | (c["item"] >= self.n_items)), "item", f"must be in 0..{self.n_items - 1}"),
            (shown & ~np.isfinite(c["reward"]), "reward", "must be a finite number"),
        ]
        if self.rates:
            p = c["observation_propensity"]
            rules.append((alone & ~np.isfinite(c["reward"]), "reward", "must be the rating on organic rows"))
            rules.append((alone & ~((p > 0) & (p <= 1)), "observation_propensity", "must be in (0, 1]"))
        if self.truth_column is not None:
            truth = c[self.truth_column]
            rules.append((shown & ~np.isfinite(truth), self.truth_column, "must be a finite number on bandit rows"))
        for broken, name, rule in rules:
            if broken.any():
                row = int(np.flatnonzero(broken)[0])
                self._wrong(f"{method}: {name} {rule}, got {c[name][row]} for user {users[row]}")

    def _check_places(
        self, method: str, which: NDArray[np.int64], users: NDArray[np.int64], decided: NDArray[np.int64], t: Transition
    ) -> None:
        """What the lanes say of themselves after a transition."""
        if not np.array_equal(self.user[which], users):
            self._wrong(f"{method}: lanes' user must hold the users that were handed to begin")
        if not np.array_equal(self.n_decisions[which][t.alive], decided[t.alive]):
            self._wrong(f"{method}: lanes' n_decisions must count the decisions that a user has come to, from 0")
        last = t.starts[1:] - 1
        moved = (np.diff(t.starts) > 0) & t.alive
        if not np.array_equal(self.step[which][moved], t.columns["step"][last[moved]] + 1):
            self._wrong(f"{method}: lanes' step must be that of the decision awaited: one after the last row's")
