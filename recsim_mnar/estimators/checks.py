"""The checks of an off-policy estimate, each a code, a severity rule and a reference (docs/verdict.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recsim_mnar.estimators.intervals import student_limits
from recsim_mnar.estimators.refuters import STRICT
from recsim_mnar.estimators.scores import ESTIMATORS
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import (
    CAUTION,
    GRAVE,
    HOPELESS,
    Diagnostics,
    Finding,
    Verdict,
    few_users,
    scaled,
)
from recsim_mnar.kernels.checks import rounded_down, told_apart

BY_DIGITS = 0.01
"""A mean weight this close to 1 may be off by the digits of the columns."""
USELESS = 1.0
"""Half the interval over the value from which both 0 and twice the value are in it: worse than knowing nothing."""
PROVED_BIAS = 0.2
"""Share of the value from which a proved bias makes an estimate useless."""
LEAST_ESS, FEW_ESS = 100.0, 30.0
"""Kish's effective rows: 100 leave a relative error of .1 from the weights alone."""
FEW_CARRYING, LEAST_CARRYING = 8.0, 4.0
"""Users that carry the variance: with fewer degrees of freedom the interval itself is not known."""
FEW_REWARDED = 30.0
"""Rewarded rows and users."""
SHARE_OF_ONE = 0.1
"""Share of the rows that one user may have, and of the weight that one row may have."""
HEAVY = 1.5
"""Times the interval that the weights let one expect: above it, the heaviest rows happened to earn little."""
LEAST_SURE, ALL_BUT_FEW = 20, 0.9
"""Rows of which a target is sure, and the share of them with a reward, from which it must have known the rewards."""
OFF_BY = 0.3
"""Share of the target's mass from which what is missing of it leaves no value of the target."""
FAR = 1000.0
"""Times as large a log that nobody will make."""


def mean_weight_limits(sums: PolicySums, level: float) -> tuple[float, float]:
    """Limits of E[w] by user on a log scale; E[w] is 1 less the target's mass that the log never shows."""
    from scipy.special import ndtri

    mean = sums.mean_weight
    if sums.users < 2 or mean <= 0.0:
        return 0.0, math.inf
    reach = min(float(ndtri(0.5 + level / 2.0)) * sums.mean_weight_error / mean, 30.0)
    return mean * math.exp(-reach), mean * math.exp(reach)


@dataclass(frozen=True)
class Support:
    """Knowledge of the target's mass on actions that the log never shows.

    Attributes:
        entering: the upper limit of that mass as the column states it, which enters the interval.
        known: mean of the column that states it, None without one.
        stated: full support as stated: True, False, or None.
        proved: whether the mean weight proves a gap beyond what is stated.
        excess: how far the mean weight is proved to be above what support leaves it, 0 where it is not.
        mean: mean weight.
    """

    entering: float
    known: float | None
    stated: bool | None
    proved: bool
    excess: float
    mean: float

    @staticmethod
    def of(sums: PolicySums, stated: bool | None, level: float) -> Support:
        """Compare the mean weight with 1, less the mass that a column says the log never shows.

        Args:
            sums: of the policy.
            stated: full support, as the user states it.
            level: of the interval.
        """
        mean = sums.mean_weight
        missing = sums.missing_mass()
        known_mass, error = (None, 0.0) if missing is None else missing
        stated_mass = known_mass or 0.0
        low, high = mean_weight_limits(sums, STRICT)
        proved = stated_mass + high < 1.0 and stated_mass + mean < 1.0 - BY_DIGITS
        if stated_mass + mean > 1.0 + BY_DIGITS:
            excess = stated_mass + low - 1.0
        else:
            excess = 0.0
        entering = 0.0
        if known_mass is not None:
            entering = min(student_limits(known_mass, error**2, sums.users, level)[1], 1.0)
        return Support(entering, known_mass, stated, proved, max(excess, 0.0), mean)

    @property
    def too_much(self) -> float:
        """Share of a weighted mean that goes where logged probabilities are too small by as much as the mean weight."""
        if self.excess > 0.0:
            return 1.0 - 1.0 / self.mean
        return 0.0

    @property
    def covered(self) -> float:
        """The share of the target that the log covers, as far as it is known."""
        share = 1.0 - (self.known or 0.0)
        if self.proved:
            return min(self.mean, share)
        return share


