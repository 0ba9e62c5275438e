"""Hold-out evaluation in plain loops: a log is split, held-out items are ranked, recall and NDCG are averaged."""

from __future__ import annotations

import math

import numpy as np

from recsim_mnar.policies.door import fitted
from recsim_mnar.rng import Stream, derive_seed, uniforms


def split(log, how, share=0.2, unseen=False):
    """Training rows, and {user: held-out items, ascending} of the users that are judged; none: an error."""
    rows = list(zip(log["user"].tolist(), log["time"].tolist(), _items_viewed(log), strict=True))
    train, held = _cut_by_user(rows) if how == "last" else _cut_by_time(rows, share)
    met = {(rows[at][0], rows[at][2]) for at in train if rows[at][2] is not None}
    known = {user for user, _ in met}
    items = {user: set() for user in sorted({rows[at][0] for at in held} & known)}
    for at in held:
        user, _, item = rows[at]
        if user in known and not (unseen and (user, item) in met):
            items[user].add(item)
    return train, {user: sorted(each) for user, each in items.items() if each}


def _items_viewed(log):
    """The item of each row that is a view, else None."""
    return [None if bandit else item for bandit, item in zip(log.is_bandit, log["item"].tolist(), strict=True)]


def _cut_by_user(rows):
    """Of each user with two views or more the last one is held out; no row after it is trained on."""
    train, held = [], []
    for user in sorted({row[0] for row in rows}):
        own = [at for at, row in enumerate(rows) if row[0] == user]
        views = [at for at in own if rows[at][2] is not None]
        if len(views) < 2:
            train += own
            continue
        train += [at for at in own if at < views[-1]]
        held.append(views[-1])
    return train, held


def _cut_by_time(rows, share):
    """Training rows, and held-out views of the last times."""
    views = [at for at, row in enumerate(rows) if row[2] is not None]
    times = sorted(rows[at][1] for at in views)
    n = len(times)
    since = times[min(max(math.floor(n * (1 - share)), times.count(times[0])), n - 1)]
    return [at for at, row in enumerate(rows) if row[1] < since], [at for at in views if since <= rows[at][1]]


def ranks(learner, log, train, held, *, n_items, seed, candidates):
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
        among = [item for item in range(n_items) if candidates == "all" or item not in seen or item in items]
        found[user] = [rank_of(item, scores, among, user, seed) for item in items]
    return found


def rank_of(item, scores, among, user, seed):
    """One more than the other candidates with a larger score, or with this score and a smaller draw."""
    above = [other for other in among if scores[other] > scores[item]]
    level = [other for other in among if scores[other] == scores[item] and other != item]
    own = _draw(seed, user, item)
    return 1 + len(above) + sum(_draw(seed, user, other) < own for other in level)


def _draw(seed, user, item):
    return float(uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, user, item)[0])


def recall(ranked, k):
    """Share of one user's held-out items in the list."""
    return sum(rank <= k for rank in ranked) / len(ranked)


def ndcg(ranked, k):
    """The gain of one user's list, over that of the best list."""
    gained = sum(1 / math.log2(rank + 1) for rank in ranked if rank <= k)
    return gained / sum(1 / math.log2(place + 1) for place in range(1, min(len(ranked), k) + 1))


def figures(log, learner, *, n_items, seed, split_as="last", share=0.2, k=10, candidates="all"):
    """{metric: value} of a learner, and of how many users."""
    train, held = split(log, split_as, share, candidates != "all")
    ranked = ranks(learner, log, train, held, n_items=n_items, seed=seed, candidates=candidates).values()
    means = {what.__name__: sum(what(of_user, k) for of_user in ranked) / len(held) for what in (recall, ndcg)}
    return {f"{what}@{k}": mean for what, mean in means.items()}, len(held)
