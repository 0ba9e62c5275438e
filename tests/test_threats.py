"""The lines of docs/threats.md: a folder, the current folder and a learner cannot harm who runs a command."""

import ast
import copy
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recsim_mnar
from recsim_mnar import plugins
from recsim_mnar.errors import UserError
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.storage import Stored
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.folder import LOCK, MANIFESTS, RunFolder
from recsim_mnar.runs.receipts import INDEX, UNFINISHED, Index, Receipt
from recsim_mnar.tables.files import objects_of, read_blocks, read_table
from recsim_mnar.worlds import make_world
from toys import refused, small_comparison
from twins.commands import run
from twins.logs import log_of


def test_every_line_of_the_page_names_tests_that_there_are():
    tests = Path(__file__).parent
    page = tests.parent / "docs" / "threats.md"
    if not page.exists():
        pytest.skip("the page is not where the tests are: they run against a wheel")
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ") and "shown by" not in line]
    for row in rows:
        names = re.findall(r"`((?:[\w/]+\.py)?(?:::)?test_\w+)`", row.rpartition(" | ")[2])
        assert names, row
        file = "test_threats.py"
        for name in names:
            module, _, test = name.rpartition("::")
            file = module or file
            assert f"\ndef {test}(" in (tests / file).read_text(), (file, test)


# ------------------------------------------------------------------------------------------------- a folder, its links


def _to(target):
    return lambda path, outside: path.symlink_to(outside / target)


def _hard(path, outside):
    os.link(outside / "precious", path)


STRANGE = {
    "symbolic link": _to("precious"),
    "hard link": _hard,
    "link to nothing": _to("new"),
    "link to a device": _to("/dev/zero"),
    "pipe": lambda path, outside: os.mkfifo(path),
    "folder": lambda path, outside: path.mkdir(),
}


