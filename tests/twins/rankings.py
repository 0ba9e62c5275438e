"""Small worlds of rankings, written out: laws over all rankings of a catalogue, users, and their exact means."""

from __future__ import annotations

import itertools
import math

import numpy as np

ATTRACTION = (0.9, 0.5, 0.3, 0.7, 0.2, 0.6)


def every_ranking(n_items, k):
    """All rankings, as tuples."""
    return list(itertools.permutations(range(n_items), k))


def uniform(n_items, k):
    """Every ranking alike."""
    rankings = every_ranking(n_items, k)
    return {ranking: 1.0 / len(rankings) for ranking in rankings}


def plackett_luce(weights, k):
    """The product of each item's share of the weights that are left."""
    law = {}
    for ranking in every_ranking(len(weights), k):
        left, chance = sum(weights), 1.0
        for item in ranking:
            chance *= weights[item] / left
            left -= weights[item]
        law[ranking] = chance
    return law


def mixed(law, epsilon):
    """With probability epsilon the whole ranking is uniform."""
    return {ranking: (1.0 - epsilon) * chance + epsilon / len(law) for ranking, chance in law.items()}


def probabilities(law, ranking):
    """Of a ranking by kind: marginal (k,), conditional (k,), slate and set."""
    k = len(ranking)
    begins = [sum(p for other, p in law.items() if other[:j] == ranking[:j]) for j in range(k + 1)]
    return {
        "marginal": [sum(p for other, p in law.items() if other[j] == ranking[j]) for j in range(k)],
        "conditional": [begins[j + 1] / begins[j] if begins[j] else 0.0 for j in range(k)],
        "slate": [law[ranking]] * k,
        "set": [sum(p for other, p in law.items() if set(other) == set(ranking))] * k,
    }


def clicks(user, ranking):
    """Each vector of clicks of a user on a ranking, with its probability.

    Users: ``independent`` of positions; ``position`` (the item at place j is looked at with probability 1 / (1 + j));
    ``cascade`` (from the top; goes on with probability .9, after a click .3); ``crowd`` (as independent, at most one
    click, on any attractive item).
    """
    attraction = [ATTRACTION[item] for item in ranking]
    found = []
    for vector in itertools.product((0, 1), repeat=len(ranking)):
        if user in ("independent", "position"):
            rates = [a / (1 + j) if user == "position" else a for j, a in enumerate(attraction)]
            chance = math.prod(p if r else 1.0 - p for p, r in zip(rates, vector, strict=True))
        elif user == "cascade":
            chance, here = 0.0, 1.0  # of this vector so far, where the user looks at the next item, and where not
            for j, (a, r) in enumerate(zip(attraction, vector, strict=True)):
                chance = 0.0 if r else chance
                here *= a if r else 1.0 - a
                goes_on = 1.0 if j == len(vector) - 1 else 0.3 if r else 0.9
                chance += here * (1.0 - goes_on)
                here *= goes_on
            chance += here
        else:
            chance = 0.0 if sum(vector) > 1 else math.prod(1.0 - a for a in attraction)
            if sum(vector) == 1:
                chance = 0.0
                for liked in itertools.product((0, 1), repeat=len(ranking)):
                    if liked[vector.index(1)]:
                        both = zip(attraction, liked, strict=True)
                        chance += math.prod(a if x else 1.0 - a for a, x in both) / sum(liked)
        if chance > 0.0:
            found.append((vector, chance))
    return found


def mean_clicks(user, ranking):
    """(k,) expected clicks by position."""
    return [sum(p * vector[j] for vector, p in clicks(user, ranking)) for j in range(len(ranking))]


def value(user, law, weights):
    """The exact value of a policy: the expected sum over positions of weight times click."""
    return sum(p * float(np.dot(weights, mean_clicks(user, ranking))) for ranking, p in law.items())


def log_of(rankings, rewards, logging, target, users):
    """Columns of a log of slates, with a target called ``new``."""
    k = len(rankings[0])
    cache = {}
    for ranking in map(tuple, rankings):
        if ranking not in cache:
            cache[ranking] = probabilities(logging, ranking), probabilities(target, ranking)
    both = [cache[tuple(ranking)] for ranking in rankings]
    names = {"marginal": "propensity", "conditional": "conditional_propensity"}
    names |= {"slate": "slate_propensity", "set": "set_propensity"}
    ends = {"marginal": "new", "conditional": "new_conditional", "slate": "new_slate", "set": "new_set"}
    found = {name: np.ravel([each[0][kind] for each in both]) for kind, name in names.items()}
    found |= {name: np.ravel([each[1][kind] for each in both]) for kind, name in ends.items()}
    return found | {
        "user": np.repeat(users, k),
        "slate": np.repeat(np.arange(len(rankings)), k),
        "position": np.tile(np.arange(k), len(rankings)),
        "action": np.ravel(rankings),
        "reward": np.ravel(rewards).astype(np.float64),
    }


def drawn_log(generator, user, logging, target, n_users, slates):
    """A log of independent users with some slates each."""
    rankings, chances = list(logging), np.array(list(logging.values()))
    chosen = generator.choice(len(rankings), n_users * slates, p=chances / chances.sum())
    shown = [rankings[i] for i in chosen]
    laws = {ranking: clicks(user, ranking) for ranking in set(shown)}
    rewards = []
    for ranking in shown:
        vectors, p = zip(*laws[ranking], strict=True)
        rewards.append(vectors[generator.choice(len(vectors), p=np.array(p) / sum(p))])
    return log_of(shown, rewards, logging, target, np.repeat(np.arange(n_users), slates))
