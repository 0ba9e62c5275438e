"""Sampling of the sessions world's views: a sampler for each catalogue, and the catalogue arranged for it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.worlds.sessions.catalogue import Catalogue

Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]


_VECTOR = 64
"""Loops over a multiple of so many float32 have no scalar remainder."""
_LINE = 64
"""Bytes of a cache line."""
_NEVER = -1e30
"""Offset of a place that holds no item of its own."""


class ViewSampler(NamedTuple):
    """Sampler of views.

    Attributes:
        boxes: groups of items whose weights are remembered and bounded by the box of their factors, a power of two from
            32 on; 0 draws every view from a fresh softmax.
        drift: how far, in norm, interests drift before weights are renewed; or, with hot items,
        waste: how many proposals a view may be expected to be refused before.
        hot: items of the largest offsets whose weights are made anew at every view; a multiple of 16. Where there are
            any, views are drawn by tiers (``_views_kernel``).
        warm: items of the next largest offsets, which the boxes hold then.
        cold: entries for the items beyond these, and
        cold_boxes: the groups that hold the entries; powers of two.
    """

    boxes: int
    drift: float = 0.0
    waste: float = 0.0
    hot: int = 0
    warm: int = 0
    cold: int = 0
    cold_boxes: int = 0


_FRESH = ViewSampler(0)


def aligned(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array that is not filled yet, at the start of a cache line.

    A vector that spans two of them is read at half the speed, and where NumPy puts an array is probability.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(dtype).reshape(shape)


def _aligned_copy(values: NDArray[Any]) -> NDArray[Any]:
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


def view_sampler(n_items: int, n_factors: int, sigma_mu_organic: float) -> ViewSampler:
    """Choose the cheapest sampler for a catalogue, as measured.

    The choice decides which draw gives which item, so to change it is to raise the schema's version.
    """
    if sigma_mu_organic >= 1.0 and n_factors <= 10:
        for limit, sampler in _UNEVEN:
            if n_items < limit:
                return sampler._replace(warm=min(sampler.warm, n_items - sampler.hot) if sampler.hot else 0)
    if n_factors > 10:
        if n_items < 2000:
            return _FRESH
        return ViewSampler(128, 0.7)
    for limit, boxes, drift in ((400, 0, 0.0), (1500, 32, 0.7), (5000, 64, 0.7), (50_000, 128, 1.0)):
        if n_items < limit:
            return ViewSampler(boxes, drift)
    return ViewSampler(512, 2.0)


_UNEVEN = (
    (200, _FRESH),
    (600, ViewSampler(32, waste=1.0, hot=64, warm=2000)),
    (2000, ViewSampler(32, waste=1.0, hot=128, warm=2000)),
    (6000, ViewSampler(64, waste=2.0, hot=128, warm=6000)),
    (20_000, ViewSampler(64, waste=2.0, hot=256, warm=2048, cold=2048, cold_boxes=64)),
    (60_000, ViewSampler(128, waste=4.0, hot=512, warm=8192, cold=8192, cold_boxes=128)),
    (math.inf, ViewSampler(256, waste=4.0, hot=512, warm=32_768, cold=8192, cold_boxes=256)),
)
"""Where popularity is uneven: (items below, sampler)."""


@dataclass(frozen=True, eq=False)
class ViewTables:
    """A catalogue in the order and types in which views are sampled.

    See ``_softmax_kernel.Tables`` and, from ``n_hot`` on, ``_views_kernel.Tiers``.
    """

    factors: Floats32
    offsets: Floats32
    rows: Floats32
    order: NDArray[np.int32]
    starts: Ints
    centre: Floats32
    half: Floats32
    widest: float
    top: float
    n_hot: int = 0
    n_warm: int = 0
    n_boxes: int = 0
    cold: Floats32 = field(default_factory=lambda: np.zeros((10, 0), np.float32))
    cold_offsets: Floats32 = field(default_factory=lambda: np.zeros(0, np.float32))
    cold_starts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    cold_weights: Floats32 = field(default_factory=lambda: np.zeros(0, np.float32))

    def __deepcopy__(self, memo: Any) -> ViewTables:
        return self  # they are never written to, and a copy would be anywhere in the cache's lines

    def __setstate__(self, held: dict[str, Any]) -> None:
        for name, value in held.items():
            if isinstance(value, np.ndarray):
                value = _aligned_copy(value)
            object.__setattr__(self, name, value)


def view_tables(catalogue: Catalogue, sampler: ViewSampler) -> ViewTables:
    """Arrange a catalogue for a sampler of views."""
    if sampler.hot:
        return _tier_tables(catalogue, sampler)
    return _box_tables(catalogue, sampler.boxes)


def _box_tables(catalogue: Catalogue, n_groups: int) -> ViewTables:
    """Groups of items within boxes; without groups (0), the items' order, each 32 neighbours being summed together."""
    n_items = len(catalogue.item_offsets)
    if n_groups == 0:
        order = np.arange(n_items)
        starts = np.append(np.arange(0, n_items, 32), n_items)
    else:
        groups = _split(catalogue, np.arange(n_items), n_groups)
        order = np.concatenate(groups)
        starts = np.cumsum([0] + [len(group) for group in groups])
    common = _common(catalogue, order, catalogue.item_offsets[order], starts)
    centre, half = _centres(*_extremes(common["rows"], starts))
    return ViewTables(**common, centre=centre, half=half)


