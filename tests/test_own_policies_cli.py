"""Policies of a user's own on the command line: what breaks the rules, or raises, is named in one line."""

import sys
from pathlib import Path

import pytest
from test_cli import SIZES, SMALL

from recsim_mnar.log import Log
from toys import refused
from twins.commands import fails, run

RAISING = """
import numpy as np
from recsim_mnar.policies.base import Policy

class Sound(Policy):
    def __init__(self, n_items):
        self.n_items = n_items
    def act(self, users, uniforms):
        return np.zeros(len(users), int), np.ones(len(users))
    def probabilities(self, users):
        return np.tile(np.arange(self.n_items) == 0, (len(users), 1)).astype(float)

class Acts(Sound):
    def act(self, users, uniforms):
        raise ValueError("boom\\nboom")

class Opens(Sound):
    def act(self, users, uniforms):
        open("/no/such/file")

class Observes(Sound):
    def observe(self, users, items):
        return {}[0]

class Begins(Sound):
    def __init__(self, n_items):
        raise RuntimeError
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Acts", "its act() raised ValueError: boom boom (raising.py, line "),
        ("Opens", "its act() raised FileNotFoundError: "),
        ("Observes", "its observe() raised KeyError: 0"),
        ("Begins", "its __init__() raised RuntimeError ("),
    ],
)
def test_an_exception_of_a_users_own_is_one_line(capsys, tmp_path, monkeypatch, name, words):
    (tmp_path / "raising.py").write_text(RAISING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "raising", raising=False)
    monkeypatch.delenv("RECSIM_MNAR_TRACEBACK", raising=False)
    command = ["simulate", "--world", "sessions", *SMALL, "--policy", f"raising:{name}", "--users", 30, "--out", "out"]
    line = fails(capsys, *command)
    assert line.startswith(f"error: policy 'raising:{name}': {words}")
    assert "RECSIM_MNAR_TRACEBACK=1 shows" in line
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("RECSIM_MNAR_TRACEBACK", "1")
    status, _, err = run(capsys, *command)
    assert status == 2
    assert "Traceback" in err
    assert err.splitlines()[-1] == line


BARE = """
import numpy as np

class Shows:
    learns = "nothing"
    def __init__(self, n_items, item=0):
        self.n_items, self.item = n_items, item
    def act(self, users, uniforms):
        return np.full(len(users), self.item), np.ones(len(users))
    def probabilities(self, users):
        return np.tile(np.arange(self.n_items) == self.item, (len(users), 1)).astype(float)

class MostViewed:
    def fit(self, log, *, n_items, seed=0):
        return Shows(n_items, int(np.argmax(np.bincount(log["item"][~log.is_bandit], minlength=n_items))))

class Judges:
    name, metrics, needs = "judges", ("shown",), frozenset()
    def judge(self, study):
        from recsim_mnar.protocols.records import Record
        said = {"world": study.world.name, "protocol": self.name, "level": 0.95, "n": 1, "seconds": 0.0}
        return [Record(agent=a, metric="shown", value=i, low=i, high=i, **said) for i, a in enumerate(study.policies)]
"""


def test_agents_and_protocols_that_derive_from_nothing(capsys, tmp_path, monkeypatch):
    """A policy, a learner, and a protocol next to the built-in ones: compare, simulate, and on two workers."""
    (tmp_path / "bare_agents.py").write_text(BARE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    agents = "bare_agents:Shows+item=2,bare_agents:MostViewed,bare_agents:MostViewed+epsilon=0.3,random"
    command = ["compare", "--preset", "quick", *SMALL, *SIZES, "--agents", agents, "--out"]
    status, out, err = run(capsys, *command, "one", "--protocols", "loocv,off_policy,ab_test,bare_agents:Judges")
    assert status == 0, err
    for agent in agents.split(","):
        assert agent in out
    assert "judges" in out
    learner = "bare_agents:MostViewed+epsilon=0.3"
    simulated = ["simulate", "--world", "sessions", *SMALL, "--users", 40, "--policy", learner]
    logs = []
    for workers in (1, 2):
        status, _, err = run(capsys, *simulated, "--workers", workers, "--out", f"log{workers}")
        assert status == 0, err
        logs.append(Log.read(f"log{workers}/log").digest())
    assert logs[0] == logs[1]


ODD = """
import sys
import numpy as np
from recsim_mnar.policies.base import Policy

