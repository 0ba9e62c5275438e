"""An estimate and its verdict: a level, and findings with a code, a number and a remedy (docs/verdict.md)."""

from __future__ import annotations

import functools
import html
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any

from recsim_mnar.errors import UserError, nearest

LEVELS = ("trust", "caution", "do_not_use")
"""From best to worst."""
LEVEL_WORDS = {"trust": "trust", "caution": "caution", "do_not_use": "do not use"}
"""For people."""
CAUTION, GRAVE, HOPELESS = 1.0, 2.0, 1000.0
"""Severities from which a finding makes the level caution, and do_not_use, and that of a log that says nothing."""
LEAST_USERS = 100
"""Independent users below which no interval here is believed."""


@functools.cache
def texts() -> dict[str, dict[str, Any]]:
    """Read ``findings.toml``: texts of findings by group and code, and ``titles`` and ``options``."""
    return tomllib.loads(files(__package__).joinpath("findings.toml").read_text(encoding="utf-8"))


class Text(str):
    """A text for readers in Python; ``command`` is the same for the command line, with its own options."""

    __slots__ = ("command",)
    command: str

    def __new__(cls, text: str, command: str) -> Text:
        """Make a text of both versions."""
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
    """Fill in a text of a finding; "" where the table has none.

    Args:
        code: code of the finding.
        part: "says" or "do".
        params: parameters by name; that of ``part`` chooses another case of the text.

    Raises:
        KeyError: there are parameters, and the table has no such text, or one with others.
    """
    by_code = {finding: entry for group in texts().values() for finding, entry in group.items()}
    key = f"{part}_{params[part]}" if part in params else part
    template = by_code[code][key] if params else by_code.get(code, {}).get(key, "")
    options = texts()["options"].items()
    python = template.format(**{name: words[0] for name, words in options}, **params)
    command = template.format(**{name: words[1] for name, words in options}, **params)
    if python == command:
        return python
    return Text(python, command)


