"""Plug-ins written from the pages on how to write one, before the rules were read."""

from __future__ import annotations

import numpy as np

from recsim_mnar import DecisionWorld, Learner, Policy, Protocol, Record, rng
from recsim_mnar.estimators.scores import Scores
from recsim_mnar.rng import Stream
from recsim_mnar.worlds import PlainLanes


def drawn(p, uniforms):
    edges = np.cumsum(p, axis=1)
    return np.minimum((edges <= uniforms[:, None]).sum(axis=1), p.shape[1] - 1)


class Viewed(Policy):
    """Draws in proportion to a user's views and 1: the right policy from which the broken ones are made."""

    def __init__(self, n_items):
        self.n_items, self.counts = n_items, {}

    def reset(self, users):
        self.counts.update({user: np.zeros(self.n_items) for user in users.tolist()})

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.counts[user][item] += 1

    def weights(self, users):
        return 1.0 + np.array([self.counts[user] for user in users.tolist()]).reshape(-1, self.n_items)

    def probabilities(self, users):
        weights = self.weights(users)
        return weights / weights.sum(axis=1, keepdims=True)

    def act(self, users, uniforms):
        actions = drawn(self.probabilities(users), uniforms)
        return actions, self.propensity_of(users, actions)


# ------------------------------------------------------------------------------------------------------ broken policies


class GreedyBranchAlone(Viewed):
    """Epsilon-greedy whose propensity of the greedy item forgets the uniform branch."""

    def act(self, users, uniforms):
        best = self.weights(users).argmax(axis=1)
        explored = np.minimum((uniforms / 0.2 * self.n_items).astype(int), self.n_items - 1)
        actions = np.where(uniforms < 0.2, explored, best)
        return actions, np.where(actions == best, 0.8, 0.2 / self.n_items)

    def probabilities(self, users):
        best = self.weights(users).argmax(axis=1)
        return 0.2 / self.n_items + 0.8 * np.eye(self.n_items)[best]


class StateByPlace(Viewed):
    def __init__(self, n_items):
        self.n_items, self.table = n_items, np.zeros((10_000, n_items))

    def reset(self, users):
        self.table[: len(users)] = 0

    def observe(self, users, items):
        np.add.at(self.table, (np.unique(users, return_inverse=True)[1], items), 1)

    def weights(self, users):
        return 1.0 + self.table[: len(users)]


class TableOfAThousand(Viewed):
    """Users a thousand apart share a row."""

    def __init__(self, n_items):
        self.n_items, self.table = n_items, np.zeros((1000, n_items))

    def reset(self, users):
        self.table[users % 1000] = 0

    def observe(self, users, items):
        np.add.at(self.table, (users % 1000, items), 1)

    def weights(self, users):
        return 1.0 + self.table[users % 1000]


class LosesRepeats(TableOfAThousand):
    """table[users, items] += 1 counts a repeated pair once."""

    def __init__(self, n_items):
        self.n_items, self.table = n_items, np.zeros((100_000, n_items))

    def reset(self, users):
        self.table[users] = 0

    def observe(self, users, items):
        self.table[users, items] += 1

    def weights(self, users):
        return 1.0 + self.table[users]


class BeyondTheLastEdge(Viewed):
    """The cumulative sum of float32 ends below 1, and a uniform above it takes item n_items."""

    def act(self, users, uniforms):
        edges = np.cumsum(self.probabilities(users).astype(np.float32) * np.float32(0.99999), axis=1)
        actions = (edges <= uniforms[:, None]).sum(axis=1)
        return actions, self.probabilities(users)[np.arange(len(users)), np.minimum(actions, self.n_items - 1)]


# ------------------------------------------------------------------------------------------------------ broken learners


class Popular(Policy):
    def __init__(self, scores):
        self.n_items, self.p = len(scores), (1.0 + scores) / (1.0 + scores).sum()

    def probabilities(self, users):
        return np.tile(self.p, (len(users), 1))

    def act(self, users, uniforms):
        actions = drawn(self.probabilities(users), uniforms)
        return actions, self.p[actions]


def views_of(log, n_items):
    return np.bincount(log["item"][~log.is_bandit], minlength=n_items).astype(float)


class PolicyReadsLearner(Learner):
    """The policy looks its numbers up in the learner, which the next fit changes."""

    def fit(self, log, *, n_items, seed=0):
        self.model = Popular(views_of(log, n_items))
        return ReadsLearner(self)


class ReadsLearner(Popular):
    def __init__(self, learner):
        self.learner, self.n_items = learner, learner.model.n_items

    @property
    def p(self):
        return self.learner.model.p


class Unseeded(Learner):
    def fit(self, log, *, n_items, seed=0):
        return Popular(views_of(log, n_items) + np.random.default_rng().random(n_items))


