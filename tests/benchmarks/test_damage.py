"""The benchmark of damage, a slice of each step; all of them are run by its own command."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from recsim_mnar.log.files import write_json

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "damage"
NAMES = ("children", "kills", "faults", "fuzz", "disks", "costs", "run")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not beside the tests")


@pytest.fixture(scope="module")
def damage():
    """The modules of the benchmark's folder, forgotten afterwards; in a process of its own, as they change sizes."""
    before = {name: sys.modules.pop(name, None) for name in NAMES}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)
        sys.modules.update({name: module for name, module in before.items() if module is not None})


@pytest.fixture(scope="module", autouse=True)
def small_parts(damage):
    children = damage["children"]
    before = [(m, name, getattr(m, name)) for m, name in (
        (children.executor, "SHARD_USERS"), (children.items, "SHARD_USERS"), (children.run_folder, "SHARD_USERS"),
        (children.run_folder, "PART_SHARDS")) if hasattr(m, name)]  # fmt: skip
    children.small_parts()
    yield
    for module, name, value in before:
        setattr(module, name, value)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damage")


@pytest.mark.parametrize("number", [3, 140, 171, 250, 301, 352, 361, 375, 395])
def test_every_reader_names_a_fault_and_resume_mends_it(damage, place, number):
    found = damage["faults"].faulty(place, number)
    assert found["named"], found
    assert found["mended"], found


def test_a_killed_run_has_the_undisturbed_bytes(damage):
    for number in range(3):
        found = damage["kills"].killed("simulate", number)
        assert found["same"], found


def test_mutated_files_give_a_line_or_a_result(damage, place):
    for number in range(40):
        found = damage["fuzz"].fuzzed(place, number)
        assert found["clean"], found


@pytest.mark.slow
def test_three_hundred_mutated_files_and_more_kills(damage, place):
    for number in range(40, 340):
        found = damage["fuzz"].fuzzed(place, number)
        assert found["clean"], found
    for kind in ("simulate", "study"):
        for number in range(3, 8):
            assert damage["kills"].killed(kind, number)["same"]
    for number in (0, 1, 6):
        found = damage["kills"].double_start(number)
        assert found["good"], found


def test_what_falls_short_is_said(damage, tmp_path):
    run = damage["run"]
    good = {"kind": "bit of a part", "named": True, "mended": True}
    found = {"faults": [good, {**good, "named": False}], "fuzz": [{"clean": True, "status": 2, "cpu": 0.1, "mb": 9}]}
    (short,) = run.shortcomings(found)
    assert short.startswith("faults 1: ")
    told = run.summary(found)
    assert told["faults"]["all"] == {"trials": 2, "named": 1, "mended": 2}
    assert told["fuzz"]["refused"] == 1
    write_json(tmp_path / "results.json", told)
