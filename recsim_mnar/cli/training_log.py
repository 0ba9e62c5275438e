"""The log that ``replay`` fits agents on: it must be of LOG's items, of other users, and hold what they learn from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError

TWO_POLICIES = "two values of two policies, each fitted on the other half; neither is the one fitted on all users"


def learned(learner: Any, fitted: Any, n_items: int) -> bool:
    """Whether a log made a policy what it is: without one it cannot be fitted, or is another."""
    from recsim_mnar.log.table import Log
    from recsim_mnar.policies.door import as_policy
    from recsim_mnar.replays.probabilities import same_law

    try:
        return not same_law(as_policy(fitted), as_policy(learner.fit(Log({}), n_items=n_items, seed=0)))
    except UserError:
        return True


def fitted_on(given: Any, policies: list[str], digest: str | None, half: int | None = None) -> dict[str, Any]:
    """The entry of the provenance that says what these policies were fitted on; empty where they were on no log."""
    from recsim_mnar.estimators.off_policy.stated import FITTED_ON

    if digest is None or not policies:
        return {}
    entry = {"policies": policies, "digest": digest, "shared": given.shared, "users": given.n_users}
    return {FITTED_ON: entry | ({} if half is None else {"half": half})}


def halves(log: Any, seed: int) -> list[Any]:
    """A log's users in two, each by a draw of its own.

    Raises:
        UserError: all of them are in one.
    """
    import numpy as np

    from recsim_mnar.rng import Stream, derive_seed, uniforms

    users = log.users()
    first = users[uniforms(derive_seed(seed, "split-users"), Stream.PROTOCOL, users, 0) < 0.5]
    if len(first) in (0, len(users)):
        raise UserError(f"--split-users: {len(users)} users are too few to be split; give a log of more users")
    inside = np.isin(log["user"], first)
    return [log.select(inside), log.select(~inside)]


def check_training(log: Path, data: Any, train: Path | None, training: Any, learners: Mapping[str, Any]) -> None:
    """Look at the training log before any agent is fitted on it.

    Args:
        log: that is replayed, and its rows ``data``.
        data: a :class:`recsim_mnar.log.Log`.
        train: to fit on, None where none is named, and its rows ``training``.
        training: likewise.
        learners: by name.

    Raises:
        UserError: it is of another world or catalogue, whose items are other items; or an agent needs what it lacks.
    """
    from recsim_mnar.policies.needs import check_needs

    if train is None:
        for name, learner in learners.items():
            if getattr(learner, "needs", ()):
                raise unfitted(name, log)
        return
    _refuse_other_items(log, data, train, training)
    holds = _holdings(training)
    for name, learner in learners.items():
        check_needs(name, learner, holds, f"--train {train}")


def unfitted(name: str, log: Path) -> UserError:
    """What to say of an agent that must be fitted and has no log to be fitted on."""
    return UserError(
        f"{name} is fitted on a log: name one with --train, of the same items and of other users; {log} itself is not "
        "used, for an agent must not have seen those whom it is judged on (--split-users fits on one half of them and "
        "judges on the other)"
    )


def _refuse_other_items(log: Path, data: Any, train: Path, training: Any) -> None:
    here, there = (_world(each.provenance) for each in (data, training))
    for key, what in (("name", "world"), ("n_items", "number of items"), ("catalogue_seed", "catalogue_seed")):
        if None not in (here.get(key), there.get(key)) and here[key] != there[key]:
            raise UserError(
                f"--train {train}: its {what} is {there[key]}, that of {log} is {here[key]}, so their items are not "
                "the same; name a log of the same world and catalogue"
            )


def _world(provenance: Any) -> dict[str, Any]:
    """Name and size of the world that a log says it is of; empty where it says nothing that can be understood."""
    world = provenance.get("world") if isinstance(provenance, Mapping) else None
    if not isinstance(world, Mapping):
        return {}
    params = world.get("params")
    of_params = {key: params.get(key) for key in ("n_items", "catalogue_seed")} if isinstance(params, Mapping) else {}
    return {"name": world.get("name"), **of_params}


def _holdings(training: Any) -> frozenset[str] | None:
    """What a log holds beside views, see :data:`recsim_mnar.policies.needs.HOLDINGS`."""
    import numpy as np

    from recsim_mnar.worlds.registry import worlds

    entry = worlds().get(str(_world(training.provenance).get("name")))
    if entry is not None:
        return entry.world_class().log_holds
    held = {"outcomes", "clicks"} if training.is_bandit.any() else set()
    if not np.isnan(training["reward"][~training.is_bandit]).all():
        held.add("ratings")
    return frozenset(held)
