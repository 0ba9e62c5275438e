"""Hidden worlds of families that calibration does not know, for ``advise``; committed before the first run.

``types``: users of six kinds, each with its own distribution of views and its own click probabilities, lives of
lognormal length, tastes that jump instead of drifting. ``mixed``: sessions in which interests drift after every event,
far and fast, with more factors than are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsim_mnar import rng
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.worlds import DecisionWorld, Params, PlainLanes
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

N_TYPES = 6
FAMILIES = ("types", "mixed")


@dataclass(frozen=True)
class TypesParams(Params):
    """Number of items, how uneven views are, how far clicks go with views, share of decisions that change a type."""

    n_items: int = 40
    sharpness: float = 1.5
    agreement: float = 0.5
    level: float = 0.05
    p_change: float = 0.02
    catalogue_seed: int = 0


class TypesLanes(PlainLanes):
    """A user is of a type, and has some decisions to make."""

    def __init__(self, world: TypesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(n_lanes, truth_column=truth_column)
        self.world = world
        self.type, self.left = np.zeros(n_lanes, np.int64), np.zeros(n_lanes, np.int64)

    @property
    def state(self):
        """(n, 1) the users' types."""
        return self.type[:, None].astype(float)

    def arrive(self, which):
        """Type and number of decisions at the user's address."""
        for lane in which:
            u, v = uniforms(int(self.seed[lane]), Stream.USER, int(self.user[lane]), np.arange(2))
            self.type[lane] = int(u * N_TYPES)
            normal = rng.normals(int(self.seed[lane]), Stream.CLOCK, int(self.user[lane]), (1, 1))[0, 0]
            self.left[lane] = 1 + int(np.exp(2.0 + 0.9 * normal + 0 * v))

    def browse(self, which):
        """One to three views before a decision, of the type's distribution."""
        count = 1 + (2.999 * self.uniforms(which, Stream.ORGANIC)).astype(np.int64)
        lanes = np.repeat(which, count)
        turn = np.arange(len(lanes)) - np.repeat(np.cumsum(count) - count, count)
        u = np.array(
            [
                uniforms(int(self.seed[a]), Stream.VIEW, int(self.user[a]), int(self.n_decisions[a]) * 4 + int(k))[0]
                for a, k in zip(lanes, turn, strict=True)
            ]
        )
        cumulative = np.cumsum(self.world.views, axis=1)[self.type[lanes]]
        items = np.minimum((cumulative < u[:, None]).sum(axis=1), self.world.n_items - 1)
        return count, items

    def expected(self, which, actions):
        """Click probabilities."""
        return self.world.clicks[self.type[which], actions]

    def answer(self, which, actions):
        """Click or not; the type may change."""
        clicked = self.uniforms(which) < self.expected(which, actions)
        u = self.uniforms(which, Stream.PURCHASE)
        p = self.world.params.p_change
        self.type[which] = np.where(u < p, (u / max(p, 1e-9) * N_TYPES).astype(np.int64) % N_TYPES, self.type[which])
        self.left[which] -= 1
        return clicked.astype(float), self.left[which] > 0


class TypesWorld(DecisionWorld):
    """Users of six kinds."""

    name = "types"
    truth_column = "expected_reward"
    params_class = TypesParams
    reward_name = "click"
    log_holds = frozenset({"outcomes", "clicks"})

    def __init__(self, params: TypesParams | None = None) -> None:
        p = self.params = params or TypesParams()
        self.n_items = p.n_items
        taste = p.sharpness * rng.normals(p.catalogue_seed, Stream.CATALOGUE, 0, (N_TYPES, p.n_items))
        taste += rng.normals(p.catalogue_seed, Stream.OFFSETS, 0, (1, p.n_items))
        other = p.sharpness * rng.normals(p.catalogue_seed, Stream.CATALOGUE, 100, (N_TYPES, p.n_items))
        self.views = np.exp(taste) / np.exp(taste).sum(axis=1, keepdims=True)
        mixed = p.agreement * taste + (1 - p.agreement) * other
        self.clicks = 1 / (1 + np.exp(-(np.log(p.level / (1 - p.level)) + 0.4 * mixed)))

    def open_lanes(self, n_lanes, *, keep_truth=False):
        """See LaneWorld.open_lanes."""
        return TypesLanes(self, n_lanes, self.truth_column if keep_truth else None)

    def reward_means(self, state):
        """Click probabilities of these types."""
        return self.clicks[state[:, 0].astype(int)]


def hidden_world(number: int) -> tuple[str, DecisionWorld]:
    """World ``number`` and its family."""
    u = uniforms(777, Stream.SEED, number, np.arange(8)).tolist()
    family = FAMILIES[number % 2]
    n_items = 15 + int(45 * u[0])
    if family == "types":
        return family, TypesWorld(
            TypesParams(n_items, 0.7 + 1.3 * u[1], u[2], 0.02 + 0.08 * u[3], 0.05 * u[4], catalogue_seed=number)
        )
    return family, SessionsWorld(
        SessionsParams(
            n_items=n_items,
            n_factors=12,
            sigma_omega_initial=0.3 + 0.5 * u[1],
            sigma_omega=0.05 + 0.1 * u[2],
            drift_in_bandit=True,
            sigma_mu_organic=2.0 * u[3],
            n_flips=int(u[4] * (n_items // 2)),
            catalogue_seed=number,
        )
    )
