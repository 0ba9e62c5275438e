"""An estimate and its verdict: a level, and findings with a code, a number and a remedy (docs/verdict.md)."""

from __future__ import annotations

import functools
import html
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any

from recsim_mnar.errors import UserError, nearest

LEVELS = ("trust", "caution", "do_not_use")
"""Levels of a verdict, from best to worst."""
LEVEL_WORDS = {"trust": "trust", "caution": "caution", "do_not_use": "do not use"}
"""Words for the levels in texts."""
CAUTION, GRAVE, HOPELESS = 1.0, 2.0, 1000.0
"""Severities from which the level is caution, and do_not_use; and the largest severity, of a log that says nothing."""
LEAST_USERS = 100
"""Number of independent users below which no interval is trusted."""


@functools.cache
def texts() -> dict[str, dict[str, Any]]:
    """Read ``findings.toml``: texts of findings by group and code, and the groups ``titles`` and ``options``."""
    return tomllib.loads(files(__package__).joinpath("findings.toml").read_text(encoding="utf-8"))


class Text(str):
    """A text that names arguments of Python functions; ``command`` names the options of the command line instead."""

    __slots__ = ("command",)
    command: str

    def __new__(cls, text: str, command: str) -> Text:
        """Make a text from the version for Python and that for the command line."""
        self = super().__new__(cls, text)
        self.command = command
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # what copies are made of
        return str(self), self.command


def for_command(text: str) -> str:
    """Return a text's version for the command line and JSON."""
    if isinstance(text, Text):
        return text.command
    return str(text)


def written(code: str, part: str, params: Mapping[str, Any]) -> str:
    """Return a text of a finding from ``findings.toml``, with its parameters filled in.

    Args:
        code: code of the finding.
        part: "says" for the finding in words, "do" for the advice.
        params: parameters by name; the one named like ``part`` selects a variant of the text.

    Returns:
        The text; "" if there are no parameters and the table has no text.

    Raises:
        KeyError: there are parameters, and the table has no such text, or a text with other parameters.
    """
    by_code = {finding: entry for group in texts().values() for finding, entry in group.items()}
    key = f"{part}_{params[part]}" if part in params else part
    if params:
        template = by_code[code][key]
    else:
        template = by_code.get(code, {}).get(key, "")
    # Each option has its name in Python, and on the command line.
    options = texts()["options"].items()
    python = template.format(**{name: words[0] for name, words in options}, **params)
    command = template.format(**{name: words[1] for name, words in options}, **params)
    if python == command:
        return python
    return Text(python, command)


