"""The benchmark of damage: a slice of its kills, and what counts as damage; all of it is run by its own command."""

import os
import random
import signal

import pytest
from study_modules import bring

NAMES = ("children", "kills", "fuzz", "run")


@pytest.fixture(scope="module")
def damage():
    with bring("damage", *NAMES) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def small_parts(damage):
    children = damage["children"]
    with pytest.MonkeyPatch.context() as patch:
        for module in (children.executor, children.items, children.run_folder, children.replayed_log):
            for name in {"SHARD_USERS", "PART_SHARDS"} & {*vars(module)}:
                patch.setattr(module, name, getattr(module, name))
        children.small_parts()
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damage")


@pytest.mark.slow
def test_a_killed_run_has_the_undisturbed_bytes(damage):
    for kind, number in (("simulate", 0), ("simulate", 1), ("simulate", 2), ("replay", 2)):
        found = damage["kills"].killed(kind, number)
        assert found["same"], found
        assert 0 <= found["at"] <= 1


@pytest.mark.slow
def test_what_ends_a_child_is_counted_against_it(damage, place, monkeypatch):
    """One that raises, one that kills its process, one that takes too long: none of them is clean, the others go on."""
    fuzz = damage["fuzz"]

    def bad(number):
        def work():
            if number == 2:
                raise RuntimeError("a traceback")
            if number == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            while number == 6:
                pass

        return random.Random(0), "policy.npz", lambda path: work

    monkeypatch.setattr(fuzz, "_drawn", bad)
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 0.2)
    found = fuzz.fuzzed(place, range(8))
    assert [row["clean"] for row in found] == [n not in (2, 4, 6) for n in range(8)]
    assert [row["status"] for row in found] == [0, 0, 1, 0, -signal.SIGKILL, 0, -signal.SIGPROF, 0]
