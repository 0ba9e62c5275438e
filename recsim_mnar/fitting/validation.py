"""Comparison of a world with a log, check by check, each with its distribution by chance."""

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
from recsim_mnar.fitting.statistics import TABLE, Material, Row, UserRows, traits_of
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
from recsim_mnar.replays.probabilities import gives_propensities, replay, replay_rounds, rounds_of
from recsim_mnar.rng import Stream, check_seed, derive_seed, policy_uniforms, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.run_folder import logging_policy, names_catalogue, runs_nothing
from recsim_mnar.worlds.base import DecisionWorld, as_world

MOST_ITEMS = 3000
"""Largest number of items for which the logit, which needs all their cosines, is fitted."""
LAST = 64
"""Last views of a user that the logit uses."""
_ROUNDS = 60
"""EM steps for the weights of a mixture."""
_STEPS = 15
"""Newton steps for the logit."""
_CELLS = 400_000
"""Decisions times items on which the logit is fitted, about."""


def imitations(log: Log, n_items: int, seed: int) -> list[Policy]:
    """Fit policies that imitate the recommendations of a log.

    One recommends every item with its share of the log's recommendations. The other is a conditional logit of the
    recommended item on the user's last views; it is left out for more than :data:`MOST_ITEMS` items.

    Args:
        log: a log of views and recommendations.
        n_items: number of items.
        seed: seed of the choice of decisions on which the logit is fitted.
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
    products = np.asarray((views.T @ views).todense())
    norm = np.sqrt(np.maximum(np.diag(products), 1e-300))
    cosines = products / norm[:, None] / norm * (1.0 - np.eye(n_items))

    def features(last: NDArray[Any]) -> Floats:
        """Compute the logit's features of each item in each state.

        Args:
            last: (n, LAST) last views, the latest first: item number plus 1, or 0 for no view.

        Returns:
            (n, n_items, 4): log of 1 + the item's views; whether it was viewed last; its mean cosine with the views;
            the log of its share.
        """
        counts = np.zeros((len(last), n_items + 1))
        np.add.at(counts, (np.arange(len(last))[:, None], last.astype(np.int64)), 1.0)
        counts = counts[:, 1:]
        is_latest = last[:, :1] - 1 == np.arange(n_items)
        mean_cosine = counts @ cosines / (counts.sum(axis=1, keepdims=True) + 1.0)
        log_shares = np.broadcast_to(np.log(shares), counts.shape)
        return np.stack([np.log1p(counts), is_latest, mean_cosine, log_shares], axis=2)

    kept = uniforms(seed, Stream.PROTOCOL, np.arange(action.size), 0) < _CELLS / n_items / action.size
    states, _ = ContextRule("last", last=LAST).of(log, n_items)
    weights = _conditional_logit(features(states[kept]), action[kept])

    def probabilities(last: NDArray[Any]) -> Floats:
        return np.asarray(softmax(features(last) @ weights, axis=-1))

    logit = FeaturePolicy(n_items, f"last={LAST}", distribution=probabilities, name="logit")
    return [*policies, logit]


def _conditional_logit(x: Floats, chosen: Ints) -> Floats:
    """Fit a conditional logit by Newton's method, maximising the likelihood less half the weights' squares.

    Args:
        x: (n, n_items, f) features of each item in each decision.
        chosen: (n,) chosen items.

    Returns:
        (f,) weights of the features.
    """
    from scipy.special import softmax

    weights = np.zeros(x.shape[2])
    picked = x[np.arange(len(x)), chosen]
    for _ in range(_STEPS):
        p = softmax(x @ weights, axis=-1)
        mean = np.einsum("ni,nif->nf", p, x)
        rows = (x * np.sqrt(p)[:, :, None]).reshape(-1, len(weights))
        hessian = rows.T @ rows - mean.T @ mean + np.eye(len(weights))
        step = np.linalg.solve(hessian, (picked - mean).sum(axis=0) - weights)
        # No weight moves by more than 1 in a step: far from the optimum full Newton steps may diverge.
        weights = weights + step / max(1.0, float(np.abs(step).max()))
    return weights


def likeliest_weights(probabilities: Floats) -> Floats:
    """Fit the weights of a mixture of policies by EM.

    Args:
        probabilities: (n, M) probability of each logged action under each policy.

    Returns:
        (M,) weights of the largest likelihood, with sum 1.
    """
    weights = np.full(probabilities.shape[1], 1.0 / probabilities.shape[1])
    for _ in range(_ROUNDS):
        part = probabilities * weights
        weights = (part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    return weights / weights.sum()


MOST_DEVIATIONS = 6.0
"""Standard deviations by which the chi square of items' counts may exceed that of uniform recommendations."""
OWN = ("random", "user-popularity", "user-popularity-greedy")
"""Recommenders that are always part of a fitted mixture: they read a user's own views only."""
OF_ITEMS = ("popularity", "item-knn", "user-knn", "svd")
"""Recommenders that are part of a fitted mixture if the world's items are the log's."""
FAR = 0.1
"""Largest miss of a fitted policy in a trait of its recommendations, in standard deviations."""
OFTEN = 0.3
"""Largest miss in the number of earlier recommendations of the item, on which no statistic depends."""
_EARLIER = "shown before"
_LEAST = 0.01
"""Smallest weight with which a recommender stays in the mixture."""


