"""Rules for environments: Gymnasium's conventions and, lane by lane, equality with single environments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs.conformance import check_vector_env
from recsim_mnar.errors import UserError
from recsim_mnar.plugins import own_folder
from recsim_mnar.policy.answers import Rule
from recsim_mnar.testing.rules import Finding, Rules, findings_of

MakeVector = Callable[[AutoresetMode], gym.vector.VectorEnv[Any, Any, Any]]


def check_vector(
    make_vector: MakeVector,
    make_single: Callable[[], gym.Env[Any, Any]],
    *,
    modes: tuple[AutoresetMode, ...] = tuple(AutoresetMode),
    steps: int = 200,
    seed: int = 0,
) -> list[Finding]:
    """One finding per mode that a vector environment breaks; an empty list where lanes are single environments.

    Args:
        make_vector: gives a new vector environment of the mode asked for.
        make_single: gives a new single environment of the same kind, without a step limit.
        modes: of automatic resets; those that it has.
        steps: how long each is compared.
        seed: of the actions, and the first of the lanes' seeds.
    """
    return findings_of(lane_rules(make_vector, make_single, modes, steps, seed), None)


@own_folder()
def check_registered(env_id: str, *, lanes: int = 3, steps: int = 60) -> tuple[list[Finding], int]:
    """Check an environment with a Gymnasium id: the single one, and its vector entry point if it has one.

    Args:
        env_id: as ``gymnasium.make`` takes it, ``package.module:Name-v0`` among them.
        lanes: of the vector environment.
        steps: how long lanes are compared with single environments, in each mode of automatic resets that it takes.

    Returns:
        The findings, and the number of rules.

    Raises:
        UserError: Gymnasium knows no such id, or its environment cannot be made.
    """
    try:
        env = gym.make(env_id)
    except (gym.error.Error, ImportError) as error:
        raise UserError(f"{env_id!r}: {error}") from None

    def single(_: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice; what is wrong is raised
            check_env(env.unwrapped, skip_render_check=True)

    def make_vector(mode: AutoresetMode | None = None) -> gym.vector.VectorEnv[Any, Any, Any]:
        given: dict[str, Any] = {} if mode is None else {"autoreset_mode": mode}
        return gym.make_vec(env_id, lanes, vectorization_mode="vector_entry_point", **given)

    rules = {"single": Rule("single", "do as gymnasium.utils.env_checker.check_env asks", single)}
    if env.spec is not None and env.spec.vector_entry_point is not None:
        modes = _modes_of(make_vector)
        make = make_vector if len(modes) > 1 else lambda mode: make_vector()
        rules |= lane_rules(make, lambda: gym.make(env_id, disable_env_checker=True), modes, steps, 0)
    return findings_of(rules, None, needed=()), len(rules)


def lane_rules(
    make_vector: MakeVector,
    make_single: Callable[[], gym.Env[Any, Any]],
    modes: Iterable[AutoresetMode],
    steps: int,
    seed: int,
) -> Rules:
    """One rule per mode of automatic resets."""

    def of(mode: AutoresetMode) -> Rule:
        return Rule(
            f"lanes_{mode.name.lower()}",
            "let every lane do what a single environment of its seed does, and hand out new arrays",
            lambda _: check_vector_env(make_vector, make_single, modes=(mode,), steps=steps, seed=seed),
        )

    return {each.name: each for each in map(of, modes)}


def _modes_of(make_vector: Callable[..., gym.vector.VectorEnv[Any, Any, Any]]) -> tuple[AutoresetMode, ...]:
    """The modes of automatic resets that a vector environment can be asked for; its only one where it takes no mode."""
    taken = []
    for mode in AutoresetMode:
        try:
            taken.append(make_vector(mode).metadata["autoreset_mode"])
        except Exception:  # code of the user's own may refuse a mode, or the keyword, by anything
            continue
    if len(set(taken)) > 1:
        return tuple(dict.fromkeys(taken))
    return (AutoresetMode(make_vector().metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)),)
