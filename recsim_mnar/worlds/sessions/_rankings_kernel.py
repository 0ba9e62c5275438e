# mypy: ignore-errors
"""Jitted dynamics of sessions in which a decision is a ranking: how users read it, where they click, what follows.

Browsing, clock, drift and transitions are those of single items (:mod:`._sessions_kernel`).
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel, spliced
from recsim_mnar.worlds.sessions._changes_kernel import (
    out_of,
    period_of,
    pulled,
    recency_of,
    satisfied,
    tired,
    weariness_of,
)
from recsim_mnar.worlds.sessions._sessions_kernel import (
    ARRIVING,
    AWAITING,
    GONE,
    ORGANIC,
    S_RESPONSE,
    Dynamics,
    _drawn_state,
    _logistic,
    after_answer,
    after_view,
    arrive,
    browse,
    click_curve,
    click_probability,
    elapsed,
    move,
    write_answer,
    write_view,
)
from recsim_mnar.worlds.sessions._softmax_kernel import Lanes, Tables
from recsim_mnar.worlds.sessions._trajectories_kernel import (
    DRIFTS,
    VIEWS,
    _browse_ahead,
    _drift,
    _drift_ahead,
)
from recsim_mnar.worlds.sessions._trajectories_kernel import Ahead as Draws
from recsim_mnar.worlds.sessions._views_kernel import sample_view

Rows = namedtuple("Rows", "user step time event item action propensity reward click_probability")

Reading = namedtuple(
    "Reading", "cascade single continues after_click looks nodes weights attraction means clicked uniform further"
)
"""Flags: users read from the top until they stop; at most one click. ``looks`` (k,): probability of looking at each
place, where users do not read from the top. ``nodes`` and ``weights``, at least k/2, are those of an integral over
[0, 1], exact for polynomials of degree k - 1. Written to in passing: (k,) ``attraction``, ``means``, ``clicked`` and
the two uniforms of each place, ``uniform`` and ``further``."""

S_READING = np.uint64(19)


@inner
def _two_uniforms(seed, stream, user, first, one, other):
    """Both uniforms of each block from ``first`` on; in a function of its own, so that the loop runs in vectors."""
    for i in range(np.uint64(one.size)):
        a, b, c, d = block(seed, stream, user, first + i)
        one[i] = unit53(a, b)
        other[i] = unit53(c, d)


@inner
def expected_clicks(reading, attraction, out):
    """out[j] = probability of a click at place j, where each item attracts a user who looks with its own probability.

    Where one of several items that attract is clicked, each as likely, place j is clicked with p_j E[1 / (1 + M)],
    M being how many others attract: p_j times the integral over [0, 1] of the product of 1 - p_i + p_i t, i not j.
    """
    size = attraction.size
    if reading.cascade:
        look = 1.0
        after = 0.0 if reading.single else reading.after_click
        for j in range(size):
            out[j] = look * attraction[j]
            look *= (1.0 - attraction[j]) * reading.continues + attraction[j] * after
        return
    for j in range(size):
        out[j] = reading.looks[j] * attraction[j]
    if reading.single and size > 1:
        # Product over the others: by prefixes and suffixes it would need more room; k is small.
        for j in range(size):
            total = 0.0
            for node in range(reading.nodes.size):
                product = 1.0
                for i in range(size):
                    if i != j:
                        p = reading.looks[i] * attraction[i]
                        product *= 1.0 - p + p * reading.nodes[node]
                total += reading.weights[node] * product
            out[j] = reading.looks[j] * attraction[j] * total


@kernel
def expected_clicks_of(reading, attraction, out):
    """:func:`expected_clicks` of many rankings: attraction and out (n, k)."""
    reading = Reading(*reading)
    for i in range(attraction.shape[0]):
        expected_clicks(reading, attraction[i], out[i])


@inlined
def _attraction(dynamics, tables, changes, lanes, lane, action):
    """Click probability of an item that the lane's user looks at now, 0 of an empty place; nothing is noted."""
    if action < 0:
        return 0.0
    omega = lanes.omega[lane]
    if changes is None:
        return click_probability(
            tables.click_factors, tables.click_offsets, omega, dynamics.n_factors, action, dynamics.logistic_clicks
        )
    period = period_of(changes, lanes.time[lane])
    x = tables.click_offsets[action]
    for k in range(dynamics.n_factors):
        x += tables.click_factors[action, k] * omega[k]
    if period >= 0:
        x += changes.shift[period, action]
    if x == -np.inf:
        return 0.0
    probability = _logistic(x) if dynamics.logistic_clicks else click_curve(x)
    if changes.fatigue != 0.0:
        step = lanes.step[lane]
        worn = recency_of(changes, lane, step, action) + changes.spread * weariness_of(changes, lane, step)
        probability *= exp64(-changes.fatigue * worn)
    return probability


