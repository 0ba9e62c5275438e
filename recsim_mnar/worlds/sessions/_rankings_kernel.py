# mypy: ignore-errors
"""Compiled dynamics of decisions that show a slate: how users read it, where they click, and what follows.

Browsing, clock, drift and transitions are those of single items (:mod:`._sessions_kernel`).
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel, spliced
from recsim_mnar.worlds.sessions._catalogue_kernel import was_clicked, was_shown
from recsim_mnar.worlds.sessions._sessions_kernel import (
    ORGANIC,
    S_RESPONSE,
    after_answer,
    click_probability,
    click_probability_now,
    move,
    write_answer,
)

Reading = namedtuple(
    "Reading", "cascade single continues after_click looks nodes weights attraction means clicked uniform further"
)
"""Model of how users read a slate of k positions.

``cascade``: True if users read from the top until they stop; ``single``: True if there is at most one click;
``continues`` and ``after_click``: probabilities of reading on, for cascade users; ``looks`` (k,): probability of
looking at each position, for other users. ``nodes`` and ``weights`` are a quadrature rule on [0, 1] that is exact for
polynomials of degree k - 1. Working space, (k,) each: ``attraction``, ``means``, ``clicked``, and two uniforms per
position, ``uniform`` for the click and ``further`` for reading on.
"""

S_READING = np.uint64(19)


@inner
def _two_uniforms(seed, stream, user, first, one, other):
    """Write the two uniforms of each block of random words, from block ``first`` on, to ``one`` and ``other``.

    It is a function of its own so that the compiler vectorises the loop.
    """
    for i in range(np.uint64(one.size)):
        a, b, c, d = block(seed, stream, user, first + i)
        one[i] = unit53(a, b)
        other[i] = unit53(c, d)


@inner
def expected_clicks(reading, attraction, out):
    """Write the probability of a click at each position to ``out`` (k,).

    If at most one of the attractive items is clicked, chosen uniformly, position j is clicked with probability
    p_j E[1 / (1 + M)], where M is the number of other items that attract. This is p_j times the integral over t in
    [0, 1] of the product over i != j of 1 - p_i + p_i t.

    Args:
        reading: model of reading.
        attraction: (k,) click probability of each item for a user who looks at it.
        out: (k,), written to.
    """
    size = attraction.size
    if reading.cascade:
        look = 1.0
        if reading.single:
            after = 0.0
        else:
            after = reading.after_click
        for j in range(size):
            out[j] = look * attraction[j]
            look *= (1.0 - attraction[j]) * reading.continues + attraction[j] * after
        return
    for j in range(size):
        out[j] = reading.looks[j] * attraction[j]
    if reading.single and size > 1:
        # O(k^2) products per node; products of prefixes and suffixes would be faster but need arrays, and k is small.
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
    """Write the :func:`expected_clicks` of n slates to ``out`` (n, k), for attractions (n, k)."""
    reading = Reading(*reading)
    for i in range(attraction.shape[0]):
        expected_clicks(reading, attraction[i], out[i])


@inlined
def _attraction(dynamics, tables, changes, lanes, lane, action):
    """Return the click probability of an item if the lane's user looks at it now; 0 for an empty position (-1)."""
    if action < 0:
        return 0.0
    omega = lanes.omega[lane]
    if changes is None:
        return click_probability(
            tables.click_factors, tables.click_offsets, omega, dynamics.n_factors, action, dynamics.logistic_clicks
        )
    return click_probability_now(dynamics, tables, changes, lanes, lane, action)


@inlined
def _clicked(dynamics, tables, changes, reading, lanes, lane, items):
    """Decide by the uniforms in ``reading`` which positions the lane's user clicks; return their number.

    ``reading.clicked`` becomes 1 at clicked positions and 0 elsewhere. With ``keep_truth`` the attractions of all
    positions are computed, also of those at which nobody looks.
    """
    size = items.size
    for i in range(np.uint64(size)):
        reading.clicked[i] = 0.0
    n = 0
    looking = True
    for j in range(size):
        if not looking and not dynamics.keep_truth:
            break
        uniform = reading.uniform[j]
        if reading.cascade:
            look = 1.0
        else:
            look = reading.looks[j]
        if dynamics.keep_truth or uniform < look * dynamics.never_clicks:
            attraction = _attraction(dynamics, tables, changes, lanes, lane, np.int64(items[j]))
            reading.attraction[j] = attraction
            if looking and uniform < look * attraction:
                reading.clicked[j] = 1.0
                n += 1
        if reading.cascade:
            goes_on = reading.continues
            if reading.clicked[j] > 0.0:
                if reading.single:
                    goes_on = 0.0
                else:
                    goes_on = reading.after_click
            looking = looking and reading.further[j] < goes_on
    return n


@inlined
def _keep_one(reading, n, uniform):
    """Keep one of the n clicked positions, chosen by the uniform with equal probability, and drop the others."""
    kept = min(np.int64(uniform * n), n - 1)
    seen = 0
    for j in range(reading.clicked.size):
        if reading.clicked[j] > 0.0:
            reading.clicked[j] = 1.0 if seen == kept else 0.0
            seen += 1


@spliced
def respond_to_ranking(dynamics, tables, changes, reading, lanes, lane, rows, r, items, propensities):
    """Simulate the user's answer to a slate: clicks, then the next state. Writes rows r .. r + k - 1, one per position.

    Showings are recorded for fatigue and retention after the whole slate has been read, position by position.
    ``items`` (k,) has -1 at empty positions.
    """
    size = items.size
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    decision = lanes.n_decisions[lane]
    step = lanes.step[lane]
    a, b, c, d = block(seed, S_RESPONSE, user, np.uint64(decision))
    _two_uniforms(seed, S_READING, user, np.uint64(decision * size), reading.uniform, reading.further)
    n = _clicked(dynamics, tables, changes, reading, lanes, lane, items)
    if reading.single and n > 1:
        _keep_one(reading, n, unit53(a, b))
    begin = np.uint64(r)
    for j in range(np.uint64(size)):
        here = step + np.int64(j)
        clicked = reading.clicked[j]
        write_answer(rows, begin + j, lanes.user[lane], here, lanes.time[lane], items[j], propensities[j], clicked)
    if dynamics.keep_truth:
        expected_clicks(reading, reading.attraction, reading.means)
        for j in range(size):
            rows.click_probability[r + j] = reading.means[j]
    if changes is not None:
        for j in range(size):
            if items[j] >= 0:
                was_shown(changes, lane, step + j, lanes.omega, np.int64(items[j]))
    lanes.n_decisions[lane] += 1
    lanes.step[lane] += size - 1
    state = after_answer(dynamics, changes, lane, unit53(c, d))
    if changes is not None:
        for j in range(size):
            if reading.clicked[j] > 0.0:
                was_clicked(changes, lane, lanes.omega, np.int64(items[j]))
    move(dynamics, lanes, lane, state)
    # As after a single item: after a click at any position the user browses.
    lanes.phase[lane] = ORGANIC if n > 0 else state
