"""The policy that made a log: replayed where it is named, fitted on what users viewed where it is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.validation.lives import Lives
from recsim_mnar.fitting.validation.statistics import Material, by_item, traits_of
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.log.table import Log
from recsim_mnar.policy.adapting import as_policy
from recsim_mnar.policy.base import Floats, Ints, Policy, observe_events
from recsim_mnar.policy.features import FeaturePolicy
from recsim_mnar.policy.mixture import MixturePolicy
from recsim_mnar.policy.registry import learner
from recsim_mnar.policy.storage import Stored
from recsim_mnar.replays.probabilities import replay, replay_batches
from recsim_mnar.rng import Stream, derive_seed, policy_uniforms, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.registry import make_world

SAME = 1e-6
"""By how much a replayed propensity may miss the logged one."""
MOST_DEVIATIONS = 6.0
"""Standard deviations by which items' counts may be more uneven than uniform ones (chi square)."""
OWN = ("random", "user-popularity", "user-popularity-greedy")
"""Recommenders that a fitted policy is mixed of, whatever the items."""
OF_ITEMS = ("popularity", "item-knn", "user-knn", "svd")
"""And those that know items."""
FAR = 0.1
"""Standard deviations by which what a fitted policy shows may miss what the log shows, in each trait."""
OFTEN = 0.3
"""And in how often users were shown the same before, on which no statistic hangs."""
MOST_ITEMS = 3000
"""Of which cosines are kept for the logit; beyond them it is left out."""
LAST = 64
"""Views of a user that a fitted policy looks back on."""
_AGAIN = "shown before"
_LEAST = 0.01
_ROUNDS, _STEPS = 60, 15
_CELLS = 400_000


@dataclass(frozen=True)
class Shown:
    """What simulated users are shown.

    Attributes:
        policy: that recommends.
        known: whether it shows what the log's policy would, or nearly so.
        says: how it was found, a sentence; empty where nothing is left open.
        details: JSON types.
    """

    policy: Policy
    known: bool
    says: str
    details: dict[str, Any]


def uniform_policy(n_items: int) -> Policy:
    """Every item, whoever the user."""
    return as_policy(learner("random").fit(Log({}), n_items=n_items, seed=0))


def shown_in(world: Any, log: Log, halves: tuple[Log, Log], logging: Any, *, same_items: bool, seed: int) -> Shown:
    """The policy that made a log, as far as its propensities bear it out.

    Args:
        world: that users are simulated in.
        log: of the users looked at.
        halves: of them: a policy is fitted on the first and tried on the second.
        logging: a policy, or its name; None for what the provenance names.
        same_items: whether item numbers mean the same in world and log.
        seed: of fits and draws.
    """
    told = log.provenance.get("world")
    n_items = told.get("params", {}).get("n_items") if isinstance(told, dict) else None
    if _is_uniform(log, n_items or world.n_items):
        return Shown(uniform_policy(world.n_items), True, "", {"how": "uniform"})
    said = ""
    if same_items:
        for name, policy in _named(world, log, logging):
            if policy.n_items == world.n_items and _made(log, policy):
                return Shown(policy, True, "", {"how": "replayed", "policy": name})
            said = f"{name}, replayed, does not give the logged propensities: it did not make this log; "
    found = _fitted(world, log, halves, same_items=same_items, seed=seed)
    return Shown(found.policy, found.known, said + found.says, found.details)


def _is_uniform(log: Log, n_items: int) -> bool:
    """Whether propensities say so, and actions: a file without propensities may have been read as if it were."""
    shown = log.is_bandit
    each = shown.sum() / n_items
    excess = ((np.bincount(log["action"][shown], minlength=n_items) - each) ** 2).sum() / max(each, 1e-300) - n_items
    said = np.all(np.abs(log["propensity"][shown] * n_items - 1.0) < SAME)
    return bool(said and excess <= MOST_DEVIATIONS * np.sqrt(2.0 * n_items))


