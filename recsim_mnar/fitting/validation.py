"""validate_world: a world compared with a log, check by check, each next to its distribution by chance."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.checks import Check, Groups, Validation, classifier_check, graded
from recsim_mnar.fitting.statistics import TABLE, Lives, Material, Row, traits_of
from recsim_mnar.kernels.checks import of_type, whole_number
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log, stated_items
from recsim_mnar.policies.answers import TOLERANCE
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.door import as_policy
from recsim_mnar.policies.features import FeaturePolicy
from recsim_mnar.policies.registry import learner, uniform_policy
from recsim_mnar.policies.softening import MixturePolicy
from recsim_mnar.policies.storage import Stored
from recsim_mnar.progress import counting
from recsim_mnar.replays.probabilities import gives_propensities, replay, rounds_of, walk
from recsim_mnar.rng import Stream, check_seed, derive_seed, policy_uniforms, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.run_folder import logging_policy, names_catalogue, runs_nothing
from recsim_mnar.worlds.base import DecisionWorld, as_world

MOST_ITEMS = 3000
"""Of which cosines are kept for the logit; beyond them it is left out."""
LAST = 64
"""Views of a user that the logit looks back on."""
_ROUNDS, _STEPS = 60, 15
_CELLS = 400_000


def imitations(log: Log, n_items: int, seed: int) -> list[Policy]:
    """Item shares of a log, and the conditional logit of what it shows on what the user viewed; fitted, by name.

    The logit is left out beyond :data:`MOST_ITEMS` items. ``seed`` is of the decisions that it is fitted on.
    """
    from scipy import sparse
    from scipy.special import softmax

    action = log["action"][log.is_bandit]
    shares = np.bincount(action, minlength=n_items) + 0.5
    shares = shares / shares.sum()
    policies: list[Policy] = [
        FeaturePolicy(n_items, "last=1", distribution=lambda x: np.tile(shares, (len(x), 1)), name="shares")
    ]
    if n_items > MOST_ITEMS:
        return policies
    organic = log.organic()
    owner = user_numbers(organic["user"])
    views = sparse.csr_array((np.ones(len(owner)), (owner, organic["item"])), shape=(len(owner), n_items))
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

    kept = uniforms(seed, Stream.PROTOCOL, np.arange(action.size), 0) < _CELLS / n_items / action.size
    states, _ = ContextRule("last", last=LAST).of(log, n_items)
    weights = _conditional_logit(features(states[kept]), action[kept])

    def chances(last: NDArray[Any]) -> Floats:
        return np.asarray(softmax(features(last) @ weights, axis=-1))

    logit = FeaturePolicy(n_items, f"last={LAST}", distribution=chances, name="logit")
    return [*policies, logit]


def _conditional_logit(x: Floats, chosen: Ints) -> Floats:
    """(f,) likeliest weights of choices among (n, n_items, f), less a ridge of 1/2 their squares (Newton's method)."""
    from scipy.special import softmax

    weights = np.zeros(x.shape[2])
    picked = x[np.arange(len(x)), chosen]
    for _ in range(_STEPS):
        p = softmax(x @ weights, axis=-1)
        mean = np.einsum("ni,nif->nf", p, x)
        rows = (x * np.sqrt(p)[:, :, None]).reshape(-1, len(weights))
        hessian = rows.T @ rows - mean.T @ mean + np.eye(len(weights))
        step = np.linalg.solve(hessian, (picked - mean).sum(axis=0) - weights)
        weights = weights + step / max(1.0, float(np.abs(step).max()))
    return weights


def likeliest_weights(shown: Floats) -> Floats:
    """(M,) weights of a mixture that gives (n, M) probabilities their largest likelihood (EM)."""
    weights = np.full(shown.shape[1], 1.0 / shown.shape[1])
    for _ in range(_ROUNDS):
        part = shown * weights
        weights = (part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    return weights / weights.sum()


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


class ShownPolicy(NamedTuple):
    """Recommendations of simulated users: their policy, whether it shows (nearly) the same as the log's, and why."""

    policy: Policy
    known: bool
    says: str
    details: Mapping[str, Any]


def shown_in(
    world: Any, log: Log, halves: tuple[Log, Log], logging: Any, *, same_items: bool, seed: int
) -> ShownPolicy:
    """The policy that made a log, as far as its propensities bear it out, in a world that users are simulated in.

    One without a name is fitted on the first of the ``halves`` of the users, and tried on the second. ``logging`` is
    a policy, its name or its file; None for what the provenance names.
    """
    if _is_uniform(log, stated_items(log.provenance, 0) or world.n_items):
        return ShownPolicy(uniform_policy(world.n_items), True, "", {"how": "uniform"})
    name, policy = _named(world, log, logging) if same_items else ("", None)
    if policy is not None and policy.n_items == world.n_items and gives_propensities(log, policy):
        return ShownPolicy(policy, True, "", {"how": "replayed", "policy": name})
    fitted = _fitted(world, log, halves, same_items=same_items, seed=seed)
    problem = f"{name}, replayed, does not give the logged propensities: it did not make this log; "
    if policy is None:
        return fitted
    return fitted._replace(says=problem + fitted.says)


def _is_uniform(log: Log, n_items: int) -> bool:
    """True if the propensities and actions say so: a file without propensities may have been read as if it were."""
    decision_rows = log.is_bandit
    expected = decision_rows.sum() / n_items
    excess = ((np.bincount(log["action"][decision_rows], minlength=n_items) - expected) ** 2).sum() / max(
        expected, 1e-300
    ) - n_items
    uniform = np.all(np.abs(log["propensity"][decision_rows] * n_items - 1.0) < TOLERANCE)
    return bool(uniform and excess <= MOST_DEVIATIONS * np.sqrt(2.0 * n_items))


def _named(world: Any, log: Log, logging: Any) -> tuple[str, Policy | None]:
    """The policy that is said to have made the log, by its name; None if not stated, or if it cannot be made again."""
    if logging is not None and not isinstance(logging, str):
        return str(getattr(logging, "name", "the policy")), as_policy(logging)
    if logging is not None and logging.endswith(".npz"):
        return logging, as_policy(Stored.load(logging))
    if "training" in log.provenance:
        policy = logging_policy(log.provenance, name=logging, world=world)
        return str(logging or getattr(policy, "name", "")), policy
    stated = log.provenance.get("policy")
    name = logging or str(stated.get("name") if isinstance(stated, dict) else "")
    if name and (logging or runs_nothing(name)):
        with contextlib.suppress(UserError):  # it cannot be one that needs fitting on an unknown log
            return name, learner(name).fit(Log({}), n_items=world.n_items, seed=0)
    return name, None


def _fitted(world: Any, log: Log, halves: tuple[Log, Log], *, same_items: bool, seed: int) -> ShownPolicy:
    """A mixture of recommenders whose weights are likeliest by the first half's actions, tried on the second's."""
    n_items = max(world.n_items, log.highest_item + 1)
    parts = _parts(halves[0], n_items, same_items, seed)
    probabilities = [np.stack([replay(half, part)[half.is_bandit] for part in parts], axis=1) for half in halves]
    weights = likeliest_weights(probabilities[0])
    kept = np.flatnonzero(weights >= _LEAST)
    weights = weights[kept] / weights[kept].sum()
    policy = MixturePolicy([parts[i] for i in kept], weights, "fitted")
    far = _misses(halves[1], policy, same_items, seed)
    most = {trait: OFTEN if trait == _AGAIN else FAR for trait in far}
    worst = max(far, key=lambda trait: far[trait] / most[trait])
    score = float(np.log(np.maximum(probabilities[1][:, kept] @ weights, 1e-300)).mean())
    mixed = {policy_part.name: weight for policy_part, weight in zip(policy.policies, weights.tolist(), strict=True)}
    details = {"how": "fitted", "weights": mixed, "misses": far, "log_score": score}
    if n_items != world.n_items:  # items are others: so are the recommenders, none of which knows items
        parts = _parts(halves[0], world.n_items, same_items, seed)
        policy = MixturePolicy([parts[i] for i in kept], weights, "fitted")
    if far[worst] <= most[worst]:
        return ShownPolicy(policy, True, "simulated users are shown what a policy fitted on the log shows", details)
    misses = f"it misses by {far[worst]:.2f} standard deviations of {worst!r}; name the policy that made the log"
    return ShownPolicy(policy, False, f"no policy that was fitted shows what the log shows: {misses}", details)


def _parts(log: Log, n_items: int, same_items: bool, seed: int) -> list[Policy]:
    parts = []
    for name in (*OWN, *OF_ITEMS) if same_items else OWN:
        with contextlib.suppress(UserError):
            parts.append(as_policy(learner(name).fit(log, n_items=n_items, seed=derive_seed(seed, name))))
    if same_items:
        return parts + imitations(log, n_items, derive_seed(seed, "counts"))
    return parts


def _misses(log: Log, policy: Policy, same_items: bool, seed: int) -> dict[str, float]:
    """Deviation of a policy's recommendations from the log's in the log's states, in standard deviations, by trait."""
    drawn = log["action"].copy()
    acting = policy.fresh()
    for decided in walk(log, [acting], rounds_of(log, one_by_one=not policy.batches_decisions)):
        users = log["user"][decided]
        drawn[decided] = acting.act(users, policy_uniforms(derive_seed(seed, "drawn"), users, decided))[0]

    def traits(side: Log) -> dict[str, Floats]:
        lives = Lives.of(side, policy.n_items)
        again = np.log1p(lives.earlier(lives.shown)[lives.shown])
        return {**traits_of(Material.of([lives], same_items=same_items)), _AGAIN: again}

    real = traits(log)
    other = traits(Log({**log.columns, "action": drawn}))
    return {name: float(abs(real[name].mean() - other[name].mean()) / max(real[name].std(), 1e-300)) for name in real}


LEAST_USERS, MOST_USERS, _MOST_ROWS = 20, 4000, 500_000
"""Real users, and rows, that are looked at: with three times as many simulated rows some 1.5 GB."""
_SIMULATED = 3
"""Simulated users for each held-out one: their own error then adds a third, not as much again."""
FITTED_USERS, FITTED_CLICKS = 1000, 5000
"""Held-out users, and their clicks, that are looked at where the policy is fitted: more would find its error."""
_SAME = 0.2
"""p from which a statistic of users who are shown other items is taken not to hang on what they are shown."""
_NEVER = (
    "what another policy would earn, and what recommendations do in the long run",
    "items and users of a kind that the log does not hold",
    "when things happen, and how much users do in one go",
)


def validate_world(
    world: Any,
    log: Log,
    seed: int = 0,
    *,
    logging: Any = None,
    n_items: int | None = None,
    same_items: bool | None = None,
    as_it_is: bool = False,
    most_users: int = MOST_USERS,
    report: Callable[[str], None] = lambda stage: None,
) -> Validation:
    """Compare a world with a log.

    Args:
        world: a :class:`~recsim_mnar.worlds.base.DecisionWorld` with its parameters; a fitted world (what has
            ``make(i)`` and ``ensemble``), which is fitted anew on half of the users and compared with the others; or
            a function that makes either of a log, which is asked for the same.
        log: real users, ordered by (user, step).
        seed: of simulated users and of all divisions.
        logging: the policy that made the log, or its name (an agent's, or the file of a saved policy); what the
            provenance names where None. Simulated users are shown what it would show them if its replayed propensities
            are those of the log, else what a policy fitted on the log would.
        n_items: how many items there are; as the world says, or the log's largest, where None.
        same_items: whether item numbers mean the same in world and log; where None: for a fitted world, and for a log
            whose provenance names this world's catalogue.
        as_it_is: hold a fitted world itself against all users, those included that it was fitted on.
        most_users: real users looked at; a random choice where there are more.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: too few users, a log and a world that do not go together.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    seed = check_seed(seed)
    check_logging(logging)
    whole_number(most_users, "most_users", LEAST_USERS)
    if isinstance(world, type) or not (callable(world) or hasattr(world, "ensemble")):
        as_world(world)

    case = _case(world, _some_users(log, most_users, seed), seed, n_items, same_items, as_it_is, logging, report)
    checks, unseen = _by_users(case, report)
    return Validation(graded(checks), [*_NEVER, *unseen], case.notes, case.facts())


def check_logging(logging: Any) -> None:
    """Raise UserError for an unknown name of the policy that made the log."""
    if isinstance(logging, str) and not logging.endswith(".npz"):
        learner(logging)


def _drawn(log: Log, seed: int) -> Ints:
    """The users of a log in a drawn order."""
    users = log.users()
    return users[np.argsort(uniforms(seed, Stream.PROTOCOL, users, 0), kind="stable")]


def _some_users(log: Log, most: int, seed: int) -> tuple[Log, Log, Log]:
    """At most so many real users and :data:`_MOST_ROWS` rows, and two random halves of them."""
    users = _drawn(log, derive_seed(seed, "users"))
    if len(users) < LEAST_USERS:
        needs = f"validate needs at least {LEAST_USERS} users to divide the log by user"
        raise UserError(f"{needs}, it has {len(users)}: log more, or name a column of users")
    users = users[: max(LEAST_USERS, min(most, int(_MOST_ROWS * len(users) / len(log))))]

    def rows_of(some: Ints) -> Log:
        return log.select(np.isin(log["user"], some))

    return rows_of(users), rows_of(users[::2]), rows_of(users[1::2])


def _fewer(held: Log, seed: int) -> Log:
    """At most :data:`FITTED_USERS` users, and some :data:`FITTED_CLICKS` clicks."""
    users = _drawn(held, derive_seed(seed, "fewer"))
    clicks = float(held["reward"][held.is_bandit].sum())
    most = max(LEAST_USERS, int(min(FITTED_USERS, FITTED_CLICKS * len(users) / max(clicks, 1.0))))
    if len(users) <= most:
        return held
    return held.select(np.isin(held["user"], users[:most]))


@dataclass(frozen=True)
class _Case:
    """A world, and the users it is compared with: ``known``, on whom it was fitted, and ``held``, the others or all."""

    world: Any
    known: Log | None
    held: Log
    shown: ShownPolicy
    seed: int
    n_items: int
    same_items: bool
    notes: list[str]

    def simulated(self, n_users: int, policy: Policy) -> list[Lives]:
        """At least so many users, in parts numbered as the log's: a world may take a user's number for a date."""
        users = self.held.users()
        span = int(users[-1] - users[0]) + 1
        alike = span <= n_users
        first = int(users[0]) if alike else 0
        size = span if alike else n_users
        logs = [
            simulate(self.world, policy, size, derive_seed(self.seed, f"users {i}"), first_user=first)
            for i in range(-(-n_users // size))
        ]
        shows = self.held.is_bandit.any()
        return [Lives.of(log if shows else log.organic(), self.n_items) for log in logs]

    def facts(self) -> Mapping[str, Any]:
        """The result as JSON types."""
        return {
            "world": self.world.describe(),
            "users_held_out": len(self.held.users()),
            "users_fitted_on": 0 if self.known is None else len(self.known.users()),
            "n_items": self.n_items,
            "same_items": self.same_items,
            "seed": self.seed,
            "logging_policy": {"known": self.shown.known, **self.shown.details},
        }


def _case(
    world: Any,
    users: tuple[Log, Log, Log],
    seed: int,
    n_items: int | None,
    same_items: bool | None,
    as_it_is: bool,
    logging: Any,
    report: Callable[[str], None],
) -> _Case:
    log, first, second = users
    fits = callable(world) or hasattr(world, "ensemble")
    anew = fits and not (as_it_is and hasattr(world, "ensemble"))
    notes = []
    if anew:
        report("fitting on half of the users")
        world = _fit(world, first, n_items, seed, report)
        n = len(first.users())
        n_others = len(second.users())
        notes.append(f"the world was fitted anew on {n:,} users and is compared with {n_others:,} others")
    elif fits:
        notes.append("the world may have been fitted on these very users: its figures are then of fit, not held out")
    made = as_world(world.make() if hasattr(world, "ensemble") else world)
    largest = log.highest_item
    same = same_items
    if same is None:  # a fit has items of its own
        itself = getattr(world, "catalogues", ()) is not None or getattr(made, "matrix", None) is not None
        if fits:
            same = itself
        else:
            same = names_catalogue(log.provenance, made)
    _refuse(made, largest, n_items, same)
    if not same:
        notes.append("the world's items are not the log's: only what does not name items is compared")
    report("the policy that made the log")
    logger = shown_in(made, log, (first, second), logging, same_items=same, seed=derive_seed(seed, "logging policy"))
    notes += [logger.says] * bool(logger.says)
    held = second if anew else log
    if logger.details["how"] == "fitted":
        held = _fewer(held, seed)
    size = max(n_items or 0, largest + 1, made.n_items)
    return _Case(made, first if anew else None, held, logger, seed, size, same, notes)


def _refuse(made: Any, largest: int, n_items: int | None, same: bool) -> None:
    """Raise UserError for a world and a log, whose largest item is known, that do not go together."""
    if not isinstance(made, DecisionWorld):
        wanted = "one whose users are recommended one item at a time (sessions, ratings, features)"
        raise UserError(f"validate: the {made.name} world is not {wanted}")
    if n_items is not None and n_items <= largest:
        raise UserError(f"n_items is {n_items}, but the log has item {largest}")
    if same and made.n_items <= largest:  # its numbers could not mean the same
        found = f"the log has item {largest}, the world {made.n_items} items"
        raise UserError(f"validate: {found}: set n_items, or fit the world to this log")


def _fit(world: Any, log: Log, n_items: int | None, seed: int, report: Callable[[str], None]) -> Any:
    """The world that is made of a log by what the user brings, or by calibration as the fitted world was made."""
    if callable(world):
        return world(log)
    from recsim_mnar.fitting.calibration import calibrate_world

    n_items = n_items or world.make().n_items
    seed = derive_seed(seed, "fit")
    return calibrate_world(log, world.world, seed, n_items=n_items, ensemble=0, report=report)


def _by_users(case: _Case, report: Callable[[str], None]) -> tuple[list[Check], list[str]]:
    """The results of exchanging users: the statistics, the classifier, and questions without data."""
    report("simulating users")
    real = [Lives.of(world_part, case.n_items) for world_part in (case.known, case.held) if world_part is not None]
    n_known = sum(part.n_users for part in real[:-1])
    held = real[-1].n_users
    simulated = case.simulated(_SIMULATED * held, case.shown.policy)
    n_simulated = sum(part.n_users for part in simulated)
    if n_known:
        allowance = 1.0 + (1.0 / n_known) / (1.0 / held + 1.0 / n_simulated)
    else:
        allowance = 1.0
    material = Material.of([*real, *simulated], same_items=case.same_items)
    groups = Groups(n_known, held, n_simulated, derive_seed(case.seed, "groups"), allowance)
    columns = {row: row.columns(material) for row in TABLE}
    rows = TABLE if case.shown.known else _whatever_is_shown(case, simulated)
    result: list[Check] = []
    report("statistics")
    for row in counting(TABLE, "checks"):
        checks = row.check(columns[row], groups)
        if row in rows:
            result += checks
        else:
            result += [dataclasses.replace(c, p=None, says=case.shown.says) for c in checks]
    report("classifier")
    of = [world_part for row in rows if (world_part := columns[row]) is not None]
    result += classifier_check(of, groups)
    return result, _unseen(case, material)


def _whatever_is_shown(case: _Case, simulated: list[Lives]) -> list[Row]:
    """Rows of the table that do not depend on the recommendations: users shown random items look much the same."""
    n = simulated[0].n_users
    other_parts = case.simulated(n, uniform_policy(case.world.n_items))[:1]
    material = Material.of([simulated[0], *other_parts], same_items=case.same_items)
    groups = Groups(0, n, n, derive_seed(case.seed, "shown"), draws=199)
    checks = [(row, row.check(row.columns(material), groups)) for row in TABLE if not row.shown]
    return [row for row, row_checks in checks if all(check.p is not None and check.p > _SAME for check in row_checks)]


def _unseen(case: _Case, material: Material) -> list[str]:
    """Questions without data in the log."""
    lives = material.lives
    remarks = {
        "which items are popular, and which the same users meet: the world's items are others": not case.same_items,
        "clicks: the log has no recommendations that were clicked": not (lives.decisions.reward > 0).any(),
        "what users browse: the log has no views": not (~lives.shown).any(),
    }
    return [question for question, lacks in remarks.items() if lacks]
