"""The sessions world in plain Python: one user, one event at a time.

Written from the model and the addresses of its draws alone, without sight of the package's simulator. All it shares
with the package are the addressed random words (`recsim_mnar.rng.blocks`).
"""

import functools
import math
from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri, softmax

from recsim_mnar.rng import Stream, blocks

ORGANIC, BANDIT, GONE = "organic", "bandit", "gone"
PERIODS = 64  # of a calendar
NAN = float("nan")


EFFECTS = {
    "fatigue": {"n_items": 9, "fatigue": 0.7, "fatigue_spread": 0.3, "fatigue_of_views": 0.4, "fatigue_memory": 0.85},
    "retention": {"n_items": 14, "n_flips": 7, "retention": 1.5, "retention_memory": 0.7, "clock": "normal"},
    "influence": {"n_items": 12, "n_factors": 7, "influence": 0.4, "click_link": "logistic", "sigma_omega": 0.2},
    "calendar": {"n_items": 25, "calendar": 300.0, "arriving": 0.6, "ageing": 3.0, "trend": 2.0, "n_flips": 9},
}
"""Parameters that switch on one effect each, with which kernels of single items and of slates meet their twins."""


class Catalogue(NamedTuple):
    gamma: np.ndarray  # (P, K) organic item factors
    mu: np.ndarray  # (P,) organic offsets
    beta: np.ndarray  # (P, K) click factors
    mu_b: np.ndarray  # (P,) click offsets


class Row(NamedTuple):
    user: int
    step: int
    time: float
    event: str
    item: int
    action: int
    propensity: float
    reward: float
    click_probability: float  # exact, nan in an organic row
    omega: np.ndarray  # (K,) interests at the event


# --- draws -----------------------------------------------------------------------------------------------------------


def words(seed, stream, user, index):
    """The four 32-bit words at an address, as Python integers."""
    return [int(w) for w in blocks(seed, stream, user, index)[0]]


def u53(high, low):
    """A uniform on [0, 1) with 53 bits."""
    return ((high << 32 | low) >> 11) * 2.0**-53


def normal(word):
    return float(ndtri((word + 0.5) / 2**32))


