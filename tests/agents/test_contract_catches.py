"""The contract refuses policies that break it, each in one way."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest

from recsim_mnar.policy import EpsilonMixture, Policy, SampledPolicy
from recsim_mnar.testing import PolicyContract, check_policy
from recsim_mnar.testing.policies import RULES


class Sound(Policy):
    """Items in proportion to 1 + the user's counts."""

    def __init__(self):
        self.n_items = 6
        self.counts = {}

    def reset(self, users):
        self.counts.update({u: np.ones(6) for u in users.tolist()})

    def observe(self, users, items):
        for u, i in zip(users.tolist(), items.tolist(), strict=True):
            self.counts[u][i] += 1

    def forget(self, users):
        for u in users.tolist():
            self.counts.pop(u, None)

    def probabilities(self, users):
        return np.stack([self.counts[u] / self.counts[u].sum() for u in users.tolist()])

    def act(self, users, uniforms):
        p = self.probabilities(users)
        actions = np.minimum((p.cumsum(axis=1) <= uniforms[:, None]).sum(axis=1), 5)
        return actions, p[np.arange(len(users)), actions]

    def fresh(self):
        return type(self)()


class LyingPropensity(Sound):
    def act(self, users, uniforms):
        actions, propensities = super().act(users, uniforms)
        return actions, np.full_like(propensities, 0.5)


class Unnormalised(Sound):
    def probabilities(self, users):
        return 1.01 * super().probabilities(users)


class BatchDependent(Sound):
    def probabilities(self, users):
        p = super().probabilities(users) + 0.001 * len(users)
        return p / p.sum(axis=1, keepdims=True)


class Forgetless(Sound):
    def reset(self, users):
        for u in users.tolist():
            self.counts.setdefault(u, np.ones(6))


class Sharing(Sound):
    def fresh(self):
        return self


class Counting(Sound):
    """Looking changes what comes after."""

    def act(self, users, uniforms):
        result = super().act(users, uniforms)
        for u, a in zip(users.tolist(), result[0].tolist(), strict=True):
            self.counts[u][a] += 1
        return result


class SkewedDraws(Sound):
    """States the right probabilities and draws by others."""

    def act(self, users, uniforms):
        return super().act(users, uniforms**1.05)


class Single(Sound):
    """Float32 throughout."""

    def probabilities(self, users):
        return super().probabilities(users).astype(np.float32)


class StaleAfterLearn(Sound):
    """States the probabilities of before ``learn``, and draws by those after."""

    learns = "all users"

    def __init__(self):
        super().__init__()
        self.weights = np.ones(6)
        self.kept = None

    def probabilities(self, users):
        if self.kept is None:
            self.kept = self.weights / self.weights.sum()
        return np.tile(self.kept, (len(users), 1))

    def act(self, users, uniforms):
        p = np.tile(self.weights / self.weights.sum(), (len(users), 1))
        actions = np.minimum((p.cumsum(axis=1) <= uniforms[:, None]).sum(axis=1), 5)
        return actions, p[np.arange(len(users)), actions]

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.weights, actions, rewards)


class LearnsFromAll(Sound):
    """Learns from all users, as it should."""

    def __init__(self):
        super().__init__()
        self.weights = np.ones(6)

    def probabilities(self, users):
        p = super().probabilities(users) * self.weights
        return p / p.sum(axis=1, keepdims=True)

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.weights, actions, rewards)


class SaysOwnUser(LearnsFromAll):
    learns = "own user"


class OrderInTheBatch(Sound):
    """The first of a call gets something else."""

    def probabilities(self, users):
        p = super().probabilities(users)
        p[0] = np.roll(p[0], 1)
        return p


class WritesInItsInput(Sound):
    def act(self, users, uniforms):
        uniforms *= 0.999
        return super().act(users, uniforms)


class Nameless(Sound):
    def describe(self):
        return {"name": "another"}


class RemembersOtherObjects(Sound):
    """Objects share what they have seen."""

    seen = 0

    def reset(self, users):
        super().reset(users)
        type(self).seen += 1

    def probabilities(self, users):
        p = super().probabilities(users)
        return np.roll(p, self.seen % 6, axis=1)


def broken(kind):
    return {finding.rule: finding for finding in check_policy(kind)}


