"""Leave-one-out on profiles at given times, with the held-out pairs weighed (de Myttenaere et al. 2015).

A scheme says which profiles are judged, and with what probability each pair (user, item) is held out. The score of a
recommender is the sum over pairs of that probability times whether the recommender, the pair left out, finds the item.

Item weights give back the items' probabilities of a reference time (section 3 of the same paper).
"""

from __future__ import annotations

import abc
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from recsim_mnar.campaigns.profiles import Floats, Ints, Profiles
from recsim_mnar.campaigns.world import Platform
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.kernels.checks import level_of, refuse_first, whole_number
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import as_learner, fitted
from recsim_mnar.protocols.base import Protocol, Trial, protocol
from recsim_mnar.protocols.ranks import exhaustive_ranks
from recsim_mnar.protocols.records import Record

SCHEMES = {"unweighted": f"{__name__}:Unweighted", "weights": f"{__name__}:Weights"}
"""Names of the ways to weigh pairs, each of which is a protocol of the campaigns world too."""


@dataclass(frozen=True)
class Weighing:
    """Probabilities with which a scheme holds out pairs.

    Attributes:
        profiles: those judged: of now, or of the reference time.
        probabilities: (E,) of each of their pairs, summing to 1.
        details: what a person should know; JSON types.
    """

    profiles: Profiles
    probabilities: Floats
    details: dict[str, Any] = field(default_factory=dict)


class Hits:
    """Pairs that recommenders of k items find, computed once for all schemes.

    Args:
        learners: by name.
        k: items of a list.
    """

    def __init__(self, learners: Mapping[str, Learner], k: int) -> None:
        self.learners = learners
        self.k = k
        self._computed: dict[tuple[bytes, str], tuple[Floats, float]] = {}

    def of(self, profiles: Profiles, name: str) -> tuple[Floats, float]:
        """Compute :func:`hit_probabilities` and the seconds that it took."""
        key = (profiles.fingerprint(), name)  # a scheme may judge a part of the pairs
        if key not in self._computed:
            began = clock.perf_counter()
            probabilities = hit_probabilities(profiles, self.learners[name], self.k, name=name)
            self._computed[key] = probabilities, clock.perf_counter() - began
        return self._computed[key]


@dataclass(frozen=True)
class AfterCampaigns:
    """Data read by the protocols of the campaigns world.

    Attributes:
        platform: on the day of the comparison; its log is the test log.
        reference: profiles at the reference time, before any campaign.
        hits: of the agents.
    """

    platform: Platform
    reference: Profiles
    hits: Hits


class Scheme(Protocol):
    """Leave-one-out on what users hold, each pair held out with a probability that the scheme says.

    What a scheme refuses is refused when it is made, before anything is simulated.

    Attributes:
        words: on the scheme, for titles.
    """

    metrics = ("hr",)
    needs = frozenset({"platform"})
    words: ClassVar[str] = ""

    @abc.abstractmethod
    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """Probabilities of the pairs, given the profiles at t1 and at t0.

        Raises:
            UserError: the scheme cannot be used on these.
        """

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"leave-one-out, {self.words}")
        data: AfterCampaigns = study.data
        now = Profiles.of(study.log(), data.platform.day, data.platform.world.n_items)
        weighing = self.weigh(now, data.reference)
        where = {"scheme": self.name, "time": data.platform.day, "reference_time": data.reference.time}
        return scored(weighing, data.hits, where, world=study.world.name, protocol=self.name, level=study.level)

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return self._words()

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return f"{metric.upper()}, {self._words()}"

    def _words(self) -> str:
        """Return the scheme's words and its parameters."""
        return ", ".join([self.words, *self.name.split("+")[1:]])


class Unweighted(Scheme):
    """The classical score: a user, then one of their items, both uniformly (de Myttenaere et al. 2015, section 2.2)."""

    name = "unweighted"
    summary = "leave-one-out, unweighted: a user, then one of their items (campaigns)"
    words = "unweighted"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """Implement :meth:`Scheme.weigh`."""
        return by_user(now, np.ones(now.n_items))


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
        """Implement :meth:`Scheme.weigh`."""
        fit = fit_item_weights(now, reference.item_probabilities(), self.p or None)
        details = {"p": len(fit.active), "kl": fit.divergence, "kl_unweighted": fit.divergence_before, **fit.details}
        return by_user(now, fit.weights, details)


