"""The purchases of Sato et al. 2019, in one folder: worlds, exposures, policies, estimators, protocols, environments.

Users buy in periods, recommended or not. The package finds all of it by the entry point of the world.
"""

from __future__ import annotations

import importlib
from typing import Any

_DEFINED_IN = {
    "ExposureWorld": "world",
    "Outcomes": "world",
    "PurchasesEnv": "envs",
    "PurchasesParams": "world",
    "PurchasesVectorEnv": "envs",
    "PurchasesWorld": "world",
    "SlateParams": "world",
}
__all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
