"""Jobs on executors: what they carry, how many are under way, and that results do not depend on any of it."""

import functools
import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import executor as shards
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.executor import Carried, carrying, executor_size, run_in_order
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.policies import Uniform


class Pickling(Executor):
    """Runs a job where it is submitted, from its pickle, as another process would; counts bytes and what is waiting."""

    def __init__(self, size=2):
        self._max_workers = size
        self.bytes, self.waiting, self.most_waiting = [], 0, 0

    def submit(self, job):
        data = pickle.dumps(job)
        self.bytes.append(len(data))
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        future = Future()
        try:
            future.set_result(pickle.loads(data)())
        except Exception as error:
            future.set_exception(error)
        return future

    def taken(self, results):
        for result in results:
            self.waiting -= 1
            yield result


@pytest.fixture
def empty_process(monkeypatch):
    """A process that has met no object yet."""
    monkeypatch.setattr(shards, "_LOADED", type(shards._LOADED)())


class Loud:
    """Counts how often it is unpickled."""

    times = 0

    def __setstate__(self, state):
        Loud.times += 1
        self.__dict__.update(state)


def added(loud, number, more):
    return loud.offset + number + more


def job_of(offset, n=100_000):
    loud = Loud()
    loud.offset, loud.ballast = offset, np.zeros(n)
    return carrying(added, loud, 1)


@pytest.mark.usefixtures("empty_process")
def test_what_jobs_share_is_pickled_once_and_loaded_once():
    Loud.times = 0
    executor = Pickling()
    job = job_of(10)
    assert list(run_in_order((functools.partial(job, k) for k in range(50)), executor)) == [11 + k for k in range(50)]
    assert max(executor.bytes) < 600
    assert Loud.times == 1


def test_at_most_twice_what_runs_at_a_time_and_one_are_under_way():
    for size in (1, 3, 40):
        executor = Pickling(size)
        jobs = (functools.partial(pow, k, 2) for k in range(200))
        assert list(executor.taken(run_in_order(jobs, executor))) == [k * k for k in range(200)]
        assert executor.most_waiting == 2 * size + 1
    assert list(run_in_order(iter([]), Pickling())) == []


def test_the_size_is_what_the_executor_says():
    class Client:
        def nthreads(self):
            return {"one": 3, "two": 4}

    like_dask = Pickling()
    like_dask._client = Client()
    with ThreadPoolExecutor(5) as threads:
        assert executor_size(threads) == 5
    assert executor_size(Pickling(7)) == 7
    assert executor_size(like_dask) == 7
    assert executor_size(Pickling(None)) >= 1  # one that does not say


@pytest.mark.usefixtures("empty_process")
def test_other_bytes_are_never_unpickled():
    carried = Carried(np.arange(3))
    again = pickle.loads(pickle.dumps(carried))
    path = Path(carried._sent[0])
    path.write_bytes(pickle.dumps("something else"))
    with pytest.raises(OSError, match="another digest"):
        _ = again.value


@pytest.mark.usefixtures("empty_process")
def test_the_file_goes_with_what_was_carried():
    carried = Carried(np.arange(3))
    assert_array_equal(pickle.loads(pickle.dumps(carried)).value, np.arange(3))
    path = Path(carried._sent[0])
    assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0
    del carried
    assert not path.parent.exists()


@pytest.fixture(scope="module")
def made():
    world = SessionsWorld(SessionsParams(n_items=30, n_flips=9))
    log = simulate(world, Uniform(30), 3000, 5)
    return world, log, registry.learner("item-knn").fit(log, n_items=30, seed=1)


@pytest.mark.usefixtures("empty_process")
def test_a_job_of_a_long_log_carries_its_own_rows_alone(made):
    world, log, policy = made
    executor = Pickling()
    probability = replay(log, policy, executor=executor)
    assert_array_equal(probability, replay(log, policy))
    rows = np.bincount(log["user"]) @ (np.arange(3000)[:, None] // shards.SHARD_USERS == np.arange(3))
    bytes_of_row = 8 + 1 + 4 + 4 + 8 + 8
    assert np.all(np.array(executor.bytes) < bytes_of_row * rows + 2000)
    executor = Pickling()
    value = value_on_log(world, log, {"knn": policy}, 5, executor=executor)
    assert value == value_on_log(world, log, {"knn": policy}, 5)
    assert np.all(np.array(executor.bytes) < bytes_of_row * rows + 2000)


@pytest.mark.slow
def test_two_processes_do_the_same(made):
    world, log, policy = made
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert simulate(world, Uniform(30), 3000, 5, executor=executor).digest() == log.digest()
        assert_array_equal(replay(log, policy, executor=executor), replay(log, policy))
