"""Wrong calls: one line that says what is wrong, where and what to do; status 2, and nothing is written."""

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recsim_mnar
from recsim_mnar import datasets, export
from recsim_mnar.errors import UserError
from recsim_mnar.kernels import checks
from recsim_mnar.log.table import Log
from recsim_mnar.policies.registry import learner
from recsim_mnar.simulation.executor import run_in_order
from recsim_mnar.simulation.run_folder import logging_policy
from recsim_mnar.tables import files
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams
from twins.cases import quick_first
from twins.commands import run, status_of
from twins.logs import log_of

GOOD = "propensity,reward,t\n" + ".5,1,.5\n.5,0,.5\n" * 20
SMALL = ("--preset", "quick", "--set", "n_items=20", "--set", "n_flips=5")
HOSTILE = (
    "<script>alert(1)</script>",
    "\u05e9\u05dc\u05d5\u05dd\u202eabc",
    "x\x1b[31mred\nline",
    "[bold]b[/bold] \"q\" 'a'",
    "n" * 300,
)
"""Markup, writing from right to left with a mark of direction, the sequence of a terminal and a line's end, quotes."""

MODULE = """
import numpy as np
class Mine:
    def __init__(self, n_items): self.n_items = n_items
    def act(self, users, uniforms): return np.zeros(len(users), int), np.ones(len(users))
def scores(rows): return rows.reward
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with logs, tables of every sort of fault and a module of the user's own."""
    folder = tmp_path_factory.mktemp("wrong")
    sessions = ("sessions", *SMALL[2:])
    for name, seed, world in (("sim", 5, sessions), ("train", 7, sessions), ("rated", 7, ["ratings"])):
        drawn = ("--policy", "random", "--users", 20, "--seed", seed, "--quiet")
        assert status_of("simulate", "--world", *world, *drawn, "--out", folder / name) == 0
    (folder / "two").mkdir()
    for name in ("sim", "train"):
        shutil.copy(folder / name / "log" / "part-00000.parquet", folder / "two" / f"{name}.parquet")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe.csv")
    rows = {
        "g.csv": GOOD,
        "none.csv": "",
        "one.csv": "propensity,reward,t\n.5,1,.5\n",
        "zeros.csv": "propensity,reward,t\n" + ".5,1,0\n" * 9,
        "percent.csv": "propensity,reward,t\n" + "13.9,1,.5\n42,0,.5\n" * 5,
        "tiny.csv": GOOD + "1e-320,1,.5\n",
        "large.csv": GOOD + ".5,1e308,.5\n",
        "twice.csv": "propensity,reward,t,t\n.5,1,.5,.5\n",
        "typo.csv": "propensty,reward,t\n.5,1,.5\n",
        "quote.csv": GOOD + '".5,1,.5\n',
        "nothing.csv": "foo,bar\n1,2\n",
        "one_user.csv": "user_id,item_id,timestamp\n" + "".join(f"u,i{i},{i}\n" for i in range(9)),
        "mine.csv": "user_id,item_id,timestamp\n" + "".join(f"u{i % 9},i{i * i % 7},{i}\n" for i in range(60)),
        "short.csv": "user,item,rating\n1,1\n",
        "small.csv": "propensity,reward,t\n" + ".5,1,5e-324\n" * 9,
        "long.csv": "propensity,reward,t,note\n.5,1,.5," + "x" * (40 << 20) + "\n.5,1,.5,b\n",
        "deep.toml": f"x = {'[' * 5000}{']' * 5000}\n",
        "arrays.toml": 'world = "sessions"\narrays = 3\n[params]\n',
        "member.toml": 'world = "sessions"\nensemble = [3]\n[params]\n',
        "my_module.py": MODULE,
        "sheet.xlsx": "PK",
        "ending": GOOD,
    }
    for name, text in rows.items():
        (folder / name).write_text(text)
    nested = {"propensity": [0.5] * 4, "reward": [[1.0]] * 4, "t": [0.5] * 4}
    pq.write_table(pa.table(nested), folder / "nested.parquet")
    shutil.copy(folder / "nested.parquet", folder / "table.csv")
    return folder


