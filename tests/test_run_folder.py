"""Folders that simulate fills: one writer, what is missing made again and no more, what was made otherwise refused."""

import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import recsim_mnar.simulation.run_folder as run_folder
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.runs import receipts
from recsim_mnar.runs.receipts import INDEX, Index
from recsim_mnar.simulation import items, simulate
from recsim_mnar.simulation.own_code import origin_named, origin_of
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.tables.parts import verify
from recsim_mnar.worlds import make_world
from toys import bytes_of, program, refused


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Five parts of a log of 150 users."""
    monkeypatch.setattr(run_folder, "SHARD_USERS", 32)
    monkeypatch.setattr(run_folder, "PART_SHARDS", 1)


@pytest.fixture
def world():
    return make_world("sessions", None, ["n_items=20", "n_flips=5"])


def uniform():
    return registry.uniform_policy(20)


def simulated(folder, world, n_users=150, seed=3, keep_truth=True, **more):
    return simulate_to(folder, world, uniform(), n_users, seed, keep_truth=keep_truth, **more)


def part(run, number):
    return run / "log" / f"part-{number:05d}.parquet"


@pytest.fixture
def run(tmp_path, world):
    assert simulated(tmp_path / "run", world).n_parts == 5
    return tmp_path / "run"


def test_an_index_over_all_is_written_last(run):
    assert set(Index.read(run).receipts) == {"simulation.json", "truth.parquet", "catalogue.npz", "log/index.json"}
    assert len(Index.read(run / "log").receipts) == 5
    assert not list(run.rglob(".*"))
    assert not verify(run).faults
    files = [path for path in run.iterdir() if path.is_file()]
    assert max(files, key=lambda path: path.stat().st_mtime_ns).name == INDEX


@pytest.mark.parametrize(
    ("damage", "made_again"),
    [
        (lambda run: part(run, 2).unlink(), {"part-00002.parquet"}),
        (lambda run: shutil.copy(part(run, 0), part(run, 1)), {"part-00001.parquet"}),
        (lambda run: (run / "catalogue.npz").unlink(), {"catalogue.npz"}),
        (lambda run: (run / "simulation.json").write_text('{"seed": 4, "half'), set()),
        (lambda run: (run / "simulation.json").unlink(), set()),
        (lambda run: (run / "index.json").unlink(), {"truth.parquet", "catalogue.npz"}),
    ],
)
def test_resume_makes_again_what_is_not_whole_and_nothing_else(run, world, damage, made_again):
    content = bytes_of(run)
    inodes = inodes_of(run)
    damage(run)
    assert verify(run).faults
    simulated(run, world, resume=True)
    assert bytes_of(run) == content
    # A file system may give the number of a removed file to the next one: what was touched is at most what had to be.
    now = inodes_of(run)
    assert {name for name in inodes if now[name] != inodes[name]} <= made_again


def inodes_of(run):
    """Return the numbers of a run's tables and arrays in the file system."""
    return {path.name: path.stat().st_ino for path in run.rglob("*") if path.suffix in (".parquet", ".npz")}


