"""A world at the door: what is handed in as a world is one, or one line says what it lacks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, described
from recsim_mnar.log import schema
from recsim_mnar.worlds.base import DecisionWorld, ExposureWorld, PlatformWorld, World
from recsim_mnar.worlds.slates import RULES


def as_world(world: Any) -> World:
    """The world, after a look at what it says of itself.

    Raises:
        UserError: it is no world, or has no name, no number of items, no parameters, or a truth column that cannot be.
    """
    if not isinstance(world, (DecisionWorld, ExposureWorld, PlatformWorld)):
        hint = ": make an object of it" if isinstance(world, type) else ""
        raise UserError(
            f"a world must derive from recsim_mnar.worlds.DecisionWorld (or ExposureWorld, PlatformWorld), got "
            f"{described_object(world)}{hint}"
        )
    kind = type(world).__name__
    name = getattr(world, "name", None)
    if not (isinstance(name, str) and name):
        raise UserError(f"world {kind} has no name: give its class name = 'my-world'")
    n_items = getattr(world, "n_items", None)
    if isinstance(n_items, bool) or not isinstance(n_items, (int, np.integer)) or n_items < 1:
        raise UserError(f"world {name!r} must have n_items, a whole number of at least 1; it has {n_items!r}")
    truth = world.truth_column
    if truth is not None and (not isinstance(truth, str) or not truth or truth in (*schema.NAMES, *schema.OPTIONAL)):
        raise UserError(
            f"world {name!r}: truth_column must be None or the name of a column that a log has not yet, got {truth!r}"
        )
    if isinstance(world, ExposureWorld):
        lacking = [rule for rule in RULES if not hasattr(world.params, rule)]
        if lacking:
            raise UserError(
                f"world {name!r}: its parameters lack {', '.join(lacking)}: derive its params_class from "
                "recsim_mnar.worlds.SlateParams"
            )
    _check_description(world)
    return world


def check_weights(weights: NDArray[Any]) -> None:
    """Raise UserError where weights by which items are drawn are not finite, or negative."""
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise UserError("weights must be finite and not negative")


def decision_world(world: Any, what: str) -> DecisionWorld:
    """The world, where its users are recommended one item at a time.

    Args:
        world: of any kind.
        what: that needs it, for the message.

    Raises:
        UserError: its users do not live a decision at a time, with what to use instead.
    """
    as_world(world)
    if isinstance(world, ExposureWorld):
        raise UserError(
            f"{what} asks for one item at a time, the {world.name} world recommends slates: use "
            "recsim_mnar.simulation.items or the environment recsim_mnar/Purchases-v0"
        )
    if isinstance(world, PlatformWorld):
        raise UserError(
            f"the {world.name} world is a whole platform, its users cannot be simulated apart: use "
            "recsim_mnar.simulation.platform.run_campaigns or the environment recsim_mnar/Campaigns-v0"
        )
    assert isinstance(world, DecisionWorld)
    return world


def described_object(given: Any) -> str:
    """What was given instead of a world, in a few words."""
    return f"the class {given.__name__}" if isinstance(given, type) else repr(given)


def _check_description(world: World) -> None:
    try:
        stated = world.describe()
        again = json.loads(json.dumps(stated))
    except Exception as error:  # an own world's code may raise anything
        raise UserError(
            f"world {world.name!r}: describe() must return JSON types, it raises {described(error)}"
        ) from None
    if not isinstance(stated, dict) or again.get("name") != world.name:
        raise UserError(f"world {world.name!r}: describe() must be a dictionary that holds the name")
