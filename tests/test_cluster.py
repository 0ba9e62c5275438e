"""Workers of a cluster: what is asked of them, whose bytes they run, and that they do what this process would do."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from recsim_mnar import cli
from recsim_mnar.cluster import connection, greeting, modules
from recsim_mnar.cluster.greeting import Greeting, RefusedError, answer, read_back
from recsim_mnar.cluster.modules import Source, install, sources_of
from recsim_mnar.runs.files import sweep
from recsim_mnar.simulation import executor as shards
from recsim_mnar.simulation.executor import Carried, run_in_order

WORLD = ("--world", "sessions", "--set", "n_items=20", "--set", "n_flips=5")
AGENT = """import numpy as np
from beside import chosen
class Agent:
    name = "mine"
    def __init__(self, n_items): self.n_items = n_items
    def act(self, users, uniforms): return np.full(len(users), chosen), np.ones(len(users))
    def probabilities(self, users): return np.eye(self.n_items)[np.full(len(users), chosen)]
"""
has_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask is not installed: pip install 'recsim-mnar[cluster]'"
)
has_counts = pytest.mark.skipif(
    importlib.util.find_spec("threadpoolctl") is None, reason="threadpoolctl is not installed, of the extra [cluster]"
)


def error_of(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main([str(each) for each in arguments])
    assert left.value.code == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("error: ")]
    return line


def run(*arguments):
    with pytest.raises(SystemExit) as left:
        cli.main([str(each) for each in arguments])
    assert left.value.code == 0


def bytes_of(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with an agent in two modules, from which commands are given; other tests meet none of them."""
    before, path = dict(sys.modules), list(sys.path)
    (tmp_path / "mine.py").write_text(AGENT)
    (tmp_path / "beside.py").write_text("chosen = 3\n")
    monkeypatch.chdir(tmp_path)
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path[:] = path
    for name in {*sys.modules} - {*before}:
        if name in ("mine", "beside", "inner") or name.startswith("inner."):
            del sys.modules[name]
    modules._FINDER.sources.clear()
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://localhost:1", False),
        ("tcp://[::1]:8786", False),
        ("tls://10.0.0.5:8786", False),
        ("tcp://10.0.0.5:8786", True),
        ("tcp://head.example.org:8786", True),
    ],
)
def test_a_plain_address_off_this_host_is_warned_of(address, plain):
    line = connection.check_address(address)
    assert (line is not None) == plain
    if plain:
        assert "tls://" in line
        assert "\n" not in line


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8786", "tcp://a", "tcp://a:0", "tcp://a:70000", "http://a:1", "tcp://:1"]
)
def test_what_is_no_address_is_refused_before_any_work(capsys, tmp_path, address):
    line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler", address,
                    "--out", tmp_path / "out")  # fmt: skip
    assert "tcp://HOST:PORT" in line
    assert not (tmp_path / "out").exists()


def test_workers_here_and_elsewhere_are_too_many(capsys, tmp_path):
    where = ("--scheduler", "tcp://127.0.0.1:1", "--workers", 2, "--out", tmp_path / "out")
    assert "one of the two" in error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, *where)


def test_without_the_extra_a_line_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "version", lambda name: (_ for _ in ()).throw(PackageNotFoundError(name)))
    line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler", "tcp://127.0.0.1:1",
                    "--out", tmp_path / "out")  # fmt: skip
    assert line.endswith("pip install 'recsim-mnar[cluster]'")
    assert not (tmp_path / "out").exists()


def test_a_module_travels_with_what_it_imports(mine):
    (mine / "inner").mkdir()
    (mine / "inner" / "deep.py").write_text("import mine\n")
    importlib.import_module("inner.deep")
    travel, installed = sources_of(["inner.deep", "numpy"])
    assert {*travel} == {"inner", "inner.deep", "mine", "beside"}
    assert travel["beside"].data == b"chosen = 3\n"
    assert travel["inner"].is_package
    assert {*installed} == {"numpy"}


def test_workers_run_the_bytes_that_were_sent(mine):
    """Not the file that lies there, nor one that was imported before; all that came together change together."""
    assert importlib.import_module("mine").chosen == 3
    sent, _ = sources_of(["mine"])
    changed = b"chosen = 5\n"
    sent["beside"] = Source(sent["beside"].path, changed, modules.hashlib.sha256(changed).hexdigest())
    assert install(sent)
    assert importlib.import_module("mine").chosen == 5
    assert not install(sent)
    assert importlib.import_module("mine").__spec__.loader.get_source("mine") == AGENT
    with pytest.raises(ValueError, match="another digest"):
        install({"beside": Source("beside.py", b"chosen = 7\n", sent["beside"].sha256)})


