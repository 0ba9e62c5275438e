"""What Gymnasium keeps of how an environment was made, and the line in which a step is rendered."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from gymnasium.envs.registration import EnvSpec

from recsim_mnar.errors import UserError


class WorldSpec(EnvSpec):
    """Gymnasium's spec of an environment over a world.

    Attributes:
        bound: steps after which every episode ends, whatever wrappers ask for; None where there is no bound.
    """

    bound: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; of the limits of ``max_episode_steps`` the one that comes first."""
        if name == "max_episode_steps":
            value = _first_of(value, self.bound)
        super().__setattr__(name, value)

    def to_json(self) -> str:
        """See :meth:`gymnasium.envs.registration.EnvSpec.to_json`.

        Raises:
            UserError: a keyword's value is an object, such as a world.
        """
        for name, value in self.kwargs.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                raise UserError(
                    f"spec.to_json: {name}= is a {type(value).__name__}, which JSON cannot hold. "
                    "Make the environment from names and numbers, as gymnasium.make(id, preset='quick', n_items=50)"
                ) from None
        return super().to_json()


def _first_of(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


class Specified:
    """An environment whose spec states after how many steps every episode ends, where there is a bound.

    Attributes:
        world: where users live.
        max_episode_steps: the environment's own bound, before which a life may have ended; None where it has none.
    """

    world: Any
    max_episode_steps: int | None = None
    _spec: WorldSpec | None = None

    def _given(self) -> WorldSpec | None:
        """What Gymnasium made the environment from; None where it was made without Gymnasium."""
        return self._spec

    def _stated(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            given = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.init}
            bound = _first_of(self.max_episode_steps, self.world.most_decisions)
            given["max_episode_steps"] = _first_of(spec.max_episode_steps, bound)
            spec = WorldSpec(**given)
            spec.bound = bound
        self._spec = spec

    spec: Any = property(_given, _stated)  # Gymnasium's is an attribute, in whose place mypy wants no property


def listed(items: Any) -> str:
    """Items in one line, or ``nothing``."""
    return ", ".join(map(str, items)) or "nothing"


def arrival_line(user: int, info: dict[str, Any]) -> str:
    """Who has come, and what they viewed; the line of a reset."""
    skipped = f" (after {len(info['skipped'])} who left without a decision)" if "skipped" in info else ""
    return f"user {user}{skipped}: viewed {listed(info['views'])}"


def step_line(user: int, step: int, shown: Any, reward: float, info: dict[str, Any], *, left: bool) -> str:
    """Who was shown what, what they answered, what they viewed then; the line of a step."""
    items = listed(["(empty)" if item < 0 else item for item in (shown if isinstance(shown, list) else [shown])])
    came = "".join(f", {key} {listed(info[key])}" for key in ("bought", "clicked") if key in info)
    end = ", left" if left else ""
    return f"user {user}, step {step}: shown {items}, reward {reward:g}{came}, viewed {listed(info['views'])}{end}"
