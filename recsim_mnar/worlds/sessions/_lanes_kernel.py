# mypy: ignore-errors
"""Jitted calls that move lanes of the sessions world: to the next decision, by one step of all, or to an occasion.

Python hands in plain tuples, and their members are named again here: numba takes three times as long over a named
tuple. What users do is in ``_sessions_kernel``, how they read rankings in ``_rankings_kernel``.

Some lives halt only where a click is possible (:func:`advance_to_occasion`): no click probability reaches
``NEVER_CLICKS``, so a decision whose uniform is above it comes to nothing, whatever is shown. The others are occasions.
How many views come before the next one depends on no interest and no recommendation, so it is known beforehand, and a
life ends after its last occasion: views without an answer are not drawn.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel, spliced
from recsim_mnar.worlds.sessions._rankings_kernel import Reading, respond_to_ranking
from recsim_mnar.worlds.sessions._sessions_kernel import (
    ARRIVING,
    AWAITING,
    GONE,
    NEVER_CLICKS,
    ORGANIC,
    S_ORGANIC,
    S_RESPONSE,
    Dynamics,
    Rows,
    after_answer,
    after_view,
    arrive,
    browse,
    click_probability,
    elapsed,
    move,
    respond,
    write_answer,
)
from recsim_mnar.worlds.sessions._softmax_kernel import Lanes, Tables
from recsim_mnar.worlds.sessions._views_kernel import sample_view

_SIDE_BY_SIDE = 16


@inlined
def _skip_uneventful(dynamics, tables, lanes, lane, rows, r, actions, propensities):
    """Recommendations that come to nothing, one unit of time apart: rows r, r + 1, ... and the clock, no draws."""
    n = np.uint64(actions.size)
    if dynamics.keep_truth:
        # Interests stay as they are: one item after the other is asked for, and each run of the same item once.
        before = np.int64(-1)
        probability = 0.0
        for i in range(actions.size):
            action = np.int64(actions[i])
            if action != before:
                probability = click_probability(
                    tables.click_factors,
                    tables.click_offsets,
                    lanes.omega[lane],
                    dynamics.n_factors,
                    action,
                    dynamics.logistic_clicks,
                )
                before = action
            rows.click_probability[r + i] = probability
    first = np.uint64(r)
    user = lanes.user[lane]
    step = lanes.step[lane]
    time = lanes.time[lane]
    for i in range(n):
        write_answer(rows, first + i, user, step + np.int64(i), time + np.float64(i), actions[i], propensities[i], 0.0)
    lanes.step[lane] += actions.size
    lanes.time[lane] += np.float64(actions.size)
    lanes.n_decisions[lane] += actions.size


@inlined
def _uneventful(seed, user, first, most, bandit_out, never_clicks):
    """Count the decisions from ``first`` on, at most ``most``, that can neither be clicked nor end the bandit session.

    Some decisions side by side, so that the draws are made in vectors: the first eventful one is a minimum.
    """
    key = np.uint64(user)
    for begin in range(0, most, _SIDE_BY_SIDE):
        base = np.uint64(first + begin)
        first_eventful = _SIDE_BY_SIDE
        for i in range(_SIDE_BY_SIDE):
            a, b, c, d = block(seed, S_RESPONSE, key, base + np.uint64(i))
            eventful = (unit53(a, b) < never_clicks) | (unit53(c, d) < bandit_out)
            first_eventful = min(first_eventful, i if eventful else _SIDE_BY_SIDE)
        if first_eventful < _SIDE_BY_SIDE:
            return min(begin + first_eventful, most)
    return most


@kernel
def find_runs(lanes, which, most, bandit_out, never_clicks, out):
    """``out[j]`` = 1 + the uneventful decisions that lane ``which[j]`` comes to next."""
    lanes = Lanes(*lanes)
    for j in range(which.size):
        lane = which[j]
        out[j] = 1 + _uneventful(
            lanes.seed[lane], lanes.user[lane], lanes.n_decisions[lane], most, bandit_out, never_clicks
        )


@kernel
def skip_uneventful(lanes, which, most, bandit_out, never_clicks, out):
    """The uneventful decisions that lane ``which[j]`` comes to next happen, one unit of time apart: ``out[j]``."""
    lanes = Lanes(*lanes)
    for j in range(which.size):
        lane = which[j]
        n = _uneventful(lanes.seed[lane], lanes.user[lane], lanes.n_decisions[lane], most, bandit_out, never_clicks)
        lanes.step[lane] += n
        lanes.time[lane] += np.float64(n)
        lanes.n_decisions[lane] += n
        out[j] = n


@kernel
def advance(
    dynamics,
    tables,
    boxes,
    tiers,
    unseen,
    lanes,
    changes,
    which,
    first,
    edges,
    actions,
    propensities,
    rows,
    r,
    starts,
    scratch,
):
    """Lane by lane: begin, or answer the actions where one is awaited; then browse to the next decision or the end.

    Those of lane ``which[j]`` are edges[j]:edges[j + 1] of ``actions``: one, or several of which only the last can
    change the user's state. ``starts[j]`` becomes the first row of lane ``which[j]``. Returns (lanes finished, rows
    used); fewer lanes than given means that the rows are full: call again with more room, ``first`` being the number
    finished.
    """
    dynamics = Dynamics(*dynamics)
    tables = Tables(*tables)
    lanes = Lanes(*lanes)
    rows = Rows(*rows)
    capacity = rows.user.size
    foreseen = dynamics.unit_clock
    for j in range(first, which.size):
        lane = which[j]
        if lanes.phase[lane] == ARRIVING:
            arrive(dynamics, unseen, changes, lanes, lane)
        if lanes.phase[lane] == AWAITING:
            if r + edges[j + 1] - edges[j] > capacity:
                return j, r
            starts[j] = r
            begin = edges[j]
            last = edges[j + 1] - 1
            if foreseen and last > begin:
                _skip_uneventful(dynamics, tables, lanes, lane, rows, r, actions[begin:last], propensities[begin:last])
                r += last - begin
                begin = last
            for i in range(begin, last + 1):
                respond(dynamics, tables, changes, lanes, lane, rows, r, actions[i], propensities[i])
                r += 1
        elif lanes.step[lane] == 0:
            starts[j] = r
        r = browse(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, rows, r, scratch)
        if lanes.phase[lane] == ORGANIC:
            return j, r
    return which.size, r


@kernel
def advance_rankings(
    dynamics,
    tables,
    boxes,
    tiers,
    unseen,
    lanes,
    changes,
    reading,
    which,
    first,
    rankings,
    propensities,
    rows,
    r,
    starts,
    scratch,
):
    """Advance lanes as :func:`advance` does, by answers to rankings: rows of (n, k) ``rankings``, -1 where empty."""
    dynamics = Dynamics(*dynamics)
    tables = Tables(*tables)
    lanes = Lanes(*lanes)
    reading = Reading(*reading)
    rows = Rows(*rows)
    size = rankings.shape[1]
    for j in range(first, which.size):
        lane = which[j]
        if lanes.phase[lane] == ARRIVING:
            arrive(dynamics, unseen, changes, lanes, lane)
        if lanes.phase[lane] == AWAITING:
            if r + size > rows.user.size:
                return j, r
            starts[j] = r
            respond_to_ranking(dynamics, tables, changes, reading, lanes, lane, rows, r, rankings[j], propensities[j])
            r += size
        elif lanes.step[lane] == 0:
            starts[j] = r
        r = browse(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, rows, r, scratch)
        if lanes.phase[lane] == ORGANIC:
            return j, r
    return which.size, r


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


Waiting = namedtuple("Waiting", "uniform variance")
"""Of each lane's user: uniform (n,) of the answer at the present occasion; variance (n,) of each interest by then."""


