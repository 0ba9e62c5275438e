"""``recsim-mnar check`` and the contracts of worlds, vector environments, protocols and estimators."""

import dataclasses
import runpy
import sys

import numpy as np
import pytest

from recsim_mnar.estimators import estimate_value
from recsim_mnar.protocols.ab_test import ABTest
from recsim_mnar.protocols.base import Protocol
from recsim_mnar.protocols.off_policy import OffPolicy
from recsim_mnar.protocols.records import Record
from recsim_mnar.purchases.comparison import Uplift, UpliftABTest
from recsim_mnar.testing import check_estimator, check_protocol
from recsim_mnar.testing.kinds import check_named
from twins.cases import quick_first
from twins.commands import run

OWN = '''
"""What somebody wrote."""
import numpy as np
from recsim_mnar.policies import Learner, Policy
from recsim_mnar.protocols.base import Protocol
from recsim_mnar.protocols.records import Record
from recsim_mnar.worlds.features import FeatureWorld
from recsim_mnar.worlds.lanes import PlainLanes


class Duck:
    """Derives from nothing."""

    def __init__(self, n_items):
        self.n_items = n_items

    def probabilities(self, users):
        return np.full((len(users), self.n_items), 1 / self.n_items)

    def act(self, users, uniforms):
        return (uniforms * self.n_items).astype(int), np.full(len(users), 1 / self.n_items)


class Fits:
    """So does what fits it."""

    def fit(self, log, *, n_items, seed):
        assert len(log)
        return Duck(n_items)


class Wrong(Duck):
    """States half of what it does."""

    def act(self, users, uniforms):
        actions, propensities = super().act(users, uniforms)
        return actions, propensities / 2


class Named(Policy):
    """With a parameter."""

    def __init__(self, n_items, share=0.5):
        self.n_items, self.share = n_items, share

    def probabilities(self, users):
        p = np.full(self.n_items, (1 - self.share) / self.n_items)
        p[0] += self.share
        return np.tile(p, (len(users), 1))

    def act(self, users, uniforms):
        p = self.probabilities(users)
        actions = np.minimum((p.cumsum(axis=1) <= uniforms[:, None]).sum(axis=1), self.n_items - 1)
        return actions, p[np.arange(len(users)), actions]


class World(FeatureWorld):
    name = "of-my-own"


class Unmade(World):
    def open_lanes(self, n_lanes, *, keep_truth=False):
        return PlainLanes(n_lanes)


def weighted(rows):
    return rows.weight * rows.reward


def nothing(rows):
    return 0.0 * rows.reward


def drawn(rows):
    return rows.weight * rows.reward * np.random.random(rows.reward.size) * 2


def writes(rows):
    rows.weight[:] = 1.0
    return rows.reward


def placed(rows):
    return rows.weight * rows.reward * np.linspace(0, 2, rows.reward.size)


number = 3
'''


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_things.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_things", None)


def printed_by_check(capsys, name):
    """Exit status and all that `check` prints."""
    status, out, err = run(capsys, "check", name)
    return status, out + err


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("own_things:Duck", 0, "own_things:Duck keeps the 16 rules of a policy"),
        ("own_things:Fits", 0, "keeps the 21 rules of a learner"),
        ("own_things:Named+share=0.3+epsilon=0.1", 0, "keeps the 16 rules of a policy"),
        ("own_things:Wrong", 3, "act() states .0416667 for item"),
        ("own_things:Wrong", 3, "    return the probability, over the uniform alone, of the action drawn"),
        ("own_things:World", 0, "keeps the 18 rules of a world"),
        ("own_things:weighted", 0, "keeps the 7 rules of an estimator"),
        ("own_things:nothing", 3, "is an estimator that breaks 2 of 7 rules"),
        ("own_things:number", 2, r"what can be checked is the class of a policy"),
        ("own_things:Nobody", 2, "has no 'Nobody'"),
        ("popularity", 0, "keeps the 21 rules of a learner"),
        ("no-such-agent", 2, "unknown agent"),
        ("recsim_mnar/Ratings-v0", 2, "is an environment"),
    ],
)
def test_the_command_says_in_sentences_what_is_broken(capsys, name, status, words):
    code, output = printed_by_check(capsys, name)
    assert code == status, output
    assert words in output


def test_one_cause_is_one_finding():
    """act() and propensity_of() disagree after long histories as before them, and in runs."""
    assert [breach.rule for breach in check_named("own_things:Wrong").breaches] == ["propensities_agree"]


