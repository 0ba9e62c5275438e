"""Right worlds, loggers, and worlds with one defect each, drawn from the number of a setting.

Settings from 1,000,000 on are for development, those from 0 on are judged once.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.log.table import Log
from recsim_mnar.policies import Policy
from recsim_mnar.policies.registry import learner
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.base import DecisionWorld
from recsim_mnar.worlds.lanes import PlainLanes
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.sessions.params import SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

N_USERS = 1000
N_ITEMS = 200
TRAINING = 500
"""Users under the uniform policy on whose log a logger is fitted."""


def right(number: int) -> SessionsWorld:
    """The right world of a setting."""
    u = rng.uniforms(17, Stream.PROTOCOL, number, np.arange(8))
    return SessionsWorld(
        SessionsParams(
            n_items=N_ITEMS,
            n_factors=int(3 + 4 * u[0]),
            sigma_mu_organic=float(0.5 + 1.5 * u[1]),
            sigma_omega=float(0.08 + 0.08 * u[2]),
            sigma_omega_initial=float(0.7 + 0.6 * u[3]),
            n_flips=int(20 * u[4]),
            p_organic_to_bandit=float(0.15 + 0.2 * u[5]),
            p_bandit_to_organic=float(0.03 + 0.05 * u[6]),
            p_leave_organic=float(0.008 + 0.012 * u[7]),
            catalogue_seed=derive_seed(17, f"catalogue {number}") >> 1,
        )
    )


# ------------------------------------------------------------------------------------------------------------- loggers


class OneOfTheLast(Policy):
    """Half the time one of the user's last ``n`` views, each equally likely, else any item."""

    def __init__(self, n_items: int, n: int) -> None:
        self.n_items, self.n, self.last, self.name = n_items, n, {}, "hidden"

    def reset(self, users: Any) -> None:
        """See :meth:`Policy.reset`."""
        self.last.update({user: [] for user in users.tolist()})

    def observe(self, users: Any, items: Any) -> None:
        """See :meth:`Policy.observe`."""
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.last[user] = [*self.last[user], item][-self.n :]

    def probabilities(self, users: Any) -> Any:
        """See :meth:`Policy.probabilities`."""
        out = np.full((len(users), self.n_items), 1.0 / self.n_items)
        for row, user in enumerate(users.tolist()):
            if self.last[user]:
                seen = np.bincount(self.last[user], minlength=self.n_items)
                out[row] = 0.5 * out[row] + 0.5 * seen / seen.sum()
        return out

    def act(self, users: Any, uniforms: Any) -> Any:
        """See :meth:`Policy.act`."""
        p = self.probabilities(users)
        actions = np.minimum((np.cumsum(p, axis=1) <= uniforms[:, None]).sum(axis=1), self.n_items - 1)
        return actions, p[np.arange(len(users)), actions]


class Follows(Policy):
    """What users viewed after the last view's item in the training log, by count; one time in five any item."""

    def __init__(self, training: Log, n_items: int) -> None:
        self.n_items, self.last, self.name = n_items, {}, "hidden"
        user, item = (training.organic()[name] for name in ("user", "item"))
        self.counts = np.ones((n_items, n_items)) * 0.01
        same = user[1:] == user[:-1]
        np.add.at(self.counts, (item[:-1][same], item[1:][same]), 1.0)
        self.counts /= self.counts.sum(axis=1, keepdims=True)

    def reset(self, users: Any) -> None:
        """See :meth:`Policy.reset`."""
        self.last.update(dict.fromkeys(users.tolist(), 0))

    def observe(self, users: Any, items: Any) -> None:
        """See :meth:`Policy.observe`."""
        self.last.update(zip(users.tolist(), items.tolist(), strict=True))

    def probabilities(self, users: Any) -> Any:
        """See :meth:`Policy.probabilities`."""
        return 0.2 / self.n_items + 0.8 * self.counts[[self.last[user] for user in users.tolist()]]

    act = OneOfTheLast.act


LOGGERS = ("random", "user-popularity+epsilon=0.1", "item-knn+epsilon=0.1", "unknown")
KNOWN_HERE = ("user-knn+epsilon=0.3", "svd+temperature=0.1", "last", "last three", "follows")
"""What the unknown policy of a setting is, in turn. The last two were not run before the judged study."""


