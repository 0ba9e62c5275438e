# mypy: ignore-errors
"""Compiled dynamics of the sessions world, event by event: views, clicks, transitions and drift.

A user's state is in arrays with one entry per lane. The functions below advance one lane and can stop between any two
events if the buffer of rows is full; the state then determines where to continue. Python calls the functions of
``_lanes_kernel``, which are built from these.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, normal, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel, spliced
from recsim_mnar.worlds.sessions._catalogue_kernel import (
    arrive_changed,
    effect_of_past,
    out_of,
    period_of,
    view_in_period,
    viewed,
    was_clicked,
    was_shown,
)
from recsim_mnar.worlds.sessions._views_kernel import forget_views, sample_view

Dynamics = namedtuple(
    "Dynamics",
    "organic_to_bandit organic_out bandit_to_organic bandit_out sigma_initial sigma_drift drift_in_bandit "
    "unit_clock clock_mean clock_sd n_factors stale_limit keep_truth logistic_clicks never_clicks",
)
"""Scalar parameters of the world. ``organic_out`` and ``bandit_out`` are cumulative: the probability of changing to the
other state (``organic_to_bandit``, ``bandit_to_organic``) or leaving. ``sigma_initial`` and ``sigma_drift`` are
standard deviations of the first interests and of their drift per unit of time. ``stale_limit`` is the limit beyond
which cached weights are computed again, see ``_views_kernel``. ``never_clicks`` is an upper bound of click
probabilities: no click follows a uniform at or above it. It is above 1 if there is no useful bound.
"""

# Columns of a log, see recsim_mnar.log.schema; click_probability is empty unless truth is kept.
Rows = namedtuple("Rows", "user step time event item action propensity reward click_probability")

ORGANIC = 0
AWAITING = 1
GONE = 2
ARRIVING = 3
"""Phase of a user who has been placed in a lane and whose first events are not simulated yet."""

S_USER = np.uint64(3)
S_ORGANIC = np.uint64(4)
S_RESPONSE = np.uint64(6)
S_CLOCK = np.uint64(7)

NEVER_CLICKS = 0.0294
"""Bound above the supremum of RecoGym's click probability, 1 / (1 + e^3.5) = .029312: with a uniform at least this
large, there is no click whatever is shown, and no click probability is computed."""


@inlined
def _logistic(x):
    """Return the logistic function of x."""
    return 1.0 / (1.0 + exp64(-x))


@inlined
def click_curve(x):
    """Return RecoGym v1's click probability of a score x: s(5 s(2 s(0.3 x) - 2) - 6), s being the logistic function."""
    return _logistic(5.0 * _logistic(2.0 * _logistic(0.3 * x) - 2.0) - 6.0)


@inlined
def click_of(score, logistic):
    """Return the click probability of a score by the world's link function."""
    if logistic:
        return _logistic(score)
    return click_curve(score)


@inner
def click_score(click_factors, click_offsets, omega, n_factors, action):
    """Return the click score of one item: its click offset plus the inner product of its factors and the interests."""
    x = click_offsets[action]
    for k in range(n_factors):
        x += click_factors[action, k] * omega[k]
    return x


@inner
def click_probability(click_factors, click_offsets, omega, n_factors, action, logistic):
    """Return the click probability of one item for a user with interests ``omega``."""
    return click_of(click_score(click_factors, click_offsets, omega, n_factors, action), logistic)


@inlined
def _drawn_state(uniform, other_below, gone_below, other, same):
    """Return the next state: ``other`` for a uniform below ``other_below``, GONE below ``gone_below``, else same."""
    if uniform < other_below:
        return other
    if uniform < gone_below:
        return GONE
    return same


@inlined
def after_view(dynamics, changes, lane, uniform):
    """Return the state that follows a view, by a uniform."""
    out = dynamics.organic_out
    if changes is not None:
        out = out_of(changes, lane, dynamics.organic_to_bandit, out)
    return _drawn_state(uniform, dynamics.organic_to_bandit, out, AWAITING, ORGANIC)


@inlined
def after_answer(dynamics, changes, lane, uniform):
    """Return the state that follows a recommendation without a click, by a uniform; after a click it is ORGANIC."""
    out = dynamics.bandit_out
    if changes is not None:
        out = out_of(changes, lane, dynamics.bandit_to_organic, out)
    return _drawn_state(uniform, dynamics.bandit_to_organic, out, ORGANIC, AWAITING)