@pytest.fixture
def outside(tmp_path):
    """A folder whose bytes must stay as they are."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "precious").write_text("precious")
    os.utime(place / "precious", (1.0, 1.0))
    yield place
    assert [(p.name, p.read_text(), p.stat().st_mtime) for p in place.iterdir()] == [("precious", "precious", 1.0)]


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "given"
    place.mkdir()
    return place


@pytest.mark.parametrize("kind", STRANGE)
def test_what_lies_where_a_lock_is_to_be_is_left_alone(kind, folder, outside):
    STRANGE[kind](folder / LOCK, outside)
    before = os.lstat(folder / LOCK)
    with refused(r"\.lock is a link, or no regular file: remove it"), RunFolder.fill(folder):
        pytest.fail("it is not ours")
    assert os.lstat(folder / LOCK) == before


@pytest.mark.parametrize("kind", ["symbolic link", "link to a device", "pipe", "link to nothing"])
@pytest.mark.parametrize("name", [UNFINISHED, INDEX, "simulation.json"])
def test_what_an_earlier_run_is_to_have_left_is_no_link_to_follow(name, kind, folder, outside):
    STRANGE[kind](folder / name, outside)
    began = time.monotonic()
    try:
        with RunFolder.fill(folder, resume=True) as into:
            into.begin("made")
    except UserError:
        pass
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", ["rows.csv", INDEX, UNFINISHED])
@pytest.mark.parametrize("target", ["precious", "nothing"])
def test_a_name_that_we_write_is_no_link(name, target, folder, outside):
    (folder / name).symlink_to(outside / target)
    with refused("is a symbolic link; nothing is written"), replacing(folder / name):
        pytest.fail("it is a link")


def test_a_hard_link_is_replaced_and_not_written_through(folder, outside):
    _hard(folder / "rows.csv", outside)
    with replacing(folder / "rows.csv") as temporary:
        assert stat.S_ISREG(os.lstat(temporary).st_mode)
        temporary.write_text("ours")
    assert (folder / "rows.csv").read_text() == "ours"


@pytest.mark.parametrize("name", ["sub/precious", "sub/../sub/precious", "deep/sub/precious", "../outside/precious"])
def test_a_receipt_removes_no_file_behind_a_link(name, folder, outside):
    (folder / "sub").symlink_to(outside)
    (folder / "deep").mkdir()
    (folder / "deep" / "sub").symlink_to(outside)
    (folder / MANIFESTS[0]).write_text("{}")
    Index({name: Receipt(name, 8, "0" * 64)}).write(folder, UNFINISHED)
    with RunFolder.fill(folder, resume=True) as into:
        if ".." in name:
            assert into.index.receipts == {}
            return
        with refused("sub is a symbolic link; nothing is written or removed behind it: remove"):
            into.drop(name)


def test_a_folder_that_we_name_is_no_link(folder, tmp_path):
    finished = tmp_path / "finished"
    with RunFolder.fill(finished) as into:
        (finished / "part-00000.csv").write_text("x")
        into.begin("made")
        into.record("part-00000.csv")
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    linked = folder / "log"
    linked.symlink_to(finished)
    words = "log is a symbolic link; nothing is written or removed behind it"
    with RunFolder.fill(folder, keep_others=True), refused(words), RunFolder.fill(linked, keep_others=True):
        pytest.fail("it is a link")
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path, folder):
    (tmp_path / "disk").symlink_to(folder)
    with RunFolder.fill(tmp_path / "disk") as into:
        into.begin("made")
    assert (folder / INDEX).is_file()


WRITERS = {
    "_start.py": {"os.open(os.devnull)"},
    "simulation/executor.py": {"path.write_bytes()"},  # in a folder of mkdtemp's
    "cli/output.py": {"open(os.open(self.path, os.O_WRONLY))", "os.open(self.path)"},  # a device, not truncated
    "cli/__init__.py": {"os.open(os.devnull)"},
    "cli/options.py": {"copy.open()"},  # standard input, into a folder of tempfile's
}
"""Calls that write by another name than that of a temporary file, which cannot have been prepared."""


def test_one_function_opens_what_we_write():
    root = Path(recsim_mnar.__file__).parent
    writers = {}
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "recsim_mnar/agents/" in path.as_posix() or not re.search(r"open\(|write_text|write_bytes|touch\(", text):
            continue
        calls = {_writes(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
        calls = {call for call in calls if call and ("temporary" not in call or call == "os.open(temporary)")}
        if calls:
            writers[path.relative_to(root).as_posix()] = calls
    assert writers == WRITERS


def _writes(call):
    """Return a call that opens a file by its name to write there, without its further arguments; "" for any other."""
    name = ast.unparse(call.func)
    arguments = [ast.unparse(argument) for argument in call.args]
    method = name.rpartition(".")[2]
    if method in ("write_text", "write_bytes", "touch"):
        return f"{name}()"
    if name == "os.open":
        return f"{name}({arguments[0]})"
    if method == "open" and {"'w'", "'wb'", "'a'", "'ab'", "'x'", "'xb'"} & set(arguments):
        return f"{name}({arguments[0]})" if name == "open" else f"{name}()"
    return ""


# ------------------------------------------------------------------------------------- the current folder, its modules

INSTALLED = ["html", "pandas", "pyarrow", "jinja2", "numba", "scipy", "agents"]
TRIED = ["numexpr", "bottleneck", "IPython", "yaml"]
OF_PYTHON = ["__future__", "pathlib", "typing", "signal", "multiprocessing", "socket", "pickle", "struct", "csv"]
SHADOWS = [*INSTALLED, *TRIED, *OF_PYTHON]
EVIL = "import os\nos.mkdir('ran-' + __name__)\nraise SystemExit('a file of the current folder runs')\n"
AGENT = """
import numpy as np
import neighbour
from recsim_mnar.policies import Policy

class First(Policy):
    def __init__(self, n_items):
        self.n_items = n_items
    def act(self, users, uniforms):
        return np.full(len(users), neighbour.FIRST), np.ones(len(users))
    def probabilities(self, users):
        return np.tile(np.arange(self.n_items) == neighbour.FIRST, (len(users), 1)).astype(float)
