"""Sampling of views in the sessions world: choice of a sampler, and arrangement of the catalogue for it."""

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
"""Number of float32 of which array lengths are multiples, so that vectorised loops have no scalar remainder."""
_LINE = 64
"""Size of a cache line in bytes."""
_PADDING_OFFSET = -1e30
"""Offset (logit) of padding, which is therefore never drawn."""


class ViewSampler(NamedTuple):
    """Choice of a sampler of views; the samplers are described in ``_views_kernel``.

    Attributes:
        boxes: number of groups of items whose weights are cached and bounded by the box of their factors, a power of
            two from 32 on; 0 to draw every view from a new softmax.
        drift: norm of the drift of interests beyond which cached weights are computed again; without hot items.
        waste: expected number of rejected proposals per view beyond which cached weights are computed again; with hot
            items.
        hot: number of items with the largest offsets whose weights are computed for every view, a multiple of 16; if
            above 0, views are drawn by tiers.
        warm: number of items with the next largest offsets, which the boxes contain if views are drawn by tiers.
        cold: number of entries (sets of items) for all other items, a power of two.
        cold_boxes: number of groups of these entries, a power of two.
    """

    boxes: int
    drift: float = 0.0
    waste: float = 0.0
    hot: int = 0
    warm: int = 0
    cold: int = 0
    cold_boxes: int = 0


_NEW_SOFTMAX = ViewSampler(0)


