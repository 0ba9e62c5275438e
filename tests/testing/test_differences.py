"""What a failure of two results that differ says."""

import numpy as np
import pytest

from twins.differences import difference

ROWS = np.array([1.0, np.nan, 3.0])


@pytest.mark.parametrize(
    ("left", "right", "named"),
    [
        ({"a": ROWS, "b": ROWS}, {"a": ROWS, "b": np.array([1.0, np.nan, 4.0])}, "['b'], row 2: 3.0 and 4.0"),
        ({"a": ROWS}, {"b": ROWS}, "['a', 'b']"),
        (ROWS, ROWS[:2], "3 and 2 rows"),
        (ROWS, ROWS.astype(np.float32), "float64 and float32"),
        (ROWS, ROWS[:, None], "shape"),
        ([1, (2, 3)], [1, (2, 4)], "[1][1]: 3 and 4"),
        ([1, 2], [1], "2 and 1 entries"),
        (np.array([0.0]), np.array([-0.0]), "row 0"),
        (1, 1.0, "1 and 1.0"),
        ([np.nan], [1.0], "[0]: nan and 1.0"),
        (ROWS, None, "float64 and object"),
    ],
)
def test_the_first_difference_is_named(left, right, named):
    assert named in difference(left, right)
    assert difference(left, left) == ""


def test_values_alone_may_be_asked_for():
    assert difference(ROWS, ROWS.astype(np.float32), exact=False) == ""
    assert difference(np.array([0.0]), np.array([-0.0]), exact=False) == ""
    assert "row 0" in difference(ROWS, ROWS + 1.0, exact=False)