def logged(world: DecisionWorld, logger: str, number: int, n_users: int) -> tuple[Log, Policy]:
    """A log as the command ``simulate`` writes it, and its policy; an unknown one is named nowhere."""
    training = {"policy": "random", "n_users": TRAINING, "seed": derive_seed(number, "train")}
    kinds = KNOWN_HERE if number < 1_000_000 else KNOWN_HERE[:3]
    name = kinds[number % len(kinds)] if logger == "unknown" else logger
    train = simulate(world, learner("random").fit(Log({}), n_items=N_ITEMS, seed=0), TRAINING, training["seed"])
    if name.startswith("last"):
        policy: Any = OneOfTheLast(N_ITEMS, 1 if name == "last" else 3)
    elif name == "follows":
        policy = Follows(train, N_ITEMS)
    else:
        policy = learner(name).fit(train, n_items=N_ITEMS, seed=derive_seed(number, "fit"))
    log = simulate(world, policy, n_users, number)
    return Log(log.columns, {} if logger == "unknown" else {**log.provenance, "training": training}), policy


# -------------------------------------------------------------------------------------------- worlds with one defect

K = 4
MOST_VIEWS = 12


@dataclass(frozen=True)
class ShopParams(Params):
    """Of a world whose users browse in runs and are recommended items in runs.

    Attributes:
        number: of the setting.
        defect: of :data:`DEFECTS`, or empty.
        intercept: of the click logit.
        p_leave: probability of leaving after a recommendation.
    """

    number: int = 0
    defect: str = ""
    intercept: float = -3.0
    p_leave: float = 0.03


class Shop(DecisionWorld):
    """Users of normal interests that drift, who click by a logistic link; one defect at most."""

    name, params_class, reward_name = "shop", ShopParams, "click"
    params: ShopParams

    def __init__(self, params: ShopParams) -> None:
        self.params, self.n_items = params, N_ITEMS
        seed = derive_seed(23, f"shop {params.number}")
        self.items = rng.normals(seed, Stream.CATALOGUE, 0, (N_ITEMS, K))
        noise = rng.normals(seed, Stream.OFFSETS, 0, (N_ITEMS, K + 1))
        self.offsets = (0.6 + 0.6 * float(rng.uniforms(seed, Stream.PROTOCOL, 0, 0)[0])) * noise[:, K]
        self.clicks = 0.8 * self.items + 0.6 * noise[:, :K]
        net = rng.normals(seed, Stream.FIT, 0, (2 * K + 1, 12))
        self.layers = net[: 2 * K], net[2 * K]
        self.centres = rng.normals(seed, Stream.SEED, 0, (4, K))
        self.phase = 2 * np.pi * rng.uniforms(seed, Stream.PROTOCOL, np.arange(N_ITEMS), 1)

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> ShopLanes:
        """See :meth:`recsim_mnar.worlds.base.LaneWorld.open_lanes`."""
        return ShopLanes(self, n_lanes)


