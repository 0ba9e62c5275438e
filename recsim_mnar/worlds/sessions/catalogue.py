"""The catalogue of the sessions world, its calendar, and the effects of recommendations on later behaviour."""

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
Items = NDArray[np.integer[Any]]


_ARRAYS = ("item_factors", "item_offsets", "click_factors", "click_offsets")


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Parameters of the P items of a sessions world, with K factors, float64; in brackets RecoGym's symbols.

    Attributes:
        item_factors: (P, K) factors of organic views (Gamma).
        item_offsets: (P,) organic popularity on the scale of logits (mu).
        click_factors: (P, K) factors of clicks on recommendations (beta).
        click_offsets: (P,) offsets of clicks on recommendations (mu_b).
        flips: (F, 2) pairs of items whose click factors and offsets were swapped, in the order of swapping.
    """

    item_factors: Floats
    item_offsets: Floats
    click_factors: Floats
    click_offsets: Floats
    flips: Ints

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays of factors and offsets by their names in ``catalogue.npz``."""
        return {name: getattr(self, name) for name in _ARRAYS}


def make_catalogue(params: SessionsParams) -> Catalogue:
    """Draw a catalogue from ``catalogue_seed``, and swap the click parameters of the flipped pairs.

    The random draws of item i are addressed by i, so without flips a smaller catalogue is the beginning of a larger
    one.
    """
    seed = params.catalogue_seed
    factors = normals(seed, Stream.CATALOGUE, 0, (params.n_items, params.n_factors))
    offsets = params.sigma_mu_organic * normals(seed, Stream.OFFSETS, 0, (params.n_items, 1))[:, 0]
    flips = flip_pairs(factors, params.n_flips)
    source = np.arange(params.n_items)  # the item whose click factors and offset each item gets
    source[flips] = flips[:, ::-1]
    click_factors = factors[source]
    if params.normalize_beta:
        click_factors /= np.sqrt((click_factors**2).sum(axis=1, keepdims=True))
    return Catalogue(factors, offsets, click_factors=click_factors, click_offsets=offsets[source], flips=flips)


def read_catalogue(path: str | Path, member: int = 0) -> Catalogue:
    """Read a catalogue from an ``.npz`` file with the arrays of factors and offsets, see :class:`Catalogue`.

    Args:
        path: path of the file.
        member: 0 for arrays with these names; m for member m of an ensemble, with the names ``item_factors_m`` etc.

    Raises:
        UserError: the file or an array is missing, or an array has a wrong shape or entries that are not finite.
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
    """Return the catalogue with these arrays and without flips.

    Args:
        factors: (P, K) item factors.
        offsets: (P,) item offsets.
        click_factors: (P, K) click factors.
        click_offsets: (P,) click offsets.
        where: origin of the arrays, for the message.

    Raises:
        UserError: shapes that do not fit together, or values that are not finite.
    """
    arrays = (factors, offsets, click_factors, click_offsets)
    shapes = [np.shape(array) for array in arrays]
    if len(shapes[0]) != 2 or shapes != [shapes[0], shapes[0][:1]] * 2 or 0 in shapes[0]:
        raise UserError(f"{where}: factors must be (items, factors) and offsets (items,), got shapes {shapes}")
    if not all(np.isfinite(array).all() for array in arrays):
        raise UserError(f"{where}: a factor or an offset is not finite")
    return Catalogue(*arrays, np.zeros((0, 2), np.int64))


def flip_pairs(factors: Floats, n_flips: int) -> Ints:
    """Select the pairs of items to swap: greedily by the largest inner product of their factors.

    The definition is: go through all pairs i != j by falling inner product, and select each pair of which neither item
    is in a pair yet. Sorting all pairs would take O(P^2) memory. Instead a queue holds every item with its best free
    partner; an entry whose partner has been used is replaced by the item's next best. Candidates are sorted by falling
    norm, so that a search ends as soon as the product of norms is below the best inner product found. Memory is O(P),
    and the result is the same.

    Args:
        factors: (P, K) item factors.
        n_flips: number of pairs.

    Returns:
        (n_flips, 2) items, in the order of selection, the smaller index of each pair first.
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
        # Entries sort by falling inner product, then by item indices.
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
"""Number of periods of a calendar, in each of which the shifts of popularity are constant."""


def shifts(params: SessionsParams, n_items: int) -> Floats:
    """Return the shift of each item's offset in each period of the calendar.

    An item's popularity changes by a random walk (``trend``) and by its age (``ageing``).

    Returns:
        (PERIODS, P) shifts, -inf before an item arrives; (0, P) if there is no calendar.
    """
    if params.calendar == 0.0:
        return np.zeros((0, n_items))
    items = np.arange(n_items)
    seed = params.catalogue_seed
    # One uniform decides whether an item arrives during the calendar and, rescaled, when: uniformly during the
    # calendar, or uniformly in the time of the same length before it.
    drawn = uniforms(seed, Stream.CALENDAR, items, 0)
    arrives_later = drawn < params.arriving
    arrives_later[np.argmax(drawn)] = False  # at least one item is there from the start
    during = drawn / (params.arriving or 1.0)  # with no later arrivals any divisor does
    before = np.minimum(params.arriving - drawn, 0.0) / (1.0 - params.arriving)
    arrival = params.calendar * np.where(arrives_later, during, before)
    middle = (np.arange(PERIODS) + 0.5) * (params.calendar / PERIODS)
    age = middle[:, None] - arrival
    walk = np.zeros((PERIODS, n_items))
    for period in range(1, PERIODS):
        step = normals_of(seed, Stream.CALENDAR, items, period)
        walk[period] = walk[period - 1] + params.trend / np.sqrt(PERIODS) * step
    return np.where(age >= 0.0, walk - params.ageing * age / params.calendar, -np.inf)


