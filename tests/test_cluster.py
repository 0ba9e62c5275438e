"""Workers of a cluster: what is asked of them, whose bytes they run, and that they do what this process would do."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from recsim_mnar import cli, cluster
from recsim_mnar.cluster import RefusedError, meet
from recsim_mnar.errors import UserError
from recsim_mnar.simulation import executor as shards
from recsim_mnar.simulation.executor import Carried, run_in_order
from twins.commands import status_of

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


def error_of(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main([str(each) for each in arguments])
    assert left.value.code == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("error: ")]
    return line


def run(*arguments):
    assert status_of(*arguments) == 0


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
    line = cluster.check_address(address)
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


@pytest.mark.parametrize(
    "address",
    ["tcp://me:secret@a:1", "tcp://me:sec/secret@a:1", "tcp://a:1?token=secret", "tls://a:1/secret", "secret"],
)
def test_a_password_in_an_address_is_not_shown(address):
    with pytest.raises(UserError, match=r"tls://HOST:PORT, and nothing else") as refused:
        cluster.check_address(address)
    assert "secret" not in str(refused.value)


def test_workers_here_and_elsewhere_are_too_many(capsys, tmp_path):
    where = ("--scheduler", "tcp://127.0.0.1:1", "--workers", 2, "--out", tmp_path / "out")
    assert "one of the two" in error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, *where)


@has_dask
def test_without_the_extra_a_line_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler", "tcp://127.0.0.1:1",
                    "--out", tmp_path / "out")  # fmt: skip
    assert line.endswith("needs distributed, which is not installed: pip install 'recsim-mnar[cluster]'")
    assert not (tmp_path / "out").exists()


class Worker:
    """What is asked of Dask's worker here, and of a client that uploads to it alone."""

    address = "tcp://there:1"

    def __init__(self, folder):
        self.local_directory = str(folder)

    def upload_file(self, path, load):
        assert not load, "Dask would load them in another order than they import each other"
        shutil.copy(path, self.local_directory)


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker without any task yet."""
    pytest.importorskip("distributed")
    pytest.importorskip("threadpoolctl")
    folder = tmp_path / "worker"
    folder.mkdir()
    monkeypatch.setattr(cluster, "_AT_WORK", cluster._AtWork())
    monkeypatch.setattr("distributed.get_worker", lambda: made)
    made = Worker(folder)
    return made


def asked(worker, modules=(), files=None, **more):
    """What another process, like this one, asks of a worker."""
    return dataclasses.replace(cluster._uploaded(worker, modules, files or {}), **{"process": "another", **more})


def test_a_module_travels_with_what_it_imports(worker, mine):
    (mine / "inner").mkdir()
    (mine / "inner" / "deep.py").write_text("import mine\n")
    importlib.import_module("inner.deep")
    found = asked(worker, ["inner.deep", "numpy"])
    assert {*found.sent} == {"inner", "inner.deep", "mine", "beside"}
    assert "module numpy" in found.like
    with zipfile.ZipFile(Path(worker.local_directory) / f"{found.archive}.zip") as archive:
        assert archive.read("beside.py") == b"chosen = 3\n"
        assert {*archive.namelist()} == {"inner/__init__.py", "inner/deep.py", "mine.py", "beside.py"}
    assert meet(found, worker) == ""
    assert importlib.import_module("inner.deep").__file__.startswith(worker.local_directory)


def changed(worker, mine, modules=("mine",)):
    """What is asked once ``beside`` was edited, and as before."""
    importlib.import_module("mine")
    one = asked(worker, modules)
    (mine / "beside.py").write_text("chosen = 4\n")
    other = asked(worker, modules, process="a third")
    (mine / "beside.py").write_text("chosen = 3\n")
    return one, other


def test_workers_run_the_bytes_that_were_sent(worker, mine):
    """Not the file that is there, nor one that was imported before; all that came together change together."""
    assert importlib.import_module("mine").chosen == 3
    one, other = changed(worker, mine)
    assert meet(other, worker) == ""
    assert importlib.import_module("mine").chosen == 4
    assert (mine / "beside.py").read_text() == "chosen = 3\n"
    kept = sys.modules["mine"]
    assert meet(dataclasses.replace(other, process="a fourth"), worker) == ""
    assert sys.modules["mine"] is kept, "the same bytes are not loaded again"
    (Path(worker.local_directory) / f"{one.archive}.zip").write_bytes(b"others")
    with pytest.raises(ValueError, match="another digest"):
        meet(one, worker)


def test_a_worker_like_this_process_is_taken(worker, mine):
    found = asked(worker, ["numpy"], {"mine.py": cluster.file_digest(mine / "mine.py")})
    assert meet(found, worker) == ""
    assert {"processor", "linear algebra", "sources", "numpy", "machine", "module numpy", "file mine.py"} <= {
        *found.like
    }


@pytest.mark.parametrize(
    ("name", "there", "said"),
    [
        ("numpy", "9.9", "numpy .*, here 9.9"),
        ("sources", "0" * 16, "sources .*, here 0000"),
        ("processor", "z80", "processor .*, here z80"),
        ("linear algebra", "mkl 1", "linear algebra .*, here mkl 1"),
        ("module numpy", "0" * 16, "module numpy [0-9a-f]{16}, here 0000"),
        ("module nobody_has_this", "0" * 16, "module nobody_has_this none, here 0000"),
        ("file nothing.json", "0" * 16, "file nothing.json is not there .*, here 0000"),
        ("file mine.py", "0" * 16, "file mine.py [0-9a-f]{16}, here 0000"),
    ],
)
def test_each_difference_is_named(worker, mine, name, there, said):
    like = asked(worker).like | {name: there}
    with pytest.raises(RefusedError, match=f"^worker tcp://there:1 differs: {said}[^;]*$"):  # one that joins later
        cluster.working(asked(worker, like=like), functools.partial(max, 1, 2))
    assert cluster.working(asked(worker), functools.partial(max, 1, 2)) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PackageNotFoundError("recsim-mnar"), "differs: recsim-mnar not installed, here 1"),
        ("0", "differs: recsim-mnar 0, here 1"),
        (ImportError("no\nlibrary"), "cannot load recsim-mnar: ImportError: no library"),
        (TimeoutError(), "does not answer: wait until it is free and has loaded it, or end it"),
    ],
)
def test_an_answer_is_a_line(answer, said):
    answers = {"a": "1", "b": answer, "c": answer}
    with pytest.raises(RefusedError) as refused:
        cluster._fit(answers, "recsim-mnar {}, here 1", "1", print)
    assert str(refused.value) == f"worker b {said} (and 1 more of 3 workers)"
    assert cluster._fit({"a": "1"}, "recsim-mnar {}, here 1", "1", print) == ["a"]


def test_a_worker_that_ends_while_it_is_asked_is_named():
    """It may be the asking that ends it: a package that cannot be loaded; others go on."""

    def run(function, *args, workers, **how):
        if workers == ["lost"]:
            raise OSError
        return {workers[0]: function(*args)}

    client, said = types.SimpleNamespace(run=run), []
    answers = cluster._answers(client, ["lost", "kept"], 1.0, max, 1, 2)
    assert cluster._fit(answers, "{}", 2, said.append) == ["kept"]
    assert [line.startswith("worker lost ended when it was asked") for line in said] == [True]
    with pytest.raises(cluster.LostError, match=r"^worker lost ended when it was asked"):
        cluster._fit({"lost": OSError()}, "{}", 2, said.append)


def test_a_worker_does_not_run_two_modules_of_one_name(worker, mine):
    one, other = changed(worker, mine)

    def within():
        assert importlib.import_module("mine").chosen == 3
        with pytest.raises(RefusedError, match="works for another run with another beside"):
            cluster.working(other, functools.partial(max, 1, 2))
        threads = asked(worker, blas=one.blas + 1, process="a third")
        with pytest.raises(RefusedError, match="another number of threads of linear algebra"):
            cluster.working(threads, functools.partial(max, 1, 2))
        return 1

    cluster.working(one, within)
    cluster.working(other, functools.partial(max, 1, 2))
    assert importlib.import_module("mine").chosen == 4


def act_once(policy):
    return int(policy.act([0], [0.5])[0][0])


def test_objects_of_modules_that_changed_are_loaded_anew(worker, mine):
    """The bytes of a fitted agent are the same when its module was edited; what it does is not."""
    one, other = changed(worker, mine)
    agent = Carried((act_once, (sys.modules["mine"].Agent(20),)))
    job = shards.pickle.dumps(functools.partial(shards._called, agent))
    assert [cluster.working(each, lambda: shards.pickle.loads(job)()) for each in (one, other)] == [3, 4]


@has_dask
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # Dask's own, as it closes
class TestInThisProcess:
    def test_nobody_answers(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 0.5)
        line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler",
                        "tcp://127.0.0.1:9", "--out", tmp_path / "out")  # fmt: skip
        assert "no answer" in line
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("settings", [None, "/no/such.pem", __file__], ids=["none", "missing", "no certificate"])
    def test_no_certificates(self, capsys, tmp_path, settings):
        from dask import config

        with config.set({"distributed.comm.tls.ca-file": settings, "distributed.comm.tls.client.cert": settings}):
            line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler",
                            "tls://127.0.0.1:9", "--out", tmp_path / "out")  # fmt: skip
        assert "no certificates that both sides take" in line

    @pytest.mark.parametrize("says", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n"], ids=["nothing", "something else"])
    def test_another_program_answers(self, capsys, tmp_path, monkeypatch, says):
        monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 1.0)
        began = time.monotonic()

        def answer():
            with server.accept()[0] as connection:
                connection.sendall(says)
                connection.recv(1 << 16)
                left.wait(60)

        left = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=answer, daemon=True).start()
            line = error_of(capsys, "simulate", *WORLD, "--policy", "random", "--users", 9, "--scheduler",
                            f"tcp://127.0.0.1:{server.getsockname()[1]}", "--out", tmp_path / "out")  # fmt: skip
            left.set()
        assert "no answer from it" in line
        assert time.monotonic() - began < 15
        assert not (tmp_path / "out").exists()

    def test_an_executor_of_a_client_does_as_any_other(self, tmp_path):
        from distributed import LocalCluster

        quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": "CRITICAL"}
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=3, processes=False, protocol="tcp", host="127.0.0.1", **quiet
            ) as local,
            cluster.cluster(local.scheduler_address, tmp_path) as executor,
        ):
            assert shards.executor_size(executor) == 6
            job = shards.carrying(pow, 2)
            found = list(run_in_order((functools.partial(job, k) for k in range(30)), executor))
            assert min(executor.peaks().values()) > 0
        assert found == [2**k for k in range(30)]
        del job, executor
        assert [path for path in tmp_path.iterdir() if "carried" not in path.name] == []


class Processes:
    """A scheduler, and workers in processes of their own."""

    def __init__(self, folder, port):
        self.address, self.folder, self.started = f"tcp://127.0.0.1:{port}", folder, []
        self.scheduler = self.start("-m", "dask", "scheduler", *self.HERE, "--port", str(port))

    HERE = ("--host", "127.0.0.1", "--no-dashboard")

    def start(self, *words):
        with (self.folder / "said.txt").open("a") as said:
            started = subprocess.Popen([sys.executable, *words], cwd=self.folder, stdout=said, stderr=said)
        self.started.append(started)
        return started

    def worker(self, fault):
        """One in which something is wrong with the package, by a few lines of code that it runs first."""
        words = ["dask-worker", self.address, *self.HERE, "--no-nanny", "--nthreads", "1"]
        main = f"from distributed.cli.dask_worker import main; sys.argv = {words}; main()"
        return self.start("-c", f"import importlib.metadata, sys\n{fault}\n{main}")

    def wait(self, n):
        """Until so many workers have come."""
        from distributed import Client

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Dask's, about the versions that a fault has changed
            client = Client(self.address, timeout=60, set_as_default=False)
        with client:
            client.wait_for_workers(n, timeout=60)

    def end(self):
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """The address of a scheduler and two workers."""
    made = Processes(tmp_path_factory.mktemp("dask"), 20_000 + os.getpid() % 20_000)
    made.start("-m", "dask", "worker", made.address, *made.HERE, "--nworkers", "2", "--nthreads", "1")
    made.wait(2)
    yield made.address
    made.end()


@pytest.fixture
def faulty(tmp_path):
    """A scheduler without workers."""
    made = Processes(tmp_path, 40_000 + os.getpid() % 20_000)
    yield made
    made.end()


VERSION = """
real = importlib.metadata.version
def version(name):
    if name == "recsim-mnar": {}
    return real(name)
