"""Broken plug-ins written with the rules in view, and unusual ones that are right."""

from __future__ import annotations

import numpy as np
from plugins_blind import Bar, BarLanes, Clicks, Popular, Viewed, drawn, views_of

from recsim_mnar import Learner, Policy, SampledPolicy, rng
from recsim_mnar.estimators.scores import Scores
from recsim_mnar.rng import Stream

# ------------------------------------------------------------------------------------------------------ broken policies


class NarrowIds(Viewed):
    """Users 2**32 apart are one."""

    def narrow(self, users):
        return np.asarray(users).astype(np.int32)

    def reset(self, users):
        super().reset(self.narrow(users))

    def observe(self, users, items):
        super().observe(self.narrow(users), items)

    def weights(self, users):
        return super().weights(self.narrow(users))


class StaleCache(Viewed):
    """What was computed for a user is kept until they view something, but not dropped when they begin again."""

    def __init__(self, n_items):
        super().__init__(n_items)
        self.cache = {}

    def observe(self, users, items):
        super().observe(users, items)
        for user in users.tolist():
            self.cache.pop(user, None)

    def weights(self, users):
        for user in users.tolist():
            self.cache.setdefault(user, super().weights(np.array([user]))[0])
        return np.array([self.cache[user] for user in users.tolist()])


class NobodyKnown(Viewed):
    """Begins a user at the first view: one without any is a KeyError."""

    def reset(self, users):
        for user in users.tolist():
            self.counts.pop(user, None)

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.counts.setdefault(user, np.zeros(self.n_items))[item] += 1


class StateOfTheClass(Viewed):
    counts: dict = {}  # noqa: RUF012  (the mistake)

    def __init__(self, n_items):
        self.n_items = n_items


class LastCallOnly(Viewed):
    """Each call of observe replaces what was viewed before."""

    def observe(self, users, items):
        self.reset(np.unique(users))
        super().observe(users, items)


# ------------------------------------------------------------------------------------------------------ broken learners


class SeedsTheWorld(Learner):
    """Seeds NumPy's global generator, which others draw from."""

    def fit(self, log, *, n_items, seed=0):
        np.random.seed(seed)  # noqa: NPY002  (the mistake)
        return Popular(views_of(log, n_items) + np.random.rand(n_items))  # noqa: NPY002


class NeedsClicks(Learner):
    """Fails on a log whose recommendations earned nothing."""

    def fit(self, log, *, n_items, seed=0):
        clicked = log["action"][log.is_bandit & (log["reward"] > 0)]
        scores = np.bincount(clicked, minlength=n_items).astype(float)
        scores[clicked[0]] += 1.0
        return Popular(scores)


class NullIsAnItem(Learner):
    def fit(self, log, *, n_items, seed=0):
        return Popular(np.bincount(log["item"], minlength=n_items).astype(float))


# -------------------------------------------------------------------------------------------------------- broken worlds


class TrendLanes(BarLanes):
    """Later users, by their number, buy less."""

    def expected(self, which, actions):
        return super().expected(which, actions) * np.where(self.user[which] > 9_000, 0.5, 1.0)


class Trend(Bar):
    lanes_class = TrendLanes
    truth_column = None


class SameDrawLanes(BarLanes):
    """A user's every answer is drawn by the same number: the address lacks the decision."""

    def answer(self, which, actions):
        u = np.array([rng.uniforms(int(self.seed[i]), Stream.RESPONSE, self.user[i], 0)[0] for i in which])
        return (u < self.expected(which, actions)).astype(float), self.uniforms(which, Stream.ORGANIC) < 0.8


class SameDraw(Bar):
    lanes_class = SameDrawLanes


class Certain(Bar):
    def reward_means(self, state):
        return np.where(state == np.arange(self.n_items), 1.2, 0.1)


# ------------------------------------------------------------------------------------- broken protocols and estimators


class AddsUp(Clicks):
    """Keeps what it found for the next comparison."""

    def __init__(self):
        self.total = 0.0

    def value(self, study, policy):
        self.total += super().value(study, policy)
        return self.total


def sorted_weights(rows):
    """Weights in another order than their rewards."""
    return np.sort(rows.weight) * rows.reward


def never_negative(rows):
    """Scores below 0 are cut, as if no reward were."""
    return Scores(linear=np.maximum(rows.weight * rows.reward, 0.0))


# ------------------------------------------------------------------------------------------------ right, though unusual


