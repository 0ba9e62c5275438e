"""Fixtures that several modules of tests on files need."""

from __future__ import annotations

import pytest

import recsim_mnar


@pytest.fixture
def save(tmp_path):
    """Write a table into a CSV file of this name."""

    def write(frame, name="log.csv", **options):
        frame.to_csv(tmp_path / name, index=False, **options)
        return tmp_path / name

    return write


@pytest.fixture
def answer_of(save):
    """The answer of `estimate` to a table that is written into a file, in which ``target`` is the new policy."""
    return lambda frame, **asked: recsim_mnar.estimate_file(save(frame), "target", **asked)
