# mypy: ignore-errors
"""Jitted whole lives of the sessions world under a policy that ignores its users: the fast path of ``simulate``.

The draws of a life are addressed by counters of their own (decision, organic event, drift), so they can be made some
events ahead, many side by side; and of the recommendations all but a few do nothing but follow one another: between two
that may be clicked or that end a bandit session, rows are written without a question asked.

What follows what, the clock, clicks and rows are those of ``_sessions_kernel``; the loop is not. There the state is in
arrays and every draw is made at its event, because anything may happen in between; here it is in registers, and draws
come in vectors. Measured in pairs on one core: whole lives in one loop over the steps of ``_sessions_kernel`` take 52
ns per event where this kernel takes 55 (10 items), 79 where 79 (200), but 153 where 145 (2,000 of even popularity),
110 where 86 (2,000, uneven), 144 where 127 (200, 20 factors), 126 where 107 (truth kept) and 66 where 48 (no repeats).
A test holds both to the same bytes.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, centred, in_tail, normal_centre, normal_tail, unit53
from recsim_mnar.kernels._vectors_kernel import first_above
from recsim_mnar.kernels.jit import inlined, kernel, spliced
from recsim_mnar.worlds.sessions._sessions_kernel import (
    AWAITING,
    GONE,
    ORGANIC,
    S_ORGANIC,
    S_RESPONSE,
    S_USER,
    after_answer,
    after_view,
    click_probability,
    elapsed,
    write_answer,
    write_view,
)
from recsim_mnar.worlds.sessions._views_kernel import forget_views, sample_view

Ahead = namedtuple("Ahead", "click follow action propensity eventful look leave words deviates quantile tails places")
"""Draws made ahead. Of DECISIONS decisions: click and follow (float64 uniforms of the answer and of the next state),
action int32, propensity float64, eventful bool; of VIEWS organic events: look and leave, uniforms; of DRIFTS drifts:
words (uint64) and deviates (float64 normals), factor-major, room for four factors a block; quantile, scratch; tails
and places, the quantiles in the tails and where they belong; all as long as the deviates."""

DECISIONS = 16
VIEWS = 16
DRIFTS = 16

_S_POLICY = np.uint64(8)
_ONE = np.uint64(1)
_VECTOR = 16


@kernel
def _decide_ahead(dynamics, seed, user, first, n_items, distribution, cumulative, ahead):
    """Answers, next states and actions of decisions first, first + 1, ..."""
    click = ahead.click
    follow = ahead.follow
    action = ahead.action
    propensity = ahead.propensity
    eventful = ahead.eventful
    base = np.uint64(first)
    for i in range(DECISIONS):
        a, b, c, d = block(seed, S_RESPONSE, user, base + np.uint64(i))
        click[i] = unit53(a, b)
        follow[i] = unit53(c, d)
    for i in range(DECISIONS):
        eventful[i] = (click[i] < dynamics.never_clicks) | (follow[i] < dynamics.bandit_out)
    if cumulative.size == 0:
        scale = np.float64(n_items)
        last = np.int32(n_items - 1)
        probability = 1.0 / n_items
        for i in range(DECISIONS):
            a, b, _c, _d = block(seed, _S_POLICY, user, base + np.uint64(i))
            action[i] = min(np.int32(unit53(a, b) * scale), last)
            propensity[i] = probability
    else:
        for i in range(DECISIONS):
            a, b, _c, _d = block(seed, _S_POLICY, user, base + np.uint64(i))
            chosen = first_above(cumulative, unit53(a, b))
            action[i] = chosen
            propensity[i] = distribution[chosen]


@kernel
def _browse_ahead(seed, user, first, ahead):
    """Uniforms of organic events first, first + 1, ..."""
    leave = ahead.leave
    views = ahead.look
    base = np.uint64(first)
    for i in range(VIEWS):
        a, b, c, d = block(seed, S_ORGANIC, user, base + np.uint64(i))
        leave[i] = unit53(a, b)
        views[i] = unit53(c, d)


@kernel
def _drift_ahead(seed, user, first, n_factors, ahead):
    """Normals of drifts first, first + 1, ...: ``deviates[k * DRIFTS + i]`` moves factor k at drift first + i."""
    words = ahead.words
    deviates = ahead.deviates
    tails = ahead.tails
    places = ahead.places
    quantile = ahead.quantile
    a_drift = np.uint64((n_factors + 3) // 4)
    for k in range(0, n_factors, 4):
        base = np.uint64(first) * a_drift + np.uint64(k // 4)
        w0 = words[k * DRIFTS : (k + 1) * DRIFTS]
        w1 = words[(k + 1) * DRIFTS : (k + 2) * DRIFTS]
        w2 = words[(k + 2) * DRIFTS : (k + 3) * DRIFTS]
        w3 = words[(k + 3) * DRIFTS : (k + 4) * DRIFTS]
        for i in range(DRIFTS):
            a, b, c, d = block(seed, S_USER, user, base + np.uint64(i) * a_drift)
            w0[i] = a
            w1[i] = b
            w2[i] = c
            w3[i] = d
    # All as if from the middle of the distribution, then the few of the tails again: neither loop has a branch.
    n_tails = 0
    for k in range(n_factors):
        these = words[k * DRIFTS : (k + 1) * DRIFTS]
        middle = deviates[k * DRIFTS : (k + 1) * DRIFTS]
        for i in range(DRIFTS):
            q = centred(these[i])
            quantile[i] = q
            middle[i] = normal_centre(q)
        for i in range(DRIFTS):
            tails[n_tails] = quantile[i]
            places[n_tails] = k * DRIFTS + i
            n_tails += np.int64(in_tail(quantile[i]))
    # To a whole number of vectors; what stands beyond n_tails are earlier quantiles.
    padded = (n_tails + _VECTOR - 1) // _VECTOR * _VECTOR
    for j in range(padded):
        quantile[j] = normal_tail(tails[j])
    for j in range(n_tails):
        deviates[places[j]] = quantile[j]


@inlined
def _drift(omega, scale, deviates, number, n_factors):
    """Add scale times drift ``number`` of those made ahead to the interests."""
    for k in range(n_factors):
        omega[k] += scale * deviates[k * DRIFTS + number]


@spliced
def _live(dynamics, tables, boxes, tiers, unseen, lanes, user, policy, rows, first_row, scratch, ahead):
    """One user's life in lane 0 from row ``first_row`` on; returns the row after its last, or -1 where rows ran out."""
    distribution, cumulative = policy
    capacity = rows.user.size
    n_items = tables.click_offsets.size
    n_factors = dynamics.n_factors
    seed = lanes.seed[0]
    key = np.uint64(user)
    omega = lanes.omega[0]
    # Where every event may change something no row can be written unasked.
    quiet = dynamics.unit_clock and not (dynamics.drift_in_bandit or dynamics.keep_truth)
    step = 0
    time = 0.0
    views = 0
    decisions = 0
    drifts = 0
    _drift_ahead(seed, key, 0, n_factors, ahead)
    for k in range(omega.size):
        omega[k] = 0.0
    _drift(omega, dynamics.sigma_initial, ahead.deviates, 0, n_factors)
    lanes.known[0] = False
    if unseen is not None:
        forget_views(unseen, 0)
    state = ORGANIC
    r = np.uint64(first_row)
    while state != GONE:
        while state == ORGANIC:
            if r >= capacity:
                return -1
            j = views % VIEWS
            if j == 0:
                _browse_ahead(seed, key, views, ahead)
            lanes.n_organic[0] = views
            item = sample_view(dynamics.stale_limit, tables, boxes, tiers, unseen, lanes, 0, ahead.look[j], scratch)
            write_view(rows, r, user, step, time, item, dynamics.keep_truth)
            r += _ONE
            views += 1
            state = after_view(dynamics, None, 0, ahead.leave[j])
            if unseen is not None and views == unseen.weights.size:  # nothing is left to view
                state = GONE
            dt = elapsed(dynamics, seed, key, step)
            step += 1
            time += dt
            if state == ORGANIC or dynamics.drift_in_bandit:
                drifts += 1
                if drifts % DRIFTS == 0:
                    _drift_ahead(seed, key, drifts, n_factors, ahead)
                _drift(omega, dynamics.sigma_drift * dt, ahead.deviates, drifts % DRIFTS, n_factors)
        while state == AWAITING:
            j = decisions % DECISIONS
            if j == 0:
                _decide_ahead(dynamics, seed, key, decisions, n_items, distribution, cumulative, ahead)
            first = j
            if quiet:
                while j < DECISIONS and not ahead.eventful[j]:
                    j += 1
            if r + np.uint64(j - first) >= capacity:
                return -1
            for i in range(first, j):
                made = np.uint64(i)
                write_answer(rows, r, user, step, time, ahead.action[made], ahead.propensity[made], 0.0)
                r += _ONE
                step += 1
                time += 1.0
            decisions += j - first
            if j == DECISIONS:
                continue
            action = np.int64(ahead.action[j])
            clicked = False
            if ahead.click[j] < dynamics.never_clicks or dynamics.keep_truth:
                probability = click_probability(
                    tables.click_factors, tables.click_offsets, omega, n_factors, action, dynamics.logistic_clicks
                )
                clicked = ahead.click[j] < probability
                if dynamics.keep_truth:
                    rows.click_probability[r] = probability
            write_answer(rows, r, user, step, time, action, ahead.propensity[j], 1.0 if clicked else 0.0)
            r += _ONE
            decisions += 1
            state = after_answer(dynamics, None, 0, ahead.follow[j])
            dt = elapsed(dynamics, seed, key, step)
            step += 1
            time += dt
            if state == ORGANIC or dynamics.drift_in_bandit:
                drifts += 1
                if drifts % DRIFTS == 0:
                    _drift_ahead(seed, key, drifts, n_factors, ahead)
                _drift(omega, dynamics.sigma_drift * dt, ahead.deviates, drifts % DRIFTS, n_factors)
            # A click brings the user back to browsing whatever was drawn; the drift followed the state that was drawn.
            if clicked:
                state = ORGANIC
    return np.int64(r)


@kernel
def trajectories(
    dynamics, tables, boxes, tiers, unseen, lanes, seed, first_user, n_users, policy, rows, progress, scratch, ahead
):
    """Whole lives of consecutive users in lane 0 under a policy that ignores them.

    policy: probabilities and their cumulative sums. It takes the first action whose sum passes u, or floor(u P) where
    they are empty (the uniform policy). ``progress`` is (users finished, rows used), int64; call again with more room
    until all users are finished.
    """
    lanes.seed[0] = seed
    while progress[0] < n_users:
        user = first_user + progress[0]
        lanes.user[0] = user
        end = _live(dynamics, tables, boxes, tiers, unseen, lanes, user, policy, rows, progress[1], scratch, ahead)
        if end < 0:
            return
        progress[0] += 1
        progress[1] = end
