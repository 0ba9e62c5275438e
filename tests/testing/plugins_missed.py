"""Broken plug-ins that the rules once let pass, and the rule that must catch each."""

from __future__ import annotations

import numpy as np
from plugins_blind import Bar, BarLanes, Clicks, Popular, Viewed, views_of

from recsim_mnar import Learner
from recsim_mnar.estimators.scores import Scores
from recsim_mnar.rng import Stream


class LetsPoliciesSee(Clicks):
    """Observes through the trial's own policies."""

    def value(self, study, policy):
        policy.reset(np.arange(20))
        policy.observe(np.arange(20), np.zeros(20, np.int64))
        return super().value(study, policy)


class ResetsUsers(Clicks):
    def value(self, study, policy):
        policy.reset(np.arange(20))
        return super().value(study, policy)


class WritesInTheLog(Learner):
    def fit(self, log, *, n_items, seed=0):
        log["reward"][:] = 0.0
        return Popular(views_of(log, n_items))


class WritesBehindTheLog(Learner):
    def fit(self, log, *, n_items, seed=0):
        values = log["reward"]
        while not values.flags.writeable:
            values = values.base
        values[:] = 0.0
        return Popular(views_of(log, n_items))


class OverflowsLater(Viewed):
    """A softmax of counts without taking off the largest."""

    def weights(self, users):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.exp(super().weights(users) - 1.0)

    def probabilities(self, users):
        with np.errstate(invalid="ignore"):
            return super().probabilities(users)


class ItemsOfTheLog(Learner):
    """Counts the items that it met."""

    def fit(self, log, *, n_items, seed=0):
        return Popular(views_of(log, 0))


class OnePolicyForAll(Learner):
    def __init__(self):
        self.policy = None

    def fit(self, log, *, n_items, seed=0):
        fitted = Popular(views_of(log, n_items))
        if self.policy is None:
            self.policy = fitted
        self.policy.p = fitted.p
        return self.policy


def power_of_weights(rows):
    """Weights to the power of .97."""
    return Scores(linear=rows.weight**0.97 * rows.reward, counts=True)


class TwoPercentLanes(BarLanes):
    def answer(self, which, actions):
        bought = self.uniforms(which) < 0.98 * self.expected(which, actions)
        return bought.astype(float), self.uniforms(which, Stream.ORGANIC) < 0.8


class TwoPercentOff(Bar):
    lanes_class = TwoPercentLanes


BROKEN = {
    LetsPoliciesSee: "trial_is_left_alone",
    ResetsUsers: "trial_is_left_alone",
    WritesInTheLog: "door",
    WritesBehindTheLog: "log_is_left_alone",
    OverflowsLater: "long_histories",
    ItemsOfTheLog: "all_items",
    OnePolicyForAll: "a_policy_per_fit",
    power_of_weights: "known_value",
    TwoPercentOff: "rewards_have_their_means",
}
NOT_LOOKED_FOR = RIGHT = ()