@inlined
def _clicked(dynamics, tables, changes, reading, lanes, lane, items):
    """Which places the lane's user clicks, by the uniforms of ``reading``: ``reading.clicked``; returns how many."""
    size = items.size
    for i in range(np.uint64(size)):
        reading.clicked[i] = 0.0
    n = 0
    looking = True
    for j in range(size):
        if not looking and not dynamics.keep_truth:
            break
        uniform = reading.uniform[j]
        look = 1.0 if reading.cascade else reading.looks[j]
        if dynamics.keep_truth or uniform < look * dynamics.never_clicks:
            attraction = _attraction(dynamics, tables, changes, lanes, lane, np.int64(items[j]))
            reading.attraction[j] = attraction
            if looking and uniform < look * attraction:
                reading.clicked[j] = 1.0
                n += 1
        if reading.cascade:
            goes_on = reading.continues
            if reading.clicked[j] > 0.0:
                goes_on = 0.0 if reading.single else reading.after_click
            looking = looking and reading.further[j] < goes_on
    return n


@inlined
def _keep_one(reading, n, uniform):
    """Of n places that would be clicked one is, each as likely."""
    kept = min(np.int64(uniform * n), n - 1)
    seen = 0
    for j in range(reading.clicked.size):
        if reading.clicked[j] > 0.0:
            reading.clicked[j] = 1.0 if seen == kept else 0.0
            seen += 1


@spliced
def _respond(dynamics, tables, changes, reading, lanes, lane, rows, r, items, kept, follows):
    """The user's answer to a ranking: clicks, then the next state. Writes rewards and the truth, from row r on.

    What is shown is noted place by place, after all of it was read. Uniforms: those of ``reading``; ``kept``, which of
    several would-be clicks remains; ``follows``, the next state.
    """
    size = items.size
    n = _clicked(dynamics, tables, changes, reading, lanes, lane, items)
    if reading.single and n > 1:
        _keep_one(reading, n, kept)
    if dynamics.keep_truth:
        expected_clicks(reading, reading.attraction, reading.means)
        for j in range(size):
            rows.click_probability[r + j] = reading.means[j]
    for j in range(size):
        rows.reward[r + j] = reading.clicked[j]
    if changes is not None:
        for j in range(size):
            if items[j] >= 0:
                satisfied(changes, lane, lanes.omega[lane], np.int64(items[j]))
                tired(changes, lane, lanes.step[lane] + j, np.int64(items[j]))
    lanes.n_decisions[lane] += 1
    lanes.step[lane] += size - 1
    if changes is not None:
        out = out_of(changes, lane, dynamics.bandit_to_organic, dynamics.bandit_out)
        state = _drawn_state(follows, dynamics.bandit_to_organic, out, ORGANIC, AWAITING)
        for j in range(size):
            if reading.clicked[j] > 0.0:
                pulled(changes, lanes.omega[lane], np.int64(items[j]))
    else:
        state = after_answer(dynamics, follows)
    move(dynamics, lanes, lane, state)
    # As after a single item: a click anywhere brings the user back to browsing.
    lanes.phase[lane] = ORGANIC if n > 0 else state


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
    """As :func:`._sessions_kernel.advance`, the answer being to a ranking: rows of (n, k) ``rankings``, -1: empty."""
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
            seed = lanes.seed[lane]
            user = np.uint64(lanes.user[lane])
            decision = lanes.n_decisions[lane]
            a, b, c, d = block(seed, S_RESPONSE, user, np.uint64(decision))
            _two_uniforms(seed, S_READING, user, np.uint64(decision * size), reading.uniform, reading.further)
            items = rankings[j]
            stated = propensities[j]
            begin = np.uint64(r)
            step = lanes.step[lane]
            time = lanes.time[lane]
            for i in range(np.uint64(size)):
                write_answer(rows, begin + i, lanes.user[lane], step + np.int64(i), time, items[i], stated[i], 0.0)
            kept = unit53(a, b)
            _respond(dynamics, tables, changes, reading, lanes, lane, rows, r, items, kept, unit53(c, d))
            r += size
        elif lanes.step[lane] == 0:
            starts[j] = r
        r = browse(dynamics, tables, boxes, tiers, unseen, changes, lanes, lane, rows, r, scratch)
        if lanes.phase[lane] == ORGANIC:
            return j, r
    return which.size, r


