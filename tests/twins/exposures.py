"""Exposures of the first periods of a log."""

from __future__ import annotations

import dataclasses

import numpy as np


def until(exposures, period):
    """The periods before ``period``, as a log that ends there; propensities do not change with time."""
    rows = exposures.time < period
    columns = {name: getattr(exposures, name)[rows] for name in ("user", "item", "time", "recommended", "purchased")}
    assert isinstance(exposures.propensities, np.ndarray)
    assert exposures.propensities.shape[2] == 1
    return dataclasses.replace(exposures, **columns, n_periods=period)