def by_user(profiles: Profiles, weights: Floats, details: dict[str, Any] | None = None) -> Weighing:
    """P(u) uniform, P(i|u) proportional to the item's weight."""
    profile_weights = weights[profiles.items]
    totals = np.bincount(profiles.owners(), profile_weights)
    probabilities = profile_weights / np.repeat(totals, profiles.lengths()) / profiles.n_users
    return Weighing(profiles, probabilities, details or {})


def make_scheme(spec: str) -> Scheme:
    """The scheme of a name with parameters, as ``weights+p=20``, or ``package.module:Class``.

    Raises:
        UserError: an unknown name or parameter, or a value that is refused.
    """
    made = protocol(spec, SCHEMES)
    if not isinstance(made, Scheme):
        raise UserError(f"protocol {spec!r} does not weigh pairs. Name one of {', '.join(SCHEMES)}")
    return made


def weighted_leave_one_out(
    log: Log,
    learners: Mapping[str, Learner],
    *,
    n_items: int,
    reference_times: float | Sequence[float],
    times: Sequence[float],
    schemes: Sequence[str | Scheme] = ("unweighted", "weights"),
    k: int = 5,
    level: float = 0.95,
    world: str = "campaigns",
) -> list[Record]:
    """Score recommenders at several times, the held-out pairs weighed as several schemes say.

    At time t a learner is fitted on the profiles D_t. A pair (u, i) is left out, alone; the recommender of everything
    else recommends k items that u does not hold; it is right if i is among them. Where others tie with i at the k-th
    place it is right with the probability that a fair draw among them gives. An item of score -inf is never
    recommended.

    Args:
        log: additions and campaigns; or the organic rows of a file with times.
        learners: by the name to report.
        n_items: items are 0 .. n_items - 1.
        reference_times: the t0s; each gives records of its own.
        times: at which recommenders are scored, none before a reference time.
        schemes: specs of :data:`recsim_mnar.campaigns.weighing.SCHEMES` or schemes.
        k: length of the recommended list.
        level: of the intervals, which treat users as the sample.
        world: what the records say the data are.

    Returns:
        Records of protocol ``weighted_loo`` and metric ``hr@k``; ``details`` holds ``scheme``, ``time``,
        ``reference_time`` and what the scheme reports, such as the number of users whose one item cannot respond.

    Raises:
        UserError: bad times, a scheme that cannot be used, a learner that cannot leave out every pair.
    """
    references = [float(t) for t in np.atleast_1d(np.asarray(reference_times, np.float64))]
    whole_number(k, "k", 1)
    level_of(level)
    if len(times) == 0 or not references:
        raise UserError("name at least one reference time and one time")
    if min(times) < max(references):
        raise UserError(f"time {min(times):g} is before the reference time {max(references):g}: score at it or after")
    made = [make_scheme(scheme) if isinstance(scheme, str) else scheme for scheme in schemes]
    chosen = {scheme.name: scheme for scheme in made}.values()
    at_reference = {t0: Profiles.of(log, t0, n_items) for t0 in references}
    hits = Hits(learners, k)
    records = []
    for t in times:
        now = Profiles.of(log, float(t), n_items)
        for t0, reference in at_reference.items():
            for scheme in chosen:
                where = {"scheme": scheme.name, "time": float(t), "reference_time": t0}
                weighing = scheme.weigh(now, reference)
                records += scored(weighing, hits, where, world=world, protocol="weighted_loo", level=level)
    return records


def scored(
    weighing: Weighing,
    hits: Hits,
    where: Mapping[str, Any],
    *,
    world: str,
    protocol: str,
    level: float,
) -> list[Record]:
    """Return one record per recommender; ``where`` leads the details."""
    profiles = weighing.profiles
    n_single = int((profiles.lengths() == 1).sum())
    details = {**where, **weighing.details, "users_with_one_item": n_single}
    records = []
    for name in hits.learners:
        probabilities, seconds = hits.of(profiles, name)
        key = (world, protocol, name, f"hr@{hits.k}")
        interval = score(weighing, probabilities, level=level)
        records.append(Record.of(*key, interval, level=level, n=profiles.n_users, seconds=seconds, details=details))
    return records


