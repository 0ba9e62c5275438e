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
    """``findings.toml``: by group and code what a finding means and says, and ``titles`` and ``options``."""
    return tomllib.loads(files(__package__).joinpath("findings.toml").read_text(encoding="utf-8"))


class Text(str):
    """A text for readers in Python; ``command`` is the same for those of the command line, who know other options."""

    __slots__ = ("command",)
    command: str

    def __new__(cls, text: str, command: str) -> Text:
        """Both texts."""
        self = super().__new__(cls, text)
        self.command = command
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # what copies are made of
        return str(self), self.command


def for_command(text: str) -> str:
    """A text as the command line and JSON have it."""
    if isinstance(text, Text):
        return text.command
    return str(text)


def written(code: str, part: str, params: Mapping[str, Any]) -> str:
    """A text of a code, with its parameters; "" where the table has none.

    Args:
        code: of a finding.
        part: "says" or "do".
        params: by name; that of ``part`` chooses another case of the text.

    Raises:
        KeyError: parameters are given, and the table has no such text, or one with others.
    """
    by_code = {finding: of_it for group in texts().values() for finding, of_it in group.items()}
    if part in params:
        key = f"{part}_{params[part]}"
    else:
        key = part
    if params:
        template = by_code[code][key]
    else:
        template = by_code.get(code, {}).get(key, "")
    python, command = (
        template.format(**{name: words[place] for name, words in texts()["options"].items()}, **params)
        for place in (0, 1)
    )
    if python == command:
        return python
    return Text(python, command)


@dataclass(frozen=True, init=False)
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

    def __init__(
        self, code: str, severity: float, number: float, message: str = "", action: str = "", **params: Any
    ) -> None:
        """A finding, whose texts are those of its code in ``findings.toml`` unless they are given.

        Args:
            code: a code of the table.
            severity: see the class.
            number: likewise.
            message: likewise.
            action: likewise.
            **params: of the texts; ``says`` and ``do`` choose another case of them.
        """
        message = message or written(code, "says", params)
        action = action or written(code, "do", params)
        for name, value in zip(self.__match_args__, (code, severity, number, message, action), strict=True):
            object.__setattr__(self, name, value)

    @property
    def level(self) -> str:
        """The level that this finding alone would give."""
        if self.severity >= GRAVE:
            return "do_not_use"
        if self.severity >= CAUTION:
            return "caution"
        return "trust"

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Finding:
        """The finding of :meth:`to_dict`."""
        return Finding(*(found[name] for name in Finding.__match_args__))

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the options of the command line."""
        texts = {"message": for_command(self.message), "action": for_command(self.action)}
        return {"code": self.code, "level": self.level, **asdict(self), **texts}


class Verdict(str):
    """Verdict on an estimate. It is its own sentence: "trust", "caution: ..." or "do not use: ...".

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
        self = super().__new__(cls, _sentence(level, ordered, str))
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
        """For JSON: the sentence, the level, and the findings, with the options of the command line."""
        sentence = _sentence(self.level, self.findings, for_command)
        return {
            "verdict": sentence,
            "verdict_level": self.level,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "".join(self)


def _sentence(level: str, findings: Iterable[Finding], write: Callable[[str], str]) -> str:
    """A level and the findings that make it, their texts as ``write`` has them."""
    reasons = [f"{write(f.message)}: {write(f.action)}" for f in findings if f.level == level != "trust"]
    return ": ".join(filter(None, (LEVEL_WORDS[level], "; ".join(reasons))))


TRUST = Verdict()


def few_users(users: int, unit: str = "users") -> list[Finding]:
    """The finding of fewer independent users (or rows) than an interval needs; none where there are enough."""
    if users >= LEAST_USERS:
        return []
    if users == 1:
        counted = {"users": "user", "rows": "row"}[unit]
    else:
        counted = unit
    return [Finding("few_users", GRAVE, float(users), users=users, counted=counted, unit=unit, least=LEAST_USERS)]


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
class Diagnostics:
    """Numbers on what an estimate rests on; None for those that do not apply.

    Attributes:
        n: rows.
        users: users, or rows where none are known.
        clustered: whether users are known.
        clicks: rows with a reward other than the least.
        ess: Kish's effective rows.
        mean_weight, mean_weight_se: of target / propensity, which should be 1, and its standard error by user.
        max_weight, max_weight_share: the heaviest row, and its share of all weights.
        clip, share_clipped: where weights are cut, and the share of rows whose weight is.
        support: share of rows whose action the target can take.
        mean_reward: of the log.
        propensity_min, least_propensity_rows: the least propensity, and how many rows have it.
        effective_users: Kish's effective users.
        sampling_low, sampling_high: the interval from sample size alone.
        clip_part, gap_part: what changed weights, and mass that the log never shows, add to the interval.
        reward_min, reward_max: the range of rewards, as stated or seen.
        missing_mass: upper limit of the target's mass that the log never shows, as a column says.
        full_support: as stated.
        identified_share: share of the target that the log covers.
        value_identified, identified_low, identified_high: mean reward of that part, and its interval.
        value_target, value_baseline, ess_baseline: of a difference.
        identified_share_target, identified_share_baseline: likewise.
        bootstrap_low, bootstrap_high: where propensities are estimated.
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
        """JSON types, without those that do not apply."""
        return {name: value for name, value in vars(self).items() if value is not None}


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
        diagnostics: what the estimate rests on: :class:`Diagnostics` of decisions.
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
    diagnostics: Any = None
    verdict: Verdict = TRUST
    estimator: str = ""

    @property
    def trusted(self) -> bool:
        """Return whether the verdict is "trust"."""
        return self.verdict.level == "trust"

    def numbers(self) -> dict[str, Any]:
        """The diagnostics, for JSON."""
        if isinstance(self.diagnostics, Mapping):
            return dict(self.diagnostics)
        return self.diagnostics.to_dict()

    def with_findings(self, findings: Iterable[Finding]) -> Estimate:
        """This estimate, its verdict with more findings."""
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
