# mypy: ignore-errors
"""Jitted lives that halt only where a click is possible.

No click probability reaches ``NEVER_CLICKS``: a decision whose uniform is above it comes to nothing, whatever is shown.
The others are occasions. How many views lie before the next one depends on no interest and no recommendation, so it is
known beforehand, and a life ends after its last occasion: views that nobody answers to are not drawn.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, unit53
from recsim_mnar.kernels.jit import inner, kernel, spliced
from recsim_mnar.worlds.sessions._sessions_kernel import (
    ARRIVING,
    GONE,
    NEVER_CLICKS,
    ORGANIC,
    S_ORGANIC,
    S_RESPONSE,
    Dynamics,
    after_answer,
    after_view,
    arrive,
    click_probability,
    elapsed,
    move,
)
from recsim_mnar.worlds.sessions._softmax_kernel import Lanes, Tables
from recsim_mnar.worlds.sessions._views_kernel import sample_view

Waiting = namedtuple("Waiting", "uniform variance")
"""Of each lane's user: uniform (n,) of the answer at the present occasion; variance (n,) of each interest by then."""


@inner
def _views_ahead(dynamics, seed, user, state, views, decisions):
    """How many views lie before the next occasion; -1 where there is none."""
    first = views
    while True:
        if state == ORGANIC:
            a, b, _c, _d = block(seed, S_ORGANIC, user, np.uint64(views))
            views += 1
            state = after_view(dynamics, unit53(a, b))
        else:
            a, b, c, d = block(seed, S_RESPONSE, user, np.uint64(decisions))
            if unit53(a, b) < NEVER_CLICKS:
                return views - first
            decisions += 1
            state = after_answer(dynamics, unit53(c, d))
        if state == GONE:
            return -1


@spliced
def _go_on(dynamics, lanes, waiting, lane, state, clicked):
    """The state that was drawn comes about."""
    if state == ORGANIC or dynamics.drift_in_bandit:
        dt = elapsed(dynamics, lanes.seed[lane], np.uint64(lanes.user[lane]), lanes.step[lane])
        waiting.variance[lane] += (dynamics.sigma_drift * dt) ** 2
    move(dynamics, lanes, lane, state)
    lanes.phase[lane] = ORGANIC if clicked else state


@kernel
def advance(
    dynamics,
    tables,
    boxes,
    tiers,
    unseen,
    lanes,
    waiting,
    which,
    first,
    clicked,
    draws_views,
    items,
    r,
    starts,
    scratch,
):
    """Lane by lane: begin, or answer the occasion with ``clicked[j]``; then live to the next occasion or the end.

    ``starts[j]`` becomes the first of ``items`` (int32) that the user of lane ``which[j]`` views meanwhile; where
    ``draws_views`` is not set they are counted and not drawn. Returns (lanes finished, items used); fewer lanes than
    given means that the items are full: call again with more room, ``first`` being the number finished.
    """
    dynamics = Dynamics(*dynamics)
    tables = Tables(*tables)
    lanes = Lanes(*lanes)
    waiting = Waiting(*waiting)
    for j in range(first, which.size):
        lane = which[j]
        seed = lanes.seed[lane]
        key = np.uint64(lanes.user[lane])
        starts[j] = r
        arrives = lanes.phase[lane] == ARRIVING
        if arrives:
            drawn = ORGANIC
            state = ORGANIC
            ahead = _views_ahead(dynamics, seed, key, ORGANIC, 0, 0)
        else:
            _a, _b, c, d = block(seed, S_RESPONSE, key, np.uint64(lanes.n_decisions[lane]))
            drawn = after_answer(dynamics, unit53(c, d))
            state = ORGANIC if clicked[j] else drawn
            ahead = -1
            if state != GONE:
                ahead = _views_ahead(dynamics, seed, key, state, lanes.n_organic[lane], lanes.n_decisions[lane] + 1)
        if draws_views and r + ahead > items.size:
            return j, r
        if ahead < 0:
            lanes.phase[lane] = GONE
            continue
        if arrives:
            arrive(dynamics, unseen, lanes, lane)
            waiting.variance[lane] = dynamics.sigma_initial**2
        else:
            lanes.n_decisions[lane] += 1
            _go_on(dynamics, lanes, waiting, lane, drawn, clicked[j])
        while True:
            if lanes.phase[lane] == ORGANIC:
                a, b, c, d = block(seed, S_ORGANIC, key, np.uint64(lanes.n_organic[lane]))
                if draws_views:
                    items[r] = sample_view(
                        dynamics.stale_limit, tables, boxes, tiers, unseen, lanes, lane, unit53(c, d), scratch
                    )
                    r += 1
                lanes.n_organic[lane] += 1
                drawn = after_view(dynamics, unit53(a, b))
            else:
                a, b, c, d = block(seed, S_RESPONSE, key, np.uint64(lanes.n_decisions[lane]))
                if unit53(a, b) < NEVER_CLICKS:
                    waiting.uniform[lane] = unit53(a, b)
                    break
                lanes.n_decisions[lane] += 1
                drawn = after_answer(dynamics, unit53(c, d))
            _go_on(dynamics, lanes, waiting, lane, drawn, False)
    return which.size, r


@kernel
def click_probabilities_of(click_factors, click_offsets, state, row, action, out):
    """out[i] = click probability of item action[i] for interests state[row[i]]."""
    n_factors = click_factors.shape[1]
    for i in range(out.size):
        out[i] = click_probability(click_factors, click_offsets, state[row[i]], n_factors, np.int64(action[i]), False)