def score(weighing: Weighing, probabilities: Floats, *, level: float = 0.95) -> tuple[float, float, float]:
    """Compute the score of one recommender: value, low and high, with users as the sample.

    Args:
        weighing: pairs and their probabilities.
        probabilities: (E,) probability that the recommender finds each pair's item, of :func:`hit_probabilities`.
        level: of the interval.
    """
    # In units of one user's mean probability: the interval reckons with one more row, and that is a user.
    weighted = weighing.probabilities * weighing.profiles.n_users
    starts = weighing.profiles.starts[:-1]
    return ratio_interval(np.add.reduceat(weighted * probabilities, starts), np.add.reduceat(weighted, starts), level)


def hit_probabilities(profiles: Profiles, learner: Learner, k: int, *, name: str | None = None) -> Floats:
    """Compute, for every pair, the probability that the recommender fitted without it lists its item among k.

    A fixed list of at most k items is looked up; all else is
    :func:`recsim_mnar.protocols.ranks.exhaustive_ranks`.

    Returns:
        (E,) in [0, 1]; a fraction where the item ties at the k-th place.

    Raises:
        UserError: the learner can do none of these.
    """
    name = name or learner.name
    learner = as_learner(learner, name=name)
    log = profiles.to_log()
    listed = np.ones(profiles.n_items, np.bool_)
    if learner.ignores_own_views:
        policy = fitted(learner, log, n_items=profiles.n_items, seed=0)
        if policy.fixed_distribution() is not None:
            listed = np.isfinite(policy.scores(profiles.users[:1])[0])
            if listed.sum() <= k:
                return listed[profiles.items].astype(np.float64)
    above, n_tied = exhaustive_ranks(name, learner, log, Views.of(log), profiles.n_items, True, 0)
    return np.where(listed[profiles.items], probability_of_ranks(above, n_tied, k), 0.0)


def probability_of_ranks(above: Ints, n_tied: Ints, k: int) -> Floats:
    """P(rank <= k) where the rank is uniform on above + 1 .. above + n_tied + 1."""
    return np.clip((k - above) / (n_tied + 1.0), 0.0, 1.0)


BOUND = 12.0
"""Log weights stay within plus and minus this: an item absent at the reference time drives its own to -infinity."""

_RAREST = 1e-9
"""Smallest probability by which a log weight is scaled in the search."""

_STALLED = 1e-6
"""Largest gradient component with which a search that stopped early still counts as at its end."""


@dataclass(frozen=True)
class ItemWeights:
    """Weights w of P(i|u,w), and how they were found.

    Attributes:
        weights: (n_items,) 1 where not optimised.
        active: (p,) the items whose weights were optimised, the largest moves first.
        divergence: D(w), KL divergence of P_t1(.|w) from P_t0, in nats.
        divergence_before: D(1).
        details: counts that a person should know; JSON types.
    """

    weights: Floats
    active: Ints
    divergence: float
    divergence_before: float
    details: dict[str, int | float]


class Divergence:
    """D(w) = sum over items of t0 of P_t0(i) log(P_t0(i) / P_t1(i|w)), and its gradient in log w.

    Args:
        now: profiles at t1.
        reference: (n_items,) P_t0.

    Raises:
        UserError: an item of the reference is in no profile now, which no weight can repair.
    """

    def __init__(self, now: Profiles, reference: Floats) -> None:
        from scipy.sparse import csr_array

        self.reference = np.ascontiguousarray(reference, np.float64)
        starts, items = now.by_length()
        self._held = csr_array((np.ones(len(items)), items, starts), shape=(now.n_users, now.n_items))  # user, item
        self._holders = self._held.T
        self.present = self.reference > 0.0
        refuse_first(
            self.present & (now.n_holders() == 0),
            lambda item: (
                f"item {item} is held at the reference time and by no user at time {now.time:g}: no weight can give it "
                "back its probability"
            ),
        )

    def marginals(self, weights: Floats) -> Floats:
        """P_t1(i|w) = (1/U) sum over users of w_i / (sum of w over the user's items), (n_items,)."""
        inverse = 1.0 / (self._held @ weights)
        return (self._holders @ inverse) * (weights / len(inverse))

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """D(w) and its gradient in log w, (n_items,).

        g_k = (1/U) sum_u P(k|u,w) (r_k - sum_i P(i|u,w) r_i) with r_i = -P0_i / P(i|w); its first term is -P0_k.
        """
        target = self.marginals(weights)
        present = self.present
        scaled = np.zeros(len(weights))
        scaled[present] = -weights[present] * self.reference[present] / target[present]
        inverse = 1.0 / (self._held @ weights)
        by_user = (self._held @ scaled) * (inverse * inverse)
        slope = -self.reference - (self._holders @ by_user) * weights / len(inverse)
        p0 = self.reference[present]
        p1 = target[present]
        # The logarithm of a ratio near 1 by log1p: D is near 0 at the end, and its digits are differences.
        return float(-(p0 * np.log1p((p1 - p0) / p0)).sum()), slope