@pytest.fixture
def like_here(monkeypatch):
    """A greeting of this process, whose little work is done already."""
    monkeypatch.setattr(greeting, "golden", lambda blas: "bits")
    monkeypatch.setattr(greeting, "blas_threads", lambda wanted=None: 2 if wanted is None else wanted)
    monkeypatch.setattr(greeting, "_MET", greeting._Met())

    def made(**more):
        return Greeting(**{"versions": greeting.made_with(), "golden": "bits", "blas": 2, "process": "another", **more})

    return made


def test_a_worker_like_this_process_is_taken(like_here, tmp_path):
    with greeting.greeting(tmp_path) as asked:
        found = answer(asked)
        assert found.differences == []
        assert read_back(asked, found) == []
        assert len(list(tmp_path.iterdir())) == 1
        assert (tmp_path / asked.token[0]).stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_lost_worker_wrote_is_taken_away_in_the_end(like_here, tmp_path):
    others = tmp_path / ".token.0123456789abcdef.tmp"  # of another run in the same folder
    others.write_bytes(b"")
    with greeting.greeting(tmp_path) as asked:
        answer(asked)  # and nobody hears it
        assert len(list(tmp_path.iterdir())) == 3
    assert list(tmp_path.iterdir()) == [others]


def test_what_a_worker_writes_is_swept_as_temporary_files_are(like_here, tmp_path):
    with greeting.greeting(tmp_path) as asked:
        name, _ = answer(asked).written
        sweep(tmp_path)  # as a run does that is taken up after a kill
        assert not (tmp_path / name).exists()
        assert (tmp_path / asked.token[0]).exists(), "it is locked while its run lasts"


def test_each_difference_is_named(like_here, tmp_path, mine):
    def said(**more):
        found = answer(like_here(**more)).differences
        assert len(found) == 1
        return found[0]

    assert said(versions={**greeting.made_with(), "numpy": "9.9"}).endswith("here 9.9")
    assert said(golden="other bits").startswith("bits of the same work")
    assert said(installed={"numpy": "0" * 64}).startswith("module numpy sha256 ")
    assert said(installed={"nobody_has_this": "0" * 64}).startswith("module nobody_has_this sha256 none")
    assert "is not there" in said(files={"nothing.json": "0" * 64})
    assert said(files={"mine.py": "0" * 64}).startswith("file mine.py sha256 ")
    assert "is not shared" in said(folder=str(tmp_path / "elsewhere"), token=("token", "0"))
    assert "another one" in said(folder=str(mine), token=("mine.py", "0"))


def test_what_a_worker_wrote_must_be_here(like_here, tmp_path):
    asked = like_here(folder=str(tmp_path), token=("token", "0"), writes=True)
    assert "is not here" in read_back(asked, greeting.Answer("w", [], ("nothing", "0")))[0]
    (tmp_path / "other").write_bytes(b"")
    assert "is not what" in read_back(asked, greeting.Answer("w", [], ("other", "0")))[0]
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_joins_later_is_held_against_the_greeting_too(like_here):
    done = greeting.working(Carried(like_here()), functools.partial(max, 1, 2))
    assert done == 2
    with pytest.raises(RefusedError, match="differs: bits of the same work"):
        greeting.working(Carried(like_here(golden="other bits")), functools.partial(max, 1, 2))


def test_a_worker_does_not_run_two_modules_of_one_name(like_here, mine):
    importlib.import_module("mine")
    one, _ = sources_of(["mine"])
    other = {**one, "beside": Source("beside.py", b"chosen = 4\n", modules.hashlib.sha256(b"chosen = 4\n").hexdigest())}

    def within():
        assert importlib.import_module("mine").chosen == 3
        with pytest.raises(RefusedError, match="works for another run with another beside"):
            greeting.working(Carried(like_here(modules=other)), functools.partial(max, 1, 2))
        return 1

    greeting.working(Carried(like_here(modules=one)), within)
    greeting.working(Carried(like_here(modules=other)), functools.partial(max, 1, 2))
    assert importlib.import_module("mine").chosen == 4


def act_once(policy):
    return int(policy.act([0], [0.5])[0][0])


def test_objects_of_modules_that_changed_are_loaded_anew(like_here, mine):
    """The bytes of a fitted agent are the same when its module was edited; what it does is not."""
    importlib.import_module("mine")
    one, _ = sources_of(["mine"])
    other = {**one, "beside": Source("beside.py", b"chosen = 4\n", modules.hashlib.sha256(b"chosen = 4\n").hexdigest())}
    agent = Carried((act_once, (sys.modules["mine"].Agent(20),)))
    job = shards.pickle.dumps(functools.partial(shards._called, agent))
    found = []
    for each in (one, other):
        asked = Carried(like_here(modules=each))
        found.append(greeting.working(asked, lambda: shards.pickle.loads(job)()))
    assert found == [3, 4]


