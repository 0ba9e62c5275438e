"""Right worlds and worlds wrong on purpose, drawn from the number of a setting.

Settings from 1,000,000 on are for development, those from 0 on are judged once. The families of :data:`HELD_OUT` were
written down before the checks were, and run for the first time when everything else was settled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.sessions.params import SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

N_USERS = 2000
N_ITEMS = 200


def right(number: int) -> SessionsWorld:
    """The world of a setting."""
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


def _with(world: SessionsWorld, **params: Any) -> SessionsWorld:
    return SessionsWorld(dataclasses.replace(world.params, **params))


class _Changed(SessionsWorld):
    """A sessions world whose users' lives are changed after they were lived; ``change`` takes columns and a seed."""

    change: Callable[[dict[str, Any], int], dict[str, Any]]

    def trajectories(self, seed: int, *args: Any, **options: Any) -> dict[str, Any]:
        """See the class."""
        return type(self).change(super().trajectories(seed, *args, **options), seed)


def _changed(world: SessionsWorld, change: Callable[[dict[str, Any], int], dict[str, Any]]) -> SessionsWorld:
    kind = type("Changed", (_Changed,), {"change": staticmethod(change)})
    return kind(world.params)


def _other_catalogue(world: SessionsWorld, **arrays: Any) -> SessionsWorld:
    """The same world with some of the catalogue's arrays replaced."""
    other = SessionsWorld(world.params)
    other.__dict__["catalogue"] = dataclasses.replace(world.catalogue, **arrays)
    return other


def popularity(world: SessionsWorld) -> SessionsWorld:
    """Another popularity law: the same order of items, by Zipf's law instead of the log-normal one."""
    offsets = world.catalogue.item_offsets
    rank = np.empty(len(offsets))
    rank[np.argsort(-offsets, kind="stable")] = np.arange(1, len(offsets) + 1)
    law = -np.log(rank)
    law = (law - law.mean()) * offsets.std() / law.std()
    return _other_catalogue(world, item_offsets=law)


def drift(world: SessionsWorld) -> SessionsWorld:
    """Interests that do not move."""
    return _with(world, sigma_omega=0.0)


def link(world: SessionsWorld) -> SessionsWorld:
    """Clicks that do not ask for interests: by the item alone, at the same mean rate."""
    catalogue = world.catalogue
    mean = world.click_probabilities(rng.normals(3, Stream.USER, 0, (2000, world.params.n_factors))).mean(axis=0)
    grid = np.linspace(-30.0, 30.0, 6001)
    ones = SessionsWorld(dataclasses.replace(world.params, n_items=len(grid), n_flips=0))
    ones.__dict__["catalogue"] = dataclasses.replace(
        catalogue,
        item_factors=np.zeros((len(grid), world.params.n_factors)), item_offsets=grid,
        click_factors=np.zeros((len(grid), world.params.n_factors)), click_offsets=grid,
    )  # fmt: skip
    rate = ones.click_probabilities(np.zeros((1, world.params.n_factors)))[0]
    offsets = np.interp(mean, rate, grid)
    return _other_catalogue(world, click_factors=np.zeros_like(catalogue.click_factors), click_offsets=offsets)


def alike(world: SessionsWorld) -> SessionsWorld:
    """Users who are all alike."""
    return _with(world, sigma_omega_initial=0.0, sigma_omega=0.0)


def bored(world: SessionsWorld) -> SessionsWorld:
    """Users who do not view again what they viewed last: half of such views are of an item of another user's."""

    def change(columns: dict[str, Any], seed: int) -> dict[str, Any]:
        views = np.flatnonzero(columns["event"] == schema.ORGANIC)
        item, user = columns["item"][views].copy(), columns["user"][views]
        again = np.append(False, (user[1:] == user[:-1]) & (item[1:] == item[:-1]))
        draw = rng.uniforms(derive_seed(seed, "bored"), Stream.PROTOCOL, views, 0)
        chosen = np.flatnonzero(again & (draw < 0.5))
        other = rng.uniforms(derive_seed(seed, "bored"), Stream.PROTOCOL, views[chosen], 1)
        item[chosen] = columns["item"][views][(other * len(views)).astype(np.int64)]
        columns["item"][views] = item
        return columns

    return _changed(world, change)


def _thinned(keep: Callable[[Any], Any], label: str) -> Callable[[dict[str, Any], int], dict[str, Any]]:
    def change(columns: dict[str, Any], seed: int) -> dict[str, Any]:
        shown = columns["event"] == schema.BANDIT
        new = user_begins(columns["user"])
        new[1:] |= shown[1:] != shown[:-1]
        place = np.arange(len(new)) - np.flatnonzero(new)[np.cumsum(new) - 1]
        draw = rng.uniforms(derive_seed(seed, label), Stream.PROTOCOL, np.arange(len(new)), 0)
        columns["reward"][shown & (draw >= keep(place))] = 0.0
        return columns

    return change


def tiring(world: SessionsWorld) -> SessionsWorld:
    """The log's world of ``tireless``: clicks become rarer along a run of recommendations."""
    return _changed(world, _thinned(lambda place: np.maximum(1.0 - 0.05 * place, 0.2), "tiring"))


def tireless(world: SessionsWorld) -> SessionsWorld:
    """Clicks as rare as in ``tiring`` on the whole, wherever in a run."""
    p = world.params
    stay = 1.0 - p.p_bandit_to_organic - p.p_leave_bandit - 0.01
    weight = stay ** np.arange(400)
    share = float((weight * np.maximum(1.0 - 0.05 * np.arange(400), 0.2)).sum() / weight.sum())
    return _changed(world, _thinned(lambda place: np.full(len(place), share), "tireless"))


def two_sorts(world: SessionsWorld) -> SessionsWorld:
    """Users of two sorts: half of them leave when a third of their life is over."""

    def change(columns: dict[str, Any], seed: int) -> dict[str, Any]:
        begins = user_begins(columns["user"])
        owner = np.cumsum(begins) - 1
        length = np.bincount(owner)
        place = np.arange(len(owner)) - np.flatnonzero(begins)[owner]
        early = rng.uniforms(derive_seed(seed, "sorts"), Stream.PROTOCOL, columns["user"][begins], 0) < 0.5
        kept = ~early[owner] | (place <= length[owner] / 3.0)
        return {name: values[kept] for name, values in columns.items()}

    return _changed(world, change)


Family = tuple[Callable[[SessionsWorld], SessionsWorld], Callable[[SessionsWorld], SessionsWorld]]
_SAME: Callable[[SessionsWorld], SessionsWorld] = lambda world: world  # noqa: E731

KNOWN: dict[str, Family] = {
    "another popularity law": (_SAME, popularity),
    "drift switched off": (_SAME, drift),
    "clicks by another link": (_SAME, link),
    "users all alike": (_SAME, alike),
}
"""By name: the log's world and the wrong one, each made of the right world."""
HELD_OUT: dict[str, Family] = {
    "users who tire taken for tireless": (tiring, tireless),
    "bored by what they viewed last": (_SAME, bored),
    "half of the users leave early": (_SAME, two_sorts),
}