Places = namedtuple("Places", "slate position conditional_propensity slate_propensity set_propensity")
"""Columns of a log of rankings: :data:`recsim_mnar.log.schema.OF_RANKINGS`, null on rows of views."""

S_RANKING = np.uint64(18)

SLATES = 16
"""Decisions that are drawn ahead, side by side, so that draws are made in vectors."""

Ahead = namedtuple("Ahead", "uniforms items ordered greatest action reads further kept follows eventful")
"""Of SLATES decisions, in the last axis. By column of the ranking's uniforms: ``uniforms`` (k + 1 or k + 2, .). By
place: ``items`` int32 and, ascending, ``ordered`` (k, .); the two uniforms of the reading, ``reads`` and ``further``
(k, .). ``greatest``, scratch. ``action`` (SLATES k,), the items slate by slate. Of the answer: ``kept`` and
``follows``, its two uniforms; ``eventful`` bool: a click or a next state is possible."""

Stated = namedtuple("Stated", "marginal slate set number position conditional")
"""Propensities of an item at its place, of a slate and of its set; as SLATES slates have them one after the other, by
row: ``number`` of the slate among them, ``position`` and ``conditional`` propensity."""


@inlined
def _pass_one(taken, item, greatest):
    """``item`` moves up by one where the item taken does not exceed it; the greater of the taken ones is handed on."""
    for i in range(SLATES):
        here = taken[i]
        moved = np.int32(item[i] + np.int32(here <= item[i]))
        item[i] = moved
        taken[i] = min(here, greatest[i])
        greatest[i] = max(here, moved)


@inlined
def _pass_two(taken, next_taken, item, greatest):
    """:func:`_pass_one` twice: so much work in a loop is done in vectors."""
    for i in range(SLATES):
        here = taken[i]
        there = next_taken[i]
        moved = np.int32(item[i] + np.int32(here <= item[i]))
        high = max(here, moved)
        taken[i] = min(here, greatest[i])
        moved_on = np.int32(moved + np.int32(there <= moved))
        next_taken[i] = min(there, high)
        greatest[i] = max(there, moved_on)
        item[i] = moved_on


