# mypy: ignore-errors
"""Jitted core of contexts: a user's views and recommendations so far as a row of numbers, the state."""

from __future__ import annotations

from recsim_mnar.kernels.jit import inlined, kernel


@inlined
def copied(row, target):
    """Copy a row into another one of the same length."""
    for k in range(row.size):
        target[k] = row[k]


@inlined
def see(state, item, decay, keeps):
    """Update a user's state by one more view.

    With ``keeps`` the (c,) float32 state lists the last c items, the newest first, each plus 1 (0: no view yet); else
    it has a count per item, and all counts are multiplied by ``decay`` before the view is added.
    """
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
    """Update a user's state by one more recommendation and its reward.

    The (3 n_items,) float32 state has decayed sums per item: of views, then of recommendations, then of rewards.
    """
    n_items = state.size // 3
    # A recommendation counts like a view of item n_items + action; this also decays all three blocks.
    see(state, n_items + action, decay, False)
    state[2 * n_items + action] += reward


@kernel
def see_all(states, rows, items, decay, keeps):
    """Update states by views in their order: view j is of ``items[j]`` by the user in row ``rows[j]``.

    states (r, c) float32 is changed; decay is float32; keeps as in :func:`see`.
    """
    for j in range(rows.size):
        see(states[rows[j]], items[j], decay, keeps)


@kernel
def show_all(states, rows, actions, rewards, decay):
    """Update states by recommendations in their order: j is of ``actions[j]`` to the user in row ``rows[j]``.

    states (r, 3 n_items) float32 is changed; rewards (n,) and decay are float32.
    """
    for j in range(rows.size):
        show(states[rows[j]], actions[j], rewards[j], decay)


@kernel
def contexts(begins, bandit, items, rewards, decay, keeps, shows, state, out, final):
    """Write the context of each decision of a log into ``out``, and of each user after the last row into ``final``.

    begins, bandit (n,) flags of rows that are a user's first one, and of recommendations; items (n,) int32, the viewed
    or recommended item; rewards (n,) float32, read only with ``shows``, which says that recommendations change the
    context; out (d, c) float32 for the d decisions; final (u, c) float32 for the u users; state (c,) float32, scratch:
    the present user's context.
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
