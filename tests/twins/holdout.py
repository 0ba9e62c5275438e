"""Hold-out evaluation in plain loops: a log is split, held-out items are ranked, recall and NDCG are weighted."""

from __future__ import annotations

import itertools
import math

import numpy as np

from recsim_mnar.policies.door import fitted
from recsim_mnar.rng import Stream, derive_seed, uniforms


def split(log, how, share=0.2, windows=4, unseen=False):
    """[(training rows, {user: held-out items, ascending})] of each window where anybody is judged; none: an error."""
    rows = list(zip(log["user"].tolist(), log["time"].tolist(), _items_viewed(log), strict=True))
    if how in ("last", "user"):
        parts = _cut_by_user(rows, (lambda n: 1) if how == "last" else (lambda n: math.floor(share * n)))
    else:
        parts = _cut_by_time(rows, share, windows if how == "rolling" else 1)
    found = []
    for train, held in parts:
        met = {(rows[at][0], rows[at][2]) for at in train if rows[at][2] is not None}
        known = {user for user, _ in met}
        items = {user: set() for user in sorted({rows[at][0] for at in held} & known)}
        for at in held:
            user, _, item = rows[at]
            if user in known and not (unseen and (user, item) in met):
                items[user].add(item)
        found.append((train, {user: sorted(each) for user, each in items.items() if each}))
    return [(train, held) for train, held in found if held]


def _items_viewed(log):
    """The item of each row that is a view, else None."""
    return [None if bandit else item for bandit, item in zip(log.is_bandit, log["item"].tolist(), strict=True)]


def _cut_by_user(rows, wanted):
    """Of n views of a user the last ``wanted(n)``, at least one and not all, are held out; no row after the first."""
    train, held = [], []
    for user in sorted({row[0] for row in rows}):
        own = [at for at, row in enumerate(rows) if row[0] == user]
        views = [at for at in own if rows[at][2] is not None]
        n = min(max(wanted(len(views)), 1), len(views) - 1)
        if n < 1:
            train += own
            continue
        train += [at for at in own if at < views[-n]]
        held += views[-n:]
    return [(train, held)]


def _cut_by_time(rows, share, windows):
    """Training rows and held-out views of each window of the last times."""
    views = [at for at, row in enumerate(rows) if row[2] is not None]
    times = sorted(rows[at][1] for at in views)
    n = len(times)
    first = min(max(math.floor(n * (1 - share)), times.count(times[0])), n - 1)
    edges = [int(edge) for edge in np.linspace(first, n, windows + 1)]
    parts = []
    for start, end in itertools.pairwise(edges):
        since, until = times[start], times[end] if end < n else math.inf
        train = [at for at, row in enumerate(rows) if row[1] < since]
        parts.append((train, [at for at in views if since <= rows[at][1] < until]))
    return parts


def ranks(learner, log, train, held, *, n_items, seed, candidates, negatives=100):
    """{user: rank of each held-out item}, by scores after the user's training views."""
    rest = log.select(np.array(train, int))
    policy = fitted(learner, rest, n_items=n_items, seed=derive_seed(seed, "fit"))
    views = list(zip(rest["user"].tolist(), _items_viewed(rest), strict=True))
    found = {}
    for user, items in held.items():
        seen = [item for owner, item in views if owner == user and item is not None]
        own = np.array([user])
        policy.reset_training_users(own, own)
        for item in seen:
            policy.observe(own, np.array([item]))
        scores = policy.scores(own)[0].tolist()
        if candidates == "sampled":
            others = [item for item in range(n_items) if item not in seen and item not in items]
            among = sorted(others, key=lambda item: _draw(seed, "negatives", user, item))[:negatives] + list(items)
        else:
            among = [item for item in range(n_items) if candidates == "all" or item not in seen or item in items]
        found[user] = [rank_of(item, scores, among, user, seed) for item in items]
    return found


def rank_of(item, scores, among, user, seed):
    """One more than the other candidates with a larger score, or with this score and a smaller draw."""
    above = [other for other in among if scores[other] > scores[item]]
    level = [other for other in among if scores[other] == scores[item] and other != item]
    own = _draw(seed, "ties", user, item)
    return 1 + len(above) + sum(_draw(seed, "ties", user, other) < own for other in level)


def _draw(seed, label, user, item):
    return float(uniforms(derive_seed(seed, label), Stream.PROTOCOL, user, item)[0])


def weights(log, train, held, weighting, gamma):
    """{user: weight of each held-out item}, by how often it was viewed in the training rows."""
    views = _items_viewed(log.select(np.array(train, int)))
    power = {"none": 0.0, "stratified": gamma / (gamma + 1), "snips": (gamma + 1) / 2}[weighting]
    return {user: [max(views.count(item), 1) ** -power for item in items] for user, items in held.items()}


def recall(ranked, weighed, k):
    """Numerator and denominator of one user."""
    return sum(w for rank, w in zip(ranked, weighed, strict=True) if rank <= k), sum(weighed)


def ndcg(ranked, weighed, k):
    """Numerator and denominator of one user; the best list begins with the heaviest items."""
    gained = sum(w / math.log2(rank + 1) for rank, w in zip(ranked, weighed, strict=True) if rank <= k)
    best = sorted(weighed, reverse=True)[:k]
    return gained, sum(w / math.log2(place + 1) for place, w in enumerate(best, 1))


def figures(log, learner, *, n_items, seed, split_as="last", share=0.2, windows=4, k=10, candidates="all",
            negatives=100, weighting="none", gamma=1.0):  # fmt: skip
    """{metric: value} of a learner, and of how many users; the value counts one of several windows in each."""
    pairs, judged = {"recall": [], "ndcg": []}, set()
    for train, held in split(log, split_as, share, windows, candidates != "all"):
        judged |= held.keys()
        asked = {"n_items": n_items, "seed": seed, "candidates": candidates, "negatives": negatives}
        ranked, weighed = ranks(learner, log, train, held, **asked), weights(log, train, held, weighting, gamma)
        for user in held:
            pairs["recall"].append(recall(ranked[user], weighed[user], k))
            pairs["ndcg"].append(ndcg(ranked[user], weighed[user], k))
    return {f"{what}@{k}": mean_of(found, weighting) for what, found in pairs.items()}, len(judged)


def mean_of(pairs, weighting):
    """Of users' (numerator, denominator): the ratio of their sums if stratified, else the mean of their ratios."""
    if weighting == "stratified":
        return sum(over for over, _ in pairs) / sum(under for _, under in pairs)
    return sum(over / under for over, under in pairs) / len(pairs)
