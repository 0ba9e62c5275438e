# mypy: ignore-errors
"""Jitted step of all lanes of the sessions world in one call; what users do is in ``_sessions_kernel``."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels.jit import kernel
from recsim_mnar.worlds.sessions._sessions_kernel import GONE, ORGANIC, Dynamics, Rows, arrive, browse, respond
from recsim_mnar.worlds.sessions._softmax_kernel import Lanes, Tables

Moves = namedtuple(
    "Moves",
    "actions ended seeds queue next_user elapsed counts rewards terminated truncated n_views n_skipped",
)
"""See :class:`recsim_mnar.worlds.lanes.Moves`."""


@kernel
def step_at_once(
    dynamics,
    tables,
    boxes,
    tiers,
    unseen,
    lanes,
    changes,
    moves,
    acting,
    limit,
    first,
    end,
    left,
    rows,
    r,
    starts,
    scratch,
):
    """One step of lanes ``first`` to ``end``: see :meth:`recsim_mnar.worlds.lanes.Lanes.step_at_once`.

    ``limit``: steps after which an episode is truncated, 0 for none. The views of each lane are rows starts[lane] :
    starts[lane + 1]; an answer is no row. Returns (the lane after the last finished, rows used, lanes left to be reset
    again): one before ``end`` means that the rows are full, call again with more room and with these numbers.
    """
    dynamics = Dynamics(*dynamics)
    tables = Tables(*tables)
    lanes = Lanes(*lanes)
    moves = Moves(*moves)
    rows = Rows(*rows)
    n_items = moves.counts.shape[1]
    for lane in range(first, end):
        arrives = moves.ended[lane]
        if lanes.phase[lane] != ORGANIC:  # otherwise the rows were full
            starts[lane] = r
            if arrives:
                lanes.seed[lane] = moves.seeds[lane]
                lanes.user[lane] = moves.next_user[moves.queue[lane]]
                moves.next_user[moves.queue[lane]] += 1
                moves.elapsed[lane] = 0
                moves.n_views[lane] = 0
                for i in range(n_items):
                    moves.counts[lane, i] = 0.0
                arrive(dynamics, unseen, changes, lanes, lane)
            elif acting:
                if r == rows.user.size:
                    return lane, r, left
                respond(dynamics, tables, changes, lanes, lane, rows, r, moves.actions[lane], 1.0)
                moves.rewards[lane] = rows.reward[r]
                moves.elapsed[lane] += 1
            else:
                continue
        begin = r
        r = browse(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, rows, r, scratch)
        moves.n_views[lane] += r - begin
        if n_items > 0:
            for i in range(begin, r):
                moves.counts[lane, rows.item[i]] += np.float32(1.0)
        if lanes.phase[lane] == ORGANIC:
            return lane, r, left
        gone = lanes.phase[lane] == GONE
        if not arrives:
            moves.terminated[lane] = gone
            moves.truncated[lane] = (limit > 0) & (limit <= moves.elapsed[lane]) & (not gone)
        elif gone:
            moves.n_skipped[lane] += 1
            left += 1
        else:
            moves.ended[lane] = False
    starts[end] = r
    return end, r, left
