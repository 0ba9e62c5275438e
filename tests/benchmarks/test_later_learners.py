"""DLCE weights by propensities, and refuses those that it cannot invert."""

from __future__ import annotations

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.errors import UserError
from twins.purchases_log import small_exposures

DLCE = study_module("sato2019", "later_learners").DLCE
CERTAIN = small_exposures().with_propensities(np.ones((1, 1, 1)))


def test_dlce_weights_by_clipped_propensities():
    trainer = DLCE(chi=0.25).trainer(CERTAIN)
    _, _, part = trainer.plan.observed.of_place()
    weights = trainer.loss.signed[part != 4]
    assert np.abs(weights).mean() == pytest.approx(1.0, rel=1e-6)
    assert np.unique(np.round(weights / weights.max(), 6)).size == 2
    assert np.abs(weights).max() / np.abs(weights).min() == pytest.approx(4.0, rel=1e-6)


def test_dlce_needs_propensities_that_can_be_inverted():
    with pytest.raises(UserError, match=r"dlce: the exposures have no propensities"):
        DLCE().trainer(CERTAIN.with_propensities(None))
    with pytest.raises(UserError, match=r"dlce: user \d+, item \d+, period \d+ has propensity 1, whose inverse"):
        DLCE(chi=0.0).trainer(CERTAIN)