def _tier_tables(catalogue: Catalogue, sampler: ViewSampler) -> ViewTables:
    """Hot items first, then the table of warm ones, then cold items in the order of the entries that hold them."""
    offsets = catalogue.item_offsets
    by_offset = np.argsort(-offsets, kind="stable")
    hot, warm, cold = np.split(by_offset, [sampler.hot, sampler.hot + sampler.warm])
    boxes = _split(catalogue, np.sort(warm), sampler.boxes)
    unit = max(1, _VECTOR // sampler.boxes)
    depth = -(-max(len(box) for box in boxes) // unit) * unit
    # A box that holds less is filled with its last item again, at an offset with which that is never drawn.
    table = np.array([np.append(box, np.repeat(box[-1:], depth - len(box))) for box in boxes]).T.ravel()
    real = np.array([np.arange(depth) < len(box) for box in boxes]).T.ravel()
    entries: list[Ints] = []
    if sampler.cold:
        leaves = _split(catalogue, np.sort(cold), sampler.cold)
        in_box = sampler.cold // sampler.cold_boxes
        for i in range(sampler.cold_boxes):
            # Neighbours are halves of the same halves. The likeliest entry first, as in a box.
            part = leaves[i * in_box : (i + 1) * in_box]
            entries += sorted(part, key=lambda leaf: -np.exp(offsets[leaf]).sum())
        entries = [entries[i] for i in np.arange(sampler.cold).reshape(sampler.cold_boxes, in_box).T.ravel()]
    order = np.concatenate([hot, table, *entries])
    placed = offsets[order]
    placed[len(hot) : len(hot) + len(table)][~real] = _NEVER
    common = _common(catalogue, order, placed, np.append(np.arange(0, len(order), 32), len(order)))
    rows = common["rows"]
    first_cold = len(hot) + len(table)
    n_padded = rows.shape[1]
    warm_rows = rows[len(hot) : first_cold].reshape(depth, sampler.boxes, n_padded)
    low = warm_rows.min(axis=0)
    high = warm_rows.max(axis=0)
    cold_starts = np.cumsum([0] + [len(entry) for entry in entries])
    cold_low, cold_high = _extremes(rows[first_cold:], cold_starts)
    if entries:
        low = np.concatenate([low, cold_low.reshape(-1, sampler.cold_boxes, n_padded).min(axis=0)])
        high = np.concatenate([high, cold_high.reshape(-1, sampler.cold_boxes, n_padded).max(axis=0)])
    weights = np.exp(offsets[order[first_cold:]])
    sums = [weights[a:b].sum() for a, b in itertools.pairwise(cold_starts)]
    centre, half = _centres(low, high)
    return ViewTables(
        **common,
        centre=centre,
        half=half,
        n_hot=len(hot),
        n_warm=len(table),
        n_boxes=sampler.boxes,
        cold=_aligned_copy(np.concatenate(_centres(cold_low, cold_high))),
        cold_offsets=_aligned_copy(np.log(np.array(sums)).astype(np.float32)),
        cold_starts=cold_starts,
        cold_weights=weights.astype(np.float32),
    )


def _split(catalogue: Catalogue, items: Ints, n_groups: int) -> list[Ints]:
    """Items split again and again at the median of their widest factor, so that their boxes are small.

    The likeliest of a group stand first: the scan that picks one then ends early.
    """
    groups = [items]
    while len(groups) < n_groups:
        halves = []
        for group in groups:
            spread = np.ptp(catalogue.item_factors[group], axis=0)
            along = catalogue.item_factors[group, int(np.argmax(spread))]
            ranked = group[np.argsort(along, kind="stable")]
            halves += [ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]]
        groups = halves
    return [group[np.argsort(-catalogue.item_offsets[group], kind="stable")] for group in groups]


def _extremes(rows: Floats32, starts: Ints) -> tuple[Floats32, Floats32]:
    """Lowest and highest factors of each group, (G, L)."""
    if len(starts) == 1:
        return rows[:0], rows[:0]
    return np.minimum.reduceat(rows, starts[:-1], axis=0), np.maximum.reduceat(rows, starts[:-1], axis=0)


def _centres(lowest: Floats32, highest: Floats32) -> tuple[Floats32, Floats32]:
    """Centres and half widths of boxes, (L, G)."""
    return _aligned_copy(((lowest + highest) / 2).T), _aligned_copy(((highest - lowest) / 2).T)


def _common(catalogue: Catalogue, order: Ints, offsets: NDArray[np.float64], starts: Ints) -> dict[str, Any]:
    n_places = len(order)
    n_factors = catalogue.item_factors.shape[1]
    padded = -(-n_factors // 5) * 5
    rows = np.zeros((n_places, padded), np.float32)
    rows[:, :n_factors] = catalogue.item_factors[order]
    room = -(-n_places // _VECTOR) * _VECTOR
    factors = aligned((padded, room), np.float32)
    factors[:, :n_places] = rows.T
    factors[:, n_places:] = 0.0
    all_offsets = aligned(room, np.float32)
    all_offsets[:n_places] = offsets
    all_offsets[n_places:] = _NEVER
    return {
        "factors": factors,
        "offsets": all_offsets,
        "rows": rows,
        "order": order.astype(np.int32),
        "starts": starts.astype(np.int64),
        "widest": float(np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1).max())),
        "top": float(catalogue.item_offsets.max()),
    }
