# mypy: ignore-errors
"""Compiled simulation of whole trajectories under a policy that treats all users alike: the fast path of ``simulate``.

Random draws are addressed by separate counters (decision, organic event, drift), so they can be made several events in
advance and in vectors. Most recommendations have no consequence: between two decisions that may be clicked or end a
bandit session, the rows are written without examining each decision.

Transitions, clock, clicks and rows are those of ``_sessions_kernel``, but the loop differs. There the state is in
arrays and every draw is made at its event, because anything may happen in between; here the state is in registers, and
draws are made in vectors. Times per event, measured in pairs on one core, for one loop over the steps of
``_sessions_kernel`` and for this kernel: 52 and 55 ns (10 items), 79 and 79 (200), 153 and 145 (2,000 of even
popularity), 110 and 86 (2,000, uneven), 144 and 127 (200, 20 factors), 126 and 107 (truth kept), 66 and 48 (no
repeats). A test checks that both write the same bytes.
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
"""Draws made in advance.

For DECISIONS decisions: ``click`` and ``follow``, float64 uniforms of the click and of the next state; ``action``
int32; ``propensity`` float64; ``eventful`` bool, True if the decision may be clicked or ends the bandit session. For
VIEWS organic events: ``look`` and ``leave``, float64 uniforms of the item and of the next state. For DRIFTS drifts:
``words`` uint64 and ``deviates``, float64 standard normals, ordered by factor and padded to a multiple of four factors.
Working space of the same length: ``quantile``; ``tails``, the quantiles in the tails, and ``places``, their positions.
"""

# Numbers of draws made in advance at a time.
DECISIONS = 16
VIEWS = 16
DRIFTS = 16

_S_POLICY = np.uint64(8)
_ONE = np.uint64(1)
_VECTOR = 16
"""Number of tail quantiles evaluated at a time."""


@kernel
def _decide_ahead(dynamics, seed, user, first, n_items, distribution, cumulative, ahead):
    """Make the draws of decisions first .. first + DECISIONS - 1: uniforms of clicks and next states, and actions."""
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
    """Make the draws of organic events first .. first + VIEWS - 1: uniforms of items and next states."""
    leave = ahead.leave
    views = ahead.look
    base = np.uint64(first)
    for i in range(VIEWS):
        a, b, c, d = block(seed, S_ORGANIC, user, base + np.uint64(i))
        leave[i] = unit53(a, b)
        views[i] = unit53(c, d)


@kernel
def _drift_ahead(seed, user, first, n_factors, ahead):
    """Make the standard normals of drifts first .. first + DRIFTS - 1.

    ``ahead.deviates[k * DRIFTS + i]`` becomes the normal of factor k at drift first + i.
    """
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
    # First all normals are computed as if they were in the centre of the distribution, then those in the tails are
    # replaced. Neither loop has a branch, so both vectorise.
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
    # Up to a whole number of vectors; entries beyond n_tails are leftovers, valid but unused.
    padded = (n_tails + _VECTOR - 1) // _VECTOR * _VECTOR
    for j in range(padded):
        quantile[j] = normal_tail(tails[j])
    for j in range(n_tails):
        deviates[places[j]] = quantile[j]


@inlined
def _drift(omega, scale, deviates, number, n_factors):
    """Add ``scale`` times the normals of drift ``number``, counted within those made in advance, to the interests."""
    for k in range(n_factors):
        omega[k] += scale * deviates[k * DRIFTS + number]


@spliced
def _live(dynamics, tables, boxes, tiers, unseen, lanes, user, policy, rows, first_row, scratch, ahead):
    """Simulate a user's whole trajectory in lane 0, and write it from row ``first_row`` on.

    Returns:
        The row after the last one written, or -1 if there is not enough room.
    """
    distribution, cumulative = policy
    capacity = rows.user.size
    n_items = tables.click_offsets.size
    n_factors = dynamics.n_factors
    seed = lanes.seed[0]
    key = np.uint64(user)
    omega = lanes.omega[0]
    # True if decisions without consequence can be written in a row: neither time, interests nor truth need computing.
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
            # After a click the user browses, whatever state was drawn. The drift above depends on the drawn state.
            if clicked:
                state = ORGANIC
    return np.int64(r)


@kernel
def trajectories(
    dynamics, tables, boxes, tiers, unseen, lanes, seed, first_user, n_users, policy, rows, progress, scratch, ahead
):
    """Simulate whole trajectories of consecutive users, one after the other in lane 0.

    ``policy`` holds the action probabilities and their cumulative sums, of which a uniform u selects the first entry
    above u; both are empty for the uniform policy, which takes action floor(u P). ``progress`` (2,) int64 holds the
    numbers of users finished and of rows used. The function returns early if the rows are full: the caller then
    provides more room and calls again, until ``progress[0]`` is ``n_users``.
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
