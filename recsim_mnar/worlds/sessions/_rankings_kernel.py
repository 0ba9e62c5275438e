# mypy: ignore-errors
"""Jitted dynamics of sessions in which a decision is a ranking: how users read it, where they click, what follows.

Browsing, clock, drift and transitions are those of single items (:mod:`._sessions_kernel`).
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel, spliced
from recsim_mnar.worlds.sessions._catalogue_kernel import pulled, recency_of, satisfied, tired, weariness_of
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
    probability = click_probability_now(dynamics, tables, changes, lanes, lane, action)
    if changes.fatigue != 0.0:
        step = lanes.step[lane]
        worn = recency_of(changes, lane, step, action) + changes.spread * weariness_of(changes, lane, step)
        probability *= exp64(-changes.fatigue * worn)
    return probability


@inlined
def _clicked(dynamics, tables, changes, reading, lanes, lane, items):
    """Find the places that the lane's user clicks, ``reading.clicked``, by its uniforms; return their number."""
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
    """Keep one of n places that would be clicked, each as likely."""
    kept = min(np.int64(uniform * n), n - 1)
    seen = 0
    for j in range(reading.clicked.size):
        if reading.clicked[j] > 0.0:
            reading.clicked[j] = 1.0 if seen == kept else 0.0
            seen += 1


@spliced
def respond_to_ranking(dynamics, tables, changes, reading, lanes, lane, rows, r, items, propensities):
    """The user's answer to a ranking: clicks, then the next state. Writes rows r, r + 1, ..., one per place.

    What is shown is noted place by place, after all of it was read. ``items`` (k,): -1 where a place is empty.
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
                satisfied(changes, lane, lanes.omega[lane], np.int64(items[j]))
                tired(changes, lane, step + j, np.int64(items[j]))
    lanes.n_decisions[lane] += 1
    lanes.step[lane] += size - 1
    state = after_answer(dynamics, changes, lane, unit53(c, d))
    if changes is not None:
        for j in range(size):
            if reading.clicked[j] > 0.0:
                pulled(changes, lanes.omega[lane], np.int64(items[j]))
    move(dynamics, lanes, lane, state)
    # As after a single item: a click anywhere brings the user back to browsing.
    lanes.phase[lane] = ORGANIC if n > 0 else state
