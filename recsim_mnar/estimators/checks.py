"""Checks of an off-policy estimate, each with a code, a severity rule and a reference (docs/verdict.md)."""

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
"""Largest distance of a mean weight from 1 that columns rounded to a few digits may cause."""
USELESS = 1.0
"""Ratio of half the interval to the value from which an estimate must not be used: the interval includes both 0 and
twice the value."""
PROVED_BIAS = 0.2
"""Share of the value from which a proved bias means that the estimate must not be used."""
LEAST_ESS, FEW_ESS = 100.0, 30.0
"""Kish's effective rows below which the verdict is caution, and do not use. With 100 the weights alone cause a relative
error of .1."""
FEW_CARRYING, LEAST_CARRYING = 8.0, 4.0
"""Effective numbers of users behind the variance below which the verdict is caution, and do not use: with so few
degrees of freedom the interval itself is uncertain."""
FEW_REWARDED = 30.0
"""Number of rewarded rows, or of users with a reward, below which the verdict is caution."""
SHARE_OF_ONE = 0.1
"""Share of the rows that one user has, and of the weight that one row has, from which the verdict is caution."""
HEAVY = 1.5
"""Ratio of the error expected from the weights to the observed one from which the verdict is caution: the heaviest rows
happened to earn little."""
LEAST_SURE, ALL_BUT_FEW = 20, 0.9
"""Number of rows in which a target is sure of the logged action, and share of them with a reward, from which it must
have known the rewards."""
OFF_BY = 0.3
"""Share of the target's mass that the log lacks from which an estimate does not describe the target."""
FAR = 1000.0
"""Factor by which nobody will enlarge a log, so that advice does not name it."""


def mean_weight_limits(sums: PolicySums, level: float, degrees: float = math.inf) -> tuple[float, float]:
    """Compute confidence limits of the expected weight E[w], clustered by user and on a log scale.

    E[w] is 1 minus the target's probability of actions that the log never takes, if propensities are right.

    Args:
        sums: sums of the policy's weights.
        level: two-sided level.
        degrees: degrees of freedom of Student's t, for few users; infinite for the normal distribution.

    Returns:
        Lower and upper limit; 0 and inf for one user or if every weight is 0.
    """
    from scipy.special import ndtri, stdtrit

    mean = sums.mean_weight
    if sums.users < 2 or mean <= 0.0:
        return 0.0, math.inf
    # e^30 is as good as infinite, and does not overflow.
    upper_tail = 0.5 + level / 2.0
    quantile = float(ndtri(upper_tail)) if math.isinf(degrees) else float(stdtrit(degrees, upper_tail))
    reach = min(quantile * sums.mean_weight_error / mean, 30.0)
    return mean * math.exp(-reach), mean * math.exp(reach)


@dataclass(frozen=True)
class Support:
    """Knowledge of the missing mass: the target's probability of actions that the log never takes.

    Attributes:
        entering: upper limit of the missing mass from its column, which widens the interval; 0 without a column.
        known: mean of that column; None without one.
        stated: whether full support is stated: True, False, or None for no statement.
        proved: whether the mean weight proves that more mass is missing than the column says.
        excess: proved excess of the mean weight over 1 minus the missing mass; 0 if none is proved.
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
        """Compare the mean weight with 1 minus the missing mass.

        Args:
            sums: sums of the policy's weights and missing mass.
            stated: whether the user states full support; None for no statement.
            level: nominal coverage of the estimate's interval.
        """
        mean = sums.mean_weight
        known_mass = None
        entering = 0.0
        missing = sums.missing_mass()
        if missing is not None:
            known_mass, error = missing
            entering = min(student_limits(known_mass, error**2, sums.users, level)[1], 1.0)
        stated_mass = known_mass or 0.0
        low, high = mean_weight_limits(sums, STRICT)
        proved = stated_mass + high < 1.0 and stated_mass + mean < 1.0 - BY_DIGITS
        excess = 0.0
        if stated_mass + mean > 1.0 + BY_DIGITS:
            excess = max(stated_mass + low - 1.0, 0.0)
        return Support(entering, known_mass, stated, proved, excess, mean)

    @property
    def too_much(self) -> float:
        """The share of a weighted mean that is too much because propensities are too small; 0 unless this is proved."""
        if self.excess > 0.0:
            return 1.0 - 1.0 / self.mean
        return 0.0

    @property
    def covered(self) -> float:
        """The share of the target that the log covers: by its column, or by the mean weight if that proves less."""
        share = 1.0 - (self.known or 0.0)
        if self.proved:
            return min(self.mean, share)
        return share


@dataclass(frozen=True)
class Evidence:
    """Input of the checks of an estimate.

    Attributes:
        diagnostics: diagnostics of the estimate.
        sums: sums of the policy's weights and rewards.
        support: knowledge of the policy's missing mass.
        estimator: name of the estimator, to give advice that it allows.
        low: lower end of the interval.
        high: upper end of the interval.
        bounds: stated bounds of propensities and weights, by name.
        scale: absolute value of the estimate; None for a difference.
        precision: largest ratio of half the interval to the value with which a value is trusted.
        carrying: effective number of users behind the variance; None if it was not computed.
        heavy_tail: ratio of the error expected from the weights to the observed one; None if it was not computed.
        hidden: amount by which the interval was widened because weights were changed.
        value_outside: distance of the value from the interval of the unchanged weights, which proves a bias.
        same: whether interval and rewards need no checks: both policies are the same, or these are checks of the
            baseline of a difference.
        warnings: findings that the estimator itself reported.
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
        """The independent unit in words."""
        return "users" if self.sums.clustered else "rows"

    @property
    def half(self) -> float:
        """The half width of the interval."""
        return (self.high - self.low) / 2.0

    def advice_to_log(self, times: float) -> dict[str, Any]:
        """Return parameters of the advice to log ``times`` as much."""
        if times >= FAR:
            return {"do": "far", "unit": self.unit}
        return {"do": "times", "times": max(math.ceil(times), 2), "unit": self.unit}

    def advice_to_reach(self, needed: float, number: float) -> dict[str, Any]:
        """Return parameters of the advice to log more, until a number reaches ``needed``.

        A difference must also exclude 0 then, if it stays the same.

        Args:
            needed: value that the number should reach.
            number: its value now; it grows in proportion to the log.
        """
        times = needed / max(number, 1.0)
        facts = self.diagnostics
        if facts.value_baseline is not None and facts.value_target is not None:
            size = abs(facts.value_target - facts.value_baseline)
            times = max(times, (self.half / size) ** 2 if size > 0.0 else math.inf)
        return self.advice_to_log(times)


