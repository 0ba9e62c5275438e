"""Findings from the diagnostics of an off-policy estimate (docs/verdict-theory.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from recsim_mnar.estimators.intervals import Interval
from recsim_mnar.estimators.off_policy.scores import ESTIMATORS
from recsim_mnar.estimators.off_policy.stated import LOOSE, ROUNDED, Stated
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, HOPELESS, Finding, Verdict, few_users, scaled
from recsim_mnar.kernels.checks import rounded_down, told_apart

WIDE, USELESS = 0.5, 1.0
"""Half widths of an interval that logs like this one are expected to give, over the log's own mean reward. An estimate
that errs by less than 20 % in 95 logs of 100 has one of .26 where the interval is 1.3 times as wide as it must be; .5
leaves room for one that is 2.5 times as wide, as honest ones are where few rewards are expected at the heaviest
weights. From 1 on the interval includes both 0 and twice today's value."""
TOLERABLE = 0.2
"""A relative error that an estimate may have. Bias that is proved is a reason for caution whatever its size; from
``WIDE`` on it is one against using the estimate."""
LEAST_ESS, FEW_ESS = 100.0, 30.0
"""Effective rows: 100 leave a relative error of .1 from the weights alone."""
SHARE_OF_ONE = 0.1
"""Share of the weight, or of the rows, that one row or user may carry."""
ROOM = 0.25
"""Share of the interval's half width that unseen actions may move the value by: a bias of that size costs a 95 %
interval less than a hundredth of its coverage on either side."""
UNSEEN_EVENTS = -math.log(0.025)
"""Events that a log without one cannot exclude at .975: 3.7."""
NARROWER = 0.9
"""What another clip must make of an interval's width to be worth the advice."""
UNSEEN = "log with exploration where the target acts, or state --weight-max where you know it"
WIDENS = 1.2
"""Times the width under the heaviest weight of the log from which a stated bound is said to widen an interval."""
OFF_BY = 0.3
"""A mean weight that is proved to be this far from 1 or further makes an estimate useless."""


def judge(facts: dict[str, Any], estimator: str = "") -> Verdict:
    """The verdict of an estimate.

    Args:
        facts: its diagnostics; keys that do not apply may be absent.
        estimator: its name, for actions that it allows.
    """
    unit = "users" if facts.get("clustered") else "rows"
    findings = few_users(facts.get("users", facts["n"]), unit)
    if facts.get("support_seen") == 0.0:
        message = "the target takes none of the logged actions, so the log says nothing about it"
        stated = facts.get("support")
        findings += list(_support(facts)) if stated is not None and stated.stated and stated.contradicted else []
        return Verdict.of([*findings, Finding("no_support", HOPELESS, 0.0, message, "log with exploration")])
    if facts.get("clicks", 1) == 0:
        findings.append(_no_reward(facts))
    else:
        findings += _width(facts, estimator, unit)
    findings += _support(facts)
    loose = _loose(facts)
    if loose is not None:
        findings.append(Finding(LOOSE, 0.0, facts[LOOSE]["times"], *loose))
    if estimator != "dm":
        findings += _weights(facts, estimator)
    findings += _range(facts)
    share = facts.get("longest_user_share")
    if share is not None:
        message, severity = f"one user has {100 * share:.0f} % of the rows", scaled(share, SHARE_OF_ONE, math.inf)
        action = "leave its rows out if it is a bot or an id that many share; else log more users"
        findings.append(Finding("long_user", min(severity, CAUTION), share, message, action))
    if not facts.get("clustered") and not facts.get("same"):
        message = "no users are known, so rows are taken as independent"
        action = "give the column whose rows belong together (--user-column), or a number for each row"
        findings.append(Finding("users_unstated", CAUTION, 1.0, message, action))
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
    half, scale, same = _half(facts), facts.get("scale", 0.0), facts.get("same")
    if scale > 0.0 and not same:
        ratio, severity = _relative_width(facts, half, scale)
        message = "the interval is far wider than the log's mean reward"
        if ratio < 10.0:
            message = f"the interval reaches {100.0 * ratio:.0f} % of the log's mean reward to either side"
        more = math.ceil(_times(facts, ratio, scale))
        action = f"log about {max(more, 2):,} times as many {unit}" if more < 1000 else f"log far more {unit}"
        action = action if severity >= CAUTION else f"more {unit} make it narrower"
        if facts.get("bias_part", 0.0) > half:
            action = _against_bias(facts, estimator) or action
        elif facts.get("gap_part", 0.0) > half:
            action = "log with exploration where the target acts"
        yield Finding("wide_interval", severity, ratio, message, action)
    elif not same:
        message = "the log's mean reward is at or below the least reward possible"
        yield Finding("wide_interval", GRAVE, math.inf, message, f"log more {unit}")
    if "sampling_low" in facts and not same and _point(facts):
        message = "the sampling interval has no width (the scores do not vary, or are beyond what rewards can be), so "
        message += "it cannot show the error"
        yield Finding("no_width", CAUTION, 0.0, message, "compare with another estimator")
    part, width = facts.get("clip_part", 0.0), facts.get("sampling_high", 0.0) - facts.get("sampling_low", 0.0)
    if part > width:
        action = _against_bias(facts, estimator) or f"log more {unit}"
        clips = estimator in ESTIMATORS and ESTIMATORS[estimator].clips
        what = "clipping" if clips or action.endswith("clip") else "shrinking the weights"
        what = "weights above the clip, of which the log has none," if action == UNSEEN else what
        message = f"{what} may hide up to {part:.3g}, more than the sampling error"
        # The interval holds it: it is a reason for caution where it makes the interval too wide, and not by itself.
        severity = min(scaled(half / scale, WIDE, USELESS), CAUTION) if scale > 0.0 else CAUTION
        yield Finding("bias", severity, part, message, action)
    outside = facts.get("value_outside")
    if outside:
        message = f"the value is {outside:.3g} outside the interval that the unchanged weights give"
        severity = max(scaled(outside / scale, TOLERABLE, WIDE), CAUTION) if scale > 0.0 else CAUTION
        # What gives an estimate whose bias is not proved.
        action = "use ips, or snips" if estimator == "clipped_ips" else _less_bias(estimator) or "explore more"
        yield Finding("bias_proved", severity, outside, message, action)


