"""Figures of a policy's logs: of RecoGym's in recogym_reference.py, of ours in test_recogym.py."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Sums = dict[str, float]


def sums_of(n_users: int, user, shown, item, clicks, time) -> Sums:
    """What the figures are ratios of, from one log's rows."""
    same = user[1:] == user[:-1]
    starts = np.append(True, ~same | (shown[1:] != shown[:-1]))
    steps = np.diff(time)[same]
    both_views = same & ~shown[1:] & ~shown[:-1]
    return {
        "users": n_users,
        "views": float((~shown).sum()),
        "decisions": float(shown.sum()),
        "organic_sessions": float((starts & ~shown).sum()),
        "bandit_sessions": float((starts & shown).sum()),
        "never": n_users - len(np.unique(user[shown])),
        "clicks": float(clicks[shown].sum()),
        "steps": len(steps),
        "time": float(steps.sum()),
        "time2": float((steps**2).sum()),
        "distinct": len(np.unique(user[~shown] * 100_000 + item[~shown])),
        "pairs": float(both_views.sum()),
        "repeats": float((both_views & (item[1:] == item[:-1])).sum()),
    }


def figures_of(s: Sums) -> Sums:
    """Figures from (a pool of) sums, and of true click probabilities."""
    mean = s["time"] / s["steps"]
    return {
        "organic_events_per_user": s["views"] / s["users"],
        "bandit_events_per_user": s["decisions"] / s["users"],
        "organic_session_length": s["views"] / s["organic_sessions"],
        "bandit_session_length": s["decisions"] / s["bandit_sessions"],
        "share_users_without_bandit": s["never"] / s["users"],
        "ctr": s["clicks"] / s["decisions"],
        "mean_click_probability": s["probability"] / s["decisions"],
        "time_step_mean": mean,
        "time_step_sd": math.sqrt(max(s["time2"] / s["steps"] - mean**2, 0.0)),
        "distinct_items_per_view": s["distinct"] / s["views"],
        "repeat_view_share": s["repeats"] / s["pairs"],
    }


def jackknife(rows: list[Sums], figures: Callable[[Sums], Sums]) -> tuple[Sums, Sums]:
    """Figures of the pooled sums, and their standard errors over ``rows``, one a catalogue."""
    table = np.array([[float(value) for value in row.values()] for row in rows])
    total, n = table.sum(axis=0), len(rows)
    whole, *without = (figures(dict(zip(rows[0], sums, strict=True))) for sums in (total, *(total - table)))
    parts = {name: np.array([part[name] for part in without]) for name in whole}
    errors = {name: math.sqrt((n - 1) / n * float(((x - x.mean()) ** 2).sum())) for name, x in parts.items()}
    return whole, errors