@inner
def _rank_ahead(seed, user, first, n_items, ahead):
    """Rankings of decisions first, first + 1, ...: every next item is each of those left with the same probability.

    Item j is number floor(u (n - j)) of the items left, ascending, u being column j + 1 of the ranking's uniforms: the
    first half of a block's words is an even column, the other half the next one. The items above are held in order:
    each one that does not exceed the number moves it up by one; those that do make room. No branch hangs on a draw.
    """
    size = ahead.items.shape[0]
    n_blocks = np.uint64(ahead.uniforms.shape[0] // 2)
    greatest = ahead.greatest
    for column in range(0, ahead.uniforms.shape[0], 2):
        even = ahead.uniforms[column]
        odd = ahead.uniforms[column + 1]
        base = np.uint64(first) * n_blocks + np.uint64(column // 2)
        for i in range(SLATES):
            a, b, c, d = block(seed, S_RANKING, user, base + np.uint64(i) * n_blocks)
            even[i] = unit53(a, b)
            odd[i] = unit53(c, d)
    for j in range(size):
        uniform = ahead.uniforms[j + 1]
        item = ahead.items[j]
        left = np.float64(n_items - j)
        for i in range(SLATES):
            item[i] = np.int32(uniform[i] * left)
            greatest[i] = item[i]
        for place in range(0, j - 1, 2):
            _pass_two(ahead.ordered[place], ahead.ordered[place + 1], item, greatest)
        if j % 2 == 1:
            _pass_one(ahead.ordered[j - 1], item, greatest)
        ordered = ahead.ordered[j]
        for i in range(SLATES):
            ordered[i] = greatest[i]
    k = np.uint64(size)
    for j in range(k):
        item = ahead.items[j]
        for i in range(SLATES):
            ahead.action[np.uint64(i) * k + j] = item[i]


@inner
def _read_ahead(dynamics, reading, seed, user, first, ahead):
    """Draws of the answers to decisions first, first + 1, ..., and which of these can come to anything."""
    size = ahead.items.shape[0]
    kept = ahead.kept
    follows = ahead.follows
    eventful = ahead.eventful
    base = np.uint64(first)
    for i in range(SLATES):
        a, b, c, d = block(seed, S_RESPONSE, user, base + np.uint64(i))
        kept[i] = unit53(a, b)
        follows[i] = unit53(c, d)
    for i in range(SLATES):
        eventful[i] = follows[i] < dynamics.bandit_out
    a_slate = np.uint64(size)
    for j in range(size):
        reads = ahead.reads[j]
        further = ahead.further[j]
        base = np.uint64(first) * a_slate + np.uint64(j)
        if reading.cascade:
            for i in range(SLATES):
                a, b, c, d = block(seed, S_READING, user, base + np.uint64(i) * a_slate)
                reads[i] = unit53(a, b)
                further[i] = unit53(c, d)
        else:  # half of the words are not needed
            for i in range(SLATES):
                a, b, _c, _d = block(seed, S_READING, user, base + np.uint64(i) * a_slate)
                reads[i] = unit53(a, b)
        look = 1.0 if reading.cascade else reading.looks[j]
        below = look * dynamics.never_clicks
        for i in range(SLATES):
            eventful[i] |= reads[i] < below


@inlined
def _show(rows, places, stated, ahead, begin, n, shown, user, decision, step, time):
    """Write n rows from ``begin`` on, of slates one unit of time apart that are not clicked; the first is ``shown``.

    A loop for each column or two: all in one have many arrays to keep apart before they run in vectors.
    """
    first = np.uint64(begin)
    n = np.uint64(n)
    skipped = np.uint64(shown)
    for i in range(n):
        rows.user[first + i] = user
    for i in range(n):
        rows.step[first + i] = np.int32(step + np.int64(i))
    for i in range(n):
        rows.time[first + i] = time + np.float64(stated.number[i])
    for i in range(n):
        rows.event[first + i] = 1
    for i in range(n):
        rows.item[first + i] = -1
    for i in range(n):
        rows.action[first + i] = ahead.action[skipped + i]
    for i in range(n):
        rows.propensity[first + i] = stated.marginal
    for i in range(n):
        rows.reward[first + i] = 0.0
    for i in range(n):
        places.slate[first + i] = np.int32(decision + np.int64(stated.number[i]))
    for i in range(n):
        places.position[first + i] = stated.position[i]
    for i in range(n):
        places.conditional_propensity[first + i] = stated.conditional[i]
    for i in range(n):
        places.slate_propensity[first + i] = stated.slate
    for i in range(n):
        places.set_propensity[first + i] = stated.set


@spliced
def _browse_foreseen(dynamics, tables, boxes, tiers, unseen, lanes, rows, r, scratch, draws, drawn):
    """As ``_browse`` of the first lane, where nothing that is shown matters later, by draws made ahead.

    ``drawn``: which DRIFTS drifts are in ``draws``, -1 for none. Returns the rows used so far, and ``drawn``.
    """
    capacity = rows.user.size
    seed = lanes.seed[0]
    user = np.uint64(lanes.user[0])
    while lanes.phase[0] == ORGANIC and r < capacity:
        views = lanes.n_organic[0]
        j = views % VIEWS
        if j == 0:
            _browse_ahead(seed, user, views, draws)
        item = sample_view(dynamics.stale_limit, tables, boxes, tiers, unseen, lanes, 0, draws.look[j], scratch)
        write_view(rows, r, lanes.user[0], lanes.step[0], lanes.time[0], item, dynamics.keep_truth)
        r += 1
        lanes.n_organic[0] = views + 1
        state = after_view(dynamics, draws.leave[j])
        if unseen is not None and views + 1 == unseen.weights.size:  # nothing is left to view
            state = GONE
        dt = elapsed(dynamics, seed, user, lanes.step[0])
        lanes.step[0] += 1
        lanes.time[0] += dt
        if state == ORGANIC or dynamics.drift_in_bandit:
            lanes.n_drifts[0] += 1
            number = lanes.n_drifts[0]
            if number // DRIFTS != drawn:
                drawn = number // DRIFTS
                _drift_ahead(seed, user, drawn * DRIFTS, dynamics.n_factors, draws)
            _drift(lanes.omega[0], dynamics.sigma_drift * dt, draws.deviates, number % DRIFTS, dynamics.n_factors)
        lanes.phase[0] = state
    return r, drawn


@kernel
def uniform_lives(
    dynamics,
    tables,
    boxes,
    tiers,
    unseen,
    lanes,
    changes,
    reading,
    stated,
    seed,
    first_user,
    goal,
    rows,
    places,
    progress,
    scratch,
    items,
    ahead,
    draws,
):
    """Whole lives of users under uniform rankings, one after the other in the first lane, from progress[0] on.

    ``items`` (k,) is written to in passing. ``progress``: users done and rows used; where the rows are full the user at
    hand is begun again with more room. Decisions that come to nothing are shown without a question asked.
    """
    dynamics = Dynamics(*dynamics)
    tables = Tables(*tables)
    lanes = Lanes(*lanes)
    reading = Reading(*reading)
    stated = Stated(*stated)
    rows = Rows(*rows)
    places = Places(*places)
    ahead = Ahead(*ahead)
    draws = Draws(*draws)
    size = items.size
    capacity = rows.user.size
    quiet = changes is None and dynamics.unit_clock and not (dynamics.drift_in_bandit or dynamics.keep_truth)
    lanes.seed[0] = seed
    for number in range(progress[0], goal):
        r = progress[1]
        lanes.user[0] = first_user + number
        user = np.uint64(lanes.user[0])
        drawn = np.int64(-1)
        arrive(dynamics, unseen, changes, lanes, 0)
        while lanes.phase[0] == ORGANIC or lanes.phase[0] == AWAITING:
            while lanes.phase[0] == AWAITING:
                decision = lanes.n_decisions[0]
                j = decision % SLATES
                if j == 0:
                    _rank_ahead(seed, user, decision, tables.click_offsets.size, ahead)
                    _read_ahead(dynamics, reading, seed, user, decision, ahead)
                last = j
                if quiet:
                    while last < SLATES and not ahead.eventful[last]:
                        last += 1
                n = (min(last + 1, SLATES) - j) * size
                if r + n > capacity:
                    return
                step = lanes.step[0]
                time = lanes.time[0]
                _show(rows, places, stated, ahead, r, n, j * size, lanes.user[0], decision, step, time)
                r += (last - j) * size
                lanes.n_decisions[0] += last - j
                lanes.step[0] += (last - j) * size
                lanes.time[0] += np.float64(last - j)
                if last < SLATES:
                    for i in range(size):
                        items[i] = ahead.items[i, last]
                        reading.uniform[i] = ahead.reads[i, last]
                        reading.further[i] = ahead.further[i, last]
                    kept = ahead.kept[last]
                    _respond(dynamics, tables, changes, reading, lanes, 0, rows, r, items, kept, ahead.follows[last])
                    r += size
            viewed = r
            if changes is None:
                r, drawn = _browse_foreseen(
                    dynamics, tables, boxes, tiers, unseen, lanes, rows, r, scratch, draws, drawn
                )
            else:
                r = browse(dynamics, tables, boxes, tiers, unseen, changes, lanes, 0, rows, r, scratch)
            for i in range(viewed, r):
                places.slate[i] = -1
                places.position[i] = -1
                places.conditional_propensity[i] = np.nan
                places.slate_propensity[i] = np.nan
                places.set_propensity[i] = np.nan
            if lanes.phase[0] == ORGANIC:
                return
        progress[0] = number + 1
        progress[1] = r