class KnowsUsersById(Learner):
    """User 5 of another log begins with what user 5 of the training log viewed."""

    def fit(self, log, *, n_items, seed=0):
        views = log.organic()
        table = {}
        for user, item in zip(views["user"].tolist(), views["item"].tolist(), strict=True):
            table.setdefault(user, np.zeros(n_items))[item] += 1
        return Remembering(n_items, table)


class Remembering(Viewed):
    def __init__(self, n_items, table):
        super().__init__(n_items)
        self.table = table

    def reset(self, users):
        for user in users.tolist():
            self.counts[user] = self.table.get(user, np.zeros(self.n_items)).copy()


class NeverShownIsNaN(Learner):
    def fit(self, log, *, n_items, seed=0):
        shown = log.is_bandit
        n = np.bincount(log["action"][shown], minlength=n_items)
        with np.errstate(invalid="ignore"):
            return Popular(np.bincount(log["action"][shown], log["reward"][shown], minlength=n_items) / n)


class WarmStart(Learner):
    """Goes on from where the last fit ended."""

    def __init__(self):
        self.counts = 0.0

    def fit(self, log, *, n_items, seed=0):
        self.counts = self.counts + views_of(log, n_items)
        return Popular(self.counts**2)


# -------------------------------------------------------------------------------------------------------- broken worlds


class BarLanes(PlainLanes):
    """Each guest has a favourite; the right lanes from which the broken ones are made."""

    def __init__(self, world, n_lanes, truth_column):
        super().__init__(n_lanes, truth_column=truth_column)
        self.world, self.favourite = world, np.full(n_lanes, -1)

    @property
    def state(self):
        return self.favourite[:, None].astype(float)

    def arrive(self, which):
        for lane in which:
            u = rng.uniforms(int(self.seed[lane]), Stream.USER, self.user[lane], 0)[0]
            self.favourite[lane] = int(u * self.world.n_items)

    def expected(self, which, actions):
        return self.world.reward_means(self.state[which])[np.arange(len(which)), actions]

    def answer(self, which, actions):
        bought = self.uniforms(which) < self.expected(which, actions)
        return bought.astype(float), self.uniforms(which, Stream.ORGANIC) < 0.8


class Bar(DecisionWorld):
    name, n_items, truth_column, lanes_class = "bar", 6, "expected_reward", BarLanes

    def open_lanes(self, n_lanes, *, keep_truth=False):
        return self.lanes_class(self, n_lanes, self.truth_column if keep_truth else None)

    def reward_means(self, state):
        return np.where(state == np.arange(self.n_items), 0.6, 0.1)


class InheritsLanes(BarLanes):
    """Who takes a lane keeps the favourite of who sat there before."""

    def arrive(self, which):
        super().arrive(which[self.favourite[which] < 0])


class InheritsBar(Bar):
    lanes_class = InheritsLanes


class FatigueLanes(BarLanes):
    """Answers wear off with each decision; the truth says that they do not."""

    def answer(self, which, actions):
        bought = self.uniforms(which) < self.expected(which, actions) * 0.9 ** self.n_decisions[which]
        return bought.astype(float), self.uniforms(which, Stream.ORGANIC) < 0.8


class FatigueBar(Bar):
    lanes_class = FatigueLanes


