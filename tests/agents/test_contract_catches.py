"""The contract refuses policies that break it, each in one way."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest

from recsim_mnar.policies import EpsilonMixture, SampledPolicy
from recsim_mnar.testing import PolicyContract, check_policy
from recsim_mnar.testing.policies import RULES
from twins.cases import quick_first
from twins.odd_policies import PLANTED, LearnsFromAll, Right, Seeded, Single


@pytest.mark.parametrize(
    "kind", quick_first([Right, Single, LearnsFromAll, lambda: EpsilonMixture(Right(), 0.2), Seeded], 4)
)
def test_a_sound_policy_keeps_every_rule(kind):
    assert check_policy(kind) == []


def test_every_rule_of_a_policy_has_a_planted_fault():
    assert {planted.rule for planted in PLANTED} | {"door"} == set(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.kind.__name__)
def test_an_unsound_one_breaks_the_rule_in_a_sentence_that_says_how(planted):
    found = {finding.rule: finding for finding in check_policy(planted.kind)}
    assert planted.rule in found, found
    assert re.search(planted.found, found[planted.rule].why), found[planted.rule].why
    assert found[planted.rule].fix
    assert "Arrays are not equal" not in str(found[planted.rule])


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.kind.__name__)
def test_the_class_of_tests_fails_with_the_same_sentence(planted):
    class Contract(PolicyContract):
        n_draws = 40_000

        def make_policy(self):
            return planted.kind()

    statistical = planted.rule == "frequencies_follow"
    test = Contract().test_frequencies_follow_the_propensities if statistical else Contract().test_rule
    with pytest.raises(AssertionError, match=planted.found) as failed:
        test(*([] if statistical else [planted.rule]))
    assert RULES[planted.rule].fix in str(failed.value)


def test_a_policy_that_cannot_be_copied_deeply_is_checked_by_its_fresh():
    class Uncopied(Right):
        def __deepcopy__(self, memo):
            raise TypeError("a handle of a library")

        def fresh(self):
            return Uncopied(self.n_items)

    assert check_policy(Uncopied, n_draws=2_000) == []


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


@pytest.mark.slow
def test_contracts_run_under_strict_markers_and_without_pytest(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "from recsim_mnar.testing import PolicyContract\n"
        "from recsim_mnar.policies import registry\n"
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