class ShownPolicy(NamedTuple):
    """Policy that recommends to simulated users.

    Attributes:
        policy: the policy.
        known: True if it recommends (nearly) what the log's policy did.
        says: sentence on the policy; may be empty.
        details: how the policy was chosen; JSON types.
    """

    policy: Policy
    known: bool
    says: str
    details: Mapping[str, Any]


def shown_in(
    world: Any, log: Log, halves: tuple[Log, Log], logging: Any, *, same_items: bool, seed: int
) -> ShownPolicy:
    """Choose the policy that recommends to simulated users, as close as possible to the one that made the log.

    It is uniform if the log's is, else the named policy if it reproduces the logged propensities, else one fitted to
    the log.

    Args:
        world: the world in which users are simulated.
        log: all users' rows.
        halves: two halves of the users: a policy is fitted on the first and tested on the second.
        logging: a policy, its name or its file; None for the policy in the log's provenance.
        same_items: True if item numbers mean the same in world and log; otherwise a named policy cannot be used.
        seed: seed of the fitted policy.
    """
    if _is_uniform(log, stated_items(log.provenance, 0) or world.n_items):
        return ShownPolicy(uniform_policy(world.n_items), known=True, says="", details={"how": "uniform"})
    name = ""
    policy = None
    if same_items:
        name, policy = _named(world, log, logging)
    if policy is not None and policy.n_items == world.n_items and gives_propensities(log, policy):
        return ShownPolicy(policy, known=True, says="", details={"how": "replayed", "policy": name})
    fitted = _fitted(world, log, halves, same_items=same_items, seed=seed)
    if policy is None:
        return fitted
    problem = f"{name}, replayed, does not give the logged propensities: it did not make this log; "
    return fitted._replace(says=problem + fitted.says)


def _is_uniform(log: Log, n_items: int) -> bool:
    """Return whether recommendations are uniform, judged by both propensities and actions.

    Propensities alone do not show it: the reader of a file may have filled in uniform ones.
    """
    rows = log.is_bandit
    expected = rows.sum() / n_items
    squares = ((np.bincount(log["action"][rows], minlength=n_items) - expected) ** 2).sum()
    excess = squares / max(expected, 1e-300) - n_items
    uniform = np.all(np.abs(log["propensity"][rows] * n_items - 1.0) < TOLERANCE)
    return bool(uniform and excess <= MOST_DEVIATIONS * np.sqrt(2.0 * n_items))


def _named(world: Any, log: Log, logging: Any) -> tuple[str, Policy | None]:
    """Find the policy that the caller, or else the log's provenance, names as the one that made the log.

    Args:
        world: the world in which users are simulated.
        log: a log.
        logging: a policy, its name or its file; None for the policy in the provenance.

    Returns:
        name: name of the policy; "" if none is named.
        policy: the policy; None if none is named, or if it cannot be rebuilt.
    """
    if logging is not None and not isinstance(logging, str):
        return str(getattr(logging, "name", "the policy")), as_policy(logging)
    if logging is not None and logging.endswith(".npz"):
        return logging, as_policy(Stored.load(logging))
    if "training" in log.provenance:
        policy = logging_policy(log.provenance, name=logging, world=world)
        return str(logging or getattr(policy, "name", "")), policy
    name = logging or ""
    stated = log.provenance.get("policy")
    if not name and isinstance(stated, dict):
        name = str(stated.get("name"))
    if name and (logging or runs_nothing(name)):
        with contextlib.suppress(UserError):  # it cannot be one that needs fitting on an unknown log
            return name, learner(name).fit(Log({}), n_items=world.n_items, seed=0)
    return name, None