COMPARE, SIMULATE = ("compare", *SMALL), ("simulate", "--world", "sessions", "--policy", "random")
USERS = (*SIMULATE, "--users", "5")
MINE = ("compare", "--interactions", "mine.csv")
RATED = ("simulate", "--world", "ratings", "--policy", "random", "--users", "1", "--set")


def on(file, *more):
    return ("estimate", file, "--target", "t", *more)


CALLS = [
    # What there is nothing to judge or to learn from.
    ((*COMPARE, "--agents", "random"), "one agent leaves nothing to choose"),
    (("compare", "--preset", "quick", "--set", "n_items=1", "--set", "n_flips=0"), "one item leaves nothing to choose"),
    ((*MINE, "--agents", "random"), "name two or more with --agents"),
    ((*MINE, "--agents", "mf-ips,random"), "which a file of interactions (users, items and times) does not hold"),
    ((*COMPARE, "--agents", "ulbpr,random"), "which the training log of the sessions world does not hold"),
    (("replay", "sim", "--policy", "svd"), "svd is fitted on a log: name one with --train"),
    (("replay", "sim", "--policy", "ulbpr", "--train", "train"), "agent 'ulbpr' learns from"),
    (("replay", "rated", "--policy", "svd", "--train", "sim"), "its world is sessions, that of rated is ratings"),
    # Names.
    ((*COMPARE, "--agents", "svd+rank=0,random"), "agent 'svd+rank=0': rank must be"),
    (on("g.csv", "--estimators", "my_module"), "unknown estimator 'my_module'"),
    (on("g.csv", "--estimators", ""), "--estimators: name at least one"),
    (("compare", "--world", "ratings", "--preset", "recogym-v1"), "(it is of the sessions world)"),
    (("compare", "--option", "estimators=x"), "unknown estimator 'x'"),
    # Numbers.
    ((*SIMULATE, "--users", "1e9"), "must be written in digits: 1000000000"),
    ((*SIMULATE, "--users", "ten"), "'ten' is not a whole number, such as 2000"),
    ((*COMPARE, "--option", "level=95"), "this looks like percent: 0.95"),
    (on("g.csv", "--level", "nan"), "'nan' is not a number, such as 0.95"),
    (on("g.csv", "--level", "0,95"), "write a decimal point"),
    (("replay", "sim", "--policy", "random", "--seed", "-1"), "--seed must be in [0, 2**64)"),
    (("plan",), "name one of ab"),
    (("estimate",), "`recsim-mnar estimate --help` shows how"),
    # Files.
    (on("none.csv"), "none.csv is empty"),
    (on("one.csv"), "an interval needs two or more"),
    (on("zeros.csv"), "zeros.csv: t: the probability is 0 in every row"),
    (on("percent.csv"), "these look like percent: divide them by 100"),
    (on("tiny.csv"), "tiny.csv: column 'propensity', row 40"),
    (on("large.csv"), "too large; use larger units"),
    (on("twice.csv"), "'t' appears twice in the header"),
    (on("typo.csv"), "did you mean 'propensty'? name it with --propensity-column"),
    (on("quote.csv"), "a quotation mark may be open there"),
    (on("table.csv"), "is not text but Parquet"),
    (on("nested.parquet"), "(row 1: [1.0]): write one number per row"),
    (on("sheet.xlsx"), ".feather files (text may be compressed: .gz, .bz2, .zst), not .xlsx"),
    (on("ending"), "is neither Parquet nor CSV: tables are read from .csv"),
    (on("empty"), "holds no Parquet or CSV parts"),
    (on("two"), "two holds parts of two runs, sim.parquet and train.parquet"),
    (on("g.csv", "--user-column", "reward"), "column 'reward' is taken as the user"),
    (on("g.csv", "--json", "no/such/x.json"), "is not a folder. Create it"),
    (on("g.csv", "--json", "g.csv"), "would replace what is read"),
    (on("g.csv", "--json", "empty"), "is a folder: name a file"),
    (("compare", "--interactions", "nothing.csv"), "name it with --user-column"),
    (("compare", "--interactions", "one_user.csv"), "are of one user"),
    ((*RATED, "ratings_file=short.csv"), "not a table of user, item, rating"),
    ((*USERS, "--out", "x" * 5000), "the path is too long"),
    ((*USERS, "--out", "new/" + "z" * 300), "a name has at most"),
    ((*USERS, "--out", os.fsdecode(b"\xff\xfe")), "is not UTF-8"),
    (on(""), "LOG: the path is empty"),
    ((*USERS, "--out", ""), "--out: the path is empty"),
    (("compare", "--protocols="), "--protocols: name at least one"),
    ((*USERS, "--out", "two"), "not empty"),
    ((*USERS, "--out", "g.csv"), "is a file: name a folder"),
    ((*USERS, "--out", "g.csv/x"), "cannot be made"),
    # One column for two things.
    (on("g.csv", "--reward-column", "t"), "'t' is named as a policy's probability and as reward"),
    (on("g.csv", "--estimators", "dr"), "'dr' needs a reward model: add --fit-reward-model"),
    (("estimate", "g.csv", "--target", "reward"), "'reward' is taken as the target: name another one"),
    # What can be known before anything is read.
    (("calibrate", "sim", "--items", "1", "--out", "w.toml"), "--items must be a whole number of at least 2, got 1"),
    (("calibrate", "sim", "--ensemble", "-1", "--out", "w.toml"), "ensemble must be"),
    (("calibrate", "sim", "--assume", "nosuch=1", "--out", "w.toml"), "unknown parameter 'nosuch'"),
    (("validate", "sessions", "sim", "--users", "0"), "--users must be a whole number of at least 20"),
    (("advise", "sim", "--agents", "random,popularity"), "type recsim-mnar estimate LOG --agents"),
    (("validate", "sessions", "sim", "--logging", "nosuch"), "unknown agent 'nosuch'"),
    # Files that are none, too deep, or too long.
    (on("pipe.csv"), "is no regular file"),
    (on("small.csv"), "no weight is above"),
    (on("long.csv"), "a row is longer than 16 MB"),
    (("simulate", "--world", "deep.toml", "--policy", "random", "--users", "5"), "TOML file: it is nested too deep"),
    (("simulate", "--world", "arrays.toml", "--policy", "random", "--users", "5"), "arrays must be a table by name"),
    (("simulate", "--world", "member.toml#1", "--policy", "random", "--users", "5"), "member 1 must be a table"),
    # Options that mean nothing here, or too much.
    (("compare", "--agents", "svd,svd"), "twice"),
    (("compare", "--set", "p_leave_organic=0.9"), "staying"),
    (("compare", "--agnts", "svd"), "--agents"),
    ((*SIMULATE, "--users", "0"), "--users"),
    ((*SIMULATE, "--users", str(10**20)), "--users must be at most"),
    (("compare", "--user-column", "customer"), "--user-column needs --interactions"),
    (("compare", "--interactions", "f.csv", "--protocols", "off_policy"), "needs propensities"),
    (("compare", "--test-share", "0.5"), "write --option test_share=VALUE"),
    (("simulate", "--world", "campaigns", "--policy", "random", "--users", "5", "--workers", "0"), "--workers"),
    (("simulate", "--world", "ratings", "--policy", "house", "--users", "5"), "has no recommender of its own"),
    (("simulate", "--world", "ratings", "--policy", "random", "--users", "5", "--set", "ratings_file=/"), "a folder"),
    (("simulate", "--world", "sessions", "--users", "5", "--train-users", "20", "--policy", "mf-ips-ratings"),
     "agent 'mf-ips-ratings' learns from revealed ratings"),
    # Names that would write into the terminal.
    *(((*COMPARE, "--agents", f"{name},random"), "unknown agent") for name in HOSTILE),
    (("compare", "--world", HOSTILE[2]), "unknown world 'x\\x1b[31mred\\nline'"),
    (on(HOSTILE[2] + ".csv"), "x\\x1b[31mred\\nline.csv does not exist"),
]  # fmt: skip
OUTPUTS = {"compare": "out", "simulate": "out", "study": "out", "replay": "out.parquet"}


