# mypy: ignore-errors
"""Kernels of the campaigns world: users' unaided additions, the lists of a campaign, and users' responses to them.

A user's additions form a linked list through the arrays of additions: ``last[u]`` is the index of the newest,
``before[e]`` that of the one before e, -1 the end. Profiles are short, so following one costs less than a table of all
(user, item) pairs.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, log64, unit53
from recsim_mnar.kernels._vectors_kernel import first_above
from recsim_mnar.kernels.jit import inlined, kernel

_TRIES = 256
"""Number of rejected proposals, of items that are held or not there yet, after which the choice is made among the rest
by a sum over all items."""


@inlined
def _owns(user, item, last, before, items):
    """Return whether a user holds an item, or has accepted it and will add it later."""
    e = last[user]
    while e >= 0:
        if items[e] == item:
            return True
        e = before[e]
    return False


@inlined
def _mark(user, flag, last, before, items, held):
    """Set the flag ``held[i]`` of all items i of a user."""
    e = last[user]
    while e >= 0:
        held[items[e]] = flag
        e = before[e]


@inlined
def _add(user, item, day, cause, n, users, items, times, causes, last, before):
    """Store addition number n at the head of the user's linked list, and return n + 1."""
    users[n] = user
    items[n] = item
    times[n] = day
    causes[n] = cause
    before[n] = last[user]
    last[user] = n
    return n + 1


@kernel
def grow(streams, until, first_user, n_additions, additions, people, law, tables, promotion, birth):
    """Simulate users' unaided additions up to a day.

    The kernel stops early if the arrays of additions are full; called with longer ones, it continues there.

    A user arrives with ``n_starting`` items. Further ones come by a Poisson process of intensity
    appetite / fading * exp(-(day - arrival) / fading). In transformed time s it has rate 1, so gaps in s are
    exponential; s falls on the day arrival - fading log(1 - s / appetite), and from s = appetite on, on none.

    Args:
        streams: seed, stream of times and stream of choices.
        until: day up to which to simulate.
        first_user: first user who is not finished.
        n_additions: number of additions so far.
        additions: users, items (m,) int32; times (m,) float64; causes (m,) int16, -1 for unaided; before (m,) int64.
        people: last (U,) int64; arrival, appetite (U,) float64; clock (U, 2) float64, day of the next addition and its
            transformed time s; events, proposals (U,) int64, numbers of draws used; cluster (U,) int32.
        law: fading and n_starting.
        tables: cumulative and promoted, (K, I) cumulative choice weights of each cluster on plain days and on days of
            promotion.
        promotion: first day of the promotion, and first day after it.
        birth: (I,) float64 day on which each item appears.

    Returns:
        Number of additions, and first user who is not finished: U if all are.
    """
    seed, stream_time, stream_choice = streams
    users, items, times, causes, before = additions
    last, arrival, appetite, clock, events, proposals, cluster = people
    fading, n_starting = law
    cumulative, promoted = tables
    promotion_start, promotion_end = promotion
    room = users.size
    n_items = birth.size
    for u in range(first_user, arrival.size):
        while clock[u, 0] <= until:
            if n_additions >= room:
                return n_additions, u
            day = clock[u, 0]
            table = cumulative[cluster[u]]
            if promotion_start <= day and day < promotion_end:
                table = promoted[cluster[u]]
            # Rejection sampling: propose by weight among all items until one is there and not held.
            chosen = -1
            for _ in range(_TRIES):
                a, b, _c, _d = block(seed, stream_choice, np.uint64(u), np.uint64(proposals[u]))
                proposals[u] += 1
                item = first_above(table, unit53(a, b) * table[n_items - 1])
                if birth[item] <= day and not _owns(u, item, last, before, items):
                    chosen = item
                    break
            if chosen < 0:  # or draw from the conditional distribution, if any item is left
                total = 0.0
                for i in range(n_items):
                    if birth[i] <= day and not _owns(u, i, last, before, items):
                        total += table[i] - (table[i - 1] if i > 0 else 0.0)
                if total > 0.0:
                    a, b, _c, _d = block(seed, stream_choice, np.uint64(u), np.uint64(proposals[u]))
                    proposals[u] += 1
                    target = unit53(a, b) * total
                    for i in range(n_items):
                        if birth[i] <= day and not _owns(u, i, last, before, items):
                            chosen = i
                            target -= table[i] - (table[i - 1] if i > 0 else 0.0)
                            if target < 0.0:
                                break
            if chosen >= 0:
                n_additions = _add(u, chosen, day, -1, n_additions, users, items, times, causes, last, before)
            events[u] += 1
            if events[u] >= n_starting:  # until then the next addition is on the same day
                a, b, _c, _d = block(seed, stream_time, np.uint64(u), np.uint64(events[u]))
                # Minus the logarithm of a uniform is an exponential gap in s.
                clock[u, 1] -= log64(1.0 - unit53(a, b))
                if appetite[u] > 0.0:  # left = 1 - s / appetite, not positive if there is no further addition
                    left = 1.0 - clock[u, 1] / appetite[u]
                else:
                    left = 0.0
                clock[u, 0] = max(arrival[u] - fading * log64(left), arrival[u]) if left > 1e-300 else np.inf
    return n_additions, arrival.size


