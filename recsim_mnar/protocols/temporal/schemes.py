"""Ways to choose the held-out pairs of a leave-one-out after campaigns."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.log.table import Log
from recsim_mnar.protocols.base import Trial
from recsim_mnar.protocols.temporal.weighing import Scheme, Weighing, fit_item_weights

Floats = NDArray[np.float64]


class Unweighted(Scheme):
    """The classical score: a user by P(u), then one of their items by P(i|u), both uniform unless said otherwise.

    De Myttenaere et al. 2015, section 2.2: P(u) "might reflect the business importance of the users", P(i|u) "could
    favor items recently associated to a profile", and "random edge selection" draws one of all pairs.

    Args:
        users: P(u) up to a factor: ``uniform``; ``edges``, by the number of items held, which draws pairs alike; or a
            weight for each user's id.
        half_life: days after which an item counts half as much in P(i|u) as one just added; 0 counts them alike.
    """

    name = "unweighted"
    summary = "leave-one-out, unweighted: a user, then one of their items (campaigns)"
    words = "unweighted"

    def __init__(self, users: str | Mapping[int, float] = "uniform", half_life: float = 0.0) -> None:
        if not (users in ("uniform", "edges") if isinstance(users, str) else isinstance(users, Mapping)):
            raise UserError(f"unweighted: users must be uniform, edges or a weight for each user's id, got {users!r}")
        self.users, self.half_life = users, number_in(half_life, "unweighted: half_life")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        if self.users == "uniform" and not self.half_life:
            return _by_user(now, np.ones(now.n_items))
        item = self._recency(now) if self.half_life else np.ones(now.n_pairs)
        total = np.add.reduceat(item, now.starts[:-1])
        return _by_pair(now, item * np.repeat(self._user_weights(now) / total, now.lengths()))

    def _recency(self, now: Profiles) -> Floats:
        """Relative to the user's last item, so that no half-life is too short; a weight of 2 ** -1100 is 0 anyway."""
        latest = np.repeat(np.maximum.reduceat(now.added, now.starts[:-1]), now.lengths())
        return np.exp2(-np.minimum(latest - now.added, 1100.0 * self.half_life) / self.half_life)

    def _user_weights(self, now: Profiles) -> Floats:
        if isinstance(self.users, str):
            return now.lengths().astype(np.float64) if self.users == "edges" else np.ones(now.n_users)
        given = (self.users.get(int(user)) for user in now.users)
        found = np.array([weight if isinstance(weight, Real) else np.nan for weight in given], np.float64)
        if not (found >= 0.0).all() or not np.isfinite(found).all():
            user = int(now.users[np.flatnonzero(~((found >= 0.0) & np.isfinite(found)))[0]])
            raise UserError(f"unweighted: user {user} has no weight from 0. Give one for each user who holds an item")
        return found


class Weights(Scheme):
    """Item weights that give back P_t0(i) (de Myttenaere et al. 2015).

    Args:
        p: how many weights are optimised; 0 for all items.
    """

    name = "weights"
    summary = "leave-one-out, item weights optimised against campaigns (campaigns)"
    words = "weighted"

    def __init__(self, p: int = 0) -> None:
        self.p = whole_number(p, "weights: p")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        fit = fit_item_weights(now, reference.item_probabilities(), self.p or None)
        details = {"p": len(fit.active), "kl": fit.divergence, "kl_unweighted": fit.divergence_before, **fit.details}
        return _by_user(now, fit.weights, details)


class AtReference(Scheme):
    """The classical score on the database as it was at t0: one of the ways out that the paper names."""

    name = "at-t0"
    summary = "leave-one-out on the data of before the campaigns (campaigns)"
    words = "before campaigns"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_user(reference, np.ones(reference.n_items))


class ItemFirst(Scheme):
    """An item by P_t0(i), then one of the users who hold it now, uniformly: another of them."""

    name = "item-first"
    summary = "leave-one-out, an item by its former share, then a holder (campaigns)"
    words = "item first"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_pair(now, reference.item_probabilities()[now.items] / now.n_holders()[now.items])


