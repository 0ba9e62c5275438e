"""Compiled kernels on disk: folders that others may write are not used."""

from __future__ import annotations

import subprocess
import sys

import numba
import pytest

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


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