class SplitByNumber(Popular):
    """Users of even numbers get one distribution, those of odd ones another."""

    def __init__(self, n_items):
        super().__init__(np.arange(n_items) % 3.0)

    def probabilities(self, users):
        return np.where(np.asarray(users)[:, None] % 2 == 0, self.p, self.p[::-1])

    def act(self, users, uniforms):
        actions = drawn(self.probabilities(users), uniforms)
        return actions, self.propensity_of(users, actions)


class LearnsFromAll(Policy):
    def __init__(self, n_items):
        self.n_items, self.shown, self.earned = n_items, np.zeros(n_items), np.zeros(n_items)

    def probabilities(self, users):
        best = np.argmax((self.earned + 1) / (self.shown + 20))
        return np.tile(0.2 / self.n_items + 0.8 * (np.arange(self.n_items) == best), (len(users), 1))

    def act(self, users, uniforms):
        actions = drawn(self.probabilities(users), uniforms)
        return actions, self.propensity_of(users, actions)

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.shown, actions, 1.0)
        np.add.at(self.earned, actions, rewards)


class Beta:
    def __init__(self, n_items):
        self.won, self.lost = np.ones(n_items), np.ones(n_items)

    def sample(self, user, generator, draws):
        return generator.beta(self.won, self.lost, (draws, len(self.won))).argmax(axis=1)

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.won, actions, rewards)
        np.add.at(self.lost, actions, 1 - rewards)


class Thompson(SampledPolicy):
    def __init__(self, n_items):
        super().__init__(Beta(n_items), n_items, draws=50)


class Certainty(Viewed):
    """The item viewed most, for certain."""

    def probabilities(self, users):
        return np.eye(self.n_items)[self.weights(users).argmax(axis=1)]


class StarsLanes(BarLanes):
    """Rewards of 0 to 4 stars of one draw; who gave few is likelier to leave."""

    def stars(self, which, actions):
        return 1.0 + 3.0 * (self.favourite[which] == actions)

    def expected(self, which, actions):
        return self.stars(which, actions) / 2

    def answer(self, which, actions):
        rewards = np.floor(self.uniforms(which) * (self.stars(which, actions) + 1))
        return rewards, self.uniforms(which, Stream.ORGANIC) < 0.5 + rewards / 10


class Stars(Bar):
    lanes_class = StarsLanes

    def reward_means(self, state):
        return np.where(state == np.arange(self.n_items), 2.0, 0.5)


class OnceLanes(BarLanes):
    """One decision each, and a reward in five hundred."""

    def answer(self, which, actions):
        return (self.uniforms(which) < 0.002).astype(float), np.zeros(len(which), np.bool_)


class Once(Bar):
    lanes_class = OnceLanes

    def reward_means(self, state):
        return np.full((len(state), self.n_items), 0.002)


class LoyalLanes(BarLanes):
    """Lives of a hundred decisions on average."""

    def answer(self, which, actions):
        return super().answer(which, actions)[0], self.uniforms(which, Stream.ORGANIC) < 0.99


class Loyal(Bar):
    lanes_class = LoyalLanes


def halves(rows):
    """A control variate, of which each half of the rows takes the other's."""
    w, r, half = rows.weight, rows.reward, np.arange(rows.weight.size) % 2
    if not (w != 1.0).any():
        return Scores(linear=w * r)
    beta = np.array([((w - 1) * w * r)[half == h].mean() / ((w - 1) ** 2)[half == h].mean() for h in (1, 0)])
    return Scores(linear=w * r - beta[half] * (w - 1.0), slope=float(np.abs(beta).max()))


class Descends(Learner):
    """Scores by some steps of stochastic gradient descent."""

    def fit(self, log, *, n_items, seed=0):
        generator, scores = np.random.default_rng(seed), np.zeros(n_items)
        items = log["item"][~log.is_bandit]
        for item in generator.choice(items, 200) if len(items) else ():
            scores[item] += 0.1
        return Popular(scores)


BROKEN = {
    NarrowIds: "one_user_at_a_time",
    StaleCache: "reset_and_forget",
    NobodyKnown: "distributions",
    StateOfTheClass: "copies_are_apart",
    LastCallOnly: "one_user_at_a_time",
    SeedsTheWorld: "log_is_left_alone",
    NeedsClicks: "nothing_earned",
    NullIsAnItem: "door",
    Trend: "any_number",
    Certain: "truth_in_range",
    AddsUp: "same_twice",
    sorted_weights: "known_value",
    never_negative: "known_value",
}
NOT_LOOKED_FOR = (SameDraw,)
RIGHT = (
    SplitByNumber, LearnsFromAll, Thompson, Certainty, Stars, Once, Loyal, halves, Descends,
)  # fmt: skip
