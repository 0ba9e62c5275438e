"""The generator of the plan study: what it says of a setting is what it simulates."""

import numpy as np
import pytest
from study_modules import bring

with bring("plan", "run") as found:
    study = found["run"]


@pytest.mark.parametrize("number", range(6))
def test_arms_have_the_lift_of_their_setting(number):
    setting = study.draw(study.DEVELOPMENT + number)
    values = []
    for lift in (0.0, 0.25):
        sums, rows = study.totals(setting, 200_000, lift, np.random.default_rng(1))
        values.append(sums.sum() / rows.sum())
    # The ratio's standard error is at most 2 % of a user's spread over the root of so many users, some .01.
    assert values[1] / values[0] == pytest.approx(1.25, abs=0.04)
