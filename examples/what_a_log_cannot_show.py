"""Two worlds in which a log under a personalised policy looks like knowledge, and what `advise` says of them.

    python examples/what_a_log_cannot_show.py

Users view items, most often their favourite, and are shown what they have viewed. In the first world no one clicks what
he has viewed: the best recommendation is what the log never shows. In the second users click by coin. Next to each log
stands one of the same users who were shown items drawn uniformly.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar import Log, Question, advise

ITEMS, VIEWS, SHOWN = 8, 5, 8


def viewed_is_not_clicked(share):
    return np.where(share > 0, 0.02, 0.15)


def coin(share):
    return np.full(share.shape, 0.10)


def log_of(chance, *, personalised, users=5000, seed=0):
    """A log in which every user views five items and is then shown eight, with the truth of two agents."""
    rng = np.random.default_rng(seed)
    favourite = rng.integers(ITEMS, size=(users, 1))
    views = np.where(rng.random((users, VIEWS)) < 0.6, favourite, rng.integers(ITEMS, size=(users, VIEWS)))
    share = (views[:, :, None] == np.arange(ITEMS)).mean(axis=1)
    propensity = share if personalised else np.full(share.shape, 1 / ITEMS)
    draws = rng.random((users, SHOWN, 1)) * propensity.sum(axis=1)[:, None, None]
    action = (np.cumsum(propensity, axis=1)[:, None, :] <= draws).sum(axis=2)
    reward = rng.random(action.shape) < np.take_along_axis(chance(share), action, axis=1)
    none = np.full(views.shape, -1)
    columns = {
        "user": np.arange(users)[:, None] + np.zeros(VIEWS + SHOWN, int),
        "step": np.zeros((users, 1), int) + np.arange(VIEWS + SHOWN),
        "event": np.zeros((users, 1), int) + np.repeat([0, 1], [VIEWS, SHOWN]),
        "item": np.hstack([views, np.full(action.shape, -1)]),
        "action": np.hstack([none, action]),
        "propensity": np.hstack([none * np.nan, np.take_along_axis(propensity, action, axis=1)]),
        "reward": np.hstack([none * np.nan, reward]),
    }
    truth = {"random": chance(share).mean(), "user-popularity": (share * chance(share)).sum(axis=1).mean()}
    log = Log({name: np.ravel(values) for name, values in columns.items()} | {"time": np.ravel(columns["step"]) * 1.0})
    return log, truth


for world in (viewed_is_not_clicked, coin):
    for logging in ("user-popularity", "random"):
        log, truth = log_of(world, personalised=logging != "random")
        question = Question(
            agents=("random", "popularity", "user-popularity", "item-knn"), logging=logging, n_items=ITEMS
        )
        found = advise(log, question)
        print(f"\n{world.__name__.replace('_', ' ')}, logged under {logging}; truth:", end=" ")
        print(", ".join(f"{name} {value:.3f}" for name, value in truth.items()))
        print("\n".join([*found.coverage(), *found.sentences()]))