@dataclass(frozen=True, init=False)
class Finding:
    """Result of one check of an estimate: a reason to doubt it, if its severity is at least 1.

    Attributes:
        code: stable name of the check, for programs.
        severity: number from 0; from 1 the finding is a reason for caution, from 2 a reason not to use the estimate.
            Below 1 it says how close the check is to such a reason, and the verdict's sentence omits it.
        number: measured number, in the unit that ``message`` names.
        message: finding in words.
        action: advice in words, which the estimator allows.
    """

    code: str
    severity: float
    number: float
    message: str
    action: str

    def __init__(
        self, code: str, severity: float, number: float, message: str = "", action: str = "", **params: Any
    ) -> None:
        """Make a finding with its texts, by default those of its code in ``findings.toml``.

        Args:
            code: code, a key in ``findings.toml`` unless both texts are given.
            severity: number from 0; from 1 a reason for caution, from 2 a reason not to use the estimate.
            number: measured number.
            message: finding in words; "" for the text of the table.
            action: advice in words; "" for the text of the table.
            **params: parameters of the texts; ``says`` and ``do`` select variants of them.
        """
        message = message or written(code, "says", params)
        action = action or written(code, "do", params)
        # A frozen dataclass cannot assign its own fields.
        for name, value in zip(self.__match_args__, (code, severity, number, message, action), strict=True):
            object.__setattr__(self, name, value)

    @property
    def level(self) -> str:
        """The level of a verdict with this finding alone."""
        if self.severity >= GRAVE:
            return "do_not_use"
        return "caution" if self.severity >= CAUTION else "trust"

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Finding:
        """Read the result of :meth:`to_dict`."""
        return Finding(*(fields[name] for name in Finding.__match_args__))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; texts name the options of the command line."""
        texts = {"message": for_command(self.message), "action": for_command(self.action)}
        return {"code": self.code, "level": self.level, **asdict(self), **texts}


class Verdict(str):
    """Verdict on an estimate: a string "trust", "caution: ..." or "do not use: ..." with the reasons and advice.

    Attributes:
        level: level, "trust", "caution" or "do_not_use".
        findings: all findings, those of the worst level first.
    """

    __slots__ = ("findings", "level")
    level: str
    findings: tuple[Finding, ...]

    def __new__(cls, level: str = "trust", findings: Iterable[Finding] = ()) -> Verdict:
        """Make a verdict whose level is the worse of ``level`` and the worst level of its findings.

        Raises:
            UserError: an unknown level.
        """
        rank = _rank(level)
        ordered = tuple(sorted(findings, key=lambda finding: -_rank(finding.level)))
        if ordered:
            rank = max(rank, _rank(ordered[0].level))
        level = LEVELS[rank]
        self = super().__new__(cls, _sentence(level, ordered, str))
        self.level = level
        self.findings = ordered
        return self

    @staticmethod
    def of(findings: Iterable[Finding]) -> Verdict:
        """Return the verdict whose level is the worst level of its findings; trust without any."""
        return Verdict("trust", findings)

    def __getnewargs__(self) -> tuple[str, tuple[Finding, ...]]:  # type: ignore[override]  # what copies are made of
        return self.level, self.findings

    @property
    def severity(self) -> float:
        """The largest severity of a finding; 0 without any."""
        return max((finding.severity for finding in self.findings), default=0.0)

    def meets(self, level: str) -> bool:
        """Return whether the verdict's level is ``level`` or better.

        Raises:
            UserError: an unknown level.
        """
        return _rank(self.level) <= _rank(level)

    def with_findings(self, findings: Iterable[Finding]) -> Verdict:
        """Return this verdict with more findings."""
        return Verdict(self.level, (*self.findings, *findings))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: sentence, level and findings; texts name the options of the command line."""
        sentence = _sentence(self.level, self.findings, for_command)
        return {
            "verdict": sentence,
            "verdict_level": self.level,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "".join(self)


def _rank(level: str) -> int:
    """Return the number of a level, 0 for the best; raise UserError for an unknown one."""
    if level not in LEVELS:
        raise UserError(f"no verdict {level!r}; {nearest(str(level), LEVELS)}")
    return LEVELS.index(level)


def _sentence(level: str, findings: Iterable[Finding], write: Callable[[str], str]) -> str:
    """Return a verdict's sentence: the level, and the message and action of each finding that causes it.

    Args:
        level: level of the verdict.
        findings: all findings.
        write: function that selects the version of a text, for Python or for the command line.
    """
    sentence = LEVEL_WORDS[level]
    reasons = [f"{write(f.message)}: {write(f.action)}" for f in findings if f.level == level]
    if reasons and level != "trust":
        sentence += ": " + "; ".join(reasons)
    return sentence


TRUST = Verdict()


def few_users(users: int, unit: str = "users") -> list[Finding]:
    """Return the finding of fewer independent users than an interval needs, or an empty list.

    Args:
        users: number of independent users, or of rows if users are not known.
        unit: plural of the independent unit, "users" or "rows".
    """
    if users >= LEAST_USERS:
        return []
    counted = unit.removesuffix("s") if users == 1 else unit
    return [Finding("few_users", GRAVE, float(users), users=users, counted=counted, unit=unit, least=LEAST_USERS)]


def scaled(number: float, caution: float, grave: float) -> float:
    """Map a measured number to a severity that is 1 at one limit and 2 at the other, linear between and beyond them.

    On the good side of ``caution`` the severity is below 1 and proportional to the number; if small numbers are bad
    (``grave < caution``), to its inverse.

    Args:
        number: measured number; nan is grave.
        caution: number with severity 1.
        grave: number with severity 2; inf if the severity is at most 1.
    """
    if grave < caution:
        number, caution, grave = (float("inf") if x == 0.0 else 1.0 / x for x in (number, caution, grave))
    if math.isnan(number):
        return GRAVE
    if number < caution:
        return max(number, 0.0) / caution
    if grave == float("inf"):
        return CAUTION
    return min(CAUTION + (number - caution) / (grave - caution), HOPELESS)


@dataclass(frozen=True)
class Diagnostics:
    """Numbers that describe the data and the assumptions behind an estimate; None for those that do not apply.

    Attributes:
        n: number of rows.
        users: number of users; of rows, if users are not known.
        clustered: whether users are known.
        clicks: number of rows with a reward other than the least.
        ess: Kish's effective number of rows.
        mean_weight: mean of target / propensity, which should be 1.
        mean_weight_se: standard error of that mean, clustered by user.
        max_weight: largest weight.
        max_weight_share: share of the sum of weights that the row with the largest weight has.
        support: share of rows whose action the target can take.
        mean_reward: mean reward of the log.
        propensity_min: least propensity.
        least_propensity_rows: number of rows with the least propensity.
        effective_users: Kish's effective number of users.
        sampling_low: lower end of the interval for the sampling error.
        sampling_high: upper end of that interval.
        clip_part: amount by which the interval was widened because weights were changed.
        gap_part: amount by which it was widened because the log lacks actions of the target.
        reward_min: least reward, as stated or in the log.
        reward_max: largest reward, as stated or in the log.
        clip: largest weight of a clipped estimator.
        share_clipped: share of rows whose weight is clipped.
        missing_mass: upper limit of the target's probability of actions that the log never takes, from its column.
        full_support: whether full support is stated.
        identified_share: share of the target that the log covers.
        value_identified: mean reward of that share.
        identified_low: lower end of the interval for ``value_identified``.
        identified_high: upper end of that interval.
        value_target: value of the target of a difference.
        value_baseline: value of the baseline of a difference.
        ess_baseline: effective number of rows for that baseline.
        identified_share_target: share of the target of a difference that the log covers.
        identified_share_baseline: share of the baseline of a difference that the log covers.
        bootstrap_low: lower end of the bootstrap interval, if propensities are estimated.
        bootstrap_high: upper end of that interval.
    """

    n: int
    users: int
    clustered: bool
    clicks: int
    ess: float
    mean_weight: float
    mean_weight_se: float
    max_weight: float
    max_weight_share: float
    support: float
    mean_reward: float
    propensity_min: float
    least_propensity_rows: int
    effective_users: float
    sampling_low: float
    sampling_high: float
    clip_part: float
    gap_part: float
    reward_min: float
    reward_max: float
    clip: float | None = None
    share_clipped: float | None = None
    missing_mass: float | None = None
    full_support: bool | None = None
    identified_share: float | None = None
    value_identified: float | None = None
    identified_low: float | None = None
    identified_high: float | None = None
    value_target: float | None = None
    value_baseline: float | None = None
    ess_baseline: float | None = None
    identified_share_target: float | None = None
    identified_share_baseline: float | None = None
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, without the numbers that do not apply."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Estimate:
    """Estimate of a target policy's mean reward per decision.

    Attributes:
        value: point estimate, in units of the reward.
        low: lower end of the interval for the target policy's value, the bias of clipping included.
        high: upper end of that interval.
        level: nominal coverage of the interval.
        method: method of the interval, in words; "asymptotic" if it holds for many users only.
        n: number of rows used.
        ess: Kish's effective sample size of the unclipped weights, (sum w)^2 / sum w^2.
        diagnostics: numbers that describe the data behind the estimate, :class:`Diagnostics` for single decisions.
        verdict: level and findings; as a text "trust", "caution: ..." or "do not use: ...", with reasons and advice.
        estimator: name of the estimator.
    """

    value: float
    low: float
    high: float
    level: float
    method: str
    n: int
    ess: float
    diagnostics: Any = None
    verdict: Verdict = TRUST
    estimator: str = ""

    @property
    def trusted(self) -> bool:
        """Return whether the verdict is "trust"."""
        return self.verdict.level == "trust"

    def numbers(self) -> dict[str, Any]:
        """Return the diagnostics as JSON types."""
        if isinstance(self.diagnostics, Mapping):
            return dict(self.diagnostics)
        return self.diagnostics.to_dict()

    def with_findings(self, findings: Iterable[Finding]) -> Estimate:
        """Return this estimate with more findings in its verdict."""
        more_findings = tuple(findings)
        if more_findings:
            return replace(self, verdict=self.verdict.with_findings(more_findings))
        return self

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the sentence as HTML, for notebooks."""
        return f"<p>{html.escape(str(self))}</p>"

    def __str__(self) -> str:
        words = str(self.verdict)
        verdict = words[:1].upper() + words[1:]
        return (
            f"{self.estimator or 'estimate'}: {self.value:.4g} ({self.level * 100:g} % interval {self.low:.4g} to "
            f"{self.high:.4g}; {self.n:,} rows, effective {self.ess:,.0f}). {verdict}"
        )
