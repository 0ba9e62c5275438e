"""Leave-one-out on profiles at given times, with weighted pairs (de Myttenaere et al. 2015).

A scheme defines the profiles and the probability with which each pair (user, item) is held out. The score of a
recommender is the sum over pairs of this probability times the probability that the recommender, fitted without the
pair, lists the item.

Item weights restore the item probabilities of a reference time (section 3 of the paper).
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
"""Classes of the schemes by name; each is also a protocol of the campaigns world."""


@dataclass(frozen=True)
class Weighing:
    """Probabilities with which a scheme holds out pairs.

    Attributes:
        profiles: profiles with E pairs, of the time of evaluation or of the reference time.
        probabilities: (E,) probability of each pair, summing to 1.
        details: facts for the records' details; JSON types.
    """

    profiles: Profiles
    probabilities: Floats
    details: dict[str, Any] = field(default_factory=dict)


class Hits:
    """Cache of the pairs that recommenders find among k items, which all schemes share.

    Args:
        learners: learners by name.
        k: number of items in a list.
    """

    def __init__(self, learners: Mapping[str, Learner], k: int) -> None:
        self.learners = learners
        self.k = k
        self._computed: dict[tuple[bytes, str], tuple[Floats, float]] = {}

    def of(self, profiles: Profiles, name: str) -> tuple[Floats, float]:
        """Return the :func:`hit_probabilities` (E,) of a learner on profiles, and the seconds that they took."""
        key = (profiles.fingerprint(), name)  # by the pairs themselves: a scheme may use a part of them
        if key not in self._computed:
            began = clock.perf_counter()
            probabilities = hit_probabilities(profiles, self.learners[name], self.k, name=name)
            self._computed[key] = probabilities, clock.perf_counter() - began
        return self._computed[key]


@dataclass(frozen=True)
class AfterCampaigns:
    """Data read by the protocols of the campaigns world.

    Attributes:
        platform: platform on the day of the comparison; its log is the test log.
        reference: profiles at the reference time, before any campaign.
        hits: hit probabilities of the agents.
    """

    platform: Platform
    reference: Profiles
    hits: Hits


class Scheme(Protocol):
    """Base of schemes: protocols of leave-one-out on profiles, which hold out each pair with some probability.

    A scheme checks its parameters when it is made, before anything is simulated.

    Attributes:
        words: name of the scheme in titles.
    """

    metrics = ("hr",)
    needs = frozenset({"platform"})
    words: ClassVar[str] = ""

    @abc.abstractmethod
    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """Compute the probabilities of pairs from the profiles at the time t1 of evaluation and at reference time t0.

        Raises:
            UserError: the scheme cannot be used on these profiles.
        """

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"leave-one-out, {self.words}")
        data: AfterCampaigns = study.data
        now = Profiles.of(study.log(), data.platform.day, data.platform.world.n_items)
        weighing = self.weigh(now, data.reference)
        facts = {"scheme": self.name, "time": data.platform.day, "reference_time": data.reference.time}
        return records_of_weighing(
            weighing, data.hits, facts, world=study.world.name, protocol=self.name, level=study.level
        )

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return self._words()

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return f"{metric.upper()}, {self._words()}"

    def _words(self) -> str:
        """Return the scheme's name in titles, with the parameters in ``name``, which are separated by ``+``."""
        parameters = self.name.split("+")[1:]
        return ", ".join([self.words, *parameters])


class Unweighted(Scheme):
    """Scheme of the classical score, which draws a user and then one of the user's items, both uniformly.

    See section 2.2 of de Myttenaere et al. 2015.
    """

    name = "unweighted"
    summary = "leave-one-out, unweighted: a user, then one of their items (campaigns)"
    words = "unweighted"

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """Implement :meth:`Scheme.weigh`."""
        return weigh_by_user(now, np.ones(now.n_items))


class Weights(Scheme):
    """Scheme with item weights that restore the item probabilities P_t0(i) (de Myttenaere et al. 2015, section 3).

    Args:
        p: number of weights to optimise; 0 for those of all items.
    """

    name = "weights"
    summary = "leave-one-out, item weights optimised against campaigns (campaigns)"
    words = "weighted"

    def __init__(self, p: int = 0) -> None:
        self.p = whole_number(p, "weights: p")

    def weigh(self, now: Profiles, reference: Profiles) -> Weighing:
        """Implement :meth:`Scheme.weigh`."""
        n_weights = self.p or None  # 0 stands for the weights of all items
        fit = fit_item_weights(now, reference.item_probabilities(), n_weights)
        details = {"p": len(fit.active), "kl": fit.divergence, "kl_unweighted": fit.divergence_before, **fit.details}
        return weigh_by_user(now, fit.weights, details)


