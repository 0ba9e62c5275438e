"""Contracts of users' own classes: rules without pytest, and classes of tests for those who use it.

A policy, without pytest::

    from recsim_mnar.testing import check_policy

    for breach in check_policy(lambda: MyPolicy(n_items=12)):
        print(breach)

or as tests (pytest runs all that the class inherits; its marker ``verify`` is announced by this package)::

    from recsim_mnar.testing import PolicyContract

    class TestMyPolicy(PolicyContract):
        def make_policy(self):
            return MyPolicy(n_items=12)

On the command line: ``recsim-mnar check package.module:MyPolicy``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recsim_mnar.testing.environments import check_vector as check_vector
    from recsim_mnar.testing.estimators import check_estimator as check_estimator
    from recsim_mnar.testing.policies import check_policy as check_policy
    from recsim_mnar.testing.policies import example_views as example_views
    from recsim_mnar.testing.protocols import check_protocol as check_protocol
    from recsim_mnar.testing.pytest_classes import PolicyContract as PolicyContract
    from recsim_mnar.testing.pytest_classes import WorldContract as WorldContract
    from recsim_mnar.testing.rules import Breach as Breach
    from recsim_mnar.testing.worlds import check_world as check_world

# Imported on demand: the classes need pytest, and its plugin stands in this package and must stay light.
_DEFINED_IN = {
    "Breach": "rules",
    "PolicyContract": "pytest_classes",
    "WorldContract": "pytest_classes",
    "check_estimator": "estimators",
    "check_policy": "policies",
    "check_protocol": "protocols",
    "check_vector": "environments",
    "check_world": "worlds",
    "example_views": "policies",
}
__all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
