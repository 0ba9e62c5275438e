"""What a person finds at the top of the package."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import recsim_mnar


def test_dir_lists_what_is_public_and_nothing_else():
    assert dir(recsim_mnar) == sorted(recsim_mnar.__all__)
    assert not [name for name in dir(recsim_mnar) if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize("name", recsim_mnar.__all__)
def test_every_public_name_is_there_without_a_further_import(name):
    code = f"import recsim_mnar; print(type(recsim_mnar.{name}).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip()


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'recsim_mnar' has no attribute 'gymnasium'"):
        _ = recsim_mnar.gymnasium


def test_the_module_is_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "recsim_mnar", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"recsim-mnar, version {recsim_mnar.__version__}"


def test_version_and_licence_are_those_of_the_distribution():
    distribution = importlib.metadata.distribution("recsim-mnar")
    assert distribution.version == recsim_mnar.__version__
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    assert distribution.metadata.get_all("License-File") == ["LICENSE"]
