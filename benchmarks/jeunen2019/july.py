"""The authors' environment of July 2019, re-created from numpy's legacy stream.

What RecoGym of July 2019 (commit 494d075) has and release 0.1.3 of PyPI has not, which :func:`lived` does:

- A user's last recommendation is the last row. Release 0.1.3 (since November 2019) adds one, never clicked, per user.
- The last session of a user who leaves while browsing is not logged. Where it is the first one it is logged, and one
  recommendation follows, which can be clicked and so bring the user back.
- User-popularity draws once per decision. Release 0.1.3 first draws whether to explore.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import RandomState

from recsim_mnar.log import Log
from recsim_mnar.log.schema import BANDIT, ORGANIC

SEED, N_FACTORS = 42, 5
P_BANDIT, P_BACK, P_LEAVE = 0.25, 0.05, 0.01
SIGMA_OMEGA, SIGMA_MU = 0.05, 0.1
STATE_ORGANIC, _, STATE_GONE = range(3)

Choose = Callable[[list[int], RandomState], tuple[int, float]]
"""From a user's views so far and the environment's stream: an item, and the probability of showing it."""
Score = Callable[[list[int]], Any]
"""(n_items,) scores from a user's views so far."""


class July:
    """The environment of July 2019 from numpy's legacy stream; one stream for catalogue, users and clicks."""

    def __init__(self, n_items: int) -> None:
        draws = RandomState(SEED)
        self.item_factors = draws.normal(size=(n_items, N_FACTORS))
        self.item_offsets = draws.normal(0, SIGMA_MU, size=n_items)
        partner = flipped(self.item_factors)
        self.click_factors, self.click_offsets = self.item_factors[partner], self.item_offsets[partner]
        self.draws = RandomState(SEED)  # begun again: the first user's draws are the catalogue's
        stay = 1.0 - P_BANDIT - P_LEAVE, 1.0 - P_BACK - P_LEAVE
        self._moves = np.cumsum([[stay[0], P_BANDIT, P_LEAVE], [P_BACK, stay[1], P_LEAVE], [0.0, 0.0, 1.0]], axis=1)
        self.begin(0)  # the notebook resets once more than it uses

    def begin(self, user: int) -> None:
        """A user arrives, browsing."""
        self.state = STATE_ORGANIC
        self.omega = self.draws.normal(0, 1, size=N_FACTORS)

    def browse(self) -> list[int]:
        """Views until the user stops browsing."""
        items = []
        while self.state == STATE_ORGANIC:
            logits = self.item_factors @ self.omega + self.item_offsets
            weights = np.exp(logits - logits.max()).cumsum()
            items.append(int(weights.searchsorted(self.draws.random_sample() * weights[-1], side="right")))
            self.move()
        return items

    def click(self, item: int) -> bool:
        """Whether a recommendation is clicked."""
        x = self.click_factors[item] @ self.omega + self.click_offsets[item]
        return bool(self.draws.random_sample() >= 1.0 - click_probability(x))

    def move(self) -> None:
        """The next state; interests drift where it is browsing."""
        self.state = int(self._moves[self.state].searchsorted(self.draws.random_sample(), side="right"))
        if self.state == STATE_ORGANIC:
            self.omega = self.draws.normal(self.omega, SIGMA_OMEGA)


def click_probability(x: Any) -> Any:
    """RecoGym's link: s(5 s(2 s(.3 x) - 2) - 6), s the logistic function."""
    for scale, offset in ((0.3, 0.0), (2.0, 2.0), (5.0, 6.0)):
        x = 1.0 / (1.0 + np.exp(-(scale * x - offset)))
    return x


def flipped(factors: Any) -> Any:
    """Each item's partner: the walk down all inner products, in which an item can be its own partner."""
    inner = factors @ factors.T
    np.fill_diagonal(inner, 0.0)
    partner, free, left = np.arange(len(factors)), np.ones(len(factors), bool), len(factors) // 2
    for place in inner.argsort(axis=None)[::-1].tolist():
        one, other = divmod(place, len(factors))
        if free[one] and free[other]:
            partner[one], partner[other] = other, one
            free[one] = free[other] = False
            left -= 1
            if left == 0:
                break
    return partner


# ----------------------------------------------------------------------------------------------------------- the logs


def uniform(n_items: int) -> Choose:
    """The environment's own policy, which draws from its stream."""
    return lambda views, draws: (int(draws.randint(n_items)), 1.0 / n_items)


def random_agent(n_items: int) -> Choose:
    """The notebook's Random, with a stream of its own."""
    own = RandomState(SEED)
    return lambda views, draws: (int(own.randint(n_items)), 1.0 / n_items)


def user_popularity() -> Choose:
    """In proportion to the user's own views, with a stream of its own."""
    own = RandomState(SEED)

    def choose(views: list[int], draws: RandomState) -> tuple[int, float]:
        items, counts = np.unique(views, return_counts=True)
        share = counts / counts.sum()
        place = int(share.cumsum().searchsorted(own.random_sample(), side="right"))
        return int(items[min(place, len(items) - 1)]), float(share[min(place, len(items) - 1)])

    return choose


def best(score: Score) -> Choose:
    """The item of the largest score, of equal ones the first; found anew after new views."""
    last: list[Any] = [None, 0, 0]

    def choose(views: list[int], draws: RandomState) -> tuple[int, float]:
        if last[0] is not views or last[1] != len(views):
            last[:] = views, len(views), int(np.argmax(score(views)))
        return last[2], 1.0

    return choose


def lived(env: Any, n_users: int, choose: Choose) -> Log:
    """The log of users as July 2019 keeps it."""
    rows: list[tuple[int, int, int, int, float, float]] = []
    for user in range(n_users):
        env.begin(user)
        views: list[int] = []
        session, gone = env.browse(), False
        while not gone:
            rows += [(user, ORGANIC, item, -1, np.nan, np.nan) for item in session]
            views += session
            item, propensity = choose(views, env.draws)
            clicked = env.click(item)
            env.move()
            if clicked:
                env.state = STATE_ORGANIC
            session = env.browse()
            rows.append((user, BANDIT, -1, item, propensity, float(clicked)))
            gone = env.state == STATE_GONE
    names = ("user", "event", "item", "action", "propensity", "reward")
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    step = np.arange(len(rows)) - np.searchsorted(columns["user"], columns["user"])
    return Log({**columns, "step": step, "time": step.astype(float)})
