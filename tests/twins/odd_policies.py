"""Policies with a planted fault each, and odd ones that are right, for ``check``, the class of tests and runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recsim_mnar.policies import Policy

P = 6


class Right(Policy):
    """Half the time the item viewed last, by inversion of its distribution."""

    name = "right"

    def __init__(self, n_items=P):
        self.n_items = n_items
        self.last = {}

    def reset(self, users):
        self.last.update(dict.fromkeys(users.tolist(), 0))

    def observe(self, users, items):
        self.last.update(zip(users.tolist(), items.tolist(), strict=True))

    def probabilities(self, users):
        favourite = [self.last[user] for user in users.tolist()]
        return 0.5 / self.n_items + 0.5 * np.eye(self.n_items)[favourite]

    def draw(self, users, uniforms):
        edges = np.cumsum(self.probabilities(users), axis=1)
        return np.minimum((edges <= np.asarray(uniforms)[:, None]).sum(axis=1), self.n_items - 1)

    def act(self, users, uniforms):
        actions = self.draw(users, uniforms)
        return actions, self.propensity_of(users, actions)


class WrongPropensity(Right):
    """States 1 / P, and draws by its distribution."""

    def act(self, users, uniforms):
        return self.draw(users, uniforms), np.full(len(users), 1 / P)


class DependsOnTheBatch(Right):
    """Mixes in what the others of the call like."""

    def probabilities(self, users):
        own = super().probabilities(users)
        return 0.5 * own + 0.5 * own.mean(axis=0)


class ChangesState(Right):
    """``act`` counts as a view of the item shown."""

    def act(self, users, uniforms):
        actions, propensities = super().act(users, uniforms)
        self.observe(users, actions)
        return actions, propensities


class OwnGenerator(Right):
    """Draws by a generator of its own."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.generator = np.random.default_rng(0)

    def act(self, users, uniforms):
        return super().act(users, self.generator.random(len(users)))


class MutatesItsInput(Right):
    """Halves what it is handed."""

    def act(self, users, uniforms):
        uniforms *= 0.5
        return super().act(users, uniforms)


class UnlikeItsDraws(Right):
    """States the same thing everywhere, and draws otherwise: uniforms squared."""

    def draw(self, users, uniforms):
        return super().draw(users, np.asarray(uniforms) ** 2)


class StaleAfterLearn(Right):
    """Says the probabilities of before ``learn``; acts and states by those after."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.weights = np.ones(n_items)
        self.said = None

    def _now(self, users):
        return np.tile(self.weights / self.weights.sum(), (len(users), 1))

    def probabilities(self, users):
        if self.said is None:
            self.said = self._now([0])
        return np.repeat(self.said, len(users), axis=0)

    def act(self, users, uniforms):
        now = self._now(users)
        actions = np.minimum((np.cumsum(now, axis=1) <= np.asarray(uniforms)[:, None]).sum(axis=1), P - 1)
        return actions, now[np.arange(len(users)), actions]

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.weights, actions, 1.0)


class StaleForItsOwnUsers(StaleAfterLearn):
    """The same, said to learn from each user alone, so that ``simulate`` takes it."""

    learns = "own user"


class IgnoresTheUniform(Right):
    """Takes the likeliest item, whatever the uniform, and states its probability."""

    def draw(self, users, uniforms):
        return self.probabilities(users).argmax(axis=1)


class CountsInBytes(Right):
    """Draws in proportion to views, whose counts begin again at 256."""

    def reset(self, users):
        self.last.update({user: np.zeros(self.n_items, np.uint8) for user in users.tolist()})

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.last[user] += np.eye(self.n_items, dtype=np.uint8)[item]

    def probabilities(self, users):
        weights = 1.0 + np.array([self.last[user] for user in users.tolist()]).reshape(-1, self.n_items)
        return weights / weights.sum(axis=1, keepdims=True)


class NotAllItsMass(Right):
    """Its probabilities sum to less than 1."""

    def probabilities(self, users):
        return 0.9 * super().probabilities(users)


class SkewedDraws(Right):
    """States the right probabilities and draws by others, which many decisions show."""

    def draw(self, users, uniforms):
        return super().draw(users, np.asarray(uniforms) ** 1.05)


class OrderInTheBatch(Right):
    """The first of a call gets something else."""

    def probabilities(self, users):
        p = super().probabilities(users)
        p[0] = np.roll(p[0], 1)
        return p


class Forgetless(Right):
    """Does not begin a user anew."""

    def reset(self, users):
        for user in users.tolist():
            self.last.setdefault(user, 1)


class Sharing(Right):
    """Its copy for a driver is itself."""

    def fresh(self):
        return self


class LearnsFromAll(Right):
    """Learns from all users, as it should."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.weights = np.ones(n_items)

    def probabilities(self, users):
        p = super().probabilities(users) * self.weights
        return p / p.sum(axis=1, keepdims=True)

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.weights, actions, rewards)


