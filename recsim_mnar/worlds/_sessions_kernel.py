"""Jitted dynamics of the sessions world: views, clicks, transitions, drift; written once for every face.

A user's state lies in arrays with one entry a lane. Each function below moves one lane and can stop between any two
events when the row buffer is full: the state says where to go on.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar._jit import inlined, kernel
from recsim_mnar._rng_kernel import block, exp32, exp64, normal, unit53

Dynamics = namedtuple(
    "Dynamics",
    "organic_to_bandit organic_out bandit_to_organic bandit_out sigma_initial sigma_drift drift_in_bandit "
    "unit_clock clock_mean clock_sd n_factors stale_limit keep_truth",
)
"""Scalars. ``organic_out`` and ``bandit_out`` are cumulative: probability of moving on to the other state or of
leaving.
"""

Tables = namedtuple(
    "Tables",
    "factors offsets rows order starts centre half widest top click_factors click_offsets",
)
"""The catalogue as the kernels read it. Items stand in sampling order: group g is starts[g]:starts[g + 1].

factors (L, Q) float32 with L the number of factors padded with zero rows to a multiple of five and Q the number of
items padded to a multiple of 64, so that no loop over items has a scalar remainder; offsets (Q,); rows (P, L) float32,
the same factors item by item; order (P,) int32, the item at each place; centre and half (L, G) float32, the box
of each group's factors; widest, the largest factor norm; top, the largest offset; click_factors (P, K) and
click_offsets (P,) float64 in item order.
"""

Lanes = namedtuple(
    "Lanes",
    "seed user phase step n_organic n_decisions n_drifts time omega stale known weights sums",
)
"""One entry a lane. omega (n, L) float64; stale (n, L): omega when ``weights`` (n, Q) and ``sums`` (n, G) were
made, where ``known`` is set. Without a stale sampler nothing is remembered, and all lanes share one row of weights
and sums."""

Rows = namedtuple("Rows", "user step time event item action propensity reward click_probability")

ORGANIC = 0
AWAITING = 1
GONE = 2

_S_USER = np.uint64(3)
_S_ORGANIC = np.uint64(4)
_S_VIEW = np.uint64(5)
_S_RESPONSE = np.uint64(6)
_S_CLOCK = np.uint64(7)
_S_POLICY = np.uint64(8)

_ATTEMPTS = 32
"""Proposals of the rejection sampler before it makes fresh weights; views are addressed by view * 32 + attempt."""

_NEVER_CLICKS = 0.0294
"""Above the supremum of the click probability, logistic(-3.5) = .029312: a uniform this large needs no probability."""

_FAINT = 1e-20
"""A sum of softmax weights below which the smallest ones, held at 1e-38, would no longer be negligible."""

_TILE = 16
_F = np.float32


@inlined
def _logistic(x):
    return 1.0 / (1.0 + exp64(-x))


@inlined
def click_curve(x):
    """ff(x) = s(5 s(2 s(0.3 x) - 2) - 6), s the logistic function (RecoGym v1)."""
    return _logistic(5.0 * _logistic(2.0 * _logistic(0.3 * x) - 2.0) - 6.0)


@kernel
def click_probability(click_factors, click_offsets, omega, n_factors, action):
    """Click probability of one item for a user with interests ``omega``."""
    x = click_offsets[action]
    for k in range(n_factors):
        x += click_factors[action, k] * omega[k]
    return click_curve(x)


@inlined
def _sum_of(values):
    """Sum of float32 values as float64, in eight fixed lanes: the same bits on every machine."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _F(0.0)
    n = values.size
    m = n - n % 8
    for i in range(0, m, 8):
        part = values[i : i + 8]
        s0 += part[0]
        s1 += part[1]
        s2 += part[2]
        s3 += part[3]
        s4 += part[4]
        s5 += part[5]
        s6 += part[6]
        s7 += part[7]
    total = np.float64((s0 + s4) + (s2 + s6)) + np.float64((s1 + s5) + (s3 + s7))
    for i in range(m, n):
        total += np.float64(values[i])
    return total


@kernel
def _weigh(factors, offsets, omega, shift, out):
    """Out = exp(offsets + factors' omega - shift), the factors taken five at a time; all float32."""
    n_padded, n = factors.shape
    for first in range(0, n_padded, 5):
        w0 = _F(omega[first])
        w1 = _F(omega[first + 1])
        w2 = _F(omega[first + 2])
        w3 = _F(omega[first + 3])
        w4 = _F(omega[first + 4])
        f0 = factors[first]
        f1 = factors[first + 1]
        f2 = factors[first + 2]
        f3 = factors[first + 3]
        f4 = factors[first + 4]
        if first == 0:
            if n_padded == 5:
                for p in range(n):
                    z = offsets[p] - shift + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]
                    out[p] = exp32(z)
            else:
                for p in range(n):
                    out[p] = offsets[p] - shift + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]
        elif first + 5 < n_padded:
            for p in range(n):
                out[p] = out[p] + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]
        else:
            for p in range(n):
                out[p] = exp32(out[p] + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p])


