"""The campaigns world: users add items to their profiles, unaided or from campaigns of recommendations.

De Myttenaere, Golden, Le Grand & Rossi 2015, "Study of a bias in the offline evaluation of a recommendation algorithm":
items that users add because of a campaign change the data on which recommenders are later evaluated.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.campaigns.model import CampaignsModel, User, check_weights, values_at_lists
from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary
from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within
from recsim_mnar.rng import Stream, check_seed, uniforms
from recsim_mnar.simulation.executor import concatenate_tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


Lists = NDArray[np.int32]


@dataclass(frozen=True)
class Campaign:
    """Items shown in a campaign to n users, and their results.

    Attributes:
        number: number of the campaign, from 0.
        day: day of the campaign.
        users: (n,) ids of the users.
        lists: (n, k) shown items, -1 at empty places.
        propensities: (n, k) probability of the item at its place, given the places before it.
        accepted: (n, k) 1 if the item was accepted, else 0.
        added: (n, k) day on which an accepted item is added to the user's profile, NaN if it was not accepted.
    """

    number: int
    day: float
    users: Ints
    lists: Lists
    propensities: Floats
    accepted: NDArray[np.int8]
    added: Floats


class Platform:
    """Platform with users, their items, and the campaigns so far; made by :meth:`CampaignsWorld.open_platform`.

    Attributes:
        world: model of choices and acceptance.
        seed: seed of the users.
        day: present day.
        campaigns: campaigns so far.
        cluster: (U,) group of each user.
        arrival: (U,) day on which each user arrives.
    """

    def __init__(self, world: CampaignsModel, seed: int) -> None:
        p = world.params
        self.world = world
        self.seed = seed
        self.day = 0.0
        self.campaigns: list[Campaign] = []
        everyone = np.arange(p.n_users)
        groups = uniforms(seed, Stream.USER, everyone, User.GROUP) * p.n_clusters
        self.cluster = np.minimum(groups.astype(np.int32), p.n_clusters - 1)
        arrives_late = uniforms(seed, Stream.USER, everyone, User.LATE) < p.user_growth
        self.arrival = np.where(arrives_late, uniforms(seed, Stream.USER, everyone, User.ARRIVAL) * p.n_days, 0.0)
        activity, mean = _activities(seed, p.n_users, p.activity_power, p.activity_max)
        # State of the kernel that draws additions without a recommendation; see its description of ``people``.
        self._appetite = p.organic_items * activity / mean
        self._clock = np.stack([self.arrival, np.zeros(p.n_users)], axis=1)
        self._events = np.zeros(p.n_users, np.int64)
        self._proposals = np.zeros(p.n_users, np.int64)
        self._tables = tuple(np.cumsum(world.choice_weights(promotion), axis=1) for promotion in (False, True))
        # All additions of all users, in arrays that grow, of which the first _n_additions entries are used. Those of a
        # user form a linked list: _last holds the user's latest addition, "before" each one's predecessor, -1 for none.
        self._last = np.full(p.n_users, -1, np.int64)
        kinds = {"users": np.int32, "items": np.int32, "times": np.float64, "causes": np.int16, "before": np.int64}
        size = max(1024, (p.starting_items + 4) * p.n_users)
        self._additions: dict[str, NDArray[Any]] = {name: np.empty(size, kind) for name, kind in kinds.items()}
        self._n_additions = 0
        self._held = np.zeros(p.n_items, np.bool_)  # scratch of the kernels, all False between calls
        self.advance(0.0)

    def _enlarge_additions(self, size: int) -> None:
        """Move the additions to arrays of a larger size; the kernels, which allocate nothing, ask for it."""
        for name, values in self._additions.items():
            larger = np.empty(size, values.dtype)
            larger[: self._n_additions] = values[: self._n_additions]
            self._additions[name] = larger

    # ------------------------------------------------------------------------------------------------------ simulation

    def advance(self, day: float) -> None:
        """Simulate until the end of a day: users add items without a recommendation.

        Raises:
            UserError: the day is before the present one.
        """
        from recsim_mnar.campaigns import _campaigns_kernel

        if not day >= self.day:
            raise UserError(f"day {day:g} is past: the platform is at day {self.day:g}")
        world = self.world
        p = world.params
        promotion = (np.inf, np.inf)  # never
        if p.n_promoted:
            promotion = (float(p.promotion_start), float(p.promotion_end))
        rules = (p.fading, p.starting_items)
        streams = np.uint64(self.seed), np.uint64(Stream.ORGANIC), np.uint64(Stream.VIEW)
        people = (
            self._last, self.arrival, self._appetite, self._clock, self._events, self._proposals, self.cluster
        )  # fmt: skip
        first = 0
        while first < p.n_users:
            with np.errstate(over="ignore"):
                self._n_additions, first = _campaigns_kernel.grow(
                    streams, float(day), first, self._n_additions, tuple(self._additions.values()), people, rules,
                    self._tables, promotion, world.birth,
                )  # fmt: skip
            if first < p.n_users:  # the kernel stopped because the arrays of additions are full
                self._enlarge_additions(2 * len(self._additions["users"]))
        self.day = float(day)

    def present(self) -> Ints:
        """Return the ids of users who have arrived, ascending."""
        return np.flatnonzero(self.arrival <= self.day)

    def born(self) -> Ints:
        """Return the items that have appeared, ascending."""
        return np.flatnonzero(self.world.birth <= self.day)

    def draw_lists(
        self, weights: NDArray[Any], users: Ints | None = None, k: int | None = None
    ) -> tuple[Lists, Floats]:
        """Draw lists of distinct items that users do not hold: each place by weight among the items left.

        Args:
            weights: (n_items,) weights for all users, or (n, n_items), not negative; items of weight 0 are never drawn.
            users: (n,) recipients; None for all present users.
            k: length of the lists; None for the world's ``list_length``.

        Returns:
            (n, k) lists, -1 at places for which no item was left.
            (n, k) probability of each item at its place, given the places before it; NaN at empty places.

        Raises:
            UserError: no user is present, or the weights are invalid.
        """
        from recsim_mnar.campaigns import _campaigns_kernel

        users = self._recipients(users)
        table = np.atleast_2d(np.ascontiguousarray(weights, np.float64))
        if table.shape not in {(1, self.world.n_items), (len(users), self.world.n_items)}:
            raise UserError(
                f"weights must have shape ({self.world.n_items},) or one row per user, got {np.shape(weights)}"
            )
        check_weights(table)
        lists, probabilities = self._empty_lists(len(users), k)
        with np.errstate(over="ignore"):
            _campaigns_kernel.draw_lists(
                np.uint64(self.seed), np.uint64(Stream.POLICY), len(self.campaigns), self.day, users, table,
                self.world.birth, self._last, self._additions["before"], self._additions["items"], self._held, lists,
                probabilities,
            )  # fmt: skip
        return lists, probabilities

    def best_lists(self, scores: NDArray[Any], users: Ints | None = None, k: int | None = None) -> tuple[Lists, Floats]:
        """Return lists of the items with the largest scores that users do not hold.

        Ties are broken by a draw. Items with a score of -inf are never listed.

        Args:
            scores: (n, n_items) scores.
            users: (n,) recipients; None for all present users.
            k: length of the lists; None for the world's ``list_length``.

        Returns:
            (n, k) lists, -1 at places for which no item was left.
            (n, k) propensities: 1, and NaN at empty places.
        """
        from recsim_mnar.campaigns import _campaigns_kernel

        users = self._recipients(users)
        table = np.ascontiguousarray(scores, np.float64)
        if table.shape != (len(users), self.world.n_items):
            raise UserError(f"scores must have shape ({len(users)}, {self.world.n_items}), got {table.shape}")
        lists, _ = self._empty_lists(len(users), k)
        with np.errstate(over="ignore"):
            _campaigns_kernel.best_lists(
                np.uint64(self.seed), np.uint64(Stream.POLICY), len(self.campaigns), self.day, users, table,
                self.world.birth, self._last, self._additions["before"], self._additions["items"], self._held, lists,
            )  # fmt: skip
        return lists, np.where(lists >= 0, 1.0, np.nan)

    def recommend(self, lists: Lists, propensities: Floats | None = None, users: Ints | None = None) -> Campaign:
        """Run a campaign on the present day: users accept or refuse each item of their lists.

        An accepted item is added to the profile after a delay, but counts as held at once, so that no user adds it
        twice.

        Args:
            lists: (n, k) distinct items that each user does not hold, -1 at empty places.
            propensities: (n, k) probabilities with which the items were chosen; None for 1.
            users: (n,) recipients; None for all present users.

        Raises:
            UserError: no user is present, or a list holds an item that is out of range, repeated, held, or not there
                yet.
        """
        from recsim_mnar.campaigns import _campaigns_kernel

        users = self._recipients(users)
        shown_items = np.ascontiguousarray(lists, np.int32)
        if shown_items.ndim != 2 or len(shown_items) != len(users):
            raise UserError(f"lists must have one row for each of {len(users)} users, got shape {shown_items.shape}")
        self._check_lists(users, shown_items)
        if propensities is None:
            propensities = np.where(shown_items >= 0, 1.0, np.nan)
        propensities = np.asarray(propensities, np.float64)
        if self._n_additions + shown_items.size > len(self._additions["users"]):
            self._enlarge_additions(2 * len(self._additions["users"]) + shown_items.size)
        world = self.world
        p = world.params
        number = len(self.campaigns)
        # Logarithm of the probability that an accepted item is not added within a day; not used without a delay.
        log_stay = -1.0
        if p.delay < 1.0:
            log_stay = float(elementary.log(np.array([1.0 - p.delay]))[0])
        accepted = np.empty(shown_items.shape, np.int8)
        added = np.empty(shown_items.shape)
        with np.errstate(over="ignore"):
            self._n_additions = _campaigns_kernel.respond(
                np.uint64(self.seed), np.uint64(Stream.RESPONSE), number, self.day, self._n_additions, users,
                shown_items, (world.logit_acceptance(number), world.same_bonus, p.acceptance_strength),
                (log_stay, p.delay < 1.0), (self._last, self.cluster), (world.item_cluster, world.appeal),
                tuple(self._additions.values()), (accepted, added),
            )  # fmt: skip
        self.campaigns.append(Campaign(number, self.day, users, shown_items, propensities, accepted, added))
        return self.campaigns[-1]

    def _recipients(self, users: Ints | None) -> Ints:
        """Return the recipients of a campaign, all present users for None; raise UserError for invalid ones."""
        if users is None:
            users = self.present()
        chosen = np.ascontiguousarray(users, np.int64)
        if len(chosen) == 0:
            raise UserError(f"a campaign on day {self.day:g} has no eligible user: no user has arrived yet")
        if chosen.min() < 0 or chosen.max() >= len(self.arrival) or (self.arrival[chosen] > self.day).any():
            raise UserError(f"a campaign on day {self.day:g} names users who have not arrived")
        if len(np.unique(chosen)) < len(chosen):
            raise UserError("a campaign names a user twice")
        return chosen

    def _empty_lists(self, n: int, k: int | None) -> tuple[Lists, Floats]:
        """Return empty lists for n users, which the kernels fill in; ``k`` is None for the world's ``list_length``.

        Returns:
            (n, k) items, all -1.
            (n, k) propensities, all NaN.
        """
        length = self.world.params.list_length
        if k is not None:
            length = int(k)
        if length < 1:
            raise UserError(f"a list must hold at least one item, got {length}")
        return np.full((n, length), -1, np.int32), np.full((n, length), np.nan)

    def _check_lists(self, users: Ints, lists: Lists) -> None:
        """Raise UserError if a list holds an item that is out of range, repeated, held, or not there yet."""
        if lists.size and (lists.min() < -1 or lists.max() >= self.world.n_items):
            raise UserError(f"lists must hold items 0..{self.world.n_items - 1}, or -1 for none")
        row, place = np.nonzero(lists >= 0)
        item = lists[row, place].astype(np.int64)
        if (self.world.birth[item] > self.day).any():
            raise UserError(f"a list holds items that have not appeared by day {self.day:g}")
        pairs = users[row] * self.world.n_items + item  # one number per pair of user and item
        if len(np.unique(pairs)) < len(pairs):
            raise UserError("a list holds an item twice")
        users_of_additions = self._additions["users"][: self._n_additions].astype(np.int64)
        held_pairs = users_of_additions * self.world.n_items + self._additions["items"][: self._n_additions]
        if np.isin(pairs, held_pairs).any():
            raise UserError("a list holds an item that its user already has: leave those out")

    # ------------------------------------------------------------------------------------------------- observable data

    def log_columns(self) -> dict[str, NDArray[Any]]:
        """Return the log's columns up to the present day, ordered by (user, step).

        An organic row is an item that a user added without a recommendation. A bandit row is a recommendation; its
        reward is 1 if the item was accepted and has been added. Further columns: ``campaign``, its number; ``place`` in
        the list; and ``added``, the day on which the item was added. They are -1, -1 and NaN if they do not apply.
        """
        additions = {name: values[: self._n_additions] for name, values in self._additions.items()}
        is_unaided = (additions["causes"] < 0) & (additions["times"] <= self.day)
        days = additions["times"][is_unaided]
        items = additions["items"][is_unaided]
        parts = [_log_rows(additions["users"][is_unaided], days, schema.ORGANIC, item=items, added=days)]
        for campaign in self.campaigns:
            row, place = np.nonzero(campaign.lists >= 0)
            added = campaign.added[row, place]
            is_added = added <= self.day
            parts.append(
                _log_rows(
                    campaign.users[row], campaign.day, schema.BANDIT, action=campaign.lists[row, place],
                    propensity=campaign.propensities[row, place], reward=is_added, campaign=campaign.number,
                    place=place, added=np.where(is_added, added, np.nan),
                )
            )  # fmt: skip
        rows = concatenate_tables(parts)
        order = np.lexsort((rows["place"], rows["event"], rows["time"], rows["user"]))
        rows = {name: values[order] for name, values in rows.items()}
        rows["step"] = steps_within(rows["user"]).astype(np.int32)
        return rows

    def holders(self) -> Ints:
        """Return the number (n_items,) of users who hold each item on the present day."""
        is_added = self._additions["times"][: self._n_additions] <= self.day
        return np.bincount(self._additions["items"][: self._n_additions][is_added], minlength=self.world.n_items)

    # ------------------------------------------------------------------------------------------------------ the truth

    def acceptance(self, users: Ints, campaign: int = 0) -> Floats:
        """Return the true probability (n, n_items) that each user accepts each item in a campaign of this number."""
        from recsim_mnar.campaigns import _campaigns_kernel

        out = np.empty((len(users), self.world.n_items))
        _campaigns_kernel.acceptances(
            self.world.logit_acceptance(campaign), self.world.same_bonus, self.world.params.acceptance_strength,
            np.ascontiguousarray(users, np.int64), self.cluster, self.world.item_cluster, self.world.appeal, out,
        )  # fmt: skip
        return out

    def quality(self, lists: Lists, users: Ints | None = None, campaign: int = 0) -> float:
        """Return the true quality of lists: the expected share of their places whose items are accepted.

        Args:
            lists: (n, k) items, -1 at empty places, which count as not accepted.
            users: (n,) recipients; None for all present users.
            campaign: number of the campaign, from 0, on which acceptance depends by ``fatigue``.
        """
        users = self._recipients(users)
        return float(values_at_lists(self.acceptance(users, campaign), lists).mean())


_TYPES = {
    "user": np.int64, "time": np.float64, "event": np.int8, "item": np.int32, "action": np.int32,
    "propensity": np.float64, "reward": np.float64, "campaign": np.int16, "place": np.int16, "added": np.float64,
}  # fmt: skip


def _log_rows(user: Ints, time: Any, event: int, **columns_of_event: Any) -> dict[str, NDArray[Any]]:
    """Return all columns of log rows except ``step``; columns that are not given hold -1, or NaN if they are floats."""
    values = {"user": user, "time": time, "event": event, **columns_of_event}
    columns = {}
    for name, kind in _TYPES.items():
        null = np.nan if kind is np.float64 else -1
        columns[name] = np.full(len(user), values.get(name, null), kind)
    return columns


def _activities(seed: int, n_users: int, power: float, largest: int) -> tuple[Floats, float]:
    """Draw the users' activities z, with P(z) proportional to z ** -power on 1 .. largest.

    Returns:
        (U,) activities.
        Mean of the distribution.
    """
    z = np.arange(1, largest + 1, dtype=np.float64)
    weights = elementary.exp(-power * elementary.log(z))
    cumulative = np.cumsum(weights)
    draws = uniforms(seed, Stream.USER, np.arange(n_users), User.ACTIVITY) * cumulative[-1]
    # Rounding may lead a draw up to the whole sum, past the last activity.
    place = np.minimum(np.searchsorted(cumulative, draws, side="right"), largest - 1)
    # fsum rounds once only, so the mean is the same on every machine.
    return z[place], math.fsum(weights * z) / math.fsum(weights)


class CampaignsWorld(CampaignsModel):
    """World of platforms whose users add items unaided and through campaigns; :meth:`open_platform` starts one."""

    def open_platform(self, seed: int) -> Platform:
        """Return a platform on day 0, with users of this seed."""
        return Platform(self, check_seed(seed))

    def with_users(self, n_users: int) -> CampaignsWorld:
        """Implement :meth:`PlatformWorld.with_users`."""
        return type(self)(dataclasses.replace(self.params, n_users=n_users))

    def platform_truth(self, platform: Platform) -> dict[str, NDArray[Any]]:
        """Implement :meth:`PlatformWorld.platform_truth`: parameters of items, and groups and arrivals of users."""
        return {
            "item_cluster": self.item_cluster,
            "appeal": self.appeal,
            "log_popularity": self.log_popularity,
            "house_weights": self.deployed_weights,  # the key in files since version 0.1.0
            "birth": self.birth,
            "user_cluster": platform.cluster,
            "arrival": platform.arrival,
        }
