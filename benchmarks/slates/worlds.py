"""Small worlds of slates whose every ranking is enumerated: laws, users, exact means, and logs drawn many at a time.

A user is of one of two tastes, which the policies know, and keen or not, which they do not.

- ``position``: looks at position j with probability 1 / (1 + j), and clicks on what attracts.
- ``cascade``: looks from the top; goes on with probability .9, after a click with .4.
- ``independent``: looks at everything.
- ``crowd``: looks at everything and clicks at most once, at random on one of the items that attract.
- ``bottom``: as ``cascade``, from the bottom; for ``statements.py`` alone.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

USERS = ("position", "cascade", "independent", "crowd")
TASTES, KEENNESS = 2, (0.5, 1.0)
GOES_ON, AFTER_CLICK, EPSILON, EXPLORES, LIKED = 0.9, 0.3, 0.3, 0.4, 1.0
KINDS = ("marginal", "cumulative", "slate", "set")


def plackett_luce(weights: np.ndarray, rankings: np.ndarray) -> np.ndarray:
    """(R,) probabilities of rankings (R, k)."""
    chosen = weights[rankings]
    left = weights.sum() - np.cumsum(chosen, axis=1) + chosen
    return np.prod(chosen / left, axis=1)


def top_with_exploration(scores: np.ndarray, rankings: np.ndarray, explores: float) -> np.ndarray:
    """(R,) probabilities where each position has the best item left, or with ``explores`` any item left."""
    found = np.ones(len(rankings))
    for row, ranking in enumerate(rankings):
        left = list(range(len(scores)))
        for item in ranking:
            best = max(left, key=lambda each: scores[each])
            found[row] *= explores / len(left) + (1.0 - explores) * (item == best)
            left.remove(item)
    return found


@dataclass(frozen=True)
class Setting:
    """One kind of users under one pair of policies."""

    users: str
    pair: str
    logger: str
    n_items: int
    slate_size: int

    @property
    def name(self) -> str:
        """As results are kept under."""
        return f"{self.users} {self.pair}"


class World:
    """The exact facts of a setting, and its logs.

    Attributes:
        rankings: (R, k) all of them.
        logging, target: (2, R) laws by taste.
        attraction: (2, n_items) of a keen user, by taste.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        m, k = setting.n_items, setting.slate_size
        draws = np.random.default_rng([33, zlib.crc32(setting.pair.encode())])  # the same world for all users
        self.rankings = np.array(list(itertools.permutations(range(m), k)))
        self.attraction = draws.uniform(0.05, 0.8, (TASTES, m))
        score, aim = draws.normal(size=(2, TASTES, m))
        liked = (self.attraction - self.attraction.mean(1, keepdims=True)) / self.attraction.std(1, keepdims=True)
        aim = LIKED * liked + 0.3 * aim  # the target shows what attracts; the log's policy knows little of it
        self.logging = np.stack([self._law(setting.logger, each) for each in score])
        self.target = np.stack([plackett_luce(np.exp(each), self.rankings) for each in aim])

    def _law(self, logger: str, score: np.ndarray) -> np.ndarray:
        uniform = np.full(len(self.rankings), 1.0 / len(self.rankings))
        if logger == "uniform":
            return uniform
        if logger == "softmax":
            return plackett_luce(np.exp(0.5 * score), self.rankings)
        if logger == "epsilon":
            return EPSILON * uniform + (1.0 - EPSILON) * plackett_luce(np.exp(1.5 * score), self.rankings)
        return top_with_exploration(score, self.rankings, EXPLORES)

    # ------------------------------------------------------------------------------------------------ probabilities

    @cached_property
    def parts(self) -> dict[str, np.ndarray]:
        """By kind, (R, k) the number of the part of a ranking that a position's weight is about."""
        k, places = self.setting.slate_size, range(self.setting.slate_size)
        columns = {
            "marginal": [self.rankings[:, j] + j * self.setting.n_items for j in places],
            "cumulative": [self._codes(self.rankings[:, : j + 1]) + j * len(self.rankings) for j in places],
            "slate": [np.arange(len(self.rankings))] * k,
            "set": [self._codes(np.sort(self.rankings, axis=1))] * k,
        }
        return {kind: np.stack(each, axis=1) for kind, each in columns.items()}

    @staticmethod
    def _codes(rows: np.ndarray) -> np.ndarray:
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)

    def by_part(self, kind: str, values: np.ndarray) -> np.ndarray:
        """(2, R, k) sums of values (2, R) or (2, R, k) over the rankings that share a position's part."""
        part, k = self.parts[kind], self.setting.slate_size
        values = values if values.ndim == 3 else np.repeat(values[:, :, None], k, axis=2)
        found = np.empty_like(values)
        for taste, j in itertools.product(range(TASTES), range(k)):
            found[taste, :, j] = np.bincount(part[:, j], values[taste, :, j])[part[:, j]]
        return found

    @cached_property
    def probabilities(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By kind, (2, R, k) of the log and the target; and ``conditional``."""
        found = {kind: (self.by_part(kind, self.logging), self.by_part(kind, self.target)) for kind in KINDS}
        pair = []
        for down in found["cumulative"]:
            each = down.copy()
            each[:, :, 1:] /= down[:, :, :-1]
            pair.append(each)
        return found | {"conditional": (pair[0], pair[1])}

    @cached_property
    def linear(self) -> np.ndarray:
        """(2, R, k) weights of the pseudo-inverse."""
        m, k = self.setting.n_items, self.setting.slate_size
        hot = np.zeros((len(self.rankings), m * k))
        np.put_along_axis(hot, self.rankings + m * np.arange(k), 1.0, axis=1)
        both = zip(self.logging, self.target, strict=True)
        weight = [hot @ np.linalg.pinv(hot.T @ (p[:, None] * hot), hermitian=True) @ (t @ hot) for p, t in both]
        return np.repeat(np.stack(weight)[:, :, None], k, axis=2)

    @cached_property
    def inclusion(self) -> np.ndarray:
        """(2, R, k) the target's probability of the item at any position."""
        shown = np.zeros((TASTES, self.setting.n_items))
        for taste in range(TASTES):
            for j in range(self.setting.slate_size):
                shown[taste] += np.bincount(self.rankings[:, j], self.target[taste], self.setting.n_items)
        return shown[:, self.rankings]

    @cached_property
    def model(self) -> tuple[np.ndarray, np.ndarray]:
        """(2, R, k) a reward model that is wrong for most users, and its mean under the target, given what is above."""
        k = self.setting.slate_size
        logged = 0.6 * self.attraction[:, self.rankings] / (1.0 + 0.5 * np.arange(k))
        weighted = self.target[:, :, None] * logged
        mean = np.empty_like(logged)
        for j in range(k):
            part = self._codes(self.rankings[:, :j]) if j else np.zeros(len(self.rankings), np.int64)
            for taste in range(TASTES):
                sums = np.bincount(part, weighted[taste, :, j]) / np.bincount(part, self.target[taste])
                mean[taste, :, j] = sums[part]
        return logged, mean

    # ---------------------------------------------------------------------------------------------------------- users

    @property
    def looked_at(self) -> range:
        """Positions in the order in which cascades look at them."""
        k = self.setting.slate_size
        return range(k - 1, -1, -1) if self.setting.users == "bottom" else range(k)

    @cached_property
    def means(self) -> np.ndarray:
        """(2, R, k) expected clicks by taste, over keen users and others."""
        found = [self._means(keen * self.attraction[:, self.rankings]) for keen in KEENNESS]
        return np.mean(found, axis=0)

    def _means(self, a: np.ndarray) -> np.ndarray:
        k, users = self.setting.slate_size, self.setting.users
        if users == "independent":
            return a
        if users == "position":
            return a / (1.0 + np.arange(k))
        if users in ("cascade", "bottom"):
            found, looks = np.empty_like(a), np.ones(a.shape[:2])
            for j in self.looked_at:
                found[:, :, j] = looks * a[:, :, j]
                looks = looks * (GOES_ON * (1.0 - a[:, :, j]) + AFTER_CLICK * a[:, :, j])
            return found
        found = np.zeros_like(a)
        for liked in itertools.product((0, 1), repeat=k):
            if any(liked):
                chance = np.prod(np.where(np.array(liked) == 1, a, 1.0 - a), axis=2)
                found += chance[:, :, None] * np.array(liked) / sum(liked)
        return found

    @cached_property
    def truth(self) -> float:
        """The target's clicks per item shown."""
        return float(np.mean(np.einsum("tr,trk->t", self.target, self.means)) / self.setting.slate_size)

    def logs(self, numbers: range, users: int, slates: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
        """Logs by number: taste (U,), number of the ranking (U, S) and clicks (U, S, k)."""
        k, cdf = self.setting.slate_size, np.cumsum(self.logging, axis=1)
        for number in numbers:
            rng = np.random.default_rng([seed, zlib.crc32(self.setting.name.encode()), number])
            taste = rng.integers(0, TASTES, users)
            keen = np.array(KEENNESS)[rng.integers(0, len(KEENNESS), users)]
            u = rng.random((users, slates))
            chosen = np.empty((users, slates), np.int64)
            for each in range(TASTES):
                of_it = np.searchsorted(cdf[each], u[taste == each], side="right")
                chosen[taste == each] = np.minimum(of_it, len(self.rankings) - 1)
            a = keen[:, None, None] * self.attraction[taste[:, None, None], self.rankings[chosen]]
            yield {"taste": taste, "chosen": chosen, "clicks": self._clicks(a, rng.random((3, users, slates, k)))}

    def _clicks(self, a: np.ndarray, u: np.ndarray) -> np.ndarray:
        k, users = self.setting.slate_size, self.setting.users
        liked = u[0] < a
        if users == "independent":
            return liked
        if users == "position":
            return liked & (u[1] < 1.0 / (1.0 + np.arange(k)))
        if users in ("cascade", "bottom"):
            found, looks = np.zeros_like(liked), np.ones(liked.shape[:2], bool)
            for j in self.looked_at:
                found[:, :, j] = looks & liked[:, :, j]
                looks = looks & (u[1, :, :, j] < np.where(liked[:, :, j], AFTER_CLICK, GOES_ON))
            return found
        order = np.where(liked, u[2], -1.0)
        return liked & (order == order.max(axis=2, keepdims=True))

    # ----------------------------------------------------------------------------------------------------- estimators

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """By estimator, (2, R, k) its weights; those of cascade_dr are reward_interaction_ips'."""
        ratio = {kind: t / p for kind, (p, t) in self.probabilities.items()}
        behaves = {"position": "marginal", "independent": "marginal", "cascade": "cumulative", "crowd": "slate"}
        return {
            "slate_ips": ratio["slate"],
            "set_ips": ratio["set"],
            "independent_ips": ratio["marginal"],
            "reward_interaction_ips": ratio["cumulative"],
            "cascade_dr": ratio["cumulative"],
            "pseudo_inverse": self.linear,
            "adaptive_ips": ratio[behaves.get(self.setting.users, "slate")],
        }

    def tends_to(self, name: str) -> float:
        """The exact mean of an estimator that is not self-normalised: what its record says where its premise fails."""
        weight = self.weights[name] * self.means
        return float(np.mean(np.einsum("tr,trk->t", self.logging, weight)) / self.setting.slate_size)

    def values(self, log: dict[str, np.ndarray]) -> dict[str, float]:
        """Point estimates, by looking weights up."""
        taste, chosen, clicks = log["taste"][:, None], log["chosen"], log["clicks"]
        found = {}
        for name, weights in self.weights.items():
            weight = weights[taste, chosen]
            scores = weight * clicks
            if name == "cascade_dr":
                logged, mean = (each[taste, chosen] for each in self.model)
                before = np.ones_like(weight)
                before[:, :, 1:] = weight[:, :, :-1]
                scores = weight * (clicks - logged) + before * mean
            found[name] = float(np.mean(scores))
            if name.endswith("_ips") and name != "adaptive_ips":
                found[name.replace("_ips", "_snips")] = float(np.sum(scores) / np.sum(weight))
        return found

    def columns(self, log: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """A log as :func:`estimate_ranking_value` takes it: columns, a target's arrays, and arguments of estimators."""
        taste, chosen, k = log["taste"][:, None], log["chosen"], self.setting.slate_size
        n = chosen.size
        names = {"marginal": "propensity", "conditional": "conditional_propensity"}
        names |= {"slate": "slate_propensity", "set": "set_propensity"}
        pairs = {kind: [each[taste, chosen].ravel() for each in self.probabilities[kind]] for kind in names}
        columns = {
            "user": np.repeat(np.arange(len(chosen)), chosen.shape[1] * k),
            "slate": np.repeat(np.arange(n), k),
            "position": np.tile(np.arange(k), n),
            "action": self.rankings[chosen].ravel(),
            "reward": log["clicks"].ravel().astype(np.float64),
        } | {column: pairs[kind][0] for kind, column in names.items()}
        behaves = {"position": "independent", "independent": "independent", "cascade": "cascade", "crowd": "whole"}
        given = dict(zip(("q_logged", "q_target"), (each[taste, chosen].ravel() for each in self.model), strict=True))
        given["behaviour"] = behaves.get(self.setting.users, "whole")
        if self.setting.logger == "uniform":
            given |= {"logger": "uniform", "n_items": self.setting.n_items}
            given["inclusion"] = self.inclusion[taste, chosen].ravel()
        return columns, {kind: pair[1] for kind, pair in pairs.items()}, given