@inner
def _drawn_time(mean, sd, seed, user, step):
    """Return the time from event ``step`` to the next by a normal clock."""
    a, _b, _c, _d = block(seed, S_CLOCK, user, np.uint64(step))
    return abs(mean + sd * normal(a))


@inlined
def elapsed(dynamics, seed, user, step):
    """Return the time from event ``step`` to the next."""
    if dynamics.unit_clock:
        return 1.0
    return _drawn_time(dynamics.clock_mean, dynamics.clock_sd, seed, user, step)


@spliced
def write_view(rows, r, user, step, time, item, keep_truth):
    """Write row r of a log: a view."""
    rows.user[r] = user
    rows.step[r] = step
    rows.time[r] = time
    rows.event[r] = 0
    rows.item[r] = item
    rows.action[r] = -1
    rows.propensity[r] = np.nan
    rows.reward[r] = np.nan
    if keep_truth:
        rows.click_probability[r] = np.nan


@spliced
def write_answer(rows, r, user, step, time, action, propensity, reward):
    """Write row r of a log: a recommendation and its reward, but not the truth."""
    rows.user[r] = user
    rows.step[r] = step
    rows.time[r] = time
    rows.event[r] = 1
    rows.item[r] = -1
    rows.action[r] = action
    rows.propensity[r] = propensity
    rows.reward[r] = reward


@spliced
def move(dynamics, lanes, lane, next_state):
    """Advance the lane's step and time by one event, and let the interests drift.

    They drift if the drawn state ``next_state`` is ORGANIC, or after every event if ``drift_in_bandit``. The caller
    sets the new state.
    """
    dt = elapsed(dynamics, lanes.seed[lane], np.uint64(lanes.user[lane]), lanes.step[lane])
    lanes.step[lane] += 1
    lanes.time[lane] += dt
    if next_state == ORGANIC or dynamics.drift_in_bandit:
        lanes.n_drifts[lane] += 1
        scale = dynamics.sigma_drift * dt
        _drift(
            lanes.seed[lane],
            np.uint64(lanes.user[lane]),
            lanes.n_drifts[lane],
            scale,
            dynamics.n_factors,
            lanes.omega[lane],
        )


