"""The table of digests before and after: what counts as a difference."""

import numpy as np
import pytest
from study_modules import bring


@pytest.fixture(scope="module")
def program():
    with bring("reproducibility", "same_bytes", "interfaces", "package") as found:
        yield found["same_bytes"]


def test_interfaces_of_one_group_must_be_alike(program):
    found = {"log: simulate": "a", "log: environment": "a", "truth: simulate": "b", "truth: command line": "b"}
    assert program.alike({**found, "catalogue.npz": "c"}) == []
    assert program.alike({**found, "log: command line": "b"}) == ["log"]
    assert program.alike({**found, "truth: simulate": "refused"}) == ["truth"]


def test_a_changed_a_lost_and_a_new_digest_are_differences(program, capsys):
    before = {"sessions": {"svd": {"log": "a", "answers": "b"}, "random": {"log": "c"}}}
    changes = [
        ({"svd": {"log": "a", "answers": "B"}, "random": {"log": "c"}}, "answers"),
        ({"svd": {"log": "a"}, "random": {"log": "c"}}, "answers"),
        ({"svd": {"log": "a", "answers": "b", "truth": "d"}, "random": {"log": "c"}}, "truth"),
        ({"random": {"log": "c"}}, "answers, log"),
    ]
    for table, differ in changes:
        assert not program.compare(before, {"sessions": table})
        assert f"NO: {differ}\n1 of 2 equal" in capsys.readouterr().out
    assert program.compare(before, before)
    assert "2 of 2 equal" in capsys.readouterr().out
    assert not program.compare(before, {})
    assert not program.compare({}, before)
    assert not program.compare({}, {})  # nothing was compared


def test_a_digest_sees_names_types_shapes_order_and_bits_but_one_not_a_number_alone(program):
    from interfaces import digest

    values = np.array([0.0, 1.0, np.nan])
    odd = values.copy()
    odd.view(np.uint64)[2] |= 1  # another NaN
    assert digest({"a": values, "b": values}) == digest({"b": odd, "a": values})
    others = [
        {"a": values}, {"a": values, "c": values}, {"a": values, "b": values.astype(np.float32)},
        {"a": values, "b": values[:, None]}, {"a": values, "b": values[::-1]},
        {"a": values, "b": np.array([-0.0, 1.0, np.nan])}, {"a": values, "b": np.nextafter(values, 2.0)},
    ]  # fmt: skip
    assert len({digest(arrays) for arrays in [{"a": values, "b": values}, *others]}) == len(others) + 1
    with pytest.raises(TypeError, match="no bytes of its own"):
        digest({"a": np.array([None])})