def weigh_by_user(profiles: Profiles, weights: Floats, details: dict[str, Any] | None = None) -> Weighing:
    """Return the weighing that draws a user uniformly, and then one of the user's items by the items' weights."""
    profile_weights = weights[profiles.items]
    totals = np.bincount(profiles.owners(), profile_weights)
    probabilities = profile_weights / np.repeat(totals, profiles.lengths()) / profiles.n_users
    return Weighing(profiles, probabilities, details or {})


def make_scheme(spec: str) -> Scheme:
    """Make a scheme from a name with parameters, such as ``weights+p=20``, or ``package.module:Class``.

    Raises:
        UserError: a name, a parameter or a value is unknown or refused.
    """
    scheme = protocol(spec, SCHEMES)
    if not isinstance(scheme, Scheme):
        raise UserError(f"protocol {spec!r} does not weigh pairs. Name one of {', '.join(SCHEMES)}")
    return scheme


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
    """Score recommenders at several times by leave-one-out, with pairs weighted by several schemes.

    At time t, each pair (u, i) of the profiles D_t is left out in turn. A recommender fitted on all other pairs lists k
    items that u does not hold; it is a hit if i is among them. If items tie with i at the k-th place, the hit counts
    with the probability that a fair draw among them lists i. Items of score -inf are never listed.

    Args:
        log: additions and campaigns; or the organic rows of a file with times.
        learners: learners by the name in the records.
        n_items: number of items in the catalogue.
        reference_times: reference times t0; there are records for each of them.
        times: times at which recommenders are scored, none before a reference time.
        schemes: schemes, or their names with parameters (:data:`recsim_mnar.campaigns.weighing.SCHEMES`).
        k: length of the lists.
        level: coverage of the intervals, for which users are the sample.
        world: name of the data's world in the records.

    Returns:
        Records of protocol ``weighted_loo`` and metric ``hr@k``. Their ``details`` hold ``scheme``, ``time``,
        ``reference_time`` and facts of the scheme, such as the number of users with one item, whose probability no
        weight can change.

    Raises:
        UserError: a time is invalid, a scheme cannot be used, or a learner cannot leave out every pair.
    """
    references = [float(t) for t in np.atleast_1d(np.asarray(reference_times, np.float64))]
    whole_number(k, "k", 1)
    level_of(level)
    if len(times) == 0 or not references:
        raise UserError("name at least one reference time and one time")
    if min(times) < max(references):
        raise UserError(f"time {min(times):g} is before the reference time {max(references):g}: score at it or after")
    all_schemes = [make_scheme(scheme) if isinstance(scheme, str) else scheme for scheme in schemes]
    distinct_schemes = {scheme.name: scheme for scheme in all_schemes}.values()  # each name once
    at_reference = {t0: Profiles.of(log, t0, n_items) for t0 in references}
    hits = Hits(learners, k)
    records = []
    for t in times:
        now = Profiles.of(log, float(t), n_items)
        for t0, reference in at_reference.items():
            for scheme in distinct_schemes:
                facts = {"scheme": scheme.name, "time": float(t), "reference_time": t0}
                weighing = scheme.weigh(now, reference)
                records += records_of_weighing(weighing, hits, facts, world=world, protocol="weighted_loo", level=level)
    return records


def records_of_weighing(
    weighing: Weighing,
    hits: Hits,
    facts: Mapping[str, Any],
    *,
    world: str,
    protocol: str,
    level: float,
) -> list[Record]:
    """Score all recommenders under one weighing.

    Args:
        weighing: pairs and their probabilities.
        hits: hit probabilities of the recommenders.
        facts: first entries of the records' details: scheme and times.
        world: name of the world in the records.
        protocol: name of the protocol in the records.
        level: coverage of the intervals.

    Returns:
        One record per recommender.
    """
    profiles = weighing.profiles
    n_single = int((profiles.lengths() == 1).sum())
    details = {**facts, **weighing.details, "users_with_one_item": n_single}
    records = []
    for name in hits.learners:
        probabilities, seconds = hits.of(profiles, name)
        key = (world, protocol, name, f"hr@{hits.k}")  # world, protocol, agent and metric
        interval = score(weighing, probabilities, level=level)
        records.append(Record.of(*key, interval, level=level, n=profiles.n_users, seconds=seconds, details=details))
    return records


