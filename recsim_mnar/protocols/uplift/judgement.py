"""Which metric would have picked the agent with the largest true uplift, and what the other picks cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsim_mnar.protocols.compare import rank_correlation
from recsim_mnar.protocols.records import Record

PROTOCOLS = ("uplift", "ab_test")
"""Whose metrics are held against the truth."""

TITLES = {
    "precision": "Precision",
    "precision_recommended": "Precision (recommended)",
    "uplift": "Uplift",
    "uplift_snips": "UpliftSNIPS",
    "uplift_ips": "UpliftIPS",
    "uplift_pooled": "UpliftSNIPS (pooled)",
}


@dataclass(frozen=True)
class UpliftJudgement:
    """How well one metric's ranking serves, the truth being known; uplift is a mean over the items of the lists.

    Attributes:
        protocol, metric: whose ranking, by what.
        kendall_tau: rank correlation (tau-b) with the true uplifts; NaN where one of them ties throughout.
        pick: the agent with the largest value.
        pick_uplift: its true uplift.
        best: the agent with the largest true uplift.
        best_uplift: that uplift.
        cost: best_uplift - pick_uplift.
        pick_by_upper_bound: the agent with the largest upper end of its interval.
        tau_by_upper_bound: the rank correlation of these upper ends with the true uplifts.
    """

    protocol: str
    metric: str
    kendall_tau: float
    pick: str
    pick_uplift: float
    best: str
    best_uplift: float
    cost: float
    pick_by_upper_bound: str
    tau_by_upper_bound: float

    @property
    def title(self) -> str:
        """The metric as a person names it."""
        return "the A/B test" if self.protocol == "ab_test" else title(self.metric)

    @property
    def loss(self) -> str:
        """What the pick costs, as a share of the best uplift where that is above 0."""
        return f"{self.cost / self.best_uplift:.1%}" if self.best_uplift > 0 else f"{self.cost:.4f} an item"

    def sentence(self) -> str:
        """For a person."""
        subject = self.title[0].upper() + self.title[1:]
        if self.pick == self.best:
            return f"{subject} picks {self.pick}, which is the best: nothing lost."
        return f"{subject} picks {self.pick}; {self.best} is the best, so the choice costs {self.loss} of the uplift."


def title(metric: str) -> str:
    """``uplift_snips@10`` as papers write it: UpliftSNIPS@10."""
    name, at, length = metric.partition("@")
    return TITLES.get(name, name) + at + length


def judge(records: Sequence[Record]) -> list[UpliftJudgement]:
    """Hold the ranking by each metric against the true uplifts of the lists; the references are left out."""
    candidates = [r for r in records if not r.details.get("reference")]
    true = {r.agent: r.value for r in candidates if r.protocol == "truth" and r.metric.startswith("cp@")}
    if not true:
        return []
    best = max(true, key=lambda name: true[name])
    judged = dict.fromkeys(
        (r.protocol, r.metric) for r in candidates if r.protocol in PROTOCOLS and r.metric != "purchases"
    )
    judgements = []
    for protocol, metric in judged:
        chosen = [r for r in candidates if (r.protocol, r.metric) == (protocol, metric)]
        values, upper = {r.agent: r.value for r in chosen}, {r.agent: r.high for r in chosen}
        pick = max(values, key=lambda name: values[name])
        judgements.append(
            UpliftJudgement(
                protocol=protocol,
                metric=metric,
                kendall_tau=rank_correlation(values, true),
                pick=pick,
                pick_uplift=true[pick],
                best=best,
                best_uplift=true[best],
                cost=true[best] - true[pick],
                pick_by_upper_bound=max(upper, key=lambda name: upper[name]),
                tau_by_upper_bound=rank_correlation(upper, true),
            )
        )
    return judgements


def headline(judgements: Sequence[UpliftJudgement]) -> str:
    """One sentence: which metrics would have picked the agent with the largest true uplift, what other picks cost."""
    if not judgements:
        return ""
    best, uplift = judgements[0].best, judgements[0].best_uplift
    picks: dict[str, list[UpliftJudgement]] = {}
    for judgement in judgements:
        picks.setdefault(judgement.pick, []).append(judgement)
    right = picks.pop(best, [])
    parts = [f"{_and([j.title for j in right])} {_verb(right)} it" if right else "no metric picks it"]
    parts += [
        f"{_and([j.title for j in wrong])} {_verb(wrong)} {pick}, which costs {wrong[0].loss}"
        for pick, wrong in picks.items()
    ]
    return f"The largest true uplift is that of {best}, {uplift:.4f} purchases an item: {'; '.join(parts)}."


def _verb(judgements: Sequence[UpliftJudgement]) -> str:
    return "picks" if len(judgements) == 1 else "pick"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