def _fitted(world: Any, log: Log, halves: tuple[Log, Log], *, same_items: bool, seed: int) -> ShownPolicy:
    """Fit a mixture of recommenders to the logged actions, and test how similar its recommendations are.

    Weights are fitted on the first half of the users. On the second half the policy's recommendations are compared
    with the logged ones, trait by trait.

    Returns:
        The mixture; ``known`` says whether every trait is close enough.
    """
    n_items = max(world.n_items, log.highest_item + 1)
    parts = _parts(halves[0], n_items, same_items, seed)
    train, test = (np.stack([replay(half, part)[half.is_bandit] for part in parts], axis=1) for half in halves)
    weights = likeliest_weights(train)
    kept = np.flatnonzero(weights >= _LEAST)
    weights = weights[kept] / weights[kept].sum()
    policy = MixturePolicy([parts[i] for i in kept], weights, "fitted")
    misses = _misses(halves[1], policy, same_items, seed)
    limits = {**dict.fromkeys(misses, FAR), _EARLIER: OFTEN}
    worst = max(misses, key=lambda trait: misses[trait] / limits[trait])
    details = {
        "how": "fitted",
        "weights": dict(zip([part.name for part in policy.policies], weights.tolist(), strict=True)),
        "misses": misses,
        "log_score": float(np.log(np.maximum(test[:, kept] @ weights, 1e-300)).mean()),
    }
    if n_items != world.n_items:  # item numbers differ, so all parts are ones of OWN and can be fitted for the world's
        parts = _parts(halves[0], world.n_items, same_items, seed)
        policy = MixturePolicy([parts[i] for i in kept], weights, "fitted")
    is_alike = misses[worst] <= limits[worst]
    if is_alike:
        says = "simulated users are shown what a policy fitted on the log shows"
    else:
        why = f"it misses by {misses[worst]:.2f} standard deviations of {worst!r}; name the policy that made the log"
        says = f"no policy that was fitted shows what the log shows: {why}"
    return ShownPolicy(policy, is_alike, says, details)


def _parts(log: Log, n_items: int, same_items: bool, seed: int) -> list[Policy]:
    """Fit the recommenders of a mixture to a log; one that cannot be fitted to it is left out."""
    names: tuple[str, ...] = OWN
    if same_items:
        names = (*OWN, *OF_ITEMS)
    parts = []
    for name in names:
        with contextlib.suppress(UserError):
            parts.append(as_policy(learner(name).fit(log, n_items=n_items, seed=derive_seed(seed, name))))
    if same_items:
        return parts + imitations(log, n_items, derive_seed(seed, "counts"))
    return parts


def _misses(log: Log, policy: Policy, same_items: bool, seed: int) -> dict[str, float]:
    """Compare a policy's recommendations with the logged ones, each drawn in the state of the logged one.

    Returns:
        By trait of recommendations, the absolute difference of the two means in standard deviations of the log's.
    """
    drawn = log["action"].copy()
    acting = policy.fresh()
    for decided in replay_rounds(log, [acting], rounds_of(log, one_by_one=not policy.batches_decisions)):
        users = log["user"][decided]
        drawn[decided] = acting.act(users, policy_uniforms(derive_seed(seed, "drawn"), users, decided))[0]

    def traits(side: Log) -> dict[str, Floats]:
        rows = UserRows.of(side, policy.n_items)
        earlier = np.log1p(rows.earlier(rows.shown)[rows.shown])
        return {**traits_of(Material.of([rows], same_items=same_items)), _EARLIER: earlier}

    real = traits(log)
    redrawn = traits(Log({**log.columns, "action": drawn}))
    return {name: float(abs(real[name].mean() - redrawn[name].mean()) / max(real[name].std(), 1e-300)) for name in real}