@pytest.mark.slow
def test_resume_after_a_kill_has_the_undisturbed_bytes_and_leaves_nothing(run, world, tmp_path):
    """Killed before some renames, the first and the last among them: what a kill can leave.

    One process imports the package and forks a child per kill, before any of its threads is started.
    """
    wanted = bytes_of(run)
    code = """
        import os, signal, sys
        from pathlib import Path
        import recsim_mnar.simulation.run_folder as run_folder
        sys.path.insert(0, sys.argv[2])
        from test_run_folder import uniform, simulated, make_world
        run_folder.SHARD_USERS, run_folder.PART_SHARDS = 32, 1
        replace = os.replace
        def dying(left):
            def replaced(*names):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                replace(*names)
            return replaced
        for n in sys.argv[3:]:
            child = os.fork()
            if child == 0:
                os.replace = dying([int(n)])
                world = make_world("sessions", None, ["n_items=20", "n_flips=5"])
                simulated(Path(sys.argv[1], n), world, resume=True)
                os._exit(0)
            print(n, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    # Parts, their truth, truth and catalogue, manifest and index of the parts, each with its receipt; two more folders'
    # receipts as they begin, and their indexes.
    n_renames = 2 * (5 + 5 + 2 + 1) + 1 + 2 + 2
    at = [str(n) for n in (0, 1, 2, 3, 6, n_renames - 3, n_renames - 2, n_renames - 1)]
    words = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), str(Path(__file__).parent), *at]
    died = subprocess.run(words, check=True, capture_output=True, text=True)
    assert died.stdout.splitlines() == [f"{n} {-signal.SIGKILL}" for n in at], died.stderr
    for out in (tmp_path / n for n in at):
        log = out / "log"
        if (log / "part-00000.parquet").exists() and not (log / "index.json").exists():  # some parts are lacking
            with refused(r"index.json is missing: the run goes on or was interrupted"):
                Log.read(out)
        simulated(out, world, resume=True)
        assert bytes_of(out) == wanted, out.name


def test_a_run_that_fails_before_its_first_part_leaves_nothing(tmp_path, world, monkeypatch):
    def fails(*_, **__):
        raise UserError("no")

    monkeypatch.setattr(items, "simulate_shard", fails)
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "a" / "b", tmp_path / "mine"):
        with refused("no"):
            simulated(folder, world)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


# --------------------------------------------------------------------------------------------------- made otherwise


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": 4}, "differs in seed"),
        ({"n_users": 151}, "differs in n_users"),
        ({"keep_truth": False}, "differs in truth"),
    ],
)
def test_other_parameters_are_refused_by_name(run, world, changed, words):
    content = bytes_of(run)
    with refused(words):
        simulated(run, world, resume=True, **changed)
    assert bytes_of(run) == content


def test_a_part_too_much_is_refused_by_name(run, world):
    shutil.copy(part(run, 0), part(run, 5))
    with refused(r"part-00005.parquet is not part of this run: move it away"):
        simulated(run, world, resume=True)


def test_other_versions_are_refused_by_name(run, world, monkeypatch):
    here = receipts.made_with()
    monkeypatch.setattr(receipts, "made_with", lambda: {**here, "numpy": "99.0"})
    with refused(rf"other versions: numpy \({here['numpy']} there, 99.0 here\)"):
        simulated(run, world, resume=True)


@pytest.mark.parametrize("text", [b"[1]", b"\xff", b"[" * 100_000], ids=["list", "bytes", "deep"])
def test_a_manifest_that_cannot_be_read_and_nothing_else_to_go_by_is_a_line(run, world, text):
    (run / INDEX).unlink()
    (run / "simulation.json").write_bytes(text)
    with refused(r"simulation.json is missing or damaged"):
        simulated(run, world, resume=True)


AGENT = """
import numpy as np
from helper_of_it import share
class Agent:
    name = "mine"
    def __init__(self, n_items): self.n_items = n_items
    def act(self, users, uniforms):
        return (uniforms * self.n_items).astype(int), np.full(len(users), share(self.n_items))
    def probabilities(self, users): return np.full((len(users), self.n_items), share(self.n_items))
"""
HELPER = "def share(n): return 1 / n\n"


@pytest.mark.slow
def test_an_edited_module_is_refused_by_name(tmp_path):
    words = "simulate --world sessions --set n_items=20 --set n_flips=5 --policy agent_of_mine:Agent --users 40"
    command = [*words.split(), "--train-users", "9", "--out", "out", "--resume"]
    files = {"agent_of_mine": AGENT, "helper_of_it": HELPER, "unrelated": "x = 1\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert program(*command, cwd=tmp_path).returncode == 0
    content = bytes_of(tmp_path / "out")
    (tmp_path / "unrelated.py").write_text("x = 2\n")
    for name in ("agent_of_mine", "helper_of_it"):
        (tmp_path / f"{name}.py").write_text(files[name] + "\n# edited\n")
        ended = program(*command, cwd=tmp_path)
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1
        assert f"differs in the code of {name}: name another folder" in ended.stderr
        (tmp_path / f"{name}.py").write_text(files[name])
    assert program(*command, cwd=tmp_path).returncode == 0  # whatever became of the unrelated one
    assert bytes_of(tmp_path / "out") == content


def test_what_was_fitted_belongs_to_the_origin(world):
    def origin_fitted_on(seed):
        log = simulate(world, uniform(), 20, seed)
        (digest,) = origin_of(world, registry.learner("item-knn+epsilon=0.1").fit(log, n_items=20, seed=0)).values()
        return digest

    assert origin_fitted_on(1) == origin_fitted_on(1) != origin_fitted_on(2)
    assert origin_of(world, uniform()) == {}


def test_files_of_parameters_belong_to_the_origin(tmp_path):
    file = tmp_path / "ratings.csv"
    params = {"ratings_file": str(file)}
    file.write_text("1")
    before = origin_named({"params": params, "agents": ["json:JSONDecoder"]})
    file.write_text("2")
    after = origin_named({"params": params, "agents": []})
    assert before.keys() == after.keys() == {f"file {file}"}
    assert before != after


# --------------------------------------------------------------------------------------------------------------- disks


@pytest.mark.slow
def test_a_file_that_cannot_grow_is_a_line_and_resume_goes_on(tmp_path):
    """A limit on the size of files stands for a full disk: the same error of the system at the same places."""
    words = "simulate --world sessions --set n_items=20 --set n_flips=5 --policy random --users 600 --truth --out"
    out = tmp_path / "out"
    for size in (0, 3_000, 40_000):
        limit = (size, resource.RLIM_INFINITY)
        resume = ["--resume"] * out.exists()
        ended = program(
            *words.split(),
            out,
            *resume,
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
        assert ended.returncode == 4, ended.stderr
        assert re.fullmatch(r"error: .*out.*File too large.*\n", ended.stderr)
    assert program(*words.split(), out, "--resume").returncode == 0
    assert not verify(out).faults
    assert program(*words.split(), tmp_path / "whole").returncode == 0
    assert bytes_of(out) == bytes_of(tmp_path / "whole")
