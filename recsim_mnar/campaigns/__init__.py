"""The campaigns of de Myttenaere et al. 2015: world, profiles, protocols, environments and tasks, in one folder.

A platform whose users collect items alone and through campaigns. The package finds all of it by the entry point of the
world.
"""

from __future__ import annotations

import importlib
from typing import Any

_DEFINED_IN = {
    "CampaignsEnv": "envs",
    "CampaignsParams": "model",
    "CampaignsVectorEnv": "envs",
    "CampaignsWorld": "world",
    "PlatformWorld": "model",
}
__all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
