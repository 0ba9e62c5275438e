"""A vector environment against Gymnasium's conventions and, lane by lane, against single environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from recsim_mnar.contracts.findings import Finding, findings_of
from recsim_mnar.envs.conformance import check_vector_env

MakeVector = Callable[[AutoresetMode], gym.vector.VectorEnv[Any, Any, Any]]


def check_vector(
    make_vector: MakeVector,
    make_single: Callable[[], gym.Env[Any, Any]],
    *,
    modes: tuple[AutoresetMode, ...] = tuple(AutoresetMode),
    steps: int = 200,
    seed: int = 0,
) -> list[Finding]:
    """What a vector environment breaks, one finding a mode; an empty list where lanes are single environments.

    Args:
        make_vector: gives a new vector environment of the mode asked for.
        make_single: gives a new single environment of the same kind, without a step limit.
        modes: of automatic resets; those that it has.
        steps: how long each is compared.
        seed: of the actions, and the first of the lanes' seeds.
    """

    def check(mode: AutoresetMode) -> Callable[[Any], None]:
        return lambda make: check_vector_env(make, make_single, modes=(mode,), steps=steps, seed=seed)

    fix = "let every lane do what a single environment of its seed does, and hand out new arrays"
    return findings_of({f"lanes_{mode.name.lower()}": (check(mode), fix) for mode in modes}, make_vector)
