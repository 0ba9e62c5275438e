"""What a log's provenance says of its estimates: dependent users, policies fitted on them, the least propensity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import ASSUMES, CAUTION, GRAVE, Finding

FITTED_ON = "fitted_on"
"""Key of a replayed log's provenance: ``policies`` that were fitted, on the log of ``digest``, which shares ``shared``
of the log's ``users``; ``half`` of the users that are judged, where they were split."""
PROPENSITY_MIN = "propensity_min"
"""Key of a replayed log's provenance: no action has a smaller propensity under the ``policy`` that the log names."""
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


def known_bound(provenance: Mapping[str, Any], stated: Mapping[str, Any], propensity: str) -> float | None:
    """The least propensity that a log's provenance knows of the policy that it names; None where it knows none.

    Args:
        provenance: as :func:`adaptive_findings`.
        stated: what the user states; nothing is taken beside ``propensity_min`` or ``weight_max``.
        propensity: column of the propensities: nothing is known of another one than the log's own.
    """
    least = provenance.get(PROPENSITY_MIN)
    if propensity != "propensity" or "policy" not in provenance or not isinstance(least, float):
        return None
    given = [stated.get(name) for name in ("propensity_min", "weight_max")]
    return least if given == [None, None] and 0.0 < least <= 1.0 else None


def taken(records: Sequence[dict[str, Any]], least: float | None) -> list[dict[str, Any]]:
    """Records whose diagnostics say that this least propensity was taken from the provenance, where one was."""
    said = {} if least is None else {"propensity_min_taken": least}
    return [record | {"diagnostics": record["diagnostics"] | said} for record in records]


def bound_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is said of a bound that was taken from the provenance."""
    least = records[0]["diagnostics"].get("propensity_min_taken") if records else None
    if least is None:
        return []
    return [f"--propensity-min {least:.3g}: from the log's provenance"]