@inlined
def _pick(values, first, last, target):
    """Where in first..last-1 the running sum of values passes target, and what is left of target there."""
    i = first
    while i < last - 1 and target >= values[i]:
        target -= values[i]
        i += 1
    return i, target


@inlined
def _sum_groups(weights, starts, sums):
    """Sum of the weights of each group into ``sums``, and of all of them."""
    total = 0.0
    for g in range(starts.size - 1):
        s = _sum_of(weights[starts[g] : starts[g + 1]])
        sums[g] = _F(s)
        total += s
    return total


@kernel
def _largest_logit(tables, omega):
    """The largest logit of the items for interests ``omega``, float32."""
    n_items, n_padded = tables.rows.shape
    largest = -np.inf
    for p in range(n_items):
        z = np.float64(tables.offsets[p])
        for k in range(n_padded):
            z += np.float64(tables.rows[p, k]) * omega[k]
        largest = max(largest, z)
    return _F(largest)


@inlined
def _renew(tables, lanes, lane):
    """Make the lane's softmax weights at its present interests, and the sums of each group."""
    omega = lanes.omega[lane]
    square = 0.0
    for k in range(omega.size):
        square += omega[k] * omega[k]
    # An upper bound of the largest logit costs nothing, where the maximum would need a pass that does not vectorise.
    shift = _F(tables.top + np.sqrt(square) * tables.widest)
    row = lane % lanes.weights.shape[0]
    weights = lanes.weights[row]
    _weigh(tables.factors, tables.offsets, omega, shift, weights)
    sums = lanes.sums[row]
    total = _sum_groups(weights, tables.starts, sums)
    if total < _FAINT:
        # The bound lies so far above the largest logit that float32 loses weights: take the largest itself.
        _weigh(tables.factors, tables.offsets, omega, _largest_logit(tables, omega), weights)
        _sum_groups(weights, tables.starts, sums)
    for k in range(omega.size):
        lanes.stale[lane, k] = omega[k]
    lanes.known[lane] = True


@inlined
def _draw_fresh(tables, lanes, lane, uniform):
    """The place of an item drawn from the lane's weights as they stand."""
    row = lane % lanes.weights.shape[0]
    sums = lanes.sums[row]
    total = 0.0
    for g in range(sums.size):
        total += np.float64(sums[g])
    g, target = _pick(sums, 0, sums.size, uniform * total)
    place, _ = _pick(lanes.weights[row], tables.starts[g], tables.starts[g + 1], target)
    return place


@kernel
def _draw_stale(tables, lanes, lane, drift, bound, blocks):
    """The place of an item drawn exactly for the present interests from the weights of earlier ones, or -1.

    With d the drift since the weights e_i were made, group g (box of centre c_g and half width h_g) is proposed with
    weight S_g exp(c_g.d + h_g.|d|), an item in it in proportion to e_i, and accepted with probability
    exp((f_i - c_g).d - h_g.|d|) <= 1, so that an accepted item has probability proportional to e_i exp(f_i.d).
    """
    n_padded, n_groups = tables.centre.shape
    sums = lanes.sums[lane]
    weights = lanes.weights[lane]
    for first in range(0, n_padded, 5):
        for k in range(first, first + 5):
            w = _F(drift[k])
            a = abs(w)
            centre = tables.centre[k]
            half = tables.half[k]
            if k == 0:
                for g in range(n_groups):
                    bound[g] = w * centre[g] + a * half[g]
            else:
                for g in range(n_groups):
                    bound[g] = bound[g] + (w * centre[g] + a * half[g])
    for g in range(n_groups):
        bound[g] = sums[g] * exp32(bound[g])
    n_blocks = n_groups // _TILE
    total = 0.0
    for b in range(n_blocks):
        s = _sum_of(bound[b * _TILE : (b + 1) * _TILE])
        blocks[b] = s
        total += s
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    first_address = lanes.n_organic[lane] * _ATTEMPTS
    for attempt in range(_ATTEMPTS):
        a, b, c, d = block(seed, _S_VIEW, user, np.uint64(first_address + attempt))
        tile, target = _pick(blocks, 0, n_blocks, unit53(a, b) * total)
        g, target = _pick(bound, tile * _TILE, (tile + 1) * _TILE, target)
        scale = np.float64(sums[g]) / np.float64(bound[g])
        place, _ = _pick(weights, tables.starts[g], tables.starts[g + 1], target * scale)
        exponent = 0.0
        row = tables.rows[place]
        for k in range(n_padded):
            exponent += (np.float64(row[k]) - np.float64(tables.centre[k, g])) * drift[k]
            exponent -= np.float64(tables.half[k, g]) * abs(drift[k])
        if unit53(c, d) < exp64(exponent):
            return place
    return -1


