"""Plain twins of the kernels of the campaigns world and of the weighted leave-one-out, from the definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from recsim_mnar import rng
from recsim_mnar.rng import Stream


def draw(seed, stream, user, index, second=False):
    if not second:
        return float(rng.uniforms(seed, stream, [user], [index])[0])
    words = rng.blocks(seed, stream, [user], [index])[0]
    return float(((int(words[2]) << 32) | int(words[3])) >> 11) / 2.0**53


def organic(world, seed, until):
    """Additions (user, item, day) that users make alone until a day, without campaigns, user by user in order."""
    p = world.params
    platform = world.open_platform(seed)
    plain, promoted = world.choice_weights(False), world.choice_weights(True)
    out = []
    for user in range(p.n_users):
        held, proposal, event, clock = set(), 0, 0, 0.0
        day = platform.arrival[user]
        while day <= until:
            on = p.n_promoted and p.promotion_start <= day < p.promotion_end
            weights = (promoted if on else plain)[platform.cluster[user]]
            open_items = [i for i in range(p.n_items) if world.birth[i] <= day and i not in held]
            item = None
            while open_items and item is None:
                target = draw(seed, Stream.VIEW, user, proposal) * np.cumsum(weights)[-1]
                proposal += 1
                tried = int(np.flatnonzero(np.cumsum(weights) > target)[0])
                item = tried if tried in open_items else None
                assert proposal < 250 * (event + 1), "the world of this test must not come to its last items"
            if item is not None:
                held.add(item)
                out.append((user, item, day))
            event += 1
            if event >= p.starting_items:
                clock -= math.log(1.0 - draw(seed, Stream.ORGANIC, user, event))
                left = 1.0 - clock / platform._appetite[user]
                day = platform.arrival[user] - p.fading * math.log(left) if left > 0 else math.inf
    return out


def answers(world, platform, campaign):
    """(accepted, added) of a campaign, from the world's definition of affinity."""
    p, seed = world.params, platform.seed
    theta = np.log(1.0 + p.taste) * (world.item_cluster == platform.cluster[:, None])
    centre = np.log(1.0 + p.taste) / p.n_clusters
    rate = p.acceptance * p.fatigue**campaign.number
    appeal = world.appeal + centre  # the world keeps it centred
    probability = 1 / (1 + np.exp(-(math.log(rate / (1 - rate)) + p.acceptance_strength * (theta + appeal - centre))))
    accepted, added = np.zeros(campaign.lists.shape, int), np.full(campaign.lists.shape, np.nan)
    for j, user in enumerate(campaign.users):
        for place, item in enumerate(campaign.lists[j]):
            index = campaign.number * p.n_items + item
            if item >= 0 and draw(seed, Stream.RESPONSE, user, index) < probability[user, item]:
                accepted[j, place] = 1
                wait = 0.0
                if p.delay < 1:
                    v = draw(seed, Stream.RESPONSE, user, index, second=True)
                    wait = math.floor(math.log(1 - v) / math.log(1 - p.delay))
                added[j, place] = campaign.day + wait
    return accepted, added


def item_probabilities(profiles, weights=None):
    """P(i|w) by its definition, user by user."""
    w = np.ones(profiles.n_items) if weights is None else weights
    out = np.zeros(profiles.n_items)
    for u in range(profiles.n_users):
        items = profiles.items[profiles.starts[u] : profiles.starts[u + 1]]
        for i in items:
            out[i] += w[i] / w[items].sum() / profiles.n_users
    return out


def cosine_scores(profiles, user, known):
    """b_u of cosine CF from the other users' profiles, on the fixed-point grid of 2 ** -32, up to 1 / |x|; exact."""
    known = set(known)
    out = [Fraction(0)] * profiles.n_items
    for v in range(profiles.n_users):
        if v == user:
            continue
        items = profiles.items[profiles.starts[v] : profiles.starts[v + 1]]
        unit = Fraction(round(2**32 / math.sqrt(len(items))), 2**32)
        common = len(known & set(items.tolist()))
        for c in items:
            out[c] += common * unit
    return [None if i in known else s for i, s in enumerate(out)]