def _named(world: Any, log: Log, logging: Any) -> Iterator[tuple[str, Policy]]:
    """Policies that may have made the log, by their names."""
    told = log.provenance.get("policy")
    name = logging if logging is not None else told.get("name") if isinstance(told, dict) else None
    if name is None:
        return
    if not isinstance(name, str):
        yield str(getattr(name, "name", "the policy")), as_policy(name)
    elif name.endswith(".npz"):
        yield name, as_policy(Stored.load(name))
    else:
        # What is named by provenance may be unknown here; what must be fitted, and on what nobody says, is not it.
        with contextlib.suppress(UserError) if logging is None else contextlib.nullcontext():
            agent = learner(name)
            with contextlib.suppress(UserError):
                training, seed = _training(world, log)
                yield name, agent.fit(training, n_items=world.n_items, seed=seed)


def _training(world: Any, log: Log) -> tuple[Log, int]:
    """The log that the log's policy was fitted on, made again from the provenance, and the seed of the fit."""
    told, training = log.provenance.get("world"), log.provenance.get("training")
    if not isinstance(training, dict) or not isinstance(told, dict) or training.get("policy") != "random":
        return Log({}), 0
    if world.describe() != told:
        if "catalogue" in told:
            raise UserError("a catalogue that was given is not in the provenance")
        world = make_world(told["name"], settings=told["params"])
    made = simulate(world, uniform_policy(world.n_items), training["n_users"], training["seed"])
    return made, derive_seed(int(log.provenance["seed"]), "fit")


def _made(log: Log, policy: Policy) -> bool:
    """Whether a policy's replayed propensities are the logged ones."""
    try:
        replayed = replay(log, policy)[log.is_bandit]
    except UserError:  # it knows other items, or learns from all users
        return False
    return bool(np.all(np.abs(replayed - log["propensity"][log.is_bandit]) <= SAME))


def _fitted(world: Any, log: Log, halves: tuple[Log, Log], *, same_items: bool, seed: int) -> Shown:
    """A mixture of recommenders whose weights are likeliest by the first half's actions, tried on the second's."""
    n_items = max(world.n_items, int(log["item"].max(initial=-1)) + 1, int(log["action"].max(initial=-1)) + 1)
    parts = _parts(halves[0], n_items, same_items, seed)
    shown = [np.stack([replay(half, part)[half.is_bandit] for part in parts], axis=1) for half in halves]
    weights = _likeliest(shown[0])
    kept = weights >= _LEAST
    weights = weights[kept] / weights[kept].sum()
    policy = MixturePolicy([part for part, keep in zip(parts, kept, strict=True) if keep], weights, "fitted")
    far = _misses(halves[1], policy, same_items, seed)
    most = {trait: OFTEN if trait == _AGAIN else FAR for trait in far}
    worst = max(far, key=lambda trait: far[trait] / most[trait])
    score = float(np.log(np.maximum(shown[1][:, kept] @ weights, 1e-300)).mean())
    names = [each.name for each in policy.policies]
    details = {"how": "fitted", "weights": dict(zip(names, weights.tolist(), strict=True)), "misses": far,
               "log_score": score}  # fmt: skip
    if n_items != world.n_items:  # items are others: so are the recommenders, none of which knows items
        again = _parts(halves[0], world.n_items, same_items, seed)
        policy = MixturePolicy([part for part, keep in zip(again, kept, strict=True) if keep], weights, "fitted")
    if far[worst] <= most[worst]:
        return Shown(policy, True, "simulated users are shown what a policy fitted on the log shows", details)
    says = (
        f"no policy that was fitted shows what the log shows: it misses by {far[worst]:.2f} standard deviations of "
        f"{worst!r}; name the policy that made the log"
    )
    return Shown(policy, False, says, details)


def _parts(log: Log, n_items: int, same_items: bool, seed: int) -> list[Policy]:
    found = []
    for name in (*OWN, *OF_ITEMS) if same_items else OWN:
        with contextlib.suppress(UserError):
            found.append(as_policy(learner(name).fit(log, n_items=n_items, seed=derive_seed(seed, name))))
    return found + _of_counts(log, n_items, derive_seed(seed, "counts")) if same_items else found


