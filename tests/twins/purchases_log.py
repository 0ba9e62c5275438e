"""Made-up purchase logs with known uplift, for the agents' tests."""

from __future__ import annotations

import numpy as np

from recsim_mnar.purchases.exposures import Exposures
from twins.logs import log_of


def propensity_matrix(exposures, time=0):
    """(U, I) propensities of a period."""
    return exposures.propensity_of(*np.ogrid[: exposures.n_users, : exposures.n_items], time)


def logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


def small_world(n_users, n_items, seed):
    """P(Y^C) and P(Y^T), (U, I): popular items sell anyway, others gain more from being recommended."""
    g = np.random.default_rng(seed)
    taste = g.normal(size=(n_users, 3)) @ g.normal(size=(3, n_items)) / np.sqrt(3)
    gain = g.normal(size=(n_users, 3)) @ g.normal(size=(3, n_items)) / np.sqrt(3)
    popularity = g.normal(size=n_items)
    control = -3.0 + popularity + 0.7 * taste
    return logistic(control), logistic(control + 0.9 - 0.5 * popularity + 0.7 * gain)


def exposures(control, treated, probability, n_periods, seed):
    """A log in which every cell is recommended with its probability (U, I)."""
    g = np.random.default_rng(seed)
    shape = (n_periods, *control.shape)
    shown = g.random(shape) < probability
    bought = g.random(shape) < np.where(shown, treated, control)
    time, user, item = np.nonzero(shown | bought)
    return Exposures(
        user, item, time, shown[time, user, item], bought[time, user, item],
        n_users=shape[1], n_items=shape[2], n_periods=n_periods,
        propensities=np.asarray(probability, np.float32)[:, :, None],
    )  # fmt: skip


def small_exposures(n_users=30, n_items=12, n_periods=3, seed=0):
    control, treated = small_world(n_users, n_items, seed)
    return exposures(control, treated, np.full((n_users, n_items), 0.2), n_periods, seed + 1)


def purchase_log(cells):
    """A log of the purchases world: recommended items are bandit rows, other purchases organic rows."""
    order = np.lexsort((cells.item, cells.time, cells.user))
    shown, item = cells.recommended[order], cells.item[order]
    return log_of(
        cells.user[order],
        item=np.where(shown, -1, item),
        action=np.where(shown, item, -1),
        propensity=np.where(shown, 0.2, np.nan),
        reward=np.where(shown, cells.purchased[order], np.nan),
        time=cells.time[order].astype(float),
    )


def of_grid(z, y, e=None):
    u, i, t = np.nonzero(z | y)
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *z.shape, propensities=e)


def random_grid(seed=0, shape=(6, 7, 2)):
    draw = np.random.default_rng(seed)
    e = draw.uniform(0.2, 0.8, shape)
    z = draw.random(shape) < e
    z[:, 0], z[:, 1] = True, False  # so that every user has both
    return z, draw.random(shape) < 0.5, e.astype(np.float32)
