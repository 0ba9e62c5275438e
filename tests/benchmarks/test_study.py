"""What studies share: steps made once, results that come back, marked parts of a text, limits and intervals."""

import math

import numpy as np
import pytest

_study = pytest.importorskip("_study", reason="the benchmarks are not next to the tests")


def test_a_step_is_made_once_and_kept_as_plain_json(tmp_path):
    path = tmp_path / "work" / "step.json"
    made = _study.once(path, lambda: {"x": np.float64(1.5), "n": [np.int64(2)]})
    assert made == {"x": 1.5, "n": [2]}
    assert _study.once(path, lambda: pytest.fail("made again")) == made


def test_a_step_that_finds_no_number_leaves_no_file_unless_it_may(tmp_path):
    path = tmp_path / "step.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        _study.once(path, lambda: [math.inf])
    assert not list(tmp_path.iterdir())
    assert _study.once(path, lambda: [math.inf], finite=False) == [math.inf]


def test_results_come_back_rounded_and_with_few_lines(tmp_path):
    path = tmp_path / "results.json"
    rows = [[k, None, True] for k in range(60)]
    found = {"third": np.float64(1 / 3), "rows": rows, "one": list(range(500)), "no": {}}
    _study.write_results(path, found, 6)
    assert _study.read(path) == found | {"third": 0.333333}
    # A line for each row, and for the braces, "third", the two ends of "rows", "one" and "no".
    assert len(path.read_text().splitlines()) == 60 + 7
    with pytest.raises(ValueError, match="not JSON compliant"):
        _study.write_results(path, {"x": math.nan})
    assert _study.read(path)["third"] == 0.333333
    assert _study.rounded([math.inf, 1.0], finite=False) == [None, 1.0]


def test_a_marked_part_is_replaced_and_the_rest_stays(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# Title\n")
    for mark, lines in (("a", ["1"]), ("b", ["2", "3"]), ("a", ["4", "5"])):
        _study.into_marks(path, mark, lines)
    assert path.read_text() == "# Title\n\n<!-- a -->\n4\n5\n<!-- a -->\n\n<!-- b -->\n2\n3\n<!-- b -->\n"


def test_limits_and_intervals_are_those_of_the_books():
    # 81 of 263: Newcombe 1998, table I. Student's t with 2 degrees of freedom: 4.302653.
    assert _study.exact_limits(81, 263) == pytest.approx((0.2527, 0.3676), abs=5e-5)
    assert _study.student([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0 - 4.302653 / 3**0.5, 2.0 + 4.302653 / 3**0.5))
    assert _study.student([7.0]) == (7.0, -math.inf, math.inf)