def test_rules_that_were_not_looked_at_are_not_called_kept(capsys):
    """A world that cannot be made breaks one rule, and nothing is known of the others."""
    _, output = printed_by_check(capsys, "own_things:Unmade")
    assert "breaks 1 of 15 rules; without door" in output
    (breach,) = check_named("own_things:Unmade").breaches
    assert (breach.rule, breach.ends) == ("door", True)
    assert "answer" in breach.why
    assert not any(breach.ends for breach in check_named("own_things:Wrong").breaches)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("nothing", "on_policy_mean"),
        ("nothing", "known_value"),
        ("drawn", "same_twice"),
        ("writes", "inputs_are_left_alone"),
        ("placed", "order_of_rows"),
    ],
)
def test_estimators(name, rule):
    breaches = {breach.rule: breach for breach in check_estimator(f"own_things:{name}")}
    assert rule in breaches
    assert breaches[rule].fix


@pytest.mark.parametrize("name", ["ips", "clipped_ips", "snips", "beta_ips", "own_things:weighted"])
def test_estimators_that_are_sound(name):
    assert check_estimator(name) == []


@pytest.mark.parametrize(
    ("name", "rules"), [("sg_ips", {"known_value"}), ("ix_ips", {"known_value", "on_policy_mean"})]
)
def test_estimators_that_are_biased_and_say_so_in_their_interval(name, rules):
    assert {finding.rule for finding in check_estimator(name)} == rules


def test_an_interval_that_makes_nothing_up_is_found(monkeypatch):
    def narrow(*given, **asked):
        found = estimate_value(*given, **asked)
        return dataclasses.replace(found, low=found.value, high=found.value)

    monkeypatch.setattr("recsim_mnar.testing.estimators.estimate_value", narrow)
    found = {breach.rule: breach.why for breach in check_estimator("sg_ips")}
    assert "does not hold the true value 0.225" in found["as_estimate"]


def record(trial, agent, value, low=0.0, high=1.0, metric="mine", **details):
    return Record(
        world=trial.world.name, protocol="mine", agent=agent, metric=metric, value=value, low=low, high=high,
        level=0.95, n=1, seconds=0.0, details=details,
    )  # fmt: skip


class Mine(Protocol):
    name, metrics, needs = "mine", ("mine",), frozenset({"test_log"})

    def judge(self, study):
        return [record(study, agent, 0.5) for agent in study.learners]


class ForgetsAnAgent(Mine):
    def judge(self, study):
        return super().judge(study)[1:]


class OtherMetric(Mine):
    def judge(self, study):
        return [dataclasses.replace(r, metric="theirs") for r in super().judge(study)]


class Infinite(Mine):
    def judge(self, study):
        return [dataclasses.replace(r, value=np.nan) for r in super().judge(study)]


class Drawn(Mine):
    def judge(self, study):
        return [dataclasses.replace(r, value=np.random.default_rng().random()) for r in super().judge(study)]


class WritesInTheLog(Mine):
    def judge(self, study):
        study.test_log["reward"][:] = 1.0
        return super().judge(study)


class WritesBehindTheLog(Mine):
    def judge(self, study):
        values = study.test_log["reward"]
        while not values.flags.writeable:
            values = values.base
        values[:] = 1.0
        return super().judge(study)


class NoJson(Mine):
    def judge(self, study):
        return [dataclasses.replace(r, details={"why": {1, 2}}) for r in super().judge(study)]


class Greedy(Mine):
    needs = frozenset({"everything"})


@pytest.mark.parametrize("kind", quick_first([Mine, OffPolicy, ABTest, Uplift, UpliftABTest], 3))
def test_protocols_that_are_sound(kind):
    assert check_protocol(kind) == []


def test_the_example_with_a_split_by_time_is_sound():
    kind = runpy.run_path("examples/time_split.py")["NextViews"]
    assert check_protocol(kind) == []


@pytest.mark.parametrize(
    ("kind", "rule", "words"),
    [
        (ForgetsAnAgent, "judges", "mine is of ['user-popularity'], the agents are"),
        (OtherMetric, "judges", "no record has one of its metrics: mine"),
        (Infinite, "numbers_make_sense", "is nan"),
        (Drawn, "same_twice", "and then"),
        (WritesInTheLog, "judges", "read-only"),
        (WritesBehindTheLog, "trial_is_left_alone", "changes the test log"),
        (NoJson, "numbers_make_sense", "cannot be written as JSON"),
        (Greedy, "door", "needs 'everything'"),
        (object, "door", "must derive from"),
    ],
)
def test_protocols_that_are_not(kind, rule, words):
    breaches = {breach.rule: breach for breach in check_protocol(kind)}
    assert words in breaches[rule].why