class SaysOwnUser(LearnsFromAll):
    """Learns from all users, and declares something else."""

    learns = "own user"


class Nameless(Right):
    """Describes itself by another name."""

    def describe(self):
        return {"name": "another"}


class RemembersOtherObjects(Right):
    """Objects share what they have seen."""

    seen = 0

    def reset(self, users):
        super().reset(users)
        type(self).seen += 1

    def probabilities(self, users):
        return np.roll(super().probabilities(users), self.seen % P, axis=1)


class CountsWithinACall(Right):
    """Of several decisions for a user in one call, each takes the next item."""

    batches_decisions = True

    def act(self, users, uniforms):
        names = users.tolist()
        turn = np.array([names[:place].count(user) for place, user in enumerate(names)], np.int64)
        actions = (self.draw(users, uniforms) + turn) % P
        return actions, self.propensity_of(users, actions)


class BestOfTheCall(Right):
    """The best rating of a call is everybody's."""

    def observe_ratings(self, users, items, ratings):
        if len(users):
            self.observe(users, np.full(len(users), items[ratings.argmax()]))


class AnotherEachTime(Right):
    """Objects differ in what they like."""

    made = 0

    def __init__(self, n_items=P):
        super().__init__(n_items)
        type(self).made += 1
        self.likes = self.made % n_items

    def probabilities(self, users):
        return np.roll(super().probabilities(users), self.likes, axis=1)


class CountsForAll(Right):
    """What it counts belongs to the class, so copies count together."""

    seen = {"views": 0}  # noqa: RUF012  (what a class holds is shared, which is the point)

    def observe(self, users, items):
        self.seen["views"] += len(users)

    def probabilities(self, users):
        favourite = self.seen["views"] % self.n_items
        return np.tile(0.5 / self.n_items + 0.5 * (np.arange(self.n_items) == favourite), (len(users), 1))


class KeepsWhatItGives(Right):
    """Hands out the array that it goes on reading."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.kept = np.full((1000, n_items), 1 / n_items)

    def probabilities(self, users):
        return self.kept[: len(users)]


class FillsOneBuffer(Right):
    """Writes each answer over the last one, which its caller may still hold."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.buffer = np.zeros(1000, np.int64)

    def draw(self, users, uniforms):
        self.buffer[: len(users)] = super().draw(users, uniforms)
        return self.buffer[: len(users)]


class Single(Right):
    """Float32 throughout."""

    def probabilities(self, users):
        return super().probabilities(users).astype(np.float32)


class Seeded(Right):
    """The uniform seeds a generator: its actions over even uniforms are as if drawn."""

    def draw(self, users, uniforms):
        drawn = [np.random.default_rng(int(u * 2**53)).random() for u in np.asarray(uniforms).tolist()]
        return super().draw(users, np.array(drawn))


