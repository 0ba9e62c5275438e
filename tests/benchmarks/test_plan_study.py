"""The generators of the plan study: what they say of a setting is what they simulate."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from study_modules import bring

with bring("plan", "generator", "experiments") as found:
    generator, experiments = found["generator"], found["experiments"]


@pytest.mark.parametrize("kind", ["click", "amount", "dwell"])
def test_second_moments_are_those_of_the_logs(kind):
    """On 100,000 users; weighted squares of skewed rewards have a relative standard error of some 3 %."""
    setting = dataclasses.replace(generator.draw(generator.DEVELOPMENT + 1), kind=kind, spread=0.4)
    rows = generator.simulate(setting, setting.pilot, 100_000, np.random.default_rng(0))
    weights = rows.policies[:, 1:] / rows.propensity[:, None]
    squares = (weights**2 * rows.reward[:, None] ** 2).mean(axis=0)
    assert squares == pytest.approx(generator.weighted_squares(setting, setting.pilot), rel=0.15)
    assert weights.mean(axis=0) == pytest.approx(np.ones(weights.shape[1]), abs=0.06)


def test_settings_are_drawn_from_their_number_alone():
    for scarce in (False, True):
        one, same = (generator.draw(generator.DEVELOPMENT + 5, scarce=scarce) for _ in range(2))
        assert one.describe() == same.describe()
        assert (generator.effective_rewards(one).min() >= generator.LEAST_REWARDS) != scarce


@pytest.mark.parametrize("number", range(6))
def test_arms_have_the_lift_of_their_setting(number):
    setting = experiments.draw(experiments.DEVELOPMENT + number)
    values = []
    for lift in (0.0, 0.25):
        sums, rows = experiments.totals(setting, 200_000, lift, np.random.default_rng(1))
        values.append(sums.sum() / rows.sum())
    # The ratio's standard error is at most 2 % of a user's spread over the root of so many users, some .01.
    assert values[1] / values[0] == pytest.approx(1.25, abs=0.04)