@inlined
def _view(dynamics, tables, lanes, lane, uniform, drift, bound, blocks):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly."""
    omega = lanes.omega[lane]
    place = -1
    if dynamics.stale_limit > 0.0 and lanes.known[lane]:
        square = 0.0
        for k in range(omega.size):
            drift[k] = omega[k] - lanes.stale[lane, k]
            square += drift[k] * drift[k]
        if square <= dynamics.stale_limit:
            place = _draw_stale(tables, lanes, lane, drift, bound, blocks)
    if place < 0:
        _renew(tables, lanes, lane)
        place = _draw_fresh(tables, lanes, lane, uniform)
    return tables.order[place]


@inlined
def _move(dynamics, lanes, lane, next_state):
    """Move the clock and, where the state drawn asks for it, the user's interests."""
    dt = 1.0
    if not dynamics.unit_clock:
        a, _b, _c, _d = block(lanes.seed[lane], _S_CLOCK, np.uint64(lanes.user[lane]), np.uint64(lanes.step[lane]))
        dt = abs(dynamics.clock_mean + dynamics.clock_sd * normal(a))
    lanes.step[lane] += 1
    lanes.time[lane] += dt
    if next_state == ORGANIC or dynamics.drift_in_bandit:
        lanes.n_drifts[lane] += 1
        _drift(dynamics, lanes, lane, lanes.n_drifts[lane], dynamics.sigma_drift * dt)


