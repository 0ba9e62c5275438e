"""An estimate and its verdict: a level, and findings with a code, a number and a remedy."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from recsim_mnar.errors import UserError, nearest

LEVELS = ("trust", "caution", "do_not_use")
"""From best to worst."""
CAUTION, GRAVE, HOPELESS = 1.0, 2.0, 1000.0
"""Severities from which a finding makes the level caution, and do_not_use, and that of a log that says nothing."""
LEAST_USERS = 100
"""Independent users below which no interval here is believed."""

ASSUMES = "assumes that the new policy was not built from these records"
"""What no log shows and every verdict rests on, for where one is shown (docs/verdict-theory.md)."""


@dataclass(frozen=True)
class Finding:
    """One reason to doubt an estimate, or how far it is from being one.

    Attributes:
        code: stable name, for programs.
        severity: 0 and more; from 1 a reason for caution, from 2 a reason not to use the estimate. Below 1 it says how
            near it comes, and does not stand in the sentence.
        number: what was measured, in the unit that ``message`` names.
        message: it, in words.
        action: one thing to do, which the estimator at hand allows.
    """

    code: str
    severity: float
    number: float
    message: str
    action: str

    @property
    def level(self) -> str:
        """The level that this finding alone would give."""
        return LEVELS[2 if self.severity >= GRAVE else 1 if self.severity >= CAUTION else 0]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"code": self.code, "level": self.level, **asdict(self)}


class Verdict(str):
    """Whether an estimate can be believed. It is its own sentence: "trust", "caution: ..." or "do not use: ...".

    Attributes:
        level: "trust", "caution" or "do_not_use".
        findings: those of the gravest level first, those that only say how near a limit is last.
    """

    __slots__ = ("findings", "level")
    level: str
    findings: tuple[Finding, ...]

    def __new__(cls, level: str = "trust", findings: Iterable[Finding] = ()) -> Verdict:
        """A verdict of a level that is at least as bad as its findings.

        Raises:
            UserError: an unknown level.
        """
        if level not in LEVELS:
            raise UserError(f"no verdict {level!r}; {nearest(str(level), LEVELS)}")
        ordered = tuple(sorted(findings, key=lambda finding: -LEVELS.index(finding.level)))
        ranks = [LEVELS.index(level), *(LEVELS.index(finding.level) for finding in ordered)]
        level = LEVELS[max(ranks)]
        reasons = [f"{f.message}: {f.action}" for f in ordered if f.level == level] if level != "trust" else []
        head = level.replace("_", " ")
        self = super().__new__(cls, head + (": " + "; ".join(reasons) if reasons else ""))
        self.level = level
        self.findings = ordered
        return self

    @staticmethod
    def of(findings: Iterable[Finding]) -> Verdict:
        """The verdict that findings give."""
        return Verdict("trust", findings)

    def __getnewargs__(self) -> tuple[str, tuple[Finding, ...]]:  # type: ignore[override]  # what copies are made of
        return self.level, self.findings

    @property
    def severity(self) -> float:
        """The largest severity of a finding, 0 without any."""
        return max((finding.severity for finding in self.findings), default=0.0)

    def meets(self, level: str) -> bool:
        """True if the verdict is ``level`` or better.

        Raises:
            UserError: an unknown level.
        """
        if level not in LEVELS:
            raise UserError(f"no verdict {level!r}; {nearest(str(level), LEVELS)}")
        return LEVELS.index(self.level) <= LEVELS.index(level)

    def with_findings(self, findings: Iterable[Finding]) -> Verdict:
        """This verdict with more findings."""
        return Verdict(self.level, (*self.findings, *findings))

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the sentence, the level, and the findings."""
        findings = [finding.to_dict() for finding in self.findings]
        return {"verdict": str(self), "verdict_level": self.level, "findings": findings}

    def __str__(self) -> str:
        return "".join(self)


TRUST = Verdict()


def few_users(users: int, unit: str = "users") -> list[Finding]:
    """The finding of fewer independent users (or rows) than an interval needs; none where there are enough."""
    if users >= LEAST_USERS:
        return []
    counted = unit if users != 1 else unit.removesuffix("s")
    message = f"only {users:,} {counted}, intervals need at least {LEAST_USERS}"
    return [Finding("few_users", GRAVE, float(users), message, f"log more {unit}")]


def scaled(number: float, caution: float, grave: float) -> float:
    """Severity of a number whose limits are ``caution`` and ``grave``, straight between; either may be the larger.

    Args:
        number: what was measured; below both limits (above, where grave is the smaller) the severity is below 1.
        caution: severity 1.
        grave: severity 2; inf for a number that alone never makes an estimate useless.
    """
    if grave < caution:
        number, caution, grave = (float("inf") if x == 0.0 else 1.0 / x for x in (number, caution, grave))
    if number != number:
        return GRAVE
    if number < caution:
        return max(number, 0.0) / caution
    if grave == float("inf"):
        return CAUTION
    return min(CAUTION + (number - caution) / (grave - caution), HOPELESS)


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

    def with_findings(self, findings: Iterable[Finding]) -> Estimate:
        """This estimate, its verdict with more findings."""
        found = tuple(findings)
        return replace(self, verdict=self.verdict.with_findings(found)) if found else self

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The sentence, for notebooks."""
        return f"<p>{html.escape(str(self))}</p>"

    def __str__(self) -> str:
        words = str(self.verdict)
        verdict = words[:1].upper() + words[1:]
        return (
            f"{self.estimator or 'estimate'}: {self.value:.4g} ({self.level * 100:g} % interval {self.low:.4g} to "
            f"{self.high:.4g}; {self.n:,} rows, effective {self.ess:,.0f}). {verdict}"
        )