def judge(evidence: Evidence) -> Verdict:
    """Run all checks of an estimate and return the verdict.

    Without any row that the target could take, or any reward, most checks would only repeat that in other words, and
    are left out.
    """
    sums = evidence.sums
    findings = [*few_users(sums.users, evidence.unit), *_check_contradictions(evidence)]
    if sums.supported == 0:
        return Verdict.of([*findings, Finding("no_support", HOPELESS, 0.0)])
    if sums.rewarded == 0:
        findings.append(_no_reward(evidence))
    elif not evidence.same:
        findings += [*_check_width(evidence), *_check_rewards(evidence)]
    if evidence.estimator != "dm":
        findings += _check_weights(evidence)
    findings += _check_target_knows(sums)
    if sums.grouped:
        share = sums.user_rows_max / sums.rows
        findings.append(Finding("long_user", scaled(share, SHARE_OF_ONE, math.inf), share, percent=100 * share))
    return Verdict.of([*findings, *evidence.warnings])


def _no_reward(evidence: Evidence) -> Finding:
    """Return the finding of a log without rewards; its text depends on which ends of the interval are informative."""
    case = {}
    if math.isinf(evidence.high):
        case = {"says": "no_end", "do": "state"}
    elif evidence.high > evidence.low:
        case = {"says": "one_end"}
    return Finding("no_reward", HOPELESS, 0.0, **case)


def _check_width(evidence: Evidence) -> Iterator[Finding]:
    """Check the width of the interval, and whether changed weights cause a proved bias."""
    scale = evidence.scale
    remedy = less_bias(evidence.estimator)
    if scale is not None:
        ratio = evidence.half / scale if scale > 0.0 else math.inf
        texts = evidence.advice_to_log((ratio / evidence.precision) ** 2)
        if ratio <= evidence.precision:
            texts = {"do": "narrower", "unit": evidence.unit}
        if evidence.diagnostics.gap_part > evidence.half:
            texts = {"do": "explore"}
        elif evidence.hidden > evidence.half and remedy:
            texts = {"do": "less_bias", "remedy": remedy}
        if ratio < 10.0:
            texts |= {"says": "percent", "percent": 100.0 * ratio}
        yield Finding("wide_interval", scaled(ratio, evidence.precision, USELESS), ratio, **texts)
    if _is_point(evidence.diagnostics):
        yield Finding("no_width", CAUTION, 0.0)
    outside = evidence.value_outside
    if outside:
        severity = GRAVE if not scale or outside >= PROVED_BIAS * scale else CAUTION
        if evidence.estimator == "clipped_ips":
            remedy = "use snips"
        yield Finding("bias_proved", severity, outside, outside=outside, remedy=remedy or "explore more")