"""
CONSOLE = [str(Path(sys.executable).with_name("recsim-mnar"))]
MODULE = [sys.executable, "-m", "recsim_mnar"]
WORLD = ["--preset", "quick", "--protocols", "loocv", "--option", "train_users=60", "--option", "test_users=60",
         "--option", "truth_users=60"]  # fmt: skip
ESTIMATE = ["estimate", "rows.csv", "--target", "new", "--full-support"]
STUDY = ["compare", *WORLD, "--agents", "my_agent:First,random", "--catalogues", "2", "--workers", "2", "--out", "out"]


@pytest.fixture
def hostile(tmp_path):
    """A folder with modules that must not run, and a user's own agent that must."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(EVIL)
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "neighbour.py").write_text("FIRST = 1\n")
    rows = [f"{i},{i % 7},{i % 3 == 0:d},0.5,{0.25 + i % 2 / 2}" for i in range(400)]
    (tmp_path / "rows.csv").write_text("\n".join(["user_id,item_id,reward,propensity,new", *rows]) + "\n")
    return tmp_path


def _run(way, arguments, folder):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(
        [*way, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert list(folder.glob("ran-*")) == [], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "arguments"),
    [
        (CONSOLE, ["doctor", "rows.csv"]),
        (MODULE, ["doctor", "rows.csv"]),
        (CONSOLE, [*ESTIMATE, "--out", "page"]),
        (CONSOLE, ["agents"]),
        (CONSOLE, STUDY),
        (MODULE, STUDY),
        (CONSOLE, ["check", "my_agent:First"]),
    ],
    ids=lambda words: " ".join(Path(word).name for word in words[:3]),
)
def test_files_of_the_current_folder_run_where_they_are_named_and_nowhere_else(hostile, way, arguments):
    _run(way, arguments, hostile)
    if arguments is STUDY:
        tasks = [json.loads(path.read_text()) for path in sorted((hostile / "out" / "tasks").glob("*.json"))]
        assert [{r["agent"] for r in task["records"]} for task in tasks] == [{"my_agent:First", "random"}] * 2


@pytest.fixture
def looked_in(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins._OwnFolder, "path", str(tmp_path))
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def test_the_folder_comes_last_and_goes_again(looked_in):
    (looked_in / "place_of.py").write_text("import sys\nPATH = list(sys.path)\n")
    (looked_in / "colorsys.py").write_text(EVIL + "class Mine: ...\n")
    before = list(sys.path)
    assert plugins.imported("agent", "place_of:PATH") == [*before, str(looked_in)]
    assert sys.path == before
    with refused(r"it is /.*/colorsys\.py, which comes before your colorsys\.py; rename yours"):
        plugins.imported("agent", "colorsys:Mine")
    assert sys.path == before


def test_threads_that_look_at_the_same_time_do_not_end_each_other(looked_in, monkeypatch):
    """And a program that has the folder on its path keeps it where it was."""
    (looked_in / "slow_to_load.py").write_text("import time\ntime.sleep(.3)\nimport quick_to_load\nX = 1\n")
    (looked_in / "quick_to_load.py").write_text("X = 2\n")
    before = [sys.path[0], str(looked_in), *sys.path[1:]]
    monkeypatch.setattr(sys, "path", list(before))
    with plugins.own_folder():
        slow = threading.Thread(target=plugins.imported, args=("agent", "slow_to_load:X"))
        slow.start()
        assert sys.path == [*before, str(looked_in)]
    slow.join()
    assert sys.path == before
    assert sys.modules["slow_to_load"].X == 1