def contents(folder):
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize(("arguments", "words"), CALLS, ids=[str(place) for place in range(len(CALLS))])
def test_a_wrong_call_is_one_line_and_nothing_is_written(capsys, monkeypatch, place, arguments, words):
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = contents(place)
    if "--out" not in arguments and arguments[0] in OUTPUTS:
        arguments = (*arguments, "--out", OUTPUTS[arguments[0]])
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, ""), err
    *notes, last = err.splitlines()
    assert last.startswith("error: ")
    assert words in last
    assert len(last) < 1000
    assert not any(note.startswith("error: ") for note in notes)
    if "appears twice" in last:  # it is noticed before rows are read
        assert not any(note.startswith("read ") for note in notes)
    assert "recursion" not in err
    assert "Traceback" not in err
    assert all(line.isprintable() for line in err.splitlines())
    assert contents(place) == before


WORLD = recsim_mnar.make_world("sessions", "quick")
LOG = log_of([0], action=0, propensity=0.5, reward=1.0)
PYTHON = {
    "Log.read of nothing": (lambda: Log.read(""), "not empty, got ''"),
    "make_world": (lambda: recsim_mnar.make_world(None), "world's name must be a text"),
    "learner": (lambda: learner(None), "agent's name must be a text"),
    "executor": (lambda: next(run_in_order([], 3)), "executor must be one of concurrent.futures"),
    "a path for a log": (lambda: recsim_mnar.replay("sim", None), "log must be a Log (read_log reads one), got 'sim'"),
    "users to validate": (
        lambda: recsim_mnar.validate(learner, Log({}), most_users=0),
        "most_users must be a whole number of at least 20",
    ),
    "a name for a world": (lambda: recsim_mnar.compare("sessions", {}), "world must be a World"),
    "a path for interactions": (lambda: recsim_mnar.compare_interactions("x", {}), "data must be Interactions"),
    "settings as a text": (lambda: recsim_mnar.make_world("sessions", None, "a=3"), "settings must be a dict"),
    "no worlds": (lambda: recsim_mnar.run_study(None), "design must be a table by name"),
    "a log that is none": (lambda: recsim_mnar.calibrate(3), "log must be a Log or a path"),
    "a protocol": (lambda: recsim_mnar.compare(WORLD, {}, protocols="loocv"), "protocols must be a list, got 'loocv'"),
    "a class to validate": (lambda: recsim_mnar.validate(type(WORLD), LOG), "make an object of it"),
    "a column without a name": (lambda: LOG.with_column("", np.ones(1)), "a column's name is empty"),
    "one log": (lambda: Log.concat(LOG), "logs must be a list of logs"),
    **{
        load.__name__: (lambda load=load: load(3), "a path must be a text or a Path")
        for load in (datasets.read_ratings, datasets.load_coat, datasets.load_ml100k, datasets.load_yahoo_r3)
    },
    "a path for decisions": (lambda: export.to_obp("path"), "decisions must be Decisions"),
    "feedback": (lambda: export.from_obp("x"), "feedback must be a table by name"),
    "examples": (lambda: export.from_vw(3, 2), "lines must be lines of text"),
    "a dataset": (lambda: export.from_minari("x", 2), "dataset must be a MinariDataset"),
    "actions as words": (lambda: export.from_arrays(2, [[0]], ["a"], [1], [0.5]), "action must hold whole numbers"),
    "a context too short": (lambda: export.from_arrays(2, [0], [0, 1], [1, 1], [1, 1]), "context must have one row"),
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_wrong_call_from_python_is_one_line(name):
    call, words = PYTHON[name]
    with pytest.raises(recsim_mnar.UserError, match=re.escape(words)):
        call()


def test_a_seed_of_a_log_that_is_out_of_range_is_named(place, tmp_path, capsys):
    log = Log.read(place / "sim")
    Log(dict(log.columns), {**log.provenance, "seed": "x"}).write(tmp_path / "log")
    assert status_of("replay", tmp_path / "log", "--policy", "random", "--out", tmp_path / "out.parquet") == 0
    note = f"{tmp_path / 'log'}: its metadata give the seed 'x', which is none (0 to 2**64 - 1)"
    assert note in capsys.readouterr().err


@pytest.mark.parametrize("seed", [-1, "x", [], 1e308, 2**64])
def test_a_seed_that_is_none_in_a_log_makes_no_policy(place, seed):
    log = Log.read(place / "sim")
    assert logging_policy(log.provenance) is not None
    assert logging_policy({**log.provenance, "seed": seed}) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "status", "error"),
    [
        ("estimate g.csv --target t --json found.json >&- 2>&-", 0, ""),
        ("estimate g.csv --target t --json found.json <&- >&- 2>&-", 0, ""),
        ("estimate nosuch.csv --target t >&-", 2, "error: nosuch.csv does not exist"),
        ("estimate g.csv --target t >/dev/full", 4, "error: standard output: No space left on device"),
        ("estimate nosuch.csv --target t 2>/dev/full", 2, ""),
    ],
)
def test_streams_that_are_closed_or_full(place, tmp_path, shell, status, error):
    shutil.copy(place / "g.csv", tmp_path)
    command = f"{shlex.quote(sys.executable)} -m recsim_mnar {shell}"
    ended = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert ended.stderr.startswith(error)
    assert ended.stderr.count("\n") == bool(error)
    assert (tmp_path / "found.json").exists() == ("found.json" in shell)


