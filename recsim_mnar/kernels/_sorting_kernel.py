# mypy: ignore-errors
"""Bringing rows into order."""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


@kernel
def by_user(user, first_user, place, index):
    """Index = the stable order that brings rows together whose users are first_user, first_user + 1, ...

    ``place`` is scratch of zeros, one longer than the number of users.
    """
    for i in range(user.size):
        place[user[i] - first_user + 1] += 1
    for u in range(place.size - 1):
        place[u + 1] += place[u]
    for i in range(user.size):
        u = user[i] - first_user
        index[place[u]] = i
        place[u] += 1