@pytest.mark.parametrize("kind", [Sound, Single, LearnsFromAll, lambda: EpsilonMixture(Sound(), 0.2)])
def test_a_sound_policy_keeps_every_rule(kind):
    assert check_policy(kind) == []


@pytest.mark.parametrize(
    ("kind", "rule", "words"),
    [
        (LyingPropensity, "propensities_agree", r"act\(\) states \.5 for item \d .* propensity_of\(\) says \.\d+"),
        (Unnormalised, "distributions", r"must sum to 1, a sum is 1\.01"),
        (BatchDependent, "one_user_at_a_time", r"alone, the (user|propensity) .* among others"),
        (OrderInTheBatch, "order_within_a_batch", "in another order, the user of"),
        (Counting, "acting_changes_nothing", r"the probability of item \d .* before act\(\), and .* after it"),
        (Forgetless, "reset_and_forget", r"for a new user, and .* after reset\(\)"),
        (Sharing, "fresh_shares_no_user", r"of the fresh\(\) copy, and .* after the first one's users viewed more"),
        (SkewedDraws, "frequencies_follow", r"act\(\) takes item \d .* decisions, probabilities\(\) says"),
        (StaleAfterLearn, "learns_then_agrees", r"after learn\(\), act\(\) states \.\d+ for item \d .* says \.\d+"),
        (SaysOwnUser, "learns_as_declared", r"before learn\(\) of other users, and .* after it"),
        (WritesInItsInput, "inputs_are_left_alone", r"act\(\) writes in the arrays"),
        (Nameless, "describes_itself", "names it 'another', its name is 'policy'"),
        (RemembersOtherObjects, "one_user_at_a_time", "among others"),
    ],
)
def test_an_unsound_one_breaks_the_rule_in_a_sentence_that_says_how(kind, rule, words):
    found = broken(kind)
    assert rule in found, found
    assert re.search(words, found[rule].why), found[rule].why
    assert found[rule].fix
    assert "Arrays are not equal" not in str(found[rule])


def test_the_door_is_asked_first():
    assert [f.rule for f in check_policy(lambda: object())] == ["door"]
    assert [f.rule for f in check_policy(lambda: 1 / 0)] == ["door"]

    class OnlyActs:
        n_items = 3

        def act(self, users, uniforms):
            return np.zeros(len(users), int), np.ones(len(users))

    (found,) = check_policy(OnlyActs)
    assert found.rule == "distributions"
    assert "has no method probabilities(users)" in found.why


def test_policies_that_can_only_draw():
    def zipf(user, generator, draws):
        return generator.choice(4, draws, p=[0.4, 0.3, 0.2, 0.1])

    assert check_policy(lambda: SampledPolicy(zipf, 4, 50)) == []
    own = np.random.default_rng(0)
    sample = lambda user, draws: own.choice(4, draws)  # noqa: E731
    assert check_policy(lambda: SampledPolicy(sample, 4, 50, own_generator=True)) == []


def test_the_class_of_tests_says_the_same():
    class Contract(PolicyContract):
        n_draws = 20_000

        def make_policy(self):
            return LyingPropensity()

    for rule in RULES:
        if rule in broken(LyingPropensity):
            with pytest.raises(
                AssertionError, match=r"return the probability|by the uniform|let its probabilities depend"
            ):
                Contract().test_rule(rule)
        elif rule != "frequencies_follow":
            Contract().test_rule(rule)


def test_contracts_run_under_strict_markers_and_without_pytest(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "from recsim_mnar.testing import PolicyContract\n"
        "from recsim_mnar.policy import registry\n"
        "from recsim_mnar.log import Log\n"
        "class TestIt(PolicyContract):\n"
        "    n_draws = 1000\n"
        "    def make_policy(self):\n"
        "        return registry.learner('random').fit(Log({}), n_items=4)\n"
    )
    announced = any(point.name == "recsim_mnar" for point in entry_points(group="pytest11"))
    plugin = [] if announced else ["-p", "recsim_mnar.testing.plugin"]  # a checkout may have been installed before it
    options = ["-q", "--strict-markers", *plugin, "-p", "no:cacheprovider", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", *options, "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from recsim_mnar.testing import check_policy\n"
        "print(check_policy(lambda: object())[0].rule)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "door\n"
