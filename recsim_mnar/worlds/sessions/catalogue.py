"""The sessions world's catalogue, and what of it changes while users live."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.kernels.elementary import exp, log
from recsim_mnar.rng import Stream, normals, normals_of, uniforms
from recsim_mnar.runs.files import path_of
from recsim_mnar.worlds.sessions.params import SessionsParams

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_ARRAYS = ("item_factors", "item_offsets", "click_factors", "click_offsets")


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items of a sessions world; P items, K factors, float64.

    Attributes:
        item_factors: Gamma, (P, K), of organic views.
        item_offsets: mu, (P,), organic popularity on the scale of logits.
        click_factors: beta, (P, K), of clicks on recommendations.
        click_offsets: mu_b, (P,).
        flips: (F, 2) pairs of items whose click factors and offsets were swapped, in the order of swapping.
    """

    item_factors: Floats
    item_offsets: Floats
    click_factors: Floats
    click_offsets: Floats
    flips: Ints

    def arrays(self) -> dict[str, Floats]:
        """The four arrays by the names under which ``catalogue.npz`` holds them."""
        return {name: getattr(self, name) for name in _ARRAYS}


def make_catalogue(params: SessionsParams) -> Catalogue:
    """Draw a catalogue; item i's draws are addressed by i, so a smaller catalogue is the beginning of a larger one."""
    seed = params.catalogue_seed
    factors = normals(seed, Stream.CATALOGUE, 0, (params.n_items, params.n_factors))
    offsets = params.sigma_mu_organic * normals(seed, Stream.OFFSETS, 0, (params.n_items, 1))[:, 0]
    flips = flip_pairs(factors, params.n_flips)
    source = np.arange(params.n_items)  # the item whose click factors and offset each item gets
    source[flips] = flips[:, ::-1]
    click_factors = factors[source]
    if params.normalize_beta:
        click_factors /= np.sqrt((click_factors**2).sum(axis=1, keepdims=True))
    return Catalogue(factors, offsets, click_factors, offsets[source], flips)


def read_catalogue(path: str | Path, member: int = 0) -> Catalogue:
    """A catalogue from an ``.npz`` file with the four arrays, see :class:`Catalogue`.

    Args:
        path: of the file.
        member: 0 for the arrays of these names; m for those of an ensemble's m-th, ``item_factors_m`` and so on.

    Raises:
        UserError: no such file, an array that is missing, of another shape or not finite.
    """
    path = path_of(path)
    if not path.is_file():
        raise UserError(f"catalogue_file {path} does not exist")
    suffix = f"_{member}" if member else ""
    names = [f"{name}{suffix}" for name in _ARRAYS]
    stored = read_arrays(path, names)
    factors, offsets, click_factors, click_offsets = (np.ascontiguousarray(stored[name], np.float64) for name in names)
    return checked_catalogue(factors, offsets, click_factors, click_offsets, f"catalogue_file {path}")


def checked_catalogue(factors: Any, offsets: Any, click_factors: Any, click_offsets: Any, where: str) -> Catalogue:
    """The catalogue of given arrays.

    Raises:
        UserError: shapes that do not belong together, or values that are not finite.
    """
    arrays = (factors, offsets, click_factors, click_offsets)
    shapes = [np.shape(array) for array in arrays]
    if len(shapes[0]) != 2 or shapes != [shapes[0], shapes[0][:1]] * 2 or 0 in shapes[0]:
        raise UserError(f"{where}: factors must be (items, factors) and offsets (items,), got shapes {shapes}")
    if not all(np.isfinite(array).all() for array in arrays):
        raise UserError(f"{where}: a factor or an offset is not finite")
    return Catalogue(*arrays, np.zeros((0, 2), np.int64))


