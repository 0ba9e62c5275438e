# mypy: ignore-errors
"""Compiled entry points that advance lanes: to the next decision, by one step of all lanes, or to the next occasion.

Python passes plain tuples, because passing a named tuple takes numba three times as long; the functions restore the
names. The behaviour of users is in ``_sessions_kernel``, and how they read slates in ``_rankings_kernel``.

:func:`advance_to_occasion` stops only at decisions that may be clicked. No click probability reaches ``NEVER_CLICKS``,
so a decision whose uniform is at least this large is not clicked, whatever is shown; the other decisions are
*occasions*. The number of views before the next occasion depends neither on interests nor on recommendations. It is
computed first, and a user without another occasion leaves at once, so that no views are drawn in vain.
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
"""Number of decisions whose draws are examined at a time, in vectors."""


@inlined
def _skip_uneventful(dynamics, tables, lanes, lane, rows, r, actions, propensities):
    """Write uneventful decisions, one unit of time apart, to rows r, r + 1, ..., and advance the lane's counters."""
    n = np.uint64(actions.size)
    if dynamics.keep_truth:
        # Interests do not change in between, so the probability is computed once for consecutive equal items.
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
    """Return how many decisions from ``first`` on can neither be clicked nor end the bandit session, at most ``most``.

    The draws of several decisions are made in vectors; the first eventful decision is found as a minimum.
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
    """Write 1 plus the number of uneventful decisions to which lane ``which[j]`` comes next to ``out[j]``."""
    lanes = Lanes(*lanes)
    for j in range(which.size):
        lane = which[j]
        out[j] = 1 + _uneventful(
            lanes.seed[lane], lanes.user[lane], lanes.n_decisions[lane], most, bandit_out, never_clicks
        )


@kernel
def skip_uneventful(lanes, which, most, bandit_out, never_clicks, out):
    """Skip the uneventful decisions to which lane ``which[j]`` comes next, and write their number to ``out[j]``.

    They are one unit of time apart.
    """
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
    """Advance lanes one after the other up to the next decision or the end of the user.

    A new user arrives first; a user who waits for a decision first answers actions edges[j]:edges[j + 1], one, or
    several of which only the last can change the user's state. ``starts[j]`` becomes the first row of lane
    ``which[j]``.

    Returns:
        The number of lanes finished and the number of rows used. If not all lanes are finished, the rows are full: the
        caller provides more room and calls again with both numbers as ``first`` and ``r``.
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
    """Advance lanes as :func:`advance` does, in a world of slates.

    Users who wait for a decision answer the rankings ``rankings[j]``, (n, k), in which -1 is an empty position.
    """
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
"""Fields of :class:`recsim_mnar.worlds.lanes.Moves`, where they are documented."""


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
    """Step or reset lanes ``first`` .. ``end`` - 1, see :meth:`recsim_mnar.worlds.lanes.Lanes.step_at_once`.

    ``limit`` is the largest number of steps of an episode, 0 for no limit. The rows of a lane are starts[lane] :
    starts[lane + 1]; they are its views, for the row of an answer is overwritten by the next view.

    Returns:
        The lane after the last finished one, the number of rows used, and the number of lanes that are still ended. If
        the first is less than ``end``, the rows are full: the caller provides more room and calls again with these
        numbers as ``first``, ``r`` and ``left``.
    """
    dynamics = Dynamics(*dynamics)
    tables = Tables(*tables)
    lanes = Lanes(*lanes)
    moves = Moves(*moves)
    rows = Rows(*rows)
    n_items = moves.counts.shape[1]
    for lane in range(first, end):
        arrives = moves.ended[lane]
        if lanes.phase[lane] != ORGANIC:  # ORGANIC: the rows were full in the call before, which has begun this step
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
"""State of each lane's user at the present occasion: ``uniform`` (n,) that decides the click, and ``variance`` (n,) of
each interest."""


@inner
def _views_ahead(dynamics, seed, user, state, views, decisions):
    """Return the number of views before the next occasion, -1 if the user leaves without another one.

    ``state`` is the user's present state, ``views`` and ``decisions`` are the numbers of the next view and decision.
    """
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
    """Advance a lane by one event to the drawn ``state``, or to ORGANIC after a click, and update the variance."""
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
    """Advance lanes one after the other up to the next occasion or the end of the user.

    A new user arrives first; any other user first answers the present occasion by ``clicked[j]``. The items viewed
    meanwhile are written to ``items`` (int32) from ``starts[j]`` on; without ``draws_views`` none are drawn.

    Returns:
        The number of lanes finished and the number of items used. If not all lanes are finished, ``items`` is full: the
        caller provides more room and calls again with both numbers as ``first`` and ``r``.
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
