"""Rankings in the sessions world in plain Python: one user, one slate, one place at a time.

Written from docs/worlds/slates.md and the addresses of the draws alone, without sight of the package's simulator.
What it shares with the twin of single items are catalogue, views, clock and the table of states.
"""

import itertools
import math
from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from recsim_mnar.rng import Stream
from twins.sessions import (
    BANDIT,
    GONE,
    NAN,
    ORGANIC,
    ff,
    next_state,
    normal_vector,
    satisfaction,
    shifts,
    time_step,
    u53,
    view,
    words,
)


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
    slate: int
    position: int
    conditional_propensity: float
    slate_propensity: float
    set_propensity: float


class Stated(NamedTuple):
    """How likely a ranking was."""

    marginal: list  # by place
    conditional: list  # by place
    slate: float
    set: float


# --- how users read --------------------------------------------------------------------------------------------------


def looking(params, place):
    """Chance of a look at a place, from 0, whatever happens elsewhere: of all but cascade users."""
    return 1.0 if params.user_model == "independent" else float(place + 1) ** -params.examination


def click_patterns(params, attraction):
    """The law of what is clicked: {(0, 1, 0): probability, ...}, by way of all that may happen.

    Args:
        params: of the world.
        attraction: click probability of each item for a user who looks at it, from the top.
    """
    k, law = len(attraction), Counter()
    if params.user_model == "cascade":

        def look_on(above, chance):
            """What comes of a look at the place below ``above``, which happens with this chance."""
            place = len(above)
            for click, p in ((1, attraction[place]), (0, 1.0 - attraction[place])):
                go_on = params.continues
                if click:
                    go_on = 0.0 if params.clicks == "one" else params.continues_after_click
                if place == k - 1:
                    go_on = 0.0
                law[(*above, click) + (0,) * (k - 1 - place)] += chance * p * (1.0 - go_on)
                if go_on > 0.0:
                    look_on((*above, click), chance * p * go_on)

        look_on((), 1.0)
        return law
    would_click = [looking(params, j) * p for j, p in enumerate(attraction)]
    for pattern in itertools.product((0, 1), repeat=k):
        chance = math.prod(q if hit else 1.0 - q for hit, q in zip(pattern, would_click, strict=True))
        places = [j for j in range(k) if pattern[j]]
        if params.clicks == "several" or not places:
            law[pattern] += chance
            continue
        for remaining in places:
            law[tuple(int(j == remaining) for j in range(k))] += chance / len(places)
    return law


def place_means(params, attraction):
    """The click probability of each place."""
    law = click_patterns(params, attraction)
    return [math.fsum(p for pattern, p in law.items() if pattern[j]) for j in range(len(attraction))]


def would_be_clicks(params, seed, user, number, attraction):
    """Places of slate ``number`` that a user who does not read in a cascade looks at and is attracted by."""
    k, found = len(attraction), []
    for j, p in enumerate(attraction):
        w = words(seed, Stream.READING, user, number * k + j)
        if u53(w[0], w[1]) < looking(params, j) * p:
            found.append(j)
    return found


def clicked_places(params, seed, user, number, attraction):
    """Places that a user clicks in slate ``number``, from the top."""
    k = len(attraction)
    if params.user_model != "cascade":
        found = would_be_clicks(params, seed, user, number, attraction)
        if params.clicks == "one" and len(found) > 1:
            w = words(seed, Stream.RESPONSE, user, number)
            found = [found[math.floor(len(found) * u53(w[0], w[1]))]]
        return found
    found = []
    for j, p in enumerate(attraction):
        w = words(seed, Stream.READING, user, number * k + j)
        click = u53(w[0], w[1]) < p
        if click:
            found.append(j)
            if params.clicks == "one":
                break
        if u53(w[2], w[3]) >= (params.continues_after_click if click else params.continues):
            break
    return found