@has_counts
def test_the_little_work_is_the_same_here_each_time():
    threads = greeting.blas_threads()
    assert greeting.blas_threads(threads) == threads
    assert greeting.golden(threads) == greeting.golden.__wrapped__(threads)


@has_dask
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # Dask's own, as it closes
class TestInThisProcess:
    def test_nobody_answers(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.5)
        line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler",
                        "tcp://127.0.0.1:9", "--out", tmp_path / "out")  # fmt: skip
        assert "nobody answers" in line
        assert not (tmp_path / "out").exists()

    def test_an_executor_of_a_client_does_as_any_other(self, tmp_path, monkeypatch):
        from distributed import LocalCluster

        monkeypatch.setattr(connection, "_look_at_all", lambda client, asked: None)
        monkeypatch.setattr(greeting, "golden", lambda blas: "bits")
        quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": "CRITICAL"}
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=3, processes=False, protocol="tcp", host="127.0.0.1", **quiet
            ) as local,
            connection.cluster(local.scheduler_address, tmp_path) as executor,
        ):
            assert shards.executor_size(executor) == 6
            job = shards.carrying(pow, 2)
            found = list(run_in_order((functools.partial(job, k) for k in range(30)), executor))
            assert min(executor.peaks().values()) > 0
        assert found == [2**k for k in range(30)]
        del job, executor
        assert [path for path in tmp_path.iterdir() if "carried" not in path.name] == []


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A scheduler and two workers in processes of their own, and how each is asked for its number."""
    folder = tmp_path_factory.mktemp("dask")
    port = 20_000 + os.getpid() % 20_000
    address, here = f"tcp://127.0.0.1:{port}", ["--host", "127.0.0.1", "--no-dashboard"]
    dask = [sys.executable, "-m", "dask"]
    ways = [
        [*dask, "scheduler", *here, "--port", str(port)],
        [*dask, "worker", address, *here, "--nworkers", "2", "--nthreads", "1"],
    ]
    with (folder / "said.txt").open("w") as said:
        started = [subprocess.Popen(way, cwd=folder, stdout=said, stderr=said) for way in ways]
    yield address
    for process in reversed(started):
        process.terminate()
    for process in started:
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@has_dask
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # Dask's own, as it closes
class TestInProcessesOfTheirOwn:
    SIMULATE = ("simulate", *WORLD, "--train-users", 40, "--users", 1500, "--seed", 3, "--truth", "--quiet")

    def same(self, place, address, *words):
        run(*words, "--workers", 1, "--out", place / "here")
        run(*words, "--scheduler", address, "--out", place / "there")
        here, there = bytes_of(place / "here"), bytes_of(place / "there")
        assert {name for name in {*here, *there} if here.get(name) != there.get(name)} <= {"timings.json"}

    def test_a_log_a_replay_and_its_estimates(self, workers, tmp_path):
        self.same(tmp_path, workers, *self.SIMULATE, "--policy", "item-knn+epsilon=0.1")
        (tmp_path / "r").mkdir()
        replay = ("replay", tmp_path / "here", "--policy", "svd", "--train", tmp_path / "here", "--quiet")
        self.same(tmp_path / "r", workers, *replay)
        files = []
        for who in ((), ("--scheduler", workers)):
            files.append(tmp_path / f"{len(who)}.json")
            run("estimate", tmp_path / "r" / "here", "--target", "svd", "--json", files[-1], *who)
        assert files[0].read_bytes() == files[1].read_bytes()

    def test_an_agent_of_ones_own_and_an_edit_of_it(self, workers, mine):
        words = (*self.SIMULATE, "--policy", "mine:Agent")
        (mine / "first").mkdir()
        self.same(mine / "first", workers, *words)
        (mine / "beside.py").write_text("chosen = 4\n")
        for name in ("mine", "beside"):
            del sys.modules[name]
        importlib.invalidate_caches()
        (mine / "then").mkdir()
        self.same(mine / "then", workers, *words)
        part = Path("there") / "log" / "part-00000.parquet"
        assert (mine / "first" / part).read_bytes() != (mine / "then" / part).read_bytes()

    def test_a_worker_that_is_killed(self, workers, tmp_path):
        from distributed import Client

        def kill():
            with Client(workers, set_as_default=False) as client:
                time.sleep(1.0)
                os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        self.same(tmp_path, workers, *self.SIMULATE, "--policy", "item-knn+epsilon=0.1")
        killer.join()
