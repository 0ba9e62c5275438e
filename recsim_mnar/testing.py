"""Whether what you wrote keeps its contract: rules without pytest, and classes of tests for those who use it.

A policy, without pytest::

    from recsim_mnar.testing import check_policy

    for finding in check_policy(lambda: MyPolicy(n_items=12)):
        print(finding)

or as tests (pytest runs all that the class inherits; its marker ``verify`` is announced by this package)::

    from recsim_mnar.testing import PolicyContract

    class TestMyPolicy(PolicyContract):
        def make_policy(self):
            return MyPolicy(n_items=12)

On the command line: ``recsim-mnar check package.module:MyPolicy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recsim_mnar.contracts.estimators import check_estimator
from recsim_mnar.contracts.findings import Finding
from recsim_mnar.contracts.policies import check_policy
from recsim_mnar.contracts.policy_case import example_views
from recsim_mnar.contracts.protocols import check_protocol
from recsim_mnar.contracts.vector_envs import check_vector
from recsim_mnar.contracts.worlds import check_world

if TYPE_CHECKING:
    from recsim_mnar.contracts.pytest_classes import PolicyContract, WorldContract

__all__ = [
    "Finding",
    "PolicyContract",
    "WorldContract",
    "check_estimator",
    "check_policy",
    "check_protocol",
    "check_vector",
    "check_world",
    "example_views",
]


def __getattr__(name: str) -> Any:
    """The classes that need pytest, imported when they are asked for."""
    if name in ("PolicyContract", "WorldContract"):
        from recsim_mnar.contracts import pytest_classes

        return getattr(pytest_classes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