class FashionLanes(BarLanes):
    """What is bought by anybody becomes likelier for all."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.sold = np.zeros(self.world.n_items)

    def answer(self, which, actions):
        raised = self.expected(which, actions) + 0.2 * (self.sold[actions] > 3)
        bought = self.uniforms(which) < raised
        np.add.at(self.sold, actions, bought)
        return bought.astype(float), self.uniforms(which, Stream.ORGANIC) < 0.8


class FashionBar(Bar):
    lanes_class = FashionLanes


# ------------------------------------------------------------------------------------- broken protocols and estimators


class Clicks(Protocol):
    """What an agent would show a new user, clicked how often: the right protocol."""

    metrics = ("clicks",)
    needs = frozenset({"test_log"})

    def value(self, study, policy):
        log = study.log()
        shown = log.is_bandit
        clicks = np.bincount(log["action"][shown], log["reward"][shown], minlength=study.n_items)
        fresh, user = policy.fresh(), np.array([0])
        fresh.reset(user)
        return float(clicks @ fresh.probabilities(user)[0])

    def judge(self, study):
        return [
            Record(
                world=study.world.name, protocol=self.name, agent=name, metric="clicks", value=value, low=value - 1.0,
                high=value + 1.0, level=study.level, n=len(study.log()), seconds=0.0,
            )
            for name, value in ((name, self.value(study, policy)) for name, policy in study.policies.items())
        ]  # fmt: skip


class GlobalDice(Clicks):
    def value(self, study, policy):
        return super().value(study, policy) + float(np.random.default_rng().normal())


class LeavesOutNought(Clicks):
    """No record for the agent that fares worst."""

    def judge(self, study):
        records = super().judge(study)
        return [record for record in records if record.value > min(each.value for each in records)]


def over_supported(rows):
    """Averages over the rows that the target could take."""
    could = rows.target > 0.2
    return np.where(could, rows.weight * rows.reward, 0.0) / max(could.mean(), 1e-9)


def quantile_clip(rows):
    """Weights cut at their own 90 % quantile, and nobody is informed."""
    return Scores(linear=np.minimum(rows.weight, np.quantile(rows.weight, 0.9)) * rows.reward, counts=True)


# ------------------------------------------------------------------------------------------------ right, though unusual


class DropsState(Viewed):
    """Forgets who has gone, and knows nobody before they do something."""

    def reset(self, users):
        self.forget(users)

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.counts.setdefault(user, np.zeros(self.n_items))[item] += 1

    def weights(self, users):
        return 1.0 + np.array([self.counts.get(user, np.zeros(self.n_items)) for user in users.tolist()])

    def forget(self, users):
        for user in users.tolist():
            self.counts.pop(user, None)


class NeverAgain(Viewed):
    """Never what was viewed, until all was."""

    def weights(self, users):
        new = super().weights(users) == 1.0
        return np.where(new.any(axis=1, keepdims=True), new, True).astype(float)


class Float32Inside(Viewed):
    def probabilities(self, users):
        scores = np.log(self.weights(users)).astype(np.float32)
        weights = np.exp((scores - scores.max(axis=1, keepdims=True)).astype(float))
        return weights / weights.sum(axis=1, keepdims=True)


class Fixed(Popular):
    def __init__(self, n_items):
        super().__init__(np.arange(n_items) % 3.0)

    def fixed_distribution(self):
        return self.p


class OwnUserBandit(Viewed):
    """Avoids what the same user did not take."""

    learns = "own user"

    def learn(self, users, actions, rewards, propensities):
        for user, action, reward in zip(users.tolist(), actions.tolist(), rewards.tolist(), strict=True):
            self.counts[user][action] += reward


class DuckLearner:
    """No base class; its start is drawn from the seed."""

    def fit(self, log, *, n_items, seed=0):
        return Popular(views_of(log, n_items) + np.random.default_rng(seed).random(n_items))


class TemperatureLanes(BarLanes):
    """Rewards are normal and may be negative; ten decisions each; something is viewed before each."""

    def browse(self, which):
        return np.ones(len(which), np.int64), (self.favourite[which] + 1) % self.world.n_items

    def answer(self, which, actions):
        return self.expected(which, actions) + self.normals(which), self.n_decisions[which] < 9


class TemperatureBar(Bar):
    lanes_class = TemperatureLanes


class LongLanes(BarLanes):
    """Most leave at once, a few stay for hundreds of decisions."""

    def answer(self, which, actions):
        bought = self.uniforms(which) < self.expected(which, actions)
        return bought.astype(float), self.uniforms(which, Stream.ORGANIC) < np.where(
            self.favourite[which] == 0, 0.99, 0.2
        )


class LongBar(Bar):
    lanes_class = LongLanes


def snips_by_hand(rows):
    return Scores(numerator=rows.weight * rows.reward, denominator=rows.weight)


class SeededDice(Clicks):
    """Draws from the study's seed: the same twice."""

    def value(self, study, policy):
        return super().value(study, policy) + float(np.random.default_rng(study.seed_of("dice")).normal())


BROKEN = {
    GreedyBranchAlone: "propensities_agree",
    StateByPlace: "one_user_at_a_time",
    TableOfAThousand: "one_user_at_a_time",
    LosesRepeats: "distributions",
    BeyondTheLastEdge: "propensities_agree",
    PolicyReadsLearner: "a_policy_per_fit",
    Unseeded: "a_policy_per_fit",
    NeverShownIsNaN: "all_items",
    WarmStart: "a_policy_per_fit",
    InheritsBar: "any_lanes",
    FatigueBar: "rewards_have_their_means",
    FashionBar: "any_lanes",
    GlobalDice: "same_twice",
    LeavesOutNought: "judges",
    over_supported: "on_policy_mean",
    quantile_clip: "known_value",
}
NOT_LOOKED_FOR = (KnowsUsersById,)
RIGHT = (
    DropsState, NeverAgain, Float32Inside, Fixed, OwnUserBandit, DuckLearner, TemperatureBar, LongBar, snips_by_hand,
    SeededDice,
)  # fmt: skip