def changes_of(params: SessionsParams, catalogue: Catalogue, shift: Floats, n_lanes: int) -> Any:
    """Return the kernels' parameters and per-lane state of fatigue, retention, influence and calendar.

    Args:
        params: parameters of the world.
        catalogue: items of the world.
        shift: (PERIODS, P) return value of :func:`shifts`.
        n_lanes: number of lanes.

    Returns:
        A ``_catalogue_kernel.Changes``; None if the world has none of these effects.
    """
    if not params.changes:
        return None
    from recsim_mnar.worlds.sessions import _catalogue_kernel

    n_items = len(catalogue.item_offsets)
    n_recent = n_items if params.fatigue > 0.0 else 0  # arrays of effects that a world lacks stay empty
    n_weights = n_items if params.calendar > 0.0 else 0
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
        weights=np.empty(n_weights),
    )


def state_arrays(changes: Any) -> tuple[NDArray[Any], ...]:
    """Return the arrays of ``changes`` that are the lanes' state, to be copied with the lanes; () if it is None."""
    if changes is None:
        return ()
    fields = changes._fields
    return changes[fields.index("recency") : fields.index("weights")]


class State(NamedTuple):
    """Hidden states of n users at their next events; a world, its lanes and a planner agree on this order of columns.

    Fields after ``recency`` are one number per user.

    Attributes:
        omega: (n, K) interests.
        recency: (n, P) decayed number of times each item was shown or viewed; (n, 0) without fatigue.
        weariness: (n,) decayed sum over repeats of all items, see ``fatigue_spread``.
        satisfaction: (n,) decayed mean of how well earlier recommendations suited the user.
        time: (n,) time in the calendar.
    """

    omega: Floats
    recency: Floats
    weariness: Floats
    satisfaction: Floats
    time: Floats

    def matrix(self) -> Floats:
        """Return the states as one matrix (n, d): the fields side by side."""
        return np.column_stack(self)

    def effect_of_past(self, params: SessionsParams) -> Floats:
        """Return the factors, (n, P) or (n, 1), by which earlier events multiply the items' click probabilities."""
        if params.fatigue == 0.0:
            return np.ones((len(self.omega), 1))
        log_loss = -params.fatigue * (self.recency + params.fatigue_spread * self.weariness[:, None])
        return exp(log_loss.ravel()).reshape(log_loss.shape)

    def fade(self, params: SessionsParams) -> None:
        """Multiply recency and weariness by the memory of fatigue, in place: one event has passed."""
        for faded in (self.recency, self.weariness):
            faded *= params.fatigue_memory

    def was_viewed(self, params: SessionsParams, items: Items) -> None:
        """Record a view of item ``items[i]`` by user i, in place."""
        if params.fatigue > 0.0:
            self.recency[np.arange(len(items)), items] += params.fatigue_of_views

    def was_shown(self, params: SessionsParams, items: Items, factors: Floats) -> None:
        """Record that item ``items[i]`` with factors ``factors[i]``, (n, K), was shown to user i, in place."""
        if params.fatigue > 0.0:
            rows = np.arange(len(items))
            self.weariness[:] += self.recency[rows, items]
            self.recency[rows, items] += 1.0
        if params.retention > 0.0:
            length = np.maximum(np.sqrt((self.omega**2).sum(axis=1)), 1e-9)  # interests of 0 suit no item
            suits = np.tanh((self.omega * factors).sum(axis=1) / length)
            memory = params.retention_memory
            self.satisfaction[:] = memory * self.satisfaction + (1.0 - memory) * suits

    def was_clicked(self, params: SessionsParams, is_clicked: NDArray[np.bool_], factors: Floats) -> None:
        """Record the clicks of users on items with these factors (n, K), in place; ``is_clicked`` is (n,)."""
        if params.influence > 0.0:
            self.omega[is_clicked] += params.influence * (factors[is_clicked] - self.omega[is_clicked])


def state_of(changes: Any, omega: Floats, step: Ints, time: Floats) -> State:
    """Return the states of users as of their next events.

    Recency and weariness, stored as of the step of their last change, are decayed to the present step.

    Args:
        changes: per-lane state, a ``_catalogue_kernel.Changes``.
        omega: (n, K) interests.
        step: (n,) step of each user's next event.
        time: (n,) time of that event.
    """
    since = (step[:, None] - changes.noted).astype(np.float64)
    worn = changes.weariness * exp(-changes.shrinking * (step - changes.wearied).astype(np.float64))
    recency = changes.recency * exp((-changes.shrinking * since).ravel()).reshape(since.shape)
    return State(omega, recency, weariness=worn, satisfaction=changes.satisfaction, time=time)


def parts_of(matrix: Floats, n_factors: int) -> State:
    """Return the states of a :meth:`State.matrix` with K = ``n_factors``, as views of it."""
    n_numbers = len(State._fields) - 2
    return State(matrix[:, :n_factors], matrix[:, n_factors:-n_numbers], *matrix[:, -n_numbers:].T)


def empty_states(params: SessionsParams, n_items: int, n: int) -> Floats:
    """Return the matrix of the states of n users without interests and without a past."""
    n_recent = n_items if params.fatigue > 0.0 else 0
    numbers = dict.fromkeys(State._fields[2:], np.zeros(n))
    return State(np.zeros((n, params.n_factors)), np.zeros((n, n_recent)), **numbers).matrix()
