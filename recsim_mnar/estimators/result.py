"""An estimate: value, interval, how it was made, and whether to believe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from recsim_mnar.estimators.verdict import TRUST, Verdict


@dataclass(frozen=True)
class Estimate:
    """An estimate of a target policy's mean reward a decision.

    Attributes:
        value: the point estimate, in units of the reward.
        low: lower end of the interval for the target policy's value, what clipping may hide included.
        high: upper end.
        level: nominal coverage of the interval.
        method: how the interval was made, in words; "asymptotic" where it holds for many users only.
        n: rows used.
        ess: Kish's effective sample size of the unclipped weights, (sum w)^2 / sum w^2.
        diagnostics: clicks, mean weight, largest weight, sampling-only interval, ...; JSON types only.
        verdict: its level and findings; as a text "trust", "caution: ..." or "do not use: ...", with reasons and what
            to do.
        estimator: name of the estimator.
    """

    value: float
    low: float
    high: float
    level: float
    method: str
    n: int
    ess: float
    diagnostics: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict = TRUST
    estimator: str = ""

    @property
    def trusted(self) -> bool:
        """Whether the verdict is "trust"."""
        return self.verdict.level == "trust"

    def __str__(self) -> str:
        words = str(self.verdict)
        verdict = words[:1].upper() + words[1:]
        return (
            f"{self.estimator or 'estimate'}: {self.value:.4g} ({self.level * 100:g} % interval {self.low:.4g} to "
            f"{self.high:.4g}; {self.n:,} rows, effective {self.ess:,.0f}). {verdict}"
        )