@pytest.mark.parametrize("megabytes", quick_first([300, 600, 900]))
def test_too_little_memory_for_the_libraries_is_a_line(place, megabytes):
    words = f"ulimit -v {megabytes}000; exec {shlex.quote(sys.executable)} -m recsim_mnar estimate g.csv --target t"
    ended = subprocess.run(["/bin/sh", "-c", words], cwd=place, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (4, "")
    assert re.fullmatch(r"error: this process may have .* raise the limit \[memory\]\n", ended.stderr)


@pytest.mark.parametrize(
    "read",
    [
        lambda folder, digits: make_world(str(folder / "w.toml")),
        lambda folder, digits: SessionsParams.from_toml(f"n_items = {digits}"),
        lambda folder, digits: SessionsParams.from_json(f'{{"n_items": {digits}}}'),
    ],
    ids=["world file", "TOML", "JSON"],
)
def test_a_number_of_five_thousand_digits_is_a_wrong_file(tmp_path, read):
    """Python refuses to read it with an error that is not of the format."""
    digits = "9" * 5000
    (tmp_path / "w.toml").write_text(f'world = "sessions"\n[params]\nn_items = {digits}\n')
    with pytest.raises(UserError):
        read(tmp_path, digits)


def test_want_of_memory_is_no_damaged_file():
    with pytest.raises(MemoryError), files._readable(Path("part.parquet")):
        raise OSError(f"Memory mapping file failed: {os.strerror(errno.ENOMEM)}")
    with pytest.raises(UserError), files._readable(Path("part.parquet")):
        raise OSError("Couldn't deserialize thrift")


@pytest.mark.parametrize(
    ("mean", "target", "texts"),
    [
        (1.0004, 1.0, ("1.0004", "1")),
        (2.378, 1.0, ("2.38", "1")),
    ],
)
def test_two_numbers_are_told_apart(mean, target, texts):
    """ "The mean weight is 1 and should be 1" says nothing."""
    assert checks.told_apart(mean, target) == texts


@pytest.mark.parametrize("value", [1 / 600, 0.1, 0.9999999, 3e-7])
def test_a_bound_is_rounded_down(value):
    """To four digits: what is pasted back contradicts no row."""
    assert value * (1 - 1e-3) < float(checks.rounded_down(value)) <= value
