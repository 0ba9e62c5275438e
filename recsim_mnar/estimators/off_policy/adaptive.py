"""What a log's provenance says against an estimate: users who depend on each other, a policy fitted on its users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import ASSUMES, CAUTION, GRAVE, Finding

FITTED_ON = "fitted_on"
"""Key of a replayed log's provenance: ``policies`` that were fitted, on the log of ``digest``, which shares ``shared``
of the log's ``users``; ``half`` of the users that are judged, where they were split."""
MOST_SHARED = 0.1
"""Share of users that a policy may have been fitted on before its estimate is of no use."""


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


def fitted_findings(provenance: Mapping[str, Any], policies: Collection[str]) -> list[Finding]:
    """The finding of a policy that was fitted on users who judge it; empty where none is known to be.

    Args:
        provenance: as :func:`adaptive_findings`.
        policies: names of the columns that the estimate is of.
    """
    made = provenance.get(FITTED_ON)
    if not isinstance(made, dict) or not set(made.get("policies", ())) & set(policies):
        return []
    shared, users = int(made.get("shared", 0)), max(int(made.get("users", 0)), 1)
    if shared == 0:
        return []
    message = f"it was fitted on {shared:,} of the {users:,} users who judge it, and an estimate {ASSUMES}"
    action = "fit it on other users (replay --train, or --split-users)"
    severity = GRAVE if shared >= MOST_SHARED * users else CAUTION
    return [Finding("trained_on_log", severity, shared / users, message, action)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any], *policies: str) -> Estimate:
    """The estimate of policies, its verdict told how the log was made and what they were fitted on."""
    findings = [*adaptive_findings(provenance), *fitted_findings(provenance, policies)]
    return replace(estimate, verdict=estimate.verdict.with_findings(findings)) if findings else estimate