def _half(facts: dict[str, Any]) -> float:
    """Half the width of the interval."""
    return float(facts.get("high", 0.0) - facts.get("low", 0.0)) / 2.0


def _relative_width(facts: dict[str, Any], half: float, scale: float) -> tuple[float, float]:
    """The expected half width over the log's mean reward, and the severity.

    The interval's own width follows the estimate's luck, so that judging it would trust lucky logs. It speaks for
    itself only where it is twice as wide as would be too wide.
    """
    expected = facts.get("expected_half", half) / scale
    extra = facts.get("bias_part", 0.0) + facts.get("gap_part", 0.0)
    expected = max(expected, extra / 2.0 / scale)
    if half / scale > 2.0 * max(expected, WIDE):
        return half / scale, scaled(half / scale, 2.0 * WIDE, 2.0 * USELESS)
    return expected, scaled(expected, WIDE, USELESS)


def _times(facts: dict[str, Any], ratio: float, scale: float) -> float:
    """How many times the rows make the interval narrow enough: its step falls with them, the rest with their root."""
    low, high = 1.0, min(max((ratio / WIDE) ** 2, 1.0), 1e9)
    at = facts.get("expected_half_at")
    while at is not None and high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if at(times=middle) <= WIDE * scale else (middle, high)
    return high


def _point(facts: dict[str, Any]) -> bool:
    """True if the sampling interval is a point up to roundings: those of a variance leave some 1e-8 of the value."""
    low, high = facts["sampling_low"], facts["sampling_high"]
    spread = (high - low) * math.sqrt(max(facts.get("effective_users", 1.0), 1.0))
    scale = max(abs(high + low) / 2.0, *(abs(facts.get(f"value_{which}", 0.0)) for which in ("target", "baseline")))
    return bool(spread <= 1e-6 * scale)


