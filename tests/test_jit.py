"""Kernels are compiled with flags that no caller changes, and leave Python as it was before."""

import gc

import numba
import numpy as np
import pytest

from recsim_mnar.kernels import jit as _jit

compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """Machine code from the disk cannot be looked at."""
    monkeypatch.setattr(_jit, "_cache_dir", lambda folder: None)


@_jit.inlined
def _square(x):
    return x * x


def sum_of_squares(x):
    total = 0.0
    for i in range(x.size):
        total += _square(x[i])
    return total


@compiled
def test_flags_do_not_come_from_the_kernel_that_is_compiled_first():
    """The inlined function is met in a reduction with reordered additions first, and is strict in a strict kernel."""
    x = np.arange(5.0)
    loose, strict = _jit.summing(sum_of_squares), _jit.kernel(sum_of_squares)
    assert loose(x) == strict(x) == 30
    (of_loose,) = loose.inspect_llvm().values()
    (of_strict,) = strict.inspect_llvm().values()
    assert "fadd reassoc" in of_loose
    assert "reassoc" not in of_strict


@compiled
def test_each_decorator_gives_the_same_answer():
    @_jit.kernel
    def _private(x):
        return sum_of(x) + 1.0

    sum_of = _jit.spliced(sum_of_squares)

    @_jit.kernel
    def caller(x):
        return _private(x) + sum_of(x) + _square(x[1])

    x = np.arange(5.0)
    assert caller(x) == 62
    # For Python, too, what has no entry of its own.
    assert (_private(x), sum_of(x), _square(3)) == (31, 30, 9)


@compiled
@pytest.mark.parametrize("was_on", [True, False])
def test_compiling_leaves_garbage_collection_as_it_was(was_on):
    def broken(x):
        return x.nothing_of_this_name

    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        _jit.kernel(sum_of_squares)(np.arange(3.0))
        assert gc.isenabled() == was_on
        with pytest.raises(numba.core.errors.TypingError):
            _jit.kernel(broken)(1.0)
        assert gc.isenabled() == was_on
    finally:
        (gc.enable if before else gc.disable)()
