"""Occasions: the decisions at which something may be earned, and lives that halt nowhere else."""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Prospects(NamedTuple):
    """What is to come in a life whose recommendations are all clicked with one probability.

    Attributes:
        begins: probability that a user comes to an occasion at all.
        goes_on: (2,) probability of another occasion after an answer, without a click and with one.
        number: (2,) expected number of occasions after an answer, likewise.
    """

    begins: float
    goes_on: NDArray[np.float64]
    number: NDArray[np.float64]


class Occasions(abc.ABC):
    """Places in which users live from occasion to occasion, one user a lane.

    An occasion is a decision whose answer depends on what is shown. Which decisions are occasions is drawn for each of
    them alone, with the same probability, whatever was before and whatever is shown: they are a random sample of all
    decisions. The users, their draws and so their lives are those of :meth:`LaneWorld.open_lanes`.

    Attributes:
        share: probability of a decision to be an occasion; no reward's probability is above it.
        user: (n,) of the user in each lane.
        n_decisions: (n,) number of the decision at which each lane's user is, from 0.
        uniform: (n,) of the answer there, in [0, share): a reward of 1 where it is below its probability.
        state: (n, K) the user's hidden state, normal around 0 with
        variance: (n,) this variance of each entry.
    """

    share: float
    user: NDArray[np.int64]
    n_decisions: NDArray[np.int64]
    uniform: NDArray[np.float64]
    state: NDArray[np.float64]
    variance: NDArray[np.float64]

    @abc.abstractmethod
    def begin(
        self, which: NDArray[np.int64], seed: int, users: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Users arrive in lanes ``which`` and live until their first occasion.

        Returns (n + 1,) where each lane's views begin among the (m,) items viewed, and (n,) whether an occasion came.
        """

    @abc.abstractmethod
    def answer(
        self, which: NDArray[np.int64], clicked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Lanes ``which`` answer, and live until their next occasion; returns as :meth:`begin`."""

    @abc.abstractmethod
    def reward_means(self, which: NDArray[np.int64], actions: NDArray[np.int32]) -> NDArray[np.float64]:
        """(n,) expected reward of item ``actions[j]`` for the user of lane ``which[j]``; lanes may stand repeatedly."""

    @abc.abstractmethod
    def order(self) -> NDArray[np.int64]:
        """(n_items,) all items, those of like rewards near each other."""

    @abc.abstractmethod
    def prospects(self, probability: float) -> Prospects:
        """What is to come where every recommendation is clicked with this probability."""