def aligned(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an uninitialised array that starts at the beginning of a cache line.

    A vector that spans two cache lines is read at half the speed, and NumPy aligns arrays to 16 bytes only.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(dtype).reshape(shape)


def _aligned_copy(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of an array that starts at the beginning of a cache line."""
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


def view_sampler(n_items: int, n_factors: int, sigma_mu_organic: float) -> ViewSampler:
    """Return the sampler that measurements have found fastest for catalogues of this kind.

    The choice affects which item a random draw gives, so changing it requires a new version of the log's schema.

    Args:
        n_items: number of items.
        n_factors: number of factors.
        sigma_mu_organic: standard deviation of the item offsets; popularity counts as uneven from 1 on.
    """
    if sigma_mu_organic >= 1.0 and n_factors <= 10:
        for limit, sampler in _SAMPLERS_IF_UNEVEN:
            if n_items < limit:
                n_warm = 0
                if sampler.hot:
                    n_warm = min(sampler.warm, n_items - sampler.hot)
                return sampler._replace(warm=n_warm)
    if n_factors > 10:
        if n_items < 2000:
            return _NEW_SOFTMAX
        return ViewSampler(128, 0.7)
    # Number of items below which the sampler is used, and its fields ``boxes`` and ``drift``.
    for limit, boxes, drift in ((400, 0, 0.0), (1500, 32, 0.7), (5000, 64, 0.7), (50_000, 128, 1.0)):
        if n_items < limit:
            return ViewSampler(boxes, drift)
    return ViewSampler(512, 2.0)


_SAMPLERS_IF_UNEVEN = (
    (200, _NEW_SOFTMAX),
    (600, ViewSampler(32, waste=1.0, hot=64, warm=2000)),
    (2000, ViewSampler(32, waste=1.0, hot=128, warm=2000)),
    (6000, ViewSampler(64, waste=2.0, hot=128, warm=6000)),
    (20_000, ViewSampler(64, waste=2.0, hot=256, warm=2048, cold=2048, cold_boxes=64)),
    (60_000, ViewSampler(128, waste=4.0, hot=512, warm=8192, cold=8192, cold_boxes=128)),
    (math.inf, ViewSampler(256, waste=4.0, hot=512, warm=32_768, cold=8192, cold_boxes=256)),
)
"""Samplers for uneven popularity: (number of items below which the sampler is used, sampler), in rising order."""


@dataclass(frozen=True, eq=False)
class ViewTables:
    """Catalogue in the order and types in which a sampler of views reads it.

    The fields are documented in ``_softmax_kernel.Tables`` and, from ``n_hot`` on, in ``_views_kernel.Tiers``.
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
        return self  # the arrays are never modified, and copies would not be aligned

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
    """Arrange a catalogue for the sampler by boxes, or for a new softmax at every view.

    Args:
        catalogue: items.
        n_groups: number of boxes; 0 for the items' own order in groups of 32, each with a partial sum of its weights.
    """
    n_items = len(catalogue.item_offsets)
    if n_groups == 0:
        order = np.arange(n_items)
        starts = np.append(np.arange(0, n_items, 32), n_items)
    else:
        groups = _split_by_factors(catalogue, np.arange(n_items), n_groups)
        order = np.concatenate(groups)
        starts = np.cumsum([0] + [len(group) for group in groups])
    common = _common_fields(catalogue, order, catalogue.item_offsets[order], starts)
    centre, half = _boxes_from_corners(*_group_extremes(common["rows"], starts))
    return ViewTables(**common, centre=centre, half=half)


def _tier_tables(catalogue: Catalogue, sampler: ViewSampler) -> ViewTables:
    """Arrange a catalogue for the sampler by tiers.

    The places are the hot items, then a table of warm items (one column per box, padded to equal depth), then the cold
    items, entry by entry.
    """
    offsets = catalogue.item_offsets
    by_offset = np.argsort(-offsets, kind="stable")
    hot, warm, cold = np.split(by_offset, [sampler.hot, sampler.hot + sampler.warm])
    boxes = _split_by_factors(catalogue, np.sort(warm), sampler.boxes)
    # The depth is rounded up so that the table's size is a multiple of _VECTOR.
    unit = max(1, _VECTOR // sampler.boxes)
    depth = -(-max(len(box) for box in boxes) // unit) * unit
    # Shorter columns are padded with their last item, whose offset is then replaced so that it is never drawn.
    table = np.array([np.append(box, np.repeat(box[-1:], depth - len(box))) for box in boxes]).T.ravel()
    is_item = np.array([np.arange(depth) < len(box) for box in boxes]).T.ravel()
    entries: list[Ints] = []
    if sampler.cold:
        leaves = _split_by_factors(catalogue, np.sort(cold), sampler.cold)
        in_box = sampler.cold // sampler.cold_boxes
        for i in range(sampler.cold_boxes):
            # Consecutive leaves come from the same half of a split, so they are close. The likeliest entry comes first.
            part = leaves[i * in_box : (i + 1) * in_box]
            entries += sorted(part, key=lambda leaf: -np.exp(offsets[leaf]).sum())
        # Row by row of a table with one column per box, as for warm items.
        entries = [entries[i] for i in np.arange(sampler.cold).reshape(sampler.cold_boxes, in_box).T.ravel()]
    order = np.concatenate([hot, table, *entries])
    place_offsets = offsets[order]
    place_offsets[len(hot) : len(hot) + len(table)][~is_item] = _PADDING_OFFSET
    common = _common_fields(catalogue, order, place_offsets, np.append(np.arange(0, len(order), 32), len(order)))
    rows = common["rows"]
    first_cold = len(hot) + len(table)
    n_padded = rows.shape[1]
    warm_rows = rows[len(hot) : first_cold].reshape(depth, sampler.boxes, n_padded)
    low = warm_rows.min(axis=0)
    high = warm_rows.max(axis=0)
    cold_starts = np.cumsum([0] + [len(entry) for entry in entries])
    cold_low, cold_high = _group_extremes(rows[first_cold:], cold_starts)
    if entries:
        low = np.concatenate([low, cold_low.reshape(-1, sampler.cold_boxes, n_padded).min(axis=0)])
        high = np.concatenate([high, cold_high.reshape(-1, sampler.cold_boxes, n_padded).max(axis=0)])
    weights = np.exp(offsets[order[first_cold:]])
    sums = [weights[a:b].sum() for a, b in itertools.pairwise(cold_starts)]
    centre, half = _boxes_from_corners(low, high)
    return ViewTables(
        **common,
        centre=centre,
        half=half,
        n_hot=len(hot),
        n_warm=len(table),
        n_boxes=sampler.boxes,
        cold=_aligned_copy(np.concatenate(_boxes_from_corners(cold_low, cold_high))),
        cold_offsets=_aligned_copy(np.log(np.array(sums)).astype(np.float32)),
        cold_starts=cold_starts,
        cold_weights=weights.astype(np.float32),
    )


def _split_by_factors(catalogue: Catalogue, items: Ints, n_groups: int) -> list[Ints]:
    """Split items into groups of similar factors, by repeatedly halving each group at the median of its widest factor.

    Within a group the items are sorted by falling offset, so that the scan that draws an item usually ends early.

    Args:
        catalogue: items of the world.
        items: items to split.
        n_groups: number of groups, a power of two.
    """
    groups = [items]
    while len(groups) < n_groups:
        halves = []
        for group in groups:
            spread = np.ptp(catalogue.item_factors[group], axis=0)
            widest_factor = catalogue.item_factors[group, int(np.argmax(spread))]
            ranked = group[np.argsort(widest_factor, kind="stable")]
            halves += [ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]]
        groups = halves
    return [group[np.argsort(-catalogue.item_offsets[group], kind="stable")] for group in groups]


def _group_extremes(rows: Floats32, starts: Ints) -> tuple[Floats32, Floats32]:
    """Find the box around the factors of each group of rows.

    Args:
        rows: (n, L) factors.
        starts: (G + 1,) bounds: group g has the rows starts[g]:starts[g + 1].

    Returns:
        lowest: (G, L) smallest factors in each group.
        highest: (G, L) largest factors in each group.
    """
    if len(starts) == 1:  # no group, which reduceat refuses
        return rows[:0], rows[:0]
    return np.minimum.reduceat(rows, starts[:-1], axis=0), np.maximum.reduceat(rows, starts[:-1], axis=0)


def _boxes_from_corners(lowest: Floats32, highest: Floats32) -> tuple[Floats32, Floats32]:
    """Compute the boxes of groups from their corners (G, L).

    Returns:
        centre: (L, G) centres.
        half: (L, G) half widths.
    """
    return _aligned_copy(((lowest + highest) / 2).T), _aligned_copy(((highest - lowest) / 2).T)


def _common_fields(catalogue: Catalogue, order: Ints, offsets: NDArray[np.float64], starts: Ints) -> dict[str, Any]:
    """Return the fields of :class:`ViewTables`, by name, that all samplers have.

    Args:
        catalogue: items of the world.
        order: (places,) item at each place.
        offsets: (places,) offset of each place.
        starts: (groups + 1,) first place of each group.
    """
    n_places = len(order)
    n_factors = catalogue.item_factors.shape[1]
    n_padded = -(-n_factors // 5) * 5  # kernels read five factors at a time
    rows = np.zeros((n_places, n_padded), np.float32)
    rows[:, :n_factors] = catalogue.item_factors[order]
    n_padded_places = -(-n_places // _VECTOR) * _VECTOR
    factors = aligned((n_padded, n_padded_places), np.float32)
    factors[:, :n_places] = rows.T
    factors[:, n_places:] = 0.0
    all_offsets = aligned(n_padded_places, np.float32)
    all_offsets[:n_places] = offsets
    all_offsets[n_places:] = _PADDING_OFFSET
    return {
        "factors": factors,
        "offsets": all_offsets,
        "rows": rows,
        "order": order.astype(np.int32),
        "starts": starts.astype(np.int64),
        "widest": float(np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1).max())),
        "top": float(catalogue.item_offsets.max()),
    }