@kernel
def draw_lists(seed, stream, campaign, day, users, weights, birth, last, before, items, held, lists, propensities):
    """Draw a list of distinct items for each user: each place by weight among the items left.

    A place is drawn at the address (seed, POLICY, user, campaign * n_items + place). No list has more than n_items
    places, so campaigns share no draw.

    Args:
        seed: seed of the users.
        stream: stream of the draws, POLICY.
        campaign: number of the campaign.
        day: day of the campaign; items that appear later are not drawn.
        users: (n,) int64 recipients.
        weights: (1, I) for all users, or (n, I).
        birth: (I,) day on which each item appears.
        last: (U,) each user's newest addition, head of the linked list.
        before: (m,) predecessor of each addition.
        items: (m,) item of each addition.
        held: (I,) bool working space, all False before and after.
        lists: (n, k) int32, written to: items, -1 where no item is left.
        propensities: (n, k), written to: probability of each item at its place, given the items before it.
    """
    n_items = birth.size
    k = lists.shape[1]
    for j in range(users.size):
        u = users[j]
        row = weights[j if weights.shape[0] > 1 else 0]
        _mark(u, True, last, before, items, held)
        for p in range(k):
            lists[j, p] = -1
            propensities[j, p] = np.nan
            total = 0.0
            for i in range(n_items):
                if not held[i] and birth[i] <= day:
                    total += row[i]
            if total > 0.0:
                a, b, _c, _d = block(seed, stream, np.uint64(u), np.uint64(campaign * n_items + p))
                target = unit53(a, b) * total
                chosen = -1
                for i in range(n_items):
                    if not held[i] and birth[i] <= day and row[i] > 0.0:
                        chosen = i  # if rounding exhausts the loop, the last possible item is chosen
                        target -= row[i]
                        if target < 0.0:
                            break
                lists[j, p] = chosen
                propensities[j, p] = row[chosen] / total
                held[chosen] = True
        for p in range(k):
            if lists[j, p] >= 0:
                held[lists[j, p]] = False
        _mark(u, False, last, before, items, held)


@inlined
def _tie(seed, stream, user, index):
    """Return a uniform that orders items of equal score.

    The highest bit of the index is set, so that no address is that of a draw of :func:`draw_lists`.
    """
    a, b, _c, _d = block(seed, stream, np.uint64(user), np.uint64(index) | np.uint64(0x80000000))
    return unit53(a, b)