def _support(facts: dict[str, Any]) -> Iterator[Finding]:
    """Missing mass, and propensities contradicted by the mean weight."""
    support = facts.get("support")
    if support is None:
        return
    mean, explore = support.mean, "log with exploration where the target acts"
    if support.proved:
        gap = max(1.0 - mean - (support.known or 0.0), 0.0)
        message = f"the mean weight is {mean:.3g}: the log misses {100 * gap:.2g} % of the target's mass"
        message += " more than the column says" if support.known is not None else ""
        if support.contradicted and support.stated:
            message += ", though its support is stated"
            action = "check the propensities and what was stated; if a heavier weight is possible, state --weight-max"
            yield Finding("support_denied", GRAVE, gap, message, action)
        else:
            yield Finding("support_missing", GRAVE if gap >= OFF_BY else CAUTION, gap, message, explore)
    elif not support.stated:
        message = "the new policy may show items that today's system never shows, as far as this log can tell up to "
        message += f"{100 * support.hidden:.2g} % of the time, which could hide {_amount(facts, support.hidden)}"
        yield Finding("support_unstated", CAUTION, support.hidden, message, _state_the_least(facts))
    elif support.unbounded and support.hidden > 0.0 and not facts.get("same"):
        # Full support bounds no weight: actions rarer than those logged may carry some of the target's mass.
        half, effect = _half(facts), support.hidden * facts.get("range", math.inf)
        message = "today's system may show items so rarely that this log has none of them, and the new policy these up "
        message += f"to {100 * support.hidden:.2g} % of the time, which could hide {_amount(facts, support.hidden)}"
        severity = scaled(effect / half, ROOM, math.inf) if half > 0.0 else CAUTION
        yield Finding("weights_unbounded", severity, support.hidden, message, _state_the_least(facts))
    if support.known and not support.proved:
        message, severity = f"the log never shows {100 * support.known:.2g} % of the target's mass", support.known
        yield Finding("support_gap", scaled(severity, OFF_BY, 2.0 * OFF_BY), support.known, message, explore)
    if facts.get("denied"):
        bounds, least = facts.get("bounds_stated") or {"bound": math.nan}, facts.get("propensity_min")
        said = " or the ".join(f"{what} that is stated, {value:.4g}" for what, value in bounds.items())
        message = f"{facts['denied']:,} rows contradict the {said}"
        message += f" (the least in the log is {rounded_down(least)})" if "least propensity" in bounds and least else ""
        action = "check the propensities, or state the true bound, a least propensity rounded down"
        yield Finding("bound_denied", GRAVE, float(facts["denied"]), message, action)
    if support.excess > 0.0:
        message = "the mean weight is {} and should be {}".format(*told_apart(mean, 1.0 - (support.known or 0.0)))
        action = "either the logged probabilities or the new policy's column are not of the item shown: check both"
        yield Finding("propensities", GRAVE if support.excess >= OFF_BY else CAUTION, mean, message, action)


def _amount(facts: dict[str, Any], hidden: float) -> str:
    """Value that a share of the target's mass could hide."""
    effect = hidden * facts.get("range", math.inf)
    return f"up to {effect:.3g} of value" if math.isfinite(effect) else "any value"


def _state_the_least(facts: dict[str, Any]) -> str:
    """What to state against unseen items, and the least propensity of the log: if it is a bound, the user knows."""
    rows, least = facts.get("least_propensity_rows", 0), facts.get("propensity_min")
    seen = "" if least is None else f"; the smallest in this log is {rounded_down(least)}"
    seen += f", in {rows:,} rows" if seen and rows >= max(100, facts["n"] / 1000) else ""
    return (
        "state the smallest probability with which today's system shows any item: --propensity-min P (epsilon-greedy: "
        f"epsilon / number of items; softmax: its floor, if it has one{seen})"
    )


def loosening(stated: Stated, seen: float, wide: Interval, narrow: Interval) -> dict[str, Any]:
    """By the key :data:`LOOSE` what a stated bound does, where it widens an interval; else nothing.

    Args:
        stated: with a bound of weights.
        seen: the largest weight of the log.
        wide: the interval.
        narrow: what that would be if no weight were above ``seen``.
    """
    width, narrower = wide.high - wide.low, narrow.high - narrow.low
    allows = stated.largest_weight
    if allows is None or allows <= seen or not width > WIDENS * narrower > 0.0:
        return {}
    by_share = stated.propensity_min is not None and (stated.weight_max is None or allows < stated.weight_max)
    of = {"value": stated.propensity_min if by_share else stated.weight_max, "by_share": by_share}
    return {LOOSE: {**of, "allows": allows, "seen": seen, "times": width / narrower}}


