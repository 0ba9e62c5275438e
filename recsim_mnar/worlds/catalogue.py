"""The sessions world's catalogue: what makes items be viewed, and what makes them be clicked."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.rng import Stream, normals


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

    item_factors: NDArray[np.float64]
    item_offsets: NDArray[np.float64]
    click_factors: NDArray[np.float64]
    click_offsets: NDArray[np.float64]
    flips: NDArray[np.int64]

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The four arrays by the names under which ``catalogue.npz`` holds them."""
        return {
            "item_factors": self.item_factors,
            "item_offsets": self.item_offsets,
            "click_factors": self.click_factors,
            "click_offsets": self.click_offsets,
        }


def make_catalogue(
    *, n_items: int, n_factors: int, sigma_mu_organic: float, n_flips: int, normalize_beta: bool, seed: int
) -> Catalogue:
    """Draw a catalogue; item i's draws are addressed by i, so a smaller catalogue is the beginning of a larger one."""
    factors = normals(seed, Stream.CATALOGUE, 0, (n_items, n_factors))
    offsets = sigma_mu_organic * normals(seed, Stream.OFFSETS, 0, (n_items, 1))[:, 0]
    flips = flip_pairs(factors, n_flips)
    click_factors, click_offsets = factors.copy(), offsets.copy()
    there, back = flips[:, 0], flips[:, 1]
    click_factors[there], click_factors[back] = factors[back], factors[there]
    click_offsets[there], click_offsets[back] = offsets[back], offsets[there]
    if normalize_beta:
        click_factors /= np.sqrt((click_factors**2).sum(axis=1, keepdims=True))
    return Catalogue(factors, offsets, click_factors, click_offsets, flips)


def flip_pairs(factors: NDArray[np.float64], n_flips: int) -> NDArray[np.int64]:
    """The pairs that a walk down all inner products swaps: (n_flips, 2), in order, the smaller index first.

    The walk takes each pair i != j of which neither is used yet. Instead of sorting all pairs, every item keeps its
    best free partner in a queue; an entry whose partner has been taken is looked up again. Candidates stand in
    descending norm, so a look-up ends as soon as the norms bound what is left. Memory is O(P); the result is that
    of the full sort.
    """
    if n_flips == 0:
        return np.zeros((0, 2), np.int64)
    from recsim_mnar.worlds import _flips_kernel

    norms = np.sqrt((factors**2).sum(axis=1))
    item_of = np.argsort(-norms, kind="stable")
    rows = np.ascontiguousarray(factors[item_of])
    norms = np.ascontiguousarray(norms[item_of])
    used = np.zeros(len(rows), np.bool_)
    partners = np.empty(len(rows), np.int64)
    values = np.empty(len(rows))
    _flips_kernel.best_partners(rows, norms, item_of, used, partners, values)

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
            partner, value = _flips_kernel.best_partner(rows, norms, item_of, used, place)
            if partner >= 0:
                heapq.heappush(queue, entry(place, partner, value))
            continue
        used[place] = used[partner] = True
        pairs.append((low, high))
    return np.array(pairs, np.int64)


@dataclass(frozen=True, eq=False)
class ViewTables:
    """A catalogue in the order and types in which views are sampled; see ``_views_kernel.Tables``."""

    n_hot: int
    factors: NDArray[np.float32]
    offsets: NDArray[np.float32]
    rows: NDArray[np.float32]
    order: NDArray[np.int32]
    starts: NDArray[np.int64]
    centre: NDArray[np.float32]
    half: NDArray[np.float32]
    widest: float
    top: float


def view_tables(catalogue: Catalogue, n_groups: int, n_hot: int = 0) -> ViewTables:
    """Arrange a catalogue for sampling views.

    Args:
        catalogue: of P items.
        n_groups: 0 keeps the items' order and groups each 32 neighbours; otherwise a power of two: items are split
            again and again at the median of their widest factor, so that the drift of a group's logits is tightly
            bounded.
        n_hot: items of the largest offsets that stand first, in no group.
    """
    n_items, n_factors = catalogue.item_factors.shape
    padded = -(-n_factors // 5) * 5
    if n_groups == 0:
        order = np.arange(n_items)
        starts = np.append(np.arange(0, n_items, 32), n_items)
    else:
        by_offset = np.argsort(-catalogue.item_offsets, kind="stable")
        groups = [np.sort(by_offset[n_hot:])]
        while len(groups) < n_groups:
            halves = []
            for group in groups:
                spread = np.ptp(catalogue.item_factors[group], axis=0)
                along = catalogue.item_factors[group, int(np.argmax(spread))]
                ranked = group[np.argsort(along, kind="stable")]
                halves += [ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]]
            groups = halves
        # The likeliest items of a group first: the scan that picks one then ends early.
        groups = [group[np.argsort(-catalogue.item_offsets[group], kind="stable")] for group in groups]
        order = np.concatenate([by_offset[:n_hot], *groups])
        starts = n_hot + np.cumsum([0] + [len(group) for group in groups])
    rows = np.zeros((n_items, padded), np.float32)
    rows[:, :n_factors] = catalogue.item_factors[order]
    lowest = np.minimum.reduceat(rows, starts[:-1], axis=0)
    highest = np.maximum.reduceat(rows, starts[:-1], axis=0)
    room = -(-n_items // 64) * 64
    factors = np.zeros((padded, room), np.float32)
    factors[:, :n_items] = rows.T
    offsets = np.zeros(room, np.float32)
    offsets[:n_items] = catalogue.item_offsets[order]
    return ViewTables(
        n_hot=n_hot,
        factors=factors,
        offsets=offsets,
        rows=rows,
        order=order.astype(np.int32),
        starts=starts.astype(np.int64),
        centre=np.ascontiguousarray(((lowest + highest) / 2).T),
        half=np.ascontiguousarray(((highest - lowest) / 2).T),
        widest=float(np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1).max())),
        top=float(catalogue.item_offsets.max()),
    )