@kernel
def best_lists(seed, stream, campaign, day, users, scores, birth, last, before, items, held, lists):
    """List the k items with the largest scores that each user does not hold.

    Ties are broken by draws, and items with a score of -inf are never listed.

    Args:
        seed: seed of the users.
        stream: stream of the draws that break ties.
        campaign: number of the campaign.
        day: day of the campaign; items that appear later are not listed.
        users: (n,) int64 recipients.
        scores: (n, I) float64 scores.
        birth: (I,) day on which each item appears.
        last: (U,) each user's newest addition, head of the linked list.
        before: (m,) predecessor of each addition.
        items: (m,) item of each addition.
        held: (I,) bool working space, all False before and after.
        lists: (n, k) int32, written to: items, -1 where no item is left.
    """
    n_items = birth.size
    k = lists.shape[1]
    for j in range(users.size):
        _mark(users[j], True, last, before, items, held)
        for p in range(k):
            chosen = -1
            tie = -1.0  # of the chosen item, drawn when it is first needed
            for i in range(n_items):
                if held[i] or birth[i] > day or scores[j, i] == -np.inf:
                    continue
                if chosen < 0 or scores[j, i] > scores[j, chosen]:
                    chosen = i
                    tie = -1.0
                elif scores[j, i] == scores[j, chosen]:
                    if tie < 0.0:
                        tie = _tie(seed, stream, users[j], campaign * n_items + chosen)
                    other = _tie(seed, stream, users[j], campaign * n_items + i)
                    if other > tie:
                        chosen = i
                        tie = other
            lists[j, p] = chosen
            if chosen >= 0:
                held[chosen] = True
        for p in range(k):
            if lists[j, p] >= 0:
                held[lists[j, p]] = False
        _mark(users[j], False, last, before, items, held)


@inlined
def _acceptance(logit, same_bonus, strength, user_cluster, item_cluster, appeal):
    """Return the acceptance probability logistic(logit + strength * affinity) of :class:`CampaignsModel`."""
    affinity = appeal
    if user_cluster == item_cluster:
        affinity += same_bonus
    return 1.0 / (1.0 + exp64(-(logit + strength * affinity)))


@kernel
def respond(seed, stream, campaign, day, n_additions, users, lists, law, answers, people, items_of, additions, out):
    """Draw the users' responses to their lists, store accepted items, and return the number of additions.

    An accepted item counts as held from ``day`` on, and is added after the delay. The response to an item is drawn at
    the address (seed, RESPONSE, user, campaign, item): two recommenders that show a user the same item in the same
    campaign get the same response. The delay is geometric: floor(log(1 - v) / log_stay) days, for a uniform v.

    Args:
        seed: seed of the users.
        stream: stream of the draws, RESPONSE.
        campaign: number of the campaign.
        day: day of the campaign.
        n_additions: number of additions so far.
        users: (n,) int64 recipients.
        lists: (n, k) int32 items, -1 at empty places.
        law: logit, same_bonus and strength of :func:`_acceptance`.
        answers: log_stay, and True if there is a delay.
        people: last and cluster of the users.
        items_of: cluster and appeal of the items.
        additions: arrays of :func:`grow`, with room for n k more.
        out: accepted (n, k) int8, and added (n, k) float64, NaN if not accepted; written to.
    """
    logit, same_bonus, strength = law
    log_stay, delayed = answers
    last, cluster = people
    item_cluster, appeal = items_of
    adders, items, times, causes, before = additions
    accepted, added = out
    n_items = appeal.size
    for j in range(users.size):
        u = users[j]
        for p in range(lists.shape[1]):
            accepted[j, p] = 0
            added[j, p] = np.nan
            i = lists[j, p]
            if i >= 0:
                a, b, c, d = block(seed, stream, np.uint64(u), np.uint64(campaign * n_items + i))
                probability = _acceptance(logit, same_bonus, strength, cluster[u], item_cluster[i], appeal[i])
                if unit53(a, b) < probability:
                    when = day
                    if delayed:
                        when += np.floor(log64(1.0 - unit53(c, d)) / log_stay)
                    accepted[j, p] = 1
                    added[j, p] = when
                    n_additions = _add(u, i, when, campaign, n_additions, adders, items, times, causes, last, before)
    return n_additions


@kernel
def acceptances(logit, same_bonus, strength, users, cluster, item_cluster, appeal, out):
    """Compute the probability ``out`` (n, I) that each user accepts each item if it is recommended."""
    for j in range(users.size):
        for i in range(appeal.size):
            out[j, i] = _acceptance(logit, same_bonus, strength, cluster[users[j]], item_cluster[i], appeal[i])