def policy_uniforms(seed, user, number, k):
    """The k + 1 uniforms of a policy for slate ``number``: two from each block of words."""
    blocks_each = (k + 2) // 2
    uniforms = []
    for c in range(k + 1):
        w = words(seed, Stream.RANKING, user, number * blocks_each + c // 2)
        uniforms.append(u53(w[0], w[1]) if c % 2 == 0 else u53(w[2], w[3]))
    return uniforms


# --- a user's life ---------------------------------------------------------------------------------------------------


def life(params, catalogue, seed, user, policy):
    """All events of one user; ``policy`` has the methods of :class:`MostViewedOrAny`."""
    P, K, k = params.n_items, params.n_factors, params.slate_size
    omega = params.sigma_omega_initial * normal_vector(seed, Stream.USER, user, 0, K)
    state, time, step = ORGANIC, 0.0, 0
    if params.calendar:
        time = params.calendar * u53(*words(seed, Stream.ARRIVAL, user, 0)[:2])
    recency, weariness, z = [0.0] * P, 0.0, 0.0
    history, slates, drifts, rows = [], 0, 0, []

    def leaving():
        return math.exp(-params.retention * z) if params.retention else 1.0

    while state != GONE:
        shift = shifts(params, time) if params.calendar else np.zeros(P)
        clicked = []  # items
        if state == ORGANIC:
            w = words(seed, Stream.ORGANIC, user, len(history))
            drawn = next_state(params, ORGANIC, u53(w[0], w[1]), leaving())
            item = view(catalogue, omega, u53(w[2], w[3]), history if params.no_repeats else (), shift)
            history.append(item)
            if params.no_repeats and len(history) == P:
                drawn = GONE
            rows.append(Row(user, step, time, ORGANIC, item, -1, NAN, NAN, NAN, -1, -1, NAN, NAN, NAN))
            last = step
            if params.fatigue:
                recency[item] += params.fatigue_of_views
                recency, weariness = [params.fatigue_memory * m for m in recency], params.fatigue_memory * weariness
        else:
            ranking = policy.rank(history, policy_uniforms(seed, user, slates, k))
            stated = policy.stated(history, ranking)
            attraction = []
            for item in ranking:
                link = expit if params.click_link == "logistic" else ff
                p = float(link(catalogue.beta[item] @ omega + catalogue.mu_b[item] + shift[item]))
                if shift[item] == -np.inf:
                    p = 0.0  # has not arrived
                if params.fatigue:
                    p *= math.exp(-params.fatigue * (recency[item] + params.fatigue_spread * weariness))
                attraction.append(p)
            places = clicked_places(params, seed, user, slates, attraction)
            means = place_means(params, attraction)
            for j, item in enumerate(ranking):
                rows.append(
                    Row(
                        user=user,
                        step=step + j,
                        time=time,
                        event=BANDIT,
                        item=-1,
                        action=item,
                        propensity=stated.marginal[j],
                        reward=float(j in places),
                        click_probability=means[j],
                        slate=slates,
                        position=j,
                        conditional_propensity=stated.conditional[j],
                        slate_propensity=stated.slate,
                        set_propensity=stated.set,
                    )
                )
                if params.fatigue:
                    weariness += recency[item]
                    recency[item] += 1.0
                    recency, weariness = [params.fatigue_memory * m for m in recency], params.fatigue_memory * weariness
                if params.retention:
                    z = satisfaction(z, params.retention_memory, catalogue.gamma[item], omega)
            w = words(seed, Stream.RESPONSE, user, slates)
            drawn = next_state(params, BANDIT, u53(w[2], w[3]), leaving())
            clicked = [ranking[j] for j in places]
            slates += 1
            last = step + k - 1
        if params.influence:
            for item in clicked:
                omega = (1.0 - params.influence) * omega + params.influence * catalogue.gamma[item]
        dt = time_step(params, seed, user, last)
        time += dt
        step = last + 1
        if drawn == ORGANIC or params.drift_in_bandit:
            drifts += 1
            omega = omega + params.sigma_omega * dt * normal_vector(seed, Stream.USER, user, drifts, K)
        state = ORGANIC if clicked else drawn
    return rows


# --- policies --------------------------------------------------------------------------------------------------------


class MostViewedOrAny:
    """With probability ``exploration`` any ranking, all as likely; else the items viewed most, ties to the smallest.

    The first uniform chooses which of the two, the others the items of a ranking that may be any: the one for place j
    picks the floor(u * number left)-th of the items left, ascending. So ``exploration=1`` is uniform.
    """

    def __init__(self, n_items, size, exploration):
        self.n_items, self.size, self.exploration = n_items, size, exploration

    def best(self, history):
        counts = Counter(history)
        return sorted(range(self.n_items), key=lambda item: (-counts[item], item))[: self.size]

    def rank(self, history, uniforms):
        """A ranking, given the views so far and size + 1 uniforms."""
        if uniforms[0] >= self.exploration:
            return self.best(history)
        left = list(range(self.n_items))
        return [left.pop(math.floor(u * len(left))) for u in uniforms[1:]]

    def beginning(self, history, above):
        """Probability of a ranking that begins with the items ``above``."""
        any_ranking = 1.0
        for j in range(len(above)):
            any_ranking /= self.n_items - j
        same = self.best(history)[: len(above)] == list(above)
        return self.exploration * any_ranking + (1.0 - self.exploration) * same

    def stated(self, history, ranking):
        ranking = [int(item) for item in ranking]
        best, e, P = self.best(history), self.exploration, self.n_items
        down_to = [self.beginning(history, ranking[:j]) for j in range(self.size + 1)]
        return Stated(
            marginal=[e / P + (1.0 - e) * (ranking[j] == best[j]) for j in range(self.size)],
            conditional=[below / above for above, below in itertools.pairwise(down_to)],
            slate=down_to[-1],
            set=e / math.comb(P, self.size) + (1.0 - e) * (set(ranking) == set(best)),
        )
