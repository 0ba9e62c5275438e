"""The sessions world in plain Python: one user, one event at a time.

Written from the model and the addresses of its draws alone, without sight of the package's simulator. All it shares
with the package are the addressed random words (`recsim_mnar.rng.blocks`).
"""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri, softmax

from recsim_mnar.rng import Stream, blocks

ORGANIC, BANDIT, GONE = "organic", "bandit", "gone"
NAN = float("nan")


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


# --- a user's life ---------------------------------------------------------------------------------------------------


def ff(x):
    """Click probability of a score."""
    return expit(5 * expit(2 * expit(0.3 * x) - 2) - 6)


def next_state(params, state, r):
    """The state drawn after an event, with uniform ``r``; a click's return to organic is not its concern."""
    if state == ORGANIC:
        if r < params.p_organic_to_bandit:
            return BANDIT
        return GONE if r < params.p_organic_to_bandit + params.p_leave_organic else ORGANIC
    if r < params.p_bandit_to_organic:
        return ORGANIC
    return GONE if r < params.p_bandit_to_organic + params.p_leave_bandit else BANDIT


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


def view(catalogue, omega, r, seen=()):
    """The first item whose cumulative view probability exceeds ``r``, those ``seen`` left out."""
    logits = catalogue.gamma @ omega + catalogue.mu
    logits[list(seen)] = -np.inf
    cumulative = np.cumsum(softmax(logits))
    for item, total in enumerate(cumulative):
        if total > r:
            return item
    return len(cumulative) - 1  # the sum may round to just below 1


def life(params, catalogue, seed, user, act):
    """All events of one user.

    ``act(history_items, uniform) -> (action, propensity)`` sees the items the user has viewed so far, in order.
    """
    K = params.n_factors
    omega = params.sigma_omega_initial * normal_vector(seed, Stream.USER, user, 0, K)
    drifts = 0
    state, time, step = ORGANIC, 0.0, 0
    history, decisions, rows = [], 0, []
    while state != GONE:
        clicked = False
        if state == ORGANIC:
            w = words(seed, Stream.ORGANIC, user, len(history))
            drawn = next_state(params, ORGANIC, u53(w[0], w[1]))
            item = view(catalogue, omega, u53(w[2], w[3]), history if params.no_repeats else ())
            history.append(item)
            if params.no_repeats and len(history) == params.n_items:
                drawn = GONE
            rows.append(Row(user, step, time, ORGANIC, item, -1, NAN, NAN, NAN, omega.copy()))
        else:
            w = words(seed, Stream.POLICY, user, decisions)
            action, propensity = act(history, u53(w[0], w[1]))
            link = expit if params.click_link == "logistic" else ff
            p_click = float(link(catalogue.beta[action] @ omega + catalogue.mu_b[action]))
            w = words(seed, Stream.RESPONSE, user, decisions)
            clicked = u53(w[0], w[1]) < p_click
            drawn = next_state(params, BANDIT, u53(w[2], w[3]))
            decisions += 1
            rows.append(Row(user, step, time, BANDIT, -1, action, propensity, float(clicked), p_click, omega.copy()))
        dt = time_step(params, seed, user, step)
        time += dt
        step += 1
        if drawn == ORGANIC or params.drift_in_bandit:
            drifts += 1
            omega = omega + params.sigma_omega * dt * normal_vector(seed, Stream.USER, user, drifts, K)
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
