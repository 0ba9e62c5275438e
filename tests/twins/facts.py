"""Estimates whose facts and reward models are keywords of their own, for tests that vary them one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from recsim_mnar import estimators
from recsim_mnar.estimators import Estimate, Facts

FACTS = tuple(each.name for each in fields(Facts))


def estimate_value(*columns: Any, **given: Any) -> Estimate:
    return estimators.estimate_value(*columns, **_checked(given))


def difference(*columns: Any, **given: Any) -> Estimate:
    return estimators.difference(*columns, **_checked(given))


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    models = [name for name in ("q_logged", "q_target") if given.get(name) is not None]
    made = {name: value for name, value in given.items() if name not in (*FACTS, "q_logged", "q_target")}
    facts = {name: given[name] for name in FACTS if name in given}
    if facts:
        made["facts"] = Facts(**facts)
    if models:
        made["model"] = (given.get("q_logged"), given.get("q_target"))
    return made
