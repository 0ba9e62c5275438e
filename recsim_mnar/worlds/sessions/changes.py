"""What a sessions world keeps where what is shown, or when, matters later: see docs/worlds/sessions.md."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels.elementary import exp, log
from recsim_mnar.rng import Stream, normals_of, uniforms
from recsim_mnar.worlds.sessions.catalogue import Catalogue
from recsim_mnar.worlds.sessions.params import SessionsParams

Floats = NDArray[np.float64]

PERIODS = 64
"""Of a calendar: shifts of popularity are constant in each."""


def shifts(params: SessionsParams, n_items: int) -> Floats:
    """(PERIODS, P) shift of each item's offsets in each period, -inf before it arrives; no rows without a calendar."""
    if params.calendar == 0.0:
        return np.zeros((0, n_items))
    items, seed = np.arange(n_items), params.catalogue_seed
    drawn = uniforms(seed, Stream.CALENDAR, items, 0)
    later = drawn < params.arriving
    later[np.argmax(drawn)] = False
    share = params.arriving if params.arriving > 0.0 else 1.0
    arrival = params.calendar * np.where(
        later, drawn / share, np.minimum(params.arriving - drawn, 0.0) / (1.0 - params.arriving)
    )
    middle = (np.arange(PERIODS) + 0.5) * (params.calendar / PERIODS)
    age = middle[:, None] - arrival
    walk = np.zeros((PERIODS, n_items))
    for period in range(1, PERIODS):
        step = normals_of(seed, Stream.CALENDAR, items, period)
        walk[period] = walk[period - 1] + params.trend / np.sqrt(PERIODS) * step
    return np.where(age >= 0.0, walk - params.ageing * age / params.calendar, -np.inf)


def changes_of(params: SessionsParams, catalogue: Catalogue, shift: Floats, n_lanes: int) -> Any:
    """What the kernels read and keep; None in a world without changes."""
    if not params.changes:
        return None
    from recsim_mnar.worlds.sessions import _changes_kernel

    n_items = len(catalogue.item_offsets)
    n_recent = n_items if params.fatigue > 0.0 else 0
    return _changes_kernel.Changes(
        fatigue=params.fatigue,
        spread=params.fatigue_spread,
        of_views=params.fatigue_of_views,
        shrinking=float(-log([params.fatigue_memory])[0]),
        retention=params.retention,
        keeping=params.retention_memory,
        influence=params.influence,
        calendar=params.calendar,
        width=params.calendar / PERIODS,
        shift=shift,
        factors=np.ascontiguousarray(catalogue.item_factors, np.float64),
        offsets=np.ascontiguousarray(catalogue.item_offsets, np.float64),
        recency=np.zeros((n_lanes, n_recent)),
        noted=np.zeros((n_lanes, n_recent), np.int64),
        weariness=np.zeros(n_lanes),
        wearied=np.zeros(n_lanes, np.int64),
        satisfaction=np.zeros(n_lanes),
        weights=np.empty(n_items if params.calendar > 0.0 else 0),
    )


def held(changes: Any) -> tuple[NDArray[Any], ...]:
    """What lasts of the lanes' users."""
    return () if changes is None else changes[-6:-1]


class State(NamedTuple):
    """Users' states at their next events, by parts, as :func:`parts_of` takes them apart.

    Attributes:
        omega: (n, K) interests.
        recency: (n, P) how lately each item was shown or viewed; (n, 0) without fatigue.
        weariness: (n,) how worn out by repeats a user is.
        satisfaction: (n,) with earlier recommendations.
        time: (n,) of the calendar.
    """

    omega: Floats
    recency: Floats
    weariness: Floats
    satisfaction: Floats
    time: Floats


def state_of(changes: Any, omega: Floats, step: NDArray[np.int64], time: Floats) -> Floats:
    """The parts of :class:`State` side by side: (n, K + P + 3), without fatigue (n, K + 3)."""
    since = (step[:, None] - changes.noted).astype(np.float64)
    worn = changes.weariness * exp(-changes.shrinking * (step - changes.wearied).astype(np.float64))
    recency = changes.recency * exp((-changes.shrinking * since).ravel()).reshape(since.shape)
    return np.concatenate([omega, recency, worn[:, None], changes.satisfaction[:, None], time[:, None]], axis=1)


def parts_of(state: Floats, n_factors: int) -> State:
    """A state taken apart."""
    return State(state[:, :n_factors], state[:, n_factors:-3], *state[:, -3:].T)