def test_without_the_command_line_the_programs_own_path_is_all(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins._OwnFolder, "path", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_nobody.py").write_text(EVIL)
    with refused("module 'of_nobody' cannot be imported"):
        plugins.imported("agent", "of_nobody:Mine")
    assert not list(tmp_path.glob("ran-*"))


# ------------------------------------------------------------------------------------------- a learner, what it writes


def _log():
    row = np.arange(24)
    shown = row % 2 > 0
    item = np.where(shown, -1, row % 5)
    action = np.where(shown, row % 5, -1)
    return log_of(row // 6, item, action, 0.5, np.where(shown, 1.0, np.nan)).with_column("hour", row % 3)


def _parquet(folder):
    _log().write(folder / "log")
    return Log.read(folder / "log")


def _text(folder):
    _log().write_csv(folder / "log.csv")
    return Log.read(folder / "log.csv")


LOGS = {
    "in memory": lambda folder: _log(),
    "of one file": _parquet,
    "of text": _text,
    "of pyarrow": lambda folder: Log.from_arrow(_log().to_arrow()),
    "selected": lambda folder: _log().select(slice(None)),
    "with a column": lambda folder: _log().with_column("hour", np.arange(24) % 3),
    "sent": lambda folder: pickle.loads(pickle.dumps(_log(), protocol=5)),
    "copied": lambda folder: copy.copy(_log()),
}
READ_ONLY = "read-only|assign to field|does not support item|has no attribute"
WRITES = {
    "an entry": lambda log, name: log[name].__setitem__(0, 3),
    "as bytes": lambda log, name: memoryview(log[name]).cast("B").__setitem__(0, 1),
    "another array": lambda log, name: log.columns.__setitem__(name, np.zeros(24)),
    "none": lambda log, name: log.columns.__delitem__(name),
    "update": lambda log, name: log.columns.update({name: np.zeros(24)}),
    "pop": lambda log, name: log.columns.pop(name),
    "or": lambda log, name: log.columns.__ior__({name: np.zeros(24)}),
    "clear": lambda log, name: log.columns.clear(),
    "other columns": lambda log, name: setattr(log, "columns", {}),
}


@pytest.mark.parametrize("made", LOGS)
def test_nobody_writes_in_a_log(made, tmp_path):
    log = LOGS[made](tmp_path)
    before = {name: values.copy() for name, values in log.columns.items()}
    for name in before:
        for write in WRITES.values():
            with pytest.raises((ValueError, TypeError, AttributeError), match=READ_ONLY):
                write(log, name)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # by NumPy, from 2.5 on
            log[name].shape = (4, 6)
            log[name].dtype = np.uint8
    assert list(log.columns) == list(before)
    for name, values in before.items():
        np.testing.assert_array_equal(log[name], values)
        assert log[name].dtype == values.dtype
        assert values.flags.writeable  # a copy is its owner's


def test_nobody_writes_in_exposures_and_ratings():
    propensities = np.array([[[0.25]]])
    cells = Exposures([0, 1], [0, 1], [0, 0], [True, False], [True, True], 2, 2, 1, propensities)
    stars = Ratings(np.arange(3), np.arange(3), np.ones(3), 3, 3)
    columns = ("user", "item", "time", "recommended", "purchased", "propensities", "_row_keys")
    arrays = [
        *(getattr(cells, name) for name in columns),
        cells.between(0, 1).item,
        cells.with_propensities(propensities).propensities,
        *(stars.users, stars.items, stars.values),
        stars.select(np.array([0])).values,
    ]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    propensities[:] = 0.5  # who made it still may, before it is handed on


class Writing(Learner):
    """Forgets, by a slip, that what it is given is not its own."""

    name = "writing"

    def __init__(self, copies=False):
        self.copies = copies

    def fit(self, log, *, n_items, seed=0):
        item = log["item"].copy() if self.copies else log["item"]
        item[item >= 0] = item[item >= 0][::-1].copy()
        return registry.learner("random").fit(log, n_items=n_items, seed=seed)


def _item_knn(**others):
    learners = {**others, "item-knn": registry.learner("item-knn"), "random": registry.learner("random")}
    records = small_comparison(learners, protocols=["loocv"], seed=3, truth_users=400).records
    return [(r.protocol, r.metric, r.value) for r in records if r.agent == "item-knn"]


def test_a_learner_that_writes_changes_no_other():
    """Were logs not read-only, item-knn's leave-one-out and its true rate would differ."""
    with pytest.raises(ValueError, match="read-only"):
        _item_knn(writing=Writing())
    assert _item_knn(writing=Writing(copies=True)) == _item_knn()


# --------------------------------------------------------------------------------- a log, a world file, a stored agent


def _log_with(path, **story):
    """Write a log whose metadata say how it was made."""
    provenance = {
        "world": {"name": "sessions", "params": {"n_items": 20, "n_flips": 5}},
        "seed": 1,
        "policy": {"name": "random"},
        "training": {"policy": "random", "n_users": 5, "seed": 2},
    }
    path.mkdir()
    Log(_log().columns, provenance | story).write(path / "log")
    return path / "log"


@pytest.mark.parametrize(
    "story",
    [
        {"policy": {"name": "evil:Agent"}},
        {"training": {"policy": "evil:Agent", "n_users": 5, "seed": 2}},
        {"world": {"name": "evil:World", "params": {}}},
        {"world": {"name": "evil.toml", "params": {}}},
    ],
    ids=str,
)
def test_what_a_log_says_of_itself_is_not_run(story, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins._OwnFolder, "path", None)
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "evil.toml").write_text('world = "evil:World"\n[params]\n')
    log = _log_with(tmp_path / "given", **story)
    status, _, err = run(capsys, "replay", log, "--policy", "random", "--out", "out.parquet")
    assert not list(tmp_path.glob("ran-*"))
    assert status == 0, err


def test_a_stored_agent_imports_no_module_of_its_readers(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_stored.py").write_text(EVIL)
    meta = {"format": 1, "class": "evil_stored:Agent", "n_items": 3, "name": "x", "parameters": {}}
    np.savez(tmp_path / "agent.npz", __meta__=np.array(json.dumps(meta)))
    with refused(r"agent\.npz holds a evil_stored:Agent, .*import its module first"):
        Stored.load(tmp_path / "agent.npz")
    assert not list(tmp_path.glob("ran-*"))


def test_a_world_file_runs_the_module_that_it_names(tmp_path, monkeypatch):
    """It does as a name of a world that is typed: a world file is to be read before it is used."""
    monkeypatch.setattr(plugins._OwnFolder, "path", str(tmp_path))
    (tmp_path / "named_by_a_file.py").write_text("X = 1\n")
    (tmp_path / "world.toml").write_text('world = "named_by_a_file:World"\n[params]\n')
    with refused("named_by_a_file has no 'World'"):
        make_world(str(tmp_path / "world.toml"))
    (tmp_path / "other.toml").write_text('world = "json:World"\n[params]\n')
    (tmp_path / "json.py").write_text(EVIL)
    with refused(r"it is .*, which comes before your json\.py; rename yours"):
        make_world(str(tmp_path / "other.toml"))
    assert not list(tmp_path.glob("ran-json"))


# --------------------------------------------------------------------------------------------- Parquet that says little


def _long_text(path, kind, rows=400, size=1 << 16, **how):
    """Write a Parquet file in which one long text stands in each row, and that does not say so."""
    text = ("x" * size) if kind is str else b"x" * size
    shared = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
    pq.write_table(pa.table({"reward": np.arange(rows) % 2.0, "user": shared}), path, store_schema=False, **how)


DELTA = {"use_dictionary": False, "column_encoding": {"user": "DELTA_BYTE_ARRAY"}}


@pytest.mark.parametrize(
    ("kind", "how"),
    [(str, {}), (bytes, {}), (str, {"row_group_size": 100}), (str, DELTA)],
    ids=["text", "bytes", "row groups", "delta"],
)
@pytest.mark.parametrize(
    "read", [read_table, lambda path: pa.concat_tables(read_blocks(path, 50))], ids=["whole", "blocks"]
)
def test_one_text_of_many_rows_is_in_memory_once(tmp_path, kind, how, read):
    _long_text(tmp_path / "a.parquet", kind, **how)
    users = read(tmp_path / "a.parquet")["user"]
    assert users.type.value_type == (pa.string() if kind is str else pa.binary())
    assert len(users) == 400
    words = {id(word) for chunk in users.chunks for word in chunk.dictionary.to_pylist()}
    assert len(words) < 400
    assert users.chunk(0).dictionary.nbytes < 2 << 16
    assert len({id(word) for word in objects_of(users.slice(0, 40))}) < 40
