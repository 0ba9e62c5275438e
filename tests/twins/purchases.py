"""Plain twins of the kernels of slates and of the purchases world, from the definitions."""

from __future__ import annotations

import numpy as np

from recsim_mnar import rng
from recsim_mnar.rng import Stream


def _unit(high, low):
    return float(((int(high) << 32) | int(low)) >> 11) / 2.0**53


def outcomes(world, seed, user, period, item):
    """Y^C and Y^T of one cell."""
    truth = world.outcomes_of(seed, [user])
    words = rng.blocks(seed, Stream.PURCHASE, [user], [period * world.n_items + item])[0]
    of_control = _unit(*words[:2])
    of_treated = {"independent": _unit(*words[2:]), "shared": of_control}[world.params.coupling]
    return int(of_control < truth.control[0, item]), int(of_treated < truth.treated[0, item])


def shown_independently(seed, user, period, probability):
    """Items shown to a user in a period, each by its own draw."""
    index = period * len(probability) + np.arange(len(probability))
    return [i for i, u in enumerate(rng.uniforms(seed, Stream.EXPOSURE, user, index)) if u < probability[i]]


def slate(seed, user, period, probability, size):
    """Systematic sampling of ``size`` items on a line in random order."""
    n = len(probability)
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = int(rng.uniforms(seed, Stream.EXPOSURE, user, period * n + i)[0] * (i + 1))
        order[i], order[j] = order[j], order[i]
    edges = np.concatenate([[0.0], np.cumsum(probability[order])])
    start = float(rng.policy_uniforms(seed, user, period)[0])
    return [order[min(int(np.searchsorted(edges, start + k, side="right")) - 1, n - 1)] for k in range(size)]


def scaled(weights, size, low, high):
    """Clip(c w, low, high) of one row, c by plain bisection."""
    below, above = 0.0, high / weights.min()
    for _ in range(300):
        c = (below + above) / 2
        if np.clip(c * weights, low, high).sum() < size:
            below = c
        else:
            above = c
    return np.clip(c * weights, low, high)


def rows(world, seed, user):
    """What ``simulate`` logs of a user under the house: (time, event, item or action, propensity, reward)."""
    probability = world.deployed_propensities(seed, [user])[0]
    out = []
    for period in range(world.params.n_periods):
        if world.params.slates == "fixed":
            shown = sorted(slate(seed, user, period, probability, world.params.slate_size))
        else:
            shown = shown_independently(seed, user, period, probability)
        out += [(period, "bandit", i, probability[i], outcomes(world, seed, user, period, i)[1]) for i in shown]
        rest = [i for i in range(world.n_items) if i not in shown]
        out += [(period, "organic", i, None, None) for i in rest if outcomes(world, seed, user, period, i)[0]]
    return out
