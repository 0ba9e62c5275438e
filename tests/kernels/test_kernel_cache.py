"""Compiled kernels on disk: damaged files are compiled anew, folders that others may write are not used."""

from __future__ import annotations

import subprocess
import sys

import numba
import numpy as np
import pytest

from recsim_mnar.kernels import jit

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

KERNEL = "from recsim_mnar.kernels.jit import kernel\n@kernel\ndef double(x):\n    return 2.0 * x[0]\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package of one kernel, and a cache of its own."""
    (tmp_path / "cached_pkg").mkdir()
    (tmp_path / "cached_pkg" / "__init__.py").write_text("")
    (tmp_path / "cached_pkg" / "_x_kernel.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setattr(jit, "_cache_dir", lambda folder: str(tmp_path / "cache"))
    return tmp_path


def doubled():
    """The answer of a dispatcher that has compiled nothing, and how often it found machine code on the disk."""
    for name in ("cached_pkg", "cached_pkg._x_kernel"):
        sys.modules.pop(name, None)
    from cached_pkg._x_kernel import double

    answer = double(np.array([3.0]))
    return answer, sum(double.stats.cache_hits.values())


def test_damaged_files_are_compiled_anew(folder):
    assert doubled() == (6.0, 0)
    assert doubled() == (6.0, 1)
    index, data = (next((folder / "cache").rglob(f"*.{end}")) for end in ("nbi", "nbc"))
    for file in (index, data):
        whole = file.read_bytes()
        flipped = whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]
        for damaged in (b"", whole[:20], whole[:-1], b"\x80\x04garbage", flipped):
            file.write_bytes(damaged)
            assert doubled() == (6.0, 0)  # no traceback, and no machine code that was changed
            assert doubled() == (6.0, 1)  # mended for the next start
    data.unlink()
    assert doubled() == (6.0, 0)


def test_a_disk_that_takes_no_more_is_no_error(folder, monkeypatch):
    def full(self, path, data):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(jit._CheckedFile, "_write", full)
    assert doubled() == (6.0, 0)


@pytest.mark.slow
def test_a_folder_that_others_may_write_is_not_used(tmp_path):
    code = "from recsim_mnar.kernels.jit import cache_folders; print(cache_folders())"

    def folders():
        env = {"RECSIM_MNAR_CACHE_DIR": str(tmp_path), "PATH": ""}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert folders() != "[]"
    for made in tmp_path.iterdir():
        assert made.stat().st_mode & 0o777 == 0o700
    for mode in (0o777, 0o770, 0o720, 0o702):
        for made in tmp_path.iterdir():
            made.chmod(mode)
        assert folders() == "[]"