def score(weighing: Weighing, probabilities: Floats, *, level: float = 0.95) -> tuple[float, float, float]:
    """Compute the score of one recommender, and its interval over samples of users.

    Args:
        weighing: pairs and their probabilities.
        probabilities: (E,) probability that the recommender lists each pair's item.
        level: coverage of the interval.

    Returns:
        The score, and the lower and the upper end of its interval.
    """
    # Scaled so that users weigh 1 on average: ratio_interval allows for one further row of weight 1, here a user.
    weighted = weighing.probabilities * weighing.profiles.n_users
    starts = weighing.profiles.starts[:-1]
    return ratio_interval(np.add.reduceat(weighted * probabilities, starts), np.add.reduceat(weighted, starts), level)


def hit_probabilities(profiles: Profiles, learner: Learner, k: int, *, name: str | None = None) -> Floats:
    """Compute, for every pair, the probability that the recommender fitted without it lists its item among k.

    If a recommender has the same scores for all users, and finite ones for at most k items, it lists just those.
    Otherwise the items are ranked by :func:`recsim_mnar.protocols.ranks.exhaustive_ranks`.

    Returns:
        Probabilities (E,); fractions if the item ties at the k-th place.

    Raises:
        UserError: the learner cannot leave out every pair.
    """
    if name is None:
        name = learner.name
    learner = as_learner(learner, name=name)
    log = profiles.to_log()
    listed = np.ones(profiles.n_items, np.bool_)
    if learner.ignores_own_views:
        policy = fitted(learner, log, n_items=profiles.n_items, seed=0)
        if policy.fixed_distribution() is not None:
            listed = np.isfinite(policy.scores(profiles.users[:1])[0])
            if listed.sum() <= k:
                return listed[profiles.items].astype(np.float64)
    # With `unseen`, the user's other items are no candidates.
    above, n_tied = exhaustive_ranks(name, learner, log, Views.of(log), profiles.n_items, unseen=True, seed=0)
    return np.where(listed[profiles.items], probability_of_ranks(above, n_tied, k), 0.0)


def probability_of_ranks(above: Ints, n_tied: Ints, k: int) -> Floats:
    """Return P(rank <= k) for items with ``above`` better items, whose rank among ``n_tied`` equal ones is uniform."""
    return np.clip((k - above) / (n_tied + 1.0), 0.0, 1.0)


BOUND = 12.0
"""Bound on the absolute value of log weights: for an item absent at the reference time, the optimum is -infinity."""

_RAREST = 1e-9
"""Smallest item probability by which a log weight is scaled in the search."""

_STALLED = 1e-6
"""Largest gradient component at which a search that stopped early still counts as converged."""


@dataclass(frozen=True)
class ItemWeights:
    """Fitted item weights w, by which a user's items are drawn with P(i|u,w).

    Attributes:
        weights: (n_items,) weights; 1 for items whose weight was not optimised.
        active: (p,) items whose weights were optimised, those with the largest change of probability first.
        divergence: KL divergence D(w) of P_t1(.|w) from P_t0, in nats.
        divergence_before: D(1), with all weights 1.
        details: counts for the records' details; JSON types.
    """

    weights: Floats
    active: Ints
    divergence: float
    divergence_before: float
    details: dict[str, int | float]