def _likeliest(shown: Floats) -> Floats:
    """(M,) weights of a mixture that gives (n, M) probabilities their largest likelihood (EM)."""
    weights = np.full(shown.shape[1], 1.0 / shown.shape[1])
    for _ in range(_ROUNDS):
        part = shown * weights
        weights = (part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    return weights / weights.sum()


def _misses(log: Log, policy: Policy, same_items: bool, seed: int) -> dict[str, float]:
    """By how many standard deviations what a policy shows in the log's states misses what the log shows, by trait."""
    drawn, acting = log["action"].copy(), policy.fresh()
    acting.reset(log.users())
    for seen, decided in replay_batches(log, 0, len(log), one_by_one=not policy.batches_decisions):
        observe_events(acting, log["user"][seen], log["item"][seen], log["reward"][seen])
        users = log["user"][decided]
        drawn[decided] = acting.act(users, policy_uniforms(derive_seed(seed, "drawn"), users, decided))[0]
    sides = [Lives.of(each, policy.n_items) for each in (log, Log({**log.columns, "action": drawn}))]
    real, other = (
        {**traits_of(Material.of([side], same_items=same_items, clock=False)),
         _AGAIN: np.log1p(side.earlier(side.shown)[side.shown])}
        for side in sides
    )  # fmt: skip
    return {name: float(abs(real[name].mean() - other[name].mean()) / max(real[name].std(), 1e-300)) for name in real}


def _of_counts(log: Log, n_items: int, seed: int) -> list[Policy]:
    """Item shares of the log, and the conditional logit of what it shows on what the user viewed."""
    shares = np.bincount(log["action"][log.is_bandit], minlength=n_items) + 0.5
    shares = shares / shares.sum()
    by_shares = FeaturePolicy(
        n_items, "last", last=1, distribution=lambda x: np.tile(shares, (len(x), 1)), name="shares"
    )
    if n_items > MOST_ITEMS:
        return [by_shares]
    views = by_item(Lives.of(log, n_items).views)
    like = np.asarray((views.T @ views).todense())
    norm = np.sqrt(np.maximum(np.diag(like), 1e-300))
    like = like / norm[:, None] / norm * (1.0 - np.eye(n_items))

    def features(last: NDArray[Any]) -> Floats:
        """(n, n_items, 4): log views, whether last, likeness to what was viewed, log share; of (n, LAST) views."""
        counts = np.zeros((len(last), n_items + 1))
        np.add.at(counts, (np.arange(len(last))[:, None], last.astype(np.int64)), 1.0)
        counts = counts[:, 1:]
        latest = last[:, :1] - 1 == np.arange(n_items)
        near = counts @ like / (counts.sum(axis=1, keepdims=True) + 1.0)
        return np.stack([np.log1p(counts), latest, near, np.broadcast_to(np.log(shares), counts.shape)], axis=2)

    kept = uniforms(seed, Stream.PROTOCOL, np.arange(log.is_bandit.sum()), 0) < _CELLS / n_items / log.is_bandit.sum()
    states, _ = ContextRule("last", last=LAST).of(log, n_items)
    weights = _conditional_logit(features(states[kept]), log["action"][log.is_bandit][kept])
    return [
        by_shares,
        FeaturePolicy(n_items, "last", last=LAST, distribution=lambda x: _softmax(features(x) @ weights), name="logit"),
    ]


def _conditional_logit(x: Floats, chosen: Ints) -> Floats:
    """(f,) likeliest weights of choices among (n, n_items, f), less a ridge of 1/2 their squares (Newton's method)."""
    weights, picked = np.zeros(x.shape[2]), x[np.arange(len(x)), chosen]
    for _ in range(_STEPS):
        p = _softmax(x @ weights)
        mean = np.einsum("ni,nif->nf", p, x)
        rows = (x * np.sqrt(p)[:, :, None]).reshape(-1, len(weights))
        hessian = rows.T @ rows - mean.T @ mean + np.eye(len(weights))
        step = np.linalg.solve(hessian, (picked - mean).sum(axis=0) - weights)
        weights = weights + step / max(1.0, float(np.abs(step).max()))
    return weights


def _softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))
