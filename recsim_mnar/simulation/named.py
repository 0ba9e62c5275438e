"""A world, and a policy by its name, to a folder: what the command ``simulate`` does, by the class of the world.

Each function of a request has the same two arguments and returns what the folder then holds, so that a world's entry
(:class:`recsim_mnar.worlds.registry.Entry`) can name one of its own. The way back, from a log's provenance to the
policy, is :func:`logging_policy`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import check_needs
from recsim_mnar.policies.slates import DeployedPolicy
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.platform import platform_to
from recsim_mnar.simulation.run_folder import Written, simulate_to
from recsim_mnar.simulation.slates import write_exposures
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import DecisionWorld, ExposureWorld, PlatformWorld, World

DEPLOYED_NAMES = ("deployed", "house")
"""Names of the policy that a world brings along, its own recommender; the second is what version 0.1.0 called it."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to simulate.

    Attributes:
        out: folder.
        policy: name of what recommends, or :data:`DEPLOYED_NAMES`.
        n_users: how many.
        seed: of the users and the policy.
        train_users: users under the uniform policy on whose log a policy that learns is fitted.
        keep_truth: write the truth next to the log.
        form: of the parts, as :func:`recsim_mnar.simulation.run_folder.simulate_to`.
        resume: keep the parts that an interrupted run has written.
        executor: to spread users over.
        progress: called with the number of users done since the last call.
    """

    out: Path
    policy: str
    n_users: int
    seed: int = 0
    train_users: int = 2000
    keep_truth: bool = False
    form: str = "parquet"
    resume: bool = False
    executor: Executor | None = None
    progress: Callable[[int], None] = lambda users: None


def users(world: DecisionWorld | ExposureWorld, request: Request) -> Written:
    """Users meet a policy or, in a world of slates, the world's own recommender; of slates the exposures, too.

    Raises:
        UserError: as :func:`recsim_mnar.simulation.run_folder.simulate_to`, or the policy is :data:`DEPLOYED_NAMES`
            where the world recommends one item at a time.
    """
    deployed = request.policy in DEPLOYED_NAMES
    if deployed and not isinstance(world, ExposureWorld):
        raise UserError(f"policy {request.policy}: the {world.name} world has no recommender of its own: name an agent")
    train_seed = derive_seed(request.seed, "train")
    training = {"policy": "random", "n_users": request.train_users, "seed": train_seed}
    policy: Any = DeployedPolicy(world) if deployed else _fitted(world, request, train_seed)
    options = ("keep_truth", "form", "resume", "executor", "progress")
    written = simulate_to(
        *(request.out, world, policy, request.n_users, request.seed),
        training=None if deployed else training,
        **{name: getattr(request, name) for name in options},
    )
    if isinstance(world, ExposureWorld):
        write_exposures(request.out, world, policy, request.n_users, request.seed, request.keep_truth)
    return written


def platform(world: PlatformWorld, request: Request) -> Written:
    """A platform of so many users lives through its campaigns, by its own weights or a recommender's best items.

    It is simulated whole (``in_parts`` is False), so ``resume`` is not read.
    """
    recommender = None if request.policy in DEPLOYED_NAMES else registry.learner(request.policy)
    sized: Any = world.with_users(request.n_users)
    return Written(
        request.n_users, platform_to(request.out, sized, request.seed, recommender, keep_truth=request.keep_truth)
    )


def _fitted(world: World, request: Request, train_seed: int) -> Any:
    """The policy of a name, fitted on other users under the uniform policy."""
    learner = registry.learner(request.policy)
    check_needs(request.policy, learner, world.log_holds, f"a log of the {world.name} world")
    uniform = registry.uniform_policy(world.n_items)
    train = simulate(world, uniform, request.train_users, train_seed, executor=request.executor)
    return learner.fit(train, n_items=world.n_items, seed=derive_seed(request.seed, "fit"))


# ------------------------------------------------------------------------------------------ and back, from a provenance


def logging_policy(
    provenance: Mapping[str, Any], *, name: str | None = None, world: Any = None, executor: Executor | None = None
) -> Any:
    """The policy under which a log was simulated, made again from its provenance; None where that does not suffice.

    Args:
        provenance: of the log.
        name: of the policy, where somebody says so; else as the provenance says.
        world: of the log, where it is at hand; a catalogue that was given cannot be made again.
        executor: to spread users over.
    """
    try:
        stated, training = provenance["world"], provenance["training"]
        spec = name or provenance["policy"]["name"]
        named = [stated["name"], training["policy"], *([] if name else [spec])]
        if not all(runs_nothing(str(each)) for each in named):
            return None
        if world is None or world.describe() != stated:
            if "catalogue" in stated:
                return None
            world = make_world(stated["name"], None, stated["params"])
        uniform = registry.learner(training["policy"]).fit(Log({}), n_items=world.n_items, seed=0)
        train = simulate(world, uniform, training["n_users"], training["seed"], executor=executor)
        return registry.learner(spec).fit(
            train, n_items=world.n_items, seed=derive_seed(check_seed(provenance["seed"]), "fit")
        )
    except (KeyError, TypeError, UserError):
        return None


def names_catalogue(provenance: Mapping[str, Any], world: Any) -> bool:
    """Whether a provenance is of a world of this kind with this world's catalogue."""
    stated = provenance.get("world")
    if not isinstance(stated, dict) or stated.get("name") != world.name:
        return False
    own, params = world.params.to_dict(), stated.get("params", {})
    return all(own.get(name) == params.get(name) for name in ("n_items", "catalogue_seed", "n_factors"))


def runs_nothing(name: str) -> bool:
    """Whether what a provenance names is announced by an installed package, or of a module that is loaded already.

    A log runs no code.
    """
    head = name.partition("+")[0].strip()
    module, colon, _ = head.partition(":")
    return module in sys.modules if colon else "." not in head  # files name modules, too