LEAST_USERS = 20
"""Smallest number of real users."""
MOST_USERS = 4000
"""Default of the largest number of real users in use."""
_MOST_ROWS = 500_000
"""Largest number of their rows: with three times as many simulated rows they need some 1.5 GB."""
_SIMULATED = 3
"""Simulated users per held-out user: their sampling error adds a third to the variance of a difference."""
# Where the logging policy is fitted, checks of many users would find the errors of that policy.
FITTED_USERS = 1000
"""Largest number of held-out users in that case."""
FITTED_CLICKS = 5000
"""Largest number of their clicks, about."""
_INDEPENDENT = 0.2
"""p-value from which a statistic counts as independent of recommendations, in a test of users with other ones."""
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
    """Compare the users of a simulated world with those of a log.

    Args:
        world: a :class:`~recsim_mnar.worlds.base.DecisionWorld` with its parameters; a fitted world (with ``make(i)``
            and ``ensemble``), which is fitted anew on half of the users and compared with the others; or a function
            from a log to either, which is called with the same half.
        log: rows of real users, ordered by (user, step).
        seed: seed of simulated users and of all divisions.
        logging: the policy that made the log, the name of an agent, or the file of a saved policy; None for the policy
            in the log's provenance. Simulated users get its recommendations if its replayed propensities are those of
            the log, and otherwise those of a policy fitted on the log.
        n_items: number of items; None for the larger one of the world's and the log's.
        same_items: whether item numbers mean the same in world and log; None for True if the world is fitted, or if
            the log's provenance names this world's catalogue.
        as_it_is: whether to compare a fitted world itself with all users, including those that it was fitted on.
        most_users: largest number of real users in use, chosen at random.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: the log has too few users, or log and world cannot be compared.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    seed = check_seed(seed)
    check_logging(logging)
    whole_number(most_users, "most_users", LEAST_USERS)
    if isinstance(world, type) or not (callable(world) or hasattr(world, "ensemble")):
        as_world(world)

    case = _case(
        world,
        _some_users(log, most_users, seed),
        seed=seed,
        n_items=n_items,
        same_items=same_items,
        as_it_is=as_it_is,
        logging=logging,
        report=report,
    )
    checks, without_data = _by_users(case, report)
    return Validation(graded(checks), [*_NEVER, *without_data], case.notes, case.facts())


def check_logging(logging: Any) -> None:
    """Raise UserError for an unknown name of the policy that made the log."""
    if isinstance(logging, str) and not logging.endswith(".npz"):
        learner(logging)


def _shuffled_users(log: Log, seed: int) -> Ints:
    """Return the users of a log in a random order."""
    users = log.users()
    return users[np.argsort(uniforms(seed, Stream.PROTOCOL, users, 0), kind="stable")]


def _some_users(log: Log, most: int, seed: int) -> tuple[Log, Log, Log]:
    """Choose users at random, within limits, and divide them into two random halves.

    Args:
        log: rows of all users.
        most: largest number of users; they have at most about :data:`_MOST_ROWS` rows.
        seed: seed of the choice.

    Returns:
        rows of all chosen users, of the first half, and of the second.

    Raises:
        UserError: the log has fewer than :data:`LEAST_USERS` users.
    """
    users = _shuffled_users(log, derive_seed(seed, "users"))
    if len(users) < LEAST_USERS:
        needs = f"validate needs at least {LEAST_USERS} users to divide the log by user"
        raise UserError(f"{needs}, it has {len(users)}: log more, or name a column of users")
    users = users[: max(LEAST_USERS, min(most, int(_MOST_ROWS * len(users) / len(log))))]

    def rows_of(part: Ints) -> Log:
        return log.select(np.isin(log["user"], part))

    return rows_of(users), rows_of(users[::2]), rows_of(users[1::2])


def _fewer(held_out: Log, seed: int) -> Log:
    """Choose at random as many users as the limits :data:`FITTED_USERS` and, about, :data:`FITTED_CLICKS` allow."""
    users = _shuffled_users(held_out, derive_seed(seed, "fewer"))
    clicks = float(held_out["reward"][held_out.is_bandit].sum())
    most = max(LEAST_USERS, int(min(FITTED_USERS, FITTED_CLICKS * len(users) / max(clicks, 1.0))))
    if len(users) <= most:
        return held_out
    return held_out.select(np.isin(held_out["user"], users[:most]))


@dataclass(frozen=True)
class _Case:
    """A world and the real users with whom it is compared.

    Attributes:
        world: the world.
        known: rows of the users on whom the world was fitted for this comparison; None if it was not.
        held_out: rows of the users with whom simulated ones are compared.
        shown: policy that recommends to simulated users.
        seed: seed of the simulation and of all divisions.
        n_items: number of items that world and log have together.
        same_items: True if item numbers mean the same in world and log.
        notes: sentences that a reader of the checks must know.
    """

    world: Any
    known: Log | None
    held_out: Log
    shown: ShownPolicy
    seed: int
    n_items: int
    same_items: bool
    notes: list[str]

    def simulated(self, n_users: int, policy: Policy) -> list[UserRows]:
        """Simulate at least ``n_users`` users.

        They get the numbers of the held-out users, in several simulations, unless these are spread too widely: a world
        may use a user's number as a date.

        Args:
            n_users: least number of users.
            policy: policy that recommends to them.

        Returns:
            The rows of each simulation; without recommendations if the log has none.
        """
        users = self.held_out.users()
        span = int(users[-1] - users[0]) + 1
        first = 0
        size = n_users
        if span <= n_users:
            first = int(users[0])
            size = span
        logs = [
            simulate(self.world, policy, size, derive_seed(self.seed, f"users {i}"), first_user=first)
            for i in range(-(-n_users // size))  # rounded up
        ]
        if not self.held_out.is_bandit.any():
            logs = [log.organic() for log in logs]
        return [UserRows.of(log, self.n_items) for log in logs]

    def facts(self) -> Mapping[str, Any]:
        """Return the settings of the comparison as JSON types."""
        return {
            "world": self.world.describe(),
            "users_held_out": len(self.held_out.users()),
            "users_fitted_on": 0 if self.known is None else len(self.known.users()),
            "n_items": self.n_items,
            "same_items": self.same_items,
            "seed": self.seed,
            "logging_policy": {"known": self.shown.known, **self.shown.details},
        }


def _case(
    world: Any,
    users: tuple[Log, Log, Log],
    *,
    seed: int,
    n_items: int | None,
    same_items: bool | None,
    as_it_is: bool,
    logging: Any,
    report: Callable[[str], None],
) -> _Case:
    """Fit the world anew if it is a fitted one, and choose the policy for simulated users.

    Args:
        world: a world, a fitted world, or a function from a log to either.
        users: rows of all chosen users, of the first half, and of the second.
        seed: seed of all that is random.
        n_items: number of items that the caller states, or None.
        same_items: whether item numbers mean the same in world and log; None to find out.
        as_it_is: whether to compare a fitted world itself with all users.
        logging: policy that the caller names, or None.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: log and world cannot be compared.
    """
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
    if hasattr(world, "ensemble"):
        made = as_world(world.make())
    else:
        made = as_world(world)
    largest = log.highest_item
    same = same_items
    if same is None:
        same = _has_items_of(log, world, made, fits)
    _refuse(made, largest, n_items, same)
    if not same:
        notes.append("the world's items are not the log's: only what does not name items is compared")
    report("the policy that made the log")
    logger = shown_in(made, log, (first, second), logging, same_items=same, seed=derive_seed(seed, "logging policy"))
    if logger.says:
        notes.append(logger.says)
    held_out = second if anew else log
    if logger.details["how"] == "fitted":
        held_out = _fewer(held_out, seed)
    known_users = first if anew else None
    n_items = max(n_items or 0, largest + 1, made.n_items)
    return _Case(made, known_users, held_out, shown=logger, seed=seed, n_items=n_items, same_items=same, notes=notes)


def _has_items_of(log: Log, world: Any, made: Any, fits: bool) -> bool:
    """Return whether item numbers mean the same in a world and in a log.

    Args:
        log: the log.
        world: what the caller gave or what was fitted: a fitted world, or a world with its parameters.
        made: the world with its parameters.
        fits: True if the world was fitted to a log like this one. It then has the log's items; but a FittedWorld
            without catalogues (that of the ratings world) draws items anew, unless its world has a matrix of ratings.
    """
    if fits:
        return getattr(world, "catalogues", ()) is not None or getattr(made, "matrix", None) is not None
    return names_catalogue(log.provenance, made)


def _refuse(made: Any, largest: int, n_items: int | None, same: bool) -> None:
    """Raise UserError if the world cannot be compared with the log.

    Args:
        made: the world.
        largest: largest item number in the log.
        n_items: number of items that the caller states, or None.
        same: True if item numbers mean the same in world and log.
    """
    if not isinstance(made, DecisionWorld):
        supported = "one whose users are recommended one item at a time (sessions, ratings, features)"
        raise UserError(f"validate: the {made.name} world is not {supported}")
    if n_items is not None and n_items <= largest:
        raise UserError(f"n_items is {n_items}, but the log has item {largest}")
    if same and made.n_items <= largest:  # the world does not have all items of the log
        raise UserError(
            f"validate: the log has item {largest}, the world {made.n_items} items: set n_items, or fit the world to "
            "this log"
        )


def _fit(world: Any, log: Log, n_items: int | None, seed: int, report: Callable[[str], None]) -> Any:
    """Fit a world to a log: call the caller's function, or calibrate a world of the same kind as the fitted one."""
    if callable(world):
        return world(log)
    from recsim_mnar.fitting.calibration import calibrate_world

    n_items = n_items or world.make().n_items
    seed = derive_seed(seed, "fit")
    return calibrate_world(log, world.world, seed, n_items=n_items, ensemble=0, report=report)