@inlined
def _drift(dynamics, lanes, lane, number, scale):
    """Add scale times drift ``number`` of this user to the interests; number 0 makes the first ones."""
    n_factors = dynamics.n_factors
    first = number * ((n_factors + 3) // 4)
    for k in range(0, n_factors, 4):
        words = block(lanes.seed[lane], _S_USER, np.uint64(lanes.user[lane]), np.uint64(first + k // 4))
        lanes.omega[lane, k] += scale * normal(words[0])
        if k + 1 < n_factors:
            lanes.omega[lane, k + 1] += scale * normal(words[1])
        if k + 2 < n_factors:
            lanes.omega[lane, k + 2] += scale * normal(words[2])
        if k + 3 < n_factors:
            lanes.omega[lane, k + 3] += scale * normal(words[3])


@kernel
def _begin(dynamics, lanes, lane, seed, user):
    """A user arrives in a lane: organic, with the first interests."""
    lanes.seed[lane] = seed
    lanes.user[lane] = user
    lanes.phase[lane] = ORGANIC
    lanes.step[lane] = 0
    lanes.n_organic[lane] = 0
    lanes.n_decisions[lane] = 0
    lanes.n_drifts[lane] = 0
    lanes.time[lane] = 0.0
    lanes.known[lane] = False
    for k in range(lanes.omega.shape[1]):
        lanes.omega[lane, k] = 0.0
    _drift(dynamics, lanes, lane, 0, dynamics.sigma_initial)


@kernel
def _browse(dynamics, tables, lanes, lane, rows, r, scratch):
    """Organic events until the next decision or the end, or until the rows are full; returns the rows used so far."""
    drift, bound, blocks = scratch
    capacity = rows.user.size
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    while lanes.phase[lane] == ORGANIC and r < capacity:
        a, b, c, d = block(seed, _S_ORGANIC, user, np.uint64(lanes.n_organic[lane]))
        rows.user[r] = lanes.user[lane]
        rows.step[r] = lanes.step[lane]
        rows.time[r] = lanes.time[lane]
        rows.event[r] = 0
        rows.item[r] = _view(dynamics, tables, lanes, lane, unit53(c, d), drift, bound, blocks)
        rows.action[r] = -1
        rows.propensity[r] = np.nan
        rows.reward[r] = np.nan
        if dynamics.keep_truth:
            rows.click_probability[r] = np.nan
        r += 1
        lanes.n_organic[lane] += 1
        uniform = unit53(a, b)
        state = ORGANIC
        if uniform < dynamics.organic_to_bandit:
            state = AWAITING
        elif uniform < dynamics.organic_out:
            state = GONE
        _move(dynamics, lanes, lane, state)
        lanes.phase[lane] = state
    return r


@inlined
def _respond(dynamics, tables, lanes, lane, rows, r, action, propensity):
    """The user's answer to a recommendation: click or not, then the next state. Writes row r."""
    a, b, c, d = block(lanes.seed[lane], _S_RESPONSE, np.uint64(lanes.user[lane]), np.uint64(lanes.n_decisions[lane]))
    uniform = unit53(a, b)
    clicked = False
    if uniform < _NEVER_CLICKS or dynamics.keep_truth:
        probability = click_probability(
            tables.click_factors, tables.click_offsets, lanes.omega[lane], dynamics.n_factors, action
        )
        clicked = uniform < probability
        if dynamics.keep_truth:
            rows.click_probability[r] = probability
    rows.user[r] = lanes.user[lane]
    rows.step[r] = lanes.step[lane]
    rows.time[r] = lanes.time[lane]
    rows.event[r] = 1
    rows.item[r] = -1
    rows.action[r] = action
    rows.propensity[r] = propensity
    rows.reward[r] = 1.0 if clicked else 0.0
    lanes.n_decisions[lane] += 1
    uniform = unit53(c, d)
    state = AWAITING
    if uniform < dynamics.bandit_to_organic:
        state = ORGANIC
    elif uniform < dynamics.bandit_out:
        state = GONE
    _move(dynamics, lanes, lane, state)
    # A click brings the user back to browsing whatever was drawn; the drift followed the state that was drawn.
    lanes.phase[lane] = ORGANIC if clicked else state


@kernel
def begin(dynamics, lanes, which, seeds, users):
    """Users arrive: ``users[j]`` of ``seeds[j]`` in lane ``which[j]``."""
    for j in range(which.size):
        _begin(dynamics, lanes, which[j], seeds[j], users[j])


@kernel
def advance(dynamics, tables, lanes, which, first, actions, propensities, rows, r, starts, scratch):
    """Lane by lane: answer the action where one is awaited, then browse to the next decision or the end.

    ``starts[j]`` becomes the first row of lane ``which[j]``. Returns (lanes finished, rows used); fewer lanes than
    given means that the rows are full: call again with more room, ``first`` being the number finished.
    """
    capacity = rows.user.size
    for j in range(first, which.size):
        lane = which[j]
        if lanes.phase[lane] == AWAITING:
            if r >= capacity:
                return j, r
            starts[j] = r
            _respond(dynamics, tables, lanes, lane, rows, r, actions[j], propensities[j])
            r += 1
        elif lanes.step[lane] == 0:
            starts[j] = r
        r = _browse(dynamics, tables, lanes, lane, rows, r, scratch)
        if lanes.phase[lane] == ORGANIC:
            return j, r
    return which.size, r


@inlined
def _first_above(cumulative, u):
    """First place at which an ascending array passes u; its last entry is taken as 1."""
    low = 0
    high = cumulative.size - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > u:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def live(dynamics, tables, lanes, seed, first_user, n_users, distribution, cumulative, rows, progress, scratch):
    """Whole lives of consecutive users in lane 0 under a policy that ignores them.

    The policy takes the first action whose cumulative probability passes u, or floor(u P) where ``cumulative`` is empty
    (the uniform policy). ``progress`` is (users finished, rows used, whether a user is under way), int64; call
    again with more room until all users are finished.
    """
    capacity = rows.user.size
    n_items = tables.click_offsets.size
    r = progress[1]
    while progress[0] < n_users:
        if progress[2] == 0:
            _begin(dynamics, lanes, 0, seed, first_user + progress[0])
            progress[2] = 1
        while lanes.phase[0] != GONE:
            r = _browse(dynamics, tables, lanes, 0, rows, r, scratch)
            user = np.uint64(lanes.user[0])
            while lanes.phase[0] == AWAITING and r < capacity:
                a, b, _c, _d = block(seed, _S_POLICY, user, np.uint64(lanes.n_decisions[0]))
                u = unit53(a, b)
                if cumulative.size == 0:
                    action = min(np.int64(u * n_items), n_items - 1)
                    propensity = 1.0 / n_items
                else:
                    action = _first_above(cumulative, u)
                    propensity = distribution[action]
                _respond(dynamics, tables, lanes, 0, rows, r, action, propensity)
                r += 1
            if r >= capacity and lanes.phase[0] != GONE:
                progress[1] = r
                return
        progress[0] += 1
        progress[2] = 0
        progress[1] = r


@kernel
def click_probabilities(click_factors, click_offsets, omega, out):
    """out[i, a] = click probability of item a for interests omega[i].

    Factors (K, P), offsets (P,), omega (n, K), out (n, P).
    Term by term the sum of :func:`click_probability`, hence the same bits; the items run in the inner loops, which
    vectorise.
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
        for a in range(n_items):
            row[a] = click_curve(row[a])


@kernel
def by_user(user, first_user, place, index):
    """Index = the stable order that brings rows together whose users are first_user, first_user + 1, ...

    ``place`` is scratch of zeros, one longer than the number of users.
    """
    for i in range(user.size):
        place[user[i] - first_user + 1] += 1
    for u in range(place.size - 1):
        place[u + 1] += place[u]
    for i in range(user.size):
        u = user[i] - first_user
        index[place[u]] = i
        place[u] += 1