def _is_point(facts: Diagnostics) -> bool:
    """Return whether the sampling interval has no width except for rounding errors.

    Rounding errors of a variance are about 1e-16 of the squared value, so those of a width are about 1e-8 of the value.
    """
    low = facts.sampling_low
    high = facts.sampling_high
    # Independent of the sample size: about the standard deviation of one user.
    spread = (high - low) * math.sqrt(max(facts.effective_users, 1.0))
    scale = max(abs(high + low) / 2.0, abs(facts.value_target or 0.0), abs(facts.value_baseline or 0.0))
    return spread <= 1e-6 * scale


def _check_rewards(evidence: Evidence) -> Iterator[Finding]:
    """Check the numbers of rewards and of users behind the variance, and whether the heaviest rows earned little."""
    rewarded = min(evidence.sums.rewarded, evidence.sums.rewarded_users)
    severity = min(scaled(float(rewarded), FEW_REWARDED, 0.0), CAUTION)  # few rewards alone are never grave
    advice = evidence.advice_to_reach(FEW_REWARDED, float(rewarded))
    yield Finding("few_rewards", severity, float(rewarded), rewarded=rewarded, **advice)
    carrying = evidence.carrying
    if carrying:
        severity = scaled(carrying, FEW_CARRYING, LEAST_CARRYING)
        advice = evidence.advice_to_reach(FEW_CARRYING, carrying)
        yield Finding("few_carry", severity, carrying, carrying=carrying, **advice)
    heavy = evidence.heavy_tail
    if heavy is not None:
        yield Finding("heavy_tail", scaled(heavy, HEAVY, math.inf), heavy, heavy=heavy, unit=evidence.unit)


def _check_contradictions(evidence: Evidence) -> Iterator[Finding]:
    """Check for proofs against propensities, support or a stated fact, and for mass that is known to be missing."""
    support = evidence.support
    sums = evidence.sums
    expected_mean = 1.0 - (support.known or 0.0)
    if support.proved:
        gap = max(expected_mean - support.mean, 0.0)
        numbers: dict[str, Any] = {"mean": support.mean, "percent": 100 * gap}
        if support.stated:
            yield Finding("support_denied", GRAVE, gap, **numbers)
        elif support.known is not None:
            yield Finding("support_missing", GRAVE, gap, says="column", **numbers)
        else:
            yield Finding("support_missing", GRAVE, gap, **numbers)
    else:
        if support.stated is False:
            yield Finding("support_missing", CAUTION, 0.0, says="stated")
        if support.known:
            severity = scaled(support.known, OFF_BY, 2.0 * OFF_BY)
            yield Finding("support_gap", severity, support.known, percent=100 * support.known)
    if sums.denied:
        bounds = evidence.bounds
        texts = {"bounds": " or the ".join(f"{name} that is stated, {value:.4g}" for name, value in bounds.items())}
        if "least propensity" in bounds:
            texts |= {"says": "least", "least": rounded_down(sums.propensity_min)}
        yield Finding("bound_denied", GRAVE, float(sums.denied), rows=sums.denied, **texts)
    if support.excess > 0.0:
        mean, expected = told_apart(support.mean, expected_mean)
        yield Finding("propensities", GRAVE, support.mean, mean=mean, wanted=expected)


def _check_target_knows(sums: PolicySums) -> Iterator[Finding]:
    """Check for a target built from the rewards: almost all rows of which it is sure have one, and few other rows."""
    rows = sums.sure
    rewarded = sums.sure_rewarded
    share = sums.rewarded / sums.rows
    if rows >= LEAST_SURE and rewarded >= ALL_BUT_FEW * rows and share <= 0.5:
        yield Finding("target_knows", GRAVE, rewarded / rows, rewarded=rewarded, rows=rows, percent=100 * share)


def _check_weights(evidence: Evidence) -> Iterator[Finding]:
    """Check the effective sample, and the share of the heaviest row."""
    facts = evidence.diagnostics
    n = facts.n
    ess = facts.ess
    share = facts.max_weight_share
    if ess < n * (1.0 - 1e-9):  # not if all weights are equal, except for rounding errors
        severity = scaled(ess, LEAST_ESS, min(FEW_ESS, n))
        yield Finding("effective_sample", severity, ess, ess=ess, n=n, **evidence.advice_to_reach(LEAST_ESS, ess))
    info = ESTIMATORS.get(evidence.estimator)
    remedy = f"use {info.lighter if info is not None else 'clipped_ips'} or log more rows"
    if info is not None and info.clips and facts.clip is None:
        remedy = "give a clip or log more rows"
    elif less_bias(evidence.estimator):
        remedy = "log more rows or explore more where the target acts"
    yield Finding("heavy_row", scaled(share, SHARE_OF_ONE, math.inf), share, percent=100 * share, remedy=remedy)


def less_bias(estimator: str) -> str:
    """Return the advice that brings an estimator's changed weights closer to target / propensity; "" for none."""
    if estimator in ESTIMATORS:
        return ESTIMATORS[estimator].less_bias
    return ""
