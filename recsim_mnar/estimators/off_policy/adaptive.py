"""Logs of policies that learned from all users while they acted: their users are not independent of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import CAUTION, Finding


def adaptive_findings(provenance: Mapping[str, Any]) -> list[Finding]:
    """What a log's provenance says of how its users hang together; empty where they are independent.

    Args:
        provenance: of a :class:`recsim_mnar.log.Log`, or of a file that it was written to.
    """
    run = provenance.get("online")
    if not isinstance(run, dict) or run.get("learns") != "all users":
        return []
    lanes = int(run.get("lanes", 1))
    message = (
        f"the logging policy learned from all users while it acted ({lanes} at a time), so users are not independent "
        "and the interval, which takes them as such, is not derived for this log"
    )
    action = "log under a policy that does not learn, or repeat the whole run with several seeds"
    return [Finding("users_not_independent", CAUTION, float(lanes), message, action)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any]) -> Estimate:
    """The estimate, its verdict told how the log was made."""
    findings = adaptive_findings(provenance)
    return replace(estimate, verdict=estimate.verdict.with_findings(findings)) if findings else estimate