class OrderOfRounds(Right):
    """Learns from all users: what it does depends on who came before."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.total = 1

    def learn(self, users, actions, rewards, propensities):
        for user, action in zip(users.tolist(), actions.tolist(), strict=True):
            self.total = (31 * self.total + 7 * user + action) % 1009

    def probabilities(self, users):
        likes = 1.0 + (self.total + np.arange(self.n_items)) % 4
        return np.tile(likes / likes.sum(), (len(users), 1))


class OnlyActs:
    """Without ``probabilities``: nothing to hold it against but the range of what it states."""

    name, n_items = "bare", P

    def act(self, users, uniforms):
        return np.minimum((uniforms * P).astype(int), P - 1), np.full(len(users), 1 / P)


NUMBER = r"[0-9.e-]+"
_ACT = rf"act\(\) states {NUMBER} for item \d of user"
_TAKES = r"act\(\) takes item \d for"


class Planted(NamedTuple):
    """A policy with a fault: the rule that ``check`` finds broken, and the sentences, as patterns.

    Attributes:
        kind: its class.
        rule: that it breaks.
        found: what ``check`` says.
        refused: with what a run stops; None where a run cannot see it.
    """

    kind: type
    rule: str
    found: str
    refused: str | None = None


PLANTED = [
    Planted(
        WrongPropensity, "propensities_agree",
        rf"act\(\) states {NUMBER} for item \d of the user of 0 views, propensity_of\(\) says {NUMBER}",
        rf"{_ACT} 0, probabilities\(\) says {NUMBER}",
    ),
    Planted(
        DependsOnTheBatch, "one_user_at_a_time", r"alone, the (user|propensity) .* among others",
        rf"{_ACT} \d+, propensity_of\(\) says {NUMBER}",
    ),
    Planted(
        ChangesState, "acting_changes_nothing", r"the probability of item \d .* before act\(\), and .* after it",
        rf"{_ACT} 0, probabilities\(\) says {NUMBER}",
    ),
    Planted(
        OwnGenerator, "acting_changes_nothing", r"asked twice for the user of \d views with the uniform",
        r"asked twice for user 0 with the uniform \.\d+, act\(\) takes item \d and then item \d",
    ),
    Planted(
        MutatesItsInput, "inputs_are_left_alone", r"act\(\) writes in the arrays",
        r"act\(\) writes in the arrays that it is handed",
    ),
    Planted(
        UnlikeItsDraws, "frequencies_follow", rf"{_TAKES} .* decisions, probabilities\(\) says {NUMBER}",
        rf"{_TAKES} user 0 in {NUMBER} of 512 decisions, prob.* says {NUMBER}",
    ),
    Planted(
        StaleAfterLearn, "runs_and_replays", rf"{_ACT} \d+, propensity_of\(\) says {NUMBER}",
        rf"learns from all users|{_ACT} \d+, propensity_of\(\) says {NUMBER}",
    ),
    Planted(
        StaleForItsOwnUsers, "runs_and_replays", rf"{_ACT} \d+, propensity_of\(\) says {NUMBER}",
        rf"{_ACT} \d+, propensity_of\(\) says {NUMBER}",
    ),
    Planted(
        IgnoresTheUniform, "frequencies_follow", rf"{_TAKES} .* in 1 of 40,000 decisions",
        rf"{_TAKES} user 0 in 1 of 512 decisions, prob.* says {NUMBER}",
    ),
    Planted(
        NotAllItsMass, "distributions", r"must sum to 1, a sum is 0\.9",
        r"its probabilities must sum to 1, a sum is 0\.9",
    ),
    Planted(SkewedDraws, "frequencies_follow", rf"{_TAKES} .* decisions, probabilities\(\) says"),
    Planted(OrderInTheBatch, "one_user_at_a_time", r"alone, scores\(\) of .* are others than among others"),
    Planted(Forgetless, "reset_and_forget", r"for a new user, and .* after reset\(\)"),
    Planted(
        Sharing, "fresh_shares_no_user", r"of the fresh\(\) copy, and .* after the first one's users viewed more"
    ),
    Planted(SaysOwnUser, "learns_as_declared", r"before learn\(\) of other users, and .* after it"),
    Planted(Nameless, "describes_itself", "names it 'another', its name is 'right'"),
    Planted(RemembersOtherObjects, "one_user_at_a_time", "among others"),
    Planted(
        CountsWithinACall, "runs_and_replays", r"asked twice for user 0|when the log is replayed by a second object",
        r"asked twice for user 0 with the uniform \.\d+, act\(\) takes item \d and then item \d",
    ),
    Planted(BestOfTheCall, "ratings_one_user_at_a_time", "after ratings one by one, .* together"),
    Planted(AnotherEachTime, "runs_and_replays", "when the log is replayed by a second object"),
    Planted(CountsForAll, "copies_are_apart", "after a deep copy of it viewed and learned more"),
    Planted(
        KeepsWhatItGives, "answers_are_given_away", r"probabilities\(\)'s array was written in by its caller"
    ),
    Planted(CountsInBytes, "long_histories", "after 256 views of one item a user is as new, after 255 not"),
    Planted(FillsOneBuffer, "answers_are_given_away", r"act\(\)'s actions array was changed by a later call"),
]  # fmt: skip
"""One list, for ``check``, the class of tests and runs."""
SOUND = [Right, Single, Seeded, OrderOfRounds, OnlyActs]
"""Odd, and right; runs take them all."""
