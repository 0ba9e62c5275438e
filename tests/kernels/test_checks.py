"""What a single argument must be."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.kernels.checks import flag, number_in, whole_number
from toys import refused


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3)])
def test_whole_numbers_of_any_kind_become_ints(value):
    assert whole_number(value, "rank", 1) == 3
    assert type(whole_number(value, "rank", 1)) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, 0, -1, np.int64(0)])
def test_what_is_no_whole_number_is_refused_by_name(value):
    with refused("rank must be a whole number of at least 1, got"):
        whole_number(value, "rank", 1)


def test_a_whole_number_has_a_largest_value():
    assert whole_number(9, "rank", 1, 9) == 9
    with refused("rank must be at most 9, got 10"):
        whole_number(10, "rank", 1, 9)


@pytest.mark.parametrize(
    ("ends", "inside", "outside"),
    [
        ("[]", (0.0, 1.0, 0.5, 1, np.float32(0.5)), (-1e-9, 1.1)),
        ("()", (1e-9, 0.5), (0.0, 1.0)),
        ("[)", (0.0,), (1.0,)),
        ("(]", (1.0,), (0.0,)),
    ],
)
def test_the_ends_of_a_range_belong_to_it_or_not(ends, inside, outside):
    for value in inside:
        assert number_in(value, "level", 0.0, 1.0, ends=ends) == value
    for value in (*outside, np.nan, np.inf, True, "0.5", None):
        with refused("level must be in"):
            number_in(value, "level", 0.0, 1.0, ends=ends)


def test_flags():
    assert flag(True, "unrated") is True
    assert flag(np.False_, "unrated") is False
    for value in (1, "true", None):
        with refused("unrated must be true or false, got"):
            flag(value, "unrated")
