"""Agents in a world where people reveal some of their ratings, and not at random.

    python examples/ratings_world.py [USERS]

Each agent learns from the ratings that 2,000 people (or USERS) revealed, 5 % of all. It then meets 1,000 new people
with the ratings that they revealed, and recommends one item to each. The world knows all ratings, so it can say what
the recommendations are worth, and how far off the predicted ratings are. In the first world people reveal what they
like; in the second they reveal what is popular, whether they like it or not. Intervals are 95 %, over the people met.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import Log, make_world, rng, simulate
from recsim_mnar.policies import observe_events, registry

AGENTS = ("random", "popularity", "item-knn", "mf-naive-ratings", "mf-ips-ratings")
N_NEW = 1000


def best(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """The first item of each row's ranking, ties broken by an addressed draw."""
    users, items = np.divmod(np.arange(scores.size), scores.shape[1])
    jitter = rng.uniforms(3, rng.Stream.PROTOCOL, users, items).reshape(scores.shape)
    return np.where(scores == scores.max(axis=1, keepdims=True), jitter, -1.0).argmax(axis=1)


def interval(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.2f} +- {1.96 * values.std(ddof=1) / np.sqrt(len(values)):.2f}"


def main(n_users: int = 2000) -> None:
    for setting in ("observation=alpha", "observation=popularity"):
        meet(setting, n_users)


def meet(setting: str, n_users: int) -> None:
    """Print the table of one world."""
    world = make_world("ratings", "quick", [setting])
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items)
    train = simulate(world, uniform, n_users, seed=1)
    answers = simulate(world, uniform, N_NEW, seed=2).organic()
    users = np.arange(N_NEW)
    truth = world.truth_arrays(2, N_NEW)["ratings"].astype(float)
    known = np.zeros(truth.shape, bool)
    known[answers["user"], answers["item"]] = True

    print(f"{setting}: mean rating of all items {truth.mean():.2f}, of those revealed {answers['reward'].mean():.2f}")
    print(f"{'true rating of what is recommended':>54s}\n{'agent':18s}{'new to them':>18s}{'any item':>18s}{'MSE':>8s}")
    for name in (*AGENTS, "oracle"):
        if name == "oracle":
            scores = truth
        else:
            policy = registry.learner(name).fit(train, n_items=world.n_items, seed=1)
            policy.reset(users)
            observe_events(policy, answers["user"], answers["item"], answers["reward"])
            scores = np.asarray(policy.scores(users), np.float64)
        anything = truth[users, best(scores)]
        new = truth[users, best(np.where(known, -np.inf, scores))]
        # Only these predict ratings; the others' scores are of another kind.
        mse = f"{((scores - truth) ** 2).mean():8.2f}" if name.startswith("mf") else ""
        print(f"{name:18s}{interval(new):>18s}{interval(anything):>18s}{mse}")
    print()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
