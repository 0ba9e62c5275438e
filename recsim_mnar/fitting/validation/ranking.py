"""Whether agents rank alike on the real log and on a simulated one, by leave-one-out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.validation.checks import CANNOT_SAY, CLOSE, MATCHES, OFF, Check
from recsim_mnar.fitting.validation.lives import Floats
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Learner
from recsim_mnar.policy.registry import learner
from recsim_mnar.progress import counting
from recsim_mnar.protocols.judgement import rank_correlation
from recsim_mnar.protocols.leave_one_out.protocol import fold_ranks
from recsim_mnar.resuming import Form, stage
from recsim_mnar.rng import derive_seed

AGENTS = ("popularity", "user-popularity-greedy", "item-knn", "user-knn", "svd")
UNSEEN = ("popularity", "item-knn", "item-knn+neighbours=20", "user-knn", "svd")
"""Where no user meets an item twice."""
K = 10
FOLDS = 3
_APART = 2.576
"""Standard errors at which two agents are told apart."""


@dataclass(frozen=True)
class Hits:
    """Hit rates of agents on a log.

    Attributes:
        agents: names.
        of_user: (agents, U) each user's hit rate at 10, mean over folds.
    """

    agents: list[str]
    of_user: Floats

    @property
    def rates(self) -> Floats:
        """(agents,) hit rates."""
        return np.asarray(self.of_user.mean(axis=1))

    @property
    def apart(self) -> Floats:
        """(agents, agents) difference of each pair of hit rates in standard errors; 0 where users agree."""
        d = self.of_user[:, None] - self.of_user[None]
        error = d.std(axis=2, ddof=1) / np.sqrt(d.shape[2])
        return np.divide(d.mean(axis=2), error, out=np.zeros(error.shape), where=error > 0)


def hits_of(log: Log, agents: Sequence[str], n_items: int, *, unseen: bool, seed: int) -> Hits:
    """Leave-one-out hit rates of agents, by name, on a log's views."""
    learners: Mapping[str, Learner] = {name: learner(name) for name in agents}
    candidates = "unseen" if unseen else "all"
    found = fold_ranks(log.organic(), learners, n_items=n_items, folds=FOLDS, seed=seed, candidates=candidates)
    return Hits(list(learners), np.stack([(ranks <= K).mean(axis=0) for ranks in found.ranks.values()]))


def _hits_at(label: str, log: Log, agents: Sequence[str], n_items: int, *, unseen: bool, seed: int) -> Hits:
    own = derive_seed(seed, label)
    form = Form[Hits](lambda hits: {"of_user": hits.of_user}, lambda found: Hits(list(agents), found["of_user"]))
    return stage(f"hits-{label}", lambda: hits_of(log, agents, n_items, unseen=unseen, seed=own), form)


def agreement(
    first: Log, second: Log, simulated: Log, agents: Sequence[str], n_items: int, *, unseen: bool, seed: int
) -> Check:
    """The check: the second half of the real log against the simulated one, with the two halves as its ceiling.

    Raises:
        UserError: fewer than two agents, or as leave-one-out.
    """
    if len(agents) < 2:
        raise UserError("validate: name at least two agents, so that there is a ranking")
    a, b, s = (
        _hits_at(label, log, agents, n_items, unseen=unseen, seed=seed)
        for log, label in counting(((first, "first"), (second, "second"), (simulated, "simulated")), "logs")
    )
    tau, ceiling = _tau(b, s), _tau(a, b)
    real_apart, simulated_apart = b.apart > _APART, s.apart > _APART
    told = int(real_apart.sum())
    against = [(a_, b_) for a_, b_ in zip(*np.nonzero(real_apart & simulated_apart.T), strict=True)]
    agreed = int(np.sum(real_apart & (s.rates[:, None] > s.rates[None])))
    costs = [_cost(b.rates, pick) for pick in (s.rates, a.rates)]
    if told == 0:
        grade = CANNOT_SAY
    elif against:
        grade = OFF
    else:
        grade = MATCHES if agreed == told or tau >= ceiling else CLOSE
    says = (
        f"of {told} pairs of agents that the log tells apart the simulated log orders {agreed} alike and "
        f"{len(against)} surely the other way round; its best agent costs {costs[0]:.1%} of the best "
        f"hit rate (the other half's {costs[1]:.1%})"
    )
    return Check(
        name="ranking of agents", kind="ranking", question="which of these agents ranks best by leave-one-out",
        what="Kendall's tau of hit rates, half of the log and half, and log and simulation", real=ceiling,
        simulated=tau, distance=1.0 - tau, ceiling=1.0 - ceiling, ceiling_high=1.0 - ceiling, visible=float("nan"),
        tolerance=0.0, p=None, grade=grade, says=says,
        picture={"kind": "agents", "agents": list(agents), "real": b.rates.tolist(), "simulated": s.rates.tolist(),
                 "half": a.rates.tolist()},
        details={"agents": list(agents), "real": b.rates.tolist(), "simulated": s.rates.tolist(),
                 "other_half": a.rates.tolist(), "pairs_told_apart": told, "pairs_alike": agreed,
                 "pairs_against": [[agents[i], agents[j]] for i, j in against],
                 "cost_of_pick": costs[0], "cost_of_pick_by_half": costs[1], "hit_rate_at": K, "folds": FOLDS},
    )  # fmt: skip


def _tau(first: Hits, second: Hits) -> float:
    """Kendall's tau-b; 0 where a ranking is one tie."""
    found = rank_correlation(*({name: float(rate) for name, rate in zip(h.agents, h.rates, strict=True)}
                               for h in (first, second)))  # fmt: skip
    return 0.0 if np.isnan(found) else found


def _cost(rates: Floats, by: Floats) -> float:
    """Share of the best hit rate that the agent picked by other rates lacks."""
    best = float(rates.max())
    return 0.0 if best <= 0 else 1.0 - float(rates[int(np.argmax(by))]) / best