def normal_vector(seed, stream, user, number, size):
    """Vector ``number`` of a sequence of normal vectors, each of which starts a block of its own."""
    first = number * math.ceil(size / 4)
    return np.array([normal(words(seed, stream, user, first + k // 4)[k % 4]) for k in range(size)])


# --- catalogue -------------------------------------------------------------------------------------------------------


def flipped_pairs(gamma, n_flips):
    """The pairs of items (i < j) that change places."""
    P = len(gamma)
    inner = gamma @ gamma.T
    pairs = [(i, j) for i in range(P) for j in range(i + 1, P)]
    pairs.sort(key=lambda pair: (-inner[pair], pair))
    used, chosen = set(), []
    for i, j in pairs:
        if len(chosen) == n_flips:
            break
        if i not in used and j not in used:
            chosen.append((i, j))
            used |= {i, j}
    return chosen


def catalogue(params):
    P, K, seed = params.n_items, params.n_factors, params.catalogue_seed
    gamma = np.array([normal_vector(seed, Stream.CATALOGUE, i, 0, K) for i in range(P)])
    mu = np.array([params.sigma_mu_organic * normal(words(seed, Stream.OFFSETS, i, 0)[0]) for i in range(P)])
    beta, mu_b = gamma.copy(), mu.copy()
    for i, j in flipped_pairs(gamma, params.n_flips):
        beta[i], beta[j] = gamma[j], gamma[i]
        mu_b[i], mu_b[j] = mu[j], mu[i]
    if params.normalize_beta:
        for i in range(P):
            beta[i] /= math.sqrt(sum(beta[i] ** 2))
    return Catalogue(gamma, mu, beta, mu_b)


# --- calendar --------------------------------------------------------------------------------------------------------


@functools.cache
def arrivals(n_items, seed, calendar, arriving):
    """When each item arrives: negative, by its age at time 0, if it is there from the beginning."""
    a = [u53(*words(seed, Stream.CALENDAR, i, 0)[:2]) for i in range(n_items)]
    times = [calendar * x / arriving if x < arriving else -calendar * (x - arriving) / (1 - arriving) for x in a]
    last = a.index(max(a))
    times[last] = min(times[last], 0.0)  # there from the beginning, new at time 0 if it would have arrived later
    return times


@functools.cache
def walk(seed, trend, item):
    """Where the random walk of an item's offset is in each period."""
    at = [0.0]
    for k in range(1, PERIODS):
        at.append(at[-1] + trend / 8 * normal(words(seed, Stream.CALENDAR, item, k)[0]))
    return at


def shifts(params, time):
    """What is added to each item's offsets at a time: -inf for items that have not arrived."""
    P, T, seed = params.n_items, params.calendar, params.catalogue_seed
    period = min(math.floor(time / T * PERIODS), PERIODS - 1)
    middle = (period + 0.5) * T / PERIODS
    shift = np.full(P, -np.inf)
    for i, arrival in enumerate(arrivals(P, seed, T, params.arriving)):
        if arrival <= middle:
            shift[i] = walk(seed, params.trend, i)[period] - params.ageing * (middle - arrival) / T
    return shift


# --- a user's life ---------------------------------------------------------------------------------------------------


def ff(x):
    """Click probability of a score."""
    return expit(5 * expit(2 * expit(0.3 * x) - 2) - 6)


def next_state(params, state, r, leaving=1.0):
    """The state drawn after an event, with uniform ``r``; a click's return to organic is not its concern.

    Probabilities of leaving are multiplied by ``leaving``. Since r is below 1, they need no upper limit.
    """
    if state == ORGANIC:
        if r < params.p_organic_to_bandit:
            return BANDIT
        return GONE if r < params.p_organic_to_bandit + leaving * params.p_leave_organic else ORGANIC
    if r < params.p_bandit_to_organic:
        return ORGANIC
    return GONE if r < params.p_bandit_to_organic + leaving * params.p_leave_bandit else BANDIT


def satisfaction(z, memory, gamma, omega):
    """What satisfaction ``z`` becomes when an item with organic factors ``gamma`` is recommended."""
    norm = math.sqrt(sum(omega**2))
    liking = sum(gamma * omega) / norm if norm > 0 else 0.0
    return memory * z + (1 - memory) * math.tanh(liking)


def time_step(params, seed, user, step):
    if params.clock == "unit":
        return 1.0
    assert params.clock == "normal"
    return abs(params.clock_mean + params.clock_sd * normal(words(seed, Stream.CLOCK, user, step)[0]))


def uneventful(params, seed, user, first, most):
    """How many decisions from number ``first`` on, at most ``most``, come to nothing whatever is recommended.

    ff is below expit(-3.5) < .0294: a larger uniform is no click. What follows must be the next decision.
    """
    for i in range(most):
        w = words(seed, Stream.RESPONSE, user, first + i)
        if (
            params.click_link == "logistic"
            or u53(w[0], w[1]) < 0.0294
            or next_state(params, BANDIT, u53(w[2], w[3])) != BANDIT
        ):
            return i
    return most


def view(catalogue, omega, r, seen=(), shift=0.0):
    """The first item whose cumulative view probability exceeds ``r``, those ``seen`` left out."""
    logits = catalogue.gamma @ omega + catalogue.mu + shift
    logits[list(seen)] = -np.inf
    cumulative = np.cumsum(softmax(logits))
    for item, total in enumerate(cumulative):
        if total > r:
            return item
    return int(np.flatnonzero(logits > -np.inf)[-1])  # the sum may round to just below 1


def life(params, catalogue, seed, user, act):
    """All events of one user.

    ``act(history_items, uniform) -> (action, propensity)`` sees the items the user has viewed so far, in order.
    """
    P, K = params.n_items, params.n_factors
    omega = params.sigma_omega_initial * normal_vector(seed, Stream.USER, user, 0, K)
    drifts = 0
    state, time, step = ORGANIC, 0.0, 0
    if params.calendar:
        time = params.calendar * u53(*words(seed, Stream.ARRIVAL, user, 0)[:2])
    recency, weariness, z = np.zeros(P), 0.0, 0.0
    history, decisions, rows = [], 0, []
    while state != GONE:
        clicked = False
        shift = shifts(params, time) if params.calendar else np.zeros(P)
        if state == ORGANIC:
            w = words(seed, Stream.ORGANIC, user, len(history))
            leaving = math.exp(-params.retention * z) if params.retention else 1.0
            drawn = next_state(params, ORGANIC, u53(w[0], w[1]), leaving)
            item = view(catalogue, omega, u53(w[2], w[3]), history if params.no_repeats else (), shift)
            history.append(item)
            if params.no_repeats and len(history) == params.n_items:
                drawn = GONE
            rows.append(Row(user, step, time, ORGANIC, item, -1, NAN, NAN, NAN, omega.copy()))
            if params.fatigue:
                recency[item] += params.fatigue_of_views
        else:
            w = words(seed, Stream.POLICY, user, decisions)
            action, propensity = act(history, u53(w[0], w[1]))
            link = expit if params.click_link == "logistic" else ff
            p_click = 0.0
            if shift[action] > -np.inf:
                p_click = float(link(catalogue.beta[action] @ omega + catalogue.mu_b[action] + shift[action]))
            if params.fatigue:
                tired = recency[action] + params.fatigue_spread * weariness
                p_click *= math.exp(-params.fatigue * tired)
                weariness += recency[action]
                recency[action] += 1
            leaving = 1.0
            if params.retention:
                z = satisfaction(z, params.retention_memory, catalogue.gamma[action], omega)
                leaving = math.exp(-params.retention * z)
            w = words(seed, Stream.RESPONSE, user, decisions)
            clicked = u53(w[0], w[1]) < p_click
            drawn = next_state(params, BANDIT, u53(w[2], w[3]), leaving)
            decisions += 1
            rows.append(Row(user, step, time, BANDIT, -1, action, propensity, float(clicked), p_click, omega.copy()))
        if clicked and params.influence:
            omega = (1 - params.influence) * omega + params.influence * catalogue.gamma[action]
        dt = time_step(params, seed, user, step)
        time += dt
        step += 1
        if drawn == ORGANIC or params.drift_in_bandit:
            drifts += 1
            omega = omega + params.sigma_omega * dt * normal_vector(seed, Stream.USER, user, drifts, K)
        if params.fatigue:
            recency *= params.fatigue_memory
            weariness *= params.fatigue_memory
        state = ORGANIC if clicked else drawn
    return rows


# --- policies --------------------------------------------------------------------------------------------------------


def uniform_policy(n_items):
    def act(history_items, uniform):
        return math.floor(uniform * n_items), 1 / n_items

    return act


def popular_item_policy(history_items, uniform):
    """The user's most viewed item so far, ties to the smallest index."""
    counts = Counter(history_items)
    return min(counts, key=lambda item: (-counts[item], item)), 1.0


# --- theory ----------------------------------------------------------------------------------------------------------


def expected_counts(params, c):
    """Expected (organic, bandit) events a user, n_O and n_B.

    ``c`` is the click probability averaged over bandit events: expected clicks a user / n_B. The state drawn after an
    event depends on nothing but that event's kind, so c need not be constant for these balances to be exact.

    Every bandit event is entered from an organic one, with p_ob, or from a bandit one, if there is no click and bandit
    is drawn:
        n_B = p_ob n_O + (1 - c)(1 - p_bo - l_b) n_B,  so  n_B = k n_O,  k = p_ob / (1 - (1 - c)(1 - p_bo - l_b)).
    Every user leaves exactly once: from an organic event with l_o, or from a bandit one, without a click, with l_b:
        1 = l_o n_O + (1 - c) l_b n_B,  so  n_O = 1 / (l_o + (1 - c) l_b k).
    With l_o = l_b = l that is n_O = 1 / (l + l (1 - c) k).
    """
    k = params.p_organic_to_bandit / (1 - (1 - c) * (1 - params.p_bandit_to_organic - params.p_leave_bandit))
    n_organic = 1 / (params.p_leave_organic + (1 - c) * params.p_leave_bandit * k)
    return n_organic, k * n_organic