@dataclass(frozen=True)
class Evidence:
    """Input of the checks of an estimate.

    Attributes:
        diagnostics: of the estimate.
        sums: of the policy.
        support: likewise.
        estimator: its name, for remedies that it allows.
        low, high: the interval.
        bounds: what the user states of propensities and weights, by name.
        scale: size of the value; None for a difference.
        precision: half the interval over the value up to which a value is trusted.
        carrying: users that carry the variance; None where there is no interval from sample size.
        heavy_tail: times the interval that the weights let one expect; None likewise.
        hidden: how far the interval goes beyond that from sample size, because weights were changed.
        value_outside: distance of the value from the interval of the unchanged weights.
        same: whether it is the difference of a policy from itself, or only its weights are of interest.
        warnings: what the estimator brings along.
    """

    diagnostics: Diagnostics
    sums: PolicySums
    support: Support
    estimator: str
    low: float
    high: float
    bounds: Mapping[str, float] = field(default_factory=dict)
    scale: float | None = None
    precision: float = 0.25
    carrying: float | None = None
    heavy_tail: float | None = None
    hidden: float = 0.0
    value_outside: float = 0.0
    same: bool = False
    warnings: tuple[Finding, ...] = ()

    @property
    def unit(self) -> str:
        """Name the independent unit."""
        if self.sums.clustered:
            return "users"
        return "rows"

    @property
    def half(self) -> float:
        """Half the interval."""
        return (self.high - self.low) / 2.0

    def more(self, times: float) -> dict[str, Any]:
        """The remedy of a log so many times as large, for a text."""
        if times >= FAR:
            return {"do": "far", "unit": self.unit}
        return {"do": "times", "times": max(math.ceil(times), 2), "unit": self.unit}

    def more_for(self, wanted: float, found: float) -> dict[str, Any]:
        """The remedy of a log in which a number that grows with it is ``wanted``, and a difference is told from 0."""
        times = wanted / max(found, 1.0)
        facts = self.diagnostics
        if facts.value_baseline is not None and facts.value_target is not None:
            size = abs(facts.value_target - facts.value_baseline)
            times = max(times, (self.half / size) ** 2 if size > 0.0 else math.inf)
        return self.more(times)


def judge(evidence: Evidence) -> Verdict:
    """The verdict of an estimate."""
    sums = evidence.sums
    findings = few_users(sums.users, evidence.unit)
    findings += _contradictions(evidence)
    if sums.supported == 0:
        return Verdict.of([*findings, Finding("no_support", HOPELESS, 0.0)])
    if sums.rewarded == 0:
        findings.append(_no_reward(evidence))
    elif not evidence.same:
        findings += _width(evidence)
        findings += _rewards(evidence)
    if evidence.estimator != "dm":
        findings += _weights(evidence)
    findings += _sure(sums)
    if sums.grouped:
        share = sums.user_rows_max / sums.rows
        findings.append(Finding("long_user", scaled(share, SHARE_OF_ONE, math.inf), share, percent=100 * share))
    return Verdict.of([*findings, *evidence.warnings])


def _no_reward(evidence: Evidence) -> Finding:
    case: dict[str, str] = {"says": "one_end"} if evidence.high > evidence.low else {}
    if math.isinf(evidence.high):
        case = {"says": "no_end", "do": "state"}
    return Finding("no_reward", HOPELESS, 0.0, **case)


def _width(evidence: Evidence) -> Iterator[Finding]:
    """The interval over the value, and the bias left by changed weights."""
    scale = evidence.scale
    estimator = evidence.estimator
    if scale is not None:
        if scale > 0.0:
            ratio = evidence.half / scale
        else:
            ratio = math.inf
        says: dict[str, Any] = {"says": "percent", "percent": 100.0 * ratio} if ratio < 10.0 else {}
        does = evidence.more((ratio / evidence.precision) ** 2)
        if ratio <= evidence.precision:
            does = {"do": "narrower", "unit": evidence.unit}
        if evidence.diagnostics.gap_part > evidence.half:
            does = {"do": "explore"}
        elif evidence.hidden > evidence.half and less_bias(estimator):
            does = {"do": "less_bias", "remedy": less_bias(estimator)}
        yield Finding("wide_interval", scaled(ratio, evidence.precision, USELESS), ratio, **says, **does)
    if _is_point(evidence.diagnostics):
        yield Finding("no_width", CAUTION, 0.0)
    outside = evidence.value_outside
    if outside:
        if not scale or outside >= PROVED_BIAS * scale:
            severity = GRAVE
        else:
            severity = CAUTION
        if estimator == "clipped_ips":
            remedy = "use snips"
        else:
            remedy = less_bias(estimator) or "explore more"
        yield Finding("bias_proved", severity, outside, outside=outside, remedy=remedy)


