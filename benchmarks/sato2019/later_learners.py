"""Learners of later papers: DLCE (Sato et al. 2020); CUBN and CIBN (Sato, Takemori, Singh & Zhang 2021).

In this folder they are agents, too: ``--agents later_learners:DLCE``. CUBN and CIBN are causality-aware neighbours:
they estimate the uplift of an item for a user as a matching estimator would, by what similar users (or the same user
with similar items) bought with the recommendation, less what they bought without it. No propensity enters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import _causal_neighbours_kernel as kernel
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import KnownUsersPolicy
from recsim_mnar.agents.neighbours.knn import compressed, most_similar
from recsim_mnar.agents.purchases.learners import ExposureLearner, FactorLearner
from recsim_mnar.agents.purchases.training import ANY, NR_P, R_NP, R_P, Loss, Observed, P, Plan, Stratum
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, one_of, whole_number

if TYPE_CHECKING:
    from recsim_mnar.purchases.exposures import Exposures

_SIMILAR_BY = ("purchases", "treatment")


def item_columns(observed: Observed) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """User, period and bit of the class of each of the observed items."""
    length = observed.bounds[:, 3] - observed.bounds[:, 0]
    counts = np.diff(observed.bounds, axis=1)
    bit = np.repeat(np.tile([NR_P, R_P, R_NP], len(counts)), counts.ravel())
    return np.repeat(observed.user, length), np.repeat(observed.period.astype(np.int64), length), bit


@dataclass(kw_only=True, eq=False)
class DLCE(FactorLearner):
    """Purchases after a recommendation up, purchases without one down, by inverse propensity (Sato et al. 2020).

    A purchased item i against a random item j: log(1 + exp(-(x_i - x_j)))/max(e, chi) where i was recommended,
    log(1 + exp(x_i - x_j))/max(1 - e, chi) where it was not. (The first form with a negative weight would be unbounded
    below.) Settings: see :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        chi: smallest propensity divided by.
    """

    chi: float = 0.1

    name = "dlce"
    needs = frozenset({"exposures"})
    shares = ("chi",)

    def plan(self, observed: Observed) -> Plan:
        """Any purchase, each equally likely, and any item."""
        return Plan.of(observed, [Stratum(1.0, P, ANY)], by="cell")

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """Scales the weights of the pair loss by their mean so that the learning rate keeps its meaning.

        Raises:
            UserError: no propensities, or one of 0 (recommended) or 1 (not) while chi = 0.
        """
        assert exposures is not None  # this agent learns from nothing else
        exposures.need_propensities()
        users, periods, part = item_columns(observed)
        shown = (part == R_P) | (part == R_NP)
        e = exposures.propensity_of(users, observed.items, periods)
        probability = np.maximum(np.where(shown, e, 1.0 - e), self.chi)
        bad = ~(probability > 0.0)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise UserError(
                f"user {users[k]}, item {observed.items[k]}, period {periods[k]} has propensity {e[k]:g}, whose "
                "inverse is needed: give propensities strictly between 0 and 1, or chi above 0"
            )
        weights = 1.0 / probability
        weights /= weights[part != R_NP].mean()
        return Loss(pairs=True, signed=np.where(shown, weights, -weights).astype(np.float32))


@dataclass(kw_only=True, eq=False)
class _CausalNeighbours(ExposureLearner):
    neighbours: int = 100
    similar_by: str = "purchases"
    shrinkage_treated: float = 1.0
    shrinkage_control: float = 1.0

    needs = frozenset({"clicks"})
    of_users = True

    def __post_init__(self) -> None:
        """Validate the values.

        Raises:
            UserError: one is out of range.
        """
        whole_number(self.neighbours, f"{self.name}: neighbours", 1)
        one_of(self.similar_by, f"{self.name}: similar_by", _SIMILAR_BY)
        for name in ("shrinkage_treated", "shrinkage_control"):
            number_in(getattr(self, name), f"{self.name}: {name}", ends="(]")

    def fit_exposures(
        self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0
    ) -> CausalNeighboursPolicy:
        """A policy for the users of the exposures; no draws are made."""
        from scipy import sparse

        observed = self.exposed(exposures, periods)
        users, _, part = item_columns(observed)
        shape = (observed.n_users, observed.n_items)

        def counted(mask: NDArray[np.bool_]) -> Any:
            ones = np.ones(np.count_nonzero(mask), np.int32)
            out = sparse.csr_array((ones, (users[mask], observed.items[mask])), shape=shape, dtype=np.int32)
            out.sum_duplicates()
            return out

        by = part != R_NP if self.similar_by == "purchases" else part != NR_P
        alike = counted(by).T.tocsr() if self.of_users else counted(by)
        # The matching estimator has the observed outcome itself where there is one: similarity 1 with itself.
        starts, others, weights = most_similar(alike, self.neighbours, True)
        every = counted(np.ones(len(users), bool))
        every.sort_indices()
        columns = [counted(mask) for mask in (part != NR_P, part == R_P, part == NR_P)]
        owner = np.repeat(np.arange(shape[0]), np.diff(every.indptr))
        counts = np.stack([np.asarray(c[owner, every.indices], np.float32).ravel() for c in columns], axis=1)
        first, items, _ = compressed(every)
        return CausalNeighboursPolicy(
            shape[1],
            self.name,
            starts=starts,
            others=others,
            weights=weights,
            first=first,
            items=items,
            counts=counts.reshape(-1, 3),
            periods=np.bincount(observed.user, minlength=shape[0]).astype(np.float32),
            parameters={**asdict(self), "of_users": self.of_users},
        )


@dataclass(kw_only=True, eq=False)
class CUBN(_CausalNeighbours):
    """Purchases of similar users with a recommendation minus those without (Sato et al. 2021).

    Means over the ``neighbours`` most similar users (cosine), the user among them, weighted by similarity and shrunk:
    sum w Y^T / (sum w Z + shrinkage_treated) - sum w Y^C / (sum w (1 - Z) + shrinkage_control), over periods in which
    the neighbour bought anything.

    Args:
        neighbours: most similar users taken; equally similar ones by lower index.
        similar_by: ``purchases`` or ``treatment``: the counts whose cosine is the similarity.
        shrinkage_treated: added to the weight of the recommended cells.
        shrinkage_control: added to the weight of the others.
    """

    name = "cubn"


@dataclass(kw_only=True, eq=False)
class CIBN(_CausalNeighbours):
    """The user's purchases of similar items with a recommendation minus those without (Sato et al. 2021).

    As CUBN, over the most similar items, the item among them, in the user's own periods.

    Args:
        neighbours: most similar items taken; equally similar ones by lower index.
        similar_by: ``purchases`` or ``treatment``: the counts whose cosine is the similarity.
        shrinkage_treated: added to the weight of the recommended cells.
        shrinkage_control: added to the weight of the others.
    """

    name = "cibn"
    of_users = False


class CausalNeighboursPolicy(KnownUsersPolicy):
    """Greedy on the estimated uplift; for users outside the training data all items tie.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts, others, weights: neighbours of each user or item, CSR.
        first, items, counts: of each user's items: recommended periods, purchases in them, other purchases; CSR.
        periods: (n_users,) periods of each user.
        parameters: the learner's.
    """

    def __init__(self, n_items: int, name: str, *, parameters: dict[str, Any], **arrays: NDArray[Any]) -> None:
        stored = {
            key: np.ascontiguousarray(arrays[key], kind)
            for key, kind in (
                ("starts", np.int64), ("others", np.int32), ("weights", np.float32), ("first", np.int64),
                ("items", np.int32), ("counts", np.float32), ("periods", np.float32),
            )
        }  # fmt: skip
        super().__init__(n_items, len(stored["periods"]), name, stored, parameters)

    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:

        a = self._arrays
        out = np.zeros((len(rows), self.n_items), np.float32)
        known = np.flatnonzero(rows < self.n_users)
        part = out[known]
        score = kernel.by_users if self._parameters["of_users"] else kernel.by_items
        score(
            rows[known],
            (a["starts"], a["others"], a["weights"]),
            (a["first"], a["items"], a["counts"]),
            a["periods"],
            (float(self._parameters["shrinkage_treated"]), float(self._parameters["shrinkage_control"])),
            (np.zeros(self.n_items), np.zeros(self.n_items), np.zeros(self.n_items)),
            part,
        )
        out[known] = part
        return out