class Divergence:
    """Objective D(w), the sum over items of P_t0(i) log(P_t0(i) / P_t1(i|w)), with its gradient in log w.

    Args:
        now: profiles at t1.
        reference: (n_items,) item probabilities P_t0.

    Raises:
        UserError: an item with P_t0 above 0 is in no profile at t1: no weight can restore its probability.
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
        """Return P_t1(i|w) (n_items,): the mean over users of w_i / (sum of w over the user's items)."""
        inverse = 1.0 / (self._held @ weights)
        return (self._holders @ inverse) * (weights / len(inverse))

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return D(w) and its gradient in log w, (n_items,).

        g_k = (1/U) sum_u P(k|u,w) (r_k - sum_i P(i|u,w) r_i) with r_i = -P0_i / P(i|w); its first term is -P0_k.
        """
        marginals = self.marginals(weights)
        present = self.present
        scaled = np.zeros(len(weights))  # w_i r_i
        scaled[present] = -weights[present] * self.reference[present] / marginals[present]
        inverse = 1.0 / (self._held @ weights)
        user_sums = (self._held @ scaled) * (inverse * inverse)
        slope = -self.reference - (self._holders @ user_sums) * weights / len(inverse)
        p0 = self.reference[present]
        p1 = marginals[present]
        # log1p keeps the digits of logarithms of ratios near 1, which cancel in the sum: D is near 0 at the optimum.
        return float(-(p0 * np.log1p((p1 - p0) / p0)).sum()), slope


def most_moved(before: Floats, after: Floats, p: int) -> Ints:
    """Return the p items with the largest ``|P_t0(i) - P_t1(i)|``, largest first; ties by item number."""
    return np.argsort(-np.abs(after - before), kind="stable")[:p]


def fit_item_weights(
    now: Profiles, reference: Floats, p: int | None = None, *, max_iterations: int = 500
) -> ItemWeights:
    """Minimise D(w) over the weights of the p items whose probability changed most; other weights are 1.

    The search is L-BFGS-B in log w, from 0.

    Args:
        now: profiles at t1.
        reference: (n_items,) item probabilities P_t0, of :meth:`Profiles.item_probabilities`.
        p: number of weights; None for those of all items.
        max_iterations: largest number of iterations.

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
        return ItemWeights(weights, active, divergence=before, divergence_before=before, details=counts)
    # The second derivative in log w_i is near P(i): in units of 1 / sqrt(P(i)) all coordinates have similar curvature.
    unit = 1.0 / np.sqrt(np.maximum(np.maximum(reference, unweighted)[active], _RAREST))
    minimum = _minimise(divergence, active, unit, max_iterations)
    log_weights = np.clip(minimum.x * unit, -BOUND, BOUND)
    slope = minimum.jac / unit
    # At a bound, a slope that points outwards is no sign of failure. The margin allows for the rounding of x * unit.
    edge = BOUND - 1e-9
    is_at_bound = ((log_weights <= -edge) & (slope > 0)) | ((log_weights >= edge) & (slope < 0))
    steepest = float(np.abs(slope[~is_at_bound]).max(initial=0.0))
    if not (np.isfinite(minimum.fun) and steepest < _STALLED):
        raise UserError(
            f"the weights do not converge: after {minimum.nit} iterations the gradient is still {steepest:.1e}; allow "
            "more with max_iterations, or lower p"
        )
    if p == n_items:
        # D does not depend on a common factor of all weights: fix it by a mean log weight of 0 under P_t0.
        centre = reference @ log_weights[np.argsort(active)]  # argsort: from the order of `active` to that of items
        log_weights = np.clip(log_weights - centre, -2 * BOUND, 2 * BOUND)
    weights[active] = np.exp(log_weights)
    counts["weights_at_a_bound"] = int(is_at_bound.sum())
    return ItemWeights(weights, active, divergence=float(minimum.fun), divergence_before=before, details=counts)


def _minimise(divergence: Divergence, active: Ints, unit: Floats, max_iterations: int) -> Any:
    """Minimise D over the log weights of the active items; return SciPy's result, in units of ``unit`` (p,)."""
    from scipy.optimize import minimize

    def objective(x: Floats) -> tuple[float, Floats]:
        weights = np.ones(len(divergence.reference))
        weights[active] = np.exp(x * unit)
        value, gradient = divergence.value_and_gradient(weights)
        return value, gradient[active] * unit

    # Tolerances at the limit of double precision: the search stops when it cannot improve the value any further.
    return minimize(
        objective,
        np.zeros(len(active)),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([-BOUND / unit, BOUND / unit], axis=1),
        options={"maxiter": max_iterations, "maxfun": 4 * max_iterations, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 20},
    )


def _counts(now: Profiles, reference: Floats) -> dict[str, int | float]:
    """Count users and pairs for the details of a fit, among them users with one item and pairs with new items.

    Args:
        now: profiles at t1.
        reference: (n_items,) item probabilities P_t0.
    """
    holders = now.n_holders()
    new = (reference == 0.0) & (holders > 0)
    return {
        "users": now.n_users,
        "pairs": now.n_pairs,
        "users_with_one_item": int((now.lengths() == 1).sum()),
        "items_new_since_reference": int(new.sum()),
        "pairs_with_new_items": int(holders[new].sum()),
    }