def flip_pairs(factors: Floats, n_flips: int) -> Ints:
    """The pairs that a walk down all inner products swaps: (n_flips, 2), in order, the smaller index first.

    The walk takes each pair i != j of which neither is used yet. Instead of sorting all pairs, every item keeps its
    best free partner in a queue; an entry whose partner has been taken is looked up again. Candidates stand in
    descending norm, so a look-up ends as soon as the norms bound what is left. Memory is O(P); the result is that
    of the full sort.
    """
    if n_flips == 0:
        return np.zeros((0, 2), np.int64)
    from recsim_mnar.worlds.sessions import _catalogue_kernel

    norms = np.sqrt((factors**2).sum(axis=1))
    item_of = np.argsort(-norms, kind="stable")
    rows = np.ascontiguousarray(factors[item_of])
    norms = np.ascontiguousarray(norms[item_of])
    used = np.zeros(len(rows), np.bool_)
    partners = np.empty(len(rows), np.int64)
    values = np.empty(len(rows))
    _catalogue_kernel.best_partners(rows, norms, item_of, used, partners, values)

    def entry(place: int, partner: int, value: float) -> tuple[float, int, int, int, int]:
        low, high = sorted((int(item_of[place]), int(item_of[partner])))
        return (-float(value), low, high, place, partner)

    queue = [entry(i, int(partners[i]), values[i]) for i in range(len(rows))]
    heapq.heapify(queue)
    pairs: list[tuple[int, int]] = []
    while len(pairs) < n_flips:
        _value, low, high, place, partner = heapq.heappop(queue)
        if used[place]:
            continue
        if used[partner]:
            partner, value = _catalogue_kernel.best_partner(rows, norms, item_of, used, place)
            if partner >= 0:
                heapq.heappush(queue, entry(place, partner, value))
            continue
        used[place] = used[partner] = True
        pairs.append((low, high))
    return np.array(pairs, np.int64)


PERIODS = 64
"""Of a calendar: shifts of popularity are constant in each."""


def shifts(params: SessionsParams, n_items: int) -> Floats:
    """(PERIODS, P) shift of each item's offsets in each period, -inf before it arrives; no rows without a calendar."""
    if params.calendar == 0.0:
        return np.zeros((0, n_items))
    items = np.arange(n_items)
    seed = params.catalogue_seed
    drawn = uniforms(seed, Stream.CALENDAR, items, 0)
    later = drawn < params.arriving
    later[np.argmax(drawn)] = False
    during = drawn / (params.arriving or 1.0)
    before = np.minimum(params.arriving - drawn, 0.0) / (1.0 - params.arriving)
    arrival = params.calendar * np.where(later, during, before)
    middle = (np.arange(PERIODS) + 0.5) * (params.calendar / PERIODS)
    age = middle[:, None] - arrival
    walk = np.zeros((PERIODS, n_items))
    for period in range(1, PERIODS):
        step = normals_of(seed, Stream.CALENDAR, items, period)
        walk[period] = walk[period - 1] + params.trend / np.sqrt(PERIODS) * step
    return np.where(age >= 0.0, walk - params.ageing * age / params.calendar, -np.inf)


def changes_of(params: SessionsParams, catalogue: Catalogue, shift: Floats, n_lanes: int) -> Any:
    """Get the changes that kernels read and keep; None in a world without changes."""
    if not params.changes:
        return None
    from recsim_mnar.worlds.sessions import _catalogue_kernel

    n_items = len(catalogue.item_offsets)
    n_recent = n_items if params.fatigue > 0.0 else 0
    return _catalogue_kernel.Changes(
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
    """Get the lasting state of the lanes' users."""
    if changes is None:
        return ()
    return changes[-6:-1]


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


def state_of(changes: Any, omega: Floats, step: Ints, time: Floats) -> Floats:
    """The parts of :class:`State` side by side: (n, K + P + 3), without fatigue (n, K + 3)."""
    since = (step[:, None] - changes.noted).astype(np.float64)
    worn = changes.weariness * exp(-changes.shrinking * (step - changes.wearied).astype(np.float64))
    recency = changes.recency * exp((-changes.shrinking * since).ravel()).reshape(since.shape)
    return np.concatenate([omega, recency, worn[:, None], changes.satisfaction[:, None], time[:, None]], axis=1)


def parts_of(state: Floats, n_factors: int) -> State:
    """A state taken apart."""
    return State(state[:, :n_factors], state[:, n_factors:-3], *state[:, -3:].T)