def _by_users(case: _Case, report: Callable[[str], None]) -> tuple[list[Check], list[str]]:
    """Run the checks of all statistics and of the classifier by permutation tests, with users as units.

    Args:
        case: the world and the users.
        report: called with a line whenever a stage begins.

    Returns:
        checks: the checks, not yet graded.
        questions: questions on which the log has no data.
    """
    report("simulating users")
    held_out = UserRows.of(case.held_out, case.n_items)
    real = [held_out]
    n_known = 0
    if case.known is not None:
        real.insert(0, UserRows.of(case.known, case.n_items))
        n_known = real[0].n_users
    simulated = case.simulated(_SIMULATED * held_out.n_users, case.shown.policy)
    n_simulated = sum(part.n_users for part in simulated)
    # A fitted world has the sampling error of the n_known users on top of the errors of held-out and simulated ones.
    allowance = 1.0
    if n_known:
        allowance += (1.0 / n_known) / (1.0 / held_out.n_users + 1.0 / n_simulated)
    material = Material.of([*real, *simulated], same_items=case.same_items)
    groups = Groups(n_known, held_out.n_users, n_simulated, derive_seed(case.seed, "groups"), allowance)
    columns = {row: row.columns(material) for row in TABLE}
    # Under another policy than the log's, only statistics that do not depend on recommendations can be tested.
    testable = TABLE if case.shown.known else _independent_rows(case, simulated)
    result: list[Check] = []
    report("statistics")
    for row in counting(TABLE, "checks"):
        checks = row.check(columns[row], groups)
        if row not in testable:
            checks = [dataclasses.replace(check, p=None, says=case.shown.says) for check in checks]
        result += checks
    report("classifier")
    usable = [columns[row] for row in testable]
    result += classifier_check([part for part in usable if part is not None], groups)
    return result, _questions_without_data(case, material)


