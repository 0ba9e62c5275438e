"""The policy that made a log: replayed where it is named, fitted on what users viewed where it is not."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.validation.lives import Lives
from recsim_mnar.fitting.validation.statistics import Material, traits_of
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import TOLERANCE
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.door import as_policy
from recsim_mnar.policies.imitating import imitations, likeliest_weights
from recsim_mnar.policies.mixture import MixturePolicy
from recsim_mnar.policies.registry import learner, uniform_policy
from recsim_mnar.policies.storage import Stored
from recsim_mnar.replays.probabilities import gives_propensities, replay, rounds_of, walk
from recsim_mnar.rng import derive_seed, policy_uniforms
from recsim_mnar.simulation.named import items_told, logging_policy, runs_nothing

MOST_DEVIATIONS = 6.0
"""Standard deviations by which items' counts may be more uneven than uniform ones (chi square)."""
OWN = ("random", "user-popularity", "user-popularity-greedy")
OF_ITEMS = ("popularity", "item-knn", "user-knn", "svd")
"""Recommenders that a fitted policy is mixed of: whatever the items, and where items are the log's."""
FAR, OFTEN = 0.1, 0.3
"""Standard deviations by which what a fitted policy shows may miss what the log shows, in each trait; and in how often
users were shown the same before, on which no statistic hangs."""
_AGAIN = "shown before"
_LEAST = 0.01


class Shown(NamedTuple):
    """What simulated users are shown: by which policy, whether that shows (nearly) what the log's would, and why."""

    policy: Policy
    known: bool
    says: str
    details: dict[str, Any]


def shown_in(world: Any, log: Log, halves: tuple[Log, Log], logging: Any, *, same_items: bool, seed: int) -> Shown:
    """The policy that made a log, as far as its propensities bear it out, in a world that users are simulated in.

    One that nobody names is fitted on the first of the ``halves`` of the users, and tried on the second. ``logging`` is
    a policy, its name or its file; None for what the provenance names.
    """
    if _is_uniform(log, items_told(log.provenance, 0) or world.n_items):
        return Shown(uniform_policy(world.n_items), True, "", {"how": "uniform"})
    name, policy = _named(world, log, logging) if same_items else ("", None)
    if policy is not None and policy.n_items == world.n_items and gives_propensities(log, policy):
        return Shown(policy, True, "", {"how": "replayed", "policy": name})
    found = _fitted(world, log, halves, same_items=same_items, seed=seed)
    said = f"{name}, replayed, does not give the logged propensities: it did not make this log; "
    return found if policy is None else found._replace(says=said + found.says)


def _is_uniform(log: Log, n_items: int) -> bool:
    """Whether propensities say so, and actions: a file without propensities may have been read as if it were."""
    shown = log.is_bandit
    each = shown.sum() / n_items
    excess = ((np.bincount(log["action"][shown], minlength=n_items) - each) ** 2).sum() / max(each, 1e-300) - n_items
    said = np.all(np.abs(log["propensity"][shown] * n_items - 1.0) < TOLERANCE)
    return bool(said and excess <= MOST_DEVIATIONS * np.sqrt(2.0 * n_items))


def _named(world: Any, log: Log, logging: Any) -> tuple[str, Policy | None]:
    """The policy that is said to have made the log, by its name; None where nobody says, or it cannot be made again."""
    if logging is not None and not isinstance(logging, str):
        return str(getattr(logging, "name", "the policy")), as_policy(logging)
    if logging is not None and logging.endswith(".npz"):
        return logging, as_policy(Stored.load(logging))
    if logging is not None:
        learner(logging)  # a name that is unknown is said
    if "training" in log.provenance:
        policy = logging_policy(log.provenance, name=logging, world=world)
        return str(logging or getattr(policy, "name", "")), policy
    told = log.provenance.get("policy")
    name = logging or str(told.get("name") if isinstance(told, dict) else "")
    if name and (logging or runs_nothing(name)):
        with contextlib.suppress(UserError):  # what must be fitted, and on what nobody says, is not it
            return name, learner(name).fit(Log({}), n_items=world.n_items, seed=0)
    return name, None


def _fitted(world: Any, log: Log, halves: tuple[Log, Log], *, same_items: bool, seed: int) -> Shown:
    """A mixture of recommenders whose weights are likeliest by the first half's actions, tried on the second's."""
    n_items = max(world.n_items, int(log["item"].max(initial=-1)) + 1, int(log["action"].max(initial=-1)) + 1)
    parts = _parts(halves[0], n_items, same_items, seed)
    shown = [np.stack([replay(half, part)[half.is_bandit] for part in parts], axis=1) for half in halves]
    weights = likeliest_weights(shown[0])
    kept = np.flatnonzero(weights >= _LEAST)
    weights = weights[kept] / weights[kept].sum()
    policy = MixturePolicy([parts[i] for i in kept], weights, "fitted")
    far = _misses(halves[1], policy, same_items, seed)
    most = {trait: OFTEN if trait == _AGAIN else FAR for trait in far}
    worst = max(far, key=lambda trait: far[trait] / most[trait])
    score = float(np.log(np.maximum(shown[1][:, kept] @ weights, 1e-300)).mean())
    mixed = {each.name: weight for each, weight in zip(policy.policies, weights.tolist(), strict=True)}
    details = {"how": "fitted", "weights": mixed, "misses": far, "log_score": score}
    if n_items != world.n_items:  # items are others: so are the recommenders, none of which knows items
        parts = _parts(halves[0], world.n_items, same_items, seed)
        policy = MixturePolicy([parts[i] for i in kept], weights, "fitted")
    if far[worst] <= most[worst]:
        return Shown(policy, True, "simulated users are shown what a policy fitted on the log shows", details)
    misses = f"it misses by {far[worst]:.2f} standard deviations of {worst!r}; name the policy that made the log"
    return Shown(policy, False, f"no policy that was fitted shows what the log shows: {misses}", details)


def _parts(log: Log, n_items: int, same_items: bool, seed: int) -> list[Policy]:
    found = []
    for name in (*OWN, *OF_ITEMS) if same_items else OWN:
        with contextlib.suppress(UserError):
            found.append(as_policy(learner(name).fit(log, n_items=n_items, seed=derive_seed(seed, name))))
    return found + imitations(log, n_items, derive_seed(seed, "counts")) if same_items else found


def _misses(log: Log, policy: Policy, same_items: bool, seed: int) -> dict[str, float]:
    """By how many standard deviations what a policy shows in the log's states misses what the log shows, by trait."""
    drawn, acting = log["action"].copy(), policy.fresh()
    for decided in walk(log, [acting], rounds_of(log, one_by_one=not policy.batches_decisions)):
        users = log["user"][decided]
        drawn[decided] = acting.act(users, policy_uniforms(derive_seed(seed, "drawn"), users, decided))[0]
    sides = [Lives.of(each, policy.n_items) for each in (log, Log({**log.columns, "action": drawn}))]
    real, other = (
        {**traits_of(Material.of([side], same_items=same_items, clock=False)),
         _AGAIN: np.log1p(side.earlier(side.shown)[side.shown])}
        for side in sides
    )  # fmt: skip
    return {name: float(abs(real[name].mean() - other[name].mean()) / max(real[name].std(), 1e-300)) for name in real}
