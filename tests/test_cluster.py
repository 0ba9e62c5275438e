"""Workers of a cluster: what is asked of them, whose bytes they run, and that they do what this process would do."""

import functools
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from recsim_mnar import cluster
from recsim_mnar.errors import UserError
from recsim_mnar.simulation import executor as shards
from recsim_mnar.simulation.executor import run_in_order
from toys import bytes_of
from twins.commands import run, status_of

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


@pytest.fixture
def refusal(capsys, tmp_path):
    """Return the error of a simulation with these options, which must leave nothing."""

    def refusal(*options):
        out = tmp_path / "out"
        simulate = ("simulate", *WORLD, "--policy", "random", "--users", 9, "--out", out)
        status, _, err = run(capsys, *simulate, *options)
        assert status == 2
        assert not out.exists()
        (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
        return line

    return refusal


def succeed(*arguments):
    assert status_of(*arguments) == 0


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
    warning = cluster.check_address(address)
    assert (warning is not None) == plain
    if plain:
        assert "tls://" in warning
        assert "\n" not in warning


@pytest.mark.parametrize("address", ["127.0.0.1:8786", "tcp://a", "tcp://a:70000", "http://a:1"])
def test_what_is_no_address_is_refused_before_any_work(refusal, address):
    assert "tcp://HOST:PORT" in refusal("--scheduler", address)


@pytest.mark.parametrize(
    "address",
    ["tcp://me:secret@a:1", "tcp://me:sec/secret@a:1", "tcp://a:1?token=secret", "tls://a:1/secret", "secret"],
)
def test_a_password_in_an_address_is_not_shown(address):
    with pytest.raises(UserError, match=r"tls://HOST:PORT, and nothing else") as refused:
        cluster.check_address(address)
    assert "secret" not in str(refused.value)


def test_workers_here_and_elsewhere_are_too_many(refusal):
    assert "one of the two" in refusal("--scheduler", "tcp://127.0.0.1:1", "--workers", 2)


@has_dask
def test_without_the_extra_a_line_says_what_to_install(refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = refusal("--scheduler", "tcp://127.0.0.1:1")
    assert line.endswith("needs distributed, which is not installed: pip install 'recsim-mnar[cluster]'")


@has_dask
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # Dask's own, as it closes
class TestInThisProcess:
    @pytest.mark.slow  # ten seconds of waiting
    def test_nobody_answers(self, refusal, monkeypatch):
        monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 0.5)
        assert "no connection" in refusal("--scheduler", "tcp://127.0.0.1:9")

    def test_no_certificates(self, refusal):
        assert "no connection" in refusal("--scheduler", "tls://127.0.0.1:9")

    def test_another_program_answers(self, refusal, monkeypatch):
        monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 1.0)
        began = time.monotonic()

        def answer():
            with server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)
                left.wait(60)

        left = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=answer, daemon=True).start()
            line = refusal("--scheduler", f"tcp://127.0.0.1:{server.getsockname()[1]}")
            left.set()
        assert "no connection" in line
        assert time.monotonic() - began < 15

    def test_an_executor_of_a_client_does_as_any_other(self):
        from distributed import LocalCluster

        where = {"protocol": "tcp", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        local = LocalCluster(n_workers=2, threads_per_worker=3, processes=False, silence_logs="CRITICAL", **where)
        with local, cluster.cluster(local.scheduler_address) as executor:
            assert executor.n_workers() == 2
            assert shards.executor_size(executor) == 6
            job = shards.carrying(pow, 2)
            powers = list(run_in_order((functools.partial(job, k) for k in range(30)), executor))
        assert powers == [2**k for k in range(30)]

    def test_what_jobs_share_is_sent_once(self):
        sent = []

        class Client:
            def get_executor(self, pure):
                return self

            def submit(self, function, *args, **how):
                sent.append(args)
                return "stored"

        executor = cluster.ClusterExecutor(Client(), cluster.Requirements((), 1, b""))
        job = shards.carrying(pow, bytes(100_000))
        for k in range(5):
            executor.submit(functools.partial(job, k))
        assert [len(args) for args in sent] == [1, 4, 4, 4, 4, 4]
        assert all(len(args[1]) < 1000 for args in sent[1:])


class Processes:
    """A scheduler, and workers in processes of their own."""

    def __init__(self, folder, port):
        self.address, self.folder, self.started = f"tcp://127.0.0.1:{port}", folder, []
        self.scheduler = self.start("-m", "dask", "scheduler", *self.HERE, "--port", str(port))

    HERE = ("--host", "127.0.0.1", "--no-dashboard")

    def start(self, *words, folder=None):
        with (self.folder / "said.txt").open("a") as said:
            started = subprocess.Popen([sys.executable, *words], cwd=folder or self.folder, stdout=said, stderr=said)
        self.started.append(started)
        return started

    def worker(self, code=""):
        """One that runs a few lines of code first."""
        words = ["dask-worker", self.address, *self.HERE, "--no-nanny", "--nthreads", "1"]
        main = f"from distributed.cli.dask_worker import main; sys.argv = {words}; main()"
        return self.start("-c", f"import importlib.metadata, sys\n{code}\n{main}")

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
    """The address of a scheduler and two workers, started in folders of their own."""
    made = Processes(tmp_path_factory.mktemp("dask"), 20_000 + os.getpid() % 20_000)
    for _ in range(2):
        words = ("--nworkers", "1", "--nthreads", "1")
        made.start("-m", "dask", "worker", made.address, *made.HERE, *words, folder=tmp_path_factory.mktemp("worker"))
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
importlib.metadata.version = lambda name: "1.0" if name == "numpy" else real(name)
"""
LOADING = """
class Finder:
    @staticmethod
    def find_spec(name, *how):
        if name.startswith("recsim_mnar"): raise ImportError("library.so: not found")
sys.meta_path.insert(0, Finder)
"""


@has_dask
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # Dask's own, as it closes
class TestInProcessesOfTheirOwn:
    SIMULATE = ("simulate", *WORLD, "--train-users", 40, "--users", 1500, "--seed", 3, "--truth", "--quiet")

    def same(self, place, address, *words):
        succeed(*words, "--workers", 1, "--out", place / "here")
        succeed(*words, "--scheduler", address, "--out", place / "there")
        here, there = bytes_of(place / "here"), bytes_of(place / "there")
        assert {name for name in {*here, *there} if here.get(name) != there.get(name)} <= {"timings.json"}

    def test_a_log_and_a_replay(self, workers, tmp_path):
        self.same(tmp_path, workers, *self.SIMULATE, "--policy", "item-knn+epsilon=0.1")
        succeed(*self.SIMULATE, "--policy", "random", "--seed", 4, "--out", tmp_path / "others")
        (tmp_path / "r").mkdir()
        replay = ("replay", tmp_path / "here", "--policy", "svd", "--train", tmp_path / "others", "--quiet")
        self.same(tmp_path / "r", workers, *replay)

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

    def test_a_study_of_an_agent_of_ones_own(self, workers, mine):
        """Its workers meet agents by their names."""
        study = ("compare", *WORLD, "--agents", "mine:Agent,random", "--catalogues", 2, "--protocols", "ab_test",
                 "--option", "arm_users=50", "--option", "truth_users=50", "--quiet")  # fmt: skip
        self.same(mine, workers, *study)

    @pytest.mark.parametrize(
        ("code", "words"),
        [(VERSION, "differs: numpy 1.0, here "), (LOADING, "library.so: not found")],
        ids=["another version", "a broken import"],
    )
    def test_a_worker_that_differs_is_refused(self, faulty, refusal, code, words):
        """Next to a good one, and before any work."""
        faulty.worker()
        faulty.worker(code)
        faulty.wait(2)
        line = refusal("--scheduler", faulty.address)
        assert line.startswith("error: worker tcp://127.0.0.1:")
        assert words in line

    def test_one_that_joins_a_run_and_differs_ends_it(self, faulty):
        faulty.worker()
        faulty.wait(1)

        def jobs():
            faulty.worker(VERSION)
            until = time.monotonic() + 60
            while time.monotonic() < until:
                yield functools.partial(time.sleep, 0.05)

        refused = pytest.raises(UserError, match=r"^worker tcp:.* differs: numpy 1.0, here ")
        with refused, cluster.cluster(faulty.address) as executor:
            list(run_in_order(jobs(), executor))

    def test_a_scheduler_that_is_lost_ends_the_run(self, faulty):
        faulty.worker()
        faulty.wait(1)
        killed = threading.Timer(1.0, faulty.scheduler.kill)
        killed.start()
        refused = pytest.raises(UserError, match=r"was lost: start it again; --resume goes on")
        with refused, cluster.cluster(faulty.address) as executor:
            list(run_in_order((functools.partial(time.sleep, 0.05) for _ in range(10_000)), executor))


@has_dask
def test_a_worker_that_ends_during_the_check_is_no_fault():
    """Found by killing workers at random moments: the command ended, although another worker was there."""
    from distributed.comm import CommClosedError

    def check(answers):
        cluster._check_workers(SimpleNamespace(run=lambda function, on_error: answers), {"numpy": "1"})

    check({"a": CommClosedError("closed"), "b": {"numpy": "1"}})
    with pytest.raises(UserError, match="worker c differs"):
        check({"a": CommClosedError("closed"), "c": {"numpy": "2"}})