importlib.metadata.version = version
"""
LOADING = """
class Finder:
    @staticmethod
    def find_spec(name, *how):
        if name.startswith("recsim_mnar"): raise ImportError("library.so: not found")
sys.meta_path.insert(0, Finder)
"""
FAULTS = {
    "without the package": (
        VERSION.format("raise importlib.metadata.PackageNotFoundError(name)") + LOADING,
        "differs: recsim-mnar not installed, here ",
    ),
    "another version": (VERSION.format("return '0.0.1'"), "differs: recsim-mnar 0.0.1, here "),
    "a broken import": (LOADING, "cannot load recsim-mnar: ImportError: library.so: not found"),
    "one that ends it": (LOADING.replace("raise ", "import os; os._exit(1) #"), "ended when it was asked for"),
    "one that never ends": (LOADING.replace("raise ImportError", "import time; time.sleep(99) #"), "does not answer"),
    "another library": (VERSION.replace("recsim-mnar", "numpy").format("return '1.0'"), "differs: numpy 1.0, here "),
}
"""What is wrong with a worker, and what is said of it."""


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
        run(*self.SIMULATE, "--policy", "random", "--seed", 4, "--out", tmp_path / "others")
        (tmp_path / "r").mkdir()
        replay = ("replay", tmp_path / "here", "--policy", "svd", "--train", tmp_path / "others", "--quiet")
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
                processes = client.run(os.getpid)
                while not (busy := [worker for worker, jobs in client.processing().items() if jobs]):
                    time.sleep(0.001)
                os.kill(processes[busy[0]], signal.SIGKILL)
                left.set()

        left, killer = threading.Event(), threading.Thread(target=kill)
        killer.start()
        self.same(tmp_path, workers, *self.SIMULATE, "--policy", "item-knn+epsilon=0.1")
        assert left.is_set()  # in the middle
        killer.join()

    @pytest.mark.parametrize("good", [0, 1])
    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_fault_is_a_line(self, faulty, capsys, tmp_path, monkeypatch, fault, good):
        """Alone, and next to a good worker; nothing is left that would hinder the next run."""
        code, said = FAULTS[fault]
        monkeypatch.setattr(cluster, "_LOAD_SECONDS", 1.0)
        for lines in ("", code)[1 - good :]:
            faulty.worker(lines)
        faulty.wait(1 + good)
        began = time.monotonic()
        words = (*self.SIMULATE[:-1], "--policy", "random", "--scheduler", faulty.address, "--out", tmp_path / "out")
        if good and fault == "one that ends it":
            run(*words)
            assert said in capsys.readouterr().err, "named, and the others do the work"
            return
        line = error_of(capsys, *words)
        assert line.startswith("error: worker tcp://127.0.0.1:")
        assert said in line
        assert time.monotonic() - began < 30  # 14 at most, and on a busy machine as long again
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("who", "said"), [("scheduler", "was lost: start it again"), ("worker", "has no workers left: start some")]
    )
    def test_one_that_nobody_replaces_is_killed(self, faulty, monkeypatch, who, said):
        monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 3.0)
        worker = faulty.worker("")
        faulty.wait(1)
        killed = threading.Timer(1.0, {"scheduler": faulty.scheduler, "worker": worker}[who].kill)

        def jobs():
            for _ in range(10_000):
                if not killed.is_alive() and not killed.finished.is_set():
                    killed.start()
                yield functools.partial(time.sleep, 0.05)

        refused = pytest.raises(UserError, match=f"{said}; --resume goes on")
        with refused, cluster.cluster(faulty.address, warn=print) as executor:
            list(run_in_order(jobs(), executor))
        killed.join()

    @pytest.mark.parametrize(
        ("fault", "said", "lives"),
        [
            ("another version", "differs: recsim-mnar 0.0.1, here ", True),
            ("one that never ends", "does not answer: wait until", True),
            ("one that ends it", " has gone (see what it printed): others do ", False),
        ],
    )
    def test_one_that_joins_a_run_is_named(self, faulty, monkeypatch, fault, said, lives):
        """It ends the run, unless it has gone by itself."""
        monkeypatch.setattr(cluster, "_LOAD_SECONDS", 1.0)
        faulty.worker("")
        faulty.wait(1)
        warned = []

        def jobs():
            faulty.worker(FAULTS[fault][0])
            until = time.monotonic() + 60
            while time.monotonic() < until and not warned:
                yield functools.partial(time.sleep, 0.05)

        refused = (
            pytest.raises(UserError, match=r"^worker tcp:.*; --resume goes on") if lives else contextlib.nullcontext()
        )
        with refused as found, cluster.cluster(faulty.address, warn=warned.append) as executor:
            list(run_in_order(jobs(), executor))
            time.sleep(60 * lives)
        assert any(said in line for line in (*warned, str(getattr(found, "value", ""))))

    @pytest.mark.parametrize("who", ["scheduler", "worker"])
    def test_one_that_is_silent_is_named_and_waited_for(self, faulty, monkeypatch, who):
        one = {"worker": faulty.worker(""), "scheduler": faulty.scheduler}[who]
        faulty.wait(1)
        warned, until = [], time.monotonic() + 60

        def jobs():
            yield functools.partial(time.sleep, 0.05)
            monkeypatch.setattr(cluster, "_SILENT_SECONDS", 4.0)
            one.send_signal(signal.SIGSTOP)
            threading.Thread(target=again, daemon=True).start()
            yield from [functools.partial(time.sleep, 0.05)] * 20

        def again():
            while not warned and time.monotonic() < until:
                time.sleep(0.05)
            one.send_signal(signal.SIGCONT)

        with cluster.cluster(faulty.address, warn=warned.append) as executor:
            assert len(list(run_in_order(jobs(), executor))) == 21
        assert [line.split(" tcp://")[0] for line in warned] == [who]
        assert "is silent: waiting for it" in warned[0]