def _independent_rows(case: _Case, simulated: list[UserRows]) -> list[Row]:
    """Return the statistics that, in the world, hardly differ between users with other recommendations.

    Simulated users are compared with as many who get random recommendations; statistics that are about recommendations
    are left out in any case.

    Args:
        case: the world and the users.
        simulated: rows of simulated users.
    """
    n = simulated[0].n_users
    other_parts = case.simulated(n, uniform_policy(case.world.n_items))[:1]
    material = Material.of([simulated[0], *other_parts], same_items=case.same_items)
    groups = Groups(0, n, n, derive_seed(case.seed, "shown"), draws=199)
    rows = []
    for row in TABLE:
        if not row.shown:
            checks = row.check(row.columns(material), groups)
            if all(check.p is not None and check.p > _INDEPENDENT for check in checks):
                rows.append(row)
    return rows


def _questions_without_data(case: _Case, material: Material) -> list[str]:
    """Return the questions on which the log has no data, each with the reason."""
    rows = material.rows
    questions = []
    if not case.same_items:
        questions.append("which items are popular, and which the same users meet: the world's items are others")
    if not (rows.decisions.reward > 0).any():
        questions.append("clicks: the log has no recommendations that were clicked")
    if rows.shown.all():
        questions.append("what users browse: the log has no views")
    return questions
