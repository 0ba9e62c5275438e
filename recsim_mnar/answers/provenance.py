"""What a log's provenance says of its estimates: users that depend on each other, policies fitted on them, bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from recsim_mnar.answers.sentence import Record
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding
from recsim_mnar.kernels.checks import level_of, whole_number

FITTED_ON = "fitted_on"
"""Key of a replayed log's provenance: ``policies`` that were fitted, on the log of ``digest``, which shares ``shared``
of the log's ``users``; ``half`` of the users that are judged, where they were split."""
PROPENSITY_MIN = "propensity_min"
"""Key of a replayed log's provenance: no action has a smaller propensity under the ``policy`` that the log names."""
MOST_SHARED = 0.1
"""Share of users that a policy may have been fitted on before its estimate is of no use."""


def level_of_best(level: float, k: int) -> float:
    """The level of each of k intervals such that a statement about the best of them holds at ``level``.

    The best of k estimates is the luckiest too; all k intervals hold together at ``level`` if each holds at
    1 - (1 - level) / k (Bonferroni), and then so does the winner's.

    Args:
        level: in (0, 1).
        k: how many policies the best is one of, 1 and more.
    """
    return 1.0 - (1.0 - level_of(level)) / whole_number(k, "k", least=1)


def adaptive_findings(provenance: Mapping[str, Any]) -> list[Finding]:
    """Dependence between the users according to a log's provenance; empty if they are independent.

    Args:
        provenance: of a :class:`recsim_mnar.log.Log`, or of a file that it was written to.
    """
    run = provenance.get("online")
    if not isinstance(run, dict) or run.get("learns") != "all users":
        return []
    lanes = int(run.get("lanes", 1))
    return [Finding("users_not_independent", CAUTION, float(lanes), lanes=lanes)]


def fitted_findings(provenance: Mapping[str, Any], policies: Collection[str | None]) -> list[Finding]:
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
    severity = GRAVE if shared >= MOST_SHARED * users else CAUTION
    return [Finding("trained_on_log", severity, shared / users, shared=shared, users=users)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any], *policies: str | None) -> Estimate:
    """The estimate of policies, its verdict with how the log was made and what they were fitted on."""
    return estimate.with_findings([*adaptive_findings(provenance), *fitted_findings(provenance, policies)])


def known_bound(provenance: Mapping[str, Any], stated: Mapping[str, Any], propensity: str) -> float | None:
    """The least propensity of the named policy according to a log's provenance; None if unknown.

    Args:
        provenance: as :func:`adaptive_findings`.
        stated: what the user states; nothing is taken where it has ``propensity_min`` or ``weight_max``.
        propensity: column of the propensities: nothing is known of another one than the log's own.
    """
    least = provenance.get(PROPENSITY_MIN)
    if propensity != "propensity" or "policy" not in provenance or not isinstance(least, float):
        return None
    given = [stated.get(name) for name in ("propensity_min", "weight_max")]
    return least if given == [None, None] and 0.0 < least <= 1.0 else None


def taken(records: Sequence[Record], least: float | None) -> list[Record]:
    """Records whose diagnostics say that this least propensity was taken from the provenance, where one was."""
    if least is None:
        return list(records)
    return [record | {"diagnostics": record["diagnostics"] | {"propensity_min_taken": least}} for record in records]


def bound_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is said of a bound that was taken from the provenance."""
    least = records[0]["diagnostics"].get("propensity_min_taken") if records else None
    if least is None:
        return []
    return [f"--propensity-min {least:.3g}: from the log's provenance"]