class Exits(Policy):
    def __init__(self, n_items):
        self.n_items = n_items
    def act(self, users, uniforms):
        sys.exit(0)
    def probabilities(self, users):
        return np.eye(self.n_items)[self.act(users, None)[0]]

class Stops(Exits):
    def act(self, users, uniforms):
        raise StopIteration

class Raises(Exits):
    def act(self, users, uniforms):
        raise KeyError("nobody")

class Judge:
    metrics = ("mine",)
    def judge(self, study):
        raise IndexError("no such agent")

class Nothing(Judge):
    def judge(self, study):
        return None

class Numbers(Judge):
    def judge(self, study):
        return [1, 2]

def exits(rows):
    sys.exit(0)
"""


@pytest.fixture
def odd(tmp_path, monkeypatch):
    (tmp_path / "mine_odd.py").write_text(ODD)
    (tmp_path / "mine_exit.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("mine_odd", None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--agents", "mine_odd:Exits,random"), "policy 'mine_odd:Exits': its probabilities() raised SystemExit: 0"),
        (("--agents", "mine_odd:Stops,random"), "its probabilities() raised StopIteration"),
        (("--agents", "mine_exit:Any,random"), "importing 'mine_exit' raised SystemExit: 0"),
        (
            ("--agents", "random,popularity", "--protocols", "mine_odd:Judge"),
            "its judge() raised IndexError: no such agent",
        ),
        (("--agents", "random,popularity", "--protocols", "mine_odd:Nothing"), "must return a list of"),
        (("--agents", "random,popularity", "--protocols", "mine_odd:Numbers"), "got one with 1"),
    ],
)
def test_code_that_exits_or_judges_wrongly_is_one_line(capsys, odd, arguments, words):
    line = fails(capsys, "compare", "--preset", "quick", *SMALL, *arguments, "--out", odd / "out")
    assert words in line
    assert not (odd / "out").exists()


def test_where_users_view_nothing_the_error_says_what_works(capsys, monkeypatch, tmp_path):
    examples = Path(__file__).parents[1] / "examples"
    monkeypatch.setattr(sys, "path", [str(examples), *sys.path])
    compare = ("compare", "--world", "own_world:Cafe", *SIZES, "--out", tmp_path / "out")
    assert "or name agents that learn from rewards" in fails(capsys, *compare)
    assert "name other protocols" in fails(capsys, *compare, "--agents", "random,constant")


def test_an_estimator_that_exits_is_no_success(capsys, odd):
    (odd / "log.csv").write_text("propensity,reward,t\n" + ".5,1,.5\n.5,0,.5\n" * 100)
    line = fails(capsys, "estimate", "log.csv", "--target", "t", "--estimators", "mine_odd:exits")
    assert line.startswith(f"error: mine_odd.py, line {ODD.count(chr(10))}: raised SystemExit: 0")


def test_what_raises_in_another_process_of_a_study_is_named(odd):
    from recsim_mnar.studies import Design, run_study
    from recsim_mnar.studies.running import processes

    sizes = {"train_users": 20, "test_users": 20, "arm_users": 20, "truth_users": 20}
    world = {"world": "sessions", "preset": "quick", "agents": ["random", "mine_odd:Raises"], "options": sizes}
    sys.path.insert(0, str(odd))
    words = r"sessions-quick-000: policy 'mine_odd:Raises': its probabilities\(\) raised KeyError: 'nobody'"
    with processes(2) as executor, refused(words):
        run_study(Design([world], catalogues=1), executor=executor)


def test_protocols_that_derive_from_nothing_are_checked_too(capsys, odd):
    status, out, _ = run(capsys, "check", "mine_odd:Judge")
    assert status == 3
    assert "judges: it raised IndexError: no such agent" in out