class RandomPhase(Scheme):
    """Only what users accepted in a campaign that recommended at random: the third, which costs a campaign.

    Args:
        campaign: number of that campaign; None for the first, and in a comparison for a further one, which changes a
            platform of its own.
    """

    name = "random-phase"
    summary = "leave-one-out on what a further, random campaign made users add (campaigns)"
    words = "random campaign"

    def __init__(self, campaign: int | None = None) -> None:
        self.campaign = None if campaign is None else whole_number(campaign, "random-phase: campaign")

    def in_trial(self, study: Trial) -> tuple[Scheme, Log]:
        """See :meth:`Scheme.in_trial`."""
        if self.campaign is not None:
            return super().in_trial(study)
        return RandomPhase(len(study.data.platform.campaigns)), study.data.random_log()

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        campaign = self.campaign or 0
        from_it = (now.causes == campaign).astype(np.float64)
        if not from_it.any():
            raise UserError(f"random-phase: no user has added anything from campaign {campaign} by time {now.time:g}")
        return _by_pair(now, from_it, {"pairs_from_campaign": int(from_it.sum())})


class StratifiedRecall(Scheme):
    """Popularity-stratified recall (Steck 2011, "Item popularity and recommendation accuracy").

    Pairs by s_i = n_i ** -beta, a user's weight being the sum of theirs, so that the score is sum s hit / sum s.

    Args:
        beta: gamma / (gamma + 1) in Steck's notation; 0 counts pairs alike, 1 items.
    """

    name = "stratified-recall"
    summary = "leave-one-out, popularity-stratified recall of Steck 2011 (campaigns)"
    words = "stratified recall"

    def __init__(self, beta: float = 0.5) -> None:
        self.beta = number_in(beta, "stratified-recall: beta")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_pair(now, now.n_holders()[now.items].astype(np.float64) ** -self.beta)


class PopularitySNIPS(Scheme):
    """Self-normalised inverse propensities in each user (Yang et al. 2018, "Unbiased offline recommender evaluation").

    P_i ~ n_i ** ((gamma + 1) / 2): a user uniformly, then one of their items by 1 / P_i.

    Args:
        gamma: exponent of the observation's power law.
    """

    name = "snips"
    summary = "leave-one-out, popularity propensities of Yang et al. 2018 (campaigns)"
    words = "popularity SNIPS"

    def __init__(self, gamma: float = 1.5) -> None:
        self.gamma = number_in(gamma, "snips: gamma")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        holders = np.maximum(now.n_holders(), 1).astype(np.float64)
        return _by_user(now, (holders / holders.max()) ** (-(self.gamma + 1.0) / 2.0))


class WTD(Scheme):
    """Test pairs by w_u w_i = P_MAR(u, i) / P_MNAR(u, i) (Carraro & Bridge 2020, "Debiased offline evaluation").

    P_MAR is uniform, P_MNAR the product of the shares of pairs that each user and each item has. The authors call this
    WTD_H, of hypothesised probabilities: their WTD takes P_MAR from a sample of ratings missing at random, which a log
    of additions does not have. ``wtd-h`` names the same scheme.
    """

    name = "wtd"
    summary = "leave-one-out, pairs weighted as Carraro & Bridge 2020 (campaigns)"
    words = "WTD"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """See :meth:`Scheme.weigh`."""
        return _by_pair(now, 1.0 / (now.lengths()[now.owners()].astype(np.float64) * now.n_holders()[now.items]))


def _by_user(profiles: Profiles, weights: Floats, details: dict[str, Any] | None = None) -> Weighing:
    """P(u) uniform, P(i|u) proportional to the item's weight."""
    own = weights[profiles.items]
    totals = np.bincount(profiles.owners(), own)
    probabilities = own / np.repeat(totals, profiles.lengths()) / profiles.n_users
    return Weighing(profiles, probabilities, details or {})


def _by_pair(profiles: Profiles, weights: Floats, details: dict[str, Any] | None = None) -> Weighing:
    most = weights.max()
    if not most > 0.0:
        raise UserError(f"no pair at time {profiles.time:g} has a weight above 0")
    weights = weights / most  # the largest weights have no finite sum
    return Weighing(profiles, weights / weights.sum(), details or {})