def _loose(facts: dict[str, Any]) -> tuple[str, str] | None:
    """Message and action of a bound that widens the interval."""
    found = facts.get(LOOSE)
    if found is None:
        return None
    message = f"the stated {found['value']:.4g} allows weights up to {found['allows']:.3g}, the largest in this log is "
    message += f"{found['seen']:.3g}: that widens the interval {found['times']:.2g} times"
    if found["by_share"] and found["value"] < ROUNDED * facts.get("propensity_min", math.inf):
        return message, "if the smallest probability is larger, state it (--propensity-min)"
    return message, "if no weight (new / logged probability) can be that large, state the largest (--weight-max)"


def _weights(facts: dict[str, Any], estimator: str) -> Iterator[Finding]:
    n, ess, share = facts["n"], facts.get("ess", facts["n"]), facts.get("max_weight_share", 0.0)
    if ess < n * (1.0 - 1e-9):
        message = f"the effective sample is {ess:.3g} of {n:,} rows"
        action = f"log about {max(math.ceil(2.0 * LEAST_ESS / max(ess, 1.0)), 2):,} times more rows"
        # As many as logs of these weights have, however many of the heavy rows this one met.
        severity = scaled(facts.get("expected_ess", ess), LEAST_ESS, min(FEW_ESS, n))
        yield Finding("effective_sample", severity, ess, message, action)
    message, severity = f"one row carries {100 * share:.0f} % of the weight", scaled(share, SHARE_OF_ONE, math.inf)
    yield Finding("heavy_row", severity, share, message, _lighter(facts, estimator))


def _range(facts: dict[str, Any]) -> list[Finding]:
    """Rewards without a stated range: no rule read off the log can bound them (Bahadur & Savage 1956)."""
    missing = facts.get("range_unstated")
    if not missing or facts.get("clicks", 1) == 0 or facts.get("same"):
        return []
    half = _half(facts)
    apart = half * facts["n"] / (UNSEEN_EVENTS * max(facts.get("weight_max", 1.0), 1e-300))
    limited = "reward_limit" in facts and "reward_max" in missing
    if limited and facts.get("unseen_mass", 0.0) > 0.0:
        apart = min(apart, half / facts["unseen_mass"])
    base = facts.get("reward_base", 0.0)
    which, be = "largest reward possible", "is"
    least, most = (f"{float(f'{end:.3g}'):,.9g}" for end in (base - apart, base + apart))
    ends = f"rewards of {most} or more"
    if "reward_min" in missing:
        ends = f"rewards of {least} or less"
        which = "least reward possible"
    if len(missing) == 2:
        which, be = "least and largest rewards possible", "are"
        ends += f", or of {most} or more,"
    which += " of actions that the log never shows" if limited else ""
    flags = " and ".join("--" + name.replace("_", "-") for name in missing)
    message = f"the {which} {be} not stated: {ends} that the log happens not to show could carry the value out of the "
    message += "interval"
    action = f"state {flags}, if no reward is beyond"
    if limited and "least propensity" not in facts.get("bounds_stated", ()):
        action += "; --propensity-min too, if every action can be shown in every row"
    return [Finding("range_unstated", CAUTION, base + apart, message, action)]


def _less_bias(estimator: str) -> str:
    """Remedy that brings changed weights closer to target / propensity; "" for other estimators."""
    return ESTIMATORS[estimator].less_bias if estimator in ESTIMATORS else ""


def _against_bias(facts: dict[str, Any], estimator: str) -> str:
    """Remedy against the bias of changed weights; "" if the unchanged ones are no better and only rows help.

    Another clip does nothing where no weight is above it, nor where the interval without one is as wide.
    """
    info = ESTIMATORS.get(estimator)
    if info is not None and info.clips:
        if facts.get("share_clipped") == 0.0:
            return UNSEEN
        if facts.get("unclipped_half", 0.0) > NARROWER * _half(facts):
            return ""
    return _less_bias(estimator) or "explore more"


def _lighter(facts: dict[str, Any], estimator: str) -> str:
    """Remedy against a few heavy weights, unless already applied."""
    info = ESTIMATORS.get(estimator)
    if info is not None and info.clips and facts.get("clip") is None:
        return "give a clip or log more rows"
    if _less_bias(estimator):
        return "log more rows or explore more where the target acts"
    return f"use {info.lighter if info is not None else 'clipped_ips'} or log more rows"