def _is_point(facts: Diagnostics) -> bool:
    """True if the sampling interval is a point up to roundings: those of a variance leave some 1e-8 of the value."""
    low = facts.sampling_low
    high = facts.sampling_high
    spread = (high - low) * math.sqrt(max(facts.effective_users, 1.0))
    scale = max(abs(high + low) / 2.0, abs(facts.value_target or 0.0), abs(facts.value_baseline or 0.0))
    return spread <= 1e-6 * scale


def _rewards(evidence: Evidence) -> Iterator[Finding]:
    """Check how many rewards and users carry the answer, and whether the heaviest rows had their share of rewards."""
    rewarded = min(evidence.sums.rewarded, evidence.sums.rewarded_users)
    severity = min(scaled(float(rewarded), FEW_REWARDED, 0.0), CAUTION)
    more = evidence.more_for(FEW_REWARDED, float(rewarded))
    yield Finding("few_rewards", severity, float(rewarded), rewarded=rewarded, **more)
    carrying = evidence.carrying
    if carrying:
        severity = scaled(carrying, FEW_CARRYING, LEAST_CARRYING)
        more = evidence.more_for(FEW_CARRYING, carrying)
        yield Finding("few_carry", severity, carrying, carrying=carrying, **more)
    heavy = evidence.heavy_tail
    if heavy is not None:
        yield Finding("heavy_tail", scaled(heavy, HEAVY, math.inf), heavy, heavy=heavy, unit=evidence.unit)


def _contradictions(evidence: Evidence) -> Iterator[Finding]:
    """Find what proves propensities, support or a stated fact wrong, and mass that is known to be missing."""
    support = evidence.support
    sums = evidence.sums
    expected_mean = 1.0 - (support.known or 0.0)
    if support.proved:
        gap = max(expected_mean - support.mean, 0.0)
        numbers: dict[str, Any] = {"mean": support.mean, "percent": 100 * gap}
        if support.stated:
            yield Finding("support_denied", GRAVE, gap, **numbers)
        else:
            if support.known is None:
                case = {}
            else:
                case = {"says": "column"}
            yield Finding("support_missing", GRAVE, gap, **case, **numbers)
    elif support.stated is False:
        yield Finding("support_missing", CAUTION, 0.0, says="stated")
    if support.known and not support.proved:
        severity = scaled(support.known, OFF_BY, 2.0 * OFF_BY)
        yield Finding("support_gap", severity, support.known, percent=100 * support.known)
    if sums.denied:
        bounds = evidence.bounds
        stated_bounds = " or the ".join(f"{what} that is stated, {value:.4g}" for what, value in bounds.items())
        if "least propensity" in bounds:
            case = {"says": "least", "least": rounded_down(sums.propensity_min)}
        else:
            case = {}
        yield Finding("bound_denied", GRAVE, float(sums.denied), rows=sums.denied, bounds=stated_bounds, **case)
    if support.excess > 0.0:
        mean, should = told_apart(support.mean, expected_mean)
        yield Finding("propensities", GRAVE, support.mean, mean=mean, wanted=should)


def _sure(sums: PolicySums) -> Iterator[Finding]:
    """Return whether nearly every row of which the target is sure has a reward, where few others have.

    It saw the rewards.
    """
    rows, rewarded, share = sums.sure, sums.sure_rewarded, sums.rewarded / sums.rows
    if rows < LEAST_SURE or rewarded < ALL_BUT_FEW * rows or share > 0.5:
        return
    yield Finding("target_knows", GRAVE, rewarded / rows, rewarded=rewarded, rows=rows, percent=100 * share)


def _weights(evidence: Evidence) -> Iterator[Finding]:
    facts = evidence.diagnostics
    estimator = evidence.estimator
    n = facts.n
    ess = facts.ess
    share = facts.max_weight_share
    if ess < n * (1.0 - 1e-9):
        severity = scaled(ess, LEAST_ESS, min(FEW_ESS, n))
        yield Finding("effective_sample", severity, ess, ess=ess, n=n, **evidence.more_for(LEAST_ESS, ess))
    info = ESTIMATORS.get(estimator)
    remedy = f"use {info.lighter if info is not None else 'clipped_ips'} or log more rows"
    if info is not None and info.clips and facts.clip is None:
        remedy = "give a clip or log more rows"
    elif less_bias(estimator):
        remedy = "log more rows or explore more where the target acts"
    yield Finding("heavy_row", scaled(share, SHARE_OF_ONE, math.inf), share, percent=100 * share, remedy=remedy)


def less_bias(estimator: str) -> str:
    """Remedy that brings changed weights closer to target / propensity; "" for other estimators."""
    if estimator in ESTIMATORS:
        return ESTIMATORS[estimator].less_bias
    return ""
