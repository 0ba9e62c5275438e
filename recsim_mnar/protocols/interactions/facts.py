"""What interactions are like, as far as it bears on what their numbers can tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.datasets.interactions import Interactions
from recsim_mnar.log.rows import shown_time

Facts = dict[str, Any]


def facts_of(data: Interactions) -> Facts:
    """Counts of interactions, JSON types.

    ``duplicates`` are rows that say again what an earlier row says (user, item and time alike), ``repeats`` rows whose
    user has met the item in an earlier row, the duplicates among them.
    """
    log = data.log
    user, item, time = log["user"], log["item"].astype(np.int64), log["time"]
    pairs = user * data.n_items + item
    n_rows = len(log)
    rows_of_user, rows_of_item = np.bincount(user), np.sort(np.bincount(item))[::-1]
    top = max(1, round(0.01 * data.n_items))
    facts = {
        "rows": n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "density": len(np.unique(pairs)) / (data.n_users * data.n_items),
        "repeats": n_rows - len(np.unique(pairs)),
        "duplicates": 0,
        "rows_of_a_user_median": float(np.median(rows_of_user)),
        "rows_of_a_user_most": int(rows_of_user.max()),
        "users_of_one_row": int(np.sum(rows_of_user == 1)),
        "items_of_one_row": int(np.sum(rows_of_item == 1)),
        "share_of_top_items": float(rows_of_item[:top].sum()) / n_rows,
        "first": None,
        "last": None,
    }
    if data.timed:
        order = np.lexsort((time, pairs))
        again = (pairs[order][1:] == pairs[order][:-1]) & (time[order][1:] == time[order][:-1])
        facts |= {"duplicates": int(again.sum()), "first": float(time.min()), "last": float(time.max())}
    return facts


def described_facts(facts: Facts) -> list[tuple[str, str]]:
    """Facts as a person reads them: what, and how much."""
    timed = facts["first"] is not None
    again = f"{facts['repeats']:,} ({100 * facts['repeats'] / facts['rows']:.2g} % of the rows)"
    return [
        ("rows", f"{facts['rows']:,}"),
        ("users", f"{facts['users']:,}, {facts['users_of_one_row']:,} of them with one row"),
        ("items", f"{facts['items']:,}, {facts['items_of_one_row']:,} of them met once"),
        ("times", f"{shown_time(facts['first'])} to {shown_time(facts['last'])}" if timed else "none in the file"),
        ("pairs of user and item that are met", f"{100 * facts['density']:.3g} %"),
        ("rows of a user", f"median {facts['rows_of_a_user_median']:g}, most {facts['rows_of_a_user_most']:,}"),
        ("rows of an item that the user has met before", again),
        *([("rows that say the same user, item and time again", f"{facts['duplicates']:,}")] if timed else []),
        ("rows of the most frequent 1 % of items", f"{100 * facts['share_of_top_items']:.3g} %"),
    ]
