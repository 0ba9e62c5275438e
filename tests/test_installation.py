"""The doctor's checks of an installation, with faults planted."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import recsim_mnar
from recsim_mnar.installation import NOTE, OK, PROBLEM, check_installation
from twins.commands import status_of


def checks():
    return {check.name: check for check in check_installation()}


def test_a_sound_installation(capsys, tmp_path):
    found = checks()
    assert recsim_mnar.__version__ in found["recsim-mnar"].found
    assert f"{len(os.sched_getaffinity(0))} " in found["processors"].found
    assert [name for name, check in found.items() if check.level != OK and not check.advice] == []
    file = tmp_path / "checks.json"
    assert status_of("doctor", "--json", file) == 0
    assert "processors" in capsys.readouterr().out
    assert {check["name"] for check in json.loads(file.read_text())["checks"]} == set(found)


def test_what_pip_knows_and_the_code_disagree(monkeypatch):
    monkeypatch.setattr(recsim_mnar._version, "__version__", "99.0")
    assert checks()["recsim-mnar"].level == PROBLEM


def test_plain_kernels_are_reported(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    found = checks()
    assert found["NUMBA_DISABLE_JIT"].level == PROBLEM


def run_python(code, *, cwd=None, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=cwd,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
    )  # fmt: skip
    return json.loads(done.stdout)


_SAY = (
    "import json; from recsim_mnar.installation import check_installation as c; "
    "print(json.dumps({x.name: [x.level, x.found] for x in c()}))"
)


def test_a_cache_that_cannot_be_written(tmp_path):
    """A file stands where the folder should be: so it is for root too, whom no mode of a folder stops."""
    (tmp_path / "file").write_text("")
    found = run_python(_SAY, RECSIM_MNAR_CACHE_DIR=tmp_path / "file" / "cache")
    assert found["kernel cache"] == [PROBLEM, "no folder can be written"]
    empty = run_python(_SAY, RECSIM_MNAR_CACHE_DIR=tmp_path / "new")
    assert empty["kernel cache"][0] == NOTE
    assert "empty" in empty["kernel cache"][1]


def test_the_workflow_runs_every_python_that_is_supported():
    root = Path(__file__).parents[1]
    supported = re.findall(r"Python :: (3\.\d+)", (root / "pyproject.toml").read_text())
    workflow = root / ".github" / "workflows" / "ci.yml"
    if not workflow.exists():
        pytest.skip("the workflow is not where the tests are: they run against a wheel")
    text = workflow.read_text()
    assert re.search(r"python: (\[.*\])", text)[1] == str(supported).replace("'", '"')
    assert "bash .ci/run" in text
    assert "\nUSER recsim\n" in (root / "Dockerfile").read_text()


def test_the_container_takes_one_version_of_each_dependency_above_the_lower_bounds():
    root = Path(__file__).parents[1]
    if not (root / "Dockerfile").exists():
        pytest.skip("the Dockerfile is not where the tests are: they run against a wheel")
    assert "--constraint /source/constraints.txt" in (root / "Dockerfile").read_text()
    lines = [line for line in (root / "constraints.txt").read_text().splitlines() if line[:1] != "#"]
    pinned = dict(line.split("==") for line in lines)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    for needed in map(Requirement, [*project["project"]["dependencies"], *project["build-system"]["requires"]]):
        assert needed.specifier.contains(pinned[needed.name]), needed
