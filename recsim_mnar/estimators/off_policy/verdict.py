"""The checks of an off-policy estimate, each a code, a severity rule and a reference (docs/verdict.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from recsim_mnar.estimators.off_policy.scores import ESTIMATORS
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, HOPELESS, Finding, Verdict, few_users, scaled
from recsim_mnar.kernels.checks import rounded_down, told_apart

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


def judge(facts: dict[str, Any], estimator: str = "") -> Verdict:
    """The verdict of an estimate.

    Args:
        facts: its diagnostics; keys that do not apply may be absent.
        estimator: its name, for actions that it allows.
    """
    unit = "users" if facts.get("clustered") else "rows"
    findings = few_users(facts.get("users", facts["n"]), unit)
    findings += _contradictions(facts)
    if facts.get("support_seen") == 0.0:
        message = "the target takes none of the logged actions, so the log says nothing about it"
        return Verdict.of([*findings, Finding("no_support", HOPELESS, 0.0, message, "log with exploration")])
    if facts.get("clicks", 1) == 0:
        findings.append(_no_reward(facts))
    elif not facts.get("same"):
        findings += _width(facts, estimator, unit)
        findings += _rewards(facts, unit)
    if estimator != "dm":
        findings += _weights(facts, estimator)
    findings += _sure(facts)
    share = facts.get("longest_user_share")
    if share is not None:
        message, severity = f"one user has {100 * share:.0f} % of the rows", scaled(share, SHARE_OF_ONE, math.inf)
        action = "leave its rows out if it is a bot or an id that many share; else log more users"
        findings.append(Finding("long_user", severity, share, message, action))
    return Verdict.of([*findings, *facts.get("warnings", ())])


def _no_reward(facts: dict[str, Any]) -> Finding:
    low, high = facts.get("low", 0.0), facts.get("high", 0.0)
    ends = "only the upper end means something" if high > low else "neither end means anything"
    action = "log more rows: no reward was seen"
    if math.isinf(high):
        ends = "there is no upper end without the range of rewards"
        action += " (with --reward-max, 1 for clicks, there is an upper end)"
    return Finding("no_reward", HOPELESS, 0.0, f"no reward in the log, so {ends}", action)


def _width(facts: dict[str, Any], estimator: str, unit: str) -> Iterator[Finding]:
    """The interval over the value, and the bias left by changed weights."""
    half, scale = (facts["high"] - facts["low"]) / 2.0, facts.get("scale")
    if scale is not None:
        precision = facts["precision"]
        ratio = half / scale if scale > 0.0 else math.inf
        message = "the interval is far wider than the value"
        if ratio < 10.0:
            message = f"the interval reaches {100.0 * ratio:.0f} % of the value to either side"
        more = (ratio / precision) ** 2
        action = (
            f"log about {max(math.ceil(more), 2):,} times as many {unit}" if more < 1000 else f"log far more {unit}"
        )
        action = action if ratio > precision else f"more {unit} make it narrower"
        if facts.get("gap_part", 0.0) > half:
            action = "log with exploration where the target acts"
        elif facts.get("bias_part", 0.0) > half:
            action = _less_bias(estimator) or action
        yield Finding("wide_interval", scaled(ratio, precision, USELESS), ratio, message, action)
    if "sampling_low" in facts and _point(facts):
        message = "the sampling interval has no width (the scores do not vary, or are beyond what rewards can be), so "
        message += "it cannot show the error"
        yield Finding("no_width", CAUTION, 0.0, message, "compare with another estimator")
    outside = facts.get("value_outside")
    if outside:
        message = f"the value is {outside:.3g} outside the interval that the unchanged weights give"
        severity = GRAVE if not scale or outside >= PROVED_BIAS * scale else CAUTION
        action = "use snips" if estimator == "clipped_ips" else _less_bias(estimator) or "explore more"
        yield Finding("bias_proved", severity, outside, message, action)


def _point(facts: dict[str, Any]) -> bool:
    """True if the sampling interval is a point up to roundings: those of a variance leave some 1e-8 of the value."""
    low, high = facts["sampling_low"], facts["sampling_high"]
    spread = (high - low) * math.sqrt(max(facts.get("effective_users", 1.0), 1.0))
    scale = max(abs(high + low) / 2.0, *(abs(facts.get(f"value_{which}", 0.0)) for which in ("target", "baseline")))
    return bool(spread <= 1e-6 * scale)


def _rewards(facts: dict[str, Any], unit: str) -> Iterator[Finding]:
    """How many rewards and users carry the answer, and whether the heaviest rows had their share of rewards."""
    rewarded = facts.get("rewarded")
    if rewarded is not None:
        message = f"only {rewarded:,} {unit} have a reward"
        severity = scaled(float(rewarded), FEW_REWARDED, 0.0)
        action = _times(FEW_REWARDED, float(rewarded), unit, facts)
        yield Finding("few_rewards", min(severity, CAUTION), float(rewarded), message, action)
    carrying = facts.get("carrying")
    if carrying:
        message = f"the interval rests on what {carrying:.2g} {unit} happened to do"
        severity = scaled(carrying, FEW_CARRYING, LEAST_CARRYING)
        yield Finding("few_carry", severity, carrying, message, _times(FEW_CARRYING, carrying, unit, facts))
    heavy = facts.get("heavy_tail")
    if heavy is not None:
        message = f"the heaviest rows earned little: by its weights the interval would be {heavy:.2g} times as wide"
        yield Finding("heavy_tail", scaled(heavy, HEAVY, math.inf), heavy, message, f"log more {unit}, or explore more")


def _times(wanted: float, found: float, unit: str, facts: dict[str, Any]) -> str:
    """How much larger a log has to be for a number that grows with it, and for a difference to be told from 0."""
    times = wanted / max(found, 1.0)
    if "value_baseline" in facts:
        size = abs(facts["value_target"] - facts["value_baseline"])
        times = max(times, ((facts["high"] - facts["low"]) / 2.0 / size) ** 2 if size > 0.0 else math.inf)
    return f"log about {max(math.ceil(times), 2):,} times as many {unit}" if times < 1000.0 else f"log far more {unit}"


def _contradictions(facts: dict[str, Any]) -> Iterator[Finding]:
    """What proves propensities, support or a stated fact wrong, and mass that is known to be missing."""
    support = facts.get("support")
    if support is None:
        return
    mean, explore = support.mean, "log with exploration where the target acts"
    wanted = 1.0 - (support.known or 0.0)
    if support.proved:
        gap = max(wanted - mean, 0.0)
        message = f"the mean weight is {mean:.3g}: the log misses {100 * gap:.2g} % of the target's mass"
        if support.stated:
            message += ", though its support is stated"
            action = "check the propensities and what was stated"
            yield Finding("support_denied", GRAVE, gap, message, action)
        else:
            message += " more than the column says" if support.known is not None else ""
            yield Finding("support_missing", GRAVE, gap, message, explore)
    elif support.stated is False:
        message = "the new policy shows items that today's system never shows, as stated"
        yield Finding("support_missing", CAUTION, 0.0, message, explore)
    if support.known and not support.proved:
        message = f"the log never shows {100 * support.known:.2g} % of the target's mass"
        yield Finding("support_gap", scaled(support.known, OFF_BY, 2.0 * OFF_BY), support.known, message, explore)
    if facts.get("denied"):
        bounds, least = facts.get("bounds_stated") or {"bound": math.nan}, facts.get("propensity_min")
        said = " or the ".join(f"{what} that is stated, {value:.4g}" for what, value in bounds.items())
        message = f"{facts['denied']:,} rows contradict the {said}"
        message += f" (the least in the log is {rounded_down(least)})" if "least propensity" in bounds and least else ""
        action = "check the propensities, or state the true bound, a least propensity rounded down"
        yield Finding("bound_denied", GRAVE, float(facts["denied"]), message, action)
    if support.excess > 0.0:
        message = "the mean weight is {} and should be {}".format(*told_apart(mean, wanted))
        action = "either the logged probabilities or the new policy's column are not of the item shown: check both"
        yield Finding("propensities", GRAVE, mean, message, action)


def _sure(facts: dict[str, Any]) -> Iterator[Finding]:
    """Whether nearly every row of which the target is sure has a reward, where few others have: it saw the rewards."""
    rows, rewarded, share = facts.get("sure", (0, 0, 1.0))
    if rows < LEAST_SURE or rewarded < ALL_BUT_FEW * rows or share > 0.5:
        return
    message = f"{rewarded:,} of the {rows:,} rows whose item the new policy is sure of have a reward, of all rows "
    message += f"{100 * share:.2g} %: its column was made when the rewards were known"
    yield Finding("target_knows", GRAVE, rewarded / rows, message, "make the column from what was known before")


def _weights(facts: dict[str, Any], estimator: str) -> Iterator[Finding]:
    n, ess, share = facts["n"], facts.get("ess", facts["n"]), facts.get("max_weight_share", 0.0)
    if ess < n * (1.0 - 1e-9):
        message = f"the effective sample is {ess:.3g} of {n:,} rows"
        action = _times(LEAST_ESS, ess, "users" if facts.get("clustered") else "rows", facts)
        yield Finding("effective_sample", scaled(ess, LEAST_ESS, min(FEW_ESS, n)), ess, message, action)
    message, severity = f"one row carries {100 * share:.0f} % of the weight", scaled(share, SHARE_OF_ONE, math.inf)
    yield Finding("heavy_row", severity, share, message, _lighter(facts, estimator))


def _less_bias(estimator: str) -> str:
    """Remedy that brings changed weights closer to target / propensity; "" for other estimators."""
    return ESTIMATORS[estimator].less_bias if estimator in ESTIMATORS else ""


def _lighter(facts: dict[str, Any], estimator: str) -> str:
    """Remedy against a few heavy weights, unless already applied."""
    info = ESTIMATORS.get(estimator)
    if info is not None and info.clips and facts.get("clip") is None:
        return "give a clip or log more rows"
    if _less_bias(estimator):
        return "log more rows or explore more where the target acts"
    return f"use {info.lighter if info is not None else 'clipped_ips'} or log more rows"
