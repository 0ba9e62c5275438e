"""Kernels compiled ahead: what is said of it, and that what was compiled is not compiled again."""

import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from recsim_mnar import rng
from recsim_mnar.installation import SESSIONS
from recsim_mnar.kernels import _rng_kernel
from recsim_mnar.worlds import sessions
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld, _catalogue_kernel, lanes


def test_small_draws_need_no_kernel_and_have_its_bits():
    """Plain Python and the kernel fill the same normals, in shapes on either side of a block of four."""
    for shape in ((3, 1), (2, 5), (5, 12)):
        out = np.empty(shape)
        with np.errstate(over="ignore"):
            _rng_kernel.fill_normals(np.uint64(9), np.uint64(1), np.int64(4), np.int64(0), out)
        np.testing.assert_array_equal(rng.normals(9, 1, 4, shape), out)
    whole = rng.normals(9, 1, 0, (200, 5))  # by the kernel
    np.testing.assert_array_equal(rng.normals(9, 1, 0, (10, 5)), whole[:10])


def test_a_catalogue_compiles_what_its_sampler_uses():
    """None in place of a sampler is another signature: nothing of it is in the kernel."""
    sizes = {10: (None, None), 300: (None, None), 500: (32, None)}
    for n_items, expected in sizes.items():
        lanes = SessionsWorld(SessionsParams(n_items=n_items, sigma_mu_organic=0.5)).open_lanes(1)
        assert (lanes.boxes, lanes.tiers) == expected
    uneven = SessionsWorld(SessionsParams(n_items=300, sigma_mu_organic=3.0)).open_lanes(1)
    assert uneven.boxes is None
    assert uneven.tiers is not None


FIRST = [
    {},
    {"n_items": 300},
    {"n_items": 700, "sigma_mu_organic": 0.5},
    {"n_items": 50, "n_factors": 12, "clock": "normal", "drift_in_bandit": True},
]


@pytest.mark.parametrize("params", FIRST, ids=str)
def test_first_steps_are_interpreted_to_the_same_bytes(params, monkeypatch):
    """Every way in which views are sampled: plain Python and the compiled kernel live the same lives."""
    world = SessionsWorld(SessionsParams(**params))

    def lives(n_interpreted):
        first_calls = lanes._FirstCalls()
        first_calls.left = n_interpreted
        monkeypatch.setattr(lanes, "_FIRST_CALLS", first_calls)
        one = world.open_lanes(1, keep_truth=True)
        lane = np.zeros(1, np.int64)
        seed = np.zeros(1, np.uint64)
        content = []
        transition = one.begin(lane, seed, lane)
        for step in range(40):
            if not transition.alive[0]:
                transition = one.begin(lane, seed, one.user + 1)
            content.append({name: column.tobytes() for name, column in transition.columns.items()})
            content.append(one.state.tobytes())
            transition = one.take(lane, np.array([step % world.n_items], np.int32), np.ones(1))
        return content, first_calls.left

    interpreted, left = lives(200)
    in_part, left_in_part = lives(20)
    compiled, _ = lives(0)
    assert 0 < left < 200
    assert left_in_part == 0
    assert interpreted == compiled
    assert in_part == compiled


def test_many_lanes_and_large_catalogues_are_compiled_from_the_start():
    small = SessionsWorld(SessionsParams(n_items=10))
    large = SessionsWorld(SessionsParams(n_items=3000, sigma_mu_organic=0.5))
    kernel = lanes._FirstCalls
    assert not isinstance(small.open_lanes(2)._move, kernel)
    assert not isinstance(large.open_lanes(1)._move, kernel)


@pytest.mark.skipif(int(np.__version__.partition(".")[0]) < 2, reason="older NumPy is not interpreted")
def test_the_first_step_of_the_default_environment_compiles_nothing(tmp_path):
    code = (
        "import gymnasium as gym, recsim_mnar\n"
        "env = gym.make('recsim_mnar/Sessions-v0')\n"
        "env.reset(seed=1)\n"
        "for _ in range(20): env.step(1)[2] and env.reset()\n"
    )
    environment = {**os.environ, "RECSIM_MNAR_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert list(tmp_path.iterdir()), "the cache is there"
    assert not list(tmp_path.rglob("*.nbc"))


def test_catalogues_that_are_warmed_reach_both_kernels_of_flips(monkeypatch):
    kernels = {name: MagicMock(wraps=getattr(_catalogue_kernel, name)) for name in ("best_partners", "best_partner")}
    monkeypatch.setattr(sessions, "_catalogue_kernel", SimpleNamespace(**kernels))
    for _line, params in SESSIONS:
        SessionsWorld(SessionsParams(**params)).open_lanes(1)
    assert [name for name, kernel in kernels.items() if not kernel.called] == []


@pytest.mark.slow
def test_the_command_says_what_it_compiled_and_where(tmp_path):
    def run():
        return subprocess.run(
            [sys.executable, "-m", "recsim_mnar", "warm"],
            env={"RECSIM_MNAR_CACHE_DIR": str(tmp_path), "PATH": ""}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    first, second = run(), run()
    assert "kernels compiled in" in first
    assert f"kept in {tmp_path}" in first
    assert "features: nothing to compile" in second
    assert second.splitlines()[-1].startswith("0 kernels compiled")