def naive_scores(profiles, user, left_out, known):
    """b_u of naive CF where the pair (user, left_out) is not in the data."""
    holders = {i: set() for i in range(profiles.n_items)}
    for v in range(profiles.n_users):
        for i in profiles.items[profiles.starts[v] : profiles.starts[v + 1]].tolist():
            if (v, i) != (user, left_out):
                holders[i].add(v)
    best = [
        max((Fraction(len(holders[i] & holders[j]), len(holders[j])) for j in known), default=Fraction(0))
        for i in range(profiles.n_items)
    ]
    return [None if i in set(known) else s for i, s in enumerate(best)]


def place(scores, item):
    """How many other candidates score above an item, and how many level with it."""
    others = [s for i, s in enumerate(scores) if s is not None and i != item]
    return sum(s > scores[item] for s in others), sum(s == scores[item] for s in others)


def own_additions(profiles, days, day, window, side, prior):
    """Additions that users would make alone on each day of a window, item by item and day by day."""
    n = profiles.n_items
    added = [(int(i), math.floor(t)) for i, t in zip(profiles.items, profiles.added, strict=True)]
    quiet = {d for d in range(math.floor(profiles.time)) if not any(c <= d < c + window for c in days)}
    earlier = [i for i, d in added if d in quiet and d < day]
    sides = []
    for reach in (range(day - side, day), range(day + window, day + window + side)):
        part = [d for d in reach if d in quiet]
        seen = [i for i, d in added if d in part]
        share = [(seen.count(i) + prior * earlier.count(i) / len(earlier)) / (len(seen) + prior) for i in range(n)]
        sides.append((sum(part) / len(part), len(seen) / len(part), share))
    own = np.zeros((n, window))
    for i in range(n):
        for d in range(window):
            (x, rate, share), (y, after, then) = sides
            late = (day + d - x) / (y - x)
            own[i, d] = rate ** (1 - late) * after**late * (share[i] * (1 - late) + then[i] * late)
    return own


def pooled(values):
    """The nearest values that never rise: neighbours that do are pooled."""
    blocks = []
    for value in values:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (b, m), (a, k) = blocks.pop(), blocks.pop()
            blocks.append([(a * k + b * m) / (k + m), k + m])
    return [value for value, k in blocks for _ in range(k)]


def caused_by_days(profiles, own, day, window, variance, sweeps):
    """(caused additions of each item, delay, P(caused) by item and day), the sums of EM written out."""
    n = profiles.n_items
    counts = np.zeros((n, window))
    for i, t in zip(profiles.items, profiles.added, strict=True):
        if day <= math.floor(t) < day + window:
            counts[i, math.floor(t) - day] += 1
    sums = [sum(own[i]) for i in range(n)]
    excess = [counts[i].sum() - sums[i] for i in range(n)]
    mean = sum(excess) / n
    spread = sum((x - mean) ** 2 for x in excess) / n - sum(s + v for s, v in zip(sums, variance, strict=True)) / n
    shape = mean**2 / max(spread, 1e-3 * mean)
    known = [s * s / v for s, v in zip(sums, variance, strict=True)]
    delay = [max(counts[:, d].sum() - own[:, d].sum(), 0.0) for d in range(window)]
    delay, caused, factor = [f / sum(delay) for f in delay], [mean] * n, [1.0] * n
    for _ in range(sweeps):
        chance = np.array([[caused[i] * f / (own[i, d] * factor[i] + caused[i] * f) if counts[i, d] else 0.0
                            for d, f in enumerate(delay)] for i in range(n)])  # fmt: skip
        parts = chance * counts
        raw = [sum(parts[i]) + shape for i in range(n)]
        caused = [sum(excess) * x / sum(raw) for x in raw]
        delay = pooled([sum(parts[:, d]) for d in range(window)])
        delay = [f / sum(delay) for f in delay]
        raw = [(known[i] + sum(counts[i] - parts[i])) / (known[i] + sums[i]) for i in range(n)]
        factor = [x * sum(sums) / sum(a * b for a, b in zip(raw, sums, strict=True)) for x in raw]
    return caused, delay, chance
