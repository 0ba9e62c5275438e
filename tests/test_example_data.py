"""The examples that write data: --help writes nothing, and users and seed are heard."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from twins.cases import quick_first

EXAMPLES = Path("examples").absolute()


def example(name, folder, *arguments):
    words = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("name", quick_first(["make_log", "make_interactions", "make_events"]))
def test_help_writes_no_file(name, tmp_path):
    text = example(name, tmp_path, "--help").stdout
    assert "--users" in text
    assert "--seed" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "user"), [("make_log", "user_id"), ("make_interactions", "user_id")])
def test_users_and_seed_are_heard(name, user, tmp_path):
    for file, seed in (("one.csv", "5"), ("other.csv", "6")):
        example(name, tmp_path, file, "--users", "20", "--seed", seed)
    one, other = (pd.read_csv(tmp_path / file) for file in ("one.csv", "other.csv"))
    assert 10 < one[user].nunique() <= 20
    assert not one.equals(other)
