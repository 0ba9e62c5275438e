"""How a method did over many logs of one case: how often it was trusted, and how often its interval held the truth."""

from __future__ import annotations

import numpy as np


def judged(rows: np.ndarray, truth: float, oracle: float) -> dict:
    """Of (value, low, high, trusted) rows."""
    value, low, high, trusted = rows.T
    covers = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    wide = (high - low) / oracle if oracle > 0 else np.full(len(rows), np.nan)
    seen = int(trusted.sum())
    return {
        "trusted": float(trusted.mean()),
        "coverage": float(covers.mean()),
        "coverage_given_trust": float(covers[trusted > 0].mean()) if seen else None,
        "trusted_logs": seen,
        "trusted_and_wrong": float(np.mean((trusted > 0) & ~covers)),
        "zero_width": float(np.mean(high - low <= 1e-9 * np.maximum(np.abs(value), 1e-300))),
        "median_width": float(np.median(wide)) if np.all(np.isfinite(wide)) else None,
    }
