"""Whether an estimate can be believed, in words: the reason, and what would mend it."""

from __future__ import annotations

import math
from typing import Any

LEAST_USERS = 100
LEAST_REWARDED = 30
FEW_REWARDED = 5
LEAST_ESS = 200.0
FEW_ESS = 30.0
SHARE_OF_ONE = 0.1


_LESS_BIAS = {
    "clipped_ips": "raise the clip",
    "clipped_dr": "raise the clip",
    "switch_dr": "raise tau",
    "dros": "raise lam",
    "sg_ips": "lower lam",
    "sg_dr": "lower lam",
    "ix_ips": "lower gamma",
}
"""What brings the weights of an estimator that changes them closer to target / propensity."""


def verdict(facts: dict[str, Any], estimator: str = "") -> str:
    """A verdict from an estimate's diagnostics.

    Args:
        estimator: its name, for mends that it allows.
        facts: keys n, users, clustered, clicks, ess, mean_weight, mean_weight_se, max_weight, max_weight_share,
            support, clip_part, low, high, sampling_low, sampling_high (those that apply).

    Returns:
        "trust", or "caution: reason; mend; ..." or "do not use: reason; mend; ...".
    """
    grave, mild = _findings(facts, estimator)
    if grave:
        return "do not use: " + "; ".join(grave)
    if mild:
        return "caution: " + "; ".join(mild)
    return "trust"


def _findings(facts: dict[str, Any], estimator: str) -> tuple[list[str], list[str]]:
    grave: list[str] = []
    mild: list[str] = []
    n = facts["n"]
    users, unit = facts.get("users", n), "users" if facts.get("clustered") else "rows"
    if users < LEAST_USERS:
        counted = unit if users != 1 else unit.removesuffix("s")
        grave.append(f"only {users:,} {counted}, intervals need at least {LEAST_USERS}: log more {unit}")
    if facts.get("support") == 0.0:
        grave.append(
            "the target takes none of the logged actions, so the log says nothing about it: log with exploration"
        )
        return grave, mild
    clicks = facts.get("clicks", n)
    if clicks == 0:
        ends = "neither end means anything" if _without_width(facts) else "only the upper end means something"
        grave.append(f"no reward in the log, so {ends}: log more rows")
    elif (effective := facts.get("effective_rewards", clicks)) < LEAST_REWARDED:
        words = (
            f"the estimate rests on the equivalent of {effective:.2g} equal rewards: "
            f"log about {_times(LEAST_REWARDED / max(effective, 1.0))} more {unit}"
        )
        (grave if effective < FEW_REWARDED else mild).append(words)
    if clicks and _without_width(facts):
        mild.append(
            "the sampling interval has no width (the scores do not vary, or lie beyond what rewards can be), so it "
            "cannot show the error: compare with another estimator or log more rows"
        )
    _judge_weights(facts, estimator, grave, mild)
    part, width = facts.get("clip_part", 0.0), facts.get("sampling_high", 0.0) - facts.get("sampling_low", 0.0)
    if "sampling_low" in facts and part > width:
        mend = _LESS_BIAS.get(estimator, "raise the clip")
        what = "clipping" if mend.endswith("clip") else "shrinking the weights"
        mild.append(f"{what} may hide up to {part:.3g}, more than the sampling error: {mend} or explore more")
    mild.extend(facts.get("warnings", ()))
    return grave, mild


def _without_width(facts: dict[str, Any]) -> bool:
    """Whether the sampling interval is a point, but for roundings: those of a variance leave some 1e-8 of the value."""
    if "sampling_low" not in facts:
        return False
    low, high = facts["sampling_low"], facts["sampling_high"]
    spread = (high - low) * math.sqrt(max(facts.get("effective_users", 1.0), 1.0))
    scale = max(abs(high + low) / 2.0, *(abs(facts.get(f"value_{which}", 0.0)) for which in ("target", "baseline")))
    return bool(spread <= 1e-6 * scale)


def _lighter(facts: dict[str, Any], estimator: str) -> str:
    """What helps against a few heavy weights, where it is not done already."""
    if estimator in ("clipped_ips", "clipped_dr") and facts.get("clip") is None:
        return "give a clip or log more rows"
    if estimator in _LESS_BIAS or estimator == "dm":
        return "log more rows or explore more where the target acts"
    other = "clipped_dr" if estimator in ("dr", "sndr") else "clipped_ips"
    return f"use {other} or log more rows"


def _judge_weights(facts: dict[str, Any], estimator: str, grave: list[str], mild: list[str]) -> None:
    n, ess = facts["n"], facts.get("ess", facts["n"])
    if ess < min(FEW_ESS, n):
        grave.append(
            f"the effective sample is {ess:.3g} of {n:,} rows: log about {_times(LEAST_ESS / max(ess, 1.0))} more rows "
            "or explore more where the target acts"
        )
    elif ess < min(LEAST_ESS, n):
        mild.append(
            f"the effective sample is {ess:.0f} of {n:,} rows: log about {_times(LEAST_ESS / ess)} more rows "
            "or explore more"
        )
    mean, se = facts.get("mean_weight"), facts.get("mean_weight_se", 0.0)
    if mean is not None and abs(mean - 1.0) > max(SHARE_OF_ONE / 2.0, 4.0 * se):
        words = (
            f"the mean weight is {mean:.3g} and should be 1: "
            + (
                "the log misses actions that the target takes"
                if mean < 1.0
                else "the propensities are not those that chose the actions"
            )
            + ", so check the propensities or log with exploration"
        )
        (grave if abs(mean - 1.0) > 3.0 * SHARE_OF_ONE else mild).append(words)
    share = facts.get("max_weight_share", 0.0)
    if share > SHARE_OF_ONE:
        mild.append(f"one row carries {100 * share:.0f} % of the weight: {_lighter(facts, estimator)}")
    tail = facts.get("tail_index")
    if tail is not None and math.isfinite(tail) and tail < 2.0 and ess < n / 10:
        mild.append(
            f"the weights' tail index is {tail:.2g} (below 2 their variance has no limit): {_lighter(facts, estimator)}"
        )


def _times(ratio: float) -> str:
    return f"{math.ceil(ratio)} times"
