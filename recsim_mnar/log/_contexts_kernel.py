# mypy: ignore-errors
"""Jitted core of contexts: what a user has viewed and was shown so far, as numbers."""

from __future__ import annotations

from recsim_mnar.kernels.jit import inlined, kernel


@inlined
def copied(row, target):
    """Write a row over another."""
    for k in range(row.size):
        target[k] = row[k]


@inlined
def see(state, item, decay, keeps):
    """One more view: the newest of the kept items where ``keeps``, else decayed counts; ``state`` (c,) float32."""
    if keeps:
        for k in range(state.size - 1, 0, -1):
            state[k] = state[k - 1]
        state[0] = item + 1
        return
    if decay != 1.0:
        for k in range(state.size):
            state[k] *= decay
    state[item] += 1.0


@inlined
def show(state, action, reward, decay):
    """One more recommendation; ``state`` (3 n_items,) float32: of views, recommendations, and rewards."""
    n_items = state.size // 3
    see(state, n_items + action, decay, False)
    state[2 * n_items + action] += reward


@kernel
def see_all(states, rows, items, decay, keeps):
    """Views in their order: of the user in row ``rows[j]`` of ``states`` (r, c) float32; decay float32."""
    for j in range(rows.size):
        see(states[rows[j]], items[j], decay, keeps)


@kernel
def show_all(states, rows, actions, rewards, decay):
    """Recommendations in their order: as :func:`see_all`, with what they earned (n,); all numbers float32."""
    for j in range(rows.size):
        show(states[rows[j]], actions[j], rewards[j], decay)


@kernel
def contexts(begins, bandit, items, rewards, decay, keeps, shows, state, out, final):
    """Contexts of all decisions of a log, and of each user after the last row.

    begins, bandit (n,) flags of rows in the order of the log, items (n,) int32, what was viewed or shown; rewards (n,)
    where recommendations count (``shows``); out (d, c) for the d decisions; final (u, c) for the u users; state (c,) is
    scratch; all float32.
    """
    decision = 0
    user = -1
    for i in range(begins.size):
        if begins[i]:
            if user >= 0:
                copied(state, final[user])
            user += 1
            for k in range(state.size):
                state[k] = 0.0
        if bandit[i]:
            copied(state, out[decision])
            decision += 1
            if shows:
                show(state, items[i], rewards[i], decay)
        else:
            see(state, items[i], decay, keeps)
    if user >= 0:
        copied(state, final[user])