@dataclass(frozen=True, init=False)
class Finding:
    """One reason to doubt an estimate, or its distance from being one.

    Attributes:
        code: stable name, for programs.
        severity: 0 and more; from 1 a reason for caution, from 2 a reason not to use the estimate. Below 1 it is the
            distance from such a reason, and is not part of the sentence.
        number: the measured number, in the unit that ``message`` names.
        message: the finding in words.
        action: one thing to do that the estimator allows.
    """

    code: str
    severity: float
    number: float
    message: str
    action: str

    def __init__(
        self, code: str, severity: float, number: float, message: str = "", action: str = "", **params: Any
    ) -> None:
        """Make a finding; texts that are empty are those of its code in ``findings.toml``.

        Args:
            code: a code of the table.
            severity: see the class.
            number: likewise.
            message: likewise.
            action: likewise.
            **params: parameters of the texts; ``says`` and ``do`` choose another case of them.
        """
        message = message or written(code, "says", params)
        action = action or written(code, "do", params)
        for name, value in zip(self.__match_args__, (code, severity, number, message, action), strict=True):
            object.__setattr__(self, name, value)

    @property
    def level(self) -> str:
        """Level of a verdict with this finding alone."""
        if self.severity >= GRAVE:
            return "do_not_use"
        return "caution" if self.severity >= CAUTION else "trust"

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Finding:
        """Read the result of :meth:`to_dict`."""
        return Finding(*(fields[name] for name in Finding.__match_args__))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, with the options of the command line."""
        texts = {"message": for_command(self.message), "action": for_command(self.action)}
        return {"code": self.code, "level": self.level, **asdict(self), **texts}


class Verdict(str):
    """Verdict on an estimate. It is its own sentence: "trust", "caution: ..." or "do not use: ...".

    Attributes:
        level: "trust", "caution" or "do_not_use".
        findings: all findings, the gravest level first.
    """

    __slots__ = ("findings", "level")
    level: str
    findings: tuple[Finding, ...]

    def __new__(cls, level: str = "trust", findings: Iterable[Finding] = ()) -> Verdict:
        """Make a verdict of a level, or of the worst level of its findings.

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
        """Return the verdict of findings."""
        return Verdict("trust", findings)

    def __getnewargs__(self) -> tuple[str, tuple[Finding, ...]]:  # type: ignore[override]  # what copies are made of
        return self.level, self.findings

    @property
    def severity(self) -> float:
        """Largest severity of a finding, 0 without any."""
        return max((finding.severity for finding in self.findings), default=0.0)

    def meets(self, level: str) -> bool:
        """Return whether the verdict is ``level`` or better.

        Raises:
            UserError: an unknown level.
        """
        return _rank(self.level) <= _rank(level)

    def with_findings(self, findings: Iterable[Finding]) -> Verdict:
        """Return this verdict with more findings."""
        return Verdict(self.level, (*self.findings, *findings))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: the sentence, the level, and the findings, with the options of the command line."""
        sentence = _sentence(self.level, self.findings, for_command)
        return {
            "verdict": sentence,
            "verdict_level": self.level,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "".join(self)


def _rank(level: str) -> int:
    """Return the place of a level among all, or raise UserError."""
    if level not in LEVELS:
        raise UserError(f"no verdict {level!r}; {nearest(str(level), LEVELS)}")
    return LEVELS.index(level)


def _sentence(level: str, findings: Iterable[Finding], write: Callable[[str], str]) -> str:
    """Compose a level and the findings that cause it; ``write`` chooses the version of a text."""
    sentence = LEVEL_WORDS[level]
    reasons = [f"{write(f.message)}: {write(f.action)}" for f in findings if f.level == level]
    if reasons and level != "trust":
        sentence += ": " + "; ".join(reasons)
    return sentence


TRUST = Verdict()


def few_users(users: int, unit: str = "users") -> list[Finding]:
    """Return the finding of fewer independent users (or rows) than an interval needs, if any."""
    if users >= LEAST_USERS:
        return []
    counted = unit.removesuffix("s") if users == 1 else unit
    return [Finding("few_users", GRAVE, float(users), users=users, counted=counted, unit=unit, least=LEAST_USERS)]


def scaled(number: float, caution: float, grave: float) -> float:
    """Return the severity of a number by two limits, linear between them; either may be the larger.

    Args:
        number: the measured number; below both limits (above, where grave is the smaller) the severity is below 1.
        caution: number of severity 1.
        grave: number of severity 2; inf for a number that alone never makes an estimate useless.
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
class Diagnostics:
    """Numbers on what an estimate rests on; None for those that do not apply.

    Attributes:
        n: number of rows.
        users: number of users, or of rows without users.
        clustered: whether users are known.
        clicks: rows with a reward other than the least.
        ess: Kish's effective rows.
        mean_weight, mean_weight_se: mean of target / propensity, which should be 1, and its standard error by user.
        max_weight, max_weight_share: the heaviest row's weight, and its share of all weights.
        clip, share_clipped: largest weight, and the share of rows whose weight is cut.
        support: share of rows whose action the target can take.
        mean_reward: mean reward of the log.
        propensity_min, least_propensity_rows: the least propensity, and the number of rows that have it.
        effective_users: Kish's effective users.
        sampling_low, sampling_high: the interval from sample size alone.
        clip_part, gap_part: parts of the interval from changed weights, and from mass that the log never shows.
        reward_min, reward_max: the range of rewards, as stated or seen.
        missing_mass: upper limit of the target's mass that the log never shows, from its column.
        full_support: full support as stated.
        identified_share: share of the target that the log covers.
        value_identified, identified_low, identified_high: mean reward of that part, and its interval.
        value_target, value_baseline, ess_baseline: the two policies of a difference.
        identified_share_target, identified_share_baseline: likewise.
        bootstrap_low, bootstrap_high: bootstrap interval, where propensities are estimated.
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
        value: the point estimate, in units of the reward.
        low: lower end of the interval for the target policy's value, the bias of clipping included.
        high: upper end.
        level: nominal coverage of the interval.
        method: method of the interval, in words; "asymptotic" where it holds for many users only.
        n: rows used.
        ess: Kish's effective sample size of the unclipped weights, (sum w)^2 / sum w^2.
        diagnostics: numbers on what the estimate rests on: :class:`Diagnostics` of decisions.
        verdict: its level and findings; as a text "trust", "caution: ..." or "do not use: ...", with reasons and
            advice.
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
        """The sentence, for notebooks."""
        return f"<p>{html.escape(str(self))}</p>"

    def __str__(self) -> str:
        words = str(self.verdict)
        verdict = words[:1].upper() + words[1:]
        return (
            f"{self.estimator or 'estimate'}: {self.value:.4g} ({self.level * 100:g} % interval {self.low:.4g} to "
            f"{self.high:.4g}; {self.n:,} rows, effective {self.ess:,.0f}). {verdict}"
        )