def most_moved(before: Floats, after: Floats, p: int) -> Ints:
    """The p items of largest ``|P_t0(i) - P_t1(i)|``, largest first, equal ones by index."""
    return np.argsort(-np.abs(after - before), kind="stable")[:p]


def fit_item_weights(
    now: Profiles, reference: Floats, p: int | None = None, *, max_iterations: int = 500
) -> ItemWeights:
    """Fit the weights of the p items that moved most, the others 1, that minimise D(w); L-BFGS in log w from 0.

    Args:
        now: profiles at t1.
        reference: (n_items,) P_t0, as :meth:`Profiles.item_probabilities` gives it.
        p: how many weights; None for all items.
        max_iterations: of L-BFGS.

    Raises:
        UserError: p is out of range, or the search does not converge.
    """
    n_items = now.n_items
    reference = np.ascontiguousarray(reference, np.float64)
    if reference.shape != (n_items,):
        raise UserError(f"the reference's probabilities must have shape ({n_items},), got {reference.shape}")
    if p is None:
        p = n_items
    p = int(whole_number(p, "p", 0, n_items))
    divergence = Divergence(now, reference)
    weights = np.ones(n_items)
    unweighted = divergence.marginals(weights)
    active = most_moved(reference, unweighted, p)
    before = divergence.value_and_gradient(weights)[0]
    counts = _counts(now, reference)
    if p == 0:
        return ItemWeights(weights, active, before, before, counts)
    # The second derivative in log w_i is near P(i): in units of 1 / sqrt(P(i)) rare items move as readily as others.
    unit = 1.0 / np.sqrt(np.maximum(np.maximum(reference, unweighted)[active], _RAREST))
    minimum = _minimise(divergence, active, unit, max_iterations)
    theta = np.clip(minimum.x * unit, -BOUND, BOUND)
    slope = minimum.jac / unit
    edge = BOUND - 1e-9
    is_stuck = ((theta <= -edge) & (slope > 0)) | ((theta >= edge) & (slope < 0))
    steepest = float(np.abs(slope[~is_stuck]).max(initial=0.0))
    if not (np.isfinite(minimum.fun) and steepest < _STALLED):
        raise UserError(
            f"the weights do not converge: after {minimum.nit} iterations the gradient is still {steepest:.1e}; allow "
            "more with max_iterations, or lower p"
        )
    if p == n_items:
        theta = np.clip(theta - reference @ theta[np.argsort(active)], -2 * BOUND, 2 * BOUND)
    weights[active] = np.exp(theta)
    counts["weights_at_a_bound"] = int(is_stuck.sum())
    return ItemWeights(weights, active, float(minimum.fun), before, counts)


def _minimise(divergence: Divergence, active: Ints, unit: Floats, max_iterations: int) -> Any:
    """Minimise D over the log weights of the active items, in these units; other weights are 1."""
    from scipy.optimize import minimize

    def objective(x: Floats) -> tuple[float, Floats]:
        weights = np.ones(len(divergence.reference))
        weights[active] = np.exp(x * unit)
        value, gradient = divergence.value_and_gradient(weights)
        return value, gradient[active] * unit

    # The search stops when neither value nor gradient can be improved in double precision.
    return minimize(
        objective,
        np.zeros(len(active)),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([-BOUND / unit, BOUND / unit], axis=1),
        options={"maxiter": max_iterations, "maxfun": 4 * max_iterations, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 20},
    )


def _counts(now: Profiles, reference: Floats) -> dict[str, int | float]:
    holders = now.n_holders()
    new = (reference == 0.0) & (holders > 0)
    return {
        "users": now.n_users,
        "pairs": now.n_pairs,
        "users_with_one_item": int((now.lengths() == 1).sum()),
        "items_new_since_reference": int(new.sum()),
        "pairs_with_new_items": int(holders[new].sum()),
    }