class ShopLanes(PlainLanes):
    """Users side by side."""

    def __init__(self, world: Shop, n_lanes: int) -> None:
        super().__init__(n_lanes)
        self.world, self.defect = world, world.params.defect
        self.omega = np.zeros((n_lanes, K))
        self.viewed, self.shown = np.zeros((2, n_lanes, N_ITEMS))
        self.place, self.last = np.zeros((2, n_lanes), np.int64)
        self.browsing = np.zeros(n_lanes, np.bool_)

    def _draw(self, which: Any, stream: int, index: Any) -> Any:
        out = np.empty(len(which))
        for seed in np.unique(self.seed[which]):
            rows = self.seed[which] == seed
            at = np.broadcast_to(index, len(which))[rows]
            out[rows] = rng.uniforms(int(seed), stream, self.user[which[rows]], at)
        return out

    def _normals(self, which: Any, first: Any) -> Any:
        from scipy.special import ndtri

        return np.stack([ndtri(np.clip(self._draw(which, Stream.USER, first + k), 1e-12, 1 - 1e-12))
                         for k in range(K)], axis=1)  # fmt: skip

    def arrive(self, which: Any) -> None:
        """See :meth:`PlainLanes.arrive`."""
        self.omega[which] = self._normals(which, 0)
        if self.defect == "segments":
            segment = (4 * self._draw(which, Stream.CLOCK, 0)).astype(np.int64)
            self.omega[which] = 0.95 * self.world.centres[segment] + 0.3 * self.omega[which]
        self.viewed[which], self.shown[which], self.place[which], self.last[which] = 0.0, 0.0, 0, -1
        self.browsing[which] = True

    def browse(self, which: Any) -> Any:
        """See :meth:`PlainLanes.browse`."""
        count = np.zeros(len(which), np.int64)
        rows = np.flatnonzero(self.browsing[which])
        lanes, world = which[rows], self.world
        here = self.n_decisions[lanes] * 64
        self.omega[lanes] += 0.15 * self._normals(lanes, here + 8)
        length = np.log(np.maximum(self._draw(lanes, Stream.ORGANIC, here), 1e-12)) / math.log(0.75)
        count[rows] = 1 + np.minimum(length, MOST_VIEWS - 1).astype(np.int64)
        items = np.full((len(which), MOST_VIEWS), -1)
        for place in range(MOST_VIEWS):
            now = np.flatnonzero(count[rows] > place)
            lane = lanes[now]
            if len(lane) == 0:
                break
            logits = self.omega[lane] @ world.items.T + world.offsets
            if self.defect == "boredom":
                logits -= 0.7 * np.log1p(self.viewed[lane])
            if self.defect == "season":
                logits += np.cos(2 * np.pi * self.user[lane][:, None] / N_USERS + world.phase)
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            u = self._draw(lane, Stream.VIEW, here[now] + place)
            item = np.minimum((np.cumsum(p, axis=1) < u[:, None] * p.sum(axis=1)[:, None]).sum(axis=1), N_ITEMS - 1)
            if self.defect == "exposure":
                follows = (self._draw(lane, Stream.EXPOSURE, here[now] + place) < 0.15) & (self.last[lane] >= 0)
                item = np.where(follows, self.last[lane], item)
            items[rows[now], place] = item
            self.viewed[lane, item] += 1
        self.browsing[lanes], self.place[lanes] = False, 0
        return count, items[items >= 0]

    def answer(self, which: Any, actions: Any) -> Any:
        """See :meth:`PlainLanes.answer`."""
        world, defect = self.world, self.defect
        liking = (self.omega[which] * world.clicks[actions]).sum(axis=1) / 2.0
        logit = world.params.intercept + {"sign": -liking, "neural": self._net(which, actions)}.get(defect, liking)
        if defect == "attention":
            logit -= 0.2 * np.minimum(self.place[which], 10)
        if defect == "fatigue":
            logit -= 0.8 * np.log1p(self.shown[which, actions])
        clicked = self.uniforms(which) < 1.0 / (1.0 + np.exp(-logit))
        leave = world.params.p_leave * (np.exp(-1.2 * np.clip(liking, -2, 2)) if defect == "churn" else 1.0)
        u = self.uniforms(which, Stream.CLOCK)
        self.shown[which, actions] += 1
        self.place[which] += 1
        self.last[which] = actions
        self.browsing[which] = clicked | (u > 0.88)
        return clicked.astype(np.float64), u >= leave

    def _net(self, which: Any, actions: Any) -> Any:
        inside, outside = self.world.layers
        x = np.hstack([self.omega[which], self.world.clicks[actions]])
        return np.tanh(x @ inside / 2.0) @ outside / 2.0


DEFECTS = ("attention", "boredom", "sign", "exposure", "neural", "season", "segments", "fatigue", "churn")


def defective(defect: str, number: int, n_users: int) -> tuple[Log, Policy, Shop]:
    """A log of a world with a defect, its policy, and the world without it.

    That world clicks and stays as often as the log's users: it is what a fit without the defect would be.
    """
    logger = (*LOGGERS[1:],)[number % 3]
    log, policy = logged(Shop(ShopParams(number=number, defect=defect)), logger, number, n_users)
    params = ShopParams(number=number)
    for _ in range(3):
        own = simulate(Shop(params), copy.deepcopy(policy), n_users, derive_seed(number, "matching"))
        rate, wanted = (float(each["reward"][each.is_bandit].mean()) for each in (own, log))
        step = math.log(wanted / (1 - wanted)) - math.log(rate / (1 - rate))
        length = own.is_bandit.sum() / log.is_bandit.sum()
        params = replace(params, intercept=params.intercept + step, p_leave=min(params.p_leave * float(length), 0.5))
    return Log(log.columns, {}), policy, Shop(params)