@inner
def _drift(seed, user, number, scale, n_factors, omega):
    """Add ``scale`` times the standard normals of drift ``number`` to the interests; drift 0 makes the first interests.

    ``normal`` is called in one place only, and this function is not inlined, because both take long to compile.
    """
    first = number * ((n_factors + 3) // 4)
    words = block(seed, S_USER, user, np.uint64(first))
    for k in range(n_factors):
        if k % 4 == 0 and k > 0:
            words = block(seed, S_USER, user, np.uint64(first + k // 4))
        omega[k] += scale * normal(words[k % 4])


@spliced
def arrive(dynamics, unseen, changes, lanes, lane):
    """Start the user placed in a lane: reset the counters, draw the first interests, and set the state to ORGANIC."""
    lanes.phase[lane] = ORGANIC
    lanes.step[lane] = 0
    lanes.n_organic[lane] = 0
    lanes.n_decisions[lane] = 0
    lanes.n_drifts[lane] = 0
    lanes.time[lane] = 0.0
    lanes.known[lane] = False
    for k in range(lanes.omega.shape[1]):
        lanes.omega[lane, k] = 0.0
    if unseen is not None:
        forget_views(unseen, lane)
    if changes is not None:
        lanes.time[lane] = arrive_changed(changes, lanes.seed[lane], np.uint64(lanes.user[lane]), lane)
    # Not a literal 0: for its type numba would compile _drift a second time.
    number = lanes.n_drifts[lane]
    scale = dynamics.sigma_initial
    _drift(lanes.seed[lane], np.uint64(lanes.user[lane]), number, scale, dynamics.n_factors, lanes.omega[lane])


@spliced
def _next_view(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, uniform, scratch):
    """Return the item that the lane's user views now, by a uniform."""
    if changes is not None:
        period = period_of(changes, lanes.time[lane])
        if period >= 0:
            return view_in_period(changes, lanes.omega[lane], period, uniform)
    return sample_view(dynamics.stale_limit, tables, boxes, tiers, unseen, lanes, lane, uniform, scratch)


@spliced
def browse(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, rows, r, scratch):
    """Simulate organic events until the next decision, the end, or the end of the room for rows.

    Returns:
        Number of rows used so far. The lane is still ORGANIC if the rows are full.
    """
    capacity = rows.user.size
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    while lanes.phase[lane] == ORGANIC and r < capacity:
        a, b, c, d = block(seed, S_ORGANIC, user, np.uint64(lanes.n_organic[lane]))
        item = _next_view(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, unit53(c, d), scratch)
        write_view(rows, r, lanes.user[lane], lanes.step[lane], lanes.time[lane], item, dynamics.keep_truth)
        r += 1
        lanes.n_organic[lane] += 1
        if changes is not None:
            viewed(changes, lane, lanes.step[lane], item)
        state = after_view(dynamics, changes, lane, unit53(a, b))
        if unseen is not None and lanes.n_organic[lane] == unseen.weights.size:  # nothing is left to view
            state = GONE
        move(dynamics, lanes, lane, state)
        lanes.phase[lane] = state
    return r


@inner
def click_probability_now(dynamics, tables, changes, lanes, lane, action):
    """Return the click probability of an item now, in a world with changes; 0 for an item that has not arrived."""
    x = click_score(tables.click_factors, tables.click_offsets, lanes.omega[lane], dynamics.n_factors, action)
    period = period_of(changes, lanes.time[lane])
    if period >= 0:
        x += changes.shift[period, action]
    if x == -np.inf:
        return 0.0
    return click_of(x, dynamics.logistic_clicks) * effect_of_past(changes, lane, lanes.step[lane], action)


@spliced
def respond(dynamics, tables, changes, lanes, lane, rows, r, action, propensity):
    """Simulate the user's answer to a recommendation: click or not, then the next state. Writes row r."""
    a, b, c, d = block(lanes.seed[lane], S_RESPONSE, np.uint64(lanes.user[lane]), np.uint64(lanes.n_decisions[lane]))
    uniform = unit53(a, b)
    clicked = False
    if changes is not None:
        probability = click_probability_now(dynamics, tables, changes, lanes, lane, np.int64(action))
        was_shown(changes, lane, lanes.step[lane], lanes.omega, np.int64(action))
        clicked = uniform < probability
        if dynamics.keep_truth:
            rows.click_probability[r] = probability
    elif uniform < dynamics.never_clicks or dynamics.keep_truth:
        probability = click_probability(
            tables.click_factors,
            tables.click_offsets,
            lanes.omega[lane],
            dynamics.n_factors,
            np.int64(action),
            dynamics.logistic_clicks,
        )
        clicked = uniform < probability
        if dynamics.keep_truth:
            rows.click_probability[r] = probability
    reward = 1.0 if clicked else 0.0
    write_answer(rows, r, lanes.user[lane], lanes.step[lane], lanes.time[lane], action, propensity, reward)
    lanes.n_decisions[lane] += 1
    state = after_answer(dynamics, changes, lane, unit53(c, d))
    if changes is not None and clicked:
        was_clicked(changes, lane, lanes.omega, np.int64(action))
    move(dynamics, lanes, lane, state)
    # After a click the user browses, whatever state was drawn. The drift above depends on the drawn state.
    lanes.phase[lane] = ORGANIC if clicked else state


@kernel
def click_probabilities(click_factors, click_offsets, omega, logistic, shift, out):
    """Write the click probability of item a for interests omega[i] to ``out[i, a]``.

    The terms are added in the same order as in :func:`click_probability`, so the bits are the same. The inner loops run
    over items, so that they vectorise.

    Args:
        click_factors: (K, P).
        click_offsets: (P,).
        omega: (n, K) interests.
        logistic: True for the logistic link, False for RecoGym's.
        shift: (n, P) shift of the offsets, -inf for an item that has not arrived; None for no shift.
        out: (n, P), written to.
    """
    n_factors, n_items = click_factors.shape
    for i in range(omega.shape[0]):
        row = out[i]
        for a in range(n_items):
            row[a] = click_offsets[a]
        for k in range(n_factors):
            w = omega[i, k]
            factors = click_factors[k]
            for a in range(n_items):
                row[a] += factors[a] * w
        if shift is not None:
            for a in range(n_items):
                row[a] += shift[i, a]
        if logistic:
            for a in range(n_items):
                row[a] = _logistic(row[a])
        else:
            for a in range(n_items):
                row[a] = click_curve(row[a])
        if shift is not None:
            for a in range(n_items):
                row[a] = 0.0 if shift[i, a] == -np.inf else row[a]


@kernel
def click_probabilities_of(click_factors, click_offsets, state, row, action, out):
    """Write the click probability of item action[i], by RecoGym's link, for interests state[row[i]] to ``out[i]``."""
    n_factors = click_factors.shape[1]
    for i in range(out.size):
        out[i] = click_probability(click_factors, click_offsets, state[row[i]], n_factors, np.int64(action[i]), False)