@inner
def _views_ahead(dynamics, seed, user, state, views, decisions):
    """Count the views before the next occasion; -1 where there is none."""
    first = views
    while True:
        if state == ORGANIC:
            a, b, _c, _d = block(seed, S_ORGANIC, user, np.uint64(views))
            views += 1
            state = after_view(dynamics, None, 0, unit53(a, b))
        else:
            a, b, c, d = block(seed, S_RESPONSE, user, np.uint64(decisions))
            if unit53(a, b) < NEVER_CLICKS:
                return views - first
            decisions += 1
            state = after_answer(dynamics, None, 0, unit53(c, d))
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
def advance_to_occasion(
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
            drawn = after_answer(dynamics, None, 0, unit53(c, d))
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
            arrive(dynamics, unseen, None, lanes, lane)
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
                drawn = after_view(dynamics, None, 0, unit53(a, b))
            else:
                a, b, c, d = block(seed, S_RESPONSE, key, np.uint64(lanes.n_decisions[lane]))
                if unit53(a, b) < NEVER_CLICKS:
                    waiting.uniform[lane] = unit53(a, b)
                    break
                lanes.n_decisions[lane] += 1
                drawn = after_answer(dynamics, None, 0, unit53(c, d))
            _go_on(dynamics, lanes, waiting, lane, drawn, False)
    return which.size, r
