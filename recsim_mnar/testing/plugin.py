"""pytest plugin of this package: its one marker, so that contracts run under --strict-markers as they are."""

from __future__ import annotations

from typing import Any


def pytest_configure(config: Any) -> None:
    """Announce the marker that the contracts carry."""
    config.addinivalue_line("markers", "verify: statistical checks against theory or a known truth")
