"""How popular what agents recommend is, beside what users come to on their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUPS = 10
"""Of items, by their place in the order of popularity."""
VIEWS, RECOMMENDATIONS = "views", "recommendations"

Counts = NDArray[np.int64]


def popularity(views: Counts, recommended: Mapping[str, Counts]) -> list[dict[str, Any]]:
    """Shares of views and of recommendations by groups of items, the most viewed first.

    Args:
        views: (n_items,) by which items are ranked; equal ones by their number.
        recommended: (n_items,) how often each item was recommended, by agent.

    Returns:
        Rows of JSON types, those of the views first: ``what`` (views or recommendations), ``agent`` (empty for
        views), ``first_rank`` and ``last_rank`` of a group of items, ``share`` of all that fell on it, and ``items``,
        how many of the group's items were met at all. None where nothing was viewed.
    """
    if not views.sum():
        return []
    order = np.argsort(-views, kind="stable")
    ends = np.linspace(0, len(views), min(GROUPS, len(views)) + 1).round().astype(int)
    rows = []
    for what, agent, counts in ((VIEWS, "", views), *((RECOMMENDATIONS, *each) for each in recommended.items())):
        ranked = counts[order]
        total = int(ranked.sum())
        for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            group = ranked[first:last]
            rows.append(
                {
                    "what": what,
                    "agent": agent,
                    "first_rank": first + 1,
                    "last_rank": last,
                    "share": int(group.sum()) / total if total else 0.0,
                    "items": int(np.count_nonzero(group)),
                }
            )
    return rows
